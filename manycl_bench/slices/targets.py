"""Targets of slice sizes: of what slices cost, the number of them that cost a given part."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from statistics import median_low


def target(overheads: Mapping[int, float], allowed: float) -> float | None:
    """Return the number of slices in which a kernel takes ``allowed`` (a part) longer than unsliced, between the
    numbers that were tried; ``overheads``: how much longer it took with these (parts).

    None where the fewest slices that were tried cost more, or the most less, as nothing is known beyond these. The cost
    of slices grows with their number, so measurements that say otherwise are noise: they are replaced by the nearest
    row that grows, by absolute distances, to which a few disturbed ones do not matter (adjacent violators are pooled,
    and pools have their medians).
    """
    counts = sorted(overheads)
    pools: list[list[float]] = []
    for count in counts:
        pools.append([overheads[count]])
        while len(pools) > 1 and median_low(pools[-2]) >= median_low(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    row = [median_low(pool) for pool in pools for _ in pool]
    for (fewer, low), (more, high) in pairwise(zip(counts, row, strict=True)):
        if low <= allowed < high:
            return fewer + (more - fewer) * (allowed - low) / (high - low)
    return None
