"""Nodes that do not depend on each other: the best of all plans of them, without looking at their orders.

What such nodes cost does not depend on their order, but for those that bring shared data to a device, where others then
find these. So a partial plan is no more than the devices' ends: node by node, every way to run it is added to the ends
that there are, and the ends that can still lead to a better plan are kept. That is done for every set of shared data
that may be brought, which come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from manycl.machine import HOST_BIT
from manycl.plan.plan import ROUNDING
from manycl.plan.search.partition_costs import PartitionCosts, PricedWay
from manycl.plan.tuning import PLANNING

if TYPE_CHECKING:
    from manycl.plan.search.tree_search import Path, Tree

Table = NDArray[np.float64]
Brought = dict[tuple[int, int], tuple[int, float, float]]
"""Shared data that are brought: by parameter and memory (a bit), the device, seconds and joules."""


class Shared:
    """``is_shared`` by parameter; ``is_orderless``: nodes that do not depend on each other find shared data at the same
    costs in some order of whole nodes as in any order of partitions."""

    def __init__(self, costs: PartitionCosts) -> None:
        readers = Counter(p for _, p in costs.writer)
        self.is_shared = [readers[p] > 1 for p in range(len(costs.location))]
        self.is_orderless = self._finds(costs)

    def _finds(self, costs: PartitionCosts) -> bool:
        """Return whether each device has a memory of its own, or the host's, the host has all shared data, and no way
        takes some of them in slices and others as a whole."""
        own = [bit for bit in costs.bits if bit != HOST_BIT]
        steps = [
            [i for s in c.steps for i in s.inputs if self.is_shared[i.parameter]] for of in costs.choices for c in of
        ]
        there = all(costs.location[i.parameter] in (0, HOST_BIT) for of in steps for i in of)
        return there and len({*own}) == len(own) and all(len({i.whole for i in of}) < 2 for of in steps)

    def lacking(self, choice: PricedWay, location: list[int], parts: list[int]) -> tuple[Brought, Brought]:
        """Return the shared data that some partitions of a choice lack: those they bring as a whole, and in slices."""
        whole: Brought = {}
        slices: Brought = {}
        for step in (choice.steps[part] for part in parts):
            for p, seconds, is_whole, joules in step.inputs:
                if self.is_shared[p] and location[p] and not location[p] & step.memory:
                    if is_whole:
                        whole[p, step.memory] = step.device, seconds, joules
                    else:
                        _, s, j = slices.get((p, step.memory), (0, 0.0, 0.0))
                        slices[p, step.memory] = step.device, s + seconds, j + joules
        return whole, slices


class _Row(NamedTuple):
    """A way to run a node, or what is left of it: the choice and its parts; what it adds to the devices' ends, the
    final transfers and the joules; and the shared data that it lacks."""

    choice: int
    parts: list[int]
    added: Table
    whole: Brought
    slices: Brought


class Solved(NamedTuple):
    """The best plan found below a limit (None: none), its cost, and what no other one costs less than."""

    path: Path | None
    cost: float
    bound: float


def solve(tree: Tree, limit: float, effort: int) -> Solved | None:
    """Return the best plan below ``limit`` that goes on from a node of the tree whose rest is apart, with about
    ``effort`` partial plans: first few are kept at a time, for a lower limit. None where there are too many sets of
    shared data to bring."""
    nodes = sorted(tree.open)
    rows = {node: list(_rows(tree, node)) for node in sorted(nodes, key=lambda n: tree.status[n], reverse=True)}
    brought: Brought = {}
    for row in (row for of in rows.values() for row in of):
        if any(brought.setdefault(key, found) != found for key, found in row.whole.items()):
            return None  # nodes take other parts of it
    widths = sorted({max(1, effort * width // (PLANNING.widths[-1] * len(nodes))) for width in PLANNING.widths})
    if 1 << len(brought) > widths[-1]:
        return None
    best, bound = Solved(None, limit, limit), np.inf
    for most in widths:
        bound = np.inf
        for bits in reversed(range(1 << len(brought))):
            keys = {key: 1 << i for i, key in enumerate(brought) if bits >> i & 1}
            found = _EndsOfNodes(tree, best.cost, most, rows, {key: brought[key] for key in keys}, keys).best()
            bound = min(bound, found.bound)
            best = found if found.path is not None else best
        if bound >= best.cost:
            break
    return best._replace(bound=bound)


def _rows(tree: Tree, node: int) -> Iterator[_Row]:
    """Yield the ways to run a node, as if all shared data were everywhere."""
    location, is_shared = tree.location, tree.shared.is_shared
    known = [(p, where) for p, where in enumerate(location) if is_shared[p]]
    begun = tree.begun.get(node)
    for c, choice in enumerate(tree.choices(node)):
        if begun is not None and c != begun[0]:
            continue
        parts = [part for part in range(len(choice.steps)) if begun is None or begun[1] >> part & 1]
        whole, slices = tree.shared.lacking(choice, location, parts)
        before = _sums(tree)
        for p, _ in known:
            location[p] = -1
        backs = [tree.down(node, c, part) for part in parts]
        added = _sums(tree) - before
        for back in reversed(backs):
            back()
        for p, where in known:
            location[p] = where
        yield _Row(c, parts, added, whole, slices)


def _sums(tree: Tree) -> Table:
    """Return the devices' ends, the final transfers, and the joules."""
    return np.array([*tree.free, tree.final, tree.joules])


class _EndsOfNodes:
    """The sums of the rows of all nodes, where the shared data ``brought``, with bits ``keys``, are brought."""

    def __init__(
        self,
        tree: Tree,
        limit: float,
        most: int,
        rows: dict[int, list[_Row]],
        brought: Brought,
        keys: dict[tuple[int, int], int],
    ) -> None:
        self._tree, self._limit, self._most = tree, limit, most
        self._keys, self._all = keys, sum(keys.values())
        self._start = _sums(tree)
        for device, seconds, joules in brought.values():
            self._start[device] += seconds
            self._start[-1] += joules
        self._rows = {n: [r for r in of if r.whole.keys() <= keys.keys()] for n, of in rows.items()}
        self._weights = np.array([*tree.weights, 1.0, 0.0])
        self.bound = np.inf

    def best(self) -> Solved:
        """Return the best plan, and what no other one costs less than."""
        if not all(self._rows.values()):
            return Solved(None, self._limit, np.inf)
        added = {n: [self._added(row) for row in of] for n, of in self._rows.items()}
        rest = sum(min(float(a @ self._weights) for a in of) for of in added.values())
        sums, bits, levels = self._start[None], np.zeros(1, int), list[tuple[NDArray[np.intp], NDArray[np.intp]]]()
        for node, of in added.items():
            rest -= min(float(a @ self._weights) for a in of)
            sums, bits, level = self._next(sums, bits, self._rows[node], of, rest)
            levels.append(level)
        sums, which = sums[bits == self._all], np.flatnonzero(bits == self._all)
        if not len(sums):
            return Solved(None, self._limit, self.bound)
        path, cost, after = self._placed(levels, int(which[0]))
        costs = self._costs(sums, after)  # (a last host function's own time is the same for all)
        path, cost, _ = self._placed(levels, int(which[at := int(costs.argmin())]))
        if abs(cost - costs[at]) > ROUNDING * abs(cost):
            self.bound = min(self.bound, float(costs[at]))  # it is not as it was summed up: nothing is proved
        return Solved(path if cost < self._limit else None, min(cost, self._limit), self.bound)

    def _added(self, row: _Row) -> Table:
        """Return what a row adds, with the slices that it has to bring."""
        found = row.added.copy()
        for key, (device, seconds, joules) in row.slices.items():
            if key not in self._keys:
                found[device] += seconds
                found[-1] += joules
        return found

    def _next(
        self, sums: Table, bits: NDArray[np.int_], rows: list[_Row], added: list[Table], rest: float
    ) -> tuple[Table, NDArray[np.int_], tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Return the sums with one node more, the data brought, and the sum and row that each is of."""
        parts: list[tuple[Table, NDArray[np.int_], NDArray[np.intp], NDArray[np.intp], Table]] = []
        for r, (row, more) in enumerate(zip(rows, added, strict=True)):
            found = sums + more
            least = self._value(np.maximum(found[:, :-2].max(1), found @ self._weights + rest), found[:, -1])
            kept = np.flatnonzero(least < self._limit)
            mine = bits[kept] | sum(self._keys[key] for key in row.whole)
            parts.append((found[kept], mine, kept, np.full(len(kept), r), least[kept]))
            if r == len(rows) - 1 or sum(len(part[1]) for part in parts) > 2 * self._most:
                parts = [self._fewer(*map(np.concatenate, zip(*parts, strict=True)))]
        found, mine, of, row_of, _ = parts[0]
        self._tree.steps += len(of)
        return found, mine, (of, row_of)

    def _fewer(
        self, sums: Table, bits: NDArray[np.int_], of: NDArray[np.intp], row: NDArray[np.intp], least: Table
    ) -> tuple[Table, NDArray[np.int_], NDArray[np.intp], NDArray[np.intp], Table]:
        """Return one of equal sums each, and of too many those that may lead to the best plans."""
        unit = ROUNDING * max(float(np.abs(sums).max(initial=0.0)), 1e-300) / 1024.0
        _, first = np.unique(np.column_stack([np.round(sums / unit), bits]), axis=0, return_index=True)
        if len(first) > self._most:
            first = first[np.lexsort((sums[first, :-2].max(1), least[first]))]
            self.bound = min(self.bound, float(least[first[self._most]]))
            first = first[: self._most]
        return sums[first], bits[first], of[first], row[first], least[first]

    def _value(self, seconds: Table, joules: Table) -> Table:
        """Return the costs of plans."""
        goal, deadline = self._tree.objective
        if goal != "time":
            joules = joules + self._tree.idle * seconds
        found = seconds if goal == "time" else joules if goal == "energy" else joules * seconds
        return np.where(seconds > deadline * (1.0 + ROUNDING), np.inf, found)

    def _costs(self, sums: Table, after: float) -> Table:
        """Return the costs of whole plans whose last host function takes ``after`` seconds, without what it fetches of
        these nodes' results."""
        seconds, last = sums[:, :-2].max(1), self._tree.last
        if last is not None:
            mine = np.where(sums[:, :-2] > self._start[:-2], sums[:, :-2], 0.0).max(1)
            begin = np.maximum(mine, max(self._tree.ready[last], self._tree.free[-1]))
            seconds = np.maximum(seconds, begin + sums[:, -2] + after)
        return self._value(seconds, sums[:, -1])

    def _placed(self, levels: list[tuple[NDArray[np.intp], NDArray[np.intp]]], at: int) -> tuple[Path, float, float]:
        """Return the path of a plan by its place in the last level, its cost, and the seconds of a last host function
        without what it fetches of the nodes' results."""
        tree, chosen = self._tree, list[tuple[int, _Row]]()
        for node, (of, row) in zip(reversed(self._rows), reversed(levels), strict=True):
            chosen.append((node, self._rows[node][row[at]]))
            at = int(of[at])
        chosen.sort(key=lambda found: (not found[1].whole, found[0]))
        backs = [tree.down(node, row.choice, part) for node, row in chosen for part in row.parts]
        after, last = 0.0, tree.last
        if last is not None and last in tree.open:
            begin, final = max(tree.free[-1], tree.ready[last]), tree.final
            backs.append(tree.down(last, 0, 0))
            after = tree.ended[last] - begin - final
        path, cost = tuple(tree.path), tree.cost
        for back in reversed(backs):
            back()
        return path, cost, after
