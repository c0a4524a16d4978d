"""Rescheduling: which device runs a step instead of its planned one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from manycl.graph.graph import HostTask, Launch
from manycl.machine import DeviceIndex
from manycl.plan.plan import ON_HOST
from manycl.plan.problem import Problem
from manycl.run.lowering.steps import RANGE, Lowered


class Reassignment:
    """The rescheduling of a plan's steps."""

    def __init__(self, problem: Problem, lowered: Lowered) -> None:
        self._problem, self._lowered = problem, lowered
        self._devices = problem.machine.devices
        self._elsewhere: dict[tuple[int, int], int] = {}  # by node and memory, the memory used instead

    def seconds(self, step: int, device: DeviceIndex) -> float:
        """Return the predicted seconds of a step, as far as they are known."""
        of = self._lowered.step(step)
        if device == ON_HOST or isinstance(self._lowered.graph.nodes[step], HostTask):
            return 0.0
        if of.role == RANGE and of.node in self._problem.splits:
            return self._problem.range_seconds(of.node, device, of.groups)
        return self._problem.estimates.launch(of.node, device) if not of.role else 0.0

    def able(
        self, step: int, was: DeviceIndex, away: Collection[DeviceIndex], is_stopped: bool = False
    ) -> list[DeviceIndex]:
        """Return the devices that may run a step of another device. What steps write at the same time stays in one
        memory; which one may change only while no command is in flight (``is_stopped``)."""
        problem, of, machine = self._problem, self._lowered.step(step), self._devices
        places = [d for d in problem.preferred(of.node) if d not in away]
        places = places or [d for d in problem.machine.indices if d not in away]
        places = [d for d in places if problem.can_run(of.node, d)]
        if not of.role:
            places = [d for d in places if problem.fits(of.node, d)]
        launch = problem.graph.nodes[of.node]
        if of.role and isinstance(launch, Launch) and launch.versions:  # the version was chosen for its kind of device
            places = [d for d in places if machine[d].kind == machine[was].kind]
        if step in self._lowered.graph.beside:
            memory = machine[was].memory
            if is_stopped and all(d in away for d, device in problem.machine.numbered() if device.memory == memory):
                memory = self._elsewhere.setdefault((of.node, memory), machine[places[0]].memory if places else memory)
            places = [d for d in places if machine[d].memory == memory]
        return places

    def chosen(
        self,
        steps: Iterable[int],
        was: Mapping[int, DeviceIndex],
        busy: Sequence[float],
        away: Collection[DeviceIndex],
        is_stopped: bool = False,
    ) -> dict[int, DeviceIndex]:
        """Return a device for each of some steps, in their order: the one that ends it first, if each device runs all
        that it has one after another. ``busy``: seconds of what devices have. A step for which there is no device has
        no entry."""
        return {s: d for s, d, _ in self._placed(steps, was, busy, away, is_stopped) if d is not None}

    def until(
        self, steps: Iterable[int], was: Mapping[int, DeviceIndex], busy: Sequence[float], away: Collection[DeviceIndex]
    ) -> float:
        """Return the seconds until all of these steps, so placed, and all that devices have, have ended."""
        return max([*busy, *(end for _, _, end in self._placed(steps, was, busy, away))])

    def _placed(
        self,
        steps: Iterable[int],
        was: Mapping[int, DeviceIndex],
        busy: Sequence[float],
        away: Collection[DeviceIndex],
        is_stopped: bool = False,
    ) -> Iterator[tuple[int, DeviceIndex | None, float]]:
        """Yield steps with their devices (None: there is none, and it stays) and their ends, each after those of them
        on which it depends."""
        busy, ends = list(busy), dict[int, float]()
        for step in steps:
            ready = max((ends.get(p, 0.0) for p in self._lowered.graph.predecessors[step]), default=0.0)
            places = self.able(step, was[step], away, is_stopped)
            found = [(max(busy[d], ready) + self.seconds(step, d), d) for d in places or [was[step]]]
            ends[step], device = min(found)
            busy[device] = ends[step]
            yield step, device if places else None, ends[step]
