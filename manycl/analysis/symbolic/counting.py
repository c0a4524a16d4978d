"""Counting the points that fulfil conditions: the visits that work-items and iterations of loops pay to a place of a
kernel.

Axes are the group and local ids of a launch and the counters of loops, each with a range of integers. They are summed
over one after another, always the cheapest first: one on which the conditions put bounds that are linear in it costs
an array over the axes in these bounds, whatever its length; others are enumerated. What would take more than
``MOST_POINTS`` is sampled, and the result says so.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from manycl.analysis.regions.points import Points
from manycl.analysis.summary import Origin
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr

if TYPE_CHECKING:
    from manycl.analysis.known_launch import KnownLaunch

_LONG = 1 << 12  # values of an axis that is worth taking apart
_LONGEST_PERIOD = 1 << 16

Array = np.ndarray[Any, np.dtype[Any]]
Origins = Mapping[str, Origin]


def axes_in(e: Expr, axes: Container[str], origins: Origins) -> list[str]:
    """The axes that an expression depends on, also by the places of elements of arrays in it."""
    names = e.variables()
    found = [name for name in names if name in axes]
    if e.unknown:
        for name, variable in names.items():
            offset = origins[name].offset if variable.unknown and name in origins else None
            if offset is not None:
                found += [n for n in axes_in(offset, axes, origins) if n not in found]
    return found


@dataclass(frozen=True, slots=True)
class Axis:
    """Integers [low, high], or so many of them as ``values`` has, each standing for ``weight``."""

    low: int
    high: int
    values: Array | None = None
    weight: float = 1.0

    @property
    def size(self) -> int:
        return len(self.values) if self.values is not None else max(self.high - self.low + 1, 0)

    def numbers(self) -> Array:
        return self.values if self.values is not None else np.arange(self.low, self.high + 1, dtype=np.int64)

    def position(self, bound: Array) -> Array:
        """Return the number of values below each bound."""
        if self.values is not None:
            return np.searchsorted(self.values, bound, "left")
        inside = np.clip(bound, self.low, self.high + 1)
        return inside - self.low if self.low else inside

    def sampled(self, number: int, mirrored: bool) -> Axis:
        """Return so many of its values, one at random in each of as many parts: nothing that repeats along it is
        missed. In the ``mirrored`` sample they lie as far from the ends of their parts as else from the beginnings:
        what is linear in a part comes out right in the mean of both."""
        places = np.random.default_rng(number).random(number)
        numbers = (np.arange(number) + (1.0 - places if mirrored else places)) * (self.size / number)
        numbers = np.minimum(numbers, self.size - 1)
        return Axis(self.low, self.high, self.low + numbers.astype(np.int64), self.size / number)


def merged(
    conditions: Sequence[Expr], axes: Mapping[str, Axis], launch: KnownLaunch, origins: Origins
) -> tuple[list[Expr], dict[str, Axis]]:
    """Return conditions and axes with one axis for global ids in place of two, in every dimension where the conditions
    need no other ids."""
    axes, conditions = dict(axes), list(conditions)
    for d, local in enumerate(launch.local_size):
        group, inner = axes.get(f"grp{d}"), axes.get(f"lid{d}")
        if group is None or inner is None or inner.size != local:
            continue
        name = f"gid{d}"
        ends = group.low * local, group.high * local + local - 1
        whole = x.subtract(x.var(name, *ends), x.scale(x.var(f"grp{d}", group.low, group.high), local))
        try:
            found = [x.substitute(c, {f"lid{d}": whole}) if f"lid{d}" in c.variables() else c for c in conditions]
        except (x.TooLargeError, x.UndefinedError):  # a divisor that is not zero for any lid, but may be for any gid
            continue
        if not any(axes_in(c, (f"grp{d}", f"lid{d}"), origins) for c in found):
            conditions = found
            del axes[f"grp{d}"], axes[f"lid{d}"]
            axes[name] = Axis(*ends)
    return conditions, axes


def by_period(condition: Expr, axes: Mapping[str, Axis], origins: Origins) -> tuple[Expr, Mapping[str, Axis]]:
    """Return the same points, with long axes taken apart whose quotients and remainders are asked for."""
    for name, axis in axes.items():
        if axis.values is None and axis.size > _LONG and name in condition.variables():
            period = reduce(math.lcm, _divisors(condition, name), 1)
            if 1 < period <= min(_LONGEST_PERIOD, axis.size // 2):
                condition, axes = _taken_apart(condition, axes, name, period, origins)
    return condition, axes


def _divisors(e: Expr, name: str) -> Iterator[int]:
    """Yield the constant divisors of divisions and remainders whose dividend depends on an axis."""
    if name not in e.variables():
        return
    if e.op in ("fdiv", "fmod") and e.args[1].op == "const":
        yield e.args[1].value
    for arg in e.args:
        yield from _divisors(arg, name)


def _taken_apart(
    condition: Expr, axes: Mapping[str, Axis], name: str, period: int, origins: Origins
) -> tuple[Expr, Mapping[str, Axis]]:
    axis = axes[name]
    outer, inner = Axis(axis.low // period, axis.high // period), Axis(0, period - 1)
    quotient = x.var(f"{name}/{period}", outer.low, outer.high)
    remainder = x.var(f"{name}%{period}", 0, period - 1)
    whole = x.add(x.scale(quotient, period), remainder)
    elements = [v for v in condition.variables().values() if v.unknown]
    found = None if any(axes_in(v, (name,), origins) for v in elements) else _replaced(condition, name, whole)
    if found is None:
        return condition, axes
    ends = x.negate(x.less(whole, x.const(axis.low))), x.less(whole, x.const(axis.high + 1))
    others = {n: a for n, a in axes.items() if n != name}
    return x.both(found, *ends), {**others, f"{name}/{period}": outer, f"{name}%{period}": inner}


def _replaced(e: Expr, name: str, whole: Expr) -> Expr | None:
    """An expression with an axis replaced, and multiples taken out of quotients and remainders."""
    if name not in e.variables():
        return e
    if e.op == "var":
        return whole
    args = []
    for arg in e.args:
        found = _replaced(arg, name, whole)
        if found is None:
            return None
        args.append(found)
    if e.op in ("fdiv", "fmod") and args[1].op == "const":
        by = args[1].value
        multiple = x.add(*(x.scale(a, f // by) for a, f in args[0].summands if f % by == 0))
        rest = x.subtract(args[0], x.scale(multiple, by))
        if e.op == "fmod":
            return x.remainder(rest, args[1], floor=True)
        quotient = x.divide(rest, args[1], floor=True)
        return None if quotient is None else x.add(multiple, quotient)
    return x.rebuilt(e, args) if e.op not in ("fdiv", "fmod", "tdiv", "wrap") else None


MOST_POINTS = 1 << 22
_PLAIN = 1 << 14  # points that are enumerated rather than told apart by inclusion and exclusion
_MOST_SPLITS = 6  # alternatives told apart in one count
_SAMPLES = (1 << 16, 1 << 12, 1 << 10, 1 << 8, 1 << 5)  # values of an axis that is sampled, what is tried first
_MOST_SAMPLED = 1 << 20  # points of a sample
_LARGE = 1 << 62


@dataclass(frozen=True, slots=True)
class Counted:
    """A number of points; ``error``: relative, as the halves of a sample differ; 0 if all were looked at."""

    number: float
    error: float = 0.0


class TooManyError(Exception):
    """Too many points to enumerate."""


@dataclass(frozen=True, slots=True)
class Known:
    """The origins of unknown values of a launch, and the bytes of arrays (by argument) whose elements they are."""

    origins: Origins = field(default_factory=dict)
    contents: Mapping[int, Array] = field(default_factory=dict)


def count(condition: Expr, axes: Mapping[str, Axis], known: Known) -> Counted:
    """Return how many points of the axes fulfil a condition over them and over elements of known arrays. Raises
    ValueError for values of more than 62 bits, and for elements outside of their array."""
    condition, axes = by_period(condition, axes, known.origins)
    try:
        return Counted(_total(condition, axes, known))
    except TooManyError:
        one, other = (_sampled(condition, axes, known, mirrored) for mirrored in (False, True))
    number = (one + other) / 2
    return Counted(number, max(abs(one - other) / number, 0.001) if number else 1.0)


def _sampled(condition: Expr, axes: Mapping[str, Axis], known: Known, mirrored: bool) -> float:
    """The number as a sample has it: of so many axes as it takes, the longest first."""
    axes = dict(axes)
    for name in sorted(axes, key=lambda name: -axes[name].size):
        whole = axes[name]
        for number in _SAMPLES:
            if number < whole.size:
                axes[name] = whole.sampled(number, mirrored)
                with contextlib.suppress(TooManyError):
                    return _total(condition, axes, known, most=_MOST_SAMPLED)
    raise ValueError("too many ids and loops that depend on each other")


def _total(
    condition: Expr, axes: Mapping[str, Axis], known: Known, splits: int = _MOST_SPLITS, most: int = MOST_POINTS
) -> float:
    if condition.op == "const":
        return size(axes.values()) if condition.value else 0
    parts: Sequence[Expr] = condition.parts
    if splits:
        for part in parts:
            cases = _cases(part, axes, known.origins)
            if cases:
                rest = [p for p in parts if p is not part]
                return sum(s * _total(x.both(*rest, c), axes, known, splits - 1, most) for s, c in cases)
    axes, parts = _shortened(axes, parts)
    named = {part: frozenset(axes_in(part, axes, known.origins)) for part in parts}
    groups = _connected(named)
    result: float = 1
    seen: set[str] = set()
    for together, names in groups:
        own = {name: axes[name] for name in axes if name in names}
        result *= _Sum(own, known, most).of(together)
        seen |= names
        if not result:
            return 0
    return result * size(axes[name] for name in axes if name not in seen)


def _shortened(axes: Mapping[str, Axis], parts: Sequence[Expr]) -> tuple[Mapping[str, Axis], Sequence[Expr]]:
    """Axes without the values that conditions on one of them alone exclude, and the other conditions."""
    axes, left = dict(axes), []
    for part in parts:
        names = [name for name in part.variables() if name in axes]
        bound = _bound(part, names[0], {}) if len(names) == 1 and len(part.variables()) == 1 else None
        if bound is None or bound.equal or axes[names[0]].values is not None:
            left.append(part)
            continue
        axis, rest = axes[names[0]], bound.rest.value
        if bound.factor > 0:
            axes[names[0]] = Axis(max(axis.low, -((rest - 1) // bound.factor)), axis.high)
        else:
            axes[names[0]] = Axis(axis.low, min(axis.high, (rest - 1) // -bound.factor))
    return axes, left


def size(axes: Iterable[Axis]) -> float:
    """Return how many points axes have."""
    result: float = 1
    for axis in axes:
        result *= axis.size if axis.values is None else axis.size * axis.weight
    return result


def _cases(part: Expr, axes: Mapping[str, Axis], origins: Origins) -> list[tuple[int, Expr]]:
    """A condition as a sum of simpler ones, if enumerating it is dear and it can be taken apart."""
    names = axes_in(part, axes, origins)
    if math.prod(axes[name].size for name in names) <= _PLAIN:
        return []
    if part.op == "or" or (part.op == "not" and part.args[0].op == "eq"):
        return [(1, x.ONE), (-1, x.negate(part))]
    if part.op == "select":
        chosen, yes, no = part.args
        return [(1, x.both(chosen, x.truth(yes))), (1, x.both(x.negate(chosen), x.truth(no)))]
    return []


def _connected(named: Mapping[Expr, frozenset[str]]) -> list[tuple[list[Expr], frozenset[str]]]:
    """Conditions that share axes, together."""
    groups: list[tuple[list[Expr], frozenset[str]]] = []
    for part, names in named.items():
        touching = [g for g in groups if g[1] & names]
        groups = [g for g in groups if not g[1] & names]
        groups.append(([p for g in touching for p in g[0]] + [part], names.union(*(g[1] for g in touching))))
    return groups


@dataclass(frozen=True, slots=True)
class _Bound:
    """``factor * axis + rest`` is positive (or, ``equal``, zero)."""

    factor: int
    rest: Expr
    equal: bool


def _bound(part: Expr, axis: str, origins: Origins) -> _Bound | None:
    """A condition as a bound on an axis; None if it is none."""
    if part.op not in ("lt", "eq"):
        return None
    gap = x.subtract(part.args[1], part.args[0])
    terms = dict(gap.summands)
    own = [atom for atom in terms if axes_in(atom, (axis,), origins)]
    if len(own) != 1 or own[0].key != axis:
        return None
    return _Bound(terms[own[0]], x.subtract(gap, x.scale(own[0], terms[own[0]])), part.op == "eq")


class _Sum:
    """Points of axes that conditions hold together, summed axis by axis. All arrays have a dimension for each axis;
    that of an axis which does not matter, or is done, has length 1."""

    def __init__(self, axes: Mapping[str, Axis], known: Known, most: int) -> None:
        self.axes = axes
        self.origins = known.origins
        self.doubts: list[Array] = []
        self.most = most
        self.place = {name: i for i, name in enumerate(axes)}
        whole = math.prod(axis.size * axis.weight for axis in axes.values())
        self.kind = np.dtype(np.int64 if whole < _LARGE and all(a.values is None for a in axes.values()) else float)
        arrays = {name: self.along(name, a.numbers()) for name, a in axes.items() if a.size <= MOST_POINTS}
        self.points = Points(known.origins, known.contents, arrays, ())
        self.bounds: dict[tuple[Expr, str], _Bound | None] = {}

    def along(self, name: str, values: Array) -> Array:
        shape = [1] * len(self.axes)
        shape[self.place[name]] = -1
        return values.reshape(shape)

    def of(self, parts: list[Expr]) -> float:
        if any(axis.size == 0 for axis in self.axes.values()):
            return 0
        every = parts
        weights = [self.along(n, np.full(a.size, a.weight)) for n, a in self.axes.items() if a.values is not None]
        left = dict.fromkeys(self.axes)
        while left:
            price, axis = min((self.price(name, parts, weights), name) for name in left)
            if price > self.most:
                raise TooManyError
            weights = self.without(axis, parts, weights)
            parts = [p for p in parts if axis not in self.names(p)]
            del left[axis]
        result = reduce(np.multiply, weights, np.ones((1,) * len(self.axes), self.kind))
        for part in parts:  # without variables that are axes
            result = result * self.value(part)
        self.settle(every)
        total = result.sum()
        return int(total) if self.kind.kind == "i" else float(total)

    def plan(
        self, axis: str, parts: list[Expr], weights: list[Array]
    ) -> tuple[list[_Bound], list[Expr], list[Array], bool]:
        """(bounds on the axis, other conditions, weights, whether all but the bounds depend on it alone)."""
        at = self.place[axis]
        bounds, others = [], []
        alone = True
        for part in parts:
            names = self.names(part)
            if axis not in names:
                continue
            found = self.bound(part, axis)
            if found is not None:
                bounds.append(found)
            else:
                others.append(part)
                alone = alone and len(names) == 1
        own = [w for w in weights if w.shape[at] > 1]
        alone = alone and all(w.size == w.shape[at] for w in own)
        return bounds, others, own, alone

    def bound(self, part: Expr, axis: str) -> _Bound | None:
        if (part, axis) not in self.bounds:
            self.bounds[part, axis] = _bound(part, axis, self.origins)
        return self.bounds[part, axis]

    def price(self, axis: str, parts: list[Expr], weights: list[Array]) -> int:
        """Return how many numbers it takes to sum over an axis."""
        bounds, others, own, alone = self.plan(axis, parts, weights)
        names = {name for b in bounds for name in self.names(b.rest)}
        if alone:
            size = math.prod(self.axes[name].size for name in names)
            return size + (self.axes[axis].size if others or own else 0)
        names |= {axis} | {name for part in others for name in self.names(part)}
        names |= {name for w in own for name, at in self.place.items() if w.shape[at] > 1}
        return math.prod(self.axes[name].size for name in names)

    def without(self, axis: str, parts: list[Expr], weights: list[Array]) -> list[Array]:
        """The weights once an axis is summed over."""
        bounds, others, own, alone = self.plan(axis, parts, weights)
        kept = [w for w in weights if not any(w is o for o in own)]
        factors = [*own, *(self.value(part) for part in others)]
        if not alone:
            bounding = [p for p in parts if axis in self.names(p) and self.bound(p, axis) is not None]
            factors += [self.value(p) for p in bounding]
            return [*kept, self.product(axis, factors).sum(axis=self.place[axis], keepdims=True)]
        first, end = self.span(axis, bounds)
        if not factors:
            return [*kept, (end - first).astype(self.kind, copy=False)]
        product = self.product(axis, factors).reshape(-1)
        sums = np.concatenate((np.zeros(1, self.kind), np.cumsum(product, dtype=self.kind)))
        return [*kept, sums[end] - sums[first]]

    def product(self, axis: str, factors: Sequence[Array]) -> Array:
        """Return the product of weights and conditions, for every value of an axis even if they turned out not to
        depend on it."""
        found = reduce(np.multiply, factors).astype(self.kind, copy=False)
        shape = list(found.shape)
        shape[self.place[axis]] = self.axes[axis].size
        return np.broadcast_to(found, shape)

    def span(self, axis: str, bounds: Sequence[_Bound]) -> tuple[Array, Array]:
        """The positions [first, end) of an axis that bounds leave, end not before first."""
        ones = (1,) * len(self.axes)
        first, end = np.zeros(ones, np.int64), np.full(ones, self.axes[axis].size, np.int64)
        for bound in bounds:
            rest = self.value(bound.rest)
            down = abs(bound.factor)
            if bound.equal:  # axis = -rest / factor
                where = -(rest // bound.factor) if bound.factor > 0 else rest // down
                whole = rest % down == 0
                first = np.maximum(first, self.axes[axis].position(where))
                end = np.minimum(end, self.axes[axis].position(where + whole))
            elif bound.factor > 0:  # factor * axis >= 1 - rest
                first = np.maximum(first, self.axes[axis].position(-((rest - 1) // down)))
            else:  # down * axis <= rest - 1
                end = np.minimum(end, self.axes[axis].position((rest - 1) // down + 1))
        return first, np.maximum(first, end)

    def value(self, e: Expr) -> Array:
        found = self.points.of(e)
        if found.bad is None or not found.bad.any():
            return self.shaped(found.values)
        bad = self.shaped(found.bad)
        self.doubts.append(bad)
        return np.where(bad, 0, self.shaped(found.values))

    def shaped(self, values: Array) -> Array:
        """Return values with a dimension for each axis; constants have none."""
        values = np.asarray(values)
        return values if values.ndim == len(self.axes) else values.reshape((1,) * len(self.axes))

    def settle(self, parts: Sequence[Expr]) -> None:
        """Values that could not be found must be where other conditions do not hold."""
        for bad in self.doubts:
            there = {name for name, at in self.place.items() if bad.shape[at] == self.axes[name].size}
            for part in parts:
                if not part.unknown and there.issuperset(self.names(part)):
                    found = self.points.of(part)
                    bad = bad & (np.asarray(found.values) != 0) if found.whole else bad
            if bad.any():
                raise ValueError("numbers of more than 62 bits, or elements outside of their array")

    def names(self, e: Expr) -> list[str]:
        return axes_in(e, self.axes, self.origins)
