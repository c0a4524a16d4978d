"""Memory of this process that worker processes have, too: what either writes, the other one sees. It is one file
without a name, of which each process has a mapping; it goes with the last of them, however they end. It is as large as
the machine's memory, and only what is used of it takes any. A process that was forked has the *same* memory, not a copy
of it."""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from bisect import bisect_left
from collections import deque
from functools import cache

import numpy as np

from manycl.drivers.driver import Bytes, DriverError

_PAGE = mmap.PAGESIZE
_MOST = 1 << 42  # bytes, where nobody knows how much memory there is
_REMOVE = getattr(mmap, "MADV_REMOVE", None)


class Arena:
    """One such file. ``descriptor``: of it; ``nbytes``: its size, ``used``: what arrays have of it. For all threads."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.descriptor = os.memfd_create("manycl-arena")
        os.ftruncate(self.descriptor, nbytes)
        self._map = mmap.mmap(self.descriptor, nbytes)
        whole = np.frombuffer(self._map, np.uint8)
        self._address: int = whole.ctypes.data
        self._lock = threading.Lock()
        self._gaps = [(0, nbytes)]  # what is free: offsets and bytes, in order
        self._given_back: deque[tuple[int, int]] = deque()  # by whichever thread, at any time
        self.used = 0
        self._process = os.getpid()

    def take(self, nbytes: int) -> Bytes:
        """Uninitialised memory that starts on a page; it comes back when nobody looks at it. Raises MemoryError."""
        size = max(-(-nbytes // _PAGE) * _PAGE, _PAGE)
        with self._lock:
            while self._given_back:
                self._join(*self._given_back.popleft())
            offset = self._first(size)
            self.used += size
        whole = np.frombuffer(self._map, np.uint8, size, offset)
        weakref.finalize(whole, self._give_back, offset, size).atexit = False
        return whole[:nbytes]

    def place(self, data: Bytes) -> int | None:
        """Return where an array begins here; None if it is other memory."""
        offset: int = data.__array_interface__["data"][0] - self._address
        return offset if offset >= 0 and offset + data.nbytes <= self.nbytes else None

    def gaps(self) -> list[tuple[int, int]]:
        """Offsets and bytes that nobody has, in order, neighbours joined."""
        with self._lock:
            while self._given_back:
                self._join(*self._given_back.popleft())
            return list(self._gaps)

    def _first(self, size: int) -> int:
        """Return memory from the first gap that is large enough."""
        for at, (offset, nbytes) in enumerate(self._gaps):
            if nbytes >= size:
                self._gaps[at : at + 1] = [(offset + size, nbytes - size)] if nbytes > size else []
                return offset
        raise MemoryError(f"{size:,} bytes of shared memory cannot be had")

    def _give_back(self, offset: int, size: int) -> None:
        """Give back memory at which nobody looks. This may come between any two steps of any thread: it takes no
        lock."""
        if os.getpid() != self._process:
            return  # a process that was forked: the memory is still its parent's
        if _REMOVE is not None:
            self._map.madvise(_REMOVE, offset, size)
        self._given_back.append((offset, size))

    def _join(self, offset: int, size: int) -> None:
        self.used -= size
        gaps = self._gaps
        at = bisect_left(gaps, (offset, 0))
        if at < len(gaps) and gaps[at][0] == offset + size:
            size += gaps.pop(at)[1]
        if at > 0 and sum(gaps[at - 1]) == offset:
            at -= 1
            offset, before = gaps.pop(at)
            size += before
        gaps.insert(at, (offset, size))


@cache
def shared_memory() -> Arena:
    """This process's. Raises DriverError where there can be none."""
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        there = _MOST
    try:
        return Arena(max(there, _PAGE) // _PAGE * _PAGE)
    except (AttributeError, OSError) as error:
        raise DriverError(f"there is no memory that processes can share: {error}") from None
