"""Regions by evaluating every work-item, where subscripts are too difficult for isl and data have no part in them, or
where the contents of the index arrays that decide are known. For every access the work-items of a range of groups are
evaluated at once (:mod:`manycl.analysis.regions.points`). A loop whose iterations touch consecutive bytes gives one
interval per work-item; any other is run through, as long as that takes no more points than the budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from manycl.analysis.regions.boxed import boxes_of, linear_access
from manycl.analysis.regions.points import Array
from manycl.analysis.regions.regions import Footprint, Regions
from manycl.analysis.regions.walk import Extents, Inputs, NotFoundError, Walk, parts_of
from manycl.analysis.summary import MemoryAccess
from manycl.group_range import GroupRange
from manycl.region import Box, Region
from manycl.utilities.kept import Kept

MOST_POINTS = 1 << 18
"""Points evaluated for one access: a few milliseconds (our own choice)."""
SECONDS = 20e-9
"""Roughly what a point takes, with large arrays."""
MOST_BOXES = 4096
"""Boxes of a region; one that takes more is not given (our own choice)."""
_KEPT = 32  # accesses of some range


class CountedRegions:
    """The regions of a launch, found by evaluating every work-item. ``budget``: points that may be evaluated for an
    access. ``contents``: index arrays' bytes at the launch, by argument, of those that share memory the first."""

    def __init__(
        self, regions: Regions, budget: int = MOST_POINTS, contents: Mapping[int, Array] | None = None
    ) -> None:
        self.regions = regions
        self.budget = budget
        self._inputs = Inputs(regions)
        self._contents = {i: data for root, data in (contents or {}).items() for i in regions.sharers(root)}
        self._reaches: Kept[tuple[object, ...], Extents] = Kept(_KEPT)

    def region(self, argument: int, kind: str, groups: GroupRange) -> Footprint | None:
        """Return the exact region of an argument; None where data have a part in it, or it is not found out."""
        if not self._is_told((argument,), (kind,)):
            return None
        size = self.regions.launch.sizes.get(self.regions.memory(argument), 0)
        lows, highs = [], []
        for access in self._accesses(argument, kind):
            found = _as_boxes(self.regions, access, groups) or self._reach(access, groups)
            if found is None or not found.exact:
                return None
            lows.append(np.clip(found.low, 0, size))
            highs.append(np.clip(found.high, 0, size))
        shapes = Region.of(np.concatenate(lows), np.concatenate(highs)).at_most(MOST_BOXES)
        return (
            None if shapes is None else Footprint(argument, kind, self.regions.units[argument], shapes, True, True, "")
        )

    def apart(self, sharers: Sequence[int], dimension: int) -> bool:
        """Return whether groups are proved to write apart on one shared memory, and read what none writes."""
        if not self._is_told(sharers, ("read", "write")):
            return False
        found: dict[str, list[Extents]] = {"read": [], "write": []}
        for argument in sharers:
            for kind, reaches in found.items():
                for access in self._accesses(argument, kind):
                    reach = self._reach(access, self.regions.launch.whole(dimension), tagged=True)
                    if reach is None:
                        return False
                    reaches.append(reach)
        size = self.regions.launch.sizes.get(self.regions.memory(sharers[0]), 0)
        return _are_apart(*(_by_group(found[kind], size) for kind in ("write", "read")))

    def index_arrays(self, argument: int) -> frozenset[int]:
        """Return the arrays (arguments, as those of ``contents``) that decide what is read of an argument, and no
        launch of the kernel writes; none where nothing is to be gained by knowing them."""
        found: set[int] = set()
        for access in self._accesses(argument, "read"):
            place = self._inputs.of(access.offset)
            if place is None or access.operation == "unknown" or self.regions.widened(argument, "read"):
                return frozenset()
            others = (*parts_of(access.condition), *(loop.trips for loop in access.loops if loop.trips is not None))
            for needed in (place, *map(self._inputs.of, others)):
                found.update(n for n in needed or () if isinstance(n, int))
        return frozenset(found)

    def hull(self, argument: int, groups: GroupRange) -> tuple[int, int] | None:
        """Return from which byte to which groups read an argument, at most, by contents of index arrays, or None."""
        found = [self._reach(access, groups) for access in self._accesses(argument, "read")]
        reaches = [reach for reach in found if reach is not None]
        if len(reaches) < len(found) or not self.index_arrays(argument):
            return None
        lows = [reach.low[reach.low < reach.high] for reach in reaches]
        highs = [reach.high[reach.low < reach.high] for reach in reaches]
        low, high = np.concatenate(lows), np.concatenate(highs)
        return (max(0, int(low.min())), max(0, int(high.max()))) if len(low) else (0, 0)

    def _accesses(self, argument: int, kind: str) -> list[MemoryAccess]:
        return [a for a in self.regions.summary.accesses if a.argument == argument and a.kind in (kind, "atomic")]

    def _is_told(self, arguments: Sequence[int], kinds: Sequence[str]) -> bool:
        """Whether ids, scalars and loops alone decide what accesses touch."""
        asked = [(i, kind) for i in arguments for kind in kinds]
        if any(self.regions.widened(*of) for of in asked):
            return False
        return not any(a.operation == "unknown" or _is_steered(a) for of in asked for a in self._accesses(*of))

    def _reach(self, access: MemoryAccess, groups: GroupRange, *, tagged: bool = False) -> Extents | None:
        """Return the region that an access of some groups touches; None if it cannot be found."""
        key = access.offset, access.size, access.condition, access.loops, groups, tagged
        found = self._reaches.get(key)
        if found is None:
            try:
                found = self._reaches.keep(
                    key, Walk(self._inputs, self.budget, access, groups, tagged, self._contents).reach()
                )
            except (NotFoundError, RecursionError):  # RecursionError: a subscript that is nested too deeply
                return None
        return found


def _is_steered(access: MemoryAccess) -> bool:
    """Whether data have a part in what an access touches."""
    trips = [loop.trips for loop in access.loops if loop.trips is not None]
    return any(e.unknown for e in (access.offset, access.condition, *trips))


def _as_boxes(regions: Regions, access: MemoryAccess, groups: GroupRange) -> Extents | None:
    """Return the region that an access touches, if it is a box."""
    linear = linear_access(access, parts_of(access.condition), regions.launch)
    found = None if linear is None else boxes_of(linear, regions.launch.ids_of(groups))
    return None if found is None else _of_boxes(found, all(loop.exact for loop in access.loops))


def _of_boxes(found: Sequence[Box], exact: bool) -> Extents:
    low = np.concatenate([np.zeros(0, np.int64), *(box.starts() for box in found)])
    widths = np.repeat([box.width for box in found], [box.rows * box.slices for box in found]).astype(np.int64)
    return Extents(low, low + widths, np.zeros(0, np.int64), exact)


_Grouped = tuple[Array, Array, Array]  # low and high ends, and the group that each belongs to


def _by_group(reaches: Sequence[Extents], size: int) -> _Grouped:
    """Return the region that each group touches within the memory, in order of the groups."""
    nothing = np.zeros(0, np.int64)
    apart_by = size + 1  # intervals of different groups never touch
    shift = np.concatenate([nothing, *(r.group for r in reaches)]) * apart_by
    low = np.clip(np.concatenate([nothing, *(r.low for r in reaches)]), 0, size)
    high = np.clip(np.concatenate([nothing, *(r.high for r in reaches)]), 0, size)
    found = Region.of(low + shift, high + shift)
    group = found.low // apart_by
    return found.low - group * apart_by, found.high - group * apart_by, group


def _are_apart(written: _Grouped, read: _Grouped) -> bool:
    """Whether no group writes what another writes or reads."""
    low, high, group = written
    if not len(low):
        return True
    order = np.argsort(low, kind="stable")
    low, high, group = low[order], high[order], group[order]
    if (low[1:] < np.maximum.accumulate(high)[:-1]).any():
        return False
    read_low, read_high, reader = read
    first = np.searchsorted(high, read_low, side="right")
    behind = np.searchsorted(low, read_high, side="left")
    meets = behind > first
    first, last, reader = first[meets], behind[meets] - 1, reader[meets]
    changes = np.concatenate([[0], np.cumsum(group[1:] != group[:-1])])
    return bool((group[first] == reader).all() and (changes[first] == changes[last]).all())
