"""Rectangular copies: between buffers by a kernel, which manycl may divide as any other; what the host gives is taken
at the call, and what it gets without waiting is put in its place when somebody learns that it has come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from manycl.api import events as api
from manycl.api.program import Kernel, Program
from manycl.drivers.driver import Bytes
from manycl.drivers.opencl.real import compiled
from manycl.stand_in.errors import error, refuse, translated
from manycl.stand_in.objects.contexts import CommandQueue
from manycl.stand_in.objects.events import ArrivalEvent, Event, NannyEvent, submit
from manycl.stand_in.objects.memory import MemoryObjectHolder, as_bytes
from manycl.stand_in.objects.transfers import WaitFor, buffer_of, complete

_TYPE = compiled.command_type
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


class Rectangle(NamedTuple):
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
        """Its bytes in place."""
        x, y, z = self.shape
        return np.lib.stride_tricks.as_strided(memory[self.first :], (z, y, x), (self.slice, self.row, 1))


def _triple(values: Sequence[int], missing: int, what: str, routine: str) -> tuple[int, int, int]:
    if len(values) > 3:
        raise error("INVALID_VALUE", routine, f"{what} has too many components")
    found = [*map(int, values), *[missing] * (3 - len(values))]
    return found[0], found[1], found[2]


def rectangle(origin: Numbers, region: Numbers, pitches: Numbers | None, nbytes: int, routine: str) -> Rectangle:
    """Of ``nbytes`` of memory. Raises LogicError for one that OpenCL does not have, or that is not inside."""
    return _rectangle(tuple(origin), tuple(region), tuple(pitches or ()), nbytes, routine)


@lru_cache(1024)
def _rectangle(origin: Numbers, region: Numbers, pitches: Numbers, nbytes: int, routine: str) -> Rectangle:
    shape, start = _triple(region, 1, "region", routine), _triple(origin, 0, "origin", routine)
    given = [*map(int, pitches), 0, 0]
    row = given[0] or shape[0]
    depth = given[1] or row * shape[1]
    found = Rectangle(shape, start[2] * depth + start[1] * row + start[0], row, depth)
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
def _numbers(to: Rectangle, of: Rectangle) -> tuple[np.uint64, ...]:
    """The kernel's. They are the same objects each time, which launches that come again do not look at."""
    return tuple(map(np.uint64, (to.first, to.row, to.slice, of.first, of.row, of.slice)))


def _meet(one: Rectangle, one_offset: int, other: Rectangle, other_offset: int) -> bool:
    """Whether two rectangles of one buffer, with rows of one length, have bytes in common."""
    mine, others = _starts(one) + one_offset, np.sort(_starts(other) + other_offset)
    place = np.searchsorted(others, mine)
    behind = others[np.minimum(place, len(others) - 1)] - mine
    before = mine - others[np.maximum(place - 1, 0)]
    return bool((np.minimum(np.abs(behind), np.abs(before)) < one.shape[0]).any())


def _starts(part: Rectangle) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The first byte of each row."""
    _, rows, slices = part.shape
    return np.add.outer(np.arange(slices) * part.slice, np.arange(rows) * part.row).ravel() + part.first
