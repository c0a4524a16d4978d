"""Prints the polynomials in manycl/drivers/native/builtins/polynomials.cl; needs mpmath.

Each interpolates a function with few terms at Chebyshev's nodes, in 60 digits, which is within a small factor of the
best there is; what is printed beside it is the largest relative error that was seen, of the polynomial with its
rounded coefficients.

    python scripts/builtin_coefficients.py > manycl/drivers/native/builtins/polynomials.cl
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from mpmath import mp, mpf

mp.dps = 60
Function = Callable[[mpf], mpf]


def scaled(a: mpf) -> mpf:
    return mp.erfc(a) * mp.exp(a * a)


def beyond(x: mpf) -> mpf:
    return (mp.expm1(x) - x) / x**2


def rest(s: mpf) -> mpf:
    return (2 * mp.atanh(s) / s - 2) / s**2


def less_one(r: mpf) -> mpf:
    return (mp.sin(r) / r - 1) / r**2


def less_two(r: mpf) -> mpf:
    return (mp.cos(r) - 1 + r**2 / 2) / r**4


# name, what it is, function, where, degree
WANTED: tuple[tuple[str, str, Function, tuple[mpf, mpf], int], ...] = (
    ("exp2m1", "(2^x - 1) / x", lambda x: mp.expm1(x * mp.ln2) / x, (mpf("-0.5001"), mpf("0.5001")), 7),
    ("exp_d", "(e^x - 1 - x) / x^2", beyond, (mpf("-0.3467"), mpf("0.3467")), 9),
    ("exp2_d", "(2^x - 1) / x", lambda x: mp.expm1(x * mp.ln2) / x, (mpf("-0.5001"), mpf("0.5001")), 11),
    ("atanh_d", "(2 atanh(s) / s - 2) / s^2, x = s^2", lambda x: rest(mp.sqrt(x)), (mpf(0), mpf("0.0295")), 6),
    ("atanh", "2 atanh(s) / s, x = s^2", lambda x: 2 * mp.atanh(mp.sqrt(x)) / mp.sqrt(x), (mpf(0), mpf("0.0295")), 6),
    ("sin", "sin(r) / r, x = r^2", lambda x: mp.sin(mp.sqrt(x)) / mp.sqrt(x), (mpf(0), mpf("0.618")), 5),
    ("cos", "cos(r), x = r^2", lambda x: mp.cos(mp.sqrt(x)), (mpf(0), mpf("0.618")), 5),
    ("atan", "atan(t) / t, x = t^2", lambda x: mp.atan(mp.sqrt(x)) / mp.sqrt(x), (mpf(0), mpf("0.1717")), 7),
    ("erf", "erf(a) / a, x = a^2", lambda x: mp.erf(mp.sqrt(x)) / mp.sqrt(x), (mpf(0), mpf(1)), 8),
    (
        "erfcx",
        "erfc(a) exp(a^2), x = (a - 3) / (a + 3)",
        lambda x: scaled(3 * (1 + x) / (1 - x)),
        (mpf("-0.51"), mpf("0.61")),
        12,
    ),
)

SINGLE: tuple[tuple[str, str, Function, tuple[mpf, mpf], int], ...] = (
    ("exp_f", "(e^x - 1 - x) / x^2", beyond, (mpf("-0.3467"), mpf("0.3468")), 4),
    ("log_f", "(2 atanh(s) / s - 2) / s^2, x = s^2", lambda x: rest(mp.sqrt(x)), (mpf(0), mpf("0.0295")), 3),
    ("sin_f", "(sin(r) / r - 1) / r^2, x = r^2", lambda x: less_one(mp.sqrt(x)), (mpf("1e-30"), mpf("0.618")), 3),
    ("cos_f", "(cos(r) - 1 + r^2 / 2) / r^4, x = r^2", lambda x: less_two(mp.sqrt(x)), (mpf("1e-30"), mpf("0.618")), 2),
)
"""Likewise, in floats."""


def interpolated(function: Function, where: tuple[mpf, mpf], degree: int) -> list[float]:
    """Coefficients, of x^0 first."""
    low, high = where
    count = degree + 1
    nodes = [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    matrix = mp.matrix([[x**j for j in range(count)] for x in nodes])
    return [float(c) for c in mp.lu_solve(matrix, mp.matrix([function(x) for x in nodes]))]


def worst(function: Function, where: tuple[mpf, mpf], coefficients: list[float]) -> mpf:
    low, high = where
    points = [low + (high - low) * (i + mpf("0.31")) / 1000 for i in range(1000)]
    return max(abs(mp.polyval(coefficients[::-1], x) / function(x) - 1) for x in points)


def horner(coefficients: list[float], suffix: str = "") -> str:
    text = coefficients[-1].hex() + suffix.lower()
    for value in reversed(coefficients[:-1]):
        text = f"MANYCL_MAD{suffix}({text}, x, {value.hex()}{suffix.lower()})"
    return text


def rounded(value: float) -> float:
    """To a float."""
    found: float = struct.unpack("f", struct.pack("f", value))[0]
    return found


def main() -> None:
    print("/* Written by scripts/builtin_coefficients.py. */")
    for name, what, function, where, degree in (*WANTED, *SINGLE):
        single = (name, what, function, where, degree) in SINGLE
        coefficients = interpolated(function, where, degree)
        if single:
            coefficients = [rounded(value) for value in coefficients]
        error = mp.log(worst(function, where, coefficients), 2)
        low, high = (mp.nstr(bound, 5) for bound in where)
        print(f"\n/* {what} for x from {low} to {high}, to 2^{mp.nstr(error, 4)} of it */")
        kind, suffix = ("float", "F") if single else ("double", "")
        print(f"PURE {kind} manycl_{name}_poly({kind} x) {{ return {horner(coefficients, suffix)}; }}")


if __name__ == "__main__":
    main()
