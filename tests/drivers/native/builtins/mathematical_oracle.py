"""What mathematical built-in functions are, by mpmath, and by how much they may be off (OpenCL 1.2, section 7.4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from mpmath import mp, mpf


class Function(NamedTuple):
    """``limit``: units in the last place. ``low``, ``high``: where most arguments are to be; ``integer``: the second
    one is. ``exact`` is given finite arguments, and says None where there is no finite value."""

    exact: Callable[..., mpf | None]
    limit: float
    low: float
    high: float
    count: int = 1
    integer: bool = False


def _pi(f: Callable[[mpf], mpf]) -> Callable[[mpf], mpf]:
    return lambda x: f(x) / mp.pi


def _within(f: Callable[[mpf], mpf], low: float, high: float) -> Callable[[mpf], mpf | None]:
    return lambda x: f(x) if low <= x <= high else None


def _exp(f: Callable[[mpf], mpf], least: float = 0.0) -> Callable[[mpf], mpf]:
    """Far out what any type rounds to infinity, or to the least."""
    return lambda x: f(x) if abs(x) < 3000 else (mpf(2) ** 3000 if x > 0 else mpf(least))


def _pow(x: mpf, y: mpf) -> mpf | None:
    if x == 0 or (x < 0 and y != int(y)):
        return None
    power = _exp(mp.exp)(y * mp.log(abs(x)))
    return -power if x < 0 and int(y) % 2 else power


def _rootn(x: mpf, n: mpf) -> mpf | None:
    if x == 0 or n == 0 or (x < 0 and int(n) % 2 == 0):
        return None
    return mp.sign(x) * mp.exp(mp.log(abs(x)) / n)


def _turned(f: Callable[[mpf], mpf]) -> Callable[[mpf], mpf | None]:
    """sin(pi x) and the like, exact where it is 0; infinite ones have no value."""

    def of(x: mpf) -> mpf | None:
        part = Fraction(float(x)) % 2
        if f is mp.tan and part in (Fraction(1, 2), Fraction(3, 2)):
            return None
        if (part % 1 == 0 and f is not mp.cos) or (part % 1 == Fraction(1, 2) and f is mp.cos):
            return mpf(0)
        return f(mp.pi * mpf(part.numerator) / part.denominator)

    return of


FUNCTIONS: dict[str, Function] = {
    "acos": Function(_within(mp.acos, -1, 1), 4, -1, 1),
    "acosh": Function(_within(mp.acosh, 1, math.inf), 4, 1, 50),
    "acospi": Function(_pi(mp.acos), 5, -1, 1),
    "asin": Function(_within(mp.asin, -1, 1), 4, -1, 1),
    "asinh": Function(mp.asinh, 4, -50, 50),
    "asinpi": Function(_pi(mp.asin), 5, -1, 1),
    "atan": Function(mp.atan, 5, -5, 5),
    "atan2": Function(lambda y, x: mp.atan2(y, x) if y else None, 6, -5, 5, 2),
    "atan2pi": Function(lambda y, x: mp.atan2(y, x) / mp.pi if y else None, 6, -5, 5, 2),
    "atanh": Function(lambda x: mp.atanh(x) if abs(x) < 1 else None, 5, -1, 1),
    "atanpi": Function(_pi(mp.atan), 5, -5, 5),
    "cbrt": Function(lambda x: mp.sign(x) * mp.cbrt(abs(x)), 2, -100, 100),
    "cos": Function(mp.cos, 4, -100, 100),
    "cosh": Function(lambda x: _exp(mp.cosh)(abs(x)), 4, -90, 90),
    "cospi": Function(_turned(mp.cos), 4, -100, 100),
    "erf": Function(lambda x: mp.erf(x) if abs(x) < 50 else mp.sign(x), 16, -5, 5),
    "erfc": Function(lambda x: mp.erfc(x) if abs(x) < 50 else mpf(0 if x > 0 else 2), 16, -5, 26),
    "exp": Function(_exp(mp.exp), 3, -105, 90),
    "exp2": Function(_exp(lambda x: mp.power(2, x)), 3, -150, 130),
    "exp10": Function(_exp(lambda x: mp.power(10, x)), 3, -45, 40),
    "expm1": Function(_exp(mp.expm1, -1.0), 3, -20, 90),
    "hypot": Function(lambda x, y: mp.sqrt(x * x + y * y), 4, -100, 100, 2),
    "log": Function(lambda x: mp.log(x) if x > 0 else None, 3, 0, 4),
    "log2": Function(lambda x: mp.log(x, 2) if x > 0 else None, 3, 0, 4),
    "log10": Function(lambda x: mp.log10(x) if x > 0 else None, 3, 0, 4),
    "log1p": Function(lambda x: mp.log1p(x) if x > -1 else None, 2, -1, 4),
    "pow": Function(_pow, 16, 0, 40, 2),
    "pown": Function(_pow, 16, -40, 40, 2, True),
    "powr": Function(lambda x, y: _pow(x, y) if x > 0 else None, 16, 0, 40, 2),
    "rootn": Function(_rootn, 16, -40, 40, 2, True),
    "rsqrt": Function(lambda x: 1 / mp.sqrt(x) if x > 0 else None, 2, 0, 100),
    "sin": Function(mp.sin, 4, -100, 100),
    "sinh": Function(lambda x: mp.sign(x) * _exp(mp.sinh)(abs(x)), 4, -90, 90),
    "sinpi": Function(_turned(mp.sin), 4, -100, 100),
    "sqrt": Function(lambda x: mp.sqrt(x) if x >= 0 else None, 0.5, 0, 100),
    "tan": Function(mp.tan, 5, -100, 100),
    "tanh": Function(lambda x: mp.tanh(x) if abs(x) < 1000 else mp.sign(x), 5, -10, 10),
    "tanpi": Function(_turned(mp.tan), 6, -100, 100),
    "tgamma": Function(lambda x: mp.gamma(x) if x > 0 and x < 300 else None, 16, 0, 36),
    "lgamma": Function(lambda x: mp.loggamma(x).real if x > 0 else None, 16, 2.5, 100),
    "degrees": Function(lambda x: x * 180 / mp.pi, 2, -100, 100),
    "radians": Function(lambda x: x / 180 * mp.pi, 2, -100, 100),
}


def arguments(function: Function, kind: type[np.floating], seed: int, count: int) -> list[np.ndarray]:
    """Some where most programs have them, some of all sizes, and what lies at the ends; all finite."""
    random = np.random.default_rng(seed)
    ends = np.finfo(kind)
    special = [
        0.0,
        1.0,
        0.5,
        2.0,
        3.0,
        1.5,
        ends.tiny,
        ends.smallest_subnormal,
        ends.max,
        2.0**25,
        12345678.0,
        1 + ends.eps,
    ]
    special += [1 - ends.epsneg, 3.1415927410125732, 1.5707963705062866, 16367173.0 * 2.0**72, 0.75, 10.0, 27.0]
    arrays = []
    for place in range(function.count):
        near = random.uniform(function.low, function.high, count)
        if place and function.integer:
            wild = random.integers(-(2**31), 2**31, count)
            few = random.integers(-9, 10, 2 * count)
            arrays.append(np.concatenate([few, wild, random.integers(-3, 4, 2 * len(special))]).astype(np.int32))
            continue
        bits = np.uint32 if kind is np.float32 else np.uint64
        wild = random.integers(0, np.iinfo(bits).max, 2 * count, bits).view(kind)
        ends_here = [*special, *(-np.array(special))]
        values = np.concatenate([near, wild, random.permutation(ends_here) if place else ends_here]).astype(kind)
        arrays.append(np.where(np.isfinite(values), values, kind(1.25)))
    return arrays


def errors(function: Function, kind: type[np.floating], got: np.ndarray, arrays: list[np.ndarray]) -> list[float]:
    """By how many units in the last place results are off; what has no finite value counts nothing."""
    info = np.finfo(kind)
    smallest, most = info.smallest_subnormal.item(), mpf(float(info.max))
    out = []
    with mp.workprec(1300 if kind is np.float64 else 400):
        for value, *given in zip(got, *arrays, strict=True):
            exact = function.exact(*(mpf(x.item()) for x in given))
            if exact is None or isinstance(exact, mp.mpc):
                out.append(0.0)
            elif not np.isfinite(value):
                far = abs(exact) > most - 16 * mpf(float(info.max)) * mpf(float(info.epsneg)) and not np.isnan(value)
                out.append(0.0 if far and (value > 0) == (exact > 0) else math.inf)
            else:
                exponent = mp.frexp(exact)[1] if exact else -5000
                unit = max(mpf(2) ** (exponent - info.nmant - 1), mpf(smallest))
                out.append(float(abs(mpf(value.item()) - exact) / unit))
    return out
