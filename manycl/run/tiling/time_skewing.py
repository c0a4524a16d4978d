"""Time tiles: launches with data in common run together, tile after tile of the data.

Where the data of some launches do not fit, each launch by itself would move all of them across the link. A *time tile*
runs several launches in *tiles*: a range of each launch, one after another, then the next range of each. The ranges
of a tile are cut at such work-groups that none needs what a later tile writes, and none overwrites what a later
tile reads: each launch lags behind the one before by what its groups reach beyond their own data (the halo of a
stencil), rounded up to whole groups. So a tile needs its own share of the data and a band of the one before, and
the data cross the link once for all launches. This is time skewing with the least lag: Song and Li, "New tiling
techniques to improve cache temporal locality", PLDI 1999; Wonnacott, "Using time skewing to eliminate idle time due to
memory bandwidth and network limitations", IPDPS 2000. Here the lags follow from the intervals of bytes that the ranges
touch, whatever the kernels are.

The cuts are estimated from what two neighbouring groups touch. Then it is checked, with the analysis of every single
range, that the tiles one by one give the launches' results; where that does not follow, there is no time tile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import NamedTuple

from manycl.graph.access import Access
from manycl.graph.dependences import least_first
from manycl.graph.division import Division
from manycl.graph.graph import BufferKey, Graph
from manycl.group_range import GroupRange
from manycl.machine import DeviceIndex
from manycl.plan.split import LinearRegion
from manycl.region import NOTHING, Region
from manycl.run.tiling.windows import interval_of, is_window, size_of

_DENSE = 1 / 2  # the least part of its interval that a range in a time tile touches; our own choice


class TileMember(NamedTuple):
    """A launch of a time tile: node ``node``, in ranges along ``division.dimension``; all of it takes ``seconds``."""

    node: int
    division: Division
    seconds: float


@dataclass(frozen=True)
class Tile:
    """A tile of a time tile. ``ranges``: ranges of nodes, in the order in which they run. ``access``: the tile's
    accesses to buffers, as intervals: the bytes that have to be there when it begins, and those that it leaves, of
    which it may overwrite all that it does not find. ``windows``: the bytes that it touches of buffers in windows:
    first byte and one past the last."""

    ranges: tuple[tuple[int, GroupRange], ...]
    access: Mapping[BufferKey, Access]
    windows: Mapping[BufferKey, tuple[int, int]]


@dataclass(frozen=True)
class TimeTile:
    """A time tile: the launches ``nodes`` run on ``device``, in tiles."""

    device: DeviceIndex
    nodes: tuple[int, ...]
    tiles: tuple[Tile, ...]


# the cuts of launches


class Outline(NamedTuple):
    """The bytes that a launch's groups touch, about: for each buffer what they read and what they write."""

    groups: int
    reads: Mapping[BufferKey, LinearRegion]
    writes: Mapping[BufferKey, LinearRegion]

    @property
    def lines(self) -> Iterator[tuple[BufferKey, LinearRegion]]:
        yield from self.reads.items()
        yield from self.writes.items()


def shape_of(division: Division) -> Outline | None:
    """Return the outline of a launch; None for no time tile: its accesses take long to find, or are scattered."""
    groups = division.groups
    if groups < 2 or division.operations:
        return None
    at = (groups - 1) // 2
    one, two = division.hull(division.range(at, 1)), division.hull(division.range(at + 1, 1))
    whole = division.hull(division.whole)
    density = division.density(division.range(groups // 4, max(groups // 2, 1)))
    if one is None or two is None or whole is None or density is None or density < _DENSE:
        return None
    reads: dict[BufferKey, LinearRegion] = {}
    writes: dict[BufferKey, LinearRegion] = {}
    for key in whole:
        for lines, (a, b, every) in (
            (reads, (one[key].reads, two[key].reads, whole[key].reads)),
            (writes, (one[key].writes, two[key].writes, whole[key].writes)),
        ):
            (low, high), (next_low, next_high) = a.hull, b.hull
            stride = next_low - low
            if a and b and stride > 0 and next_high - high == stride:
                lines[key] = LinearRegion(stride, high - low, low - stride * at)
            elif every:
                low, high = every.hull
                lines[key] = LinearRegion(0, high - low, low)
    return Outline(groups, reads, writes)


class Boundary:
    """The boundary between two tiles, launch by launch. ``share``: the part of the first launch before it."""

    def __init__(self, share: float, sizes: Mapping[BufferKey, int]) -> None:
        self._share = share
        self._sizes = sizes
        self._read: dict[BufferKey, float] = {}  # the byte from which later tiles read a buffer, by launches so far
        self._written: dict[BufferKey, float] = {}
        self._done: dict[BufferKey, float] = {}  # the byte up to which earlier tiles have touched a buffer
        self.cuts: list[int] = []

    def add(self, shape: Outline) -> int:
        """Add the next launch; return how many of its groups come before the boundary."""
        groups = shape.groups
        cut = groups
        for key, line in shape.lines:
            if line.stride:  # a buffer not touched so far is cut like the buffers of the first launch
                place = self._done.get(key)
                cut = min(cut, line.until(self._sizes[key] * self._share if place is None else place, groups))
        for key, line in shape.reads.items():
            cut = min(cut, line.until(self._written.get(key, inf), groups))
        for key, line in shape.writes.items():
            cut = min(cut, line.until(min(self._written.get(key, inf), self._read.get(key, inf)), groups))
        self.begin(shape, cut)
        return cut

    def begin(self, shape: Outline, cut: int) -> None:
        """Add a launch, of which so many groups come before the boundary, as of the first one."""
        self.cuts.append(cut)
        for lines, later in ((shape.reads, self._read), (shape.writes, self._written)):
            for key, line in lines.items():
                if cut < shape.groups:
                    later[key] = min(later.get(key, inf), line.begin(cut))
                if cut:
                    self._done[key] = max(self._done.get(key, 0), line.end(cut))


def cuts(shapes: Sequence[Outline], count: int, sizes: Mapping[BufferKey, int]) -> list[int]:
    """Return the groups before which launches are cut if the first one is cut before group ``count``."""
    boundary = Boundary(count / shapes[0].groups, sizes)
    boundary.begin(shapes[0], count)
    for shape in shapes[1:]:
        boundary.add(shape)
    return boundary.cuts


def touched(shapes: Sequence[Outline], low: Sequence[int], high: Sequence[int]) -> dict[BufferKey, int]:
    """Return about how many bytes ranges of launches touch, by buffer: groups low[i] … high[i] - 1 of launch i."""
    ends: dict[BufferKey, list[int]] = {}
    for shape, first, last in zip(shapes, low, high, strict=True):
        for key, line in shape.lines if last > first else ():
            if line.end(last) > line.begin(first):
                ends.setdefault(key, []).extend((line.begin(first), line.end(last)))
    return {key: max(found) - min(found) for key, found in ends.items()}


# tiles


def tiles_of(members: Sequence[TileMember], shapes: Sequence[Outline], number: int) -> tuple[Tile, ...] | None:
    """Return the launches in at most ``number`` tiles, alike but for the last; None if these may not run in turn."""
    sizes = {key: size for m in members for key, size in m.division.sizes.items()}
    groups = shapes[0].groups
    bounds = [[0] * len(members)]
    each = -(-groups // number)
    bounds += [cuts(shapes, end, sizes) for end in range(each, groups, each)]
    bounds.append([shape.groups for shape in shapes])
    for before, after in pairwise(bounds):
        after[:] = map(max, before, after)
    out = []
    for low, high in pairwise(bounds):
        out.append([(m, m.division.range(a, b - a)) for m, a, b in zip(members, low, high, strict=True) if b > a])
    if not _in_order(members, out):
        return None
    may = movable(members)
    return tuple(_tile(ranges, may, sizes) for ranges in out if ranges)


_Ranges = Sequence[tuple[TileMember, GroupRange]]


def _in_order(members: Sequence[TileMember], tiles: Sequence[_Ranges]) -> bool:
    """Return whether no range touches what an earlier launch writes in a later tile, or writes what it reads there:
    all that the range touches of a buffer lies before all that those touch."""
    read: dict[int, dict[BufferKey, float]] = {}  # by launch: the byte from which later tiles read a buffer
    written: dict[int, dict[BufferKey, float]] = {}
    for tile in reversed(tiles):
        reads: dict[BufferKey, float] = {}  # the same, of the launches of this tile so far
        writes: dict[BufferKey, float] = {}
        mine = {m.node: m.division.hull(groups) for m, groups in tile}
        for node in (m.node for m in members):
            if node in mine:
                hull = mine[node]
                if hull is None:
                    return False
                for key, found in hull.items():
                    behind = writes.get(key, inf)
                    if found.reads.hull[1] > behind or found.writes.hull[1] > min(behind, reads.get(key, inf)):
                        return False
            for later, so_far in ((read, reads), (written, writes)):
                for key, low in later.get(node, {}).items():
                    so_far[key] = min(so_far.get(key, inf), low)
        for node, hull in mine.items():
            assert hull is not None
            for key, found in hull.items():
                for later, region in ((read, found.reads), (written, found.writes)):
                    if region:
                        own = later.setdefault(node, {})
                        own[key] = min(own.get(key, inf), region.hull[0])
    return True


def movable(members: Sequence[TileMember]) -> frozenset[BufferKey]:
    """Return the buffers that may be windows in all launches."""
    never: set[BufferKey] = set()
    every: set[BufferKey] = set()
    for m in members:
        may = m.division.movable
        every |= may
        never |= m.division.sizes.keys() - may
    return frozenset(every - never)


def _tile(ranges: _Ranges, may: frozenset[BufferKey], sizes: Mapping[BufferKey, int]) -> Tile:
    finds: dict[BufferKey, Region] = {}
    writes: dict[BufferKey, Region] = {}
    sure: dict[BufferKey, Region] = {}
    for m, groups in ranges:
        hull = m.division.hull(groups)
        assert hull is not None
        for key, found in hull.items():
            missing = found.needs.filled - sure.get(key, NOTHING)
            finds[key] = (finds.get(key, NOTHING) | missing).filled
            writes[key] = (writes.get(key, NOTHING) | found.writes).filled
            if found.overwrites:
                sure[key] = _joined(sure.get(key, NOTHING), found.writes)
    access: dict[BufferKey, Access] = {}
    windows: dict[BufferKey, tuple[int, int]] = {}
    for key, written in writes.items():
        rest = (written - sure.get(key, NOTHING)).filled
        access[key] = Access((finds[key] | rest).filled, written, rest != written)
        interval = interval_of(*(finds[key] | rest | written).hull)
        if key in may and is_window(*interval, sizes[key]):
            windows[key] = interval
    return Tile(tuple((m.node, groups) for m, groups in ranges), access, windows)


def needed(tiles: Iterable[Tile], sizes: Mapping[BufferKey, int]) -> tuple[int, int, int]:
    """Return the bytes that some tile needs on a device: of whole buffers, windows, and the largest of both."""
    rest: set[BufferKey] = set()
    windows: dict[BufferKey, int] = {}
    for tile in tiles:
        for key, span in tile.windows.items():
            windows[key] = max(windows.get(key, 0), size_of(*span))
        rest |= tile.access.keys() - tile.windows.keys()
    kept = [sizes[key] for key in rest]
    return sum(kept), sum(windows.values()), max((*kept, *windows.values()), default=0)


def _joined(a: Region, b: Region) -> Region:
    """Return two intervals as one where they touch, else the longer one."""
    both = a | b
    return both if len(both.intervals) < 2 else max(a, b, key=lambda region: region.nbytes)


# time tiles among other nodes


def contracted(graph: Graph, time_tiles: Sequence[TimeTile]) -> list[TimeTile | int] | None:
    """Return a graph's nodes with time tiles in place of theirs, in an order that keeps to the graph, or None."""
    unit = list(range(len(graph.nodes)))
    at: dict[int, TimeTile] = {}
    for found in time_tiles:
        first = min(found.nodes)
        at[first] = found
        for node in found.nodes:
            unit[node] = first
    before, behind = [set[int]() for _ in unit], [set[int]() for _ in unit]
    for node, predecessors in enumerate(graph.predecessors):
        for p in predecessors:
            if unit[p] != unit[node]:
                before[unit[node]].add(unit[p])
                behind[unit[p]].add(unit[node])
    order = least_first(before, behind)
    return [at.get(u, u) for u in order if unit[u] == u] if len(order) == len(unit) else None
