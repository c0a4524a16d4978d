"""``tenths``: kernels divided between GPUs and CPUs as the application says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.errors import PolicyError
from manycl.graph.graph import Launch
from manycl.plan.plan import MERGE, Plan
from manycl.plan.policies.papers.tenths import Tenths, asked_for, shares
from manycl.plan.policy import StaticPolicy, find
from manycl.plan.problem import Problem
from manycl.plan.verification.verify import verify
from manycl.run.simulation.foresee import with_times
from manycl.run.simulation.simulate import simulate
from tests.plan.split_cases import GROUPS, split_problems

SECONDS = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=4)


@given(st.integers(1, 10**6), st.integers(1, 9), SECONDS, SECONDS)
def test_shares_are_the_tenths(groups: int, tenths: int, gpus: list[float], cpus: list[float]) -> None:
    found = shares(groups, tenths, gpus, cpus)
    assert sum(found) == groups
    assert min(found) >= 0
    assert abs(sum(found[: len(gpus)]) - groups * tenths / 10) <= 0.5
    total = sum(1 / s for s in gpus)
    for count, seconds in zip(found, gpus, strict=False):
        assert abs(count - sum(found[: len(gpus)]) / seconds / total) <= 1


def divided(p: Problem, tenths: list[int | None]) -> Problem:
    """The problem, with these partitions of its launches."""
    said = zip(p.graph.nodes, tenths, strict=False)
    nodes = [replace(t, partition=n) if isinstance(t, Launch) and not t.device else t for t, n in said]
    return replace(p, graph=replace(p.graph, nodes=tuple(nodes)))


def on_gpus(p: Problem, plan: Plan, node: int) -> int:
    groups: Counter[str] = Counter()
    for a in plan.assignments:
        if a.node == node and a.dimension is not MERGE:
            groups[p.machine.devices[a.device].kind] += a.groups or GROUPS
    assert groups.total() == GROUPS
    return groups["gpu"]


@settings(max_examples=100, deadline=None)
@given(split_problems(devices=4), st.lists(st.sampled_from([None, *range(1, 10)]), min_size=9, max_size=9))
def test_plans_are_right_and_divide_as_said(p: Problem, tenths: list[int | None]) -> None:
    p = divided(p, tenths)
    try:
        plan = Tenths().plan(p)
    except PolicyError:
        return  # preferences that no device can meet
    verify(plan, p.graph, p.machine, p)
    verify(with_times(p, plan, simulate(p, plan)), p.graph, p.machine, p)
    followed = False
    for node, task in enumerate(p.graph.nodes):
        if asked_for(p) and isinstance(task, Launch) and task.partition is not None and node in p.splits:
            assert on_gpus(p, plan, node) == (GROUPS * task.partition + 5) // 10
            followed = True
    auto = find("auto")
    assert isinstance(auto, StaticPolicy)
    chosen = auto.plan(p)
    assert (chosen.details["chosen"] == "tenths") == followed
