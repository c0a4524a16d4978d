"""Pools of memory that nobody uses, for whoever asks for as much, because allocating takes long.

A loop that makes its arrays anew asks for the same sizes again and again. Without a pool this costs a page fault for
each page of ordinary memory; on an NVIDIA GPU 28 ms to free 256 MB (measured on an H200); and some 12 us of bookkeeping
for each array, however small. The bookkeeping stays as it is when another array takes the buffer with its memory on all
devices.

Arrays' buffers have one pool (:class:`BufferPool`), the host memory of results another one
(:class:`manycl.run.data.host_memory.Results`). What is kept, and when it is freed, is the same for both.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from manycl.graph.graph import BufferKey, Owned
from manycl.units import ELEMENT

if TYPE_CHECKING:
    from manycl.run.data.memory import StoredBuffer

IDLE = 64
"""Runs that memory may wait for somebody who asks for it; our own choice."""
_EXACT = 64 << 20  # bytes, from which a capacity is the size that was asked for; our own choice

Item = TypeVar("Item")


@lru_cache(1024)
def size_class(nbytes: int) -> int:
    """Return the capacity for a size, in bytes: this size, and at most an eighth of it, or 127, more. So sizes that
    change a little all the time find memory that others have left."""
    if nbytes >= _EXACT:
        return nbytes
    step = max(ELEMENT, 1 << nbytes.bit_length() >> 4)
    return -(-nbytes // step) * step


class Pool(Generic[Item]):
    """Items that wait for a user, by the bytes that are allocated for each (its *capacity*). The memory of users and of
    waiting items together never exceeds that of the most users that there were at once. ``free`` is called for each
    item that leaves the pool otherwise than to a user. Threads may share it."""

    __slots__ = ("_by_capacity", "_free", "_kept", "_lock", "_runs", "_wanted", "most", "used", "waiting")

    def __init__(self, free: Callable[[Item], None]) -> None:
        self._free = free
        self._lock = Lock()
        self._runs = 0
        # capacity, and the run since which it waits; oldest first
        self._kept: OrderedDict[Item, tuple[int, int]] = OrderedDict()
        self._by_capacity: dict[int, list[Item]] = {}
        # bytes that are allocated: for waiting items, and for users
        self.waiting = self.used = 0
        self._wanted = 0  # bytes that users have asked for, also of those that have no memory yet
        # the most bytes that users have asked for at once: so much may be allocated before waiting items are freed
        self.most = 0

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, item: object) -> bool:
        return item in self._kept

    def made(self, nbytes: int) -> Item | None:
        """Count a new user of ``nbytes``; return a waiting item that it may have."""
        with self._lock:
            self._wanted += size_class(nbytes)
            self.most = max(self.most, self._wanted)
            return self._taken(nbytes)

    def joined(self, capacity: int) -> None:
        """Count a new user, with memory of its own."""
        with self._lock:
            self._wanted += capacity
            self.used += capacity
            self.most = max(self.most, self._wanted)

    def dropped(self, nbytes: int, capacity: int) -> None:
        """Count a user less whose memory (``capacity`` bytes, or 0) does not come to the pool."""
        with self._lock:
            self._wanted -= size_class(nbytes)
            self.used -= capacity

    def give(self, item: Item, nbytes: int, capacity: int) -> None:
        """Count a user less, and keep its item."""
        with self._lock:
            self._wanted -= size_class(nbytes)
            self.used -= capacity
            self.waiting += capacity
            self._kept[item] = capacity, self._runs
            self._by_capacity.setdefault(capacity, []).append(item)

    def take(self, nbytes: int) -> Item | None:
        """Take the item that was given last, of those that are large enough for a user and not much larger."""
        with self._lock:
            return self._taken(nbytes)

    def allocated(self, capacity: int) -> None:
        """Count ``capacity`` bytes of new memory for a user, and free what is superfluous then."""
        with self._lock:
            self.used += capacity
            found = self._oldest(lambda: self.used + self.waiting > self.most) if self._kept else ()
        self._drop(found)

    def smaller(self, nbytes: int) -> None:
        """Count ``nbytes`` less for a user: it got less memory than its capacity."""
        with self._lock:
            self.used -= nbytes

    def tick(self) -> None:
        """Begin a run: free what has waited for more than ``IDLE`` runs."""
        self._runs += 1
        if self._kept:
            with self._lock:
                found = self._oldest(lambda: next(iter(self._kept.values()))[1] < self._runs - IDLE)
            self._drop(found)

    def clear(self) -> None:
        """Free all items."""
        with self._lock:
            found = self._oldest(lambda: True)
        self._drop(found)

    def _drop(self, items: Iterable[Item]) -> None:
        for item in items:
            self._free(item)

    def _oldest(self, too_many: Callable[[], bool]) -> list[Item]:
        found = []
        while self._kept and too_many():
            found.append(self._out(next(iter(self._kept))))
        return found

    def _taken(self, nbytes: int) -> Item | None:
        if not self._kept:
            return None
        capacity = size_class(nbytes)
        items = self._by_capacity.get(capacity) or self._by_capacity.get(nbytes)
        if items is None:
            return None
        self.used += self._kept[items[-1]][0]
        return self._out(items[-1])

    def _out(self, item: Item) -> Item:
        capacity, _ = self._kept.pop(item)
        items = self._by_capacity[capacity]
        if items[-1] == item:  # nearly always
            items.pop()
        else:
            items.remove(item)
        if not items:
            del self._by_capacity[capacity]
        self.waiting -= capacity
        return item


class BufferPool(Pool["StoredBuffer"]):
    """The pool of buffers that arrays have left behind. Most of them wait in a stage before: as they are, for the next
    array of exactly their size, as loops drop and make the same arrays again and again. There a buffer keeps its key
    and all its memory, nothing has to be done to either, and it counts as in use. ``is_used``: a buffer was taken there
    since this was last set to False."""

    __slots__ = ("is_used", "stage")  # (compiled code reads and writes these, too)

    def __init__(self, free: Callable[[StoredBuffer], None]) -> None:
        super().__init__(free)
        self.stage: dict[int, tuple[list[Owned], list[Owned]]] = {}
        """The buffers that are kept as they are, by size: those without a copy on the host, and those with one."""
        self.is_used = False

    def rest(self, whole: Owned, has_host: bool) -> None:
        """Keep a buffer, which has a copy on the host or not, as it is."""
        nbytes = whole[0].nbytes
        waiting = self.stage.get(nbytes)
        if waiting is None:
            waiting = self.stage[nbytes] = [], []
        waiting[has_host].append(whole)

    def again(self, nbytes: int, on_host: bool) -> Owned | None:
        """Take the buffer of exactly ``nbytes`` that was kept last as it was, preferring one with a host copy
        (``on_host``) or one without. None where there is none."""
        waiting = self.stage.get(nbytes)
        if waiting is None:
            return None
        found = waiting[on_host] or waiting[not on_host]
        try:
            whole = found.pop()
        except IndexError:  # there is none, or another thread has it
            return None
        self.is_used = True
        return whole

    def leave(self) -> Iterator[Owned]:
        """Yield all buffers that were kept as they are one after another, and remove them."""
        while self.stage:
            try:
                _, waiting = self.stage.popitem()
            except KeyError:  # another thread has the last ones
                return
            for found in waiting:
                with suppress(IndexError):
                    while True:
                        yield found.pop()

    def resting(self) -> set[BufferKey]:
        """Return the keys of the buffers that were kept as they are."""
        found = [whole for waiting in list(self.stage.values()) for some in waiting for whole in list(some)]
        return {whole.buffer.key for whole in found}
