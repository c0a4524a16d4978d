"""Kernels called from Python: every kind of argument, PyOpenCL's conventions, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import manycl as mc
from manycl.errors import LaunchError

N = 64
SCALARS = {
    "char": "i1",
    "uchar": "u1",
    "short": "i2",
    "ushort": "u2",
    "int": "i4",
    "uint": "u4",
    "long": "i8",
    "ulong": "u8",
    "float": "f4",
    "double": "f8",
}
SOURCE = "\n".join(
    [f"__kernel void put_{name}(__global {name} *out, {name} value) {{ out[0] = value; }}" for name in SCALARS]
    + [
        """
typedef struct { char tag; int4 weights; double scale; } Setting;
__kernel void structure(__global double *out, Setting s) {
  out[0] = s.tag; out[1] = s.weights.x; out[2] = s.weights.w; out[3] = s.scale;
}
__kernel void vectors(__global float *out, float4 a, int3 b) { out[0] = a.x + a.w; out[1] = b.y; out[2] = b.z; }
__kernel void where(__global int *out) { out[get_global_id(0)] += 100 + get_global_id(0); }
__kernel void groups(__global int *out) { out[get_global_id(0)] = get_local_size(0); }
__kernel __attribute__((reqd_work_group_size(8, 1, 1))) void eights(__global int *out) {
  out[get_global_id(0)] = get_local_size(0);
}
__kernel void plane(__global int *out) {
  size_t i = get_global_id(0) + get_global_size(0) * (get_global_id(1) + get_global_size(1) * get_global_id(2));
  out[i] = i;
}
__kernel void turned(__global const int *a, __global int *out, __local int *t, __local float *u) {
  int l = get_local_id(0), n = get_local_size(0);
  t[l] = a[get_global_id(0)]; u[l] = 0.5f;
  barrier(CLK_LOCAL_MEM_FENCE);
  out[get_global_id(0)] = t[n - 1 - l] + (int)(2 * u[n - 1 - l]);
}
"""
    ]
)
PROGRAM = mc.Program(SOURCE)


@pytest.fixture(scope="module")
def queue() -> Iterator[mc.Queue]:
    with mc.Queue("cpu/2", policy="eager") as queue:
        yield queue


def numbers(dtype: str) -> st.SearchStrategy[Any]:
    if dtype[0] == "f":
        return st.floats(width=32 if dtype == "f4" else 64)
    limits = np.iinfo(dtype)
    return st.integers(int(limits.min), int(limits.max))


@pytest.mark.parametrize("name", SCALARS)
@given(data=st.data())
def test_scalars_arrive_bit_for_bit(queue: mc.Queue, name: str, data: Any) -> None:
    dtype = SCALARS[name]
    value = data.draw(numbers(dtype))
    out = queue.zeros(1, dtype)
    for given_as in (value, np.dtype(dtype).type(value), np.array([value], dtype).tobytes()):
        out.set(np.zeros(1, dtype))
        PROGRAM.kernel(f"put_{name}")(queue, (1,), (1,), out, given_as)
        wanted, got = np.array([value], dtype), out.get()
        assert got.tobytes() == wanted.tobytes() or (np.isnan(wanted).all() and np.isnan(got).all())


@pytest.mark.parametrize("name", [n for n, t in SCALARS.items() if t[0] != "f"])
def test_integers_out_of_range_are_refused(queue: mc.Queue, name: str) -> None:
    limits = np.iinfo(SCALARS[name])
    out = queue.zeros(1, SCALARS[name])
    for value in (int(limits.min) - 1, int(limits.max) + 1):
        with pytest.raises(LaunchError, match="out of range"):
            PROGRAM.kernel(f"put_{name}")(queue, (1,), (1,), out, value)
    for value in (0.5, "1", None, [1]):
        with pytest.raises(LaunchError, match=r"argument 1 \(value\)"):
            PROGRAM.kernel(f"put_{name}")(queue, (1,), (1,), out, value)


def test_structures_and_vectors(queue: mc.Queue) -> None:
    names = ["tag", "weights", "scale"]
    dtype = np.dtype({"names": names, "formats": ["i1", ("i4", 4), "f8"], "offsets": [0, 16, 32], "itemsize": 48})
    setting = np.array([(-3, (1, 2, 3, 4), 0.25)], dtype)
    for value in (setting[0], setting.tobytes()):
        out = queue.zeros(4, np.float64)
        PROGRAM.structure(queue, (1,), (1,), out, value)
        assert out.get().tolist() == [-3.0, 1.0, 4.0, 0.25]
    with pytest.raises(LaunchError, match="48 bytes, got 47"):
        PROGRAM.structure(queue, (1,), (1,), out, setting.tobytes()[:-1])
    with pytest.raises(LaunchError, match="48 bytes"):
        PROGRAM.structure(queue, (1,), (1,), out, 3)
    real = queue.zeros(3, np.float32)
    PROGRAM.vectors(queue, (1,), (1,), real, (1, 2, 3, 4), np.array([5, 6, 7], np.int32))
    assert real.get().tolist() == [5.0, 6.0, 7.0]
    with pytest.raises(LaunchError, match="needs 4 numbers"):
        PROGRAM.vectors(queue, (1,), (1,), real, (1, 2, 3), (5, 6, 7))


def test_local_memory_of_several_arguments(queue: mc.Queue) -> None:
    a, out = queue.array(np.arange(N, dtype=np.int32)), queue.empty(N, np.int32)
    PROGRAM.turned(queue, (N,), (8,), a, out, mc.LocalMemory(32), mc.LocalMemory(32))
    assert (out.get() == np.arange(N).reshape(-1, 8)[:, ::-1].ravel() + 1).all()
    for bad in (mc.LocalMemory(0), mc.LocalMemory(-4), b"12345678", True, None, 2.5):
        with pytest.raises(LaunchError, match="LocalMemory"):
            PROGRAM.turned(queue, (N,), (8,), a, out, bad, mc.LocalMemory(32))


def test_sizes_in_every_form(queue: mc.Queue) -> None:
    out = queue.zeros(N, np.int32)
    for size, local in (
        ((N,), (16,)),
        ([N], [16]),
        ((N,), [16]),
        ([N], (16,)),
        (np.array([N]), np.array([16])),
        ((np.int64(N),), (np.uint8(16),)),
        (N, 16),
    ):
        out.set(np.zeros(N, np.int32))
        PROGRAM.groups(queue, size, local, out)
        assert (out.get() == 16).all()
    PROGRAM.groups(queue, (4,), (16,), out, g_times_l=True)
    assert (out.get() == 16).all()
    PROGRAM.eights(queue, (N,), None, out)
    assert (out.get() == 8).all()
    solid = queue.zeros((4, 3, 2), np.int32)
    for local in (None, (1, 1, 1), (2, 3, 4)):
        solid.set(np.zeros((4, 3, 2), np.int32))
        PROGRAM.plane(queue, (2, 3, 4), local, solid)
        assert (solid.get().ravel() == np.arange(24)).all()


def test_global_offset(queue: mc.Queue) -> None:
    out = queue.zeros(N, np.int32)
    PROGRAM.where(queue, (16,), (16,), out, global_offset=(32,))
    expected = np.zeros(N, np.int32)
    expected[32:48] = 100 + np.arange(32, 48)
    assert (out.get() == expected).all()
    for bad in ((-1,), (0.5,), (1, 2), (), 3, "1"):
        with pytest.raises(LaunchError, match="global offset"):
            PROGRAM.where(queue, (16,), (16,), out, global_offset=bad)
    assert (out.get() == expected).all()


def test_sizes_that_cannot_be(queue: mc.Queue) -> None:
    out = queue.zeros(N, np.int32)
    wrong: list[tuple[Any, Any, str]] = [
        ((N,), (24,), "not divisible"),
        ((N,), (128,), "not divisible"),
        ((N,), (8, 1), "dimensions"),
        ((2, 2, 2, 2), None, "4 dimensions"),
        ((), None, "0 dimensions"),
        ((0,), None, "positive"),
        ((N,), (0,), "positive"),
        ((N, -1), None, "positive"),
        ((2.5,), None, "not made of integers"),
        ("64", None, "not made of integers"),
        (None, None, "not made of integers"),
        ((1 << 40, 1 << 40), None, "too many"),
    ]
    for size, local, words in wrong:
        with pytest.raises(LaunchError, match=words):
            PROGRAM.groups(queue, size, local, out)
    with pytest.raises(LaunchError, match="requires work-groups"):
        PROGRAM.eights(queue, (N,), (16,), out)
    assert len(queue) == 0


def test_a_work_group_that_the_device_refuses(queue: mc.Queue) -> None:
    limit = max(d.max_work_group for d in queue.session.machine.devices)
    out = queue.zeros(2 * limit, np.int32)
    with pytest.raises(LaunchError, match=rf"groups cannot have work-groups of {2 * limit} .* cpu0.* at most {limit}"):
        PROGRAM.groups(queue, (2 * limit,), (2 * limit,), out)
    assert not out.get().any()


def test_element_types(queue: mc.Queue) -> None:
    for dtype in ("i4", "u4", "u1"):  # the sign may differ, and bytes go anywhere
        PROGRAM.where(queue, (4,), None, queue.zeros(64, dtype))
    for dtype in ("f4", "i2", "i8", "f8", "?"):
        with pytest.raises(LaunchError, match="points to int"):
            PROGRAM.where(queue, (4,), None, queue.zeros(64, dtype))
    queue.finish()


def test_kernels_by_name() -> None:
    program = mc.Program("__kernel void build(__global int *x) { x[0] = 1; }\n__kernel void f(__global int *x) {}")
    assert program.kernel("build").name == "build"
    assert program.f is program.f
    assert callable(program.build)
    assert {"build", "f"} <= set(dir(program))
    with pytest.raises(LaunchError, match=r"no kernel 'g' \(it has: build, f\)"):
        program.kernel("g")
    assert not hasattr(program, "g")
    assert not hasattr(program, "_f")


def test_headers_that_change(queue: mc.Queue, tmp_path: Path) -> None:
    text = '#include "more.h"\n__kernel void put(__global int *x) { x[0] = BASE; }\n'
    x = queue.zeros(1, np.int32)
    for base in (30, 40, 50):
        (tmp_path / "more.h").write_text(f"#define BASE {base}\n")
        mc.Program(text, ["-I", str(tmp_path)]).put(queue, (1,), (1,), x)
        assert x.get()[0] == base


def test_options_and_includes(queue: mc.Queue, tmp_path: Path) -> None:
    (tmp_path / "more.h").write_text("#define BASE 30\n")
    path = tmp_path / "k.cl"
    path.write_text('#include "more.h"\n__kernel void put(__global int *x) { x[0] = BASE + EXTRA; }\n')
    program = mc.Program.from_file(path, ["-DEXTRA=4"])
    x = queue.zeros(1, np.int32)
    program.put(queue, (1,), (1,), x)
    assert x.get()[0] == 34
    assert program.build() is program
    program.build("-DMORE -DEXTRA=5").put(queue, (1,), (1,), x)
    assert x.get()[0] == 35
    program.put(queue, (1,), (1,), x)  # each keeps its own options
    assert x.get()[0] == 34
