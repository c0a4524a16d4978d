"""Versions of a kernel that are several kernels: a device gets all of them, with temporary memory."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from manycl.drivers.driver import Allocation, DriverError, Event
from manycl.graph.graph import BufferArg, Launch, Version, ndrange
from manycl.graph.versions.sequence import SequenceProgram, temporary_key
from manycl.machine import DeviceIndex
from manycl.run.commands.backend import Run
from manycl.run.data.memory import Memory
from manycl.run.executor.lanes import Lanes
from manycl.run.executor.programs import KernelObject, Programs
from manycl.run.executor.run_state import RunState
from manycl.run.executor.sub_buffers import placed
from manycl.utilities.kept import Kept
from manycl.utilities.logs import logger

log = logger(__name__)

_KEPT = 16  # sets of temporary memory, each of one queue, that are kept at most; our own choice

Views = dict[tuple[int, int, int | None], Allocation]
"""Parts of temporary memory, by number, offset and bytes (None: the whole)."""


class Sequences:
    """The sequences of an executor. Temporary memory belongs to a queue, whose commands run one after another, and is
    kept for the next time."""

    def __init__(self, memory: Memory, programs: Programs) -> None:
        self._memory, self._programs = memory, programs
        self._temporaries: Kept[tuple[int, int, tuple[int, ...]], tuple[object, Views]] = Kept(_KEPT)

    def have_room(self, chosen: Version, lanes: Lanes, queue: int) -> bool:
        """Return whether there is the memory that a version needs in a queue."""
        assert isinstance(chosen.program, SequenceProgram)
        try:
            self._views(lanes, queue, chosen.program)
        except DriverError as error:
            words = f"{chosen.kernel.name} needs temporary memory that {lanes.device.name} has not: {error}"
            log.warning("%s", words)
            warnings.warn(words, RuntimeWarning, stacklevel=2)
            return False
        return True

    def give(
        self, run: RunState, launch: Launch, chosen: Version, command: Run, waits: Sequence[Event] | None, lanes: Lanes
    ) -> Event:
        """Enqueue the kernels, each behind the one before it; return the last one's event, which stands for all. There
        is room for their temporary memory. Raises DriverError."""
        program, (node, device, queue) = chosen.program, command[:3]
        assert isinstance(program, SequenceProgram)
        views = self._views(lanes, queue, program)
        run.record.versions[node] = chosen
        run.record.parts[node] = [ndrange(step) for step in program.steps]
        event: Event = None
        for step in program.launches(launch):
            asked = run.now()
            kernel = self._with_arguments(step, device, lanes, views)
            kind = step.local_size or step.global_size, step.global_offset is None
            if kind not in kernel.launched:
                kernel.launched.add(kind)
                run.record.first.setdefault(node, asked)
            event = lanes.latest[queue] = lanes.launch(
                lanes.queues[queue], kernel.kernel, step.global_size, step.local_size, step.global_offset, waits
            )
            waits = None  # the queue keeps its order
            run.record.kernels.append((node, device, queue, event))
        run.events[node] = event
        return event

    def _views(self, lanes: Lanes, queue: int, program: SequenceProgram) -> Views:
        key = id(lanes.queues[queue]), queue, program.temporaries
        found = self._temporaries.get(key)
        if found is None:
            made: Views = {(i, 0, None): lanes.driver.allocate(n) for i, n in enumerate(program.temporaries)}
            found = self._temporaries.keep(key, (lanes.queues[queue], made))
        return found[1]

    def _with_arguments(self, step: Launch, device: DeviceIndex, lanes: Lanes, views: Views) -> KernelObject:
        """Return the kernel of a step, with its arguments set."""
        program, args = placed(step.program, step.kernel.name, step.args, lanes.device)
        kernel = self._programs.kernel(program, step.kernel.name, device)
        numbers = {temporary_key(number): number for number, _, _ in views}
        kernel.put_all(
            _part(lanes, views, numbers[arg.key], arg)
            if isinstance(arg, BufferArg) and arg.key in numbers
            else self._memory.argument(arg, device)
            for arg in args
        )
        return kernel


def _part(lanes: Lanes, views: Views, number: int, arg: BufferArg) -> Allocation:
    whole = views[number, 0, None]
    if arg.nbytes is None:
        return whole
    place = number, arg.offset, arg.nbytes
    if place not in views:
        views[place] = lanes.driver.part(whole, arg.offset, arg.nbytes)
    return views[place]
