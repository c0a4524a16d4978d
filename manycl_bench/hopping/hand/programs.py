"""The nine benchmarks written by hand: for each its kernel, arrays and sections, and how results are merged."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from manycl_bench.hopping.hand.migration import Migrating, Program, Shared
from manycl_bench.hopping.model import TABLE_3

IsFree = Callable[[], bool]
TEXT = Path(__file__).with_name("kernels.cl")


def source(*names: str) -> str:
    """The parts of those names of the kernels' file."""
    text = TEXT.read_text(encoding="utf-8")
    parts = dict(re.findall(r"/\* begin (\w+) \*/\n(.*?)/\* end \*/", text, re.DOTALL))
    return "\n".join(parts[name] for name in names)


def each(count: int = 1) -> Callable[[int, int], tuple[int, int]]:
    """Sections of so many elements a point."""
    return lambda first, last: (first * count, last * count)


def find_k(slow: Any, fast: Any, is_free: IsFree, **given: Any) -> Migrating:
    arrays = [
        Shared(given["keys"]),
        Shared(given["starts"]),
        Shared(given["values"]),
        Shared(given["wanted"], each()),
        Shared(given["answers"], each(), reads=False, writes=True),
    ]
    text, numbers = source("descend", "find_k"), [np.int32(given["levels"])]
    program = Program(text, "find_k", given["wanted"].size, arrays, numbers, options=["-DORDER=32"])
    migrating = Migrating(program, slow, fast)
    migrating.run(is_free)
    return migrating


def find_range(slow: Any, fast: Any, is_free: IsFree, **given: Any) -> Migrating:
    arrays = [
        Shared(given["keys"]),
        Shared(given["starts"]),
        Shared(given["low"], each()),
        Shared(given["high"], each()),
        Shared(given["first"], each(), reads=False, writes=True),
        Shared(given["count"], each(), reads=False, writes=True),
    ]
    text, numbers = source("descend", "find_range"), [np.int32(given["levels"])]
    program = Program(text, "find_range", given["low"].size, arrays, numbers, options=["-DORDER=32"])
    migrating = Migrating(program, slow, fast)
    migrating.run(is_free)
    return migrating


def nearest_neighbor(slow: Any, fast: Any, is_free: IsFree, **given: Any) -> Migrating:
    arrays = [Shared(given["places"], each(2)), Shared(given["distances"], each(), reads=False, writes=True)]
    numbers = [np.float32(given["lat"]), np.float32(given["lng"])]
    program = Program(source("nearest_neighbor"), "nearest_neighbor", given["distances"].size, arrays, numbers)
    migrating = Migrating(program, slow, fast)
    migrating.run(is_free)
    return migrating


def md5(slow: Any, fast: Any, is_free: IsFree, **given: Any) -> Migrating:
    is_found = np.zeros(given["points"], np.uint8)
    found = [-1]

    def merge(first: int, last: int) -> None:
        here = np.flatnonzero(is_found[first:last])
        if len(here):
            found[0] = max(found[0], first + int(here[-1]))

    arrays = [Shared(given["sines"]), Shared(is_found, each(), reads=False, writes=True)]
    wanted = np.array([given[f"digest{i}"] for i in range(4)], np.uint32)
    program = Program(source("md5"), "md5", given["points"], arrays, [wanted], options=["-DDIGITS=8"], merge=merge)
    migrating = Migrating(program, slow, fast)
    migrating.run(is_free)
    given["results"]["found"] = found[0]
    return migrating


def transform(slow: Any, fast: Any, is_free: IsFree, sign: str, scale: str, given: Mapping[str, Any]) -> Migrating:
    arrays = [Shared(given["data"], each(512)), Shared(given["out"], each(512), reads=False, writes=True)]
    options = ["-DPOINTS=512", f"-DSIGN={sign}", f"-DSCALE={scale}"]
    points = given["out"].size // 512
    program = Program(source("fft"), "fft", points, arrays, slice_points=64, local=16, options=options)
    migrating = Migrating(program, slow, fast)
    migrating.run(is_free)
    return migrating


def fft(slow: Any, fast: Any, is_free: IsFree, **given: Any) -> Migrating:
    return transform(slow, fast, is_free, "-1.0f", "1.0f", given)


def inverse_fft(slow: Any, fast: Any, is_free: IsFree, **given: Any) -> Migrating:
    return transform(slow, fast, is_free, "1.0f", "(1.0f/POINTS)", given)


def gemm(slow: Any, fast: Any, is_free: IsFree, **given: Any) -> Migrating:
    n = given["n"]
    arrays = [Shared(given["a"], each(n)), Shared(given["b"]), Shared(given["c"], each(n), reads=False, writes=True)]
    program = Program(source("gemm"), "gemm", n, arrays, [np.int32(n)], slice_points=16, local=4)
    migrating = Migrating(program, slow, fast)
    migrating.run(is_free)
    return migrating


def reduction(slow: Any, fast: Any, is_free: IsFree, **given: Any) -> Migrating:
    points = given["x"].size
    part = np.zeros(-(-points // 64), np.float32)
    total = [0.0]

    def merge(first: int, last: int) -> None:
        total[0] += float(part[first // 64 : -(-last // 64)].sum(dtype=np.float64))

    def groups(first: int, last: int) -> tuple[int, int]:
        return first // 64, -(-last // 64)

    arrays = [Shared(given["x"], each()), Shared(part, groups, reads=False, writes=True)]
    program = Program(source("reduction"), "reduction", points, arrays, merge=merge)
    migrating = Migrating(program, slow, fast)
    migrating.run(is_free)
    given["results"]["s"] = total[0]
    return migrating


def spmv(slow: Any, fast: Any, is_free: IsFree, **given: Any) -> Migrating:
    starts = given["starts"]

    def rows(first: int, last: int) -> tuple[int, int]:
        return int(starts[first]), int(starts[last])

    arrays = [
        Shared(starts, lambda first, last: (first, last + 1)),
        Shared(given["columns"], rows),
        Shared(given["values"], rows),
        Shared(given["x"]),
        Shared(given["y"], each(), reads=False, writes=True),
    ]
    program = Program(source("spmv"), "spmv", given["y"].size, arrays)
    migrating = Migrating(program, slow, fast)
    migrating.run(is_free)
    return migrating


_PROGRAMS: tuple[Callable[..., Migrating], ...] = (find_k, find_range, nearest_neighbor, md5, fft, gemm, inverse_fft)
PROGRAMS: Mapping[str, Callable[..., Migrating]] = dict(zip(TABLE_3, (*_PROGRAMS, reduction, spmv), strict=True))
"""By the names of Table 3; each is called with the slow and the fast device, whether that is free, and a case's inputs;
``results``: a dictionary for what is no array."""
KERNELS: Mapping[str, tuple[str, ...]] = {
    "B+Tree Find K": ("descend", "find_k"),
    "B+Tree Find Range": ("descend", "find_range"),
    "Inverse FFT": ("fft",),
}
"""The parts of the kernels' file that a program uses; of the others, that of its own name."""
