"""Buffers' copies: the host's and each device's, allocated when first needed.

Devices whose ``memory`` is the host's have the host copy itself: nothing is ever copied for them. When the machine has
devices with memory of their own, host copies that are moved are pinned where they lie, so transfers run at the link's
full rate (docs/decisions/02-devices-and-drivers.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import NamedTuple

from manycl.drivers.addresses import aligned
from manycl.drivers.driver import Allocation, Bytes, DeviceLost, Driver, DriverError, End
from manycl.errors import RunError
from manycl.graph.graph import Argument, Buffer, BufferArg, BufferKey, LocalArg, Owned, owned
from manycl.machine import HOST, DeviceIndex, Machine
from manycl.run.data.exact_size_pool import ExactSizePool
from manycl.run.data.host_bytes import HostBytes, copy_bytes, host_memory, shared
from manycl.run.data.pinning import Pinning
from manycl.run.data.pool import Pool, is_alone, references, size_class
from manycl.run.data.result_memory import ResultMemory
from manycl.run.executor import red_zones
from manycl.run.executor.red_zones import Trespass

_VIEWS = 1024  # cached views of a buffer on a device, at most
_MOVED = 1 << 20  # bytes from which a buffer takes the memory of one in the pool, rather than new memory
_ROOMY = 64  # buffers may have spare capacity while all take at most 1 / _ROOMY of the smallest memory


class MemoryUse(NamedTuple):
    """Bytes of one memory in use: by ``arrays``; by ``results`` that the program refers to (NumPy's arrays; large ones
    only); and ``kept`` for later arrays and results (``Session.trim`` frees these)."""

    arrays: int
    results: int
    kept: int


class Memory:
    """All copies of all buffers of a session. Sizes in bytes; keys are the session's buffer keys.

    Host functions and slowed devices ask for copies from threads of their own. ``guarded``: buffers that kernels see
    lie between red zones.
    """

    def __init__(self, machine: Machine, drivers: Sequence[Driver], guarded: bool = False) -> None:
        self._lock = Lock()  # held while `host` makes copies
        self.guarded = guarded
        self._zoned: dict[BufferKey, Bytes] = {}  # host copies with their red zones
        self._wholes: dict[tuple[int, BufferKey], Allocation] = {}  # the same for devices' copies, by device and key
        self.version = 0  # counts up when a cached buffer object stops being the right one
        self._sizes: dict[BufferKey, int] = {}
        self._names: dict[BufferKey, str] = {}
        self._host: dict[BufferKey, Bytes] = {}
        self._full: dict[BufferKey, Bytes] = {}  # host copies with all their capacity
        self._borrowed: dict[BufferKey, Bytes] = {}
        self._buffers: list[dict[BufferKey, Allocation]] = [{} for _ in machine.devices]
        # views of these, by key and range; and views of what was evicted in this run
        self._views: list[dict[BufferKey, dict[tuple[int, int | None], Allocation]]] = [{} for _ in machine.devices]
        self._old_views: list[list[Allocation]] = [[] for _ in machine.devices]
        # what was evicted in this run, by size: allocating takes long on GPUs
        self._spare: list[dict[int, list[Allocation]]] = [{} for _ in machine.devices]
        self._windows: set[BufferKey] = set()
        self.resting = ExactSizePool()
        self._pool = Pool()
        self._pinning = Pinning()
        self.new_bytes: HostBytes = aligned
        self.results = ResultMemory(self._pinning)
        self._capacities: dict[BufferKey, int] = {}  # allocated bytes of buffers that the pool may take
        self._use(machine, drivers)

    def rearrange(self, machine: Machine, drivers: Sequence[Driver], before: Sequence[int | None]) -> None:
        """Change to other devices; ``before``: the former index of each. Only when no run is under way."""
        self.version += 1
        self.trim()
        self._buffers = [{} if i is None else self._buffers[i] for i in before]
        self._spare = [{} if i is None else self._spare[i] for i in before]
        self._views = [{} if i is None else self._views[i] for i in before]
        self._old_views = [[] if i is None else self._old_views[i] for i in before]
        self._use(machine, drivers)

    def _use(self, machine: Machine, drivers: Sequence[Driver]) -> None:
        self._machine, self._drivers = machine, drivers
        self._roomy = min([host_memory(), *(device.global_memory for device in machine.devices)]) // _ROOMY
        own = [driver for driver in drivers if driver.device.memory != HOST]
        self._guards = [(driver, driver.queue(timed=False)) for driver in drivers] if self.guarded else []
        if any(driver.has_own_process for driver in drivers):  # from now on: such a device may come again
            self.new_bytes = self.results.new_bytes = shared
        is_shared = self.new_bytes is shared
        self._pinning.use(own if not self.guarded and not is_shared else ())

    def create(self, key: BufferKey, nbytes: int, name: str = "") -> None:
        """Add a buffer. It gets the memory that an array of about its size has left behind, or none yet."""
        self._sizes[key] = nbytes
        self._names[key] = name
        if key >= 0:
            self._unrest()
            other = self._pool.made(nbytes)
            if other is not None:
                self._move(other, key)

    def rest(self, wholes: Iterable[Owned]) -> list[Owned]:
        """Keep buffers without arrays in the pool of exact sizes, as they are. Return those that it does not take,
        which are to be released. Only when no run is under way."""
        hosts, capacities, give, others = self._host, self._capacities, self.resting.give, list[Owned]()
        for whole in wholes:
            key = whole[0].key
            host = hosts.get(key)
            if key not in capacities and (host is not None or any(key in held for held in self._buffers)):
                others.append(whole)
                continue
            if self._borrowed:
                self._borrowed.pop(key, None)
            if host is None or self._is_free(key):
                give(whole, host is not None)
            else:
                others.append(whole)
        return others

    def again(self, nbytes: int, name: str, on_host: bool) -> Owned | None:
        """Return the buffer of exactly ``nbytes`` that was left behind last, with all its memory, preferring one with a
        host copy (``on_host``) or one without. Its contents are undefined."""
        whole = self.resting.take(nbytes, on_host)
        if whole is None:
            return None
        buffer = whole[0]
        if buffer.name == name:
            return whole
        self._names[buffer.key] = name
        return owned(Buffer(buffer.key, nbytes, name))

    def _unrest(self) -> None:
        """Release the buffers of the pool of exact sizes, so that arrays of other sizes may have their memory."""
        if self.resting:
            for whole in self.resting.leave():
                self.release(whole.buffer.key)

    def create_window(self, key: BufferKey, nbytes: int, name: str) -> None:
        """Add a window: a part of a buffer on a device, for the time of a run."""
        self.create(key, nbytes, f"a window of {name}")
        self._windows.add(key)

    def borrow(self, key: BufferKey, data: Bytes) -> None:
        """Make the caller's own array the contents; it is read in place until a host copy is needed."""
        self._borrowed[key] = data
        self.version += 1
        for index, device in self._machine.numbered():
            if device.memory == HOST:  # a stale host copy is made anew when it is needed
                self._free(index, self._taken(index, key))

    def has(self, key: BufferKey) -> bool:
        """Return whether there is a buffer with this key."""
        return key in self._sizes

    def nbytes(self, key: BufferKey) -> int:
        return self._sizes[key]

    def name(self, key: BufferKey) -> str:
        return self._names[key] or f"buffer {key}"

    def host(self, key: BufferKey) -> Bytes:
        """Return the host's copy, as bytes."""
        data = self._host.get(key)
        if data is not None and key not in self._borrowed:
            return data
        with self._lock:
            data = self._host.get(key)
            if data is None:
                self._begin(key)
                data = self._host.get(key)
            if data is None:
                data = self._host[key] = self._allocate(key)
            source = self._borrowed.get(key)
            if source is not None:
                copy_bytes(data, source)
                del self._borrowed[key]  # only now: a thread that finds no entry takes the copy for complete
        return data

    def replace(self, key: BufferKey) -> Bytes:
        """Return the host's copy, for writing all of it."""
        self._borrowed.pop(key, None)
        return self.host(key)

    def upload_source(self, key: BufferKey, device: DeviceIndex, nbytes: int | None = None) -> End:
        """Return the source of an upload of so many bytes (None: of all) to a device."""
        source = self._borrowed.get(key)
        return self._end(key, self.host(key), device, nbytes, is_upload=True) if source is None else End(source)

    def download_target(self, key: BufferKey, device: DeviceIndex, nbytes: int | None = None) -> End:
        """Return the target of a download of so many bytes (None: of all) from a device. Contents that the host has
        stay until the download begins: if the device is lost before, others go on from them."""
        is_needed = nbytes is not None or len(self._drivers) > 1
        data = self.host(key) if is_needed else self.replace(key)
        return self._end(key, data, device, nbytes, is_upload=False)

    def _end(self, key: BufferKey, data: Bytes, device: DeviceIndex, nbytes: int | None, *, is_upload: bool) -> End:
        """Return the host copy of a buffer as an end of a transfer."""
        full, much = self._full.get(key, data), len(data) if nbytes is None else nbytes
        return End(data, 0, self._pinning.is_pinned(key, full, much, self._drivers[device], is_upload=is_upload))

    def on_device(self, key: BufferKey, device: DeviceIndex) -> Allocation:
        """Return the memory that a buffer has on a device; it is allocated if need be."""
        held = self._buffers[device]
        buffer = held.get(key)
        if buffer is None:
            buffer = held[key] = self._create_on(key, device)
        return buffer

    def elsewhere(self, key: BufferKey, memory: int) -> Allocation:
        """Return the memory that a buffer has in the memory of some device."""
        return self.on_device(key, self._machine.owner(memory))

    def argument(self, value: Argument, device: DeviceIndex) -> Allocation | bytes | LocalArg:
        """Return the value that a kernel's argument is set to on a device; a view begins at a multiple of its
        alignment."""
        if not isinstance(value, BufferArg):
            return value
        if value.nbytes is None:
            return self.on_device(value.key, device)
        whole = self.on_device(value.key, device)
        views = self._views[device].setdefault(value.key, {})
        place = value.offset, value.nbytes
        if place not in views:
            if len(views) >= _VIEWS:
                views.clear()  # commands that use them keep them
            zone = self._wholes.get((device, value.key)) if self.guarded else None
            before, start = (whole, 0) if zone is None else (zone, red_zones.ZONE)
            try:
                views[place] = self._drivers[device].part(before, start + value.offset, value.nbytes)
            except DriverError as error:
                name = self._machine.devices[device].name
                raise RunError(f"{name} gives no part of {self.name(value.key)}: {error}") from None
        return views[place]

    def on_host(self, value: BufferArg) -> Bytes:
        """Return the part of the host's copy that an argument names."""
        data = self.host(value.key)
        return data if value.nbytes is None else data[value.offset : value.offset + value.nbytes]

    def buffers(self, device: DeviceIndex) -> dict[BufferKey, Allocation]:
        """Return all memory that buffers have on a device, by key (the hot path looks here first)."""
        return self._buffers[device]

    def allocated(self, device: DeviceIndex) -> dict[BufferKey, int]:
        """Return the bytes of the buffers that a device holds, by key, without those that wait in the pool of exact
        sizes."""
        waiting = self.resting.keys()
        # (other threads make and drop arrays meanwhile: a dropped one has no size any more)
        held = [(key, self._sizes.get(key)) for key in list(self._buffers[device]) if key not in waiting]
        return {key: nbytes for key, nbytes in held if nbytes is not None}

    def evict(self, key: BufferKey, device: DeviceIndex) -> None:
        """Free a device's copy. Only when no run is under way."""
        if self._free(device, self._taken(device, key)):
            self.version += 1

    def set_aside(self, key: BufferKey, device: DeviceIndex) -> None:
        """Take a buffer's copy from a device during a run; its memory may become another buffer's."""
        self._old_views[device] += self._views[device].pop(key, {}).values()
        buffer = self._buffers[device].pop(key, None)
        if buffer is not None and self.guarded:  # no command uses it
            self._free(device, buffer)
        elif buffer is not None:
            self._spare[device].setdefault(self._capacity(key), []).append(buffer)
        self.version += buffer is not None

    def tidy(self) -> None:
        """Free what was set aside, and all windows, after a run."""
        for device, views in zip(self._machine.indices, self._old_views, strict=True):
            for view in views:
                self._free(device, view)
            views.clear()
        if not self._windows and not any(self._spare):
            return
        self.version += 1
        for device, held, spare in zip(self._machine.indices, self._buffers, self._spare, strict=True):
            for buffer in [b for found in spare.values() for b in found]:
                self._free(device, buffer)
            spare.clear()
            for key in self._windows.intersection(held):
                self._free(device, held.pop(key))

    def _taken(self, device: DeviceIndex, key: BufferKey) -> Allocation | None:
        """Take a buffer's memory on a device, if it has any, out of the tables, to be freed; its views are freed. No
        run is under way."""
        views = self._views[device]
        if key in views:
            for view in views.pop(key).values():
                self._free(device, view)
        return self._buffers[device].pop(key, None)

    def _free(self, device: DeviceIndex, buffer: Allocation | None) -> bool:
        """Free an allocation; return whether there was one."""
        if buffer is None:
            return False
        self._drivers[device].free(buffer)
        return True

    def trespassed(self, device: DeviceIndex) -> Iterator[tuple[BufferKey, Trespass]]:
        """Yield the buffers (keys) that kernels of a device see and outside of which something was written since the
        last call."""
        shared = self._machine.devices[device].memory == HOST
        for key in list(self._buffers[device]):
            found = (
                red_zones.look_at_host(self._zoned[key])
                if shared
                else red_zones.look_on_device(*self._guards[device], self._wholes[device, key], self._sizes[key])
            )
            if found is not None:
                yield key, found

    def _make_room(self, device: DeviceIndex, nbytes: int) -> None:
        """Free as much of what was set aside as a new allocation takes."""
        self._unrest()
        spare, most = self._spare[device], self._machine.devices[device].global_memory
        if not spare and not self._pool:
            return

        def over() -> int:
            return sum(self._capacity(key) for key in list(self._buffers[device])) + nbytes - most

        if over() > 0:
            self.trim()
        above = over() + sum(n * len(b) for n, b in spare.items())
        for size in sorted(spare, reverse=True):
            while above > 0 and spare[size]:
                self._free(device, spare[size].pop())
                above -= size
            if not spare[size]:
                del spare[size]

    def _capacity(self, key: BufferKey) -> int:
        """Return the bytes that are allocated for a buffer, in any memory (0: its memory has just become another
        buffer's)."""
        return self._capacities.get(key) or self._sizes.get(key, 0)

    def release(self, key: BufferKey) -> None:
        """Keep a buffer for an array of about its size, or free all copies. Only when no run is under way."""
        nbytes = self._sizes.pop(key)
        del self._names[key]
        if self._borrowed:
            self._borrowed.pop(key, None)
        if key >= 0:
            capacity = self._capacities.get(key)
            if capacity is not None and self._is_free(key):
                self._pool.give(key, nbytes, capacity)
                return
            self._pool.dropped(nbytes, capacity or 0)
        self._remove(key)

    def _is_free(self, key: BufferKey) -> bool:
        """Return whether nothing else refers to a buffer's host memory, which was an array's; a mapped view is such a
        reference while it lives."""
        host = self._host.get(key)
        return host is None or is_alone(references(host) - (host is not self._full[key]))

    def _remove(self, key: BufferKey) -> None:
        """Free all copies of a buffer that is not known any more."""
        self.version += 1
        for device in self._machine.indices:
            self._free(device, self._taken(device, key))
        self._host.pop(key, None)
        self._full.pop(key, None)
        self._pinning.forget(key)
        self._capacities.pop(key, None)
        self._zoned.pop(key, None)
        self._windows.discard(key)

    def tick(self) -> None:
        """Begin a run: free what has not been used again for long."""
        if not self.resting.is_used:
            self._unrest()
        self.resting.is_used = False
        self._drop(self._pool.tick())
        self.results.tick()

    def trim(self) -> None:
        """Free what is kept for other arrays and results. Only when no run is under way."""
        self._unrest()
        self._drop(self._pool.clear())
        self.results.trim()

    def use(self) -> dict[str, MemoryUse]:
        """Return the memory in use by the name of each device with memory of its own, and of "host"."""
        self._unrest()
        results, idle = self.results.nbytes()
        found = {"host": self._use_of({key: len(memory) for key, memory in list(self._host.items())}, results, idle)}
        for index, device in self._machine.numbered():
            if device.memory != HOST:
                found[device.name] = self._use_of({key: self._capacity(key) for key in list(self._buffers[index])})
        return found

    def _use_of(self, held: Mapping[BufferKey, int], results: int = 0, idle: int = 0) -> MemoryUse:
        waiting = sum(nbytes for key, nbytes in held.items() if key in self._pool)
        return MemoryUse(sum(held.values()) - waiting, results, waiting + idle)

    def _drop(self, keys: Sequence[BufferKey]) -> None:
        for key in keys:
            self._remove(key)

    def _begin(self, key: BufferKey) -> None:
        """Give a buffer without memory its capacity, and memory from the pool if there is some. Under the lock."""
        if key in self._capacities or self.guarded or key in self._windows or key in self._host:
            return
        if any(key in held for held in self._buffers):
            return
        if key < 0:  # a buffer of a run's own
            return
        self._unrest()
        nbytes = self._sizes[key]
        capacity = size_class(nbytes)
        if self._pool.used + capacity > self._roomy:
            capacity = nbytes
        other = self._pool.take(nbytes) if capacity >= _MOVED else None
        if other is not None:
            self._move(other, key)
        else:
            self._capacities[key] = capacity
            if superfluous := self._pool.allocated(capacity):
                self._drop(superfluous)

    def _move(self, source: BufferKey, target: BufferKey) -> None:
        """Give the memory of a pooled buffer to a buffer that has none and needs as much capacity."""
        self.version += 1
        self._capacities[target] = self._capacities.pop(source)
        full = self._full.pop(source, None)
        if full is not None:
            self._full[target] = full
            host, nbytes = self._host.pop(source), self._sizes[target]
            self._host[target] = host if len(host) == nbytes else _start(full, nbytes)
            self._pinning.rename(source, target)
        for held, views in zip(self._buffers, self._views, strict=True):
            if source in held:
                held[target] = held.pop(source)
            if source in views:
                views[target] = views.pop(source)

    def _allocate(self, key: BufferKey) -> Bytes:
        nbytes, capacity = self._sizes[key], self._capacity(key)
        if nbytes > host_memory():
            raise self._no_room(key)
        try:
            if self.guarded:
                self._zoned[key] = self.new_bytes(nbytes + 2 * red_zones.ZONE)
                return red_zones.around(self._zoned[key])
            full = self._full[key] = self.new_bytes(capacity)
            return _start(full, nbytes)
        except (MemoryError, ValueError):  # ValueError: more bytes than an array can have
            if self._pool:
                self.trim()
                return self._allocate(key)
            raise self._no_room(key) from None

    def _no_room(self, key: BufferKey) -> RunError:
        return RunError(
            f"{self.name(key)} has {self._sizes[key]:,} bytes, for which the host has no room: it has"
            f" {host_memory():,} bytes of memory",
            hint="use smaller arrays, or free some that are no longer needed",
        )

    def _create_on(self, key: BufferKey, device: DeviceIndex) -> Allocation:
        value = self._machine.devices[device]
        nbytes = self._sizes[key]
        if nbytes > value.max_allocation:
            raise RunError(
                f"{self.name(key)} has {nbytes:,} bytes; {value.name} allocates at most {value.max_allocation:,}",
                hint="choose a device with more memory, or smaller buffers",
            )
        spare = self._spare[device].get(self._capacity(key))
        if spare:
            return spare.pop()
        with self._lock:
            self._begin(key)
        if (buffer := self._buffers[device].get(key)) is not None:  # it has got the memory of a pooled buffer
            if value.memory == HOST:
                self.host(key)  # with the caller's own contents, if it has those
            return buffer
        capacity = self._capacity(key)
        self._make_room(device, capacity)
        driver = self._drivers[device]
        try:
            if value.memory == HOST:
                host = self.host(key)
                full = self._full.get(key, host)
                return driver.allocate(len(full), full)
            if not self.guarded:
                return driver.allocate(capacity)
            part, self._wholes[device, key] = red_zones.on_device(*self._guards[device], nbytes)
            return part
        except DeviceLost:
            raise
        except DriverError as error:
            if self._pool:
                self.trim()
                return self._create_on(key, device)
            if capacity > nbytes:
                self._pool.smaller(capacity - nbytes)
                self._capacities[key] = nbytes
                return self._create_on(key, device)
            raise RunError(
                f"{value.name} cannot hold {self.name(key)} ({nbytes:,} bytes): {error}",
                hint="free arrays that are no longer needed, or choose another device",
            ) from None


def _start(full: Bytes, nbytes: int) -> Bytes:
    """Return the first bytes of a memory, as the same object if these are all: drivers' events and kernels hold these
    very objects."""
    return full if len(full) == nbytes else full[:nbytes]
