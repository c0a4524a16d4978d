"""The driver of native devices: threads of this process, which call compiled code."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import weakref
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from manycl.drivers.addresses import address_of
from manycl.drivers.driver import Bytes, DirectLaunch, DirectQueue, DriverError, End, RecordedCommand, Source, Values
from manycl.drivers.native.calls import FunctionKernel, PythonCalls
from manycl.drivers.native.compiler.compiled import Compile, NativeProgram
from manycl.drivers.native.compiler.library import Library, library
from manycl.drivers.native.elsewhere import Elsewhere, NotNativeError
from manycl.drivers.native.kernel import NativeMemory, SetKernel, address_in, check_fill, new_bytes
from manycl.drivers.native.queue import COMPLETED, FAILED, FORKED, GIVEN, TIMES, NativeEvent, NativeQueue, settle
from manycl.drivers.native.recording import BoundSteps, RecordedSteps, record
from manycl.errors import anew
from manycl.group_range import RangeParts
from manycl.machine import HOST, Device
from manycl.region import Rectangle

_ONE_RECTANGLE, _ONE_WAIT = struct.Struct("@5Q"), struct.Struct("@2Q")
_IN_PARTS, _BESIDE = 1 << 62, 1 << 63
"""Beside the number of waits: as in runtime/runtime.c."""
_ORDERED = platform.machine() in ("x86_64", "AMD64")
"""Whether the processor reads memory in order; else what tells of an end is asked for by a call, which sees to it."""


class NativeDriver:
    """``cores``: of each of its threads (-1: any)."""

    is_polled = False
    is_interruptible = True
    slows_down = True
    needs_shared_memory = may_be_lost = tells_when_lost = False
    has_crashed = False

    def __init__(
        self, device: Device, cores: Sequence[int], compile_source: Compile, elsewhere: Elsewhere | None = None
    ) -> None:
        self.device = device
        self._elsewhere = elsewhere
        self._calls = PythonCalls()
        self._compile = compile_source
        self._library = library()
        numbers = (ctypes.c_int * len(cores))(*cores)
        slower = round(1024 * (device.slowdown - 1.0))
        address = self._library.open(ctypes.addressof(numbers), len(cores), slower)
        if not address:
            raise DriverError(f"{device.name} cannot be opened: the system gives no memory, or no more threads")
        self._address: int = address
        self._process = os.getpid()
        self._close = weakref.finalize(self, _close, self._library, address, self._process)
        self._queues: weakref.WeakSet[NativeQueue] = weakref.WeakSet()
        self._launch = self._library.launch

    # memory

    def allocate(self, nbytes: int, host: Bytes | None = None) -> NativeMemory:
        if host is not None:
            if self.device.memory != HOST:
                raise DriverError(f"{self.device.name} has a memory of its own")
            return NativeMemory(address_of(host), nbytes, host)
        data, address = new_bytes(nbytes)
        return NativeMemory(address, nbytes, data)

    def part(self, allocation: NativeMemory, offset: int, nbytes: int) -> NativeMemory:
        if offset < 0 or offset + nbytes > allocation.nbytes or offset % self.device.alignment:
            raise DriverError(f"{nbytes} bytes from {offset} on are no part of {allocation.nbytes} bytes")
        return NativeMemory(allocation.address + offset, nbytes, allocation)

    def free(self, allocation: NativeMemory) -> None:
        allocation.kept = None

    def pin(self, data: Bytes) -> object:
        return None

    # programs

    def build(self, source: Source) -> tuple[Source, NativeProgram]:
        return source, self._compile(source, self.device)

    def kernel(self, program: tuple[Source, NativeProgram], name: str) -> SetKernel:
        source, compiled = program
        kernel = compiled.kernel(name)
        reason = kernel.refused
        if isinstance(reason, NotNativeError):
            if self._elsewhere is None:
                raise anew(reason)
            self._elsewhere.kernel(source, name, reason)
        return SetKernel(kernel, self.device.name, source)

    def function(self, function: Callable[..., None], arguments: int) -> FunctionKernel:
        return FunctionKernel(function, arguments)

    # commands

    def queue(self, timed: bool) -> NativeQueue:
        self._ask()
        queue = NativeQueue(self._library, self._address, timed)
        self._queues.add(queue)
        return queue

    def launch(
        self,
        queue: NativeQueue,
        kernel: Any,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...] | None,
        offset: tuple[int, ...] | None,
        after: Sequence[NativeEvent] | None,
        parts: RangeParts | None = None,
        how: int = 0,
    ) -> NativeEvent:
        if type(kernel) is FunctionKernel:
            return self._call(queue, kernel.job(global_size, offset), kernel.uses(), after)
        try:
            shape = kernel.shape(global_size, local_size, offset)
        except NotNativeError as reason:
            return self._launch_elsewhere(queue, kernel, (global_size, local_size, offset), after, reason)
        queue.keep(kernel.uses())
        waits, count = _waits(after) if after else (None, 0)
        number = self._launch(queue.address, shape.address, kernel.values, waits, count | how)
        if parts is not None:
            queue.may_stop(number, shape.stops(parts))
        return (queue, number, queue.times) if number else queue.event(number)

    def launch_in_parts(
        self,
        queue: NativeQueue,
        kernel: Any,
        global_size: tuple[int, ...],
        local_size: Any,
        offset: Any,
        after: Any,
        parts: RangeParts,
        is_beside: bool = False,
    ) -> NativeEvent:
        how = _IN_PARTS | _BESIDE if is_beside else _IN_PARTS
        return self.launch(queue, kernel, global_size, local_size, offset, after, parts, how)

    def shorten(self, event: NativeEvent) -> tuple[int, float] | None:
        queue, number, _ = event
        return queue.shorten(number)

    def _launch_elsewhere(
        self, queue: NativeQueue, kernel: SetKernel, ndrange: Any, after: Any, reason: NotNativeError
    ) -> NativeEvent:
        other = self._elsewhere
        if other is None or kernel.source is None:
            raise reason
        job = other.launch(kernel.source, kernel, ndrange, reason)
        return self._call(queue, job, (other, *kernel.set_values().values()), after)

    def _call(self, queue: NativeQueue, job: Callable[[], None], uses: tuple[object, ...], after: Any) -> NativeEvent:
        """Python is called when its turn comes."""
        calls = self._calls
        token = calls.enter(job)
        queue.keep((calls, *uses))
        waits, count = _waits(after) if after else (None, 0)
        number = self._launch(queue.address, calls.shape, struct.pack("@Q", token), waits, count)
        queue.calls_python(number, calls.faults, token)
        return queue.event(number)

    def copy(
        self,
        queue: NativeQueue,
        target: End,
        source: End,
        rectangles: Sequence[Rectangle],
        after: Sequence[NativeEvent],
    ) -> Sequence[NativeEvent]:
        if len(rectangles) == 1 and rectangles[0].rows == 1:
            offset, width, *_ = rectangles[0]
            into = address_in(target, offset, width)
            packed: Any = _ONE_RECTANGLE.pack(into, address_in(source, offset, width), width, 0, 1)
        else:
            rows = array("Q")
            for rect in rectangles:
                span = rect.end - rect.offset
                ends = address_in(target, rect.offset, span), address_in(source, rect.offset, span)
                rows.extend((*ends, rect.width, rect.pitch, rect.rows))
            packed = rows.buffer_info()[0]
        queue.keep((target.memory, source.memory))
        waits, count = _waits(after) if after else (None, 0)
        number = self._library.copy(queue.address, packed, len(rectangles), waits, count)
        return ((queue, number, queue.times) if number else queue.event(number),)

    def read(self, queue: NativeQueue, out: Bytes, source: NativeMemory, low: int) -> NativeEvent:
        event = self.download(queue, out, source, low)
        self.wait(event)
        return event

    def download(self, queue: NativeQueue, out: Bytes, source: NativeMemory, low: int) -> NativeEvent:
        return self.copy(queue, End(out, low), End(source), (Rectangle(low, len(out)),), ())[0]

    def write(self, queue: NativeQueue, target: NativeMemory, data: Bytes, low: int) -> NativeEvent:
        return self.copy(queue, End(target), End(data.copy(), low), (Rectangle(low, len(data)),), ())[0]

    def fill(
        self,
        queue: NativeQueue,
        target: NativeMemory,
        pattern: bytes,
        offset: int,
        nbytes: int,
        after: Sequence[NativeEvent],
    ) -> NativeEvent:
        at, length = address_in(End(target), offset, nbytes), len(pattern)
        check_fill(pattern, offset, nbytes)
        queue.keep(target)
        waits, count = _waits(after) if after else (None, 0)
        return queue.event(self._library.fill(queue.address, at, pattern, length, nbytes, waits, count))

    def record(self, commands: Sequence[RecordedCommand], values: Values) -> RecordedSteps | None:
        return record(self._library, commands, values)

    bind, play = staticmethod(RecordedSteps.bind), staticmethod(BoundSteps.play)

    def flush(self, queue: NativeQueue) -> None:
        pass  # every command is sent as it is given

    def finish(self) -> None:
        try:
            settle(self._library, list(self._queues))
        except DriverError:
            return  # of a process that was forked

    # events

    def done(self, event: NativeEvent) -> bool:
        queue, number, _ = event
        state = queue.state
        if state[COMPLETED] < number:
            return False
        if state[FAILED] or not _ORDERED:
            _check(queue, number)
        return True

    def succeeded(self, events: Sequence[NativeEvent]) -> bool:
        try:
            for event in events:
                queue, number, _ = event
                state = queue.state
                if not (_ORDERED and state[COMPLETED] >= number and not state[FAILED]) and not self.done(event):
                    return False
            return True
        except DriverError:
            return False

    def wait(self, event: NativeEvent) -> None:
        queue, number, _ = event
        while queue.state[COMPLETED] < number:
            self._library.wait(queue.address, number)
        queue.tidy()
        if queue.state[FAILED] or not _ORDERED:
            _check(queue, number)

    def times(self, event: NativeEvent) -> tuple[float, float]:
        queue, number, times = event
        if times is None or queue.state[COMPLETED] < number:
            raise DriverError("nobody knows when it ran: the queue is not timed" if times is None else "it has not run")
        at = 2 * ((number - 1) % TIMES)
        return times[at] * 1e-9, times[at + 1] * 1e-9

    def clock(self) -> float | None:
        return 0.0  # it is the clock of perf_counter

    def mirror(self, queue: NativeQueue, words: Any) -> None:
        queue.mirror(words)

    def number(self, event: NativeEvent) -> int:
        return event[1]

    def hold(self, is_held: bool) -> None:
        if self._close.alive and os.getpid() == self._process:
            self._library.hold(self._address, int(is_held))

    @property
    def is_still(self) -> bool:
        return not (self._close.alive and os.getpid() == self._process) or bool(self._library.is_still(self._address))

    def direct_queue(self, queue: NativeQueue) -> DirectQueue:
        address = ctypes.cast(self._launch, ctypes.c_void_p).value
        assert address is not None
        given = queue.address + 8 * GIVEN
        return DirectQueue(address, queue.address, NativeMemory, "address", "nbytes", given=given, keep=queue.kept)

    def direct_launch(
        self, kernel: Any, like: Any, global_size: tuple[int, ...], local_size: tuple[int, ...] | None
    ) -> DirectLaunch | None:
        if type(kernel) is not SetKernel or kernel.kernel.counted:
            return None
        try:
            return kernel.direct(like, global_size, local_size)
        except NotNativeError:
            return None

    def release(self) -> None:
        self._close()
        if self._elsewhere is not None:
            self._elsewhere.release()

    def _ask(self) -> None:
        if not self._close.alive:
            raise DriverError(f"{self.device.name} has been released")
        if os.getpid() != self._process:
            raise DriverError(FORKED)


def _waits(after: Sequence[NativeEvent]) -> tuple[Any, int]:
    """Return events as the runtime has them: queues and numbers."""
    if len(after) == 1:
        queue, number, _ = after[0]
        return _ONE_WAIT.pack(queue.address, number), 1
    words = [word for queue, number, _ in after for word in (queue.address, number)]
    return struct.pack(f"@{len(words)}Q", *words), len(after)


def _check(queue: NativeQueue, number: int) -> None:
    """Return the times of a complete command."""
    fault = queue.fault(number)
    if fault:
        raise DriverError(fault)


def _close(runtime: Library, address: int, process: int) -> None:
    if os.getpid() == process:  # else its threads are not here
        runtime.close(address)
