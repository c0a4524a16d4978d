"""Nodes that do not depend on each other: the best of all plans of them, without looking at their orders.

What such nodes cost does not depend on their order, but for those that bring shared data to a device, where others then
find these. So a partial plan is no more than the devices' ends: node by node, every way to run it is added to the ends
that there are, and the ends that can still lead to a better plan are kept. That is done for every set of shared data
that may be brought, which come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from manycl.machine import HOST_BIT
from manycl.plan.plan import ROUNDING
from manycl.plan.search.partition_costs import PartitionCosts
from manycl.plan.tuning import PLANNING

if TYPE_CHECKING:
    from manycl.plan.search.tree_search import Path, Tree

Table = NDArray[Any]
Brought = dict[tuple[int, int], Table]
"""Shared data that are brought, by parameter and memory (a bit), with what that adds (:func:`_sums`)."""


def is_orderless(costs: PartitionCosts) -> bool:
    """Return whether nodes that do not depend on each other find shared parameters at the same costs in some order of
    whole nodes as in any order of partitions, while the host has them: if each device has a memory of its own, or the
    host's, and no way takes some of them in linear regions and others as a whole."""
    readers = Counter(p for _, p in costs.writer)
    shared = [readers[p] > 1 for p in range(len(costs.location))]
    own = [bit for bit in costs.bits if bit != HOST_BIT]
    steps = [[i for s in c.steps for i in s.inputs if shared[i.parameter]] for of in costs.choices for c in of]
    return len({*own}) == len(own) and all(len({i.whole for i in of}) < 2 for of in steps)


class _Row(NamedTuple):
    """A way to run a node, or what is left of it: the choice and its parts; what it adds (:func:`_sums`); and the
    shared data that it lacks, as a whole and in linear regions."""

    choice: int
    parts: list[int]
    added: Table
    whole: Brought
    regions: Brought


class Solved(NamedTuple):
    """The best plan found below a limit (None: none), its cost, and what no other one costs less than."""

    path: Path | None
    cost: float
    bound: float


def solve(tree: Tree, limit: float, effort: int) -> Solved | None:
    """Return the best plan below ``limit`` that goes on from a node of the tree whose rest is apart, with about
    ``effort`` partial plans: first few are kept at a time, for a lower limit. None where there are too many sets of
    shared data to bring, or devices have some that the host does not."""
    nodes = sorted(tree.open)
    shared = tree.shared()
    if any(tree.location[p] and not tree.location[p] & HOST_BIT for p in shared):
        return None
    rows = {node: list(_rows(tree, node, shared)) for node in nodes}
    brought: Brought = {}
    for row in (row for of in rows.values() for row in of):
        if any((brought.setdefault(key, found) != found).any() for key, found in row.whole.items()):
            return None  # nodes take other parts of it
    widths = sorted({max(1, effort * width // (PLANNING.widths[-1] * len(nodes))) for width in PLANNING.widths})
    if 1 << len(brought) > widths[-1]:
        return None
    best, bound = Solved(None, limit, limit), np.inf
    for most in widths:
        bound = np.inf
        for bits in reversed(range(1 << len(brought))):
            of = {key: found for i, (key, found) in enumerate(brought.items()) if bits >> i & 1}
            found = _Ends(tree, best.cost, most, rows, of).best()
            best, bound = found if found.path is not None else best, min(bound, found.bound)
        if bound >= best.cost:
            break
    return best._replace(bound=bound)


def _rows(tree: Tree, node: int, shared: Set[int]) -> Iterator[_Row]:
    """Yield the ways to run a node, as if all shared data were everywhere."""
    location, known = tree.location, list(tree.location)
    chosen, left = tree.begun.get(node, (-1, -1))
    for c, choice in enumerate(tree.choices(node)):
        if chosen not in (-1, c):
            continue
        parts = [part for part in range(len(choice.steps)) if left >> part & 1]
        whole: Brought = {}
        regions: Brought = {}
        for step in (choice.steps[part] for part in parts):
            for p, seconds, is_whole, joules in step.inputs:
                if p in shared and known[p] and not known[p] & step.memory:
                    more = np.zeros(len(tree.free) + 2)
                    more[step.device], more[-1] = seconds, joules
                    of, key = whole if is_whole else regions, (p, step.memory)
                    of[key] = more if is_whole else of.get(key, 0.0) + more
        before = _sums(tree)
        location[:] = [-1 if p in shared else where for p, where in enumerate(known)]
        backs = [tree.down(node, c, part) for part in parts]
        added = _sums(tree) - before
        for back in reversed(backs):
            back()
        location[:] = known
        yield _Row(c, parts, added, whole, regions)


def _sums(tree: Tree) -> Table:
    """Return the devices' ends, the final transfers, and the joules, also of these."""
    return np.array([*tree.free, tree.final, tree.joules + tree.fetching()])


class _Ends:
    """The sums of the rows of all nodes, where the shared data ``brought`` are brought; those below ``limit``, and
    ``most`` of them at a time. ``bound``: no plan of those that are left out costs less."""

    def __init__(self, tree: Tree, limit: float, most: int, rows: Mapping[int, list[_Row]], brought: Brought) -> None:
        self._tree, self._limit, self._most, self._brought = tree, limit, most, brought
        self._start: Table = sum(brought.values(), _sums(tree))
        self._rows = {n: [r for r in of if r.whole.keys() <= brought.keys()] for n, of in rows.items()}
        self._weights = np.array([*tree.weights, 1.0, 0.0])
        self.bound = np.inf

    def best(self) -> Solved:
        """Return the best plan, and what no other one costs less than."""
        if not all(self._rows.values()):
            return Solved(None, self._limit, np.inf)
        bit = {key: 1 << i for i, key in enumerate(self._brought)}
        added, least = list[tuple[Table, list[int]]](), list[float]()
        for of in self._rows.values():
            lacking = [sum([more for key, more in r.regions.items() if key not in bit], r.added) for r in of]
            added.append((np.array(lacking), [sum(map(bit.__getitem__, r.whole)) for r in of]))
            least.append(float((added[-1][0] @ self._weights).min()))
        sums, bits, levels = self._start[None], np.zeros(1, int), list[Table]()
        for number, (more, brings) in enumerate(added):
            sums, bits, level = self._next(sums, bits, more, brings, sum(least[number + 1 :]))
            levels.append(level)
        which = np.flatnonzero(bits == (1 << len(bit)) - 1)
        if not len(which):
            return Solved(None, self._limit, self.bound)
        _, _, after = self._placed(levels, int(which[0]))  # (a last host function's own time is the same for all)
        costs = self._costs(sums[which], after)
        path, cost, _ = self._placed(levels, int(which[at := int(costs.argmin())]))
        if abs(cost - costs[at]) > ROUNDING * abs(cost):
            self.bound = min(self.bound, float(costs[at]))  # it is not as it was summed up: nothing is proved
        return Solved(path if cost < self._limit else None, min(cost, self._limit), self.bound)

    def _next(self, sums: Table, bits: Table, added: Table, brings: list[int], rest: float) -> tuple[Table, ...]:
        """Return the sums with one node more, the data brought, and the sum and row that each is of."""
        parts: list[tuple[Table, ...]] = []
        for row, more in enumerate(added):
            found = sums + more
            least = self._value(np.maximum(found[:, :-2].max(1), found @ self._weights + rest), found[:, -1])
            kept = np.flatnonzero(least < self._limit)
            level = np.column_stack([kept, np.full(len(kept), row)])
            parts.append((found[kept], bits[kept] | brings[row], level, least[kept]))
            if row == len(added) - 1 or sum(len(part[1]) for part in parts) > 2 * self._most:
                parts = [self._fewer(*map(np.concatenate, zip(*parts, strict=True)))]
        self._tree.steps += len(parts[0][1])
        return parts[0][:3]

    def _fewer(self, sums: Table, bits: Table, level: Table, least: Table) -> tuple[Table, ...]:
        """Return one of equal sums each, and of too many those that may lead to the best plans."""
        unit = max(float(np.abs(sums).max(initial=0.0)), ROUNDING) * ROUNDING / len(self._rows)
        _, first = np.unique(np.column_stack([np.round(sums / unit), bits]), axis=0, return_index=True)
        if len(first) > self._most:
            first = first[np.lexsort((sums[first, :-2].max(1), least[first]))]
            self.bound = min(self.bound, float(least[first[self._most]]))
        return tuple([of[first[: self._most]] for of in (sums, bits, level, least)])

    def _value(self, seconds: Table, joules: Table) -> Table:
        """Return the costs of plans."""
        goal, deadline = self._tree.objective
        joules = joules + self._tree.idle * seconds
        found = seconds if goal == "time" else joules if goal == "energy" else joules * seconds
        return np.where(seconds > deadline * (1.0 + ROUNDING), np.inf, found)

    def _costs(self, sums: Table, after: float) -> Table:
        """Return the costs of whole plans whose last host function takes ``after`` seconds, without what it fetches of
        these nodes' results."""
        ends, last = sums[:, :-2], self._tree.last
        seconds = ends.max(1)
        if last is not None:
            begin = np.where(ends > self._start[:-2], ends, max(self._tree.ready[last], self._tree.free[-1])).max(1)
            seconds = np.maximum(seconds, begin + sums[:, -2] + after)
        return self._value(seconds, sums[:, -1])

    def _placed(self, levels: list[Table], at: int) -> tuple[Path, float, float]:
        """Return the path of a plan by its place in the last level, its cost, and the seconds of a last host function
        without what it fetches of the nodes' results."""
        tree, chosen = self._tree, list[tuple[int, _Row]]()
        for node, level in zip(reversed(self._rows), reversed(levels), strict=True):
            at, row = map(int, level[at])
            chosen.append((node, self._rows[node][row]))
        chosen.sort(key=lambda found: (not found[1].whole, found[0]))
        backs = [tree.down(node, row.choice, part) for node, row in chosen for part in row.parts]
        after, last = 0.0, tree.last
        if last is not None and last in tree.open:
            begin = max(tree.free[-1], tree.ready[last]) + tree.final
            backs.append(tree.down(last, 0, 0))
            after = tree.ended[last] - begin
        found = tuple(tree.path), tree.cost, after
        for back in reversed(backs):
            back()
        return found
