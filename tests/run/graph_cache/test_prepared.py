"""Prepared graphs keep their plan once the policy knows all that it will."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from manycl.api.program import Program
from manycl.api.queue import Queue
from manycl.errors import ArgumentError
from manycl.graph.graph import BufferKey
from manycl.machine import DeviceIndex
from manycl.plan.foreseen import how_many
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policies.classical.in_order import InOrder
from manycl.plan.problem import Problem
from manycl.run.engine.result import Result
from manycl.run.executor.transfers import TransferLanes
from manycl.run.graph_cache.autotuner import PLANNED_RUNS, POSTPONED_RUNS
from manycl.run.graph_cache.cached_graph import CachedGraph
from manycl.run.recovery.health import arrange
from manycl.trace import TransferEvent

UP = "kernel void up(global int *x) { x[get_global_id(0)] += 1; }"


class Later:
    """Says that it will know more from the n-th time on."""

    def __init__(self, knows: int) -> None:
        self.asked = 0
        self.knows = knows

    def plan(self, problem: Problem) -> Plan:
        self.asked += 1
        plan = InOrder().plan(problem)
        return replace(plan, details={**plan.details, **({} if self.asked >= self.knows else {"postponed": True})})


@pytest.mark.parametrize(("knows", "asked"), [(1, 4), (2, 5), (5, 8), (10**6, POSTPONED_RUNS + 3)])
def test_plans_that_are_postponed_are_not_kept(knows: int, asked: int) -> None:
    with Queue("cpu/2") as queue:
        x = queue.array(np.zeros(64, np.int32))
        with queue.prepare() as enqueued:
            Program(UP).up(queue, (64,), (8,), x)
        policy = Later(knows)
        prepared = CachedGraph(queue.session, enqueued.graph, policy)
        for _ in range(40):
            prepared.run()
        assert policy.asked == asked
        assert prepared.plan is not None
        assert (x.get() == 40).all()


def test_the_plan_that_ran_fastest_is_kept() -> None:
    """Not the last one that was made."""
    with Queue("cpu/2") as queue:
        x = queue.array(np.zeros(64, np.int32))
        with queue.prepare() as enqueued:
            Program(UP).up(queue, (64,), (8,), x)
            queue.call(lambda a: time.sleep(next(pauses)), x)
        pauses = itertools.chain([0.2, 0.1, 0.0, 0.1], itertools.repeat(0.0))
        made: list[Plan] = []

        class Remembers:
            def plan(self, problem: Problem) -> Plan:
                assert problem.repeated
                (kernel, call), device = InOrder().plan(problem).assignments, DeviceIndex(len(made) % 2)
                kernel = kernel._replace(device=device, queue=len(made) // 2)
                made.append(Plan((kernel, call), "turns", queue.devices, 0.0))
                return made[-1]

        prepared = CachedGraph(queue.session, enqueued.graph, Remembers(), queues={"cpu": 2})
        for _ in range(6):
            prepared.run()
        assert len(made) == PLANNED_RUNS
        assert prepared.plan is made[2]


def test_a_graph_that_is_repeated_looks_at_small_arrays_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its kernels write all of is not brought, however soon that would be done."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    with Queue("cpu/2#0") as queue:
        x, y = (queue.array(np.ones(64, np.int32), name=name) for name in "xy")
        text = "kernel void up(global const int *x, global int *y) { y[get_global_id(0)] = x[get_global_id(0)] + 1; }"
        with queue.prepare() as enqueued:
            Program(text).up(queue, (64,), (8,), x, y)
        graph = enqueued.graph

        def brought(run: Callable[[], Result]) -> set[str]:
            for array in (x, y):
                array.set(np.full(64, 3, np.int32))
            names = {t.name for t in run().trace.transfers() if t.source == "host"}
            assert (y.get() == 4).all()
            return names

        assert brought(lambda: queue.session.run(graph, InOrder())) == {"x", "y"}
        prepared = CachedGraph(queue.session, graph, InOrder())
        assert all(brought(prepared.run) == {"x"} for _ in range(PLANNED_RUNS + 2))


def test_where_a_run_has_left_what_nobody_reads_of_it_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning a graph again: what its kernels write all of need not be brought, what they change or read must be."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    text = """
kernel void twice(global const int *x, global int *y) { y[get_global_id(0)] = 2 * x[get_global_id(0)]; }
kernel void add(global const int *y, global int *z) { z[get_global_id(0)] += y[get_global_id(0)]; }"""
    found: list[Problem] = []

    class Remembers:
        def plan(self, problem: Problem) -> Plan:
            found.append(problem)
            return InOrder().plan(problem)

    with Queue("cpu/2") as queue:
        x, y, z = (queue.array(np.ones(1 << 10, np.int32), name=name) for name in "xyz")
        program = Program(text)
        with queue.prepare() as enqueued:
            program.twice(queue, (1 << 10,), (8,), x, y)
            program.add(queue, (1 << 10,), (8,), y, z)
        prepared = CachedGraph(queue.session, enqueued.graph, Remembers())
        for _ in range(2):
            prepared.run()
        home = found[1].valid[z.buffer.key]
        assert home
        assert [bool(found[1].valid[array.buffer.key]) for array in (x, y, z)] == [True, False, True]
        queue.session.run(prepared.graph, Remembers())
        assert found[2].valid[y.buffer.key], "of a graph that runs once nothing is looked at"
        assert (z.get() == 7).all()


def test_plans_are_foreseen_with_times_once_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second planning of a prepared graph on, with the data where they are; of one that runs once, as far as
    that is worth it (:func:`manycl.plan.foreseen.how_many`)."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    found: list[Problem] = []

    class Remembers:
        def plan(self, problem: Problem) -> Plan:
            found.append(problem)
            return InOrder().plan(problem)

    with Queue("cpu/2#0") as queue:
        x = queue.array(np.zeros(1 << 16, np.int32))
        with queue.prepare() as enqueued:
            Program(UP).up(queue, (1 << 16,), (8,), x)
        graph = enqueued.graph
        queue.session.run(graph, Remembers())
        once = found.pop()
        assert once.foresee is not None
        assert how_many(once, 1e-4) == 0
        prepared = CachedGraph(queue.session, graph, Remembers())
        for _ in range(PLANNED_RUNS):
            prepared.run()
            if (foresee := found[-1].foresee) is not None:
                there = foresee(InOrder().plan(found[-1]))
                x.set(np.zeros(1 << 16, np.int32))
                after = foresee(InOrder().plan(found[-1]))
                assert 0.0 < there.makespan <= after.makespan
                moved = [any(isinstance(e, TransferEvent) for e in plan.events) for plan in (there, after)]
                assert moved == [False, True]
                prepared.session.buffers.host(x.buffer.key)
    assert [p.foresee is not None for p in found] == [False, True, True, True]
    monkeypatch.setenv("MANYCL_ZERO_COPY", "1")
    found.clear()
    with Queue("cpu/2") as queue:
        x = queue.array(np.zeros(64, np.int32))
        with queue.prepare() as enqueued:
            Program(UP).up(queue, (64,), (8,), x)
        prepared = CachedGraph(queue.session, enqueued.graph, Remembers())
        for _ in range(2):
            prepared.run()
    assert all(p.foresee is None for p in found), "there is no link"


@pytest.mark.parametrize("zero_copy", ["1", "0"])
def test_only_what_somebody_learns_from_is_timed(zero_copy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a queue whose clocks are on while it learns: by a command buffer (nothing moves), by commands (data do)."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", zero_copy)
    data = np.zeros(1 << 12, np.int32)
    with Queue("cpu/2", profile="learning") as queue:
        x, y = queue.array(data), queue.array(data)
        with queue.prepare() as prepared:
            Program(UP).up(queue, data.shape, (8,), x)
        kept = CachedGraph(queue.session, prepared.graph, "in_order")
        with queue.prepare() as prepared:
            Program(UP).up(queue, data.shape, (8,), y)
        learns = CachedGraph(queue.session, prepared.graph, "adaptive")
        timed = []
        for turn in range(40):
            x.set(data + turn)
            result = kept.run()
            assert (x.get() == turn + 1).all()
            timed.append(bool(list(result.measured())))
            assert list(learns.run().measured())
        assert (y.get() == 40).all()
    assert timed[:PLANNED_RUNS] == [True] * PLANNED_RUNS
    assert sum(timed) < len(timed)
    assert zero_copy == "0" or sum(timed) == PLANNED_RUNS


@pytest.mark.parametrize(("profile", "timed"), [(True, True), (False, False)])
def test_clocks_are_on_or_off_as_they_were_asked_for(profile: bool, timed: bool) -> None:
    with Queue("cpu/2", profile=profile) as queue:
        x = queue.array(np.zeros(1 << 12, np.int32))
        with queue.prepare() as enqueued:
            Program(UP).up(queue, (1 << 12,), (8,), x)
        prepared = CachedGraph(queue.session, enqueued.graph, "in_order")
        assert {bool(list(prepared.run().measured())) for _ in range(10)} == {timed}


@pytest.mark.parametrize("profile", ["learn", "", 2])
def test_what_profile_may_be_is_said(profile: Any) -> None:
    with pytest.raises(ArgumentError, match="profile is True or False or 'learning' or None"):
        Queue("cpu/2", profile=profile)


def test_what_is_moved_is_found_once_for_graphs_that_run_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    asked: list[object] = []
    find = TransferLanes._rows

    def counted(self: TransferLanes, keys: tuple[BufferKey, ...]) -> object:
        if keys not in self._joined:
            asked.append(keys)
        return find(self, keys)

    monkeypatch.setattr(TransferLanes, "_rows", counted)
    data = np.zeros(1 << 12, np.int32)
    with Queue("cpu/2") as queue:
        x = queue.array(data)
        graphs = []
        for _ in range(2):
            with queue.prepare() as enqueued:
                Program(UP).up(queue, data.shape, (8,), x)
            graphs.append(enqueued.graph)
        plan = Plan((Assignment(0, 0, 0, 0.0, 0.0),), "given", queue.devices, 0.0)
        prepared = [CachedGraph(queue.session, graph, plan) for graph in graphs]
        found = []
        for turn in range(4):
            for p in prepared:
                x.set(data + turn)
                p.run()
                assert (x.get() == turn + 1).all()
            found.append(len(asked))
    assert found[0] > 0
    assert found[-1] == found[0]


class InTurns:
    """Learns, and says after every repetition of a plan that it would now run elsewhere."""

    def __init__(self) -> None:
        self.repeated = self.planned = 0

    def plan(self, problem: Problem) -> Plan:
        self.repeated, self.planned = 0, self.planned + 1
        names = tuple(d.name for d in problem.machine.devices)
        return Plan((Assignment(0, self.planned % 2, 0, 0.0, 0.0),), f"plan {self.planned}", names, 0.0)

    def observe(self, graph: object, durations: object, waits: object = None) -> None:
        self.repeated += 1

    def settled(self, graph: object) -> bool:
        return self.repeated < 3


@pytest.mark.parametrize("zero_copy", ["1", "0"])
def test_what_was_kept_of_one_plan_is_not_played_for_another(zero_copy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a command buffer (nothing moves) nor its commands (data do)."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", zero_copy)
    data = np.zeros(1 << 12, np.int32)
    with Queue("cpu/2") as queue:
        x = queue.array(data)
        with queue.prepare() as enqueued:
            Program(UP).up(queue, data.shape, (8,), x)
        policy = InTurns()
        prepared = CachedGraph(queue.session, enqueued.graph, policy)
        for turn in range(13):
            x.set(data + turn)
            result = prepared.run()
            assert {k.device for k in result.trace.kernels()} == {queue.devices[policy.planned % 2]}
            assert (x.get() == turn + 1).all()
        assert policy.planned == 5


def test_where_devices_have_changed_a_prepared_graph_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    with Queue("cpu/2#0-1") as queue:
        x = queue.array(np.zeros(64, np.int32))
        with queue.prepare() as enqueued:
            Program(UP).up(queue, (64,), (8,), x)
        prepared = CachedGraph(queue.session, enqueued.graph, InOrder())
        names = [d.name for d in queue.session.machine.devices]
        for _ in range(PLANNED_RUNS + 1):
            prepared.run()
        assert prepared.plan is not None
        x.get()
        queue.session.devices.excluded[names[1]] = "it is tired"
        arrange(queue.session.devices, queue.session.directory)
        assert [d.name for d in queue.session.machine.devices] == names[:1]
        prepared.run()
        assert prepared.plan is None, "it is asked anew"
        assert (x.get() == PLANNED_RUNS + 2).all()


def test_of_long_runs_nothing_is_done_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is decided as it goes, for as long as they are long."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    with Queue("cpu/2#0") as queue:
        x = queue.array(np.zeros(64, np.int32))
        with queue.prepare() as enqueued:
            Program(UP).up(queue, (64,), (8,), x)
        session, decided = queue.session, []
        run = session.run

        def noted(*given: Any, **more: Any) -> Result:
            decided.append(given)
            return run(*given, **more)

        monkeypatch.setattr(session, "run", noted)
        prepared = CachedGraph(session, enqueued.graph, InOrder())
        with monkeypatch.context() as patch:
            patch.setattr("manycl.run.graph_cache.cached_graph.at_once", lambda problem: 0.0)
            for _ in range(PLANNED_RUNS + 2):
                prepared.run()
        assert len(decided) == PLANNED_RUNS + 2
        prepared.run()
        prepared.run()
        assert len(decided) == PLANNED_RUNS + 3
        assert (x.get() == PLANNED_RUNS + 4).all()
