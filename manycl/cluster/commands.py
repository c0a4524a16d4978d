"""The commands of a client's session on a node, which its devices do one after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
from distributed.protocol import to_serialize

from manycl.cluster.exchange import Delivery, Outbox, ReceiveArbiter
from manycl.cluster.rows import packed
from manycl.drivers.driver import Bytes, DriverError, Source
from manycl.drivers.worker.things import HostedThings, words
from manycl.graph.graph import LocalArg
from manycl.region import Rectangle

Rectangles = Sequence[Sequence[int]]
"""Rectangles of a buffer, of one slice each: the first fields of a :class:`~manycl.region.Rectangle`."""


class NodeDevices(Protocol):
    """The devices of a node, as one. Commands behave as if they ran in the order in which they are given; memory,
    programs, kernels and events are objects of its own."""

    description: Mapping[str, Any]
    """Fields of :class:`manycl.machine.Device` that tell what the node is."""

    def allocate(self, nbytes: int) -> Any: ...
    def part(self, memory: Any, offset: int, nbytes: int) -> Any: ...
    def build(self, source: Source) -> Any: ...
    def kernel(self, program: Any, name: str) -> Any: ...
    def launch(self, kernel: Any, args: Sequence[Any], *ndrange: tuple[int, ...] | None) -> Any:
        """Enqueue a kernel. ``args``: memory, bytes of scalars, or LocalArg; then global size, local size, offset."""

    def fill(self, memory: Any, pattern: bytes, offset: int, nbytes: int) -> Any: ...
    def copy(self, target: Any, target_offset: int, source: Any, source_offset: int, nbytes: int) -> Any: ...
    def finish(self) -> None:
        """Wait for all that was enqueued. Raises ManyclError."""

    def times(self, event: Any) -> tuple[float, float] | None:
        """Return when a command that has ended began and ended, by ``time.perf_counter``, if that is known."""

    def read(self, memory: Any, low: int, high: int) -> Bytes:
        """Return bytes as they are when nothing is under way; they are to be looked at before anything is enqueued."""

    def write(self, memory: Any, low: int, high: int) -> Bytes:
        """Return the place of bytes that are all about to be written; nothing is under way."""

    def close(self) -> None: ...


class NodeCommands(HostedThings):
    """All of a session's commands, in their order, of which any may fail without those behind it not being tried.
    ``tell`` sends a message to the client. The methods are called what the commands are."""

    NOTES = frozenset(("memory", "part", "drop", "send"))
    COMMANDS = frozenset(("launch", "fill", "copy", "write", "read", "receive", "lend"))
    QUESTIONS = frozenset(("program", "kernel", "clock"))

    def __init__(
        self, devices: NodeDevices, arbiter: ReceiveArbiter, outbox: Outbox, tell: Callable[..., None]
    ) -> None:
        super().__init__()
        self.device, self._arbiter, self._outbox, self._tell = devices, arbiter, outbox, tell
        self._frames: Sequence[Bytes] = ()
        self._last = 0  # command
        self._uncertain: list[int] = []  # commands that were enqueued, and not waited for since
        self._timed: list[tuple[int, Any]] = []  # events of commands that are timed
        self._spans: list[tuple[int, float, float]] = []  # when commands began and ended
        self._begun = 0.0  # when the command began that is being done

    def do_all(self, message: Mapping[str, Any]) -> None:
        """Do the commands of a message from the client."""
        self._frames, self._begun = message["frames"], message["sent"]  # the first transfer's way here is a part of it
        for name, *given in message["commands"]:
            self._do(name, given)
            self._begun = time.perf_counter()
        self._frames = ()

    def _do(self, name: str, given: Sequence[Any]) -> None:
        """Do one command, or answer a question, whose number is given first."""
        try:
            if name in self.NOTES:
                getattr(self, name)(*given)
            elif name in self.QUESTIONS:
                self._tell(reply=given[0], value=getattr(self, name)(*given[1:]))
            elif name in self.COMMANDS:
                self._last = given[0]
                getattr(self, name)(*given)
        except Exception as error:
            if name in self.QUESTIONS:
                self._tell(reply=given[0], fault=words(error))
            elif name in self.COMMANDS:
                self._tell(failed=[given[0]], fault=words(error))

    def _settle(self) -> None:
        """Wait for what was enqueued, and tell of it; what is being done begins behind that."""
        if not self._uncertain:
            return
        uncertain, self._uncertain = self._uncertain, []
        timed, self._timed = self._timed, []
        try:
            self.device.finish()
        except Exception as error:
            self._tell(failed=uncertain, fault=words(error))
            raise
        self._spans += [(number, *span) for number, event in timed if (span := self.device.times(event)) is not None]
        self._begun = time.perf_counter()

    def report(self) -> None:
        """Tell that all commands have ended."""
        with suppress(Exception):  # which has been told
            self._settle()
        spans, self._spans = self._spans, []
        self._tell(ended=self._last, spans=spans)

    # what is kept

    def memory(self, number: int, nbytes: int) -> None:
        self.keep(number, lambda: self.device.allocate(nbytes))

    def program(self, number: int, text: str, options: Sequence[str], path: str) -> None:
        self._programs[number] = self.device.build(Source(text, tuple(options), path))

    def kernel(self, number: int, program: int, name: str) -> None:
        self._kernels[number] = self.device.kernel(self._programs[program], name)

    def clock(self) -> float:
        return time.perf_counter()

    # commands

    def launch(
        self, number: int, kernel: int, args: Sequence[Any], ndrange: Sequence[Sequence[int] | None], is_timed: bool
    ) -> None:
        self._uncertain.append(number)
        event = self.device.launch(
            self._kernels[kernel], [self._value(a) for a in args], *[n if n is None else tuple(n) for n in ndrange]
        )
        if is_timed:
            self._timed.append((number, event))

    def _value(self, value: Any) -> Any:
        """Return an argument: memory by its number, a scalar's bytes, or local memory of a size."""
        if isinstance(value, int):
            return self.of(value)
        return value if isinstance(value, bytes) else LocalArg(value[0])

    def fill(self, number: int, memory: int, pattern: bytes, offset: int, nbytes: int) -> None:
        self._uncertain.append(number)
        self._timed.append((number, self.device.fill(self.of(memory), pattern, offset, nbytes)))

    def copy(self, number: int, target: int, to: int, source: int, of: int, rectangles: Rectangles) -> None:
        """``to``, ``of``: the byte of the buffer that the memory begins with."""
        self._uncertain.append(number)
        for rect in rectangles:
            there, here = self.of(target), self.of(source)
            for start in Rectangle(*rect).starts().tolist():
                event = self.device.copy(there, start - to, here, start - of, rect[1])
                self._timed.append((number, event))  # (of several, the last one counts)

    def write(self, number: int, memory: int, low: int, rectangles: Rectangles, frame: int) -> None:
        self._settle()
        self._put(memory, low, rectangles, self._frames[frame])
        self._spans.append((number, self._begun, time.perf_counter()))

    def receive(self, number: int, memory: int, low: int, rectangles: Rectangles, source: int, tag: int) -> None:
        self._settle()
        self._put(memory, low, rectangles, self._arbiter.take(source, tag))
        self._spans.append((number, self._begun, time.perf_counter()))

    def _put(self, memory: int, low: int, rectangles: Rectangles, frame: Bytes) -> None:
        there = self.of(memory)
        if len(frame) != (expected := sum([Rectangle(*rect).nbytes for rect in rectangles])):
            raise DriverError(f"a frame has {len(frame)} bytes, and {expected} are expected")
        begin = 0
        for rect in rectangles:
            for start in Rectangle(*rect).starts().tolist():
                end = begin + rect[1]
                self.device.write(there, start - low, start - low + rect[1])[:] = frame[begin:end]
                begin = end

    def read(self, number: int, memory: int, low: int, rectangles: Rectangles) -> None:
        self._tell(data=number, frame=to_serialize(self._got(memory, low, rectangles)), begun=self._begun)

    def send(self, memory: int, low: int, rectangles: Rectangles, target: int, tag: int) -> None:
        try:
            delivery = Delivery(tag, "", self._got(memory, low, rectangles))
        except Exception as error:
            delivery = Delivery(tag, words(error))
        self._outbox.put(target, delivery)

    def lend(self, number: int, memory: int, low: int, rectangles: Rectangles, source: int, tag: int) -> None:
        """Keep bytes for this worker's Dask. ``source``: this node."""
        self._arbiter.offer(source, tag, self._got(memory, low, rectangles))
        self._spans.append((number, self._begun, time.perf_counter()))

    def _got(self, memory: int, low: int, rectangles: Rectangles) -> Bytes:
        """Return a copy of rectangles as they are now: what comes next may change them while they travel."""
        self._settle()
        wanted = [Rectangle(*rect) for rect in rectangles]
        first, end = min(rect.offset for rect in wanted), max(rect.end for rect in wanted)
        data = self.device.read(self.of(memory), first - low, end - low)
        return np.array(packed(data, wanted, first))
