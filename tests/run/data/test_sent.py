"""Contents of arrays that come again go straight to the memories of the devices that need them first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.errors import RunError
from manycl.machine import HOST, HOST_BIT
from manycl.model.transfer import LARGE
from manycl.region import NOTHING, Region
from manycl.run.data.coherence import ValidRegion
from manycl.run.executor.executor import Executor
from manycl.utilities.kept import ENOUGH

COUNT = LARGE // 2
SIZES = (COUNT,), (64,)
PROGRAM = mc.Program("""
kernel void add(global int *x, int n) { x[get_global_id(0)] += n; }
kernel void sum(global const int *x, global const int *y, global int *z) {
    int i = get_global_id(0);
    z[i] = x[i] + y[i];
}
kernel void around(global const int *x, global int *y, int n) {
    int i = get_global_id(0), sum = 0;
    for (int k = 0; k < 64; k++) sum += x[max(i - 9, 0)] * k + x[min(i + 9, n - 1)];
    y[i] = sum;
}
""")


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[mc.Queue]:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    with mc.Queue("opencl/2", policy="in_order") as queue:
        yield queue


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The buffers that were sent."""
    found, move = list[int](), Executor.move

    def moved(executor: Executor, key: Any, *how: Any, sends: bool = False) -> None:
        found.extend([key] * sends)
        move(executor, key, *how, sends=sends)

    monkeypatch.setattr(Executor, "move", moved)
    return found


def test_a_loop_that_makes_its_arrays_anew_sends_them_where_they_are_needed(queue: mc.Queue, sent: list[int]) -> None:
    """What the caller writes behind a call changes nothing."""
    left, right = np.zeros(COUNT, np.int32), np.arange(COUNT, dtype=np.int32)
    for turn in range(4 * ENOUGH):
        left[:] = turn
        x, y, z = queue.array(left), queue.array(right), queue.empty(COUNT, np.int32)
        left[:] = -1
        right += 1
        PROGRAM.sum(queue, *SIZES, x, y, z)
        PROGRAM.add(queue, *SIZES, x, 1)
        assert (z.get() == np.arange(COUNT) + 2 * turn).all()
        assert (x.get() == turn + 1).all()
        assert (y.get() == right - 1).all()
        left[:] = 5
        assert turn >= ENOUGH or not sent
    assert len(sent) > ENOUGH


def test_a_divided_launch_gets_each_part_on_its_device(monkeypatch: pytest.MonkeyPatch, sent: list[int]) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    data = np.arange(COUNT, dtype=np.int32)
    place = np.arange(COUNT)
    found = set[tuple[int, ...]]()
    with mc.Queue("opencl/2", policy="balance") as queue:
        for turn in range(6 * ENOUGH):
            data[:] = turn + place
            x, y = queue.array(data), queue.empty(COUNT, np.int32)
            parts = queue.session.directory.valid_regions.get(x.buffer.key, ())
            found.add(tuple(sorted(mask for _, mask in parts)))
            data[:] = 7
            PROGRAM.around(queue, *SIZES, x, y, COUNT)
            lower, upper = turn + np.maximum(place - 9, 0), turn + np.minimum(place + 9, COUNT - 1)
            assert (y.get() == (lower * 2016 + upper * 64).astype(np.int32)).all()
            assert (x.get() == turn + place).all()
        first, second = [1 << device.memory for device in queue.session.machine.devices]
    assert sent
    assert found <= {(), (first, second, first | second)}  # where it was divided, both have the border


@pytest.mark.parametrize("use", ["read", "set", "leave", "evict"])
def test_contents_that_were_sent_are_brought_where_they_are_needed(
    queue: mc.Queue, use: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, session = np.arange(COUNT, dtype=np.int32), queue.session
    x, half = queue.array(data), Region.span(0, data.nbytes // 2)
    pages = session.backend.memory.locks.callers(data.view(np.uint8))
    assert pages is not None
    first, second = [1 << device.memory for device in session.machine.devices]
    where = ValidRegion(half, first | second), ValidRegion(Region.span(0, data.nbytes) - half, second)
    monkeypatch.setattr(mc.Queue, "first_reads", lambda *_: where)
    pages.times = ENOUGH
    session.backend.memory.locks.lock(pages)
    y = queue.array(data)
    key = y.buffer.key
    assert key in session.buffers.given
    assert {mask for _, mask in session.directory.valid_regions[key]} == {first | second, second}
    expected = data.copy()
    data[:] = 0
    if use == "set":
        y.set(data)
        expected[:] = 0
    elif use == "leave":
        queue.leave(session.machine.devices[1].name)
    elif use == "evict":
        session.buffers.evict(key, session.machine.devices[1].memory)
    assert (y.get() == expected).all()
    PROGRAM.sum(queue, *SIZES, x, y, x)
    assert (x.get() == np.arange(COUNT) + expected).all()


def test_what_cannot_be_sent_is_copied(queue: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    move, tried = Executor.move, list[int]()

    def fails(executor: Executor, key: Any, *how: Any, sends: bool = False) -> None:
        if sends:
            tried.append(key)
            raise RunError("no room")
        move(executor, key, *how)

    monkeypatch.setattr(Executor, "move", fails)
    data = np.zeros(COUNT, np.int32)
    for turn in range(4 * ENOUGH):
        data[:] = turn
        x = queue.array(data)
        assert queue.session.directory.valid[x.buffer.key] == HOST_BIT
        PROGRAM.add(queue, *SIZES, x, 1)
        assert (x.get() == turn + 1).all()
    assert tried


def test_what_the_host_needs_is_copied(queue: mc.Queue, sent: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mc.Queue, "first_reads", lambda *_: (ValidRegion(NOTHING, 1 << HOST | 2),))
    data = np.arange(COUNT, dtype=np.int32)
    for _ in range(3 * ENOUGH):
        assert (queue.array(data).get() == data).all()
    assert not sent


def test_what_no_graph_uses_is_copied(queue: mc.Queue, sent: list[int]) -> None:
    data = np.arange(COUNT, dtype=np.int32)
    for _ in range(3 * ENOUGH):
        x = queue.array(data)
        assert queue.session.directory.valid[x.buffer.key] == HOST_BIT
        del x
        queue.finish()
    assert not sent
