"""Integer built-in functions are what Python's integers say, of every type and width."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest

from tests.drivers.native.builtins.native_calls import TYPES, WIDTHS, entry, run

INTEGERS = [kind for kind in TYPES if kind not in ("float", "double")]
Exact = Callable[..., int]


def bits(kind: str) -> int:
    return 8 * np.dtype(TYPES[kind]).itemsize


def limits(kind: str) -> tuple[int, int]:
    info = np.iinfo(TYPES[kind])
    return int(info.min), int(info.max)


def wrapped(value: int, kind: str) -> int:
    low, high = limits(kind)
    return (value - low) % (high - low + 1) + low


def inside(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def unsigned(kind: str) -> str:
    return kind if kind[0] == "u" else f"u{kind}"


def rotated(x: int, y: int, size: int) -> int:
    x, y = x % (1 << size), y % size
    return (x << y | x >> (size - y)) % (1 << size)


def functions(kind: str) -> dict[str, tuple[str, Exact]]:
    """By call: the result's type and the exact result, which is made to fit if it does not."""
    size, (low, high) = bits(kind), limits(kind)
    known: dict[str, tuple[str, Exact]] = {
        "abs(a)": (unsigned(kind), lambda a, b, c: abs(a)),
        "abs_diff(a, b)": (unsigned(kind), lambda a, b, c: abs(a - b)),
        "add_sat(a, b)": (kind, lambda a, b, c: inside(a + b, low, high)),
        "sub_sat(a, b)": (kind, lambda a, b, c: inside(a - b, low, high)),
        "mad_sat(a, b, c)": (kind, lambda a, b, c: inside(a * b + c, low, high)),
        "hadd(a, b)": (kind, lambda a, b, c: (a + b) >> 1),
        "rhadd(a, b)": (kind, lambda a, b, c: (a + b + 1) >> 1),
        "mul_hi(a, b)": (kind, lambda a, b, c: (a * b) >> size),
        "mad_hi(a, b, c)": (kind, lambda a, b, c: ((a * b) >> size) + c),
        "max(a, b)": (kind, lambda a, b, c: max(a, b)),
        "min(a, b)": (kind, lambda a, b, c: min(a, b)),
        "clamp(a, min(b, c), max(b, c))": (kind, lambda a, b, c: inside(a, min(b, c), max(b, c))),
        "rotate(a, b)": (kind, lambda a, b, c: rotated(a, b, size)),
        "clz(a)": (kind, lambda a, b, c: size - (a % (1 << size)).bit_length()),
        "ctz(a)": (kind, lambda a, b, c: size if a == 0 else (a & -a).bit_length() - 1),
        "popcount(a)": (kind, lambda a, b, c: (a % (1 << size)).bit_count()),
        "bitselect(a, b, c)": (kind, lambda a, b, c: (a & ~c) | (b & c)),
    }
    if size == 32:
        text = "(({0} << 8) >> 8)"
        a, b = (text.format(n) for n in "ab")
        inner = (lambda x: wrapped(x << 8, kind) >> 8) if low else (lambda x: x % (1 << 24))
        known[f"mul24({a}, {b})"] = (kind, lambda a, b, c: inner(a) * inner(b))
        known[f"mad24({a}, {b}, c)"] = (kind, lambda a, b, c: inner(a) * inner(b) + c)
    return known


def samples(kind: str) -> list[np.ndarray]:
    """Three arguments: small, wild, and at the ends."""
    random, (low, high) = np.random.default_rng(bits(kind)), limits(kind)
    ends = [low, low + 1, high, high - 1, 0, 1, 2, 3, high // 2, low // 2, 7, high - 7]
    arrays = []
    for _ in range(3):
        wild = random.integers(low, high, 192, TYPES[kind], endpoint=True)
        near = random.integers(max(low, -40), 40, 96).astype(TYPES[kind])
        arrays.append(np.concatenate([wild, near, random.choice(np.array(ends, TYPES[kind]), 192)]))
    return arrays


@functools.cache
def text(kind: str) -> str:
    lines = []
    for i, (call, (result, _)) in enumerate(functions(kind).items()):
        lines += [entry(f"f{i}_{w}", call, result, [kind] * 3, w) for w in (1, *WIDTHS)]
    return "\n".join(lines)


@pytest.mark.parametrize("kind", INTEGERS)
def test_exact(kind: str) -> None:
    given = samples(kind)
    columns = [x.tolist() for x in given]
    for i, (call, (result, exact)) in enumerate(functions(kind).items()):
        wanted = [wrapped(exact(*row), result) for row in zip(*columns, strict=True)]
        for width in (1, *WIDTHS):
            got = run(text(kind), f"f{i}_{width}", result, given, width).tolist()
            wrong = [(row, g, w) for row, g, w in zip(zip(*columns, strict=True), got, wanted, strict=True) if g != w]
            assert not wrong, (call, width, wrong[:3])


@pytest.mark.parametrize("kind", [k for k in INTEGERS if bits(k) < 64])
def test_upsample(kind: str) -> None:
    wider = kind.replace("int", "long").replace("short", "int").replace("char", "short")
    high, low = samples(kind)[0], samples(unsigned(kind))[1]
    widths = (1, *WIDTHS)
    text = "\n".join(entry(f"up{w}", "upsample(a, b)", wider, [kind, unsigned(kind)], w) for w in widths)
    for width in widths:
        got = run(text, f"up{width}", wider, [high, low], width)
        assert got.tolist() == [(h << bits(kind)) | x for h, x in zip(high.tolist(), low.tolist(), strict=True)]


@pytest.mark.parametrize("kind", [*INTEGERS, "float", "double"])
def test_scalars_for_all_elements(kind: str) -> None:
    random = np.random.default_rng(1)
    a, b = (random.integers(0, 100, 48).astype(TYPES[kind]) for _ in range(2))
    low, high = TYPES[kind](20), TYPES[kind](60)
    calls = {
        "max(a, b.s0)": np.maximum(a, np.repeat(b[::4], 4)),
        "min(a, b.s0)": np.minimum(a, np.repeat(b[::4], 4)),
        f"clamp(a, ({kind})20, ({kind})60)": np.clip(a, low, high),
    }
    if kind in ("float", "double"):
        calls |= {
            "fmax(a, b.s0)": calls["max(a, b.s0)"],
            "fmin(a, b.s0)": calls["min(a, b.s0)"],
            "mix(a, b, a.s0 * 0 + 2)": 2 * b - a,
            "step(b.s0, a)": (a >= np.repeat(b[::4], 4)).astype(TYPES[kind]),
            "ldexp(a, 3)": a * 8,
            f"smoothstep(({kind})0, ({kind})128, a)": (a / 128) ** 2 * (3 - 2 * (a / 128)),
        }
    text = "\n".join(entry(f"s{i}", call, kind, [kind, kind], 4) for i, call in enumerate(calls))
    for i, (call, wanted) in enumerate(calls.items()):
        got = run(text, f"s{i}", kind, [a, b], 4)
        assert np.array_equal(got, wanted.astype(TYPES[kind])), call
