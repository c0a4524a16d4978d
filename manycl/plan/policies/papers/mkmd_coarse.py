"""``mkmd_coarse``: MKMD's first phase, whole kernels in the first gap where they end earliest. J. Lee, M. Samadi and S.
Mahlke, "Orchestrating Multiple Data-Parallel Kernels on Multiple Devices", PACT 2015, Section 5.2, Eq. 4-10. O(V^2 K)
for V kernels on K devices: a gap is searched for among all operations of a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from manycl.machine import HOST, DeviceIndex
from manycl.plan.options import Options
from manycl.plan.plan import ON_HOST, Plan
from manycl.plan.policy import register
from manycl.plan.problem import Problem
from manycl.plan.search.rank import edge_bytes, mean_seconds, priority_order, upward
from manycl.plan.timeline.timeline import Fit, Timeline


class Table(NamedTuple):
    """Values of a problem that are needed again and again. ``rows[n][d]``: seconds of node n on device d.
    ``places[n]``: pairs of a device that may run it and the most groups that fit there at once (0: all)."""

    rows: list[list[float]]
    places: list[tuple[tuple[DeviceIndex, int], ...]]


def look_up(problem: Problem) -> Table:
    """Return the table of a problem. Raises PolicyError for a node that no device can run, and a wrong split."""
    devices = problem.machine.indices
    launch = problem.estimates.launch
    for node, split in problem.splits.items():
        split.check(problem.graph.nodes[node].reads, problem.graph.nodes[node].writes)
    fixed = {a.node: a.device for a in problem.fixed}  # they stay where they are
    places = [
        problem.places(n) if n not in fixed else ((fixed[n], 0),) if fixed[n] != ON_HOST else ()
        for n in range(len(problem.graph))
    ]
    rows = [[launch(n, d) for d in devices] if found else [0.0 for _ in devices] for n, found in enumerate(places)]
    return Table(rows, places)


def weights(table: Table) -> list[float]:
    """Return W(V) of MKMD, Section 5.1: every node's seconds, averaged over its devices."""
    return mean_seconds([[d for d, _ in found] for found in table.places], table.rows)


def priorities(problem: Problem, weight: Sequence[float]) -> list[float]:
    """Return P(V), Eq. 4: the longest path to the sink, in seconds; the weight of an edge is the time of its transfer
    over one link."""
    memories = range(1, problem.machine.memories)
    known: dict[int, float] = {0: 0.0}

    def edge(before: int, node: int) -> float:
        nbytes = edge_bytes(problem, before, node)
        if nbytes not in known:
            known[nbytes] = max((problem.estimates.transfer(nbytes, HOST, m) for m in memories), default=0.0)
        return known[nbytes]

    return upward(problem.graph.predecessors, weight, edge)


def in_priority(problem: Problem, table: Table) -> list[int]:
    """Return all nodes by P(V), highest first."""
    return priority_order(problem.graph, priorities(problem, weights(table)))


def earliest(timeline: Timeline, table: Table, node: int) -> Fit:
    """Return where the whole node ends first, the first of equals (Eq. 5-8). ``places`` has one with room."""
    found = table.places[node]
    if not found:
        return timeline.fit(node, ON_HOST)
    return timeline.earliest(node, [d for d, most in found if most == 0])


def place(timeline: Timeline, table: Table, node: int) -> float:
    """Place a node where it ends first, and its results are on the host; return when it ends, in seconds. On a device
    that has too little memory for all of it, it runs in ranges that fit, one after another."""
    found = table.places[node]
    roomy = [d for d, most in found if most == 0]
    best = earliest(timeline, table, node) if roomy or not found else None
    ranged: DeviceIndex | None = None
    home_seconds = timeline.problem.home_seconds
    limit = best.end + home_seconds(node, best.device) if best is not None else float("inf")
    for device, most in found:
        if most:
            mark = timeline.mark()
            end = in_ranges(timeline, node, device, most) + home_seconds(node, device)
            timeline.back(mark)
            if end < limit:
                limit, ranged = end, device
    if ranged is not None:
        return in_ranges(timeline, node, ranged, dict(found)[ranged])
    assert best is not None
    return timeline.complete(node, [timeline.take(best)])


def in_ranges(timeline: Timeline, node: int, device: DeviceIndex, most: int) -> float:
    """Place a node on one device in as few ranges of nearly equal length as fit into its memory."""
    groups = timeline.problem.splits[node].groups
    count = -(-groups // most)
    cuts = [groups * i // count for i in range(count + 1)]
    ops = [timeline.take(timeline.fit(node, device, a, b - a)) for a, b in pairwise(cuts)]
    return timeline.complete(node, ops)


def coarse(
    problem: Problem, table: Table, order: Sequence[int], put: Callable[[Timeline, Table, int], object] = place
) -> Timeline:
    """Return a timeline with all nodes that are not fixed, in this order: whole, or as ``put`` places them."""
    timeline = Timeline(problem, table.rows)
    fixed = {a.node for a in problem.fixed}
    for node in order:
        if node not in fixed:
            put(timeline, table, node)
            timeline.intervals.settle()
    return timeline


def off_the_host(problem: Problem, table: Table) -> Table | None:
    """Return the table without the devices that compute in the host's memory, where all reads count again and again
    (None: some nodes need these devices). Data moved to another memory serve the next kernel, too, but the first one
    ends no earlier for that."""
    devices = problem.machine.devices
    places = [tuple(p for p in found if devices[p[0]].memory != HOST) for found in table.places]
    if any(found and not left for found, left in zip(table.places, places, strict=True)):
        return None
    return table._replace(places=places)


def as_plan(problem: Problem, timeline: Timeline, policy: str, **details: object) -> Plan:
    """Return the plan of a complete timeline."""
    return timeline.schedule().plan(problem, policy, **details)


@register("mkmd_coarse")
class MkmdCoarse:
    """The policy of MKMD's coarse-grain scheduling."""

    options = Options("mkmd_coarse")

    def plan(self, problem: Problem) -> Plan:
        table = look_up(problem)
        return as_plan(problem, coarse(problem, table, in_priority(problem, table)), "mkmd_coarse")
