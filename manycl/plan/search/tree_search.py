"""REPARA's tree search: the shortest plan of every order of every choice of partitions.

REPARA, Section 2.2.2, Algorithms 2 and 3. A node of the tree is a partial plan; a child has one more partition, of a
kernel that is ready or has begun. A partition starts when its device is free and all predecessors of its kernel have
ended, and takes its transfers and its own time, one after another; no plan has two incompatible units. The paper visits
the whole tree. Here a node is left out only if nothing below it can be the shortest:

- the rest takes too long (``plan/search/search_bounds.py``);
- the same partitions were placed before, with every parameter in the same place, and no later.

So the answer is that of the whole tree, if the effort suffices. There is first a plan by list scheduling, or the one
that is most like a plan of another policy, then better ones level by level with the most promising nodes of each, then
depth first until one is proven to be the shortest or the effort is spent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from manycl.graph.graph import HostTask
from manycl.plan.plan import MERGE, ON_HOST, ROUNDING, Plan
from manycl.plan.search.apart import is_orderless, solve
from manycl.plan.search.objective import TIME, Objective
from manycl.plan.search.partition_costs import PartitionCosts, PricedPart, PricedWay, bring
from manycl.plan.search.search_bounds import Bounds
from manycl.plan.tuning import PLANNING

WAITING, BEGUN, DONE = range(3)

Path = tuple[tuple[int, int, int], ...]


class Child(NamedTuple):
    """A child in the tree: partition ``part`` of choice ``choice`` of a node, which ends at ``end``; no plan below it
    costs less than ``bound``."""

    bound: float
    end: float
    node: int
    choice: int
    part: int


class Tree:
    """One node of the tree, which can move to a child and back."""

    def __init__(self, costs: PartitionCosts, bounds: Bounds, objective: Objective) -> None:
        self.steps = 0  # how often a child was entered
        self.objective, self._is_time = objective, objective == TIME
        self.idle, self.weights, self.last = costs.idle, bounds.weights, bounds.last
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
        self.found = [0.0] * len(graph)  # weighted seconds that ``least`` counts for bringing what is there by now
        self.final = 0.0  # seconds of the final transfers for placed partitions
        self._least = [min((c.joules for c in choices), default=0.0) for choices in costs.choices]
        self.joules = sum(self._least)  # above idle power, of what is placed, and the least of the rest
        self._is_orderless = is_orderless(costs)
        self.path: list[tuple[int, int, int]] = []

    @property
    def cost(self) -> float:
        """The cost of the plan that ends here."""
        return self._cost(self.makespan, self.joules)

    def _cost(self, seconds: float, joules: float) -> float:
        return seconds if self._is_time else self.objective.cost(seconds, joules + self._costs.idle * seconds)

    @property
    def makespan(self) -> float:
        return max(self.free)

    def children(self, limit: float) -> list[Child]:
        """Return the children that can end before ``limit`` as far as the bounds tell."""
        found: list[Child] = []
        nodes = sorted(self.open)
        for node in nodes:
            if self.status[node] == BEGUN:
                self._of_choice(node, *self.begun[node], limit, found)
                continue
            for c, choice in enumerate(self._costs.choices[node]):
                self._of_choice(node, c, (1 << len(choice.steps)) - 1, limit, found)
        return found

    def more(self, but: int = -1) -> float:
        """Return the seconds by which the rest from the first cut on that has not begun (``but`` has) exceeds its
        weighted work."""
        first = next((n for n in self._bounds.cuts if n != but and self.status[n] == WAITING), None)
        return 0.0 if first is None else self._bounds.more[first]

    def fetching(self) -> float:
        """Return the joules of getting what the last host function reads from where it is."""
        if self._is_time or self.last is None or self.status[self.last] == DONE:
            return 0.0
        return bring(self._costs.choices[self.last][0].steps[0], self.location, self._costs)[1]

    def choices(self, node: int) -> Sequence[PricedWay]:
        """Return the ways to run a node."""
        return self._costs.choices[node]

    def shared(self) -> set[int]:
        """Return the parameters that more than one of the nodes that are left may need."""
        left = Counter(p for n, p in self._costs.writer if n in self.open or n == self.last)
        return {p for p, readers in left.items() if readers > 1}

    def is_apart(self) -> bool:
        """Return whether the order of the nodes that are left only matters for those that bring shared data: all may
        begin, at once, and nothing but the last host function comes after any."""
        last, nodes = self.last, self.open
        return (
            self._is_orderless
            and 0 < self.left == len(nodes) + (last is not None and last not in nodes and self.status[last] != DONE)
            and max(self.ready[n] for n in nodes) <= min(self.free[:-1])
            and not any(self._on_host[n] or any(s != last for s in self._after[n]) for n in nodes)
        )

    def _of_choice(self, node: int, c: int, left: int, limit: float, found: list[Child]) -> None:
        """Add the partitions ``left`` (bits) of a choice."""
        choice, bounds = self._costs.choices[node][c], self._bounds
        joules = self.joules
        if not self._is_time:
            joules += choice.joules - self._least[node] if self.status[node] == WAITING else 0.0
            limit = self.objective.within(limit, joules, self._costs.idle)  # from here on, in seconds
        load = self.load + self.more(node)
        final = self.final + bounds.final[node][c]
        if node == bounds.last:
            final = 0.0
        more = 0.0
        if self.status[node] == WAITING:
            load += bounds.load[node][c] - bounds.least[node]
            if load >= limit:
                return
            more = bounds.load[node][c] - bounds.final[node][c] - bounds.parts[node][c]  # these transfers come first
            more -= self.found[node]
        seen: set[PricedPart] = set()
        for part, step in enumerate(choice.steps):
            if not left >> part & 1 or step in seen:
                continue
            seen.add(step)  # another partition that equals it: either may come first
            seconds, _, changed = bring(step, self.location, self._costs)
            end = max(self.free[step.device], self.ready[node]) + seconds + step.seconds + step.sends
            bound = load - more + bounds.weights[step.device] * (end - self.free[step.device] - step.sure)
            bound -= sum([found for _, found in self._serves(node, step, changed)])
            last = max(self.ended[node], end)
            bound = max(bound, last + bounds.after(node, choice.holds)[-1] + final)
            if bound < limit:
                found.append(Child(self._cost(bound, joules), end, node, c, part))

    def _serves(self, node: int, step: PricedPart, changed: Sequence[tuple[int, int]]) -> list[tuple[int, float]]:
        """Return the other nodes that are left and find what a partition has brought (``changed`` locations), with
        their shares of that in weighted seconds."""
        shares, writer, weight = self._bounds.shares, self._costs.writer, self._bounds.weights[step.device]
        return [
            (n, weight * seconds)
            for p, now in (changed if shares else ())
            if now & step.memory
            for n, seconds in shares.get((writer[node, p], p, step.memory), ())
            if n != node and self.status[n] == WAITING
        ]

    def bound(self) -> float:
        """Return what no plan below this node costs less than."""
        return self._cost(self._seconds(), self.joules)

    def _seconds(self) -> float:
        """Return seconds that no plan below this node is shorter than."""
        bounds, free, ready = self._bounds, self.free, self.ready
        if bounds.last is not None and self.status[bounds.last] == DONE:
            return max(free)
        bound, first = max(free), min([ready[node] for node in self.open], default=0.0)
        load = self.load + sum([w * (first - f) for w, f in zip(bounds.weights, free, strict=True) if f < first])
        work = load - self.final
        waiting = [(ready[node], bounds.begin[node]) for node in self.open if self.status[node] == WAITING]
        for i, mix in enumerate(PLANNING.mixes if waiting else ()):
            bound = max(bound, (1.0 - mix) * work + max([mix * at + least[i] for at, least in waiting]))
        for node, (chosen, left) in self.begun.items():
            choice = self._costs.choices[node][chosen]
            for part, step in enumerate(choice.steps):
                if left >> part & 1:
                    end = max(free[step.device], ready[node]) + step.sure
                    beside = work - bounds.below[node]
                    for mix, least in zip(PLANNING.mixes, bounds.after(node, choice.holds), strict=True):
                        bound = max(bound, mix * end + (1.0 - mix) * beside + least)
        return max(bound + self.final, load + self.more())

    def key(self) -> tuple[object, ...]:
        """Return the placed partitions, and the locations of all parameters."""
        return tuple(self.status), tuple(self.location), tuple(sorted(self.begun.items()))

    def times(self) -> tuple[float, ...]:
        """Return all times that the rest depends on, in an order that :meth:`key` determines."""
        first = min([self.ready[n] for n in self.open], default=0.0)  # nothing can begin before
        free = [f if f > first else first for f in self.free]
        least_free, host = min(free[:-1], default=0.0), free[-1]
        on_host, missing = self._on_host, self.missing
        late = [
            max(host if on_host[n] else least_free, self.ready[n])
            for n, status in enumerate(self.status)
            if status != DONE and missing[n] < self._most_missing[n]
        ]
        joules = 0.0 if self._is_time else self.joules
        return (*free, *late, *(self.ended[n] for n in sorted(self.begun)), joules)

    def down(self, node: int, c: int, part: int) -> Callable[[], None]:
        """Move to a child; return a function that moves back."""
        self.steps += 1
        choice = self._costs.choices[node][c]
        step, bounds = choice.steps[part], self._bounds
        status, load, ended = self.status[node], self.load, self.ended[node]
        begun, free = self.begun.get(node), self.free[step.device]
        seconds, joules, changed = bring(step, self.location, self._costs)
        before_it = self.joules
        self.joules += joules + (choice.joules - self._least[node] if status == WAITING else 0.0)
        end = max(free, self.ready[node]) + seconds + step.seconds + step.sends
        left = (begun[1] if begun else (1 << len(choice.steps)) - 1) & ~(1 << part)
        if begun is None:
            self.load += bounds.parts[node][c] + bounds.final[node][c] - bounds.least[node] + self.found[node]
        self.load += bounds.weights[step.device] * (end - free - step.sure)
        served = [(n, self.found[n], more) for n, more in self._serves(node, step, changed)]
        for n, known, more in served:
            self.found[n] = known + more
            self.load -= more
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
            self.final, self.joules = final, before_it
            self.free[step.device], self.load, self.ended[node], self.status[node] = free, load, ended, status
            for n, known, _ in reversed(served):
                self.found[n] = known
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


class SearchResult(NamedTuple):
    """The best plan found: partitions as (node, choice, part) in the order of the plan, and its cost in the model (by
    default its end, in seconds). ``complete``: no plan is better; else none is below ``bound``. ``visited``: nodes."""

    path: Path
    cost: float
    complete: bool
    bound: float
    visited: int


def search(costs: PartitionCosts, effort: int, known: Sequence[Plan] = (), objective: Objective = TIME) -> SearchResult:
    """Return the best of all plans from the choices in ``costs``; ``effort``: nodes of the tree to enter at most,
    beside those of a plan by list scheduling, and of those most like plans that are ``known``."""
    bounds = Bounds(costs)
    tree = Tree(costs, bounds, objective)
    firsts = [_first(tree, costs, bounds), *(_like(tree, costs, plan) for plan in known)]
    best, least = min(firsts, key=lambda found: found[1])
    begin, root = tree.steps, tree.bound()
    if root < _below(least) and tree.is_apart() and (found := solve(tree, _below(least), effort)) is not None:
        best, least = (best, least) if found.path is None else (found.path, found.cost)
        bound = max(root, min(found.bound, least))
        return SearchResult(best, least, found.bound >= _below(least), bound, tree.steps - begin)
    for width in PLANNING.widths:
        better = _level_by_level(tree, _below(least), width, begin + int(PLANNING.beam * effort))
        if better is not None:
            best, least = better
    limit = _below(least)
    memory: dict[tuple[object, ...], list[tuple[float, ...]]] = {}
    stack: list[tuple[list[Child], object]] = []
    visited, unproved = 0, math.inf
    if root < limit:
        stack.append((_ordered(tree, limit), None))
    while stack:
        children, back = stack[-1]
        if not children or children[-1].bound >= limit:
            stack.pop()
            if back is not None:
                back()  # type: ignore[operator]
            continue
        if tree.steps - begin >= effort:
            bound = min(unproved, *(c.bound for left, _ in stack for c in left))
            return SearchResult(best, least, False, max(root, min(bound, least)), visited)
        child = children.pop()
        undo = tree.down(child.node, child.choice, child.part)
        visited += 1
        if tree.left == 0:
            if tree.cost < limit:
                best, least = tuple(tree.path), tree.cost
                limit = _below(least)
            undo()
        elif tree.bound() >= limit or _known(tree, memory):
            undo()
        elif tree.is_apart() and (found := solve(tree, limit, begin + effort - tree.steps)) is not None:
            if found.path is not None:
                best, least = found.path, found.cost
                limit = _below(least)
            unproved = min(unproved, found.bound)
            undo()
        else:
            stack.append((_ordered(tree, limit), undo))
    return SearchResult(best, least, unproved >= limit, max(root, min(unproved, least)), visited)


def _below(cost: float) -> float:
    return cost - ROUNDING * abs(cost) if cost < math.inf else cost


def _ordered(tree: Tree, limit: float) -> list[Child]:
    """Return the children, the most promising last."""
    return sorted(tree.children(limit), reverse=True)


def _known(tree: Tree, memory: dict[tuple[object, ...], list[tuple[float, ...]]]) -> bool:
    """Return whether the same partitions have been placed before, no later; if not, remember them."""
    key, times = tree.key(), tree.times()
    known = memory.get(key)
    if known is None:
        memory[key] = [times]
        return False
    if any(all(a <= b for a, b in zip(old, times, strict=True)) for old in known):
        return True
    known[:] = [old for old in known if not all(a >= b for a, b in zip(old, times, strict=True))]
    known.append(times)
    return False


def _level_by_level(tree: Tree, limit: float, width: int, most: int) -> tuple[Path, float] | None:
    """Return the shortest plan below ``limit`` among those that begin, at every length, like one of the ``width``
    partial plans with the least bounds; None if there is none, or more than ``most`` nodes have been entered before."""
    best: tuple[Path, float] | None = None
    paths: list[Path] = [()]
    while paths:
        found: dict[tuple[object, ...], tuple[tuple[float, float], Path]] = {}
        for path in paths:
            if tree.steps > most:
                return best
            backs = [tree.down(*step) for step in path]
            for child in tree.children(limit):
                undo = tree.down(child.node, child.choice, child.part)
                score = tree.bound(), sum(tree.free)
                if tree.left == 0 and tree.cost < limit:
                    best = tuple(tree.path), tree.cost
                    limit = _below(tree.cost)
                elif tree.left and score[0] < limit:
                    key = tree.key()
                    if key not in found or score < found[key][0]:
                        found[key] = score, tuple(tree.path)
                undo()
            for back in reversed(backs):
                back()
        paths = [path for _, path in sorted(found.values())[:width]]
    return best


def _like(tree: Tree, costs: PartitionCosts, plan: Plan) -> tuple[Path, float]:
    """Return the plan of the tree that is most like another plan: nodes in its order, each in the way that gives every
    device the most nearly equal part of it."""
    parts: dict[int, dict[int, float]] = {}
    for a in plan.assignments:
        if a.dimension is not MERGE and costs.choices[a.node]:
            split = costs.problem.splits.get(a.node)
            of = parts.setdefault(a.node, {})
            device = costs.host if a.device == ON_HOST else a.device
            of[device] = of.get(device, 0.0) + (a.groups / split.groups if a.groups and split is not None else 1.0)
    undo = []
    for node, wanted in parts.items():
        choices = costs.choices[node]
        pick = min(range(len(choices)), key=lambda c: _unlike(choices[c], wanted))
        undo += [tree.down(node, pick, part) for part in range(len(choices[pick].steps))]
    return _undone(tree, undo)


def _undone(tree: Tree, undo: list[Callable[[], None]]) -> tuple[Path, float]:
    """Return the plan that ends here, and its cost, and move back."""
    found = tuple(tree.path), tree.cost
    for back in reversed(undo):
        back()
    return found


def _unlike(way: PricedWay, wanted: Mapping[int, float]) -> float:
    """Return the part of a node that a way has on other devices than wanted."""
    total = sum(part.groups for part in way.way)
    left = dict(wanted)
    for step, part in zip(way.steps, way.way, strict=True):
        left[step.device] = left.get(step.device, 0.0) - (part.groups / total if total else 1.0)
    return sum(map(abs, left.values()))


def _first(tree: Tree, costs: PartitionCosts, bounds: Bounds) -> tuple[Path, float]:
    """Return a plan to begin with: the ready kernel with the longest path to the end comes next, in the way that lets
    the rest end first."""
    undo = []
    while tree.left:
        node = max(tree.open, key=lambda n: (bounds.begin[n][-1], -n))
        assert tree.status[node] == WAITING
        best, pick = math.inf, 0
        for c, choice in enumerate(costs.choices[node]):
            backs = [tree.down(node, c, part) for part in range(len(choice.steps))]
            end = tree.ended[node] + bounds.after(node, choice.holds)[-1] + bounds.final[node][c]
            for back in reversed(backs):
                back()
            if end < best:
                best, pick = end, c
        undo += [tree.down(node, pick, part) for part in range(len(costs.choices[node][pick].steps))]
    return _undone(tree, undo)
