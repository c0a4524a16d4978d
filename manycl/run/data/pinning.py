"""Which host memory is page-locked: what is moved to devices and from there, where it lies.

Devices move such memory ten times as fast as ordinary memory, and without the host's cores: beside an H200, 64 MiB in
1.3 ms instead of 10, and in 1.8 instead of 19 while all cores compute. To lock what has been used takes 1.3 ms, and as
long again to end that; what has never been touched, 11, as each page is made then. Each device's driver locks memory
for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from manycl.drivers.driver import Bytes, Driver, DriverError
from manycl.graph.graph import BufferKey
from manycl.run.data.host_bytes import host_memory

PIN_FROM = 4096  # bytes; smaller host copies are not worth it
LARGE = 1 << 20  # bytes, from which on one transfer repays it
_UP, _DOWN, _SMALL = 0.5, 1.5, 4.0
"""What has to be moved of a large host copy, up and down (there it may have never been touched), and of a small one, in
parts of it."""
_MOST = 4  # of the host's memory, this part


class _HostCopy:
    """Of so many bytes: what keeps it page-locked for drivers, and how many bytes others have moved."""

    __slots__ = ("moved", "nbytes", "pins")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.pins: dict[Driver, object] = {}
        self.moved: dict[Driver, int] = {}


class Pinning:
    """Of one session, by the keys of buffers. ``nbytes``: that are page-locked, for whomever."""

    def __init__(self) -> None:
        self._drivers: list[Driver] = []
        self._copies: dict[BufferKey, _HostCopy] = {}
        self._locking = Lock()  # threads of slowed devices move host copies, too
        self.nbytes = 0

    def use(self, drivers: Sequence[Driver]) -> None:
        """The drivers that may lock memory."""
        self._drivers = list(drivers)

    def is_pinned(self, key: BufferKey, data: Bytes, nbytes: int, driver: Driver, *, is_upload: bool) -> bool:
        """Whether a host copy is page-locked for a driver that moves so many bytes of it now: from now on, where that
        pays. ``data``: all of its memory."""
        copy = self._copies.get(key)
        if copy is not None and driver in copy.pins:
            return True
        if len(data) < PIN_FROM or driver not in self._drivers:
            return False
        with self._locking:
            copy = self._copies.setdefault(key, _HostCopy(len(data)))
            moved = copy.moved[driver] = copy.moved.get(driver, 0) + nbytes
            if moved < (_SMALL if copy.nbytes < LARGE else _UP if is_upload else _DOWN) * copy.nbytes:
                return False
            if not copy.pins and not self._has_room(copy.nbytes):
                return False
            if driver in copy.pins or driver not in self._drivers:  # by now
                return driver in copy.pins
            if (pin := self._pinned(data, driver)) is not None:
                self.nbytes += copy.nbytes if not copy.pins else 0
                copy.pins[driver] = pin
            return driver in copy.pins

    def pin(self, data: Bytes) -> object | None:
        """Page-lock memory for the first driver: what keeps it so; None where no more can be had."""
        with self._locking:
            if not self._drivers or not self._has_room(len(data)):
                return None
            pin = self._pinned(data, self._drivers[0])
            if pin is not None:
                self.nbytes += len(data)
            return pin

    def unpinned(self, nbytes: int) -> None:
        """So many bytes are no longer page-locked."""
        self.nbytes -= nbytes

    def rename(self, source: BufferKey, target: BufferKey) -> None:
        """The host copy is another buffer's now."""
        if source in self._copies:
            self._copies[target] = self._copies.pop(source)

    def forget(self, key: BufferKey) -> None:
        """There is no host copy any more."""
        copy = self._copies.pop(key, None)
        if copy is not None and copy.pins:
            self.unpinned(copy.nbytes)

    def _has_room(self, nbytes: int) -> bool:
        return _MOST * (self.nbytes + nbytes) <= host_memory()

    def _pinned(self, data: Bytes, driver: Driver) -> object | None:
        try:
            pin = driver.pin(data)
        except DriverError:
            pin = None
        if pin is None:
            self._drivers.remove(driver)
        return pin
