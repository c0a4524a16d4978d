"""Spans of integers: between which bounds of several integers something has been proved, so that nobody need look at
each of their values. Loops count, and double, and so the spans that are asked about do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_FIRST = 2  # values that were looked at, from which on a proof may pay
_FINER = 4  # so many times as little more is tried where a proof fails
Spans = Sequence[tuple[int, int]]
"""The least and the most of each integer."""


class ProvedSpans:
    """Spans of integers, up to the ``most`` of each, for which ``prove`` has answered True. ``values``: those that were
    looked at first."""

    def __init__(self, values: Sequence[int], most: Sequence[int], prove: Callable[[Spans], bool]) -> None:
        self._most = most
        self._prove = prove
        self._seen: Spans = [(value, value) for value in values]
        self._proved: Spans | None = None
        self._missed, self._again, self._part = 0, _FIRST, 1

    def cover(self, values: Sequence[int]) -> bool:
        """Return whether values lie in the spans; those that do not are to be looked at."""
        if self._proved is not None and _lie_in(values, self._proved):
            return True
        self._seen = [(min(low, v), max(high, v)) for v, (low, high) in zip(values, self._seen, strict=True)]
        self._missed += 1
        if self._missed < self._again:
            return False
        for part in (self._part, _FINER * self._part, 0):
            wanted = self._wider(part) if part else self._seen
            if self._prove(wanted):
                self._proved, self._again = wanted, self._missed + 1
                self._part = part or self._part * _FINER**2  # what is beyond is near
                return True
        self._again = 2 * self._missed
        return False

    def _wider(self, part: int) -> Spans:
        """Return what has been seen, and more above it: as much again, divided by ``part``."""
        return [
            (low, min(most, high + (max(high - low, abs(high)) + part) // part)) if high > low else (low, high)
            for (low, high), most in zip(self._seen, self._most, strict=True)
        ]


def _lie_in(values: Sequence[int], spans: Spans) -> bool:
    return all([low <= value <= high for value, (low, high) in zip(values, spans, strict=True)])  # noqa: C419 (quicker)
