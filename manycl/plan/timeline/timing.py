"""Exact times of a schedule, given the devices of its commands and their order.

The machine's rules, which the simulator has too (``run/simulation/simulator.py``): the host's thread enqueues one
command at a time; a queue performs one at a time, in order; a command starts once it is enqueued and all it waits for
has ended, ``handover`` seconds later where another device or the host has ended it; kernels in different queues of a
device slow each other down as soon as their shares of it add up to more than 1; commands that share links, or the
host's memory, slow each other down (``model/contention.py``).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Final

from manycl.graph.graph import Launch
from manycl.model.contention import NOTHING, Activities, Use
from manycl.model.occupancy import share
from manycl.plan.plan import ON_HOST, Assignment
from manycl.plan.problem import Problem
from manycl.plan.timeline.writer_intervals import Move

_STARTS: Final = -1
"""The mark of a command's start, in place of a stamp."""


def timed(
    problem: Problem,
    assignments: Sequence[Assignment],
    moves: Sequence[Move],
    before: Iterable[Sequence[int]],
    seconds: Sequence[float],
) -> list[Assignment]:
    """Return the schedule with its exact times. ``before``: what each assignment and then each move waits for beside
    its queue: indices of assignments, and of moves counted on from their number. ``seconds``: of every assignment, when
    alone. The host's thread enqueues assignments and moves in the order of the times that they have. Each queue
    performs its assignments, and its moves, in the order given; fixed assignments keep their times, and those behind
    them on their device start after them."""
    clockwork = _Clockwork(problem, seconds, assignments, moves, before)
    times, fixed = clockwork.run(), clockwork.until
    return [a if i in fixed else a.at(*times[i]) for i, a in enumerate(assignments)]


def contended(problem: Problem) -> bool:
    """Return whether transfers can slow each other down, or kernels and transfers (``model/contention.py``)."""
    return problem.contention.anything


class _Clockwork:
    """An event-driven simulation of a schedule's commands."""

    def __init__(
        self,
        problem: Problem,
        seconds: Sequence[float],
        assignments: Sequence[Assignment],
        moves: Sequence[Move],
        before: Iterable[Sequence[int]],
    ) -> None:
        self._floor, self._handover = problem.not_before, problem.handover
        base = len(assignments)
        count = base + len(moves)
        self._device = [*(a.device for a in assignments), *(m.device for m in moves)]
        fixed = set(problem.fixed)
        self.until = {i: a.end for i, a in enumerate(assignments) if a in fixed} if fixed else {}
        transfer = problem.estimates.transfer
        self._seconds = [*seconds, *(transfer(m.nbytes, m.source, m.target) for m in moves)]
        self._share = _shares(problem, assignments, self.until)
        self._ready = [self._floor] * count
        self._pending = [0] * count
        self._after: list[list[int]] = [[] for _ in range(count)]
        after, pending = self._after, self._pending
        for token, waited in enumerate(before):
            if token in self.until:
                continue
            if self.until and token < base:
                waited = [*waited, *(i for i in self.until if i < token and self._device[i] == self._device[token])]
            pending[token] = len(waited)
            for w in waited:
                after[w].append(token)
        self._following: list[int | None] = [None] * count
        last: dict[tuple[int, int] | int, int] = {}
        commands: list[Assignment | Move] = [*assignments, *moves]
        given, enqueues, way = self._floor, problem.enqueuing, problem.routes.queue
        if any(map(any, enqueues)):
            for token in sorted(range(count), key=lambda token: (commands[token].start, commands[token].end)):
                if token not in self.until:
                    given += enqueues[self._device[token]][token >= base]
                    self._ready[token] = given
        lanes: list[tuple[int, int] | int] = [(a.device, a.queue) for a in assignments]
        lanes += [way(m.target, m.device) for m in moves]
        for token, lane in enumerate(lanes):
            if lane in last:
                self._following[last[lane]] = token
                self._pending[token] += 1
            last[lane] = token
        self._times = [(self._floor, self._floor)] * count
        self._ended = 0
        contention = problem.contention
        self._progress = Activities(contention)
        self._use = [NOTHING] * count
        if contention.anything:
            alone = self._seconds
            self._use = [Use(None, problem.draws(a, alone[i])) for i, a in enumerate(assignments)]
            self._use += [contention.use((m.source, m.target), m.nbytes, alone[base + j]) for j, m in enumerate(moves)]
        self._share += [0.0] * len(moves)
        self._open: list[int] = []  # commands that may start and that nothing slows down
        self._stamp = [0] * count
        self._events: list[tuple[float, int, int]] = []  # time, token, stamp

    def run(self) -> list[tuple[float, float]]:
        """Return start and end of every command."""
        for token, pending in enumerate(self._pending):
            if not pending:
                self._start(token)
        while self._open or self._events:
            if self._open:  # the end is known at once
                token = self._open.pop()
                start = self._ready[token]
                self._finish(token, start, max(start, self.until.get(token, start + self._seconds[token])))
                continue
            now, token, stamp = heapq.heappop(self._events)
            if stamp == _STARTS:
                seconds, device = self._seconds[token], self._device[token]
                self._at(self._progress.begin(token, now, seconds, device, self._share[token], self._use[token]))
            elif stamp == self._stamp[token]:
                self._finish(token, self._ready[token], now)
                self._at(self._progress.finish(token, now))
        assert self._ended == len(self._times), "a schedule waits for itself"
        return self._times

    def _start(self, token: int) -> None:
        """Let a command start when it is ready."""
        if token not in self.until and (self._share[token] or self._use[token] != NOTHING):
            heapq.heappush(self._events, (self._ready[token], token, _STARTS))
        else:
            self._open.append(token)

    def _at(self, changed: Sequence[tuple[int, float]]) -> None:
        """Note commands whose ends have changed."""
        for token, end in changed:
            self._stamp[token] += 1
            heapq.heappush(self._events, (end, token, self._stamp[token]))

    def _finish(self, token: int, start: float, end: float) -> None:
        """Note the times of a command, and release those that wait for it."""
        self._times[token] = start, end
        self._ended += 1
        ready, pending, devices, device = self._ready, self._pending, self._device, self._device[token]
        past = token in self.until and self.until[token] <= self._floor
        heard = end if past else end + self._handover
        for other in self._after[token]:
            known = end if devices[other] == device != ON_HOST else heard
            if known > ready[other]:
                ready[other] = known
            pending[other] -= 1
            if not pending[other]:
                self._start(other)
        following = self._following[token]
        if following is not None:
            ready[following] = max(ready[following], end)
            pending[following] -= 1
            if not pending[following]:
                self._start(following)


def _shares(problem: Problem, assignments: Sequence[Assignment], fixed: dict[int, float]) -> list[float]:
    """Return the part of its device that each kernel takes (0: it runs beside no other, or is no kernel)."""
    several = {a.device for a in assignments if a.queue}
    out = [0.0] * len(assignments)
    if not several:
        return out
    known: dict[tuple[object, ...], float] = {}
    for i, a in enumerate(assignments):
        task = problem.graph.nodes[a.node]
        if i in fixed or a.device not in several or not isinstance(task, Launch):
            continue
        key = a.device, task.global_size, task.local_size
        if key not in known:
            known[key] = share(task, problem.machine.devices[a.device])
        out[i] = known[key]
    return out
