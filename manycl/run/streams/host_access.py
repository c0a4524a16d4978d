"""Host access to buffers while an eager stream (:mod:`manycl.run.streams.eager_stream`) goes on."""

from __future__ import annotations

import threading
from contextlib import suppress

from manycl.drivers.driver import Bytes, DriverError, Event
from manycl.graph.copies import Place
from manycl.graph.graph import BufferKey
from manycl.machine import HOST, HOST_BIT, DeviceIndex
from manycl.model.transfer import COPYING, LARGE, TINY
from manycl.run.commands.backend import Failed
from manycl.run.data.host_memory import copy_bytes
from manycl.run.executor.record import Transferred
from manycl.run.executor.run_state import RunState
from manycl.run.session.device_set import DeviceSet
from manycl.run.session.session_data import SessionData
from manycl.run.streams.eager_result import EagerResult
from manycl.run.streams.stream_state import Owner, Residency
from manycl.utilities.interrupts import Uninterrupted


class HostAccess(Residency):
    """The host's reads and writes within an eager stream. A thread that gives the device a command holds the ``lock``,
    while the stream ``is_open``. ``is_giving``: an enqueued command is about to be noted; ``is_joined``: the batch has
    been waited for in between, and goes on all the same."""

    __slots__ = ("_over", "is_giving", "lock")  # as in InFlight

    def __init__(self, devices: DeviceSet, data: SessionData, device: DeviceIndex, run: RunState) -> None:
        super().__init__(devices, data, device, run)
        self._over: EagerResult | None = None
        self._sound = 0  # how many commands are known to have succeeded, as copies behind them were asked for
        self._writes = set[BufferKey]()  # keys of buffers that the host has written to within the batch
        self.lock = threading.RLock()
        self.is_giving = False
        self.is_joined = False

    def read(self, wanted: Place, out: Bytes) -> bool:
        """Copy few bytes of a buffer to the host after all that was given, and wait for that. Return False where the
        stream has to be ended instead. Ctrl-C is handled afterwards."""
        key = wanted.buffer.key
        with self.lock:
            if not self.is_open or self.uploads or not 0 < wanted.nbytes < LARGE or not self._is_here(key):
                return False
            if key not in self.batch.written and self._directory.valid.get(key, 0) & HOST_BIT:
                return False
            with Uninterrupted():
                try:
                    event = self._lanes.driver.read(self.queue, out, self.allocations[key], wanted.low)
                except DriverError:
                    return False
                self._note(key, False, event, wanted.nbytes)
                if not self._lanes.driver.succeeded(self._ends(self.waited)):
                    return False
                self._caught_up()
                self.is_joined = True
            return True

    def read_behind(self, array: Owner, wanted: Place, out: Bytes) -> Event | None:
        """Enqueue the copy of bytes of a buffer to the host after all that was given, and return its event. Return None
        where nothing is in flight, or the copy has to be done in another way."""
        key = wanted.buffer.key
        with self.lock:
            if not self.is_open or not self.has_batch or (self.is_waited and wanted.nbytes < LARGE):
                return None
            if self.uploads or self.is_giving or not self._has(array):
                return None
            with Uninterrupted():
                try:
                    event = self._lanes.driver.download(self.queue, out, self.allocations[key], wanted.low)
                except DriverError:
                    return None  # the other way raises the error
                self._note(key, False, event, wanted.nbytes)
                self._moved = len(self.given), event
                self._flush(self.queue)
            self.given.ahead += wanted.nbytes / COPYING
            return event

    def _has(self, array: Owner) -> bool:
        """Return whether all of an array is valid in the device's memory for the next command."""
        key = array.buffer.key
        if self._bit == HOST_BIT:
            return (key in self.arrays or self.adopt(array)) and key not in self._directory.valid_regions
        return self._is_here(key)

    def write(self, place: Place, data: Bytes) -> bool:
        """Copy few bytes of the host, as they are now, to a buffer that was used, after all that was given. Return
        False where that cannot be. The host's copy gets them, too: what is valid stays valid."""
        key, low, nbytes = place.buffer.key, place.low, len(data)
        with self.lock:
            if not self.is_open or self.uploads or not 0 < nbytes <= TINY or not self._is_here(key):
                return False
            valid = 0 if key in self.batch.written else self._directory.valid.get(key, 0)
            if valid & ~(self._bit | HOST_BIT):
                return False  # another device has it, too
            if valid & HOST_BIT:
                if key in self._coming:
                    return False  # earlier commands need the host's bytes as they are
                copy_bytes(self.devices.backend.memory.host(key)[low : low + nbytes], data)
            with Uninterrupted():
                try:
                    event = self._lanes.driver.write(self.queue, self.allocations[key], data, low)
                except DriverError:
                    return False
                self._note(key, True, event, nbytes)
                self._writes.add(key)
                self._moved = len(self.given), event
                self.is_joined = True
            return True

    def _lose_writes(self, failed: Failed) -> None:
        """Record in the directory, after a failure, that contents that the host has written in part are unknown."""
        for key in self._writes:
            self._directory.lose(key, f"the host wrote to it among commands of which one has failed: {failed.message}")

    def _note(self, key: BufferKey, is_upload: bool, event: Event, nbytes: int) -> None:
        """Note a copy after all that was given."""
        source, target = (HOST, self._memory) if is_upload else (self._memory, HOST)
        moved = Transferred((key,), self.device, source, target, (event,), len(self.given), nbytes)
        self.record.transfers.append(moved)

    # of copies for which there was no wait

    @property
    def moving(self) -> Event | None:
        """The copy after all commands that were given, if there was no wait for it."""
        return self._moved[1] if self._moved is not None and self._moved[0] == len(self.given) else None

    def has_moved(self, event: Event, node: int) -> bool:
        """Return whether a copy behind a command is complete. Raises ManyclError where it has failed, or something
        before it: a driver may go on with what comes behind."""
        done = self._lanes.driver.done
        try:
            if not done(event):
                return False
            for index in () if self._lanes.watched else range(max(self._sound, self.waited), node + 1):
                done(self.given[index][2])
            self._sound = max(self._sound, node + 1)
            return True
        except DriverError as error:
            over = self._over
            raise (over.error if over is not None and over.error is not None else error) from None

    def wait_for_move(self, event: Event) -> None:
        """Wait until a copy has ended, with or without an error. Ctrl-C ends the waiting."""
        with self.lock:
            if self._over is None:
                with suppress(DriverError):  # the status tells
                    self._wait_soon(event)
                return
        self.wait_beside(event)
