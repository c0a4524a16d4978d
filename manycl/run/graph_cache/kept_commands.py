"""Kept commands: a command graph that is played again, on the buffers that it was made for or on others, by the
drivers' calls that were recorded of it, or command by command."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from manycl.errors import ManyclError
from manycl.graph.graph import Graph
from manycl.graph.signature import Signature
from manycl.plan.plan import Plan
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.commands.transfers import Subject
from manycl.run.data.admission import make_room
from manycl.run.engine.engine import again, moved_again, resumed
from manycl.run.engine.playback import Playback
from manycl.run.engine.result import Result
from manycl.run.engine.setup import PLAIN, Setup
from manycl.run.executor.command_buffer import CommandBuffer, play, recorded
from manycl.run.executor.waits import LONGEST
from manycl.run.recovery.device_events import EventMonitor
from manycl.utilities.unforeseen import told

if TYPE_CHECKING:
    from manycl.run.session.session import Session


class KeptShares:
    """A plan whose launches may move while they run, kept with its steps: the run is decided anew each time, but not
    planned. In one memory, whose contents nobody else loses. ``of``, ``devices``: as for KeptCommands."""

    def __init__(self, subject: Subject, plan: Plan, of: Signature, devices: int) -> None:
        self._subject, self.plan, self.of, self._devices = subject, plan, of, devices

    def on(self, graph: Graph, of: Signature) -> None:
        """Return None: its chunks are launches on its own buffers."""

    def play(self, session: Session, learning: bool) -> Result | None:
        """Follow the plan; as ``KeptCommands.play``."""
        return session.repeat(self._subject.problem.graph, self._devices, learning, partial(self._play, session))

    def _play(self, session: Session) -> Result | None:
        devices, lowered, directory = session.devices, self._subject.lowered, session.directory
        if devices.mortal or not session.data.steps.exists(lowered) or not lowered.fits(directory):
            return None
        devices.used.become(devices.present)
        watch = EventMonitor(devices.events, devices.machine, devices.used)
        subject = self._subject._replace(valid=directory.valid)
        return moved_again(subject, self.plan, session.backend, directory, session.observers, watch)


class _Recording:
    """The recorded calls of a command graph, for graphs of its structure on any buffers. ``of``: the signature of the
    graph that they were recorded for."""

    def __init__(self, of: Signature) -> None:
        self.of = of
        self.buffer: CommandBuffer | None = None
        self.is_timed: bool | None = None  # whether the calls are timed; None: none were recorded
        self.seconds, self.scalars = inf, of.scalars  # of the last run


class KeptCommands:
    """A command graph that is kept. ``of``: the signature of its graph; ``devices``: the version of the session's
    devices when it was made, as it is for no others. ``lasting``: its buffers exist as long as it does."""

    def __init__(
        self,
        command_graph: CommandGraph,
        of: Signature,
        devices: int,
        lasting: bool,
        recording: _Recording | None = None,
    ) -> None:
        self.command_graph, self.plan, self.of = command_graph, command_graph.plan, of
        self._devices, self._is_lasting = devices, lasting
        self._memory: int | None = None  # the version of the memory after the last run
        self._recording = _Recording(of) if recording is None else recording

    def on(self, graph: Graph, of: Signature) -> KeptCommands | None:
        """Return the commands of a graph of the same structure with the signature ``of``. None where they name pieces
        of buffers, or windows."""
        if not self.command_graph.is_plain:
            return None
        command_graph = self.command_graph.on(graph, dict(zip(self.of.keys, of.keys, strict=True)))
        return KeptCommands(command_graph, of, self._devices, self._is_lasting, self._recording)

    def play(self, session: Session, learning: bool) -> Result | None:
        """Play the commands. Return None where buffers are not where they need them, or the session's devices have
        changed. ``learning``: whether the times of kernels are learned from. Raises what ``Session.run`` raises."""
        result = session.repeat(self.command_graph.problem.graph, self._devices, learning, partial(self._play, session))
        if result is not None:
            self._memory = session.backend.memory.version
            self._recording.seconds, self._recording.scalars = result.seconds, self.of.scalars
        return result

    def _play(self, session: Session) -> Result | None:
        command_graph, lowered, memory = self.command_graph, self.command_graph.lowered, session.backend.memory
        devices = session.devices
        devices.used.become(command_graph.devices)
        has_own = lowered.temporaries or lowered.room is not None
        if (has_own and not session.data.steps.exists(lowered)) or not lowered.fits(session.directory):
            return None
        # buffers that have not been removed since are still there; where memory is short, others are evicted
        is_ready = self._memory == memory.version and lowered.room is None
        is_roomy = is_ready or devices.machine.memories == 1
        watch = EventMonitor(devices.events, devices.machine, devices.used)
        return again(
            command_graph,
            session.backend,
            session.directory,
            setup=PLAIN if is_roomy else Setup(prepare=partial(make_room, devices, session.data)),
            observers=session.observers,
            watch=watch,
            shortest=partial(self._by_calls, session, watch),
        )

    def _by_calls(self, session: Session, watch: EventMonitor, playback: Playback) -> Result | None:
        """Make the recorded calls; return None if there are none."""
        command_graph, buffer = self.command_graph, self._buffer(session)
        if buffer is None:
            return None
        executor, plan = session.backend, command_graph.plan
        known = self._recording
        is_certain = buffer.bounded and (buffer.steady or self.of.scalars == known.scalars)
        try:
            taken, record = play(executor, command_graph, buffer, is_certain and known.seconds <= LONGEST)
        except BaseException as error:
            _give(playback)
            playback.lose(f"the run was stopped by {type(error).__name__}")
            raise
        if record.failure is not None:
            _give(playback)
            playback.fail(record.failure)
            subject = Subject(command_graph.problem, command_graph.lowered, session.directory.valid)
            return resumed(subject, playback, executor, plan.policy, watch)
        playback.end()
        graph, machine = command_graph.problem.graph, executor.machine
        return Result(
            graph, machine, plan.policy, taken, record, plan=plan, lowered=command_graph.lowered, playback=playback
        )

    def _buffer(self, session: Session) -> CommandBuffer | None:
        """Return the recorded calls on the buffers. Raises what its commands would raise."""
        executor, known = session.backend, self._recording
        if session.debug or self.command_graph.lowered.room is not None:
            return None
        try:
            if known.is_timed != executor.profile:
                known.of, known.is_timed, known.buffer = self.of, executor.profile, None
                known.buffer = recorded(executor, self.command_graph)
            if known.buffer is None:
                return None
            found: tuple[CommandBuffer, CommandBuffer] | None = executor.memory.bound.get(self)
            if found is None or found[0] is not known.buffer:
                keys = dict(zip(known.of.keys, self.of.keys, strict=True))
                found = known.buffer, known.buffer.bound(executor, self.command_graph.lowered.graph, keys)
                executor.memory.bound[self] = found
        except ManyclError:
            raise
        except Exception as error:  # the graph is then enqueued command by command
            told(error, "finding the shortest way to enqueue a run")
            known.buffer = None
            return None
        return found[1]


def _give(playback: Playback) -> None:
    """Mark all commands as enqueued and none as reported."""
    playback.start(0.0)
    playback.handle()
