"""Recorded commands of drivers that keep none themselves (:class:`manycl.drivers.driver.CommandRecorder`): calls of the
driver, one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from manycl.drivers.driver import (
    Driver,
    End,
    Event,
    RecordedCommand,
    RecordedCopy,
    RecordedFill,
    RecordedLaunch,
    Values,
)
from manycl.region import Rectangle

_Entry = tuple[Any, ...]
"""The driver's ``launch`` (or a function that enqueues a copy or fill), the kernel, the arguments that earlier entries
leave with other values, the queue, sizes, offset, and the entries that it waits for."""


class RecordedCalls:
    """The calls of a driver as recorded sequences."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def record(self, commands: Sequence[RecordedCommand], values: Values) -> Sequence[RecordedCommand]:
        """Record commands, as CommandRecorder.record."""
        return tuple(commands)

    def bind(self, recorded: Sequence[RecordedCommand], values: Values) -> Sequence[_Entry]:
        """Return the calls bound to a table (CommandRecorder.bind)."""
        entries: list[_Entry] = []
        left: dict[tuple[int, int], object] = {}  # the last values of kernels' arguments
        for command in recorded:
            queue, after = command[:2]
            if not isinstance(command, RecordedLaunch):
                entries.append((self._as_launch(command, values), None, (), queue, (), None, None, after))
                continue
            kernel, args = command.kernel, []
            for index, slot in enumerate(command.args):
                value, before = values[slot], left.get((id(kernel), index))
                if before is not value and not (isinstance(value, bytes) and before == value):
                    left[id(kernel), index] = value
                    args.append((index, value))
            sizes = command.global_size, command.local_size, command.offset
            entries.append((self._driver.launch, kernel, args, queue, *sizes, after))
        return entries

    def _as_launch(self, command: RecordedCopy | RecordedFill, values: Values) -> Callable[..., Event]:
        """Return a copy or fill as a function that is called like the driver's ``launch``."""
        driver, target = self._driver, values[command.target]
        if isinstance(command, RecordedFill):
            what = command.pattern, command.offset, command.nbytes
            return lambda queue, _kernel, _global, _local, _offset, after: driver.fill(
                queue, target, *what, after or ()
            )
        # the rectangle is counted from the source's first byte, and so must be the target
        ends = End(target, command.source_offset - command.target_offset), End(values[command.source])
        rectangles = (Rectangle(command.source_offset, command.nbytes),)
        return lambda queue, _kernel, _global, _local, _offset, after: driver.copy(
            queue, *ends, rectangles, after or ()
        )[-1]

    def play(self, bound: Sequence[_Entry], events: list[Event]) -> None:
        """Enqueue the recorded calls, as ``CommandRecorder.play`` does; kernels keep their last arguments."""
        append = events.append
        for launch, kernel, args, queue, global_size, local_size, offset, after in bound:
            for index, value in args:
                kernel.set(index, value)
            append(
                launch(queue, kernel, global_size, local_size, offset, [events[i] for i in after] if after else None)
            )
