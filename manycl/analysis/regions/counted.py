"""Regions by evaluating every work-item, where subscripts are too difficult for isl and data have no part in them, or
where the contents of the index arrays that decide are known. For every access the work-items of a range of groups are
evaluated at once (:mod:`manycl.analysis.regions.points`). A loop whose iterations touch consecutive bytes gives one
interval per work-item; any other is run through, as long as that takes no more points than the budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from manycl.analysis.regions.points import Array, Points
from manycl.analysis.regions.rectangles import linear_access, rectangles_of
from manycl.analysis.regions.regions import Footprint, Regions
from manycl.analysis.summary import Computed, MemoryAccess
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr
from manycl.group_range import GroupRange
from manycl.region import Rectangle, Region
from manycl.utilities.kept import Kept


@dataclass(frozen=True, slots=True)
class Extents:
    """Bytes [low, high) per point, by ``group`` along a dimension if asked for; ``exact``: all of these are touched."""

    low: Array
    high: Array
    group: Array
    exact: bool


class Inputs:
    """The inputs of the expressions of a launch: variables of work-items and loops, by name, and contents of
    arguments, by index, of those that have the same memory the first."""

    def __init__(self, regions: Regions) -> None:
        self.regions = regions
        self._found: dict[str, frozenset[str | int] | None] = {}

    def of(self, e: Expr) -> frozenset[str | int] | None:
        """Return what an expression needs; None where it cannot be known before the launch."""
        if e.key not in self._found:
            parts = [self._unknown(n) if v.unknown else frozenset((n,)) for n, v in e.variables().items()]
            known = [part for part in parts if part is not None]
            self._found[e.key] = None if len(known) < len(parts) else frozenset().union(*known)
        return self._found[e.key]

    def _unknown(self, name: str) -> frozenset[str | int] | None:
        origin = self.regions.summary.origins.get(name)
        if isinstance(origin, Computed):
            return self.of(origin.value)
        if origin is None or origin.offset is None or origin.argument not in self.regions.buffers:
            return None
        place = None if self.regions.may_be_written(origin.argument) else self.of(origin.offset)
        return None if place is None else place | {self.regions.memory(origin.argument)}


class NotFoundError(Exception):
    """The error that says why the bytes of an access cannot be found."""


class _WrapsError(Exception):
    """A subscript comes around within a loop."""

    def __init__(self, counter: str) -> None:
        super().__init__(counter)
        self.counter = counter


_AT_ONCE = 1 << 15  # work-items


class Walk:
    """One access, made by all work-items of a range of groups. ``contents``: of index arrays, by argument."""

    def __init__(
        self,
        inputs: Inputs,
        budget: int,
        access: MemoryAccess,
        groups: GroupRange,
        tagged: bool,
        contents: Mapping[int, Array],
    ) -> None:
        """``groups``: whose work-items. ``tagged``: by which group matters. Raises NotFoundError."""
        self.inputs, self.contents = inputs, contents
        self.launch, self.origins = inputs.regions.launch, inputs.regions.summary.origins
        self.budget, self.access = budget, access
        self.groups, self.tagged = groups, tagged
        self.counters = [loop.name for loop in access.loops]
        ids = (f"{kind}{d}" for kind in ("grp", "lid") for d in range(3))
        scope = {*ids, *self.counters, *contents}  # what has a value where the access is made

        def is_known(e: Expr) -> bool:
            return (found := inputs.of(e)) is not None and found <= scope

        if not is_known(access.offset):
            raise NotFoundError
        parts = parts_of(access.condition)
        self.parts = [part for part in parts if is_known(part)]
        self.trips = {loop.name: loop.trips for loop in access.loops if loop.trips is not None and is_known(loop.trips)}
        loops_exact = all(loop.exact and loop.name in self.trips for loop in access.loops)
        self.exact = loops_exact and len(self.parts) == len(parts)
        self.run_through: set[str] = set()
        self.spent = 0.0  # points

    def reach(self) -> Extents:
        while True:
            try:
                return self.walk(self.expanded())
            except _WrapsError as wraps:
                self.run_through.add(wraps.counter)
                self.spent = 0.0

    def walk(self, expanded: set[str]) -> Extents:
        """Evaluate all points, some work-groups at a time: what is in the caches is evaluated several times faster."""
        everything = (self.access.offset, *self.parts, *self.trips.values())
        needed = {name for e in everything for name in self.variables(e)}
        if self.tagged:
            needed.add(f"grp{self.groups.dimension}")
        found = []
        per_group = self.work_items(needed, self.groups._replace(count=1)).count
        self.afford(float(per_group) * (self.groups.count if f"grp{self.groups.dimension}" in needed else 1))
        step = max(1, _AT_ONCE // max(per_group, 1)) if f"grp{self.groups.dimension}" in needed else self.groups.count
        for first in range(self.groups.first, self.groups.end, step):
            some = GroupRange(self.groups.dimension, first, min(step, self.groups.end - first))
            points = self.work_items(needed, some)
            found.append(self.visited(points, expanded))
        low, high, group = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return Extents(low, high, group, self.exact)

    def variables(self, e: Expr) -> set[str]:
        """The variables that decide the value of an expression that is known."""
        return {name for name in self.inputs.of(e) or () if isinstance(name, str)}

    def visited(self, points: Points, expanded: set[str]) -> tuple[Array, Array, Array]:
        """The bytes that some work-items touch, and their groups."""
        points, rest = self.filtered(points, self.parts)
        for name in self.counters:
            if name not in expanded:
                continue
            low, high = self.bounds(points, name)
            counts = np.maximum(high - low, 0)
            self.afford(float(points.spread(counts).sum(dtype=np.float64)))
            points = points.repeated(name, low, counts)
            points, rest = self.filtered(points, rest)
        kept = ""  # a loop that is taken from end to end
        for name in self.counters:
            if name in expanded:
                continue
            moves = name in self.access.offset.variables()
            try:
                low, high = self.bounds(points, name)
            except NotFoundError:
                if moves:
                    raise
                self.exact = False
                continue
            points = points.at(f"{name} from", low).at(f"{name} to", high)
            if moves:
                kept = name
            else:
                points = points.where(low < high)
        return self.ended(points, kept)

    def ended(self, points: Points, counter: str) -> tuple[Array, Array, Array]:
        """The bytes at all points; those of all iterations of a loop where a ``counter`` is given."""
        if counter:
            low, high = self.run(points, counter)
        else:
            low = self.sure(points, self.access.offset)
            high = low + self.access.size
        group = points.spread(points.variables[f"grp{self.groups.dimension}"]) if self.tagged else np.zeros(0, np.int64)
        return points.spread(low), points.spread(high), group

    def run(self, points: Points, counter: str) -> tuple[Array, Array]:
        """The bytes of all iterations of a loop at each point."""
        wraps: list[tuple[Expr, Expr]] = []
        offset = _straight(self.access.offset, counter, wraps)
        assert offset is not None
        first, behind = points.variables[f"{counter} from"], points.variables[f"{counter} to"]
        runs = first < behind
        ends = points.at(counter, first), points.at(counter, behind - 1)
        for inner, wrap in wraps:
            least, most = x.type_range(abs(wrap.value), wrap.value < 0)
            if inner.low >= least and inner.high <= most:
                continue
            for end in ends:
                values = self.sure(end, inner, runs)
                if (((values < least) | (values > most)) & runs).any():
                    raise _WrapsError(counter)
        if _factor(offset, counter) < 0:
            ends = ends[::-1]
        low, last = (self.sure(end, offset, runs) for end in ends)
        return low, np.where(runs, last + self.access.size, low)

    def sure(self, points: Points, e: Expr, runs: Array | None = None) -> Array:
        """Values that must be known everywhere, or where ``runs`` is true."""
        found = points.of(e)
        if found.bad is not None and points.count and (found.bad if runs is None else found.bad & runs).any():
            raise NotFoundError
        return found.values

    def afford(self, count: float) -> None:
        self.spent += count
        if self.spent > self.budget:
            raise NotFoundError

    def work_items(self, needed: set[str], groups: GroupRange) -> Points:
        """The work-items of some groups, as far as their ids matter."""
        ends = self.launch.ids_of(groups)
        names = [f"{kind}{d}" for kind in ("grp", "lid") for d in (2, 1, 0)]
        axes = [n for n in names if n in needed]
        lengths = tuple(ends[n][1] - ends[n][0] + 1 for n in axes)
        variables = {}
        for place, name in enumerate(axes):
            line = np.arange(ends[name][0], ends[name][1] + 1, dtype=np.int64)
            variables[name] = line.reshape(*(-1 if i == place else 1 for i in range(len(axes))))
        return Points(self.origins, self.contents, variables, lengths)

    def filtered(self, points: Points, parts: Sequence[Expr]) -> tuple[Points, list[Expr]]:
        """The points where the conditions hold of which all is known, and the other conditions."""
        rest = []
        for part in parts:
            if not self.variables(part) <= points.variables.keys():
                rest.append(part)
                continue
            found = points.of(part)
            mask = found.values.astype(bool)
            if not found.whole and points.count:
                assert found.bad is not None
                self.exact = False
                mask = mask | found.bad
            points = points.where(np.asarray(mask))
        return points, rest

    # -- loops

    def expanded(self) -> set[str]:
        """Counters whose values have to be run through one by one."""
        found = set(self.run_through)
        parts = [part for part in self.parts if part.variables().keys() & set(self.counters)]
        for e in (self.access.offset, *self.parts, *self.trips.values()):
            for variable in e.variables().values():
                if variable.unknown:
                    found |= self.variables(variable) & set(self.counters)
        for trips in self.trips.values():
            found |= trips.variables().keys() & set(self.counters)
        for name in self.counters:
            if name in self.access.offset.variables():
                straight = _straight(self.access.offset, name, [])
                if straight is None or not 0 < abs(_factor(straight, name)) <= self.access.size:
                    found.add(name)
            if any(name in part.variables() and self.limit(part, name) is None for part in parts):
                found.add(name)
        for e in (self.access.offset, *parts):  # of counters that come together, one can be left
            together = [name for name in self.counters if name in e.variables() and name not in found]
            found.update(together[:-1])
        return found

    @staticmethod
    def limit(part: Expr, name: str) -> tuple[Expr, int] | None:
        """(gap, factor): a condition on a counter says that ``gap``, in which it has the factor, is positive."""
        if part.op != "lt":
            return None
        gap = x.subtract(part.args[1], part.args[0])
        wraps: list[tuple[Expr, Expr]] = []
        straight = _straight(gap, name, wraps)
        if straight is None or wraps:
            return None
        return straight, _factor(straight, name)

    def bounds(self, points: Points, name: str) -> tuple[Array, Array]:
        """Return from where to where a counter runs at each point."""
        low: Array = np.zeros((), np.int64)
        highs: list[Array] = []
        if name in self.trips:
            highs.append(self.sure(points, self.trips[name]))
        for part in self.parts:
            found = self.limit(part, name) if name in part.variables() else None
            if found is None:
                continue
            try:
                gap, factor = x.substitute(found[0], {name: x.ZERO}), found[1]
            except x.UndefinedError:
                continue
            if not self.variables(gap) <= points.variables.keys():
                continue
            start = self.sure(points, gap)
            if factor > 0:  # factor * k + start > 0
                low = np.maximum(low, 1 - start if factor == 1 else -((start - 1) // factor))
            elif factor < 0:
                highs.append(start if factor == -1 else (start - 1) // -factor + 1)
        if not highs:
            raise NotFoundError
        high = highs[0]
        for other in highs[1:]:
            high = np.minimum(high, other)
        return low, high


def parts_of(condition: Expr) -> list[Expr]:
    parts = condition.args if condition.op == "and" else (condition,)
    return [part for part in parts if part != x.ONE]


def _straight(e: Expr, name: str, wraps: list[tuple[Expr, Expr]]) -> Expr | None:
    """An expression without the conversions around a variable (put in ``wraps``), if it is then linear in it."""
    if e.op == "var" or name not in e.variables():
        return e
    if e.op == "sum":
        total: list[Expr] = [x.const(e.value)]
        for atom, factor in zip(e.args, e.terms, strict=True):
            part = _straight(atom, name, wraps)
            if part is None:
                return None
            total.append(x.scale(part, factor))
        return x.add(*total)
    if e.op == "wrap":
        inner = _straight(e.args[0], name, wraps)
        if inner is not None:
            wraps.append((inner, e))
        return inner
    return None


def _factor(e: Expr, name: str) -> int:
    if e.op == "sum":
        return next((f for a, f in zip(e.args, e.terms, strict=True) if a.key == name), 0)
    return int(e.key == name)


MOST_POINTS = 1 << 18
"""Points evaluated for one access: a few milliseconds (our own choice)."""
SECONDS = 20e-9
"""Roughly what a point takes, with large arrays."""
MOST_RECTANGLES = 4096
"""Rectangles of a region; one that takes more is not given (our own choice)."""
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
            found = _as_rectangles(self.regions, access, groups) or self._reach(access, groups)
            if found is None or not found.exact:
                return None
            lows.append(np.clip(found.low, 0, size))
            highs.append(np.clip(found.high, 0, size))
        shapes = Region.of(np.concatenate(lows), np.concatenate(highs)).at_most(MOST_RECTANGLES)
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
        """Return whether ids, scalars and loops alone decide what accesses touch."""
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
    """Return whether data have a part in what an access touches."""
    trips = [loop.trips for loop in access.loops if loop.trips is not None]
    return any(e.unknown for e in (access.offset, access.condition, *trips))


def _as_rectangles(regions: Regions, access: MemoryAccess, groups: GroupRange) -> Extents | None:
    """Return the region that an access touches, if it is a rectangle."""
    linear = linear_access(access, parts_of(access.condition), regions.launch)
    found = None if linear is None else rectangles_of(linear, regions.launch.ids_of(groups))
    return None if found is None else _of_rectangles(found, all(loop.exact for loop in access.loops))


def _of_rectangles(found: Sequence[Rectangle], exact: bool) -> Extents:
    low = np.concatenate([np.zeros(0, np.int64), *(rect.starts() for rect in found)])
    widths = np.repeat([rect.width for rect in found], [rect.rows * rect.slices for rect in found]).astype(np.int64)
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
    """Return whether no group writes what another writes or reads."""
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
