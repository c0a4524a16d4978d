"""REPARA's search tree: every order of every choice of partitions; the search finds its shortest plan.

REPARA, Section 2.2.2, Algorithms 2 and 3. A node of the tree is a partial plan; a child has one more partition, of a
kernel that is ready or has begun. A partition starts when its device is free and all predecessors of its kernel have
ended, and takes its transfers and its own time, one after another; no plan has two incompatible units. The paper visits
the whole tree. Here a node is left out only if nothing below it can be the shortest:

- the rest takes too long (``plan/search/search_bounds.py``);
- the same partitions were placed before, with every parameter in the same place, and no later.

So the answer is that of the whole tree, if the effort suffices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from manycl.graph.graph import HostTask
from manycl.plan.search.partition_costs import PartitionCosts, PricedPart, bring
from manycl.plan.search.search_bounds import Bounds

WAITING, BEGUN, DONE = range(3)


class Child(NamedTuple):
    """A child in the tree: partition ``part`` of choice ``choice`` of a node, which ends at ``end``; no plan below it
    is shorter than ``bound``."""

    bound: float
    end: float
    node: int
    choice: int
    part: int


class Tree:
    """One node of the tree, which can move to a child and back."""

    def __init__(self, costs: PartitionCosts, bounds: Bounds) -> None:
        self.steps = 0  # how often a child was entered
        graph = costs.problem.graph
        self._costs, self._bounds = costs, bounds
        self._after = graph.successors
        self.free = list(costs.free)
        self.location = list(costs.location)
        self.status = [WAITING if choices else DONE for choices in costs.choices]
        self.begun: dict[int, tuple[int, int]] = {}  # node -> its choice, and the partitions left, as bits
        self.missing = [sum(p not in costs.end for p in before) for before in graph.predecessors]
        self._most_missing = [len(before) for before in graph.predecessors]
        self._on_host = [isinstance(task, HostTask) for task in graph.nodes]
        floor = costs.problem.not_before
        self.ready = [max((costs.end.get(p, floor) for p in before), default=floor) for before in graph.predecessors]
        self.ended = [0.0] * len(graph)  # the latest end of the partitions placed
        self.open = {n for n, s in enumerate(self.status) if s == WAITING and self.missing[n] == 0}
        self.left = sum(s == WAITING for s in self.status)
        self.load = sum(w * f for w, f in zip(bounds.weights, self.free, strict=True))
        self.load += sum(least for n, least in enumerate(bounds.least) if self.status[n] == WAITING)
        self.final = 0.0  # seconds of the final transfers for placed partitions
        self.path: list[tuple[int, int, int]] = []

    @property
    def makespan(self) -> float:
        return max(self.free)

    def children(self, limit: float) -> list[Child]:
        """Return the children that can end before ``limit`` as far as the bounds tell."""
        found: list[Child] = []
        for node in sorted(self.open):
            if self.status[node] == BEGUN:
                self._of_choice(node, *self.begun[node], limit, found)
                continue
            for c, choice in enumerate(self._costs.choices[node]):
                self._of_choice(node, c, (1 << len(choice.steps)) - 1, limit, found)
        return found

    def _of_choice(self, node: int, c: int, left: int, limit: float, found: list[Child]) -> None:
        choice, bounds = self._costs.choices[node][c], self._bounds
        load = self.load
        final = self.final + bounds.final[node][c]
        if node == bounds.last:
            final = 0.0
        if self.status[node] == WAITING:
            load += bounds.load[node][c] - bounds.least[node]
            if load >= limit:
                return
        seen: set[PricedPart] = set()
        for part, step in enumerate(choice.steps):
            if not left >> part & 1 or step in seen:
                continue
            seen.add(step)  # another partition that equals it: either may come first
            end = self.end(node, step)
            bound = load + bounds.weights[step.device] * (end - self.free[step.device] - step.sure)
            last = max(self.ended[node], end)
            bound = max(bound, last + bounds.after(node, choice.holds) + final)
            if bound < limit:
                found.append(Child(bound, end, node, c, part))

    def end(self, node: int, step: PricedPart) -> float:
        """Return when a partition would end (getTime of Algorithm 3)."""
        seconds, _ = bring(step, self.location, self._costs.fetch)
        return max(self.free[step.device], self.ready[node]) + seconds + step.seconds + step.sends

    def bound(self) -> float:
        """Return seconds that no plan below this node is shorter than."""
        bounds, free, ready = self._bounds, self.free, self.ready
        if bounds.last is not None and self.status[bounds.last] == DONE:
            return max(free)
        bound = max(free)
        least_free = min(free[:-1], default=free[-1])
        for node, status in enumerate(self.status):
            if status == WAITING:
                bound = max(bound, bounds.path(node, ready[node], free, least_free))
        for node, (chosen, left) in self.begun.items():
            choice = self._costs.choices[node][chosen]
            for part, step in enumerate(choice.steps):
                if left >> part & 1:
                    end = max(free[step.device], ready[node]) + step.sure
                    bound = max(bound, end + bounds.after(node, choice.holds))
        return max(bound + self.final, self.load)

    def key(self) -> tuple[object, ...]:
        """Return the placed partitions, and the locations of all parameters."""
        return tuple(self.status), tuple(self.location), tuple(sorted(self.begun.items()))

    def times(self) -> tuple[float, ...]:
        """Return all times that the rest depends on, in an order that :meth:`key` determines."""
        least_free, host = min(self.free[:-1], default=0.0), self.free[-1]
        on_host, missing = self._on_host, self.missing
        late = [
            max(host if on_host[n] else least_free, self.ready[n])
            for n, status in enumerate(self.status)
            if status != DONE and missing[n] < self._most_missing[n]
        ]
        return (*self.free, *late, *(self.ended[n] for n in sorted(self.begun)))

    def down(self, node: int, c: int, part: int) -> Callable[[], None]:
        """Move to a child; return a function that moves back."""
        self.steps += 1
        choice = self._costs.choices[node][c]
        step, bounds = choice.steps[part], self._bounds
        status, load, ended = self.status[node], self.load, self.ended[node]
        begun, free = self.begun.get(node), self.free[step.device]
        seconds, changed = bring(step, self.location, self._costs.fetch)
        end = max(free, self.ready[node]) + seconds + step.seconds + step.sends
        left = (begun[1] if begun else (1 << len(choice.steps)) - 1) & ~(1 << part)
        if begun is None:
            self.load += bounds.load[node][c] - bounds.least[node]
        self.load += bounds.weights[step.device] * (end - free - step.sure)
        self.free[step.device] = end
        self.ended[node] = max(ended, end)
        final = self.final
        self.final += bounds.final[node][c] if begun is None else 0.0
        if not left:
            written = self._costs.writes[node]
            changed = [(p, w) for p, w in changed if p not in written] + [(p, choice.holds) for p in written]
        before = [(p, self.location[p]) for p, _ in changed]
        for p, where in changed:
            self.location[p] = where
        self.path.append((node, c, part))
        readies: list[tuple[int, float]] = []
        if left:
            self.status[node], self.begun[node] = BEGUN, (c, left)
        else:
            self.status[node] = DONE
            self.begun.pop(node, None)
            readies = self._finish(node)

        def back() -> None:
            self.path.pop()
            self.final = final
            self.free[step.device], self.load, self.ended[node], self.status[node] = free, load, ended, status
            for p, where in before:
                self.location[p] = where
            if begun is None:
                self.begun.pop(node, None)
            else:
                self.begun[node] = begun
            if not left:
                self.open.add(node)
                self.left += 1
                for s, ready in readies:
                    self.ready[s] = ready
                    self.missing[s] += 1
                    self.open.discard(s)

        return back

    def _finish(self, node: int) -> list[tuple[int, float]]:
        self.open.discard(node)
        self.left -= 1
        readies = [(s, self.ready[s]) for s in self._after[node]]
        for s, _ in readies:
            self.ready[s] = max(self.ready[s], self.ended[node])
            self.missing[s] -= 1
            if self.missing[s] == 0:
                self.open.add(s)
        return readies
