"""Completions of commands for the engine: reports that threads bring, and events that the engine's thread polls itself.

A thread that blocks in a driver's wait is right for devices that compute on the host's own cores. Drivers of GPUs spin
while they wait, several threads in one driver hold each other up, and a thread that has slept for some milliseconds
wakes late: 200 us from a kernel's end until the engine knows, where polling the event's status takes 14 us (measured
with an H200). So the engine's thread polls the events of such devices here, and spins only as long as it pays.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from manycl.drivers.driver import Driver, DriverError, Event
from manycl.run.commands.backend import Done, Failed, Report

BUSY = 2e-4
"""Seconds from the beginning of a wait in which polls follow one another directly. A yield to other threads lets them
run for some 50 us at least (Linux)."""
SPIN = 0.01
"""Seconds of waiting in which polls follow one another without a pause."""
PAUSE = 0.005
"""The length of a pause after ``SPIN``, as a share of the time waited so far."""
LONGEST = 1e-3
"""The longest pause, in seconds."""


_Watched = tuple[Sequence[int], Driver, Event]


class Completions:
    """The completions of run ``run``; ``now``: seconds since the run began."""

    def __init__(self, now: Callable[[], float], run: int = 0) -> None:
        self._now = now
        self._run = run
        self._brought: SimpleQueue[Report | None] = SimpleQueue()
        # by queue, as the commands of each end in order
        self._watched: dict[tuple[int, int], deque[_Watched]] = {}

    def put(self, report: Report) -> None:
        """Add a thread's report."""
        self._brought.put(report)

    def wake(self) -> None:
        """End the present wait, or the next one, even if there are no reports."""
        self._brought.put(None)

    def watch(self, place: tuple[int, int], tokens: Sequence[int], driver: Driver, event: Event) -> None:
        """Watch an event that stands for commands of a queue (device, number), behind those watched of this queue
        before; they are reported when it is complete."""
        self._watched.setdefault(place, deque()).append((tokens, driver, event))

    def wait(self) -> list[Report]:
        """Block until there are reports, or ``wake`` was called; return all reports."""
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
        """Return whether an event is complete or has failed; add the reports of its commands."""
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
