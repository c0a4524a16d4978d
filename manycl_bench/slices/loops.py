"""Loops that slice sizes are sampled of, beside Device-Hopping's benchmarks: common ones of all kinds, many of them in
two forms whose points differ in work, so that features vary independently of each other.

Matrices are tall: a work-group is never more than a small part of a loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

import manycl as mc
from manycl_bench.hopping.data import CASES, MOST, POWERS, SIZES, Case
from manycl_bench.hopping.loops import LOOPS
from manycl_bench.hopping.ways import Enqueue


class Loop(NamedTuple):
    """``body`` of a ``parallel_for`` over points, or rows of ``columns`` points. ``arrays``: elements of each for a
    point or row (a scalar's name: as many as that; below 0: in all), in capitals where they are written; ``scalars``:
    by form (0: how many points there are). ``reduction``: what is put together; ``integers``: arrays of numbers below
    that of points."""

    body: str
    arrays: Mapping[str, int | str]
    scalars: tuple[Mapping[str, Any], ...] = ({},)
    columns: int = 0
    reduction: Mapping[str, str] | None = None
    integers: tuple[str, ...] = ()


class Sampled(NamedTuple):
    """What is sampled: a kernel's name, how its inputs of a size are made, and how it is enqueued; ``size``: to begin
    with; ``most``; ``power``: of its time by which its size grows."""

    name: str
    make: Any
    enqueue: Enqueue
    size: int
    most: int
    power: float = 1.0


def _forms(name: str, *values: Any) -> tuple[Mapping[str, Any], ...]:
    return tuple({name: value} for value in values)


OWN: Mapping[str, Loop] = {
    "scale": Loop("Y[i] = a * x[i];", {"Y": 1, "x": 1}, ({"a": 2.0},)),
    "triad": Loop("Y[i] = x[i] + a * z[i];", {"Y": 1, "x": 1, "z": 1}, ({"a": 2.0},)),
    "polynomial": Loop(
        "float v = x[i], s = 0; for (int q = 0; q < m; q++) s = s * v + c[q]; Y[i] = s;",
        {"Y": 1, "x": 1, "c": -1024},
        _forms("m", 12, 300),
    ),
    "dot": Loop("s += x[i] * y[i];", {"x": 1, "y": 1}, reduction={"s": "+"}),
    "largest": Loop("s = max(s, fabs(x[i]) + 1.0f);", {"x": 1}, reduction={"s": "max"}),
    "mandelbrot": Loop(
        "float u = x[i] * 0.2f, v = x[i] * 0.1f, r = 0, t = 0; int q = 0;"
        " for (; q < m && r * r + t * t < 4; q++) { float w = r * r - t * t + u; t = 2 * r * t + v; r = w; } Y[i] = q;",
        {"Y": 1, "x": 1},
        _forms("m", 60, 900),
    ),
    "bodies": Loop(
        "float f = 0, g = 0; for (int q = 0; q < m; q++) { float u = p[2 * q] - x[i], v = p[2 * q + 1] - y[i];"
        " float r = rsqrt(u * u + v * v + 0.01f); r = r * r * r; f += u * r; g += v * r; } F[i] = f; G[i] = g;",
        {"F": 1, "G": 1, "x": 1, "y": 1, "p": -8192},
        _forms("m", 100, 4000),
    ),
    "option prices": Loop(
        "float s = x[i] + 1, k = y[i] + 1, d = (log(s / k) + 0.07f) * 3.3f, e = d - 0.3f, w = exp(-0.05f) * k;"
        " float p = 0.5f * erfc(-d * 0.7071f), q = 0.5f * erfc(-e * 0.7071f); C[i] = s * p - w * q;"
        " P[i] = w * (1 - q) - s * (1 - p);",
        {"C": 1, "P": 1, "x": 1, "y": 1},
    ),
    "five points": Loop(
        "int r = i % w; if (r > 0 && r < w - 1 && i >= w && i < m - w)"
        " Y[i] = 0.2f * (x[i] + x[i - 1] + x[i + 1] + x[i - w] + x[i + w]);",
        {"Y": 1, "x": 1},
        ({"w": 1024, "m": 0},),
    ),
    "blur": Loop(
        "float s = 0; for (int u = 0; u < m; u++) for (int v = 0; v < m; v++)"
        " s += x[(i + u) * w + j + v]; Y[i * 64 + j] = s;",
        {"Y": 64, "x": 64},
        ({"m": 3, "w": 64}, {"m": 15, "w": 64}),
        64,
    ),
    "rows times vector": Loop(
        "float s = 0; for (int q = 0; q < m; q++) s += a[i * m + q] * x[q]; Y[i] = s;",
        {"Y": 1, "a": "m", "x": -512},
        _forms("m", 64, 512),
    ),
    "columns times vector": Loop(
        "float s = 0; for (int q = 0; q < m; q++) s += a[q * w + i] * x[q]; Y[i] = s;",
        {"Y": 1, "a": "m", "x": -512},
        ({"m": 16, "w": 0}, {"m": 128, "w": 0}),
    ),
    "product of tall matrices": Loop(
        "float s = 0; for (int q = 0; q < m; q++) s += a[i * m + q] * b[q * 64 + j]; Y[i * 64 + j] = s;",
        {"Y": 64, "a": "m", "b": -65536},
        _forms("m", 64, 1000),
        64,
    ),
    "nearest centre": Loop(
        "float best = 1e30f; int at = 0; for (int q = 0; q < m; q++) { float d = 0;"
        " for (int u = 0; u < 4; u++) { float v = x[4 * i + u] - c[4 * q + u]; d += v * v; }"
        " if (d < best) { best = d; at = q; } } Y[i] = at;",
        {"Y": 1, "x": 4, "c": -4096},
        _forms("m", 8, 200),
    ),
    "circle": Loop(
        "uint z = i * 747796405u + 1; int in = 0; for (int q = 0; q < m; q++) { z = z * 1664525u + 1013904223u;"
        " float u = (z >> 8) / 16777216.0f; z = z * 1664525u + 1013904223u; float v = (z >> 8) / 16777216.0f;"
        " in += u * u + v * v < 1; } s += in;",
        {},
        ({"m": 8, "s": np.float32(1)}, {"m": 128, "s": np.float32(1)}),
        reduction={"s": "+"},
    ),
    "tones": Loop("Y[i] = pow(x[i], 0.45f) * 255.0f;", {"Y": 1, "x": 1}),
    "gather": Loop("Y[i] = x[at[i]];", {"Y": 1, "x": 1, "at": 1}, integers=("at",)),
    "binary search": Loop(
        "int low = 0; for (int q = 1 << 19; q > 0; q >>= 1) if (low + q < m && t[low + q] <= at[i]) low += q;"
        " Y[i] = low;",
        {"Y": 1, "t": -1048576, "at": 1},
        _forms("m", 1 << 20),
        integers=("at", "t"),
    ),
    "filter": Loop(
        "float s = 0; for (int q = 0; q < m; q++) s += c[q] * x[i + q]; Y[i] = s;",
        {"Y": 1, "x": 1, "c": -1024},
        _forms("m", 9, 500),
    ),
    "hash": Loop(
        "uint z = as_uint(x[i]); for (int q = 0; q < m; q++) { z ^= z << 13; z ^= z >> 17; z ^= z << 5; z += q; }"
        " Y[i] = z & 0xffff;",
        {"Y": 1, "x": 1},
        _forms("m", 20, 1000),
    ),
    "trajectories": Loop(
        "float u = x[i], v = y[i], w = 20; for (int q = 0; q < m; q++) { float a = 10 * (v - u), b = u * (28 - w) - v,"
        " c = u * v - 2.667f * w; u += 0.001f * a; v += 0.001f * b; w += 0.001f * c; } U[i] = u; V[i] = v;",
        {"U": 1, "V": 1, "x": 1, "y": 1},
        _forms("m", 50, 2000),
    ),
    "three points": Loop(
        "if (i > 0 && i < m - 1) Y[i] = (x[i - 1] + x[i] + x[i + 1]) * 0.333f;", {"Y": 1, "x": 1}, ({"m": 0},)
    ),
    "transform": Loop(
        "float a = 0, b = 0; for (int q = 0; q < m; q++) { float g = 0.001f * q * (i & 1023); a += x[q] * cos(g);"
        " b += x[q] * sin(g); } A[i] = a; B[i] = b;",
        {"A": 1, "B": 1, "x": -4096},
        _forms("m", 30, 1000),
    ),
    "grey": Loop("Y[i] = 0.3f * x[3 * i] + 0.59f * x[3 * i + 1] + 0.11f * x[3 * i + 2];", {"Y": 1, "x": 3}),
    "normalised rows": Loop(
        "float s = 0; for (int q = 0; q < m; q++) s += x[i * m + q] * x[i * m + q]; s = rsqrt(s + 1);"
        " for (int q = 0; q < m; q++) Y[i * m + q] = x[i * m + q] * s;",
        {"Y": "m", "x": "m"},
        _forms("m", 16, 256),
    ),
    "sums of rows": Loop(
        "float s = 0; for (int q = 0; q < m; q++) { s += x[i * m + q]; Y[i * m + q] = s; }",
        {"Y": "m", "x": "m"},
        _forms("m", 8, 256),
    ),
    "divided squares": Loop(
        "float s = x[i] + 2; for (int q = 0; q < m; q++) s = 0.5f * (s + x[i] / s); Y[i] = sqrt(s);",
        {"Y": 1, "x": 1},
        _forms("m", 4, 100),
    ),
}
BEHIND = 1024
"""Elements of inputs behind those of the last point, which points before it look at as well."""
_BYTES = 1 << 28
"""Of all arrays of a loop, at most."""


def _elements(loop: Loop, scalars: Mapping[str, Any]) -> dict[str, int]:
    """What ``Loop.arrays`` says, of a form. Arrays are no larger than what is used of them: a whole launch moves them
    as they are, slices what they need."""
    return {name: scalars[each] if isinstance(each, str) else each for name, each in loop.arrays.items()}


def _made(loop: Loop, scalars: Mapping[str, Any], size: int) -> Case:
    """A loop's inputs; those of its scalars that are 0 are how many points there are."""
    random = np.random.default_rng(9)
    points = max(size // max(loop.columns, 1), 64)
    given: dict[str, Any] = {}
    for name, each in _elements(loop, scalars).items():
        count = -each if each < 0 else each * points + (0 if name.isupper() else BEHIND)
        if name.isupper():
            given[name] = np.zeros(count, np.float32)
        elif name in loop.integers:
            values = random.integers(0, points, min(count, 1 << 20)).astype(np.int32)
            given[name] = np.resize(np.sort(values) if each < 0 else values, count)
        else:
            given[name] = np.resize(random.uniform(0, 1, min(count, 1 << 20)).astype(np.float32), count)
    given |= {name: value or points for name, value in scalars.items()}
    written: dict[str, Any] = {name: None for name in given if name.isupper()}
    return Case({**given, "points": points}, written)


def _enqueue(loop: Loop) -> Enqueue:
    def enqueue(queue: mc.Queue, **given: Any) -> Any:
        points = given.pop("points")
        space, local = ((points, loop.columns), (1, loop.columns)) if loop.columns else (points, None)
        if loop.reduction:
            return mc.parallel_for(points, loop.body, queue=queue, reduction=loop.reduction, arguments=given)
        return mc.parallel_for(space, loop.body, queue=queue, local=local, arguments=given)

    return enqueue


def _own(name: str, form: int) -> Sampled:
    loop = OWN[name]
    scalars = loop.scalars[form]
    each = sum(n for n in _elements(loop, scalars).values() if n > 0) / max(loop.columns, 1)
    most = int(_BYTES / 4 / max(each, 1))

    def make(size: int) -> Case:
        return _made(loop, scalars, size)

    return Sampled(name, make, _enqueue(loop), min(1 << 16, most), most)


def _hopping(name: str) -> Sampled:
    return Sampled(name, CASES[name], LOOPS[name], SIZES[name] // 8, MOST[name], POWERS.get(name, 1.0))


def sampled() -> tuple[Sampled, ...]:
    """All that is sampled: first each kernel once. Sparse matrices are not, which have a rule of their own (Section
    4.5): how often their loops run, features do not tell."""
    hopping = [_hopping(name) for name in CASES if name != "SPMV"]
    first = [_own(name, 0) for name in OWN]
    return (*first, *hopping, *(_own(name, form) for name in OWN for form in range(1, len(OWN[name].scalars))))
