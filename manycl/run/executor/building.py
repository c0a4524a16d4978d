"""Programs and kernels of a run, all built before its time starts."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from manycl.analysis.facts import ProgramFacts
from manycl.errors import SourceError
from manycl.graph import bounds
from manycl.graph.graph import Graph, Launch, Version
from manycl.machine import DeviceIndex
from manycl.model import trips
from manycl.run.executor.programs import Programs
from manycl.run.lowering.steps import RANGE, Lowered

_newest: weakref.ref[Builder] | None = None


def build_now(program: ProgramFacts) -> None:
    """Build a program for the devices of the session that was opened last, if one is open. A failure to build is
    reported when the program is to run on that device."""
    builder = _newest() if _newest is not None else None
    if builder is not None:
        builder.build_everywhere(program)


class Builder:
    """A builder of graphs' programs. It remembers the last graph, which nearly always comes again."""

    def __init__(self, programs: Programs, recall: Callable[[ProgramFacts], None]) -> None:
        global _newest
        self._programs = programs
        self._recall = recall  # reads what was measured of a program
        self._built: tuple[Graph, tuple[DeviceIndex, ...]] | None = None
        _newest = weakref.ref(self)

    def close(self) -> None:
        """Build nothing any more."""
        global _newest
        if _newest is not None and _newest() is self:
            _newest = None

    def build_everywhere(self, program: ProgramFacts) -> None:
        """Build a program for all devices, and read what is known of its launches."""
        self._programs.build_everywhere(program)
        bounds.recall(program)
        trips.recall(program)
        if len(self._programs.devices) > 1:  # first commands are decided by it
            self._recall(program)

    def unable(self, graph: Graph, lowered: Lowered) -> Iterator[tuple[Version, DeviceIndex, str]]:
        """Yield the versions that ranges of a plan's launches shall run on devices that cannot run them: version,
        device and reason. The kernels of all others are built now. (Whole launches take another version.)"""
        if not lowered.steps or lowered.plan is None:
            return
        if not any(isinstance(task, Launch) and task.versions for task in graph.nodes):
            return
        found: set[tuple[int, DeviceIndex]] = set()
        for a in lowered.plan.assignments:
            step, own = lowered.step(a.node), lowered.graph.nodes[a.node]
            launch = graph.nodes[step.node]
            if (
                step.role != RANGE
                or not isinstance(launch, Launch)
                or not isinstance(own, Launch)
                or not launch.versions
            ):
                continue
            if (id(own.program), a.device) not in found:
                found.add((id(own.program), a.device))
                fault = self._programs.fault(own, a.device)
                if fault:
                    yield launch.versions[step.version], a.device, fault

    def build(self, lowered: Lowered, queues: Sequence[int]) -> None:
        """Build each step's kernel for its device, of a plan with steps; else all for all used devices."""
        graph, devices = lowered.graph, tuple(DeviceIndex(d) for d, n in enumerate(queues) if n)
        if self._built is not None and self._built[0] is graph and self._built[1] == devices:
            return
        if lowered.steps and lowered.plan is not None:
            found = [(graph.nodes[a.node], a.device) for a in lowered.plan.assignments]
        else:
            found = [(task, d) for d in devices for task in graph.nodes]
        launches = [(task, d) for task, d in found if isinstance(task, Launch)]
        self._programs.prepare((launch, d) for launch, d in launches if not launch.versions)
        for launch, device in launches:
            if launch.versions:
                with suppress(SourceError):  # that no version can run there matters only when the launch is sent there
                    self._programs.version(launch, device)
        self._built = (graph, devices)
