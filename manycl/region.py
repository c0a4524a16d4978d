"""Sets of bytes of a buffer. Pure. All that is told apart of a buffer (what launches and ranges of them read and write,
what is valid where, what is moved) are *regions*: sets of its bytes. Cut at all edges of some regions, a buffer falls
into classes of bytes that lie in the same ones (:func:`partition`); there are few, however ragged the regions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[np.int64]]

_BITS = 62  # that are used of a word


class Rectangle(NamedTuple):
    """``rows`` runs of ``width`` bytes, ``pitch`` bytes from start to start; ``slices`` of these, ``slice_pitch``
    apart. The first byte is at ``offset``. An interval has one row and one slice."""

    offset: int
    width: int
    pitch: int = 0
    rows: int = 1
    slice_pitch: int = 0
    slices: int = 1

    @property
    def kind(self) -> str:
        if self.rows == 1 and self.slices == 1:
            return "interval"
        if self.slices == 1:
            return "rectangle"
        return "slices"

    @property
    def nbytes(self) -> int:
        return self.width * self.rows * self.slices

    @property
    def end(self) -> int:
        """One behind the last byte."""
        return self.offset + (self.slices - 1) * self.slice_pitch + (self.rows - 1) * self.pitch + self.width

    def scaled(self, unit: int) -> Rectangle:
        offset, width, pitch, rows, slice_pitch, slices = self
        return Rectangle(offset * unit, width * unit, pitch * unit, rows, slice_pitch * unit, slices)

    def starts(self) -> Array:
        """Offsets of all rows, in bytes."""
        rows = np.arange(self.rows, dtype=np.int64) * self.pitch + self.offset
        if self.slices == 1:
            return rows
        slices = np.arange(self.slices, dtype=np.int64) * self.slice_pitch
        return (slices[:, None] + rows[None, :]).ravel()

    def __str__(self) -> str:
        first = f"[{self.offset}, {self.offset + self.width})"
        if self.kind == "interval":
            return first
        words = f"{first} x {self.rows} rows every {self.pitch}"
        return words if self.kind == "rectangle" else f"{words} x {self.slices} slices every {self.slice_pitch}"


class Region:
    """A set of bytes. ``ends``: where it begins and where it ends, in turns, each greater than the one before: it is
    [ends[0], ends[1]), [ends[2], ends[3]) and so on. Regions of the same bytes are equal. Never changed."""

    __slots__ = ("_name", "_rectangles", "ends")

    def __init__(self, ends: Array) -> None:
        self.ends = ends
        self._rectangles: tuple[Rectangle, ...] | None = None
        self._name: bytes | None = None

    # how regions are made

    @classmethod
    def span(cls, low: int, high: int) -> Region:
        """The bytes from ``low`` up to ``high``, without ``high``."""
        return cls(np.array([low, high], np.int64)) if high > low else NOTHING

    @classmethod
    def of(cls, low: Array, high: Array) -> Region:
        """Return all bytes of the intervals [low, high), which may overlap, or be empty."""
        full = high > low
        if not full.all():
            low, high = low[full], high[full]
        if not len(low):
            return NOTHING
        if not (low[1:] >= low[:-1]).all():
            order = np.argsort(low, kind="stable")
            low, high = low[order], high[order]
        reach = high if (high[1:] >= high[:-1]).all() else np.maximum.accumulate(high)
        apart = low[1:] > reach[:-1]
        ends = np.empty((1 + int(np.count_nonzero(apart)), 2), np.int64)
        ends[0, 0], ends[-1, 1] = low[0], reach[-1]
        ends[1:, 0], ends[:-1, 1] = low[1:][apart], reach[:-1][apart]
        return cls(ends.reshape(-1))

    @classmethod
    def of_rectangles(cls, rectangles: Sequence[Rectangle]) -> Region:
        """The bytes of rectangles, which may overlap."""
        if len(rectangles) == 1 and rectangles[0].rows == rectangles[0].slices == 1:
            return cls.span(rectangles[0].offset, rectangles[0].offset + rectangles[0].width)
        if not rectangles:
            return NOTHING
        starts = [rect.starts() for rect in rectangles]
        ends = [start + rect.width for start, rect in zip(starts, rectangles, strict=True)]
        return cls.of(np.concatenate(starts), np.concatenate(ends))

    # what it is

    def __bool__(self) -> bool:
        """Return whether there is a byte in it."""
        return len(self.ends) > 0

    @property
    def low(self) -> Array:
        """The first bytes of its intervals."""
        return self.ends[::2]

    @property
    def high(self) -> Array:
        """One past the last bytes of its intervals."""
        return self.ends[1::2]

    @property
    def intervals(self) -> list[tuple[int, int]]:
        """[low, high) of each, in order."""
        ends = self.ends.tolist()
        return list(zip(ends[::2], ends[1::2], strict=True))

    @property
    def nbytes(self) -> int:
        low, high = self.low, self.high
        return int(high[0] - low[0]) if len(low) == 1 else int(np.add.reduce(high - low))

    @property
    def hull(self) -> tuple[int, int]:
        """[low, high) around it; (0, 0) of nothing."""
        return (int(self.ends[0]), int(self.ends[-1])) if len(self.ends) else (0, 0)

    @property
    def filled(self) -> Region:
        """The interval around it."""
        return self if len(self.ends) < 3 else Region.span(*self.hull)

    @property
    def name(self) -> bytes:
        """A name that is the same for the same bytes, and for no others."""
        if self._name is None:
            self._name = self.ends.tobytes()
        return self._name

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Region):
            return self is other
        return (self._name or self.name) == (other._name or other.name)

    def __hash__(self) -> int:
        return hash(self._name or self.name)

    def __repr__(self) -> str:
        return f"Region({', '.join(f'[{low}, {high})' for low, high in self.intervals)})"

    def __reduce__(self) -> tuple[type[Region], tuple[Array]]:
        return Region, (self.ends,)

    def has(self, places: Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return whether each of some bytes is in it."""
        return (np.searchsorted(self.ends, places, side="right") & 1).astype(np.bool_)

    @property
    def rectangles(self) -> tuple[Rectangle, ...]:
        """It as rectangles, as few as following intervals of one width at one distance make."""
        if self._rectangles is None:
            self._rectangles = self.at_most(len(self.ends)) or ()
        return self._rectangles

    def at_most(self, count: int) -> tuple[Rectangle, ...] | None:
        """Return :attr:`rectangles`; None where they are more than ``count``."""
        low, width = self.low, self.high - self.low
        if len(low) < 2:
            return tuple(Rectangle(a, b - a) for a, b in self.intervals)
        pitch = np.diff(low)
        # interval i + 1 is as wide as i, and as far from it as i from i - 1
        other_width = width[1:] != width[:-1]
        breaks = np.flatnonzero(other_width | np.concatenate([[False], pitch[1:] != pitch[:-1]]))
        if len(breaks) > 2 * count + 2:  # at most every second is none between rectangles
            return None
        found: list[Rectangle] = []
        start = 0
        for stop, sure in [*zip((breaks + 1).tolist(), other_width[breaks].tolist(), strict=True), (len(low), True)]:
            if stop == start + 1 and not sure:
                continue  # interval ``start`` is the rectangle's first: there is no distance yet
            rows = stop - start
            found.append(Rectangle(int(low[start]), int(width[start]), int(pitch[start]) if rows > 1 else 0, rows))
            start = stop
        return tuple(found) if len(found) <= count else None

    # algebra

    def moved(self, by: int) -> Region:
        """Return all of it, so many bytes further on."""
        return Region(self.ends + by)

    def meets(self, other: Region) -> bool:
        """Return whether they have a byte in common."""
        mine, theirs = self.ends, other.ends
        if not len(mine) or not len(theirs) or mine[0] >= theirs[-1] or theirs[0] >= mine[-1]:
            return False
        if len(mine) == len(theirs) == 2:
            return True
        if len(mine) > len(theirs):
            mine, theirs = theirs, mine
        # an interval begins within one of the others, or one of them begins within it
        first = np.searchsorted(theirs, mine[::2], side="right")
        return bool(((first & 1) | (np.searchsorted(theirs, mine[1::2]) > first)).any())

    def __or__(self, other: Region) -> Region:
        return union((self, other))

    def __and__(self, other: Region) -> Region:
        return self._where(other, True) if self.meets(other) else NOTHING

    def __sub__(self, other: Region) -> Region:
        return self._where(other, False) if self.meets(other) else self

    def _where(self, other: Region, inside: bool) -> Region:
        """The bytes of it that are in the other one, or are not."""
        if len(self.ends) == len(other.ends) == 2:
            (low, high), (begin, end) = self.ends.tolist(), other.ends.tolist()
            if inside:
                return Region.span(max(low, begin), min(high, end))
            if begin <= low or end >= high:
                return Region.span(end if begin <= low else low, high if begin <= low else begin)
        theirs = other.ends
        if len(theirs) > len(self.ends):  # what of the other one lies around this one
            low, high = np.searchsorted(theirs, self.ends[[0, -1]])
            theirs = theirs[low & -2 : (high + 1) & -2]
        points = np.sort(np.concatenate([self.ends, theirs]))
        kept = self.has(points) & (((np.searchsorted(theirs, points, side="right") & 1) == 1) == inside)
        return Region(points[kept != np.concatenate([[False], kept[:-1]])])


NOTHING = Region(np.zeros(0, np.int64))


def bytes_of(regions: Sequence[Region]) -> list[int]:
    """Return how many bytes each of some regions has, one or more of which none is empty: of a hundred in the time of
    two."""
    ends = np.concatenate([r.ends for r in regions])
    first = accumulate((len(r.ends) // 2 for r in regions[:-1]), initial=0)
    return np.add.reduceat(ends[1::2] - ends[::2], list(first)).tolist()  # type: ignore[no-any-return]


def union(regions: Iterable[Region]) -> Region:
    """Return all bytes of some regions."""
    found = [r for r in regions if len(r.ends)]
    if len(found) < 2:
        return found[0] if found else NOTHING
    ends = np.concatenate([r.ends for r in found])
    return Region.of(ends[::2], ends[1::2])


def common(regions: Iterable[Region]) -> Region:
    """The bytes that are in two of some regions, or in more."""
    found = [r.ends for r in regions if r]
    if len(found) < 2:
        return NOTHING
    ends = np.concatenate(found)
    order = np.argsort(ends, kind="stable")
    change = np.tile([1, -1], len(ends) // 2)  # of each region every second end is one where it ends
    points, depth = ends[order], np.cumsum(change[order])
    last = np.concatenate([points[1:] != points[:-1], [True]])
    points, inside = points[last], depth[last] > 1
    return Region(points[inside != np.concatenate([[False], inside[:-1]])])


def holders(pieces: Sequence[Region], parts: Sequence[Region]) -> list[int] | None:
    """Return in which of some parts of a buffer each of some pieces of it lies, as indices; None if a piece lies in
    several. The parts do not overlap, and are all of the buffer."""
    begins = np.concatenate([p.low for p in parts])
    order = np.argsort(begins)
    begins, of = begins[order], np.repeat(np.arange(len(parts)), [len(p.ends) // 2 for p in parts])[order]
    ends = np.concatenate([p.ends for p in pieces])
    counts = [len(p.ends) // 2 for p in pieces]
    place = np.searchsorted(begins, ends[::2], side="right") - 1  # of the interval that holds a piece's interval
    held = of[place]
    found = held[np.cumsum([0, *counts[:-1]])]
    if (ends[1::2] > np.concatenate([p.high for p in parts])[order][place]).any() or (
        held != np.repeat(found, counts)
    ).any():
        return None
    return found.tolist()  # type: ignore[no-any-return]


def partition(nbytes: int, regions: Sequence[Region]) -> tuple[list[Region], list[tuple[int, ...]]]:
    """The pieces of a buffer of ``nbytes`` that ``regions`` cut it into, in the order of their first bytes (all of it:
    also what is in no region), and for each region the indices of the pieces that it is made of."""
    points = np.sort(np.concatenate([np.array([0, nbytes], np.int64), *[r.ends for r in regions]]))
    # (np.unique by hashes takes ten times longer)
    points = points[(points <= nbytes) & np.concatenate([[True], points[1:] != points[:-1]])]
    if len(points) == 2:
        return [Region.span(0, nbytes)], [(0,) if r else () for r in regions]
    label, values = np.zeros(len(points) - 1, np.int64), 1  # the same for points of one piece, less than ``values``
    for word in _memberships(points, list(dict.fromkeys(regions))):
        most = int(word.max()) + 1
        if values * most > 1 << _BITS:
            (label, values), (word, most) = _numbered(label), _numbered(word)
        label, values = label * most + word, values * most
    label, _ = _numbered(label)
    begins = np.flatnonzero(np.concatenate([[True], label[1:] != label[:-1]]))  # runs of one piece
    of = label[begins]
    first = np.zeros(int(of.max()) + 1, np.int64)
    first[of[::-1]] = np.arange(len(of) - 1, -1, -1)  # the last assignment is the one that stays
    order = np.argsort(first)  # pieces by their first bytes
    by_piece = np.argsort(np.argsort(order)[of], kind="stable")
    ends = np.stack([points[begins], np.append(points[begins[1:]], points[-1])], axis=1)[by_piece].reshape(-1)
    stops = (2 * np.cumsum(np.bincount(of)[order])).tolist()
    pieces = [Region(ends[a:b]) for a, b in pairwise([0, *stops])]
    # of a piece, all is in a region if its first byte is
    spans = np.searchsorted(points[begins[first[order]]], np.concatenate([r.ends for r in regions])).reshape(-1, 2)
    full = np.flatnonzero(spans[:, 0] < spans[:, 1])
    of_spans = np.repeat(np.arange(len(regions)), [len(r.ends) // 2 for r in regions])
    held: list[list[int]] = [[] for _ in regions]
    for region, (a, b) in zip(of_spans[full].tolist(), spans[full].tolist(), strict=True):
        held[region].extend(range(a, b))
    return pieces, [tuple(indices) for indices in held]


def _numbered(values: Array) -> tuple[Array, int]:
    """Equal values as equal numbers from 0 on, and how many there are."""
    different, numbers = np.unique(values, return_inverse=True)
    return numbers.reshape(-1), len(different)


def _memberships(points: Array, regions: Sequence[Region]) -> Iterator[Array]:
    """Words, none negative, that say together in which of the regions the bytes from each point on are, up to the next
    one: a bit for each region; or, where no byte is in more than a few of them, the sums of the numbers of those that
    it is in (1, 2, …), of their squares, and so on: as many sums as there are numbers at most tell which they are
    (Newton's identities)."""
    lengths = [len(r.ends) for r in regions]
    ends = np.concatenate([r.ends for r in regions])
    inside = ends < points[-1]  # behind it nothing is looked at
    places = np.searchsorted(points, ends[inside])

    def word(numbers: Array) -> Array:
        of_ends = np.repeat(numbers, lengths)
        of_ends[1::2] *= -1  # of each region every second end is one where it ends
        change = np.zeros(len(points), np.int64)
        np.add.at(change, places, of_ends[inside])
        return np.cumsum(change)[:-1]

    numbers = np.arange(1, len(regions) + 1, dtype=np.int64)
    deepest = int(word(np.ones_like(numbers)).max()) if len(regions) > _BITS else _BITS
    if deepest * _BITS <= len(regions) and deepest * len(regions) ** deepest < 1 << _BITS:
        for power in range(1, deepest + 1):
            yield word(numbers**power)
        return
    for begin in range(0, len(regions), _BITS):
        yield word(np.where((begin < numbers) & (numbers <= begin + _BITS), 1 << (numbers - 1 - begin) % _BITS, 0))
