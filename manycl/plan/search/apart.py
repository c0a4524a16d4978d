"""Nodes that do not depend on each other: which of the orders and choices of a search for them are enough. What such
nodes cost does not depend on their order, but for those that bring shared data to a device, where others then find
these. So of all plans of the same choices one is enough: that in which the ones that bring shared data come first, and
the others in the order of the graph. Of nodes that are alike, these have choices of rising weighted work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from manycl.machine import HOST_BIT
from manycl.plan.search.partition_costs import PartitionCosts, PricedPart, PricedWay
from manycl.plan.search.search_bounds import Bounds
from manycl.plan.timeline.segments import INITIAL


class Apart:
    """``kind[n]``: nodes of the same kind are alike; ``rank[n][c]``: the place of a choice among those of the node, by
    weighted work, from 1 on; ``is_orderless``: nodes that do not depend on each other find shared data at the same
    costs in some order of whole nodes as in any order of partitions."""

    def __init__(self, costs: PartitionCosts, bounds: Bounds) -> None:
        readers = Counter(p for _, p in costs.writer)
        self._shared = [readers[p] > 1 for p in range(len(costs.location))]
        self.is_orderless = self._finds(costs)
        kinds: dict[Hashable, int] = {}
        self.kind = [kinds.setdefault(self._traits(costs, bounds, n), n) for n in range(len(costs.choices))]
        self.rank: list[dict[int, int]] = []
        for loads in bounds.load:
            order = sorted(range(len(loads)), key=lambda c: (loads[c], c))
            self.rank.append({c: place for place, c in enumerate(order, 1)})

    def _finds(self, costs: PartitionCosts) -> bool:
        """Return whether each device has a memory of its own, or the host's, the host has all shared data, and no way
        takes some of them in slices and others as a whole."""
        own = [bit for bit in costs.bits if bit != HOST_BIT]
        steps = [
            [i for s in c.steps for i in s.inputs if self._shared[i.parameter]] for of in costs.choices for c in of
        ]
        there = all(costs.location[i.parameter] in (0, HOST_BIT) for of in steps for i in of)
        return there and len({*own}) == len(own) and all(len({i.whole for i in of}) < 2 for of in steps)

    def _traits(self, costs: PartitionCosts, bounds: Bounds, node: int) -> Hashable:
        """Return all that tells nodes apart; the node itself where its data depend on others."""
        inputs = {i.parameter for c in costs.choices[node] for s in c.steps for i in s.inputs}
        if any(costs.writer[node, p] != INITIAL for p in inputs):
            return node

        def of(part: PricedPart) -> Hashable:
            ids = [i.parameter if self._shared[i.parameter] else -1 - costs.location[i.parameter] for i in part.inputs]
            return part._replace(inputs=()), *((p, *i[1:]) for p, i in zip(ids, part.inputs, strict=True))

        ways = tuple((c.holds, *map(of, c.steps)) for c in costs.choices[node])
        return ways, tuple(bounds.load[node]), tuple(bounds.final[node])

    def brings(self, choice: PricedWay, location: list[int]) -> bool:
        """Return whether a choice leaves all of a parameter on a device where other nodes may find it."""
        inputs = ((i, step.memory) for step in choice.steps for i in step.inputs)
        return any(i.whole and self._shared[i.parameter] and not location[i.parameter] & m for i, m in inputs)
