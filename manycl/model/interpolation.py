"""REPARA's estimate (Section 2.2): linear interpolation between the sizes that were measured, two or more. It is
incremental: every new measurement refines it and moves its limits. Below the smallest and above the largest size the
nearest segment is continued, with a bar that widens."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from manycl.model.work import Estimate, around, beyond

_MISFIT = 3.0  # a size that took this many times its neighbours' prediction is refused; our own choice


@dataclass(frozen=True, slots=True)
class Interpolation:
    """An interpolation: sizes (MKMD's T f, ascending) and their seconds. ``error``: mean relative error when each size
    but the outer ones is predicted by its neighbours (infinite: there are no such sizes)."""

    sizes: tuple[float, ...]
    seconds: tuple[float, ...]
    error: float

    def at(self, size: float) -> float:
        """Return the seconds; outside of the data, on the nearest segment continued, but never falling with the size,
        and never below the proportion to the smallest size."""
        sizes, times = self.sizes, self.seconds
        i = min(max(bisect_left(sizes, size), 1), len(sizes) - 1)
        slope = (times[i] - times[i - 1]) / (sizes[i] - sizes[i - 1])
        if size > sizes[-1]:
            return times[-1] + max(0.0, slope) * (size - sizes[-1])
        if size < sizes[0]:
            return max(times[0] - max(0.0, slope) * (sizes[0] - size), times[0] * size / sizes[0])
        return times[i - 1] + slope * (size - sizes[i - 1])

    def estimate(self, size: float, error: float | None = None) -> Estimate:
        """Return the time of a launch; outside of the data its bar widens and its source says so. ``error``: the
        model's error as compared with measurements, where that is known."""
        distance = beyond(size, self.sizes[0], self.sizes[-1])
        known = self.error if error is None else error
        return around(self.at(size), known, distance, "interpolation", len(self.sizes))


def interpolate(points: Iterable[tuple[float, float]]) -> Interpolation | None:
    """Return the interpolation of (size, seconds), or None for fewer than two sizes. For a size with several times, the
    median counts; a size that took several times as long as its neighbours predict is refused."""
    by_size: dict[float, list[float]] = defaultdict(list)
    for size, seconds in points:
        if size > 0 and seconds > 0 and math.isfinite(size) and math.isfinite(seconds):
            by_size[size].append(seconds)
    sizes = sorted(by_size)
    times = [median(by_size[s]) for s in sizes]
    if len(sizes) < 2:
        return None
    told = _told(sizes, times)
    refused = {i + 1 for i, (t, s) in enumerate(zip(told, times[1:-1], strict=True)) if s > _MISFIT * t}
    if refused:
        sizes = [s for i, s in enumerate(sizes) if i not in refused]
        times = [t for i, t in enumerate(times) if i not in refused]
        told = _told(sizes, times)
    errors = [abs(t - s) / s for t, s in zip(told, times[1:-1], strict=True)]
    error = sum(errors) / len(errors) if errors else math.inf
    return Interpolation(tuple(sizes), tuple(times), error)


def _told(sizes: list[float], times: list[float]) -> list[float]:
    """Return the seconds of each size but the first and the last, as its neighbours predict them."""
    out = []
    for i in range(1, len(sizes) - 1):
        part = (sizes[i] - sizes[i - 1]) / (sizes[i + 1] - sizes[i - 1])
        out.append(times[i - 1] + part * (times[i + 1] - times[i - 1]))
    return out
