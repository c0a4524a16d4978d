"""The runtime of native devices: what its threads do with commands, in whatever order and number they are given."""

from __future__ import annotations

import ctypes
import gc
import random
import signal
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manycl.analysis.work_group.group_function import NARROW
from manycl.drivers.driver import DriverError, End
from manycl.drivers.native.driver import NativeDriver
from manycl.drivers.native.kernel import MOST_FRAME
from manycl.graph.graph import LocalArg
from manycl.region import Rectangle
from tests.drivers.native import native_entries
from tests.drivers.native.native_commands import Flag, Open, enqueue_randomly, kernel, shared, uint

PIECE = 1 << 17  # bytes of a copy that one worker does at once, as in runtime/copies.h


@pytest.mark.parametrize("groups", [1, 2, 3, 17, 1000, 100_003])
def test_each_work_group_runs_once(driver: NativeDriver, groups: int) -> None:
    """Also when what was learned of earlier launches, little or much time, turns out to be wrong."""
    counts = np.zeros(groups, np.uint32)
    run, queue = kernel(driver, "once", shared(driver, counts), 0), driver.queue(timed=True)
    least = min(20_000, 20_000_000 // groups)
    times = (0, 0, 0, 1, least, least, 0, 0)
    for turn, ns in enumerate(times, 1):
        run.set(1, uint(ns))
        driver.wait(driver.launch(queue, run, (groups,), (1,), None, None))
        assert (counts == turn).all()


def test_arguments_lie_where_their_types_want_them(driver: NativeDriver) -> None:
    out = np.zeros(8, np.uint64)
    struct, wide = np.array([1, 2, 77], np.uint32), np.arange(8, dtype=np.uint64) + 40
    args = b"\x09", (1 << 40).to_bytes(8, "little"), struct.tobytes(), wide.tobytes(), shared(driver, out)
    driver.wait(driver.launch(driver.queue(timed=False), kernel(driver, "mixed", *args), (1,), None, None, None))
    assert out[:5].tolist() == [9, 1 << 40, 77, 0, 47]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_copies_of_many_pieces(driver: NativeDriver, data: Any) -> None:
    """Rows of a few bytes and of several pieces, in rectangles that a copy has together."""
    random_bytes = np.random.default_rng(1)
    rectangles, at = [], data.draw(st.integers(0, 70))
    low, other = (data.draw(st.integers(0, at)) for _ in range(2))
    for _ in range(data.draw(st.integers(1, 4))):
        width = data.draw(st.one_of(st.integers(1, 300), st.integers(PIECE - 2, PIECE + 2), st.integers(1, 3 * PIECE)))
        rows = data.draw(st.integers(1, 5 if width > 300 else 3000))
        pitch = width + data.draw(st.integers(0, 50))
        rectangles.append(Rectangle(at, width, pitch if rows > 1 else 0, rows))
        at = rectangles[-1].end + data.draw(st.integers(0, 9))
    mask = np.zeros(at, bool)
    for rect in rectangles:
        for start in rect.starts():
            mask[start : start + rect.width] = True
    source, target = random_bytes.integers(0, 256, at, np.uint8), np.full(at, 7, np.uint8)
    held, queue = driver.allocate(at - low), driver.queue(timed=False)
    driver.copy(queue, End(held, low), End(np.full(at, 3, np.uint8)), (Rectangle(low, at - low),), ())
    driver.copy(queue, End(held, low), End(source), rectangles, ())
    part = target[other:].copy()
    (event,) = driver.copy(queue, End(part, other), End(held, low), rectangles, ())
    driver.wait(event)
    assert (part == np.where(mask, source, target)[other:]).all()


@pytest.mark.parametrize("nbytes", [4096, PIECE, PIECE + 4096, 5 * PIECE + 4])
@pytest.mark.parametrize("length", [1, 4, 128])
def test_fills_of_many_pieces(driver: NativeDriver, nbytes: int, length: int) -> None:
    nbytes -= nbytes % length
    values, pattern = np.full(nbytes + 2 * length, 9, np.uint8), bytes(range(1, length + 1))
    event = driver.fill(driver.queue(timed=False), shared(driver, values), pattern, length, nbytes, ())
    driver.wait(event)
    assert (values[length:-length].reshape(-1, length) == np.frombuffer(pattern, np.uint8)).all()
    assert set(values[:length]) == set(values[-length:]) == {9}


def test_random_commands_in_random_queues(driver: NativeDriver) -> None:
    for seed in range(6):
        enqueue_randomly(driver, seed, 800)()


@pytest.mark.parametrize("threads", [(1, 1), (2, 3), (1, 2, 1)])
def test_commands_wait_for_those_of_other_devices(open_driver: Open, threads: tuple[int, ...]) -> None:
    first, *others = map(open_driver, threads)
    for seed in range(6):
        enqueue_randomly(first, seed, 800, *others)()


@pytest.mark.parametrize("devices", [1, 3])
def test_several_threads_enqueue_random_commands(open_driver: Open, devices: int) -> None:
    failed: list[BaseException] = []
    first, *others = [open_driver(2) for _ in range(devices)]

    def use(seed: int) -> None:
        try:
            enqueue_randomly(first, seed, 1500, *others)()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_many_tiny_commands(open_driver: Open) -> None:
    """More than a hundred thousand, none of which is waited for; what they used is not kept for ever."""
    driver = open_driver(2)
    x = np.zeros(16, np.uint32)
    run, queue = kernel(driver, "add", shared(driver, x), 1), driver.queue(timed=True)
    for _ in range(100_000):
        driver.launch(queue, run, (16,), (16,), None, None)
    event = driver.launch(queue, run, (16,), (16,), None, None)
    driver.wait(event)
    assert (x == 100_001).all()
    assert not queue.kept
    start, end = driver.times(event)
    assert start < end <= time.perf_counter()


def test_events_are_told_by_the_clock_of_perf_counter(driver: NativeDriver) -> None:
    queue, x = driver.queue(timed=True), np.zeros(4, np.uint32)
    for _ in range(3):  # also from the time on when it is known how long it takes
        before = time.perf_counter()
        event = driver.launch(queue, kernel(driver, "once", shared(driver, x), 1_000_000), (4,), (1,), None, None)
        driver.wait(event)
        start, end = driver.times(event)
        assert before <= start
        assert start + 1e-3 <= end <= time.perf_counter()
    assert driver.clock() == 0.0


def test_times_of_a_command_that_has_not_run(open_driver: Open) -> None:
    driver = open_driver(1)
    queue = driver.queue(timed=True)
    flag = Flag(driver, queue)
    assert not driver.done(flag.event)
    assert not driver.succeeded([flag.event])
    with pytest.raises(DriverError):
        driver.times(flag.event)
    flag.let_go()
    driver.wait(flag.event)
    assert driver.done(flag.event)


def test_a_command_leaves_others_their_turn(open_driver: Open) -> None:
    """With one thread, between work-groups: the last one of this kernel ends when a later command of another queue has
    run."""
    driver, word = open_driver(1), np.zeros(1, np.uint32)
    flag = Flag(driver, driver.queue(timed=False))  # until all are enqueued
    memory = shared(driver, word)
    run = kernel(driver, "last_waits", memory)
    long = driver.launch(driver.queue(timed=True), run, (1000,), (1,), None, None)
    short = driver.fill(driver.queue(timed=True), memory, uint(1), 0, 4, ())
    flag.let_go()
    driver.wait(long)
    assert driver.times(long)[0] < driver.times(short)[0] < driver.times(short)[1] < driver.times(long)[1]


def test_a_thread_that_waits_computes_as_the_devices_own_do(open_driver: Open) -> None:
    """Whatever room for private memory, and whatever way to treat tiny numbers, it has itself."""
    driver, found, states = open_driver(2), np.zeros((64, 2), np.uint64), list[tuple[int, int]]()
    threads, floats, own = set[int](), set[int](), list[int]()
    launched = kernel(driver, "who", shared(driver, found))

    def wait() -> None:
        functions = native_entries.functions()
        functions.flushed.restype = functions.floats_of_thread.restype = ctypes.c_uint64
        flushed, queue = functions.flushed(), driver.queue(timed=False)
        own.append(threading.get_native_id())
        for _ in range(20_000):
            found[:] = 0
            driver.wait(driver.launch(queue, launched, (64,), (1,), None, None))
            threads.update(found[:, 0].tolist())
            floats.update(found[:, 1].tolist())
            states.append((flushed, functions.floats_of_thread()))
            if own[0] in threads:
                break
            time.sleep(1e-3)  # the device's threads fall asleep

    before = threading.stack_size(1 << 18)
    try:
        thread = threading.Thread(target=wait)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert own[0] in threads
    assert 0 not in threads
    assert len(floats) == 1
    assert all(flushed == now for flushed, now in states)
    assert states[0][0] not in floats


def test_a_signal_is_heard_while_the_main_thread_waits(open_driver: Open) -> None:
    driver = open_driver(2)
    flag, heard = Flag(driver, driver.queue(timed=False)), list[bool]()

    def hear(number: int, frame: object) -> None:
        heard.append(not flag.word[0])
        flag.let_go()

    late = threading.Timer(30, flag.let_go)
    late.start()
    before = signal.signal(signal.SIGALRM, hear)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        driver.wait(flag.event)
    finally:
        signal.signal(signal.SIGALRM, before)
        late.cancel()
    assert heard == [True]


def test_several_threads_wait_for_commands_of_several_queues(open_driver: Open) -> None:
    """Each command runs once, whoever runs it, and who waits for it finds what it has left."""
    driver, failed = open_driver(2), list[BaseException]()

    def use(seed: int) -> None:
        try:
            r, queue = random.Random(seed), driver.queue(timed=False)
            x = np.zeros(4096, np.uint32)
            run = kernel(driver, "once", shared(driver, x), 0)
            for turn in range(1, 600):
                run.set(1, uint(r.choice((0, 0, 200, 2000))))
                event = driver.launch(queue, run, (r.choice((1, 3, 64)),), (1,), None, None)
                if r.random() < 0.8:
                    driver.wait(event)
                    assert x[0] == turn
            driver.wait(event)
            assert x[0] == turn
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_what_a_dropped_queue_was_given_still_runs(open_driver: Open) -> None:
    driver = open_driver(2)
    queue = driver.queue(timed=True)
    flag = Flag(driver, queue)
    result = np.zeros(1 << 20, np.uint8)
    driver.copy(queue, End(result), End(np.full(1 << 20, 5, np.uint8)), (Rectangle(0, 1 << 20),), ())
    let_go = flag.let_go
    gone = weakref.ref(queue)
    flag.event = None
    del queue
    gc.collect()
    assert gone() is None
    others = [driver.queue(timed=False) for _ in range(3)]
    assert not result.any()
    let_go()
    driver.finish()
    assert (result == 5).all()
    del others


def test_memory_goes_with_its_last_user(open_driver: Open) -> None:
    driver = open_driver(2)
    queue = driver.queue(timed=False)
    data = np.zeros(64, np.uint32)
    gone = weakref.ref(data)
    run = kernel(driver, "add", driver.allocate(256, data.view(np.uint8)), 1)
    flag = Flag(driver, queue)
    event = driver.launch(queue, run, (64,), (1,), None, None)
    del data, run
    gc.collect()
    assert gone() is not None
    flag.let_go()
    driver.wait(event)
    assert gone() is None
    memory = driver.allocate(1 << 20)
    part, array = driver.part(memory, 128, 4), weakref.ref(memory.kept.base)
    del memory
    assert array() is not None
    del part
    assert array() is None
    memory = driver.allocate(1 << 20)
    run, array = kernel(driver, "add", memory, 1), weakref.ref(memory.kept.base)
    driver.free(memory)
    assert array() is None
    del run


@pytest.mark.parametrize(("offset", "is_wide"), [(NARROW - 64, False), (NARROW - 63, True), (1 << 40, True)])
def test_ids_of_more_than_31_bits(open_driver: Open, offset: int, is_wide: bool) -> None:
    """The compiler is told of them, and the offset comes as it is."""
    driver, out = open_driver(1), np.zeros(64, np.uint64)
    run = kernel(driver, "offset_of", shared(driver, out))
    driver.wait(driver.launch(driver.queue(timed=False), run, (64,), (4,), (offset,), None))
    assert out.tolist() == [offset] * 16 + [0] * 48
    assert run.kernel.asked == [is_wide]


def test_what_cannot_be_is_refused(driver: NativeDriver) -> None:
    queue, x = driver.queue(timed=False), np.zeros(64, np.uint32)
    memory, run = shared(driver, x), kernel(driver, "add")
    refused = pytest.raises(DriverError)
    with refused:
        driver.launch(queue, run, (64,), (1,), None, None)  # nothing is set
    for index, value in ((0, uint(1)), (1, memory), (1, b"12345"), (2, uint(1)), (-1, memory), (1, LocalArg(4))):
        with refused:
            run.set(index, value)
    run.set(0, memory)
    run.set(1, uint(1))
    for global_size, local, offset in (
        ((64,), (3,), None),
        ((0,), (1,), None),
        ((64,), (0,), None),
        ((64, 1), (1,), None),
        ((64,), (1,), (1, 2)),
        ((1, 1, 1, 1), (1, 1, 1, 1), None),
        ((8192,), (8192,), None),
    ):
        with refused:
            driver.launch(queue, run, global_size, local, offset, None)
    turned = kernel(driver, "turned", memory, LocalArg(MOST_FRAME))
    with refused:
        driver.launch(queue, turned, (64,), (8,), None, None)
    for rect in (Rectangle(0, 257), Rectangle(250, 10), Rectangle(0, 4, 64, 5)):
        with refused:
            driver.copy(queue, End(memory), End(np.zeros(512, np.uint8)), (rect,), ())
    with refused:
        driver.copy(queue, End(memory, 8), End(np.zeros(512, np.uint8)), (Rectangle(0, 16),), ())
    for pattern, offset, nbytes in ((b"123", 0, 6), (uint(1), 2, 4), (uint(1), 0, 6), (uint(1), 4, 256)):
        with refused:
            driver.fill(queue, memory, pattern, offset, nbytes, ())
    for start, nbytes in ((64, 4), (128, 129), (-128, 4)):
        with refused:
            driver.part(memory, start, nbytes)
    driver.wait(driver.launch(queue, run, (64,), (1,), None, None))
    assert (x == 1).all()
    driver.free(memory)
    with refused:
        driver.copy(queue, End(memory), End(np.zeros(4, np.uint8)), (Rectangle(0, 4),), ())
