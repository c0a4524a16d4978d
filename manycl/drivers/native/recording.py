"""Recorded commands of native devices, all of which the runtime enqueues in one call. A recorded sequence is an array
of ``struct step`` (runtime/recording.h). A step has what its launch, copy or fill was recorded with, and patches: bytes
of the binding table that come in the place of some of it whenever it is played. The table has the values of the slots,
and behind them what is computed of several of them."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate, repeat
from operator import attrgetter
from typing import Any, NamedTuple

from manycl.drivers.driver import DriverError, End, Event, RecordedCommand, RecordedCopy, RecordedLaunch, Values
from manycl.drivers.native.compiler.library import Library
from manycl.drivers.native.kernel import NativeMemory, SetKernel, address_in, check_fill, extents
from manycl.drivers.native.queue import GIVEN, TIMES, NativeQueue

_LAUNCH, _COPY, _FILL = range(3)  # as in runtime/recording.h
_MEMORY, _COPIED, _FILLED = struct.Struct("@2Q"), struct.Struct("@5Q"), struct.Struct("@3Q128s")
_MOST_WAITS = 1024
"""Commands of other queues that a command may wait for: the runtime has them on its stack (our own choice)."""

_TIMES = attrgetter("times")

_Words = Callable[[Sequence[Any]], Sequence[int]]
"""The numbers (64 bits) that are computed of a binding table."""


class RecordedSteps(NamedTuple):
    """A recorded sequence. ``steps``: its structures; ``queues``: of each step; ``distinct``: these, each once;
    ``is_timed``: whether some are timed; ``library``: the runtime. ``kinds`` and ``sizes``: of the slots; ``computed``:
    what is behind them in the table. ``pointed``: what the structures point at; ``used``: what commands use, but for
    memory."""

    steps: array[int]
    queues: Sequence[NativeQueue]
    distinct: frozenset[NativeQueue]
    is_timed: bool
    library: Library
    kinds: Sequence[type]
    sizes: Sequence[int]
    computed: Sequence[_Words]
    pointed: object
    used: object

    def bind(self, values: Values) -> BoundSteps:
        """Return the commands bound to a table (CommandRecorder.bind). Local memory stays
        what it was when the sequence was recorded."""
        parts = _parts(values)
        if [*map(type, values)] != self.kinds or [*map(len, parts)] != self.sizes:
            raise DriverError("a binding table has values of other kinds or sizes than the one of the recording")
        for words in self.computed:
            parts.append(array("Q", words(values)).tobytes())
        return BoundSteps(self, b"".join(parts), (self.used, *values))


class BoundSteps(NamedTuple):
    """A recorded sequence and a binding table. ``uses``: what its commands use until they are complete."""

    recorded: RecordedSteps
    table: bytes
    uses: object

    def play(self, events: list[Event]) -> None:
        """Enqueue the recorded calls, as ``CommandRecorder.play`` does."""
        (recorded, table, uses), first = self, 0
        queues, steps, library = recorded.queues, recorded.steps.buffer_info()[0], recorded.library
        numbers = array("Q", bytes(8 * len(queues)))
        while first < len(queues):
            room = len(queues)
            for queue in recorded.distinct if recorded.is_timed else ():  # each has room for the times of so many
                room = min(room, TIMES - queue.state[GIVEN] % TIMES)
            part = queues[first : first + room]
            for queue in recorded.distinct.intersection(part):
                queue.keep(uses, part.count(queue))
            last = first + len(part)
            end = library.play(steps, first, last, table, numbers.buffer_info()[0])
            times = map(_TIMES, part) if recorded.is_timed else repeat(None)
            events += zip(part, numbers[first:end], times, strict=False)
            if end < last:
                raise DriverError("there is no memory for a command")
            first = end


def record(library: Library, commands: Sequence[RecordedCommand], values: Values) -> RecordedSteps | None:
    """Record commands, as CommandRecorder.record. Commands that the driver refuses, or does by other means, are not
    recorded."""
    try:
        return _StepRecorder(library, values).record(commands)
    except DriverError:
        return None


class _StepRecorder:
    """A sequence that is being recorded, with one binding table."""

    def __init__(self, library: Library, values: Values) -> None:
        self._library, self._values = library, values
        self._sizes = [*map(len, _parts(values))]
        *self._starts, self._end = accumulate(self._sizes, initial=0)  # bytes of the table
        self._computed: list[_Words] = []
        self._used: list[object] = []

    def record(self, commands: Sequence[RecordedCommand]) -> RecordedSteps:
        """Return the recorded sequence. Raises DriverError."""
        steps, kept = array("Q"), list[object]()
        for command in commands:
            kind, shape, content, patches = self._step(command)
            after = [i for i in command.after if commands[i].queue is not command.queue]
            if len(after) > _MOST_WAITS:
                raise DriverError("a recorded command waits for too many others")
            pointed = array("B", content), array("Q", patches), array("Q", after)
            (at, _), (patched, words), waits = (each.buffer_info() for each in pointed)
            steps.extend((command.queue.address, kind, shape, at, patched, words // 3, *waits))
            kept.append(pointed)
        queues, kinds = [command.queue for command in commands], [*map(type, self._values)]
        distinct = frozenset(queues)
        is_timed = any(queue.is_timed for queue in distinct)
        table = kinds, self._sizes, self._computed
        return RecordedSteps(steps, queues, distinct, is_timed, self._library, *table, kept, self._used)

    def _step(self, command: RecordedCommand) -> tuple[int, int, bytes, list[int]]:
        """Return the kind, the address of the shape, the content and the patches of a step."""
        if isinstance(command, RecordedLaunch):
            return self._launch(command)
        target, nbytes = command.target, command.nbytes
        if isinstance(command, RecordedCopy):
            source, into, of = command.source, command.target_offset, command.source_offset
            patches = self._behind(0, lambda v: (_at(v[target], into, nbytes), _at(v[source], of, nbytes)))
            return _COPY, 0, _COPIED.pack(0, 0, nbytes, 0, 1), patches
        pattern, offset = command.pattern, command.offset
        check_fill(pattern, offset, nbytes)
        patches = self._behind(0, lambda v: (_at(v[target], offset, nbytes),))
        return _FILL, 0, _FILLED.pack(0, nbytes, len(pattern), pattern), patches

    def _launch(self, command: RecordedLaunch) -> tuple[int, int, bytes, list[int]]:
        kernel, slots = command.kernel, command.args
        if type(kernel) is not SetKernel:
            raise DriverError("Python's functions are not recorded")
        for index, slot in enumerate(slots):
            kernel.set(index, self._values[slot])
        shape = kernel.shape(command.global_size, command.local_size, command.offset)
        patches: list[int] = []
        for slot, place in zip(slots, kernel.places, strict=True):
            patches += (place, self._starts[slot], self._sizes[slot]) if self._sizes[slot] else ()
        counted = kernel.kernel.counted
        if counted:
            held = {index: slot for index, slot in enumerate(slots) if type(self._values[slot]) is NativeMemory}
            patches += self._behind(
                8 * kernel.extents.start, lambda v: extents(counted, {index: v[slot] for index, slot in held.items()})
            )
        self._used.append((shape, kernel.kernel))
        return _LAUNCH, shape.address, kernel.content, patches

    def _behind(self, place: int, computed: _Words) -> list[int]:
        """Return the patch by which words that are computed of the table come to a place of a step's content."""
        start, nbytes = self._end, 8 * len(computed(self._values))
        self._computed.append(computed)
        self._end += nbytes
        return [place, start, nbytes]


def _at(memory: Any, offset: int, nbytes: int) -> int:
    return address_in(End(memory), offset, nbytes)


def _parts(values: Values) -> list[bytes]:
    """Return values as they are in the table: nothing of local memory, which is part of the shape."""
    found: list[bytes] = []
    for value in values:
        if isinstance(value, NativeMemory):
            value = _MEMORY.pack(value.address, value.nbytes)
        found.append(value if type(value) is bytes else b"")
    return found
