"""Loops: launches that repeat to the end of a graph are planned a few times, and then each repetition is as the one
before it. So the time of planning does not grow with their number. Where graphs are so small that it hardly matters,
all repetitions are planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from manycl.graph.graph import Graph, ResultTask
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.utilities.kept import ENOUGH, FEW, MANY


class RepeatedLaunches(NamedTuple):
    """A loop of ``period`` nodes, whose first repetitions end before node ``kept``, and all before node ``end``."""

    problem: Problem
    period: int
    kept: int
    end: int

    @property
    def shortened(self) -> Problem:
        """The problem of the first repetitions alone."""
        graph = self.problem.graph
        nodes, before = graph.nodes[: self.kept], graph.predecessors[: self.kept]
        splits = {n: split for n in range(self.kept) if (split := self.problem.splits.get(n)) is not None}
        graph = replace(graph, nodes=nodes, predecessors=before)
        return replace(self.problem, graph=graph, splits=splits, foresee=None)

    def extended(self, plan: Plan) -> Plan | None:
        """Return a plan of all repetitions, of one of the first; None where the last of these are unlike."""
        mine = [a for a in plan.assignments if a.node >= self.kept - self.period]
        before = [a for a in plan.assignments if 0 <= a.node - self.kept + 2 * self.period < self.period]
        if not mine or len(mine) != len(before):
            return None
        later = 0.0
        for a, b in zip(sorted(mine, key=_place), sorted(before, key=_place), strict=True):
            if a[1:3] != b[1:3] or a[5:] != b[5:] or a.node - b.node != self.period:
                return None
            # whatever waits for some ends is later by no more than the latest of these
            later = max(later, a.start - b.start, a.end - b.end)
        found = [*plan.assignments]
        times = (self.end - self.kept) // self.period
        for turn in range(1, times + 1):
            nodes, seconds = turn * self.period, turn * later
            found += [a._replace(node=a.node + nodes, start=a.start + seconds, end=a.end + seconds) for a in mine]
        end = plan.makespan + times * later
        found.sort(key=lambda a: (a.start, a.end))
        results = range(self.end, len(self.problem.graph))
        found += [Assignment(node, ON_HOST, 0, end, end) for node in results]
        return replace(plan, assignments=tuple(found), makespan=end)


def _place(a: Assignment) -> tuple[int, int, int]:
    return a.node, a.device, a.first


def in_repetitions(problem: Problem, plan: Callable[[Problem], Plan]) -> Plan | None:
    """Return a plan of a large graph that is a loop, from some node to its end but for what the host reads: as ``plan``
    plans its first repetitions. None: it is no such graph, not so large that it matters, or its repetitions differ."""
    for repetitions in (1, ENOUGH):
        loop = _loop_of(problem, repetitions)
        if loop is None or (found := loop.extended(plan(loop.shortened))) is not None:
            return None if loop is None else found
    return None


def _loop_of(problem: Problem, repetitions: int) -> RepeatedLaunches | None:
    """Return the loop that a graph is; so many of its repetitions are kept that are like the one before."""
    graph, end = problem.graph, len(problem.graph)
    if end * len(problem.machine.devices) <= MANY or problem.fixed or graph.components:
        return None
    while end and isinstance(graph.nodes[end - 1], ResultTask):
        end -= 1
    for period in _periods(graph.same, end):
        first = end
        while first > period and _is_alike(graph, first - 1, period):
            first -= 1
        kept = end - ((end - first) // period - repetitions) * period
        if kept < end:
            return RepeatedLaunches(problem, period, kept, end)
    return None


def _periods(same: Sequence[int], end: int) -> Iterator[int]:
    """Yield how many nodes before the last one there is the same launch, the nearest first."""
    return (period for period in range(1, min(FEW, end - 1)) if same[end - 1] == same[end - 1 - period])


def _is_alike(graph: Graph, node: int, period: int) -> bool:
    """Return whether a node is that of one repetition before, and waits for what that one waited for."""
    before = graph.predecessors[node - period]
    return graph.same[node] == graph.same[node - period] and graph.predecessors[node] == tuple(
        [p + period for p in before]
    )
