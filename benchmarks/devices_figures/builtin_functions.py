"""What built-in functions cost on native devices, in loops that clang vectorises, beside one call at a time.

By function and type, ns an element, the thread's CPU time, least of all repeats: vector: a loop over 16,384 elements;
scalar: the same loop with vectorisation forbidden; libm: the C library's function for the type, called by such a loop.
same: whether vector and scalar have the same bits. compile_ms, found_ms: a program of 54 kernels that calls all of
them, made and found again in the cache; small_ms: a program of one kernel.
"""

from __future__ import annotations

import ctypes
import functools
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import common
import numpy as np

from manycl.drivers.native.compiler import clang
from manycl.drivers.native.compiler.compiling import compile_kernels
from manycl.drivers.native.compiler.library import load_object

ONE = (
    *("sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tan", "asin", "atan", "sinh"),
    *("tanh", "asinh", "atanh", "erf", "erfc", "cbrt", "sinpi", "round"),
)
TWO = ("pow", "atan2", "hypot", "fmod", "remainder")
NOT_IN_C = ("rsqrt", "sinpi")
LENGTH = 1 << 14
SMALL = "void k(ulong n, __global float *r, __global const float *a) { for (ulong i = 0; i < n; i++) r[i] += a[i]; }"


def kernel(kind: str, name: str, way: str) -> str:
    given = "a[i], b[i]" if name in TWO else "a[i]"
    pragma = "vectorize(assume_safety)" if way == "vector" else "vectorize(disable) interleave(disable)"
    call = f"{name}({given})"
    head = ""
    if way == "libm":
        call = f"c_{kind}_{name}({given})"
        parameters = ", ".join([kind] * given.count("["))
        symbol = name if kind == "double" else f"{name}f"
        head = f'__attribute__((weak)) {kind} c_{kind}_{name}({parameters}) __asm__("{symbol}");\n'
    return (
        f"{head}void {way}_{name}_{kind}"
        f"(ulong n, __global {kind} *r, __global const {kind} *a, __global const {kind} *b)"
        f' {{ _Pragma("clang loop {pragma}") for (ulong i = 0; i < n; i++) r[i] = {call}; }}'
    )


def least(repeats: int, call: Callable[[], Any]) -> int:
    times = []
    for _ in range(repeats):
        start = time.thread_time_ns()
        call()
        times.append(time.thread_time_ns() - start)
    return min(times)


def measured(repeats: int, kind: str, names: tuple[str, ...]) -> dict[str, Any]:
    ways = ("vector", "scalar", "libm")
    pairs = [(n, w) for n in names for w in ways if w != "libm" or n not in NOT_IN_C]
    lib = load_object(compile_kernels("\n".join(kernel(kind, n, w) for n, w in pairs)), ctypes.CDLL)
    random = np.random.default_rng(1)
    dtype = np.float32 if kind == "float" else np.float64
    a, b = random.uniform(0.1, 0.99, LENGTH).astype(dtype), random.uniform(0.1, 4, LENGTH).astype(dtype)
    found: dict[str, Any] = {}
    results: dict[tuple[str, str], np.ndarray] = {}
    for name, way in pairs:
        result = results[name, way] = np.zeros_like(a)
        given = [ctypes.c_ulong(LENGTH), *(ctypes.c_void_p(x.ctypes.data) for x in (result, a, b))]
        function = getattr(lib, f"{way}_{name}_{kind}")
        found[f"{name}_{kind}_{way}_ns"] = least(repeats, functools.partial(function, *given)) / LENGTH
    for name in names:
        found[f"{name}_{kind}_same"] = results[name, "vector"].tobytes() == results[name, "scalar"].tobytes()
    return found


def compiled() -> dict[str, float]:
    text = "\n".join(kernel("float", name, way) for name in (*ONE, *TWO) for way in ("vector", "scalar"))
    figures = {}
    for name, source in (("compile_ms", text), ("found_ms", text), ("small_ms", SMALL)):
        start = time.perf_counter()
        compile_kernels(source)
        figures[name] = 1e3 * (time.perf_counter() - start)
    return figures


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--function", action="append", help="only this one; may be given several times")
    args = parser.parse_args()
    names = tuple(args.function or (*ONE, *TWO))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MANYCL_CACHE"] = folder
        found = clang.find()
        compile_kernels("void k(void) {}")  # what is made once
        figures: dict[str, Any] = (
            compiled() | measured(args.repeats, "float", names) | measured(args.repeats, "double", names)
        )
    common.report(args, figures, {"clang": found.version, "processor": found.processor})
