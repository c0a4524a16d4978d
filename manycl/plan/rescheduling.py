"""The rescheduler: which devices run what others were to run, as these leave, are lost or take longer. Pure. It is
asked before a run, of the assignments of a plan, and during a run, of the steps that are left."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from manycl.graph.graph import Graph, HostTask, Launch
from manycl.machine import DeviceIndex
from manycl.plan.plan import ON_HOST, WHOLE, Plan
from manycl.plan.problem import Problem


class Extent(NamedTuple):
    """The extent of a step: it is all of a node, a range of ``groups`` of its work-groups (0: no range), or else it
    puts ranges together."""

    node: int
    is_whole: bool
    groups: int = 0


class Rescheduler:
    """The rescheduler of numbered steps. ``extent``: of a step; ``graph``: of the steps (None: they are assignments
    of a plan, which has not been lowered)."""

    def __init__(self, problem: Problem, extent: Callable[[int], Extent], graph: Graph | None = None) -> None:
        self._problem = replace(problem, away=frozenset()) if problem.away else problem  # those may have come since
        self._extent, self._graph = extent, graph
        self._devices = problem.machine.devices
        self._elsewhere: dict[tuple[int, int], int] = {}  # by node and memory, the memory used instead

    def seconds(self, step: int, device: DeviceIndex) -> float:
        """Return the predicted seconds of a step, as far as they are known."""
        node, is_whole, groups = self._extent(step)
        if device == ON_HOST or isinstance(self._problem.graph.nodes[node], HostTask):
            return 0.0
        if groups and node in self._problem.splits:
            return self._problem.range_seconds(node, device, groups)
        return self._problem.estimates.launch(node, device) if is_whole else 0.0

    def able(
        self, step: int, was: DeviceIndex, away: Collection[DeviceIndex], is_stopped: bool = False
    ) -> list[DeviceIndex]:
        """Return the devices that may run a step of another device. What steps write at the same time stays in one
        memory; which one may change only while no command is in flight (``is_stopped``)."""
        problem, (node, is_whole, _), machine = self._problem, self._extent(step), self._devices
        places = [d for d in problem.preferred(node) if d not in away]
        places = places or [d for d in problem.machine.indices if d not in away]
        places = [d for d in places if problem.can_run(node, d) and (not is_whole or problem.fits(node, d))]
        if self._graph is None:
            return places
        launch = problem.graph.nodes[node]
        if not is_whole and isinstance(launch, Launch) and launch.versions:  # one was chosen for its kind of device
            places = [d for d in places if machine[d].kind == machine[was].kind]
        if step in self._graph.beside:
            memory = machine[was].memory
            if is_stopped and all(d in away for d, device in problem.machine.numbered() if device.memory == memory):
                memory = self._elsewhere.setdefault((node, memory), machine[places[0]].memory if places else memory)
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
        that it has one after another. ``busy``: seconds of what devices have. Steps without a device have none."""
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
            before = self._graph.predecessors[step] if self._graph is not None else ()
            ready = max((ends.get(p, 0.0) for p in before), default=0.0)
            places = self.able(step, was[step], away, is_stopped)
            found = [(max(busy[d], ready) + self.seconds(step, d), d) for d in places or [was[step]]]
            ends[step], device = min(found)
            busy[device] = ends[step]
            yield step, device if places else None, ends[step]


def on_present(problem: Problem, plan: Plan) -> Plan:
    """Return a plan without the devices that are ``away``, unless there are no others. Raises PolicyError where no
    other device can run an assignment."""
    given, away = plan.assignments, problem.away
    was = {i: a.device for i, a in enumerate(given) if a.device in away}
    if not was or len(away) == len(problem.machine.devices):
        return plan
    extents = [Extent(a.node, a.dimension is WHOLE, a.groups) for a in given]
    rescheduler, busy = Rescheduler(problem, extents.__getitem__), [0.0] * len(problem.machine.devices)
    for i, a in enumerate(given):
        if i not in was and a.device != ON_HOST:
            busy[a.device] += rescheduler.seconds(i, a.device)
    found = rescheduler.chosen(was, was, busy, away)
    out = list(given)
    for i in was:
        node = given[i].node
        device = found[i] if i in found else problem.allowed(node)[0]
        out[i] = given[i]._replace(device=device, queue=0, version=problem.version(node, device))
    # a device may now hold more at once than the plan was made for
    return replace(plan, assignments=tuple(out), events=(), foreseen=False)
