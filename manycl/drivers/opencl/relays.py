"""Copies from one device's memory to another's, through pinned memory of the host: a read by a queue of the device that
the bytes leave, and a write by a queue of the one that gets them, which waits for the read's event. A driver's own copy
between memories of one context moves the whole buffer to the other device first: NVIDIA's reaches 1.5 GB/s
(docs/decisions/02-devices-and-drivers.md)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from threading import Lock

from manycl.drivers.addresses import aligned
from manycl.drivers.driver import Bytes, End
from manycl.drivers.opencl.copies import read_buffer, within_lines, write_buffer
from manycl.drivers.opencl.real import cl
from manycl.drivers.opencl.staging import CHUNK, pin
from manycl.region import Rectangle

ROOM = 4 * CHUNK
"""Bytes of pinned memory between two devices: while one part is written, the next ones are read."""
_ALIGNED = 64  # bytes; where parts begin in it: no two have a line of the processor's cache in common


class Relay:
    """The pinned memory that bytes go through on their way from one device to another. It is used in turns: what comes
    to a place waits for the write of what was there before. Threads may share it."""

    def __init__(self, context: cl.Context) -> None:
        self.leaving: dict[int, cl.CommandQueue] = {}
        """By the queue that bytes come to, the one of the device that they leave."""
        self._data = aligned(ROOM)
        self._pin = pin(context, self._data)
        self._lock = Lock()
        self._next = 0
        self._taken: deque[tuple[int, int, cl.Event]] = deque()
        """What is on its way, or was: first byte, end, and write, in the order of places from the next one on."""
        self._kept: deque[cl.Event] = deque()
        """The events of commands: PyOpenCL waits for one that is dropped before its end, and lets no thread run then,
        also not one for which the command waits."""

    def copy(
        self,
        leaving: cl.CommandQueue,
        coming: cl.CommandQueue,
        target: End,
        source: End,
        rows: Sequence[Rectangle],
        after: tuple[Sequence[cl.Event], Sequence[cl.Event]],
    ) -> list[cl.Event]:
        """Enqueue the copy of rows of a buffer: reads in the queue ``leaving``, which is flushed, and writes in the
        queue ``coming``. ``after``: what the reads, and what the writes wait for. Return first read and writes."""
        first, writes = list[cl.Event](), list[cl.Event]()
        with self._lock:
            kept = self._kept
            while kept and kept[0].command_execution_status <= 0:
                kept.popleft()
            for part in _parts(rows, min(source.memory.size + source.low, target.memory.size + target.low)):
                place, before = self._take(part.nbytes)
                data = self._data[place : place + part.nbytes]
                reads = _move(leaving, data, source, part, [*after[0], *before], is_read=True)
                kept += reads
                leaving.flush()
                writes += _move(coming, data, target, part, [*after[1], reads[-1]], is_read=False)
                self._taken.append((place, place + part.nbytes, writes[-1]))
                first = first or reads[:1]
            kept += writes
        return first + writes

    def _take(self, nbytes: int) -> tuple[int, list[cl.Event]]:
        """Return a place for so many bytes, and the writes of what was there that are not complete."""
        taken, before, start = self._taken, list[cl.Event](), self._next
        if start + nbytes > ROOM:
            for _ in range(sum(first >= start for first, _, _ in taken)):  # what lies before the end is left out
                taken.append(taken.popleft())
            start = 0
        self._next = -(-(start + nbytes) // _ALIGNED) * _ALIGNED
        while taken and start <= taken[0][0] < self._next:
            _, end, write = taken.popleft()
            before.append(write)
            if end > self._next:
                taken.appendleft((self._next, end, write))
        # (what has failed is over, too; it fails what waits for it)
        return start, [event for event in before if event.command_execution_status > 0]


def _parts(rows: Sequence[Rectangle], nbytes: int) -> Iterator[Rectangle]:
    """Yield rows of buffers of ``nbytes`` in parts that are moved by one command each."""
    for given in rows:
        for part in [given] if given.rows == 1 else within_lines(given, nbytes):
            if part.rows == 1:
                for start in range(part.offset, part.end, CHUNK):
                    yield Rectangle(start, min(CHUNK, part.end - start))
                continue
            most = max(1, CHUNK // part.width)
            for line in range(0, part.rows, most):
                count = min(most, part.rows - line)
                yield Rectangle(part.offset + line * part.pitch, part.width, part.pitch if count > 1 else 0, count)


def _move(
    queue: cl.CommandQueue, data: Bytes, end: End, part: Rectangle, after: list[cl.Event], *, is_read: bool
) -> list[cl.Event]:
    """Enqueue a copy between rows of a device's memory and the host's, where they lie one behind another."""
    held, start, width, pitch = end.memory, part.offset - end.low, part.width, part.pitch
    if part.rows > 1:
        top, left = divmod(start, pitch)
        with suppress(cl.LogicError):  # as for copies to and from the host
            rectangle = cl.enqueue_copy(
                queue,
                *((data, held) if is_read else (held, data)),
                buffer_origin=(left, top, 0),
                host_origin=(0, 0, 0),
                region=(width, part.rows, 1),
                buffer_pitches=(pitch,),
                host_pitches=(width,),
                is_blocking=False,
                wait_for=after,
            )
            return [rectangle]
    move, events = read_buffer if is_read else write_buffer, list[cl.Event]()
    for line in range(part.rows):
        mine = data[line * width : (line + 1) * width]
        events.append(move(queue, held, mine, start + line * pitch, after or None, False))
    return events
