"""Transfers between ordinary (pageable) host memory and a device: through pinned chunks, both halves overlapped.

A driver that is handed pageable memory copies it in one thread (9.9 GB/s where pinned memory reaches 55). Here several
threads fill a chunk while the device fetches the one before. Small transfers go straight to the driver.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyopencl as cl

from manycl.run.backends.memory import Bytes, copy_bytes, pinned

STAGE_FROM = 1 << 20  # bytes; below, the driver's own path has less latency
CHUNK = 16 << 20  # bytes
SLOTS = 4


class Stager:
    """One device's staging: ``SLOTS`` pinned chunks and a thread that runs one transfer after another."""

    def __init__(self, context: cl.Context, queue: cl.CommandQueue) -> None:
        self._context = context
        self._queue = queue
        self._slots: list[tuple[cl.Buffer, Bytes]] = []
        self._thread = ThreadPoolExecutor(1, "manycl-stage")

    def upload(self, buffer: cl.Buffer, source: Bytes, after: list[cl.Event]) -> Future[tuple[float, float]]:
        """Copy ``source`` to the buffer once ``after`` is complete; the result is (start, end) by ``perf_counter``, and
        the future raises what the driver raised."""
        return self._thread.submit(self._upload, buffer, source, after)

    def download(self, buffer: cl.Buffer, target: Bytes, after: list[cl.Event]) -> Future[tuple[float, float]]:
        """Copy the device's buffer to ``target`` once ``after`` is complete."""
        return self._thread.submit(self._download, buffer, target, after)

    def close(self) -> None:
        self._thread.shutdown()
        self._slots.clear()

    def _prepare(self) -> None:
        while len(self._slots) < SLOTS:
            self._slots.append(pinned(self._context, self._queue, CHUNK))

    def _upload(self, buffer: cl.Buffer, source: Bytes, after: list[cl.Event]) -> tuple[float, float]:

        for event in after:
            event.wait()
        self._prepare()
        begin = time.perf_counter()
        busy: list[Any] = [None] * SLOTS
        for number, start in enumerate(range(0, len(source), CHUNK)):
            part = source[start : start + CHUNK]
            slot = number % SLOTS
            if busy[slot] is not None:
                busy[slot].wait()
            chunk = self._slots[slot][1][: len(part)]
            copy_bytes(chunk, part)
            busy[slot] = cl.enqueue_copy(self._queue, buffer, chunk, dst_offset=start, is_blocking=False)
            self._queue.flush()
        for event in busy:
            if event is not None:
                event.wait()
        return begin, time.perf_counter()

    def _download(self, buffer: cl.Buffer, target: Bytes, after: list[cl.Event]) -> tuple[float, float]:

        for event in after:
            event.wait()
        self._prepare()
        begin = time.perf_counter()
        starts = range(0, len(target), CHUNK)
        pending: list[tuple[int, Any]] = []

        def fetch(number: int) -> None:
            start = starts[number]
            chunk = self._slots[number % SLOTS][1][: min(CHUNK, len(target) - start)]
            event = cl.enqueue_copy(self._queue, chunk, buffer, src_offset=start, is_blocking=False)
            self._queue.flush()
            pending.append((number, event))

        for number in range(min(SLOTS, len(starts))):
            fetch(number)
        while pending:
            number, event = pending.pop(0)
            event.wait()
            start = starts[number]
            part = target[start : start + CHUNK]
            copy_bytes(part, self._slots[number % SLOTS][1][: len(part)])
            if number + SLOTS < len(starts):
                fetch(number + SLOTS)
        return begin, time.perf_counter()
