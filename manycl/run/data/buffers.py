"""The buffers of a session between runs: make, read, write, evict and forget them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING

from manycl.drivers.driver import Bytes, End
from manycl.errors import GraphError, LaunchError, RunError
from manycl.graph.graph import Buffer, BufferKey, Owned, owned
from manycl.machine import HOST, HOST_BIT
from manycl.model.transfer import LARGE
from manycl.region import NOTHING, Region
from manycl.run.data.coherence import Directory, ValidRegion, places
from manycl.run.data.host_memory import CallersMemory, copy_bytes, ram_bytes
from manycl.run.recovery.health import examine
from manycl.run.session.device_set import DeviceSet
from manycl.utilities.interrupts import Uninterrupted
from manycl.utilities.kept import ENOUGH

if TYPE_CHECKING:
    from manycl.run.recovery.rollback import Rollback


class Buffers:
    """The buffers on ``devices``, by their keys; ``directory``: where they are valid."""

    __slots__ = ("__dict__", "__weakref__", "_left", "_resting")  # (compiled code reads the last two)

    def __init__(self, devices: DeviceSet, directory: Directory) -> None:
        self.devices, self._directory, self._memory = devices, directory, devices.backend.memory
        self._is_all_on_host = devices.machine.memories == 1  # of all devices that were opened
        self.most = max([ram_bytes(), *[device.max_allocation for device in devices.machine.devices]])
        """Bytes of the largest buffer that any memory has room for."""
        self.reading = 0.0
        """Seconds that bringing bytes to the host between runs has taken."""
        self.rollback: Rollback | None = None
        """The session's checkpoints, if it makes any."""
        self.giving = 0.0
        """Seconds that giving large buffers callers' contents has taken since the last run."""
        self._keys = map(BufferKey, count())
        self._left: list[Owned] = []
        self._resting = self._memory.pool
        self._garbage: list[BufferKey] = []
        self._has_locked = False  # whether a caller's array was page-locked since the last run
        self.asked: set[BufferKey] = set()
        """Buffers of which the host has read all since the last run, large ones only: links take little for others."""
        self.brought: set[BufferKey] = set()
        """Results of the last planned run, which it has brought to the host."""
        self.given: dict[BufferKey, float] = {}
        """Large buffers that have got a caller's contents, and no graph has used them since; the seconds in which the
        host copied these (0: they were sent straight to a device)."""

    def new(self, nbytes: int, name: str = "", on_host: bool = False) -> Owned:
        """Return a buffer with undefined contents, which the caller alone owns and has to ``leave``. ``on_host``: the
        host is about to write its contents. Raises LaunchError for a size that no memory has."""
        devices, memory = self.devices, self._memory
        devices.check_open()
        if nbytes > self.most:
            raise LaunchError(f"{name or 'an array'} of {nbytes:,} bytes: no memory has more than {self.most:,}")
        # a buffer left behind may have the size that is wanted now
        if self._left and devices.lock.acquire(blocking=False):
            try:
                if devices.backend.is_idle:  # arrays of an eager stream are still in use
                    with Uninterrupted():
                        self._release_garbage()
            finally:
                devices.lock.release()
        found = memory.again(nbytes, name, on_host)
        if found is None:
            found = owned(Buffer(next(self._keys), nbytes, name))
            memory.create(found.buffer.key, nbytes, name)
        return found

    def adopt(self, buffer: Buffer) -> None:
        """Take over a buffer that has a key already (an application's graph comes with its own) into a new session."""
        self.devices.check_open()
        if buffer.key != next(self._keys):
            raise GraphError(f"buffer {buffer.key} is adopted out of turn: keys count up from 0 in a new session")
        self._memory.create(buffer.key, buffer.nbytes, buffer.name)

    def leave(self, whole: Owned) -> None:
        """Note that an array is gone and its buffer free for others. The garbage collector may call this at any time,
        so it only takes a note."""
        self._left.append(whole)

    def discard(self, *keys: BufferKey) -> None:
        """Note that some buffers of runs' own are no longer needed; their memory is freed before the next run."""
        self._garbage.extend(keys)

    def collect(self) -> None:
        """Free what was discarded, before a run."""
        self.devices.backend.settle()
        self._has_locked = False
        self._memory.tick()
        if self._left or self._garbage:
            self._release_garbage()

    def _release_garbage(self) -> None:
        directory, memory = self._directory, self._memory
        holds = self.rollback is not None and self.rollback.holds
        if left := [] if holds else self._left[::-1]:
            del self._left[: len(left)]  # (more may have been left by now)
            for whole in left if self.given else ():
                self.given.pop(whole[0].key, None)
            directory.forget(*[whole[0].key for whole in left])
            for whole in memory.rest(left):
                memory.release(whole[0].key)
        while self._garbage:
            key = self._garbage.pop()
            directory.forget(key)
            memory.release(key)

    def host(self, key: BufferKey, low: int = 0, nbytes: int | None = None) -> Bytes:
        """Return ``nbytes`` bytes (None: all) of the host's copy from ``low`` on, brought up to date, for reading. No
        other bytes are transferred. Of a part they are to be read before anything runs. Undefined contents stay."""
        self.devices.check_open()
        return self._host(key, low, nbytes)

    def _host(self, key: BufferKey, low: int, nbytes: int | None) -> Bytes:
        """Return what ``host`` does, of open devices."""
        devices, memory = self.devices, self._memory
        size = memory.nbytes(key)
        nbytes = size if nbytes is None else nbytes
        if not self._is_all_on_host and nbytes == size >= LARGE:
            self.asked.add(key)
        # the host's copy is the only one there is, or the directory says that it is up to date
        if key in self._directory.lost if self._is_all_on_host else not self._directory.is_known_on_host(key):
            wanted = Region.span(low, low + nbytes) if nbytes < size else None
            with devices.lock, Uninterrupted():
                self._directory.check(key, wanted)
                stream = devices.stream
                if wanted is None or stream is None or not stream.has_brought(key, low, nbytes):
                    self._bring(key, wanted)
        data = memory.host(key)
        return data[low : low + nbytes] if nbytes < size else data

    def result(self, key: BufferKey, low: int, nbytes: int) -> Bytes:
        """Return a copy of some bytes, in memory that is reused once nothing refers to it. All of a buffer of which the
        host has nothing comes straight from the devices; what the last run has brought is given away without a copy,
        where devices have it, too."""
        memory, directory = self._memory, self._directory
        self.devices.check_open()
        with self.devices.lock, Uninterrupted():
            parts = directory.valid_regions.get(key) or (ValidRegion(NOTHING, directory.valid.get(key, 0)),)
            is_whole = not self._is_all_on_host and nbytes == memory.nbytes(key)
            if is_whole and key in self.brought and all(mask & HOST_BIT and mask & ~HOST_BIT for _, mask in parts):
                directory.check(key)
                self.devices.backend.settle()
                self.brought.discard(key)
                if (given := memory.given_away(key)) is not None:
                    self.asked.add(key)
                    directory.evict(key, HOST)
                    return given
            try:
                out = memory.results.take(nbytes)
            except MemoryError:
                memory.trim()
                out = memory.results.take(nbytes)
            if is_whole and all([mask and not mask & HOST_BIT for _, mask in parts]):  # noqa: C419
                directory.check(key)
                if nbytes >= LARGE:
                    self.asked.add(key)
                if self._fetch(key, parts, out):
                    return out.memory
            copy_bytes(out.memory, self._host(key, low, nbytes))
            return out.memory

    def _bring(self, key: BufferKey, wanted: Region | None = None) -> None:
        """Bring the host's copy up to date, in some bytes or (None) as a whole, which is noted."""
        directory = self._directory
        parts = directory.valid_regions.get(key) or (ValidRegion(NOTHING, directory.valid.get(key, 0)),)
        if wanted is not None:
            whole = Region.span(0, self._memory.nbytes(key))
            parts = tuple([ValidRegion(mine, mask) for region, mask in parts if (mine := (region or whole) & wanted)])
        missing = [part for part in parts if part.mask and not part.mask >> HOST & 1]
        if missing and not self._fetch(key, missing):
            self._bring(key, wanted)
        elif wanted is None:
            directory.gathered(key)

    def _fetch(self, key: BufferKey, parts: Sequence[ValidRegion], result: End | None = None) -> bool:
        """Copy regions of a buffer (NOTHING: all of it), each from a memory, to the host's copy or a result. Return
        False where a device was lost, and contents are elsewhere now."""
        began = perf_counter()
        try:
            found = [((mask & -mask).bit_length() - 1, region) for region, mask in parts]
            self.devices.backend.move(key, found, result)
            self.reading += perf_counter() - began
        except RunError:
            before = self.devices.changes
            examine(self.devices, self._directory)
            if self.rollback is not None and self.devices.changes != before and self.rollback.recover():
                return False
            raise
        return True

    def evict(self, key: BufferKey, memory: int) -> None:
        """Free a buffer's copy in a memory that is not the host's, outside a run. Contents that are nowhere else are
        copied to the host first."""
        devices, directory = self.devices, self._directory
        parts = directory.valid_regions.get(key, (ValidRegion(NOTHING, directory.valid.get(key, 0)),))
        if any(p.mask == 1 << memory for p in parts):
            with devices.lock, Uninterrupted():
                self._bring(key)
        directory.evict(key, memory)
        for index, device in devices.machine.numbered():
            if device.memory == memory:
                self._memory.evict(key, index)

    def overwrite(self, key: BufferKey, low: int = 0, nbytes: int | None = None, keeps: bool = False) -> Bytes:
        """Return some bytes (``nbytes`` None: all) of the host's copy, for writing all of them, or (``keeps``, of all)
        brought up to date, for reading and writing. Other copies of these bytes become stale; the buffer's other bytes
        stay valid where they are."""
        backend, directory, memory = self.devices.backend, self._directory, self._memory
        self.devices.check_open()
        if keeps:
            self.host(key)
        size = memory.nbytes(key)
        high = size if nbytes is None else low + nbytes
        is_whole = high - low == size
        begin = memory.replace if is_whole and not keeps else memory.host
        if self._is_all_on_host and directory.is_known_on_host(key) and backend.is_idle and self.rollback is None:
            return begin(key)[low:high]  # nothing has to be noted
        with self.devices.lock, Uninterrupted():
            backend.settle()
            if self.rollback is not None:
                self.rollback.wrote(key, Region.span(low, high))
            data = begin(key)
            if is_whole:
                directory.define(key)
            else:
                directory.define_region(key, Region.span(low, high), size)
            return data[low:high]

    def copy_in(self, key: BufferKey, data: Bytes, first_reads: Callable[[BufferKey], Sequence[ValidRegion]]) -> None:
        """Make a copy of the caller's bytes the contents. Of large arrays that come again and again, the devices that
        are expected to read it get the copy at once, and the host none: it copies slower than links do.
        ``first_reads`` returns where they read it first, with the masks of their memories; empty: that is not known."""
        is_here = self._is_all_on_host or self.rollback is not None  # (the log has what the host's copy has)
        pages = None if is_here else self._memory.locks.callers(data)
        if pages is None:
            copy_bytes(self.overwrite(key), data)
            return
        pages.times += 1
        where = first_reads(key) if pages.times > ENOUGH else ()
        began = perf_counter()
        is_sent = where and self._send(key, data, pages, where)
        if not is_sent:
            copy_bytes(self.overwrite(key), data)
        seconds = perf_counter() - began
        self.giving += seconds
        self.given[key] = 0.0 if is_sent else seconds

    def _send(self, key: BufferKey, data: Bytes, pages: CallersMemory, where: Sequence[ValidRegion]) -> bool:
        """Copy the caller's bytes to the memories that read them first, if that can be done."""
        memory, there = self._memory, {device.memory for device in self.devices.machine.devices} - {HOST}
        if not all([places(mask) <= there for _, mask in where]):  # noqa: C419
            return False
        self.devices.check_open()
        with self.devices.lock, Uninterrupted():
            self.devices.backend.settle()
            if not pages.pins:
                if not self._has_locked:  # it takes long: of several arrays, one in each run
                    self._has_locked = True
                    memory.locks.lock(pages)
                return False
            memory.borrow(key, data)
            try:
                parts = [(m, region) for region, mask in where for m in places(mask)]
                self.devices.backend.move(key, parts, sends=True)
            except RunError:  # there is no room, say
                return False
            finally:
                memory.borrow(key, None)
            self._directory.define_regions(key, where)
            return True

    def borrow(self, key: BufferKey, data: Bytes) -> None:
        """Make the caller's own bytes the contents; they are read in place."""
        self.devices.check_open()
        with self.devices.lock, Uninterrupted():
            self.devices.backend.settle()
            if self.rollback is not None:
                self.rollback.wrote(key, Region.span(0, len(data)))
            self._memory.borrow(key, data)
            self._directory.define(key, HOST)
