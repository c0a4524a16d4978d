"""Inputs of Device-Hopping's nine benchmarks (Table 3; from SHOC and Rodinia, written anew), and what must come out.

Each makes a :class:`Case` of a size: roughly the points of its iteration space. References are NumPy's and hashlib's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from manycl.run.data.host_memory import ram_bytes
from manycl_bench.hopping.model import TABLE_3

FFT_POINTS = 512
"""Of one transform, as in SHOC."""
ORDER = 32
"""Children of a node of the B+ trees."""
WIDEST = 1000
"""Numbers in an interval that is looked up, at most."""
ROOM = min(ram_bytes() // 32, 1 << 32)
"""Bytes of a benchmark's arrays, at most: making and checking them takes several times as much, and places in larger
ones are no ints."""
DIGITS = 8
"""Digits of a key whose digest is searched for."""


class Case(NamedTuple):
    """``given``: arrays and numbers by name, those that are written among them; ``expected``: what those have then, and
    results of reductions, made when they are first asked for (sizes are tried out without); ``tolerance``: how far off,
    in parts of the largest value (0: not at all)."""

    given: dict[str, Any]
    expected: dict[str, Callable[[], Any]]
    tolerance: float = 0.0

    def check(self, found: Mapping[str, Any]) -> list[str]:
        """The names of what is wrong."""
        return [name for name, value in self.expected.items() if not self._is_right(value(), found[name])]

    def _is_right(self, expected: Any, found: Any) -> bool:
        if not self.tolerance:
            return bool(np.array_equal(expected, found))
        most = float(np.max(np.abs(expected))) * self.tolerance
        return bool(np.all(np.abs(np.asarray(found) - expected) <= most))


def find_k(size: int) -> Case:
    """Keys looked up in a B+ tree: the value of each, or -1."""
    tree, values, below = _tree(max(size, 2))
    random = np.random.default_rng(1)
    wanted = random.integers(0, 4 * len(values), size, np.int32)
    place = below[wanted]
    answers = np.where(below[wanted + 1] > place, values[np.minimum(place, len(values) - 1)], -1).astype(np.int32)
    return Case({**tree, "wanted": wanted, "answers": np.zeros(size, np.int32)}, {"answers": lambda: answers})


def find_range(size: int) -> Case:
    """Intervals of keys looked up in a B+ tree: the place of the first key in each, and how many there are."""
    tree, values, below = _tree(max(size, 2))
    random = np.random.default_rng(2)
    low = random.integers(0, 4 * len(values), size, np.int32)
    high = low + random.integers(0, WIDEST, size, np.int32)
    first = below[low]
    count = below[high + 1] - first
    out = {"first": np.zeros(size, np.int32), "count": np.zeros(size, np.int32)}
    del tree["values"]
    return Case({**tree, "low": low, "high": high, **out}, {"first": lambda: first, "count": lambda: count})


def _tree(size: int) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """A B+ tree as one array of keys, level by level from the root: of every node the least keys of its children, as
    many as ORDER (the largest int where there are none), the last level the leaves' own keys; ``starts`` has where
    levels begin. Children of entry e of a level are the node number e of the next. Beside it the keys' values, and of
    every number that may be asked for how many keys are below it."""
    random = np.random.default_rng(3)
    is_key = np.zeros(4 * size + WIDEST, bool)
    is_key[random.integers(0, 4 * size, size)] = True
    keys = np.flatnonzero(is_key).astype(np.int32)
    below = np.concatenate([[0], np.cumsum(is_key, dtype=np.int32)]).astype(np.int32, copy=False)
    levels = [keys]
    while len(levels[0]) > ORDER:
        levels.insert(0, levels[0][::ORDER])
    padded = []
    for level in levels:
        room = np.full(-(-len(level) // ORDER) * ORDER, np.iinfo(np.int32).max, np.int32)
        room[: len(level)] = level
        padded.append(room)
    starts = np.cumsum([0, *map(len, padded[:-1])]).astype(np.int32)
    values = random.integers(0, 1 << 30, len(keys), np.int32)
    tree = {"keys": np.concatenate(padded), "starts": starts, "values": values, "levels": len(levels), "n": len(keys)}
    return tree, values, below


def nearest_neighbor(size: int) -> Case:
    """The distance of every record from one place."""
    random = np.random.default_rng(4)
    places = random.random((size, 2), np.float32) * np.float32(90.0)
    distances = np.hypot(*(places - np.array([30.0, 60.0], np.float32)).T)
    given = {"places": places, "distances": np.zeros(size, np.float32), "lat": 30.0, "lng": 60.0}
    return Case(given, {"distances": lambda: distances}, 1e-5)


def md5(size: int) -> Case:
    """The number, of as many as the size, whose seven decimal digits have a digest."""
    wanted = size * 3 // 4
    digest = hashlib.md5(f"{wanted:0{DIGITS}d}".encode(), usedforsecurity=False).digest()
    words = [int(word) for word in np.frombuffer(digest, "<u4")]
    sines = (np.abs(np.sin(np.arange(1.0, 65.0))) * 2**32).astype(np.uint32)
    given: dict[str, Any] = {"points": size, "sines": sines}
    given |= {f"digest{i}": np.uint32(word) for i, word in enumerate(words)}
    return Case(given, {"found": lambda: wanted})


def _transforms(size: int, inverse: bool) -> Case:
    random = np.random.default_rng(5)
    count = max(size // FFT_POINTS, 1)
    data = random.uniform(-1, 1, (count, FFT_POINTS, 2)).astype(np.float32).view(np.complex64)[..., 0]
    transform = np.fft.ifft if inverse else np.fft.fft
    out = cache(lambda: transform(data.astype(np.complex128), axis=1))
    return Case({"data": data, "out": np.zeros_like(data)}, {"out": out}, 1e-5)


def fft(size: int) -> Case:
    """Transforms of 512 points each."""
    return _transforms(size, inverse=False)


def inverse_fft(size: int) -> Case:
    """Inverse transforms likewise."""
    return _transforms(size, inverse=True)


def gemm(size: int) -> Case:
    """The product of two square matrices."""
    n = max(int(size**0.5), 1)
    random = np.random.default_rng(6)
    a, b = random.uniform(-1, 1, (2, n, n)).astype(np.float32)
    product = cache(lambda: a.astype(np.float64) @ b.astype(np.float64))
    return Case({"a": a, "b": b, "c": np.zeros((n, n), np.float32), "n": n}, {"c": product}, 1e-5)


def reduction(size: int) -> Case:
    """The sum of an array."""
    x = np.random.default_rng(7).random(size, np.float32)
    return Case({"x": x}, {"s": cache(lambda: x.sum(dtype=np.float64))}, 1e-5)


def spmv(size: int) -> Case:
    """A sparse matrix in compressed rows, times a vector."""
    random = np.random.default_rng(8)
    lengths = random.integers(0, 40, size)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    count = max(int(starts[-1]), 1)
    columns = random.integers(0, size, count, np.int32)
    values = random.random(count, np.float32) * np.float32(2.0) - np.float32(1.0)
    x = random.uniform(-1, 1, size).astype(np.float32)

    @cache
    def y() -> Any:
        products = np.concatenate([[0.0], np.cumsum(values.astype(np.float64) * x[columns])])
        return products[starts[1:]] - products[starts[:-1]]

    given = {"starts": starts, "columns": columns, "values": values, "x": x, "y": np.zeros(size, np.float32)}
    return Case(given, {"y": y}, 1e-4)


CASES: Mapping[str, Callable[[int], Case]] = dict(
    zip(TABLE_3, (find_k, find_range, nearest_neighbor, md5, fft, gemm, inverse_fft, reduction, spmv), strict=True)
)
"""By the names of Table 3."""
SIZES = dict(
    zip(TABLE_3, (1 << 18, 1 << 17, 1 << 22, 1 << 17, 1 << 20, 1 << 18, 1 << 20, 1 << 24, 1 << 18), strict=True)
)
"""Points that take two cores some ten milliseconds."""
BYTES = dict(zip(TABLE_3, (20, 24, 12, 0, 16, 12, 16, 4, 172), strict=True))
"""Of arrays, per point."""
MOST = {name: ROOM // each if each else 10**DIGITS for name, each in BYTES.items()}
"""The largest sizes."""
POWERS = {"GEMM": 2 / 3}
"""A benchmark's size grows as this power of its time; others' in proportion."""
