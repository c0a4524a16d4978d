"""Costs of a launch: how many operations of each kind any range of its work-groups executes. Counts are exact where
only ids, sizes and scalars decide what is executed. A condition on data counts as true for ``TAKEN`` of the visits, a
loop of which no bound is known as ``ROUNDS`` iterations (as in Device-Hopping, Section 4.2); terms of a loop's
condition that are not known are left out. The result then is not ``exact`` and says why."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from manycl.analysis.summary import Computed, CountedPlace, KernelSummary, Origin
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr
from manycl.group_range import GroupRange
from manycl.utilities.unforeseen import told

if TYPE_CHECKING:  # they import NumPy or islpy
    from manycl.analysis.known_launch import KnownLaunch
    from manycl.analysis.symbolic.counting import Array, Axis, Counted

TAKEN = 0.5
ROUNDS = 1
ITERATION = "iteration"  # the kind under which iterations of innermost loops are counted


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a launch or of a range of its work-groups (``work_groups`` 0: the driver chooses their size).

    ``f`` is MKMD's (Section 4, Eq. 1): iterations of the innermost loops per work-item, 1 for kernels without loops or
    where nothing is known of them, and never 0. ``operations`` are totals over the range by kind (empty: not counted):
    ``float.add``, ``int.mul``, ``compare.int``, ``special``, ``load.global``, ``store.local``, ``barrier`` and so on;
    an operation on a vector counts once per lane, a load or store of a vector once. ``global_bytes`` and
    ``local_bytes`` are what the accesses to memory read and write. Counts are ``exact``, or ``reason`` says why not.
    ``scattered``: accesses to global memory where work-items that follow one another along dimension 0 are neither at
    the same element nor at elements that follow one another; ``shared``: others, where work-items that follow one
    another along some dimension of a group are at the same element.
    """

    work_items: int
    work_groups: int
    f: float = 1.0
    operations: Mapping[str, float] = field(default_factory=dict)
    global_bytes: float = 0.0
    local_bytes: float = 0.0
    exact: bool = False
    reason: str = ""
    scattered: float = 0.0
    shared: float = 0.0

    @property
    def cost(self) -> float:
        """MKMD's T f."""
        return self.work_items * self.f


@dataclass(frozen=True, slots=True)
class Visits:
    """The number of times that a place is visited; ``reasons``: why that is not exact."""

    number: float
    reasons: tuple[str, ...] = ()


class LaunchCost:
    """The costs of one launch, from its summary. ``contents``: the bytes of arrays that the kernel only reads, by
    argument; what only their elements decide is then counted as it is, as far as that takes no more than to look at
    every work-item."""

    def __init__(
        self, summary: KernelSummary, launch: KnownLaunch, contents: Mapping[int, Array] | None = None
    ) -> None:
        self.summary = summary
        self.contents = contents or {}
        self.launch = launch
        self._settled: dict[Expr, Expr] = {}
        self._works: dict[GroupRange, Work] = {}

    def work(self, groups: GroupRange | None = None) -> Work:
        """The work of some work-groups, or of all. Raises ValueError for a range outside of the launch."""
        dimension, first, count = groups or self.launch.whole()
        number = self.launch.groups(dimension)
        if not 0 <= first <= first + count <= number or not 0 <= dimension < len(self.launch.global_size):
            raise ValueError(f"work-groups {first} to {first + count} of {number} in dimension {dimension}")
        key = self.launch.whole() if count == number else GroupRange(dimension, first, count)
        found = self._works.get(key)
        if found is None:
            if len(self._works) > _KEPT:
                self._works.clear()
            found = self._works[key] = self._work(key)
        return found

    def _work(self, groups: GroupRange) -> Work:
        items, number = self.extent(groups)
        if self.summary.failure:
            return Work(items, number, reason=self.summary.failure)
        axes = self.axes(groups)
        found: dict[tuple[object, ...], Visits] = {}
        try:
            totals, reason = self.totals(axes, found)
            together = self._together(axes, found)
        except RecursionError:
            return Work(items, number, reason="what it computes is nested too deeply")
        except Exception as error:
            return Work(items, number, reason=told(error, f"counting kernel {self.summary.kernel}"))
        steps = totals.pop(ITERATION, None)
        f = 1.0 if steps is None or not items else max(steps, 1) / items
        sizes = {kind: n for kind, n in totals.items() if kind.endswith(".bytes")}
        operations = {kind: n for kind, n in totals.items() if kind not in sizes}
        moved = {s: sum(n for kind, n in sizes.items() if f".{s}." in kind) for s in ("global", "local")}
        return Work(items, number, f, operations, moved["global"], moved["local"], not reason, reason, *together)

    def _together(self, axes: Mapping[str, Axis], found: dict[tuple[object, ...], Visits]) -> tuple[float, float]:
        """Visits of accesses that neighbouring work-items do not make to neighbouring elements, and of those that they
        make to the same (``Work.scattered``, ``Work.shared``)."""
        along = "lid0" if self.launch.local_size[0] > 1 else "grp0"
        across = [f"lid{d}" for d, size in enumerate(self.launch.local_size) if d and size > 1]
        scattered = shared = 0.0
        for access in self.summary.accesses:
            step = _step(access.offset, along)
            apart = step not in (0, access.size)
            if apart or step == 0 or any(_step(access.offset, name) == 0 for name in across):
                number = self.visits(CountedPlace(access.condition, access.loops), axes, found).number
                scattered, shared = (scattered + number, shared) if apart else (scattered, shared + number)
        return scattered, shared

    def extent(self, groups: GroupRange) -> tuple[int, int]:
        """(work-items, work-groups) of a range."""
        items = number = 1
        for d, (size, local) in enumerate(zip(self.launch.global_size, self.launch.local_size, strict=True)):
            _, first, count = groups if d == groups.dimension else self.launch.whole(d)
            items *= min(size, (first + count) * local) - min(size, first * local)
            number *= count
        return items, number

    def totals(self, axes: Mapping[str, Axis], found: dict[tuple[object, ...], Visits]) -> tuple[dict[str, float], str]:
        """Totals over a range by kind, and why they are not exact."""
        totals: dict[str, float] = {}
        reasons: dict[str, None] = {}
        for place, counts in self.summary.counts:
            visits = self.visits(place, axes, found)
            reasons |= dict.fromkeys(visits.reasons)
            for kind, times in counts.items():
                if ".lost" in kind:
                    kind = kind.replace(".lost", ".global")
                    reasons["a pointer that is not followed"] = None
                totals[kind] = totals.get(kind, 0) + times * visits.number
        return totals, _few(reasons)

    def axes(self, groups: GroupRange) -> dict[str, Axis]:
        from manycl.analysis.symbolic.counting import Axis

        axes: dict[str, Axis] = {}
        for d, (size, local) in enumerate(zip(self.launch.global_size, self.launch.local_size, strict=True)):
            _, first, count = groups if d == groups.dimension else self.launch.whole(d)
            axes[f"grp{d}"] = Axis(first, first + count - 1)
            axes[f"lid{d}"] = Axis(0, min(local, size) - 1)
        return axes

    # -- a place

    def visits(self, place: CountedPlace, axes: Mapping[str, Axis], found: dict[tuple[object, ...], Visits]) -> Visits:
        """Return how often work-items of the axes come to a place."""
        told = self.contents and self.visits_told(place, axes, found, True)
        return told if told and not told.reasons else self.visits_told(place, axes, found, False)

    def visits_told(
        self, place: CountedPlace, axes: Mapping[str, Axis], found: dict[tuple[object, ...], Visits], told: bool
    ) -> Visits:
        """Return how often a place is visited, with the elements of arrays that were ``told``, or without."""
        from manycl.analysis.symbolic.counting import Axis

        axes = dict(axes)
        limits: list[Expr] = []
        open_: set[str] = set()  # counters of loops whose end is not known
        reasons: dict[str, None] = {}
        for loop in place.loops:
            trips = None if loop.trips is None else self.settled(loop.trips)
            known = None if trips is None else trips if told and self.told(trips) else known_trips(trips)
            if not loop.exact:
                reasons[loop.reason] = None
            if trips is None or (trips.unknown and known is not trips):
                reasons[f"how often the loop in line {loop.line} runs"] = None
                open_.add(loop.name)
                known = x.const(ROUNDS) if known is None else known
                limits.append(x.less(x.var(loop.name, 0, x.INFINITE), known))
            assert known is not None
            axes[loop.name] = Axis(0, known.high - 1)
        share = 1.0
        for part in self.settled(place.condition).parts:
            if not part.unknown or (told and self.told(part)):
                limits.append(part)
            elif not open_ & part.variables().keys():
                share *= TAKEN
                reasons[self.why(part)] = None
        condition = x.both(*limits)
        key = condition.key, tuple(axes[loop.name].high for loop in place.loops)
        if key not in found:
            found[key] = self.counted(condition, axes)
        reasons |= dict.fromkeys(found[key].reasons)
        number = found[key].number
        return Visits(number if share == 1.0 else number * share, tuple(reasons))

    def counted(self, condition: Expr, axes: Mapping[str, Axis]) -> Visits:
        from manycl.analysis.symbolic import counting
        from manycl.analysis.symbolic.counting import merged

        known = counting.Known(self.summary.origins, self.contents)
        parts, axes = merged(condition.parts, axes, self.launch, known.origins)
        try:
            found: Counted = counting.count(x.both(*parts), axes, known)
        except ValueError as error:
            small = [part for part in parts if not _is_wide(part)]
            if len(small) == len(parts):
                return Visits(TAKEN * counting.size(axes.values()), (str(error),))
            rest = self.counted(x.both(*small), axes)
            return Visits(rest.number * TAKEN ** (len(parts) - len(small)), (str(error),))
        return Visits(found.number, (f"sampled, within about {100 * found.error:.2g} %",) if found.error else ())

    def told(self, e: Expr) -> bool:
        """Return whether all that is unknown in an expression are elements of arrays whose contents are known."""
        for name, variable in e.variables().items():
            if variable.unknown:
                origin = self.summary.origins.get(name)
                if origin is None or origin.offset is None or origin.argument not in self.contents:
                    return False
                if not self.told(origin.offset):
                    return False
        return True

    def settled(self, e: Expr) -> Expr:
        """An expression with the values of arithmetic that may overflow as if it did not (that would be undefined)."""
        result = self._settled.get(e)
        if result is None:
            result = _settled(e, self.summary.origins)
            with suppress(x.TooLargeError):
                result = _unwrapped(result)
            self._settled[e] = result
        return result

    def why(self, part: Expr) -> str:
        names = [name for name, variable in part.variables().items() if variable.unknown]
        return self.summary.origins[names[0]].reason if names[0] in self.summary.origins else f"{part}"


_KEPT = 512  # ranges whose work is remembered
_LONG = 1 << 16  # characters of a condition or number of iterations


def _few(reasons: Mapping[str, None]) -> str:
    """The first reasons, and how many there are more."""
    shown = list(reasons)[:3]
    more = len(reasons) - len(shown)
    return "; ".join([*shown, f"and {more} more"] if more else shown)


def _settled(e: Expr, origins: Mapping[str, Origin]) -> Expr:
    """Return an expression with its origins put in, as far as it does not grow too long: the rest stays unknown."""
    for _ in range(len(origins) + 1):
        values: dict[str, Expr] = {}
        for name, variable in e.variables().items():
            origin = origins.get(name) if variable.unknown else None
            if isinstance(origin, Computed):
                values[name] = origin.value
        if not values or sum(len(v.key) for v in values.values()) > x.LONGEST:
            return e
        try:
            found = x.substitute(e, values)
        except (x.TooLargeError, x.UndefinedError):
            return e
        if len(found.key) > _LONG:
            return e
        e = found
    return e


def _is_wide(e: Expr) -> bool:
    """Return whether numbers of 64 bits come around in an expression."""
    return (e.op == "wrap" and abs(e.value) == 64) or any(_is_wide(a) for a in e.args)


def _unwrapped(e: Expr) -> Expr:
    """A condition whose comparisons of unsigned numbers say what they mean for the numbers that were converted."""
    if e.op in ("and", "or"):
        parts = [_unwrapped(part) for part in e.args]
        return x.both(*parts) if e.op == "and" else x.either(*parts)
    if e.op == "not":
        return x.negate(_unwrapped(e.args[0]))
    if e.op not in ("lt", "eq"):
        return e
    for i, side in enumerate(e.args):
        inner, around = (side.args[0], 1 << side.value) if side.op == "wrap" and side.value > 0 else (side, 0)
        if not around or inner.low < -around or inner.high >= around:
            continue
        compare = x.less if e.op == "lt" else x.equal
        other = e.args[1 - i]
        negative = x.less(inner, x.ZERO)
        plain, wrapped = ((v, other) if i == 0 else (other, v) for v in (inner, x.add(inner, x.const(around))))
        cases = x.both(x.negate(negative), compare(*plain)), x.both(negative, compare(*wrapped))
        return _unwrapped(x.either(*cases))
    return e


def _step(offset: Expr, name: str) -> int | None:
    """By how much an offset grows with a variable; None where that is not one number."""
    step = 0
    for atom, factor in offset.summands:
        if atom.op == "var" and atom.key == name and not atom.unknown:
            step += factor
        elif atom.unknown or name in atom.variables():
            return None
    return step


def known_trips(trips: Expr) -> Expr | None:
    """The part of a number of iterations that is known; None if nothing is."""
    if not trips.unknown:
        return trips
    if trips.op == "min":
        known = [part for part in (known_trips(a) for a in trips.args) if part is not None]
        return x.minimum(*known) if len(known) == 2 else known[0] if known else None
    if trips.op == "max" and trips.args[1] == x.ZERO:
        inner = known_trips(trips.args[0])
        return None if inner is None else x.maximum(inner, x.ZERO)
    if trips.op == "select" and not (trips.args[1].unknown or trips.args[2].unknown):
        return x.maximum(trips.args[1], trips.args[2])
    return None
