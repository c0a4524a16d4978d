"""``clustering``: whole task components on one device's several queues (PySchedCL, Sections 3-5, Experiment 1). The
user says which kernels belong together (task components) and where they run (device preferences). Kernels of a
component then go round-robin to the queues of its device (:func:`manycl.plan.search.queues.setup_cq`), so the host does
not act in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import inf

from manycl.graph.graph import Graph, HostTask, Launch
from manycl.graph.versions.feasible import matches
from manycl.machine import MOST_QUEUES, Device, DeviceIndex
from manycl.model.occupancy import share
from manycl.plan.options import Option, Options
from manycl.plan.policy import Choice, Component, DeviceState, register
from manycl.plan.problem import Problem
from manycl.plan.tuning import PLANNING

_ByDevice = tuple[tuple[str, int], ...]
"""Kinds or names of devices (empty: all), and numbers."""


def _by_device(name: str) -> Option[_ByDevice]:
    """Return an option whose value is like ``4``, or ``gpu:4,cpu:2``; for ``queues`` also ``auto`` (number 0)."""

    def read(text: str) -> _ByDevice:
        out = []
        if text == "auto" and name == "queues":
            return (("", 0),)
        for part in text.split(",") if text else ():
            who, colon, number = (word.strip() for word in part.rpartition(":"))
            if not number.isdecimal() or int(number) < 1 or (colon and not who):
                raise ValueError
            out.append((who, int(number)))
        return tuple(out)

    return Option(name, (), read, f"a number from 1 on or DEVICE:NUMBER,…, such as {name}=4 or {name}=gpu:4,cpu:1")


_Counts = tuple[tuple[int, ...], tuple[float, ...]]
"""By device, its queues, and the most components that it gets."""
_QUEUES, _RESIDENT = _by_device("queues"), _by_device("resident")


@register("clustering")
class Clustering:
    """The policy of task components. Its options are each a number for all devices or ``gpu:4,cpu:1`` by kind or name:

    ``queues``: in-order queues a device uses (default: the problem's); ``auto``: as many as end first in simulation, of
    those that are tried, with so many components on each device (:func:`_tuned`). ``resident``: components a device
    holds at once (default: its number of queues, so each has one queue to itself; 1: as in the paper, one component has
    them all).

    The frontier is in order of the largest bottom-level rank of each component's FRONT. A component goes to the device
    it prefers where it is predicted to end first; if no place is free there, it waits, and the next component is
    considered, which then has to wait behind it. Components that run on a device together are taken to slow each other
    down once they would use more than all of it.
    """

    options = Options("clustering", _QUEUES, _RESIDENT)
    problem: Problem
    known: tuple[Graph, _Counts] | None = None
    """The numbers of queues that were found for ``queues=auto``, and the graph that they are of."""

    def __init__(self, counts: _Counts | None = None) -> None:
        self._counts = counts

    def start(self, problem: Problem) -> None:
        self.problem = problem
        devices = problem.machine.devices
        given = self.options.read(problem.options)
        counts = self._counts
        if counts is None and given[_QUEUES] == (("", 0),):
            known = self.known if self.known and self.known[0] is problem.graph else (problem.graph, _tuned(problem))
            self.known, counts = (known if problem.foresee else None), known[1]
        queues: Sequence[int] = [_value(given[_QUEUES], d, q) for d, q in zip(devices, problem.queues, strict=True)]
        queues, most = counts or (queues, [inf] * len(devices))
        self._queues, self._left = [*queues], [*most]
        self._resident = [_value(given[_RESIDENT], d, q) for d, q in zip(devices, self._queues, strict=True)]
        self._loads: dict[tuple[int, int], float] = {}
        self._members = self.components(problem.graph)

    def components(self, graph: Graph) -> tuple[tuple[int, ...], ...]:
        return graph.components or connected(graph)

    def queues(self, device: DeviceIndex) -> int:
        return self._queues[device]

    def resident(self, device: DeviceIndex) -> int:
        return self._resident[device]

    def select(self, frontier: Sequence[Component], devices: Sequence[DeviceState], now: float) -> Choice | None:
        if all(d.free == 0 for d in devices):
            return None
        ahead = [0.0] * len(devices)  # seconds of the components that wait for each device
        looked_at = 0
        for component in frontier:
            if some := tuple([d for d in component.devices if self._left[d] > 0]):
                component = component if some == component.devices else replace(component, devices=some)
            if all(devices[d].free == 0 for d in component.devices):
                best = min(component.devices, key=lambda d: devices[d].ready_at + ahead[d])
            elif looked_at == PLANNING.candidates:
                continue
            else:
                looked_at += 1
                best = min(component.devices, key=lambda d: self._finish(component, devices[d], now, ahead))
                if devices[best].free > 0:
                    self._left[best] -= 1
                    return Choice(component.index, best)
            part = max(self._load(component.index, best), 1.0 / self._resident[best])
            ahead[best] += component.seconds[best] * min(1.0, part)
        return None

    def _finish(
        self, component: Component, state: DeviceState, now: float, ahead: Sequence[float]
    ) -> tuple[float, int, int]:
        seconds = component.seconds[state.index]
        tie = (len(state.running), state.index)
        if state.free == 0:
            return max(now, state.ready_at) + ahead[state.index] + seconds, *tie
        load = self._load(component.index, state.index)
        load += sum(self._load(other, state.index) for other in state.running)
        return now + seconds * max(1.0, load), *tie

    def _load(self, component: int, device: DeviceIndex) -> float:
        """Return the share of the device that the component's kernels use, one at a time: a mean."""
        known = self._loads.get((component, device))
        if known is None:
            nodes = self.problem.graph.nodes
            where = self.problem.machine.devices[device]
            work = total = 0.0
            for n in self._members[component]:
                node = nodes[n]
                if isinstance(node, Launch):
                    seconds = self.problem.estimates.launch(n, device)
                    total += seconds
                    work += seconds * share(node, where)
            known = self._loads[component, device] = work / total if total > 0 else 0.0
        return known


def _tuned(problem: Problem) -> _Counts:
    """Return the numbers of queues, and the most components of each device, with which all ends first in simulation.
    PySchedCL finds its best mapping configuration (q_gpu, q_cpu, h_cpu; Section 5) by trying all. Here each number is
    changed as long as that helps, for all devices of a kind together, then for one after another: a queue more; and no
    component, one, two … on a device. All tries together may take as much work as any planning."""
    devices = problem.machine.devices
    best: _Counts = problem.queues, (inf,) * len(devices)
    if (foresee := problem.foresee) is None:
        return best
    names = sorted({d.kind for d in devices}, key=lambda kind: (kind == "cpu", kind))
    kinds = [{d for d, one in enumerate(devices) if one.kind == name} for name in names]
    groups = [*kinds, *({d} for kind in kinds if len(kind) > 1 for d in sorted(kind))]
    left = max(2, int(PLANNING.most / (PLANNING.planned_cell * max(1, len(problem.graph) * len(devices)))))
    known = {best: foresee(Clustering(best)).makespan}
    for is_most, group in product((False, True), groups):
        last, more = inf if is_most else known[best], 0
        while len(known) < left and more < MOST_QUEUES:
            queues, most = best
            tried: _Counts = queues, tuple(more if d in group else m for d, m in enumerate(most))
            if not is_most:
                tried = tuple(min(q + 1, MOST_QUEUES) if d in group else q for d, q in enumerate(queues)), most
            known[tried] = seconds = foresee(Clustering(tried)).makespan
            if seconds >= last:
                break
            last, more = seconds, more + 1
            if seconds < known[best]:
                best = tried
    return best


def connected(graph: Graph) -> tuple[tuple[int, ...], ...]:
    """Return the weakly connected components of the graph, cut where the device preference changes and around host
    tasks. A cut component could wait for itself (a - b - a); so nodes are only joined when equally many changes of
    preference lie before them, and every edge between two components leads to a higher count."""
    count = len(graph.nodes)
    label: list[object] = ["\0host" if isinstance(node, HostTask) else node.device for node in graph.nodes]
    phase = [0] * count
    root = list(range(count))

    def find(n: int) -> int:
        while root[n] != n:
            root[n] = root[root[n]]
            n = root[n]
        return n

    for node, before in enumerate(graph.predecessors):
        phase[node] = max((phase[p] + (label[p] != label[node]) for p in before), default=0)
        for p in before:
            if label[p] == label[node] and phase[p] == phase[node]:
                a, b = find(p), find(node)
                root[max(a, b)] = min(a, b)
    members: dict[int, list[int]] = {}
    for node in range(count):
        members.setdefault(find(node), []).append(node)
    return tuple(tuple(m) for m in members.values())


def _value(values: _ByDevice, device: Device, default: int) -> int:
    """Return the value of an option for a device: the last one that is meant for it."""
    return next((number for who, number in reversed(values) if not who or matches(device, who)), default)
