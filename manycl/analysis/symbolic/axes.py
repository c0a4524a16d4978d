"""Axes: the ids of a launch and the counters of loops, put together and taken apart so that counting is easy. A global
id is one axis where the conditions need no other ids of its dimension. A long axis of which remainders and quotients
are taken becomes two, quotient and remainder by a common period: a flat id into row and column."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

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
        """How many values are below a bound."""
        if self.values is not None:
            return np.searchsorted(self.values, bound, "left")
        inside = np.clip(bound, self.low, self.high + 1)
        return inside - self.low if self.low else inside

    def sampled(self, number: int, mirrored: bool) -> Axis:
        """So many of its values, one at random in each of as many parts: nothing that repeats along it is missed. In
        the ``mirrored`` sample they lie as far from the ends of their parts as else from the beginnings: what is linear
        in a part comes out right in the mean of both."""
        places = np.random.default_rng(number).random(number)
        numbers = (np.arange(number) + (1.0 - places if mirrored else places)) * (self.size / number)
        numbers = np.minimum(numbers, self.size - 1)
        return Axis(self.low, self.high, self.low + numbers.astype(np.int64), self.size / number)


def merged(
    conditions: Sequence[Expr], axes: Mapping[str, Axis], launch: KnownLaunch, origins: Origins
) -> tuple[list[Expr], dict[str, Axis]]:
    """With one axis for global ids in place of two, in every dimension where the conditions need no other ids."""
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
    """The same points, with long axes taken apart whose quotients and remainders are asked for."""
    for name, axis in axes.items():
        if axis.values is None and axis.size > _LONG and name in condition.variables():
            period = reduce(math.lcm, _divisors(condition, name), 1)
            if 1 < period <= min(_LONGEST_PERIOD, axis.size // 2):
                condition, axes = _taken_apart(condition, axes, name, period, origins)
    return condition, axes


def _divisors(e: Expr, name: str) -> Iterator[int]:
    """What is divided by where an axis is in the dividend."""
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
