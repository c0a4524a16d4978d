"""Commands that move bytes: between buffers and the host, between buffers, and patterns; rectangles of all these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from manycl.drivers.driver import Bytes
from manycl.stand_in.errors import error, refuse
from manycl.stand_in.objects import events, transfers
from manycl.stand_in.objects.contexts import CommandQueue
from manycl.stand_in.objects.events import Event
from manycl.stand_in.objects.memory import Buffer, MemoryObject
from manycl_c.calls import does, enqueues, put_event, same_context
from manycl_c.handles import handles
from manycl_c.host import Address, memory, words
from manycl_c.objects.contexts import queue_of
from manycl_c.objects.memory import CODE, buffer_of, check_access

WaitFor = tuple[Event, ...] | None
_PATTERNS = (1, 2, 4, 8, 16, 32, 64, 128)


def own_buffer(queue: CommandQueue, address: Address) -> Buffer:
    """A buffer of the queue's context."""
    buffer = buffer_of(address)
    same_context(queue, buffer)
    return buffer


def _host(address: Address, nbytes: int, *, writable: bool = False) -> Bytes:
    if not address:
        raise error("INVALID_VALUE", "")
    return memory(address, nbytes, writable=writable)


def check_range(buffer: Buffer, offset: int, size: int) -> None:
    refuse("INVALID_VALUE", not size or offset + size > buffer.nbytes)


@enqueues("clEnqueueReadBuffer")
def enqueue_read_buffer(
    queue: CommandQueue, buffer: Address, blocking: int, offset: int, size: int, out: Address, waits: WaitFor
) -> Event:
    found = own_buffer(queue, buffer)
    check_range(found, offset, size)
    check_access(found, found.own_flags, reads=True)
    data = _host(out, size, writable=True)
    return transfers._enqueue_read_buffer(queue, found, data, offset, waits, bool(blocking), is_kept=False)


@enqueues("clEnqueueWriteBuffer")
def enqueue_write_buffer(
    queue: CommandQueue, buffer: Address, blocking: int, offset: int, size: int, data: Address, waits: WaitFor
) -> Event:
    found = own_buffer(queue, buffer)
    check_range(found, offset, size)
    check_access(found, found.own_flags, writes=True)
    event = transfers._enqueue_write_buffer(queue, found, _host(data, size), offset, waits, False)
    return transfers.complete(event, bool(blocking) and event.gate is not None)


@enqueues("clEnqueueCopyBuffer")
def enqueue_copy_buffer(queue: CommandQueue, source: Address, target: Address, *how: Any) -> Event:
    of, to = own_buffer(queue, source), own_buffer(queue, target)
    source_offset, target_offset, size, waits = how
    check_range(of, source_offset, size)
    check_range(to, target_offset, size)
    return transfers._enqueue_copy_buffer(queue, of, to, size, source_offset, target_offset, waits)


@enqueues("clEnqueueFillBuffer")
def enqueue_fill_buffer(
    queue: CommandQueue, buffer: Address, pattern: Address, pattern_size: int, offset: int, size: int, waits: WaitFor
) -> Event:
    found = own_buffer(queue, buffer)
    if not pattern or pattern_size not in _PATTERNS or offset % pattern_size or size % pattern_size:
        raise error("INVALID_VALUE", "")
    check_range(found, offset, size)
    return transfers._enqueue_fill_buffer(queue, found, memory(pattern, pattern_size), offset, size, waits)


# rectangles


def _triple(address: Address) -> list[int]:
    found = words(address, 3)
    refuse("INVALID_VALUE", not found)
    return found


def _end(origin: Sequence[int], region: Sequence[int], row: int, depth: int) -> int:
    """How many bytes of the host's memory a rectangle reaches over."""
    row = row or region[0]
    depth = depth or row * region[1]
    refuse("INVALID_VALUE", not all(region) or row < region[0] or depth < row * region[1] or depth % row)
    x, y, z = (first + count - 1 for first, count in zip(origin, region, strict=True))
    return z * depth + y * row + x + 1


def _host_rectangle(queue: CommandQueue, buffer: Address, blocking: int, how: Sequence[Any], *, reads: bool) -> Event:
    """Between a buffer and the host. ``how``: where it begins in both, region, the buffer's pitches and the host's, the
    host's memory, what it waits for."""
    found = own_buffer(queue, buffer)
    check_access(found, found.own_flags, reads=reads, writes=not reads)
    start, first, shape = map(_triple, how[:3])
    row, depth, host_row, host_depth, address, waits = how[3:]
    data = _host(address, _end(first, shape, host_row, host_depth), writable=reads)
    given = queue, found, data, start, first, shape, (row, depth), (host_row, host_depth), waits, bool(blocking)
    if reads:
        return transfers._enqueue_read_buffer_rect(*given, is_kept=False)
    return transfers._enqueue_write_buffer_rect(*given)


@enqueues("clEnqueueReadBufferRect")
def enqueue_read_buffer_rect(queue: CommandQueue, buffer: Address, blocking: int, *how: Any) -> Event:
    return _host_rectangle(queue, buffer, blocking, how, reads=True)


@enqueues("clEnqueueWriteBufferRect")
def enqueue_write_buffer_rect(queue: CommandQueue, buffer: Address, blocking: int, *how: Any) -> Event:
    return _host_rectangle(queue, buffer, blocking, how, reads=False)


@enqueues("clEnqueueCopyBufferRect")
def enqueue_copy_buffer_rect(queue: CommandQueue, source: Address, target: Address, *how: Any) -> Event:
    of, to = own_buffer(queue, source), own_buffer(queue, target)
    first, start, shape = map(_triple, how[:3])
    return transfers._enqueue_copy_buffer_rect(queue, of, to, first, start, shape, how[3:5], how[5:7], how[7])


@enqueues("clEnqueueMigrateMemObjects")
def enqueue_migrate_mem_objects(queue: CommandQueue, count: int, objects: Address, flags: int, waits: WaitFor) -> Event:
    refuse("INVALID_VALUE", not count or not objects or flags & ~3)
    found = [handles.find(one, MemoryObject, CODE) for one in words(objects, count)]
    same_context(queue, *found)
    return events.enqueue_migrate_mem_objects(queue, found, flags, waits)


# commands that only wait


@enqueues("clEnqueueMarkerWithWaitList")
def enqueue_marker_with_wait_list(queue: CommandQueue, waits: WaitFor) -> Event:
    return events._enqueue_marker_with_wait_list(queue, waits)


@enqueues("clEnqueueBarrierWithWaitList")
def enqueue_barrier_with_wait_list(queue: CommandQueue, waits: WaitFor) -> Event:
    return events._enqueue_barrier_with_wait_list(queue, waits)


@does("clEnqueueMarker")
def enqueue_marker(queue: Address, out: Address) -> None:
    found = queue_of(queue)
    refuse("INVALID_VALUE", not out)
    put_event(out, events._enqueue_marker_with_wait_list(found, None))


@does("clEnqueueBarrier")
def enqueue_barrier(queue: Address) -> None:
    events._enqueue_barrier_with_wait_list(queue_of(queue), None)


@does("clEnqueueWaitForEvents")
def enqueue_wait_for_events(queue: Address, count: int, waits: Address) -> None:
    found = queue_of(queue)
    refuse("INVALID_VALUE", not count or not waits)
    listed = tuple([handles.find(one, Event, "INVALID_EVENT") for one in words(waits, count)])
    events._enqueue_marker_with_wait_list(found, listed)
