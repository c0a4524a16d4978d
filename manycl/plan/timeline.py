"""List scheduling on a predicted timeline: queues, throughput, transfers. What ``in_order`` and ``auto``
share.

The model, which the simulator shares (``run/backends/sim.py``):

- a queue runs one kernel at a time, in order;
- kernels in different queues of a device run together as far as its throughput goes (``model/occupancy.py``):
  a kernel with share f and t seconds adds f*t seconds of full-device work, and no kernel ends before all work
  given to the device up to then could have been done;
- data that are not valid where they are needed go through the host, on one upload and one download queue a
  device;
- what another device (or a host function) must finish first is known ``handover`` seconds after it has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from manycl.errors import PolicyError
from manycl.graph.graph import Launch
from manycl.machine import HOST
from manycl.model.occupancy import share
from manycl.plan.costs import Costs
from manycl.plan.plan import ON_HOST, WHOLE, Assignment
from manycl.plan.problem import Problem
from manycl.trace import TransferEvent


class Move(NamedTuple):
    """A predicted copy of buffer ``key`` between memories, on the transfer queue of device ``lane``;
    seconds."""

    key: int
    source: int
    target: int
    lane: int
    start: float
    end: float


_NO_MOVES: list[Move] = []


class Transfers:
    """Where each buffer is valid from when on, and when each device's transfer queues are free."""

    def __init__(self, problem: Problem) -> None:
        machine, graph = problem.machine, problem.graph
        self._problem = problem
        self._nodes = graph.nodes
        self._floor = problem.not_before
        self._memory = [d.memory for d in machine.devices]
        self._owner = {d.memory: i for i, d in enumerate(machine.devices) if d.memory != HOST}
        self._size = {key: buffer.nbytes for key, buffer in graph.buffers.items()}
        self._touched: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, ...]] = {}
        self._at = {key: dict.fromkeys(places, self._floor) for key, places in problem.valid.items() if places}
        self._sendable = dict.fromkeys(self._at, self._floor)  # from when on the host's copy may be uploaded
        self._up = [self._floor] * len(self._memory)
        self._down = [self._floor] * len(self._memory)
        self.moves: list[Move] = []

    def need(self, node: int, device: int) -> tuple[float, list[Move]]:
        """When all buffers the node touches can be valid for a device (``ON_HOST``: the host), and the copies
        to make.

        Buffers that are only written count too: a kernel may leave parts of them as they were.
        """
        task = self._nodes[node]
        pair = (task.reads, task.writes)
        keys = self._touched.get(pair)
        if keys is None:
            keys = self._touched[pair] = tuple(dict.fromkeys((*task.reads, *task.writes)))
        memory = HOST if device == ON_HOST else self._memory[device]
        arrive = self._floor
        missing: list[int] = []
        for key in keys:
            places = self._at.get(key)
            if places is None:
                continue  # undefined contents need no copy
            here = places.get(memory)
            if here is None:
                missing.append(key)
            elif here > arrive:
                arrive = here
        return self._bring(missing, memory, device, arrive) if missing else (arrive, _NO_MOVES)

    def _bring(self, missing: list[int], memory: int, device: int, arrive: float) -> tuple[float, list[Move]]:
        moves: list[Move] = []
        downs: dict[int, float] = {}
        up = self._up[device] if memory != HOST else 0.0
        for key in missing:
            places = self._at[key]
            here = sendable = self._sendable.get(key, 0.0)
            if HOST not in places:
                move = self._download(key, min(places), downs)
                moves.append(move)
                here = sendable = move.end + self._problem.handover
            if memory != HOST:
                start = max(sendable, up)
                here = up = start + self._problem.estimates.transfer(self._size[key], HOST, memory)
                moves.append(Move(key, HOST, memory, device, start, here))
            arrive = max(arrive, here)
        return arrive, moves

    def _download(self, key: int, source: int, downs: dict[int, float]) -> Move:
        owner = self._owner[source]
        start = max(self._at[key][source] + self._problem.handover, downs.get(owner, self._down[owner]))
        downs[owner] = start + self._problem.estimates.transfer(self._size[key], source, HOST)
        return Move(key, source, HOST, owner, start, downs[owner])

    def commit(self, node: int, device: int, end: float, moves: list[Move]) -> None:
        """The node runs there and ends then."""
        if moves:
            self._copy(moves)
        memory = HOST if device == ON_HOST else self._memory[device]
        at = self._at
        for key in self._nodes[node].writes:
            at[key] = {memory: end}
            if memory == HOST:
                self._sendable[key] = end + self._problem.handover

    def _copy(self, moves: list[Move]) -> None:
        for move in moves:
            key, _, target, lane, _, arrived = move
            if target == HOST:
                self._down[lane] = arrived
                self._at[key][HOST] = self._sendable[key] = arrived + self._problem.handover
            else:
                self._up[lane] = arrived
                self._at[key][target] = arrived
        self.moves.extend(moves)

    def events(self) -> tuple[TransferEvent, ...]:
        machine, buffers = self._problem.machine, self._problem.graph.buffers
        return tuple(
            TransferEvent(
                m.key,
                buffers[m.key].name or f"buffer {m.key}",
                machine.memory_name(m.source),
                machine.memory_name(m.target),
                self._size[m.key],
                m.start,
                m.end,
            )
            for m in self.moves
        )


class Schedule(NamedTuple):
    """Assignments in dispatch order, the time in seconds when the last one ends, and the transfers made for
    them."""

    assignments: list[Assignment]
    makespan: float
    transfers: tuple[TransferEvent, ...]


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
    Host tasks (no candidates) take no time and run one after another.
    """
    floor, handover, seconds = problem.not_before, problem.handover, table.seconds
    predecessors = problem.graph.predecessors
    transfers = Transfers(problem) if table.moves else None
    lanes = [_Lanes(problem, d, count, floor) for d, count in enumerate(queues)]
    count = len(predecessors)
    end, where = [0.0] * count, [ON_HOST - 1] * count
    assignments = _take_fixed(problem, transfers, lanes, end, where)
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
                e = end[p]
                if where[p] != d:
                    e += handover
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
            if start + took + extra < best:
                finish = start + took
                best = finish + extra
                chosen, queue, begin, chosen_moves = d, q, start, moving
        if chosen == ON_HOST:
            ready = max((end[p] + handover for p in before), default=floor)
            if transfers is not None:
                arrive, chosen_moves = transfers.need(node, ON_HOST)
                ready = max(ready, arrive)
            begin = finish = host_free = max(ready, host_free)
        elif lanes[chosen].single:
            lanes[chosen].free[0] = finish
        else:
            lanes[chosen].take(node, queue, begin, finish)
        end[node] = finish
        where[node] = chosen
        assignments.append(Assignment(node, chosen, queue, begin, finish))
        if transfers is not None:
            transfers.commit(node, chosen, finish, chosen_moves)
    makespan = max(end, default=floor)
    return Schedule(assignments, makespan, transfers.events() if transfers is not None else ())


def _take_fixed(
    problem: Problem, transfers: Transfers | None, lanes: Sequence[_Lanes], end: list[float], where: list[int]
) -> list[Assignment]:
    """What the problem fixes, in the order of dispatch, entered into the schedule as it is."""
    if any(a.dimension != WHOLE for a in problem.fixed):
        raise PolicyError(
            "a launch is fixed in ranges of work-groups", hint="mkmd_coarse, mkmd and balance can go on from there"
        )
    for a in sorted(problem.fixed):
        end[a.node], where[a.node] = a.end, a.device
        if a.device != ON_HOST:
            lanes[a.device].occupy(a)
        if transfers is not None:
            transfers.commit(a.node, a.device, a.end, [])
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
