"""A native device that is held begins no work-group, and goes on where it was."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import native_entries
import numpy as np
import pytest
from test_native_runtime import Flag, enqueue_randomly, kernel, shared

from manycl.drivers.driver import Holdable
from manycl.drivers.native.devices import found_with
from manycl.drivers.native.driver import NativeDriver

MS = 1_000_000


@pytest.fixture(params=[1, 2, 5])
def held(request: pytest.FixtureRequest) -> Iterator[NativeDriver]:
    """A device of so many threads, on any cores."""
    device = found_with(native_entries.compile_entries).device
    driver = NativeDriver(device, (-1,) * request.param, native_entries.compile_entries)
    yield driver
    driver.hold(False)
    driver.finish()
    driver.release()


def until_still(driver: NativeDriver) -> None:
    while not driver.is_still:
        time.sleep(1e-4)


def test_nothing_begins_while_it_is_held(held: NativeDriver) -> None:
    counts, queue = np.zeros(300, np.uint32), held.queue(timed=True)
    run = kernel(held, "once", shared(held, counts), 0)
    assert isinstance(held, Holdable)
    held.hold(True)
    assert held.is_still
    events = [held.launch(queue, run, (groups,), (1,), None, None) for groups in (300, 1, 7)]
    events.append(held.fill(held.queue(timed=False), held.allocate(64), b"\0", 0, 64, ()))
    assert held.is_still
    assert not counts.any()
    assert not any(held.done(event) for event in events)
    held.hold(False)
    for event in events:
        held.wait(event)
    assert counts[0] == 3
    assert (counts[1:7] == 2).all()
    assert (counts[7:] == 1).all()


@pytest.mark.parametrize("ns", [20_000, MS])
def test_a_launch_that_has_begun_stands_still_between_its_work_groups(held: NativeDriver, ns: int) -> None:
    """Wherever it is held, again and again."""
    groups = 200 * MS // ns
    counts, queue = np.zeros(groups, np.uint32), held.queue(timed=True)
    run = kernel(held, "once", shared(held, counts), ns)
    event = held.launch(queue, run, (groups,), (1,), None, None)
    stops = 0
    for wanted in (1, groups // 4, groups // 2):
        while counts.sum() < wanted:
            time.sleep(1e-4)
        held.hold(True)
        until_still(held)
        seen = counts.copy()
        if not held.done(event):
            stops += 1
            time.sleep(0.02)
            assert held.is_still
            assert (counts == seen).all()
        held.hold(False)
    held.wait(event)
    assert (counts == 1).all()
    assert stops


def test_what_runs_is_seen(held: NativeDriver) -> None:
    flag = Flag(held, held.queue(timed=False))
    while held.is_still:
        time.sleep(1e-4)
    held.hold(True)
    for _ in range(100):
        assert not held.is_still
    flag.let_go()
    until_still(held)
    assert held.done(flag.event) or held.is_still


def test_the_time_that_it_was_held_is_no_cost_of_a_kernel(held: NativeDriver) -> None:
    """A launch of little work after one that was held for long is still run by one thread, at once."""
    counts, queue = np.zeros(64, np.uint32), held.queue(timed=True)
    run = kernel(held, "once", shared(held, counts), 0)
    for _ in range(20):
        held.wait(held.launch(queue, run, (64,), (1,), None, None))
    shape = run.shape((64,), (1,), None)
    before = cost(shape)
    for _ in range(4):
        held.hold(True)
        event = held.launch(queue, run, (64,), (1,), None, None)
        time.sleep(0.1)
        held.hold(False)
        held.wait(event)
    assert cost(shape) < before + 0.1e9 / 64 / 4  # ns: a fraction of one pause


def cost(shape: Any) -> float:
    """ns of a work-group, as has been learned."""
    return ctypes.c_uint64.from_address(shape.address + 24).value / 1024


def test_random_commands_while_it_is_held_again_and_again(held: NativeDriver) -> None:
    over = threading.Event()

    def hold() -> None:
        n = 0
        while not over.is_set():
            held.hold(True)
            if n % 3:
                until_still(held)
            held.hold(False)
            time.sleep(1e-4 * (n % 5))
            n += 1

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        for seed in range(3):
            enqueue_randomly(held, seed, 500)()
    finally:
        over.set()
        thread.join()


def test_a_signal_is_heard_while_the_main_thread_waits_for_a_held_device(held: NativeDriver) -> None:
    """The first one while it is held; the thread may have run a part of it in a worker's place."""
    counts, queue = np.zeros(2000, np.uint32), held.queue(timed=True)
    run = kernel(held, "once", shared(held, counts), 50_000)
    for _ in range(2):  # it is known how long it takes
        held.wait(held.launch(queue, run, (20,), (1,), None, None))
    heard: list[bool] = []

    def hear(number: int, frame: object) -> None:
        if not heard:
            heard.append(True)
            held.hold(False)

    event = held.launch(queue, run, (2000,), (1,), None, None)
    holder = threading.Timer(0.005, held.hold, (True,))
    sender = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, hear)
    holder.start()
    sender.start()
    try:
        held.wait(event)
        holder.join()
        held.hold(False)
        sender.join()
        while not heard:
            time.sleep(1e-3)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (counts[20:] == 1).all()


def test_a_device_that_is_released_while_it_is_held_ends_what_it_was_given(held: NativeDriver) -> None:
    counts, queue = np.zeros(5000, np.uint32), held.queue(timed=False)
    run = kernel(held, "once", shared(held, counts), 0)
    held.hold(True)
    event = held.launch(queue, run, (5000,), (1,), None, None)
    held.release()
    held.wait(event)
    assert (counts == 1).all()
    held.hold(True)  # nobody is there any more
    assert held.is_still
