"""Which device runs a step instead of the one that was to. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from manycl.graph.graph import HostTask, Launch
from manycl.machine import DeviceIndex
from manycl.plan.plan import ON_HOST
from manycl.plan.problem import Problem
from manycl.run.lowering.steps import RANGE, Lowered


class Reassignment:
    """Of the steps of a plan."""

    def __init__(self, problem: Problem, lowered: Lowered) -> None:
        self._problem, self._lowered = problem, lowered
        self._devices = problem.machine.devices
        self._elsewhere: dict[tuple[int, int], int] = {}  # memories instead of others, by node

    def seconds(self, step: int, device: DeviceIndex) -> float:
        """What a step would take, as far as that is known."""
        of = self._lowered.step(step)
        if device == ON_HOST or isinstance(self._lowered.graph.nodes[step], HostTask):
            return 0.0
        if of.role == RANGE and of.node in self._problem.splits:
            return self._problem.range_seconds(of.node, device, of.groups)
        return self._problem.estimates.launch(of.node, device) if not of.role else 0.0

    def able(
        self, step: int, was: DeviceIndex, away: Collection[DeviceIndex], is_stopped: bool = False
    ) -> list[DeviceIndex]:
        """The devices that may run a step that was another one's. What others write at the same time stays in one
        memory; in which one may be changed while nothing is under way (``is_stopped``)."""
        problem, of, machine = self._problem, self._lowered.step(step), self._devices
        places = [d for d in problem.preferred(of.node) if d not in away]
        places = places or [d for d in problem.machine.indices if d not in away]
        places = [d for d in places if problem.can_run(of.node, d)]
        if not of.role:
            places = [d for d in places if problem.fits(of.node, d)]
        launch = problem.graph.nodes[of.node]
        if of.role and isinstance(launch, Launch) and launch.versions:  # a version was chosen for its kind
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
        """A device for each of some steps, in their order: the one that ends it first, if each ends all that it has
        one after another. ``busy``: seconds of what devices have. No entry: there is none."""
        return {s: d for s, d, _ in self._placed(steps, was, busy, away, is_stopped) if d is not None}

    def until(
        self, steps: Iterable[int], was: Mapping[int, DeviceIndex], busy: Sequence[float], away: Collection[DeviceIndex]
    ) -> float:
        """Seconds until all of them have ended then, and what devices have."""
        return max([*busy, *(end for _, _, end in self._placed(steps, was, busy, away))])

    def _placed(
        self,
        steps: Iterable[int],
        was: Mapping[int, DeviceIndex],
        busy: Sequence[float],
        away: Collection[DeviceIndex],
        is_stopped: bool = False,
    ) -> Iterator[tuple[int, DeviceIndex | None, float]]:
        """Steps with their devices (None: there is none, and it stays) and when they end, each after those of them that
        it depends on."""
        busy, ends = list(busy), dict[int, float]()
        for step in steps:
            ready = max((ends.get(p, 0.0) for p in self._lowered.graph.predecessors[step]), default=0.0)
            places = self.able(step, was[step], away, is_stopped)
            found = [(max(busy[d], ready) + self.seconds(step, d), d) for d in places or [was[step]]]
            ends[step], device = min(found)
            busy[device] = ends[step]
            yield step, device if places else None, ends[step]
