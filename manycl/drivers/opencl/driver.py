"""The OpenCL driver: in-order queues, no callbacks. Devices that are used together have a context in common, so that
they wait for each other's commands; a buffer is used by queues of one device only."""

from __future__ import annotations

import re
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from manycl.drivers.driver import BuildError, Bytes, DirectLaunch, DirectQueue, DriverError, End, Source
from manycl.drivers.native.compiler.library import library
from manycl.drivers.opencl.copies import copy_rows, read_buffer, write_buffer
from manycl.drivers.opencl.launches import QueueLaunches, direct_launch
from manycl.drivers.opencl.quiet import new_kernel, quiet
from manycl.drivers.opencl.real import cl
from manycl.drivers.opencl.relays import Relay
from manycl.drivers.opencl.staging import Failures, Staged, Stager, pin, staged_part
from manycl.graph.graph import LocalArg
from manycl.machine import HOST, Device
from manycl.region import Rectangle

CALIBRATE_EVERY = 2.0  # seconds; device clocks drift against the host's
LEAVE_OUT = "leave the device out: --devices, MANYCL_DEVICES"

_START = cl.profiling_info.START
_END = cl.profiling_info.END
_SIZE = cl.kernel_work_group_info.WORK_GROUP_SIZE
_enqueue = cl.enqueue_nd_range_kernel


class _Translated:
    """``with translated:`` what PyOpenCL raises becomes a DriverError."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, cl.Error):
            raise DriverError(str(error)) from None


translated = _Translated()


class OpenCLKernel:
    """A kernel object. Setting and enqueueing are what runs consist of: no more is done there than has to be."""

    __slots__ = ("_set_bytes", "cl", "most_items", "name")

    def __init__(self, kernel: cl.Kernel, name: str, most_items: int) -> None:
        self.cl = kernel
        self.name = name
        self.most_items = most_items
        # set_arg tries every kind of object before it takes bytes for bytes, which costs 6 us (PyOpenCL 2026)
        self._set_bytes: Callable[[int, bytes], None] = getattr(kernel, "_set_arg_buf", kernel.set_arg)

    def set(self, index: int, value: Any) -> None:
        try:
            if type(value) is bytes:
                self._set_bytes(index, value)
            else:
                self.cl.set_arg(index, cl.LocalMemory(value.nbytes) if type(value) is LocalArg else value)
        except cl.Error as error:
            raise DriverError(str(error)) from None


class CommonContext:
    """The context of several devices of a platform, made when the first of them is opened."""

    def __init__(self) -> None:
        self.devices: list[cl.Device] = []
        self.failures = Failures()

    @cached_property
    def context(self) -> cl.Context:
        return cl.Context(self.devices)


class OpenCLDriver:
    """``device`` is the handle of a device or sub-device. ``common``: the context that it has in common with others
    (None: it has one of its own)."""

    is_interruptible = False
    slows_down = False
    needs_shared_memory = may_be_lost = tells_when_lost = False
    has_crashed = False

    def __init__(self, handle: cl.Device, device: Device, common: CommonContext | None = None) -> None:
        self.device = device
        self.cl = handle
        try:
            self.context = common.context if common is not None else cl.Context([handle])
        except cl.Error as error:
            raise DriverError(f"{device.name} cannot be opened: {error}", hint=LEAVE_OUT) from None
        self.is_polled = device.kind != "cpu"
        if not self.is_polled:
            with suppress(DriverError):  # there is no compiler: then nobody tells of faults
                library()
        self._queues: list[cl.CommandQueue] = []
        self._launches: dict[cl.CommandQueue, QueueLaunches] = {}
        self._launched: QueueLaunches | None = None
        """The launches of the queue that was used last."""
        self._relays = WeakKeyDictionary[OpenCLDriver, Relay]()
        """By the driver of the device that bytes leave."""
        self._failures = common.failures if common is not None else Failures()
        # GPUs' drivers take the bytes of ordinary memory before a call returns, while other devices get nothing
        self._holds_up = self.is_polled and common is not None and len(common.devices) > 1
        self._stager = Stager(self.context, self._new_queue(), self._failures) if device.memory != HOST else None
        # of the clock: a queue that nobody else enqueues on (PoCL 3.0 crashes when several threads enqueue on one queue
        # at once)
        self._own_queue: cl.CommandQueue | None = None
        self._owning = threading.Lock()
        self._offset = 0.0
        self._calibrated = float("-inf")

    # memory

    def allocate(self, nbytes: int, host: Bytes | None = None) -> cl.Buffer:
        flags = cl.mem_flags
        with translated:
            if host is not None:
                return cl.Buffer(self.context, flags.READ_WRITE | flags.USE_HOST_PTR, hostbuf=host)
            return cl.Buffer(self.context, flags.READ_WRITE, nbytes)

    def part(self, allocation: cl.Buffer, offset: int, nbytes: int) -> cl.Buffer:
        with translated:
            return allocation.get_sub_region(offset, nbytes)

    def free(self, allocation: cl.Buffer) -> None:
        with suppress(cl.Error):  # the device may be lost
            allocation.release()

    def pin(self, data: Bytes) -> object:
        with translated:
            return pin(self.context, data)

    # programs

    def build(self, source: Source) -> cl.Program:
        options = [*source.options, f"-I{source.folder}"]
        if mixes_up(self.cl.platform.version):
            options.append(f"-DMANYCL_DEVICE={zlib.crc32(self.device.name.encode())}")
        built = cl.Program(self.context, source.text)
        try:
            with quiet:
                built.build(options, devices=[self.cl])
        except cl.Error as error:
            log = _log(built, self.cl) if _of_build(error) else ""  # else there is no program
            raise BuildError(log or str(error)) from None
        return built

    def kernel(self, program: cl.Program, name: str) -> OpenCLKernel:
        try:
            kernel = new_kernel(program, name)
            return OpenCLKernel(kernel, name, kernel.get_work_group_info(_SIZE, self.cl))
        except cl.Error as error:
            raise DriverError(
                str(error),
                hint="PoCL refuses kernels that are called like a built-in function (step, mix, …): rename it. If it is"
                " not, PoCL's cache is damaged: remove it (POCL_CACHE_DIR, else pocl in the user's cache folder)",
            ) from None

    def function(self, function: Callable[..., None], arguments: int) -> OpenCLKernel:
        raise DriverError("OpenCL's drivers call no functions of Python", hint="native devices do: --devices native")

    # commands

    def queue(self, timed: bool) -> cl.CommandQueue:
        queue = self._new_queue(timed)
        self._queues.append(queue)
        return queue

    def launch(
        self,
        queue: cl.CommandQueue,
        kernel: Any,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...] | None,
        offset: tuple[int, ...] | None,
        after: Sequence[cl.Event] | None,
    ) -> cl.Event:
        if after:
            with translated, self._failures.lock:
                self._failures.refuse(after)
                return self._launch(queue, kernel, global_size, local_size, offset, after)
        return self._launch(queue, kernel, global_size, local_size, offset, None)

    def _launch(self, queue: cl.CommandQueue, kernel: Any, *how: Any) -> cl.Event:
        try:
            if self.is_polled:
                return _enqueue(queue, kernel.cl, *how)
            launched, noted = self._launched, (kernel, *how[:2])  # it runs in this process's threads
            if launched is None or queue is not launched.queue:
                launched = self._launched = self._launches_on(queue)
            if noted != launched.noted or launched.is_direct:
                launched.note(noted, self._words(*noted))
            launched.last = event = _enqueue(queue, kernel.cl, *how)
            return event
        except cl.Error as error:
            raise DriverError(str(error)) from None

    def copy(
        self, queue: cl.CommandQueue, target: End, source: End, rows: Sequence[Rectangle], after: Sequence[cl.Event]
    ) -> Sequence[cl.Event]:
        with translated, self._failures.lock:
            self._failures.refuse(after)
            if isinstance(source.owner, OpenCLDriver):
                return self._relay(source.owner, queue, target, source, rows, after)
            part = staged_part(target, source, rows, self._holds_up) if self._stager is not None else None
            if self._stager is not None and part is not None:
                # the thread that waits for what was given before is not the one that will send that
                before = self._mark(queue, after)
                for other in self._queues:
                    other.flush()
                staged = Staged(self.context)
                staged.offset = self._offset
                # first: PoCL 3.0 never finishes a queue with a barrier that comes behind what has failed already
                staged.kept = before, cl.enqueue_barrier(queue, wait_for=[staged])
                self._stager.start(queue.int_ptr, part, before, staged)
                return [staged]
            return copy_rows(queue, target, source, rows, after) or [self._mark(queue, after)]

    def _relay(
        self,
        other: OpenCLDriver,
        queue: cl.CommandQueue,
        target: End,
        source: End,
        rows: Sequence[Rectangle],
        after: Sequence[cl.Event],
    ) -> Sequence[cl.Event]:
        """Enqueue a copy from the memory of another device of the context."""
        relay = self._relays.get(other) or self._relays.setdefault(other, Relay(self.context))
        leaving = relay.leaving.get(queue.int_ptr) or relay.leaving.setdefault(queue.int_ptr, other.queue(timed=True))
        there, here = list[cl.Event](), list[cl.Event]()
        for event in after:
            given = event.command_queue  # (a staged transfer has none)
            if given in self._queues:
                here.append(event)  # it delays the write alone
                continue
            there.append(event)
            if given is not None:
                given.flush()  # else the read may never begin
        return relay.copy(leaving, queue, target, source, rows, (there, here)) or [self._mark(queue, after)]

    def _mark(self, queue: cl.CommandQueue, after: Sequence[cl.Event]) -> cl.Event:
        """Return what is complete when all that a queue was given is, and some events. NVIDIA's driver says of a
        marker, as of a kernel, that it is complete only once kernels of other queues have ended that began before; of a
        barrier it says so at once (benchmarks/devices.py drivers, ``marker_us``, ``barrier_us``). PoCL 3.0 never
        finishes one behind what has failed."""
        if not self.is_polled:
            return cl.enqueue_marker(queue, wait_for=list(after) or None)
        if after:
            cl.enqueue_barrier(queue, wait_for=list(after))
        return cl.enqueue_barrier(queue)

    def read(self, queue: cl.CommandQueue, out: Bytes, source: cl.Buffer, low: int) -> cl.Event:
        with translated:
            return read_buffer(queue, source, out, low, None, True)

    def download(self, queue: cl.CommandQueue, out: Bytes, source: cl.Buffer, low: int) -> cl.Event:
        if not low:  # many bytes may go by pinned memory
            return self.copy(queue, End(out), End(source), (Rectangle(0, len(out)),), ())[-1]
        with translated:
            return read_buffer(queue, source, out, low, None, False)

    def write(self, queue: cl.CommandQueue, target: cl.Buffer, data: Bytes, low: int) -> cl.Event:
        with translated:
            return write_buffer(queue, target, data.copy(), low, None, False)

    def fill(
        self,
        queue: cl.CommandQueue,
        target: cl.Buffer,
        pattern: bytes,
        offset: int,
        nbytes: int,
        after: Sequence[cl.Event],
    ) -> cl.Event:
        with translated, self._failures.lock:
            self._failures.refuse(after)
            return cl.enqueue_fill_buffer(queue, target, pattern, offset, nbytes, wait_for=list(after) or None)

    def flush(self, queue: cl.CommandQueue) -> None:
        with translated:
            queue.flush()

    def finish(self) -> None:
        if self._stager is not None:
            self._stager.settle()
        for queue in list(self._queues):
            with suppress(cl.Error):  # the driver may refuse; the failure itself has been reported
                queue.finish()

    # events

    def done(self, event: cl.Event) -> bool:
        try:
            status = event.command_execution_status
        except cl.Error as error:
            raise DriverError(str(error)) from None
        if status > 0:
            return False
        if status < 0:
            failure = event.failure if isinstance(event, Staged) else ""
            raise DriverError(failure or f"the driver ended it with status {status}")
        self._settle()
        return True

    def succeeded(self, events: Sequence[cl.Event]) -> bool:
        try:
            have = not any([event.command_execution_status for event in events])  # noqa: C419 (a third quicker)
        except cl.Error:
            return False
        if have:
            self._settle()
        return have

    def wait(self, event: cl.Event) -> None:
        if isinstance(event, Staged):  # drivers differ in what waiting for such an event that fails does
            event.over.wait()
            if event.failure:
                raise DriverError(event.failure)
            return
        try:
            event.wait()
        except cl.Error as error:
            raise DriverError(str(error)) from None
        self._settle()

    def _launches_on(self, queue: cl.CommandQueue) -> QueueLaunches:
        found = self._launches.get(queue)
        return found or self._launches.setdefault(queue, QueueLaunches(queue, is_noted=not self.is_polled))

    def _words(self, kernel: OpenCLKernel, global_size: tuple[int, ...], local_size: tuple[int, ...] | None) -> str:
        """Return what is told of a launch if it ends the process."""
        groups = local_size or "chosen by the driver"
        return f"kernel {kernel.name} on {self.device.name}, global size {global_size}, work-groups {groups}"

    def _settle(self) -> None:
        """Forget what was noted of queues whose last launch is complete."""
        for launched in list(self._launches.values()):
            launched.settle()

    def direct_queue(self, queue: cl.CommandQueue) -> DirectQueue | None:
        return self._launches_on(queue).direct()

    def direct_launch(
        self, kernel: Any, like: Any, global_size: tuple[int, ...], local_size: tuple[int, ...] | None
    ) -> DirectLaunch | None:
        return direct_launch(kernel.cl, global_size, local_size, self._words(kernel, global_size, local_size))

    def times(self, event: cl.Event) -> tuple[float, float]:
        if isinstance(event, Staged):
            return event.began - event.offset, event.ended - event.offset
        with translated:
            for other in self._relays or ():  # (to find that there are none takes longer)
                if event.command_queue in other._queues:  # the beginning of what came from there, by this clock
                    start, end = other.times(event)
                    return start + other._offset - self._offset, end + other._offset - self._offset
            return event.get_profiling_info(_START) * 1e-9, event.get_profiling_info(_END) * 1e-9

    def clock(self) -> float | None:
        """A marker's ``queued`` time lies between two readings of the host's clock (Intel's driver leaves it at 0: then
        its ``submit`` time, and the second reading comes after the marker is complete). The narrowest is kept."""
        if time.perf_counter() - self._calibrated >= CALIBRATE_EVERY:
            try:
                with self._owning:
                    self._calibrate()
            except (cl.Error, DriverError):  # of the device, or of its clock: the run's own commands will tell
                return None
            self._calibrated = time.perf_counter()
        return self._offset

    def _calibrate(self) -> None:
        best = float("inf")
        for _ in range(5):
            before = time.perf_counter()
            event = cl.enqueue_marker(self._mine())
            after = time.perf_counter()
            event.wait()
            try:
                stamp = event.get_profiling_info(cl.profiling_info.QUEUED)
                if not stamp:
                    stamp = event.get_profiling_info(cl.profiling_info.SUBMIT)
                    after = time.perf_counter()
            except cl.Error:
                break  # a driver without times for markers: its clock is taken for the host's
            if after - before < best:
                best = after - before
                self._offset = (before + after) / 2 - stamp * 1e-9

    def release(self) -> None:
        if self._stager is not None:
            self._stager.close()

    def _mine(self) -> cl.CommandQueue:
        if self._own_queue is None:
            self._own_queue = self._new_queue(timed=True)
        return self._own_queue

    def _new_queue(self, timed: bool = False) -> cl.CommandQueue:
        """Always for this device by name: a context made of a sub-device may list its parent (seen with PoCL 3)."""
        properties = cl.command_queue_properties.PROFILING_ENABLE if timed else 0
        try:
            return cl.CommandQueue(self.context, self.cl, properties=properties)
        except cl.Error as error:
            raise DriverError(f"{self.device.name} gives no more queues: {error}", hint=LEAVE_OUT) from None


def mixes_up(version: str) -> bool:
    """Return whether several devices of a platform need programs of their own. PoCL 5.0 aborts
    (pocl_release_dlhandle_cache) when two of them run one kernel at once, one with a global offset and one without; 3.0
    and 3.1 do not."""
    found = re.search(r"PoCL (\d+)", version, re.IGNORECASE)
    return found is not None and int(found[1]) >= 4


def _of_build(error: cl.Error) -> bool:
    """Return whether it was the compiler that failed."""
    try:
        return bool(error.routine == "clBuildProgram")
    except AttributeError:  # PyOpenCL's own, which have words only
        return False


def _log(program: cl.Program, device: cl.Device) -> str:
    try:
        return str(program.get_build_info(device, cl.program_build_info.LOG)).strip()
    except cl.Error:
        return ""
