"""The undo log: copies of what commands are about to change, kept until they have ended
(:mod:`manycl.run.recovery.checkpoints`)."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from manycl.drivers.driver import Allocation, Bytes, Driver, DriverError, End, Event
from manycl.drivers.worker.rows import copy_rows
from manycl.graph.graph import BufferKey, Graph, Piece
from manycl.region import Rectangle
from manycl.run.commands.backend import Run
from manycl.run.data.memory import Memory
from manycl.run.executor.lanes import Lanes
from manycl.units import ELEMENT


class _SavedRows(NamedTuple):
    """A part of an undo copy: rows of a buffer. Byte b of the buffer is byte ``b - low`` of the copy."""

    key: BufferKey
    rows: tuple[Rectangle, ...]
    low: int


class UndoCopy(NamedTuple):
    """The undo copy of a command: its device's queue, its parts in ``data``, and the copies' events."""

    lanes: Lanes
    queue: int
    parts: Sequence[_SavedRows]
    data: Bytes
    events: Sequence[Event]


class UndoLog:
    """The undo copies of all queues. Each queue has memory for one: the command before has ended by the next one."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._areas: weakref.WeakKeyDictionary[Lanes, dict[int, tuple[Bytes, Allocation]]] = weakref.WeakKeyDictionary()

    def copied(self, graph: Graph, command: Run, lanes: Lanes, after: Sequence[Event]) -> UndoCopy | None:
        """Copy what a command is about to change, in its queue. Return None where there is no memory for that. Raises
        DriverError where the device does not take a command."""
        parts: list[_SavedRows] = []
        at = 0
        for key in command.undo:
            buffer = graph.buffers[key]
            whole = buffer.whole if isinstance(buffer, Piece) else key
            rows = buffer.region.rectangles if isinstance(buffer, Piece) else (Rectangle(0, buffer.nbytes),)
            first, end = min(rect.offset for rect in rows), max(rect.end for rect in rows)
            parts.append(_SavedRows(whole, rows, first - at))
            at += -(-(end - first) // ELEMENT) * ELEMENT
        area = self._area(lanes, command.queue, at)
        if area is None:
            return None
        data, there = area
        events = [
            event
            for key, rows, low in parts
            for event in lanes.driver.copy(
                lanes.queues[command.queue],
                End(there, low),
                End(self._memory.on_device(key, command.device)),
                rows,
                after,
            )
        ]
        return UndoCopy(lanes, command.queue, parts, data, events)

    def put_back(self, copy: UndoCopy) -> bool:
        """Put the old contents back into the host's memory. The device is lost, and the command was the last that it
        had begun in its queue. Return False where not all of the contents were copied."""
        if not copy.lanes.driver.succeeded(copy.events):
            return False
        for key, rows, low in copy.parts:
            copy_rows(self._memory.host(key), copy.data, rows, 0, -low)
        return True

    def trim(self) -> None:
        """Free the memory; no run is in progress."""
        for lanes, areas in self._areas.items():
            for _, there in areas.values():
                lanes.driver.free(there)
        self._areas.clear()

    def _area(self, lanes: Lanes, queue: int, nbytes: int) -> tuple[Bytes, Allocation] | None:
        areas = self._areas.setdefault(lanes, {})
        found = areas.get(queue)
        if found is None or len(found[0]) < nbytes:
            try:
                data = self._memory.new_bytes(nbytes)
                found = areas[queue] = data, lanes.driver.allocate(nbytes, data)
            except (DriverError, MemoryError):
                return None
        return found


# Copies that the host keeps beside its own copies of buffers during a run (:mod:`manycl.run.recovery.checkpoints`).


class KeptCopies:
    """Copies kept by the host: for each buffer at most one for each number. They stay for the next run, until their
    buffers are gone."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._held: dict[BufferKey, dict[int, tuple[Bytes, object]]] = {}

    def target(self, key: BufferKey, copy: int, driver: Driver) -> End:
        """Return the target of a device's transfer into a copy. Raises DriverError where there is no room."""
        return End(self._copy(key, copy, driver))

    def save(self, key: BufferKey, copy: int, rows: tuple[Rectangle, ...], driver: Driver) -> None:
        """Copy the host's own copy to one beside it. Raises DriverError where there is no room."""
        copy_rows(self._copy(key, copy, driver), self._memory.host(key), rows, 0, 0)

    def restore(self, graph: Graph, copies: Mapping[BufferKey, int]) -> None:
        """Restore the host's own copies of a graph's buffers from those beside them."""
        for key, copy in copies.items():
            buffer = graph.buffers[key]
            whole = buffer.whole if isinstance(buffer, Piece) else key
            rows = buffer.region.rectangles if isinstance(buffer, Piece) else (Rectangle(0, buffer.nbytes),)
            copy_rows(self._memory.host(whole), self._held[whole][copy][0], rows, 0, 0)

    def trim(self) -> None:
        """Free the memory; no run is in progress."""
        self._held.clear()

    def _copy(self, key: BufferKey, copy: int, driver: Driver) -> Bytes:
        held = self._held.get(key)
        if held is None:
            self._held = {k: copies for k, copies in self._held.items() if self._memory.has(k)}
            held = self._held[key] = {}
        found = held.get(copy)
        if found is None or len(found[0]) < self._memory.nbytes(key):
            try:
                data = self._memory.new_bytes(self._memory.nbytes(key))
                found = held[copy] = data, driver.pin(data)
            except MemoryError as error:
                raise DriverError(str(error)) from None
        return found[0]
