"""Host memory for large results, which are NumPy's arrays: it comes back when nobody looks at it any more.

What a loop asks for again and again need not be new memory each time, of which each page costs a fault, nor be copied
there from memory that a device writes to fast: it can be just that. Measured beside an H200 for 256 MB: new memory
takes 42 ms to touch, and 6 then to page-lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from threading import Lock

from manycl.drivers.addresses import aligned
from manycl.drivers.driver import Bytes
from manycl.run.data.host_bytes import HostBytes
from manycl.run.data.pinning import Pinning
from manycl.run.data.pool import IDLE, is_alone, references, size_class

MOST = 64
"""Results that are remembered; what is handed out beyond that goes when it is dropped."""


class ResultMemory:
    """What is here is never more than the results that there were at once. Threads may share it."""

    def __init__(self, pinning: Pinning) -> None:
        self._pinning = pinning
        self.new_bytes: HostBytes = aligned
        self._lock = Lock()
        self._runs = 0
        self._most = 0  # bytes of results that there were at once
        # what keeps it page-locked, if anything, and since which run; least recently asked for first
        self._kept: dict[int, tuple[Bytes, object | None, int]] = {}
        self._numbers = count()

    def take(self, nbytes: int) -> tuple[Bytes, bool]:
        """Memory that nobody has, and whether it is page-locked. Raises what allocating raises."""
        capacity = size_class(nbytes)
        with self._lock:
            found = self._waiting(capacity)
            if found is None:
                lent, waiting = self._bytes()
                self._most = max(self._most, lent + capacity)
                for number in self._alone():
                    if lent + waiting + capacity <= self._most:
                        break
                    waiting -= len(self._kept[number][0])
                    self._free([number])
                found = self.new_bytes(capacity), None
            elif found[1] is None:  # it comes again
                found = found[0], self._pinning.pin(found[0])
            memory, pin = found
            if len(self._kept) < MOST:
                self._kept[next(self._numbers)] = memory, pin, self._runs
            elif pin is not None:
                self._pinning.unpinned(capacity)
                pin = None
            return memory[:nbytes], pin is not None

    def tick(self) -> None:
        """A run begins: what nobody has, or has asked for in a long time, is freed."""
        self._runs += 1
        if self._kept and not self._runs % IDLE:
            with self._lock:
                self._free(n for n in self._alone() if self._kept[n][2] < self._runs - IDLE)

    def trim(self) -> None:
        """Free what nobody has."""
        with self._lock:
            self._free(self._alone())

    def nbytes(self) -> tuple[int, int]:
        """Bytes that somebody has, and that wait."""
        with self._lock:
            return self._bytes()

    def _bytes(self) -> tuple[int, int]:
        waiting = sum(len(self._kept[n][0]) for n in self._alone())
        return sum(len(memory) for memory, _, _ in self._kept.values()) - waiting, waiting

    def _alone(self) -> list[int]:
        return [n for n, (memory, _, _) in self._kept.items() if is_alone(references(memory))]

    def _waiting(self, capacity: int) -> tuple[Bytes, object | None] | None:
        for number, (memory, pin, _) in self._kept.items():
            if len(memory) == capacity and is_alone(references(memory)):
                del self._kept[number]
                return memory, pin
        return None

    def _free(self, numbers: Iterable[int]) -> None:
        for number in list(numbers):
            memory, pin, _ = self._kept.pop(number)
            if pin is not None:
                self._pinning.unpinned(len(memory))
