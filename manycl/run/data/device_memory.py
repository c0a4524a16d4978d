"""The memory that buffers have on one device, and views of it."""

from __future__ import annotations

from collections.abc import Iterable

from manycl.drivers.driver import Allocation, Driver, DriverError
from manycl.errors import RunError
from manycl.graph.graph import BufferKey
from manycl.machine import HOST, Device
from manycl.run.data import red_zones
from manycl.run.data.red_zones import Trespass
from manycl.units import PAGE
from manycl.utilities.kept import MANY


class DeviceMemory:
    """The allocations of a session on one device. ``buffers``: by key; ``device``: as the session's machine has it.
    ``guarded``: they lie between red zones."""

    def __init__(self, device: Device, driver: Driver, guarded: bool) -> None:
        self.device = device
        self.driver = driver
        self.buffers: dict[BufferKey, Allocation] = {}
        # views of these, by key and range; and views of what was set aside in this run
        self._views: dict[BufferKey, dict[tuple[int, int | None], Allocation]] = {}
        self._old_views: list[Allocation] = []
        # what was set aside in this run, by size: allocating takes long on GPUs
        self._spare: dict[int, list[Allocation]] = {}
        self._queue = driver.queue(timed=False) if guarded else None
        self._wholes: dict[BufferKey, Allocation] = {}  # with their red zones

    @property
    def is_hosts(self) -> bool:
        """True if the device computes in the host's memory."""
        return self.device.memory == HOST

    def allocate(self, key: BufferKey, nbytes: int) -> Allocation:
        """Return new memory of the device's own. Raises DriverError."""
        if self._queue is None:
            return self.driver.allocate(nbytes)
        part, self._wholes[key] = red_zones.on_device(self.driver, self._queue, nbytes)
        return part

    def view(self, key: BufferKey, offset: int, nbytes: int, name: str) -> Allocation:
        """Return a part of a buffer; ``offset`` is a multiple of the device's alignment."""
        views = self._views.setdefault(key, {})
        place = offset, nbytes
        if place not in views:
            if len(views) >= MANY:
                views.clear()  # commands that use them keep them
            zone = self._wholes.get(key)
            before, start = (self.buffers[key], 0) if zone is None else (zone, PAGE)
            try:
                views[place] = self.driver.part(before, start + offset, nbytes)
            except DriverError as error:
                raise RunError(f"{self.device.name} gives no part of {name}: {error}") from None
        return views[place]

    def rename(self, source: BufferKey, target: BufferKey) -> None:
        """Give the memory of a buffer to another one, which has none."""
        if source in self.buffers:
            self.buffers[target] = self.buffers.pop(source)
        if source in self._views:
            self._views[target] = self._views.pop(source)

    def free(self, key: BufferKey) -> bool:
        """Free a buffer's memory and its views; return whether there was any. No run is under way."""
        for view in self._views.pop(key, {}).values():
            self.driver.free(view)
        self._wholes.pop(key, None)
        buffer = self.buffers.pop(key, None)
        if buffer is None:
            return False
        self.driver.free(buffer)
        return True

    def set_aside(self, key: BufferKey, capacity: int) -> bool:
        """Take a buffer's memory from it during a run, for another buffer; return whether there was any."""
        self._old_views += self._views.pop(key, {}).values()
        buffer = self.buffers.pop(key, None)
        if buffer is None:
            return False
        if self._queue is not None:  # no command uses it
            self._wholes.pop(key, None)
            self.driver.free(buffer)
        else:
            self._spare.setdefault(capacity, []).append(buffer)
        return True

    def spare(self, capacity: int) -> Allocation | None:
        """Take memory that was set aside, of just such a capacity. Return None where there is none."""
        found = self._spare.get(capacity)
        return found.pop() if found else None

    def spare_bytes(self) -> int:
        """Return the bytes that were set aside."""
        return sum([size * len(found) for size, found in self._spare.items()]) if self._spare else 0

    def free_spare(self, nbytes: int) -> None:
        """Free so much of what was set aside, the largest first."""
        for size in sorted(self._spare, reverse=True):
            found = self._spare[size]
            while nbytes > 0 and found:
                self.driver.free(found.pop())
                nbytes -= size
            if not found:
                del self._spare[size]

    def tidy(self, windows: Iterable[BufferKey]) -> bool:
        """Free what was set aside, and the memory of windows, after a run. Return whether any was another buffer's or
        a window's."""
        for view in self._old_views:
            self.driver.free(view)
        self._old_views.clear()
        found = self.spare_bytes()
        self.free_spare(found)
        freed = [key for key in windows if self.free(key)]
        return bool(found or freed)

    def trespass(self, key: BufferKey, nbytes: int) -> Trespass | None:
        """Return what was written around a buffer of ``nbytes`` since the last look."""
        assert self._queue is not None, "it lies between red zones"
        return red_zones.look_on_device(self.driver, self._queue, self._wholes[key], nbytes)
