"""Arithmetic on time intervals (start, end) in seconds."""

from __future__ import annotations

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
