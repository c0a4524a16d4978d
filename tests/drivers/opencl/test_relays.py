"""Copies between the memories of two OpenCL devices: through pinned memory, ordered by events alone."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import manycl as mc
from manycl.drivers.choice import open_devices
from manycl.drivers.driver import Driver, DriverError, End
from manycl.drivers.opencl import relays, staging
from manycl.drivers.opencl.staging import Stager
from manycl.machine import DeviceIndex
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.region import Rectangle
from manycl.run.executor.executor import Executor
from manycl.run.lowering.depth import InDepth

SOURCE = """
kernel void heat(global const float *a, global float *b, int n) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x == 0 || y == 0 || x == n - 1 || y == n - 1) b[y * n + x] = a[y * n + x];
    else b[y * n + x] = 0.2f * (a[y*n+x] + a[y*n+x-1] + a[y*n+x+1] + a[(y-1)*n+x] + a[(y+1)*n+x]);
}
"""
SIDE, STEPS = 64, 12


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Driver, Driver]]:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    _, opened = open_devices("opencl/2")
    first, second = (one.open() for one in opened)
    yield first, second
    for driver in (first, second):
        driver.finish()
        driver.release()


def test_rows_of_all_shapes_arrive_while_the_room_is_used_again_and_again(
    pair: tuple[Driver, Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies are enqueued ahead behind one that waits for a long one; together they take many times the room."""
    monkeypatch.setattr(relays, "ROOM", 4096)
    monkeypatch.setattr(relays, "CHUNK", 1024)
    source, target = pair
    rng, nbytes = np.random.default_rng(3), 60_000
    data, found = rng.integers(0, 256, nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    there, here = source.allocate(nbytes), target.allocate(nbytes)
    queues = source.queue(False), target.queue(False)
    whole, wanted = (Rectangle(0, nbytes),), np.zeros(nbytes, np.uint8)
    target.copy(queues[1], End(here), End(found.copy()), whole, ())
    events = source.copy(queues[0], End(there), End(data), whole, ())
    for _ in range(40):
        pitch = int(rng.integers(200, 3000))
        rows = int(rng.integers(1, 8))
        rect = Rectangle(int(rng.integers(0, nbytes - 8 * 3000 - 3000)), int(rng.integers(1, pitch)), pitch, rows)
        target.copy(queues[1], End(here), End(there, owner=source), (rect,), events[-1:])
        for row in range(rows):
            at = slice(rect.offset + row * pitch, rect.offset + row * pitch + rect.width)
            wanted[at] = data[at]
    target.copy(queues[1], End(here), End(there, owner=source), (Rectangle(100, 50_000),), ())
    wanted[100:50_100] = data[100:50_100]
    last = target.copy(queues[1], End(found), End(here), whole, ())[-1]
    target.flush(queues[1])
    target.wait(last)
    assert (found == wanted).all()


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_uploaded_through_pinned_chunks_goes_on_once_it_is_there(
    fails: bool, pair: tuple[Driver, Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its event is none of a queue; where it fails, so does what waits for it, and nobody waits for ever: neither for
    events that are dropped."""
    monkeypatch.setattr(staging, "STAGE_FROM", 1)
    monkeypatch.setattr(relays, "CHUNK", 1024)
    source, target = pair
    data, found = np.arange(5000).astype(np.uint8), np.zeros(5000, np.uint8)
    there, here, whole = source.allocate(5000), target.allocate(5000), (Rectangle(0, 5000),)
    queues = source.queue(False), target.queue(False)
    source.wait(source.copy(queues[0], End(there), End(found), whole, ())[-1])
    made = cl.UserEvent(source.context)

    def failing(_: Stager, part: object, after: cl.Event) -> None:
        after.wait()
        raise ValueError("no chunk")

    if fails:
        monkeypatch.setattr(Stager, "_transfer", failing)
    events = source.copy(queues[0], End(there), End(data), whole, [made])
    events = target.copy(queues[1], End(here), End(there, owner=source), whole, events)
    made.set_status(cl.command_execution_status.COMPLETE)
    if fails:
        with pytest.raises(DriverError):
            target.wait(events[-1])
        with pytest.raises(DriverError):
            target.done(events[-1])
        with pytest.raises(DriverError, match="what it waits for has failed"):  # PoCL 3.0 would never end it
            target.copy(queues[1], End(found), End(here), whole, events[-1:])
        with pytest.raises(DriverError, match="what it waits for has failed"):
            target.fill(queues[1], here, b"0", 0, 1, events[-1:])
        return
    events = target.copy(queues[1], End(found), End(here), whole, events[-1:])
    target.wait(events[-1])
    assert (found == data).all()


@given(st.lists(st.integers(1, 1024), min_size=30, max_size=60), st.randoms(use_true_random=False))
def test_what_comes_to_a_place_waits_for_all_that_is_on_its_way_there(sizes: list[int], random: Random) -> None:
    """By byte, the write that has not ended; each write ends some time."""
    with mock.patch.object(relays, "ROOM", 4096), mock.patch.object(relays, "pin", return_value=None):
        relay = relays.Relay(None)
        held: list[Any] = [None] * 4096
        for nbytes in sizes:
            start, before = relay._take(nbytes)
            there = {id(write) for write in held[start : start + nbytes] if write and write.command_execution_status}
            assert there <= set(map(id, before))
            write = SimpleNamespace(command_execution_status=1)
            held[start : relay._next] = [write] * (relay._next - start)  # what it waits for has ended before it
            relay._taken.append((start, start + nbytes, write))
            if random.random() < 0.3:
                random.choice([w for w in held if w]).command_execution_status = 0


class Halves:
    """Every launch halved along its rows, on two devices."""

    def plan(self, problem: Problem) -> Plan:
        half = SIDE // 8 // 2
        each = [Assignment(n, DeviceIndex(d), 0, 0.0, 0.0, 1, d * half, half) for n in range(STEPS) for d in (0, 1)]
        return Plan(tuple(each), "halves", tuple(d.name for d in problem.machine.devices), 0.0)


@pytest.mark.parametrize("devices", ["opencl/2", "cpu0/2"])
def test_borders_are_exchanged_without_the_host(devices: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stencil in halves is given to the devices at once; borders go straight from one to the other, and nobody
    hears of them."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setattr("manycl.run.lowering.lower.in_depth", lambda _, plan: InDepth(plan))  # each step exchanges
    calls: list[list[Any]] = []
    perform = Executor.perform

    def noted(self: Executor, commands: list[Any]) -> None:
        calls.append([(type(c).__name__, getattr(c, "notify", False)) for c in commands])
        perform(self, commands)

    program, start = mc.Program(SOURCE), np.random.default_rng(1).random((SIDE, SIDE), np.float32)

    def run(queue: mc.Queue) -> bytes:
        a, b = queue.array(start), queue.array(np.zeros_like(start))
        for _ in range(STEPS):
            program.heat(queue, (SIDE, SIDE), (8, 8), a, b, SIDE)
            a, b = b, a
        queue.finish()
        return a.get().tobytes()

    with mc.Queue(f"{devices}#0") as one, mc.Queue(devices, policy=Halves()) as two:
        wanted = run(one)
        with monkeypatch.context() as patch:
            patch.setattr(Executor, "perform", noted)
            assert run(two) == wanted
        moved = two.result.trace.transfers()
        assert {(t.source, t.target) for t in moved if t.source != "host" and t.target != "host"} == {
            (two.devices[0], two.devices[1]),
            (two.devices[1], two.devices[0]),
        }
    together = max(calls, key=len)
    assert sum(kind == "Run" for kind, _ in together) == 2 * STEPS
    assert not any(told for kind, told in together if kind == "Copy")
