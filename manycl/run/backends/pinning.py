"""Which host memory is page-locked: what is moved to devices and from there again and again.

Devices move such memory ten times as fast as ordinary memory, but locking it takes longer than several transfers: 90 to
185 ms for 256 MB beside an H200, where a transfer takes 5 ms, and 40 ms of ordinary memory.
"""

from __future__ import annotations

from manycl.drivers.driver import Bytes, Driver, DriverError
from manycl.graph.graph import BufferKey

PIN_FROM = 4096  # bytes; smaller host copies are not worth it
_AFTER = 2  # moves of a host copy
_WASTED = 8  # memories that may be page-locked for nothing
_MOVED = 2  # bytes that have been moved for each that is page-locked


class Pinning:
    """Of one session, by the keys of buffers. As long as what is page-locked is little beside what has been moved; not
    where such memory is freed again and again before another array, or result, has had it, as with sizes that change
    all the time. ``freed``, ``reused``: how often it has been."""

    def __init__(self) -> None:
        self._driver: Driver | None = None
        self._pins: dict[BufferKey, object] = {}
        self._moves: dict[BufferKey, int] = {}  # of what is not page-locked
        self._moved = self._locked = 0  # bytes
        self.freed = self.reused = 0

    def __contains__(self, key: object) -> bool:
        """Whether a host copy is page-locked."""
        return key in self._pins

    def use(self, driver: Driver | None) -> None:
        """The driver that gives such memory, if one does."""
        self._driver = driver

    def moved(self, nbytes: int, key: BufferKey | None = None) -> None:
        """So many bytes are moved; of a host copy."""
        self._moved += nbytes
        if key is not None and self._driver is not None and key not in self._pins:
            self._moves[key] = self._moves.get(key, 0) + 1

    def has_moved(self, key: BufferKey) -> bool:
        """Whether a host copy has been moved that is not page-locked."""
        return key in self._moves

    def pays(self, nbytes: int, key: BufferKey | None = None) -> bool:
        """Whether it pays to lock so many bytes more; of a host copy."""
        if self._driver is None or (key is not None and (nbytes < PIN_FROM or self._moves.get(key, 0) < _AFTER)):
            return False
        return self.freed <= _WASTED + self.reused // 2 and _MOVED * (self._locked + nbytes) <= self._moved

    def lock(self, nbytes: int, key: BufferKey | None = None) -> Bytes | None:
        """Page-locked memory, for a host copy; None where no more can be had."""
        if self._driver is None:
            return None
        try:
            data, pin = self._driver.pinned(nbytes)
        except DriverError:
            self._driver = None
            return None
        self._locked += nbytes
        if key is not None:
            self._pins[key] = pin
            self._moves.pop(key, None)
        return data[:]  # drivers' events hold this view, whoever looks at the memory another one

    def rename(self, source: BufferKey, target: BufferKey) -> None:
        """The host copy is another buffer's now."""
        if source in self._moves:
            self._moves[target] = self._moves.pop(source)
        if source in self._pins:
            self._pins[target] = self._pins.pop(source)
            self.reused += 1

    def forget(self, key: BufferKey) -> None:
        """There is no host copy any more."""
        self.freed += self._pins.pop(key, None) is not None
        self._moves.pop(key, None)
