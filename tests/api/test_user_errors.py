"""Wrong calls of the Python API: each is told as what it is, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.errors import DeviceError, LaunchError, ManyclError, PolicyError

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
    with pytest.raises(ManyclError, match="source is text, not"):
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
    for shape in (2**62, (2**40, 2**40)):
        with pytest.raises(LaunchError, match="no memory has more than"):
            queue.zeros(shape, np.int32)
    with pytest.raises(ManyclError, match="shape is an integer of 64 bits"):
        queue.zeros(2**70, np.int32)
    for make in (queue.zeros, queue.empty):
        with pytest.raises(LaunchError, match=r"big of 40,000,000,000,000 bytes: no memory has more than"):
            make(10**13, np.int32, name="big")
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


CALLS: dict[str, Callable[[mc.Program, mc.Queue, mc.Array], Any]] = {
    "too many work-items": lambda p, q, x: p.inc(q, (1 << 14,), (1 << 14,), x),
    "too many in two dimensions": lambda p, q, x: p.inc(q, (1 << 10, 1 << 4), (1 << 10, 1 << 4), x),
    "in groups": lambda p, q, x: p.inc(q, (1,), (1 << 14,), x, g_times_l=True),
    "on a device": lambda p, q, x: p.inc(q, (1 << 14,), (1 << 14,), x, device="cpu"),
    "local memory": lambda p, q, x: p.sized(q, (64,), (16,), x, 1 << 40),
    "a little more of it": lambda p, q, x: p.sized(q, (64,), (16,), x, (256 << 10) + 4),
    "of its own": lambda p, q, x: p.own(q, (64,), (16,), x),
    "not dividing": lambda p, q, x: p.inc(q, (65,), (64,), x),
    "four dimensions": lambda p, q, x: p.inc(q, (2, 2, 2, 2), None, x),
    "no dimensions": lambda p, q, x: p.inc(q, (), None, x),
    "nothing": lambda p, q, x: p.inc(q, (0,), None, x),
    "offset before the first": lambda p, q, x: p.inc(q, (64,), None, x, global_offset=(-1,)),
    "offset of two dimensions": lambda p, q, x: p.inc(q, (64,), None, x, global_offset=(0, 0)),
    "copied from behind": lambda p, q, x: q.copy(q.zeros(64, np.int32), x, src_offset=4, byte_count=x.nbytes),
    "copied to behind": lambda p, q, x: q.copy(x, q.zeros(1 << 14, np.int32), dst_offset=4, byte_count=x.nbytes),
    "copied onto itself": lambda p, q, x: q.copy(x, x, byte_count=64, dst_offset=4),
    "copied nothing": lambda p, q, x: q.copy(x, q.zeros(64, np.int32), byte_count=0),
    "filled behind": lambda p, q, x: q.fill(x, 1, offset=4, size=x.nbytes),
    "filled in between": lambda p, q, x: q.fill(x, 1, offset=2, size=8),
    "of another type": lambda p, q, x: x[: (1 << 14) - 1].view(np.int64),
    "called for what is not given": lambda p, q, x: q.call(print, overwrites=[x]),
    "no option": lambda p, q, x: mc.Program(SOURCE, "--bogus"),
}


@pytest.mark.parametrize("is_preparing", [False, True])
@pytest.mark.parametrize("devices", ["cpu/2#0", "cpu/2"])
def test_what_cannot_run_is_refused_by_the_call(devices: str, is_preparing: bool) -> None:
    """Nothing of it is enqueued, and arrays keep what they have, also what is still to be computed."""
    program = mc.Program(SOURCE + "kernel void own(global int *x) { local int t[70000]; t[0] = x[0]; x[0] = t[0]; }")
    with mc.Queue(devices) as queue:
        x = queue.array(np.arange(1 << 14, dtype=np.int32))
        program.inc(queue, (1 << 14,), (1 << 10,), x)
        with queue.prepare() if is_preparing else nullcontext():
            for call in CALLS.values():
                with pytest.raises(ManyclError):
                    call(program, queue, x)
            program.inc(queue, (1 << 14,), None, x)
        assert (x.get() == np.arange(1 << 14) + (1 if is_preparing else 2)).all()


def test_a_launch_that_is_too_large_for_a_device_runs_on_another() -> None:
    """As a whole, where it was said to run on any; and nowhere where none is that large."""
    program = mc.Program(SOURCE)
    with mc.Queue("cpu/2") as queue:
        session = queue.session
        first, second = session.machine.devices
        machine = replace(session.machine, devices=(first, replace(second, max_work_group=64)))
        session.devices._in_use = session.devices.machine = machine  # what learning begins with, too
        x = queue.array(np.zeros(1 << 12, np.int32))
        for policy in ("auto", "eager", "heft", "balance", "tenths"):
            queue.policy = policy
            program.inc(queue, (1 << 12,), (256,), x)
            queue.finish()
            ran = {event.device for event in queue.result.trace.events if event.event == "kernel"}
            assert ran == {session.machine.devices[0].name}, policy
        assert (x.get() == 5).all()
        with pytest.raises(LaunchError, match=r"4096.*where cpu0.1 has at most 64|8192 work-items"):
            program.inc(queue, (1 << 13,), (1 << 13,), x)


def test_launches_keep_to_what_their_user_allows() -> None:
    """Whatever the policy, and where another device lacks what they need; or an error says what to do."""
    program = mc.Program(SOURCE)
    with mc.Queue("cpu/2") as queue:
        session = queue.session
        first, second = session.machine.devices
        x = queue.array(np.zeros(1 << 12, np.int32))
        for count, policy in enumerate(("auto", "eager", "heft", "mkmd", "repara", "fcfs"), 1):
            queue.policy = policy
            program.inc(queue, (1 << 12,), None, x, device=mc.Placement(never=first.name, at_most=1))
            queue.finish()
            assert {e.device for e in queue.result.trace.events if e.event == "kernel"} == {second.name}, policy
            assert (x.get() == count).all()
        program.inc(queue, (1 << 12,), None, x, device=mc.Placement(only=["gpu", "cpu7"]))
        with pytest.raises(
            PolicyError, match=r"(?s)cpu0.0 is excluded \(only gpu, cpu7\).*without the restriction cpu0.0"
        ):
            queue.finish()
        with pytest.raises(LaunchError, match="at_most"):
            mc.Placement(at_most=-1)
