"""What every kernel that migrates needs, written by hand: two devices, slices, transfers in chunks, and the switch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

CHUNK = 8 << 20
"""Bytes of a transfer between two looks at whether the fast device has become free."""
PAUSE = 20e-6
"""Seconds between looks at a slice that runs."""

Section = Callable[[int, int], tuple[int, int]]
"""From which element up to which points from one up to another touch an array."""


class Shared(NamedTuple):
    """An array of a kernel, in the order of its arguments: which part a slice needs (None: all of it), and whether the
    kernel reads and writes it."""

    host: Any
    section: Section | None = None
    reads: bool = True
    writes: bool = False


class Switched(Exception):
    """The fast device has become free while data were moved for the slow one."""


class Side:
    """One device, set up before it is needed: context, queue, kernel and buffers."""

    def __init__(self, device: Any, source: str, name: str, arrays: Sequence[Shared], options: Sequence[str]) -> None:
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context)
        self.kernel = cl.Kernel(cl.Program(self.context, source).build(list(options)), name)
        self.arrays = arrays
        self.buffers = [cl.Buffer(self.context, cl.mem_flags.READ_WRITE, max(a.host.nbytes, 1)) for a in arrays]
        self.complete = [False] * len(arrays)

    def bring(self, first: int, last: int, stop: Callable[[], bool]) -> None:
        """Upload what points need, in chunks. Raises Switched as soon as there is a reason to stop."""
        for index, array in enumerate(self.arrays):
            if not array.reads or self.complete[index]:
                continue
            size = array.host.itemsize
            low, high = (0, array.host.size) if array.section is None else array.section(first, last)
            flat = array.host.reshape(-1)
            for begin in range(low, high, max(CHUNK // size, 1)):
                if stop():
                    raise Switched
                end = min(begin + max(CHUNK // size, 1), high)
                cl.enqueue_copy(
                    self.queue, self.buffers[index], flat[begin:end], dst_offset=begin * size, is_blocking=True
                )
            if array.section is None:
                self.complete[index] = True

    def launch(self, first: int, last: int, local: int, numbers: Sequence[Any]) -> Any:
        """Begin a slice; its event."""
        size = -(-(last - first) // local) * local
        bounds = np.int32(first), np.int32(last)
        event = self.kernel(self.queue, (size,), (local,), *self.buffers, *numbers, *bounds)
        self.queue.flush()
        return event

    def fetch(self, first: int, last: int) -> None:
        """Download what points have written, into its place."""
        for array, buffer in zip(self.arrays, self.buffers, strict=True):
            if not array.writes:
                continue
            low, high = (0, array.host.size) if array.section is None else array.section(first, last)
            flat = array.host.reshape(-1)
            offset = low * array.host.itemsize
            cl.enqueue_copy(self.queue, flat[low:high], buffer, src_offset=offset, is_blocking=True)


class Program(NamedTuple):
    """A kernel with all that it works on. ``slice_points``: of a slice on the slow device; ``idempotent``: a slice may
    be run again; ``merge``: puts the results of a slice together with others (a reduction)."""

    source: str
    kernel: str
    points: int
    arrays: Sequence[Shared]
    numbers: Sequence[Any] = ()
    slice_points: int = 1 << 14
    local: int = 64
    idempotent: bool = True
    merge: Callable[[int, int], None] | None = None
    options: Sequence[str] = ()


class Migrating:
    """A kernel that begins on a slow device, in slices, and moves to a fast one when that is free."""

    def __init__(self, program: Program, slow: Any, fast: Any) -> None:
        self.program = program
        kept = program.source, program.kernel, program.arrays, program.options
        self.slow, self.fast = Side(slow, *kept), Side(fast, *kept)
        self.done_by: dict[str, int] = {"slow": 0, "fast": 0}

    def run(self, is_free: Callable[[], bool]) -> None:
        """All of the kernel; ``is_free`` tells whether the fast device is available by now."""
        first = 0
        while first < self.program.points and not is_free():
            last = min(first + self.program.slice_points, self.program.points)
            try:
                self.slow.bring(first, last, is_free)
            except Switched:
                break
            event = self.slow.launch(first, last, self.program.local, self.program.numbers)
            if not self._ended(event, is_free):
                if self.program.idempotent:
                    break  # the fast device does this slice again; nobody asks for what the slow one makes of it
                event.wait()
            self._take(self.slow, first, last, "slow")
            first = last
        if first < self.program.points:
            self._rest(first)

    def _ended(self, event: Any, is_free: Callable[[], bool]) -> bool:
        """Wait until a slice has ended (true), or the fast device has become free before it has."""
        while event.command_execution_status > cl.command_execution_status.COMPLETE:
            if is_free():
                return False
            time.sleep(PAUSE)
        return True

    def _rest(self, first: int) -> None:
        """What is left, at once, on the fast device."""
        last = self.program.points
        for array in self.program.arrays:
            if array.writes and array.section is None and self.program.merge is None:
                raise ValueError("what the slow device has written of an array as a whole cannot be told apart")
        self.fast.bring(first, last, lambda: False)
        self.fast.launch(first, last, self.program.local, self.program.numbers).wait()
        self._take(self.fast, first, last, "fast")
        self.slow.queue.finish()  # its arrays are in use until then

    def _take(self, side: Side, first: int, last: int, name: str) -> None:
        side.fetch(first, last)
        if self.program.merge is not None:
            self.program.merge(first, last)
        self.done_by[name] += last - first
