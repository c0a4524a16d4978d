"""Playback of command graphs of launches only, by the shortest way (``run/executor/command_buffer.py``)."""

from __future__ import annotations

from manycl.run.commands.command_graph import CommandGraph
from manycl.run.commands.transfers import Subject
from manycl.run.data.coherence import Directory
from manycl.run.engine.engine import fitting, resumed
from manycl.run.engine.playback import Playback
from manycl.run.engine.result import Result
from manycl.run.executor.command_buffer import CommandBuffer, play
from manycl.run.executor.executor import Executor
from manycl.run.recovery.event_monitor import EventMonitor

AT_ONCE = 1e-3
"""The most seconds that a run whose time is certain may take for the driver's own wait, during which Ctrl-C is not
handled."""


def played(
    script: CommandGraph,
    executor: Executor,
    directory: Directory,
    buffer: CommandBuffer,
    seconds: float,
    watch: EventMonitor,
) -> Result | None:
    """Play a command graph. Return None if buffers are not where it needs them. ``seconds``: its time in the last run;
    ``watch``: the event monitor, to which lost devices are reported. Raises what ``execute`` raises."""

    def play_at_once(playback: Playback) -> Result:
        try:
            taken, record = play(executor, script, buffer, buffer.bounded and seconds <= AT_ONCE)
        except BaseException as error:
            _give(playback)
            playback.lose(f"the run was stopped by {type(error).__name__}")
            raise
        graph, machine, plan = script.problem.graph, executor.machine, script.plan
        if record.failure is not None:
            _give(playback)
            playback.fail(record.failure)
            subject = Subject(script.problem, script.lowered, directory.valid)
            return resumed(subject, playback, executor, plan.policy, watch)
        playback.end()
        return Result(graph, machine, plan.policy, taken, record, plan=plan, lowered=script.lowered, playback=playback)

    return fitting(script, directory, play_at_once)


def _give(playback: Playback) -> None:
    """Mark all commands as enqueued and none as reported."""
    playback.start(0.0)
    playback.handle()
