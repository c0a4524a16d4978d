"""Which host memory is page-locked: what is moved to devices and from there, where it lies.

Devices move such memory ten times as fast as ordinary memory, and without the host's cores: beside an H200, 64 MiB in
1.3 ms instead of 10, and in 1.8 instead of 19 while all cores compute. To lock what has been used takes 1.3 ms, and as
long again to end that; what has never been touched, 11, as each page is made then.
"""

from __future__ import annotations

from manycl.drivers.driver import Bytes, Driver, DriverError
from manycl.graph.graph import BufferKey
from manycl.run.backends.host_bytes import host_memory

PIN_FROM = 4096  # bytes; smaller host copies are not worth it
LARGE = 1 << 20  # bytes, from which on one transfer repays it
_UP, _DOWN, _SMALL = 0.5, 1.5, 4.0
"""What has to be moved of a large host copy, up and down (there it may have never been touched), and of a small one, in
parts of it."""
_MOST = 4  # of the host's memory, this part


class Pinning:
    """Of one session, by the keys of buffers. ``locked``: bytes that are page-locked."""

    def __init__(self) -> None:
        self._driver: Driver | None = None
        self._pins: dict[BufferKey, tuple[object, int]] = {}  # and bytes
        self._moved: dict[BufferKey, int] = {}  # bytes, of what is not page-locked
        self.locked = 0

    def use(self, driver: Driver | None) -> None:
        """The driver that locks memory, if one does."""
        self._driver = driver

    def is_pinned(self, key: BufferKey, data: Bytes, nbytes: int, *, is_upload: bool) -> bool:
        """Whether a host copy is page-locked, of which so many bytes are moved now: from now on, where that pays.
        ``data``: all of its memory."""
        if key in self._pins:
            return True
        if self._driver is None or len(data) < PIN_FROM:
            return False
        moved = self._moved[key] = self._moved.get(key, 0) + nbytes
        if moved < (_SMALL if len(data) < LARGE else _UP if is_upload else _DOWN) * len(data):
            return False
        pin = self.lock(data)
        if pin is None:
            return False
        del self._moved[key]
        self._pins[key] = pin, len(data)
        return True

    def lock(self, data: Bytes) -> object | None:
        """Page-lock memory: what keeps it so; None where no more can be had."""
        if self._driver is None or _MOST * (self.locked + len(data)) > host_memory():
            return None
        try:
            pin = self._driver.pin(data)
        except DriverError:
            pin = None
        if pin is None:
            self._driver = None
        else:
            self.locked += len(data)
        return pin

    def unlocked(self, nbytes: int) -> None:
        """So many bytes are no longer page-locked."""
        self.locked -= nbytes

    def rename(self, source: BufferKey, target: BufferKey) -> None:
        """The host copy is another buffer's now."""
        if source in self._moved:
            self._moved[target] = self._moved.pop(source)
        if source in self._pins:
            self._pins[target] = self._pins.pop(source)

    def forget(self, key: BufferKey) -> None:
        """There is no host copy any more."""
        self._moved.pop(key, None)
        if key in self._pins:
            self.unlocked(self._pins.pop(key)[1])
