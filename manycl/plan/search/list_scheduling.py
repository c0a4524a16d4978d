"""List scheduling on a predicted timeline of queues, throughput and transfers. ``in_order`` and ``auto`` share it.

The simulator has the same model (``run/simulation/simulator.py``):

- a queue runs one kernel at a time, in order;
- kernels in different queues of a device run together as far as its throughput goes (``model/occupancy.py``):
  while nodes are placed, a kernel with share f and t seconds adds f*t seconds of full-device work, and no kernel ends
  before all work given to the device up to then could have been done; the finished schedule is timed exactly
  (``plan/timeline/timing.py``);
- kernels and transfers that need more of the host's memory than it carries get a share of it
  (``plan/timeline/operations.py``, ``plan/timeline/timing.py``);
- data that are not valid where they are needed go through the host, on one upload and one download queue a
  device (``plan/timeline/timeline.py``);
- the end of a node on another device (or of a host function) is known ``handover`` seconds later;
- the host's thread enqueues one command after another, and takes its time for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from manycl.graph.graph import Launch
from manycl.machine import DeviceIndex
from manycl.model.occupancy import share
from manycl.plan.plan import ON_HOST, ROUNDING, WHOLE, Assignment
from manycl.plan.problem import Problem
from manycl.plan.search.costs import Costs
from manycl.plan.timeline.timeline import Fit, PendingMove, Schedule, Timeline
from manycl.plan.timeline.timing import contended


def list_schedule(
    problem: Problem,
    table: Costs,
    order: Sequence[int],
    candidates: Sequence[tuple[DeviceIndex, ...]],
    queues: Sequence[int],
    limit: float = inf,
) -> Schedule:
    """Return a schedule in which nodes are placed one after another, each on the candidate device where it ends first.

    HEFT's processor selection (Topcuoglu, Hariri and Wu 2002, Section 5) without insertion, O(V P). Leaving the device
    of a predecessor must gain more than one handover beyond what it costs: predictions are not that exact, and a device
    that waits for another one stalls. ``order`` is topological; ``queues[d]`` in-order queues of device d are used.
    Fixed assignments are kept. A kernel continues the queue of the predecessor that ends last if no other node has
    continued it, else it goes to the queue that is free first. Host tasks (no candidates) take no time and run one
    after another. A schedule that ends after ``limit`` is given up as soon as that is certain: it then has no
    assignments, and its end is infinite.
    """
    found = _Growing(problem, table, queues)
    limit = inf if found.earlier else limit * (1.0 + ROUNDING)
    for node in order:
        if node not in found.fixed and found.place(node, candidates[node]) > limit:
            return Schedule([], inf)
    return found.schedule()


class _Growing:
    """A schedule that grows node by node. ``end[n]``: when node n has ended; ``heard[n]``: when other devices than its
    own know that."""

    def __init__(self, problem: Problem, table: Costs, queues: Sequence[int]) -> None:
        self._problem = problem
        self._seconds, self._version = table.seconds, problem.estimates.version
        self._floor, self._handover = problem.not_before, problem.handover
        self._before = problem.graph.predecessors
        self._moving, self._limited = table.moves, problem.contention.limited
        self._needs = problem.whole_needs if self._moving else ()
        self._lanes = [_Lanes(problem, d, count) for d, count in zip(problem.machine.indices, queues, strict=True)]
        self._several = any(not lane.single for lane in self._lanes)
        self.earlier = self._several or self._limited  # whether a node may end earlier than it is placed
        # where nothing moves, and nothing is slowed down, all times are final
        self._exact = not (self._several or contended(problem))
        plain = self._exact and not self._moving and not problem.fixed
        self._timeline = None if plain else Timeline(problem, table.seconds)
        self._assignments: list[Assignment] = []
        count = len(self._before)
        self.end, self.heard = [0.0] * count, [0.0] * count
        self._where: list[DeviceIndex | None] = [None] * count  # None: on several devices, or not placed yet
        self._host_free = self._given = self._floor
        self._enqueues = problem.enqueuing
        self.fixed = {a.node for a in problem.fixed}
        if self._timeline is not None:
            self._keep(self._timeline)

    def _keep(self, timeline: Timeline) -> None:
        """Take over the fixed nodes from the timeline."""
        for n in self.fixed:
            ops = timeline.of[n]
            self.end[n] = max(timeline.end[op] for op in ops)
            self.heard[n] = max(timeline.heard[op] for op in ops)
            on = {timeline.device[op] for op in ops}
            self._where[n] = on.pop() if len(on) == 1 else None
        on_host = [a.end for a in self._problem.fixed if a.device == ON_HOST]
        self._host_free = max([self._floor, *on_host])

    def place(self, node: int, candidates: Sequence[DeviceIndex]) -> float:
        """Place a node on the device where it ends first; on the host without any. Return when it ends."""
        end, heard, where, timeline = self.end, self.heard, self._where, self._timeline
        before, seconds = self._before[node], self._seconds[node]
        best = finish = float("inf")
        chosen, queue, begin, spent = ON_HOST, 0, 0.0, self._given
        hops: list[PendingMove] = []
        after: list[int] = []
        for bound, d, ready, extra in self._choices(node, candidates):
            if bound > best and not self._limited:
                break  # it would end later there and on all others, wherever the data are
            took, lane = seconds[d], self._lanes[d]
            new_hops, new_after = hops, after
            if timeline is not None and self._moving:
                new_hops, new_after = [], []
                arrive = timeline.arrival(self._needs[node], d, new_hops, new_after)
                if arrive > ready:
                    ready = arrive
            given = (new_hops[-1].given if new_hops else self._given) + self._enqueues[d][0]
            if given > ready:
                ready = given
            if lane.single:
                q, start = 0, lane.free[0]
                if ready > start:
                    start = ready
            else:
                q, start = lane.fit(node, before, end, ready, took)
            ended = start + took
            if self._limited and timeline is not None:
                ended = timeline.until(node, d, start, took)
            value = ended + extra
            if value < best or (value == best and d < chosen):
                best, finish = value, ended
                chosen, queue, begin, hops, after = d, q, start, new_hops, new_after
                spent = given
        if chosen == ON_HOST:
            ready = max([self._host_free, *[heard[p] for p in before]])
            if timeline is not None and self._moving:
                ready = max(ready, timeline.arrival(self._needs[node], ON_HOST, hops, after))
            spent = hops[-1].given if hops else spent
            begin = finish = self._host_free = max(ready, spent)
        elif self._lanes[chosen].single:
            self._lanes[chosen].free[0] = finish
        else:
            self._lanes[chosen].take(node, queue, begin, finish)
        self._given = spent
        end[node], heard[node], where[node] = finish, finish + self._handover, chosen
        if timeline is not None:
            timeline.place(Fit(node, chosen, 0, 0, begin, finish, hops, after), queue)
        else:
            version = 0 if chosen == ON_HOST else self._version(node, chosen)
            self._assignments.append(Assignment(node, chosen, queue, begin, finish, WHOLE, 0, 0, version))
        return finish

    def _choices(self, node: int, candidates: Sequence[DeviceIndex]) -> list[tuple[float, DeviceIndex, float, float]]:
        """Return, for each device, a lower bound of the node's end, the device, when its predecessors are known there
        to have ended, and what leaving one of them must gain, after which its results are on the host; the least
        bound first."""
        end, heard, where, handover = self.end, self.heard, self._where, self._handover
        before, seconds, lanes = self._before[node], self._seconds[node], self._lanes
        out: list[tuple[float, DeviceIndex, float, float]] = []
        is_result = node in self._problem.results
        for d in candidates:
            ready, extra = self._floor, self._problem.home_seconds(node, d) if is_result else 0.0
            leaves = extra + handover
            for p in before:
                if where[p] == d:
                    known = end[p]
                else:
                    known = heard[p]
                    extra = leaves
                if known > ready:
                    ready = known
            lane = lanes[d]
            start = lane.free[0] if lane.single and lane.free[0] > ready else ready
            out.append((start + seconds[d] + extra, d, ready, extra))
        if len(out) > 1:
            out.sort()
        return out

    def schedule(self) -> Schedule:
        found = self._assignments
        if self._timeline is not None:
            if self._exact:
                found = self._timeline.assignments()
            elif self._several:
                found = self._timeline.finish()
            else:
                return self._timeline.schedule()
        return Schedule(found, max([a.end for a in found], default=self._floor))


class _Lanes:
    """The queues of one device: when each is free, its last node, and the work given to the device."""

    def __init__(self, problem: Problem, device: DeviceIndex, count: int) -> None:
        self.single = count <= 1
        # no new kernel starts on the device before the end of the fixed ones, in whatever queue
        free = max([problem.not_before, *(a.end for a in problem.fixed if a.device == device)])
        self.free = [free] * max(1, count)
        self._tail: list[int | None] = [None] * max(1, count)
        self._queue_of: dict[int, int] = {}
        self._work = problem.not_before  # when the device could have done all work given to it
        self._nodes = problem.graph.nodes
        self._device = problem.machine.devices[device]
        self._shares: dict[tuple[tuple[int, ...], tuple[int, ...] | None], float] = {}

    def fit(
        self, node: int, before: Sequence[int], end: Sequence[float], ready: float, took: float
    ) -> tuple[int, float]:
        """Return the queue for a node that is ready at ``ready``, and when it can start there."""
        queue: int | None = None
        latest = -1.0
        for p in before:
            q = self._queue_of.get(p)
            if q is not None and end[p] > latest:
                latest = end[p]
                queue = q if self._tail[q] == p else None
        free = self.free
        if queue is None:
            queue = free.index(min(free))
        start = max(ready, free[queue])
        return queue, max(start, max(self._work, start) + took * self._share(node) - took)

    def take(self, node: int, queue: int, start: float, end: float) -> None:
        self.free[queue] = end
        self._tail[queue] = node
        self._queue_of[node] = queue
        self._work = max(self._work, start) + (end - start) * self._share(node)

    def _share(self, node: int) -> float:
        launch = self._nodes[node]
        if not isinstance(launch, Launch):
            return 0.0  # a copy occupies no compute units
        key = (launch.global_size, launch.local_size)
        known = self._shares.get(key)
        if known is None:
            known = self._shares[key] = share(launch, self._device)
        return known
