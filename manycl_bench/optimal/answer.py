"""A solution of the constraint model as a schedule: the solver's decisions, ordered by its ticks, timed exactly."""

from __future__ import annotations

from typing import Any

from manycl.graph.dependences import least_first
from manycl.machine import HOST, DeviceIndex
from manycl.plan.plan import ON_HOST, Assignment
from manycl.plan.timeline.timeline import Schedule
from manycl.plan.timeline.timing import timed
from manycl.plan.timeline.writer_intervals import Move
from manycl_bench.optimal.model import Model, ModelContents


def schedule_of(model: Model, solver: Any) -> Schedule:
    """Return the schedule of the solver's decisions, with exact times."""
    on = model.on
    where = [next((d for d, x in places.items() if x is True or solver.boolean_value(x)), ON_HOST) for places in on]
    if model.given.contention:
        return _Reading(model, solver, where).schedule()
    board = model.given.board()
    for n in sorted(range(len(where)), key=lambda n: (solver.value(model.start[n]), solver.value(model.end[n]))):
        if on[n]:
            board.put(n, (where[n],))
    return board.schedule()


class _Reading:
    """The operations that a solution needs."""

    def __init__(self, model: Model, solver: Any, where: list[DeviceIndex]) -> None:
        self._model, self._value, self._where = model, solver, where
        problem, timeline = model.problem, model.timeline
        self._ops: list[Assignment | Move] = list(timeline.what)
        self._waits: list[list[int]] = [[] for _ in self._ops]
        self._ticks = [(model.at(what.start), model.at(what.end)) for what in self._ops]
        self._node = {n: list(ops) for n, ops in enumerate(timeline.of) if ops}
        # operations of copies, by buffer, first byte, writer, target
        self._made: dict[tuple[int, int, int, int], int] = {}
        self._copies = {
            (c.contents.buffer, c.contents.low, c.contents.writer, c.source, c.target): c
            for c in model.copies
            if solver.boolean_value(c.present)
        }
        version = problem.version
        nodes = [n for n, on in enumerate(model.on) if on]
        nodes.sort(key=lambda n: (solver.value(model.start[n]), solver.value(model.end[n]), n))
        for n in nodes:
            d = where[n]
            a = Assignment(n, d, 0, 0.0, 0.0, version=0 if d == ON_HOST else version(n, d))
            self._node[n] = [self._add(a, solver.value(model.start[n]), solver.value(model.end[n]))]
        for n in nodes:
            mine = self._waits[self._node[n][0]]
            for p in problem.graph.predecessors[n]:
                mine.extend(self._node[p])
            for contents in model.needs[n]:
                mine.extend(self._arrive(contents, where[n]))

    def _add(self, what: Assignment | Move, start: int, end: int) -> int:
        self._ops.append(what)
        self._waits.append([])
        self._ticks.append((start, end))
        return len(self._ops) - 1

    def _holds(self, contents: ModelContents, memory: int) -> bool:
        """Return whether contents are in a memory without a copy."""
        if contents.made is not None:
            d = self._where[contents.made]
            return memory == (HOST if d == ON_HOST else self._model.memory[d])
        return memory in contents.known

    def _arrive(self, contents: ModelContents, device: DeviceIndex) -> list[int]:
        """Return the operations that move contents to a device: the last of each way."""
        memory = HOST if device == ON_HOST else self._model.memory[device]
        if self._holds(contents, memory):
            return self._makers(contents, memory)
        if memory == HOST:
            return [self._down(contents)]
        key = (contents.buffer, contents.low, contents.writer, memory)
        if key not in self._made:
            direct = (m for m in contents.at if m != HOST and (*key[:3], m, memory) in self._copies)
            source = next((m for m in direct if self._holds(contents, m)), HOST)
            is_there = self._holds(contents, source)
            before = self._makers(contents, source) if is_there else [self._down(contents)]
            self._made[key] = self._move(contents, source, memory, before)
        return [self._made[key]]

    def _makers(self, contents: ModelContents, memory: int) -> list[int]:
        if contents.made is not None:
            return self._node[contents.made]
        return list(self._model.timeline.makers(contents.known[memory]))

    def _down(self, contents: ModelContents) -> int:
        key = (contents.buffer, contents.low, contents.writer, HOST)
        if key not in self._made:
            source = next(m for m in contents.at if self._holds(contents, m) and (*key[:3], m, HOST) in self._copies)
            self._made[key] = self._move(contents, source, HOST, self._makers(contents, source))
        return self._made[key]

    def _move(self, contents: ModelContents, source: int, target: int, before: list[int]) -> int:
        copy = self._copies[contents.buffer, contents.low, contents.writer, source, target]
        move = Move(contents.buffer, contents.low, contents.high, contents.writer, source, target, copy.lane, 0.0, 0.0)
        begin = self._value.value(copy.begin)
        op = self._add(move, begin, begin + self._model.duration(contents, source, target))
        self._waits[op] = list(before)
        return op

    def schedule(self) -> Schedule:
        order = self._order()
        kernels = [op for op in order if isinstance(self._ops[op], Assignment)]
        moves = [op for op in order if isinstance(self._ops[op], Move)]
        index = {op: i for i, op in enumerate((*kernels, *moves))}
        problem = self._model.problem
        found = timed(
            problem,
            [a for op in kernels if isinstance(a := self._ops[op], Assignment)],
            [m for op in moves if isinstance(m := self._ops[op], Move)],
            [[index[w] for w in self._waits[op]] for op in (*kernels, *moves)],
            [self._seconds(self._ops[op]) for op in kernels],
        )
        return Schedule(found, max((a.end for a in found), default=problem.not_before))

    def _seconds(self, a: Assignment | Move) -> float:
        """Return the seconds of a whole kernel."""
        return 0.0 if a.device == ON_HOST else self._model.given.table.seconds[a.node][a.device]  # type: ignore[union-attr]

    def _order(self) -> list[int]:
        """Return the operations in the order of the solver's ticks; equal ones in the order of their dependences."""
        after: list[list[int]] = [[] for _ in self._ops]
        for op, before in enumerate(self._waits):
            for w in before:
                after[w].append(op)
        return least_first(self._waits, after, self._ticks)
