"""The history of a run that is stopped and goes on: its command batches, and the plans that it has followed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import replace
from typing import Any, NamedTuple

from manycl.graph.graph import Graph
from manycl.machine import DeviceIndex
from manycl.plan.plan import Plan
from manycl.run.commands.backend import Record
from manycl.run.lowering.steps import Lowered, Step
from manycl.trace import Event, HostEvent, KernelEvent, later
from manycl.utilities.changed import changed

REPLANNED = "replanned"
"""The key in a run's details of the list of replannings: the reason, the number of nodes, and the time of each."""


class RecordedBatch(NamedTuple):
    """The record of a command batch. ``first``: the number of its first step in the whole run; ``void``: the steps
    whose entries in it do not count, as they run again."""

    record: Record
    first: int
    void: Collection[int] = ()


class MergedRecord:
    """A record made of the records of several command batches, one after another."""

    def __init__(self, batches: Sequence[RecordedBatch]) -> None:
        self._batches, last = batches, batches[-1].record
        self.begin = batches[0].record.begin
        self.failure, self.failed_transfer = last.failure, last.failed_transfer

    def events(self) -> Sequence[Event]:
        found = [
            later(event, record.begin - self.begin, first)
            for record, first, void in self._batches
            for event in record.events()
            if not (isinstance(event, (KernelEvent, HostEvent)) and event.node in void)
        ]
        return sorted(found, key=lambda event: event.start if hasattr(event, "start") else event.time)

    def durations(self, nodes: Set[int] | None = None) -> Iterable[tuple[int, DeviceIndex, float]]:
        return [
            (first + step, device, seconds)
            for record, first, void in self._batches
            for step, device, seconds in record.durations()
            if step not in void and (nodes is None or first + step in nodes)
        ]

    def waited(self) -> Iterable[tuple[float, float]]:
        shifts = [(record, record.begin - self.begin) for record, _, _ in self._batches]
        return [(shift + start, shift + end) for record, shift in shifts for start, end in record.waited()]


class RunHistory:
    """The history of a run of a graph. ``first``: the number of steps of the plans that are over; ``plan``: the first
    plan (None: it has not been replaced)."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.first = 0
        self.plan: Plan | None = None
        self._batches: list[RecordedBatch] = []
        self._numbers: Sequence[int] = range(len(graph))  # by node of the present plan, its number in the graph
        self._over: list[tuple[Lowered, Sequence[int]]] = []
        self._told: list[dict[str, Any]] = []

    @property
    def was_stopped(self) -> bool:
        return bool(self._batches)

    def stopped(self, record: Record, void: Collection[int] = ()) -> None:
        """Note that a batch has ended with a stop. ``void``: its steps that run again, or have not run."""
        self._batches.append(RecordedBatch(record, self.first, void))

    def replaced(self, ran: Lowered, plan: Plan, nodes: Sequence[int]) -> None:
        """Note that a plan is over. ``ran``: its steps, as they have run; ``nodes``: those of its nodes that are left
        and planned anew."""
        self._over.append((ran, self._numbers))
        self.first += len(ran.graph)
        self.plan = self.plan or plan
        self._numbers = [self._numbers[n] for n in nodes]

    def tell(self, changed: str, nodes: int, seconds: float) -> None:
        """Note that so many nodes were planned anew (0: only the rest of nodes that had begun was moved to other
        devices), and the reason. ``seconds``: since the last batch began."""
        self._told.append(
            {"changed": changed, "nodes": nodes, "seconds": self.seconds(self._batches[-1].record, seconds)}
        )

    def seconds(self, record: Record, seconds: float) -> float:
        """Return the seconds since the run began, so many after the batch of a record has begun."""
        return seconds + record.begin - self._batches[0].record.begin if self._batches else seconds

    def record(self, last: Record) -> Record:
        """Return the record of all batches; ``last``: that of the last."""
        return MergedRecord([*self._batches, RecordedBatch(last, self.first)]) if self._batches else last

    def steps(self, ran: Lowered) -> Lowered:
        """Return the steps of all plans; ``ran``: those of the last, as they have run."""
        return joined_steps([*self._over, (ran, self._numbers)]) if self._over else ran

    @property
    def details(self) -> dict[str, Any]:
        """The replannings, for traces."""
        return {REPLANNED: list(self._told)} if self._told else {}


def joined_steps(plans: Sequence[tuple[Lowered, Sequence[int]]]) -> Lowered:
    """Return the steps of several plans, one after another, from each plan's steps as they have run and the numbers of
    its nodes in the run's graph."""
    first = plans[0][0]
    steps: list[Step] = []
    predecessors: list[tuple[int, ...]] = []
    for lowered, numbers in plans:
        begin = len(steps)
        found = (lowered.step(token) for token in range(len(lowered.graph)))
        steps += (step._replace(node=numbers[step.node]) for step in found)
        predecessors += (tuple(begin + p for p in before) for before in lowered.graph.predecessors)
    graph = replace(
        first.graph,
        nodes=tuple(task for lowered, _ in plans for task in lowered.graph.nodes),
        buffers={key: buffer for lowered, _ in plans for key, buffer in lowered.graph.buffers.items()},
        predecessors=tuple(predecessors),
        beside={},
    )
    return changed(first, graph=graph, plan=None, steps=tuple(steps), chunks={})
