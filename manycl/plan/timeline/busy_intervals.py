"""The busy intervals of one device or transfer queue, and the room between them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class BusyIntervals:
    """Busy intervals: disjoint, in seconds, sorted; one of no length may lie where others meet."""

    __slots__ = ("ends", "starts")

    def __init__(self) -> None:
        self.starts: list[float] = []
        self.ends: list[float] = []

    def first(self, ready: float, seconds: float) -> float:
        """Return the earliest start from ``ready`` on with room for ``seconds`` (AvailEST of MKMD, Section 5.2)."""
        starts, ends = self.starts, self.ends
        if not ends or ends[-1] <= ready:
            return ready
        if starts[-1] < ready:
            return ends[-1]
        start = ready
        for i in range(bisect_right(ends, ready), len(starts)):
            if start + seconds <= starts[i]:
                return start
            if ends[i] > start:
                start = ends[i]
        return start

    def clear(self) -> None:
        """Give back all intervals."""
        self.starts.clear()
        self.ends.clear()

    def take(self, start: float, end: float) -> None:
        """Occupy an interval that is free."""
        if not self.ends or self.ends[-1] <= start:
            self.starts.append(start)
            self.ends.append(end)
            return
        i = self._place(start, end)
        self.starts.insert(i, start)
        self.ends.insert(i, end)

    def free(self, start: float, end: float) -> None:
        """Give back an interval that was taken."""
        i = self._place(start, end)
        assert (self.starts[i], self.ends[i]) == (start, end), "only what was taken can be given back"
        del self.starts[i], self.ends[i]

    def _place(self, start: float, end: float) -> int:
        i = bisect_left(self.ends, end)
        while i < len(self.starts) and (self.starts[i], self.ends[i]) < (start, end):
            i += 1
        return i

    def idle(self, low: float, high: float) -> list[tuple[float, float]]:
        """Return the free intervals of some length between two times."""
        starts, ends = self.starts, self.ends
        out: list[tuple[float, float]] = []
        for i in range(bisect_right(ends, low), len(starts)):
            if starts[i] >= high:
                break
            if starts[i] > low:
                out.append((low, starts[i]))
            if ends[i] > low:
                low = ends[i]
        if low < high:
            out.append((low, high))
        return out
