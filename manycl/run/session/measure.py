"""Measurements of devices and links: what a plain kernel reaches, what a launch costs, how fast transfers are.
Bandwidths and operations are the best of a few short runs (disturbances only make a measurement slower), about a second
a device, 60 ms of it for a link of 10 GB/s; launch overhead and latency are medians. Sessions measure links, too
(:mod:`manycl.run.session.pauses`). :mod:`manycl.model.history.measured` names the numbers."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import numpy as np

from manycl.drivers.addresses import aligned
from manycl.drivers.choice import OpenDevice
from manycl.drivers.driver import Allocation, Driver, End, Event, Queue, Source
from manycl.group_range import GROUP
from manycl.machine import HOST, Machine
from manycl.model.history.history import identity
from manycl.model.history.measured import together
from manycl.model.occupancy import ITEMS_PER_UNIT
from manycl.model.transfer import CHUNK, SIZES, smallest
from manycl.region import Rectangle
from manycl.run.data.host_memory import shared
from manycl.units import PAGE
from manycl.utilities.kept import ENOUGH

_SOURCE = """
__kernel void nothing(__global float *x) { }
__kernel void multiply_add(__global float *x, int rounds) {
  float a = x[get_global_id(0)], b = a + 1.0f, c = a + 2.0f, d = a + 3.0f;
  for (int i = 0; i < rounds; ++i) {
    a = a * 0.999f + 0.5f; b = b * 0.999f + 0.5f; c = c * 0.999f + 0.5f; d = d * 0.999f + 0.5f;
  }
  x[get_global_id(0)] = a + b + c + d;
}
__kernel void add(__global float *x, __global const float *y, __global const float *z) {
  x[get_global_id(0)] = y[get_global_id(0)] + z[get_global_id(0)];
}
"""
_OPERATIONS = 8  # operations in a round of multiply_add, by the text above
_LONG = 0.02  # seconds that a run of multiply_add takes at least; our own choice
_STREAM = {"cpu": 1 << 26}  # bytes of each array of add, where the device has room
_LONG_STREAM = 1 << 28  # bytes of the arrays on other devices; our own choice
_SHARE = 16  # an array takes at most this part (1 / _SHARE) of the device's memory; our own choice
_BEST_OF = 5  # runs of a measurement of which the best one counts; our own choice
_MEDIAN_OF = 30  # runs of a measurement of which the median counts; our own choice

Values = dict[str, float]
Starts = Sequence[tuple[Driver, Callable[[], Event]]]
"""Functions that begin transfers, all at once, and the drivers that end them."""


def steps(machine: Machine) -> int:
    """Return how often :func:`measure` calls ``progress``."""
    return len(machine.devices) + any(d.memory != HOST for d in machine.devices)


def measure(
    machine: Machine, opened: Sequence[OpenDevice], progress: Callable[[int], None] = lambda _: None
) -> dict[str, Values]:
    """Return the values that :class:`manycl.model.history.store.Store` keeps of devices and links, by subject."""
    found: dict[str, Values] = {}
    drivers = [o.open() for o in opened]
    try:
        for done, driver in enumerate(drivers, 1):
            subject = identity(driver.device)
            if subject not in found:  # equal parts of a device are measured once
                found[subject] = _device(driver)
            progress(done)
        if own := [MeasuredLink(d) for d in drivers if d.device.memory != HOST]:
            for subject, values in measure_links(own, machine).items():
                found.setdefault(subject, {}).update(values)
            progress(len(drivers) + 1)
    finally:
        for driver in drivers:
            driver.finish()
            driver.release()
    return found


def timed(starts: Starts) -> float:
    """Return the seconds until everything that is started has ended."""
    begin = time.perf_counter()
    events = [(driver, start()) for driver, start in starts]
    for driver, event in events:
        driver.wait(event)
    return time.perf_counter() - begin


def measure_links(
    links: Sequence[MeasuredLink], machine: Machine, timed: Callable[[Starts], float] = timed
) -> dict[str, Values]:
    """Return the values of the links of devices, each kind of device once, and of all at the same time. ``timed``:
    what times them."""
    found: dict[str, Values] = {}
    for link in links:
        device = link.driver.device
        if identity(device) not in found:
            others = [x for x in links if (x.driver.device.memory, device.memory) in machine.peers]
            found[identity(device)] = link.measure(others, timed)
    if len(links) > 1:
        nbytes = sum(x.nbytes for x in links)
        found[together(x.driver.device for x in links)] = {
            "up": max(nbytes / timed([(x.driver, x.up) for x in links]) for _ in range(_BEST_OF)),
            "down": max(nbytes / timed([(x.driver, x.down) for x in links]) for _ in range(_BEST_OF)),
        }
    return found


def _device(driver: Driver) -> Values:
    device, queue = driver.device, driver.queue(timed=True)
    program = driver.build(Source(_SOURCE))
    kernels = {name: driver.kernel(program, name) for name in ("nothing", "multiply_add", "add")}
    nbytes = (
        min(_STREAM.get(device.kind, _LONG_STREAM), device.global_memory // _SHARE, device.max_allocation)
        // 4096
        * 4096
    )
    buffers = [driver.allocate(nbytes) for _ in range(3)]
    ones = np.ones(nbytes // 4, np.float32).view(np.uint8)
    for buffer in buffers:
        _wait(driver, queue, driver.copy(queue, End(buffer), End(ones), (Rectangle(0, nbytes),), ())[-1])

    def run(name: str, items: int, *args: Allocation | bytes) -> float:
        for index, value in enumerate(args):
            kernels[name].set(index, value)
        event = driver.launch(queue, kernels[name], (items,), (GROUP,), None, None)
        begin = time.perf_counter()
        _wait(driver, queue, event)
        start, end = driver.times(event)
        # by the device's clock; by the host's where a driver's clock stands still
        return end - start if end > start else time.perf_counter() - begin

    items = min(8 * device.compute_units * max(GROUP, ITEMS_PER_UNIT.get(device.kind, 1)), nbytes // 4)
    items = max(GROUP, items // GROUP * GROUP)
    rounds = 1000

    def compute() -> float:
        return run("multiply_add", items, buffers[0], rounds.to_bytes(4, sys.byteorder))

    while compute() < _LONG and rounds < 1 << 28:
        rounds *= 2
    flops = max(_OPERATIONS * rounds * items / compute() for _ in range(_BEST_OF))
    count = nbytes // 4
    run("add", count, *buffers)
    bandwidth = max(3 * nbytes / run("add", count, *buffers) for _ in range(_BEST_OF))
    run("nothing", GROUP, buffers[0])
    waits = []
    for _ in range(_MEDIAN_OF):
        begin = time.perf_counter()
        inside = run("nothing", GROUP, buffers[0])
        waits.append(max(1e-7, time.perf_counter() - begin - inside))
    return {"flops": flops, "bandwidth": bandwidth, "launch_overhead": statistics.median(waits)}


def _wait(driver: Driver, queue: Queue, event: Event) -> None:
    driver.flush(queue)
    driver.wait(event)


class MeasuredLink:
    """The two directions between the host and a device with memory of its own, through pinned memory, and the way to it
    from another device. ``alone``: within it nobody else allocates; filling new pages takes too long for that."""

    def __init__(self, driver: Driver, alone: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        self.driver = driver
        device = driver.device
        self.nbytes = min(CHUNK, device.global_memory // _SHARE, device.max_allocation)
        new_bytes = shared if driver.needs_shared_memory else aligned
        self._host = [new_bytes(self.nbytes) for _ in range(2)]
        for data in self._host:
            data[:] = 1
        with alone():
            self._queues = [driver.queue(timed=True) for _ in range(2)]
            self._device = [driver.allocate(self.nbytes) for _ in range(2)]
            self._pins = [driver.pin(data) for data in self._host]

    def close(self) -> None:
        """Free the allocations; no transfer is under way."""
        for allocation in self._device:
            self.driver.free(allocation)

    def up(self, nbytes: int = 0, chunk: int = 0) -> Event:
        """Enqueue a transfer to the device of ``nbytes`` (0: of everything), in chunks of a size (0: in one); return
        its event."""
        return self._start(0, End(self._device[0]), End(self._host[0], 0, is_pinned=True), nbytes, chunk)

    def down(self, nbytes: int = 0, chunk: int = 0) -> Event:
        return self._start(1, End(self._host[1], 0, is_pinned=True), End(self._device[1]), nbytes, chunk)

    def of(self, other: MeasuredLink, nbytes: int = 0, chunk: int = 0) -> Event:
        """Enqueue a transfer from another device, as ``up`` does from the host."""
        return self._start(0, End(self._device[0]), End(other._device[1], owner=other.driver), nbytes, chunk)

    def measure(self, others: Sequence[MeasuredLink], timed: Callable[[Starts], float]) -> Values:
        """Return the values of the links. ``others``: those of devices that this one copies from, taken to be alike."""
        values: Values = {}
        ways: dict[str, Callable[..., Event]] = {"up": self.up, "down": self.down}
        if others:
            ways["peer"] = partial(self.of, others[0])
        for name, start in ways.items():
            timed([(self.driver, start)])  # the first transfer may allocate
            latency = statistics.median(timed([(self.driver, partial(start, PAGE))]) for _ in range(_MEDIAN_OF))
            whole = min(timed([(self.driver, start)]) for _ in range(_BEST_OF))
            values[f"{name}_latency"] = latency
            values[f"{name}_bandwidth"] = self.nbytes / max(whole - latency, whole / 2)
            sizes = [n for n in SIZES if n <= self.nbytes]
            turns = [{n: timed([(self.driver, partial(start, 0, n))]) for n in sizes} for _ in range(ENOUGH)]
            if sizes:
                took = {n: min(turn[n] for turn in turns) for n in sizes}
                values[f"{name}_chunk"] = smallest({n: self.nbytes // n * n / took[n] for n in sizes})
        both = [(self.driver, self.up), (self.driver, self.down)]
        values["both_ways"] = max(2 * self.nbytes / timed(both) for _ in range(_BEST_OF))
        return values

    def _start(self, queue: int, target: End, source: End, nbytes: int, chunk: int) -> Event:
        nbytes = nbytes or self.nbytes
        chunk = chunk or nbytes
        for offset in range(0, nbytes // chunk * chunk, chunk):
            events = self.driver.copy(self._queues[queue], target, source, (Rectangle(offset, chunk),), ())
        self.driver.flush(self._queues[queue])
        return events[-1]
