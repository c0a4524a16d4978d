"""One suite for every driver: OpenCL's; native devices', also with programs that were compiled by hand; both, opened
by a process of their own; and one whose programs are Python functions. ``MANYCL_TEST_DEVICES=gpu0`` adds the first
device of a selection, as it is."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from manycl.drivers.driver import (
    Driver,
    End,
    Event,
    Source,
)
from manycl.drivers.survey import survey
from manycl.graph.graph import LocalArg
from manycl.region import Rectangle
from tests.drivers.host_functions import HostFunctions, NDRange

TEXT = """
kernel void add(global uint *x, uint by) { x[get_global_id(0)] += by; }
kernel void slow(global uint *x, uint by) {
    uint v = x[get_global_id(0)];
    for (int i = 0; i < 200000; i++) v = v * 1664525u + 1013904223u;
    x[get_global_id(0)] += by + (v & 0u);
}
kernel void places(global ulong *out) {
    size_t i[3], at = 0;
    for (int d = 2; d >= 0; d--) {
        i[d] = get_global_id(d);
        at = at * get_global_size(d) + i[d] - get_global_offset(d);
    }
    out[at] = i[0] | i[1] << 16 | i[2] << 32;
}
kernel void turned(global uint *x, local uint *t) {
    size_t i = get_local_id(0), n = get_local_size(0);
    t[i] = x[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    x[get_global_id(0)] = t[n - 1 - i];
}
"""
FUNCTIONS = HostFunctions()


def number(value: bytes) -> Any:
    return np.frombuffer(value, np.uint32)[0]


@FUNCTIONS.kernel
def add(over: NDRange, x: Any, by: bytes) -> None:
    x.view(np.uint32)[over.items()] += number(by)


@FUNCTIONS.kernel
def slow(over: NDRange, x: Any, by: bytes) -> None:
    time.sleep(0.005)
    x.view(np.uint32)[over.items()] += number(by)


@FUNCTIONS.kernel
def places(over: NDRange, out: Any) -> None:
    ids = [np.arange(over.offset[d], over.offset[d] + over.global_size[d]) for d in range(len(over.global_size))]
    grids = np.meshgrid(*ids[::-1], indexing="ij")[::-1]
    total = sum((grid.astype(np.uint64) << np.uint64(16 * d) for d, grid in enumerate(grids)), np.uint64(0))
    out.view(np.uint64)[: total.size] = total.reshape(-1)


@FUNCTIONS.kernel
def turned(over: NDRange, x: Any, local: LocalArg) -> None:
    assert over.local_size is not None
    assert local.nbytes == 4 * over.local_size[0]
    groups = x.view(np.uint32)[over.items()].reshape(-1, over.local_size[0])
    groups[:] = groups[:, ::-1].copy()


KINDS = ["opencl", "opencl@process", "entries", "functions"]
if any(root.driver == "native" for root in survey().roots):
    KINDS += ["native", "native@process"]
CASES = [f"{kind} {where}" for kind in KINDS for where in ("shared", "own")]
_programs = WeakKeyDictionary[Driver, Any]()  # PoCL takes 33 ms to build what it has in its cache
GIVEN = os.environ.get("MANYCL_TEST_DEVICES", "")
if GIVEN:
    CASES.append("given any")


class Desk:
    """A driver, a queue of it, and short ways to use them."""

    def __init__(self, driver: Driver, timed: bool = True) -> None:
        self.driver, self.queue = driver, driver.queue(timed)
        if driver not in _programs:
            _programs[driver] = driver.build(Source(TEXT))
        self.program = _programs[driver]

    def kernel(self, name: str, *args: Any) -> Any:
        kernel = self.driver.kernel(self.program, name)
        for index, value in enumerate(args):
            kernel.set(index, uint(value) if isinstance(value, int) else value)
        return kernel

    def launch(self, kernel: Any, items: int, after: Sequence[Event] | None = None, local: int | None = None) -> Event:
        return self.driver.launch(self.queue, kernel, (items,), None if local is None else (local,), None, after)

    def copy(self, target: Any, source: Any, rows: Sequence[Rectangle] = (), after: Sequence[Event] = ()) -> Event:
        """All of it, if no rows are given."""
        nbytes = min(len(m) for m in (target, source) if isinstance(m, np.ndarray))
        ends = End(target), End(source)
        events = self.driver.copy(self.queue, *ends, rows or (Rectangle(0, nbytes),), after)
        assert len(events) >= 1
        return events[-1]

    def end(self, event: Event) -> None:
        self.driver.flush(self.queue)
        self.driver.wait(event)
        assert self.driver.done(event)

    def there(self, data: Any) -> Any:
        """An allocation with these bytes."""
        memory = self.driver.allocate(len(data))
        self.end(self.driver.copy(self.queue, End(memory), End(data), (Rectangle(0, len(data)),), ())[-1])
        return memory

    def look(self, memory: Any, nbytes: int) -> Any:
        data = np.zeros(nbytes, np.uint8)
        self.end(self.driver.copy(self.queue, End(data), End(memory), (Rectangle(0, nbytes),), ())[-1])
        return data


def uint(value: int) -> bytes:
    return value.to_bytes(4, sys.byteorder)


def noise(nbytes: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)
