"""What the engine hears of its commands: reports that threads bring, and commands that it looks after itself.

A thread that blocks in a driver's wait is right for devices that compute on the host's own cores. Drivers of GPUs spin
while they wait, several threads in one driver hold each other up, and who is woken after some milliseconds of sleep
wakes late: 200 us from a kernel's end until the engine knows, where looking at the event's status takes 14 (measured
with an H200). So the commands of such devices are watched here, by the thread that needs to know, which spins only as
long as it pays.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from manycl.drivers.driver import Driver, DriverError, Event
from manycl.run.commands.backend import Done, Failed, Report

BUSY = 2e-4
"""Seconds of waiting, from the last report on, without anything between looks: what is asked to let other threads run
lets them run for some 50 us at least (Linux)."""
SPIN = 0.01
"""Seconds of waiting without a pause between looks."""
PAUSE = 0.005
"""Then: the share of the time waited so far that a pause takes, …"""
LONGEST = 1e-3
"""… and its most, in seconds."""


_Watched = tuple[Sequence[int], Driver, Event]


class Completions:
    """Of run ``run``; ``now``: seconds since it began."""

    def __init__(self, now: Callable[[], float], run: int = 0) -> None:
        self._now = now
        self._run = run
        self._brought: SimpleQueue[Report | None] = SimpleQueue()
        # by queue, whose commands end in order
        self._watched: dict[tuple[int, int], deque[_Watched]] = {}

    def put(self, report: Report) -> None:
        """A thread has something to say."""
        self._brought.put(report)

    def wake(self) -> None:
        """Whoever waits, or will wait next, goes on, with nothing if there is nothing."""
        self._brought.put(None)

    def watch(self, place: tuple[int, int], tokens: Sequence[int], driver: Driver, event: Event) -> None:
        """Report when an event is complete that stands for commands of a queue (device, number), behind what was
        watched of it before."""
        self._watched.setdefault(place, deque()).append((tokens, driver, event))

    def wait(self) -> list[Report]:
        """Block until there is something, or ``wake`` was called; all there is."""
        began = time.perf_counter()
        while True:
            reports: list[Report] = []
            brought: list[Report | None] = []
            watched = False
            for line in self._watched.values():
                while line and self._look(line[0], reports):
                    line.popleft()
                watched = watched or bool(line)
            if not reports and not watched:
                brought.append(self._brought.get())
            try:
                while True:
                    brought.append(self._brought.get_nowait())
            except Empty:
                pass
            if reports or brought:
                return reports + [report for report in brought if report is not None]
            waited = time.perf_counter() - began
            if waited > BUSY:
                time.sleep(0.0 if waited < SPIN else min(waited * PAUSE, LONGEST))  # lets other threads run

    def _look(self, watched: _Watched, reports: list[Report]) -> bool:
        """Whether commands have ended, and what to report of them."""
        tokens, driver, event = watched
        try:
            if not driver.done(event):
                return False
        except DriverError as error:
            reports.append(Failed(tokens[0], self._now(), error.message, self._run))
            return True
        now = self._now()
        reports.extend(Done(token, now, self._run) for token in tokens)
        return True
