"""Costs of REPARA's partitions, and the locations of all parameters at the start. REPARA, Section 2.2 and Algorithms 4
and 5: no transfers between devices; a partition gets missing data from the host, and they go there first if need be; a
whole unit's results stay on its device, those of a divided one go to the host, partition by partition. The time of all
that belongs to the partition: nothing overlaps on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from manycl.graph.graph import BufferKey, HostTask, Launch
from manycl.machine import HOST, HOST_BIT
from manycl.plan.plan import ON_HOST
from manycl.plan.problem import Problem, contents_needed
from manycl.plan.search.execution_units import Partition, Way, execution_units, ways
from manycl.plan.timeline.writer_intervals import INITIAL, WriterIntervals
from manycl.plan.tuning import PLANNING


class Input(NamedTuple):
    """A parameter (its index) that a partition needs: ``seconds`` and ``joules`` to transfer its part from the host;
    ``whole``: the part is all of it, and is known to be on the device afterwards."""

    parameter: int
    seconds: float
    whole: bool
    joules: float


class PricedPart(NamedTuple):
    """A partition's costs in seconds: it runs for ``seconds`` on device ``device`` (the last: the host) with memory
    ``memory`` (a bit), and sends ``sends`` seconds of partial results to the host. ``sure``: the least time of all
    that, whatever came before. ``joules``: what it takes above idle power, without bringing its inputs."""

    device: int
    memory: int
    seconds: float
    inputs: tuple[Input, ...]
    sends: float
    sure: float
    joules: float


class PricedWay(NamedTuple):
    """A way to run a node. ``holds``: the memory (a bit) that its results are in afterwards; ``joules``: of all."""

    way: Way
    steps: tuple[PricedPart, ...]
    holds: int
    joules: float


class PartitionCosts:
    """The partitions of a problem's nodes, and the state before the first of those that are not fixed. ``choices[n]``
    (none: the node is fixed), ``writes[n]`` (parameters), ``fetch[p][m]``: seconds to send parameter p from memory m to
    the host, ``fetch_joules[p][m]``: the joules; ``idle``: watts of all devices while idle; ``location[p]``: memories
    that hold it (bits, 0: undefined); ``free`` by device, the last the host; ``end[n]`` of what is fixed."""

    def __init__(self, problem: Problem, intervals: WriterIntervals) -> None:
        """Price all partitions. ``intervals``: the locations of all bytes after the fixed nodes. Raises what
        ``execution_units`` raises."""
        graph, machine = problem.graph, problem.machine
        self.problem = problem
        self.host = len(machine.devices)
        self.bits = [*(1 << d.memory for d in machine.devices), HOST_BIT]
        self.index = {key: i for i, key in enumerate(graph.buffers)}
        transfer = problem.estimates.transfer
        self.fetch = [[transfer(b.nbytes, m, HOST) for m in range(machine.memories)] for b in graph.buffers.values()]
        self._energy = {(x.source, x.target): x.energy for x in machine.links}
        per_byte = [self._energy.get((m, HOST), 0.0) for m in range(machine.memories)]
        self.fetch_joules = [[b.nbytes * e for e in per_byte] for b in graph.buffers.values()]
        self.idle = sum(d.idle_power for d in machine.devices)
        self.location = [_location(intervals, key) for key in graph.buffers]
        self.writes = [tuple(self.index[k] for k in task.writes) for task in graph.nodes]
        self.free = [problem.not_before] * (self.host + 1)
        self.end: dict[int, float] = {}
        for a in problem.fixed:
            self.free[a.device] = max(self.free[a.device], a.end)
            self.end[a.node] = max(self.end.get(a.node, a.end), a.end)
        self.writer, self.readers = self._contents()
        self._units = list(execution_units(problem))
        self.choices: list[list[PricedWay]] = [[] for _ in graph.nodes]
        self._steps: dict[tuple[int, Partition], PricedPart] = {}

    def _contents(self) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], int]]:
        """Return the node that wrote the contents that a node finds in a parameter (INITIAL: none, or a fixed one), and
        how many nodes find these contents."""
        graph = self.problem.graph
        last: dict[int, int] = {}
        writer: dict[tuple[int, int], int] = {}
        readers: dict[tuple[int, int], int] = {}
        for node, task in enumerate(graph.nodes):
            if node in self.end:
                continue
            for key in self._may_need(node):
                p = self.index[key]
                by = writer[node, p] = last.get(p, INITIAL)
                readers[by, p] = readers.get((by, p), 0) + 1
            for key in task.writes:
                last[self.index[key]] = node
        return writer, readers

    def _may_need(self, node: int) -> tuple[BufferKey, ...]:
        """Return the buffers whose contents a node must find, in one of its ways or another."""
        task, split = self.problem.graph.nodes[node], self.problem.splits.get(node)
        if split is not None and split.merge != "none":
            return tuple(dict.fromkeys((*task.reads, *task.writes)))
        return contents_needed(task)

    def alone(self, node: int, parameter: int) -> bool:
        """Return whether no other node finds the same contents in a parameter, and so could have had them moved."""
        return self.readers[self.writer[node, parameter], parameter] == 1

    def add(self, node: int, divided: bool, rates: int = PLANNING.rates) -> None:
        """Add the ways of a node's units, the divided one (``rates``: equal parts of its data) or the others."""
        for unit, feasible in self._units:
            if unit.node == node and unit.divided == divided:
                self.choices[node] += [self._choice(node, way) for way in ways(self.problem, unit, feasible, rates)]

    def _choice(self, node: int, way: Way) -> PricedWay:
        steps = tuple(self._step(node, part) for part in way)
        split = self.problem.splits.get(node)
        gathered = way[0].groups and split is not None and split.merge == "none"
        return PricedWay(way, steps, HOST_BIT if gathered else steps[0].memory, sum(step.joules for step in steps))

    def _step(self, node: int, part: Partition) -> PricedPart:
        known = self._steps.get((node, part))
        if known is None:
            known = self._steps[node, part] = self._count(node, part)
        return known

    def _count(self, node: int, part: Partition) -> PricedPart:
        problem, (device, first, groups) = self.problem, part
        task = problem.graph.nodes[node]
        host = isinstance(task, HostTask)
        memory = HOST if host else problem.machine.devices[device].memory
        transfer = problem.estimates.transfer
        linear = problem.splits[node].regions if groups else {}
        seconds = 0.0 if host else problem.range_seconds(node, device, groups, first)
        inputs: list[Input] = []
        sends = sure = joules = 0.0
        if isinstance(task, Launch):
            joules = seconds * problem.machine.devices[device].above_idle(task.kernel.name)
        for key, low, high in problem.needs(node, first, groups):
            p = self.index[key]
            bring = transfer(high - low, HOST, memory)
            up = self._energy.get((HOST, memory), 0.0) * (high - low)
            inputs.append(Input(p, bring, not groups or key not in linear, up))
            untouched = self.writer[node, p] == INITIAL and self.location[p] == HOST_BIT and self.alone(node, p)
            if untouched and (not groups or key in linear):
                sure += bring
        for key, low, high in problem.regions(node, first, groups) if groups else ():
            if key in task.writes and key in linear:
                sends += transfer(high - low, memory, HOST)
                joules += self._energy.get((memory, HOST), 0.0) * (high - low)
        row = self.host if device == ON_HOST else device
        return PricedPart(row, 1 << memory, seconds, tuple(inputs), sends, seconds + sends + sure, joules)


def _location(intervals: WriterIntervals, key: BufferKey) -> int:
    """Return the memories that hold all of a buffer (bits). A scattered buffer counts as collected by the host."""
    found = [s.places for s in intervals.of.get(key, ()) if s.places]
    if not found:
        return 0
    whole = -1
    for places in found:
        whole &= sum(1 << m for m in places)
    return whole or HOST_BIT


def bring(
    step: PricedPart, location: Sequence[int], costs: PartitionCosts
) -> tuple[float, float, list[tuple[int, int]]]:
    """Return the seconds and joules of the transfers that a partition needs first (Algorithm 4, transfersPerUnitExec),
    and the new locations of parameters that are in more memories afterwards (Algorithm 5)."""
    seconds, joules, changed = 0.0, 0.0, []
    memory = step.memory
    for parameter, up, whole, energy in step.inputs:
        where = location[parameter]
        if where == 0 or where & memory:
            continue
        now = where
        if not where & HOST_BIT:
            row = costs.fetch[parameter]
            least, source = min((row[m], m) for m in range(len(row)) if where >> m & 1)
            seconds += least
            joules += costs.fetch_joules[parameter][source]
            now |= HOST_BIT
        if memory != HOST_BIT:
            seconds += up
            joules += energy
            if whole:
                now |= memory
        if now != where:
            changed.append((parameter, now))
    return seconds, joules, changed
