"""Wrong calls of the Python API: each is told as what it is, before anything runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.errors import DeviceError, LaunchError, ManyclError

SOURCE = """
kernel void inc(global int *x) { x[get_global_id(0)] += 1; }
kernel void sized(global int *x, local int *t) { t[get_local_id(0)] = 1; x[get_global_id(0)] = t[get_local_id(0)]; }
typedef struct { float a; int b; } pair;
kernel void pairs(global pair *p) { p[get_global_id(0)].b = 3; }
kernel void floats(global float2 *p) { p[get_global_id(0)].x = 3; }
"""


@pytest.fixture(scope="module")
def program() -> mc.Program:
    return mc.Program(SOURCE)


@pytest.fixture
def queue() -> Any:
    with mc.Queue("cpu/2") as queue:
        yield queue


@pytest.mark.parametrize(
    ("number", "local", "words"),
    [
        ((4, 4), (16,), "2 numbers of work-groups .* and 1 local sizes"),
        ((4,), (16, 1), "both have the same dimensions"),
        ("4", (16,), "'4' is no NDRange"),
        ((4,), ("a",), "is no NDRange"),
        ((4,), (-16,), "must be positive"),
        (None, (16,), "None is no NDRange"),
    ],
)
def test_numbers_of_work_groups(program: mc.Program, queue: mc.Queue, number: Any, local: Any, words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        program.inc(queue, number, local, queue.zeros(64, np.int32), g_times_l=True)
    x = queue.zeros(64, np.int32)
    for right in ((4,), 4, np.int64(4), [4]):
        program.inc(queue, right, (16,), x, g_times_l=True)  # type: ignore[arg-type]
    assert (x.get() == 4).all()


def test_sizes_of_local_memory(program: mc.Program, queue: mc.Queue) -> None:
    x = queue.zeros(64, np.int32)
    for size in (64, np.int64(64), np.uint8(64), mc.LocalMemory(np.int32(64)), mc.LocalMemory(64)):  # type: ignore[arg-type]
        program.sized(queue, (64,), (16,), x, size)
    assert (x.get() == 1).all()
    for size in (0, np.int64(-4), mc.LocalMemory(np.float32(64)), np.zeros(64), 64.0, None, True, b"64"):  # type: ignore[arg-type]
        with pytest.raises(LaunchError, match="needs LocalMemory") as caught:
            program.sized(queue, (64,), (16,), x, size)
        assert " at 0x" not in str(caught.value)


@pytest.mark.parametrize("source", [None, b"kernel void f() {}", 3, ["a"]])
def test_sources_that_are_no_text(source: Any) -> None:
    with pytest.raises(ManyclError, match="OpenCL C as text, not of"):
        mc.Program(source)


def test_types_of_arrays(program: mc.Program, queue: mc.Queue) -> None:
    for wrong in (np.array(["a"]), np.array([(1, "a")], "i4,U3"), np.array(["2020"], "M8[D]")):
        with pytest.raises(LaunchError, match="nothing that a kernel can read"):
            queue.array(wrong)
    pair = np.dtype([("a", "f4"), ("b", "i4")])
    p = queue.array(np.zeros(16, pair))
    program.pairs(queue, (16,), (16,), p)
    assert (p.get()["b"] == 3).all()
    for wrong in (np.zeros(16, pair), np.zeros(16, "f8,f8"), np.zeros(16, np.complex128), np.zeros(16, np.int64)):
        with pytest.raises(LaunchError, match=r"points to float2?, but the buffer holds"):
            program.floats(queue, (8,), (8,), queue.array(wrong))
    for right in (
        np.zeros(16, np.complex64),
        np.zeros(16, [("x", "f4"), ("y", "f4")]),
        np.zeros(16, "V8"),
        np.zeros(16, "S8"),
    ):
        program.floats(queue, (16,), (16,), queue.array(right))
    queue.finish()


def test_arrays_that_are_larger_than_memory(program: mc.Program, queue: mc.Queue) -> None:
    for shape in (2**62, 2**70, (2**40, 2**40)):
        with pytest.raises(LaunchError, match="more than any device can address"):
            queue.zeros(shape, np.int32)
    with pytest.raises(ManyclError, match=r"big has 4,000,000,000,000 bytes, for which the host has no room"):
        queue.zeros(10**12, np.int32, name="big")
    big = queue.empty(10**12, np.int32, name="big")  # nobody has used it
    program.inc(queue, (64,), (16,), big)
    with pytest.raises(ManyclError, match=r"big .*bytes"):
        queue.finish()
    x = queue.zeros(64, np.int32)
    program.inc(queue, (64,), (16,), x)
    assert (x.get() == 1).all()


def test_nothing_is_enqueued_after_the_end(program: mc.Program) -> None:
    with mc.Queue("cpu/2") as queue:
        x = queue.zeros(64, np.int32)
    with pytest.raises(DeviceError, match="nothing can be enqueued"):
        program.inc(queue, (64,), (16,), x)
    with pytest.raises(DeviceError):
        queue.call(print, x)
    assert len(queue) == 0
