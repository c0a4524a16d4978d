"""Where buffers live: the host's copy and each device's, allocated when first needed.

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

_VIEWS = 1024  # of a buffer on a device that are kept
_MOVED = 1 << 20  # bytes, from which on a buffer rather takes the memory of one that waits than new memory
_ROOMY = 64  # up to this part of the smallest memory, buffers may be larger than they have to be


class MemoryUse(NamedTuple):
    """Bytes of a memory: of arrays, of results that somebody has (NumPy's arrays; large ones only), and of what is kept
    for the next of these (``Session.trim`` frees it)."""

    arrays: int
    results: int
    kept: int


class Memory:
    """All copies of all buffers of a session. Sizes in bytes; keys are the session's buffer keys.

    Host functions and slowed devices ask for copies from threads of their own. ``guarded``: buffers that kernels see
    lie between red zones.
    """

    def __init__(self, machine: Machine, drivers: Sequence[Driver], guarded: bool = False) -> None:
        self._lock = Lock()  # of what `host` makes
        self.guarded = guarded
        self._zoned: dict[BufferKey, Bytes] = {}  # host copies with their red zones
        self._wholes: dict[tuple[int, BufferKey], Allocation] = {}  # likewise, by device and key
        self.version = 0  # counts up when a buffer object that somebody may hold stops being the right one
        self._sizes: dict[BufferKey, int] = {}
        self._names: dict[BufferKey, str] = {}
        self._host: dict[BufferKey, Bytes] = {}
        self._full: dict[BufferKey, Bytes] = {}  # host copies with all their capacity
        self._borrowed: dict[BufferKey, Bytes] = {}
        self._buffers: list[dict[BufferKey, Allocation]] = [{} for _ in machine.devices]
        # parts of these, by key and place; and parts of what was evicted in this run
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
        self._capacities: dict[BufferKey, int] = {}  # bytes that are allocated, where another array may have them next
        self._use(machine, drivers)

    def rearrange(self, machine: Machine, drivers: Sequence[Driver], before: Sequence[int | None]) -> None:
        """Other devices are there now; ``before``: the index that each had. Only when no run is under way."""
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
        """Make a buffer known. It has what an array of about its size has left behind, or else no memory yet."""
        self._sizes[key] = nbytes
        self._names[key] = name
        if key >= 0:
            self._unrest()
            other = self._pool.made(nbytes)
            if other is not None:
                self._move(other, key)

    def rest(self, wholes: Iterable[Owned]) -> list[Owned]:
        """Buffers that no array has any more wait for arrays of just their sizes, as they are; told are those that do
        not, which are to be released. Only when no run is under way."""
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
        """The buffer of just this size that was left behind last, with all its memory, rather with a host copy than
        without, or the other way round. Its contents are undefined."""
        whole = self.resting.take(nbytes, on_host)
        if whole is None:
            return None
        buffer = whole[0]
        if buffer.name == name:
            return whole
        self._names[buffer.key] = name
        return owned(Buffer(buffer.key, nbytes, name))

    def _unrest(self) -> None:
        """What waits for arrays of just its size may be had by others."""
        if self.resting:
            for whole in self.resting.leave():
                self.release(whole.buffer.key)

    def create_window(self, key: BufferKey, nbytes: int, name: str) -> None:
        """A part of a buffer, on a device, for as long as a run takes."""
        self.create(key, nbytes, f"a window of {name}")
        self._windows.add(key)

    def borrow(self, key: BufferKey, data: Bytes) -> None:
        """The contents are the caller's own array, read in place until somebody needs a host copy."""
        self._borrowed[key] = data
        self.version += 1
        for index, device in self._machine.numbered():
            if device.memory == HOST:  # it is a host copy that is stale now; made anew when it is needed
                self._free(index, self._taken(index, key))

    def has(self, key: BufferKey) -> bool:
        """Whether there is a buffer of a key."""
        return key in self._sizes

    def nbytes(self, key: BufferKey) -> int:
        return self._sizes[key]

    def name(self, key: BufferKey) -> str:
        return self._names[key] or f"buffer {key}"

    def host(self, key: BufferKey) -> Bytes:
        """The host's copy, as bytes."""
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
                del self._borrowed[key]  # only now: whoever finds nothing here takes the copy for complete
        return data

    def replace(self, key: BufferKey) -> Bytes:
        """The host's copy, for writing all of it."""
        self._borrowed.pop(key, None)
        return self.host(key)

    def upload_source(self, key: BufferKey, device: DeviceIndex, nbytes: int | None = None) -> End:
        """Where an upload of so many bytes (None: of all) to a device reads from."""
        source = self._borrowed.get(key)
        return self._end(key, self.host(key), device, nbytes, is_upload=True) if source is None else End(source)

    def download_target(self, key: BufferKey, device: DeviceIndex, nbytes: int | None = None) -> End:
        """Where a download of so many bytes (None: of all) from a device writes to."""
        data = self.replace(key) if nbytes is None else self.host(key)
        return self._end(key, data, device, nbytes, is_upload=False)

    def _end(self, key: BufferKey, data: Bytes, device: DeviceIndex, nbytes: int | None, *, is_upload: bool) -> End:
        """The host copy of a buffer as an end of a transfer."""
        full, much = self._full.get(key, data), len(data) if nbytes is None else nbytes
        return End(data, 0, self._pinning.is_pinned(key, full, much, self._drivers[device], is_upload=is_upload))

    def on_device(self, key: BufferKey, device: DeviceIndex) -> Allocation:
        """The memory that a buffer has on a device."""
        held = self._buffers[device]
        buffer = held.get(key)
        if buffer is None:
            buffer = held[key] = self._create_on(key, device)
        return buffer

    def argument(self, value: Argument, device: DeviceIndex) -> Allocation | bytes | LocalArg:
        """What a kernel's argument is set to on a device; a view begins at a multiple of its alignment."""
        if not isinstance(value, BufferArg):
            return value
        if value.nbytes is None:
            return self.on_device(value.key, device)
        whole = self.on_device(value.key, device)
        views = self._views[device].setdefault(value.key, {})
        place = value.offset, value.nbytes
        if place not in views:
            if len(views) >= _VIEWS:
                views.clear()  # who uses them keeps them
            zone = self._wholes.get((device, value.key)) if self.guarded else None
            before, start = (whole, 0) if zone is None else (zone, red_zones.ZONE)
            try:
                views[place] = self._drivers[device].part(before, start + value.offset, value.nbytes)
            except DriverError as error:
                name = self._machine.devices[device].name
                raise RunError(f"{name} gives no part of {self.name(value.key)}: {error}") from None
        return views[place]

    def on_host(self, value: BufferArg) -> Bytes:
        """The host's copy of an argument."""
        data = self.host(value.key)
        return data if value.nbytes is None else data[value.offset : value.offset + value.nbytes]

    def buffers(self, device: DeviceIndex) -> dict[BufferKey, Allocation]:
        """All memory that buffers have on a device, by key (the hot path looks here first)."""
        return self._buffers[device]

    def allocated(self, device: DeviceIndex) -> dict[BufferKey, int]:
        """Bytes of the buffers that a device holds, by key, less what waits for arrays."""
        waiting = self.resting.keys()
        # (other threads make and drop arrays meanwhile, which have none of the sizes then)
        held = [(key, self._sizes.get(key)) for key in list(self._buffers[device]) if key not in waiting]
        return {key: nbytes for key, nbytes in held if nbytes is not None}

    def evict(self, key: BufferKey, device: DeviceIndex) -> None:
        """Free a device's copy. Only when no run is under way."""
        if self._free(device, self._taken(device, key)):
            self.version += 1

    def set_aside(self, key: BufferKey, device: DeviceIndex) -> None:
        """During a run: a device's copy is not needed any more, and may become another buffer."""
        self._old_views[device] += self._views[device].pop(key, {}).values()
        buffer = self._buffers[device].pop(key, None)
        if buffer is not None and self.guarded:  # nothing is under way
            self._free(device, buffer)
        elif buffer is not None:
            self._spare[device].setdefault(self._capacity(key), []).append(buffer)
        self.version += buffer is not None

    def tidy(self) -> None:
        """After a run: free what was set aside, and all windows."""
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
        """What a buffer had on a device, if anything, is to be freed; no run is under way."""
        views = self._views[device]
        if key in views:
            for view in views.pop(key).values():
                self._free(device, view)
        return self._buffers[device].pop(key, None)

    def _free(self, device: DeviceIndex, buffer: Allocation | None) -> bool:
        """Whether there was anything to free."""
        if buffer is None:
            return False
        self._drivers[device].free(buffer)
        return True

    def trespassed(self, device: DeviceIndex) -> Iterator[tuple[BufferKey, Trespass]]:
        """The buffers (keys) outside of which something was written since this was asked last, of those that kernels
        of a device see."""
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
        """Bytes that are allocated for a buffer, wherever it is (0: it has just become another one)."""
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
        """Whether nobody looks at a buffer's memory, which was an array's: what was mapped goes when they do not."""
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
        """A run begins: what has not been used again for long is freed."""
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
        """By device with memory of its own, and of the host."""
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
        """A buffer is about to get its first memory, unless it has some. Under the lock."""
        if key in self._capacities or self.guarded or key in self._windows or key in self._host:
            return
        if any(key in held for held in self._buffers):
            return
        if key < 0:  # a run's own
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
        """The memory that waits becomes that of a buffer, which has none and needs as much capacity."""
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
        except (MemoryError, ValueError):  # ValueError: more than an array can have
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
        if (buffer := self._buffers[device].get(key)) is not None:  # it has got another one's
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
            if capacity > nbytes and not any(key in held for held in self._buffers):
                self._pool.smaller(capacity - nbytes)
                self._capacities[key] = nbytes
                return self._create_on(key, device)
            raise RunError(
                f"{value.name} cannot hold {self.name(key)} ({nbytes:,} bytes): {error}",
                hint="free arrays that are no longer needed, or choose another device",
            ) from None


def _start(full: Bytes, nbytes: int) -> Bytes:
    """The first bytes of a memory; drivers' events and kernels hold these very objects."""
    return full if len(full) == nbytes else full[:nbytes]
