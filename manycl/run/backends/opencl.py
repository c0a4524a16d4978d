"""The OpenCL back end: one context and several in-order queues a device, no callbacks.

The engine's thread enqueues everything, and looks after what devices with cores of their own were given (``inbox``).
Each queue of a CPU has a thread that blocks in ``clWaitForEvents`` (which releases the GIL) for the commands that
somebody must hear of; all other order is kept by the queues and by event wait lists. The kernels of a device with a
slow-down factor are enqueued by a thread of its own instead, one after another.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

import pyopencl as cl

from manycl.errors import ManyclError
from manycl.graph.graph import BufferArg, Graph, HostTask, Launch, Rows, Version
from manycl.machine import Machine
from manycl.run.backend import (
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
    continues,
)
from manycl.run.backends.copies import copy_rows
from manycl.run.backends.inbox import Inbox
from manycl.run.backends.memory import Memory
from manycl.run.backends.moves import Moved, Moves
from manycl.run.backends.platforms import OpenDevice
from manycl.run.backends.programs import Programs
from manycl.run.backends.queues import Driver, Worker
from manycl.run.backends.record import OpenCLRecord
from manycl.run.backends.responsive import responsive
from manycl.run.backends.staging import STAGE_FROM

_START = cl.profiling_info.START
_END = cl.profiling_info.END
_enqueue = cl.enqueue_nd_range_kernel

KEPT_GRAPHS = 8  # whose transfers are known from the last time


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
        # what was found of transfers, by graph: of several that run in turns
        self._joined: deque[tuple[weakref.ref[Graph], dict[tuple[int | None, ...], Moved]]] = deque(maxlen=KEPT_GRAPHS)

    def use(self, profile: bool) -> None:
        """From the next run on: whether commands are timed by the devices' clocks."""
        if profile != self.profile:
            self.profile = profile
            for driver in self.drivers:
                driver.use(profile)

    # the seam

    def begin(self, graph: Graph, queues: Sequence[int]) -> None:
        offsets = []
        for driver, count in zip(self.drivers, queues, strict=True):
            driver.need_queues(count)
            offsets.append(driver.offset() if count or driver.stager else 0.0)
        self._graph = graph
        self._events: dict[int, cl.Event] = {}
        self._inbox = Inbox(self.now)
        self.stopping = False
        self._awaited = 0
        responsive.enter(self)
        self._begin = time.perf_counter()
        self.record = OpenCLRecord(graph, self.machine, self._begin, profiled=self.profile)
        self.record.offsets = offsets
        joined = next((found for known, found in self._joined if known() is graph), None)
        if joined is None:
            joined = {}
            self._joined.append((weakref.ref(graph), joined))
        self._moves = Moves(self, graph, self.memory, self.drivers, self.record, self._events, joined)

    def now(self) -> float:
        return time.perf_counter() - self._begin

    def perform(self, commands: Sequence[Command]) -> None:
        touched: set[tuple[int, int]] = set()
        uploads: set[tuple[int, int]] = set()
        joining: list[Any] = []  # they wait for the last of those that become one transfer
        for index, command in enumerate(commands):
            if self.stopping:
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
                elif type(command) is Upload or type(command) is Download or type(command) is Copy:
                    joining.append(command)
                    if index + 1 < len(commands) and continues(self._graph, command, commands[index + 1]):
                        continue
                    together, joining = joining, []
                    if type(command) is Upload:
                        self._moves.upload(together)
                    elif type(command) is Copy:
                        self._moves.copy(together)
                    else:
                        self._moves.download(together)
                    if command.queue >= 0:
                        touched.add((command.device, command.queue))
                    elif type(command) is Upload:
                        uploads.add((command.device, command.queue))
                else:
                    assert isinstance(command, HostCall)
                    self._call(command, alone=index + 1 == len(commands) and self._awaited == 1)
            except (cl.Error, ManyclError) as error:
                self.fail(command.token, error)
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
        try:
            for driver in self.drivers:
                driver.settle()
        except cl.Error:
            return self.abort()
        responsive.leave(self)
        self.record.find_failure(self.now())
        return self.record

    def abort(self) -> OpenCLRecord:
        self.stopping = True
        self._drain()
        for driver in self.drivers:
            driver.finish()
        responsive.leave(self)
        self.record.find_failure(self.now())
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
            self.watch(command.device, command.queue, [command.token], event)

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
        # what became one transfer has one event
        before = {id(e): e for e in [events[t] for t in after]} if after else {}
        event = driver.latest[queue] = _enqueue(
            driver.queues[queue],
            kernel.cl,
            chosen.global_size,
            chosen.local_size,
            launch.global_offset,
            list(before.values()) or None,
        )
        events[node] = event
        self.record.kernels.append((node, device, queue, event))
        return event

    def _run_slowly(self, driver: Driver, command: Run) -> None:
        """On a slowed device's own thread: run, then sleep for the rest of the time a slow device would take."""
        if self.stopping:
            return
        try:
            event = self._enqueue(driver, command)
            event.wait()
            seconds = (event.get_profiling_info(_END) - event.get_profiling_info(_START)) * 1e-9
            time.sleep(seconds * (driver.device.slowdown - 1.0))
        except Exception as error:
            self.fail(command.token, error)
            return
        if command.notify:
            self.complete(command.token)

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
        if self.stopping:
            return
        task = self._graph.nodes[node]
        assert isinstance(task, HostTask)
        start = self.now()
        try:
            task.function(*(self.memory.host(a.key) if isinstance(a, BufferArg) else a for a in task.args))
        except BaseException as error:  # also SystemExit: a thread that ends without a word would be waited for forever
            if self._caller is not None and isinstance(error, KeyboardInterrupt):
                raise  # the user stops the run, not the function
            self.fail(node, f"{type(error).__name__}: {error}")
            return
        end = self.now()
        self.record.hosts.append((node, start, end))
        self._inbox.put(Done(node, end))

    def complete(self, token: int) -> None:
        """A thread says that a command is."""
        self._inbox.put(Done(token, self.now()))

    def fail(self, token: int, error: object) -> None:
        """A command failed: nothing more is enqueued, and no later command may report that all before it is
        complete."""
        self.stopping = True
        self._inbox.put(Failed(token, self.now(), str(error)))

    def watch(self, device: int, queue: int, tokens: Sequence[int], event: cl.Event) -> None:
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
        """Wait until no thread of ours works."""
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
