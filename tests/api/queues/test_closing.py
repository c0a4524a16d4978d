"""What ends a queue: closing it, dropping it, and a fork."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

import manycl as mc
from manycl.errors import DeviceError, LaunchError

N = 64
SOURCE = "__kernel void inc(__global int *x) { x[get_global_id(0)] += 1; }"
PROGRAM = mc.Program(SOURCE)
PLANNED = [("cpu/2", "auto"), ("cpu/2#0", "heft")]
"""Queues that refuse what leaves its array when a result is asked for."""


def enqueue_behind(queue: mc.Queue) -> mc.Array:
    """A launch that leaves the array."""
    array = queue.zeros(N // 2, np.int32)
    PROGRAM.inc(queue, (N,), (16,), array)
    return array


def test_a_queue_that_shares_a_session_leaves_it_open() -> None:
    with mc.Queue("cpu/2#0") as first:
        a = first.zeros(N, np.int32)
        with mc.Queue(session=first.session) as second:
            PROGRAM.inc(second, (N,), (16,), a)
        with mc.Queue(session=first.session) as third:
            PROGRAM.inc(third, (N,), (16,), a)
            third.close()
        PROGRAM.inc(first, (N,), (16,), a)
        assert (a.get() == 3).all()  # the device had been given what was enqueued on the queue that was closed


@pytest.mark.usefixtures("collected")
def test_what_no_device_was_given_does_not_run_on_a_queue_that_is_closed() -> None:
    with mc.Queue("cpu/2") as first:
        a = first.zeros(N, np.int32)
        with mc.Queue(session=first.session) as second:
            PROGRAM.inc(second, (N,), (16,), a)
            second.close()
        PROGRAM.inc(first, (N,), (16,), a)
        assert (a.get() == 1).all()


def test_close_gives_the_devices_back() -> None:
    queue = mc.Queue("cpu/2#0")
    a = queue.zeros(N, np.int32)
    PROGRAM.inc(queue, (N,), (16,), a)
    queue.close()
    queue.close()
    with pytest.raises(DeviceError, match="closed"):
        a.get()
    with pytest.raises(DeviceError, match="closed"):
        queue.session.admit(queue.devices[0])


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize(("devices", "policy"), PLANNED)
def test_what_is_refused_is_told_once(devices: str, policy: str) -> None:
    """Not again as the block ends, whether the error ends it or not."""

    def refused() -> None:
        with mc.Queue(devices, policy=policy) as queue:
            enqueue_behind(queue).get()

    with pytest.raises(LaunchError, match="outside of a buffer") as told:
        refused()
    assert told.value.__context__ is None
    with mc.Queue(devices, policy=policy) as queue:
        a = enqueue_behind(queue)
        with pytest.raises(LaunchError, match="outside of a buffer"):
            a.get()
        assert not len(queue)
        assert not a.get().any()


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize(("devices", "policy"), PLANNED)
def test_a_block_that_raises_refuses_nothing(devices: str, policy: str) -> None:
    def raises() -> None:
        with mc.Queue(devices, policy=policy) as queue:
            enqueue_behind(queue)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as told:
        raises()
    assert told.value.__context__ is None


@pytest.mark.parametrize("zero_copy", ["1", "0"])
def test_queues_that_are_dropped_give_their_threads_back(zero_copy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", zero_copy)

    def ours() -> int:
        return sum(thread.name.startswith("manycl") for thread in threading.enumerate())

    gc.collect()
    before = ours()
    for _ in range(5):
        queue = mc.Queue("cpu/2", policy="eager")
        a, b = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
        for x in (a, b, a, b):
            PROGRAM.inc(queue, (N,), (16,), x)
            queue.call(lambda v: None, x)
        a.get()
        assert ours() > before
        del queue, a, b, x
        gc.collect()
    for _ in range(1000):
        if ours() <= before:
            return
        time.sleep(0.01)
    pytest.fail(f"{ours() - before} threads are left")


def test_a_session_that_is_dropped_waits_for_no_collector() -> None:
    def dropped() -> weakref.ref[object]:
        queue = mc.Queue("cpu/2")
        a = queue.zeros(N, np.int32)
        PROGRAM.inc(queue, (N,), (16,), a)
        assert (a.get() == 1).all()
        return weakref.ref(queue.session)

    dropped()
    gc.collect()
    gc.disable()
    try:
        assert dropped()() is None
    finally:
        gc.enable()


FORKED = f"""
import os, sys
import numpy as np
import manycl as mc
program = mc.Program({SOURCE!r})
queue = mc.Queue("cpu/2#0")
a = queue.zeros(64, np.int32)
for _ in range(3):
    program.inc(queue, (64,), (16,), a)
    a.get()
def old():
    program.inc(queue, (64,), (16,), a)
    queue.finish()
for act in (a.get, old, lambda: mc.Queue("cpu/2")):
    child = os.fork()
    if not child:
        try:
            act()
        except mc.ManyclError as error:
            print("child:", error.message, flush=True)
        sys.exit(0)
    os.waitpid(child, 0)
program.inc(queue, (64,), (16,), a)
print("parent:", int(a.get()[0]), flush=True)
"""


def test_a_forked_process_is_told_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    assert len(lines) == 4, done.stderr
    assert all("child: this process was forked from" in line for line in lines[:3])
    assert lines[3] == "parent: 4"
    assert done.returncode == 0


@pytest.mark.parametrize("device", ["cpu0", "opencl"])
def test_a_program_that_ends_by_an_exception_waits_for_no_kernel(device: str) -> None:
    text = f"""
import numpy as np, manycl as mc
queue = mc.Queue({device!r})
x = queue.zeros(64, np.int32)
mc.Program("kernel void f(global volatile int *x) {{ while (!x[1]) x[0] += 1; }}").f(queue, (64,), None, x)
raise RuntimeError("as users write them")
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "RuntimeError: as users write them")
