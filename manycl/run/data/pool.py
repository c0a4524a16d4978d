"""The memory pool: buffers that arrays have left behind, for arrays of about the same size, because allocating takes
long.

A loop that makes its arrays anew asks for the same sizes again and again. Without a pool this costs a page fault for
each page of ordinary memory; on an NVIDIA GPU 28 ms to free 256 MB (measured on an H200); and some 12 us of bookkeeping
for each array, however small. The bookkeeping stays as it is when another array takes the buffer with its memory on all
devices.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from threading import Lock

import numpy as np

from manycl.drivers.driver import Bytes
from manycl.graph.graph import BufferKey

IDLE = 64
"""Runs that a buffer may wait for an array of its size."""
_LEAST = 128  # bytes; small buffers' capacities are multiples of this
_EXACT = 64 << 20  # bytes, from which a buffer's capacity is its size


@lru_cache(1024)
def size_class(nbytes: int) -> int:
    """Return the capacity of a buffer in bytes: its size, and at most an eighth of it, or 127, more, so that sizes that
    change a little all the time find memory that others have left."""
    if nbytes >= _EXACT:
        return nbytes
    step = max(_LEAST, 1 << nbytes.bit_length() >> 4)
    return -(-nbytes // step) * step


class Pool:
    """Keys of waiting buffers, by the bytes that are allocated for each (its *capacity*). The memory of the program's
    arrays and of the waiting buffers together never exceeds that of the most arrays that there were at once. Threads
    may share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._runs = 0
        # capacity, and the run since which it waits; oldest first
        self._kept: OrderedDict[BufferKey, tuple[int, int]] = OrderedDict()
        self._by_capacity: dict[int, list[BufferKey]] = {}
        self.waiting = self.used = 0
        """Bytes that are allocated: for waiting buffers, and for the program's arrays."""
        self._arrays = 0  # bytes of the program's arrays, also of those that have no memory yet
        self.most = 0
        """The most bytes of arrays that there were at once: so much may be allocated before waiting buffers are freed.
        """

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: object) -> bool:
        return key in self._kept

    def made(self, nbytes: int) -> BufferKey | None:
        """Count a new array of ``nbytes``; return a waiting buffer whose memory it may have."""
        with self._lock:
            self._arrays += size_class(nbytes)
            self.most = max(self.most, self._arrays)
            return self._taken(nbytes)

    def dropped(self, nbytes: int, capacity: int) -> None:
        """Count an array less whose memory (``capacity`` bytes, or 0) does not come to the pool."""
        with self._lock:
            self._arrays -= size_class(nbytes)
            self.used -= capacity

    def give(self, key: BufferKey, nbytes: int, capacity: int) -> None:
        """Count an array less, and keep its buffer."""
        with self._lock:
            self._arrays -= size_class(nbytes)
            self.used -= capacity
            self.waiting += capacity
            self._kept[key] = capacity, self._runs
            self._by_capacity.setdefault(capacity, []).append(key)

    def take(self, nbytes: int) -> BufferKey | None:
        """Take the buffer that was given last, of those that are large enough for an array and not much larger."""
        with self._lock:
            return self._taken(nbytes)

    def allocated(self, capacity: int) -> list[BufferKey]:
        """Count ``capacity`` bytes of new memory for the program; return the buffers that are to be freed for it."""
        with self._lock:
            self.used += capacity
            return self._oldest(lambda: self.used + self.waiting > self.most) if self._kept else []

    def smaller(self, nbytes: int) -> None:
        """Count ``nbytes`` less for the program: a buffer got less memory than its capacity."""
        with self._lock:
            self.used -= nbytes

    def tick(self) -> list[BufferKey]:
        """Begin a run; return the buffers that have waited for more than ``IDLE`` runs."""
        with self._lock:
            self._runs += 1
            return self._oldest(lambda: next(iter(self._kept.values()))[1] < self._runs - IDLE)

    def clear(self) -> list[BufferKey]:
        """Return all buffers, and remove them."""
        with self._lock:
            return self._oldest(lambda: True)

    def _oldest(self, too_many: Callable[[], bool]) -> list[BufferKey]:
        found = []
        while self._kept and too_many():
            found.append(self._out(next(iter(self._kept))))
        return found

    def _taken(self, nbytes: int) -> BufferKey | None:
        if not self._kept:
            return None
        capacity = size_class(nbytes)
        keys = self._by_capacity.get(capacity) or self._by_capacity.get(nbytes)
        if keys is None:
            return None
        self.used += self._kept[keys[-1]][0]
        return self._out(keys[-1])

    def _out(self, key: BufferKey) -> BufferKey:
        capacity, _ = self._kept.pop(key)
        keys = self._by_capacity[capacity]
        if keys[-1] == key:  # nearly always
            keys.pop()
        else:
            keys.remove(key)
        if not keys:
            del self._by_capacity[capacity]
        self.waiting -= capacity
        return key


def references(host: Bytes) -> int:
    """Return how many references there are to the memory behind a view: its own, and those of other views of it."""
    owner = host.base
    return sys.getrefcount(owner)


_ALONE = references(np.empty(2, np.uint8)[1:])


def is_alone(count: int) -> bool:
    """Return whether a memory with ``count`` references has no other view."""
    return count <= _ALONE
