"""A driver of another kind: devices of threads, whose programs are Python functions registered for kernels' names.

As far as the protocol lets it, it is as unlike OpenCL as can be: memory is NumPy's, each queue is a thread, nothing
that was given to a queue begins before it is flushed, and events of another driver end the test.
"""

from __future__ import annotations

import math
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from manycl.drivers import choice
from manycl.drivers import kinds as kinds_module
from manycl.drivers import survey as survey_module
from manycl.drivers.driver import BuildError, Bytes, Driver, DriverError, End, Found, Source
from manycl.drivers.kinds import Kind
from manycl.graph.graph import LocalArg
from manycl.machine import HOST, Device
from manycl.region import Rectangle

MOST_ITEMS = 4096
NAME = "host functions"


class NDRange(NamedTuple):
    """What a function is called for."""

    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    offset: tuple[int, ...]

    def items(self, dimension: int = 0) -> slice:
        """The global ids."""
        return slice(self.offset[dimension], self.offset[dimension] + self.global_size[dimension])


Function = Callable[..., None]
"""``function(ndrange, *arguments)``: arrays of bytes for buffers, bytes for scalars, LocalArg for local memory."""


@dataclass(eq=False)
class HostEvent:
    driver: HostDriver
    over: threading.Event = field(default_factory=threading.Event)
    fault: str = ""
    began: float = 0.0
    ended: float = 0.0


@dataclass(eq=False)
class HostQueue:
    """A thread, and what has not been sent to it."""

    name: str
    held: list[Callable[[], None]] = field(default_factory=list)
    sent: SimpleQueue[Callable[[], None] | None] = field(default_factory=SimpleQueue)

    def __post_init__(self) -> None:
        threading.Thread(target=self._work, name=self.name, daemon=True).start()

    def _work(self) -> None:
        while (job := self.sent.get()) is not None:
            job()
            del job  # what it holds may be freed

    def flush(self) -> None:
        while self.held:
            self.sent.put(self.held.pop(0))


class HostKernel:
    def __init__(self, function: Function) -> None:
        self.function = function
        self.most_items = MOST_ITEMS
        self.arguments: dict[int, Any] = {}

    def set(self, index: int, value: Any) -> None:
        assert isinstance(value, (bytes, LocalArg, np.ndarray))
        self.arguments[index] = value


class HostDriver:
    is_interruptible = False
    slows_down = False
    needs_shared_memory = may_be_lost = tells_when_lost = False
    has_crashed = False

    def __init__(self, device: Device, functions: dict[str, Function], is_polled: bool) -> None:
        self.device, self.is_polled = device, is_polled
        self._functions = functions
        self._queues: list[HostQueue] = []
        self.ran: list[tuple[str, NDRange]] = []
        self.copied = 0
        self.freed = 0

    def allocate(self, nbytes: int, host: Bytes | None = None) -> Bytes:
        assert nbytes > 0
        if host is None:
            return np.full(nbytes, 0xA5, np.uint8)
        assert self.device.memory == HOST
        assert len(host) == nbytes
        return host

    def part(self, allocation: Bytes, offset: int, nbytes: int) -> Bytes:
        return allocation[offset : offset + nbytes]

    def free(self, allocation: Bytes) -> None:
        self.freed += 1

    def pin(self, data: Bytes) -> object:
        return None

    def build(self, source: Source) -> dict[str, Function]:
        names = re.findall(r"\bkernel\s+void\s+(\w+)\s*\(", source.text)
        missing = [name for name in names if name not in self._functions]
        if missing or not names:
            raise BuildError(f"there is no function for {', '.join(missing) or 'anything'}")
        return {name: self._functions[name] for name in names}

    def kernel(self, program: dict[str, Function], name: str) -> HostKernel:
        if name not in program:
            raise DriverError(f"the program has no kernel {name}")
        return HostKernel(program[name])

    def function(self, function: Callable[..., None], arguments: int) -> HostKernel:
        def called(ndrange: NDRange, *values: Any) -> None:
            function(list(values), ndrange.global_size, ndrange.offset)

        kernel = HostKernel(called)
        kernel.most_items = sys.maxsize
        return kernel

    def queue(self, timed: bool) -> HostQueue:
        self._queues.append(HostQueue(f"{self.device.name} queue"))
        return self._queues[-1]

    def launch(
        self,
        queue: HostQueue,
        kernel: Any,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...] | None,
        offset: tuple[int, ...] | None,
        after: Sequence[HostEvent] | None,
    ) -> HostEvent:
        ndrange = NDRange(global_size, local_size, offset or (0,) * len(global_size))
        if local_size is not None and math.prod(local_size) > MOST_ITEMS:
            raise DriverError(f"work-groups of {local_size} are too large")
        arguments = [kernel.arguments[i] for i in range(len(kernel.arguments))]

        def run() -> None:
            kernel.function(ndrange, *arguments)
            self.ran.append((kernel.function.__name__, ndrange))

        return self._enqueue(queue, run, after or ())

    def copy(
        self, queue: HostQueue, target: End, source: End, rows: Sequence[Rectangle], after: Sequence[HostEvent]
    ) -> list[HostEvent]:
        def run() -> None:
            for offset, width, pitch, count, *_ in rows:
                for start in range(offset, offset + max(1, count * pitch), max(1, pitch))[:count]:
                    to, of = start - target.low, start - source.low
                    assert min(to, of) >= 0
                    target.memory[to : to + width] = source.memory[of : of + width]
            self.copied += 1

        return [self._enqueue(queue, run, after)]

    def read(self, queue: HostQueue, out: Bytes, source: Bytes, low: int) -> HostEvent:
        event = self.download(queue, out, source, low)
        self.flush(queue)
        self.wait(event)
        return event

    def download(self, queue: HostQueue, out: Bytes, source: Bytes, low: int) -> HostEvent:
        return self.copy(queue, End(out, low), End(source), [Rectangle(low, len(out))], ())[0]

    def write(self, queue: HostQueue, target: Bytes, data: Bytes, low: int) -> HostEvent:
        return self.copy(queue, End(target), End(data.copy(), low), [Rectangle(low, len(data))], ())[0]

    def fill(
        self,
        queue: HostQueue,
        target: Bytes,
        pattern: bytes,
        offset: int,
        nbytes: int,
        after: Sequence[HostEvent],
    ) -> HostEvent:
        assert 0 <= offset < offset + nbytes <= len(target)
        assert offset % len(pattern) == nbytes % len(pattern) == 0

        def run() -> None:
            target[offset : offset + nbytes] = np.tile(np.frombuffer(pattern, np.uint8), nbytes // len(pattern))

        return self._enqueue(queue, run, after)

    def flush(self, queue: HostQueue) -> None:
        queue.flush()

    def finish(self) -> None:
        for queue in self._queues:
            queue.flush()
        for queue in self._queues:
            reached = threading.Event()
            queue.sent.put(reached.set)
            reached.wait()

    def done(self, event: HostEvent) -> bool:
        if event.fault:
            raise DriverError(event.fault)
        return event.over.is_set()

    def succeeded(self, events: Sequence[HostEvent]) -> bool:
        return all(event.over.is_set() and not event.fault for event in events)

    def wait(self, event: HostEvent) -> None:
        event.over.wait()
        self.done(event)

    def times(self, event: HostEvent) -> tuple[float, float]:
        if not event.over.is_set() or event.fault:
            raise DriverError("it is not complete")
        return event.began, event.ended

    def clock(self) -> float | None:
        return 0.0

    def release(self) -> None:
        for queue in self._queues:
            queue.sent.put(None)

    def _enqueue(self, queue: HostQueue, act: Callable[[], None], after: Sequence[HostEvent]) -> HostEvent:
        event, before = HostEvent(self), list(after)
        assert all(e.driver is self for e in before), "an event of another driver"

        def run() -> None:
            for other in before:
                other.over.wait()
            event.began = time.perf_counter()
            try:
                act()
            except Exception as error:
                event.fault = f"{type(error).__name__}: {error}"
            event.ended = time.perf_counter()
            event.over.set()

        queue.held.append(run)
        return event


class HostHandle:
    """``shares``: it computes in the host's memory. ``first``: the first one of its units, of all that there are."""

    compute_units = 4

    def __init__(self, functions: dict[str, Function], shares: bool, units: int = 4, first: int = 0) -> None:
        self._functions, self._shares, self.compute_units, self._first = functions, shares, units, first

    @property
    def resources(self) -> frozenset[str]:
        end = self._first + self.compute_units
        return frozenset(f"unit {n} of {NAME} {self._shares}" for n in range(self._first, end))

    def shares_host_memory(self) -> bool:
        return self._shares

    def can_copy(self, other: object) -> bool:
        return False

    def waits_for(self, other: object) -> bool:
        return False

    def among(self, met: dict[str, Any]) -> HostHandle:
        return self

    def divide(self, division: tuple[int, ...]) -> Sequence[HostHandle]:
        equal = (self.compute_units // division[0],) * division[0]
        units = equal if len(division) == 1 else division
        return [HostHandle(self._functions, self._shares, n, self._first + sum(units[:i])) for i, n in enumerate(units)]

    def open(self, device: Device) -> Driver:
        return HostDriver(device, self._functions, is_polled=not self._shares)


class HostFunctions:
    """The kind of driver: a device with memory of its own (``accelerator0``), and one that computes in the host's (the
    processor again: chosen as ``host functions cpu``)."""

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}

    def kernel(self, function: Function) -> Function:
        """Register a function for the kernel of its name."""
        self.functions[function.__name__] = function
        return function

    def look(self, notes: list[str]) -> list[Found]:
        own = Device("", "accelerator", NAME, NAME, "1", memory=HOST + 1, compute_units=4, queues=2, alignment=1)
        shared = Device("", "cpu", NAME, f"{NAME} cpu", "1", memory=HOST, compute_units=4, alignment=1)
        handles = HostHandle(self.functions, shares=False), HostHandle(self.functions, shares=True)
        return [Found(own, handles[0], rank=9), Found(shared, handles[1], rank=9)]

    def add(self, patch: Any) -> None:
        """To the list of kinds (``patch``: pytest's)."""
        there = (*kinds_module.kinds(), Kind(NAME, self.look, ""))
        patch.setattr(survey_module, "kinds", lambda: there)
        found = survey_module.survey.__wrapped__()
        patch.setattr(choice, "survey", lambda: found)
        patch.setattr(choice, "processor_alone", lambda: None)
