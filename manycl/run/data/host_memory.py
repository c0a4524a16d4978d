"""The host's memory: bytes that are allocated, copied and cleared, page-locked where devices of a session move them,
and used again for results.

Devices move page-locked memory ten times as fast as ordinary memory, and without the host's cores: beside an H200, 64
MiB in 1.3 ms instead of 10, and in 1.8 instead of 19 while all cores compute. Memory is locked where it lies. Locking
memory that has been used takes 1.3 ms, and unlocking it as long; locking memory that has never been touched takes 11
ms, as each page is made then. What one device's driver has locked, all devices of its platform move as fast: two H200,
each in a context of its own, 54 GB/s each way by either, and 6 to 12 where it is not locked.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from mmap import PAGESIZE
from os import cpu_count
from sys import getrefcount
from threading import Lock
from typing import Any

import numpy as np

from manycl.drivers.addresses import address_of, aligned
from manycl.drivers.driver import Bytes, Driver, DriverError, End
from manycl.drivers.shared import shared_memory
from manycl.model.transfer import CHUNK, LARGE
from manycl.run.data.pool import IDLE, Pool, size_class
from manycl.units import PAGE
from manycl.utilities.kept import FEW

_UP = 0.5
"""The part of much host memory that has to be uploaded before it is locked: locking takes about as long as fetching it
(docs/decisions/18-reused-memory.md); our own choice."""
_DOWN = 1.5
"""The part of much host memory that has to be downloaded before it is locked, as it may have never been touched; our
own choice."""
_SMALL = 4.0
"""The part of little host memory that has to be moved before it is locked, as a multiple of it; our own choice."""
_CALLERS = 1.01
"""The part of a caller's memory that has to be moved before it is locked, as it may be gone after the first time; our
own choice."""
_LOCKED = 4  # at most 1 / _LOCKED of the host's memory is locked; our own choice
_COPY_THREADS = 16  # one thread copies 12.7 GB/s, eight 33 to 40, sixteen 49 (measured beside H200s)
HostBytes = Callable[[int], Bytes]
"""A function that makes uninitialised host memory of so many bytes, which starts on a page. Raises MemoryError."""


@cache
def _copiers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(_COPY_THREADS, cpu_count() or 1), "manycl-copy")


def copy_bytes(target: Bytes, source: Bytes) -> None:
    """Copy between host arrays of equal length, large ones by several threads (NumPy releases the GIL)."""
    if len(target) < CHUNK:  # one thread copies faster than several start
        np.copyto(target, source)
    else:
        list(_copiers().map(lambda p: np.copyto(target[p], source[p]), _parts(len(target))))


def clear_bytes(target: Bytes) -> None:
    """Fill a host array with zeros, a large one by several threads."""
    if len(target) < CHUNK:
        target.fill(0)
    else:
        list(_copiers().map(lambda p: target[p].fill(0), _parts(len(target))))


def _parts(count: int) -> list[slice]:
    """Return a slice of whole pages for each thread."""
    threads = min(_COPY_THREADS, cpu_count() or 1)
    step = -(-count // threads // PAGESIZE) * PAGESIZE
    return [slice(i, min(i + step, count)) for i in range(0, count, step)]


def shared(nbytes: int) -> Bytes:
    """Return shared memory as :func:`manycl.drivers.addresses.aligned` returns private memory, for devices with
    processes of their own."""
    return shared_memory().take(nbytes)


@cache
def ram_bytes() -> int:
    """Return the bytes of memory that this machine has; 2 ** 62 where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 62


class HostMemory:
    """Bytes of the host. ``pins``: what keeps them page-locked, by platform; ``moved``: the bytes of them that devices
    of each other platform have moved."""

    __slots__ = ("data", "moved", "pins")
    is_callers = False

    def __init__(self, data: Bytes) -> None:
        self.data = data
        self.pins: dict[str, object] = {}
        self.moved: dict[str, int] = {}

    def views(self) -> int:
        """Return how many views of its bytes there are, but for its own."""
        return getrefcount(self.data.base) - _ALONE


class CallersMemory(HostMemory):
    """Pages of a caller's array. ``times``: how often buffers have got its contents."""

    __slots__ = ("times",)
    is_callers = True

    def __init__(self, data: Bytes) -> None:
        super().__init__(data)
        self.times = 0


_LIKE_ALL = HostMemory(np.empty(2, np.uint8)[1:])
_ALONE = getrefcount(_LIKE_ALL.data.base)
"""The references to memory that only its own view refers to, as they are counted there."""


class PageLocks:
    """The page locks of a session: they decide which host memory is locked, and keep it so."""

    def __init__(self) -> None:
        self._drivers: dict[str, Driver] = {}  # by platform, the first driver that locks memory for all
        self._lock = Lock()  # threads of slowed devices move host copies, too
        self._nbytes = 0  # bytes that were locked and have not been unlocked but as their owner was freed
        self._freed = deque[int]()  # bytes that were unlocked then
        self._callers: dict[tuple[int, int], tuple[weakref.ref[Any], CallersMemory]] = {}

    @property
    def nbytes(self) -> int:
        """The bytes that are locked, by any driver."""
        return self._nbytes - sum(self._freed)

    def callers(self, data: Bytes) -> CallersMemory | None:
        """Return the pages of a caller's array, with what was moved of them so far. None for little memory, and where
        NumPy does not free it itself: it has to be unlocked before. While an array is known here, NumPy refuses to
        resize it in place."""
        owner = data if data.base is None else data.base
        is_plain = isinstance(owner, np.ndarray) and owner.flags.owndata
        if len(data) < LARGE or not self._drivers or not is_plain:
            return None
        place = address_of(data), len(data)
        known = self._callers.get(place)
        if known is not None and known[0]() is owner:
            return known[1]
        begin = place[0] // PAGESIZE * PAGESIZE
        pages = (ctypes.c_ubyte * (-(-(sum(place) - begin) // PAGESIZE) * PAGESIZE)).from_address(begin)
        memory = CallersMemory(np.ctypeslib.as_array(pages))  # (it does not keep the array)
        callers, freed = self._callers, self._freed

        def unlock(_: object) -> None:
            """Unlock the pages, as the array is about to be freed. The garbage collector may call this at any time."""
            if (found := callers.get(place)) is not None and found[1] is memory:
                del callers[place]
            if memory.pins:
                memory.pins.clear()
                freed.append(len(memory.data))

        callers[place] = weakref.ref(owner, unlock), memory
        return memory

    def use(self, drivers: Sequence[Driver]) -> None:
        """Set the drivers that may lock memory."""
        self._drivers = {}
        for driver in drivers:
            self._drivers.setdefault(driver.device.platform, driver)

    def is_locked(self, memory: HostMemory, nbytes: int, driver: Driver, *, is_upload: bool) -> bool:
        """Return whether memory is page-locked for a driver that moves ``nbytes`` of it now. It is locked from now on
        where that pays."""
        size, platform = len(memory.data), driver.device.platform
        if platform in memory.pins:
            return True
        if size < PAGE or platform not in self._drivers:
            return False
        with self._lock:
            moved = memory.moved[platform] = memory.moved.get(platform, 0) + nbytes
            share = _CALLERS if memory.is_callers else _SMALL if size < LARGE else _UP if is_upload else _DOWN
            if moved >= share * size:
                self._lock_for(memory, platform)
            return platform in memory.pins

    def lock(self, memory: HostMemory) -> None:
        """Page-lock memory for the first platform, if it is not locked, and where that is possible."""
        if not memory.pins and self._drivers:
            with self._lock:
                self._lock_for(memory, next(iter(self._drivers)))

    def unlock(self, memory: HostMemory) -> None:
        """Unlock memory."""
        with self._lock:
            if memory.pins:
                memory.pins.clear()
                self._nbytes -= len(memory.data)

    def _lock_for(self, memory: HostMemory, platform: str) -> None:
        """Lock memory for a platform's devices, if they can and there may be more; under the lock."""
        nbytes = 0 if memory.pins else len(memory.data)
        if platform in memory.pins or platform not in self._drivers:  # another thread may have changed this
            return
        if nbytes and _LOCKED * (self.nbytes + nbytes) > ram_bytes():
            return
        try:
            pin = self._drivers[platform].pin(memory.data)
        except DriverError:
            pin = None
        if pin is None:
            del self._drivers[platform]
            return
        self._nbytes += nbytes
        memory.pins[platform] = pin


class Results:
    """Host memory for large results (NumPy arrays): it is used again once nothing refers to it. Threads may share it. A
    loop asks for results of the same sizes again and again. Memory used again costs no page faults, and a device writes
    to it fast, without a copy, as it is page-locked. Measured beside an H200 for 256 MB: new memory takes 42 ms to
    touch, and 6 then to page-lock."""

    def __init__(self, locks: PageLocks) -> None:
        self.new_bytes: HostBytes = aligned
        self._locks = locks
        self._lock = Lock()
        self._runs = 0
        self._lent: list[HostMemory] = []
        self._pool = Pool[HostMemory](locks.unlock)

    def take(self, nbytes: int) -> End:
        """Return memory that is free, as the target of a transfer. Raises what allocating raises."""
        capacity = size_class(nbytes)
        with self._lock:
            memory = self._come_back(capacity) or self._lend(nbytes, capacity)
            return End(memory.data[:nbytes], 0, bool(memory.pins))

    def adopt(self, memory: HostMemory) -> None:
        """Lend memory that a buffer had, and that has a result already."""
        nbytes = len(memory.data)
        with self._lock:
            self._pool.joined(nbytes)
            self._keep(memory, nbytes)

    def leave(self, capacity: int) -> HostMemory | None:
        """Return free memory of that capacity, which a buffer has from now on; None where there is none."""
        with self._lock:
            memory = self._come_back(capacity)
            if memory is not None:
                self._lent.remove(memory)
            else:
                memory = self._pool.made(capacity)
            self._pool.dropped(capacity, 0 if memory is None else capacity)
            return memory

    def _lend(self, nbytes: int, capacity: int) -> HostMemory:
        pool = self._pool
        memory = pool.made(nbytes)
        if memory is None:
            pool.allocated(capacity)
            try:
                memory = HostMemory(self.new_bytes(capacity))
            except BaseException:
                pool.dropped(nbytes, capacity)
                raise
        else:
            self._locks.lock(memory)
        self._keep(memory, nbytes)
        return memory

    def _keep(self, memory: HostMemory, nbytes: int) -> None:
        """Note memory that is lent, to get it back."""
        if len(self._lent) < FEW:
            self._lent.append(memory)
        else:
            self._pool.dropped(nbytes, len(memory.data))
            self._locks.unlock(memory)

    def tick(self) -> None:
        """Begin a run: free memory that is unused and has not been asked for in a long time."""
        self._runs += 1
        if self._lent and not self._runs % IDLE:
            with self._lock:
                self._come_back()
        if self._pool.waiting:
            self._pool.tick()

    def trim(self) -> None:
        """Free all unused memory."""
        with self._lock:
            self._come_back()
            self._pool.clear()

    def nbytes(self) -> tuple[int, int]:
        """Return the bytes in use, and the bytes that wait."""
        with self._lock:
            self._come_back()
            return self._pool.used, self._pool.waiting

    def _come_back(self, wanted: int = 0) -> HostMemory | None:
        """Give the pool the memory to which nothing refers any more. But return the first that has the capacity
        ``wanted``, which is lent again, and page-locked as it is used again."""
        for memory in self._lent.copy():
            if not memory.views():
                nbytes = len(memory.data)
                if nbytes == wanted:
                    self._locks.lock(memory)
                    return memory
                self._lent.remove(memory)
                self._pool.give(memory, nbytes, nbytes)
        return None
