"""Looking at index arrays: what a launch touches where that depends on data, once the data are there.

For every access the work-items of a range of groups are evaluated at once, unknown values taken from the contents of
the arrays that they come from (:mod:`manycl.analysis.regions.points`). A loop whose iterations touch consecutive bytes
gives one interval per work-item; any other is run through, as long as that takes no more points than the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from manycl.analysis.regions import hazards
from manycl.analysis.regions.boxed import boxes_of, linear_access
from manycl.analysis.regions.hazards import Verdict
from manycl.analysis.regions.points import Array
from manycl.analysis.regions.regions import RANGES_KEPT, Footprint
from manycl.analysis.regions.shapes import TooComplexError, boxes
from manycl.analysis.regions.walk import Extents, Looking, NotFoundError, Walk, parts_of
from manycl.analysis.summary import MemoryAccess
from manycl.analysis.symbolic.isl import isl
from manycl.group_range import GroupRange
from manycl.region import Box, Region
from manycl.utilities.kept import Kept

MOST_POINTS = 1 << 21  # evaluated for one access
MOST_BOXES = 4096
_KEPT = 32  # accesses of some range


class Looked:
    """What the contents of index arrays tell of a launch; the same questions as to :class:`LaunchFacts`.

    The contents must be those that the launch will find, and must not change while this is asked. Without those that
    an access needs, or beyond the budget, the answer is that of the launch itself.
    """

    def __init__(
        self,
        looking: Looking,
        contents: Mapping[int, np.ndarray],
        budget: int = MOST_POINTS,
        plain: Callable[..., Footprint] | None = None,
    ) -> None:
        self.looking = looking
        self.plain = plain or looking.regions.region
        self.regions = looking.regions
        self.launch = looking.regions.launch
        self.budget = budget
        self.contents = {self.regions.memory(i): self._bytes(i, data) for i, data in contents.items()}
        self.contents |= {i: d for root, d in self.contents.items() for i in self.regions.sharers(root)}
        self._reaches: dict[tuple[object, ...], Extents | str] = {}
        self._regions: Kept[tuple[int, str, GroupRange], Footprint] = Kept(RANGES_KEPT)
        self._splits: dict[int, Verdict] = {}
        self._outside: dict[str, None] = {}

    def _bytes(self, argument: int, data: np.ndarray) -> Array:
        name = self.regions.buffers[argument].name or f"#{argument}"
        if not self.looking.fixed(argument):
            raise ValueError(f"the kernel writes {name}: its contents now are not what work-items read")
        size = self.launch.sizes.get(self.regions.memory(argument), 0)
        if data.nbytes < size:
            raise ValueError(f"{name} has {size} bytes, its contents {data.nbytes}")
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)[:size]

    # -- questions

    def region(self, argument: int, kind: str, groups: GroupRange | None = None) -> Footprint:
        """As :meth:`LaunchFacts.region`."""
        groups = groups or self.launch.whole()
        key = argument, kind, groups
        found = self._regions.get(key)
        if found is None:
            steered = any(self.looking.steered(a) for a in self.looking.accesses(argument, kind))
            number = self.launch.groups(groups.dimension)
            inside = 0 <= groups.dimension < 3 and 0 <= groups.first < groups.end <= number
            narrowed = None
            if steered and inside and not self.regions.widened(argument, kind):
                narrowed = self._region(argument, kind, groups)
            found = self._regions.keep(key, narrowed or self.plain(*key))
        return found

    def split(self, dimension: int) -> Verdict:
        """As :meth:`LaunchFacts.split`."""
        if dimension not in self._splits:
            self._splits[dimension] = hazards.split(
                self.regions, dimension, lambda sharers: self._apart(sharers, dimension)
            )
        return self._splits[dimension]

    @property
    def splits(self) -> Mapping[int, Verdict]:
        """The verdict on every dimension of the launch."""
        return {d: self.split(d) for d in range(len(self.launch.global_size))}

    @cached_property
    def out_of_bounds(self) -> tuple[str, ...]:
        """Accesses that certainly leave their memory."""
        for argument in self.regions.buffers:
            for kind in ("read", "write"):
                self.region(argument, kind)
        return (*self.regions.out_of_bounds(), *self._outside)

    # -- without looking

    def counted(self, argument: int, kind: str, groups: GroupRange | None = None) -> Footprint | None:
        """The region of an argument by evaluating all work-items, if data have no part in it; None if it is not exact,
        or takes more points than the budget."""
        if self.regions.widened(argument, kind) or self._steered((argument,)):
            return None
        found = self._region(argument, kind, groups or self.launch.whole())
        return found if found is not None and found.exact else None

    def counted_apart(self, sharers: Sequence[int], dimension: int) -> bool:
        """Whether evaluating all work-items proves groups apart on one memory, where data have no part in it."""
        return not self._steered(sharers) and self._apart(sharers, dimension)

    def _steered(self, arguments: Sequence[int]) -> bool:
        accesses = [a for i in arguments for kind in ("read", "write") for a in self.looking.accesses(i, kind)]
        return any(self.looking.steered(access) for access in accesses)

    # -- regions

    def _region(self, argument: int, kind: str, groups: GroupRange) -> Footprint | None:
        """The region by looking; None where that tells nothing."""
        size = self.launch.sizes.get(self.regions.memory(argument), 0)
        lows, highs, exact, reason = [], [], True, ""
        for access in self.looking.accesses(argument, kind):
            found = self._one(access, kind, groups)
            if found is None:
                return None
            if found.exact and self.looking.steered(access):
                self._note_outside(found, access, kind, size)
            lows.append(np.clip(found.low, 0, size))
            highs.append(np.clip(found.high, 0, size))
            if not found.exact:
                exact, reason = False, reason or found.reason
        shapes, tight = _as_boxes(Region.of(np.concatenate(lows), np.concatenate(highs)))
        if not tight and exact:
            exact, reason = False, f"more than {len(shapes)} pieces: the smallest gaps are filled"
        return Footprint(argument, kind, self.regions.units[argument], shapes, True, exact, reason)

    def _one(self, access: MemoryAccess, kind: str, groups: GroupRange) -> Extents | None:
        """What one access touches; None if no more is known than without looking."""
        if access.operation == "unknown":
            return None
        found = self._plain(access, groups) or self._reach(access, groups)
        return self._related(access, kind, groups, found) if isinstance(found, str) else found

    def _note_outside(self, found: Extents, access: MemoryAccess, kind: str, size: int) -> None:
        outside = ((found.low < 0) | (found.high > size)) & (found.low < found.high)
        if outside.any():
            low, high = int(found.low[outside].min()), int(found.high[outside].max())
            name = self.regions.buffers[access.argument].name
            what = f"line {access.line} {kind}s {name} outside of its {size} bytes"
            self._outside[f"{what} (between bytes {low} and {high})"] = None

    def _plain(self, access: MemoryAccess, groups: GroupRange) -> Extents | None:
        """Of an access that data have no part in, if it is a box."""
        if self.looking.steered(access):
            return None
        linear = linear_access(access, parts_of(access.condition), self.launch)
        found = None if linear is None else boxes_of(linear, self.launch.ids_of(groups))
        if found is None:
            return None
        exact = all(loop.exact for loop in access.loops)
        reason = next((loop.reason for loop in access.loops if not loop.exact), "")
        return _of_boxes(found, exact, reason)

    def _related(self, access: MemoryAccess, kind: str, groups: GroupRange, reason: str) -> Extents | None:
        """What is known of an access without looking; ``reason`` says why that did not do."""
        if not self.regions.isl_here:  # all that is done to the argument instead of this access alone
            return _of_boxes(self.plain(access.argument, kind, groups).boxes, False, reason)
        relations = self.regions.relations(access.argument, kind)
        relation = next((r for r in relations if r.access is access), None)
        if relation is None:
            return None
        try:
            elements = self.regions.limited(_restricted, self.regions.along(relation, groups.dimension), groups)
            found, tight = self.regions.limited(boxes, elements)
        except TooComplexError:
            return None
        unit = self.regions.units[access.argument]
        exact = relation.exact and tight
        return _of_boxes([box.scaled(unit) for box in found], exact, "" if exact else reason)

    # -- splitting

    def _apart(self, sharers: Sequence[int], dimension: int) -> bool:
        """Whether groups are proved to write apart on one memory, and to read only what no other writes."""
        if any(self.regions.widened(i, kind) for i in sharers for kind in ("read", "write")):
            return False
        found: dict[str, list[Extents]] = {"read": [], "write": []}
        for argument in sharers:
            for kind, reaches in found.items():
                for access in self.looking.accesses(argument, kind):
                    reach = self._reach(access, self.launch.whole(dimension), tagged=True)
                    if isinstance(reach, str) or access.operation == "unknown":
                        return False
                    reaches.append(reach)
        size = self.launch.sizes.get(self.regions.memory(sharers[0]), 0)
        return _are_apart(*(_by_group(found[kind], size) for kind in ("write", "read")))

    # -- one access

    def _reach(self, access: MemoryAccess, groups: GroupRange, *, tagged: bool = False) -> Extents | str:
        """What an access of some groups (groups) touches, or why that is not found out."""
        key = access.offset, access.size, access.condition, access.loops, groups, tagged
        found = self._reaches.get(key)
        if found is None:
            try:
                found = Walk(self.looking, self.contents, self.budget, access, groups, tagged).reach()
            except NotFoundError as error:
                found = f"{error}, line {access.line}"
            except RecursionError:
                found = f"a subscript that is nested too deeply, line {access.line}"
            if len(self._reaches) >= _KEPT:
                self._reaches.clear()
            self._reaches[key] = found
        return found


def _of_boxes(found: Sequence[Box], exact: bool, reason: str) -> Extents:
    low = np.concatenate([np.zeros(0, np.int64), *(box.starts() for box in found)])
    widths = np.repeat([box.width for box in found], [box.rows * box.slices for box in found]).astype(np.int64)
    return Extents(low, low + widths, np.zeros(0, np.int64), exact, reason)


def _restricted(relation: Any, groups: GroupRange) -> Any:
    return relation.intersect_domain(isl.Set(f"{{ [g] : {groups.first} <= g < {groups.end} }}")).range()


def _as_boxes(found: Region) -> tuple[tuple[Box, ...], bool]:
    """A region as boxes, and whether they are just this: if it took too many, the smallest gaps are filled."""
    boxes_ = found.at_most(MOST_BOXES)
    if boxes_ is not None:
        return boxes_, True
    gaps = found.low[1:] - found.high[:-1]
    kept = np.sort(np.argpartition(gaps, len(gaps) - MOST_BOXES + 1)[len(gaps) - MOST_BOXES + 1 :])
    low, high = np.append(found.low[:1], found.low[kept + 1]), np.append(found.high[kept], found.high[-1:])
    return tuple(Box(a, b - a) for a, b in zip(low.tolist(), high.tolist(), strict=True)), False


_Grouped = tuple[Array, Array, Array]  # low and high ends, and the group that each belongs to


def _by_group(reaches: Sequence[Extents], size: int) -> _Grouped:
    """What each group touches within the memory, in order of the groups."""
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
