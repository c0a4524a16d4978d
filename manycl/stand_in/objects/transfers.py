"""Commands that move bytes: between buffers and the host, between buffers, and patterns. What the host gives is taken
when the command is enqueued: programs may do with their memory what they like afterwards, also where OpenCL forbids it.
What is read without blocking comes while the program goes on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np

from manycl.api import events as api
from manycl.api.arrays.arrays import Array
from manycl.api.dispatch.copy_cache import MoveKey
from manycl.api.program import Kernel, Program
from manycl.drivers.driver import Bytes
from manycl.drivers.opencl.real import compiled
from manycl.errors import LaunchError, ManyclError
from manycl.graph.copies import PATTERNS, copy_task, fill_task
from manycl.stand_in.errors import error, refuse, translated
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
    """Return the event of a read that has ended, and that nothing held back: what most programs wait for."""
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
    """Enqueue a copy between devices, which are one here."""
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


Numbers = Sequence[int]
_SOURCE = """
__kernel void copy_rectangle(__global uchar *target, __global const uchar *source,
                             ulong to, ulong to_row, ulong to_slice, ulong of, ulong of_row, ulong of_slice)
{
    ulong x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
    target[to + z * to_slice + y * to_row + x] = source[of + z * of_slice + y * of_row + x];
}
"""


@cache
def _kernel() -> Kernel:
    return Program(_SOURCE, path="copy_rectangle.cl").kernel("copy_rectangle")


class RectangleLayout(NamedTuple):
    """``shape``: bytes, rows, slices; ``first``: its first byte; bytes from row to row, and from slice to slice."""

    shape: tuple[int, int, int]
    first: int
    row: int
    slice: int

    @property
    def end(self) -> int:
        """The byte behind its last."""
        x, y, z = self.shape
        return self.first + (z - 1) * self.slice + (y - 1) * self.row + x

    def of(self, memory: Bytes) -> Bytes:
        """Return its bytes in place."""
        x, y, z = self.shape
        return np.lib.stride_tricks.as_strided(memory[self.first :], (z, y, x), (self.slice, self.row, 1))


def _triple(values: Sequence[int], missing: int, what: str, routine: str) -> tuple[int, int, int]:
    if len(values) > 3:
        raise error("INVALID_VALUE", routine, f"{what} has too many components")
    found = [*map(int, values), *[missing] * (3 - len(values))]
    return found[0], found[1], found[2]


def rectangle(origin: Numbers, region: Numbers, pitches: Numbers | None, nbytes: int, routine: str) -> RectangleLayout:
    """Return the rectangle of ``nbytes`` of memory. Raises LogicError for one that OpenCL does not have, or that is not
    inside."""
    return _rectangle(tuple(origin), tuple(region), tuple(pitches or ()), nbytes, routine)


@lru_cache(1024)
def _rectangle(origin: Numbers, region: Numbers, pitches: Numbers, nbytes: int, routine: str) -> RectangleLayout:
    shape, start = _triple(region, 1, "region", routine), _triple(origin, 0, "origin", routine)
    given = [*map(int, pitches), 0, 0]
    row = given[0] or shape[0]
    depth = given[1] or row * shape[1]
    found = RectangleLayout(shape, start[2] * depth + start[1] * row + start[0], row, depth)
    is_one = min(shape) > 0 and min(start) >= 0 and row >= shape[0] and depth >= row * shape[1] and depth % row == 0
    refuse("INVALID_VALUE", not is_one or found.end > nbytes, routine)
    return found


def _enqueue_read_buffer_rect(
    queue: CommandQueue,
    mem: MemoryObjectHolder,
    hostbuf: Any,
    buffer_origin: Sequence[int],
    host_origin: Sequence[int],
    region: Sequence[int],
    buffer_pitches: Sequence[int] | None = None,
    host_pitches: Sequence[int] | None = None,
    wait_for: WaitFor = None,
    is_blocking: bool = True,
    is_kept: bool = True,
) -> Event:
    """``is_kept``: as of ``transfers._enqueue_read_buffer``."""
    routine = "clEnqueueReadBufferRect"
    out = as_bytes(hostbuf, writable=True) if is_kept else hostbuf
    buffer = buffer_of(mem, routine)
    source = rectangle(buffer_origin, region, buffer_pitches, buffer.nbytes, routine)
    target = rectangle(host_origin, region, host_pitches, len(out), routine)
    array, runtime = buffer.live(), buffer.runtime
    here = source._replace(first=0)

    def enqueue() -> api.Event | None:
        contents = np.empty(source.end - source.first, np.uint8)

        def deliver() -> None:
            target.of(out)[:] = here.of(contents)

        if not is_blocking:
            return runtime.fetch(array, source.first, contents, out, deliver)
        runtime.load(array, source.first, contents)
        deliver()
        return None

    kind, ward = NannyEvent if is_blocking else ArrivalEvent, hostbuf if is_kept else None
    return complete(submit(queue, _TYPE.READ_BUFFER_RECT, wait_for, enqueue, ward, kind), is_blocking)


def _enqueue_write_buffer_rect(
    queue: CommandQueue,
    mem: MemoryObjectHolder,
    hostbuf: Any,
    buffer_origin: Sequence[int],
    host_origin: Sequence[int],
    region: Sequence[int],
    buffer_pitches: Sequence[int] | None = None,
    host_pitches: Sequence[int] | None = None,
    wait_for: WaitFor = None,
    is_blocking: bool = True,
) -> Event:
    routine = "clEnqueueWriteBufferRect"
    buffer, data = buffer_of(mem, routine), as_bytes(hostbuf)
    target = rectangle(buffer_origin, region, buffer_pitches, buffer.nbytes, routine)
    source = rectangle(host_origin, region, host_pitches, len(data), routine)
    array = buffer.live()

    def enqueue() -> api.Event | None:
        if target.end - target.first == math.prod(target.shape):  # all that lies between its ends
            return buffer.runtime.store(array, target.first, np.ravel(source.of(data)))
        place = buffer.runtime.in_place(array.owner)[array.offset : array.offset + buffer.nbytes]
        target.of(place)[:] = source.of(data)
        return None

    return complete(submit(queue, _TYPE.WRITE_BUFFER_RECT, wait_for, enqueue, hostbuf), is_blocking)


def _enqueue_copy_buffer_rect(
    queue: CommandQueue,
    src: MemoryObjectHolder,
    dst: MemoryObjectHolder,
    src_origin: Sequence[int],
    dst_origin: Sequence[int],
    region: Sequence[int],
    src_pitches: Sequence[int] | None = None,
    dst_pitches: Sequence[int] | None = None,
    wait_for: WaitFor = None,
) -> Event:
    routine = "clEnqueueCopyBufferRect"
    source, target = buffer_of(src, routine), buffer_of(dst, routine)
    of = rectangle(src_origin, region, src_pitches, source.nbytes, routine)
    to = rectangle(dst_origin, region, dst_pitches, target.nbytes, routine)
    read, written = source.live(), target.live()
    if read.buffer == written.buffer:
        refuse("INVALID_VALUE", (of.row, of.slice) != (to.row, to.slice), routine)
        refuse("MEM_COPY_OVERLAP", _meet(of, read.offset, to, written.offset), routine)
    numbers = _numbers(to, of)

    def enqueue() -> api.Event:
        with translated(routine):
            return _kernel()(source.runtime.queue, to.shape, None, written, read, *numbers)

    return submit(queue, _TYPE.COPY_BUFFER_RECT, wait_for, enqueue)


@lru_cache(1024)
def _numbers(to: RectangleLayout, of: RectangleLayout) -> tuple[np.uint64, ...]:
    """The kernel's. They are the same objects each time, which launches that come again do not look at."""
    return tuple(map(np.uint64, (to.first, to.row, to.slice, of.first, of.row, of.slice)))


def _meet(one: RectangleLayout, one_offset: int, other: RectangleLayout, other_offset: int) -> bool:
    """Return whether two rectangles of one buffer, with rows of one length, have bytes in common."""
    mine, others = _starts(one) + one_offset, np.sort(_starts(other) + other_offset)
    place = np.searchsorted(others, mine)
    behind = others[np.minimum(place, len(others) - 1)] - mine
    before = mine - others[np.maximum(place - 1, 0)]
    return bool((np.minimum(np.abs(behind), np.abs(before)) < one.shape[0]).any())


def _starts(part: RectangleLayout) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The first byte of each row."""
    _, rows, slices = part.shape
    return np.add.outer(np.arange(slices) * part.slice, np.arange(rows) * part.row).ravel() + part.first


_FLAGS = compiled.map_flags
_INVALIDATES = int(getattr(_FLAGS, "WRITE_INVALIDATE_REGION", -1))
_WRITES = int(_FLAGS.WRITE) | max(_INVALIDATES, 0)

Like = tuple[tuple[int, ...], np.dtype[Any], Any, Any]


class MemoryMap:
    """A mapping, which keeps a buffer mapped: the base of the array that the program is given. ``like``: that array's
    shape, type, order and strides; ``is_written``: its memory is to be taken back."""

    def __init__(
        self, queue: CommandQueue, buffer: Buffer, offset: int, memory: Bytes, like: Like, *, is_written: bool
    ) -> None:
        self._queue = queue
        self._buffer: Buffer | None = buffer
        self._offset = offset
        self._memory = memory
        self._is_written = is_written
        buffer.mapped(1)
        shape, dtype, order, strides = like
        array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, memory, 0, strides, order)
        self.__array_interface__ = array.__array_interface__

    def release(self, queue: CommandQueue | None = None, wait_for: WaitFor = None) -> Event:
        """Unmap it: what was written is in the buffer for what is enqueued from now on."""
        buffer, self._buffer = self._buffer, None
        if buffer is None:
            raise error("INVALID_VALUE", "clEnqueueUnmapMemObject")
        array, memory, offset = buffer.array, self._memory, self._offset

        def enqueue() -> api.Event | None:
            buffer.mapped(-1)
            written = self._is_written and array is not None
            return buffer.runtime.store(array, offset, memory) if written and array is not None else None

        return submit(queue or self._queue, _TYPE.UNMAP_MEM_OBJECT, wait_for, enqueue)

    def __del__(self) -> None:
        if getattr(self, "_buffer", None) is not None:
            self.release()


def enqueue_map_buffer(
    queue: CommandQueue,
    buf: MemoryObjectHolder,
    flags: int,
    offset: int,
    shape: Any,
    dtype: Any,
    order: str = "C",
    strides: Any = None,
    wait_for: WaitFor = None,
    is_blocking: bool = True,
) -> tuple[np.ndarray[Any, Any], Event]:
    """An array of the contents, and the event after which it has them."""
    routine = "clEnqueueMapBuffer"
    buffer, wanted = buffer_of(buf, routine), np.dtype(dtype)
    extents = tuple(map(int, shape)) if isinstance(shape, Sequence | np.ndarray) else (int(shape),)
    nbytes = wanted.itemsize
    for extent in extents:
        nbytes *= extent
    check_bytes(buffer, offset, nbytes, routine)
    if not nbytes:
        raise error("INVALID_VALUE", routine)
    if order not in ("C", "F", "c", "f"):
        raise error("INVALID_VALUE", "enqueue_map_buffer", "unrecognized order specifier")
    array, flags = buffer.live(), int(flags)
    writes, invalidates = bool(flags & _WRITES), flags == _INVALIDATES
    like = extents, wanted, order.upper(), strides
    if is_blocking and queue.is_usual and not wait_for and buffer.hostbuf is None:
        common = buffer.runtime.common(array, int(offset), nbytes, reads=not invalidates, writes=writes)
        if common is not None:
            mapped = MemoryMap(queue, buffer, int(offset), common, like, is_written=False)
            return np.asarray(mapped), complete(submit(queue, _TYPE.MAP_BUFFER, None, lambda: None), True)
    memory = as_bytes(buffer.hostbuf)[offset : offset + nbytes] if buffer.hostbuf is not None else None
    if memory is None or not memory.flags.writeable:
        memory = _aligned(nbytes)
    mapped = MemoryMap(queue, buffer, int(offset), memory, like, is_written=writes)

    def enqueue() -> api.Event | None:
        if invalidates:
            return None
        if not is_blocking:
            return buffer.runtime.fetch(array, int(offset), memory, memory)
        buffer.runtime.load(array, int(offset), memory)
        return None

    event = submit(queue, _TYPE.MAP_BUFFER, wait_for, enqueue)
    return np.asarray(mapped), complete(event, is_blocking)


def _aligned(nbytes: int) -> Bytes:
    """New memory that begins where any type of OpenCL C may."""
    room = np.empty(nbytes + 128, np.uint8)
    start = -room.ctypes.data % 128
    return room[start : start + nbytes]
