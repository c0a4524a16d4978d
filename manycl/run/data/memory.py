"""Buffers' copies: the host's and each device's, allocated when first needed. Devices whose ``memory`` is the host's
have the host copy itself: nothing is ever copied for them. When the machine has devices with memory of their own, host
copies that are moved are pinned where they lie, so transfers run at the link's full rate
(docs/decisions/02-devices-and-drivers.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from manycl.drivers.addresses import aligned
from manycl.drivers.driver import Allocation, Bytes, DeviceLost, Driver, DriverError, End
from manycl.errors import RunError
from manycl.graph.graph import Argument, Buffer, BufferArg, BufferKey, LocalArg, Owned, owned
from manycl.machine import DeviceIndex, Machine
from manycl.model.transfer import LARGE
from manycl.run.data import red_zones
from manycl.run.data.device_memory import DeviceMemory
from manycl.run.data.host_memory import HostBytes, HostMemory, PageLocks, Results, copy_bytes, ram_bytes, shared
from manycl.run.data.pool import BufferPool, size_class
from manycl.run.data.red_zones import Trespass
from manycl.units import PAGE

_ROOMY = 64  # buffers may have spare capacity while all take at most 1 / _ROOMY of the smallest memory; our own choice


class MemoryUse(NamedTuple):
    """Bytes of one memory in use: by ``arrays``; by ``results`` that the program refers to (NumPy's arrays; large ones
    only); and ``kept`` for later arrays and results (``Session.trim`` frees these)."""

    arrays: int
    results: int
    kept: int


class StoredBuffer:
    """A buffer, and what the host has of it. ``capacity``: the bytes that are allocated for it in any memory, if the
    pool may take it (0: its size, or nothing yet). ``data``: the host's copy, in the memory ``host``. ``borrowed``: the
    caller's own bytes, which are its contents. ``is_known``: no array has left it to the pool."""

    __slots__ = ("borrowed", "capacity", "data", "host", "is_known", "key", "name", "nbytes")

    def __init__(self, key: BufferKey, nbytes: int, name: str) -> None:
        self.key = key
        self.nbytes = nbytes
        self.name = name
        self.is_known = True
        self.capacity = 0
        self.host: HostMemory | None = None
        self.data: Bytes | None = None
        self.borrowed: Bytes | None = None

    @property
    def is_alone(self) -> bool:
        """True if nothing else refers to the host's copy; a mapped view is such a reference while it lives."""
        host = self.host
        return host is None or host.views() == (self.data is not host.data)

    def put(self, host: HostMemory) -> None:
        """Set the memory of the host's copy."""
        # the same object if all bytes are the buffer's: drivers' events and kernels hold these very objects
        self.host = host
        self.data = host.data if len(host.data) == self.nbytes else host.data[: self.nbytes]


class Memory:
    """All copies of all buffers of a session. Sizes in bytes; keys are the session's buffer keys. Host functions and
    slowed devices ask for copies from threads of their own. ``guarded``: buffers that kernels see lie between red
    zones. ``version`` counts up when a cached buffer object stops being the right one."""

    def __init__(self, machine: Machine, drivers: Sequence[Driver], guarded: bool = False) -> None:
        self._lock = Lock()  # held while `host` makes copies
        self.guarded = guarded
        self.version = 0
        self.bound: WeakKeyDictionary[object, Any] = WeakKeyDictionary()
        """Values that were made from buffer objects, by the object that keeps each; all are dropped when a buffer gets
        another object on a device."""
        self._stored: dict[BufferKey, StoredBuffer] = {}
        self._windows: set[BufferKey] = set()
        self._is_tidy = True  # nothing has been set aside
        self._devices: list[DeviceMemory] = []
        self.locks = PageLocks()
        self.pool = BufferPool(self._remove)
        self.new_bytes: HostBytes = aligned
        self.results = Results(self.locks)
        self._use(machine, drivers, [None] * len(drivers))

    def rearrange(self, machine: Machine, drivers: Sequence[Driver], before: Sequence[int | None]) -> None:
        """Change to other devices; ``before``: the former index of each. Only when no run is under way."""
        self._change()
        self.trim()
        self._use(machine, drivers, before)

    def _use(self, machine: Machine, drivers: Sequence[Driver], before: Sequence[int | None]) -> None:
        self._machine, had, self._devices = machine, self._devices, []
        for device, driver, index in zip(machine.devices, drivers, before, strict=True):
            held = DeviceMemory(device, driver, self.guarded) if index is None else had[index]
            held.device = device
            self._devices.append(held)
        # bytes of which no memory is short
        self.roomy = min([ram_bytes(), *(device.global_memory for device in machine.devices)]) // _ROOMY
        if any(driver.needs_shared_memory for driver in drivers):  # from now on: such a device may come again
            self.new_bytes = self.results.new_bytes = shared
        is_shared = self.new_bytes is shared
        self.locks.use(
            () if self.guarded or is_shared else [held.driver for held in self._devices if not held.is_hosts]
        )

    def _change(self) -> None:
        """Note that a buffer object is not the right one any more."""
        self.version += 1
        self.bound.clear()

    # buffers that come and go

    def create(self, key: BufferKey, nbytes: int, name: str = "") -> None:
        """Add a buffer. It gets the memory that an array of about its size has left behind, or none yet."""
        stored = self._stored[key] = StoredBuffer(key, nbytes, name)
        if key >= 0:
            if self.pool.stage:
                self._unrest()
            other = self.pool.made(nbytes)
            if other is not None:
                self._move(other, stored)

    def create_window(self, key: BufferKey, nbytes: int, name: str) -> None:
        """Add a window: a part of a buffer on a device, for the time of a run."""
        self.create(key, nbytes, f"a window of {name}")
        self._windows.add(key)

    def rest(self, wholes: Iterable[Owned]) -> list[Owned]:
        """Keep buffers without arrays in the pool, as they are. Return those that it does not take so, which are to be
        released. Only when no run is under way."""
        found, rest, others = self._stored, self.pool.rest, list[Owned]()
        for whole in wholes:
            stored = found[whole[0].key]
            has_host = stored.data is not None
            if (stored.capacity or not self._has_memory(stored)) and (not has_host or stored.is_alone):
                stored.borrowed = None
                rest(whole, has_host)
            else:
                others.append(whole)
        return others

    def again(self, nbytes: int, name: str, on_host: bool) -> Owned | None:
        """Return the buffer of exactly ``nbytes`` that was left behind last, with all its memory, preferring one with a
        host copy (``on_host``) or one without. Its contents are undefined."""
        whole = self.pool.again(nbytes, on_host)
        if whole is None:
            return None
        buffer = whole[0]
        if buffer.name == name:
            return whole
        self._stored[buffer.key].name = name
        return owned(Buffer(buffer.key, nbytes, name))

    def _unrest(self) -> None:
        """Release the buffers that the pool keeps as they are, so that arrays of other sizes may have their memory."""
        for whole in self.pool.leave():
            self.release(whole.buffer.key)

    def release(self, key: BufferKey) -> None:
        """Keep a buffer for an array of about its size, or free all copies. Only when no run is under way."""
        stored = self._stored[key]
        assert stored.is_known, "it is released once"
        stored.is_known, stored.borrowed = False, None
        if key >= 0:
            if stored.capacity and stored.is_alone:
                self.pool.give(stored, stored.nbytes, stored.capacity)
                return
            self.pool.dropped(stored.nbytes, stored.capacity)
        self._remove(stored)

    def _remove(self, stored: StoredBuffer) -> None:
        """Free all copies of a buffer that is not known any more."""
        self._change()
        for held in self._devices:
            held.free(stored.key)
        if stored.host is not None:
            self.locks.unlock(stored.host)
        self._windows.discard(stored.key)
        del self._stored[stored.key]

    def _move(self, source: StoredBuffer, target: StoredBuffer) -> None:
        """Give the memory of a pooled buffer to a buffer that has none and needs as much capacity."""
        self._change()
        target.capacity = source.capacity
        del self._stored[source.key]
        if source.host is not None:
            data, nbytes = source.data, target.nbytes
            target.put(source.host)
            if data is not None and len(data) == nbytes:
                target.data = data
        for held in self._devices:
            held.rename(source.key, target.key)

    def borrow(self, key: BufferKey, data: Bytes | None) -> None:
        """Make the caller's own array the contents; read in place until a host copy is needed; None: given back."""
        self._stored[key].borrowed = data
        self._change()
        for held in self._devices:
            if held.is_hosts:  # a stale host copy is made anew when it is needed
                held.free(key)

    def tick(self) -> None:
        """Begin a run: free what has not been used again for long."""
        if self.pool.stage and not self.pool.is_used:
            self._unrest()
        self.pool.is_used = False
        if self.pool.waiting:
            self.pool.tick()
        self.results.tick()

    def trim(self) -> None:
        """Free what is kept for other arrays and results. Only when no run is under way."""
        self._unrest()
        self.pool.clear()
        self.results.trim()

    def tidy(self) -> None:
        """Free what was set aside, and all windows, after a run."""
        is_tidy, self._is_tidy = self._is_tidy and not self._windows, True
        if not is_tidy and any([held.tidy(self._windows) for held in self._devices]):  # noqa: C419  (all of them)
            self._change()

    # what is known of buffers

    def has(self, key: BufferKey) -> bool:
        """Return whether there is a buffer with this key."""
        stored = self._stored.get(key)
        return stored is not None and stored.is_known

    def nbytes(self, key: BufferKey) -> int:
        return self._stored[key].nbytes

    def name(self, key: BufferKey) -> str:
        return self._stored[key].name or f"buffer {key}"

    def buffers(self, device: DeviceIndex) -> dict[BufferKey, Allocation]:
        """Return all memory that buffers have on a device, by key (the hot path looks here first)."""
        return self._devices[device].buffers

    def allocated(self, device: DeviceIndex) -> dict[BufferKey, int]:
        """Return the bytes of the buffers that a device holds, by key, without those that wait in the pool."""
        waiting = self.pool.resting()
        # (other threads make and drop arrays meanwhile)
        found = [self._stored.get(key) for key in list(self._devices[device].buffers) if key not in waiting]
        return {stored.key: stored.nbytes for stored in found if stored is not None and stored.is_known}

    def use(self) -> dict[str, MemoryUse]:
        """Return the memory in use by the name of each device with memory of its own, and of "host"."""
        self._unrest()
        results, idle = self.results.nbytes()
        on_host = {stored: len(stored.data) for stored in list(self._stored.values()) if stored.data is not None}
        found = {"host": self._use_of(on_host, results, idle)}
        for held in self._devices:
            if not held.is_hosts:
                there = [self._stored.get(key) for key in list(held.buffers)]
                sizes = {stored: stored.capacity or stored.nbytes for stored in there if stored is not None}
                found[held.device.name] = self._use_of(sizes)
        return found

    def _use_of(self, held: Mapping[StoredBuffer, int], results: int = 0, idle: int = 0) -> MemoryUse:
        waiting = sum(nbytes for stored, nbytes in held.items() if not stored.is_known)
        return MemoryUse(sum(held.values()) - waiting, results, waiting + idle)

    def _has_memory(self, stored: StoredBuffer) -> bool:
        """Return whether a buffer has memory anywhere."""
        return stored.data is not None or any(stored.key in held.buffers for held in self._devices)

    # copies on the host

    def host(self, key: BufferKey) -> Bytes:
        """Return the host's copy, as bytes."""
        stored = self._stored[key]
        data = stored.data
        if data is not None and stored.borrowed is None:
            return data
        with self._lock:
            if stored.data is None:
                self._begin(stored)
            data = stored.data if stored.data is not None else self._allocate(stored)
            if stored.borrowed is not None:
                copy_bytes(data, stored.borrowed)
                stored.borrowed = None  # only now: a thread that finds none takes the copy for complete
        return data

    def present(self, key: BufferKey) -> Bytes | None:
        """Return the host's copy of a buffer, for reading; None where it has none of its own."""
        stored = self._stored[key]
        return stored.data if stored.borrowed is None else None

    def replace(self, key: BufferKey) -> Bytes:
        """Return the host's copy, for writing all of it."""
        self._stored[key].borrowed = None
        return self.host(key)

    def given_away(self, key: BufferKey) -> Bytes | None:
        """Return the host's copy of a buffer for a caller to keep: the buffer has none then. None where something else
        refers to the copy."""
        stored = self._stored[key]
        is_held = any(held.is_hosts and key in held.buffers for held in self._devices)
        with self._lock:
            host = stored.host
            is_free = not is_held and not self.guarded and stored.is_alone
            if (
                host is None
                or stored.borrowed is not None
                or not is_free
                or len(host.data) != size_class(stored.nbytes)
            ):
                return None
            given = host.data[: stored.nbytes]
            self.results.adopt(host)
            stored.host = stored.data = None
            return given

    def on_host(self, value: BufferArg) -> Bytes:
        """Return the part of the host's copy that an argument names."""
        data = self.host(value.key)
        return data if value.nbytes is None else data[value.offset : value.offset + value.nbytes]

    def upload_source(self, key: BufferKey, device: DeviceIndex, nbytes: int | None = None) -> End:
        """Return the source of an upload of so many bytes (None: of all) to a device."""
        data = self._stored[key].borrowed
        if data is None:
            return self._end(key, self.host(key), device, nbytes, is_upload=True)
        host, much = self.locks.callers(data), len(data) if nbytes is None else nbytes
        driver = self._devices[device].driver
        return End(data, 0, host is not None and self.locks.is_locked(host, much, driver, is_upload=True))

    def download_target(self, key: BufferKey, device: DeviceIndex, nbytes: int | None = None) -> End:
        """Return the target of a download of so many bytes (None: of all) from a device. Contents that the host has
        stay until the download begins: if the device is lost before, others go on from them."""
        is_needed = nbytes is not None or len(self._devices) > 1
        data = self.host(key) if is_needed else self.replace(key)
        return self._end(key, data, device, nbytes, is_upload=False)

    def _end(self, key: BufferKey, data: Bytes, device: DeviceIndex, nbytes: int | None, *, is_upload: bool) -> End:
        """Return the host copy of a buffer as an end of a transfer."""
        host, much = self._stored[key].host, len(data) if nbytes is None else nbytes
        assert host is not None, "there is a copy"
        return End(data, 0, self.locks.is_locked(host, much, self._devices[device].driver, is_upload=is_upload))

    def _begin(self, stored: StoredBuffer) -> None:
        """Give a buffer without memory its capacity, and memory from the pool if there is some. Under the lock."""
        # (buffers with keys below 0 are a run's own, as windows are)
        if stored.key < 0 or stored.capacity or self.guarded or self._has_memory(stored):
            return
        nbytes = stored.nbytes
        capacity = size_class(nbytes)
        if self.pool.used + capacity > self.pool.most:  # else there may be as much beside what is kept as it is
            self._unrest()
        if self.pool.used + capacity > self.roomy:
            capacity = nbytes
        other = self.pool.take(nbytes) if capacity >= LARGE else None
        if other is not None:
            self._move(other, stored)
        else:
            stored.capacity = capacity
            self.pool.allocated(capacity)

    def _allocate(self, stored: StoredBuffer) -> Bytes:
        nbytes = stored.nbytes
        if nbytes > ram_bytes():
            raise self._no_room(stored)
        try:
            if self.guarded:
                stored.host = HostMemory(self.new_bytes(nbytes + 2 * PAGE))
                stored.data = red_zones.around(stored.host.data)
            else:
                capacity = stored.capacity or nbytes
                found = self.results.leave(capacity) if nbytes >= LARGE else None
                stored.put(found or HostMemory(self.new_bytes(capacity)))
            assert stored.data is not None
            return stored.data
        except (MemoryError, ValueError):  # ValueError: more bytes than an array can have
            if self.pool or self.pool.stage:
                self.trim()
                return self._allocate(stored)
            raise self._no_room(stored) from None

    def _no_room(self, stored: StoredBuffer) -> RunError:
        return RunError(
            f"{self.name(stored.key)} has {stored.nbytes:,} bytes, for which the host has no room: it has"
            f" {ram_bytes():,} bytes of memory",
            hint="use smaller arrays, or free some that are no longer needed",
        )

    # copies on devices

    def on_device(self, key: BufferKey, device: DeviceIndex) -> Allocation:
        """Return the memory that a buffer has on a device; it is allocated if need be."""
        held = self._devices[device]
        buffer = held.buffers.get(key)
        if buffer is None:
            buffer = held.buffers[key] = self._create_on(self._stored[key], held)
        return buffer

    def argument(self, value: Argument, device: DeviceIndex) -> Allocation | bytes | LocalArg:
        """Return the value that a kernel's argument is set to on a device; a view is aligned."""
        if not isinstance(value, BufferArg):
            return value
        whole = self.on_device(value.key, device)
        if value.nbytes is None:
            return whole
        return self._devices[device].view(value.key, value.offset, value.nbytes, self.name(value.key))

    def evict(self, key: BufferKey, device: DeviceIndex) -> None:
        """Free a device's copy. Only when no run is under way."""
        if self._devices[device].free(key):
            self._change()

    def set_aside(self, key: BufferKey, device: DeviceIndex) -> None:
        """Take a buffer's copy from a device during a run; its memory may become another buffer's."""
        stored = self._stored[key]
        self._is_tidy = False
        if self._devices[device].set_aside(key, stored.capacity or stored.nbytes):
            self._change()

    def trespassed(self, device: DeviceIndex) -> Iterator[tuple[BufferKey, Trespass]]:
        """Yield the buffers (keys) that kernels of a device see and outside of which something was written since."""
        held = self._devices[device]
        for key in list(held.buffers):
            stored = self._stored[key]
            if held.is_hosts:
                assert stored.host is not None, "the device has the host's copy"
                found = red_zones.look_at_host(stored.host.data)
            else:
                found = held.trespass(key, stored.nbytes)
            if found is not None:
                yield key, found

    def _create_on(self, stored: StoredBuffer, held: DeviceMemory) -> Allocation:
        value, key, nbytes = held.device, stored.key, stored.nbytes
        if nbytes > value.max_allocation:
            raise RunError(
                f"{self.name(key)} has {nbytes:,} bytes; {value.name} allocates at most {value.max_allocation:,}",
                hint="choose a device with more memory, or smaller buffers",
            )
        spare = held.spare(stored.capacity or nbytes)
        if spare is not None:
            return spare
        with self._lock:
            self._begin(stored)
        if (buffer := held.buffers.get(key)) is not None:  # it has got the memory of a pooled buffer
            if held.is_hosts:
                self.host(key)  # with the caller's own contents, if it has those
            return buffer
        capacity = stored.capacity or nbytes
        self._make_room(held, capacity)
        try:
            if not held.is_hosts:
                return held.allocate(key, capacity)
            data = self.host(key)
            full = data if self.guarded or stored.host is None else stored.host.data
            return held.driver.allocate(len(full), full)
        except DeviceLost:
            raise
        except DriverError as error:
            if self.pool or self.pool.stage:
                self.trim()
                return self._create_on(stored, held)
            if capacity > nbytes:
                self.pool.smaller(capacity - nbytes)
                stored.capacity = nbytes
                return self._create_on(stored, held)
            raise RunError(
                f"{value.name} cannot hold {self.name(key)} ({nbytes:,} bytes): {error}",
                hint="free arrays that are no longer needed, or choose another device",
            ) from None

    def _make_room(self, held: DeviceMemory, nbytes: int) -> None:
        """Free as much of what was set aside as a new allocation takes."""
        spare = held.spare_bytes()
        if not spare and not self.pool and not self.pool.stage:
            return

        def over() -> int:
            there = [self._stored.get(key) for key in list(held.buffers)]
            found = sum(stored.capacity or stored.nbytes for stored in there if stored is not None)
            return found + nbytes - held.device.global_memory

        if over() > 0:
            self.trim()
        if (above := over() + spare) > 0:
            held.free_spare(above)
