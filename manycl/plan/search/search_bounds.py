"""Lower bounds of what is left of one of REPARA's partial plans; with them the search leaves out most of its tree.

Where one host function comes after everything else, as it does where the host reads the results, both bounds are for
its begin, and it then takes the transfers of all results that no other node could have had moved (REPARA's final
transfers): ``final``, by choice.

There are two bounds. By paths: from the end of a node, the longest path through the nodes after it, each on its best
device, with the transfers that cannot have been made for other nodes. By work: the devices' ends, weighted by numbers
that add up to one, are never above the makespan; so neither are their present values plus the least weighted time of
all that is left. The weights that make this bound largest are those of the Lagrangian dual of sharing out the work.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from manycl.graph.graph import HostTask
from manycl.machine import HOST, HOST_BIT
from manycl.plan.search.partition_costs import PartitionCosts, PricedWay
from manycl.plan.tuning import PLANNING


class BoundedWay(NamedTuple):
    """The least seconds of a node on device ``device`` (None: divided) with its memory ``memory`` (a bit, 0: divided),
    and ``after``, the least seconds from its end to the end of all."""

    device: int | None
    memory: int
    seconds: float
    after: float


class Bounds:
    """Lower bounds. ``options[n]``: ways of node n to run; ``weights`` by device; ``least[n]``: least weighted seconds
    of all of node n; ``load[n][c]``: weighted seconds of its choice c."""

    def __init__(self, costs: PartitionCosts) -> None:
        self._costs = costs
        graph = costs.problem.graph
        machine = costs.problem.machine
        memories = [d.memory for d in machine.devices]
        self._owned = {1 << m for m in memories if m != HOST and memories.count(m) == 1}
        self._size = [b.nbytes for b in graph.buffers.values()]
        self.last = _last(costs)
        self.final = [[self._final(n, c) for c in choices] for n, choices in enumerate(costs.choices)]
        self.options: list[list[BoundedWay]] = [[] for _ in graph.nodes]
        self._after: dict[tuple[int, int], float] = {}
        for node in range(len(graph) - 1, -1, -1):
            self.options[node] = self._options(node)
        self.weights = self._weights()
        self.load = [
            [self._weigh(c) + f for c, f in zip(choices, finals, strict=True)]
            for choices, finals in zip(costs.choices, self.final, strict=True)
        ]
        self.least = [min(loads, default=0.0) for loads in self.load]

    def after(self, node: int, holds: int) -> float:
        """Return the least seconds between the end of a node whose results are in memory ``holds`` and the end of all
        (where there is a last host function: its begin, and its transfers of what nodes on the path leave)."""
        known = self._after.get((node, holds))
        if known is None:
            known = 0.0
            for s in self._costs.problem.graph.successors[node]:
                if s == self.last:
                    continue
                least = min(
                    (self._edge(node, s, holds, o.memory) + o.seconds + o.after for o in self.options[s]), default=0.0
                )
                known = max(known, least)
            self._after[node, holds] = known
        return known

    def path(self, node: int, ready: float, free: list[float], least_free: float) -> float:
        """Return the earliest end of all, given a node that has not begun and may start at ``ready``."""
        best = math.inf
        for device, _, seconds, after in self.options[node]:
            start = least_free if device is None else free[device]
            end = (start if start > ready else ready) + seconds + after
            if end < best:
                best = end
        return best

    def _options(self, node: int) -> list[BoundedWay]:
        found: list[BoundedWay] = []
        divided = math.inf
        for choice, final in zip(self._costs.choices[node], self.final[node], strict=True):
            if choice.way[0].groups:
                by_device: dict[int, float] = {}
                for step in choice.steps:
                    by_device[step.device] = by_device.get(step.device, 0.0) + step.sure
                divided = min(divided, max(by_device.values()) + final + self.after(node, choice.holds))
            else:
                (step,) = choice.steps
                found.append(BoundedWay(step.device, step.memory, step.sure, final + self.after(node, step.memory)))
        if divided < math.inf:
            found.append(BoundedWay(None, 0, divided, 0.0))
        return found

    def _final(self, node: int, choice: PricedWay) -> float:
        """Return the seconds that the last host function needs to get what a node has left with this choice."""
        costs, holds = self._costs, choice.holds
        last = self.last
        if last is None or node == last or holds == HOST_BIT:
            return 0.0
        mine = [p for p in costs.writes[node] if costs.writer.get((last, p)) == node and costs.alone(last, p)]
        return sum(costs.fetch[p][holds.bit_length() - 1] for p in mine)

    def _edge(self, node: int, after: int, holds: int, memory: int) -> float:
        """Return the seconds of the transfers, beside those in ``sure``, of what a node leaves in a memory to a
        successor in another: for the successor itself or, on a device that shares its memory with none, for an earlier
        node there."""
        costs = self._costs
        if memory in (0, holds):
            return 0.0
        seconds = 0.0
        for p in costs.writes[node]:
            if costs.writer.get((after, p)) != node:
                continue
            alone = costs.alone(after, p)
            if alone and holds != HOST_BIT:
                seconds += costs.fetch[p][holds.bit_length() - 1]
            if memory != HOST_BIT and (alone or memory in self._owned):
                seconds += costs.problem.estimates.transfer(self._size[p], HOST, memory.bit_length() - 1)
        return seconds

    def _weigh(self, choice: PricedWay) -> float:
        return sum(self.weights[s.device] * s.sure for s in choice.steps)

    def _weights(self) -> list[float]:
        """Return the devices' weights, by multiplicative updates: a device that the cheapest choices load above the
        mean gets a larger weight."""
        costs = self._costs
        count = costs.host + 2  # the host, which only waits, and after that the final transfers, for which all wait
        vectors: list[list[tuple[float, ...]]] = []
        for choices, finals in zip(costs.choices, self.final, strict=True):
            of = set()
            for choice, final in zip(choices, finals, strict=True):
                work = [0.0] * count
                for step in choice.steps:
                    work[step.device] += step.sure
                work[-1] = final
                of.add(tuple(work))
            if of:
                vectors.append(sorted(of))
        weights = [1.0 / costs.host] * costs.host + [0.0, 1.0]
        best, value = weights, -math.inf
        rounds = min(PLANNING.weighing_rounds, 1 + PLANNING.weighings // max(1, sum(map(len, vectors))))
        for turn in range(rounds):
            load = [*costs.free, 0.0]
            for of_node in vectors:
                pick = min(of_node, key=lambda work: sum([w * t for w, t in zip(weights, work, strict=True)]))
                for d, t in enumerate(pick):
                    load[d] += t
            shared = sum(w * t for w, t in zip(weights[:-1], load, strict=False))
            if shared + load[-1] > value:
                best, value = weights, shared + load[-1]
            if shared <= 0.0:
                break
            speed = 1.0 / math.sqrt(turn + 1)
            grown = [
                w * math.exp(min(50.0, speed * (t / shared - 1.0))) for w, t in zip(weights[:-1], load, strict=False)
            ]
            weights = [*(w / sum(grown) for w in grown), 1.0]
        return best[:-1]


def _last(costs: PartitionCosts) -> int | None:
    """Return the host function that comes after everything else; None if there is none."""
    graph = costs.problem.graph
    last = len(graph) - 1
    if last < 0 or last in costs.end or not isinstance(graph.nodes[last], HostTask):
        return None
    before = {last}
    for node in range(last, -1, -1):
        if node not in before:
            return None
        before.update(graph.predecessors[node])
    return last
