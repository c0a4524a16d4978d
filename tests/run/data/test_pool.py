"""Buffers that arrays leave behind go to others of about their size, never to two, and never while somebody looks."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from mmap import PAGESIZE
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import manycl as mc
from manycl.errors import RunError
from manycl.graph.graph import BufferKey
from manycl.machine import HOST, DeviceIndex, Machine
from manycl.model.transfer import LARGE
from manycl.run.data import host_memory
from manycl.run.data.pool import Pool, size_class
from manycl.units import PAGE
from tests.run.data.test_any_memory import SIZES, Driver, memory


@given(SIZES)
def test_an_array_that_is_counted_takes_memory_when_it_needs_it(nbytes: int) -> None:
    pool, capacity = Pool[int](print), size_class(nbytes)
    assert pool.made(nbytes) is None
    pool.allocated(capacity)
    assert pool.made(nbytes) is None
    pool.give(1, nbytes, capacity)
    assert (pool.used, pool.waiting) == (0, capacity)
    assert pool.take(nbytes) == 1
    assert (pool.used, pool.waiting, len(pool)) == (capacity, 0, 0)


@given(st.lists(SIZES, max_size=20))
def test_buffers_come_back_by_size(sizes: list[int]) -> None:
    freed: list[int] = []
    pool = Pool(freed.append)
    for key, nbytes in enumerate(sizes):
        capacity = size_class(nbytes)
        assert pool.made(nbytes) is None
        pool.allocated(capacity)
        assert not freed
        pool.give(key, nbytes, capacity)
        assert key in pool
        assert pool.made(nbytes) == key
        assert key not in pool
        assert pool.take(nbytes) is None
        pool.give(key, nbytes, capacity)
        pool.clear()
        assert freed.pop() == key
    assert len(pool) == pool.used == pool.waiting == 0


@given(st.integers(1, 1 << 40))
def test_classes_of_sizes(nbytes: int) -> None:
    capacity = size_class(nbytes)
    assert nbytes <= capacity <= max(nbytes + nbytes // 8, nbytes + 127)
    assert size_class(capacity) == capacity
    assert size_class(nbytes + 1) >= capacity or nbytes == capacity


@given(st.integers(1, 60 << 20))
def test_sizes_that_differ_by_a_sixteenth_are_of_one_class_or_of_neighbours(nbytes: int) -> None:
    assert size_class(nbytes + nbytes // 16) <= size_class(size_class(nbytes) + 1)


def test_sizes_that_change_a_little_find_the_same_memory() -> None:
    driver = Driver(1)
    held = memory(driver)
    numbers = set()
    for nbytes in range(1000 * PAGE, 1000 * PAGE + 400, 4):
        key = BufferKey(nbytes)
        held.create(key, nbytes)
        numbers.add(held.on_device(key, 0))
        assert len(held.host(key)) == held.nbytes(key) == nbytes
        held.release(key)
    assert len(numbers) == 1


def test_where_memory_is_short_buffers_are_as_large_as_they_have_to_be() -> None:
    nbytes = (1 << 20) + 4
    assert size_class(nbytes) > nbytes
    driver = Driver(1, 100 * nbytes + nbytes // 4)
    driver.device = replace(driver.device, global_memory=100 * nbytes)
    held = memory(driver)
    for key in map(BufferKey, range(100)):
        held.create(key, nbytes)
        held.on_device(key, 0)
    assert size_class(nbytes) in driver.allocated.values()
    driver = Driver(1, nbytes)
    held = memory(driver)
    held.create(BufferKey(0), nbytes)
    held.on_device(BufferKey(0), 0)
    held.release(BufferKey(0))
    held.create(BufferKey(1), nbytes)
    held.on_device(BufferKey(1), 0)
    assert driver.count == 1


def test_a_device_with_room_for_no_more_than_an_array_holds_it_though_another_one_has_more() -> None:
    nbytes = (1 << 20) + 4
    drivers = [Driver(1), Driver(2, nbytes)]
    held = memory(*drivers)
    held.create(BufferKey(0), nbytes)
    held.on_device(BufferKey(0), 0)
    held.on_device(BufferKey(0), 1)
    assert [*drivers[0].allocated.values(), *drivers[1].allocated.values()] == [size_class(nbytes), nbytes]
    held.release(BufferKey(0))
    held.create(BufferKey(1), size_class(nbytes))
    assert drivers[0].allocated[held.on_device(BufferKey(1), 0)] == size_class(nbytes)
    with pytest.raises(RunError, match="d2 cannot hold"):
        held.on_device(BufferKey(1), 1)


def test_what_a_run_has_left_is_only_taken_where_it_is_large_enough_for_the_next_array() -> None:
    nbytes = (1 << 20) + 4
    driver = Driver(1)
    held = memory(driver)
    held.create(BufferKey(-1), nbytes)
    held.on_device(BufferKey(-1), 0)
    held.set_aside(BufferKey(-1), 0)
    held.create(BufferKey(0), nbytes)
    held.host(BufferKey(0))
    held.on_device(BufferKey(0), 0)
    held.tidy()
    held.release(BufferKey(0))
    held.create(BufferKey(1), size_class(nbytes))
    assert driver.allocated[held.on_device(BufferKey(1), 0)] >= size_class(nbytes)


def test_other_threads_make_and_drop_arrays_meanwhile() -> None:
    driver = Driver(1)
    held = memory(driver)
    for key in map(BufferKey, range(300)):
        held.create(key, 64)
        held.on_device(key, 0)
        held.host(key)
    failed: list[Exception] = []
    is_over = threading.Event()

    def look() -> None:
        try:
            while not is_over.is_set():
                assert sum(held.allocated(0).values()) >= 300 * 64
                assert held.use()["host"].arrays >= 300 * 64
                held._make_room(held._devices[0], 64)
        except Exception as error:
            failed.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread = threading.Thread(target=look)
        thread.start()
        for first in range(300, 6300, 20):
            keys = [BufferKey(key) for key in range(first, first + 20)]
            for key in keys:
                held.create(key, 64)
                held.on_device(key, 0)
            for key in keys:
                held.release(key)
        is_over.set()
        thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not failed


def test_a_driver_without_room_gets_back_what_waits() -> None:
    driver = Driver(1, 3 * PAGE)
    held = memory(driver)
    for key in range(3):
        held.create(key, PAGE)
        held.on_device(key, 0)
    for key in range(3):
        held.release(key)
    assert len(held.pool) == 3
    held.create(3, 2 * PAGE)
    held.on_device(3, 0)
    assert sum(driver.allocated.values()) <= 3 * PAGE
    held.create(4, 2 * PAGE)
    with pytest.raises(RunError, match="cannot hold"):
        held.on_device(4, 0)


def test_a_mapped_view_that_is_kept_is_nobody_elses() -> None:
    with mc.Queue("cpu/1") as queue:
        program = mc.Program("kernel void f(global int *x) { x[get_global_id(0)] += 1; }")
        x = queue.array(np.full(4096, 7, np.int32))
        with x.map() as host:
            kept = host
        program.f(queue, (4096,), (64,), x)
        assert (x.get() == 8).all()
        del x
        for n in range(5):
            y = queue.array(np.full(4096, n, np.int32))
            program.f(queue, (4096,), (64,), y)
            assert (y.get() == n + 1).all()
        assert (kept == 8).all()


def test_what_a_host_function_keeps_is_nobody_elses() -> None:
    kept: list[Any] = []
    with mc.Queue("cpu/1") as queue:
        for n in range(4):
            x = queue.array(np.full(4096, n, np.int32))
            queue.call(kept.append, x)
            queue.finish()
        assert [int(k[0]) for k in kept] == [0, 1, 2, 3]


@pytest.mark.parametrize("zero_copy", ["0", "1"])
def test_loops_use_the_same_memory_and_give_it_back(monkeypatch: pytest.MonkeyPatch, zero_copy: str) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", zero_copy)
    with mc.Queue("cpu/1") as queue:
        program = mc.Program("kernel void f(global const int *x, global int *y) { y[get_global_id(0)] = x[0] + 1; }")
        addresses = set()
        for n in range(300):
            x, y = queue.array(np.full(2048, n, np.int32)), queue.empty(2048, np.int32)
            program.f(queue, (2048,), (64,), x, y)
            assert y.get()[5] == n + 1
            addresses.add(queue.session.backend.memory.host(x.buffer.key).ctypes.data)
        pool = queue.session.backend.memory.pool
        assert len(addresses) <= 6
        assert pool.used + pool.waiting <= pool.most <= 4 * 8192
        del x, y
        queue.session.trim()
        assert not pool
        assert pool.used == 0
        assert not queue.session.backend.memory.buffers(0)


def test_halving_and_growing_arrays_leave_nothing() -> None:
    with mc.Queue("cpu/1") as queue:
        program = mc.Program("kernel void f(global int *x) { x[get_global_id(0)] = 3; }")
        for n in [*range(8), *reversed(range(8))] * 10:
            x = queue.empty(2048 << n, np.int32)
            program.f(queue, (2048 << n,), (64,), x)
            assert x.get()[-1] == 3
        pool = queue.session.backend.memory.pool
        assert pool.used + pool.waiting <= pool.most <= 3 * 4 * (2048 << 7)


@pytest.mark.parametrize("nbytes", [64, PAGE])
def test_borrowed_contents_are_in_the_memory_that_a_device_computes_in(nbytes: int) -> None:
    driver = Driver(HOST)
    held = memory(driver)
    held.create(0, nbytes)
    held.borrow(0, np.full(nbytes, 5, np.uint8))
    assert (driver.inside[held.on_device(0, 0)][:nbytes] == 5).all()
    held.release(0)
    held.create(1, nbytes)
    held.borrow(1, np.full(nbytes, 7, np.uint8))
    assert (driver.inside[held.on_device(1, 0)][:nbytes] == 7).all()


@pytest.mark.parametrize("nbytes", [PAGE, LARGE])
def test_memory_is_page_locked_where_that_pays_and_stays_where_it_is(nbytes: int) -> None:
    """Little memory is moved again and again first, much need not be."""
    held = memory(Driver(1), Driver(HOST))
    keys = [BufferKey(k) for k in range(3)]
    for key in keys:
        held.create(key, nbytes)
        held.on_device(key, 1)
    seen = [held.host(key).view(np.uint32) for key in keys]
    locked = []
    for run in range(12):
        sources = []
        for key in keys:
            held.replace(key)[:] = run
            source = held.upload_source(key, DeviceIndex(0))
            assert (source.memory == run).all()
            sources.append(source.is_pinned)
            del source
        locked.append(sum(sources))
    assert locked == [3] * 12 if nbytes == LARGE else [0] * 3 + [3] * 9
    assert held.locks.nbytes == 3 * size_class(nbytes)
    assert all((look == held.host(key).view(np.uint32)).all() for look, key in zip(seen, keys, strict=True))
    del seen
    for key in keys:
        held.release(key)
    held.trim()
    assert held.locks.nbytes == 0


def test_what_is_moved_of_large_memory_has_to_be_worth_locking_it() -> None:
    held = memory(Driver(1))
    for key in range(3):
        held.create(BufferKey(key), 8 * LARGE)
        held.host(BufferKey(key))[:] = 1
    row = LARGE // 64
    rows = [held.upload_source(BufferKey(0), DeviceIndex(0), row).is_pinned for _ in range(400)]
    assert rows == [False] * 255 + [True] * 145, "from a half of it on"
    assert not held.download_target(BufferKey(1), DeviceIndex(0)).is_pinned, "it may have never been touched"
    assert held.download_target(BufferKey(1), DeviceIndex(0)).is_pinned
    assert held.upload_source(BufferKey(1), DeviceIndex(0)).is_pinned
    held.borrow(BufferKey(2), np.full(8 * LARGE, 5, np.uint8))
    assert not held.upload_source(BufferKey(2), DeviceIndex(0)).is_pinned, "it is the caller's"


def test_each_platform_locks_memory_for_itself() -> None:
    drivers = [Driver(1), Driver(2), Driver(HOST)]
    for driver, platform in zip(drivers, ("one", "two", "one"), strict=True):
        driver.device = replace(driver.device, platform=platform)
    locked: list[int] = []
    for n, driver in enumerate(drivers):
        driver.pin = lambda data, n=n: locked.append(n) or data if n != 1 else None  # type: ignore[method-assign]
    held = memory(*drivers)
    for key in range(2):
        held.create(BufferKey(key), LARGE)
        held.host(BufferKey(key))[:] = 1
    for _ in range(3):
        assert held.upload_source(BufferKey(0), DeviceIndex(0)).is_pinned
        assert not held.upload_source(BufferKey(0), DeviceIndex(1)).is_pinned, "it gains nothing by that"
        assert not held.upload_source(BufferKey(1), DeviceIndex(1)).is_pinned
    assert locked == [0]
    drivers[1].pin = lambda data: locked.append(1) or data  # type: ignore[method-assign,func-returns-value]
    held.rearrange(Machine(tuple(d.device for d in drivers)), drivers, [0, 1, 2])  # type: ignore[arg-type]
    assert held.upload_source(BufferKey(0), DeviceIndex(1)).is_pinned
    assert held.upload_source(BufferKey(0), DeviceIndex(0)).is_pinned
    assert locked == [0, 1]
    assert held.locks.nbytes == size_class(LARGE)


def test_no_more_than_a_part_of_the_hosts_memory_is_page_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "ram_bytes", lambda: 40 * LARGE)
    held = memory(Driver(1))
    for key in range(9):
        held.create(BufferKey(key), 2 * LARGE)
        held.host(BufferKey(key))[:] = 1
    locked = [held.upload_source(BufferKey(key), DeviceIndex(0)).is_pinned for key in range(9)]
    assert locked == [True] * 5 + [False] * 4
    held.release(BufferKey(0))
    held.trim()
    assert held.upload_source(BufferKey(7), DeviceIndex(0)).is_pinned, "there is room again"


def test_a_callers_memory_is_page_locked_from_its_second_upload_on_until_it_is_freed() -> None:
    driver = Driver(1)
    held, mine, part = memory(driver), np.full(2 * LARGE + 5, 7, np.uint8), np.full((4, LARGE), 3, np.uint8)[1:3]
    pinned: list[Any] = []
    driver.pin = lambda data: pinned.append((data.ctypes.data, len(data))) or data  # type: ignore[method-assign,func-returns-value]

    def upload(data: Any, nbytes: int | None = None) -> list[bool]:
        held.create(BufferKey(0), data.nbytes)
        held.borrow(BufferKey(0), data.reshape(-1))
        found = [held.upload_source(BufferKey(0), DeviceIndex(0), nbytes) for _ in range(1 if nbytes is None else 4)]
        assert all(end.memory.ctypes.data == data.ctypes.data for end in found), "it is read in place"
        held.release(BufferKey(0))
        return [end.is_pinned for end in found]

    assert upload(mine) == [False], "it may never come again"
    assert upload(mine, mine.nbytes // 4) == [True] * 4
    ((begin, nbytes),) = pinned
    assert begin <= mine.ctypes.data < mine.ctypes.data + mine.nbytes <= begin + nbytes
    assert not begin % PAGESIZE
    assert not nbytes % PAGESIZE
    assert [*upload(part), *upload(part)] == [False, True], "a part of an array"
    assert held.locks.nbytes == sum(nbytes for _, nbytes in pinned)
    with pytest.raises(ValueError, match="resize"):
        mine.resize(5)
    for text in (np.frombuffer(bytes(LARGE), np.uint8), np.zeros(LARGE // 2, np.uint8)):
        assert [*upload(text), *upload(text)] == [False, False], "NumPy does not free it, or it is little"
    del mine, part
    assert held.locks.nbytes == 0
    new = np.full(2 * LARGE + 5, 8, np.uint8)  # perhaps at the same place
    assert upload(new) == [False]


def test_a_loop_that_makes_its_arrays_before_it_drops_those_of_the_run_before_has_two_sets_of_buffers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    with mc.Queue("cpu/2", policy="mkmd_coarse") as queue:
        program = mc.Program("kernel void f(global const int *x, global int *y) { y[get_global_id(0)] = x[0] + 1; }")
        given, sets = np.full(LARGE, 3, np.int32), set[frozenset[int]]()
        for n in range(12):
            x, y = queue.array(given, copy=False), queue.empty(LARGE, np.int32)
            program.f(queue, (LARGE,), (64,), x, y)
            assert y.get()[5] == 4
            if n > 2:
                sets.add(frozenset((x.buffer.key, y.buffer.key)))
        pool = queue.session.backend.memory.pool
        assert len(sets) == 2
        assert pool.used + pool.waiting <= pool.most == 4 * given.nbytes
