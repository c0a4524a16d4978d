"""The classical view of a problem: tasks with a time on every device, and delays on the edges between them.

This is what the literature on list scheduling assumes: a device runs one task at a time, and data travel at once on a
link of their own, whatever else is under way. So a delay depends on the two devices alone, and a schedule can be judged
without a timeline of transfers. It is a lower bound of the engine's times (``plan/timeline/timeline.py`` has the queues
of transfers), and other planners can be compared in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from manycl.graph.graph import BufferKey
from manycl.machine import HOST, DeviceIndex
from manycl.plan.plan import ON_HOST
from manycl.plan.problem import Problem, contents_needed
from manycl.plan.search.costs import Costs, costs
from manycl.plan.search.rank import mean_seconds, upward

Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Delays:
    """The classical view. ``places[n]``: devices that may run node n; a host task has one, ``ON_HOST``, which is the
    last row and column of everything here. ``seconds[n][d]``: its time there (on the host: none). ``before[n]``: the
    nodes it waits for, as pairs of a node p and the seconds from the end of p on device a to the start of n on device
    b, ``[a][b]``. ``earliest[n][d]``: when its initial data can be there."""

    places: list[tuple[DeviceIndex, ...]]
    seconds: list[list[float]]
    before: list[tuple[tuple[int, Matrix], ...]]
    earliest: list[list[float]]
    _means: dict[tuple[int, tuple[int, ...], tuple[int, ...]], float] = field(default_factory=dict)

    def mean(self, source: int, target: int, matrix: Matrix) -> float:
        """Return the delay on an edge, averaged over all pairs of different devices that its two nodes may run on."""
        key = id(matrix), self.places[source], self.places[target]  # edges share matrices
        known = self._means.get(key)
        if known is None:
            pairs = [matrix[a][b] for a in key[1] for b in key[2] if a != b]
            known = self._means[key] = sum(pairs) / len(pairs) if pairs else 0.0
        return known


def delays(problem: Problem, table: Costs | None = None) -> Delays:
    """Return the classical view. A change of device costs ``problem.handover``, and the transfer itself the direct way
    or by the host, whichever is shorter."""
    found = table if table is not None else costs(problem)
    graph = problem.graph
    matrices = _Matrices(problem)
    writer: dict[BufferKey, int] = {}
    before: list[tuple[tuple[int, Matrix], ...]] = []
    earliest: list[list[float]] = []
    floor = [problem.not_before] * (len(problem.machine.devices) + 1)
    for node, task in enumerate(graph.nodes):
        sizes: dict[int, set[int]] = {p: set() for p in graph.predecessors[node]}
        arrive = floor
        for key in sorted(contents_needed(task)):
            source = writer.get(key)
            if source is not None:
                sizes.setdefault(source, set()).add(graph.buffers[key].nbytes)
            elif problem.valid.get(key):
                first = matrices.initial(graph.buffers[key].nbytes, problem.valid[key])
                arrive = [max(a, problem.not_before + f) for a, f in zip(arrive, first, strict=True)]
        before.append(tuple((p, matrices.edge(frozenset(s))) for p, s in sorted(sizes.items())))
        earliest.append(arrive)
        for key in task.writes:
            writer[key] = node
    return Delays(
        [places or (ON_HOST,) for places in found.allowed], [[*row, 0.0] for row in found.seconds], before, earliest
    )


def handovers(problem: Problem, view: Delays) -> Delays:
    """Return the view where all delays are those of changes of the device: data travel otherwise."""
    devices = range(len(problem.machine.devices) + 1)
    last = devices[-1]  # the host's, whose functions run in no queue
    matrix = tuple(tuple(0.0 if a == b != last else problem.handover for b in devices) for a in devices)
    before = [tuple((p, matrix) for p in found) for found in problem.graph.predecessors]
    return replace(view, before=before, earliest=[[problem.not_before] * len(devices)] * len(before))


class _Matrices:
    """Delays by the sizes of the buffers that travel, each computed once."""

    def __init__(self, problem: Problem) -> None:
        self._memory = [*(d.memory for d in problem.machine.devices), HOST]
        self._handover = problem.handover
        self._transfer = problem.estimates.transfer
        self._edges: dict[frozenset[int], Matrix] = {}
        self._initial: dict[tuple[int, frozenset[int]], list[float]] = {}

    def edge(self, sizes: frozenset[int]) -> Matrix:
        matrix = self._edges.get(sizes)
        if matrix is None:
            devices = range(len(self._memory))
            matrix = tuple(tuple(self._delay(sizes, a, b) for b in devices) for a in devices)
            self._edges[sizes] = matrix
        return matrix

    def initial(self, nbytes: int, places: frozenset[int]) -> list[float]:
        known = self._initial.get((nbytes, places))
        if known is None:
            known = [min(self._least(nbytes, m, target) for m in places) for target in self._memory]
            self._initial[nbytes, places] = known
        return known

    def _delay(self, sizes: frozenset[int], a: int, b: int) -> float:
        if a == b:
            return 0.0
        source, target = self._memory[a], self._memory[b]
        return max((self._least(n, source, target) for n in sizes), default=0.0) + self._handover

    def _least(self, nbytes: int, source: int, target: int) -> float:
        if source == target:
            return 0.0
        direct = self._transfer(nbytes, source, target)
        if HOST in (source, target):
            return direct
        return min(direct, self._transfer(nbytes, source, HOST) + self._transfer(nbytes, HOST, target))


def after(view: Delays) -> list[list[tuple[int, Matrix]]]:
    """Return the successors of every node, as ``before`` has the predecessors."""
    out: list[list[tuple[int, Matrix]]] = [[] for _ in view.before]
    for node, edges in enumerate(view.before):
        for p, matrix in edges:
            out[p].append((node, matrix))
    return out


def upward_ranks(view: Delays) -> list[float]:
    """Return the seconds from the start of every node to the end of the graph, all means (Topcuoglu, Hariri and Wu,
    IEEE TPDS 13(3), 2002, Eq. 5)."""
    matrices = [dict(edges) for edges in view.before]
    return upward(
        matrices, mean_seconds(view.places, view.seconds), lambda p, node: view.mean(p, node, matrices[node][p])
    )


def downward_ranks(view: Delays) -> list[float]:
    """Return the seconds from the start of the graph to the start of every node, all means (the same, Eq. 6)."""
    mean = mean_seconds(view.places, view.seconds)
    rank: list[float] = []
    for node, edges in enumerate(view.before):
        rank.append(max((rank[p] + mean[p] + view.mean(p, node, m) for p, m in edges), default=0.0))
    return rank


def lower_bound(
    view: Delays, devices: Sequence[DeviceIndex], fixed: Mapping[int, float] = MappingProxyType({})
) -> float:
    """Return seconds from time zero that no schedule is shorter than: the longest path through the graph where every
    task and delay is at its shortest, and the least work there is over all ``devices`` of the machine. ``fixed[n]``:
    when node n, which is fixed, ends."""
    end: list[float] = []
    work = 0.0
    least: dict[tuple[int, tuple[int, ...]], list[float]] = {}  # delays to each device, by matrix and places before
    start = min((min(row) for row in view.earliest), default=0.0)
    for node, edges in enumerate(view.before):
        if node in fixed:
            end.append(fixed[node])
            continue
        ready = view.earliest[node]
        for p, matrix in edges:
            key = id(matrix), () if p in fixed else view.places[p]
            if key not in least:
                rows = [matrix[a] for a in key[1]]
                least[key] = [min(column) for column in zip(*rows, strict=True)] if rows else [0.0] * len(ready)
            ready = [max(known, end[p] + delay) for known, delay in zip(ready, least[key], strict=True)]
        best = min([ready[d] + view.seconds[node][d] for d in view.places[node]], default=float("inf"))
        end.append(best)
        work += min(view.seconds[node][d] for d in view.places[node])
    return max(max(end, default=start), start + work / max(1, len(devices)))
