"""Commands that move bytes: between buffers and the host, between buffers, and patterns. What the host gives is taken
when the command is enqueued: programs may do with their memory what they like afterwards, also where OpenCL forbids it.
What is read without blocking comes while the program goes on."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any

from manycl.api import events as api
from manycl.api.arrays.arrays import Array
from manycl.api.dispatch.copy_cache import MoveKey
from manycl.drivers.driver import Bytes
from manycl.drivers.opencl.real import compiled
from manycl.errors import LaunchError, ManyclError
from manycl.graph.copies import PATTERNS, copy_task, fill_task
from manycl.stand_in.errors import error
from manycl.stand_in.objects.contexts import CommandQueue
from manycl.stand_in.objects.events import ArrivalEvent, Event, NannyEvent, are_free, submit
from manycl.stand_in.objects.memory import Buffer, MemoryObjectHolder, as_bytes
from manycl.stand_in.runtime import Runtime

_TYPE = compiled.command_type
WaitFor = Sequence[Event] | None


def buffer_of(memory: MemoryObjectHolder, routine: str) -> Buffer:
    """A memory object that is a buffer, and has contents."""
    if not isinstance(memory, Buffer) or memory.array is None:
        raise error("INVALID_MEM_OBJECT", routine)
    return memory


def check_bytes(buffer: Buffer, offset: int, nbytes: int, routine: str) -> None:
    """Raise LogicError for bytes that a buffer does not have."""
    if offset < 0 or nbytes < 0 or offset + nbytes > buffer.nbytes:
        raise error("INVALID_VALUE", routine)


def complete(event: Event, is_blocking: bool) -> Event:
    """An event that has ended, if the command is blocking."""
    if is_blocking:
        event.wait()
    return event


def _again(queue: CommandQueue, kind: int, key: MoveKey, arrays: Sequence[Array]) -> Event | None:
    """A copy or fill that was done before, of plain buffers; None for others, and for what will be refused."""
    queued = perf_counter_ns() if queue.is_profiling else 0
    manycl = queue.manycl
    try:
        command = manycl.moved_again(manycl, key, arrays)
    except ManyclError:
        return None
    if command is None:
        return None
    event = Event(queue, kind, command)
    if queued:
        event.queued = queued
    return event


def _enqueue_read_buffer(
    queue: CommandQueue,
    mem: MemoryObjectHolder,
    hostbuf: Any,
    src_offset: int = 0,
    wait_for: WaitFor = None,
    is_blocking: bool = True,
    is_kept: bool = True,
) -> Event:
    """Whoever drops the event of a read that does not block waits for it if ``hostbuf`` ``is_kept`` (else: bytes)."""
    routine = "clEnqueueReadBuffer"
    out = as_bytes(hostbuf, writable=True) if is_kept else hostbuf
    buffer = buffer_of(mem, routine)
    check_bytes(buffer, src_offset, len(out), routine)
    array = buffer.live()
    if is_blocking and queue.is_usual and not wait_for and len(out):
        return _read_now(queue, buffer.runtime, array, int(src_offset), out)

    def enqueue() -> api.Event | None:
        if not len(out):
            return None
        if not is_blocking:
            return buffer.runtime.fetch(array, int(src_offset), out, out)
        buffer.runtime.load(array, int(src_offset), out)
        return None

    kind, ward = NannyEvent if is_blocking else ArrivalEvent, hostbuf if is_kept else None
    return complete(submit(queue, _TYPE.READ_BUFFER, wait_for, enqueue, ward, kind), is_blocking)


def _read_now(queue: CommandQueue, runtime: Runtime, array: Array, offset: int, out: Bytes) -> Event:
    """Of a read that has ended, and that nothing held back: what most programs wait for."""
    event = NannyEvent(queue, _TYPE.READ_BUFFER, None, None)
    if queue.is_profiling:
        event.queued = perf_counter_ns()
    runtime.load(array, offset, out)
    if queue.is_profiling:
        event.span = event.queued, perf_counter_ns()
    runtime.waited()
    return event


def _enqueue_write_buffer(
    queue: CommandQueue,
    mem: MemoryObjectHolder,
    hostbuf: Any,
    dst_offset: int = 0,
    wait_for: WaitFor = None,
    is_blocking: bool = True,
) -> Event:
    routine = "clEnqueueWriteBuffer"
    buffer, data = buffer_of(mem, routine), as_bytes(hostbuf)
    check_bytes(buffer, dst_offset, len(data), routine)
    array = buffer.live()

    def enqueue() -> api.Event | None:
        return buffer.runtime.store(array, int(dst_offset), data) if len(data) else None

    return complete(submit(queue, _TYPE.WRITE_BUFFER, wait_for, enqueue, hostbuf), is_blocking)


def _enqueue_copy_buffer(
    queue: CommandQueue,
    src: MemoryObjectHolder,
    dst: MemoryObjectHolder,
    byte_count: int = -1,
    src_offset: int = 0,
    dst_offset: int = 0,
    wait_for: WaitFor = None,
) -> Event:
    """Without a count all of the source's bytes (PyOpenCL looks at no other)."""
    routine = "clEnqueueCopyBuffer"
    source, target = buffer_of(src, routine), buffer_of(dst, routine)
    nbytes = source.nbytes if byte_count is None or byte_count < 0 else int(byte_count)
    check_bytes(source, src_offset, nbytes, routine)
    check_bytes(target, dst_offset, nbytes, routine)
    read, written = source.live(), target.live()
    if queue.is_usual and are_free(wait_for):
        to, of = int(dst_offset) + target.low, int(src_offset) + source.low
        key = written.buffer.key, read.buffer.key, nbytes, to, of, "copy"
        event = _again(queue, _TYPE.COPY_BUFFER, key, (written.owner, read.owner))
        if event is not None:
            return event
    try:
        task = copy_task(
            written.place, read.place, nbytes, target_offset=int(dst_offset), source_offset=int(src_offset)
        )
    except LaunchError as failure:  # of what is left, only these
        raise error("MEM_COPY_OVERLAP" if nbytes else "INVALID_VALUE", routine, failure.message) from None

    def enqueue() -> api.Event:
        return source.runtime.queue.move(task, None, (written.owner, read.owner))

    return submit(queue, _TYPE.COPY_BUFFER, wait_for, enqueue)


def enqueue_copy_buffer_p2p_amd(
    platform: Any,
    queue: CommandQueue,
    src: MemoryObjectHolder,
    dst: MemoryObjectHolder,
    byte_count: int | None = None,
    wait_for: WaitFor = None,
) -> Event:
    """All devices are one here."""
    nbytes = min(buffer_of(m, "").nbytes for m in (src, dst)) if byte_count is None else byte_count
    return _enqueue_copy_buffer(queue, src, dst, nbytes, 0, 0, wait_for)


def _enqueue_fill_buffer(
    queue: CommandQueue, mem: MemoryObjectHolder, pattern: Any, offset: int, size: int, wait_for: WaitFor = None
) -> Event:
    routine = "clEnqueueFillBuffer"
    buffer, data = buffer_of(mem, routine), as_bytes(pattern).tobytes()
    check_bytes(buffer, offset, size, routine)
    array = buffer.live()
    if queue.is_usual and are_free(wait_for):
        key = array.buffer.key, data, int(size), int(offset) + buffer.low, 0, "fill"
        event = _again(queue, _TYPE.FILL_BUFFER, key, (array.owner,))
        if event is not None:
            return event
    try:
        task = fill_task(array.place, data, int(size), target_offset=int(offset))
    except LaunchError as failure:
        if len(data) in PATTERNS and not (
            size % len(data) or offset % len(data)
        ):  # only of a view, which begins elsewhere
            return _written(queue, mem, data * (size // len(data)), offset, wait_for)
        raise error("INVALID_VALUE", routine, failure.message) from None

    def enqueue() -> api.Event:
        return buffer.runtime.queue.move(task, None, (array.owner,))

    return submit(queue, _TYPE.FILL_BUFFER, wait_for, enqueue)


def _written(queue: CommandQueue, mem: MemoryObjectHolder, data: bytes, offset: int, wait_for: WaitFor) -> Event:
    event = _enqueue_write_buffer(queue, mem, data, offset, wait_for, False)
    event.kind = _TYPE.FILL_BUFFER
    return event
