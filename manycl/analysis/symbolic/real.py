"""Floating-point numbers of which all but the rounding is known: an exact value, and how far off it may be at most.

What a subscript is made of them lies then between two integers, which are mostly the same: ``(int)(i * 0.5f)`` is
``i / 2``; ``(int)(i * s)`` with an ``s`` of 1/3, rounded, is ``i / 3`` or, where 3 divides ``i``, one less.

Errors are OpenCL C's (3.0, section 7.4) for any device, ``double`` counts as ``float``, which devices without it make
of constants. Sums and products that are contracted (``fma``) and numbers that are too small to be normal and become
0 lie within. Nothing is promised where a program may be compiled with fast arithmetic: nobody then asks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, gcd, lcm

from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr

Fresh = Callable[[int, int], Expr]  # a new unknown within bounds

_DIGITS = 24  # bits of a float's significand
_ULP = Fraction(1, 1 << _DIGITS - 1)  # the most that the last place is worth, of a number; devices may round to 0
_TINY = Fraction(1, 1 << 126)  # the least normal float
_LARGE = 1 << 62  # larger numbers are not followed
_DIVISION = 3  # units in the last place by which a quotient may be off: 2.5, in the embedded profile 3
_FINE = 1 << 40  # of what is less than 1 over this, all is error
_SIMPLE = 1 << 20  # larger denominators are no use to isl


@dataclass(frozen=True, slots=True)
class Real:
    """A number between ``top / bottom - error`` and ``top / bottom + error``; ``bottom`` is positive."""

    top: Expr
    bottom: int = 1
    error: Fraction = Fraction(0)

    @property
    def low(self) -> Fraction:
        return Fraction(-_LARGE) if self.top.low <= -x.INFINITE else Fraction(self.top.low, self.bottom) - self.error

    @property
    def high(self) -> Fraction:
        return Fraction(_LARGE) if self.top.high >= x.INFINITE else Fraction(self.top.high, self.bottom) + self.error

    @property
    def size(self) -> Fraction:
        """The largest absolute value, with the error."""
        return max(abs(self.low), abs(self.high))


def rounded(top: Expr, bottom: int = 1, error: Fraction = Fraction(0), places: int = 1) -> Real | None:
    """The result of an operation, off by as many units in the last ``places``; None where it is too large."""
    found = _handy(Real(top, bottom, error))
    if found is None or (places == 1 and not found.error and _fits(found)):
        return found
    error = found.error + places * (found.size * _ULP + _TINY)
    return Real(found.top, found.bottom, Fraction(ceil(error / _TINY)) * _TINY)


def _handy(number: Real) -> Real | None:
    """The number with a smaller ``top`` and ``bottom``: what is computed of two stays far below what is infinite to
    expressions. None where it is too large."""
    size, top = number.size, number.top
    if size >= _LARGE:
        return None
    parts = top.terms if top.op == "sum" else (top.value,) if top.op == "const" else (1,)
    common = gcd(number.bottom, top.value if top.op == "sum" else 0, *parts)
    if common > 1:
        number = Real(x.divide(top, x.const(common)) or top, number.bottom // common, number.error)
    finest = min(_FINE, _LARGE // max(ceil(size), 1))
    return number if number.bottom <= finest else _over(number, finest)


def _fits(number: Real) -> bool:
    """Return whether a float is just that, whatever the variables are."""
    by = x.divisor(number.top)
    digits = number.size * number.bottom / (by & -by or 1)
    return number.bottom & (number.bottom - 1) == 0 and digits <= 1 << _DIGITS


def of_float(value: float) -> Real | None:
    """A constant; None for what is no number."""
    if value - value != 0:
        return None
    top, bottom = value.as_integer_ratio()
    return rounded(x.const(top), bottom) if abs(value) < _LARGE else None


def negated(number: Real) -> Real:
    return Real(x.scale(number.top, -1), number.bottom, number.error)


def add(left: Real, right: Real) -> Real | None:
    return rounded(*_sum(left, right))


def _sum(left: Real, right: Real) -> tuple[Expr, int, Fraction]:
    bottom = lcm(left.bottom, right.bottom)
    tops = (x.scale(n.top, bottom // n.bottom) for n in (left, right))
    return x.add(*tops), bottom, left.error + right.error


def mul(left: Real, right: Real) -> Real | None:
    return rounded(*_product(left, right))


def _product(left: Real, right: Real) -> tuple[Expr, int, Fraction]:
    error = left.size * right.error + right.size * left.error
    return x.mul(left.top, right.top), left.bottom * right.bottom, error


def fma(left: Real, right: Real, more: Real) -> Real | None:
    product = _handy(Real(*_product(left, right)))
    return None if product is None else rounded(*_sum(product, more))


def divide(left: Real, right: Real) -> Real | None:
    """None where the divisor is not constant, but for its error, or may be 0."""
    by, least = right.top, min(abs(right.low), abs(right.high))
    if by.op != "const" or right.low <= 0 <= right.high:
        return None
    inverse = Fraction(right.bottom, by.value)
    error = left.size * right.error * abs(inverse) / least + left.error / least
    return rounded(x.scale(left.top, inverse.numerator), left.bottom * inverse.denominator, error, _DIVISION)


def minimum(left: Real, right: Real) -> Real | None:
    return _joined(left, right, x.minimum)


def maximum(left: Real, right: Real) -> Real | None:
    return _joined(left, right, x.maximum)


def select(chosen: Expr, yes: Real, no: Real) -> Real | None:
    return _joined(yes, no, lambda a, b: x.select(chosen, a, b))


def _joined(left: Real, right: Real, choose: Callable[[Expr, Expr], Expr]) -> Real | None:
    bottom = lcm(left.bottom, right.bottom)
    tops = (x.scale(n.top, bottom // n.bottom) for n in (left, right))
    return _handy(Real(choose(*tops), bottom, max(left.error, right.error)))


def rounded_down(number: Real, fresh: Fresh) -> Expr:
    """The greatest integer that is not greater."""
    near = _simple(number)
    slack, bottom = near.error * near.bottom, x.const(near.bottom)
    least = x.divide(x.add(near.top, x.const(-ceil(slack))), bottom, floor=True)
    most = x.divide(x.add(near.top, x.const(floor(slack))), bottom, floor=True)
    assert least is not None
    assert most is not None
    if least == most:
        return least
    return x.minimum(x.add(least, fresh(0, -(-(ceil(slack) + floor(slack)) // near.bottom))), most)


def rounded_up(number: Real, fresh: Fresh) -> Expr:
    return x.scale(rounded_down(negated(number), fresh), -1)


def rounded_to_nearest(number: Real, fresh: Fresh) -> Expr:
    """Either of two integers that are as near."""
    half = Real(*_sum(number, Real(x.ONE, 2)))
    return rounded_down(Real(half.top, half.bottom, half.error + _TINY), fresh)


def truncated(number: Real, fresh: Fresh) -> Expr:
    """The integer towards 0."""
    parts = []
    if number.high >= 1:
        parts.append(x.maximum(rounded_down(number, fresh), x.ZERO))
    if number.low <= -1:
        parts.append(x.minimum(rounded_up(number, fresh), x.ZERO))
    return x.add(*parts)


def compare(op: str, left: Real, right: Real, fresh: Fresh) -> Expr:
    """Return whether ``left op right``."""
    if op in (">=", ">", "!="):
        return x.negate(compare({">=": "<", ">": "<=", "!=": "=="}[op], left, right, fresh))
    gap = _simple(Real(*_sum(left, negated(right))))
    slack = gap.error * gap.bottom
    if op == "==":
        apart = gap.low > 0 or gap.high < 0
        return x.equal(gap.top, x.ZERO) if not slack else x.ZERO if apart else fresh(0, 1)
    least, most = (-floor(slack), ceil(slack)) if op == "<" else (1 - ceil(slack), 1 + floor(slack))
    return x.less(gap.top, x.add(x.const(least), fresh(0, most - least)))


#: integers by the suffix of a conversion: where to it rounds
INTEGERS: dict[str, Callable[[Real, Fresh], Expr]] = {
    "_rtz": truncated,
    "_rte": rounded_to_nearest,
    "_rtp": rounded_up,
    "_rtn": rounded_down,
}


def _integral(function: Callable[[Real, Fresh], Expr]) -> Callable[..., Real | None]:
    return lambda fresh, a: _handy(Real(function(a, fresh)))


def _smaller(fresh: Fresh, a: Real, b: Real) -> Real | None:
    return minimum(a, b)


def _larger(fresh: Fresh, a: Real, b: Real) -> Real | None:
    return maximum(a, b)


def _clamped(fresh: Fresh, a: Real, low: Real, high: Real) -> Real | None:
    least = maximum(a, low)
    return None if least is None else minimum(least, high)


#: built-in functions of which OpenCL C says what they are to the last place
FUNCTIONS: dict[str, Callable[..., Real | None]] = {
    "floor": _integral(rounded_down),
    "ceil": _integral(rounded_up),
    "trunc": _integral(truncated),
    "rint": _integral(rounded_to_nearest),
    "round": _integral(rounded_to_nearest),
    "fabs": lambda fresh, a: maximum(a, negated(a)),
    "fma": lambda fresh, a, b, c: fma(a, b, c),
    "clamp": _clamped,
    **dict.fromkeys(("min", "fmin"), _smaller),
    **dict.fromkeys(("max", "fmax"), _larger),
}


def _simple(number: Real) -> Real:
    """The number with smaller numerators and denominators, and at most twice the error: 1/3 for 11184811/33554432."""
    if not number.error:
        return number
    atoms = _atoms(number)
    allowed = [number.error / (len(atoms) * size) for _, _, size in atoms]
    parts = [Fraction(factor, number.bottom) for _, factor, _ in atoms]
    found = [_simplest(part - off, part + off) for part, off in zip(parts, allowed, strict=True)]
    bottom = lcm(*(part.denominator for part in found))
    return _over(number, bottom) if bottom < number.bottom and bottom <= _SIMPLE else number


def _over(number: Real, bottom: int) -> Real:
    """The number as so many of ``1 / bottom``."""
    top, off = x.ZERO, number.error
    for atom, factor, size in _atoms(number):
        part = Fraction(factor * bottom, number.bottom)
        near = round(part)
        top, off = x.add(top, x.scale(atom, near)), off + abs(part - near) * size / bottom
    return Real(top, bottom, off)


def _atoms(number: Real) -> list[tuple[Expr, int, int]]:
    """Return the terms of which ``top`` is the sum: expression, factor, and the largest value of each."""
    top = number.top
    terms = [*top.summands, (x.ONE, top.value)] if top.op in ("sum", "const") else top.summands
    return [(atom, factor, max(abs(atom.low), abs(atom.high), 1)) for atom, factor in terms]


def _simplest(low: Fraction, high: Fraction) -> Fraction:
    """The number with the least denominator between two (Stern and Brocot's tree)."""
    if low <= 0 <= high:
        return Fraction(0)
    if high < 0:
        return -_simplest(-high, -low)
    whole = ceil(low)
    if whole <= high:
        return Fraction(whole)
    return whole - 1 + 1 / _simplest(1 / (high - whole + 1), 1 / (low - whole + 1))
