"""The commands in flight on a device: how long they take, and the waits for them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from manycl.drivers.driver import DriverError, Event
from manycl.drivers.driver import Queue as DriverQueue
from manycl.machine import DeviceIndex
from manycl.run.commands.flow_control import AHEAD, FlowControl
from manycl.run.executor.run_state import RunState, wait_for, wait_soon
from manycl.run.executor.waits import AT_ONCE, wait_beside
from manycl.run.streams.command_log import CommandLog

if TYPE_CHECKING:
    from manycl.run.executor.lanes import Lanes

UNKNOWN = AHEAD / 64
"""The seconds that count for a command whose time is unknown."""


class InFlight:
    """The commands of an eager stream and the waits for them. ``given``: the log of the commands in their order, the
    last part of each its event. ``waited``: the number of commands at the last time when all of them were complete."""

    __slots__ = ("__dict__", "given", "queue")  # (compiled code reads ``given``)

    def __init__(self, device: DeviceIndex, lanes: Lanes, run: RunState) -> None:
        self.device = device
        self._lanes = lanes
        self._run = run
        self.record = run.record  # of all commands
        self.queue: DriverQueue = lanes.queues[0]
        self.given = CommandLog()
        self.waited = 0
        self._flow: FlowControl[Event] | None = None  # of what was given since the last wait for all
        self._moved: tuple[int, Event] | None = None  # a copy after so many commands, for which there was no wait

    @property
    def _last(self) -> Event:
        """The event that ends last of all that was given."""
        moved = self._moved
        return moved[1] if moved is not None and moved[0] == len(self.given) else self.given[-1][2]

    @property
    def is_waited(self) -> bool:
        """True if all that was given is known to be complete."""
        return self.waited == len(self.given) and self._moved is None

    def count(self, seconds: float) -> None:
        """Count a command that was given, of so many expected seconds."""
        log = self.given
        log.ahead += seconds
        if log.ahead > log.limit:
            self.pace()

    def pace(self) -> None:
        """Note a mark, and wait for the one that is due, as planned runs do."""
        log, flow = self.given, self._flow
        if flow is None:
            flow = self._flow = FlowControl()
        seconds = log.ahead - flow.ahead
        due = flow.due(seconds)
        flow.give(log[-1][2], seconds)
        if due is not None:
            with suppress(DriverError):  # the error is raised where results are asked for
                if not self._lanes.driver.done(due):
                    self._lanes.flush(self.queue)
                    wait_for(self._run, self.device, due)
        log.ahead, log.limit = flow.ahead, flow.limit

    @property
    def is_short(self) -> bool:
        """True if what is ahead takes so little time that the driver's own wait may be used."""
        return self.given.ahead <= AT_ONCE

    def wait_beside(self, event: Event) -> None:
        """Wait until a command has ended, with or without an error; for threads that do not have the stream's lock."""
        wait_beside(self._lanes.driver, event)

    def _wait_soon(self, event: Event) -> None:
        """Wait until an event is complete, by the driver's own wait where that ends soon. Raises DriverError."""
        self._lanes.flush(self.queue)
        wait_soon(self._run, self.device, event, self.is_short)
