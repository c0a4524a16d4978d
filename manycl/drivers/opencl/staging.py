"""Transfers between ordinary (pageable) host memory and a device: through pinned chunks, both halves overlapped. A
driver that is handed pageable memory copies it in one thread (10 GB/s where pinned memory reaches 55). Here several
threads each move chunks of their own: while the device fetches one, its thread fills the next. Small transfers go
straight to the driver."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import cycle
from os import cpu_count
from threading import Event as ThreadEvent
from threading import Lock, RLock
from typing import Any, NamedTuple

import numpy as np

from manycl.drivers.addresses import aligned
from manycl.drivers.driver import Bytes, DriverError, End
from manycl.drivers.opencl.real import cl
from manycl.region import Rectangle
from manycl.utilities.prompt import be_prompt

STAGE_FROM = 32 << 20
"""Bytes; below, the driver's own path is as fast, and needs no threads, for which there may be no core: beside an H200,
driver and threads move 1 MiB at 6.9 and 2.0 GB/s, 16 MiB at 10 and 12, 64 MiB at 7 and 23, and where all cores compute,
4 MiB at 8.0 and 0.5, 16 MiB at 2.8 and 2.4, 64 MiB at 3.2 and 5.0."""
CHUNK = 4 << 20  # bytes; measured beside an H200: eight threads copy 4 MiB pieces at 52 GB/s, 1 MiB pieces at 37
WORKERS = 8
_SLOTS = 2  # chunks of a worker: one on its way, one being filled


class Staged(cl.UserEvent):  # type: ignore[misc]
    """The event of a staged transfer. ``began``, ``ended``: by ``perf_counter``; ``offset``: what the device's clock
    lacks of that. ``failure``: why it has failed. ``kept``: events of the queue before and behind it (PoCL 3.0 ends the
    process where one that has been released fails)."""

    began = ended = offset = 0.0
    failure = ""
    kept: tuple[cl.Event, ...] = ()

    def __init__(self, context: cl.Context) -> None:
        super().__init__(context)
        self.over = ThreadEvent()
        """Is set when it has ended, well or not."""


class Failures:
    """The failures of a context's staged transfers. PoCL 3.0 never ends a command that is enqueued to wait for what has
    failed already: with the lock held, no transfer fails, so that commands are enqueued before or refused."""

    def __init__(self) -> None:
        self.lock = RLock()
        self._are_there = False

    def end(self, event: Staged) -> None:
        """Let the transfer of an event, and all that waits for it, fail."""
        with self.lock, suppress(cl.Error):  # nobody can be told: the device is lost
            self._are_there = True
            event.set_status(-1)

    def refuse(self, after: Sequence[cl.Event]) -> None:
        """Raise DriverError if one of some events has failed; the lock is held."""
        if self._are_there:
            for event in after:
                if event.command_execution_status < 0:
                    raise DriverError("what it waits for has failed")


class StagedPart(NamedTuple):
    """The bytes that a transfer moves: bytes of the host, and from which byte on the buffer has them."""

    buffer: cl.Buffer
    data: Bytes
    offset: int
    is_upload: bool


def staged_part(target: End, source: End, rows: Sequence[Rectangle], holds_up: bool = False) -> StagedPart | None:
    """Return what a copy moves, where it is worth staging (else None): from a chunk on where the driver's own path
    ``holds_up`` other devices."""
    is_upload = not isinstance(source.memory, cl.Buffer)
    least = min(STAGE_FROM, CHUNK) if holds_up else STAGE_FROM
    if len(rows) != 1 or rows[0].rows != 1 or rows[0].width < least:
        return None
    host, device = (source, target) if is_upload else (target, source)
    if host.is_pinned or isinstance(host.memory, cl.Buffer):
        return None
    offset, width, *_ = rows[0]
    return StagedPart(device.memory, host.memory[offset : offset + width], offset - device.low, is_upload)


class _Transfer(NamedTuple):
    """The state that the workers of a transfer share. ``starts``: of the chunks that nobody has taken yet."""

    queue: cl.CommandQueue
    enqueueing: Lock
    part: StagedPart
    starts: Iterator[int]


class Stager:
    """One device's staging: threads with two pinned chunks each, which work for one transfer after another. The
    transfers of each queue are taken in their order, by a thread that waits for what they wait for: a result that is
    yet to be computed holds up nothing that is due in another queue."""

    def __init__(self, context: cl.Context, queue: cl.CommandQueue, failures: Failures) -> None:
        self._context = context
        self._queue = queue
        self._failures = failures
        self._workers = min(WORKERS, cpu_count() or 1)
        self._slots: list[list[Bytes]] = []
        self._pins: list[object] = []
        self._used: set[ThreadPoolExecutor] = set()  # since the last time that they were known to be idle
        self._orders: dict[int, ThreadPoolExecutor] = {}
        self._working = Lock()
        self._copiers = ThreadPoolExecutor(self._workers, "manycl-stage-copy", be_prompt)

    def start(self, queue: int, part: StagedPart, after: cl.Event | None, event: Staged) -> Staged:
        """Copy once ``after`` is complete, behind what was started for the same queue; ``event`` tells of it."""
        order = self._orders.get(queue)
        if order is None:
            order = self._orders[queue] = ThreadPoolExecutor(1, "manycl-stage", be_prompt)
        self._used.add(order)
        order.submit(self._perform, part, after, event)
        return event

    def settle(self) -> None:
        """Wait until no transfer is under way."""
        for order in list(self._used):
            with suppress(RuntimeError):  # the interpreter ends, and has waited for all threads
                order.submit(int).result()
            self._used.discard(order)  # only now: whoever is interrupted waits again

    def close(self) -> None:
        """Let the threads end when they have nothing to do any more."""
        for threads in (*self._orders.values(), self._copiers):
            threads.shutdown(wait=False)

    def _perform(self, part: StagedPart, after: cl.Event | None, event: Staged) -> None:
        try:
            event.began, event.ended = self._transfer(part, after)
            event.set_status(cl.command_execution_status.COMPLETE)
        except Exception as error:  # whoever waits for the transfer is told
            event.failure = str(error)
            self._failures.end(event)
        event.over.set()

    def _transfer(self, part: StagedPart, after: cl.Event | None) -> tuple[float, float]:
        """Return when it began and ended."""
        if after is not None:
            after.wait()
        with self._working:
            if not self._slots:
                for _ in range(self._workers):
                    chunks = [aligned(CHUNK) for _ in range(_SLOTS)]
                    self._pins += [pin(self._context, chunk) for chunk in chunks]
                    self._slots.append(chunks)
            begin = time.perf_counter()
            starts = iter(range(0, len(part.data), CHUNK))  # shared: each worker takes the next chunk there is
            enqueueing = Lock()  # PoCL 3.0 crashes when several threads enqueue on one queue at once
            what = _Transfer(self._queue, enqueueing, part, starts)
            futures = [self._copiers.submit(_move, what, slots) for slots in self._slots]
            try:
                for future in futures:
                    future.result()
            except Exception:
                wait(futures)
                try:
                    self._queue.finish()  # the next transfer takes the chunks once nothing is on its way through them
                except cl.Error:
                    self._slots = []
                raise
            return begin, time.perf_counter()


def _move(of: _Transfer, slots: list[Bytes]) -> None:
    """One worker of a transfer: a chunk is on its way while the next one is filled, or the one before copied out."""
    moving = deque[tuple[Any, Bytes, Bytes]]()
    part = of.part

    def end() -> None:
        event, there, chunk = moving.popleft()
        event.wait()
        if not part.is_upload:
            np.copyto(there, chunk)

    for slot, start in zip(cycle(slots), of.starts, strict=False):
        if len(moving) == len(slots):
            end()
        there = part.data[start : start + CHUNK]
        chunk = slot[: len(there)]
        if part.is_upload:
            np.copyto(chunk, there)
        with of.enqueueing:
            event = _enqueued(of.queue, part, part.offset + start, chunk)
            of.queue.flush()
        moving.append((event, there, chunk))
    while moving:
        end()


def _enqueued(queue: cl.CommandQueue, part: StagedPart, offset: int, chunk: Bytes) -> Any:
    """Enqueue the copy between pinned memory and bytes of a device's buffer from an offset on."""
    if part.is_upload:
        return cl.enqueue_copy(queue, part.buffer, chunk, dst_offset=offset, is_blocking=False)
    return cl.enqueue_copy(queue, chunk, part.buffer, src_offset=offset, is_blocking=False)


def pin(context: cl.Context, data: Bytes) -> object:
    """Page-lock host memory: what keeps it so. Devices have no use for the buffer itself: it is never mapped, and no
    command is ever given it. (Measured beside an H200, for 64 MiB: 1.3 ms; new memory by ALLOC_HOST_PTR: 29 to 61.)"""
    flags = cl.mem_flags
    return cl.Buffer(context, flags.READ_WRITE | flags.USE_HOST_PTR, hostbuf=data)
