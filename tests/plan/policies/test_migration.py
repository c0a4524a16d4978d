"""Policies after Device-Hopping: what the paper's model says of its scenario; plans are right for any graph."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Launch
from manycl.machine import DeviceIndex
from manycl.plan.movable import with_moving_shares
from manycl.plan.plan import MERGE, Assignment, Plan
from manycl.plan.policy import StaticPolicy, find
from manycl.plan.problem import Problem
from manycl.plan.split import LinearRegion, Split
from manycl.plan.verification.verify import verify
from manycl.run.simulation.simulate import simulate
from tests.plan.plan_cases import FACTS, PROGRAM, Table, chains, launch, machine, problem
from tests.plan.split_cases import split_problems

GROUPS = 2000
FAST = 1
"""The device."""


class Even(Table):
    """Ranges take their part of the time, and nothing else."""

    def groups(self, node: int, device: int, count: int, of: int) -> float:
        return self.seconds[node][device] * count / of


def scenario(k: float, wait: float, policy_options: dict[str, str] | None = None) -> Problem:
    """The paper's: another kernel has the fast device until ``wait``, and a new one comes that takes 1 there and k on
    the slow device. Milliseconds."""
    builder = GraphBuilder()
    taken, buffer = builder.buffer(64), builder.buffer(GROUPS)
    builder.add(launch("other", (), (taken,), device="cpu1"))
    builder.add(Launch("new", PROGRAM, FACTS, (16 * GROUPS,), (16,), (BufferArg(buffer),), (buffer,), (buffer,)))
    p = problem(builder.build(), [[1e3, wait / 1e3], [k / 1e3, 1e-3]], machine(), options=policy_options)
    split = Split(0, GROUPS, {buffer: LinearRegion(1)})
    return replace(p, estimates=Even([[1e3, wait / 1e3], [k / 1e3, 1e-3]]), splits={1: split})


def planned(name: str, p: Problem) -> Plan:
    policy = find(name)
    assert isinstance(policy, StaticPolicy)
    plan = policy.plan(p)
    verify(plan, p.graph, p.machine, p)
    return plan


def new_kernel(plan: Plan) -> float:
    """When the new kernel ends, in the model's units."""
    return max(a.end for a in plan.assignments if a.node == 1) * 1e3


ks = st.floats(1.05, 12.0)
parts = st.floats(0.01, 1.3)


@settings(max_examples=60, deadline=None)
@given(ks, parts)
def test_the_papers_scenario(k: float, part: float) -> None:
    """Device-Hopping, Figures 1 and 8: whoever cannot migrate takes the better of waiting and the slow device; who
    migrates works there until the fast one is free; and both devices end together."""
    wait = part * k
    group = k / GROUPS
    assert math.isclose(new_kernel(planned("pns", scenario(k, wait))), min(k, wait + 1), rel_tol=1e-9)
    moved = k if wait >= k else wait + (1 - wait / k)
    assert abs(new_kernel(planned("hop", scenario(k, wait))) - moved) <= 2 * group
    p = scenario(k, wait)
    begun = replace(p, fixed=(Assignment(0, DeviceIndex(FAST), 0, 0.0, wait / 1e3),))  # else ranks decide who is first
    assert abs(new_kernel(planned("mig_heft", begun)) - moved) <= 2 * group
    together = k if wait >= k else wait + (1 - wait / k) / (1 + 1 / k)
    assert abs(new_kernel(planned("hop", scenario(k, wait, {"both": "yes"}))) - together) <= 2 * group


@pytest.mark.parametrize(("k", "bound"), [(2.0, 4 / 3), (3.0, 9 / 7), (8.0, 64 / 57)])
def test_bounds_are_reached_at_the_crossing(k: float, bound: float) -> None:
    """Where waiting and the slow device end at the same time; with both devices the bound is 1 + 1 / k."""
    without = new_kernel(planned("pns", scenario(k, k - 1)))
    assert without / new_kernel(planned("hop", scenario(k, k - 1))) == pytest.approx(bound, rel=2e-3)
    both = new_kernel(planned("hop", scenario(k, k - 1, {"both": "yes"})))
    assert without / both == pytest.approx(1 + 1 / k, rel=2e-3)


def test_the_engine_does_on_the_simulated_machine_what_is_planned() -> None:
    for name, options in (("pns", {}), ("hop", {}), ("hop", {"both": "yes"}), ("mig_heft", {})):
        p = scenario(2.0, 0.8, options)
        plan = planned(name, p)
        assert simulate(p, plan).makespan == pytest.approx(plan.makespan, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(split_problems(devices=4), st.sampled_from(["pns", "hop", "mig_heft"]), st.booleans())
def test_plans_are_right_for_any_graph(p: Problem, name: str, both: bool) -> None:
    if name == "hop":
        p = replace(p, options={"both": "yes" if both else "no"})
    try:
        plan = planned(name, p)
    except PolicyError:
        return  # preferences that no device can meet
    if name == "pns":
        assert all(not a.groups for a in plan.assignments)
    if name == "mig_heft" or (name == "hop" and not both):
        for node in range(len(p.graph)):
            mine = [a for a in plan.assignments if a.node == node and a.groups and a.dimension is not MERGE]
            assert len({a.device for a in mine}) == len(mine)


def test_first_come_first_served_takes_what_is_free() -> None:
    """It never waits for a faster device, and the fastest of those that are free is taken."""
    p = problem(chains(3, 1), [[4e-3, 1e-3], [4e-3, 1e-3], [4e-3, 1e-3]])
    first = {e.node: e.device for e in simulate(p, "fcfs").kernels()}
    assert first[0] == "cpu1"
    assert first[1] == "cpu0"
    assert first[2] == "cpu1"  # free again after 1 ms
    waiting = problem(chains(2, 1, device="cpu1"), [[1e-3, 1e-3], [1e-3, 1e-3]])
    assert {e.device for e in simulate(waiting, "fcfs").kernels()} == {"cpu1"}


def test_it_does_not_know_when_waiting_is_better() -> None:
    p = scenario(10.0, 0.5)
    p = replace(p, splits={})
    ends = {name: simulate(p, name).makespan * 1e3 for name in ("fcfs", "pns")}
    assert ends["fcfs"] == pytest.approx(10.0, rel=1e-3)
    assert ends["pns"] == pytest.approx(1.5, rel=1e-3)


def test_long_kernels_of_a_live_mig_heft_may_migrate_from_where_they_are_planned() -> None:
    where = scenario(2.0, 5.0)
    still = planned("mig_heft", where)
    seconds = {a.node: a.end - a.start for a in still.assignments}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("manycl.plan.migration.SHORTEST", max(seconds[n] for n in where.splits))
        live = planned("mig_heft", replace(where, options={"live": "yes"}))
    longest = [n for n in where.splits if seconds[n] == max(seconds[n] for n in where.splits)]
    assert live.movable == live.in_turn == tuple(longest)
    assert longest
    assert [(a.node, a.device, a.start, a.end) for a in live.assignments] == [
        (a.node, a.device, a.start, a.end) for a in still.assignments
    ]
    for n in longest:
        assert sum(a.groups for a in live.assignments if a.node == n) == where.splits[n].groups


def test_ranges_of_a_live_plan_may_move_and_others_stay() -> None:
    where = scenario(2.0, 0.5)
    still = planned("hop", where)
    migrating = {a.node for a in still.assignments if a.is_range}
    assert migrating
    assert not still.movable
    for both in ("no", "yes"):
        live = planned("hop", scenario(2.0, 0.5, {"live": "yes", "both": both}))
        assert set(live.movable) == migrating
        assert set(live.in_turn) == (migrating if both == "no" else set())
        assert with_moving_shares(where, live, deterministic=True) is live  # it was asked for
