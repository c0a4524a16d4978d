"""``optimal``: the shortest schedule of whole kernels, or how far from it one can be, by constraint programming.

One kernel at a time on a device; transfers as in the option ``contention``: the engine's (by the host, one upload and
one download queue a device, as in ``plan/timeline.py``) or the literature's (``plan/delays.py``). OR-Tools' CP-SAT
solves the model in whole ticks, a hundred millionth of the best heuristic's makespan; every duration is rounded up,
so its schedules hold as they are, and the bound that is told allows for every one of the ticks so gained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from manycl.errors import PolicyError
from manycl.machine import HOST
from manycl.plan.delays import lower_bound
from manycl.plan.insertion import Setting, setting
from manycl.plan.local_search import Search
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.policies import portfolio
from manycl.plan.policy import register
from manycl.plan.problem import Problem
from manycl.plan.timeline import Schedule
from manycl.trace import TransferEvent

TICKS = 10**8
"""Of the makespan that the search begins with."""
TIME_LIMIT = 10.0
"""Seconds of search, where no option says otherwise."""


@register("optimal")
class Optimal:
    """CP-SAT from the portfolio's plan on; options ``contention``, ``time_limit`` (seconds), ``workers`` (threads)."""

    def plan(self, problem: Problem) -> Plan:
        given = setting(problem, "optimal", ("time_limit", "workers"))
        limit, workers = _limits(problem.options)
        warm, _ = portfolio.schedule(given)
        bound = max(problem.not_before, lower_bound(given.view, range(len(problem.machine.devices))))
        if warm.makespan <= bound * (1 + 1e-12):
            return given.plan("optimal", warm, proven=True, bound=warm.makespan, gap=0.0, status="bound reached")
        model = _Model(given, warm)
        status, proven, found, solved_bound = model.solve(limit, workers)
        bound = min(max(bound, solved_bound), warm.makespan)
        best = min((s for s in (warm, found) if s is not None), key=lambda s: s.makespan)
        gap = (best.makespan - bound) / max(best.makespan - problem.not_before, 1e-300)
        return given.plan("optimal", best, proven=proven, bound=min(bound, best.makespan), gap=gap, status=status)


def _limits(options: Mapping[str, str]) -> tuple[float, int]:
    try:
        limit = float(options.get("time_limit", TIME_LIMIT))
        if not 0 < limit < math.inf:
            raise ValueError
    except ValueError:
        raise PolicyError(f"option time_limit={options['time_limit']}: expected seconds above zero") from None
    workers = options.get("workers", "0")
    if not workers.isdecimal() or len(workers) > 3:
        raise PolicyError(f"option workers={workers}: expected a number of threads (0: all)")
    return limit, int(workers)


class _Model:
    """The constraint model of one problem. Times are ticks after ``not_before``."""

    def __init__(self, given: Setting, warm: Schedule) -> None:
        try:
            from ortools.sat.python import cp_model
        except ImportError:
            raise PolicyError("policy optimal needs OR-Tools", hint="pip install 'manycl[optimal]'") from None
        self._cp = cp_model
        self._given = given
        self._problem = given.problem
        self._model: Any = cp_model.CpModel()
        self._warm = sorted(warm.assignments)
        self._floor = given.problem.not_before
        self._tick = (warm.makespan - self._floor) / TICKS
        self._memory = [d.memory for d in given.problem.machine.devices]
        view = given.view
        self._horizon = TICKS + 8 * len(view.before) * (2 + len(self._memory)) + 8
        self._start = [self._time(f"s{n}") for n in range(len(view.before))]
        self._end = [self._time(f"e{n}") for n in range(len(view.before))]
        self._on: list[dict[int, Any]] = []
        self._moves: list[tuple[int, int, int, Any, Any, float]] = []  # buffer, source, target, present, start, s
        self._lanes: dict[tuple[str, int], list[Any]] = {}
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

    # pieces

    def _time(self, name: str) -> Any:
        return self._model.new_int_var(0, self._horizon, name)

    def _ticks(self, seconds: float) -> int:
        """Rounded up by at most two, unless nothing; what lasts for ever is longer than all there is."""
        return min(math.ceil(min(seconds / self._tick, self._horizon)), self._horizon) + 1 if seconds > 0 else 0

    def _at(self, seconds: float, rounded: Callable[[float], int]) -> int:
        """A time that is given; what was before everything is at its beginning."""
        return max(0, rounded((seconds - self._floor) / self._tick))

    def _both(self, *literals: Any) -> list[Any]:
        """Conditions for a constraint, without those that are always true."""
        return [x for x in literals if x is not True]

    def _place_nodes(self) -> None:
        view, model = self._given.view, self._model
        devices: list[list[Any]] = [[] for _ in self._memory]
        fixed = {a.node: a for a in self._problem.fixed}
        for node, places in enumerate(view.places):
            if node in fixed:
                self._on.append({fixed[node].device: True})
                model.add(self._start[node] == self._at(fixed[node].start, math.floor))
                model.add(self._end[node] == self._at(fixed[node].end, math.ceil))
                continue
            if places == (ON_HOST,):
                self._on.append({ON_HOST: True})
                model.add(self._end[node] == self._start[node])
                continue
            on = {d: model.new_bool_var(f"n{node}d{d}") for d in places}
            model.add_exactly_one(on.values())
            for d, literal in on.items():
                ticks = self._ticks(view.seconds[node][d])
                interval = model.new_optional_interval_var(self._start[node], ticks, self._end[node], literal, "")
                devices[d].append(interval)
                model.add_hint(literal, self._warm[node].device == d)
            self._on.append(on)
            model.add_hint(self._start[node], round((self._warm[node].start - self._floor) / self._tick))
        for device, busy in enumerate(self._given.board().gaps[:-1]):
            for start, end in zip(busy.starts, busy.ends, strict=True):
                first, last = self._at(start, math.floor), self._at(end, math.ceil)
                devices[device].append(model.new_fixed_size_interval_var(first, last - first, ""))
        for intervals in devices:
            model.add_no_overlap(intervals)

    def _order_nodes(self) -> None:
        """Dependences; between devices a handover more."""
        handover = self._ticks(self._problem.handover)
        for node, before in enumerate(self._problem.graph.predecessors):
            for p in before if node not in self._given.fixed else ():
                self._model.add(self._start[node] >= self._end[p])
                if not handover:
                    continue
                for d, here in self._on[node].items():
                    there = self._on[p].get(d)
                    if d != ON_HOST and there is True:
                        continue
                    away = True if d == ON_HOST or there is None else there.Not()
                    conditions = self._both(here, away)
                    self._model.add(self._start[node] >= self._end[p] + handover).only_enforce_if(conditions)

    def _delay_edges(self) -> None:
        """The literature's delays."""
        view = self._given.view
        for node, edges in enumerate(view.before):
            if node in self._given.fixed:
                continue
            for d, here in self._on[node].items():
                early = self._ticks(view.earliest[node][d] - self._floor)
                if early:
                    self._model.add(self._start[node] >= early).only_enforce_if(self._both(here))
            for p, matrix in edges:
                self._model.add(self._start[node] >= self._end[p])
                for a, there in self._on[p].items():
                    for b, here in self._on[node].items():
                        ticks = self._ticks(matrix[a][b])
                        if ticks:
                            reached = self._model.add(self._start[node] >= self._end[p] + ticks)
                            reached.only_enforce_if(self._both(there, here))

    # data, the engine's way

    def _move_data(self) -> None:
        graph = self._problem.graph
        readers: dict[tuple[int, int], list[int]] = {}
        writer: dict[int, int] = {}
        for node, task in enumerate(graph.nodes):
            for key in dict.fromkeys((*task.reads, *task.writes)):
                if node not in self._given.fixed and (key in writer or self._problem.valid.get(key)):
                    readers.setdefault((key, writer.get(key, -1)), []).append(node)
            for key in task.writes:
                writer[key] = node
        for (key, source), nodes in readers.items():
            self._version(key, source, nodes)
        for (direction, memory), intervals in self._lanes.items():
            uploads = self._memory.count(memory) if direction == "up" else 1
            if uploads == 1:
                self._model.add_no_overlap(intervals)
            else:
                self._model.add_cumulative(intervals, [1] * len(intervals), uploads)

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

    def _version(self, key: int, writer: int, readers: Sequence[int]) -> None:
        """The contents that one node gave a buffer (``writer`` -1: those it has at the start), and who needs them."""
        problem, model = self._problem, self._model
        nbytes = problem.graph.buffers[key].nbytes
        memories = range(problem.machine.memories)
        handover = self._ticks(problem.handover)
        if writer >= 0:
            at = {m: self._in(writer, m) for m in memories}
            written = self._end[writer]
        else:
            places = problem.valid[key]
            # the engine fetches what the host has not from the first memory that has it
            at = {m: m in places for m in memories}
            if HOST not in places:
                fetched = min(places)
            written = 0
        sendable = model.new_int_var(0, self._horizon + handover, "")
        if at[HOST] is not False:
            model.add(sendable >= (written + handover if writer >= 0 else 0)).only_enforce_if(self._both(at[HOST]))
        needs = {m: [(n, here) for n in readers if (here := self._in(n, m)) is not False] for m in memories}
        downloads: list[tuple[Any, Any]] = []
        for m in memories:
            if m == HOST or at[m] is False or at[HOST] is True or (writer < 0 and m != fetched):
                continue
            elsewhere = [(n, here) for o in memories if o != m and at[o] is not True for n, here in needs[o]]
            if not elsewhere:
                continue
            present, begin, end = self._transfer(key, m, HOST, problem.estimates.transfer(nbytes, m, HOST))
            for _, here in elsewhere:
                model.add(present == 1).only_enforce_if(self._both(at[m], here))
            model.add(begin >= written + handover).only_enforce_if(present)
            model.add(sendable >= end + handover).only_enforce_if(self._both(at[m], present))
            downloads.append((at[m], end))
        for n, here in needs[HOST]:
            for there, end in downloads:
                model.add(self._start[n] >= end + handover).only_enforce_if(self._both(there, here))
        for m in memories:
            if m == HOST or at[m] is True or not needs[m]:
                continue
            present, begin, end = self._transfer(key, HOST, m, problem.estimates.transfer(nbytes, HOST, m))
            away = True if at[m] is False else at[m].Not()
            model.add(begin >= sendable).only_enforce_if(present)
            for n, here in needs[m]:
                model.add(present == 1).only_enforce_if(self._both(away, here))
                model.add(self._start[n] >= end).only_enforce_if(self._both(away, here))

    def _transfer(self, key: int, source: int, target: int, seconds: float) -> tuple[Any, Any, Any]:
        """A copy that may have to be made: whether it is, its start and its end."""
        model = self._model
        present, begin, end = model.new_bool_var(""), self._time(""), self._time("")
        interval = model.new_optional_interval_var(begin, self._ticks(seconds), end, present, "")
        lane = ("up", target) if source == HOST else ("down", source)
        self._lanes.setdefault(lane, []).append(interval)
        self._moves.append((key, source, target, present, begin, seconds))
        return present, begin, end

    # the answer

    def solve(self, limit: float, workers: int) -> tuple[str, bool, Schedule | None, float]:
        """Status in words, whether it is a proof, the schedule, and seconds that no schedule is below."""
        solver = self._cp.CpSolver()
        solver.parameters.max_time_in_seconds = limit
        solver.parameters.num_workers = workers
        status = solver.solve(self._model)
        name = str(solver.status_name(status)).lower()
        # a path through the schedule has every node and transfer once, and between two of them one delay
        rounded = 4 * (len(self._start) + len(self._moves) + 1)
        bound = self._floor + max(0.0, solver.best_objective_bound - rounded) * self._tick
        if status not in (self._cp.OPTIMAL, self._cp.FEASIBLE):
            assert status == self._cp.UNKNOWN, f"the model is {name}, but the heuristics have a schedule"
            return name, False, None, self._floor
        return name, status == self._cp.OPTIMAL, self._read(solver), bound

    def _read(self, solver: Any) -> Schedule:
        """The schedule: with exact times where placing the nodes in its order gives the same, else in ticks."""
        view = self._given.view
        where = [
            next(d for d, literal in on.items() if literal is True or solver.boolean_value(literal)) for on in self._on
        ]
        start = [self._floor + solver.value(s) * self._tick for s in self._start]
        end = [s + view.seconds[n][where[n]] for n, s in enumerate(start)]
        fixed, version = {a.node: a for a in self._problem.fixed}, self._problem.version
        members = [
            fixed.get(n) or Assignment(n, d, 0, start[n], end[n], version=0 if d == ON_HOST else version(n, d))
            for n, d in enumerate(where)
        ]
        members.sort(key=lambda a: (a.start, a.end, a.node))
        makespan = max((a.end for a in members), default=self._floor)
        exact = Search(self._given, 0, 0).board([a.node for a in members], where).schedule()
        if exact.makespan <= makespan:
            return exact
        machine, buffers = self._problem.machine, self._problem.graph.buffers
        events = []
        for key, source, target, present, begin, seconds in self._moves:
            if solver.boolean_value(present):
                at = self._floor + solver.value(begin) * self._tick
                ends = machine.memory_name(source), machine.memory_name(target)
                name, size = buffers[key].name or f"buffer {key}", buffers[key].nbytes
                events.append(TransferEvent(key, name, *ends, size, at, at + seconds))
        return Schedule(members, makespan, tuple(sorted(events, key=lambda e: e.start)))
