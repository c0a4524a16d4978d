"""Mapped buffers: in the host's memory the contents themselves; else a copy, taken back when they are unmapped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from manycl.api import events as api
from manycl.drivers.driver import Bytes
from manycl.drivers.opencl.real import compiled
from manycl.stand_in.errors import error
from manycl.stand_in.objects.contexts import CommandQueue
from manycl.stand_in.objects.events import Event, submit
from manycl.stand_in.objects.memory import Buffer, MemoryObjectHolder, as_bytes
from manycl.stand_in.objects.transfers import WaitFor, buffer_of, check_bytes, complete

_TYPE = compiled.command_type
_FLAGS = compiled.map_flags
_INVALIDATES = int(getattr(_FLAGS, "WRITE_INVALIDATE_REGION", -1))
_WRITES = int(_FLAGS.WRITE) | max(_INVALIDATES, 0)

Like = tuple[tuple[int, ...], np.dtype[Any], Any, Any]


class MemoryMap:
    """What keeps a buffer mapped: the base of the array that the program is given. ``like``: that array's shape, type,
    order and strides; ``is_written``: its memory is to be taken back."""

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
