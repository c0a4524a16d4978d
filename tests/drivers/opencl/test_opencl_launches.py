"""Launches that compiled code enqueues on OpenCL's devices."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.drivers import last_words
from manycl.drivers.driver import DriverError
from manycl.drivers.opencl import launches
from manycl.drivers.opencl.driver import OpenCLDriver
from manycl.drivers.opencl.real import cl
from manycl.errors import ManyclError
from manycl.run.streams.stream_state import InFlight

N = 64
PROGRAM = mc.Program("""
kernel void add(global const int *x, global int *y) { y[get_global_id(0)] += x[get_global_id(0)]; }
kernel void twice(global int *y) { y[get_global_id(0)] *= 2; }
""")
REFERENCES = cl.event_info.REFERENCE_COUNT


@pytest.fixture
def by_python(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that the driver's ``launch`` was called for."""
    called: list[str] = []
    launch = OpenCLDriver.launch

    def noted(self: OpenCLDriver, queue: Any, kernel: Any, *others: Any) -> Any:
        called.append(kernel.name)
        return launch(self, queue, kernel, *others)

    monkeypatch.setattr(OpenCLDriver, "launch", noted)
    return called


@pytest.fixture
def queue(by_python: list[str]) -> Iterator[mc.Queue]:
    with mc.Queue("opencl/4#0") as queue:
        yield queue


def arrays(queue: mc.Queue) -> tuple[Any, Any]:
    return queue.array(np.ones(N, np.int32)), queue.zeros(N, np.int32)


def words() -> list[bytes]:
    """What is told of the kernels that run."""
    lines = [ctypes.string_at(address) for address in last_words.running if address]
    return [line for line in lines if line]


def fails(*given: Any) -> Any:
    raise DriverError("out of everything")


def block(queue: mc.Queue) -> Any:
    """What compiled code knows of the queue that kernels are given to."""
    (found,) = [of._block for of in queue.session.backend.drivers[0]._launches.values() if of._block is not None]
    return found


def test_words_are_those_of_the_kernel_that_runs(
    queue: mc.Queue, by_python: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # on a busy machine launches seem to take long; then who enqueues waits for those before, which wait for this test
    monkeypatch.setattr(InFlight, "pace", lambda self: None)
    x, y = arrays(queue)
    backend = queue.session.backend
    for _ in range(3):
        goes_on = cl.UserEvent(backend.drivers[0].context)
        PROGRAM.add(queue, (N,), (16,), x, y)
        cl.enqueue_barrier(backend.lanes[0].queues[0], wait_for=[goes_on])
        PROGRAM.add(queue, (N,), (16,), x, y)
        (line,) = words()
        assert line.startswith(b"kernel add on ")
        assert line.endswith(b", global size (64,), work-groups (16,)")
        PROGRAM.twice(queue, (N,), None, y)
        (line,) = words()
        assert line.startswith(b"kernel twice on ")
        assert line.endswith(b", global size (64,), work-groups chosen by the driver")
        goes_on.set_status(cl.command_execution_status.COMPLETE)
        queue.finish()
        assert not words()
    assert by_python == ["add", "twice"]
    assert (y.get() == 28).all()


def comes_to(event: Any, references: int) -> bool:
    """Whether an event has so many references as soon as PoCL's threads have let go of it."""
    for _ in range(6000):
        if event.get_info(REFERENCES) == references:
            return True
        time.sleep(0.01)
    return False


def test_events_are_let_go_of(by_python: list[str]) -> None:
    with mc.Queue("opencl/4#0") as queue:
        x, y = arrays(queue)
        for _ in range(2):
            PROGRAM.add(queue, (N,), (16,), x, y)
        second = cl.Event.from_int_ptr(block(queue).last)
        for _ in range(2):
            PROGRAM.add(queue, (N,), (16,), x, y)
        stream = queue.enqueued.stream
        assert stream is not None
        assert stream.given[2][2] is (third := stream.given[2][2])
        queue.finish()
        assert by_python == ["add"]
        assert not block(queue).last
        assert comes_to(second, 2)  # the log's and this test's
        assert comes_to(third, 1)  # the same object's
    del stream, queue, x, y
    gc.collect()
    assert comes_to(second, 1)


@pytest.mark.parametrize("function", ["clSetKernelArg", "clEnqueueNDRangeKernel"])
def test_what_is_refused_is_tried_again_by_python(
    function: str, queue: mc.Queue, by_python: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = arrays(queue)
    for _ in range(2):
        PROGRAM.add(queue, (N,), (16,), x, y)
    refused = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 9)(lambda *_: -5)  # CL_OUT_OF_RESOURCES
    before = getattr(block(queue), function)
    setattr(block(queue), function, launches._address(refused))
    z = queue.zeros(N, np.int32)
    PROGRAM.add(queue, (N,), (16,), x, z)  # as it has other memory
    assert by_python == ["add"] * 2
    with monkeypatch.context() as patched:
        patched.setattr(queue.session.backend.lanes[0], "launch", fails)
        with pytest.raises(ManyclError, match="out of everything"):
            PROGRAM.add(queue, (N,), (16,), x, queue.zeros(N, np.int32))
    setattr(block(queue), function, before)
    assert (y.get(), z.get()) == (pytest.approx(2), pytest.approx(1))


def test_without_the_loaders_functions_python_launches(by_python: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "_library", lambda: None)
    with mc.Queue("opencl/4#0") as queue:
        x, y = arrays(queue)
        for _ in range(4):
            PROGRAM.add(queue, (N,), (16,), x, y)
        assert (y.get() == 4).all()
    assert by_python == ["add"] * 4
