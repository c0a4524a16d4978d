"""Sets of bytes of a buffer, and how many of them cut it into pieces. Pure.

All that a run tells apart of a buffer (what each sub-kernel reads and writes, what is valid where) are sets of bytes.
Cut at all of their edges, a buffer falls into classes of bytes that belong to the same sets: these are its pieces, and
each of them is at any time valid in the same memories. There are few, however ragged the sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from manycl.graph.graph import Rows

if TYPE_CHECKING:  # it imports islpy
    from manycl.analysis.shapes import Box

Array = np.ndarray[Any, np.dtype[np.int64]]
Bytes = tuple[Array, Array]
"""A set of bytes as sorted intervals [low, high) that neither overlap nor touch."""

MOST_ROWS = 1 << 16
"""Rows of boxes from which on a set is taken for larger than it is: the smallest interval around it."""

_BITS = 62  # of a word that says in which sets bytes are


def span(low: int, high: int) -> Bytes:
    """The bytes from ``low`` up to ``high``, without ``high``."""
    return np.array([low] if high > low else [], np.int64), np.array([high] if high > low else [], np.int64)


NOTHING = span(0, 0)


def merged(low: Array, high: Array) -> Bytes:
    """The same bytes in the fewest intervals, in order; empty ones are left out."""
    full = high > low
    low, high = low[full], high[full]
    if len(low) < 2 or (low[1:] > high[:-1]).all():
        return low, high
    order = np.argsort(low, kind="stable")
    low, high = low[order], np.maximum.accumulate(high[order])
    first = np.flatnonzero(np.concatenate([[True], low[1:] > high[:-1]]))
    last = np.concatenate([first[1:] - 1, [len(low) - 1]])
    return low[first], high[last]


def union(sets: Iterable[Bytes]) -> Bytes:
    """All bytes of some sets."""
    found = [s for s in sets if len(s[0])]
    if len(found) < 2:
        return found[0] if found else NOTHING
    return merged(np.concatenate([s[0] for s in found]), np.concatenate([s[1] for s in found]))


def of_boxes(boxes: Sequence[Box]) -> tuple[Bytes, bool]:
    """The bytes of boxes, and whether these are just them (not where there are too many rows)."""
    if len(boxes) == 1 and boxes[0].rows == 1 and boxes[0].slices == 1:
        return span(boxes[0].offset, boxes[0].offset + boxes[0].width), True
    if sum(box.rows * box.slices for box in boxes) > MOST_ROWS:
        return span(min(box.offset for box in boxes), max(box.end for box in boxes)), False
    if not boxes:
        return NOTHING, True
    starts = [np.asarray(box.starts(), np.int64) for box in boxes]
    ends = [start + box.width for start, box in zip(starts, boxes, strict=True)]
    return merged(np.concatenate(starts), np.concatenate(ends)), True


def of_rows(rows: Iterable[Rows]) -> Bytes:
    """The bytes of rows."""
    sets = []
    for row in rows:
        low = row.offset + np.arange(row.rows, dtype=np.int64) * row.pitch
        sets.append((low, low + row.width))
    return union(sets)


def as_rows(given: Bytes) -> tuple[Rows, ...]:
    """A set as rows, as few as following intervals of one width at one distance make."""
    low, high = given
    if len(low) == 1:
        return (Rows(int(low[0]), int(high[0] - low[0])),)
    if not len(low):
        return ()
    width, pitch = high - low, np.diff(low)
    found: list[Rows] = []
    start, count = 0, len(low)
    # interval i + 1 is as wide as i, and as far from it as i from i - 1
    other_width = width[1:] != width[:-1]
    breaks = np.flatnonzero(other_width | np.concatenate([[False], pitch[1:] != pitch[:-1]]))
    for stop, certain in [*zip((breaks + 1).tolist(), other_width[breaks].tolist(), strict=True), (count, True)]:
        if stop == start + 1 and not certain:
            continue  # i is the row's first: there is no distance yet
        rows = stop - start
        found.append(Rows(int(low[start]), int(width[start]), int(pitch[start]) if rows > 1 else 0, rows))
        start = stop
    return tuple(found)


def meet(a: Bytes, b: Bytes) -> bool:
    """Whether two sets have a byte in common."""
    if not len(a[0]) or not len(b[0]) or a[0][0] >= b[1][-1] or b[0][0] >= a[1][-1]:
        return False
    first = np.searchsorted(b[1], a[0], side="right")
    behind = np.searchsorted(b[0], a[1], side="left")
    return bool((behind > first).any())


def without(a: Bytes, b: Bytes) -> Bytes:
    """The bytes of ``a`` that are not in ``b``."""
    if not meet(a, b):
        return a
    inside, outside = partition(int(max(a[1][-1], b[1][-1])), [a, b])
    wanted = sorted(set(outside[0]) - set(outside[1]))
    return union(of_rows(inside[i]) for i in wanted)


def partition(nbytes: int, sets: Sequence[Bytes]) -> tuple[list[tuple[Rows, ...]], list[tuple[int, ...]]]:
    """The pieces of a buffer of ``nbytes`` that ``sets`` cut it into (all of it: also what is in no set), and for each
    set the indices of the pieces that it is made of."""
    points = np.sort(np.concatenate([np.array([0, nbytes], np.int64), *[s[0] for s in sets], *[s[1] for s in sets]]))
    points = points[np.concatenate([[True], points[1:] != points[:-1]]) & (points <= nbytes)]
    if len(points) == 2:
        return [(Rows(0, nbytes),)], [(0,) if len(s[0]) else () for s in sets]
    distinct: dict[bytes, int] = {}
    one_of_each: list[Bytes] = []
    which: list[int] = []
    for given in sets:
        number = distinct.setdefault(given[0].tobytes() + given[1].tobytes(), len(distinct))
        if number == len(one_of_each):
            one_of_each.append(given)
        which.append(number)
    words = list(_memberships(points, one_of_each))
    label = np.zeros(len(points) - 1, np.int64)  # the same for points of one piece
    for index, word in enumerate(words):
        values, inverse = np.unique(word, return_inverse=True)
        label = label * len(values) + inverse.reshape(-1)
        if index:
            label = np.unique(label, return_inverse=True)[1].reshape(-1)
    begins = np.flatnonzero(np.concatenate([[True], label[1:] != label[:-1]]))  # runs of one piece
    of = label[begins]
    first = np.zeros(int(of.max()) + 1, np.int64)
    first[of[::-1]] = np.arange(len(of) - 1, -1, -1)  # the last assignment is the one that stays
    order = np.argsort(first)  # pieces by their first bytes
    by_piece = np.argsort(np.argsort(order)[of], kind="stable")
    low, high = points[begins][by_piece], np.append(points[begins[1:]], points[-1])[by_piece]
    ends = np.cumsum(np.bincount(of)[order]).tolist()
    pieces = [as_rows((low[a:b], high[a:b])) for a, b in pairwise([0, *ends])]
    where = begins[first[order]]
    held = []
    for i in range(len(one_of_each)):
        inside = words[i // _BITS][where] >> (i % _BITS) & 1
        held.append(tuple(np.flatnonzero(inside).tolist()))
    return pieces, [held[i] for i in which]


def _memberships(points: Array, sets: Sequence[Bytes]) -> Iterator[Array]:
    """In which of the sets the bytes from each point on are, up to the next one: a bit each, in words of ``_BITS``."""
    for begin in range(0, len(sets), _BITS):
        change = np.zeros(len(points), np.int64)
        for bit, (low, high) in enumerate(sets[begin : begin + _BITS]):
            change[np.searchsorted(points, low)] += 1 << bit
            change[np.searchsorted(points, high)] -= 1 << bit
        yield np.cumsum(change)[:-1]
