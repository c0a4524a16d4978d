"""Tree search for REPARA's shortest plan (``plan/search/search_tree.py``): first a plan by list scheduling, then better
ones level by level with the most promising nodes of each, then depth first until one is proven to be the shortest or
the effort is spent."""

from __future__ import annotations

import math
from typing import NamedTuple

from manycl.plan.search.partition_costs import PartitionCosts
from manycl.plan.search.search_bounds import Bounds
from manycl.plan.search.search_tree import WAITING, Child, Tree
from manycl.plan.tuning import PLANNING

SIGNIFICANT = 1e-12
"""The part by which a plan has to be shorter to count as shorter."""

Path = tuple[tuple[int, int, int], ...]


class SearchResult(NamedTuple):
    """The shortest plan found: partitions as (node, choice, part) in the order of the plan, and its end in the
    model, in seconds. ``complete``: no plan is shorter; else none is shorter than ``bound``. ``visited``: nodes of
    the tree."""

    path: Path
    seconds: float
    complete: bool
    bound: float
    visited: int


def search(costs: PartitionCosts, effort: int) -> SearchResult:
    """Return the shortest of all plans from the choices in ``costs``; ``effort``: nodes of the tree to enter at most,
    beside those of a plan by list scheduling."""
    bounds = Bounds(costs)
    tree = Tree(costs, bounds)
    best, seconds = _first(tree, costs, bounds)
    begin = tree.steps
    for width in PLANNING.widths:
        better = _level_by_level(tree, _below(seconds), width, begin + int(PLANNING.beam * effort))
        if better is not None:
            best, seconds = better
    limit = _below(seconds)
    memory: dict[tuple[object, ...], list[tuple[float, ...]]] = {}
    stack: list[tuple[list[Child], object]] = []
    visited = 0
    root = tree.bound()
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
            bound = min(c.bound for left, _ in stack for c in left)
            return SearchResult(best, seconds, False, max(root, min(bound, seconds)), visited)
        child = children.pop()
        undo = tree.down(child.node, child.choice, child.part)
        visited += 1
        if tree.left == 0:
            if tree.makespan < limit:
                best, seconds = tuple(tree.path), tree.makespan
                limit = _below(seconds)
            undo()
        elif tree.bound() >= limit or _known(tree, memory):
            undo()
        else:
            stack.append((_ordered(tree, limit), undo))
    return SearchResult(best, seconds, True, seconds, visited)


def _below(seconds: float) -> float:
    return seconds - SIGNIFICANT * abs(seconds)


def _ordered(tree: Tree, limit: float) -> list[Child]:
    """Return the children, the most promising last."""
    return sorted(tree.children(limit), reverse=True)


def _known(tree: Tree, memory: dict[tuple[object, ...], list[tuple[float, ...]]]) -> bool:
    """Return whether the same partitions have been placed before, no later; if not, remember them."""
    key, times = tree.key(), tree.times()
    known = memory.get(key)
    if known is None:
        if len(memory) < PLANNING.remembered:
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
                if tree.left == 0 and tree.makespan < limit:
                    best = tuple(tree.path), tree.makespan
                    limit = _below(tree.makespan)
                elif tree.left and score[0] < limit:
                    key = tree.key()
                    if key not in found or score < found[key][0]:
                        found[key] = score, tuple(tree.path)
                undo()
            for back in reversed(backs):
                back()
        paths = [path for _, path in sorted(found.values())[:width]]
    return best


def _first(tree: Tree, costs: PartitionCosts, bounds: Bounds) -> tuple[Path, float]:
    """Return a plan to begin with: the ready kernel with the longest path to the end comes next, in the way that lets
    the rest end first."""
    undo = []
    while tree.left:
        node = max(tree.open, key=lambda n: (min(o.seconds + o.after for o in bounds.options[n]), -n))
        assert tree.status[node] == WAITING
        best, pick = math.inf, 0
        for c, choice in enumerate(costs.choices[node]):
            backs = [tree.down(node, c, part) for part in range(len(choice.steps))]
            end = tree.ended[node] + bounds.after(node, choice.holds) + bounds.final[node][c]
            for back in reversed(backs):
                back()
            if end < best:
                best, pick = end, c
        undo += [tree.down(node, pick, part) for part in range(len(costs.choices[node][pick].steps))]
    found = tuple(tree.path), tree.makespan
    for back in reversed(undo):
        back()
    return found
