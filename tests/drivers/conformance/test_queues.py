"""Queues of drivers: the order of commands, events, threads, and functions of the host in their turn."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import numpy as np
import pytest

from manycl.drivers.driver import (
    Driver,
    DriverError,
)
from manycl.graph.graph import LocalArg
from tests.drivers.conformance.suite import Desk, uint


@pytest.mark.parametrize("nbytes", [64, 3 << 20])
def test_a_queue_keeps_its_order(desk: Desk, nbytes: int) -> None:
    """Of kernels and copies, small and large, without waiting for anything."""
    memory, items = desk.driver.allocate(nbytes), nbytes // 4
    results = [np.zeros(nbytes, np.uint8) for _ in range(3)]
    event = desk.copy(memory, np.zeros(nbytes, np.uint8))
    for turn, result in enumerate(results):
        for _ in range(3):
            desk.launch(desk.kernel("add", memory, turn + 1), items)
        event = desk.copy(result, memory)
    desk.end(event)
    assert [set(r.view(np.uint32).tolist()) for r in results] == [{3}, {9}, {18}]


def test_queues_are_ordered_by_what_comes_after(driver: Driver) -> None:
    """Each command in another queue than the one before, flushed in any order."""
    desks = [Desk(driver) for _ in range(3)]
    memory, data = driver.allocate(64), np.zeros(64, np.uint8)
    event = desks[0].copy(memory, data)
    for turn in range(12):
        desk = desks[turn % 3]
        event = desk.launch(desk.kernel("slow" if turn % 4 == 0 else "add", memory, 1), 16, [event])
    event = desks[1].copy(data, memory, after=[event])
    for desk in reversed(desks):
        driver.flush(desk.queue)
    driver.wait(event)
    assert (data.view(np.uint32) == 12).all()


def test_events_tell_when(desk: Desk) -> None:
    """By the host's clock, as well as the device's can be compared with it."""
    memory, driver = desk.there(np.zeros(1 << 22, np.uint8)), desk.driver
    clock = driver.clock()
    assert clock is not None
    began = time.perf_counter()
    events = [desk.launch(desk.kernel("slow", memory, 1), 16) for _ in range(3)]
    events.append(desk.copy(np.zeros(1 << 22, np.uint8), memory))
    desk.end(events[-1])
    ended = time.perf_counter()
    spans = [driver.times(event) for event in events]
    assert all(start < end for start, end in spans)
    # copies that are staged are timed by the host's clock
    assert all(a[1] <= b[0] + 1e-3 for a, b in itertools.pairwise(spans))
    assert began - 1.0 < spans[0][0] + clock
    assert spans[-1][1] + clock < ended + 1.0


def test_queues_that_are_not_timed_work_as_well(driver: Driver) -> None:
    desk = Desk(driver, timed=False)
    memory = desk.there(np.zeros(64, np.uint8))
    event = desk.launch(desk.kernel("add", memory, 1), 16)
    desk.end(event)
    try:
        start, end = driver.times(event)
        assert start <= end
    except DriverError:
        pass  # nobody knows
    assert (desk.look(memory, 64).view(np.uint32) == 1).all()


def test_finish_waits_for_all_queues(driver: Driver) -> None:
    desks = [Desk(driver) for _ in range(3)]
    memories = [desk.there(np.zeros(64, np.uint8)) for desk in desks]
    events = [desk.launch(desk.kernel("slow", m, 1), 16) for desk, m in zip(desks, memories, strict=True)]
    driver.finish()
    assert all(driver.done(event) for event in events)
    driver.finish()


def test_a_thread_may_wait_before_it_is_sent(desk: Desk) -> None:
    memory = desk.there(np.zeros(64, np.uint8))
    event = desk.launch(desk.kernel("slow", memory, 1), 16)
    ended = threading.Event()
    threading.Thread(target=lambda: (desk.driver.wait(event), ended.set()), daemon=True).start()
    desk.driver.flush(desk.queue)
    assert ended.wait(60)


def test_threads_with_queues_of_their_own(driver: Driver) -> None:
    desks = [Desk(driver) for _ in range(4)]
    results: list[Any] = []

    def use(desk: Desk, n: int) -> None:
        memory = desk.there(np.full(64, 0, np.uint8))
        for _ in range(20):
            desk.launch(desk.kernel("add", memory, n), 16)
        results.append((n, set(desk.look(memory, 64).view(np.uint32).tolist())))

    threads = [threading.Thread(target=use, args=(desk, n)) for n, desk in enumerate(desks, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [(n, {20 * n}) for n in range(1, 5)]


def test_functions_of_python_are_called_in_their_turn(desk: Desk) -> None:
    """With the bytes of memory, values as they were, and the NDRange; what they raise is the launch's failure."""
    seen: list[Any] = []

    def double(values: Any, global_size: Any, offset: Any) -> None:
        memory, by, room = values
        seen.append((by, room, tuple(global_size), tuple(offset or (0,))))
        memory.view(np.uint32)[: global_size[0]] *= 2

    def fails(values: Any, global_size: Any, offset: Any) -> None:
        raise ValueError("these words")

    try:
        kernel = desk.driver.function(double, 3)
        bad = desk.driver.function(fails, 0)
    except DriverError:
        assert type(desk.driver).__name__ in ("NodeDriver", "OpenCLDriver", "WorkerDriver")
        return
    assert kernel.most_items >= 1 << 31
    memory = desk.there(np.ones(16, np.uint32).view(np.uint8))
    desk.launch(desk.kernel("add", memory, 2), 16)
    for index, value in enumerate((memory, uint(5), LocalArg(8))):
        kernel.set(index, value)
    desk.launch(kernel, 16)
    kernel.set(1, uint(6))
    desk.driver.launch(desk.queue, kernel, (8,), None, (3,), None)
    desk.end(desk.launch(desk.kernel("add", memory, 1), 16))
    assert (desk.look(memory, 64).view(np.uint32) == [13] * 8 + [7] * 8).all()
    assert seen == [(uint(5), LocalArg(8), (16,), (0,)), (uint(6), LocalArg(8), (8,), (3,))]
    event = desk.launch(bad, 1)
    desk.driver.flush(desk.queue)
    with pytest.raises(DriverError, match="these words"):
        desk.driver.wait(event)
    desk.end(desk.launch(desk.kernel("add", memory, 1), 16))
