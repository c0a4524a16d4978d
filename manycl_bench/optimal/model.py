"""A graph and a machine as a constraint model of whole kernels, one at a time on a device, for OR-Tools' CP-SAT.

Transfers are those of the option ``contention``: the machine's (of whole buffers, by the host, on one upload and one
download queue a device, as in ``plan/timeline/timeline.py``) or the literature's (``plan/timeline/delays.py``). Times
are whole ticks, and every duration is rounded down: any schedule, its times rounded down, is a solution, so no schedule
is below the model's bound. A solution only has the devices, the transfers, and the order of all operations
(``optimal/answer.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from manycl.graph.graph import BufferKey
from manycl.machine import HOST, DeviceIndex
from manycl.plan.plan import ON_HOST
from manycl.plan.problem import contents_needed
from manycl.plan.search.insertion import Setting
from manycl.plan.timeline.timeline import Schedule, Timeline
from manycl.plan.timeline.writer_intervals import INITIAL

TICKS = 10**8
"""Ticks of the makespan that the search begins with."""


class ModelContents(NamedTuple):
    """Bytes of a buffer as ``writer`` left them. ``made``: the node that is still to write them (None: they exist);
    ``at[m]``: whether they are in memory m; ``known[m]``: in that case the operation of the timeline that moved them
    there."""

    buffer: BufferKey
    low: int
    high: int
    writer: int
    made: int | None
    at: dict[int, Any]
    known: dict[int, int]


class PossibleCopy(NamedTuple):
    """A transfer that may have to be made, on the upload or download queue of device ``lane``: whether it is made, and
    when, in ticks."""

    contents: ModelContents
    source: int
    target: int
    lane: DeviceIndex
    present: Any
    begin: Any
    end: Any


class Answer(NamedTuple):
    """The solver's answer: its status in words, the solver if it has found a solution
    (``optimal/answer.py`` reads it), and seconds that no schedule is below."""

    status: str
    solver: Any
    bound: float


class Model:
    """The constraint model of one problem. Times are ticks after ``not_before``. ``warm`` is a schedule to begin with:
    the search looks for a schedule that is not longer."""

    def __init__(self, given: Setting, warm: Schedule, cp_model: Any) -> None:
        self._cp = cp_model
        self.given = given
        self.problem = given.problem
        self._model: Any = cp_model.CpModel()
        self._warm = {a.node: a for a in warm.assignments}
        self._floor = given.problem.not_before
        self.tick = (warm.makespan - self._floor) / TICKS
        self.memory = [d.memory for d in given.problem.machine.devices]
        self._peers = given.problem.machine.peers
        self.timeline = Timeline(given.problem, given.table.seconds)  # fixed nodes, and the state of data after them
        count = len(given.view.before)
        self.start = [self._time(f"s{n}") for n in range(count)]
        self.end = [self._time(f"e{n}") for n in range(count)]
        self.on: list[dict[DeviceIndex, Any]] = []
        self.copies: list[PossibleCopy] = []
        self.needs: list[list[ModelContents]] = [[] for _ in range(count)]
        self._lanes: dict[tuple[bool, DeviceIndex], list[Any]] = {}  # by direction (down?) and device
        self._place_nodes()
        if given.contention:
            self._order_nodes()
            if given.table.moves:
                self._move_data()
        else:
            self._delay_edges()
        makespan = self._time("makespan")
        for end in self.end:
            self._model.add(makespan >= end)
        self._model.minimize(makespan)

    @property
    def size(self) -> int:
        """The most commands, and delays between them, on any path through a schedule; rounding loses a tick for
        each."""
        return 2 * (len(self.start) + len(self.copies) + 1)

    # pieces

    def _time(self, name: str) -> Any:
        return self._model.new_int_var(0, TICKS, name)

    def _ticks(self, seconds: float) -> int:
        """Return seconds as ticks, rounded down, with a margin for the division's error; infinite times are longer than
        any schedule."""
        return max(0, math.floor(min(seconds / self.tick, 2.0 * TICKS) - 1e-6))

    def at(self, seconds: float) -> int:
        """Return a given time in ticks; times before the beginning are 0."""
        return self._ticks(seconds - self._floor)

    def _given_that(self, constraint: Any, *literals: Any) -> None:
        conditions = [x for x in literals if x is not True]
        if conditions:
            constraint.only_enforce_if(conditions)

    def _place_nodes(self) -> None:
        view, model = self.given.view, self._model
        devices: list[list[Any]] = [[] for _ in self.memory]
        ends = {a.node: a.end for a in sorted(self.problem.fixed, key=lambda a: a.end)}  # the last of each node
        for node, places in enumerate(view.places):
            if node in ends:
                self.on.append({})
                model.add(self.start[node] == 0)
                model.add(self.end[node] == self.at(ends[node]))
                continue
            hint = self._warm[node]
            model.add_hint(self.start[node], self.at(hint.start))
            if places == (ON_HOST,):
                self.on.append({ON_HOST: True})
                model.add(self.end[node] == self.start[node])
                continue
            on = {d: model.new_bool_var(f"n{node}d{d}") for d in places}
            model.add_exactly_one(on.values())
            for d, literal in on.items():
                ticks = self._ticks(view.seconds[node][d])
                # Alternatives that share a variable for their end too make the solver (9.15) call solvable models
                # infeasible: the end of an interval stays an expression.
                devices[d].append(model.new_optional_fixed_size_interval_var(self.start[node], ticks, literal, ""))
                model.add(self.end[node] == self.start[node] + ticks).only_enforce_if(literal)
                model.add_hint(literal, hint.device == d)
            self.on.append(on)
        for device, intervals in enumerate(devices):
            for start, end in _union((a.start, a.end) for a in self.problem.fixed if a.device == device):
                first = self.at(start)
                intervals.append(model.new_fixed_size_interval_var(first, self.at(end) - first, ""))
            model.add_no_overlap(intervals)

    def _order_nodes(self) -> None:
        """Add dependences, with a handover between devices."""
        handover, model = self._ticks(self.problem.handover), self._model
        for node, before in enumerate(self.problem.graph.predecessors):
            for d, here in self.on[node].items():
                early = self.at(self.timeline.ready(node, d))  # fixed nodes
                self._given_that(model.add(self.start[node] >= early), here)
            for p in before:
                if not self.on[p] or not self.on[node]:
                    continue
                model.add(self.start[node] >= self.end[p])
                for d, here in self.on[node].items():
                    there = self.on[p].get(d)
                    if handover and not (d != ON_HOST and there is True):
                        away = True if d == ON_HOST or there is None else there.Not()
                        self._given_that(model.add(self.start[node] >= self.end[p] + handover), here, away)

    def _delay_edges(self) -> None:
        """Add the literature's delays."""
        view, model = self.given.view, self._model
        where = {a.node: a.device for a in self.problem.fixed}
        for node, edges in enumerate(view.before):
            for d, here in self.on[node].items():
                self._given_that(model.add(self.start[node] >= self.at(view.earliest[node][d])), here)
                for p, matrix in edges:
                    if p in where:
                        early = self.at(self._warm[p].end + matrix[where[p]][d])
                        self._given_that(model.add(self.start[node] >= early), here)
                    for a, there in self.on[p].items():
                        reached = model.add(self.start[node] >= self.end[p] + self._ticks(matrix[a][d]))
                        self._given_that(reached, there, here)

    # data, as the machine moves them

    def _move_data(self) -> None:
        readers: dict[tuple[BufferKey, int | None], list[int]] = {}
        writer: dict[BufferKey, int] = {}
        for node, task in enumerate(self.problem.graph.nodes):
            if not self.on[node]:
                continue
            for key in contents_needed(task):
                readers.setdefault((key, writer.get(key)), []).append(node)
            for key in task.writes:
                writer[key] = node
        for (key, made), nodes in readers.items():
            for contents in self._contents(key, made):
                for n in nodes:
                    self.needs[n].append(contents)
                self._bring(contents, nodes)
        for intervals in self._lanes.values():
            self._model.add_no_overlap(intervals)

    def _contents(self, key: BufferKey, made: int | None) -> Iterator[ModelContents]:
        """Yield the contents of a buffer that a node writes, or (None) those at the start."""
        memories = range(self.problem.machine.memories)
        if made is not None:
            at = {m: self._in(made, m) for m in memories}
            yield ModelContents(key, 0, self.problem.graph.buffers[key].nbytes, made, made, at, {})
            return
        for low, high, writer, places in self.timeline.intervals.of.get(key, ()):
            if places:
                yield ModelContents(key, low, high, writer, None, {m: m in places for m in memories}, places)

    def _in(self, node: int, memory: int) -> Any:
        """Return whether a node runs in a memory: True, False or a literal."""
        on = self.on[node]
        if ON_HOST in on:
            return memory == HOST
        mine = [literal for d, literal in on.items() if self.memory[d] == memory]
        if len(mine) == len(on) or not mine:
            return bool(mine)
        if len(mine) == 1:
            return mine[0]
        either = self._model.new_bool_var("")
        self._model.add_max_equality(either, mine)
        return either

    def _after_makers(self, copy: PossibleCopy) -> None:
        """Let a copy begin when its lane's device knows that the contents are in the source."""
        contents, model = copy.contents, self._model
        if contents.made is None:
            end, heard, device, _ = self.timeline.made(contents.known.get(copy.source, INITIAL))
            model.add(copy.begin >= self.at(end if device == copy.lane else heard)).only_enforce_if(copy.present)
            return
        end, handover = self.end[contents.made], self._ticks(self.problem.handover)
        for d, there in self.on[contents.made].items():
            if (HOST if d == ON_HOST else self.memory[d]) == copy.source:
                known = end if d == copy.lane else end + handover
                self._given_that(model.add(copy.begin >= known), there, copy.present)

    def _bring(self, contents: ModelContents, readers: Sequence[int]) -> None:
        """Add the copies of some contents: down from the memory where they are, and up to where they are needed; or
        between memories with a link."""
        model, at = self._model, contents.at
        handover = self._ticks(self.problem.handover)
        needs = {m: [(n, here) for n in readers if (here := self._in(n, m)) is not False] for m in at}
        downs: list[PossibleCopy] = []
        for m in at if at[HOST] is not True else ():
            if m != HOST and any(needs[o] for o in at if o != m):
                downs += self._copy_from(contents, m, HOST)
        for m, nodes in needs.items():
            if at[m] is True or not nodes:
                continue
            already = [x for x in (at[HOST], at[m]) if x is not False and x is not True]
            ups = self._copy_once(contents, HOST, m) if m != HOST else []
            direct = [c for a in at if (a, m) in self._peers for c in self._copy_from(contents, a, m)]
            for up in ups:
                for c in downs:
                    self._given_that(model.add(up.begin >= c.end + handover), c.present, up.present)
            for n, here in nodes:
                absent = [] if here is True else [here.Not()]
                if at[HOST] is not True:
                    sent = [c.present for c in (*downs, *direct) if c.source != m]
                    model.add_bool_or([*sent, *already, *absent])
                if m != HOST:
                    there = [at[m]] if at[m] is not False else []
                    model.add_bool_or([*(c.present for c in (*ups, *direct)), *there, *absent])
                for c in (*(ups or downs), *direct):
                    for d, on in self.on[n].items():
                        if (HOST if d == ON_HOST else self.memory[d]) == m:
                            known = c.end if d == c.lane else c.end + handover
                            self._given_that(model.add(self.start[n] >= known), on, c.present)

    def _copy_from(self, contents: ModelContents, source: int, target: int) -> list[PossibleCopy]:
        """Add a copy from a memory, if contents may be there."""
        there = contents.at[source]
        copies = self._copy_once(contents, source, target) if there is not False else []
        for copy in copies if there is not True else ():
            self._model.add_implication(copy.present, there)
        return copies

    def duration(self, contents: ModelContents, source: int, target: int) -> int:
        """Return the ticks of a copy."""
        return self._ticks(self.problem.estimates.transfer(contents.high - contents.low, source, target))

    def _copy_once(self, contents: ModelContents, source: int, target: int) -> list[PossibleCopy]:
        """Add a copy that may have to be made, by one of the devices with that memory."""
        model, made = self._model, []
        memory = source if target == HOST else target
        for lane in (d for d, described in self.problem.machine.numbered() if described.memory == memory):
            ticks, begin = self.duration(contents, source, target), self._time("")
            copy = PossibleCopy(contents, source, target, lane, model.new_bool_var(""), begin, begin + ticks)
            interval = model.new_optional_fixed_size_interval_var(begin, ticks, copy.present, "")
            self._lanes.setdefault((target == HOST, lane), []).append(interval)
            self._after_makers(copy)
            made.append(copy)
        if len(made) > 1:
            model.add_at_most_one([c.present for c in made])
        self.copies += made
        return made

    # the answer

    def solve(self, effort: float, workers: int) -> Answer:
        """Run the solver; ``effort``: CP-SAT's deterministic time, at most."""
        solver = self._cp.CpSolver()
        solver.parameters.max_deterministic_time = effort
        solver.parameters.num_workers = workers
        status = solver.solve(self._model)
        name = str(solver.status_name(status)).lower()
        if status not in (self._cp.OPTIMAL, self._cp.FEASIBLE):
            # there is a schedule to begin with, so if the status is infeasible the solver is wrong: nothing is proven
            return Answer(name, None, self._floor)
        bound = self._floor + max(0.0, solver.best_objective_bound) * self.tick
        return Answer(name, solver, bound)


def _union(intervals: Iterator[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the union of intervals, as intervals that do not overlap."""
    out: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out
