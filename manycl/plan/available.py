"""What a partial schedule leaves of the host's memory bandwidth over time: AvailBW of MKMD (Section 5.2, Eq. 6).

What was placed first keeps what it draws; what is placed then gets what is left, and so may take longer, or wait. Once
everything is placed, all that goes on at the same time gets its fair share (``plan/timing.py``).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right

from manycl.plan.slots import Slots


class Available:
    """Bytes per second that are left, from each of a growing list of times on; the last reservations can be taken
    back."""

    def __init__(self, bandwidth: float) -> None:
        self._times = [-math.inf]
        self._left = [bandwidth]
        self._before: list[tuple[int, int, list[float], list[float]]] = []  # what reservations have replaced

    def end(self, start: float, seconds: float, draws: float) -> float:
        """When something ends that begins then, takes so long alone and draws so much then (bytes per second)."""
        if not draws or seconds <= 0.0:
            return start + seconds
        times, left = self._times, self._left
        i, at, work = bisect_right(times, start) - 1, start, seconds
        while True:
            until = times[i + 1] if i + 1 < len(times) else math.inf
            pace = min(1.0, left[i] / draws)
            if until == math.inf or (pace > 0.0 and at + work / pace <= until):
                return at + work / pace
            work, at, i = work - (until - at) * pace, until, i + 1

    def first(self, slots: Slots, ready: float, seconds: float, draws: float) -> tuple[float, float]:
        """The earliest interval from ``ready`` on, of a device or queue that is free then, with room for something that
        takes so long alone: its start and end."""
        start = slots.first(ready, seconds)
        while True:
            end = self.end(start, seconds, draws)
            again = slots.first(start, end - start)
            if again == start:
                return start, end
            start = again

    def take(self, start: float, end: float, draws: float) -> None:
        """Reserve what something gets of what it draws between two times."""
        if end <= start:
            draws = 0.0
        low = bisect_right(self._times, start) - 1
        high = bisect_left(self._times, end, low) if draws else low
        times, left = self._times[low:high], self._left[low:high]
        fresh: list[tuple[float, float]] = []
        for i, (at, amount) in enumerate(zip(times, left, strict=True)):
            until = times[i + 1] if i + 1 < len(times) else end
            if at < start:
                fresh.append((at, amount))
            if until > start:
                fresh.append((max(at, start), max(0.0, amount - draws)))
        if times and (high == len(self._times) or self._times[high] > end):
            fresh.append((end, left[-1]))
        self._before.append((low, low + len(fresh), times, left))
        self._times[low:high] = [t for t, _ in fresh]
        self._left[low:high] = [amount for _, amount in fresh]

    def back(self, count: int) -> None:
        """Keep the first ``count`` reservations."""
        while len(self._before) > count:
            low, high, times, left = self._before.pop()
            self._times[low:high] = times
            self._left[low:high] = left
