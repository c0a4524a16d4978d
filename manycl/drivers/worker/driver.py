"""The driver of worker devices: each is opened by a process of its own, which may die without taking this one with it.
What the host has of arrays is memory that both processes have (:mod:`manycl.drivers.shared`); a processor computes in
it, and copies from and to other host memory go by a part of it."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from manycl.drivers.driver import Bytes, DriverError, End, Source
from manycl.drivers.shared import Arena, shared_memory
from manycl.drivers.worker import messages as m
from manycl.drivers.worker import progress
from manycl.drivers.worker.link import (
    Ending,
    WorkerEvent,
    WorkerKernel,
    WorkerLink,
    WorkerQueue,
)
from manycl.drivers.worker.messages import Channel
from manycl.drivers.worker.rows import copy_rows
from manycl.drivers.worker.things import RemoteMemory, RemoteProgram
from manycl.errors import anew
from manycl.machine import HOST, Device
from manycl.region import Rectangle


class WorkerDriver:
    """``selection`` means the device in the other process."""

    is_polled = False
    is_interruptible = True
    slows_down = True  # or its process opens no such device
    needs_shared_memory = may_be_lost = tells_when_lost = True

    def __init__(
        self,
        device: Device,
        selection: str,
        channel: Channel,
        ended: Callable[[bool], Ending],
        pid: int,
        is_shared: bool = False,
    ) -> None:
        """``is_shared``: the process goes on when the device is released, with others."""
        self.device = device
        self.pid = pid
        self._is_shared = is_shared
        self._shared: Arena = shared_memory()
        # host memory that is no shared memory, and that downloads which are under way write
        self._written: list[tuple[Bytes, WorkerEvent]] = []
        told, tells = os.pipe()  # last words
        os.set_blocking(told, False)
        channel.call("hello", m.VERSION, self._shared.nbytes, descriptors=[self._shared.descriptor, 1, 2, tells])
        os.close(tells)
        self._link = link = WorkerLink(channel, device.name, lambda expected: _with_words(ended(expected), told))
        self._dropped = link.dropped
        self._close = weakref.finalize(self, WorkerLink.close, link)
        try:
            link.ask("open", selection, device.name, device.memory != HOST)
        except DriverError as error:
            self._close()
            raise DriverError(f"{device.name} cannot be opened: {error.message}") from None

    # memory

    @property
    def has_crashed(self) -> bool:
        return self._link.has_crashed

    def allocate(self, nbytes: int, host: Bytes | None = None) -> RemoteMemory:
        offset = None
        if host is not None:
            if self.device.memory != HOST:
                raise DriverError(f"{self.device.name} has a memory of its own")
            offset = self._shared.place(host)
            if offset is None:
                raise DriverError(f"{self.device.name} computes in another process, which has not got this memory")
        memory = RemoteMemory(self._dropped, nbytes, host)
        self._link.ask("memory", memory.number, nbytes, offset)
        return memory

    def part(self, allocation: RemoteMemory, offset: int, nbytes: int) -> RemoteMemory:
        memory = allocation.part(self._dropped, offset, nbytes, self.device)
        self._link.hold("part", memory.number, allocation.number, offset, nbytes)
        return memory

    def free(self, allocation: RemoteMemory) -> None:
        if not allocation.is_freed:
            allocation.is_freed = True
            allocation.kept = None
            self._link.hold("free", allocation.number)

    def pin(self, data: Bytes) -> object:
        return None

    # programs

    def build(self, source: Source) -> RemoteProgram:
        program = RemoteProgram(self._dropped)
        path = os.path.abspath(source.path)
        options = _absolute(source.options)
        self._link.ask("program", program.number, source.text, options, path)
        return program

    def kernel(self, program: RemoteProgram, name: str) -> WorkerKernel:
        kernel = WorkerKernel(self._dropped)
        kernel.most_items = self._link.ask("kernel", kernel.number, program.number, name)
        return kernel

    def function(self, function: Callable[..., None], arguments: int) -> WorkerKernel:
        raise DriverError(f"{self.device.name} computes in another process, which calls no functions of this one")

    # commands

    def queue(self, timed: bool) -> WorkerQueue:
        words = self._stage(8 * progress.WORDS)
        words[:] = 0
        place = self._shared.place(words)
        assert place is not None
        queue = WorkerQueue(words.view(np.uint64))
        self._link.ask("queue", queue.number, timed, place)
        self._link.add(queue)
        return queue

    def launch(
        self,
        queue: WorkerQueue,
        kernel: Any,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...] | None,
        offset: tuple[int, ...] | None,
        after: Sequence[WorkerEvent] | None,
    ) -> WorkerEvent:
        self._link.check()
        sets, kernel.unsent = list(kernel.unsent.items()), {}
        event = WorkerEvent(queue, queue.given + 1, None, None)
        what = kernel.number, sets, global_size, local_size, offset
        return self._link.give(event, "launch", _waits(after), *what)

    def copy(
        self,
        queue: WorkerQueue,
        target: End,
        source: End,
        rectangles: Sequence[Rectangle],
        after: Sequence[WorkerEvent],
    ) -> Sequence[WorkerEvent]:
        self._link.check()
        number, waits = queue.given + 1, _waits(after)
        host = target if not isinstance(target.memory, RemoteMemory) else source
        if isinstance(host.memory, RemoteMemory):
            event = WorkerEvent(queue, number, None, None)
            there = _place(target), _place(source)
        else:
            offset = self._shared.place(host.memory)
            if offset is None:
                return [self._copy_staged(queue, target, source, rectangles, waits)]
            event = WorkerEvent(queue, number, host.memory, None)
            of_host = None, offset, host.memory.nbytes
            there = (of_host, _place(source)) if host is target else (_place(target), of_host)
        return [self._link.give(event, "copy", waits, *there, [rect[:4] for rect in rectangles])]

    def read(self, queue: WorkerQueue, out: Bytes, source: RemoteMemory, low: int) -> WorkerEvent:
        event = self.download(queue, out, source, low)
        self.flush(queue)
        self.wait(event)
        return event

    def download(self, queue: WorkerQueue, out: Bytes, source: RemoteMemory, low: int) -> WorkerEvent:
        self._link.check()
        return self._copy_staged(queue, End(out), End(source, -low), (Rectangle(0, len(out)),), ())

    def write(self, queue: WorkerQueue, target: RemoteMemory, data: Bytes, low: int) -> WorkerEvent:
        end = low + len(data)
        stage = self._stage(end)
        stage[low:end] = data
        return self.copy(queue, End(target), End(stage), (Rectangle(low, len(data)),), ())[0]

    def _copy_staged(
        self, queue: WorkerQueue, target: End, source: End, rectangles: Sequence[Rectangle], waits: m.Waits
    ) -> WorkerEvent:
        """By shared memory: what goes to the device is put there now, what comes from there is fetched at the end."""
        is_upload = isinstance(target.memory, RemoteMemory)
        device, host = (target, source) if is_upload else (source, target)
        data: Bytes = host.memory
        low, number = device.low, _place(device)[0]
        end = max((rect.offset + (rect.rows - 1) * rect.pitch + rect.width for rect in rectangles), default=low + 1)
        # from the device's first byte on: memory that nobody writes to takes no room
        stage, finish = self._stage(end - low), None
        if is_upload:
            self._wait_for_writers(data)
            copy_rows(stage, data, rectangles, -low, 0)
        else:

            def finish() -> None:
                copy_rows(data, stage, rectangles, 0, -low)

        event = WorkerEvent(queue, queue.given + 1, (stage, data), finish)
        there = (number, 0), (None, self._shared.place(stage), stage.nbytes)
        moved = [rect._replace(offset=rect.offset - low)[:4] for rect in rectangles]
        to, of = there if is_upload else there[::-1]
        if not is_upload:
            self._written = [(other, by) for other, by in self._written if not by.is_over]
            self._written.append((data, event))
        return self._link.give(event, "copy", waits, to, of, moved)

    def _stage(self, nbytes: int) -> Bytes:
        try:
            return self._shared.take(max(nbytes, 1))
        except MemoryError as error:
            raise DriverError(str(error)) from None

    def _wait_for_writers(self, data: Bytes) -> None:
        """Wait for downloads to memory that is read here at once, which nobody but their user shares. It is the only
        command that waits: what the engine moves is shared memory."""
        first = data.__array_interface__["data"][0]
        for other, event in self._written:
            begin = other.__array_interface__["data"][0]
            if begin < first + data.nbytes and first < begin + other.nbytes:
                self._link.flush()
                self._link.wait(event)

    def fill(
        self,
        queue: WorkerQueue,
        target: RemoteMemory,
        pattern: bytes,
        offset: int,
        nbytes: int,
        after: Sequence[WorkerEvent],
    ) -> WorkerEvent:
        self._link.check()
        event = WorkerEvent(queue, queue.given + 1, None, None)
        return self._link.give(event, "fill", _waits(after), target.number, pattern.hex(), offset, nbytes)

    def flush(self, queue: WorkerQueue) -> None:
        self._link.flush()

    def finish(self) -> None:
        self._link.settle()

    # events

    def done(self, event: WorkerEvent) -> bool:
        if event.fault is not None:
            raise anew(event.fault)
        return event.is_over

    def succeeded(self, events: Sequence[WorkerEvent]) -> bool:
        return all([event.is_over and event.fault is None for event in events])  # noqa: C419 (a third quicker)

    def wait(self, event: WorkerEvent) -> None:
        if not event.is_over:
            self._link.wait(event)
        self.done(event)

    def times(self, event: WorkerEvent) -> tuple[float, float]:
        if event.span is None:
            raise DriverError("nobody knows when it ran")
        return event.span

    def clock(self) -> float | None:
        """The host's clock is that of both processes."""
        try:
            found: float | None = self._link.ask("clock")
        except DriverError:
            return None
        return found

    def release(self) -> None:
        if self._close.detach() is not None:
            self._link.close(until_left=self._is_shared)


def _with_words(ending: Ending, told: int) -> Ending:
    """Return how a process has ended, with what it said of a fault, if it did."""
    with open(told, "rb", buffering=0) as pipe:
        words = (pipe.read(1 << 16) or b"").decode(errors="replace").strip().removeprefix("manycl: ")
    return Ending(f"{ending.words}: {words}", ending.has_crashed) if words else ending


def _absolute(options: Sequence[str]) -> list[str]:
    """Folders that are looked for from here; the other process may be elsewhere."""
    found, is_folder = [], False
    for option in options:
        if is_folder:
            option = os.path.abspath(option)
        elif option.startswith("-I") and len(option) > 2:
            option = f"-I{os.path.abspath(option[2:].strip())}"
        is_folder = option == "-I"
        found.append(option)
    return found


def _waits(after: Sequence[WorkerEvent] | None) -> m.Waits:
    """Return the numbers of events; what is over is still named: it may have failed."""
    return [(event.queue.number, event.number) for event in after] if after else ()


def _place(end: End) -> m.Place:
    memory: Any = end.memory
    return memory.number, end.low
