"""Transfers between ordinary (pageable) host memory and a device: through pinned chunks, both halves overlapped.

A driver that is handed pageable memory copies it in one thread (10 GB/s where pinned memory reaches 55). Here several
threads each move chunks of their own: while the device fetches one, its thread fills the next. Small transfers go
straight to the driver.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from os import cpu_count
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from manycl.run.backends.memory import Bytes, pinned

STAGE_FROM = 1 << 20  # bytes; below, the driver's own path has less latency
CHUNK = 4 << 20  # bytes; measured beside an H200: eight threads copy 4 MiB pieces at 52 GB/s, 1 MiB pieces at 37
WORKERS = 8
_SLOTS = 2  # chunks of a worker: one on its way, one being filled


class _Transfer(NamedTuple):
    """What the workers of a transfer share: the host's bytes, and from which byte on the buffer has them. ``starts``:
    of the chunks that nobody has taken yet."""

    queue: cl.CommandQueue
    enqueueing: Lock
    buffer: cl.Buffer
    data: Bytes
    offset: int
    starts: Iterator[int]


class Stager:
    """One device's staging: threads with two pinned chunks each, which work for one transfer after another. Uploads,
    downloads and early downloads are each taken in their order, by a thread that waits for what they wait for: a result
    that is yet to be computed holds up nothing that is due."""

    def __init__(self, context: cl.Context, queue: cl.CommandQueue) -> None:
        self._context = context
        self._queue = queue
        self._workers = min(WORKERS, cpu_count() or 1)
        self._slots: list[list[Bytes]] = []
        self._pins: list[cl.Buffer] = []
        self._used: set[ThreadPoolExecutor] = set()  # since the last time that they were known to be idle
        self._uploads, self._downloads, self._early = (ThreadPoolExecutor(1, "manycl-stage") for _ in range(3))
        self._working = Lock()
        self._copiers = ThreadPoolExecutor(self._workers, "manycl-stage-copy")

    def upload(
        self, buffer: cl.Buffer, source: Bytes, after: list[cl.Event], offset: int = 0
    ) -> Future[tuple[float, float]]:
        """Copy ``source`` to the buffer, from byte ``offset`` on, once ``after`` is complete; the result is
        (start, end) by ``perf_counter``, and the future raises what the driver raised."""
        self._used.add(self._uploads)
        return self._uploads.submit(self._transfer, buffer, source, after, _push, offset)

    def download(
        self, buffer: cl.Buffer, target: Bytes, after: list[cl.Event], offset: int = 0, early: bool = False
    ) -> Future[tuple[float, float]]:
        """Copy the buffer, from byte ``offset`` on, to ``target`` once ``after`` is complete; as ``upload``.
        ``early``: nobody waits for it yet."""
        order = self._early if early else self._downloads
        self._used.add(order)
        return order.submit(self._transfer, buffer, target, after, _pull, offset)

    def settle(self) -> None:
        """Wait until no transfer is under way and the callbacks of all futures have been called."""
        for order in list(self._used):
            order.submit(int).result()
            self._used.discard(order)  # only now: whoever is interrupted waits again

    def close(self, wait: bool = True) -> None:
        for threads in (self._uploads, self._downloads, self._early, self._copiers):
            threads.shutdown(wait)

    def _transfer(
        self, buffer: cl.Buffer, data: Bytes, after: list[cl.Event], move: Any, offset: int
    ) -> tuple[float, float]:
        for event in after:
            event.wait()
        with self._working:
            if not self._slots:
                for _ in range(self._workers):
                    pins = [pinned(self._context, self._queue, CHUNK) for _ in range(_SLOTS)]
                    self._pins.extend(pin for pin, _ in pins)
                    self._slots.append([chunk for _, chunk in pins])
            begin = time.perf_counter()
            starts = iter(range(0, len(data), CHUNK))  # shared: each worker takes the next chunk there is
            enqueueing = Lock()  # PoCL 3.0 crashes when several threads enqueue on one queue at once
            what = _Transfer(self._queue, enqueueing, buffer, data, offset, starts)
            futures = [self._copiers.submit(move, what, slots) for slots in self._slots]
            for future in futures:
                future.result()
            return begin, time.perf_counter()


def _push(of: _Transfer, slots: list[Bytes]) -> None:
    """One worker of an upload."""
    busy: list[Any] = [None] * len(slots)
    turn = 0
    for start in of.starts:
        part = of.data[start : start + CHUNK]
        chunk = slots[turn][: len(part)]
        if busy[turn] is not None:
            busy[turn].wait()
        np.copyto(chunk, part)
        with of.enqueueing:
            busy[turn] = cl.enqueue_copy(of.queue, of.buffer, chunk, dst_offset=of.offset + start, is_blocking=False)
            of.queue.flush()
        turn = (turn + 1) % len(slots)
    for event in busy:
        if event is not None:
            event.wait()


def _pull(of: _Transfer, slots: list[Bytes]) -> None:
    """One worker of a download: a chunk is on its way while the one before is copied out."""
    coming: list[tuple[int, Bytes, Any]] = []

    def take() -> None:
        start, chunk, event = coming.pop(0)
        event.wait()
        np.copyto(of.data[start : start + len(chunk)], chunk)

    turn = 0
    for start in of.starts:
        if len(coming) == len(slots):
            take()
        chunk = slots[turn][: min(CHUNK, len(of.data) - start)]
        with of.enqueueing:
            event = cl.enqueue_copy(of.queue, chunk, of.buffer, src_offset=of.offset + start, is_blocking=False)
            of.queue.flush()
        coming.append((start, chunk, event))
        turn = (turn + 1) % len(slots)
    while coming:
        take()
