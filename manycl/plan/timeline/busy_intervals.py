"""The busy intervals of one device or transfer queue, and the room between them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class BusyIntervals:
    """Busy intervals: disjoint, in seconds, sorted; one of no length may lie where others meet. From number ``_solid``
    on, each begins where the one before it ends: none of the searches looks for room there."""

    __slots__ = ("_solid", "ends", "starts")

    def __init__(self) -> None:
        self.starts: list[float] = []
        self.ends: list[float] = []
        self._solid = -1

    def first(self, ready: float, seconds: float) -> float:
        """Return the earliest start from ``ready`` on with room for ``seconds`` (AvailEST of MKMD, Section 5.2)."""
        starts, ends = self.starts, self.ends
        if not ends or ends[-1] <= ready:
            return ready
        last = self._solid if seconds > 0.0 else len(starts) - 1  # what takes no time has room where two meet
        if starts[last] < ready:
            return ends[-1]
        start = ready
        for i in range(bisect_right(ends, ready), last + 1):
            if start + seconds <= starts[i]:
                return start
            start = ends[i]
        return ends[-1]

    def clear(self) -> None:
        """Give back all intervals."""
        self.starts.clear()
        self.ends.clear()
        self._solid = -1

    def take(self, start: float, end: float) -> None:
        """Occupy an interval that is free."""
        ends = self.ends
        if not ends or ends[-1] <= start:
            if not ends or ends[-1] < start:
                self._solid = len(ends)
            self.starts.append(start)
            ends.append(end)
            return
        i = self._place(start, end)
        self.starts.insert(i, start)
        ends.insert(i, end)
        if i <= self._solid:
            self._solid += 1

    def free(self, start: float, end: float) -> None:
        """Give back an interval that was taken."""
        starts, ends = self.starts, self.ends
        i = len(ends) - 1 if ends[-1] == end and starts[-1] == start else self._place(start, end)
        assert starts[i] == start, "only what was taken can be given back"
        assert ends[i] == end, "only what was taken can be given back"
        del starts[i], ends[i]
        if i < len(starts):
            self._solid = max(i, self._solid - 1)
        elif self._solid == i:
            self._solid -= 1

    def _place(self, start: float, end: float) -> int:
        i = bisect_left(self.ends, end)
        while i < len(self.starts) and (self.starts[i], self.ends[i]) < (start, end):
            i += 1
        return i

    def idle(self, low: float, high: float) -> list[tuple[float, float]]:
        """Return the free intervals of some length between two times."""
        starts, ends = self.starts, self.ends
        out: list[tuple[float, float]] = []
        for i in range(bisect_right(ends, low), self._solid + 1):
            if starts[i] >= high:
                break
            if starts[i] > low:
                out.append((low, starts[i]))
            low = ends[i]
        else:
            low = max([low, *ends[-1:]])
        if low < high:
            out.append((low, high))
        return out
