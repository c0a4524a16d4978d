"""Lower bounds of what is left of one of REPARA's partial plans; with them the search leaves out most of its tree.

Where one host function comes after everything else, as it does where the host reads the results, all bounds are for
its begin, and it then takes the transfers of all results that no other node could have had moved (REPARA's final
transfers): ``final``, by choice.

Two bounds are combined. By work: the devices' ends, weighted by numbers that add up to one, are never above the
makespan; so neither are their present values, or the time before which nothing can begin, plus the least weighted time
of all that is left. The weights that make this bound largest are those of the Lagrangian dual of sharing out the work.
By paths: from the end of a node, the longest path through the nodes after it. As neither is above the makespan, no mean
of them is: for several weights ``mix`` of paths beside work, the least mean is bounded, with one way of each node for
both. Where all other nodes come before or after a node (a cut), what is left from its begin on takes as long as the
largest of these means says, whatever was before. Both count the transfers of a node's inputs from where the ways of the
nodes before it can leave these.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from manycl.graph.graph import HostTask
from manycl.machine import HOST, HOST_BIT
from manycl.plan.search.partition_costs import PartitionCosts, PricedWay
from manycl.plan.timeline.writer_intervals import INITIAL
from manycl.plan.tuning import PLANNING

Table = NDArray[np.float64]


class Brought(NamedTuple):
    """The least seconds of the transfers of one input of a node, by choice and device, from memory ``held`` (a bit):
    ``work``, of which all readers of the contents have their parts; ``span``, which certainly pass between the end of
    the node that wrote the contents and the end of the reader; ``fetch``: by choice, those of one of its devices,
    whichever it is."""

    held: int
    work: Table
    span: Table
    fetch: Table


class Bounds:
    """Lower bounds. ``weights`` by device; ``load[n][c]``: the least weighted seconds of choice c of node n, of which
    ``parts[n][c]`` are those of its partitions alone; ``least[n]``: of its best choice, ``below[n]``: of all nodes
    after it together. ``begin[n]``, by mix: the least mean, from the begin of node n on, of a path and of the work of
    all nodes on it and after it, by which it exceeds that of their work alone. ``cuts``: in order; ``more``: by cut,
    the seconds by which the rest from its begin on exceeds its weighted work. ``shares``: by contents (writer and
    parameter) and memory, all readers' parts of the seconds of bringing them there once, which ``load`` counts."""

    def __init__(self, costs: PartitionCosts) -> None:
        self._costs = costs
        graph, machine = costs.problem.graph, costs.problem.machine
        memories = [d.memory for d in machine.devices]
        self._owned = {1 << m for m in memories if m != HOST and memories.count(m) == 1}
        self.last = _last(costs)
        nodes = range(len(graph))
        self.final = [[self._final(n, c) for c in choices] for n, choices in enumerate(costs.choices)]
        self._finals = [np.array(of) for of in self.final]
        self._held = [sorted({c.holds for c in choices}) for choices in costs.choices]
        self._work = [self._sure(n) for n in nodes]
        self._whole = self._brought_whole()
        self.shares = dict[tuple[int, int, int], list[tuple[int, float]]]()
        for (by, p, memory), seconds in self._whole.items():
            readers = [n for (n, q), writer in costs.writer.items() if (writer, q) == (by, p)]
            if memory in self._owned and len(readers) > 1:
                self.shares[by, p, memory] = [(n, seconds / len(readers)) for n in readers]
        self._inputs = [self._brought(n) for n in nodes]
        self.weights = self._weights()
        weights = np.array(self.weights)
        loads = [self._loads(n, weights) for n in nodes]
        self.load: list[list[float]] = [of.tolist() for of in loads]
        self.least = [min(of, default=0.0) for of in self.load]
        self.parts: list[list[float]] = [(work @ weights).tolist() for work in self._work]
        self._loads_of = loads
        after = _descendants(graph.successors)
        self.below = [sum([self.least[n] for n in of if n != self.last]) for of in after]
        self._after: dict[tuple[int, int], list[float]] = {}
        mine = [n for n in nodes if costs.choices[n] and n != self.last]
        around = [{n, *after[n], *(p for p in mine if n in after[p])} for n in nodes]
        self.cuts = [n for n in mine if around[n].issuperset(mine)]
        self._earlier = dict.fromkeys(self.cuts, 0.0)
        for (_, _, memory), of in self.shares.items():
            weight = self.weights[memories.index(memory.bit_length() - 1)]
            for n in self.cuts:
                rest = [seconds for reader, seconds in of if reader == n or reader in after[n]]
                self._earlier[n] += weight * sum(rest) if len(rest) < len(of) else 0.0
        self.more = {n: self._begin(n)[0] - self.least[n] - self.below[n] for n in reversed(self.cuts)}
        self.begin = [
            [
                t - (1.0 - mix) * (self.least[n] + self.below[n])
                for mix, t in zip(PLANNING.mixes, self._begin(n), strict=True)
            ]
            for n in nodes
        ]

    def after(self, node: int, holds: int) -> list[float]:
        """Return, by mix, the least mean, from the end of a node whose results are in memory ``holds`` on, of the
        seconds to the end of all and of the work of all nodes after it (where there is a last host function: to its
        begin, and its transfers of what is left by nodes after this one)."""
        known = self._after.get((node, holds))
        if known is None:
            known = [(1.0 - mix) * self.below[node] for mix in PLANNING.mixes]
            for s in self._costs.problem.graph.successors[node]:
                if s != self.last and self._costs.choices[s]:
                    beside = self.below[node] - self.below[s] - self.least[s]
                    on_path = self._begin(s, node, holds)
                    means = [t + (1.0 - mix) * beside for mix, t in zip(PLANNING.mixes, on_path, strict=True)]
                    known = list(map(max, known, means))
            self._after[node, holds] = known
        return known

    def _begin(self, node: int, writer: int | None = None, holds: int = 0) -> list[float]:
        """Return, by mix, the least mean of a path from the begin of a node on and of the work of the node and all
        after it; ``writer``: it begins at the end of that node, whose results are in memory ``holds``."""
        choices = self._costs.choices[node]
        if not choices:
            return [0.0] * len(PLANNING.mixes)
        after = np.array([self.after(node, c.holds) for c in choices])
        spans, finals = self._spans(node, writer, holds), self._finals[node]
        loads = self._loads_of[node] - finals
        means = np.array(
            [mix * spans + (1.0 - mix) * loads + finals + of for mix, of in zip(PLANNING.mixes, after.T, strict=True)]
        )
        if node in self.cuts:
            # (nodes before it may have brought what others from it on read)
            means = np.maximum(means, np.maximum(means.max(0), loads + finals + self.below[node]) - self._earlier[node])
        return [float(least) for least in means.min(1)]

    def _sure(self, node: int) -> Table:
        """Return the seconds of a node's partitions that are sure, by choice and device."""
        found = np.zeros((len(self._costs.choices[node]), self._costs.host + 1))
        for c, choice in enumerate(self._costs.choices[node]):
            for step in choice.steps:
                found[c, step.device] += step.sure
        return found

    def _final(self, node: int, choice: PricedWay) -> float:
        """Return the seconds that the last host function needs to get what a node has left with this choice."""
        costs, holds = self._costs, choice.holds
        last = self.last
        if last is None or node == last or holds == HOST_BIT:
            return 0.0
        mine = [p for p in costs.writes[node] if costs.writer.get((last, p)) == node and costs.alone(last, p)]
        return sum(costs.fetch[p][holds.bit_length() - 1] for p in mine)

    def _brought(self, node: int) -> dict[tuple[int, int], list[Brought]]:
        """Return, by input (its writer and parameter), what bringing it takes from each memory that may hold it."""
        costs, found = self._costs, dict[tuple[int, int], list[Brought]]()
        for p in sorted({i.parameter for choice in costs.choices[node] for step in choice.steps for i in step.inputs}):
            writer = costs.writer[node, p]
            held = [costs.location[p]] if writer == INITIAL else self._held[writer]
            if node != self.last and held and any(held):
                found[writer, p] = [self._from(node, p, h) for h in held]
        return found

    def _brought_whole(self) -> dict[tuple[int, int, int], float]:
        """Return the least seconds in which one of their readers brings all of some contents (by their writer and
        parameter) to a memory (a bit), where others then find them."""
        found = dict[tuple[int, int, int], float]()
        for node, choices in enumerate(self._costs.choices):
            for step in {step for choice in choices for step in choice.steps}:
                for p in {i.parameter for i in step.inputs if i.whole}:
                    key = self._costs.writer[node, p], p, step.memory
                    seconds = sum([i.seconds for i in step.inputs if i.parameter == p])
                    found[key] = min(seconds, found.get(key, seconds))
        return found

    def _from(self, node: int, parameter: int, held: int) -> Brought:
        costs = self._costs
        writer = costs.writer[node, parameter]
        choices, readers = costs.choices[node], costs.readers[writer, parameter]
        untouched = writer == INITIAL and held == HOST_BIT and readers == 1
        work, span = np.zeros((2, len(choices), costs.host + 1))
        fetch = np.zeros(len(choices))
        far = (
            0.0
            if held & HOST_BIT
            else min(seconds for m, seconds in enumerate(costs.fetch[parameter]) if held >> m & 1)
        )
        for c, choice in enumerate(choices):
            lacking, seen = set[int](), set[int]()
            for step in choice.steps:
                for p, seconds, whole, _ in step.inputs:
                    if p != parameter or held & step.memory:
                        continue
                    lacking.add(step.device)
                    counted = untouched and not (whole and choice.way[0].groups)  # it is in ``sure``
                    if step.memory == HOST_BIT or counted or (whole and step.memory in seen):
                        continue
                    seen.add(step.memory)
                    most = self._whole.get((writer, parameter, step.memory), np.inf)
                    if not whole and (readers == 1 or most == np.inf):  # nobody else brings it
                        work[c, step.device] += seconds
                        span[c, step.device] += seconds
                    elif step.memory in self._owned:  # once, by one of the readers
                        span[c, step.device] = min(span[c, step.device] + seconds, most)
                        work[c, step.device] = span[c, step.device] / readers
            if lacking and readers == 1:
                fetch[c] = far
                if len(lacking) == 1:
                    span[c, lacking.pop()] += far
        return Brought(held, work, span, fetch)

    def _loads(self, node: int, weights: Table) -> Table:
        """Return the least weighted seconds of all choices of a node, and those of their final transfers."""
        found: Table = self._work[node] @ weights + self._finals[node]
        cheapest = np.array(
            [min((float(weights[s.device]) for s in c.steps), default=0.0) for c in self._costs.choices[node]]
        )
        for ways in self._inputs[node].values():
            found = found + np.min([of.work @ weights + of.fetch * cheapest for of in ways], axis=0)
        return found

    def _spans(self, node: int, writer: int | None = None, holds: int = 0) -> Table:
        """Return the least seconds from the end of ``writer``, whose results are in memory ``holds``, to the end of a
        node, by choice (None: from the begin of the node)."""
        known, ways = self._work[node], list[list[Table]]()
        for (by, p), found in self._inputs[node].items():
            if by == writer:
                known = known + next(of.span for of in found if of.held == holds)
            elif self._costs.readers[by, p] == 1:
                ways.append([of.span for of in found])
        if prod(map(len, ways)) > len(known):  # more ways to hold the inputs than to run the node: they count nothing
            ways = []
        least: Table = np.min([np.max(known + sum(of, np.zeros(())), axis=1) for of in product(*ways)], axis=0)
        return least

    def _weights(self) -> list[float]:
        """Return the devices' weights, by multiplicative updates (Hedge): a device that the cheapest choices load above
        the others gets a larger weight."""
        costs = self._costs
        count = costs.host
        nodes = [n for n, choices in enumerate(costs.choices) if choices]
        weights = np.append(np.full(count, 1.0 / count), 0.0)
        best, value = weights, -np.inf
        work = max(1, sum(map(len, costs.choices)))
        for turn in range(min(PLANNING.weighing_rounds, 1 + PLANNING.weighings // work)):
            load, bound = np.array(costs.free), float(np.array(costs.free) @ weights)
            for n in nodes:
                loads = self._loads(n, weights)
                pick = int(loads.argmin())
                bound += float(loads[pick])
                load += self._work[n][pick]
                for ways in self._inputs[n].values():
                    load += min((of.work[pick] for of in ways), key=lambda w: float(w @ weights))
            if bound > value:
                best, value = weights, bound
            most = float(load[:count].max())
            if most <= 0.0:
                break
            grown = weights[:count] * np.exp((load[:count] / most - 1.0) / np.sqrt(turn + 1.0))
            weights = np.append(grown / grown.sum(), 0.0)
        return [float(w) for w in best]


def _descendants(successors: tuple[tuple[int, ...], ...]) -> list[set[int]]:
    """Return all nodes after each node."""
    found: list[set[int]] = [set() for _ in successors]
    for node in reversed(range(len(successors))):
        found[node].update(successors[node], *(found[s] for s in successors[node]))
    return found


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
