"""Processes of devices that are killed while these do what they were given without a plan, or by the shortest way: the
other device goes on, with the same bits."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.drivers.driver import DriverError
from manycl.errors import ResultError, RunError
from manycl.run.graph_cache import graph_cache
from manycl.run.recovery import checkpoints
from manycl.run.streams.eager_rule import Facts, decide

pytestmark = pytest.mark.filterwarnings("ignore:.*does not work any more:RuntimeWarning")

N = 1 << 12
LONG = 20_000
PROGRAM = mc.Program("""
kernel void twice(global const uint *x, global uint *y) { y[get_global_id(0)] = 2 * x[get_global_id(0)]; }
kernel void slow(global const uint *y, global uint *z, int n) {
    uint v = y[get_global_id(0)];
    for (int i = 0; i < n; i++) v = v * 1664525u + (v >> 3);
    z[get_global_id(0)] = v;
}
kernel void change(global uint *y, int n) {
    uint v = y[get_global_id(0)];
    for (int i = 0; i < n; i++) v = v * 1664525u + (v >> 3);
    y[get_global_id(0)] = v;
}""")


def reckoned(values: Any, n: int) -> Any:
    v = np.array(values, np.uint32)
    shifted = np.empty_like(v)
    for _ in range(n):
        np.right_shift(v, 3, out=shifted)
        v *= np.uint32(1664525)
        v += shifted
    return v


X = np.arange(N, dtype=np.uint32)
EXPECTED = reckoned(2 * X, LONG)


@pytest.fixture(params=["1", "0"], ids=["shared", "own"])
def queue(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MANYCL_ZERO_COPY", request.param)
    with mc.Queue("cpu/2@process") as made:
        yield made


def driver_of(queue: mc.Queue, device: int = 0) -> Any:
    return queue.session.backend.drivers[device]


def when(holds: Callable[[], bool]) -> None:
    while not holds():
        time.sleep(0.001)


def is_over(driver: Any, event: Any) -> bool:
    try:
        return bool(driver.done(event))
    except DriverError:
        return True


@pytest.mark.parametrize("begun", [0, 1, 2], ids=["nothing", "little", "in place"])
def test_what_was_given_without_a_plan(begun: int, queue: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before it was given anything, during a kernel, or while it changes what the kernel before has made."""
    monkeypatch.setattr(graph_cache, "decide", lambda facts: decide(Facts()))
    x, y, z = queue.array(X), queue.zeros(N, np.uint32), queue.zeros(N, np.uint32)
    driver = driver_of(queue)
    if not begun:
        os.kill(driver.pid, signal.SIGKILL)
        when(lambda: driver._link._lost is not None)
    PROGRAM.twice(queue, (N,), (64,), x, y)
    stream: Any = queue.enqueued.stream
    if begun < 2:
        PROGRAM.slow(queue, (N,), (64,), y, z, LONG)
    PROGRAM.change(queue, (N,), (64,), y, LONG)
    if begun:
        stream.flush()
        when(lambda: is_over(driver, stream.given[0][2]))
        os.kill(driver.pid, signal.SIGKILL)
    assert (y.get() == EXPECTED).all()
    if begun < 2:
        assert (z.get() == EXPECTED).all()
    PROGRAM.twice(queue, (N,), (64,), x, z)  # all of that may have ended before its device did
    assert (z.get() == 2 * X).all()
    assert (x.get() == X).all()
    assert list(queue.excluded) == ["cpu0.0"]


def test_what_cannot_be_made_again_is_named(queue: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is interrupted where it changes what somebody has waited for."""
    monkeypatch.setattr(graph_cache, "decide", lambda facts: decide(Facts()))
    y = queue.array(X, name="yonder")
    PROGRAM.change(queue, (N,), (64,), y, 1)
    queue.finish()
    driver = driver_of(queue)
    PROGRAM.change(queue, (N,), (64,), y, 1 << 30)
    stream: Any = queue.enqueued.stream
    stream.flush()
    words = driver._link._queues[stream.given[-1][2].queue.number].progress
    when(lambda: words[2] == stream.given[-1][2].number)  # it has been given to the device
    os.kill(driver.pid, signal.SIGKILL)
    with pytest.raises(RunError, match="cannot go on without: yonder"):
        queue.finish()


def test_what_was_changed_in_place_is_put_back(queue: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while it changes what nobody can make again: there is a copy of that, beside or on the host."""
    monkeypatch.setattr(checkpoints, "KEEPING", 1e6)  # whatever it is foreseen to take
    y, n, turns = queue.array(X, name="yonder"), LONG, 4
    with queue.prepare() as graph:
        PROGRAM.change(queue, (N,), (64,), y, n)
    for _ in range(turns):  # how long it takes is known then
        graph.run()
    used = [d for d in range(2) if any(q.given for q in driver_of(queue, d)._link._queues.values())]
    driver, stopped = driver_of(queue, used[-1]), threading.Event()

    def kill() -> None:
        words = [q.progress for q in driver._link._queues.values()]
        before = [int(w[2]) for w in words]
        when(lambda: [int(w[2]) for w in words] != before or stopped.is_set())
        time.sleep(0.01)
        os.kill(driver.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    graph.run()
    stopped.set()
    killer.join()
    assert (y.get() == reckoned(X, (turns + 1) * n)).all()


@pytest.mark.parametrize("is_busy", [True, False], ids=["busy", "idle"])
def test_repetitions(is_busy: bool, queue: mc.Queue) -> None:
    """Killed while it does what it did before, and when nobody has noticed yet. One that is killed behind the end of
    the run takes the result with it."""
    x, y, z = queue.array(X), queue.zeros(N, np.uint32), queue.zeros(N, np.uint32)
    with queue.prepare() as graph:
        PROGRAM.twice(queue, (N,), (64,), x, y)
        PROGRAM.slow(queue, (N,), (64,), y, z, LONG)
    for _ in range(6):
        graph.run()
    used = [d for d in range(2) if any(q.given for q in driver_of(queue, d)._link._queues.values())]
    driver = driver_of(queue, used[-1])

    def kill() -> None:
        if is_busy:
            queues = list(driver._link._queues.values())
            when(lambda: any(q.pending for q in queues) or stopped.is_set())
        os.kill(driver.pid, signal.SIGKILL)

    stopped = threading.Event()
    killer = threading.Thread(target=kill)
    killer.start()
    if not is_busy:
        killer.join()
    graph.run()
    stopped.set()
    killer.join()
    try:
        assert (z.get() == EXPECTED).all()
    except (ResultError, RunError):
        assert is_busy
    graph.run()
    assert (z.get() == EXPECTED).all()


@pytest.mark.parametrize("copied", [0, 2])
def test_what_the_host_has_is_not_given_up(copied: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed when so many copies to the host are complete, which bring what kernels before have changed in place, and
    others have not begun."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setattr(checkpoints, "KEEPING", 1e6)
    with mc.Queue("cpu/2@process") as queue:
        y = queue.array(X, name="yonder")
        with queue.prepare() as graph:
            for _ in range(4):
                PROGRAM.change(queue, (N,), (64,), y, 5 * LONG)
        for _ in range(4):  # how long it takes is known then
            y.set(X)
            graph.run()
        y.set(X)
        drivers = [driver_of(queue, d) for d in range(2)]
        driver = max(drivers, key=lambda d: sum(q.given for q in d._link._queues.values()))
        kernels, *others = driver._link._queues.values()
        done, copies = int(kernels.progress[0]), [int(q.progress[0]) for q in others]

        def is_at_it() -> bool:
            came = sum(int(q.progress[0]) for q in others) - sum(copies)
            return bool(kernels.progress[2] > kernels.progress[0] > done and came >= copied)

        stopped = threading.Event()
        killer = threading.Thread(
            target=lambda: (when(lambda: is_at_it() or stopped.is_set()), os.kill(driver.pid, signal.SIGKILL))
        )
        killer.start()
        graph.run()
        stopped.set()
        killer.join()
        assert (y.get() == reckoned(X, 20 * LONG)).all()
