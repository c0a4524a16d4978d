"""Arrays that are made, used and dropped in any order: no memory is two arrays', and none is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from manycl.drivers.driver import DriverError
from manycl.graph.graph import Buffer, BufferKey, owned
from manycl.machine import HOST, Device, DeviceIndex, Machine
from manycl.run.data.memory import Memory
from manycl.run.data.pool import IDLE
from manycl.units import PAGE

SIZES = st.sampled_from([64, PAGE, PAGE + 4, PAGE + 8, 3 * PAGE])


class Driver:
    """Allocates, with a limit, and knows what is allocated. ``pins``: whether it gives page-locked memory."""

    needs_shared_memory = False
    has_crashed = False

    def __init__(self, memory: int, limit: int = 1 << 40) -> None:
        self.device = Device(f"d{memory}", "cpu" if memory == HOST else "gpu", memory=memory)
        self.limit = limit
        self.allocated: dict[int, int] = {}
        self.inside: dict[int, Any] = {}  # the host's memory that it computes in
        self.count = 0

    def allocate(self, nbytes: int, host: Any = None) -> int:
        assert (host is not None) == (self.device.memory == HOST)
        if sum(self.allocated.values()) + nbytes > self.limit:
            raise DriverError("out of resources")
        self.count += 1
        self.allocated[self.count] = nbytes
        self.inside[self.count] = host
        return self.count

    def free(self, allocation: int) -> None:
        del self.allocated[allocation], self.inside[allocation]  # KeyError: freed twice

    def pin(self, data: Any) -> object:
        return memoryview(data)  # as PyOpenCL keeps it


def memory(*drivers: Driver) -> Memory:
    return Memory(Machine(tuple(d.device for d in drivers)), drivers)  # type: ignore[arg-type]


class MemoryMachine(RuleBasedStateMachine):
    """Buffers come and go, on the host and two devices, one of which computes in the host's memory."""

    def __init__(self) -> None:
        super().__init__()
        self.drivers = [Driver(HOST), Driver(1)]
        self.memory = memory(*self.drivers)
        self.keys: dict[BufferKey, int] = {}  # with the numbers that were written there
        self.views: list[tuple[Any, int, int]] = []  # of buffers' memory, with what they show
        self.lent: set[int] = set()  # whose contents are the caller's own, and may not have been brought yet
        self.next = self.temporary = 0

    @rule(nbytes=SIZES, on_host=st.booleans())
    def made(self, nbytes: int, on_host: bool) -> None:
        found = self.memory.again(nbytes, "", on_host)
        if found is not None:
            assert found.buffer.nbytes == nbytes
            assert found.buffer.key not in self.keys, "nobody else has it"
            self.keys[found.buffer.key] = -1
            return
        self.next += 1
        self.memory.create(BufferKey(self.next), nbytes)
        self.keys[BufferKey(self.next)] = -1

    @rule(data=st.data(), number=st.integers(0, 255), is_looked_at=st.booleans())
    def written(self, data: Any, number: int, is_looked_at: bool) -> None:
        if not self.keys:
            return
        key = data.draw(st.sampled_from(sorted(self.keys)))
        host = self.memory.host(key)
        self.lent.discard(key)
        host[:] = number
        self.keys[key] = number
        self.views = [(view, k, number if k == key else n) for view, k, n in self.views]
        if is_looked_at:
            self.views.append((host[8:].view(np.uint32).view(np.uint8), key, number))

    @rule(data=st.data(), number=st.integers(0, 255))
    def borrowed(self, data: Any, number: int) -> None:
        if self.keys:
            key = data.draw(st.sampled_from(sorted(self.keys)))
            self.memory.borrow(key, np.full(self.memory.nbytes(key), number, np.uint8))
            self.keys[key] = number
            self.lent.add(key)
            self.views = [v for v in self.views if v[1] != key]  # they show what was there, or what is brought later

    @rule(data=st.data(), device=st.integers(0, 1))
    def used(self, data: Any, device: int) -> None:
        if self.keys:
            key = data.draw(st.sampled_from(sorted(self.keys)))
            buffer = self.memory.on_device(key, device)
            assert self.drivers[device].allocated[buffer] >= self.memory.nbytes(key)
            if not device and self.keys[key] >= 0:
                assert (self.drivers[0].inside[buffer][: self.memory.nbytes(key)] == self.keys[key]).all()
                self.lent.discard(key)

    @rule(data=st.data(), number=st.integers(0, 255), times=st.integers(1, 3))
    def moved(self, data: Any, number: int, times: int) -> None:
        """To the second device and back, again and again: some day in page-locked memory."""
        if not self.keys:
            return
        key = data.draw(st.sampled_from(sorted(self.keys)))
        for _ in range(times):
            source = self.memory.upload_source(key, DeviceIndex(1))
            if self.keys[key] >= 0:
                assert (source.memory == self.keys[key]).all()
            assert not source.is_pinned or key not in self.lent
            del source
            target = self.memory.download_target(key, DeviceIndex(1))
            target.memory[:] = number
            del target
            self.lent.discard(key)
            self.keys[key] = number
            self.views = [(view, k, number if k == key else n) for view, k, n in self.views]

    @rule(data=st.data())
    def set_aside(self, data: Any) -> None:
        """As in a run whose device has little memory."""
        if self.keys:
            self.memory.set_aside(data.draw(st.sampled_from(sorted(self.keys))), 1)

    @rule(nbytes=SIZES)
    def made_for_a_run(self, nbytes: int) -> None:
        self.temporary -= 1
        self.memory.create(BufferKey(self.temporary), nbytes)
        assert self.drivers[1].allocated[self.memory.on_device(BufferKey(self.temporary), 1)] >= nbytes
        self.memory.set_aside(BufferKey(self.temporary), 1)

    @rule()
    def tidied(self) -> None:
        self.memory.tidy()

    @rule(data=st.data())
    def dropped(self, data: Any) -> None:
        if self.keys:
            key = data.draw(st.sampled_from(sorted(self.keys)))
            self.lent.discard(key)
            del self.keys[key]
            for whole in self.memory.rest([owned(Buffer(key, self.memory.nbytes(key)))]):
                self.memory.release(whole.buffer.key)

    @rule(runs=st.sampled_from([1, IDLE + 2]))
    def begun(self, runs: int) -> None:
        for _ in range(runs):
            self.memory.tick()
        if runs > IDLE:
            assert not self.memory.pool
            assert not self.memory.pool.resting()

    @rule()
    def trimmed(self) -> None:
        self.memory.trim()
        assert not self.memory.pool
        assert not self.memory.pool.resting()

    @invariant()
    def nobody_sees_anothers(self) -> None:
        for key, number in self.keys.items():
            if number >= 0 and key not in self.lent:
                assert (self.memory.host(key) == number).all()
                assert len(self.memory.host(key)) == self.memory.nbytes(key)
        for view, _, number in self.views:
            assert (view == number).all()

    @invariant()
    def each_allocation_is_of_one_buffer(self) -> None:
        for d, driver in enumerate(self.drivers):
            spare = [b for found in self.memory._devices[d]._spare.values() for b in found]
            assert sorted([*self.memory.buffers(d).values(), *spare]) == sorted(driver.allocated)
            for key, allocation in self.memory.buffers(d).items():
                assert driver.allocated[allocation] >= self.memory._stored[key].capacity, (
                    "the next array may need all of it"
                )
            runs = range(self.temporary, 0)
            assert self.memory.allocated(d).keys() == self.memory.buffers(d).keys() & {*self.keys, *runs}

    @invariant()
    def no_more_than_it_had_at_once(self) -> None:
        pool = self.memory.pool
        assert pool.used >= 0
        assert pool.used + pool.waiting <= pool.most


MemoryMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestMemory = MemoryMachine.TestCase
