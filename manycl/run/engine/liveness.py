"""Liveness of a run: the engine waits only while a command is in flight that will be reported. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from manycl.errors import RunError
from manycl.run.commands.backend import Command, Evict, HostCall, Report


class Stalled(Protocol):
    """A run that can say which of its commands are not enqueued yet, and why."""

    def held_up(self) -> str: ...


class Liveness:
    """The commands in flight whose reports are still to come."""

    def __init__(self) -> None:
        self._due: set[int] = set()

    def given(self, commands: Iterable[Command]) -> None:
        """Add the commands that the back end has been given."""
        due = self._due
        for command in commands:
            if isinstance(command, HostCall) or (not isinstance(command, Evict) and command.notify):
                due.add(command.token)

    def heard(self, reports: Iterable[Report]) -> None:
        self._due.difference_update([report.token for report in reports])

    @property
    def is_over(self) -> bool:
        """True if all of them have been reported."""
        return not self._due

    def check(self, state: Stalled) -> None:
        """Raise RunError where a wait would never end: no command in flight will be reported."""
        if not self._due:
            raise RunError(
                f"manycl itself is at fault: the run is not complete, but nothing is under way. {state.held_up()}",
                hint="please report this, with what MANYCL_DEBUG=4 prints; another policy may run it",
            )
