"""Operations on arrays that are no chains of elements: running sums, sorting, collecting and scattering elements, and
products of matrices. Each is a text of OpenCL C for all types; elements are put together in the same order on every
device."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from manycl.api.arrays.arrays import Array
from manycl.api.arrays.deferred import DType
from manycl.api.arrays.elementwise import EACH, accumulated, computed, loaded, named, stored
from manycl.api.program import Kernel, Program
from manycl.group_range import GROUP

TILE = math.isqrt(GROUP)
"""Rows and columns of a product that a group computes; our own choice: a work-item for each fits all devices."""
_TEXTS = {
    "scan": """
kernel void scan(global T *out, global const A *a, long n) {
  local T part[GROUP];
  long me = get_local_id(0), row = get_global_id(1), first = (get_group_id(0) * GROUP + me) * EACH;
  T x = UNIT;
  for (int k = 0; k < EACH; k++)
    if (first + k < n) { T y = AT(row * n + first + k); x = BOTH; }
  part[me] = x;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int apart = 1; apart < GROUP; apart *= 2) {
    T y = part[me];
    x = me >= apart ? part[me - apart] : UNIT;
    barrier(CLK_LOCAL_MEM_FENCE);
    part[me] = BOTH;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  x = me > 0 ? part[me - 1] : UNIT;
  for (int k = 0; k < EACH; k++)
    if (first + k < n) { T y = AT(row * n + first + k); x = BOTH; out[row * n + first + k] = x; }
}""",
    "shift": """
kernel void shift(global T *out, global const T *before, long n, long blocks) {
  long i = get_global_id(0), row = get_global_id(1), block = i / (GROUP * EACH);
  if (i < n && block > 0) {
    T x = before[row * blocks + block - 1], y = out[row * n + i];
    out[row * n + i] = BOTH;
  }
}""",
    "count": """
kernel void count(global uint *counts, global const A *keys, long n, long blocks, uint bits) {
  long block = get_global_id(0), row = get_global_id(1), end = min(n, (block + 1) * PART);
  uint found[256];
  for (int d = 0; d < 256; d++) found[d] = 0;
  for (long i = block * PART; i < end; i++) {
    A key = keys[row * n + i];
    found[(KEY >> bits) & 255]++;
  }
  for (int d = 0; d < 256; d++) counts[(row * 256 + d) * blocks + block] = found[d];
}""",
    "place": """
kernel void place(global A *out, global long *places, global const A *keys, global const long *indices,
                  global const uint *counts, global const uint *until, long n, long blocks, uint bits, int is_first) {
  long block = get_global_id(0), row = get_global_id(1), end = min(n, (block + 1) * PART);
  uint next[256];
  for (int d = 0; d < 256; d++) {
    long at = (row * 256 + d) * blocks + block;
    next[d] = until[at] - counts[at];
  }
  for (long i = block * PART; i < end; i++) {
    A key = keys[row * n + i];
    long to = row * n + next[(KEY >> bits) & 255]++;
    out[to] = key;
    WITH(places[to] = is_first ? i : indices[row * n + i])
  }
}""",
    "collect": """
kernel void collect(global A *out, global const A *a, global const long *at, long inner, long first,
                    long step) {
  long j = get_global_id(0), i = get_global_id(1);
  if (j < inner) out[i * inner + j] = a[first + at[i] + j * step];
}""",
    "last": """
kernel void last(global int *winner, global const long *element) {
  long i = get_global_id(0);
  atomic_max(&winner[element[i]], (int)i);
}""",
    "scatter": """
kernel void scatter(global A *out, global const A *a, global const long *at, global const long *element,
                    global const int *winner, long inner, long first, long step) {
  long j = get_global_id(0), i = get_global_id(1);
  if (j < inner && winner[element[i]] == i) out[first + at[i] + j * step] = a[i * inner + j];
}""",
    "found": """
kernel void found(global long *out, global const uchar *mask, global const long *until, long n) {
  long i = get_global_id(0);
  if (i < n && mask[i]) out[until[i] - 1] = i;
}""",
    "bisect": """
kernel void bisect(global long *out, global const A *a, global const A *v, long n, long m, int right) {
  long i = get_global_id(0);
  if (i < m) {
    A x = v[i];
    long low = 0, high = n;
    while (low < high) {
      long mid = low + (high - low) / 2;
      A y = a[mid];
      int is_less = right ? !(LESS(x, y)) : LESS(y, x);
      low = is_less ? mid + 1 : low;
      high = is_less ? high : mid;
    }
    out[i] = low;
  }
}""",
    "matmul": """
kernel void matmul(global A *c, global const A *a, global const A *b, long m, long n, long inner, long planes_a,
                   long planes_b) {
  local T left[TILE][TILE + 1], right[TILE][TILE + 1];
  long x = get_local_id(0), y = get_local_id(1), column = get_global_id(0), row = get_global_id(1);
  long plane = get_global_id(2), a0 = plane * planes_a, b0 = plane * planes_b;
  T value = 0;
  for (long first = 0; first < inner; first += TILE) {
    left[y][x] = row < m && first + x < inner ? AT(a, a0 + row * inner + first + x) : 0;
    right[y][x] = column < n && first + y < inner ? AT(b, b0 + (first + y) * n + column) : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < TILE; k++) { T u = left[y][k], v = right[k][x]; value = MORE; }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (row < m && column < n) STORE(plane * m * n + row * n + column);
}""",
}


def _part() -> int:
    """Return how many elements a work-item puts in order, in each pass by 8 bits."""
    return 8 * GROUP


@lru_cache(maxsize=256)
def kernel(name: str, dtype: DType, words: tuple[tuple[str, str], ...] = ()) -> Kernel:
    """Return a kernel of the texts for elements of a type. ``words``: what its other names stand for."""
    defined = {"T": computed(dtype), "A": named(dtype), "GROUP": str(GROUP), "EACH": str(EACH), "TILE": str(TILE)}
    defined |= {"PART": str(_part())} | dict(words)
    lines = [f"#define {key} {value}" for key, value in defined.items()]
    text = "\n".join(["#pragma OPENCL FP_CONTRACT OFF", *lines, _TEXTS[name].lstrip(), ""])
    fp64 = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" if "double" in " ".join(lines) else ""
    return Program(fp64 + text, path=f"<{name}_{dtype.name}>").kernel(name)


def _both(name: str, dtype: DType) -> tuple[tuple[str, str], ...]:
    sign, unit = {"sum": ("+", "0"), "prod": ("*", "1")}[name]
    if dtype.kind == "b":
        sign = {"+": "|", "*": "&"}[sign]
    wide = "ulong" if dtype.itemsize == 8 else "uint"
    both = f"(x {sign} y)" if dtype.kind == "f" else f"(T)(({wide})x {sign} ({wide})y)"
    return ("BOTH", both), ("UNIT", f"(T){unit}")


def scan(name: str, a: Array) -> Array:
    """Return the running sums or products (``sum``, ``prod``) along the last dimension of a contiguous array."""
    out: Array = a.queue.empty(a.shape, a.dtype)
    n = a.shape[-1]
    rows, block = a.size // n, GROUP * EACH
    blocks = -(-n // block)
    words = (*_both(name, a.dtype), ("AT(i)", "a[i]"))
    kernel("scan", a.dtype, words)(a.queue, (blocks * GROUP, rows), (GROUP, 1), out, a, n)
    if blocks > 1:
        ends = out.reshape(rows, n)[:, block - 1 :: block].copy()
        before = scan(name, ends)
        across = -(-n // GROUP) * GROUP
        kernel("shift", a.dtype, words)(a.queue, (across, rows), (GROUP, 1), out, before, n, before.shape[-1])
    return out


def _key(dtype: DType) -> str:
    """Return the expression of unsigned integers that come in the order of elements whose bits are ``key``."""
    bits, kind = 8 * dtype.itemsize, f"({named(np.dtype(f'u{dtype.itemsize}'))})"
    top = f"({kind}1 << {bits - 1})"
    if dtype.kind != "f":
        return f"({kind}(key ^ {top}))" if dtype.kind == "i" else "key"
    digits = {16: 10, 32: 23, 64: 52}[bits]
    least = f"({kind}(~{top}) >> {digits} << {digits})"  # of those that are no numbers, which come last
    plain = f"{kind}(key & ~{top})"
    return (
        f"({plain} > {least} ? {kind}~{kind}0 : {plain} == 0 ? {top} : key & {top} ? {kind}~key : {kind}(key | {top}))"
    )


def sort(a: Array, with_indices: bool = False) -> Array:
    """Return the elements of each line along the last dimension of a contiguous array in order, or their indices in
    that order; equal ones stay in the order in which they are. NaNs come last."""
    queue, n = a.queue, a.shape[-1]
    rows, blocks = a.size // n, -(-n // _part())
    words = (("KEY", _key(a.dtype)), ("WITH(x)", "x;" if with_indices else ""))
    bits = np.dtype(f"u{a.itemsize}")
    keys: Array = a.view(bits)
    others: Array = queue.empty(a.shape, bits)
    spare = queue.empty(a.shape, bits)
    size = a.shape if with_indices else 1
    indices, places = queue.empty(size, np.int64), queue.empty(size, np.int64)
    counts = queue.empty((rows, 256 * blocks), np.uint32)
    for turn in range(a.itemsize):
        kernel("count", bits, words)(queue, (blocks, rows), None, counts, keys, n, blocks, 8 * turn)
        until = scan("sum", counts)
        given = others, places, keys, indices, counts, until, n, blocks, 8 * turn, int(turn == 0)
        kernel("place", bits, words)(queue, (blocks, rows), None, *given)
        keys, others = others, spare if turn == 0 else keys
        indices, places = places, indices
    return indices if with_indices else keys.view(a.dtype)


def collect(source: tuple[Array, int, int], at: Array, inner: int) -> Array:
    """Return elements of an array: for each element of ``at``, ``inner`` of them, from there on. ``source``: the array,
    the element that places count from, and how far its elements are apart."""
    span, first, step = source
    out: Array = span.queue.empty((at.size, inner), span.dtype)
    local = min(GROUP, 1 << (inner - 1).bit_length())
    size = -(-inner // local) * local, at.size
    bits = _bits(span)
    kernel("collect", bits)(span.queue, size, (local, 1), out.view(bits), span.view(bits), at, inner, first, step)
    return out


def scatter(target: tuple[Array, int, int], at: Array, element: Array, count: int, values: Array) -> None:
    """Write elements to an array, as ``collect`` reads them; of several that are written to one place, the last stays.
    ``element``: the number of each place, of ``count``."""
    span, first, step = target
    inner = values.size // at.size
    winner = span.queue.empty(count, np.int32)
    winner.fill(-1)
    kernel("last", np.dtype(np.int32))(span.queue, (at.size,), None, winner, element)
    bits = _bits(span)
    local = min(GROUP, 1 << (inner - 1).bit_length())
    size = -(-inner // local) * local, at.size
    given = span.view(bits), values.view(bits), at, element, winner, inner, first, step
    kernel("scatter", bits)(span.queue, size, (local, 1), *given)


def _bits(array: Array) -> DType:
    """Return the type by whose elements the array's are moved."""
    return np.dtype(f"u{array.itemsize}")


def found(mask: Array) -> Array:
    """Return the indices of what is true in a mask of one dimension. Waits for their number."""
    queue = mask.queue
    until = scan("sum", mask.astype(np.int64))
    out: Array = queue.empty(int(until[-1]), np.int64)
    if out.size:
        across = -(-mask.size // GROUP) * GROUP
        kernel("found", np.dtype(np.int64))(queue, (across,), (GROUP,), out, mask, until, mask.size)
    return out


def bisect(a: Array, v: Array, right: bool) -> Array:
    """Return where elements would be put into an ordered array, before those that are equal or behind them."""
    less = "((x) < (y) || ((y) != (y) && (x) == (x)))" if a.dtype.kind == "f" else "((x) < (y))"
    out: Array = a.queue.empty(v.shape, np.int64)
    size = -(-v.size // GROUP) * GROUP
    kernel("bisect", a.dtype, (("LESS(x, y)", less),))(
        a.queue, (size,), (GROUP,), out, a, v, a.size, v.size, int(right)
    )
    return out


@lru_cache(maxsize=32)
def _product(dtype: DType) -> Kernel:
    wide = "ulong" if dtype.itemsize == 8 else "uint"
    both = {"f": "value + u * v", "b": "value | (u & v)"}
    more = both.get(dtype.kind, f"(T)(({wide})value + ({wide})u * ({wide})v)")
    at, keep = loaded("array", dtype, "(i)"), stored("value", dtype, "(i)").replace("out", "c")
    words = (("MORE", more), ("AT(array, i)", at), ("STORE(i)", keep), ("A", named(dtype)))
    return kernel("matmul", accumulated(dtype), words)


@lru_cache(maxsize=32)
def _product_by_library(dtype: DType) -> Kernel:
    """Return the kernel with a version for processors: NumPy's, which has a library for it."""
    own = _product(dtype)
    found = Kernel(own.program, own.facts)
    found.add_version(_matmul_rows, "host", divide=1)
    return found


def _matmul_rows(  # noqa: PLR0913 (the kernel's arguments)
    items: slice, c: Any, a: Any, b: Any, m: int, n: int, inner: int, planes_a: int, planes_b: int
) -> None:
    np.matmul(a[:, items], b, out=c[:, items])


def matmul(a: Array, b: Array, planes: int) -> Array:
    """Return the products of ``planes`` pairs of contiguous matrices (planes, rows, columns), of which either may be
    one for all."""
    (_, m, inner), n, queue = a.shape, b.shape[2], a.queue
    out: Array = queue.empty((planes, m, n), a.dtype)
    is_library = a.dtype in (np.float32, np.float64) and all(
        d.driver == "native" for d in queue.session.machine.devices
    )
    found = (_product_by_library if is_library else _product)(a.dtype)
    size = -(-n // TILE) * TILE, -(-m // TILE) * TILE, planes
    apart = m * inner * (a.shape[0] > 1), inner * n * (b.shape[0] > 1)
    found(queue, size, (TILE, TILE, 1), out, a, b, m, n, inner, *apart)
    return out
