"""The host's thread enqueues one command after another: what that costs, plans and simulations know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Graph
from manycl.machine import HOST, Device, Machine
from manycl.plan.plan import ON_HOST
from manycl.plan.policy import find
from manycl.plan.problem import Problem
from manycl.run.simulation.simulate import simulate
from tests.plan.plan_cases import Table, estimated, launch
from tests.plan.split_cases import split_problems

LAUNCH, COPY = 8.0, 4.0


def kernels(count: int, buffers: int) -> Graph:
    builder = GraphBuilder()
    keys = [builder.buffer(64, f"b{i}") for i in range(buffers)]
    for i in range(count):
        key = (keys[i % buffers],)
        builder.add(launch("t", key, key))
    return builder.build()


def problem(graph: Graph, seconds: float, memories: Sequence[int] = (HOST, HOST)) -> Problem:
    """Every launch takes ``seconds``, every transfer one."""
    costs = {"enqueuing": LAUNCH, "enqueuing_copy": COPY, "queues": 1}
    devices = [Device(f"cpu{i}", "cpu", memory=m, **costs) for i, m in enumerate(memories)]  # type: ignore[arg-type]
    valid = {key: frozenset({HOST}) for key in graph.buffers}
    estimates = Table([[seconds] * len(devices)] * len(graph), latency=1.0)
    return Problem(graph, Machine(tuple(devices)), estimates, (1,) * len(devices), valid, handover=0.0)


@pytest.mark.parametrize("policy", ["in_order", "cpop", "peft", "portfolio", "mkmd_coarse", "auto"])
@pytest.mark.parametrize("buffers", [1, 10])
def test_the_host_s_thread_is_what_tiny_kernels_wait_for(policy: str, buffers: int) -> None:
    """A second device gains nothing: the thread is busy all the time, and then the last kernel runs."""
    p = problem(kernels(10, buffers), 1.0)
    expected = 10 * LAUNCH + 1.0
    plan = estimated(policy, p)
    assert plan.makespan == pytest.approx(expected)
    assert {a.device for a in plan.assignments} == {0}
    assert simulate(p, plan).makespan == pytest.approx(expected)


@pytest.mark.parametrize("policy", ["in_order", "portfolio", "auto"])
def test_transfers_are_enqueued_too(policy: str) -> None:
    """Ten uploads and ten kernels, none of which waits for anything but the thread."""
    p = problem(kernels(10, 10), 1.0, (1,))
    plan = estimated(policy, p)
    assert plan.makespan == pytest.approx(10 * (LAUNCH + COPY) + 1.0)
    assert simulate(p, plan).makespan == pytest.approx(plan.makespan, abs=COPY + 1.0)


def test_long_kernels_hide_the_thread() -> None:
    p = problem(kernels(10, 10), 100.0)
    assert estimated("auto", p).makespan == pytest.approx(5 * 100.0 + 2 * LAUNCH)


@given(
    split_problems(), st.floats(0.0, 20.0), st.floats(0.0, 20.0), st.sampled_from(["mkmd", "balance", "auto", "peft"])
)
@settings(max_examples=60, deadline=None)
def test_no_plan_ends_before_all_is_enqueued(p: Problem, launch: float, copy: float, policy: str) -> None:
    devices = tuple(replace(d, enqueuing=launch, enqueuing_copy=copy) for d in p.machine.devices)
    try:
        plan = find(policy).plan(replace(p, machine=replace(p.machine, devices=devices)))  # type: ignore[union-attr]
    except PolicyError:
        return  # a kernel fits nowhere
    given_here = [a for a in plan.assignments if a not in p.fixed and a.device != ON_HOST]
    assert plan.makespan >= p.not_before + launch * len(given_here) - 1e-6
