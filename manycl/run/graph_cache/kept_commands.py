"""Kept commands: a command graph that is played again, on the buffers that it was made for or on others, by the
drivers' calls that were recorded of it, or command by command."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from manycl.errors import ManyclError
from manycl.graph.graph import Graph
from manycl.graph.signature import Signature
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.commands.transfers import Subject
from manycl.run.data.admission import make_room
from manycl.run.engine.engine import again, resumed
from manycl.run.engine.observers import debugging
from manycl.run.engine.playback import Playback
from manycl.run.engine.result import Result
from manycl.run.engine.setup import PLAIN, Setup
from manycl.run.executor.command_buffer import CommandBuffer, play, recorded
from manycl.run.lowering.steps import state_of
from manycl.run.recovery.event_monitor import EventMonitor
from manycl.utilities.unforeseen import told

if TYPE_CHECKING:
    from manycl.run.session.session import Devices, Session

AT_ONCE = 1e-3
"""The most seconds that a run whose time is certain may take for the driver's own wait, during which Ctrl-C is not
handled."""


class KeptCommands:
    """A command graph that is kept. ``of``: the signature of its graph; ``devices``: the session's devices when it was
    made, as it is for no others."""

    def __init__(self, script: CommandGraph, of: Signature, devices: Devices) -> None:
        self.script = script
        self.of, self._devices = of, devices
        self._seconds, self._scalars = inf, of.scalars  # of the last run
        # the version of the memory after the last run, if that was on the buffers that the graph was made for
        self._memory: int | None = None
        self._is_timed: bool | None = None  # whether recorded calls are timed; None: none were recorded
        self._recorded: CommandBuffer | None = None
        self._bound: CommandBuffer | None = None  # the recorded calls on the buffers of the last run

    def play(self, session: Session, graph: Graph, of: Signature, learning: bool) -> Result | None:
        """Play the commands for a graph of the same structure, with the signature ``of``. Return None where they are
        not for its buffers, for the places of these, or for the session's devices. ``learning``: whether the times of
        its kernels are learned from. Raises what ``Session.run`` raises."""
        script = self.script
        is_own = of is self.of or (of.keys == self.of.keys and of.scalars == self.of.scalars)
        if not is_own:
            if not script.is_plain:
                return None
            script = script.on(graph, dict(zip(self.of.keys, of.keys, strict=True)))
        played = partial(self._play, session, script, of, is_own)
        result = session.repeat(script, self._devices, learning, played)
        if result is not None:
            self._memory = session.backend.memory.version if is_own else None
            self._seconds, self._scalars = result.seconds, of.scalars
        return result

    def _play(self, session: Session, script: CommandGraph, of: Signature, is_own: bool) -> Result | None:
        lowered, memory = script.lowered, session.backend.memory
        if not session.steps.exists(lowered):
            return None
        if lowered.state and lowered.state != state_of(script.problem.graph, session.directory):
            return None
        # buffers that have not been removed since are still there; where memory is short, others are evicted
        is_ready = is_own and self._memory == memory.version and lowered.room is None
        is_roomy = is_ready or session.machine.memories == 1
        return again(
            script,
            session.backend,
            session.directory,
            name=script.plan.policy,
            setup=PLAIN if is_roomy else Setup(prepare=partial(make_room, session)),
            observers=debugging(session.debug),
            watch=(watch := session.watch()),
            shortest=partial(self._by_calls, session, script, of, is_ready, watch),
        )

    def _by_calls(
        self,
        session: Session,
        script: CommandGraph,
        of: Signature,
        is_ready: bool,
        watch: EventMonitor,
        playback: Playback,
    ) -> Result | None:
        """Make the recorded calls; return None if there are none. ``is_ready``: buffers are where they were."""
        buffer = self._buffer(session, script, of, is_ready)
        if buffer is None:
            return None
        executor, plan = session.backend, script.plan
        is_certain = buffer.bounded and (buffer.steady or of.scalars == self._scalars)
        try:
            taken, record = play(executor, script, buffer, is_certain and self._seconds <= AT_ONCE)
        except BaseException as error:
            _give(playback)
            playback.lose(f"the run was stopped by {type(error).__name__}")
            raise
        if record.failure is not None:
            _give(playback)
            playback.fail(record.failure)
            subject = Subject(script.problem, script.lowered, session.directory.valid)
            return resumed(subject, playback, executor, plan.policy, watch)
        playback.end()
        graph, machine = script.problem.graph, executor.machine
        return Result(graph, machine, plan.policy, taken, record, plan=plan, lowered=script.lowered, playback=playback)

    def _buffer(self, session: Session, script: CommandGraph, of: Signature, is_ready: bool) -> CommandBuffer | None:
        """Return the recorded calls on the buffers of a run. Raises what its commands would raise."""
        executor = session.backend
        if session.debug or script.lowered.room is not None:
            return None
        try:
            if self._is_timed != executor.profile:
                self._is_timed, self._recorded, self._bound = executor.profile, None, None
                self._recorded = recorded(executor, self.script)
            if self._recorded is not None and (self._bound is None or not is_ready):
                keys = dict(zip(self.of.keys, of.keys, strict=True))
                self._bound = self._recorded.bound(executor, script.lowered.graph, keys)
        except ManyclError:
            raise
        except Exception as error:  # the graph is then enqueued command by command
            told(error, "finding the shortest way to enqueue a run")
            self._recorded = self._bound = None
        return self._bound


def _give(playback: Playback) -> None:
    """Mark all commands as enqueued and none as reported."""
    playback.start(0.0)
    playback.handle()
