"""Operations: the kernels and transfers placed in a partial schedule, numbered, each with its predecessors, in the
queues of devices, and the busy intervals of these. They can be taken back, last ones first."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from manycl.machine import HOST, DeviceIndex
from manycl.model.estimates import Ends
from manycl.plan.plan import MERGE, ON_HOST, WHOLE, Assignment
from manycl.plan.problem import Problem
from manycl.plan.timeline.timing import contended, timed
from manycl.plan.timeline.writer_intervals import INITIAL, Move
from manycl.utilities.kept import FEW


class BusyIntervals:
    """Busy intervals: disjoint, in seconds, sorted; one of no length may lie where others meet. From number ``_solid``
    on, each begins where the one before it ends: none of the searches looks for room there."""

    __slots__ = ("_solid", "ends", "starts")

    def __init__(self) -> None:
        self.starts: list[float] = []
        self.ends: list[float] = []
        self._solid = -1

    def first(self, ready: float, seconds: float) -> float:
        """Return the earliest start from ``ready`` on with room for ``seconds`` (AvailEST of MKMD, Section 5.2)."""
        starts, ends = self.starts, self.ends
        if not ends or ends[-1] <= ready:
            return ready
        last = self._solid if seconds > 0.0 else len(starts) - 1  # what takes no time has room where two meet
        if starts[last] < ready:
            return ends[-1]
        start = ready
        for i in range(bisect_right(ends, ready), last + 1):
            if start + seconds <= starts[i]:
                return start
            start = ends[i]
        return ends[-1]

    def clear(self) -> None:
        """Give back all intervals."""
        self.starts.clear()
        self.ends.clear()
        self._solid = -1

    def take(self, start: float, end: float) -> None:
        """Occupy an interval that is free."""
        ends = self.ends
        last = ends[-1] if ends else -math.inf
        if last <= start:
            if last < start:
                self._solid = len(ends)
            self.starts.append(start)
            ends.append(end)
            return
        i = self._place(start, end)
        self.starts.insert(i, start)
        ends.insert(i, end)
        if i <= self._solid:
            self._solid += 1

    def free(self, start: float, end: float) -> None:
        """Give back an interval that was taken."""
        starts, ends = self.starts, self.ends
        i = len(ends) - 1 if ends[-1] == end and starts[-1] == start else self._place(start, end)
        assert starts[i] == start, "only what was taken can be given back"
        assert ends[i] == end, "only what was taken can be given back"
        del starts[i], ends[i]
        if i < len(starts):
            self._solid = max(i, self._solid - 1)
        elif self._solid == i:
            self._solid -= 1

    def _place(self, start: float, end: float) -> int:
        i = bisect_left(self.ends, end)
        while i < len(self.starts) and (self.starts[i], self.ends[i]) < (start, end):
            i += 1
        return i

    def idle(self, low: float, high: float) -> list[tuple[float, float]]:
        """Return the free intervals of some length between two times."""
        starts, ends = self.starts, self.ends
        out: list[tuple[float, float]] = []
        for i in range(bisect_right(ends, low), self._solid + 1):
            if starts[i] >= high:
                break
            if starts[i] > low:
                out.append((low, starts[i]))
            low = ends[i]
        else:
            low = max([low, *ends[-1:]])
        if low < high:
            out.append((low, high))
        return out


class Bandwidth:
    """The bandwidth that a partial schedule leaves of the host's memory over time: MKMD's AvailBW (Sec. 5.2, Eq. 6).
    Bytes per second, from each of a growing list of times on; the last reservations can be taken back. What was placed
    first keeps its bandwidth; what is placed later gets the rest, and so may take longer, or wait. Once everything is
    placed, simultaneous operations get their fair shares (``plan/timeline/timing.py``)."""

    def __init__(self, bandwidth: float) -> None:
        self._times = [-math.inf]
        self._left = [bandwidth]
        self._before: list[tuple[int, int, list[float], list[float]]] = []  # replaced entries, by reservation

    def end(self, start: float, seconds: float, draws: float) -> float:
        """Return when an operation ends that begins at ``start``, takes ``seconds`` alone and draws ``draws``."""
        if not draws or seconds <= 0.0:
            return start + seconds
        times, left = self._times, self._left
        i, at, work = bisect_right(times, start) - 1, start, seconds
        while True:
            until = times[i + 1] if i + 1 < len(times) else math.inf
            pace = min(1.0, left[i] / draws)
            if until == math.inf or (pace > 0.0 and at + work / pace <= until):
                return at + work / pace
            work, at, i = work - (until - at) * pace, until, i + 1

    def first(self, slots: BusyIntervals, ready: float, seconds: float, draws: float) -> tuple[float, float]:
        """Return start and end of the earliest interval from ``ready`` on, in the free time of a device or queue, with
        room for an operation that takes ``seconds`` alone."""
        start = slots.first(ready, seconds)
        while True:
            end = self.end(start, seconds, draws)
            again = start if end == start + seconds else slots.first(start, end - start)
            if again == start:
                return start, end
            start = again

    def take(self, start: float, end: float, draws: float) -> None:
        """Reserve what an operation gets of ``draws`` between two times."""
        if not draws or end <= start:
            self._before.append((0, 0, [], []))
            return
        low = bisect_right(self._times, start) - 1
        high = bisect_left(self._times, end, low)
        times, left = self._times[low:high], self._left[low:high]
        fresh: list[tuple[float, float]] = []
        for i, (at, amount) in enumerate(zip(times, left, strict=True)):
            until = times[i + 1] if i + 1 < len(times) else end
            if at < start:
                fresh.append((at, amount))
            if until > start:
                fresh.append((max(at, start), max(0.0, amount - draws)))
        if high == len(self._times) or self._times[high] > end:
            fresh.append((end, left[-1]))
        self._before.append((low, low + len(fresh), times, left))
        self._times[low:high] = [t for t, _ in fresh]
        self._left[low:high] = [amount for _, amount in fresh]

    def back(self, count: int) -> None:
        """Keep the first ``count`` reservations."""
        while len(self._before) > count:
            low, high, times, left = self._before.pop()
            self._times[low:high] = times
            self._left[low:high] = left


class Ended(NamedTuple):
    """The ends of a node's parts: when others know of the last one, and of the last one on another device than its
    ``device``; ``own``: the last one of each device."""

    heard: float
    device: DeviceIndex
    others: float
    own: dict[DeviceIndex, float]

    @classmethod
    def of(
        cls, ops: Sequence[int], devices: Sequence[DeviceIndex], ends: Sequence[float], heard: Sequence[float]
    ) -> Ended:
        """Return the ends of operations."""
        own: dict[DeviceIndex, float] = {}
        for op in ops:
            own[devices[op]] = max(ends[op], own.get(devices[op], -math.inf))
        last = max(ops, key=heard.__getitem__)
        others = max([heard[op] for op in ops if devices[op] != devices[last]], default=-math.inf)
        return cls(heard[last], devices[last], others, own)

    def known(self, device: DeviceIndex) -> float:
        """Return when a device knows that all have ended."""
        if device == ON_HOST:
            return self.heard
        return max(self.others if device == self.device else self.heard, self.own.get(device, -math.inf))


Made = tuple[float, float, DeviceIndex | None, int]
"""When results are known to be there: for the device (third; None: there is none) of the operation (last) that made
them, and for all others."""


class Operations:
    """Operations in the order of placement. ``what[op]`` is a kernel or move, ``end[op]`` its end; ``kernels[d]``: when
    device d is busy (last: the host). ``of[n]``: the operations after which node n is complete. The parts of a node
    that lie in one memory are *together*: its last one stands for all."""

    # (objects of more than 30 attributes are slow to read without)
    __slots__ = (
        "_contended", "_enqueues", "_fixed", "_given", "_handover", "_host", "_initial", "_merged", "_queues",
        "_several", "_slots", "_together", "_transfer", "_waits", "changes", "device", "end", "floor", "heard",
        "kernels", "of", "problem", "rows", "what",
    )  # fmt: skip

    def __init__(self, problem: Problem, rows: Sequence[Sequence[float]]) -> None:
        """Begin without operations. ``rows[n][d]``: seconds of node n as a whole on device d."""
        self.problem = problem
        self.rows = rows
        self.floor = problem.not_before
        self._initial: Made = (self.floor, self.floor, None, INITIAL)
        self._handover = problem.handover
        self._transfer = problem.estimates.transfer
        count = len(problem.machine.devices)
        self.kernels = [BusyIntervals() for _ in range(count + 1)]
        self._several = problem.machine.memories > 1
        self._queues: list[BusyIntervals] = []  # of transfers, by :meth:`Routes.queue`
        self.what: list[Assignment | Move] = []
        self.end: list[float] = []
        self.heard: list[float] = []  # when other devices than its own know that an operation has ended
        self.device: list[DeviceIndex] = []
        self._waits: list[Sequence[int]] = []
        self._slots: list[BusyIntervals | None] = []
        self.of: list[tuple[int, ...]] = [() for _ in problem.graph.nodes]
        self._together: dict[int, tuple[int, ...]] = {}
        self.changes = 0  # how often operations were added or taken back
        self._merged: dict[int, int] = {}  # by node: the number of other memories that it is merged from
        self._fixed = len(problem.fixed)
        self._enqueues = problem.enqueuing
        self._given = [self.floor]  # when the host's thread has enqueued so many operations
        limited = problem.contention.limited
        self._host = Bandwidth(problem.machine.host_bandwidth) if limited else None
        self._contended = contended(problem)

    # times

    def makers(self, op: int) -> tuple[int, ...]:
        """Return what must have ended for the results of ``op`` to be there: all parts of its node in its memory."""
        return () if op == INITIAL else self._together.get(op, (op,))

    def made(self, op: int) -> Made:
        """Return when the results of an operation are known to be there."""
        if op == INITIAL:
            return self._initial
        end, heard, device = self.end[op], self.heard[op], self.device[op]
        if op in self._together:  # it ends last
            end = max([end, *[self.heard[w] for w in self._together[op] if self.device[w] != device]])
        return end, heard, device, op

    @property
    def makespan(self) -> float:
        """The end of the last operation placed; :meth:`finish` may end earlier, never later."""
        return max(self.end, default=self.floor)

    # placing

    def room(self, slots: BusyIntervals, ready: float, what: Assignment | Move, seconds: float) -> tuple[float, float]:
        """Return start and end of the earliest room for an operation that takes ``seconds`` alone."""
        if self._host is None:
            start = slots.first(ready, seconds)
            return start, start + seconds
        return self._host.first(slots, ready, seconds, self._draws(what, seconds))

    def until(self, node: int, device: DeviceIndex, start: float, seconds: float) -> float:
        """Return when a whole kernel ends that begins at ``start`` and takes ``seconds`` alone."""
        if self._host is None:
            return start + seconds
        return self._host.end(start, seconds, self._draws(Assignment(node, device, 0, 0.0, 0.0), seconds))

    def sent(self, slots: BusyIntervals, ready: float, nbytes: int, ends: Ends) -> tuple[float, float]:
        """Return start and end of the earliest room for a transfer between two memories."""
        seconds = self._transfer(nbytes, *ends)
        if self._host is None or HOST not in ends:
            start = slots.first(ready, seconds)
            return start, start + seconds
        return self._host.first(slots, ready, seconds, self.problem.contention.draws(nbytes, seconds))

    def _draws(self, what: Assignment | Move, seconds: float) -> float:
        if isinstance(what, Move):
            return self.problem.contention.draws(what.nbytes, seconds) if HOST in (what.source, what.target) else 0.0
        return self.problem.draws(what, seconds)

    @property
    def busy(self) -> float:
        """The part of the host's memory bandwidth that is drawn until the last operation ends."""
        if self._host is None:
            return 0.0
        carries = self.problem.machine.host_bandwidth * (self.makespan - self.floor)
        placed = ((what, self._seconds(what)) for what in self.what[self._fixed :])
        drawn = sum(self._draws(what, seconds) * seconds for what, seconds in placed)
        return drawn / carries if carries > 0.0 else 0.0

    def _add(self, what: Assignment | Move, waits: Sequence[int], slots: BusyIntervals | None) -> int:
        """Add an operation. ``slots``: the queue or device that it occupies, if other operations may be placed before
        it later. A kernel waits for its node's predecessors, too."""
        op, end, device, given, heard = len(self.what), what.end, what.device, self._given, what.end + self._handover
        self.changes += 1
        if slots is not None:
            slots.take(what.start, end)
        if op >= self._fixed:
            if self._host is not None:
                self._host.take(what.start, end, self._draws(what, self._seconds(what)))
            given.append(given[-1] + self._enqueues[device][type(what) is Move])
        else:
            given.append(given[-1])
            if end <= self.floor:  # the end of a fixed operation before planning began is known to all devices
                heard = end
        self.what.append(what)
        self.end.append(end)
        self.heard.append(heard)
        self.device.append(device)
        self._waits.append(waits)
        self._slots.append(slots)
        return op

    def _idle_queues(self) -> list[BusyIntervals]:
        """Return the queues of transfers, all of them idle."""
        return [BusyIntervals() for _ in range(2 * len(self.kernels))]

    def _occupy(self) -> None:
        """Occupy each device until all its fixed operations have ended, in whatever queues: none starts before."""
        until: dict[int, float] = {}
        for a in self.problem.fixed:
            until[a.device] = max(a.end, until.get(a.device, self.floor))
        for device, end in until.items():
            if end > self.floor:
                self.kernels[device].take(self.floor, end)

    def _take_back(self, count: int) -> None:
        """Keep the first ``count`` operations."""
        self.changes += 1
        if self._host is not None:
            self._host.back(count - self._fixed)
        if count == self._fixed:  # all new operations
            for queue in dict.fromkeys((*self._slots, *(self.kernels[a.device] for a in self.problem.fixed))):
                if queue is not None:
                    queue.clear()
            self._occupy()
        for op in range(len(self.what) - 1, count - 1, -1):
            what, slots = self.what[op], self._slots[op]
            if count > self._fixed and slots is not None:
                slots.free(what.start, what.end)
            if type(what) is Assignment:
                self.of[what.node] = ()
        if self._together:
            self._together = {op: ops for op, ops in self._together.items() if op < count}
        del self.what[count:], self.end[count:], self.heard[count:], self.device[count:]
        del self._given[count + 1 :], self._waits[count:], self._slots[count:]

    # the result

    def assignments(self) -> list[Assignment]:
        """Return all assignments, as they were placed."""
        return [what for what in self.what if type(what) is Assignment]

    @property
    def is_slowed(self) -> bool:
        """True if operations, as they were placed, may slow each other down."""
        if self._host is not None:
            return True
        moved = sorted([(what.start, what.end) for what in self.what if type(what) is Move]) if self._contended else ()
        return any(end > start for (_, end), (start, _) in pairwise(moved))

    def finish(self) -> list[Assignment]:
        """Return the assignments in the order of dispatch, each as early as its order and predecessors allow (gaps left
        by what was taken back are closed). One is later than it was placed only where simultaneous operations slow each
        other down."""
        what, ends = self.what, self.end
        order = sorted(range(len(what)), key=[(w.start, end) for w, end in zip(what, ends, strict=True)].__getitem__)
        if not (self._contended or None in self._slots):
            return self._closed(order)
        kernels = [(op, a) for op in order if isinstance(a := what[op], Assignment)]
        moves = [(op, m) for op in order if isinstance(m := what[op], Move)]
        index = [0] * len(order)
        for i, (op, _) in enumerate((*kernels, *moves)):
            index[op] = i
        before = [[index[op] for p in found for op in self.of[p]] for found in self.problem.graph.predecessors]

        def waits() -> Iterator[Sequence[int]]:
            for op, a in kernels:
                mine = [index[w] for w in self._waits[op]]
                yield [*mine, *before[a.node]] if op >= self._fixed else ()
            for op, _ in moves:
                yield [index[w] for w in self._waits[op]]

        return timed(
            self.problem,
            [a for _, a in kernels],
            [m for _, m in moves],
            waits(),
            [self._seconds(a) if op >= self._fixed else a.end - a.start for op, a in kernels],
        )

    def _closed(self, order: Sequence[int]) -> list[Assignment]:
        """Return the assignments as :meth:`finish` does, where nothing is slowed down: in this order, one by one."""
        whats, devices, waits, slots, of = self.what, self.device, self._waits, self._slots, self.of
        before, enqueues, handover, given = self.problem.graph.predecessors, self._enqueues, self._handover, self.floor
        ends, free, found = [self.floor] * len(order), dict[BusyIntervals | None, float](), list[Assignment]()
        heard, parts = [self.floor + handover] * len(order), dict[int, Ended]()
        for op in order:
            what, device, queue, after = whats[op], devices[op], slots[op], waits[op]
            given += enqueues[device][type(what) is Move]
            start = free.get(queue, given)
            if given > start:
                start = given
            for p in before[what.node] if type(what) is Assignment else ():
                if len(of[p]) <= FEW:
                    after = [*after, *of[p]]
                    continue
                if p not in parts:
                    parts[p] = Ended.of(of[p], devices, ends, heard)
                start = max(start, parts[p].known(device))
            for w in after:
                known = ends[w] if devices[w] == device != ON_HOST else heard[w]
                if known > start:
                    start = known
            end = what.end if start == what.start else start + (what.end - what.start)
            ends[op] = free[queue] = end
            heard[op] = end + handover
            if type(what) is Assignment:
                found.append(what if start == what.start else what.at(start, end))
        return found

    def _seconds(self, what: Assignment | Move) -> float:
        if isinstance(what, Move):
            return self._transfer(what.nbytes, what.source, what.target)
        if what.device == ON_HOST:
            return 0.0
        if what.dimension is MERGE:
            return self.problem.merge_seconds(what.node, what.device, self._merged[what.node])
        if what.dimension is WHOLE:
            return self.rows[what.node][what.device]
        return self.problem.range_seconds(what.node, what.device, what.groups, what.first)


def times(placed: Assignment) -> tuple[float, float]:
    """Return start and end."""
    return placed.start, placed.end
