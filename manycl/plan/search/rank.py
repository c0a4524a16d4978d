"""Bottom-level ranks and the orders that they give.

The bottom-level rank of a node is the longest path from its start to the end of the graph, in seconds (PySchedCL,
Section 5; the upward rank of Topcuoglu, Hariri and Wu, "Performance-effective and low-complexity task scheduling for
heterogeneous computing", IEEE TPDS 13(3), 2002, Eq. 5): its own time, averaged over the devices that may run it, plus
the longest of its successors' ranks with the transfer on the edge, averaged over all pairs of devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from manycl.graph.dependences import least_first
from manycl.graph.graph import Graph
from manycl.machine import DeviceIndex
from manycl.plan.problem import Problem
from manycl.plan.search.costs import Costs, costs


def bottom_levels(problem: Problem, known: Costs | None = None) -> list[float]:
    """Return the rank of every node in seconds. ``known``: the problem's costs, if looked up already."""
    table = known if known is not None else costs(problem)
    graph = problem.graph
    means = mean_seconds(table.allowed, table.seconds)
    if not table.moves:
        return upward(graph.predecessors, means)
    mean = _MeanTransfer(problem)
    return upward(graph.predecessors, means, lambda p, node: mean.seconds(edge_bytes(problem, p, node)))


def upward(
    before: Sequence[Iterable[int]], seconds: Sequence[float], edge: Callable[[int, int], float] | None = None
) -> list[float]:
    """Return the longest path from the start of every node to the end of the graph (Topcuoglu, Hariri and Wu 2002, Eq.
    5). ``before[n]``: the predecessors of node n; ``seconds[n]``: its time; ``edge(p, n)``: the time between two nodes
    (None: 0)."""
    level, below = list(seconds), [0.0] * len(seconds)
    for node in range(len(level) - 1, -1, -1):
        reached = level[node] = level[node] + below[node]
        for p in before[node]:
            way = reached if edge is None else reached + edge(p, node)
            if way > below[p]:
                below[p] = way
    return level


def mean_seconds(allowed: Iterable[Sequence[DeviceIndex]], seconds: Iterable[Sequence[float]]) -> list[float]:
    """Return every node's time, averaged over the devices that may run it (0 where there is none). ``seconds[n][d]``:
    of node n on device d."""
    return [
        sum(row if len(found) == len(row) else [row[d] for d in found]) / len(found) if found else 0.0
        for found, row in zip(allowed, seconds, strict=True)
    ]


def edge_bytes(problem: Problem, before: int, after: int) -> int:
    """Return the bytes that the later node needs of what the earlier one writes."""
    graph, needed = problem.graph, problem.contents[after]
    return sum([graph.buffers[key].nbytes for key in graph.nodes[before].writes if key in needed])


class _MeanTransfer:
    """The time of a transfer, averaged over all ordered pairs of devices (0 where both share a memory)."""

    def __init__(self, problem: Problem) -> None:
        self._memories = [d.memory for d in problem.machine.devices]
        self._transfer = problem.estimates.transfer
        self._known: dict[int, float] = {0: 0.0}

    def seconds(self, nbytes: int) -> float:
        mean = self._known.get(nbytes)
        if mean is None:
            times = [self._transfer(nbytes, a, b) for a in self._memories for b in self._memories if a != b]
            mean = self._known[nbytes] = sum(times) / len(self._memories) ** 2
        return mean


def priority_order(graph: Graph, levels: list[float]) -> list[int]:
    """Return a topological order by rank, highest first; nodes with a rank of the user's own come before all others
    that are ready, by that rank. Ties go by node index."""
    if all(node.rank is None for node in graph.nodes):
        # a rank is never below a successor's, and edges go from low to high: sorting is enough (the sort is stable)
        return sorted(range(len(levels)), key=levels.__getitem__, reverse=True)
    return ready_order(graph, levels)


def ready_order(graph: Graph, priority: Sequence[float]) -> list[int]:
    """Return a topological order: of the ready nodes, the one with the highest priority first; a rank of the user's own
    comes before all others. Ties go by node index."""
    keys = [(1, -priority[i]) if node.rank is None else (0, -node.rank) for i, node in enumerate(graph.nodes)]
    return least_first(graph.predecessors, graph.successors, keys)
