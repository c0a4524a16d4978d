"""The transfers of a run: between the host and devices, and between the stores of a device; copies and fills, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from manycl.drivers.driver import Driver, End, Event, Queue
from manycl.graph.graph import CopyTask, FillTask, Graph, Piece
from manycl.region import Box, union
from manycl.run.backend import Copy, Download, Upload
from manycl.run.backends.lanes import Lanes
from manycl.run.backends.memory import Memory
from manycl.run.backends.record import RunRecord


class Running(Protocol):
    """The run that transfers belong to."""

    stopping: bool
    """Something has failed: nothing more is enqueued."""

    def watch(self, device: int, queue: int, tokens: Sequence[int], event: Event) -> None:
        """Report when an event is complete that stands for commands."""

    def fail(self, token: int, error: object) -> None:
        """A command failed: stop the run."""


class Moved(NamedTuple):
    """Rows of a buffer, and from which byte ``low`` of it on a device holds it (``store``)."""

    key: int
    store: int
    low: int
    rows: tuple[Box, ...]


class Moves:
    """``events``: of the run's commands, by token. ``joined``: what was found to be moved by stores and pieces
    of the graph (the same for all its runs)."""

    def __init__(
        self,
        run: Running,
        graph: Graph,
        memory: Memory,
        lanes: Sequence[Lanes],
        record: RunRecord,
        events: dict[int, Event],
        joined: dict[tuple[int | None, ...], Moved],
    ) -> None:
        self._run = run
        self._graph = graph
        self._windows = graph.windows
        self._memory = memory
        self._lanes = lanes
        self._record = record
        self._events = events
        self._joined = joined

    def upload(self, commands: Sequence[Upload]) -> None:
        """Transfer what several uploads need that continue one another."""
        lanes = self._lanes[commands[0].device]
        if lanes.throttled and commands[0].queue >= 0:  # which that thread enqueues on
            lanes.submit(0, lambda: self._slowly(self._upload_to, lanes, commands))
        else:
            self._upload_to(lanes, commands)

    def _upload_to(self, lanes: Lanes, commands: Sequence[Upload]) -> None:
        first = commands[0]
        key, store, low, rows = self._what(commands)
        target, source = self._memory.on_device(store, first.device), self._memory.upload_source(key)
        after = [self._events[t] for t in first.after]
        events = lanes.driver.copy(lanes.of_uploads(first.queue), End(target, low), source, rows, after)
        self._given(lanes, commands, True, events)
        if first.notify:
            self._run.watch(first.device, first.queue, [c.token for c in commands], events[-1])

    def download(self, commands: Sequence[Download]) -> None:
        """Transfer what several downloads bring that continue one another."""
        lanes = self._lanes[commands[0].device]
        if lanes.throttled and commands[0].after:  # what it waits for is enqueued by that thread, perhaps not yet
            lanes.submit(0, lambda: self._slowly(self._download_from, lanes, commands))
        else:
            self._download_from(lanes, commands)

    def _slowly(self, act: Callable[[Lanes, Any], None], lanes: Lanes, commands: Sequence[Any]) -> None:
        """On a slowed device's own thread, behind the kernels."""
        if self._run.stopping:
            return
        try:
            act(lanes, commands)
        except Exception as error:
            self._run.fail(commands[0].token, error)

    def _download_from(self, lanes: Lanes, commands: Sequence[Download]) -> None:
        first = commands[0]
        key, store, low, rows = self._what(commands)
        target = self._memory.download_target(key, partly=rows != self._whole(key))
        source = End(self._memory.on_device(store, first.device), low)
        after = [self._events[t] for t in first.after]
        queue = lanes.of_downloads(first.queue)
        events = lanes.driver.copy(queue, target, source, rows, after)
        if first.queue < 0 or lanes.throttled:  # else it is when all that comes with it is enqueued
            lanes.flush(queue)
        self._given(lanes, commands, False, events)
        self._run.watch(first.device, first.queue, [c.token for c in commands], events[-1])

    def copy(self, commands: Sequence[Copy]) -> None:
        """Copy within a device what several copies between two stores need."""
        lanes = self._lanes[commands[0].device]
        if lanes.throttled:  # what it waits for is enqueued by that thread, perhaps not yet
            lanes.submit(0, lambda: self._slowly(self._copy_within, lanes, commands))
        else:
            self._copy_within(lanes, commands)

    def _copy_within(self, lanes: Lanes, commands: Sequence[Copy]) -> None:
        """Between two stores of a device."""
        first = commands[0]

        def end(store: int) -> End:
            window = self._windows.get(store)
            return End(self._memory.on_device(store, first.device), 0 if window is None else window.low)

        before = {id(event): event for command in commands for t in command.after for event in [self._events[t]]}
        rows = self._rows(tuple([command.buffer for command in commands]))
        queue, after = lanes.queues[first.queue], list(before.values())
        events = lanes.driver.copy(queue, end(first.target), end(first.source), rows, after)
        self._given(lanes, commands, None, events)
        if first.notify:
            self._run.watch(first.device, first.queue, [c.token for c in commands], events[-1])

    def _given(
        self,
        lanes: Lanes,
        commands: Sequence[Upload | Download | Copy],
        is_upload: bool | None,
        events: Sequence[Event],
    ) -> None:
        """Commands were enqueued as one transfer."""
        first = commands[0]
        event = lanes.latest[first.queue] = events[-1]  # in order: all are complete when this is
        self._record.transfers.append(
            (tuple([c.buffer for c in commands]), first.device, is_upload, events, first.token)
        )
        for command in commands:
            self._events[command.token] = event

    def _rows(self, keys: tuple[int, ...]) -> tuple[Box, ...]:
        """The rows of some pieces of a buffer, or all of it."""
        name = None, None, *keys  # (what moves to or from the host begins with a store)
        if name not in self._joined:
            key, rows = self._of(keys[0])
            if len(keys) > 1:
                members = (self._graph.buffers[k] for k in keys)
                rows = union(piece.region for piece in members if isinstance(piece, Piece)).boxes
            self._joined[name] = Moved(key, key, 0, rows)
        return self._joined[name].rows

    def _what(self, commands: Sequence[Upload | Download]) -> Moved:
        """What several commands move of a buffer."""
        name = commands[0].store, *(command.buffer for command in commands)
        known = self._joined.get(name)
        if known is not None:
            return known
        key, _ = self._of(commands[0].buffer)
        rows = self._rows(tuple([command.buffer for command in commands]))
        window = self._windows.get(commands[0].store) if commands[0].store is not None else None
        found = Moved(key, key, 0, rows) if window is None else Moved(key, window.key, window.low, rows)
        self._joined[name] = found
        return found

    def _of(self, key: int) -> tuple[int, tuple[Box, ...]]:
        """The buffer that a key of the graph is one of, or a piece of, and the rows."""
        buffer = self._graph.buffers[key] if key < 0 else None
        if isinstance(buffer, Piece):
            return buffer.whole, buffer.region.boxes
        return key, self._whole(key)

    def _whole(self, key: int) -> tuple[Box, ...]:
        return (Box(0, self._memory.nbytes(key)),)


def within(
    driver: Driver, memory: Memory, task: CopyTask | FillTask, device: int
) -> Callable[[Queue, Sequence[Event]], Event]:
    """What enqueues a node that copies or fills on a device, behind some events."""
    target = memory.on_device(task.args[0].key, device)
    if isinstance(task, FillTask):
        pattern, offset, nbytes = task.pattern, task.target_offset, task.nbytes
        return lambda queue, after: driver.fill(queue, target, pattern, offset, nbytes, after)
    source = End(memory.on_device(task.args[1].key, device))
    # the box is counted from the source's first byte, and so must be the target
    there, boxes = End(target, task.source_offset - task.target_offset), (Box(task.source_offset, task.nbytes),)
    return lambda queue, after: driver.copy(queue, there, source, boxes, after)[-1]
