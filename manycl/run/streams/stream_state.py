"""The state of an eager stream (:mod:`manycl.run.streams.eager_stream`): its command log, its batch, what is in flight,
and the residency of its arrays: transfers to its device, and back to the host."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress
from operator import itemgetter
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from manycl.drivers.driver import DeviceLost, DriverError, End, Event
from manycl.drivers.driver import Queue as DriverQueue
from manycl.errors import RunError
from manycl.graph.copies import Place
from manycl.graph.graph import Argument, Buffer, BufferKey, DeviceTask
from manycl.machine import HOST, HOST_BIT, DeviceIndex
from manycl.model.transfer import LARGE
from manycl.region import Rectangle, union
from manycl.run.commands.flow_control import AHEAD, PART, FlowControl
from manycl.run.data.coherence import ValidRegion
from manycl.run.executor.record import Transferred
from manycl.run.executor.run_state import RunState, may_have_begun, wait_for
from manycl.run.executor.waits import LONGEST, SPIN, polled, wait_beside
from manycl.run.session.device_set import DeviceSet
from manycl.run.session.session_data import SessionData
from manycl.utilities.interrupts import Uninterrupted

if TYPE_CHECKING:
    from manycl.run.executor.lanes import Lanes

UNKNOWN = AHEAD / 64
"""The seconds that count for a command whose time is unknown; our own choice."""
Given = tuple[DeviceTask, Sequence[Argument] | None, Event]
"""A command: its node, or one like it; its own arguments where they may differ from that node's; its event."""


class CommandLog(list[Given]):
    """The commands that a device was given, where there is no compiled log (:mod:`manycl.api.dispatch.compiled`).
    ``ahead``: the predicted seconds of what is not known to be complete; beyond ``limit``, the stream is to be paced.
    ``is_open``: more may be given."""

    __slots__ = ("ahead", "is_open", "limit")

    def __init__(self) -> None:
        super().__init__()
        self.ahead, self.limit, self.is_open = 0.0, PART, True

    def begin(self, written: set[BufferKey]) -> None:
        """Note that another batch begins, the keys of whose written buffers come into a set."""


class CommandBatch:
    """A command batch, which is a run: the commands between two waits for all of the stream. ``first``: the index of
    its first command; ``moved``: the index of its first transfer in the stream. ``found``: by key of a buffer that it
    uses, where that was valid before: the memories' mask, or part by part; ``written``: keys of the buffers that it
    writes. ``began``: by ``time.perf_counter``, 0 as long as nothing has come to it."""

    __slots__ = ("began", "first", "found", "moved", "written")

    def __init__(self, first: int, moved: int, began: float = 0.0) -> None:
        self.first = first
        self.moved = moved
        self.began = began
        self.found: dict[BufferKey, int | tuple[ValidRegion, ...]] = {}
        self.written: set[BufferKey] = set()


class InFlight:
    """The commands of an eager stream and the waits for them. ``given``: the log of the commands in their order, the
    last part of each its event. ``waited``: the number of commands at the last time when all of them were complete."""

    __slots__ = ("__dict__", "given", "queue")  # (compiled code reads ``given``)

    def __init__(self, device: DeviceIndex, lanes: Lanes, run: RunState) -> None:
        self.device = device
        self._lanes = lanes
        self._run = run
        self.record = run.record  # of all commands
        self.queue: DriverQueue = lanes.queues[0]
        self.given = CommandLog()
        self.waited = 0
        self._seen = 0  # how many transfers are known to have succeeded
        self._coming = set[BufferKey]()  # keys of buffers whose uploads may still read the host's memory
        self._flow: FlowControl[Event] | None = None  # of what was given since the last wait for all
        self._moved: tuple[int, Event] | None = None  # a copy after so many commands, for which there was no wait

    @property
    def is_open(self) -> bool:
        """True if more commands may be given."""
        return self.given.is_open

    @property
    def _last(self) -> Event:
        """The event that ends last of all that was given."""
        moved = self._moved
        return moved[1] if moved is not None and moved[0] == len(self.given) else self.given[-1][2]

    @property
    def is_waited(self) -> bool:
        """True if all that was given is known to be complete."""
        return self.waited == len(self.given) and self._moved is None

    def count(self, seconds: float) -> None:
        """Count a command that was given, of so many expected seconds."""
        log = self.given
        log.ahead += seconds
        if log.ahead > log.limit:
            self.pace()

    def pace(self) -> None:
        """Note a mark, and wait for the one that is due, as planned runs do."""
        log, flow = self.given, self._flow
        if flow is None:
            flow = self._flow = FlowControl()
        seconds = log.ahead - flow.ahead
        due = flow.due(seconds)
        flow.give(log[-1][2], seconds)
        if due is not None:
            with suppress(DriverError):  # the error is raised where results are asked for
                if not self._lanes.driver.done(due):
                    self._lanes.flush(self.queue)
                    wait_for(self._run, self.device, due)
        log.ahead, log.limit = flow.ahead, flow.limit

    @property
    def is_short(self) -> bool:
        """True if what is ahead takes so little time that the driver's own wait may be used."""
        return self.given.ahead <= LONGEST

    def wait_beside(self, event: Event) -> None:
        """Wait until a command has ended, with or without an error; for threads that do not have the stream's lock."""
        wait_beside(self._lanes.driver, event)

    def _wait_soon(self, event: Event) -> None:
        """Wait until an event is complete, by polling or blocking, whichever has taken less; in the driver's own wait
        where that ends soon. Raises DriverError."""
        lanes, began = self._lanes, perf_counter()
        lanes.flush(self.queue)
        looks = lanes.patience.looks()
        if not looks or not polled(lanes.driver, event, SPIN):
            if self.is_short:
                lanes.driver.wait(event)
            else:
                wait_for(self._run, self.device, event)
        lanes.patience.took(looks, perf_counter() - began)

    def _ends(self, first: int) -> list[Event]:
        """Return the events that tell whether all has succeeded, from a command on."""
        # (where one fails on a GPU, all that its context is given afterwards fails)
        given = self.given[-1:] if self._lanes.watched else self.given[first:]
        ends = list(map(itemgetter(2), given))
        if self._seen < len(self.record.transfers):
            ends += [transfer.events[-1] for transfer in self.record.transfers[self._seen :]]
        return ends

    def _caught_up(self) -> None:
        """Note that all that was given is complete."""
        log = self.given
        self.waited, self._seen = len(log), len(self.record.transfers)
        log.ahead, log.limit, self._flow, self._moved = 0.0, PART, None, None
        if self._coming:
            self._coming.clear()


class Owner(Protocol):
    """The owner of a buffer: an array."""

    @property
    def buffer(self) -> Buffer: ...


class Residency(InFlight):
    """The arrays of an eager stream. ``arrays``: by the keys of their buffers, all that the batch ``batch`` uses;
    ``uploads``: transfers for which the next command has to wait."""

    __slots__ = ("_bit", "_directory", "allocations", "arrays", "batch", "uploads")  # as in InFlight

    def __init__(self, devices: DeviceSet, data: SessionData, device: DeviceIndex, run: RunState) -> None:
        executor = devices.backend
        super().__init__(device, executor.lanes[device], run)
        # weak: a session that is dropped without being closed ends its threads
        self.devices: DeviceSet = weakref.proxy(devices)
        self.data: SessionData = weakref.proxy(data)
        # (not its driver's number: devices before it may have been left out)
        self._memory = devices.machine.devices[device].memory
        self._directory = data.directory
        self._bit = 1 << self._memory
        self._bytes = 0  # bytes that the device holds
        self._brought: list[BufferKey] = []  # keys of buffers that were uploaded
        self._regions_before: dict[BufferKey, tuple[ValidRegion, ...]] = {}  # of buffers that lacked some bytes
        self._wanted: Place | None = None  # bytes that come to the host after all that was given
        self._asked: list[tuple[BufferKey, Event]] = []  # copies of such bytes to the host's copies of buffers
        self._at_host: Place | None = None  # bytes that came to the host last
        self.allocations = executor.memory.buffers(device)
        self.arrays: dict[BufferKey, Owner] = {}
        self.batch = CommandBatch(0, 0, run.began)
        self.uploads: list[Event] = []

    @property
    def has_batch(self) -> bool:
        """True if it was given anything since the last wait for all."""
        return len(self.given) > self.batch.first

    def adopt(self, array: Owner) -> bool:
        """Use an array from now on. Return False where there may be no room for it, the device is lost, or a failed run
        has left its contents unknown, so what overwrites them matters. Raises DeviceError where no run may begin."""
        key, directory = array.buffer.key, self._directory
        if not self.batch.began:  # uploads are part of it
            self._begin()
        if key in directory.lost:
            return False
        valid = directory.valid.get(key, 0)
        if key in self.allocations and (valid & self._bit or not (valid or key in directory.valid_regions)):
            self.arrays[key], self.batch.found[key] = array, valid  # it is there, or was just made
            return True
        try:
            return self._adopt(array)
        except DeviceLost:
            return False
        except RunError:  # the device may be lost, and others can go on
            self._refused()
            raise

    def _begin(self) -> None:
        """Note that the batch begins. Raises DeviceError where no run may begin."""
        self.devices.check_open()
        self.batch.began = perf_counter()

    def _refused(self) -> None:
        """End the stream and examine the devices, as the device did not take something."""
        raise NotImplementedError

    def _adopt(self, array: Owner) -> bool:
        """Use an array that has no memory on the device yet, or whose contents are not all there."""
        directory, nbytes, key = self._directory, array.buffer.nbytes, array.buffer.key
        missing, parts = directory.missing(key, self._memory, nbytes), directory.valid_regions.get(key)
        if missing and not all(mask & HOST_BIT for _, mask in missing):
            return False
        if key not in self.allocations:
            device = self._lanes.device
            self._bytes = self._bytes or sum(self.devices.backend.memory.allocated(self.device).values())
            if nbytes > device.max_allocation or self._bytes + nbytes > device.global_memory:
                return False
            self._bytes += nbytes
        with Uninterrupted():
            self.devices.backend.memory.on_device(key, self.device)
            self.batch.found[key] = directory.valid.get(key, 0) if parts is None else parts
            if missing:
                self._bring(key, union(region for region, _ in missing).rectangles)
            if parts is not None:
                directory.joined(key, self._memory)
                self._regions_before[key] = parts
            elif missing:
                directory.copied(key, self._memory)
            self.arrays[key] = array
        return True

    def _bring(self, key: BufferKey, rectangles: tuple[Rectangle, ...]) -> None:
        """Upload parts of a buffer; if they are large, by another queue than the commands'."""
        memory, lanes = self.devices.backend.memory, self._lanes
        nbytes = sum(rect.nbytes for rect in rectangles)
        is_beside = nbytes >= LARGE
        queue = lanes.uploads if is_beside else self.queue
        target = End(memory.on_device(key, self.device))
        try:
            events = lanes.driver.copy(queue, target, memory.upload_source(key, self.device, nbytes), rectangles, ())
        except DeviceLost:
            raise
        except DriverError as error:
            raise RunError(f"{memory.name(key)} cannot be brought to {lanes.device.name}: {error.message}") from None
        self.record.transfers.append(
            Transferred((key,), self.device, HOST, self._memory, events, len(self.given), nbytes)
        )
        self._brought.append(key)
        self._coming.add(key)
        if is_beside:
            self.uploads.append(events[-1])
            self._flush(queue)

    def _flush(self, queue: DriverQueue) -> None:
        """Send what was enqueued. Where that fails, it is in flight all the same, and a wait for it raises."""
        try:  # noqa: SIM105  (suppress is three calls more for each launch that is new)
            self._lanes.flush(queue)
        except DriverError:
            pass

    def _ask_for(self, wanted: Place) -> Event | None:
        """Enqueue the copy to the host of some bytes of a buffer that was used, and that only the device will have,
        after all that was given: then one wait is enough for both. Return None where they have to be copied apart."""
        key, low, nbytes = wanted.buffer.key, wanted.low, wanted.nbytes
        if not 0 < nbytes < LARGE or not self._is_here(key):
            return None
        memory, lanes = self.devices.backend.memory, self._lanes
        if key not in self.batch.written and self._directory.valid.get(key, 0) & HOST_BIT:
            return None
        try:
            target = memory.download_target(key, self.device, nbytes if nbytes < wanted.buffer.nbytes else None)
            events = lanes.driver.copy(
                self.queue, target, End(self.allocations[key]), (Rectangle(low, nbytes),), self.uploads
            )
        except (DriverError, RunError):
            return None  # the copy apart raises the error
        self.record.transfers.append(
            Transferred((key,), self.device, self._memory, HOST, events, len(self.given) - 1, nbytes)
        )
        self._wanted = wanted
        self._asked.append((key, events[-1]))
        return events[-1]

    def _is_here(self, key: BufferKey) -> bool:
        """Return whether a buffer was used, and all of it is valid in the device's memory, which is not the host's."""
        if key not in self.arrays or self._bit == HOST_BIT or key in self._directory.valid_regions:
            return False
        return key in self.batch.written or bool(self._directory.valid.get(key, 0) & self._bit)

    def _arrived(self) -> None:
        """Record in the directory where a batch has written its buffers."""
        self._directory.valid.update(dict.fromkeys(self.batch.written, self._bit))
        wanted = self._wanted
        if wanted is None:
            return
        if wanted.nbytes == wanted.buffer.nbytes:
            self._directory.copied(wanted.buffer.key, HOST)
        else:
            self._at_host = wanted

    def has_brought(self, key: BufferKey, low: int, nbytes: int) -> bool:
        """Return whether some bytes of a buffer are in the host's copy of it though the directory does not know: they
        came after all that was given, and nothing was given since. Returns True only once."""
        last, self._at_host = self._at_host, None
        if last is None or self.waited < len(self.given) or last.buffer.key != key:
            return False
        return last.low <= low and low + nbytes <= last.low + last.nbytes

    def _take_back(self) -> None:
        """Record in the directory that uploads to the device may not have been carried out."""
        directory = self._directory
        for key in self._brought:
            if key not in self._regions_before:
                directory.drop(key, self._memory)
        for key, parts in self._regions_before.items():
            directory.set_regions(key, parts)
        for key, event in self._asked:
            had = key in directory.valid_regions or directory.valid.get(key, 0) & HOST_BIT
            if had and may_have_begun(self._lanes.driver, event):  # what the host had may be overwritten
                directory.valid_regions.pop(key, None)
                directory.valid[key] = self._bit
