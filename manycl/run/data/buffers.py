"""A session's buffers between runs: make, read, write, evict and forget them."""

from __future__ import annotations

import weakref
from itertools import count
from typing import TYPE_CHECKING

from manycl.drivers.driver import Bytes, End
from manycl.errors import GraphError, LaunchError, RunError
from manycl.graph.graph import Buffer, BufferKey, Owned, owned
from manycl.machine import HOST
from manycl.region import NOTHING, Region
from manycl.run.data.coherence import ValidRegion
from manycl.run.data.host_bytes import copy_bytes, host_memory
from manycl.run.recovery.health import examine
from manycl.utilities.interrupts import Uninterrupted

if TYPE_CHECKING:
    from manycl.run.session.session import Session


class Buffers:
    """A session's buffers, by their keys."""

    __slots__ = ("_garbage", "_is_all_on_host", "_keys", "_left", "_resting", "_session", "most")

    def __init__(self, session: Session) -> None:
        # weak: a session that is dropped without being closed ends its threads
        self._session: Session = weakref.proxy(session)
        self._is_all_on_host = session.machine.memories == 1  # of all devices that were opened
        self.most = max([host_memory(), *[device.max_allocation for device in session.machine.devices]])
        """Bytes of the largest buffer that any memory has room for."""
        self._keys = map(BufferKey, count())
        self._left: list[Owned] = []
        self._resting = session.backend.memory.resting  # (for compiled code: manycl/api/dispatch/native)
        self._garbage: list[BufferKey] = []

    def new(self, nbytes: int, name: str = "", on_host: bool = False) -> Owned:
        """Return a buffer with undefined contents, which the caller alone owns and has to ``leave``. ``on_host``: the
        host is about to write its contents. Raises LaunchError for a size that no memory has."""
        session = self._session
        session.check_open()
        if nbytes > self.most:
            raise LaunchError(f"{name or 'an array'} of {nbytes:,} bytes: no memory has more than {self.most:,}")
        # a buffer left behind may have the size that is wanted now
        if self._left and session.lock.acquire(blocking=False):
            try:
                if session.backend.is_idle:  # arrays of an eager stream are still in use
                    with Uninterrupted():
                        self._release_garbage()
            finally:
                session.lock.release()
        memory = session.backend.memory
        found = memory.again(nbytes, name, on_host)
        if found is None:
            found = owned(Buffer(next(self._keys), nbytes, name))
            memory.create(found.buffer.key, nbytes, name)
        return found

    def adopt(self, buffer: Buffer) -> None:
        """Take over a buffer that has a key already (an application's graph comes with its own) into a new session."""
        self._session.check_open()
        if buffer.key != next(self._keys):
            raise GraphError(f"buffer {buffer.key} is adopted out of turn: keys count up from 0 in a new session")
        self._session.backend.memory.create(buffer.key, buffer.nbytes, buffer.name)

    def leave(self, whole: Owned) -> None:
        """Note that an array is gone and its buffer free for others. The garbage collector may call this at any time,
        so it only takes a note."""
        self._left.append(whole)

    def discard(self, *keys: BufferKey) -> None:
        """Note that some buffers of runs' own are no longer needed; their memory is freed before the next run."""
        self._garbage.extend(keys)

    def collect(self) -> None:
        """Free what was discarded, before a run."""
        session = self._session
        session.backend.settle()
        session.backend.memory.tick()
        self._release_garbage()

    def _release_garbage(self) -> None:
        directory, memory = self._session.directory, self._session.backend.memory
        if left := self._left[::-1]:
            del self._left[: len(left)]  # (more may have been left by now)
            directory.forget(*[whole[0].key for whole in left])
            for whole in memory.rest(left):
                memory.release(whole[0].key)
        while self._garbage:
            key = self._garbage.pop()
            directory.forget(key)
            memory.release(key)

    def host(self, key: BufferKey) -> Bytes:
        """Return the host's copy, brought up to date, for reading. Undefined contents stay as they lie in memory."""
        session = self._session
        session.check_open()
        if self._is_up_to_date(key):
            return session.backend.memory.host(key)
        with session.lock, Uninterrupted():
            session.directory.check(key)
            self._bring(key)
            return session.backend.memory.host(key)

    def result(self, key: BufferKey, low: int, nbytes: int) -> Bytes:
        """Return a copy of some bytes, in memory that is reused once nothing refers to it. The bytes come straight from
        the device where one has all of the buffer and the host does not."""
        session = self._session
        session.check_open()
        with session.lock, Uninterrupted():
            session.directory.check(key, Region.span(low, low + nbytes))
            memory, mask = session.backend.memory, session.directory.valid.get(key, 0)
            try:
                out, is_pinned = memory.results.take(nbytes)
            except MemoryError:
                session.backend.memory.trim()
                out, is_pinned = memory.results.take(nbytes)
            if mask and not mask >> HOST & 1 and nbytes == memory.nbytes(key):
                try:
                    session.backend.fetch(key, _source(mask), result=End(out, is_pinned=is_pinned))
                except RunError:
                    examine(session)
                    raise
                return out
            source = self.host(key) if nbytes == memory.nbytes(key) else self.part(key, low, nbytes)
            copy_bytes(out, source)
            return out

    def part(self, key: BufferKey, low: int, nbytes: int) -> Bytes:
        """Return ``nbytes`` bytes from ``low`` of the host's copy, as :meth:`host` does; no other bytes are
        transferred. To be read before anything runs."""
        session = self._session
        session.check_open()
        if self._is_up_to_date(key):
            return session.backend.memory.host(key)[low : low + nbytes]
        wanted = Region.span(low, low + nbytes)
        with session.lock, Uninterrupted():
            directory = session.directory
            directory.check(key, wanted)
            memory, flight = session.backend.memory, session.flight
            if flight is not None and flight.has_brought(key, low, nbytes):
                return memory.host(key)[low : low + nbytes]
            whole = (ValidRegion(wanted, directory.valid.get(key, 0)),)
            try:
                for region, mask in directory.parts.get(key, whole):
                    if mask and not mask >> HOST & 1 and (mine := region & wanted):
                        session.backend.fetch(key, _source(mask), mine.boxes)
            except RunError:
                examine(session)
                raise
            return memory.host(key)[low : low + nbytes]

    def _is_up_to_date(self, key: BufferKey) -> bool:
        """Return whether the host's copy is up to date: it is the only copy there is, or the directory says so."""
        directory = self._session.directory
        return not directory.lost((key,)) if self._is_all_on_host else directory.is_known_on_host(key)

    def _bring(self, key: BufferKey) -> None:
        directory, fetch = self._session.directory, self._session.backend.fetch
        mask = directory.valid.get(key, 0)
        try:
            if mask and not mask >> HOST & 1:
                fetch(key, _source(mask))
                directory.copied(key, HOST)
            elif key in directory.parts:
                for part in directory.parts[key]:
                    if part.mask and not part.mask >> HOST & 1:
                        fetch(key, _source(part.mask), part.region.boxes)
                directory.gathered(key)
        except RunError:
            examine(self._session)
            raise

    def evict(self, key: BufferKey, memory: int) -> None:
        """Free a buffer's copy in a memory that is not the host's, outside a run. Contents that are nowhere else are
        copied to the host first."""
        session, directory = self._session, self._session.directory
        parts = directory.parts.get(key, (ValidRegion(NOTHING, directory.valid.get(key, 0)),))
        if any(p.mask == 1 << memory for p in parts):
            with session.lock, Uninterrupted():
                self._bring(key)
        directory.evict(key, memory)
        for index, device in session.machine.numbered():
            if device.memory == memory:
                session.backend.memory.evict(key, index)

    def overwrite(self, key: BufferKey, low: int = 0, nbytes: int | None = None) -> Bytes:
        """Return some bytes (``nbytes`` None: all) of the host's copy, for writing all of them. Other copies of these
        bytes become stale; the buffer's other bytes stay valid where they are."""
        session, memory = self._session, self._session.backend.memory
        session.check_open()
        size = memory.nbytes(key)
        high = size if nbytes is None else low + nbytes
        is_whole = high - low == size
        begin = memory.replace if is_whole else memory.host
        if self._is_all_on_host and session.directory.is_known_on_host(key) and session.backend.is_idle:
            return begin(key)[low:high]  # nothing has to be noted
        with session.lock, Uninterrupted():
            session.backend.settle()
            data = begin(key)
            if is_whole:
                session.directory.define(key)
            else:
                session.directory.define_part(key, Region.span(low, high), size)
            return data[low:high]

    def in_place(self, key: BufferKey) -> Bytes:
        """Return the host's copy, brought up to date, for reading and writing: every other copy becomes stale."""
        session = self._session
        self.host(key)
        with session.lock, Uninterrupted():
            session.backend.settle()
            session.directory.define(key, HOST)
            return session.backend.memory.host(key)

    def borrow(self, key: BufferKey, data: Bytes) -> None:
        """Make the caller's own bytes the contents; they are read in place."""
        session = self._session
        session.check_open()
        with session.lock, Uninterrupted():
            session.backend.settle()
            session.backend.memory.borrow(key, data)
            session.directory.define(key, HOST)


def _source(mask: int) -> int:
    """Return the memory to copy from, of those that hold the contents (a mask)."""
    return (mask & -mask).bit_length() - 1
