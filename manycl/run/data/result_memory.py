"""Host memory for large results (NumPy arrays): it is used again once nothing refers to it.

A loop asks for results of the same sizes again and again. Memory used again costs no page faults, and a device writes
to it fast, without a copy, as it is page-locked. Measured beside an H200 for 256 MB: new memory takes 42 ms to touch,
and 6 then to page-lock.
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
"""Results that are remembered, at most; memory handed out beyond that is freed when it is dropped."""


class ResultMemory:
    """Memory of results, at most as much as the results that there were at once. Threads may share it."""

    def __init__(self, pinning: Pinning) -> None:
        self._pinning = pinning
        self.new_bytes: HostBytes = aligned
        self._lock = Lock()
        self._runs = 0
        self._most = 0  # bytes of results that there were at once
        # what keeps it page-locked, if anything, and the run of its last use; least recently used first
        self._kept: dict[int, tuple[Bytes, object | None, int]] = {}
        self._numbers = count()

    def take(self, nbytes: int) -> tuple[Bytes, bool]:
        """Return memory that is free, and whether it is page-locked. Raises what allocating raises."""
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
            elif found[1] is None:  # it is used again
                found = found[0], self._pinning.pin(found[0])
            memory, pin = found
            if len(self._kept) < MOST:
                self._kept[next(self._numbers)] = memory, pin, self._runs
            elif pin is not None:
                self._pinning.unpinned(capacity)
                pin = None
            return memory[:nbytes], pin is not None

    def tick(self) -> None:
        """Begin a run: free memory that is unused and has not been asked for in a long time."""
        self._runs += 1
        if self._kept and not self._runs % IDLE:
            with self._lock:
                self._free(n for n in self._alone() if self._kept[n][2] < self._runs - IDLE)

    def trim(self) -> None:
        """Free all unused memory."""
        with self._lock:
            self._free(self._alone())

    def nbytes(self) -> tuple[int, int]:
        """Return the bytes in use, and the bytes that wait."""
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
