"""Observers of a run: liveness, progress, the output of MANYCL_DEBUG, and others. The engine calls each of them with
what it gives to the devices and what these report, in that order and from its own thread. They only listen: a run does
the same with and without them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from manycl.run.commands.backend import Command, Report, Run
from manycl.run.engine.playback import Playback


class Observer:
    """A listener to a run. ``playback``: the state of the run, to read; ``now``: seconds since the run began. An
    exception of an observer stops the run."""

    def begun(self, playback: Playback, name: str, now: float) -> None:
        """Note that a run begins; ``name``: its policy's."""

    def issued(self, playback: Playback, commands: Sequence[Command], now: float) -> None:
        """Note commands that are about to be given to the devices."""

    def heard(self, playback: Playback, reports: Sequence[Report], now: float) -> None:
        """Note that commands have ended or failed, before ``playback`` handles the reports."""

    def advanced(self, playback: Playback, now: float) -> None:
        """Note that ``playback`` has handled the reports, and that the commands that follow are issued."""

    def ended(self, playback: Playback, now: float) -> None:
        """Note that nothing of the run will follow. Not called when it is interrupted."""


class Counting(Observer):
    """An observer that calls ``tell(n)`` whenever n nodes of the graph are complete."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell

    def advanced(self, playback: Playback, now: float) -> None:
        total, steps = len(playback.command_graph.problem.graph), len(playback.graph)
        self._tell(playback.complete * total // steps)


class Debugging(Observer):
    """The observer that prints for MANYCL_DEBUG. Level 1: runs; 2: which node goes where; 3: every command; 4: every
    report, and the invariants are checked."""

    def __init__(self, level: int) -> None:
        self._level = level

    def begun(self, playback: Playback, name: str, now: float) -> None:
        _say(now, f"run of {len(playback.graph)} steps by {name or 'a plan'}, queues {playback.queues}")

    def issued(self, playback: Playback, commands: Sequence[Command], now: float) -> None:
        devices, nodes = playback.command_graph.problem.machine.devices, playback.graph.nodes
        for command in commands:
            if self._level >= 3:
                _say(now, str(command))
            elif self._level == 2 and isinstance(command, Run):
                where = f"{devices[command.device].name} queue {command.queue}"
                _say(now, f"{nodes[command.token].name} (node {command.token}) on {where}")

    def heard(self, playback: Playback, reports: Sequence[Report], now: float) -> None:
        if self._level >= 4:
            for report in reports:
                _say(now, str(report))

    def advanced(self, playback: Playback, now: float) -> None:
        if self._level >= 4:
            playback.validate()

    def ended(self, playback: Playback, now: float) -> None:
        _say(now, f"{'failed' if playback.failed else 'complete'}: {playback.complete} steps")


def debugging(level: int) -> tuple[Observer, ...]:
    """Return the observers that MANYCL_DEBUG asks for."""
    return (Debugging(level),) if level else ()


def _say(now: float, text: str) -> None:
    print(f"manycl {now * 1e3:10.3f} ms: {text}", file=sys.stderr)
