"""Buffers that arrays have left behind, for arrays of about the same size: allocating takes long.

A loop that makes its arrays anew asks for the same sizes again and again. What that costs without a pool: on ordinary
memory a fault for each page, on an NVIDIA GPU 28 ms to free 256 MB (measured on an H200); and for each array, however
small, some 12 us of bookkeeping, which stays as it is when another array takes the buffer with all its memory, in
whatever places.
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
_LEAST = 128  # bytes, of which sizes of small buffers are multiples
_EXACT = 64 << 20  # bytes, from which on buffers have the size that was asked for


@lru_cache(1024)
def size_class(nbytes: int) -> int:
    """The bytes that are allocated for a buffer: at most an eighth, or 127, more than it has, so that
    sizes that change a little all the time find what others have left."""
    if nbytes >= _EXACT:
        return nbytes
    step = max(_LEAST, 1 << nbytes.bit_length() >> 4)
    return -(-nbytes // step) * step


class Pool:
    """Keys of buffers that wait, by the bytes that are allocated for each (its *capacity*). All the memory that a
    program has and what waits for it are never more than the arrays that it had at once. Threads may share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._runs = 0
        # capacity, and since which run; oldest first
        self._kept: OrderedDict[BufferKey, tuple[int, int]] = OrderedDict()
        self._by_capacity: dict[int, list[BufferKey]] = {}
        self.waiting = self.used = 0
        """Bytes that are allocated: here, and for the program."""
        self._arrays = 0  # bytes of its arrays, also of those that have no memory yet
        self.most = 0
        """Of that, so far: so much may be allocated before what waits is freed."""

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: object) -> bool:
        return key in self._kept

    def made(self, nbytes: int) -> BufferKey | None:
        """There is another array; what may become it."""
        with self._lock:
            self._arrays += size_class(nbytes)
            self.most = max(self.most, self._arrays)
            return self._taken(nbytes)

    def dropped(self, nbytes: int, capacity: int) -> None:
        """There is one less, and its memory, if it had some, does not come here."""
        with self._lock:
            self._arrays -= size_class(nbytes)
            self.used -= capacity

    def give(self, key: BufferKey, nbytes: int, capacity: int) -> None:
        """There is one less; what it had is kept."""
        with self._lock:
            self._arrays -= size_class(nbytes)
            self.used -= capacity
            self.waiting += capacity
            self._kept[key] = capacity, self._runs
            self._by_capacity.setdefault(capacity, []).append(key)

    def take(self, nbytes: int) -> BufferKey | None:
        """What was given last of those that are large enough for an array, and not much larger."""
        with self._lock:
            return self._taken(nbytes)

    def allocated(self, capacity: int) -> list[BufferKey]:
        """The program has got other memory; what is to be freed for it."""
        with self._lock:
            self.used += capacity
            return self._oldest(lambda: self.used + self.waiting > self.most) if self._kept else []

    def smaller(self, nbytes: int) -> None:
        """A buffer has got less than was said."""
        with self._lock:
            self.used -= nbytes

    def tick(self) -> list[BufferKey]:
        """A run begins; what nobody has asked for in a long time."""
        with self._lock:
            self._runs += 1
            return self._oldest(lambda: next(iter(self._kept.values()))[1] < self._runs - IDLE)

    def clear(self) -> list[BufferKey]:
        """All there is."""
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
        if keys[-1] == key:  # as nearly always
            keys.pop()
        else:
            keys.remove(key)
        if not keys:
            del self._by_capacity[capacity]
        self.waiting -= capacity
        return key


def references(host: Bytes) -> int:
    """How many references there are to the memory behind a view: its own, and those of other views of it."""
    owner = host.base
    return sys.getrefcount(owner)


_ALONE = references(np.empty(2, np.uint8)[1:])


def is_alone(count: int) -> bool:
    """Whether nobody else has a view of a memory to which there are so many references."""
    return count <= _ALONE
