"""A native device that is held stands still, also within work-groups, and goes on where it was."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from manycl.drivers.driver import Holdable
from manycl.drivers.native.devices import found_with
from manycl.drivers.native.driver import NativeDriver
from tests import environment
from tests.drivers.native import native_entries
from tests.drivers.native.native_commands import Flag, enqueue_randomly, kernel, shared

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
def test_a_launch_that_has_begun_stands_still(held: NativeDriver, ns: int) -> None:
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


def test_a_work_group_that_never_ends_is_stopped(held: NativeDriver) -> None:
    flag = Flag(held, held.queue(timed=False))
    while held.is_still:
        time.sleep(1e-4)
    held.hold(True)
    until_still(held)
    flag.let_go()
    time.sleep(0.02)
    assert held.is_still
    assert not held.done(flag.event)
    held.hold(False)
    held.wait(flag.event)


def test_what_is_stopped_goes_on_as_if_it_had_not_been(held: NativeDriver) -> None:
    """With its registers, and the C library's word of what went wrong, which the waiting thread has used."""
    laps = np.zeros(5, np.uint64)
    event = held.launch(held.queue(timed=False), kernel(held, "laps", shared(held, laps)), (1,), (1,), None, None)
    for stop in range(200):
        before = laps[1]
        while laps[1] == before:
            time.sleep(1e-5)
        held.hold(True)
        if stop % 3:
            until_still(held)
        if stop % 3 == 1:
            seen = laps[1]
            time.sleep(1e-3)
            assert laps[1] == seen
        held.hold(False)
    laps[0] = 1
    held.wait(event)
    v, factor, added, left = 1, 6364136223846793005, 1442695040888963407, int(laps[1])
    while left:  # v -> v * factor + added so many times, by squaring
        if left & 1:
            v = (v * factor + added) % 2**64
        added, factor, left = (factor + 1) * added % 2**64, factor * factor % 2**64, left >> 1
    assert laps[2:].tolist() == [v, laps[1], 77]


def test_python_is_not_stopped(held: NativeDriver) -> None:
    """It may have locks that others want."""
    begun, over = threading.Event(), threading.Event()

    def call(*given: object) -> None:
        begun.set()
        over.wait()

    event = held.launch(held.queue(timed=False), held.function(call, 0), (1,), (1,), None, None)
    begun.wait()
    held.hold(True)
    for _ in range(100):
        assert not held.is_still
        time.sleep(1e-4)
    over.set()
    until_still(held)
    held.wait(event)  # it has ended, and says so a moment later
    assert held.done(event)


OTHERS_SIGNAL = """
import os, signal, sys, time
from tests.drivers.native import native_entries
from tests.drivers.native.native_commands import Flag
from manycl.drivers.native.devices import found_with
from manycl.drivers.native.driver import NativeDriver

def caught():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt"))

def driver():
    device = found_with(native_entries.compile_entries).device
    return NativeDriver(device, (-1,), native_entries.compile_entries)

heard, before = [], caught()
signal.signal(60, lambda number, frame: heard.append(number))
signal.pthread_sigmask(signal.SIG_BLOCK, [59])  # as who waits for it does
held = driver()
faults = sum(1 << number - 1 for number in (4, 5, 6, 7, 8, 11))  # of which last words are told
own = sum(1 << number - 1 for number in (32, 33))  # of the C library, which catches them as threads begin
assert caught() & ~before & ~faults & ~own == 1 << 59 | 1 << 57, "the next number that nobody has"
if sys.argv[1] == "taken":
    signal.signal(58, lambda number, frame: heard.append(number))
flag = Flag(held, held.queue(timed=False))
while held.is_still:
    time.sleep(1e-4)
os.kill(os.getpid(), 60)
if sys.argv[1] == "sent":
    os.kill(os.getpid(), 58)  # by somebody else: nothing happens
held.hold(True)
end = time.monotonic() + (0.1 if sys.argv[1] == "taken" else 60.0)
while not held.is_still and time.monotonic() < end:
    time.sleep(1e-3)
print(held.is_still, heard)
flag.let_go()
held.hold(False)
held.wait(flag.event)
"""


@pytest.mark.parametrize(("case", "said"), [("ours", "True [60]"), ("sent", "True [60]"), ("taken", "False [60]")])
def test_signals_that_a_program_has_are_its_own(case: str, said: str) -> None:
    """And where it takes over the one that stops devices, they stand still between work-groups."""
    words = [sys.executable, "-c", OTHERS_SIGNAL, case]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{said}\n"


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
