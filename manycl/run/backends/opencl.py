"""The OpenCL back end: one context and several in-order queues a device, no callbacks.

The engine's thread enqueues everything, and looks after what devices with cores of their own were given (``inbox``).
Each queue of a CPU has a thread that blocks in ``clWaitForEvents`` (which releases the GIL) for the commands that
somebody must hear of; all other order is kept by the queues and by event wait lists. The kernels of a device with a
slow-down factor are enqueued by a thread of its own instead, one after another.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyopencl as cl

from manycl.errors import ManyclError
from manycl.graph.graph import BufferArg, Graph, HostTask, Launch, Piece, Rows, Version
from manycl.machine import Machine
from manycl.run.backend import (
    DOWNLOAD_QUEUE,
    Command,
    Copy,
    Done,
    Download,
    Evict,
    Failed,
    HostCall,
    Report,
    Run,
    Upload,
)
from manycl.run.backends.copies import copy_inside, copy_rows
from manycl.run.backends.inbox import Inbox
from manycl.run.backends.memory import Bytes, Memory
from manycl.run.backends.platforms import OpenDevice
from manycl.run.backends.programs import Programs
from manycl.run.backends.queues import Driver, Worker
from manycl.run.backends.record import OpenCLRecord
from manycl.run.backends.staging import STAGE_FROM
from manycl.run.windows import Window

_START = cl.profiling_info.START
_END = cl.profiling_info.END
_enqueue = cl.enqueue_nd_range_kernel
SWITCH_INTERVAL = 1e-4  # seconds; the default of 5 ms delays every report while another thread computes


class _Responsive:
    """The interpreter's switch interval, shared by all runs of the process: short while any run is under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: set[object] = set()
        self._interval = 0.0

    def enter(self, run: object) -> None:
        with self._lock:
            if not self._runs:
                self._interval = sys.getswitchinterval()
                sys.setswitchinterval(SWITCH_INTERVAL)
            self._runs.add(run)

    def leave(self, run: object) -> None:
        with self._lock:
            if run in self._runs:
                self._runs.remove(run)
                if not self._runs:
                    sys.setswitchinterval(self._interval)


_responsive = _Responsive()


def _staged_part(data: Bytes, rows: tuple[Rows, ...]) -> tuple[Bytes, int] | None:
    """The part of a host array that a transfer moves, and its offset, where it is worth staging."""
    offset, width, _, count = rows[0] if rows else Rows(0, len(data))
    return (data[offset : offset + width], offset) if len(rows) < 2 and count == 1 and width >= STAGE_FROM else None


def _behind(rows: tuple[Rows, ...], others: tuple[Rows, ...]) -> tuple[Rows, ...]:
    """Rows, and others whose first is the interval behind their last, as one where both are intervals."""
    last, first = rows[-1], others[0]
    return (*rows[:-1], Rows(last.offset, last.width + first.width), *others[1:])


class OpenCLBackend:
    """Runs commands on real devices. One run at a time; the session's memory and programs outlive it."""

    def __init__(self, machine: Machine, opened: Sequence[OpenDevice], profile: bool = True) -> None:
        self.machine = machine
        self.profile = profile
        self.drivers = [Driver(o, profile) for o in opened]
        contexts = [d.context for d in self.drivers]
        self.memory = Memory(machine, contexts, [d.new_queue() if d.stager else d.queues[0] for d in self.drivers])
        self.programs = Programs(machine, contexts, [d.cl for d in self.drivers])
        self.memory.unbind = self.programs.unbind
        self._inbox = Inbox(self.now)
        self._host: Worker | None = None
        self._caller: int | None = None  # the thread that runs a host function instead of waiting
        self._awaited = 0  # reports that are to come
        self._joining: list[Upload] = []  # they wait for the last of those that become one transfer

    # the seam

    def begin(self, graph: Graph, queues: Sequence[int]) -> None:
        offsets = []
        for driver, count in zip(self.drivers, queues, strict=True):
            driver.need_queues(count)
            offsets.append(driver.offset() if count or driver.stager else 0.0)
        self._graph = graph
        self._windows: Mapping[int, Window] = graph.notes.get("windows", {})
        self._events: dict[int, cl.Event] = {}
        self._inbox = Inbox(self.now)
        self._stopping = False
        self._joining = []
        self._awaited = 0
        _responsive.enter(self)
        self._begin = time.perf_counter()
        self.record = OpenCLRecord(graph, self.machine, self._begin, profiled=self.profile)
        self.record.offsets = offsets

    def now(self) -> float:
        return time.perf_counter() - self._begin

    def perform(self, commands: Sequence[Command]) -> None:
        touched: set[tuple[int, int]] = set()
        uploads: set[tuple[int, int]] = set()
        for index, command in enumerate(commands):
            if self._stopping:
                break  # what later commands rely on may never have been enqueued; the failure is on its way
            if isinstance(command, Evict):
                self.memory.set_aside(command.store, command.device)
                continue
            if isinstance(command, HostCall) or command.notify:
                self._awaited += 1
            try:
                if type(command) is Run:
                    self._run(command)
                    touched.add((command.device, command.queue))
                elif type(command) is Upload:
                    self._joining.append(command)
                    if index + 1 < len(commands) and self._continues(command, commands[index + 1]):
                        continue
                    joined, self._joining = self._joining, []
                    self._upload(joined)
                    uploads.add((command.device, command.queue))
                elif type(command) is Download:
                    self._download(command)
                elif type(command) is Copy:
                    self._copy(command)
                    touched.add((command.device, command.queue))
                else:
                    assert isinstance(command, HostCall)
                    self._call(command, alone=index + 1 == len(commands) and self._awaited == 1)
            except (cl.Error, ManyclError) as error:
                self._stopping = True
                self._inbox.put(Failed(command.token, self.now(), str(error)))
        for device, queue in uploads:  # before the queues that wait for them
            self.drivers[device].of_uploads(queue).flush()
        for device, queue in touched:
            self.drivers[device].queues[queue].flush()

    def wait(self) -> list[Report]:
        reports = self._inbox.wait()
        self._awaited -= len(reports)
        return reports

    def finish(self) -> OpenCLRecord:
        self._drain()
        _responsive.leave(self)
        self.record.find_failure(self.now())
        return self.record

    def abort(self) -> OpenCLRecord:
        self._stopping = True
        self._drain()
        _responsive.leave(self)
        return self.record

    def fetch(self, key: int, memory: int, rows: tuple[Rows, ...] = ()) -> None:
        """Outside a run: copy a buffer, or rows of it, from a device's memory to the host's, and wait for it."""
        device = next(i for i, d in enumerate(self.machine.devices) if d.memory == memory)
        driver = self.drivers[device]
        target, is_pinned = self.memory.download_target(key, bool(rows))
        buffer = self.memory.on_device(key, device)
        wanted = rows or (Rows(0, len(target)),)
        offset, width, _, count = wanted[0]
        if is_pinned or len(wanted) > 1 or count > 1 or width < STAGE_FROM or driver.stager is None:
            for event in copy_rows(driver.downloads, target, buffer, wanted, ()):
                event.wait()
        else:
            driver.stager.download(buffer, target[offset : offset + width], [], offset).result()

    def in_host_function(self) -> bool:
        """Whether the caller is a host function of the run that is under way."""
        return self._caller == threading.get_ident() or (self._host is not None and self._host.is_current())

    def close(self) -> None:
        """Stop the threads and wait for the devices. The back end cannot be used afterwards."""
        if self._host is not None:
            self._host.close()
        for driver in self.drivers:
            driver.close()

    # commands

    def _run(self, command: Run) -> None:
        driver = self.drivers[command.device]
        if driver.throttled:
            driver.submit(0, lambda: self._run_slowly(driver, command))
            return
        event = self._enqueue(driver, command)
        if command.notify:
            self._watch(command.device, command.queue, [command.token], event)

    def _enqueue(self, driver: Driver, command: Run) -> cl.Event:
        node, device, queue, after, _ = command
        launch = self._graph.nodes[node]
        assert isinstance(launch, Launch)
        chosen: Launch | Version = launch
        if launch.versions:
            chosen = self.record.versions[node] = self.programs.version(launch, device)
        kernel = self.programs.kernel(chosen.program, chosen.kernel.name, device)
        buffers = self.memory.buffers(device)
        held = kernel.held
        for index, arg in enumerate(launch.args):
            if type(arg) is BufferArg:
                buffer = buffers.get(arg.key) or self.memory.on_device(arg.key, device)
                if held[index] is not buffer:
                    kernel.set(index, buffer)
            elif held[index] != arg:
                kernel.set(index, arg)
        events = self._events
        event = _enqueue(
            driver.queues[queue],
            kernel.cl,
            chosen.global_size,
            chosen.local_size,
            launch.global_offset,
            [events[t] for t in after] if after else None,
        )
        events[node] = event
        self.record.kernels.append((node, device, queue, event))
        return event

    def _run_slowly(self, driver: Driver, command: Run) -> None:
        """On a slowed device's own thread: run, then sleep for the rest of the time a slow device would take."""
        if self._stopping:
            return
        try:
            event = self._enqueue(driver, command)
            event.wait()
            seconds = (event.get_profiling_info(_END) - event.get_profiling_info(_START)) * 1e-9
            time.sleep(seconds * (driver.device.slowdown - 1.0))
        except Exception as error:
            self._stopping = True  # a later command must not report that all before it is complete
            self._inbox.put(Failed(command.token, self.now(), str(error)))
            return
        if command.notify:
            self._inbox.put(Done(command.token, self.now()))

    def _continues(self, upload: Upload, command: Command) -> bool:
        """Whether a command uploads the bytes behind those of another upload: one transfer does for both."""
        if type(command) is not Upload or command[2:] != upload[2:] or upload.after:
            return False
        first, second = self._graph.buffers[upload.buffer], self._graph.buffers[command.buffer]
        if not isinstance(first, Piece) or not isinstance(second, Piece) or first.whole != second.whole:
            return False
        mine, theirs = first.rows[-1], second.rows[0]
        return mine.rows == theirs.rows == 1 and mine.offset + mine.width == theirs.offset

    def _upload(self, commands: Sequence[Upload]) -> None:
        """Transfer what several uploads need, each the bytes behind those of the one before."""
        first = commands[0]
        driver = self.drivers[first.device]
        key, rows = self._what(first.buffer)
        for command in commands[1:]:
            rows = _behind(rows, self._what(command.buffer)[1])
        source, is_pinned = self.memory.upload_source(key)
        buffer, source, rows = self._ends(key, first, source, rows)
        after = [self._events[t] for t in first.after]
        part = _staged_part(source, rows) if not is_pinned and driver.stager is not None else None
        if part is None or driver.stager is None:
            events = copy_rows(driver.of_uploads(first.queue), buffer, source, rows or (Rows(0, len(source)),), after)
            event = events[-1]  # the queue is in order: all are complete when this is
            self._events.update((command.token, event) for command in commands)
            self.record.transfers.append((tuple(c.buffer for c in commands), first.device, True, events))
            if first.notify:
                self._watch(first.device, first.queue, [c.token for c in commands], event)
            return
        arrived = cl.UserEvent(driver.context)
        self._events.update((command.token, arrived) for command in commands)
        future = driver.stager.upload(buffer, part[0], after, part[1])
        future.add_done_callback(lambda f: self._staged(f, commands, True, arrived))

    def _download(self, command: Download) -> None:
        driver = self.drivers[command.device]
        if driver.throttled and command.after:  # what it waits for is enqueued by that thread, perhaps not yet
            driver.submit(0, lambda: self._download_slowly(driver, command))
        else:
            self._download_from(driver, command)

    def _download_slowly(self, driver: Driver, command: Download) -> None:
        """On a slowed device's own thread, behind the kernels."""
        if self._stopping:
            return
        try:
            self._download_from(driver, command)
        except Exception as error:
            self._stopping = True
            self._inbox.put(Failed(command.token, self.now(), str(error)))

    def _download_from(self, driver: Driver, command: Download) -> None:
        key, rows = self._what(command.buffer)
        target, is_pinned = self.memory.download_target(key, bool(rows))
        buffer, target, rows = self._ends(key, command, target, rows)
        after = [self._events[t] for t in command.after]
        part = _staged_part(target, rows) if not is_pinned and driver.stager is not None else None
        if part is None or driver.stager is None:
            events = copy_rows(driver.downloads, target, buffer, rows or (Rows(0, len(target)),), after)
            driver.downloads.flush()
            event = self._events[command.token] = events[-1]
            self.record.transfers.append(((command.buffer,), command.device, False, events))
            self._watch(command.device, DOWNLOAD_QUEUE, [command.token], event)
            return
        for queue in driver.queues:
            queue.flush()
        future = driver.stager.download(buffer, part[0], after, part[1])
        future.add_done_callback(lambda f: self._staged(f, [command], False, None))

    def _copy(self, command: Copy) -> None:
        driver = self.drivers[command.device]
        if driver.throttled:  # what it waits for is enqueued by that thread, perhaps not yet
            driver.submit(0, lambda: self._copy_within(driver, command))
        else:
            self._copy_within(driver, command)

    def _copy_within(self, driver: Driver, command: Copy) -> None:
        """Between two stores of a device."""
        if self._stopping:
            return
        key, rows = self._what(command.buffer)
        ends = []
        for store in (command.source, command.target):
            window = self._windows.get(store)
            ends.append((self.memory.on_device(store, command.device), 0 if window is None else window.low))
        after = [self._events[t] for t in command.after]
        given = rows or (Rows(0, self.memory.nbytes(key)),)
        try:
            self._events[command.token] = copy_inside(driver.queues[command.queue], *ends[0], *ends[1], given, after)
        except cl.Error as error:
            self._stopping = True
            self._inbox.put(Failed(command.token, self.now(), str(error)))

    def _ends(
        self, key: int, command: Upload | Download, data: Bytes, rows: tuple[Rows, ...]
    ) -> tuple[cl.Buffer, Bytes, tuple[Rows, ...]]:
        """The device's end of a transfer; the host's, and the rows, from the byte on that the former begins with."""
        window = self._windows.get(command.store) if command.store is not None else None
        if window is None:
            return self.memory.on_device(key, command.device), data, rows
        shifted = tuple(row._replace(offset=row.offset - window.low) for row in rows)
        return self.memory.on_device(window.key, command.device), data[window.low :], shifted

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
            self.record.transfers.append((keys, commands[0].device, is_upload, future.result()))
        if arrived is not None:
            arrived.set_status(cl.command_execution_status.COMPLETE if error is None else -1)
        for command in commands:
            if error is not None:
                self._inbox.put(Failed(command.token, self.now(), str(error)))
            elif command.notify:
                self._inbox.put(Done(command.token, self.now()))

    def _call(self, command: HostCall, alone: bool) -> None:
        """``alone``: nothing else will be heard of before the function has returned, so nobody need stay to listen."""
        if alone:
            self._caller = threading.get_ident()
            try:
                self._call_now(command.token)
            finally:
                self._caller = None
            return
        if self._host is None:
            self._host = Worker("manycl-host")
        self._host.submit(lambda: self._call_now(command.token))

    def _call_now(self, node: int) -> None:
        if self._stopping:
            return
        task = self._graph.nodes[node]
        assert isinstance(task, HostTask)
        start = self.now()
        try:
            task.function(*(self.memory.host(a.key) if isinstance(a, BufferArg) else a for a in task.args))
        except BaseException as error:  # also SystemExit: a thread that ends without a word would be waited for forever
            if self._caller is not None and isinstance(error, KeyboardInterrupt):
                raise  # the user stops the run, not the function
            self._stopping = True
            self._inbox.put(Failed(node, self.now(), f"{type(error).__name__}: {error}"))
            return
        end = self.now()
        self.record.hosts.append((node, start, end))
        self._inbox.put(Done(node, end))

    def _watch(self, device: int, queue: int, tokens: Sequence[int], event: cl.Event) -> None:
        """Report when an event is complete that stands for commands."""
        driver = self.drivers[device]
        if driver.watched:
            self._inbox.watch(device, queue, tokens, event)
        else:
            driver.submit(queue, lambda: self._await(tokens, event))

    def _await(self, tokens: Sequence[int], event: cl.Event) -> None:
        """On a device's thread: block until what an event stands for is complete, then say so."""
        try:
            event.wait()
        except cl.Error as error:
            self._inbox.put(Failed(tokens[0], self.now(), str(error)))
            return
        now = self.now()
        for token in tokens:
            self._inbox.put(Done(token, now))

    def _drain(self) -> None:
        """Wait until no thread of ours works and no queue holds anything."""
        for driver in self.drivers:
            if driver.throttled and 0 in driver.workers:  # its own thread gives the others work
                driver.workers[0].settle()
        workers = [worker for driver in self.drivers for worker in driver.workers.values()]
        # one after another they would cost a change of threads each
        for mark in [worker.mark() for worker in (*workers, *([self._host] if self._host is not None else []))]:
            mark.wait()
        for driver in self.drivers:
            if driver.stager is not None:
                driver.stager.settle()
        self.settle()

    def settle(self) -> None:
        """Wait until no queue holds anything."""
        for driver in self.drivers:
            for queue in (*driver.queues, driver.uploads, driver.ahead, driver.downloads):
                try:
                    queue.finish()
                except cl.Error:
                    continue  # after a failure the driver may refuse; the failure itself has been reported
