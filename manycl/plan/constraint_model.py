"""A graph and a machine as a constraint model of whole kernels, one at a time on a device, for OR-Tools' CP-SAT.

Transfers as in the option ``contention``: the machine's (of whole buffers, by the host, on one upload and one download
queue a device, as in ``plan/transfers.py``) or the literature's (``plan/delays.py``). Times are whole ticks, and every
duration is rounded down: any schedule, its times rounded down, is a solution, so no schedule is below the model's
bound. What is found is only who runs what, the transfers, and the order of all that; ``plan/timing.py`` then says when
it happens.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from manycl.machine import HOST
from manycl.plan.insertion import Setting
from manycl.plan.placement import Placement
from manycl.plan.plan import ON_HOST, Assignment, Move
from manycl.plan.problem import contents_needed
from manycl.plan.segments import INITIAL
from manycl.plan.timeline import Schedule
from manycl.plan.timing import timed

TICKS = 10**8
"""Of the makespan that the search begins with."""


class Contents(NamedTuple):
    """Bytes of a buffer as ``writer`` left them. ``made``: the node that is still to write them (-1: they are there);
    ``at[m]``: whether that is in memory m; ``known[m]``: else the operation of the placement that brought them."""

    buffer: int
    low: int
    high: int
    writer: int
    made: int
    at: dict[int, Any]
    known: dict[int, int]


class Copy(NamedTuple):
    """A transfer that may have to be made, on the upload or download queue of device ``lane``: whether it is, and when
    in ticks."""

    contents: Contents
    source: int
    target: int
    lane: int
    present: Any
    begin: Any
    end: Any


class Answer(NamedTuple):
    """What the solver says: its status in words, a schedule, and seconds that no schedule is below."""

    status: str
    schedule: Schedule | None
    bound: float


class Model:
    """The constraint model of one problem. Times are ticks after ``not_before``. ``warm`` is a schedule to begin with:
    the search looks for what is not longer."""

    def __init__(self, given: Setting, warm: Schedule, cp_model: Any) -> None:
        self._cp = cp_model
        self._given = given
        self._problem = given.problem
        self._model: Any = cp_model.CpModel()
        self._warm = {a.node: a for a in warm.assignments}
        self._floor = given.problem.not_before
        self.tick = (warm.makespan - self._floor) / TICKS
        self._memory = [d.memory for d in given.problem.machine.devices]
        self._placement = Placement(given.problem, given.table.seconds)  # what is fixed, and where that leaves all data
        count = len(given.view.before)
        self._start = [self._time(f"s{n}") for n in range(count)]
        self._end = [self._time(f"e{n}") for n in range(count)]
        self._on: list[dict[int, Any]] = []
        self._copies: list[Copy] = []
        self._needs: list[list[Contents]] = [[] for _ in range(count)]
        self._lanes: dict[tuple[bool, int], list[Any]] = {}  # by direction (down?) and device
        self._place_nodes()
        if given.contention:
            self._order_nodes()
            if given.table.moves:
                self._move_data()
        else:
            self._delay_edges()
        makespan = self._time("makespan")
        for end in self._end:
            self._model.add(makespan >= end)
        self._model.minimize(makespan)

    @property
    def size(self) -> int:
        """Commands and delays between them that any way through a schedule can have, each of which loses a tick."""
        return 2 * (len(self._start) + len(self._copies) + 1)

    # pieces

    def _time(self, name: str) -> Any:
        return self._model.new_int_var(0, TICKS, name)

    def _ticks(self, seconds: float) -> int:
        """Rounded down, with what the division may have added; what lasts for ever is longer than all there is."""
        return max(0, math.floor(min(seconds / self.tick, 2.0 * TICKS) - 1e-6))

    def _at(self, seconds: float) -> int:
        """A time that is given; what was before everything is at its beginning."""
        return self._ticks(seconds - self._floor)

    def _given_that(self, constraint: Any, *literals: Any) -> None:
        conditions = [x for x in literals if x is not True]
        if conditions:
            constraint.only_enforce_if(conditions)

    def _place_nodes(self) -> None:
        view, model = self._given.view, self._model
        devices: list[list[Any]] = [[] for _ in self._memory]
        ends: dict[int, float] = {}
        for a in self._problem.fixed:
            ends[a.node] = max(ends.get(a.node, a.end), a.end)
        for node, places in enumerate(view.places):
            if node in ends:
                self._on.append({})
                model.add(self._start[node] == 0)
                model.add(self._end[node] == self._at(ends[node]))
                continue
            hint = self._warm[node]
            model.add_hint(self._start[node], self._at(hint.start))
            if places == (ON_HOST,):
                self._on.append({ON_HOST: True})
                model.add(self._end[node] == self._start[node])
                continue
            on = {d: model.new_bool_var(f"n{node}d{d}") for d in places}
            model.add_exactly_one(on.values())
            for d, literal in on.items():
                ticks = self._ticks(view.seconds[node][d])
                # Alternatives that share a variable for their end too make the solver (9.15) call solvable models
                # infeasible: the end of an interval stays an expression.
                devices[d].append(model.new_optional_fixed_size_interval_var(self._start[node], ticks, literal, ""))
                model.add(self._end[node] == self._start[node] + ticks).only_enforce_if(literal)
                model.add_hint(literal, hint.device == d)
            self._on.append(on)
        for device, intervals in enumerate(devices):
            for start, end in _union((a.start, a.end) for a in self._problem.fixed if a.device == device):
                first = self._at(start)
                intervals.append(model.new_fixed_size_interval_var(first, self._at(end) - first, ""))
            model.add_no_overlap(intervals)

    def _order_nodes(self) -> None:
        """Dependences; between devices a handover more."""
        handover, model = self._ticks(self._problem.handover), self._model
        for node, before in enumerate(self._problem.graph.predecessors):
            for d, here in self._on[node].items():
                early = self._at(self._placement.ready(node, d))  # what is fixed
                self._given_that(model.add(self._start[node] >= early), here)
            for p in before:
                if not self._on[p] or not self._on[node]:
                    continue
                model.add(self._start[node] >= self._end[p])
                for d, here in self._on[node].items():
                    there = self._on[p].get(d)
                    if handover and not (d != ON_HOST and there is True):
                        away = True if d == ON_HOST or there is None else there.Not()
                        self._given_that(model.add(self._start[node] >= self._end[p] + handover), here, away)

    def _delay_edges(self) -> None:
        """The literature's delays."""
        view, model = self._given.view, self._model
        where = {a.node: a.device for a in self._problem.fixed}
        for node, edges in enumerate(view.before):
            for d, here in self._on[node].items():
                self._given_that(model.add(self._start[node] >= self._at(view.earliest[node][d])), here)
                for p, matrix in edges:
                    if p in where:
                        early = self._at(self._warm[p].end + matrix[where[p]][d])
                        self._given_that(model.add(self._start[node] >= early), here)
                    for a, there in self._on[p].items():
                        reached = model.add(self._start[node] >= self._end[p] + self._ticks(matrix[a][d]))
                        self._given_that(reached, there, here)

    # data, the machine's way

    def _move_data(self) -> None:
        readers: dict[tuple[int, int], list[int]] = {}
        writer: dict[int, int] = {}
        for node, task in enumerate(self._problem.graph.nodes):
            if not self._on[node]:
                continue
            for key in contents_needed(task):
                readers.setdefault((key, writer.get(key, -1)), []).append(node)
            for key in task.writes:
                writer[key] = node
        for (key, made), nodes in readers.items():
            for contents in self._contents(key, made):
                for n in nodes:
                    self._needs[n].append(contents)
                self._bring(contents, nodes)
        for intervals in self._lanes.values():
            self._model.add_no_overlap(intervals)

    def _contents(self, key: int, made: int) -> Iterator[Contents]:
        """What a node makes of a buffer, or (-1) what is in it at the start."""
        memories = range(self._problem.machine.memories)
        if made >= 0:
            at = {m: self._in(made, m) for m in memories}
            yield Contents(key, 0, self._problem.graph.buffers[key].nbytes, made, made, at, {})
            return
        for low, high, writer, places in self._placement.segments.of.get(key, ()):
            if places:
                yield Contents(key, low, high, writer, -1, {m: m in places for m in memories}, places)

    def _in(self, node: int, memory: int) -> Any:
        """Whether a node runs in a memory: True, False or a literal."""
        on = self._on[node]
        if ON_HOST in on:
            return memory == HOST
        mine = [literal for d, literal in on.items() if self._memory[d] == memory]
        if len(mine) == len(on) or not mine:
            return bool(mine)
        if len(mine) == 1:
            return mine[0]
        either = self._model.new_bool_var("")
        self._model.add_max_equality(either, mine)
        return either

    def _after_makers(self, copy: Copy) -> None:
        """A copy begins when its lane's device knows that the contents are where it takes them from."""
        contents, model = copy.contents, self._model
        if contents.made < 0:
            early = self._at(self._placement.known(contents.known.get(copy.source, INITIAL), copy.lane))
            model.add(copy.begin >= early).only_enforce_if(copy.present)
            return
        end, handover = self._end[contents.made], self._ticks(self._problem.handover)
        for d, there in self._on[contents.made].items():
            if (HOST if d == ON_HOST else self._memory[d]) == copy.source:
                known = end if d == copy.lane else end + handover
                self._given_that(model.add(copy.begin >= known), there, copy.present)

    def _bring(self, contents: Contents, readers: Sequence[int]) -> None:
        """Copies of some contents: down from the memory where they are, and up to where they are needed."""
        model, at = self._model, contents.at
        handover = self._ticks(self._problem.handover)
        needs = {m: [(n, here) for n in readers if (here := self._in(n, m)) is not False] for m in at}
        downs: list[Copy] = []
        for m, there in at.items():
            if m == HOST or there is False or at[HOST] is True or not any(needs[o] for o in at if o != m):
                continue
            for copy in self._copy_once(contents, m, HOST):
                if there is not True:
                    model.add_implication(copy.present, there)
                downs.append(copy)
        for m, nodes in needs.items():
            if at[m] is True or not nodes:
                continue
            already = [x for x in (at[HOST], at[m]) if x is not False and x is not True]
            ups = self._copy_once(contents, HOST, m) if m != HOST else []
            for up in ups:
                for c in downs:
                    self._given_that(model.add(up.begin >= c.end + handover), c.present, up.present)
            for n, here in nodes:
                absent = [] if here is True else [here.Not()]
                if at[HOST] is not True:
                    model.add_bool_or([*(c.present for c in downs if c.source != m), *already, *absent])
                if m != HOST:
                    model.add_bool_or([*(c.present for c in ups), *([at[m]] if at[m] is not False else []), *absent])
                for c in ups or downs:
                    for d, on in self._on[n].items():
                        if (HOST if d == ON_HOST else self._memory[d]) == m:
                            known = c.end if d == c.lane else c.end + handover
                            self._given_that(model.add(self._start[n] >= known), on, c.present)

    def duration(self, contents: Contents, source: int, target: int) -> int:
        """Ticks of a copy."""
        return self._ticks(self._problem.estimates.transfer(contents.high - contents.low, source, target))

    def _copy_once(self, contents: Contents, source: int, target: int) -> list[Copy]:
        """A copy that may have to be made, by one of the devices with that memory."""
        model, made = self._model, []
        memory = source if target == HOST else target
        for lane in (d for d, m in enumerate(self._memory) if m == memory):
            ticks, begin = self.duration(contents, source, target), self._time("")
            copy = Copy(contents, source, target, lane, model.new_bool_var(""), begin, begin + ticks)
            interval = model.new_optional_fixed_size_interval_var(begin, ticks, copy.present, "")
            self._lanes.setdefault((target == HOST, lane), []).append(interval)
            self._after_makers(copy)
            made.append(copy)
        if len(made) > 1:
            model.add_at_most_one([c.present for c in made])
        self._copies += made
        return made

    # the answer

    def solve(self, limit: float, workers: int) -> Answer:
        """Search for ``limit`` seconds at most."""
        solver = self._cp.CpSolver()
        solver.parameters.max_time_in_seconds = limit
        solver.parameters.num_workers = workers
        status = solver.solve(self._model)
        name = str(solver.status_name(status)).lower()
        if status not in (self._cp.OPTIMAL, self._cp.FEASIBLE):
            # there is the schedule to begin with, so if this says infeasible the solver is wrong: nothing is proven
            return Answer(name, None, self._floor)
        bound = self._floor + max(0.0, solver.best_objective_bound) * self.tick
        return Answer(name, self._read(solver), bound)

    def _read(self, solver: Any) -> Schedule:
        """The solver's decisions, and when everything happens with them."""
        where = [
            next((d for d, literal in on.items() if literal is True or solver.boolean_value(literal)), ON_HOST)
            for on in self._on
        ]
        if not self._given.contention:
            board = self._given.board()
            for n in sorted(
                range(len(where)), key=lambda n: (solver.value(self._start[n]), solver.value(self._end[n]))
            ):
                if self._on[n]:
                    board.take(n, board.fit(n, where[n]))
            return board.schedule()
        return _Reading(self, solver, where).schedule()


class _Reading:
    """A solution as a schedule: the operations that it needs, ordered by its ticks, timed exactly."""

    def __init__(self, model: Model, solver: Any, where: list[int]) -> None:
        self._m, self._value, self._where = model, solver, where
        problem, placement = model._problem, model._placement
        self._ops: list[Assignment | Move] = list(placement.what)
        self._waits: list[list[int]] = [[] for _ in self._ops]
        self._ticks = [(model._at(what.start), model._at(what.end)) for what in self._ops]
        self._node = {n: list(ops) for n, ops in enumerate(placement.of) if ops}
        self._made: dict[tuple[int, int, int, int], int] = {}  # copies, by buffer, first byte, writer, target
        self._copies = {
            (c.contents.buffer, c.contents.low, c.contents.writer, c.source, c.target): c
            for c in model._copies
            if solver.boolean_value(c.present)
        }
        version = problem.version
        nodes = [n for n, on in enumerate(model._on) if on]
        nodes.sort(key=lambda n: (solver.value(model._start[n]), solver.value(model._end[n]), n))
        for n in nodes:
            d = where[n]
            a = Assignment(n, d, 0, 0.0, 0.0, version=0 if d == ON_HOST else version(n, d))
            self._node[n] = [self._add(a, solver.value(model._start[n]), solver.value(model._end[n]))]
        for n in nodes:
            mine = self._waits[self._node[n][0]]
            for p in problem.graph.predecessors[n]:
                mine.extend(self._node[p])
            for contents in model._needs[n]:
                mine.extend(self._arrive(contents, where[n]))

    def _add(self, what: Assignment | Move, start: int, end: int) -> int:
        self._ops.append(what)
        self._waits.append([])
        self._ticks.append((start, end))
        return len(self._ops) - 1

    def _holds(self, contents: Contents, memory: int) -> bool:
        """Whether contents are in a memory without a copy."""
        if contents.made >= 0:
            d = self._where[contents.made]
            return memory == (HOST if d == ON_HOST else self._m._memory[d])
        return memory in contents.known

    def _arrive(self, contents: Contents, device: int) -> list[int]:
        """The operations that bring contents to a device: the last of each way."""
        memory = HOST if device == ON_HOST else self._m._memory[device]
        if self._holds(contents, memory):
            return self._makers(contents, memory)
        if memory == HOST:
            return [self._down(contents)]
        key = (contents.buffer, contents.low, contents.writer, memory)
        if key not in self._made:
            before = self._makers(contents, HOST) if self._holds(contents, HOST) else [self._down(contents)]
            self._made[key] = self._move(contents, HOST, memory, before)
        return [self._made[key]]

    def _makers(self, contents: Contents, memory: int) -> list[int]:
        if contents.made >= 0:
            return self._node[contents.made]
        return list(self._m._placement.makers(contents.known[memory]))

    def _down(self, contents: Contents) -> int:
        key = (contents.buffer, contents.low, contents.writer, HOST)
        if key not in self._made:
            source = next(m for m in contents.at if self._holds(contents, m) and (*key[:3], m, HOST) in self._copies)
            self._made[key] = self._move(contents, source, HOST, self._makers(contents, source))
        return self._made[key]

    def _move(self, contents: Contents, source: int, target: int, before: list[int]) -> int:
        copy = self._copies[contents.buffer, contents.low, contents.writer, source, target]
        move = Move(contents.buffer, contents.low, contents.high, contents.writer, source, target, copy.lane, 0.0, 0.0)
        begin = self._value.value(copy.begin)
        op = self._add(move, begin, begin + self._m.duration(contents, source, target))
        self._waits[op] = list(before)
        return op

    def schedule(self) -> Schedule:
        order = self._order()
        kernels = [op for op in order if isinstance(self._ops[op], Assignment)]
        moves = [op for op in order if isinstance(self._ops[op], Move)]
        index = {op: i for i, op in enumerate((*kernels, *moves))}
        problem = self._m._problem
        found, moved = timed(
            problem,
            self._m._given.table.seconds,
            [a for op in kernels if isinstance(a := self._ops[op], Assignment)],
            [m for op in moves if isinstance(m := self._ops[op], Move)],
            [[index[w] for w in self._waits[op]] for op in (*kernels, *moves)],
        )
        return Schedule(found, max((a.end for a in found), default=problem.not_before), moved)

    def _order(self) -> list[int]:
        """By the solver's ticks; what is equal there, by what waits for what."""
        after: list[list[int]] = [[] for _ in self._ops]
        pending = [0] * len(self._ops)
        for op, before in enumerate(self._waits):
            for w in before:
                after[w].append(op)
                pending[op] += 1
        ready = [(*self._ticks[op], op) for op, count in enumerate(pending) if not count]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            op = heapq.heappop(ready)[2]
            order.append(op)
            for other in after[op]:
                pending[other] -= 1
                if not pending[other]:
                    heapq.heappush(ready, (*self._ticks[other], other))
        return order


def _union(intervals: Iterator[tuple[float, float]]) -> list[tuple[float, float]]:
    """What intervals cover, as intervals that do not overlap."""
    out: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out
