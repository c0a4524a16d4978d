"""Measuring devices and links: what a plain kernel reaches, what a launch costs, how fast data come and go.

Best of a few short runs (what disturbs a measurement only makes it slower), about a second a device; launch overhead
and latency are medians. What each number is called: :mod:`manycl.model.measured`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl

from manycl.machine import HOST, Machine
from manycl.model.history import identity
from manycl.model.measured import together
from manycl.model.occupancy import ITEMS_PER_UNIT
from manycl.run.backends.memory import pinned
from manycl.run.backends.platforms import OpenDevice
from manycl.run.backends.queues import Driver
from manycl.run.backends.quiet import new_kernel, quiet

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
_OPERATIONS = 8  # of a round of multiply_add
_LONG = 0.02  # seconds that a run of multiply_add shall take at least
_STREAM = {"cpu": 1 << 26}  # bytes of each array of add, where the device has room
_LONG_STREAM = 1 << 28  # on other devices
_SHARE = 16  # of its memory that an array may take at most
_LARGE, _SMALL = 1 << 26, 1 << 12  # bytes of transfers
_BEST_OF, _MEDIAN_OF = 5, 30
_LOCAL = 128  # work-items of a work-group

Values = dict[str, float]


def steps(machine: Machine) -> int:
    """How often ``progress`` of :func:`measure` is called."""
    own = sum(1 for d in machine.devices if d.memory != HOST)
    return len(machine.devices) + own + (own > 1)


def measure(
    machine: Machine, opened: Sequence[OpenDevice], progress: Callable[[int], None] = lambda _: None
) -> dict[str, Values]:
    """What :class:`manycl.model.store.Store` keeps of a machine's devices and links, by subject."""
    found: dict[str, Values] = {}
    drivers = [Driver(o) for o in opened]
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        progress(done)

    try:
        for driver in drivers:
            subject = identity(driver.device)
            if subject not in found:  # equal parts of a device are measured once
                found[subject] = _device(driver)
            step()
        own = [_Link(d) for d in drivers if d.device.memory != HOST]
        for link in own:
            values = found[identity(link.driver.device)]
            if "up_bandwidth" not in values:
                values |= link.measure()
            step()
        if len(own) > 1:
            nbytes = sum(x.nbytes for x in own)
            found[together(x.driver.device for x in own)] = {
                "up": max(nbytes / _time([x.up for x in own]) for _ in range(_BEST_OF)),
                "down": max(nbytes / _time([x.down for x in own]) for _ in range(_BEST_OF)),
            }
            step()
    finally:
        for driver in drivers:
            driver.close()
    return found


def _device(driver: Driver) -> Values:
    device, queue = driver.device, driver.queues[0]
    with quiet:
        program = cl.Program(driver.context, _SOURCE).build()
    kernels = {name: new_kernel(program, name) for name in ("nothing", "multiply_add", "add")}
    nbytes = (
        min(_STREAM.get(device.kind, _LONG_STREAM), device.global_memory // _SHARE, device.max_allocation)
        // 4096
        * 4096
    )
    buffers = [cl.Buffer(driver.context, cl.mem_flags.READ_WRITE, nbytes) for _ in range(3)]
    for buffer in buffers:
        cl.enqueue_fill_buffer(queue, buffer, np.float32(1.0), 0, nbytes).wait()

    def run(name: str, items: int, *args: Any) -> float:
        kernels[name].set_args(*args)
        return _seconds(cl.enqueue_nd_range_kernel(queue, kernels[name], (items,), (_LOCAL,)))

    items = min(8 * device.compute_units * max(_LOCAL, ITEMS_PER_UNIT.get(device.kind, 1)), nbytes // 4)
    items = max(_LOCAL, items // _LOCAL * _LOCAL)
    rounds = 1000
    while run("multiply_add", items, buffers[0], np.int32(rounds)) < _LONG and rounds < 1 << 28:
        rounds *= 2
    flops = max(
        _OPERATIONS * rounds * items / run("multiply_add", items, buffers[0], np.int32(rounds)) for _ in range(_BEST_OF)
    )
    count = nbytes // 4
    run("add", count, *buffers)
    bandwidth = max(3 * nbytes / run("add", count, *buffers) for _ in range(_BEST_OF))
    run("nothing", _LOCAL, buffers[0])
    waits = []
    for _ in range(_MEDIAN_OF):
        begin = time.perf_counter()
        inside = run("nothing", _LOCAL, buffers[0])
        waits.append(max(1e-7, time.perf_counter() - begin - inside))
    return {"flops": flops, "bandwidth": bandwidth, "launch_overhead": statistics.median(waits)}


def _seconds(event: Any) -> float:
    """On the device's clock; on the host's, for drivers whose clock stands still."""
    begin = time.perf_counter()
    event.wait()
    taken = (event.profile.end - event.profile.start) * 1e-9
    return taken if taken > 0 else time.perf_counter() - begin


class _Link:
    """The two directions between the host and a device with memory of its own, through pinned memory."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        device = driver.device
        self.nbytes = min(_LARGE, device.global_memory // _SHARE, device.max_allocation)
        self._device = [cl.Buffer(driver.context, cl.mem_flags.READ_WRITE, self.nbytes) for _ in range(2)]
        self._pins = [pinned(driver.context, driver.uploads, self.nbytes) for _ in range(2)]
        for _, data in self._pins:
            data[:] = 1

    def up(self, nbytes: int = 0) -> Any:
        """Enqueue a transfer to the device (0: of everything); its event."""
        return self._start(self.driver.uploads, self._device[0], self._pins[0][1][: nbytes or self.nbytes])

    def down(self, nbytes: int = 0) -> Any:
        return self._start(self.driver.downloads, self._pins[1][1][: nbytes or self.nbytes], self._device[1])

    def measure(self) -> Values:
        values: Values = {}
        for name, start in (("up", self.up), ("down", self.down)):
            _time([start])  # the first one may allocate
            latency = statistics.median(_time([partial(start, _SMALL)]) for _ in range(_MEDIAN_OF))
            whole = min(_time([start]) for _ in range(_BEST_OF))
            values[f"{name}_latency"] = latency
            values[f"{name}_bandwidth"] = self.nbytes / max(whole - latency, whole / 2)
        values["both_ways"] = max(2 * self.nbytes / _time([self.up, self.down]) for _ in range(_BEST_OF))
        return values

    @staticmethod
    def _start(queue: Any, target: Any, source: Any) -> Any:
        event = cl.enqueue_copy(queue, target, source, is_blocking=False)
        queue.flush()
        return event


def _time(starts: Sequence[Callable[[], Any]]) -> float:
    """Seconds until all that is started has ended."""
    begin = time.perf_counter()
    events = [start() for start in starts]
    for event in events:
        event.wait()
    return time.perf_counter() - begin
