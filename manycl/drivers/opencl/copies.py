"""Copies of rows of a buffer, enqueued: between a device and the host, and within a device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from manycl.drivers.driver import Bytes, End
from manycl.drivers.opencl.real import cl, compiled
from manycl.region import Rectangle

INLINE = 1 << 16
"""Bytes that NVIDIA's driver sends with the command itself if they come from ordinary memory. From pinned memory it
lets all such uploads but the first wait for large ones of whatever queue (benchmarks/devices.py drivers, with an H200:
4.8 ms behind 256 MiB instead of 67 us), so they come from a copy."""


# (PyOpenCL's `enqueue_copy` finds out first what it was given, which takes longer than the rest)
_copy_buffer = compiled._enqueue_copy_buffer
read_buffer = compiled._enqueue_read_buffer
write_buffer = compiled._enqueue_write_buffer


def within_lines(rows: Rectangle, nbytes: int) -> Iterator[Rectangle]:
    """Rows as rectangles that lie within lines of their pitch: two where they go over a line's end. The last row is one
    of its own where its line is not complete in ``nbytes``: drivers may want all of the lines to be there."""
    offset, width, pitch, count, *_ = rows
    left = offset % pitch
    over = max(0, left + width - pitch)
    for start, wide in ((offset, width - over), (offset + width - over, over)):
        lines = count
        if wide and count > 1 and (start // pitch + count) * pitch > nbytes:
            lines -= 1
            yield Rectangle(start + lines * pitch, wide)
        if wide:
            yield Rectangle(start, wide, pitch if lines > 1 else 0, lines)


def copy_rows(
    queue: cl.CommandQueue, target: End, source: End, rows: Sequence[Rectangle], after: Sequence[cl.Event]
) -> list[cl.Event]:
    """Enqueue the copy of rows of a buffer, to and from what holds the buffer's bytes from ``low`` on; their events."""
    if isinstance(target.memory, cl.Buffer) and isinstance(source.memory, cl.Buffer):
        return _copy_inside(queue, source, target, rows, after)
    is_upload = isinstance(target.memory, cl.Buffer)
    (held, low, *_), (host, *_) = (target, source) if is_upload else (source, target)
    if low:  # both from the device's first byte on
        host = host[low:]
        rows = [row._replace(offset=row.offset - low) for row in rows]
    ends = (held, host) if is_upload else (host, held)
    return _copy_host(queue, *ends, rows, min(len(host), held.size), list(after) or None)


def _copy_host(
    queue: cl.CommandQueue,
    target: cl.Buffer | Bytes,
    source: cl.Buffer | Bytes,
    rows: Sequence[Rectangle],
    nbytes: int,
    wait_for: list[cl.Event] | None,
) -> list[cl.Event]:
    """Between a device and the host, which both have the first ``nbytes``."""
    events = []
    for given in rows:
        for part in [given] if given.rows == 1 else within_lines(given, nbytes):
            if part.rows == 1:
                events.append(_copy_run(queue, target, source, part.offset, part.width, wait_for))
                continue
            with suppress(cl.LogicError):  # INVALID_VALUE was seen on an H200 for a rectangle that other drivers take
                events.append(_copy_rectangle(queue, target, source, part, wait_for))
                continue
            starts = range(part.offset, part.offset + part.rows * part.pitch, part.pitch)
            events += [_copy_run(queue, target, source, start, part.width, wait_for) for start in starts]
    return events


def _copy_run(
    queue: cl.CommandQueue,
    target: cl.Buffer | Bytes,
    source: cl.Buffer | Bytes,
    offset: int,
    width: int,
    wait_for: list[cl.Event] | None,
) -> cl.Event:
    # the event keeps the host's bytes: by the array that was given or a memoryview of it, which count as no other views
    # of its memory, so that the memory is free for others although the event is kept
    if isinstance(target, cl.Buffer):
        if width <= INLINE:
            return write_buffer(queue, target, source[offset : offset + width].copy(), offset, wait_for, False)
        return write_buffer(queue, target, _part(source, offset, width), offset, wait_for, False)
    return read_buffer(queue, source, _part(target, offset, width), offset, wait_for, False)


def _part(data: Bytes, offset: int, width: int) -> Bytes | memoryview:
    """Return ``width`` bytes of host memory as what a driver is given."""
    return data if width == len(data) else data.data[offset : offset + width]


def _copy_rectangle(
    queue: cl.CommandQueue,
    target: cl.Buffer | Bytes,
    source: cl.Buffer | Bytes,
    rows: Rectangle,
    wait_for: list[cl.Event] | None,
) -> cl.Event:
    top, left = divmod(rows.offset, rows.pitch)
    return cl.enqueue_copy(
        queue,
        target,
        source,
        buffer_origin=(left, top, 0),
        host_origin=(left, top, 0),
        region=(rows.width, rows.rows, 1),
        buffer_pitches=(rows.pitch,),
        host_pitches=(rows.pitch,),
        is_blocking=False,
        wait_for=wait_for,
    )


def _copy_inside(
    queue: cl.CommandQueue, source: End, target: End, rows: Sequence[Rectangle], after: Sequence[cl.Event]
) -> list[cl.Event]:
    """Between two buffers of a device."""
    (given, source_low, *_), (taken, target_low, *_) = source, target
    events, wait_for = list[cl.Event](), list(after) or None
    for offset, width, pitch, count, *_ in rows:
        if count == 1:
            events.append(_copy_buffer(queue, given, taken, width, offset - source_low, offset - target_low, wait_for))
            continue
        origins = [divmod(offset - low, pitch) if count > 1 else (0, 0) for low in (source_low, target_low)]
        if count > 1 and all(left + width <= pitch for _, left in origins):
            rectangle = cl.enqueue_copy(
                queue,
                taken,
                given,
                src_origin=(origins[0][1], origins[0][0], 0),
                dst_origin=(origins[1][1], origins[1][0], 0),
                region=(width, count, 1),
                src_pitches=(pitch,),
                dst_pitches=(pitch,),
                wait_for=wait_for,
            )
            events.append(rectangle)
            continue
        for start in range(offset, offset + max(count * pitch, 1), max(pitch, 1))[:count]:
            events.append(_copy_buffer(queue, given, taken, width, start - source_low, start - target_low, wait_for))
    return events
