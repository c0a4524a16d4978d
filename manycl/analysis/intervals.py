"""Sets of bytes as sorted arrays of intervals [low, high)."""

from __future__ import annotations

from typing import Any

import numpy as np

from manycl.analysis.shapes import Box

MOST_BOXES = 4096
Array = np.ndarray[Any, np.dtype[Any]]
Tagged = tuple[Array, Array, Array]  # low and high ends, and the group that each belongs to


def merged(low: Array, high: Array) -> tuple[Array, Array]:
    """The same bytes in the fewest intervals, in order; empty ones are left out."""
    full = high > low
    if not full.all():
        low, high = low[full], high[full]
    if not len(low):
        return low, high
    if not (low[1:] >= low[:-1]).all():
        order = np.argsort(low, kind="stable")
        low, high = low[order], high[order]
    reach = high if (high[1:] >= high[:-1]).all() else np.maximum.accumulate(high)
    starts = np.flatnonzero(np.concatenate([[True], low[1:] > reach[:-1]]))
    ends = np.concatenate([starts[1:] - 1, [len(low) - 1]])
    return low[starts], reach[ends]


def as_boxes(low: Array, high: Array) -> tuple[tuple[Box, ...], bool]:
    """Boxes of merged intervals, and whether they are just these: if it took too many, the smallest gaps between them
    are filled."""
    found = _rectangles(low, high)
    if len(found) <= MOST_BOXES:
        return tuple(found), True
    gaps = low[1:] - high[:-1]
    kept = np.sort(np.argpartition(gaps, len(gaps) - MOST_BOXES + 1)[len(gaps) - MOST_BOXES + 1 :])
    low, high = np.concatenate([low[:1], low[kept + 1]]), np.concatenate([high[kept], high[-1:]])
    return tuple(Box(a, b - a) for a, b in zip(low.tolist(), high.tolist(), strict=True)), False


def _rectangles(low: Array, high: Array) -> list[Box]:
    """Intervals of one width at one distance become a rectangle; no more are made than show that there are too many."""
    if not len(low):
        return []
    width, pitch = high - low, np.diff(low)
    breaks = width[1:] != width[:-1]
    breaks[1:] |= pitch[1:] != pitch[:-1]
    starts = np.concatenate([[0], np.flatnonzero(breaks) + 1])[: MOST_BOXES + 1]
    rows = np.diff(np.concatenate([starts, [len(low)]]))
    return [
        Box(int(low[s]), int(width[s])) if n == 1 else Box(int(low[s]), int(width[s]), int(pitch[s]), int(n))
        for s, n in zip(starts.tolist(), rows.tolist(), strict=True)
    ]


def apart(written: Tagged, read: Tagged, *, size: int) -> bool:
    """Whether no group writes what another writes or reads, of intervals within ``size`` bytes."""
    low, high, group = _by_group(*written, size)
    if not len(low):
        return True
    order = np.argsort(low, kind="stable")
    low, high, group = low[order], high[order], group[order]
    if (low[1:] < np.maximum.accumulate(high)[:-1]).any():
        return False
    read_low, read_high, reader = _by_group(*read, size)
    first = np.searchsorted(high, read_low, side="right")
    behind = np.searchsorted(low, read_high, side="left")
    meets = behind > first
    first, last, reader = first[meets], behind[meets] - 1, reader[meets]
    changes = np.concatenate([[0], np.cumsum(group[1:] != group[:-1])])
    return bool((group[first] == reader).all() and (changes[first] == changes[last]).all())


def _by_group(low: Array, high: Array, group: Array, size: int) -> Tagged:
    """Merged intervals of each group."""
    apart_by = size + 1  # intervals of different groups never touch
    shift = group * apart_by
    low, high = merged(low + shift, high + shift)
    group = low // apart_by
    return low - group * apart_by, high - group * apart_by, group
