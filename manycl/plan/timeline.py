"""List scheduling on a predicted timeline: queues, throughput, transfers. What ``in_order`` and ``auto``
share.

The model, which the simulator shares (``run/backends/sim.py``):

- a queue runs one kernel at a time, in order;
- kernels in different queues of a device run together as far as its throughput goes (``model/occupancy.py``):
  while nodes are placed, a kernel with share f and t seconds adds f*t seconds of full-device work, and no kernel ends
  before all work given to the device up to then could have been done; the finished schedule is timed exactly
  (``plan/timing.py``);
- what draws more of the host's memory than it carries gets a share of it (``plan/available.py``, ``plan/timing.py``);
- data that are not valid where they are needed go through the host, on one upload and one download queue a
  device (``plan/transfers.py``);
- what another device (or a host function) must finish first is known ``handover`` seconds after it has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from manycl.graph.graph import Launch
from manycl.model.occupancy import share
from manycl.plan.costs import Costs
from manycl.plan.placement import Placement
from manycl.plan.plan import ON_HOST, WHOLE, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.timing import contended, meet, timed
from manycl.plan.transfers import Move, Transfers, known_by_others


class Schedule(NamedTuple):
    """Assignments in dispatch order, the time in seconds when the last one ends, and the transfers made for them, in
    the order in which each transfer queue performs them."""

    assignments: list[Assignment]
    makespan: float
    moves: list[Move]

    def plan(self, problem: Problem, policy: str, **details: object) -> Plan:
        return Plan(
            assignments=tuple(self.assignments),
            policy=policy,
            devices=tuple(d.name for d in problem.machine.devices),
            makespan=self.makespan,
            details=dict(details),
        )


def list_schedule(
    problem: Problem,
    table: Costs,
    order: Sequence[int],
    candidates: Sequence[tuple[int, ...]],
    queues: Sequence[int],
) -> Schedule:
    """Place nodes one after another, each on the one of its candidate devices where it ends first.

    HEFT's processor selection (Topcuoglu, Hariri and Wu 2002, Section 5) without insertion, O(V P). Leaving
    the device of a predecessor must gain more than one handover beyond what it costs: predictions are not
    that exact, and a device that waits for another one stalls. ``order`` is topological; ``queues[d]``
    in-order queues of device d are used. What the problem fixes is kept. A kernel continues the queue of the
    predecessor that ends last if nothing else has continued it, else it goes to the queue that is free first.
    Host tasks (no candidates) take no time and run one after another. After kernels that are fixed in ranges, one
    queue of each device is used.
    """
    if any(a.dimension != WHOLE for a in problem.fixed):
        return _after_ranges(problem, table, order, candidates)
    floor, handover, seconds = problem.not_before, problem.handover, table.seconds
    predecessors = problem.graph.predecessors
    transfers = Transfers(problem) if table.moves else None
    limited = transfers if problem.contention.limited else None  # by the host's memory
    lanes = [_Lanes(problem, d, count, floor) for d, count in enumerate(queues)]
    count = len(predecessors)
    # ``heard``: when others than its own device know that a node has ended
    end, heard, where = [0.0] * count, [0.0] * count, [ON_HOST - 1] * count
    assignments = _take_fixed(problem, transfers, lanes, end, heard, where)
    fixed = {a.node for a in assignments}
    host_free = max([floor, *(a.end for a in assignments if a.device == ON_HOST)])
    moving: list[Move] = []
    chosen_moves: list[Move] = []
    for node in order:
        if node in fixed:
            continue
        before = predecessors[node]
        best = finish = float("inf")
        chosen, queue, begin = ON_HOST, 0, 0.0
        for d in candidates[node]:
            ready, extra = floor, 0.0
            for p in before:
                if where[p] == d:
                    e = end[p]
                else:
                    e = heard[p]
                    extra = handover
                if e > ready:
                    ready = e
            if transfers is not None:
                arrive, moving = transfers.need(node, d)
                if arrive > ready:
                    ready = arrive
            took = seconds[node][d]
            lane = lanes[d]
            if lane.single:
                q, start = 0, lane.free[0]
                if ready > start:
                    start = ready
            else:
                q, start = lane.fit(node, before, end, ready, took)
            ended = start + took
            if limited is not None:
                _, ended = limited.runs(node, d, start, took)
            if ended + extra < best:
                finish = ended
                best = finish + extra
                chosen, queue, begin, chosen_moves = d, q, start, moving
        if chosen == ON_HOST:
            ready = max([floor, *[heard[p] for p in before]])
            if transfers is not None:
                arrive, chosen_moves = transfers.need(node, ON_HOST)
                ready = max(ready, arrive)
            begin = finish = host_free = max(ready, host_free)
        elif lanes[chosen].single:
            lanes[chosen].free[0] = finish
        else:
            lanes[chosen].take(node, queue, begin, finish)
        end[node], heard[node] = finish, finish + handover
        where[node] = chosen
        version = 0 if chosen == ON_HOST else problem.version(node, chosen)
        assignments.append(Assignment(node, chosen, queue, begin, finish, version=version))
        if transfers is not None:
            alone = seconds[node][chosen] if limited is not None else 0.0
            transfers.commit(node, chosen, finish, finish + handover, chosen_moves, begin, alone)
    moves = transfers.moves if transfers is not None else []
    shared = problem.contention.limited or (moves and contended(problem) and meet(moves))
    if shared or any(not lane.single for lane in lanes):
        assignments, moves = timed(problem, seconds, assignments, moves)
    makespan = max([a.end for a in assignments], default=floor)
    return Schedule(assignments, makespan, moves)


def _after_ranges(
    problem: Problem, table: Costs, order: Sequence[int], candidates: Sequence[tuple[int, ...]]
) -> Schedule:
    """``list_schedule`` where parts of buffers are in several memories."""
    placement = Placement(problem, table.seconds)
    fixed = {a.node for a in problem.fixed}
    for node in order:
        if node not in fixed:
            fits = [placement.fit(node, d) for d in candidates[node] or (ON_HOST,)]
            best = min(fits, key=lambda f: f.end + (0.0 if placement.stays(f) else problem.handover))
            placement.complete(node, [placement.take(best)])
    assignments, moves = placement.finish()
    makespan = max([a.end for a in assignments], default=problem.not_before)
    return Schedule(list(assignments), makespan, list(moves))


def _take_fixed(
    problem: Problem,
    transfers: Transfers | None,
    lanes: Sequence[_Lanes],
    end: list[float],
    heard: list[float],
    where: list[int],
) -> list[Assignment]:
    """What the problem fixes, in the order of dispatch, entered into the schedule as it is."""
    problem.check_fixed()
    for a in sorted(problem.fixed):
        end[a.node], where[a.node] = a.end, a.device
        heard[a.node] = known_by_others(problem, a.end, fixed=True)
        if a.device != ON_HOST:
            lanes[a.device].occupy(a)
        if transfers is not None:
            transfers.commit(a.node, a.device, a.end, heard[a.node], [])
    return sorted(problem.fixed, key=lambda a: (a.start, a.end, a.node))


class _Lanes:
    """The queues of one device: from when on each is free, what each held last, and the work given to the
    device."""

    def __init__(self, problem: Problem, device: int, count: int, floor: float) -> None:
        self.single = count <= 1
        self.free = [floor] * max(1, count)
        self._tail = [-1] * max(1, count)
        self._queue_of: dict[int, int] = {}
        self._work = floor  # when the device could have done all work given to it
        self._nodes = problem.graph.nodes
        self._device = problem.machine.devices[device]
        self._shares: dict[tuple[tuple[int, ...], tuple[int, ...] | None], float] = {}

    def fit(self, node: int, before: tuple[int, ...], end: list[float], ready: float, took: float) -> tuple[int, float]:
        """The queue for a node that is ready at ``ready``, and when it can start there."""
        queue, latest = -1, -1.0
        for p in before:
            q = self._queue_of.get(p)
            if q is not None and end[p] > latest:
                latest = end[p]
                queue = q if self._tail[q] == p else -1
        free = self.free
        if queue < 0:
            queue = free.index(min(free))
        start = max(ready, free[queue])
        return queue, max(start, max(self._work, start) + took * self._share(node) - took)

    def occupy(self, fixed: Assignment) -> None:
        """Nothing new starts on the device before something fixed has ended, in whatever queue."""
        self.free = [max(free, fixed.end) for free in self.free]

    def take(self, node: int, queue: int, start: float, end: float) -> None:
        self.free[queue] = end
        self._tail[queue] = node
        self._queue_of[node] = queue
        self._work = max(self._work, start) + (end - start) * self._share(node)

    def _share(self, node: int) -> float:
        launch = self._nodes[node]
        assert isinstance(launch, Launch)
        key = (launch.global_size, launch.local_size)
        known = self._shares.get(key)
        if known is None:
            known = self._shares[key] = share(launch, self._device)
        return known
