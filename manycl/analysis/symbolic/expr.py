"""Immutable integer expressions and conditions, with the interval each lies in. Values are mathematical integers; what
a C type does to them is said by ``wrap``. Conditions are expressions that are 0 or 1. A variable is an id of the
NDRange, a scalar argument, a loop counter, or *unknown*: a value that the analysis cannot follow, of which only the
interval holds. Two expressions are equal if they print alike."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd, prod
from operator import is_

INFINITE = 1 << 130


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """``op`` is const, var, sum (``terms`` times ``args``, plus ``value``), mul, fdiv, fmod (floor), tdiv, tmod
    (as in C), min, max, select, wrap (``value`` bits, negative: signed), lt, le, eq, and, or, not."""

    op: str
    args: tuple[Expr, ...]
    value: int
    terms: tuple[int, ...]
    key: str
    low: int
    high: int
    unknown: bool = False
    opposite: Expr | None = None  # of a condition, once it was asked for
    names: dict[str, Expr] | None = None  # the variables, once they were asked for

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return self.key

    def __str__(self) -> str:
        return self.key

    @property
    def parts(self) -> tuple[Expr, ...]:
        """Conditions that all hold where this one does."""
        return self.args if self.op == "and" else (self,)

    @property
    def summands(self) -> list[tuple[Expr, int]]:
        """The summands of the expression beside a constant, each with its factor."""
        if self.op == "sum":
            return list(zip(self.args, self.terms, strict=True))
        return [] if self.op == "const" else [(self, 1)]

    def variables(self) -> Mapping[str, Expr]:
        """Return all variables in it by name, in order of first occurrence."""
        if self.names is not None:
            return self.names
        found: dict[str, Expr] = {}
        seen: set[int] = set()
        stack = [self]
        while stack:
            expr = stack.pop()
            if id(expr) in seen:
                continue
            seen.add(id(expr))
            if expr.op == "var":
                found.setdefault(expr.key, expr)
            stack.extend(reversed(expr.args))
        object.__setattr__(self, "names", found)
        return found


LONG = 4000  # characters of a value that is followed: hash functions double it with every step
LONGEST = 1 << 20  # of any expression
WIDEST = 14_000  # bits of a number in one: Python writes no more than 4,300 digits


class TooLargeError(Exception):
    """An expression takes too long to write."""


class UndefinedError(Exception):
    """An expression divides by what may be zero."""


class _Made(threading.local):
    characters = 0


_made = _Made()


def characters() -> int:
    """Characters of all expressions that the calling thread has made: the measure of the work that takes."""
    return _made.characters


def _limit(value: int) -> int:
    return max(-INFINITE, min(INFINITE, value))


def _make(
    op: str, args: tuple[Expr, ...], key: str, low: int, high: int, value: int = 0, terms: tuple[int, ...] = ()
) -> Expr:
    if low == high:
        return const(low)
    _made.characters += len(key)
    if len(key) > LONGEST:
        raise TooLargeError
    return Expr(op, args, value, terms, key, _limit(low), _limit(high), any(a.unknown for a in args))


def const(value: int) -> Expr:
    """Raises :class:`TooLargeError`, as everything here does that makes an expression."""
    if value.bit_length() > WIDEST:
        raise TooLargeError
    return Expr("const", (), value, (), str(value), value, value)


ZERO, ONE = const(0), const(1)


def var(name: str, low: int = -INFINITE, high: int = INFINITE, *, unknown: bool = False) -> Expr:
    if low == high and not unknown:
        return const(low)
    return Expr("var", (), 0, (), name, low, high, unknown)


def _linear(expr: Expr) -> tuple[dict[Expr, int], int]:
    if expr.op == "const":
        return {}, expr.value
    if expr.op == "sum":
        return dict(zip(expr.args, expr.terms, strict=True)), expr.value
    return {expr: 1}, 0


def _sum(terms: Mapping[Expr, int], constant: int) -> Expr:
    kept = [(a, f) for a, f in terms.items() if f]
    if not kept:
        return const(constant)
    if len(kept) == 1:
        if kept[0][1] == 1 and not constant:
            return kept[0][0]
    else:
        kept.sort(key=_by_name)
    low = high = constant
    words = []
    unknown = False
    for atom, factor in kept:
        if factor.bit_length() > WIDEST:
            raise TooLargeError
        if factor > 0:
            low, high = low + atom.low * factor, high + atom.high * factor
        else:
            low, high = low + atom.high * factor, high + atom.low * factor
        unknown = unknown or atom.unknown
        words.append(atom.key if factor == 1 else f"{factor}*{atom.key}")
    if low == high:
        return const(low)
    if constant.bit_length() > WIDEST:
        raise TooLargeError
    if constant:
        words.append(str(constant))
    if sum(map(len, words)) > LONGEST:
        raise TooLargeError
    key = f"({' + '.join(words)})".replace("+ -", "- ")
    _made.characters += len(key)
    atoms, factors = zip(*kept, strict=True)
    return Expr("sum", atoms, constant, factors, key, _limit(low), _limit(high), unknown)


def _by_name(term: tuple[Expr, int]) -> str:
    return term[0].key


def add(*parts: Expr) -> Expr:
    total: dict[Expr, int] = {}
    constant = 0
    others = 0
    last = ZERO
    for part in parts:
        if part.op == "const":
            constant += part.value
            continue
        others += 1
        last = part
        if part.op == "sum":
            constant += part.value
            for atom, factor in zip(part.args, part.terms, strict=True):
                total[atom] = total.get(atom, 0) + factor
        else:
            total[part] = total.get(part, 0) + 1
    if others == 0:
        return const(constant)
    if others == 1 and constant == (last.value if last.op == "sum" else 0):
        return last
    return _sum(total, constant)


def scale(expr: Expr, factor: int) -> Expr:
    if factor == 1:
        return expr
    if expr.op == "const":
        return const(expr.value * factor)
    if factor == 0:
        return ZERO
    if expr.op != "sum":
        return _sum({expr: factor}, 0)
    return _sum({a: f * factor for a, f in zip(expr.args, expr.terms, strict=True)}, expr.value * factor)


def subtract(left: Expr, right: Expr) -> Expr:
    if right.op == "const":
        return add(left, const(-right.value)) if right.value else left
    if left is right:
        return ZERO
    return add(left, scale(right, -1))


def mul(left: Expr, right: Expr) -> Expr:
    if left.op == "const":
        return scale(right, left.value)
    if right.op == "const":
        return scale(left, right.value)
    if left.op == "sum" and len(left.args) <= 6:
        terms, constant = _linear(left)
        return add(scale(right, constant), *(scale(mul(a, right), f) for a, f in terms.items()))
    if right.op == "sum" and len(right.args) <= 6:
        return mul(right, left)
    factors = sorted(
        [f for side in (left, right) for f in (side.args if side.op == "mul" else (side,))], key=lambda f: f.key
    )
    ends = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
    return _make("mul", tuple(factors), "*".join(f.key for f in factors), min(ends), max(ends))


def divide(left: Expr, right: Expr, *, floor: bool = False) -> Expr | None:
    """Quotient as in C, or rounded down; None where it is undefined."""
    if right.op != "const":
        if right.low <= 0 and (floor or right.high >= 0):
            return None
        if left.low >= 0 and right.low > 0:
            return _make("fdiv", (left, right), f"({left} / {right})", 0, left.high)
        bound = max(abs(left.low), abs(left.high))
        return _make("tdiv", (left, right), f"({left} / {right})", -bound, bound)
    by = right.value
    if by == 0 or (by < 0 and floor):
        return None
    terms, constant = _linear(left)
    if all(f % by == 0 for f in terms.values()) and constant % by == 0:
        return _sum({a: f // by for a, f in terms.items()}, constant // by)
    if by > 0 and (floor or left.low >= 0):
        return _make("fdiv", (left, right), f"({left} / {right})", left.low // by, left.high // by)
    bound = max(abs(left.low), abs(left.high)) // abs(by)
    if left.op == "const":
        return const((abs(left.value) // abs(by)) * (1 if (left.value < 0) == (by < 0) else -1))
    return _make("tdiv", (left, right), f"({left} / {right})", -bound, bound)


def remainder(left: Expr, right: Expr, *, floor: bool = False) -> Expr | None:
    """Remainder as in C, or the non-negative one of a positive divisor."""
    if right.op == "const" and right.value > 0 and (floor or left.low >= 0):
        by = right.value
        if left.low >= 0 and left.high < by:
            return left
        if left.op == "const":
            return const(left.value % by)
        return _make("fmod", (left, right), f"({left} % {right})", 0, by - 1)
    if floor:
        return None
    quotient = divide(left, right)
    return None if quotient is None else subtract(left, mul(quotient, right))


def minimum(left: Expr, right: Expr) -> Expr:
    if left.high <= right.low or left == right:
        return left
    if right.high <= left.low:
        return right
    return _make("min", (left, right), f"min({left}, {right})", min(left.low, right.low), min(left.high, right.high))


def maximum(left: Expr, right: Expr) -> Expr:
    if left.low >= right.high or left == right:
        return left
    if right.low >= left.high:
        return right
    return _make("max", (left, right), f"max({left}, {right})", max(left.low, right.low), max(left.high, right.high))


def select(condition: Expr, yes: Expr, no: Expr) -> Expr:
    if condition.op == "const":
        return yes if condition.value else no
    if yes == no:
        return yes
    low, high = min(yes.low, no.low), max(yes.high, no.high)
    return _make("select", (condition, yes, no), f"({condition} ? {yes} : {no})", low, high)


def wrap(expr: Expr, bits: int, signed: bool) -> Expr:
    """The value after conversion to an integer type (two's complement)."""
    low, high = type_range(bits, signed)
    if low <= expr.low and expr.high <= high:
        return expr
    if expr.op == "const":
        return const((expr.value - low) % (1 << bits) + low)
    name = f"{'' if signed else 'u'}int{bits}"
    return _make("wrap", (expr,), f"{name}({expr})", low, high, -bits if signed else bits)


def type_range(bits: int, signed: bool) -> tuple[int, int]:
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


def less(left: Expr, right: Expr) -> Expr:
    """``left < right``, as linear as it can be: quotients, minima and maxima at the ends are resolved."""
    if left.high < right.low:
        return ONE
    if left.low >= right.high:
        return ZERO
    if right.op == "fdiv" and right.args[1].op == "const":  # l < floor(a / b): b * (l + 1) <= a
        by = right.args[1].value
        return less(add(scale(left, by), const(by - 1)), right.args[0])
    if left.op == "fdiv" and left.args[1].op == "const":  # floor(a / b) < r: a < b * r
        return less(left.args[0], scale(right, left.args[1].value))
    if right.op in ("min", "max"):
        one, other = (less(left, a) for a in right.args)
        return both(one, other) if right.op == "min" else either(one, other)
    if left.op in ("min", "max"):
        one, other = (less(a, right) for a in left.args)
        return both(one, other) if left.op == "max" else either(one, other)
    gap = subtract(right, left)
    if gap.low > 0 or gap.high <= 0:
        return ONE if gap.low > 0 else ZERO
    if left.op == right.op == "sum" and left.value and right.value:  # constants on one side only
        both_sides = const(-(left.value if abs(left.value) <= abs(right.value) else right.value))
        left, right = add(left, both_sides), add(right, both_sides)
    elif left.op == "sum" and left.value and right.op == "const":
        left, right = add(left, const(-left.value)), const(right.value - left.value)
    elif right.op == "sum" and right.value and left.op == "const":
        left, right = const(left.value - right.value), add(right, const(-right.value))
    return _make("lt", (left, right), f"({left.key} < {right.key})", 0, 1)


def equal(left: Expr, right: Expr) -> Expr:
    gap = subtract(right, left)
    if gap.op == "const":
        return ONE if gap.value == 0 else ZERO
    if gap.low > 0 or gap.high < 0:
        return ZERO
    return _make("eq", (left, right), f"({left} == {right})", 0, 1)


_CONDITIONS = ("lt", "eq", "and", "or", "not")


def truth(expr: Expr) -> Expr:
    """The condition that an expression is not 0."""
    if expr.op in _CONDITIONS or expr in (ZERO, ONE):
        return expr
    if expr.op == "select":
        return select(expr.args[0], truth(expr.args[1]), truth(expr.args[2]))
    return negate(equal(expr, ZERO))


def negate(condition: Expr) -> Expr:
    if condition.opposite is None:
        object.__setattr__(condition, "opposite", _negated(condition))
    assert condition.opposite is not None
    return condition.opposite


def _negated(condition: Expr) -> Expr:
    if condition.op == "const":
        return ONE if condition.value == 0 else ZERO
    if condition.op == "not":
        return condition.args[0]
    if condition.op == "lt":
        return less(condition.args[1], add(condition.args[0], ONE))
    if condition.op == "or":
        return both(*(negate(part) for part in condition.args))
    if condition.op == "and":
        return either(*(negate(part) for part in condition.args))
    return _make("not", (condition,), f"!{condition}", 0, 1)


def both(*conditions: Expr) -> Expr:
    return _joined("and", " && ", conditions, ONE, ZERO)


def either(*conditions: Expr) -> Expr:
    return _joined("or", " || ", conditions, ZERO, ONE)


def _joined(op: str, sign: str, conditions: tuple[Expr, ...], empty: Expr, decided: Expr) -> Expr:
    parts: dict[Expr, None] = {}
    for condition in conditions:
        for part in condition.args if condition.op == op else (condition,):
            if part.op == "const":
                if bool(part.value) == bool(decided.value):
                    return decided
                continue
            if negate(part) in parts:
                return decided
            parts[part] = None
    if len(parts) <= 1:
        return next(iter(parts), empty)
    return _make(op, tuple(parts), "(" + sign.join([p.key for p in parts]) + ")", 0, 1)


def divisor(expr: Expr) -> int:
    """A number that divides the value, whatever the variables are (0 for the constant 0)."""
    if expr.op == "const":
        return abs(expr.value)
    if expr.op == "sum":
        return gcd(expr.value, *(f * divisor(a) for a, f in zip(expr.args, expr.terms, strict=True)))
    if expr.op in ("min", "max"):
        return gcd(*(divisor(a) for a in expr.args))
    if expr.op == "select":
        return gcd(divisor(expr.args[1]), divisor(expr.args[2]))
    if expr.op == "mul":
        return prod(map(divisor, expr.args))
    if expr.op == "wrap":
        return gcd(1 << abs(expr.value), divisor(expr.args[0]))
    return 1


def substitute(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """The expression with variables replaced, simplified again. Raises :class:`TooLargeError`, and
    :class:`UndefinedError` where a divisor may then be zero."""
    return substitution(values)(expr)


def substitution(values: Mapping[str, Expr]) -> Callable[[Expr], Expr]:
    """Return the function that substitutes values in many expressions that have parts in common."""
    memo: dict[str, Expr] = {}

    def go(e: Expr) -> Expr:
        if e.key not in memo:
            memo[e.key] = _rebuild(e, values, go)
        return memo[e.key]

    return go


def _rebuild(e: Expr, values: Mapping[str, Expr], go: Callable[[Expr], Expr]) -> Expr:
    if e.op == "var":
        return values.get(e.key, e)
    if e.op == "const":
        return e
    args = tuple([go(a) for a in e.args])
    return e if all(map(is_, args, e.args)) else rebuilt(e, args)


def rebuilt(e: Expr, args: Sequence[Expr]) -> Expr:
    """The operation of an expression on other arguments. Raises as :func:`substitute`."""
    if e.op == "sum":
        return add(const(e.value), *(scale(a, f) for a, f in zip(args, e.terms, strict=True)))
    if e.op == "mul":
        return reduce(mul, args)
    if e.op == "wrap":
        return wrap(args[0], abs(e.value), e.value < 0)
    if e.op == "fdiv":
        found = divide(args[0], args[1], floor=True)
    elif e.op == "tdiv":
        found = divide(args[0], args[1])
    elif e.op == "fmod":
        found = remainder(args[0], args[1], floor=True)
    else:
        found = _PLAIN[e.op](*args)
    if found is None:
        raise UndefinedError(e.key)
    return found


_PLAIN: dict[str, Callable[..., Expr]] = {
    "min": minimum,
    "max": maximum,
    "select": select,
    "lt": less,
    "eq": equal,
    "and": both,
    "or": either,
    "not": negate,
}
"""The functions that make expressions of other operations than arithmetic, by their ``op``."""
