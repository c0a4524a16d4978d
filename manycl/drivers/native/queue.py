"""Queues of native devices, and what they keep until commands are complete. Commands of a queue are numbered from 1 on
and complete in their order, so an event is a number: it is complete once the queue's counter, which lies in memory that
the device's threads write and Python reads, has reached it."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from array import array
from collections import deque
from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

from manycl.drivers.driver import DriverError
from manycl.drivers.native.compiler.library import Library

FORKED = "this process was forked from one that uses the device, whose threads are not here"
COMPLETED, FAILED, GIVEN = range(3)
EACH, ROW, COUNT, ENDS = range(1, 5)  # in a struct stops
TIMES = 1024  # commands whose times lie in one array, as in runtime/commands.h
_TIDY = 256  # commands that are given before what complete ones used is dropped, half of it at once; waiting does, too

NativeEvent = tuple["NativeQueue", int, "array[int] | None"]
"""A command: its queue, its number, and where the times of its group of 1024 are."""

_queues: WeakSet[NativeQueue] = WeakSet()
_left: list[tuple[int, Any, object]] = []
"""Queues that were dropped while commands were under way: address, state, what is kept."""
_collecting = threading.Lock()


class _Forked:
    """The state of a queue in a process that was forked: the threads are not here, and who looks at it is told so, as
    all do before a command is given or waited for."""

    def __getitem__(self, index: int) -> int:
        raise DriverError(FORKED)


class NativeQueue:
    """``state[COMPLETED]``: how many of its commands are complete; ``state[FAILED]``: how many of them failed;
    ``state[GIVEN]``: how many were given."""

    __slots__ = (
        "__weakref__",
        "_calls",
        "_library",
        "_mirror",
        "_tidying",
        "address",
        "is_timed",
        "kept",
        "state",
        "stops",
        "times",
    )

    def __init__(self, library: Library, device: int, is_timed: bool) -> None:
        collect(library)
        address = library.queue(device)
        if not address:
            raise DriverError("there is no memory for a queue")
        self._library = library
        self.address: int = address
        self.state: Any = memoryview((ctypes.c_uint64 * 3).from_address(address)).cast("B").cast("Q")
        self.is_timed = is_timed
        self.times: array[int] | None = None
        self._calls: dict[int, tuple[dict[int, str], int]] = {}
        self.kept: deque[Any] = deque()
        """What commands use, behind their numbers."""
        self.stops: dict[int, array[int]] = {}
        """Where launches in parts that may be under way may end: a ``struct stops`` of runtime/commands.h each."""
        self._tidying = threading.Lock()
        self._mirror: Any = None
        _queues.add(self)

    def keep(self, uses: object, count: int = 1) -> None:
        """Keep what the next ``count`` commands use, which a timed queue has room for the times of, until they are
        complete. To be called before they are given, so that it is kept whatever interrupts that."""
        state, kept = self.state, self.kept
        given = state[GIVEN]
        if not given % TIMES and self.is_timed:
            self._begin_times(given)
        kept.append((given + count, uses))
        if len(kept) > _TIDY and kept[_TIDY // 2][0] <= state[COMPLETED]:
            self.tidy()

    def _begin_times(self, given: int) -> None:
        """The times of the commands that come now lie in a new array."""
        if self.times is not None:
            self.kept.append((given, self.times))
        self.times = array("Q", bytes(16 * TIMES))
        self._library.times(self.address, self.times.buffer_info()[0])

    def renew(self) -> array[int] | None:
        """Return the array for the times of the next command (DirectQueue)."""
        given = self.state[GIVEN]
        if not given % TIMES and self.is_timed:
            self._begin_times(given)
        if len(self.kept) > _TIDY:
            self.tidy()
        return self.times

    def may_stop(self, number: int, stops: array[int] | None) -> None:
        """A command, which was given last, is a launch in parts."""
        if stops is None:
            return
        if len(self.stops) >= _TIDY:
            over = self.state[COMPLETED]
            self.stops = {n: found for n, found in self.stops.items() if n > over}
        self.stops[number] = stops

    def shorten(self, number: int) -> tuple[int, float] | None:
        """Shorten a launch, as Shortening.shorten."""
        stops = self.stops.get(number)
        if stops is None or stops[COUNT] < 2:
            return None
        begun = ctypes.c_uint64()
        blocks = -(-stops[-1] // stops[EACH]) * stops[ROW]
        count = self._library.shorten(self.address, number, stops.buffer_info()[0], ctypes.addressof(begun))
        del stops[ENDS + count :]
        stops[COUNT] = count
        return count, begun.value / blocks

    def mirror(self, words: Any) -> None:
        """Mirror how far it is, as Countable.mirror; ``words``: an array of 64-bit integers."""
        self._library.mirror(self.address, None if words is None else words.ctypes.data)
        self._mirror = words

    def event(self, number: int) -> NativeEvent:
        """Return the event of the command that was given last, which got a number."""
        if not number:
            raise DriverError("there is no memory for a command")
        return self, number, self.times

    def tidy(self) -> None:
        """Drop what complete commands used. Threads that wait may call it as well."""
        if self._tidying.acquire(blocking=False):
            try:
                kept, over = self.kept, self.state[COMPLETED]
                while kept and kept[0][0] <= over:
                    kept.popleft()
            finally:
                self._tidying.release()

    def wait(self, number: int) -> None:
        """Wait until a command is complete. Python's signal handlers run meanwhile."""
        while self.state[COMPLETED] < number:
            self._library.wait(self.address, number)
        self.tidy()

    def fault(self, number: int) -> str:
        """Why a complete command has failed, "" if it has not."""
        if not self._library.has_failed(self.address, number):
            return ""
        faults, token = self._calls.get(number, ({}, 0))
        return faults.get(token, "there was no memory for its work-groups")

    def calls_python(self, number: int, faults: dict[int, str], token: int) -> None:
        """The command calls Python, which leaves its words, should it fail."""
        self._calls[number] = faults, token
        if len(self._calls) > _TIDY:
            for old in [old for old in self._calls if old <= self.state[COMPLETED] and not self.state[FAILED]]:
                del self._calls[old]

    def __del__(
        self, forked: type = _Forked, completed: int = COMPLETED, given: int = GIVEN, left: list[Any] = _left
    ) -> None:  # (when the interpreter ends, the module's names may be gone before its queues)
        if isinstance(self.state, forked):
            return
        if self.state[completed] == self.state[given]:
            self._library.free_queue(self.address)
        else:
            left.append((self.address, self.state, (self.kept, self.times)))


def collect(library: Library) -> None:
    """Free the queues that nobody has any more, and whose commands are complete by now. Does not wait for another
    thread that does so."""
    if _left and _collecting.acquire(blocking=False):
        try:
            _collect(library)
        finally:
            _collecting.release()


def _collect(library: Library) -> None:
    for entry in list(_left):  # what is under way stays in the list, whatever interrupts this
        address, state, _ = entry
        if state[COMPLETED] == state[GIVEN]:
            _left.remove(entry)
            library.free_queue(address)


def settle(library: Library, queues: Iterable[NativeQueue]) -> None:
    """Wait until nothing is under way in these queues, and in those that were dropped."""
    for queue in queues:
        queue.wait(queue.state[GIVEN])
    with _collecting:
        for address, state, _ in list(_left):
            while state[COMPLETED] < state[GIVEN]:
                library.wait(address, state[GIVEN])
        _collect(library)


def _forked() -> None:
    global _collecting
    _collecting = threading.Lock()
    for queue in list(_queues):
        queue.state = _Forked()
        queue.kept.clear()
    _left.clear()


def _ends() -> None:
    """Never free what commands still use when the program ends: the device's threads run until the process ends."""
    for kept in [(queue.kept, queue.times) for queue in list(_queues)] + [entry[2] for entry in _left]:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


atexit.register(_ends)
os.register_at_fork(after_in_child=_forked)
