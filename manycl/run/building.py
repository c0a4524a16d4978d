"""Programs and kernels of a run: all that it will use exists before time starts."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress

from manycl.analysis.facts import ProgramFacts
from manycl.errors import SourceError
from manycl.graph.graph import Graph, Launch
from manycl.run.backends.programs import Programs
from manycl.run.steps import Lowered

_newest: weakref.ref[Builder] | None = None


def build_now(program: ProgramFacts) -> None:
    """Build a program for the devices of the session that was opened last, if one is open. What does not build there is
    told when it is to run there."""
    builder = _newest() if _newest is not None else None
    if builder is not None:
        builder.build_everywhere(program)


class Builder:
    """Remembers what it was asked for last: nearly always it is the same again."""

    def __init__(self, programs: Programs) -> None:
        global _newest
        self._programs = programs
        self._built: tuple[Graph, tuple[int, ...]] | None = None
        _newest = weakref.ref(self)

    def close(self) -> None:
        """Nothing is built any more."""
        global _newest
        if _newest is not None and _newest() is self:
            _newest = None

    def build_everywhere(self, program: ProgramFacts) -> None:
        """A program, for all devices."""
        for device in range(self._programs.devices):
            with suppress(SourceError):
                self._programs.build([program], [device])

    def build(self, lowered: Lowered, queues: Sequence[int]) -> None:
        """Of a plan with steps, each step's kernel where it runs; else all kernels on all devices that are used."""
        if lowered.steps and lowered.plan is not None:
            self._build_steps(lowered)
        else:
            self._build_all(lowered.graph, tuple(d for d, n in enumerate(queues) if n))

    def _build_steps(self, lowered: Lowered) -> None:
        if self._built is not None and self._built[0] is lowered.graph:
            return
        assert lowered.plan is not None
        wanted: dict[int, list[Launch]] = {}
        for a in lowered.plan.assignments:
            task = lowered.graph.nodes[a.node]
            if isinstance(task, Launch) and task.versions:
                self._choose(task, a.device)
            elif isinstance(task, Launch):
                wanted.setdefault(a.device, []).append(task)
        for device, launches in wanted.items():
            kernels = self._programs.placed(launches, device)
            self._programs.build({id(program): program for program, _ in kernels}.values(), [device])
            for program, name in kernels:
                self._programs.kernel(program, name, device)
        self._built = (lowered.graph, tuple(wanted))

    def _build_all(self, graph: Graph, devices: tuple[int, ...]) -> None:
        if self._built is not None and self._built[0] is graph and self._built[1] == devices:
            return
        launches = [n for n in graph.nodes if isinstance(n, Launch)]
        plain = [n for n in launches if not n.versions]
        kernels = {device: self._programs.placed(plain, device) for device in devices}
        self._programs.build([program for found in kernels.values() for program, _ in found], devices)
        for device in devices:
            for program, name in kernels[device]:
                self._programs.kernel(program, name, device)
            for launch in launches:
                if launch.versions:
                    self._choose(launch, device)
        self._built = (graph, devices)

    def _choose(self, launch: Launch, device: int) -> None:
        with suppress(SourceError):  # where no version can run matters only when the launch is sent there
            self._programs.version(launch, device)
