"""The transfers of a run: between the host and devices, and between the stores of a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import pyopencl as cl

from manycl.graph.graph import Graph, Piece
from manycl.region import Box, union
from manycl.run.backend import EARLY_QUEUE, Copy, Download, Upload
from manycl.run.backends.copies import copy_inside, copy_rows
from manycl.run.backends.memory import Bytes, Memory
from manycl.run.backends.queues import Driver
from manycl.run.backends.record import OpenCLRecord
from manycl.run.backends.staging import STAGE_FROM


class Running(Protocol):
    """The run that transfers belong to."""

    stopping: bool
    """Something has failed: nothing more is enqueued."""

    def watch(self, device: int, queue: int, tokens: Sequence[int], event: cl.Event) -> None:
        """Report when an event is complete that stands for commands."""

    def complete(self, token: int) -> None:
        """A thread says that a command is."""

    def fail(self, token: int, error: object) -> None:
        """A command failed: stop the run."""


def _staged_part(data: Bytes, rows: tuple[Box, ...]) -> tuple[Bytes, int] | None:
    """The part of a host array that a transfer moves, and its offset, where it is worth staging."""
    offset, width, _, count, *_ = rows[0] if rows else Box(0, len(data))
    return (data[offset : offset + width], offset) if len(rows) < 2 and count == 1 and width >= STAGE_FROM else None


class Moved(NamedTuple):
    """Rows of a buffer, counted from byte ``low`` of it on, with which what a device holds (``store``) begins; none:
    all of it."""

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
        drivers: Sequence[Driver],
        record: OpenCLRecord,
        events: dict[int, cl.Event],
        joined: dict[tuple[int | None, ...], Moved],
    ) -> None:
        self._run = run
        self._graph = graph
        self._windows = graph.windows
        self._memory = memory
        self._drivers = drivers
        self._record = record
        self._events = events
        self._joined = joined

    def upload(self, commands: Sequence[Upload]) -> None:
        """Transfer what several uploads need that continue one another."""
        driver = self._drivers[commands[0].device]
        if driver.throttled and commands[0].queue >= 0:  # which that thread enqueues on
            driver.submit(0, lambda: self._slowly(self._upload_to, driver, commands))
        else:
            self._upload_to(driver, commands)

    def _upload_to(self, driver: Driver, commands: Sequence[Upload]) -> None:
        first = commands[0]
        key, store, low, rows = self._what(commands)
        source, is_pinned = self._memory.upload_source(key)
        buffer, source = self._memory.on_device(store, first.device), source[low:] if low else source
        after = [self._events[t] for t in first.after]
        part = _staged_part(source, rows) if not is_pinned and driver.stager is not None else None
        if part is None or driver.stager is None:
            events = copy_rows(driver.of_uploads(first.queue), buffer, source, rows or (Box(0, len(source)),), after)
            event = driver.latest[first.queue] = events[-1]  # in order: all are complete when this is
            self._record.transfers.append(
                (tuple([c.buffer for c in commands]), first.device, True, events, first.token)
            )
            tokens = [c.token for c in commands]
            for token in tokens:
                self._events[token] = event
            if first.notify:
                self._run.watch(first.device, first.queue, tokens, event)
            return
        arrived = cl.UserEvent(driver.context)
        self._events.update((command.token, arrived) for command in commands)
        future = driver.stager.upload(buffer, part[0], after, part[1])
        future.add_done_callback(lambda f: self._staged(f, commands, True, arrived))

    def download(self, commands: Sequence[Download]) -> None:
        """Transfer what several downloads bring that continue one another."""
        driver = self._drivers[commands[0].device]
        if driver.throttled and commands[0].after:  # what it waits for is enqueued by that thread, perhaps not yet
            driver.submit(0, lambda: self._slowly(self._download_from, driver, commands))
        else:
            self._download_from(driver, commands)

    def _slowly(self, act: Callable[[Driver, Any], None], driver: Driver, commands: Sequence[Any]) -> None:
        """On a slowed device's own thread, behind the kernels."""
        if self._run.stopping:
            return
        try:
            act(driver, commands)
        except Exception as error:
            self._run.fail(commands[0].token, error)

    def _download_from(self, driver: Driver, commands: Sequence[Download]) -> None:
        first = commands[0]
        key, store, low, rows = self._what(commands)
        target, is_pinned = self._memory.download_target(key, bool(rows))
        buffer, target = self._memory.on_device(store, first.device), target[low:] if low else target
        after = [self._events[t] for t in first.after]
        part = _staged_part(target, rows) if not is_pinned and driver.stager is not None else None
        if part is None or driver.stager is None:
            queue = driver.of_downloads(first.queue)
            events = copy_rows(queue, target, buffer, rows or (Box(0, len(target)),), after)
            if first.queue < 0 or driver.throttled:  # else it is when all that comes with it is enqueued
                queue.flush()
            event = driver.latest[first.queue] = events[-1]
            self._record.transfers.append(
                (tuple([c.buffer for c in commands]), first.device, False, events, first.token)
            )
            tokens = [c.token for c in commands]
            for token in tokens:
                self._events[token] = event
            self._run.watch(first.device, first.queue, tokens, event)
            return
        for kernels in driver.queues:
            kernels.flush()
        future = driver.stager.download(buffer, part[0], after, part[1], first.queue == EARLY_QUEUE)
        future.add_done_callback(lambda f: self._staged(f, commands, False, None))

    def copy(self, commands: Sequence[Copy]) -> None:
        """Copy within a device what several copies between two stores need."""
        driver = self._drivers[commands[0].device]
        if driver.throttled:  # what it waits for is enqueued by that thread, perhaps not yet
            driver.submit(0, lambda: self._slowly(self._copy_within, driver, commands))
        else:
            self._copy_within(driver, commands)

    def _copy_within(self, driver: Driver, commands: Sequence[Copy]) -> None:
        """Between two stores of a device."""
        first = commands[0]
        ends = []
        for store in (first.source, first.target):
            window = self._windows.get(store)
            ends.append((self._memory.on_device(store, first.device), 0 if window is None else window.low))
        before = {id(event): event for command in commands for t in command.after for event in [self._events[t]]}
        keys = tuple([command.buffer for command in commands])
        queue = driver.queues[first.queue]
        events = copy_inside(queue, *ends[0], *ends[1], self._rows(keys), list(before.values()))
        event = driver.latest[first.queue] = events[-1]
        tokens = [command.token for command in commands]
        for token in tokens:
            self._events[token] = event
        self._record.transfers.append((keys, first.device, None, events, first.token))
        if first.notify:
            self._run.watch(first.device, first.queue, tokens, event)

    def _rows(self, keys: tuple[int, ...]) -> tuple[Box, ...]:
        """The rows of some pieces of a buffer, or all of it."""
        name = None, None, *keys  # (what moves to or from the host begins with a store)
        if name not in self._joined:
            key, rows = self._of(keys[0])
            if len(keys) > 1:
                rows = self._joined_boxes(keys)
            self._joined[name] = Moved(key, key, 0, rows or (Box(0, self._memory.nbytes(key)),))
        return self._joined[name].rows

    def _what(self, commands: Sequence[Upload | Download]) -> Moved:
        """What several commands move of a buffer."""
        name = commands[0].store, *(command.buffer for command in commands)
        known = self._joined.get(name)
        if known is not None:
            return known
        key, rows = self._of(commands[0].buffer)
        if len(commands) > 1:
            rows = self._joined_boxes([command.buffer for command in commands])
        window = self._windows.get(commands[0].store) if commands[0].store is not None else None
        if window is None:
            found = Moved(key, key, 0, rows)
        else:
            shifted = tuple(row._replace(offset=row.offset - window.low) for row in rows)
            found = Moved(key, window.key, window.low, shifted)
        self._joined[name] = found
        return found

    def _of(self, key: int) -> tuple[int, tuple[Box, ...]]:
        """The buffer that a key of the graph is one of, or a piece of, and the rows (none: all of it)."""
        if key >= 0:
            return key, ()
        buffer = self._graph.buffers[key]
        return (buffer.whole, buffer.region.boxes) if isinstance(buffer, Piece) else (key, ())

    def _joined_boxes(self, keys: Iterable[int]) -> tuple[Box, ...]:
        """Some pieces of a buffer together."""
        members = (self._graph.buffers[key] for key in keys)
        return union(piece.region for piece in members if isinstance(piece, Piece)).boxes

    def _staged(self, future: Any, commands: Sequence[Upload | Download], is_upload: bool, arrived: Any) -> None:
        """A staged transfer has ended (on the staging thread)."""
        error = future.exception()
        if error is None:
            keys, first = tuple(command.buffer for command in commands), commands[0]
            self._record.transfers.append((keys, first.device, is_upload, future.result(), first.token))
        if arrived is not None:
            arrived.set_status(cl.command_execution_status.COMPLETE if error is None else -1)
        for command in commands:
            if error is not None:
                self._run.fail(command.token, error)
            elif command.notify:
                self._run.complete(command.token)
