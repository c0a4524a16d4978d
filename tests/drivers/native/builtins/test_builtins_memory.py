"""Built-in functions on memory: vectors and halves at any place, atomic operations, copies."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

from manycl.drivers.native.compiler.compiling import compile_kernels
from tests.drivers.native.builtins.native_calls import TYPES, WIDTHS, library

SPACES = ("__global", "__constant", "__local", "__private")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of halves that are infinite


def call(text: str, name: str, *arrays: np.ndarray, n: int = 0) -> None:
    function = getattr(library(compile_kernels(text)), name)
    function(ctypes.c_ulong(n), *(ctypes.c_void_p(a.ctypes.data) for a in arrays))


@pytest.mark.parametrize("kind", TYPES)
def test_vectors_are_loaded_and_stored_at_any_element(kind: str) -> None:
    lines = []
    for width in WIDTHS:
        body = f"vstore{width}(vload{width}(i + 1, a + 1), n - 1 - i, r + 1);"
        lines.append(
            f"void k{width}(ulong n, __global {kind} *r, __global const {kind} *a)"
            f" {{ for (ulong i = 0; i < n; i++) {{ {body} }} }}"
        )
    text = "\n".join(lines)
    values = np.arange(0, 120).astype(TYPES[kind])
    for width in WIDTHS:
        r = np.zeros(120, TYPES[kind])
        call(text, f"k{width}", r, values, n=5)
        wanted = np.zeros_like(r)
        for i in range(5):
            start = 1 + (4 - i) * width
            wanted[start : start + width] = values[1 + (i + 1) * width :][:width]
        assert np.array_equal(r, wanted), width


def test_of_every_address_space() -> None:
    loads = "".join(f"float2 f{i}({s} const float *p) {{ return vload2(1, p); }}\n" for i, s in enumerate(SPACES))
    loads += "".join(f"float h{i}({s} const half *p) {{ return vload_half(1, p); }}\n" for i, s in enumerate(SPACES))
    sums = " + ".join(f"f{i}(({s} const float *)a)" for i, s in enumerate(SPACES) if i != 1)
    halves = " + ".join(f"h{i}(({s} const half *)a)" for i, s in enumerate(SPACES) if i != 1)
    whole = "f1((__constant const float *)(ulong)a)"
    text = f"{loads} void k(ulong n, float *r, const void *a) {{ vstore2({sums} + {whole}, 0, r); r[2] = {halves}"
    text += " + h1((__constant const half *)(ulong)a); }"
    a, r = np.array([1, 2, 3, 4], np.float32), np.zeros(3, np.float32)
    call(text, "k", r, a)
    assert np.array_equal(r, [12, 16, 4 * a.view(np.float16)[1]])


HALVES = np.arange(65536, dtype=np.uint16)


@pytest.mark.parametrize("width", [1, *WIDTHS])
def test_every_half_is_loaded_and_stored(width: int) -> None:
    w = "" if width == 1 else str(width)
    loops = "for (ulong i = 0; i < n; i++)"
    step = 4 if width == 3 else width
    text = f"void plain(ulong n, float *f, half *r, const half *a) {{ {loops} {{ float{w} x = vload_half{w}(i, a);"
    text += f" {'f[i] = x' if width == 1 else f'vstore{w}(x, i, f)'}; vstore_half{w}(x, i, r); }} }}\n"
    text += f"void whole(ulong n, float *f, half *r, const half *a) {{ {loops} {{ float{w} x = vloada_half{w}(i, a);"
    text += f" vstorea_half{w}(x, i, r); }} }}"
    n = 65536 // width
    floats, back = np.zeros(65536, np.float32), np.zeros(65536, np.uint16)
    call(text, "plain", floats, back, HALVES, n=n)
    whole = n * width
    assert np.array_equal(floats[:whole], HALVES[:whole].view(np.float16).astype(np.float32), equal_nan=True)
    number = ~np.isnan(HALVES[:whole].view(np.float16))
    assert np.array_equal(back[:whole][number], HALVES[:whole][number])
    back[:] = 7
    call(text, "whole", floats, back, HALVES, n=65536 // step)
    lanes = np.arange(65536) % step < width
    lanes[: len(number)] &= number
    lanes[len(number) :] = False
    assert np.array_equal(back[lanes], HALVES[lanes])
    assert (back[np.arange(65536) % step >= width] == 7).all()


@pytest.mark.parametrize("mode", ["", "_rte", "_rtz", "_rtp", "_rtn"])
@pytest.mark.parametrize("kind", ["float", "double"])
def test_halves_are_rounded_once(kind: str, mode: str) -> None:
    """Between all halves that follow one another: close to either, in the middle, and beside it."""
    finite = np.sort(HALVES.view(np.float16)[np.isfinite(HALVES.view(np.float16))].astype(np.float64))
    finite = np.unique(finite)
    low, high = finite[:-1], finite[1:]
    middle = (low + high) / 2
    beyond = np.array([65504, 65519.99, 65520, 1e30, -65520, -1e9, np.inf, -np.inf, 1e-30, -1e-30, 0.0, -0.0])
    cases = [low, np.nextafter(low, 1e9), middle, np.nextafter(middle, 1e9), np.nextafter(middle, -1e9), beyond]
    values = np.concatenate(cases).astype(TYPES[kind])
    exact = values.astype(np.float64)
    got = np.zeros(len(values), np.uint16)
    text = (
        f"void k(ulong n, half *r, const {kind} *a) {{ for (ulong i = 0; i < n; i++) vstore_half{mode}(a[i], i, r); }}"
    )
    call(text, "k", got, values, n=len(values))
    with np.errstate(over="ignore"):
        wanted = exact.astype(np.float16)
    if mode in ("_rtz", "_rtp", "_rtn"):
        near = wanted.astype(np.float64)
        up = {"_rtp": np.ones_like(exact, bool), "_rtn": np.zeros_like(exact, bool), "_rtz": exact < 0}[mode]
        step_up, step_down = (np.nextafter(wanted, np.float16(e)) for e in (np.inf, -np.inf))
        wanted = np.where(up & (near < exact), step_up, np.where(~up & (near > exact), step_down, wanted))
    same = got == wanted.view(np.uint16)
    assert same.all(), (values[~same][:5], got[~same][:5], wanted[~same][:5])


ATOMICS = {  # what is there after x, then y
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "xchg": lambda x, y: y,
    "min": min,
    "max": max,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
}


@pytest.mark.parametrize("kind", ["int", "uint", "long", "ulong"])
@pytest.mark.parametrize("prefix", ["atomic", "atom"])
def test_atomic_operations_say_what_was_there(kind: str, prefix: str) -> None:
    lines = [f"r[{i}] = {prefix}_{name}(a + {i}, a[20]);" for i, name in enumerate(ATOMICS)]
    lines += [f"r[8] = {prefix}_inc(a + 8); r[9] = {prefix}_dec(a + 9);"]
    lines += [f"r[10] = {prefix}_cmpxchg(a + 10, a[10], a[20]); r[11] = {prefix}_cmpxchg(a + 11, a[11] + 1, a[20]);"]
    text = f"void k(ulong n, {kind} *r, volatile __global {kind} *a) {{ {' '.join(lines)} }}"
    info = np.iinfo(TYPES[kind])
    for x, y in ((5, 3), (info.max, 1), (info.min, 7), (100, info.max)):
        a, r = np.full(21, x, TYPES[kind]), np.zeros(21, TYPES[kind])
        a[20] = y
        call(text, "k", r, a)
        assert (r[:12] == x).all()
        wanted = [f(int(x), int(y)) for f in ATOMICS.values()] + [int(x) + 1, int(x) - 1, int(y), int(x)]
        assert a[:12].tolist() == [w - ((w - info.min) >> info.bits << info.bits) for w in wanted]


def test_floats_are_exchanged() -> None:
    a, r = np.array([1.5, -2.25], np.float32), np.zeros(2, np.float32)
    call("void k(ulong n, float *r, volatile float *a) { r[0] = atomic_xchg(a, 3.0f); r[1] = a[0]; }", "k", r, a)
    assert r.tolist() == [1.5, 3.0]


def test_threads_do_not_lose_counts() -> None:
    text = "void k(ulong n, int *a) { for (ulong i = 0; i < n; i++) { atomic_inc(a);"
    text += " atomic_fetch_add((atomic_int *)a + 1, 2);"
    text += " atomic_fetch_max_explicit((atomic_int *)a + 2, (int)i, memory_order_relaxed); } }"
    a = np.zeros(3, np.int32)
    function = library(compile_kernels(text)).k
    given = (ctypes.c_ulong(50000), ctypes.c_void_p(a.ctypes.data))
    threads = [threading.Thread(target=function, args=given) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert a.tolist() == [200000, 400000, 49999]


def test_generic_atomics() -> None:
    text = """void k(ulong n, int *r, int *a) {
      atomic_int *p = (atomic_int *)a; int e = 5, f = 4;
      atomic_init(p, 5); r[0] = atomic_load(p);
      r[1] = atomic_compare_exchange_strong(p, &e, 6); r[2] = atomic_compare_exchange_strong(p, &f, 7); r[3] = f;
      r[4] = atomic_exchange(p, 9); atomic_store_explicit(p, 11, memory_order_release, memory_scope_work_group);
      r[5] = atomic_load_explicit(p, memory_order_acquire); r[6] = atomic_fetch_sub(p, 1);
      r[7] = atomic_fetch_or_explicit(p, 16, memory_order_relaxed, memory_scope_device);
      volatile atomic_flag *g = (volatile atomic_flag *)(a + 1); atomic_flag_clear(g);
      r[8] = atomic_flag_test_and_set(g); r[9] = atomic_flag_test_and_set_explicit(g, memory_order_acq_rel);
      e = 26; r[10] = atomic_compare_exchange_weak_explicit(p, &e, 1, memory_order_acq_rel, memory_order_relaxed);
      r[11] = atomic_fetch_xor(p, 3); r[12] = atomic_fetch_and(p, 2); r[13] = atomic_fetch_min(p, -4);
      atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_seq_cst, memory_scope_device);
      mem_fence(CLK_LOCAL_MEM_FENCE);
      atomic_store(p, 8); atomic_flag_clear_explicit(g, memory_order_release); }"""
    a, r = np.zeros(2, np.int32), np.zeros(14, np.int32)
    call(text, "k", r, a)
    assert r.tolist() == [5, 1, 0, 6, 6, 11, 11, 10, 0, 1, 1, 1, 2, 2]
    assert a.tolist() == [8, 0]


def test_copies_of_work_groups() -> None:
    text = """void k(ulong n, __global float4 *r, __global const float4 *a) {
      __local float4 *l = (__local float4 *)(void *)(r + 8);
      event_t e = async_work_group_copy(l, a, 4, 0); wait_group_events(1, &e); prefetch(a, 4);
      e = async_work_group_copy(r, l, 4, e); wait_group_events(1, &e);
      e = async_work_group_strided_copy(l, a, 2, 3, 0); e = async_work_group_strided_copy(r + 4, l, 2, 2, e); }"""
    a, r = np.arange(1, 65, dtype=np.float32), np.zeros(64, np.float32)
    call(text, "k", r, a)
    assert np.array_equal(r[:16], a[:16])
    assert np.array_equal(r[16:32], [*a[:4], 0, 0, 0, 0, *a[12:16], 0, 0, 0, 0])
