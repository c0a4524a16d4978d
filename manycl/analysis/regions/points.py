"""Expressions evaluated at many points at once; unknown values are looked up in the contents of index arrays. Numbers
are 64-bit integers. With every array of numbers goes where they could not be found: an element outside of its array, a
number of more than 62 bits, a division by zero. Nothing is ever taken from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from manycl.analysis.summary import Computed, Origin
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr

LIMIT = 1 << 62

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Values at points; ``bad`` says where there is none (None: they are everywhere)."""

    values: Array
    bad: Array | None = None

    @property
    def whole(self) -> bool:
        return self.bad is None or not self.bad.any()


class Points:
    """Points by the values of their variables, arrays that broadcast to ``shape``. ``contents``: the bytes of index
    arrays by argument."""

    def __init__(
        self,
        origins: Mapping[str, Origin],
        contents: Mapping[int, Array],
        variables: Mapping[str, Array],
        shape: tuple[int, ...],
    ) -> None:
        self.origins = origins
        self.contents = contents
        self.variables = dict(variables)
        self.shape = shape
        self._found: dict[str, Evaluated] = {}

    @property
    def count(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def of(self, e: Expr) -> Evaluated:
        """The values of an expression over the variables and over elements of the contents."""
        found = self._found.get(e.key)
        if found is None:
            with np.errstate(all="ignore"):
                found = self._found[e.key] = self._evaluate(e)
        return found

    def spread(self, values: Array) -> Array:
        """One value per point, in one dimension."""
        return np.broadcast_to(values, self.shape).reshape(-1)

    def where(self, mask: Array) -> Points:
        """The points for which a condition holds."""
        if mask.all():
            return self
        chosen = np.flatnonzero(self.spread(mask))
        variables = {name: self.spread(v)[chosen] for name, v in self.variables.items()}
        return Points(self.origins, self.contents, variables, chosen.shape)

    def repeated(self, name: str, first: Array, count: Array) -> Points:
        """Every point ``count`` times, with a variable that counts from ``first`` on."""
        first, count = self.spread(first), self.spread(count)
        ends = np.cumsum(count)
        total = int(ends[-1]) if len(ends) else 0
        variables = {n: np.repeat(self.spread(v), count) for n, v in self.variables.items()}
        variables[name] = np.arange(total, dtype=np.int64) + np.repeat(first - (ends - count), count)
        return Points(self.origins, self.contents, variables, (total,))

    def at(self, name: str, values: Array) -> Points:
        """Return the same points with one more variable."""
        assert name not in self.variables
        found = Points(self.origins, self.contents, {**self.variables, name: values}, self.shape)
        found._found = dict(self._found)  # nothing evaluated so far has the variable in it
        return found

    # -- evaluation

    def _evaluate(self, e: Expr) -> Evaluated:
        if e.op == "const":
            return _constant(e.value)
        if e.op == "var":
            given = self.variables.get(e.key)
            return Evaluated(given) if given is not None else self._unknown(e)
        args = [self.of(a) for a in e.args]
        if e.op == "select":
            return _select(*args)
        if e.op in ("and", "or"):
            return _joined(e.op, args)
        bad = _any([a.bad for a in args])
        values = [a.values for a in args]
        if e.op in ("sum", "mul"):
            return _total(e, values, bad)
        if e.op in ("fdiv", "fmod", "tdiv"):
            return _divided(e.op, values[0], values[1], bad)
        if e.op == "wrap":
            return _wrapped(e, values[0], bad)
        return Evaluated(_PLAIN[e.op](*values), bad)

    def _unknown(self, e: Expr) -> Evaluated:
        origin = self.origins[e.key]
        found = self.of(origin.value) if isinstance(origin, Computed) else self._element(origin)
        low, high = (e.low, e.high)
        if not isinstance(origin, Computed) and (low, high) == x.type_range(8 * origin.size, origin.signed):
            return found
        outside = (found.values < max(low, -LIMIT)) | (found.values > min(high, LIMIT))
        return Evaluated(found.values, _any([found.bad, outside if outside.any() else None]))

    def _element(self, origin: Origin) -> Evaluated:
        """Elements of an index array."""
        data, size = self.contents[origin.argument], origin.size
        assert origin.offset is not None
        kind = np.dtype(f"<{'i' if origin.signed else 'u'}{size}")
        if x.divisor(origin.offset) % size == 0:
            place = x.divide(origin.offset, x.const(size), floor=True)
            table = data[: len(data) // size * size].view(kind)
        else:
            place = origin.offset
            windows = np.lib.stride_tricks.sliding_window_view(data, min(size, len(data)))
            table = windows if len(data) >= size else windows[:0]
        assert place is not None
        index = self.of(place)
        where, bad = np.asarray(index.values), index.bad
        if bad is not None or place.low < 0 or place.high >= len(table):
            outside = (where < 0) | (where >= len(table))
            if outside.any():
                bad = _any([bad, outside])
                where = np.where(outside, 0, where)
        if not len(table):
            return Evaluated(np.zeros(where.shape, np.int64), np.ones(where.shape, bool))
        taken = table[where]
        if taken.ndim > where.ndim:
            taken = np.ascontiguousarray(taken).view(kind)[..., 0]
        if size == 8:
            large = (taken >= LIMIT) | (taken <= -LIMIT) if origin.signed else taken >= np.uint64(LIMIT)
            bad = _any([bad, large if large.any() else None])
        return Evaluated(taken.astype(np.int64), bad)


def _constant(value: int) -> Evaluated:
    if abs(value) >= LIMIT:
        return Evaluated(np.zeros((), np.int64), np.ones((), bool))
    return Evaluated(np.array(value, np.int64))


def _any(parts: Sequence[Array | None]) -> Array | None:
    given = [part for part in parts if part is not None]
    return reduce(np.logical_or, given) if given else None


def _total(e: Expr, values: Sequence[Array], bad: Array | None) -> Evaluated:
    """A sum or a product, with a check in floating point where it may be too long."""
    largest = [max(abs(a.low), abs(a.high)) for a in e.args]
    whole = [v.astype(np.int64, copy=False) for v in values]
    if e.op == "sum":
        if max(map(abs, (e.value, *e.terms))) >= LIMIT:
            return Evaluated(np.zeros((), np.int64), np.ones((), bool))
        result = _added(whole, e.terms, e.value)
        if bad is None and abs(e.value) + sum(m * abs(f) for m, f in zip(largest, e.terms, strict=True)) < LIMIT:
            return Evaluated(result, bad)
        parts = [v.astype(np.float64) * float(f) for v, f in zip(whole, e.terms, strict=True)]
        rough = reduce(np.add, parts) + float(e.value)
    else:
        result = reduce(np.multiply, whole)
        if bad is None and reduce(int.__mul__, largest) < LIMIT:
            return Evaluated(result, bad)
        rough = reduce(np.multiply, [v.astype(np.float64) for v in whole])
    large = np.abs(rough) >= float(LIMIT)
    return Evaluated(result, _any([bad, large if large.any() else None]))


def _added(values: Sequence[Array], factors: Sequence[int], constant: int) -> Array:
    """A linear combination, in as few new arrays as can be: making them takes longer than the arithmetic."""
    terms = sorted(zip(values, factors, strict=True), key=lambda term: term[1] != 1)
    first, factor = terms[0]
    total, own = (first, False) if factor == 1 else (first * np.int64(factor), True)
    for value, factor in (*terms[1:], *([(np.array(constant), 1)] if constant else [])):
        change = np.subtract if factor == -1 else np.add
        value = value if abs(factor) == 1 else value * np.int64(factor)
        fits = own and total.ndim and np.broadcast_shapes(total.shape, value.shape) == total.shape
        total, own = change(total, value, out=total if fits else None), True
    return total


def _divided(op: str, left: Array, right: Array, bad: Array | None) -> Evaluated:
    zero = right == 0
    if zero.any():
        bad = _any([bad, zero])
        right = np.where(zero, 1, right)
    if op == "fmod":
        return Evaluated(np.mod(left, right), bad)
    if op == "fdiv":
        return Evaluated(np.floor_divide(left, right), bad)
    quotient = np.floor_divide(np.abs(left), np.abs(right))
    return Evaluated(np.where((left < 0) == (right < 0), quotient, -quotient), bad)


def _wrapped(e: Expr, values: Array, bad: Array | None) -> Evaluated:
    low, high = x.type_range(abs(e.value), e.value < 0)
    values = values.astype(np.int64, copy=False)
    if high < LIMIT:
        outside = (values < low) | (values > high)
        if outside.any():
            values = np.where(outside, np.mod(values - low, high - low + 1) + low, values)
        return Evaluated(values, bad)
    outside = values < max(low, -LIMIT)  # an unsigned 64-bit number that is not small
    return Evaluated(values, _any([bad, outside if outside.any() else None]))


def _select(condition: Evaluated, yes: Evaluated, no: Evaluated) -> Evaluated:
    chosen = condition.values.astype(bool)
    bad = condition.bad
    if yes.bad is not None or no.bad is not None:
        nowhere = np.zeros((), bool)
        bad = _any(
            [bad, np.where(chosen, nowhere if yes.bad is None else yes.bad, nowhere if no.bad is None else no.bad)]
        )
    return Evaluated(np.where(chosen, yes.values, no.values), bad)


def _joined(op: str, args: Sequence[Evaluated]) -> Evaluated:
    """``and`` and ``or``: decided where one part decides alone."""
    values = [a.values.astype(bool) for a in args]
    bad = _any([a.bad for a in args])
    if bad is None:
        return Evaluated(reduce(np.logical_and if op == "and" else np.logical_or, values))
    ends = op == "or"  # the value of a part that decides alone
    sure = [(v == ends) if a.bad is None else (v == ends) & ~a.bad for v, a in zip(values, args, strict=True)]
    decided = reduce(np.logical_or, sure)
    return Evaluated(decided if ends else ~decided, bad & ~decided)


_PLAIN: Mapping[str, Any] = {
    "min": np.minimum,
    "max": np.maximum,
    "lt": np.less,
    "eq": np.equal,
    "not": lambda v: ~v.astype(bool),
}
