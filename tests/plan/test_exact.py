"""A plan of any static policy holds: its judge agrees, and the simulated machine takes exactly as long as it says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import Table, begun, launch, machine, problem, problems
from split_cases import split_problems

from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import HostTask
from manycl.machine import HOST, Device, Machine
from manycl.plan.plan import Plan
from manycl.plan.policy import StaticPolicy, find
from manycl.plan.problem import Problem
from manycl.plan.verify import verify
from manycl.run.replay import replay
from manycl.trace import KernelEvent, TransferEvent

OPTIONS = {
    "auto": {"budget": "0.005"},
    "portfolio": {"effort": "300"},
    "optimal": {"time_limit": "0.2", "workers": "1"},
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
    """The same: it takes exactly as long as it says, and everything in it happens when it says."""
    plan = planned(name, p)
    trace = replay(p, plan)
    assert trace.makespan == pytest.approx(plan.makespan, rel=1e-9)
    fixed = set(p.fixed)
    kernels = [e for e in trace.events if isinstance(e, KernelEvent)]
    found = {(e.node, e.device, e.queue, round(e.start, 6), round(e.end, 6)) for e in kernels}
    for a in plan.assignments:
        if a.device >= 0 and not (a in fixed and a.end <= p.not_before):
            assert (a.node, plan.devices[a.device], a.queue, round(a.start, 6), round(a.end, 6)) in found
    moved = sorted((e.buffer, e.start, e.end) for e in trace.events if isinstance(e, TransferEvent))
    said = sorted((m.buffer, m.start, m.end) for m in plan.moves)
    assert [m[0] for m in moved] == [m[0] for m in said]
    assert [t for m in moved for t in m[1:]] == pytest.approx([t for m in said for t in m[1:]], rel=1e-6, abs=1e-9)
    return plan


@pytest.mark.parametrize("name", STATIC)
@settings(max_examples=60, deadline=None)
@given(p=problems())
def test_a_plan_takes_as_long_as_it_says(name: str, p: Problem) -> None:
    holds(name, p)
    assert Plan.from_json(planned(name, p).to_json()).moves == planned(name, p).moves


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
@settings(max_examples=60, deadline=None)
@given(p=later(st.one_of(problems(), split_problems())))
def test_planning_goes_on_from_any_partial_schedule(name: str, p: Problem) -> None:
    plan = holds(name, p)
    assert set(p.fixed) <= set(plan.assignments)
    fresh = [a for a in plan.assignments if a not in set(p.fixed)]
    assert all(a.start >= p.not_before for a in fresh)
    assert all(m.start >= p.not_before for m in plan.moves)


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
    assert len(plan.moves) > 5 or name == "in_order"
    rest = begun(p, plan, 0.4 * plan.makespan, 0.1 * plan.makespan)
    assert 0 < len(rest.fixed) < len(p.graph)
    holds(name, rest)
    holds("auto" if name == "portfolio" else "portfolio", rest)


class OneLink(Table):
    """All transfers share one link."""

    contended = True

    def slowdowns(self, ends: Sequence[tuple[int, int]]) -> list[float]:
        return [float(len(ends))] * len(ends)


@pytest.mark.parametrize("name", ["mkmd_coarse", "mkmd", "balance"])
@settings(max_examples=40, deadline=None)
@given(p=st.one_of(split_problems(), later(split_problems())))
def test_ranges_whose_transfers_slow_each_other_down(name: str, p: Problem) -> None:
    p.estimates.contended = True
    p.estimates.slowdowns = lambda ends: [float(len(ends))] * len(ends)  # type: ignore[method-assign]
    holds(name, p)


@pytest.mark.parametrize("name", [*STATIC, "optimal"])
def test_transfers_that_slow_each_other_down(name: str) -> None:
    p = large(1, 60 if name != "optimal" else 9)
    if name == "optimal":
        pytest.importorskip("ortools")
    free = holds(name, p)
    slow = holds(name, replace(p, estimates=OneLink(p.estimates.seconds, 0.1, 0.01)))  # type: ignore[attr-defined]
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
    assert [(m.writer, m.source, m.target) for m in plan.moves] == [(1, 1, HOST)]
    assert plan.makespan == pytest.approx(4.0)


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
        assert holds(name, p).makespan == pytest.approx(8.0)  # 5 s, 2 s for a, 1 s; b has come in between
