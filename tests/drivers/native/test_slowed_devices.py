"""Native devices that are slower than they are (``@FACTOR``): pauses are within commands, which stay asynchronous."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

import manycl as mc
from manycl.drivers.native.devices import found_with
from manycl.drivers.native.driver import NativeDriver
from manycl.errors import DeviceError
from manycl.trace import KernelEvent
from tests.drivers.native import native_entries
from tests.drivers.native.native_commands import Flag, kernel, shared

Slowed = Callable[[float, int], NativeDriver]


@pytest.fixture
def slowed() -> Iterator[Slowed]:
    """A device that takes so many times as long, of so many threads."""
    made: list[NativeDriver] = []

    def of(factor: float, threads: int) -> NativeDriver:
        device = replace(found_with(native_entries.compile_entries).device, slowdown=factor)
        made.append(NativeDriver(device, (-1,) * threads, native_entries.compile_entries))
        return made[-1]

    yield of
    for driver in made:
        driver.finish()
        driver.release()


@pytest.mark.parametrize(("threads", "groups", "ns"), [(1, 1, 2_000_000), (1, 40, 100_000), (3, 60, 100_000)])
@pytest.mark.parametrize("factor", [2.0, 7.5])
def test_kernels_take_so_many_times_as_long(slowed: Slowed, factor: float, threads: int, groups: int, ns: int) -> None:
    """Not less than that of the time in which their threads had cores; how much more, the machine's load decides."""
    driver = slowed(factor, threads)
    took, queue = np.zeros(groups, np.uint64), driver.queue(timed=True)
    run = kernel(driver, "busy", shared(driver, took), ns)
    for _ in range(3):  # it learns how long they take
        event = driver.launch(queue, run, (groups,), (1,), None, None)
        driver.wait(event)
        start, end = driver.times(event)
        assert (took >= ns).all()
        assert end - start >= 0.98 * factor * int(took.sum()) * 1e-9 / threads - 1e-3


def test_commands_are_given_while_others_run(slowed: Slowed) -> None:
    driver = slowed(3.0, 2)
    queue = driver.queue(timed=True)
    flag, counts = Flag(driver, queue), np.zeros(500, np.uint32)
    run = kernel(driver, "once", shared(driver, counts), 0)
    events = [driver.launch(queue, run, (500,), (1,), None, None) for _ in range(50)]
    assert not any(driver.done(event) for event in events)
    flag.let_go()
    driver.wait(events[-1])
    assert (counts == 50).all()


def test_traces_have_the_times_as_they_were() -> None:
    """Not multiplied once more: no kernel takes longer than its run."""
    with mc.Queue("native/2#0@40", profile=True) as queue:
        program = mc.Program("__kernel void k(__global float *a) { a[get_global_id(0)] += 1; }")
        x = queue.zeros(1 << 12, np.float32)
        with queue.prepare() as graph:
            program.k(queue, (1 << 12,), (64,), x)
        for _ in range(3):
            result = graph.run()
            (event,) = (e for e in result.trace.events if isinstance(e, KernelEvent))
            assert 0 < event.end - event.start <= result.seconds
        assert (x.get() == 3).all()


@pytest.mark.parametrize("selection", ["opencl@2", "opencl/2#1@1.5", "opencl@2@process"])
def test_devices_of_other_drivers_cannot_be_slowed_down(selection: str) -> None:
    with pytest.raises(DeviceError, match="cannot be slowed down: of all devices, only native ones can"):
        mc.Queue(selection)


def test_a_device_with_a_process_of_its_own_is_slowed_down_there() -> None:
    source = "kernel void add(global int *x) { x[get_global_id(0)] += 1; }"
    with mc.Queue("native/2#1@3@process") as queue:
        assert queue.session.devices.opened[0].selection.endswith("#1@3")
        x = queue.array(np.arange(64, dtype=np.int32))
        mc.Program(source).add(queue, (64,), (16,), x)
        assert (x.get() == np.arange(1, 65)).all()
