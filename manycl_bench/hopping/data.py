"""Inputs of Device-Hopping's nine benchmarks (Table 3; from SHOC and Rodinia, written anew), and what must come out.

Each makes a :class:`Case` of a size: roughly the points of its iteration space. References are NumPy's and hashlib's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from manycl_bench.hopping.model import TABLE_3

FFT_POINTS = 512
"""Of one transform, as in SHOC."""
ORDER = 32
"""Children of a node of the B+ trees."""
DIGITS = 7
"""Digits of a key whose digest is searched for."""


class Case(NamedTuple):
    """``given``: arrays and numbers by name, those that are written among them; ``expected``: what those have then, and
    results of reductions; ``tolerance``: how far off, in parts of the largest value (0: not at all)."""

    given: dict[str, Any]
    expected: dict[str, Any]
    tolerance: float = 0.0

    def check(self, found: Mapping[str, Any]) -> list[str]:
        """The names of what is wrong."""
        return [name for name, value in self.expected.items() if not self._is_right(value, found[name])]

    def _is_right(self, expected: Any, found: Any) -> bool:
        if not self.tolerance:
            return bool(np.array_equal(expected, found))
        most = float(np.max(np.abs(expected))) * self.tolerance
        return bool(np.all(np.abs(np.asarray(found) - expected) <= most))


def find_k(size: int) -> Case:
    """Keys looked up in a B+ tree: the value of each, or -1."""
    tree, keys, values = _tree(max(size, 2))
    random = np.random.default_rng(1)
    wanted = random.integers(0, 4 * len(keys), size).astype(np.int32)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    answers = np.where(keys[place] == wanted, values[place], -1).astype(np.int32)
    return Case({**tree, "wanted": wanted, "answers": np.zeros(size, np.int32)}, {"answers": answers})


def find_range(size: int) -> Case:
    """Intervals of keys looked up in a B+ tree: the place of the first key in each, and how many there are."""
    tree, keys, _ = _tree(max(size, 2))
    random = np.random.default_rng(2)
    low = random.integers(0, 4 * len(keys), size).astype(np.int32)
    high = (low + random.integers(0, 1000, size)).astype(np.int32)
    first = np.searchsorted(keys, low).astype(np.int32)
    count = (np.searchsorted(keys, high, side="right") - first).astype(np.int32)
    out = {"first": np.zeros(size, np.int32), "count": np.zeros(size, np.int32)}
    del tree["values"]
    return Case({**tree, "low": low, "high": high, **out}, {"first": first, "count": count})


def _tree(size: int) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """A B+ tree as one array of keys, level by level from the root: of every node the least keys of its children, as
    many as ORDER (the largest int where there are none), the last level the leaves' own keys; ``starts`` has where
    levels begin. Children of entry e of a level are the node number e of the next."""
    random = np.random.default_rng(3)
    keys = np.unique(random.integers(0, 4 * size, size).astype(np.int32))
    levels = [keys]
    while len(levels[0]) > ORDER:
        levels.insert(0, levels[0][::ORDER])
    padded = []
    for level in levels:
        room = np.full(-(-len(level) // ORDER) * ORDER, np.iinfo(np.int32).max, np.int32)
        room[: len(level)] = level
        padded.append(room)
    starts = np.cumsum([0, *map(len, padded[:-1])]).astype(np.int32)
    values = random.permutation(len(keys)).astype(np.int32)
    tree = {"keys": np.concatenate(padded), "starts": starts, "values": values, "levels": len(levels), "n": len(keys)}
    return tree, keys, values


def nearest_neighbor(size: int) -> Case:
    """The distance of every record from one place."""
    random = np.random.default_rng(4)
    places = random.uniform(0, 90, (size, 2)).astype(np.float32)
    distances = np.sqrt(((places.astype(np.float64) - [30.0, 60.0]) ** 2).sum(axis=1))
    given = {"places": places, "distances": np.zeros(size, np.float32), "lat": 30.0, "lng": 60.0}
    return Case(given, {"distances": distances}, 1e-5)


def md5(size: int) -> Case:
    """The number, of as many as the size, whose seven decimal digits have a digest."""
    wanted = size * 3 // 4
    digest = hashlib.md5(f"{wanted:0{DIGITS}d}".encode(), usedforsecurity=False).digest()
    words = [int(word) for word in np.frombuffer(digest, "<u4")]
    sines = (np.abs(np.sin(np.arange(1.0, 65.0))) * 2**32).astype(np.uint32)
    given: dict[str, Any] = {"points": size, "sines": sines}
    given |= {f"digest{i}": np.uint32(word) for i, word in enumerate(words)}
    return Case(given, {"found": wanted})


def _transforms(size: int, inverse: bool) -> Case:
    random = np.random.default_rng(5)
    count = max(size // FFT_POINTS, 1)
    data = random.uniform(-1, 1, (count, FFT_POINTS, 2)).astype(np.float32).view(np.complex64)[..., 0]
    out = (np.fft.ifft if inverse else np.fft.fft)(data.astype(np.complex128), axis=1)
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
    product = a.astype(np.float64) @ b.astype(np.float64)
    return Case({"a": a, "b": b, "c": np.zeros((n, n), np.float32), "n": n}, {"c": product}, 1e-5)


def reduction(size: int) -> Case:
    """The sum of an array."""
    x = np.random.default_rng(7).uniform(0, 1, size).astype(np.float32)
    return Case({"x": x}, {"s": x.sum(dtype=np.float64)}, 1e-5)


def spmv(size: int) -> Case:
    """A sparse matrix in compressed rows, times a vector."""
    random = np.random.default_rng(8)
    lengths = random.integers(0, 40, size)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    count = max(int(starts[-1]), 1)
    columns = random.integers(0, size, count).astype(np.int32)
    values = random.uniform(-1, 1, count).astype(np.float32)
    x = random.uniform(-1, 1, size).astype(np.float32)
    products = np.concatenate([[0.0], np.cumsum(values.astype(np.float64) * x[columns])])
    y = products[starts[1:]] - products[starts[:-1]]
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
MOST = {name: 10**DIGITS if name == "MD5Hash" else 1 << 26 for name in TABLE_3} | dict.fromkeys(
    ("B+Tree Find K", "B+Tree Find Range", "SPMV"), 1 << 23
)
"""The largest sizes, of which inputs are made in some seconds."""
POWERS = {"GEMM": 2 / 3}
"""A benchmark's size grows as this power of its time; others' in proportion."""
