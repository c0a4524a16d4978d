"""A session's buffers between runs: make, read, write, evict and forget them."""

from __future__ import annotations

import weakref
from itertools import count
from typing import TYPE_CHECKING

from manycl.drivers.driver import Bytes, End
from manycl.errors import GraphError, LaunchError, RunError
from manycl.graph.graph import Buffer, BufferKey, Owned, owned
from manycl.machine import HOST
from manycl.region import NOTHING, Box, Region
from manycl.run.data.coherence import ValidRegion
from manycl.run.data.host_bytes import copy_bytes, ram_bytes
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
        self.most = max([ram_bytes(), *[device.max_allocation for device in session.machine.devices]])
        """Bytes of the largest buffer that any memory has room for."""
        self._keys = map(BufferKey, count())
        self._left: list[Owned] = []
        self._resting = session.backend.memory.pool  # (for compiled code: manycl/api/dispatch/compiled)
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

    def host(self, key: BufferKey, low: int = 0, nbytes: int | None = None) -> Bytes:
        """Return ``nbytes`` bytes (None: all) of the host's copy from ``low`` on, brought up to date, for reading. No
        other bytes are transferred. Of a part they are to be read before anything runs. Undefined contents stay as they
        lie in memory."""
        session = self._session
        session.check_open()
        memory = session.backend.memory
        size = memory.nbytes(key)
        nbytes = size if nbytes is None else nbytes
        if not self._is_up_to_date(key):
            wanted = Region.span(low, low + nbytes) if nbytes < size else None
            with session.lock, Uninterrupted():
                session.directory.check(key, wanted)
                stream = session.stream
                if wanted is None or stream is None or not stream.has_brought(key, low, nbytes):
                    self._bring(key, wanted)
        data = memory.host(key)
        return data[low : low + nbytes] if nbytes < size else data

    def result(self, key: BufferKey, low: int, nbytes: int) -> Bytes:
        """Return a copy of some bytes, in memory that is reused once nothing refers to it. The bytes come straight from
        the device where one has all of the buffer and the host does not."""
        session = self._session
        session.check_open()
        with session.lock, Uninterrupted():
            memory, directory = session.backend.memory, session.directory
            try:
                out = memory.results.take(nbytes)
            except MemoryError:
                memory.trim()
                out = memory.results.take(nbytes)
            mask = directory.valid.get(key, 0)
            if mask and not mask >> HOST & 1 and nbytes == memory.nbytes(key):
                directory.check(key)
                self._fetch(key, mask, result=out)
            else:
                copy_bytes(out.memory, self.host(key, low, nbytes))
            return out.memory

    def _is_up_to_date(self, key: BufferKey) -> bool:
        """Return whether the host's copy is up to date: it is the only copy there is, or the directory says so."""
        directory = self._session.directory
        return not directory.lost((key,)) if self._is_all_on_host else directory.is_known_on_host(key)

    def _bring(self, key: BufferKey, wanted: Region | None = None) -> None:
        """Bring the host's copy up to date, in some bytes or (None) as a whole, which is noted."""
        directory = self._session.directory
        whole = Region.span(0, self._session.backend.memory.nbytes(key))
        for region, mask in directory.parts.get(key, (ValidRegion(whole, directory.valid.get(key, 0)),)):
            mine = region if wanted is None else region & wanted
            if mine and mask and not mask >> HOST & 1:
                self._fetch(key, mask, () if mine is whole else mine.boxes)
        if wanted is None:
            directory.gathered(key)

    def _fetch(self, key: BufferKey, mask: int, rows: tuple[Box, ...] = (), result: End | None = None) -> None:
        """Copy rows of a buffer (none: all) from one of the memories of a mask to the host's copy, or to a result."""
        try:
            self._session.backend.fetch(key, (mask & -mask).bit_length() - 1, rows, result)
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

    def overwrite(self, key: BufferKey, low: int = 0, nbytes: int | None = None, keeps: bool = False) -> Bytes:
        """Return some bytes (``nbytes`` None: all) of the host's copy, for writing all of them, or (``keeps``, of all)
        brought up to date, for reading and writing. Other copies of these bytes become stale; the buffer's other bytes
        stay valid where they are."""
        session, memory = self._session, self._session.backend.memory
        session.check_open()
        if keeps:
            self.host(key)
        size = memory.nbytes(key)
        high = size if nbytes is None else low + nbytes
        is_whole = high - low == size
        begin = memory.replace if is_whole and not keeps else memory.host
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

    def borrow(self, key: BufferKey, data: Bytes) -> None:
        """Make the caller's own bytes the contents; they are read in place."""
        session = self._session
        session.check_open()
        with session.lock, Uninterrupted():
            session.backend.settle()
            session.backend.memory.borrow(key, data)
            session.directory.define(key, HOST)
