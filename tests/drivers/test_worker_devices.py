"""Devices with processes of their own: what is lost with a process, what is not, and what stays behind."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.drivers.choice import open_devices
from manycl.drivers.driver import DeviceLost, DriverError, End, Source
from manycl.drivers.worker import progress
from manycl.drivers.worker.driver import WorkerDriver
from manycl.region import Rectangle
from tests import environment

TEXT = """
kernel void spin(global uint *x, ulong n) {
    uint v = x[get_global_id(0)];
    for (ulong i = 0; i < n; i++) v = v * 1664525u + (v >> 3);
    x[get_global_id(0)] = v;
}
kernel void add(global uint *x, uint by) { x[get_global_id(0)] += by; }
"""
ENDLESS = 10**15


def opened(own: bool = False) -> WorkerDriver:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "0" if own else "1")
        _, (one,) = open_devices("cpu/2#1@process")
        driver = one.open()
    assert isinstance(driver, WorkerDriver)
    return driver


def kernel_of(driver: WorkerDriver, name: str, memory: Any, value: bytes) -> Any:
    kernel = driver.kernel(driver.build(Source(TEXT)), name)
    kernel.set(0, memory)
    kernel.set(1, value)
    return kernel


def number(value: int, nbytes: int = 4) -> bytes:
    return value.to_bytes(nbytes, sys.byteorder)


def until(holds: Callable[[], bool]) -> None:
    """It holds some time."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + 60
        time.sleep(0.005)


def test_what_a_lost_process_has_not_completed_fails() -> None:
    """In all queues; what was complete stays so, and who waits is told, also those that wait already."""
    driver = opened()
    queues = [driver.queue(timed=False) for _ in range(2)]
    memory = driver.allocate(64)
    complete = driver.launch(queues[0], kernel_of(driver, "add", memory, number(1)), (16,), None, None, None)
    driver.flush(queues[0])
    driver.wait(complete)
    kernel = kernel_of(driver, "spin", memory, number(ENDLESS, 8))
    events = [driver.launch(queue, kernel, (16,), None, None, None) for queue in queues for _ in range(2)]
    heard: list[DriverError] = []

    def wait() -> None:
        try:
            driver.wait(events[-1])
        except DriverError as error:
            heard.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    driver.flush(queues[0])
    os.kill(driver.pid or 0, signal.SIGKILL)
    for event in events:
        with pytest.raises(DeviceLost, match=r"cpu\d\.1 is lost: its process \d+ was ended by SIGKILL") as caught:
            driver.wait(event)
        assert caught.value.device == driver.device.name
        assert not driver.succeeded([event])
    waiting.join()
    assert [type(error) for error in heard] == [DeviceLost]
    assert driver.done(complete)
    calls: list[Callable[[], Any]] = [
        lambda: driver.allocate(8),
        lambda: driver.queue(True),
        lambda: driver.build(Source(TEXT)),
        lambda: driver.launch(queues[0], kernel, (16,), None, None, None),
        lambda: driver.copy(queues[0], End(memory), End(np.zeros(8, np.uint8)), (Rectangle(0, 8),), ()),
        lambda: driver.fill(queues[0], memory, b"\0", 0, 8, ()),
    ]
    for call in calls:
        with pytest.raises(DeviceLost):
            call()
    assert driver.clock() is None
    driver.flush(queues[0])
    driver.free(memory)
    driver.finish()
    driver.release()


def test_nothing_stays_behind() -> None:
    """No descriptor, no thread, no process; whether the device is released, or lost."""

    def here() -> tuple[int, int, list[str]]:
        children = []
        for task in os.listdir("/proc/self/task"):
            with suppress(FileNotFoundError), open(f"/proc/self/task/{task}/children") as file:  # it may have ended
                children += file.read().split()
        return len(os.listdir("/proc/self/fd")), threading.active_count(), sorted(children)

    others = set(threading.enumerate())  # of other tests' fixtures
    opened().release()
    until(lambda: not any("process" in t.name for t in threading.enumerate() if t not in others))
    before = here()
    for turn in range(4):
        driver = opened(own=turn % 2 == 0)
        queue, memory = driver.queue(timed=False), driver.allocate(64)
        event = driver.fill(queue, memory, b"\7", 0, 64, ())
        driver.flush(queue)
        driver.wait(event)
        if turn > 1:
            os.kill(driver.pid or 0, signal.SIGKILL)
        driver.release()
    until(lambda: here() == before)


def test_a_process_goes_with_who_started_it() -> None:
    """Whatever its device does, and however that one ends."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = (
            "import os, sys; from tests.drivers import test_worker_devices as t\n"
            "d = t.opened(); q = d.queue(False); m = d.allocate(64)\n"
            "d.launch(q, t.kernel_of(d, 'spin', m, t.number(t.ENDLESS, 8)), (16,), None, None, None); d.flush(q)\n"
            "os.write(int(sys.argv[1]), b'%d\\n' % d.pid); os.kill(os.getpid(), 9)"
        )
        os.set_inheritable(write, True)
        os.execve(sys.executable, [sys.executable, "-c", code, str(write)], environment())
    os.close(write)
    with os.fdopen(read) as file:
        pid = int(file.readline())
    os.waitpid(child, 0)
    until(lambda: not os.path.exists(f"/proc/{pid}") or "(zombie)" in status(pid))


def status(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/status") as file:
            return file.read()
    except OSError:
        return "(zombie)"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_that_was_forked_takes_no_device_away() -> None:
    driver = opened()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            driver.allocate(8)
        except DriverError:
            driver.release()
            code = 0
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    driver.allocate(8)
    driver.release()


@pytest.fixture(scope="module", params=["shared", "own"])
def driver(request: pytest.FixtureRequest) -> Iterator[WorkerDriver]:
    driver = opened(own=request.param == "own")
    yield driver
    driver.finish()
    driver.release()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 1), *[st.integers(0, 60)] * 2, st.integers(1, 40)), max_size=12)
)
def test_copies_of_ordinary_memory_come_in_their_turn(driver: WorkerDriver, steps: list[tuple[Any, ...]]) -> None:
    """To the device and back, of parts of one array that overlap as they like, each behind the one before: as if copied
    at once."""
    host = np.arange(100, dtype=np.uint8)
    device = np.arange(100, 200, dtype=np.uint8)
    memory, queues = driver.allocate(100), [driver.queue(timed=False) for _ in range(2)]
    (event,) = driver.copy(queues[0], End(memory), End(device.copy()), (Rectangle(0, 100),), ())
    real = host.copy()
    for is_upload, queue, here, there, nbytes in steps:
        part, box = slice(here, here + nbytes), slice(there, there + nbytes)
        # byte 0 of the buffer is where the host's array begins
        ends = End(memory, -there), End(real[part])
        target, source = ends if is_upload else ends[::-1]
        (event,) = driver.copy(queues[queue], target, source, (Rectangle(0, nbytes),), [event])
        if is_upload:
            device[box] = host[part]
        else:
            host[part] = device[box]
    result = np.zeros(100, np.uint8)
    (event,) = driver.copy(queues[0], End(result), End(memory), (Rectangle(0, 100),), [event])
    for queue in queues:
        driver.flush(queue)
    driver.wait(event)
    assert (result == device).all()
    assert (real == host).all()


def test_an_argument_that_could_not_be_set_is_not_what_it_was(driver: WorkerDriver) -> None:
    """A launch behind the one that failed for it does not run with the value before."""
    queue, memory = driver.queue(timed=False), driver.allocate(64)
    filled = driver.fill(queue, memory, b"\0", 0, 64, ())
    freed = driver.allocate(64)
    kernel = kernel_of(driver, "add", memory, number(1))
    driver.launch(queue, kernel, (16,), None, None, [filled])
    driver.free(freed)
    kernel.set(0, freed)
    failing = [driver.launch(queue, kernel, (16,), None, None, None) for _ in range(2)]
    kernel.set(0, memory)
    last = driver.launch(queue, kernel, (16,), None, None, None)
    driver.flush(queue)
    driver.wait(last)
    for event in failing:
        with pytest.raises(DriverError, match="has been freed"):
            driver.wait(event)
    data = np.zeros(64, np.uint8)
    (event,) = driver.copy(queue, End(data), End(memory), (Rectangle(0, 64),), ())
    driver.flush(queue)
    driver.wait(event)
    assert (data.view(np.uint32) == 2).all()


def test_what_waits_for_a_failed_command_fails(driver: WorkerDriver) -> None:
    queues = [driver.queue(timed=False) for _ in range(2)]
    memory = driver.allocate(64)
    kernel = kernel_of(driver, "add", memory, number(1))
    bad = driver.launch(queues[0], kernel, (16,), (5,), None, None)
    behind = driver.launch(queues[1], kernel, (16,), None, None, [bad])
    for queue in queues:
        driver.flush(queue)
    for event in (bad, behind):
        with pytest.raises(DriverError):
            driver.wait(event)


PROGRAM = """
kernel void scale(global float *y, global const float *x, float a) {
    int i = get_global_id(0);
    y[i] = a * x[i] + 1.0f;
}
kernel void smooth(global float *y, global const float *x, int n) {
    int i = get_global_id(0);
    y[i] = 0.5f * (x[i > 0 ? i - 1 : 0] + x[i < n - 1 ? i + 1 : n - 1]);
}
kernel void fall(global float *y, ulong far) { y[get_global_id(0) + far] = 1.0f; }
"""


@pytest.mark.parametrize("zero_copy", ["0", "1"])
@pytest.mark.parametrize("policy", ["auto", "tenths", "eager"])
def test_results_are_those_of_one_process(policy: str, zero_copy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a graph with arrays of the caller's own, read in place, and changed between runs."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", zero_copy)
    program, n = mc.Program(PROGRAM), 1 << 12
    given = np.random.default_rng(3).random(n, np.float32)
    results = []
    for devices in ("cpu/2", "cpu/2@process", "cpu/2#0,cpu/2#1@process"):
        with mc.Queue(devices, policy=policy) as queue:
            x, y, z = queue.array(given.copy(), copy=False), queue.empty(n, np.float32), queue.zeros(n, np.float32)
            for turn in range(4):
                program.scale(queue, (n,), (64,), y, x, np.float32(turn))
                program.smooth(queue, (n,), (64,), z, y, np.int32(n))
                program.scale(queue, (n,), (64,), x, z, np.float32(0.25))
                if turn == 1:
                    z.set(given)
            results.append((x.get().copy(), y.get().copy(), z.get().copy()))
    for other in results[1:]:
        assert all((a == b).all() for a, b in zip(results[0], other, strict=True))


@pytest.mark.filterwarnings("ignore:.*does not work any more:RuntimeWarning")
def test_a_kernel_that_ends_its_process_does_not_end_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_BOUNDS", "off")
    program, n = mc.Program(PROGRAM), 1 << 12
    with mc.Queue("cpu/2@process") as queue:
        x, y = queue.array(np.arange(n, dtype=np.float32)), queue.zeros(n, np.float32)
        program.scale(queue, (n,), (64,), y, x, np.float32(2.0))
        expected = y.get().copy()
        bad = queue.zeros(n, np.float32)
        program.fall(queue, (n,), (64,), bad, np.uint64(1 << 44))
        with pytest.raises(mc.ManyclError, match="is lost: its process"):
            bad.get()
        (name,) = queue.excluded
        assert (y.get() == expected).all()
        program.scale(queue, (n,), (64,), x, y, np.float32(1.0))
        assert (x.get() == expected + 1).all()
        queue.admit(name)
        program.scale(queue, (n,), (64,), y, x, np.float32(1.0))
        assert (y.get() == expected + 2).all()


@pytest.mark.filterwarnings("ignore:.*does not work any more:RuntimeWarning")
def test_a_process_may_be_lost_at_any_time() -> None:
    """The run ends with the device's name, or with the right result; what was there before is there, and goes on."""
    program, n, rng = mc.Program(PROGRAM), 1 << 16, random.Random(7)
    x0 = np.arange(n, dtype=np.float32)
    with mc.Queue("cpu/2@process", policy="tenths") as queue:
        x, killed = queue.array(x0), set[str]()
        for _ in range(6):
            y = queue.zeros(n, np.float32)
            victim = rng.choice(queue.session.backend.drivers)
            assert isinstance(victim, WorkerDriver)
            timer = threading.Timer(rng.random() * 0.01, _kill, (victim,))
            timer.start()
            killed.add(victim.device.name)
            for turn in range(8):
                program.scale(queue, (n,), (64,), y, x, np.float32(turn))
            try:
                assert (y.get() == 7 * x0 + 1).all()
            except mc.ManyclError as error:
                assert any(name in str(error) for name in killed)  # noqa: PT017 (either is right)
            timer.join()
            until(lambda d=victim: _is_lost(d))
            assert (x.get() == x0).all()
            if victim.device.name not in queue.excluded:  # it was lost when the run was over
                program.scale(queue, (n,), (64,), y, x, np.float32(1.0))
                try:
                    assert (y.get() == x0 + 1).all()
                except mc.ManyclError as error:
                    assert any(name in str(error) for name in killed)  # noqa: PT017
            for name in list(queue.excluded):
                queue.admit(name)
                killed.discard(name)


def _kill(driver: WorkerDriver) -> None:
    with suppress(ProcessLookupError):  # it was lost before, with nothing to do
        os.kill(driver.pid or 0, signal.SIGKILL)


def _is_lost(driver: WorkerDriver) -> bool:
    try:
        driver.allocate(1)
    except DeviceLost:
        return True
    return False


def test_what_a_killed_process_has_begun_is_known() -> None:
    """The first command that it has not completed, of each queue; behind that nothing has begun."""
    driver = opened()
    queue, memory = driver.queue(timed=False), driver.allocate(64)
    short = kernel_of(driver, "add", memory, number(1))
    endless = kernel_of(driver, "spin", memory, number(ENDLESS, 8))
    events = [driver.launch(queue, k, (16,), None, None, None) for k in (short, endless, short, short)]
    driver.flush(queue)
    driver.wait(events[0])
    _kill(driver)
    lost = []
    for event in events[1:]:
        with pytest.raises(DeviceLost) as caught:
            driver.wait(event)
        lost.append(caught.value.has_begun)
    assert driver.done(events[0])
    assert lost == [True, False, False]


def test_what_waits_for_another_queue_has_not_begun() -> None:
    """Also where it is the first command of its own that is not complete; what it waits for may be complete as well."""
    driver = opened(own=True)
    first, second = driver.queue(timed=False), driver.queue(timed=False)
    memory, host = driver.allocate(64), np.zeros(64, np.uint8)
    short = kernel_of(driver, "add", memory, number(1))
    endless = kernel_of(driver, "spin", memory, number(ENDLESS, 8))
    driver.copy(first, End(memory), End(host), (Rectangle(0, 64),), ())
    over = driver.launch(first, short, (16,), None, None, None)
    driver.flush(first)
    driver.wait(over)
    running = driver.launch(first, endless, (16,), None, None, [over])
    behind = driver.copy(second, End(host), End(memory), (Rectangle(0, 64),), (over, running))[0]
    driver.flush(first)
    driver.flush(second)
    until(lambda: first.progress[2] == running.number and second.progress[2] == behind.number)
    _kill(driver)
    begun = {}
    for name, event in (("running", running), ("behind", behind)):
        with pytest.raises(DeviceLost) as caught:
            driver.wait(event)
        begun[name] = caught.value.has_begun
    assert begun == {"running": True, "behind": False}
    assert not host.any()


@settings(deadline=None)
@given(data=st.data())
def test_how_far_a_queue_was_is_read_from_its_words(data: st.DataObject) -> None:
    """Against the story of a process: commands are given one after another, each noted after it was given, and end in
    their order; it may stop anywhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "RECENT", 4)
        words = [0] * progress.WORDS
        first = data.draw(st.integers(0, 5))  # what the queue's clients before it have given
        words[0] = first
        progress.begin(words)
        given = noted = complete = told = 0
        for what in data.draw(st.lists(st.sampled_from("gcct"), max_size=40)):
            if what == "g":
                if noted < given:
                    progress.note(words, given, first + given)
                    noted = given
                else:
                    given += 1
            elif what == "c" and complete < given:
                complete += 1
                words[0] = first + complete
            elif what == "t":
                told = data.draw(st.integers(told, min(complete, noted)))
        found = progress.complete(words, told)
        if found is None:
            assert noted - told > 4
        else:
            assert found in (complete, complete - 1) if complete > noted else found == complete
        progress.spoil(words)
        assert progress.complete(words, told) is None
