"""Arithmetic on times in seconds: intervals (start, end), and what is divided by a time."""

from __future__ import annotations

import math
from collections.abc import Iterable


def union_length(intervals: Iterable[tuple[float, float]]) -> float:
    """Seconds covered by at least one interval; an interval that ends before it starts covers nothing."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        begin = max(start, reached)
        if end > begin:
            total += end - begin
            reached = end
    return total


def quotient(part: float, whole: float) -> float | None:
    """``part / whole``; None where ``whole`` is not above 0, or so small that the quotient is no finite number."""
    if whole <= 0:
        return None
    value = part / whole
    return value if math.isfinite(value) else None
