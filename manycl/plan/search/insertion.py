"""List scheduling with insertion: one kernel at a time on every device, also in the gaps that are left there.

``cpop``, ``peft`` and ``portfolio`` share this. There are two models of transfers (option ``contention``): the
engine's, where data go by the host on one upload and one download queue a device (``plan/timeline/timeline.py``), and
the literature's (``plan/timeline/delays.py``), where transfers never meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from manycl.errors import PolicyError
from manycl.machine import DeviceIndex
from manycl.plan import options
from manycl.plan.plan import ON_HOST, WHOLE, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.search import rank
from manycl.plan.search.costs import Costs, costs
from manycl.plan.timeline import timeline
from manycl.plan.timeline.busy_intervals import BusyIntervals
from manycl.plan.timeline.delays import Delays, delays, lower_bound
from manycl.plan.timeline.timeline import Schedule, Timeline
from manycl.plan.timeline.times_only import TimesOnly, TimesOnlyFit

CONTENTION = options.one_of("contention", "yes", "no")
"""The option of all policies with insertion."""


class BoardFit(NamedTuple):
    """A place for a node: device, and start and end in seconds."""

    node: int
    device: DeviceIndex
    start: float
    end: float


class Board:
    """A partial schedule by the literature's model, which grows node by node, predecessors first."""

    def __init__(self, problem: Problem, view: Delays) -> None:
        self._problem = problem
        self._view = view
        self.gaps = [BusyIntervals() for _ in range(len(problem.machine.devices) + 1)]
        self.where = [ON_HOST] * len(view.before)
        self.end = [problem.not_before] * len(view.before)
        self.start = list(self.end)
        self._order: list[int] = []
        busy = [-float("inf")] * len(self.gaps)
        for a in sorted(problem.fixed, key=lambda a: (a.start, a.end, a.node)):
            self.where[a.node], self.start[a.node], self.end[a.node] = a.device, a.start, a.end
            self._order.append(a.node)
            # in several queues they may overlap; only the time when the device is free counts
            if a.end > busy[a.device]:
                self.gaps[a.device].take(max(a.start, busy[a.device]), a.end)
                busy[a.device] = a.end

    def fit(self, node: int, device: DeviceIndex) -> BoardFit:
        """Return the earliest place for a node on a device (``ON_HOST``: the host)."""
        view, end, where = self._view, self.end, self.where
        ready = view.earliest[node][device]
        for p, matrix in view.before[node]:
            arrived = end[p] + matrix[where[p]][device]
            if arrived > ready:
                ready = arrived
        seconds = view.seconds[node][device]
        start = self.gaps[device].first(ready, seconds)
        return BoardFit(node, device, start, start + seconds)

    def earliest(self, node: int, devices: Sequence[DeviceIndex], more: Sequence[float] = ()) -> BoardFit:
        """Return what :meth:`Timeline.earliest` returns."""
        if len(devices) == 1:
            return self.fit(node, devices[0])
        end, where, gaps = self.end, self.where, self.gaps
        row, first = self._view.seconds[node], self._view.earliest[node]
        arrivals = [(end[p], matrix[where[p]]) for p, matrix in self._view.before[node]]
        best, start, least = devices[0], 0.0, inf
        for device in devices:
            ready, seconds, beside = first[device], row[device], more[device] if more else 0.0
            for ended, seconds_to in arrivals:
                if ended + seconds_to[device] > ready:
                    ready = ended + seconds_to[device]
            if ready + seconds + beside < least:
                found = gaps[device].first(ready, seconds)
                if found + seconds + beside < least:
                    best, start, least = device, found, found + seconds + beside
        return BoardFit(node, best, start, start + row[best])

    def place(self, fit: BoardFit) -> None:
        node, device, start, end = fit
        self.gaps[device].take(start, end)
        self.where[node], self.start[node], self.end[node] = device, start, end
        self._order.append(node)

    def by_node(self) -> tuple[list[DeviceIndex], list[float], list[float]]:
        """Return the device, the start and the end of every node."""
        return self.where, self.start, self.end

    def schedule(self) -> Schedule:
        """Return the placed nodes in the order of dispatch."""
        fixed, version = {a.node: a for a in self._problem.fixed}, self._problem.version
        members = [
            fixed.get(n)
            or Assignment(n, d, 0, self.start[n], self.end[n], version=0 if d == ON_HOST else version(n, d))
            for n in self._order
            for d in (self.where[n],)
        ]
        members.sort(key=lambda a: (a.start, a.end))  # stable: nodes that take no time keep the order of placement
        return Schedule(members, max(self.end, default=self._problem.not_before))


AnyBoard = Board | Timeline


@dataclass(frozen=True)
class Setting:
    """A problem looked up once. ``contention``: transfers share queues, as the engine's do. ``fixed``: nodes that are
    placed already."""

    problem: Problem
    table: Costs
    view: Delays
    contention: bool
    fixed: frozenset[int]

    def board(self) -> AnyBoard:
        """Return a new partial schedule with the fixed nodes."""
        return Timeline(self.problem, self.table.seconds) if self.contention else Board(self.problem, self.view)

    def sketch(self) -> AnyBoard | TimesOnly:
        """Return the same, for callers that need only the times of nodes."""
        if not self.contention or not TimesOnly.holds(self.problem):
            return self.board()
        return TimesOnly(self.problem, self.table.seconds)

    def bound(self) -> float:
        """Return seconds that no schedule ends before."""
        ends = {a.node: a.end for a in sorted(self.problem.fixed, key=lambda a: a.end)}  # the last end of each node
        devices = self.problem.machine.indices
        return max(self.problem.not_before, lower_bound(self.view, devices, ends))

    @property
    def ranges(self) -> bool:
        """True if a node is fixed in ranges of work-groups."""
        return any(a.dimension is not WHOLE for a in self.problem.fixed)

    def plan(self, policy: str, found: Schedule, **details: object) -> Plan:
        return found.plan(self.problem, policy, contention=self.contention, **details)


def setting(problem: Problem, policy: str, contention: str = "yes") -> Setting:
    """Return the problem in the form for policies with insertion. ``contention``: the value of their option.

    Raises PolicyError for a partial schedule that is not consistent.
    """
    if contention == "no" and any(a.dimension is not WHOLE for a in problem.fixed):
        raise PolicyError(
            f"policy {policy} with contention=no knows no ranges, but one of the partial schedule is split"
        )
    problem.check_fixed()
    table = costs(problem)
    return Setting(
        problem, table, delays(problem, table), contention == "yes", frozenset(a.node for a in problem.fixed)
    )


def put(board: AnyBoard | TimesOnly, fit: BoardFit | timeline.Fit | TimesOnlyFit) -> None:
    """Place a node at a place found for it."""
    board.place(fit)  # type: ignore[arg-type]


def earliest_finish(board: AnyBoard, view: Delays, node: int) -> BoardFit | timeline.Fit:
    """Return HEFT's choice: the device where the node ends first, the first of equals."""
    return board.earliest(node, view.places[node])


def ready_order(given: Setting, priority: Sequence[float]) -> list[int]:
    """Return the nodes that are not fixed, in the order of :func:`manycl.plan.search.rank.ready_order`."""
    return [n for n in rank.ready_order(given.problem.graph, priority) if n not in given.fixed]
