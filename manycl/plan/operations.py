"""What has been placed in a partial schedule, kernels and transfers: operations, numbered, each with what it waits for,
in the queues of devices. They can be taken back, last ones first."""

from __future__ import annotations

from collections.abc import Sequence

from manycl.machine import HOST
from manycl.plan.available import Available
from manycl.plan.plan import MERGE, ON_HOST, WHOLE, Assignment
from manycl.plan.problem import Problem
from manycl.plan.segments import INITIAL
from manycl.plan.slots import Slots
from manycl.plan.timing import contended, timed
from manycl.plan.transfers import Move


class Operations:
    """Operations in the order of placement. ``what[op]`` and its ``end``; ``kernels[d]``: when device d is busy (last:
    the host). ``of[n]``: the operations after which node n is complete; the parts of a node that lie in one memory
    are *together*: its last one stands for all."""

    def __init__(self, problem: Problem, rows: Sequence[Sequence[float]]) -> None:
        """``rows[n][d]``: seconds of node n as a whole on device d."""
        self.problem = problem
        self.rows = rows
        self.floor = problem.not_before
        self._handover = problem.handover
        self._transfer = problem.estimates.transfer
        count = len(problem.machine.devices)
        self.kernels = [Slots() for _ in range(count + 1)]
        self._up = [Slots() for _ in range(count)]
        self._down = [Slots() for _ in range(count)]
        self.what: list[Assignment | Move] = []
        self.end: list[float] = []
        self._device: list[int] = []
        self._waits: list[tuple[int, ...]] = []
        self.of: list[tuple[int, ...]] = [() for _ in problem.graph.nodes]
        self._together: dict[int, tuple[int, ...]] = {}
        self._merged: dict[int, int] = {}  # node -> from how many other memories
        self._fixed = len(problem.fixed)
        limited = problem.contention.limited
        self._host = Available(problem.machine.host_bandwidth) if limited else None

    # when

    def makers(self, op: int) -> tuple[int, ...]:
        """The operations that must have ended for what ``op`` has made to be there: those of all devices of its memory
        that ran parts of a node."""
        return () if op == INITIAL else self._together.get(op, (op,))

    def known(self, op: int, device: int) -> float:
        """When a device knows that what ``op`` has made is there."""
        at = self.floor
        for w in self.makers(op):
            at = max(at, self.end[w] if self._device[w] == device != ON_HOST else self._heard(w))
        return at

    def _heard(self, op: int) -> float:
        """When others than its own device know that an operation has ended."""
        end = self.end[op]
        # what was fixed and had ended when planning began is known to everybody
        return end if op < self._fixed and end <= self.floor else end + self._handover

    @property
    def makespan(self) -> float:
        """When the last operation placed ends; :meth:`finish` may end earlier, never later."""
        return max(self.end, default=self.floor)

    # placing

    def _slots(self, what: Assignment | Move) -> Slots:
        if isinstance(what, Assignment):
            return self.kernels[what.device]
        return self._down[what.device] if what.target == HOST else self._up[what.device]

    def room(self, slots: Slots, ready: float, what: Assignment | Move, seconds: float) -> tuple[float, float]:
        """The start and the end of the earliest room for something that takes so long alone."""
        if self._host is None:
            start = slots.first(ready, seconds)
            return start, start + seconds
        return self._host.first(slots, ready, seconds, self._draws(what, seconds))

    def _draws(self, what: Assignment | Move, seconds: float) -> float:
        if isinstance(what, Move):
            return self.problem.contention.use(None, what.nbytes, seconds).draws
        return self.problem.draws(what, seconds)

    @property
    def busy(self) -> float:
        """The part of what the host's memory carries that is drawn of it until the last operation ends."""
        if self._host is None:
            return 0.0
        carries = self.problem.machine.host_bandwidth * (self.makespan - self.floor)
        placed = ((what, self._seconds(what)) for what in self.what[self._fixed :])
        drawn = sum(self._draws(what, seconds) * seconds for what, seconds in placed)
        return drawn / carries if carries > 0.0 else 0.0

    def _add(self, what: Assignment | Move, waits: Sequence[int]) -> int:
        self._slots(what).take(what.start, what.end)
        if self._host is not None:
            self._host.take(what.start, what.end, self._draws(what, self._seconds(what)))
        return self._note(what, waits)

    def _note(self, what: Assignment | Move, waits: Sequence[int]) -> int:
        op = len(self.what)
        self.what.append(what)
        self.end.append(what.end)
        self._device.append(what.device)
        self._waits.append(tuple(waits))
        return op

    def _take_back(self, count: int) -> None:
        """Keep the first ``count`` operations."""
        if self._host is not None:
            self._host.back(count - self._fixed)
        for op in range(len(self.what) - 1, count - 1, -1):
            what = self.what[op]
            self._slots(what).free(what.start, what.end)
            if isinstance(what, Assignment):
                self.of[what.node] = ()
            self._together.pop(op, None)
        del self.what[count:], self.end[count:], self._device[count:], self._waits[count:]

    # the result

    def finish(self) -> tuple[tuple[Assignment, ...], tuple[Move, ...]]:
        """Everything that was placed, in the order of dispatch, each as early as its order and what it waits for
        allow (gaps that were left by what was taken back are closed); later than it was placed only where what goes
        on at the same time slows each other down."""
        order = sorted(range(len(self.what)), key=lambda op: (self.what[op].start, self.end[op], op))
        ends = [0.0] * len(order)
        free: dict[tuple[int, int], float] = {}
        assignments: list[tuple[Assignment, int]] = []
        moves: list[tuple[Move, int]] = []
        for op in order:
            what, device = self.what[op], self._device[op]
            lane = (device, 0 if isinstance(what, Assignment) else 1 if what.target == HOST else 2)
            if op < self._fixed:
                start, end = what.start, max(what.end, free.get(lane, what.end))
            else:
                start = max(self.floor, free.get(lane, self.floor))
                for w in self._waits[op]:
                    own = self._device[w] == device != ON_HOST
                    past = w < self._fixed and ends[w] <= self.floor
                    known = ends[w] if own or past else ends[w] + self._handover
                    if known > start:
                        start = known
                end = start + self._seconds(what)
            free[lane] = end
            ends[op] = end = what.end if op < self._fixed else end
            if isinstance(what, Assignment):
                assignments.append((what._replace(start=start, end=end), op))
            else:
                moves.append((what._replace(start=start, end=end), op))
        assignments.sort(key=_times)
        if contended(self.problem):
            return self._slowed(assignments, moves)
        return tuple([a for a, _ in assignments]), tuple([m for m, _ in moves])

    def _slowed(
        self, assignments: list[tuple[Assignment, int]], moves: list[tuple[Move, int]]
    ) -> tuple[tuple[Assignment, ...], tuple[Move, ...]]:
        """The same, in the same orders, at the times at which it happens where things slow each other down."""
        ops = [op for _, op in (*assignments, *moves)]
        index = {op: i for i, op in enumerate(ops)}
        found, moved = timed(
            self.problem,
            self.rows,
            [a for a, _ in assignments],
            [m for m, _ in moves],
            [[index[w] for w in self._waits[op]] for op in ops],
            [self._seconds(a) if op >= self._fixed else a.end - a.start for a, op in assignments],
        )
        return tuple(found), tuple(moved)

    def _seconds(self, what: Assignment | Move) -> float:
        if isinstance(what, Move):
            return self._transfer(what.nbytes, what.source, what.target)
        if what.device == ON_HOST:
            return 0.0
        if what.dimension == MERGE:
            return self.problem.merge_seconds(what.node, what.device, self._merged[what.node])
        if what.dimension == WHOLE:
            return self.rows[what.node][what.device]
        return self.problem.range_seconds(what.node, what.device, what.groups)


def _times(placed: tuple[Assignment, int]) -> tuple[float, float]:
    return placed[0].start, placed[0].end
