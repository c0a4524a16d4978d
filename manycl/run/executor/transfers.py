"""The transfers of a run, between the host and devices and between the stores of a device; and copies and fills."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import repeat
from operator import attrgetter
from typing import NamedTuple

from manycl.drivers.driver import Driver, DriverError, End, Event, Queue
from manycl.errors import RunError
from manycl.graph.graph import BufferKey, CopyTask, FillTask, Piece
from manycl.machine import HOST, DeviceIndex, Machine
from manycl.region import NOTHING, Rectangle, Region, union
from manycl.run.commands.backend import FIRST, UPLOADS, Copy, TransferQueue
from manycl.run.data.memory import Memory
from manycl.run.executor.lanes import Lanes
from manycl.run.executor.record import Transferred
from manycl.run.executor.run_state import RunState
from manycl.run.recovery.undo_log import KeptCopies

_MEMORY = attrgetter("memory")


class Moved(NamedTuple):
    """Rows of a buffer."""

    key: BufferKey
    rows: tuple[Rectangle, ...]


class TransferLanes:
    """The transfers of a run, on the lanes of its devices. ``joined``: the rows to move, by pieces of the graph (the
    same for all its runs)."""

    def __init__(
        self, run: RunState, memory: Memory, kept: KeptCopies, joined: dict[tuple[BufferKey, ...], Moved]
    ) -> None:
        self._run, self._graph, self._windows = run, run.graph, run.graph.windows
        self._memory, self._kept = memory, kept
        self._lanes, self._record, self._events = run.lanes, run.record, run.events
        self._joined = joined

    def transfer(self, commands: Sequence[Copy]) -> None:
        """Enqueue one transfer for several commands that continue one another."""
        first, buffers = commands[0], tuple([c.buffer for c in commands])
        lanes = self._lanes[first.device]
        after = list({id(event): event for c in commands for t in c.after for event in [self._events[t]]}.values())
        key, rows = moved = self._rows(buffers)
        if first.saves:
            self._kept.save(key, FIRST, rows, lanes.driver)
        queue, target, source = lanes.of(first.queue), self._target(first, moved), self._source(first, moved)
        events = lanes.driver.copy(queue, target, source, rows, after)
        # other queues are flushed when all commands of this call are enqueued
        if isinstance(first.queue, TransferQueue) and first.queue not in UPLOADS:
            lanes.flush(queue)
        event = lanes.latest[first.queue] = events[-1]  # in order: all are complete when this is
        self._record.transfers.append(Transferred(buffers, first.device, *first.ends, events, first.token))
        for command in commands:
            self._events[command.token] = event
        if first.notify:
            self._run.watch(first.device, first.queue, [c.token for c in commands], event)

    def _target(self, copy: Copy, moved: Moved) -> End:
        """Return where a transfer copies a buffer to."""
        if copy.target > HOST:
            return self._store(copy, moved.key, copy.target, copy.target_store)
        if copy.target < HOST:
            return self._kept.target(moved.key, copy.target, self._lanes[copy.device].driver)
        return self._memory.download_target(moved.key, copy.device, self._nbytes(moved))

    def _source(self, copy: Copy, moved: Moved) -> End:
        """Return where a transfer finds a buffer."""
        if copy.source > HOST:
            return self._store(copy, moved.key, copy.source, copy.source_store)
        return self._memory.upload_source(moved.key, copy.device, self._nbytes(moved))

    def _store(self, copy: Copy, key: BufferKey, memory: int, store: BufferKey | None) -> End:
        """Return a buffer, or a window of it, in the memory of a device."""
        window = self._windows.get(store) if store is not None else None
        if window is not None:
            return End(self._memory.on_device(window.key, copy.device), window.low)
        machine = self._record.machine
        if machine.devices[copy.device].memory == memory:
            return End(self._memory.on_device(key, copy.device))
        owner = machine.owner(memory)
        return End(self._memory.on_device(key, owner), owner=self._lanes[owner].driver)

    def _rows(self, keys: tuple[BufferKey, ...]) -> Moved:
        """Return the rows that pieces of a buffer stand for, or all of it."""
        found = self._joined.get(keys)
        if found is None:
            first = self._graph.buffers.get(keys[0])
            if isinstance(first, Piece):
                pieces = map(self._graph.buffers.__getitem__, keys)
                rows = (
                    union(piece.region for piece in pieces if isinstance(piece, Piece))
                    if len(keys) > 1
                    else first.region
                )
                found = Moved(first.whole, rows.rectangles)
            else:
                found = Moved(keys[0], self._whole(keys[0]))
            self._joined[keys] = found
        return found

    def _nbytes(self, moved: Moved) -> int | None:
        """Return the number of bytes that are moved (None: all of the buffer)."""
        return None if moved.rows == self._whole(moved.key) else sum(rect.nbytes for rect in moved.rows)

    def _whole(self, key: BufferKey) -> tuple[Rectangle, ...]:
        return (Rectangle(0, self._memory.nbytes(key)),)


def within(
    driver: Driver, memory: Memory, task: CopyTask | FillTask, device: DeviceIndex
) -> Callable[[Queue, Sequence[Event]], Event]:
    """Return a function that enqueues a node that copies or fills on a device, behind some events."""
    target = memory.on_device(task.args[0].key, device)
    if isinstance(task, FillTask):
        pattern, offset, nbytes = task.pattern, task.target_offset, task.nbytes
        return lambda queue, after: driver.fill(queue, target, pattern, offset, nbytes, after)
    source = End(memory.on_device(task.args[1].key, device))
    # the rectangle is counted from the source's first byte, and so must be the target
    there = End(target, task.source_offset - task.target_offset)
    rectangles = (Rectangle(task.source_offset, task.nbytes),)
    return lambda queue, after: driver.copy(queue, there, source, rectangles, after)[-1]


def move(
    machine: Machine,
    memory: Memory,
    lanes: Sequence[Lanes],
    key: BufferKey,
    parts: Sequence[tuple[int, Region]],
    result: End | None = None,
    *,
    sends: bool = False,
) -> None:
    """Copy regions of a buffer (NOTHING: all of it) between the host's bytes and devices' memories (indices), to these
    if it ``sends``; or to a ``result``. All links are used at once, and waited for. Raises RunError."""
    sent: list[tuple[Driver, Event]] = []
    memories, device = [*map(_MEMORY, machine.devices)], DeviceIndex(0)
    try:
        for index, region in parts:
            rows = () if region is NOTHING else region.rectangles
            device = DeviceIndex(memories.index(index))
            driver, queue = lanes[device].driver, lanes[device].uploads if sends else lanes[device].downloads
            host = result
            if host is None:
                nbytes = sum([rect.nbytes for rect in rows]) or None
                if not sends and nbytes is None:
                    memory.replace(key)  # what the host has is stale
                host = (memory.upload_source if sends else memory.download_target)(key, device, nbytes)
            there = End(memory.on_device(key, device))
            target, source = (there, host) if sends else (host, there)
            events = driver.copy(queue, target, source, rows or (Rectangle(0, memory.nbytes(key)),), ())
            sent += zip(repeat(driver), events, strict=False)
            driver.flush(queue)
        while sent:
            driver, event = sent.pop(0)
            driver.wait(event)
    except DriverError as error:
        for driver, event in sent:  # they still use the host's memory
            with suppress(DriverError):
                driver.wait(event)
        way, name = "to" if sends else "from", machine.devices[device].name
        raise RunError(f"{memory.name(key)} cannot be brought {way} {name}: {error}") from None
