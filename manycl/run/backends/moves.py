"""The transfers of a run: between the host and devices, and between the stores of a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyopencl as cl

from manycl.graph.graph import Graph, Piece, Rows
from manycl.graph.pieces import as_rows, of_rows
from manycl.run.backend import Copy, Download, Upload
from manycl.run.backends.copies import copy_inside, copy_rows
from manycl.run.backends.memory import Bytes, Memory
from manycl.run.backends.queues import Driver
from manycl.run.backends.record import OpenCLRecord
from manycl.run.backends.staging import STAGE_FROM
from manycl.run.windows import Window


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


def _staged_part(data: Bytes, rows: tuple[Rows, ...]) -> tuple[Bytes, int] | None:
    """The part of a host array that a transfer moves, and its offset, where it is worth staging."""
    offset, width, _, count = rows[0] if rows else Rows(0, len(data))
    return (data[offset : offset + width], offset) if len(rows) < 2 and count == 1 and width >= STAGE_FROM else None


class Moves:
    """``events``: of the run's commands, by token. ``joined``: the buffer and the rows of pieces of the graph that are
    moved together, as far as they have been (the same for all runs of a graph)."""

    def __init__(
        self,
        run: Running,
        graph: Graph,
        memory: Memory,
        drivers: Sequence[Driver],
        record: OpenCLRecord,
        events: dict[int, cl.Event],
        joined: dict[tuple[int, ...], tuple[int, tuple[Rows, ...]]],
    ) -> None:
        self._run = run
        self._graph = graph
        self._windows: Mapping[int, Window] = graph.notes.get("windows", {})
        self._memory = memory
        self._drivers = drivers
        self._record = record
        self._events = events
        self._joined = joined

    def upload(self, commands: Sequence[Upload]) -> None:
        """Transfer what several uploads need that continue one another."""
        first = commands[0]
        driver = self._drivers[first.device]
        key, rows = self._what_all(commands)
        source, is_pinned = self._memory.upload_source(key)
        buffer, source, rows = self._ends(key, first, source, rows)
        after = [self._events[t] for t in first.after]
        part = _staged_part(source, rows) if not is_pinned and driver.stager is not None else None
        if part is None or driver.stager is None:
            events = copy_rows(driver.of_uploads(first.queue), buffer, source, rows or (Rows(0, len(source)),), after)
            event = driver.latest[first.queue] = events[-1]  # in order: all are complete when this is
            self._events.update((command.token, event) for command in commands)
            self._record.transfers.append((tuple(c.buffer for c in commands), first.device, True, events))
            if first.notify:
                self._run.watch(first.device, first.queue, [c.token for c in commands], event)
            return
        arrived = cl.UserEvent(driver.context)
        self._events.update((command.token, arrived) for command in commands)
        future = driver.stager.upload(buffer, part[0], after, part[1])
        future.add_done_callback(lambda f: self._staged(f, commands, True, arrived))

    def download(self, commands: Sequence[Download]) -> None:
        """Transfer what several downloads bring that continue one another."""
        driver = self._drivers[commands[0].device]
        if driver.throttled and commands[0].after:  # what it waits for is enqueued by that thread, perhaps not yet
            driver.submit(0, lambda: self._download_slowly(driver, commands))
        else:
            self._download_from(driver, commands)

    def _download_slowly(self, driver: Driver, commands: Sequence[Download]) -> None:
        """On a slowed device's own thread, behind the kernels."""
        if self._run.stopping:
            return
        try:
            self._download_from(driver, commands)
        except Exception as error:
            self._run.fail(commands[0].token, error)

    def _download_from(self, driver: Driver, commands: Sequence[Download]) -> None:
        first = commands[0]
        key, rows = self._what_all(commands)
        target, is_pinned = self._memory.download_target(key, bool(rows))
        buffer, target, rows = self._ends(key, first, target, rows)
        after = [self._events[t] for t in first.after]
        part = _staged_part(target, rows) if not is_pinned and driver.stager is not None else None
        if part is None or driver.stager is None:
            queue = driver.of_downloads(first.queue)
            events = copy_rows(queue, target, buffer, rows or (Rows(0, len(target)),), after)
            queue.flush()
            event = driver.latest[first.queue] = events[-1]
            self._events.update((command.token, event) for command in commands)
            self._record.transfers.append((tuple(c.buffer for c in commands), first.device, False, events))
            self._run.watch(first.device, first.queue, [c.token for c in commands], event)
            return
        for kernels in driver.queues:
            kernels.flush()
        future = driver.stager.download(buffer, part[0], after, part[1])
        future.add_done_callback(lambda f: self._staged(f, commands, False, None))

    def copy(self, command: Copy) -> None:
        driver = self._drivers[command.device]
        if driver.throttled:  # what it waits for is enqueued by that thread, perhaps not yet
            driver.submit(0, lambda: self._copy_within(driver, command))
        else:
            self._copy_within(driver, command)

    def _copy_within(self, driver: Driver, command: Copy) -> None:
        """Between two stores of a device."""
        if self._run.stopping:
            return
        key, rows = self._what(command.buffer)
        ends = []
        for store in (command.source, command.target):
            window = self._windows.get(store)
            ends.append((self._memory.on_device(store, command.device), 0 if window is None else window.low))
        after = [self._events[t] for t in command.after]
        given = rows or (Rows(0, self._memory.nbytes(key)),)
        try:
            queue = driver.queues[command.queue]
            events = copy_inside(queue, *ends[0], *ends[1], given, after)
            event = self._events[command.token] = driver.latest[command.queue] = events[-1]
            self._record.transfers.append(((command.buffer,), command.device, None, events))
            if command.notify:
                self._run.watch(command.device, command.queue, [command.token], event)
        except cl.Error as error:
            self._run.fail(command.token, error)

    def _ends(
        self, key: int, command: Upload | Download, data: Bytes, rows: tuple[Rows, ...]
    ) -> tuple[cl.Buffer, Bytes, tuple[Rows, ...]]:
        """The device's end of a transfer; the host's, and the rows, from the byte on that the former begins with."""
        window = self._windows.get(command.store) if command.store is not None else None
        if window is None:
            return self._memory.on_device(key, command.device), data, rows
        shifted = tuple(row._replace(offset=row.offset - window.low) for row in rows)
        return self._memory.on_device(window.key, command.device), data[window.low :], shifted

    def _what_all(self, commands: Sequence[Upload | Download]) -> tuple[int, tuple[Rows, ...]]:
        """The same of all that several commands move of a buffer."""
        if len(commands) == 1:
            return self._what(commands[0].buffer)
        keys = tuple(command.buffer for command in commands)
        if keys not in self._joined:
            parts = [self._what(key) for key in keys]
            rows = as_rows(of_rows(row for _, rows in parts for row in rows))
            self._joined[keys] = parts[0][0], rows
        return self._joined[keys]

    def _what(self, key: int) -> tuple[int, tuple[Rows, ...]]:
        """The buffer of which something is moved, and its rows (none: all of it)."""
        if key >= 0:
            return key, ()
        buffer = self._graph.buffers[key]
        return (buffer.whole, buffer.rows) if isinstance(buffer, Piece) else (key, ())

    def _staged(self, future: Any, commands: Sequence[Upload | Download], is_upload: bool, arrived: Any) -> None:
        """A staged transfer has ended (on the staging thread)."""
        error = future.exception()
        if error is None:
            keys = tuple(command.buffer for command in commands)
            self._record.transfers.append((keys, commands[0].device, is_upload, future.result()))
        if arrived is not None:
            arrived.set_status(cl.command_execution_status.COMPLETE if error is None else -1)
        for command in commands:
            if error is not None:
                self._run.fail(command.token, error)
            elif command.notify:
                self._run.complete(command.token)
