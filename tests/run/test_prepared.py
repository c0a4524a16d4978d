"""Prepared graphs keep their plan once the policy knows all that it will."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from manycl.front.program import Program
from manycl.front.queue import Queue
from manycl.plan.plan import Plan
from manycl.plan.policies.in_order import InOrder
from manycl.plan.problem import Problem
from manycl.run.engine import Result
from manycl.run.prepared import PLANNED_RUNS, POSTPONED_RUNS, PreparedGraph


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
        Program("kernel void up(global int *x) { x[get_global_id(0)] += 1; }").up(queue, (64,), (8,), x)
        policy = Later(knows)
        prepared = PreparedGraph(queue.session, queue.take(), policy)
        for _ in range(40):
            prepared.run()
        assert policy.asked == asked
        assert prepared.plan is not None
        assert (x.get() == 40).all()


def test_the_plan_that_ran_fastest_is_kept() -> None:
    """Not the last one that was made."""
    with Queue("cpu/2") as queue:
        x = queue.array(np.zeros(64, np.int32))
        Program("kernel void up(global int *x) { x[get_global_id(0)] += 1; }").up(queue, (64,), (8,), x)
        queue.call(lambda a: time.sleep(next(pauses)), x)
        pauses = itertools.chain([0.2, 0.1, 0.0, 0.1], itertools.repeat(0.0))
        made: list[Plan] = []

        class Remembers:
            def plan(self, problem: Problem) -> Plan:
                assert problem.repeated
                made.append(InOrder().plan(problem))
                return made[-1]

        prepared = PreparedGraph(queue.session, queue.take(), Remembers())
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
        Program(text).up(queue, (64,), (8,), x, y)
        graph = queue.take()

        def brought(run: Callable[[], Result]) -> set[str]:
            for array in (x, y):
                array.set(np.full(64, 3, np.int32))
            names = {t.name for t in run().trace.transfers() if t.source == "host"}
            assert (y.get() == 4).all()
            return names

        assert brought(lambda: queue.session.run(graph, InOrder())) == {"x", "y"}
        prepared = PreparedGraph(queue.session, graph, InOrder())
        assert all(brought(prepared.run) == {"x"} for _ in range(PLANNED_RUNS + 2))


def test_times_are_rehearsed_with_once_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second planning of a prepared graph on, with the data where they are; never of one that runs once."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    found: list[Problem] = []

    class Remembers:
        def plan(self, problem: Problem) -> Plan:
            found.append(problem)
            return InOrder().plan(problem)

    with Queue("cpu/2#0") as queue:
        x = queue.array(np.zeros(1 << 16, np.int32))
        Program("kernel void up(global int *x) { x[get_global_id(0)] += 1; }").up(queue, (1 << 16,), (8,), x)
        graph = queue.take()
        queue.session.run(graph, Remembers())
        assert found.pop().rehearse is None
        prepared = PreparedGraph(queue.session, graph, Remembers())
        for _ in range(PLANNED_RUNS):
            prepared.run()
            if (rehearse := found[-1].rehearse) is not None:
                there = rehearse(InOrder().plan(found[-1]))
                x.set(np.zeros(1 << 16, np.int32))
                after = rehearse(InOrder().plan(found[-1]))
                assert 0.0 < there < after, "with a transfer"
                prepared.session.host(x.buffer.key)
    assert [p.rehearse is not None for p in found] == [False, True, True, True]
    monkeypatch.setenv("MANYCL_ZERO_COPY", "1")
    found.clear()
    with Queue("cpu/2") as queue:
        x = queue.array(np.zeros(64, np.int32))
        Program("kernel void up(global int *x) { x[get_global_id(0)] += 1; }").up(queue, (64,), (8,), x)
        prepared = PreparedGraph(queue.session, queue.take(), Remembers())
        for _ in range(2):
            prepared.run()
    assert all(p.rehearse is None for p in found), "there is no link"
