"""The transfers of a run, between the host and devices and between the stores of a device; and copies and fills."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from manycl.drivers.driver import Driver, End, Event, Queue
from manycl.graph.graph import BufferKey, CopyTask, FillTask, Graph, Piece
from manycl.machine import HOST, DeviceIndex
from manycl.region import Box, union
from manycl.run.commands.backend import FIRST, Copy, Download, TransferQueue, Upload
from manycl.run.data.memory import Memory
from manycl.run.executor.lanes import Lanes
from manycl.run.executor.record import RunRecord, Transferred
from manycl.run.recovery.undo_log import KeptCopies

Transfer = Upload | Download | Copy


class Running(Protocol):
    """The run that transfers belong to."""

    def watch(self, device: DeviceIndex, queue: int, tokens: Sequence[int], event: Event) -> None:
        """Report the commands that an event stands for when it is complete."""

    def fail(self, token: int, error: object) -> None:
        """Report that a command failed, and stop the run."""


class Moved(NamedTuple):
    """Rows of a buffer, and the object ``store`` that holds the buffer on a device from its byte ``low`` on."""

    key: BufferKey
    store: BufferKey
    low: int
    rows: tuple[Box, ...]


class TransferLanes:
    """The transfers of a run, on the lanes of its devices. ``events``: of the run's commands, by token. ``joined``: the
    rows to move, by store and pieces of the graph (the same for all its runs)."""

    def __init__(
        self,
        run: Running,
        graph: Graph,
        memory: Memory,
        kept: KeptCopies,
        lanes: Sequence[Lanes],
        record: RunRecord,
        events: dict[int, Event],
        joined: dict[tuple[BufferKey | None, ...], Moved],
    ) -> None:
        self._run = run
        self._graph = graph
        self._windows = graph.windows
        self._memory = memory
        self._kept = kept
        self._lanes = lanes
        self._record = record
        self._events = events
        self._joined = joined

    def transfer(self, commands: Sequence[Transfer]) -> None:
        """Enqueue one transfer for several commands that continue one another."""
        first = commands[0]
        lanes = self._lanes[first.device]
        after = list({id(event): event for c in commands for t in c.after for event in [self._events[t]]}.values())
        if isinstance(first, Download) and first.saves:
            self._kept.save(
                self._of(first.buffer)[0], FIRST, self._rows(tuple([c.buffer for c in commands])), lanes.driver
            )
        queue, target, source, rows = self._ways(lanes, commands)
        events = lanes.driver.copy(queue, target, source, rows, after)
        # other queues are flushed when all commands of this call are enqueued
        if isinstance(first, Download) and isinstance(first.queue, TransferQueue):
            lanes.flush(queue)
        event = lanes.latest[first.queue] = events[-1]  # in order: all are complete when this is
        is_upload = None if isinstance(first, Copy) else isinstance(first, Upload)
        buffers = tuple([c.buffer for c in commands])
        made = Transferred(buffers, first.device, is_upload, events, first.token)
        if isinstance(first, Upload) and first.source != HOST:
            made = made._replace(source=first.source)
        self._record.transfers.append(made)
        for command in commands:
            self._events[command.token] = event
        if first.notify:
            self._run.watch(first.device, first.queue, [c.token for c in commands], event)

    def _ways(self, lanes: Lanes, commands: Sequence[Transfer]) -> tuple[Queue, End, End, tuple[Box, ...]]:
        """Return the queue of a transfer, its target, its source and the rows."""
        first, memory = commands[0], self._memory
        if isinstance(first, Copy):
            rows = self._rows(tuple([command.buffer for command in commands]))
            return lanes.queues[first.queue], self._store(first.target, first), self._store(first.source, first), rows
        key, store, low, rows = self._what(first.store, tuple([command.buffer for command in commands]))
        there = End(memory.on_device(store, first.device), low)
        nbytes = None if rows == self._whole(key) else sum(box.nbytes for box in rows)
        if isinstance(first, Upload):
            return lanes.of_uploads(first.queue), there, self._source(first, key, nbytes), rows
        if first.aside is not None:
            return lanes.of_downloads(first.queue), self._kept.target(key, first.aside, lanes.driver), there, rows
        return lanes.of_downloads(first.queue), memory.download_target(key, first.device, nbytes), there, rows

    def _source(self, upload: Upload, key: BufferKey, nbytes: int | None) -> End:
        """Return where an upload finds a buffer: in the host's memory, or in another device's."""
        if upload.source == HOST:
            return self._memory.upload_source(key, upload.device, nbytes)
        return End(self._memory.elsewhere(key, upload.source))

    def _store(self, store: BufferKey, copy: Copy) -> End:
        window = self._windows.get(store)
        return End(self._memory.on_device(store, copy.device), 0 if window is None else window.low)

    def _rows(self, keys: tuple[BufferKey, ...]) -> tuple[Box, ...]:
        """Return the rows of some pieces of a buffer, or all of it."""
        name = None, None, *keys  # (names of transfers with the host begin with a store)
        if name not in self._joined:
            key, rows = self._of(keys[0])
            if len(keys) > 1:
                members = (self._graph.buffers[k] for k in keys)
                rows = union(piece.region for piece in members if isinstance(piece, Piece)).boxes
            self._joined[name] = Moved(key, key, 0, rows)
        return self._joined[name].rows

    def _what(self, store: BufferKey | None, keys: tuple[BufferKey, ...]) -> Moved:
        """Return the rows that pieces of a buffer stand for, and where a device has them."""
        name = store, *keys
        known = self._joined.get(name)
        if known is not None:
            return known
        (key, _), rows = self._of(keys[0]), self._rows(keys)
        window = self._windows.get(store) if store is not None else None
        found = Moved(key, key, 0, rows) if window is None else Moved(key, window.key, window.low, rows)
        self._joined[name] = found
        return found

    def _of(self, key: BufferKey) -> tuple[BufferKey, tuple[Box, ...]]:
        """Return the buffer that a key of the graph names, or names a piece of, and the rows."""
        buffer = self._graph.buffers.get(key)
        if isinstance(buffer, Piece):
            return buffer.whole, buffer.region.boxes
        return key, self._whole(key)

    def _whole(self, key: BufferKey) -> tuple[Box, ...]:
        return (Box(0, self._memory.nbytes(key)),)


def within(
    driver: Driver, memory: Memory, task: CopyTask | FillTask, device: DeviceIndex
) -> Callable[[Queue, Sequence[Event]], Event]:
    """Return a function that enqueues a node that copies or fills on a device, behind some events."""
    target = memory.on_device(task.args[0].key, device)
    if isinstance(task, FillTask):
        pattern, offset, nbytes = task.pattern, task.target_offset, task.nbytes
        return lambda queue, after: driver.fill(queue, target, pattern, offset, nbytes, after)
    source = End(memory.on_device(task.args[1].key, device))
    # the box is counted from the source's first byte, and so must be the target
    there, boxes = End(target, task.source_offset - task.target_offset), (Box(task.source_offset, task.nbytes),)
    return lambda queue, after: driver.copy(queue, there, source, boxes, after)[-1]
