"""A driver that does everything in the worst legal order, on bytes of its own: nothing runs before somebody waits, or
chance lets it, and what goes wrong is said by a :class:`Fault`.

Its devices are those of :mod:`host_functions` without their threads. The commands of each queue wait until they are
flushed; then any head of a queue whose wait list is complete may be the next to run, in one step, whenever a driver is
called. That somebody waits for what was never sent, and calls without end, are found (:attr:`Chaos.wrong`). A command
that fails, or is cut off, leaves its arguments half written; freed memory, and that of a device that is lost, holds
rubbish. Clocks count steps: with a seed, all is the same each time (but for planned runs of devices that threads wait
for).
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from manycl.drivers.choice import OpenDevice, arranged
from manycl.drivers.driver import Bytes, DeviceLost, Driver, DriverError, End
from manycl.machine import HOST, Device, Machine
from manycl.region import Rectangle
from manycl.run.session import session as session_module
from tests.drivers.host_functions import NAME, Function, HostDriver, HostEvent, HostHandle

CALLS = 1 << 18
"""Calls of drivers in a run of a test, beyond which it hangs."""
LATE = 3
"""The times that a driver says at most of a complete command that it is not."""


class Kind(NamedTuple):
    """A kind of device. ``shares``: it computes in the host's memory; ``has_own_process``: it needs shared memory, may
    be lost, and tells of its commands then; the others: as of the driver."""

    shares: bool = False
    is_polled: bool = True
    is_interruptible: bool = False
    has_own_process: bool = False


@dataclass
class Fault:
    """What goes wrong, once: the ``at``-th time that it may. ``refused``: a device does not take a command. ``fails``:
    a command fails as it runs (with a polled device, all that it is given afterwards, too). ``dies``: a device is lost,
    between any two steps. ``crashes``: its process has ended by itself. ``interrupt``: Ctrl-C is pressed while
    somebody waits. ``goes_on``: what is behind a failed command runs; else it fails."""

    kind: str = "none"
    at: int = 0
    goes_on: bool = False
    has_happened: bool = False

    def is_due(self, kind: str) -> bool:
        """Whether it happens now, in a place where faults of a kind may."""
        if kind != self.kind or self.has_happened:
            return False
        self.at -= 1
        self.has_happened = self.at < 0
        return self.has_happened


FAULTS = ("none", "refused", "fails", "dies", "crashes", "interrupt")


@dataclass(eq=False)
class ChaosEvent(HostEvent):
    """``act`` runs the command, which may write to the arrays ``touched``; ``late``: the times that nobody is told that
    it is complete; ``is_begun``: of what a lost device had not ended, whether it may have begun."""

    queue: ChaosQueue | None = None
    act: Callable[[], None] = lambda: None
    touched: Sequence[Bytes] = ()
    after: Sequence[ChaosEvent] = ()
    before: ChaosEvent | None = None  # in its queue
    late: int = 0
    is_begun: bool = False

    @property
    def is_over(self) -> bool:
        return self.over.is_set()

    def seen(self) -> None:
        """It is known to be complete, and so is all that it came after."""
        left: list[ChaosEvent] = [self]
        while left:
            event = left.pop()
            event.late = 0
            left += [e for e in (event.before, *event.after) if e is not None]
            event.before, event.after = None, ()


@dataclass(eq=False)
class ChaosQueue:
    held: list[ChaosEvent] = field(default_factory=list)
    sent: deque[ChaosEvent] = field(default_factory=deque)
    last: ChaosEvent | None = None

    def flush(self) -> None:
        self.sent += self.held
        self.held.clear()


class ChaosDriver(HostDriver):
    def __init__(self, device: Device, functions: dict[str, Function], kind: Kind, chaos: Chaos) -> None:
        super().__init__(device, functions, kind.is_polled)
        self.is_interruptible = kind.is_interruptible
        self.needs_shared_memory = self.may_be_lost = self.tells_when_lost = kind.has_own_process
        self.has_crashed = False
        self.chaos = chaos
        self.is_dead = False
        self.queues: list[ChaosQueue] = []
        self._own: dict[int, Bytes] = {}
        self._touched: Sequence[Bytes] = ()

    # what fails when the device is lost

    def _check(self) -> None:
        self.chaos.turn()
        if self.is_dead:
            raise self._lost(False)

    def _lost(self, has_begun: bool) -> DriverError:
        words = f"{self.device.name}: DEVICE_NOT_AVAILABLE"
        return DeviceLost(words, self.device.name, has_begun=has_begun) if self.may_be_lost else DriverError(words)

    def allocate(self, nbytes: int, host: Bytes | None = None) -> Bytes:
        self._check()
        found = super().allocate(nbytes, host)
        if host is None:
            self._own[id(found)] = found
        return found

    def free(self, allocation: Bytes) -> None:
        if self._own.pop(id(allocation), None) is not None:
            allocation[:] = 0xDD
        super().free(allocation)

    def queue(self, timed: bool) -> Any:
        self._check()
        self.queues.append(ChaosQueue())
        return self.queues[-1]

    # commands

    def launch(self, queue: Any, kernel: Any, *how: Any) -> Any:
        self._touched = [value for value in kernel.arguments.values() if isinstance(value, np.ndarray)]
        return super().launch(queue, kernel, *how)

    def copy(self, queue: Any, target: End, source: End, rows: Sequence[Rectangle], after: Sequence[Any]) -> Any:
        self._touched = [target.memory]
        return super().copy(queue, target, source, rows, after)

    def fill(self, queue: Any, target: Bytes, *how: Any) -> Any:
        self._touched = [target]
        return super().fill(queue, target, *how)

    def _enqueue(self, queue: Any, act: Callable[[], None], after: Sequence[Any]) -> ChaosEvent:
        chaos, touched, self._touched = self.chaos, self._touched, ()
        self._check()
        assert all(e.driver is self for e in after), "an event of another driver"
        if chaos.fault.is_due("refused"):
            raise DriverError("OUT_OF_RESOURCES: the command is not taken")
        late = chaos.r.randrange(LATE + 1)
        event = ChaosEvent(
            self, queue=queue, act=act, touched=touched, after=tuple(after), before=queue.last, late=late
        )
        queue.last = event
        queue.held.append(event)
        return event

    def flush(self, queue: Any) -> None:
        queue.flush()
        self._check()

    def finish(self) -> None:
        for queue in self.queues:
            queue.flush()
        while not self.is_dead and any(queue.sent for queue in self.queues):
            self.chaos.advance()
        for queue in self.queues:
            if queue.last is not None and queue.last.is_over:
                queue.last.seen()

    # events

    def done(self, event: Any) -> bool:
        self.chaos.turn()
        if not self._has_ended(event):
            return False
        if event.late:
            event.late -= 1
            return False
        return self._seen(event)

    def succeeded(self, events: Sequence[Any]) -> bool:
        self.chaos.turn()
        return all(event.is_over and not event.late and not event.fault for event in events)

    def wait(self, event: Any) -> None:
        while not self._has_ended(event):
            self.chaos.press()
            self.chaos.advance(event)
        self._seen(event)

    def _has_ended(self, event: ChaosEvent) -> bool:
        if self.is_dead and not event.is_over:
            raise self._lost(event.is_begun)
        return event.is_over

    def _seen(self, event: ChaosEvent) -> bool:
        event.seen()
        if event.fault:
            raise DriverError(event.fault)
        return True

    def clock(self) -> float | None:
        return None if self.is_dead else 0.0

    def release(self) -> None:
        pass

    # what happens

    def run(self, queue: ChaosQueue) -> None:
        """The first command of a queue."""
        chaos, event = self.chaos, queue.sent.popleft()
        event.began = chaos.now
        chaos.now += 1e-6 * chaos.r.randint(1, 30)
        event.ended = chaos.now
        failed = [e for e in event.after if e.fault]
        if failed and not (chaos.fault.goes_on and chaos.r.random() < 0.5):
            event.fault = f"what it waits for has failed: {failed[0].fault}"
        elif not event.fault:
            if chaos.fault.is_due("fails"):
                self._fail(event)
            else:
                event.act()
        event.act, event.touched = lambda: None, ()
        event.over.set()

    def _fail(self, event: ChaosEvent) -> None:
        event.fault = "OUT_OF_RESOURCES: it has failed"
        self.half(event)
        if self.is_polled:  # as with a GPU, whose context is gone
            for queue in self.queues:
                for other in (*queue.sent, *queue.held):
                    other.fault = "the context is lost"
                    other.over.set()
                queue.sent.clear()
            self.is_dead = True
        elif event.queue is not None and not self.chaos.fault.goes_on:
            for other in (*event.queue.sent, *event.queue.held):
                other.fault = f"behind what has failed: {event.fault}"

    def die(self) -> None:
        """Be lost: each queue may have begun what is first in it."""
        self.is_dead, self.has_crashed = True, self.chaos.fault.kind == "crashes"
        for queue in self.queues:
            if queue.sent and all(e.is_over for e in queue.sent[0].after) and self.chaos.r.random() < 0.6:
                queue.sent[0].is_begun = True
                self.half(queue.sent[0])
        for memory in self._own.values():
            memory[:] = 0xEE

    def half(self, event: ChaosEvent) -> None:
        """Do a part of a command: some of the bytes that it may write are as before, and some are rubbish."""
        befores = [memory.copy() for memory in event.touched]
        event.act()
        for memory, before in zip(event.touched, befores, strict=True):
            changed = np.flatnonzero(memory != before)
            memory[changed[: len(changed) // 3]] ^= 0x55
            later = changed[2 * len(changed) // 3 :]
            memory[later] = before[later]


class ChaosHandle(HostHandle):
    def __init__(self, functions: dict[str, Function], kind: Kind, chaos: Chaos, first: int) -> None:
        super().__init__(functions, kind.shares, 1, first)
        self._kind, self._chaos = kind, chaos

    def open(self, device: Device) -> Driver:
        self._chaos.drivers.append(ChaosDriver(device, self._functions, self._kind, self._chaos))
        return self._chaos.drivers[-1]


class Chaos:
    """Devices of some kinds, whose commands run at random, and the ``fault`` that happens. ``now``: the time of all
    clocks, in seconds. ``wrong``: what was done that may never be."""

    def __init__(self, r: Random, kinds: Sequence[Kind], functions: dict[str, Function]) -> None:
        self.r, self.kinds, self._functions = r, kinds, functions
        self.fault = Fault()
        self.drivers: list[ChaosDriver] = []
        self.now = 1.0
        self.wrong: list[str] = []
        self._calls = 0
        self._lock = threading.RLock()

    def opened(self, selection: object) -> tuple[Machine, tuple[OpenDevice, ...]]:
        """As ``open_devices``."""
        found = []
        for i, kind in enumerate(self.kinds):
            memory = HOST if kind.shares else HOST + 1
            of = "cpu" if kind.shares else "gpu"
            device = Device(f"{of}{i}", of, NAME, NAME, "1", memory=memory, compute_units=1, queues=2, alignment=1)
            found.append(OpenDevice(device, ChaosHandle(self._functions, kind, self, i), device.name))
        return arranged(found)

    def turn(self) -> None:
        """A driver is called: it has time to do something, or has not."""
        self._count()
        if self.r.random() < 0.3:
            for _ in range(self.r.randint(1, 3)):
                self.step()

    def press(self) -> None:
        """Somebody waits."""
        if threading.current_thread() is threading.main_thread() and self.fault.is_due("interrupt"):
            signal.raise_signal(signal.SIGINT)

    def advance(self, awaited: ChaosEvent | None = None) -> None:
        """Do something, as somebody waits."""
        self._count()
        with self._lock:
            if self.step() or (awaited is not None and (awaited.is_over or awaited.driver.is_dead)):
                return
        if threading.current_thread() is threading.main_thread():
            self._find("somebody waits for what can never begin: it, or what it waits for, was not flushed")
        time.sleep(1e-5)  # other threads may wait before it is flushed

    def step(self) -> bool:
        """Run a command that may run now, if there is one."""
        with self._lock:
            if any(driver.queues for driver in self.drivers) and self._kills():
                return True
            able = [
                (driver, queue)
                for driver in self.drivers
                if not driver.is_dead
                for queue in driver.queues
                if queue.sent and all(event.is_over for event in queue.sent[0].after)
            ]
            if not able:
                return False
            driver, queue = self.r.choice(able)
            driver.run(queue)
            return True

    def _kills(self) -> bool:
        mortal = [d for d in self.drivers if not d.is_dead]
        if not mortal or not (self.fault.is_due("dies") or self.fault.is_due("crashes")):
            return False
        self.r.choice(mortal).die()
        return True

    def _count(self) -> None:
        self.now += 1e-6
        self._calls += 1
        if self._calls > CALLS:
            self._find(f"{CALLS} calls: it hangs")

    def _find(self, words: str) -> None:
        self.wrong.append(words)
        raise AssertionError(words)

    def clock(self) -> float:
        self.now += 1e-7
        return self.now


@contextmanager
def chaos_devices(chaos: Chaos) -> Iterator[None]:
    """Sessions that are made inside have these devices; clocks are theirs."""
    real = time.perf_counter
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(session_module, "opener", return_value=chaos.opened))
        stack.enter_context(mock.patch.object(time, "perf_counter", chaos.clock))
        for name, module in list(sys.modules.items()):
            if name.startswith("manycl.") and getattr(module, "perf_counter", None) is real:
                stack.enter_context(mock.patch.object(module, "perf_counter", chaos.clock))
        yield
