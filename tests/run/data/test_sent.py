"""Contents of arrays that come again go straight to devices' memories, where they ended before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.errors import RunError
from manycl.machine import HOST_BIT
from manycl.model.transfer import LARGE
from manycl.region import NOTHING, Region
from manycl.run.data import host_memory
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


def test_a_loop_that_makes_its_arrays_anew_sends_them_once_they_end_alike(queue: mc.Queue, sent: list[int]) -> None:
    """What the caller writes behind a call changes nothing."""
    left, right = np.zeros(COUNT, np.int32), np.arange(COUNT, dtype=np.int32)
    for turn in range(3 * host_memory._OFTEN):
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
        assert turn or not sent
    assert len(sent) > host_memory._OFTEN


@pytest.mark.parametrize("use", ["read", "set", "leave", "evict"])
def test_contents_that_were_sent_are_brought_where_they_are_needed(queue: mc.Queue, use: str) -> None:
    data, session = np.arange(COUNT, dtype=np.int32), queue.session
    x, half = queue.array(data), Region.span(0, data.nbytes // 2)
    pages = session.backend.memory.locks.callers(data.view(np.uint8))
    assert pages is not None
    first, second = [1 << device.memory for device in session.machine.devices]
    pages.ended, pages.times = (
        [(half, first | second), (Region.span(0, data.nbytes) - half, second)],
        host_memory._OFTEN,
    )
    pages.latest = None
    session.backend.memory.locks.lock(pages)
    y = queue.array(data)
    key = y.buffer.key
    assert key in session.buffers.sent
    assert {mask for _, mask in session.directory.parts[key]} == {first | second, second}
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
    move = Executor.move

    def fails(*how: Any, sends: bool = False) -> None:
        if sends:
            raise RunError("no room")
        move(*how)

    monkeypatch.setattr(Executor, "move", fails)
    data = np.zeros(COUNT, np.int32)
    for turn in range(2 * host_memory._OFTEN):
        data[:] = turn
        x = queue.array(data)
        PROGRAM.add(queue, *SIZES, x, 1)
        assert (x.get() == turn + 1).all()
    assert not queue.session.buffers.sent


def test_where_contents_end_must_be_the_same_again_and_again() -> None:
    memory = host_memory.CallersMemory(np.zeros(8, np.uint8))
    here, there = [(NOTHING, 2)], [(NOTHING, 4)]
    for ended in (here, *[there] * 2, *[here] * host_memory._OFTEN):
        memory.end(ended)
        assert not memory.is_steady(False)
        assert memory.is_steady(True) == (memory.times >= ENOUGH)
    memory.end(here)
    assert memory.is_steady(False)
    memory.end(there)
    assert not memory.is_steady(True)


def test_what_ended_on_the_host_is_copied(queue: mc.Queue, sent: list[int]) -> None:
    data = np.arange(COUNT, dtype=np.int32)
    for _ in range(2 * host_memory._OFTEN):
        x = queue.array(data)
        assert queue.session.directory.valid[x.buffer.key] == HOST_BIT
        del x
        queue.finish()
    assert not sent
