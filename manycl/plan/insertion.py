"""List scheduling with insertion: one kernel at a time on every device, also into the gaps that are left there.

What ``cpop``, ``peft`` and ``portfolio`` share. Two models of transfers (option ``contention``): the engine's, where
data go by the host on one upload and one download queue a device (``plan/timeline.py``), and the literature's
(``plan/delays.py``), where transfers never meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from manycl.errors import PolicyError
from manycl.plan import options, placement, rank
from manycl.plan.costs import Costs, costs
from manycl.plan.delays import Delays, delays, lower_bound
from manycl.plan.plan import ON_HOST, WHOLE, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.slots import Slots
from manycl.plan.timeline import Schedule
from manycl.plan.timing import contended, timed
from manycl.plan.transfers import Move, Transfers, known_by_others

CONTENTION = options.one_of("contention", "yes", "no")
"""The option that all policies with insertion have."""


class Fit(NamedTuple):
    """Where a node would run: seconds, and the transfers it needs (``placed``: where parts of buffers are moved)."""

    device: int
    start: float
    end: float
    moves: list[Move]
    placed: placement.Fit | None = None


class Board:
    """A partial schedule that grows node by node, predecessors first."""

    def __init__(self, problem: Problem, view: Delays, contention: bool, moves: bool) -> None:
        self._problem = problem
        self._view = view
        self._transfers = Transfers(problem) if contention and moves else None
        self._contention = contention
        self.gaps = [Slots() for _ in range(len(problem.machine.devices) + 1)]
        self.where = [ON_HOST] * len(view.before)
        self.end = [problem.not_before] * len(view.before)
        self.start = list(self.end)
        self._heard = list(self.end)  # when others than its own device know that a node has ended
        self._order: list[int] = []
        busy = [-float("inf")] * len(self.gaps)
        for a in sorted(problem.fixed, key=lambda a: (a.start, a.end, a.node)):
            self.where[a.node], self.start[a.node], self.end[a.node] = a.device, a.start, a.end
            heard = self._heard[a.node] = known_by_others(problem, a.end, fixed=True)
            self._order.append(a.node)
            # in several queues they may overlap; what counts is when the device is free
            if a.end > busy[a.device]:
                self.gaps[a.device].take(max(a.start, busy[a.device]), a.end)
                busy[a.device] = a.end
            if self._transfers is not None:
                self._transfers.commit(a.node, a.device, a.end, heard, [])

    def fit(self, node: int, device: int) -> Fit:
        """The earliest place for a node on a device (``ON_HOST``: the host)."""
        view, end, where = self._view, self.end, self.where
        moves: list[Move] = []
        if not self._contention:
            ready = view.earliest[node][device]
            for p, matrix in view.before[node]:
                arrived = end[p] + matrix[where[p]][device]
                if arrived > ready:
                    ready = arrived
        else:
            ready = self._problem.not_before
            for p in self._problem.graph.predecessors[node]:
                arrived = end[p] if where[p] == device != ON_HOST else self._heard[p]
                if arrived > ready:
                    ready = arrived
            if self._transfers is not None:
                arrived, moves = self._transfers.need(node, device)
                if arrived > ready:
                    ready = arrived
        seconds = view.seconds[node][device]
        if self._transfers is not None:
            return Fit(device, *self._transfers.runs(node, device, ready, seconds, self.gaps[device]), moves)
        start = self.gaps[device].first(ready, seconds)
        return Fit(device, start, start + seconds, moves)

    def take(self, node: int, fit: Fit) -> None:
        device, start, end, moves, _ = fit
        self.gaps[device].take(start, end)
        self.where[node], self.start[node], self.end[node] = device, start, end
        heard = self._heard[node] = end + self._problem.handover
        self._order.append(node)
        if self._transfers is not None:
            alone = self._view.seconds[node][device]
            self._transfers.commit(node, device, end, heard, moves, start, alone)

    def schedule(self) -> Schedule:
        """What has been placed, in the order of dispatch."""
        fixed, version = {a.node: a for a in self._problem.fixed}, self._problem.version
        members = [
            fixed.get(n)
            or Assignment(n, d, 0, self.start[n], self.end[n], version=0 if d == ON_HOST else version(n, d))
            for n in self._order
            for d in (self.where[n],)
        ]
        members.sort(key=lambda a: (a.start, a.end))  # stable: what takes no time keeps the order of placement
        makespan = max(self.end, default=self._problem.not_before)
        return Schedule(members, makespan, self._transfers.moves if self._transfers is not None else [])


class RangeBoard(Board):
    """The same after kernels that are fixed in ranges: their results are in several memories."""

    def __init__(self, problem: Problem, view: Delays, rows: Sequence[Sequence[float]]) -> None:
        super().__init__(replace(problem, fixed=()), view, contention=True, moves=False)
        self._placement = placement.Placement(problem, rows)
        for a in sorted(problem.fixed, key=lambda a: (a.start, a.end)):
            self.where[a.node] = a.device
            self.end[a.node] = max(self.end[a.node], a.end)

    def fit(self, node: int, device: int) -> Fit:
        found = self._placement.fit(node, device)
        return Fit(device, found.start, found.end, [], found)

    def take(self, node: int, fit: Fit) -> None:
        assert fit.placed is not None
        self._placement.complete(node, [self._placement.take(fit.placed)])
        self.where[node], self.start[node], self.end[node] = fit.device, fit.start, fit.end

    def schedule(self) -> Schedule:
        assignments, moves = self._placement.finish()
        makespan = max((a.end for a in assignments), default=self._problem.not_before)
        return Schedule(list(assignments), makespan, list(moves))


class Setting(NamedTuple):
    """A problem looked up once. ``contention``: transfers share queues, as the engine's do. ``fixed``: nodes that are
    placed already."""

    problem: Problem
    table: Costs
    view: Delays
    contention: bool
    fixed: frozenset[int]

    def board(self) -> Board:
        if self.ranges:
            return RangeBoard(self.problem, self.view, self.table.seconds)
        return Board(self.problem, self.view, self.contention, self.table.moves)

    def bound(self) -> float:
        """Seconds that no schedule ends before."""
        ends: dict[int, float] = {}
        for a in self.problem.fixed:
            ends[a.node] = max(ends.get(a.node, a.end), a.end)
        devices = range(len(self.problem.machine.devices))
        return max(self.problem.not_before, lower_bound(self.view, devices, ends))

    def timed(self, found: Schedule) -> Schedule:
        """The same schedule at the times at which it happens where things slow each other down, as the engine's do
        (what is fixed in ranges is timed already)."""
        problem = self.problem
        if not (self.contention and contended(problem)) or self.ranges:
            return found
        assignments, moves = timed(problem, self.table.seconds, found.assignments, found.moves)
        return Schedule(assignments, max((a.end for a in assignments), default=problem.not_before), moves)

    @property
    def ranges(self) -> bool:
        """Whether something is fixed in ranges of work-groups."""
        return any(a.dimension != WHOLE for a in self.problem.fixed)

    def plan(self, policy: str, found: Schedule, **details: object) -> Plan:
        return self.timed(found).plan(self.problem, policy, contention=self.contention, **details)


def setting(problem: Problem, policy: str, contention: str = "yes") -> Setting:
    """The problem as the policies with insertion see it. ``contention``: the value of their option.

    Raises PolicyError for a partial schedule that does not hold together."""
    if contention == "no" and any(a.dimension != WHOLE for a in problem.fixed):
        raise PolicyError(
            f"policy {policy} with contention=no knows no ranges, but one of the partial schedule is split"
        )
    problem.check_fixed()
    table = costs(problem)
    return Setting(
        problem, table, delays(problem, table), contention == "yes", frozenset(a.node for a in problem.fixed)
    )


def earliest_finish(board: Board, view: Delays, node: int) -> Fit:
    """HEFT's choice: the device where the node ends first, the first of equals."""
    return min((board.fit(node, d) for d in view.places[node]), key=lambda fit: fit.end)


def ready_order(given: Setting, priority: Sequence[float]) -> list[int]:
    """The nodes that are not fixed, by :func:`manycl.plan.rank.ready_order`."""
    return [n for n in rank.ready_order(given.problem.graph, priority) if n not in given.fixed]
