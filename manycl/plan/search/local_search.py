"""Local search: a schedule of whole kernels is improved by taking a few out, placing them where they end first, and
keeping the better schedule.

Iterated greedy search (R. Ruiz and T. Stuetzle, "A simple and effective iterated greedy algorithm for the permutation
flowshop scheduling problem", EJOR 177(3), 2007). It changes the two things that determine a schedule: the order in
which nodes are placed, and the devices of those that stay where they are. The same seed always gives the same schedule.
Where there are no more orders and devices than steps, each is tried, and no schedule that they give is shorter.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from itertools import permutations, product, starmap

from manycl.machine import DeviceIndex
from manycl.plan.plan import Assignment
from manycl.plan.search.insertion import Growing, Setting
from manycl.plan.timeline.delays import after
from manycl.plan.timeline.timeline import Schedule
from manycl.plan.tuning import PLANNING

Wish = DeviceIndex | None
"""The device where a node is to run (None: the one where it ends first)."""


class SearchState:
    """A schedule during the search: nodes in the order of placement; devices and times (seconds) by node."""

    __slots__ = ("end", "makespan", "order", "start", "where")

    def __init__(self, order: list[int], where: list[DeviceIndex], start: list[float], end: list[float]) -> None:
        self.order, self.where, self.start, self.end = order, where, start, end
        self.makespan = max(end, default=0.0)


def layout(found: Schedule) -> SearchState:
    """Return a schedule in this form; its order of dispatch is the order of placement."""
    first: dict[int, Assignment] = {}
    last: dict[int, float] = {}
    for a in found.assignments:  # several assignments of a node that is fixed in ranges
        first.setdefault(a.node, a)
        last[a.node] = max(last.get(a.node, a.end), a.end)
    members = sorted(first.values())
    return SearchState(
        list(first), [a.device for a in members], [a.start for a in members], [last[a.node] for a in members]
    )


class Search:
    """A search for a shorter schedule. ``effort``: the most nodes to place in all."""

    def __init__(self, given: Setting, effort: int, seed: int) -> None:
        self._given = given
        self._effort = effort
        self._random = random.Random(seed)
        self._schedules = 1  # orders times devices, or too many
        for count, places in enumerate(given.view.places, 1):
            self._schedules = min(PLANNING.without_gain + 1, self._schedules * count * len(places))
        self._before = [[p for p, _ in edges] for edges in given.view.before]
        self._after = [[s for s, _ in edges] for edges in after(given.view)]
        self.placed = 0

    def decode(self, order: list[int], where: Sequence[Wish]) -> SearchState:
        """Return the schedule with nodes placed in this order, on the devices wished for."""
        self.placed += len(order)
        return SearchState(order, *self.board(order, where, is_times_only=True).by_node())

    def board(self, order: Sequence[int], where: Sequence[Wish], is_times_only: bool = False) -> Growing:
        """Return the same partial schedule, with its transfers unless it ``is_times_only``."""
        board, places, fixed = self._given.board(is_times_only), self._given.view.places, self._given.fixed
        put = board.put
        for node in order:
            if node not in fixed:
                device = where[node]
                put(node, places[node] if device is None else (device,))
        return board

    def improve(self, given: SearchState, bound: float) -> SearchState:
        """Return the shortest schedule found, which is never longer than ``given``. The search ends at ``bound``, which
        no schedule is below."""
        best = current = given
        idle = 0
        if self._schedules <= PLANNING.without_gain and self._schedules * len(given.order) <= self._effort:
            return min([given, *starmap(self.decode, self._every())], key=lambda found: found.makespan)
        while self.placed < self._effort and idle < PLANNING.without_gain and best.makespan > bound * (1 + 1e-12):
            found = self.decode(*self._changed(current))
            excess = (found.makespan - current.makespan) / max(current.makespan, 1e-300)
            if excess <= 0 or self._random.random() < math.exp(-excess / PLANNING.temperature):
                current = found
            idle += 1
            if found.makespan < best.makespan * (1 - 1e-12):
                best, idle = found, 0
        return best

    def _every(self) -> Iterator[tuple[list[int], Sequence[Wish]]]:
        """Yield all orders, and devices."""
        for order in permutations(range(len(self._before))):
            if all(not set(order[i:]).intersection(self._before[node]) for i, node in enumerate(order)):
                for where in product(*self._given.view.places):
                    yield list(order), where

    def _changed(self, current: SearchState) -> tuple[list[int], list[Wish]]:
        """Return an order and devices next to those of a schedule: by start, one node moved, some devices free."""
        rng = self._random
        order = sorted(range(len(current.start)), key=[*zip(current.start, current.end, strict=True)].__getitem__)
        where: list[Wish] = list(current.where)
        pool = self._critical(current) if rng.random() < PLANNING.critical else order
        for _ in range(rng.randint(1, 3)):
            node = rng.choice(pool)
            where[node] = None if rng.random() < PLANNING.free else rng.choice(self._given.view.places[node])
            self._move(order, rng.choice(pool))
        if rng.random() < PLANNING.period:
            # each node of a period of time goes where it ends first
            width = rng.randint(2, max(2, len(order) // 4))
            first = rng.randrange(len(order))
            for node in order[first : first + width]:
                where[node] = None
        return order, where

    def _move(self, order: list[int], node: int) -> None:
        """Move a node to another place in the order, between the last it waits for and the first that waits for it."""
        position = order.index(node)
        before, following = set(self._before[node]), set(self._after[node])
        low = high = position
        while low > 0 and order[low - 1] not in before:
            low -= 1
        while high + 1 < len(order) and order[high + 1] not in following:
            high += 1
        order.insert(self._random.randint(low, high), order.pop(position))

    def _critical(self, current: SearchState) -> list[int]:
        """Return nodes that end the schedule, and the node that each of them waited for."""
        start, end, where = current.start, current.end, current.where
        starts: dict[tuple[int, float], int] = {(where[n], end[n]): n for n in current.order}
        matrices = self._given.view.before
        node = max(range(len(end)), key=end.__getitem__)
        path = [node]
        while True:
            found = starts.get((where[node], start[node]), node)
            if found == node or found in path:
                edges = matrices[node]
                if not edges:
                    return path
                at = where[node]
                found = max(edges, key=lambda e: end[e[0]] + e[1][where[e[0]]][at])[0]
            path.append(found)
            node = found
