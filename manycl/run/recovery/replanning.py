"""The rest of a run may be planned anew: which of its nodes that are, whether it pays, and the graph that they make.
Pure.

A run that is stopped on its way has nodes that have run, nodes of which a part has, and nodes that nobody has begun.
The second kind is run to its end as it was planned, as far as its devices are there; the third is a graph of its own,
which the run's policy plans for the devices that there are by then: the next *epoch* of the run. All is counted in
foreseen seconds of work, so that no clock decides anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from manycl.graph.graph import BufferArg, BufferKey, Graph, HostTask
from manycl.machine import DeviceIndex
from manycl.model.estimates import Slowed
from manycl.plan.plan import Plan
from manycl.plan.problem import Problem
from manycl.plan.tuning import PLANNING
from manycl.run.commands.backend import HostCall, Run, nodes_of
from manycl.run.commands.transfers import Subject
from manycl.run.engine.playback import Playback
from manycl.run.lowering.steps import Lowered, Step
from manycl.run.recovery.lineage import Lineage
from manycl.run.recovery.rescheduling import Reassignment
from manycl.utilities.changed import changed

REPLANNED = "replanned"
"""The entry of a run's details with what made it plan its rest anew, how many nodes and when."""
UNCHANGED: Mapping[DeviceIndex, float] = {}
LEAST = 20e-3
"""Seconds of work that must be left for planning anew to be thought of."""


def not_begun(lowered: Lowered, begun: Iterable[int]) -> tuple[int, ...]:
    """The nodes of which no step has begun, and that nothing depends on that has to run before them; ``begun``: steps
    that have run, or may have been begun."""
    of_node: dict[int, list[int]] = {}
    for token in range(len(lowered.graph)):
        of_node.setdefault(lowered.step(token).node, []).append(token)
    pending = list(dict.fromkeys(lowered.step(token).node for token in begun))
    found = set(pending)
    while pending:
        for token in of_node[pending.pop()]:
            before = {lowered.step(p).node for p in lowered.graph.predecessors[token]} - found
            found |= before
            pending += before
    return tuple(n for n in sorted(of_node) if n not in found)


def graph_of(graph: Graph, nodes: Sequence[int]) -> Graph:
    """Some nodes of a graph as one of their own, in their order, on the same buffers; what comes before a node by way
    of others comes before it."""
    number = {n: i for i, n in enumerate(nodes)}
    before: list[frozenset[int]] = []  # of the graph's nodes: those of the new graph
    for predecessors in graph.predecessors:
        mine = {p for p in predecessors if p in number}
        before.append(frozenset(mine.union(*(before[p] for p in predecessors if p not in number))))
    tasks = tuple(graph.nodes[n] for n in nodes)
    keys = {key for task in tasks for key in (*task.reads, *task.writes)}
    keys.update(a.key for task in tasks for a in task.args if isinstance(a, BufferArg))
    components = (tuple(number[n] for n in c if n in number) for c in graph.components)
    return Graph(
        nodes=tasks,
        buffers={key: buffer for key, buffer in graph.buffers.items() if key in keys},
        predecessors=tuple(tuple(sorted(number[p] for p in before[n])) for n in nodes),
        components=tuple(c for c in components if c),
        name=graph.name,
        parts=graph.parts & keys,
    )


class Outlook:
    """What the rest of a run takes on a machine on which the devices ``away`` are not used. ``slower``: how many times
    as long as was foreseen devices take, where that has changed."""

    def __init__(
        self, subject: Subject, away: Collection[DeviceIndex], slower: Mapping[DeviceIndex, float] = UNCHANGED
    ) -> None:
        problem, self._lowered, self._away = subject.problem, subject.lowered, away
        self._problem = replace(problem, estimates=Slowed(problem.estimates, slower)) if slower else problem
        self._there = [d for d in self._problem.machine.indices if d not in away]
        self._where = Reassignment(self._problem, self._lowered)

    def gain(self, playback: Playback) -> float:
        """Of a plan that is followed as it is, and devices that come or become slower: the part of the time until its
        end by which stopping it, waiting for what is under way and planning what is left anew ends sooner, if all
        devices then share it; 0: it does not."""
        count, seconds = len(self._problem.machine.devices), self._where.seconds
        given, left = [0.0] * count, dict[int, Run | HostCall]()
        for command, is_complete in playback.given:
            if isinstance(command, Run) and not is_complete:
                given[command.device] += sum(seconds(step, command.device) for step in nodes_of(command))
        for command in playback.to_come:
            if isinstance(command, (Run, HostCall)):
                left.update((step, command) for step in nodes_of(command))
        alone = {step: (c.device, seconds(step, c.device)) for step, c in left.items() if isinstance(c, Run)}
        ends, total = list(given), sum(t for _, t in alone.values())
        for device, t in alone.values():
            ends[device] += t
        if total <= LEAST:
            return 0.0
        nodes = set(not_begun(self._lowered, set(range(len(self._lowered.graph))).difference(left)))
        mine = [step for step in alone if self._lowered.step(step).node in nodes]
        begun, was = [step for step in alone if step not in {*mine}], {step: d for step, (d, _) in alone.items()}
        # what is under way is waited for: nobody is given anything before
        until = self._where.until(begun, was, [max(given)] * count, self._away)
        anew = until + self.planning(nodes) + self.shared(mine)
        return max(0.0, 1.0 - anew / max(ends)) if self.can_all_run(nodes) else 0.0

    def is_worth(self, nodes: Collection[int]) -> bool:
        """Of a run that has stopped, and nodes that nobody has begun: whether they take so long that a plan of their
        own pays."""
        steps = [s for s in range(len(self._lowered.graph)) if self._lowered.step(s).node in nodes]
        return self.can_all_run(nodes) and self.shared(steps) > max(LEAST, 2.0 * self.planning(nodes))

    def planning(self, nodes: Collection[int]) -> float:
        """Seconds that planning takes."""
        return PLANNING.planned_cell * len(nodes) * len(self._there)

    def shared(self, steps: Iterable[int]) -> float:
        """Seconds of steps that all devices share."""
        return sum(self._shared(step) for step in steps)

    def _shared(self, step: int) -> float:
        if isinstance(self._lowered.graph.nodes[step], HostTask):
            return 0.0
        times = [self._where.seconds(step, d) for d in self._there]
        rate = sum(1.0 / t if t > 0.0 else inf for t in times if t < inf)
        return 1.0 / rate if rate else inf

    def can_all_run(self, nodes: Iterable[int]) -> bool:
        """Whether there is a device for each of some nodes."""
        return all(_has_device(self._problem, n, self._there) for n in nodes)


def _has_device(problem: Problem, node: int, there: Sequence[DeviceIndex]) -> bool:
    if isinstance(problem.graph.nodes[node], HostTask):
        return True
    return any(d in there and problem.can_run(node, d) and problem.fits(node, d) for d in problem.preferred(node))


def is_whole(rest: Lineage, found: Mapping[BufferKey, int], lowered: Lowered) -> bool:
    """Whether all contents that there were are somewhere: none is gone that is to be overwritten."""
    known = {key for step in rest.done for key in lowered.graph.nodes[step].writes} | found.keys()
    return not any(not mask and key in known for key, mask in rest.valid.items())


class Replanning:
    """What a run has been so far. ``graph``: all of it; ``first``: how many steps the epochs have that are over;
    ``plan``: what was planned first (None: it has not been planned anew)."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.first = 0
        self.plan: Plan | None = None
        self._numbers: Sequence[int] = range(len(graph))  # in the graph, of the present epoch's nodes
        self._over: list[tuple[Lowered, Sequence[int]]] = []
        self._told: list[dict[str, Any]] = []

    def add(self, ran: Lowered, nodes: Sequence[int], plan: Plan, changed: str, seconds: float) -> None:
        """An epoch is over, the steps of which have run like this: these of its nodes are left, and planned anew,
        because of what has ``changed``, so many seconds after the run has begun."""
        self._over.append((ran, self._numbers))
        self.first += len(ran.graph)
        self.plan = self.plan or plan
        self._numbers = [self._numbers[n] for n in nodes]
        self.tell(changed, len(nodes), seconds)

    def tell(self, changed: str, nodes: int, seconds: float) -> None:
        """So many nodes were planned anew; of none, what is left of those that had begun goes where it ends first."""
        self._told.append({"changed": changed, "nodes": nodes, "seconds": seconds})

    def steps(self, ran: Lowered) -> Lowered:
        """The steps of all epochs, the last of which has run like this."""
        return joined_steps([*self._over, (ran, self._numbers)]) if self._over else ran

    @property
    def details(self) -> dict[str, Any]:
        """For traces."""
        return {REPLANNED: list(self._told)} if self._told else {}


def joined_steps(epochs: Sequence[tuple[Lowered, Sequence[int]]]) -> Lowered:
    """The steps of several epochs, one after another: of each the steps as they have run, and which nodes of the run's
    graph its nodes are."""
    first = epochs[0][0]
    steps: list[Step] = []
    predecessors: list[tuple[int, ...]] = []
    for lowered, numbers in epochs:
        begin = len(steps)
        found = (lowered.step(token) for token in range(len(lowered.graph)))
        steps += (step._replace(node=numbers[step.node]) for step in found)
        predecessors += (tuple(begin + p for p in before) for before in lowered.graph.predecessors)
    graph = replace(
        first.graph,
        nodes=tuple(task for lowered, _ in epochs for task in lowered.graph.nodes),
        buffers={key: buffer for lowered, _ in epochs for key, buffer in lowered.graph.buffers.items()},
        predecessors=tuple(predecessors),
        beside={},
    )
    return changed(first, graph=graph, plan=None, steps=tuple(steps), cells={})
