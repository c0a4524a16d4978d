"""Conversions, of all types to all types in all ways, are what fractions say; bytes are tried whole."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np
import pytest

from tests.drivers.native.builtins.native_calls import TYPES, WIDTHS, entry, run, same

MODES = ("", "_rte", "_rtz", "_rtp", "_rtn")
REAL = ("float", "double")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of what is no number


@functools.cache
def samples(kind: str) -> np.ndarray:
    """All bytes; of other types those next to powers of two, and wild ones; of short integers one in eleven besides."""
    random, kind_of = np.random.default_rng(5), TYPES[kind]
    if kind in REAL:
        bits = np.uint32 if kind == "float" else np.uint64
        powers = np.array([s * 2.0**e for e in range(-30, 70) for s in (1, -1)], kind_of)
        halves = np.arange(-40.5, 40.5, 0.25, dtype=kind_of)
        odd = np.array([math.inf, -math.inf, math.nan, 0.0, -0.0, 1e30, -1e30, 16777217.0, 1e-40], kind_of)
        wild = random.integers(0, np.iinfo(bits).max, 400, bits).view(kind_of)
        near = [np.nextafter(powers, kind_of(0)), powers, np.nextafter(powers, kind_of(np.inf)), powers + kind_of(0.5)]
        values = np.concatenate([*near, halves, odd, wild, random.uniform(-300, 300, 200).astype(kind_of)])
    elif np.dtype(kind_of).itemsize == 1:
        info = np.iinfo(kind_of)
        values = np.arange(info.min, info.max + 1).astype(kind_of)
    else:
        info = np.iinfo(kind_of)
        ends = {
            x + d for e in range(65) for x in (1 << e, -(1 << e), 3 << e, (1 << e) + (1 << e >> 24)) for d in (-1, 0, 1)
        }
        near = np.array([x for x in sorted(ends) if info.min <= x <= info.max], object).astype(kind_of)
        wild = random.integers(info.min, info.max, 600, kind_of)
        if np.dtype(kind_of).itemsize == 2:
            wild = np.arange(info.min, info.max + 1, 11).astype(kind_of)
        values = np.concatenate([near, wild])
    return values[: len(values) // 48 * 48]


WHOLE = {"": math.trunc, "_rtz": math.trunc, "_rte": round, "_rtp": math.ceil, "_rtn": math.floor}
"""Of Python's numbers, which are exact."""


def integers(values: np.ndarray, to: str, mode: str, sat: bool) -> list[int | None]:
    """None where the result is not defined."""
    info, out, whole = np.iinfo(TYPES[to]), [], WHOLE[mode]
    low, high = int(info.min), int(info.max)
    for value in values.tolist():
        if isinstance(value, float) and not math.isfinite(value):
            out.append((0 if math.isnan(value) else high if value > 0 else low) if sat else None)
            continue
        exact = whole(value)
        inside = min(max(exact, low), high)
        if sat or exact == inside:
            out.append(inside)
        elif isinstance(value, float):
            out.append(None)
        else:
            out.append((exact - low) % (1 << info.bits) + low)
    return out


def next_to(value: Fraction, kind: type[np.floating], mode: str) -> np.floating:
    """The number of a type next to a fraction."""
    with np.errstate(over="ignore"):
        guess = kind(np.longdouble(value.numerator)) if value.denominator == 1 else kind(float(value))
    if not np.isfinite(guess):
        guess = kind(math.copysign(float(np.finfo(kind).max), value))
    below = guess if Fraction(float(guess)) <= value else np.nextafter(guess, kind(-math.inf))
    exact = np.isfinite(below) and Fraction(float(below)) == value
    above = below if exact else np.nextafter(below, kind(math.inf))
    if mode in ("_rtp", "_rtn", "_rtz"):
        up = mode == "_rtp" or (mode == "_rtz" and value < 0)
        return above if up else below
    if not (np.isfinite(above) and np.isfinite(below)):
        return kind(float(value))
    down, up = value - Fraction(float(below)), Fraction(float(above)) - value
    if down != up:
        return below if down < up else above
    bits = np.uint32 if kind is np.float32 else np.uint64
    return below if below.view(bits) % 2 == 0 else above


def reals(values: np.ndarray, to: str, mode: str) -> np.ndarray:
    kind = TYPES[to]
    if values.dtype.itemsize <= 2:
        return values.astype(kind)  # exact
    out = np.empty(len(values), kind)
    for i, value in enumerate(values.tolist()):
        if isinstance(value, float) and (not math.isfinite(value) or value == 0):
            out[i] = value
        else:
            out[i] = next_to(Fraction(value), kind, mode)
    return out


@functools.cache
def text(of: str) -> str:
    """All conversions of a type: compilers begin only so often."""
    lines = []
    for to in TYPES:
        for sat in ("",) if to in REAL else ("", "_sat"):
            for mode in MODES:
                lines.append(entry(f"to_{to}{sat}{mode}", f"convert_{to}{sat}{mode}(a)", to, [of]))
        lines += [entry(f"to_{to}_w{w}", f"convert_{to}{w}_rte(a)", to, [of], w) for w in WIDTHS]
    return "\n".join(lines)


@pytest.mark.parametrize("to", TYPES)
@pytest.mark.parametrize("of", TYPES)
def test_every_way(of: str, to: str) -> None:
    values = samples(of)
    for mode in MODES:
        if to in REAL:
            got = run(text(of), f"to_{to}{mode}", to, [values])
            wanted = reals(values, to, mode)
            wrong = [
                (v, g, w) for v, g, w in zip(values, got, wanted, strict=True) if not same(np.array([g]), np.array([w]))
            ]
            assert not wrong, (mode, wrong[:3])
            continue
        for sat in ("", "_sat"):
            got = run(text(of), f"to_{to}{sat}{mode}", to, [values]).tolist()
            exact = integers(values, to, mode, bool(sat))
            wrong = [(v, g, w) for v, g, w in zip(values, got, exact, strict=True) if w is not None and g != w]
            assert not wrong, (mode, sat, wrong[:3])


@pytest.mark.parametrize("to", TYPES)
@pytest.mark.parametrize("of", TYPES)
def test_vectors_are_converted_by_element(of: str, to: str) -> None:
    values = samples(of)[:960]
    if of in REAL and to not in REAL:
        info = np.iinfo(TYPES[to])
        values = values[np.isfinite(values) & (values >= float(info.min) / 2) & (values <= float(info.max) / 2)]
        values = values[: len(values) // 48 * 48]
    scalar = run(text(of), f"to_{to}_rte", to, [values])
    for width in WIDTHS:
        assert same(run(text(of), f"to_{to}_w{width}", to, [values], width), scalar), width


@pytest.mark.parametrize("of", TYPES)
def test_the_same_bits(of: str) -> None:
    size = np.dtype(TYPES[of]).itemsize
    kinds = [k for k, t in TYPES.items() if np.dtype(t).itemsize == size]
    calls = {(to, w): f"as_{to}{w if w > 1 else ''}" for to in kinds for w in (1, *WIDTHS)}
    source = "\n".join(entry(f"to_{call}", f"{call}(a)", to, [of], width) for (to, width), call in calls.items())
    values = samples(of)[:480]
    for (to, width), call in calls.items():
        assert same(run(source, f"to_{call}", to, [values], width), values.view(TYPES[to])), call


def test_bits_of_other_widths() -> None:
    values = np.arange(48, dtype=np.uint8)
    text = "void k(ulong n, __global uint *r, __global const uchar *a) { for (ulong i = 0; i < n / 4; i++) r[i] ="
    text += " as_uint((uchar4)(a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3])); }"
    assert np.array_equal(run(text, "k", "uint", [values])[:12], values.view(np.uint32))
