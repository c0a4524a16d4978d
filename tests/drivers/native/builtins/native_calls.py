"""Built-in functions as NumPy calls them: element by element, and as vectors of each width."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

import numpy as np

from manycl.drivers.native.compiler.compiling import compile_kernels
from manycl.drivers.native.compiler.library import load_object

WIDTHS = (2, 3, 4, 8, 16)
TYPES = {
    "char": np.int8, "uchar": np.uint8, "short": np.int16, "ushort": np.uint16, "int": np.int32, "uint": np.uint32,
    "long": np.int64, "ulong": np.uint64, "float": np.float32, "double": np.float64,
}  # fmt: skip
_LANES = "0123456789abcdef"
_NAMES = "abcd"
_LOOP = '_Pragma("clang loop unroll(disable)")', '_Pragma("clang loop vectorize(disable) unroll(disable)")'
"""Loops of scalars become vectors, as in kernels; what are vectors is compiled once, not for several turns together:
three quarters of the time of these tests would be for the compiler's copies of loops."""


@functools.cache
def library(content: bytes) -> ctypes.CDLL:
    return load_object(content, ctypes.CDLL)


def entry(name: str, call: str, result: str, given: Sequence[str], width: int = 1, outs: Sequence[str] = ()) -> str:
    """A function of arrays: ``r[i] = call`` for vectors made of ``width`` elements that follow one another. In
    ``call``, ``a``, ``b``, ... are the arguments, ``P`` and ``Q`` pointers to what it writes beside its
    result (``outs``)."""
    vector = (lambda kind: kind) if width == 1 else (lambda kind: f"{kind}{width}")
    parameters = [f"__global {result} *r", *(f"__global const {k} *{n}_" for k, n in zip(given, _NAMES, strict=False))]
    parameters += [f"__global {k} *{n}_" for k, n in zip(outs, "pq", strict=False)]
    lines = []
    for kind, n in zip(given, _NAMES, strict=False):
        values = ", ".join(f"{n}_[i * {width} + {j}]" for j in range(width))
        lines.append(f"{vector(kind)} {n} = ({vector(kind)})({values});")
    lines += [f"{vector(k)} {n};" for k, n in zip(outs, "pq", strict=False)]
    lines.append(f"{vector(result)} v = {call.replace('P', '&p').replace('Q', '&q')};")
    for n, array in (("v", "r"), *((n, f"{n}_") for n in "pq"[: len(outs)])):
        for j in range(width):
            lines.append(f"{array}[i * {width} + {j}] = {n}{'' if width == 1 else f'.s{_LANES[j]}'};")
    body = " ".join(lines)
    loop = f"{_LOOP[width > 1]} for (ulong i = 0; i < n; i++) {{ {body} }}"
    return f"void {name}(ulong n, {', '.join(parameters)}) {{ {loop} }}"


def run(text: str, name: str, result: str, arrays: Sequence[np.ndarray], width: int = 1, outs: Sequence[str] = ()):
    """What an entry of a text makes of arrays, all of one length: its results, or these and what it writes."""
    lib = library(compile_kernels(text))
    n = len(arrays[0]) // width
    made = [np.zeros(n * width, TYPES[kind]) for kind in (result, *outs)]
    pointers = [a.ctypes.data for a in (made[0], *arrays, *made[1:])]
    getattr(lib, name)(ctypes.c_ulong(n), *map(ctypes.c_void_p, pointers))
    return made[0] if not outs else tuple(made)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Bit for bit, but for what NaN holds."""
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    bits = np.uint32 if a.dtype == np.float32 else np.uint64
    return bool(((a.view(bits) == b.view(bits)) | (np.isnan(a) & np.isnan(b))).all())
