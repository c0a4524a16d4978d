"""A plan of any static policy holds: its judge agrees with what it estimates, and with what the engine takes for it on
the simulated machine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import HostTask
from manycl.machine import HOST, Device, Machine
from manycl.plan.plan import Plan
from manycl.plan.policy import StaticPolicy, find
from manycl.plan.problem import Problem
from manycl.plan.verification.verify import verify
from manycl.run.simulation.foresee import with_times
from manycl.run.simulation.simulate import simulate
from manycl.trace import TransferEvent
from tests.plan.plan_cases import Table, begun, launch, machine, problem, problems
from tests.plan.split_cases import split_problems

OPTIONS = {
    "auto": {"budget": "0.005"},
    "portfolio": {"effort": "300"},
    "optimal": {"effort": "0.1"},
}
LIST = ("in_order", "auto", "cpop", "peft", "portfolio")
STATIC = (*LIST, "mkmd_coarse", "mkmd", "balance")


def planned(name: str, p: Problem) -> Plan:
    """A policy's plan, judged."""
    policy = find(name)
    assert isinstance(policy, StaticPolicy)
    asked = replace(p, options=OPTIONS.get(name, {}))
    plan = policy.plan(asked)
    verify(plan, p.graph, p.machine, asked)
    return plan


def holds(name: str, p: Problem) -> Plan:
    """The plan as it is foreseen, judged as well; of a partial schedule, which cannot be simulated, as it is."""
    plan = planned(name, p)
    if p.fixed:
        return plan
    found = with_times(p, plan, simulate(p, plan))
    verify(found, p.graph, p.machine, p)
    assert [a[:3] + a[5:] for a in found.assignments] == [a[:3] + a[5:] for a in plan.assignments]
    assert Plan.from_json(found.to_json()) == replace(found, events=())
    return found


@pytest.mark.parametrize("name", STATIC)
@settings(max_examples=40, deadline=None)
@given(p=problems())
def test_plans_hold(name: str, p: Problem) -> None:
    holds(name, p)


@pytest.mark.parametrize("name", STATIC)
@settings(max_examples=40, deadline=None)
@given(p=split_problems())
def test_also_where_devices_share_memories(name: str, p: Problem) -> None:
    holds(name, p)


@st.composite
def later(draw: Any, base: st.SearchStrategy[Problem]) -> Problem:
    """A problem of which a part is fixed: past, under way, and for the future."""
    p = draw(base)
    first = find(draw(st.sampled_from(["in_order", "auto", "mkmd_coarse", "mkmd", "balance"])))
    assert isinstance(first, StaticPolicy)
    plan = first.plan(p)
    length = plan.makespan - p.not_before
    now = p.not_before + draw(st.floats(0.0, 1.1)) * length
    return begun(p, plan, now, draw(st.sampled_from([0.0, 0.3])) * length)


@pytest.mark.parametrize("name", STATIC)
@settings(max_examples=40, deadline=None)
@given(p=later(st.one_of(problems(), split_problems())))
def test_planning_goes_on_from_any_partial_schedule(name: str, p: Problem) -> None:
    plan = holds(name, p)
    assert set(p.fixed) <= set(plan.assignments)
    fresh = [a for a in plan.assignments if a not in set(p.fixed)]
    assert all(a.start >= p.not_before for a in fresh)


@settings(max_examples=25, deadline=None)
@given(p=st.one_of(problems(), split_problems(), later(st.one_of(problems(), split_problems()))))
def test_the_optimum_holds_as_well(p: Problem) -> None:
    pytest.importorskip("ortools")
    holds("optimal", p)


def large(seed: int, nodes: int = 60) -> Problem:
    """A random graph with transfers about as long as kernels, on devices with several queues."""
    chance = random.Random(seed)
    builder = GraphBuilder()
    buffers = [builder.buffer(chance.randrange(1, 400)) for _ in range(12)]
    for i in range(nodes):
        reads, writes = (tuple(chance.sample(buffers, chance.randint(0, 3))) for _ in range(2))
        if chance.random() < 0.1:
            builder.add(HostTask(f"h{i}", print, (), reads, writes))
        else:
            builder.add(launch(f"n{i}", reads, writes, items=chance.choice([64, 3000, 1 << 20])))
    kinds = [("cpu", HOST), ("cpu", HOST), ("gpu", 1), ("gpu", 2), ("gpu", 2)]
    where = Machine(
        tuple(
            Device(f"{kind}{i}", kind, memory=memory, compute_units=chance.choice([1, 4]), queues=3)
            for i, (kind, memory) in enumerate(kinds)
        )
    )
    seconds = [[chance.uniform(0.5, 5.0) for _ in kinds] for _ in range(nodes)]
    p = problem(
        builder.build(),
        seconds,
        where,
        queues=(1, 2, 3, 1, 2),
        handover=0.05,
        valid={key: frozenset({chance.randrange(3)}) for key in buffers if chance.random() < 0.8},
        not_before=chance.choice([0.0, 3.0]),
    )
    return replace(p, estimates=Table(seconds, 0.1, 0.01))


@pytest.mark.parametrize("name", STATIC)
@pytest.mark.parametrize("seed", range(4))
def test_large_graphs(name: str, seed: int) -> None:
    p = large(seed)
    plan = holds(name, p)
    assert sum(isinstance(e, TransferEvent) for e in plan.events) > 5 or name == "in_order"
    rest = begun(p, plan, 0.4 * plan.makespan, 0.1 * plan.makespan)
    assert 0 < len(rest.fixed) < len(p.graph)
    holds(name, rest)
    holds("auto" if name == "portfolio" else "portfolio", rest)


class OneLink(Table):
    """All transfers share one link."""

    contended = True

    def slowdowns(self, ends: Sequence[tuple[int, int]], most: Sequence[float]) -> list[float]:
        return [float(len(ends))] * len(ends)


@pytest.mark.parametrize("name", ["mkmd_coarse", "mkmd", "balance"])
@settings(max_examples=40, deadline=None)
@given(p=st.one_of(split_problems(), later(split_problems())))
def test_ranges_whose_transfers_slow_each_other_down(name: str, p: Problem) -> None:
    p.estimates.contended = True
    p.estimates.slowdowns = lambda ends, most: [float(len(ends))] * len(ends)  # type: ignore[method-assign]
    holds(name, p)


@pytest.mark.parametrize("name", [*STATIC, "optimal"])
def test_transfers_that_slow_each_other_down(name: str) -> None:
    p = large(1, 60 if name != "optimal" else 9)
    if name == "optimal":
        pytest.importorskip("ortools")
    shared = replace(p, estimates=OneLink(p.estimates.seconds, 0.1, 0.01))  # type: ignore[attr-defined]
    holds(name, shared)
    free, slow = planned(name, p), planned(name, shared)
    assert slow.makespan > free.makespan or name == "in_order"
    if name == "optimal":
        assert free.details["proven"]
        assert slow.makespan > slow.details["bound"] * 1.001
        assert not slow.details["proven"]  # the model's transfers do not meet


@pytest.mark.parametrize("name", STATIC)
def test_what_is_overwritten_is_not_brought(name: str) -> None:
    builder = GraphBuilder()
    a = builder.buffer(100)
    builder.add(launch("first", (), (a,), device="gpu", overwrites=(a,)))
    builder.add(launch("second", (a,), (a,), device="gpu", overwrites=(a,)))
    builder.add(launch("third", (), (a,), device="cpu"))
    p = problem(builder.build(), [1.0, 1.0], machine((HOST, 1)), per_byte=0.01, valid={a: frozenset({HOST})})
    plan = holds(name, p)
    moved = [(e.source, e.target, e.start) for e in plan.events if isinstance(e, TransferEvent)]
    assert moved == [("gpu1", "host", 2.0)], "what the second has left"
    assert plan.makespan == planned(name, p).makespan == pytest.approx(4.0)


def test_transfers_begin_before_what_they_are_for_could() -> None:
    """The GPU's second kernel waits for the host; the upload for it does not."""
    builder = GraphBuilder()
    a, b, c = (builder.buffer(100) for _ in range(3))
    builder.add(launch("slow", (), (a,), device="cpu"))
    builder.add(launch("fast", (a, b), (c,), device="gpu"))
    p = problem(
        builder.build(), [[5.0, 5.0], [1.0, 1.0]], machine((HOST, 1)), per_byte=0.02, valid={b: frozenset({HOST})}
    )
    for name in STATIC:
        assert planned(name, p).makespan == pytest.approx(8.0)
        assert holds(name, p).makespan == pytest.approx(8.0)  # 5 s, 2 s for a, 1 s; b has come in between
