"""Intervals of random expressions, against the values that they have at every point."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis.regions.enclosure import _Guarded, _Intervals
from manycl.analysis.summary import Operated
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr

BITS = 5
WIDE = x.type_range(32, True)
VARIABLES = {"a": x.var("a", *WIDE), "b": x.var("b", *WIDE), "c": x.var("c", 1, WIDE[1])}
CONDITIONS = ("lt", "eq", "and", "or", "not")
MADE = ("+", "*", "/", "floor", "%", "min", "max", "select", "wrap", *CONDITIONS)
OPERATORS = ("&", "|", "^", "<<", ">>", "/", "%")


def joined(kind: str, left: Expr, right: Expr, condition: Expr, by: Expr, signed: bool) -> Expr | None:
    return {
        "*": lambda: x.mul(left, right),
        "/": lambda: x.divide(left, by),
        "floor": lambda: x.divide(left, x.const(4), floor=True),
        "%": lambda: x.subtract(right, x.scale(x.remainder(left, x.const(4), floor=True) or x.ZERO, 2)),
        "min": lambda: x.minimum(left, right),
        "max": lambda: x.maximum(left, right),
        "select": lambda: x.select(condition, left, right),
        "wrap": lambda: x.wrap(left, BITS, signed),
        "+": lambda: x.subtract(x.scale(left, 2), right),
    }[kind]()


@st.composite
def expressions(draw: st.DrawFn, prefix: str) -> tuple[Expr, dict[str, Operated]]:
    origins: dict[str, Operated] = {}
    numbers: list[Expr] = [*VARIABLES.values(), *(x.const(draw(st.integers(-9, 9))) for _ in range(2))]
    truths: list[Expr] = [x.less(VARIABLES["a"], VARIABLES["b"])]
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from((*MADE, *OPERATORS)))
        left, right = draw(st.sampled_from(numbers)), draw(st.sampled_from(numbers))
        one, other = draw(st.sampled_from(truths)), draw(st.sampled_from(truths))
        unsigned = draw(st.booleans())
        if kind in OPERATORS and (kind not in MADE or draw(st.booleans())):
            name = f"?{prefix}{len(origins)}"
            origins[name] = Operated("", operator=kind, left=left, right=right, bits=BITS, signed=not unsigned)
            numbers.append(x.var(name, *x.type_range(BITS, not unsigned), unknown=True))
        elif kind in CONDITIONS:
            truths.append(
                {"lt": x.less(left, right), "eq": x.equal(left, right), "and": x.both(one, other)}.get(kind)
                or (x.either(one, other) if kind == "or" else x.negate(one))
            )
        else:
            by = draw(st.sampled_from([VARIABLES["c"], x.const(2), x.const(4)]))
            made = joined(kind, left, right, one, by, not unsigned)
            numbers.append(made or left)
    return draw(st.sampled_from([numbers[-1], numbers[-1], truths[-1]])), origins


class UndefinedError(Exception):
    pass


def value(e: Expr, at: Mapping[str, int], origins: Mapping[str, Operated]) -> int:
    """The value at a point, by Python's own arithmetic."""
    if e.op == "const":
        return e.value
    if e.op == "var":
        return at[e.key] if e.key in at else operated(origins[e.key], at, origins)
    args = [value(a, at, origins) for a in e.args]
    if e.op == "sum":
        return e.value + sum(f * a for f, a in zip(e.terms, args, strict=True))
    if e.op == "wrap":
        least = -(1 << -e.value - 1) if e.value < 0 else 0
        return (args[0] - least) % (1 << abs(e.value)) + least
    if e.op == "mul":
        product = 1
        for a in args:
            product *= a
        return product
    first, second = args[0], args[-1]
    if e.op == "select":
        return args[1] if first else args[2]
    found = {
        "fdiv": lambda: first // second,
        "tdiv": lambda: abs(first) // abs(second) * (1 if (first < 0) == (second < 0) else -1),
        "fmod": lambda: first % second,
        "min": lambda: min(args),
        "max": lambda: max(args),
        "lt": lambda: first < second,
        "eq": lambda: first == second,
        "and": lambda: all(args),
        "or": lambda: any(args),
        "not": lambda: not first,
    }[e.op]()
    return int(found)


def operated(origin: Operated, at: Mapping[str, int], origins: Mapping[str, Operated]) -> int:
    left, right = value(origin.left, at, origins), value(origin.right, at, origins)
    low, high = x.type_range(BITS, origin.signed)
    if not (low <= left <= high and low <= right <= high):
        raise UndefinedError  # operands have the type
    if origin.operator in ("/", "%"):
        if right == 0:
            raise UndefinedError
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        found = quotient if origin.operator == "/" else left - quotient * right
    elif origin.operator in ("<<", ">>"):
        found = left << right % BITS if origin.operator == "<<" else left >> right % BITS
    else:
        found = {"&": left & right, "|": left | right, "^": left ^ right}[origin.operator]
    if low <= found <= high:
        return found
    if origin.signed:
        raise UndefinedError
    return found % (1 << BITS)


@settings(max_examples=150, deadline=None)
@given(expressions("e"), expressions("g"), st.data())
def test_every_value_lies_between(
    made: tuple[Expr, dict[str, Operated]], guarding: tuple[Expr, dict[str, Operated]], data: st.DataObject
) -> None:
    (e, origins), (guard, more) = made, guarding
    origins = origins | more
    spans = {}
    for name in VARIABLES:
        low = data.draw(st.integers(1, 9) if name == "c" else st.integers(-20, 20))
        spans[name] = low, low + data.draw(st.integers(0, 4)), False
    gap = x.subtract(guard, x.const(data.draw(st.integers(-9, 9))))
    plain, there = _Intervals(origins, spans, False), _Intervals(origins, spans, False)
    entered = there.enters(_Guarded((), (), (gap,), ()))
    low, high, _ = plain.of(e)
    values, guarded = [], []
    for point in itertools.product(*(range(a, b + 1) for a, b, _ in spans.values())):
        at = dict(zip(spans, point, strict=True))
        try:
            values.append(value(e, at, origins))
            if value(gap, at, origins) >= 0:
                guarded.append(values[-1])
        except UndefinedError:
            continue
    assert all(low <= v <= high for v in values), (low, high, values)
    assert entered or not guarded
    if guarded:
        low, high, _ = there.of(e)
        assert all(low <= v <= high for v in guarded), (low, high, guarded)
        shifted = x.subtract(e, x.const(min(guarded)))
        assert not there.within(shifted, max(guarded) - min(guarded) - 1, (gap,))
        assert not there.within(x.subtract(shifted, x.ONE), 1 << 40, (gap,))
