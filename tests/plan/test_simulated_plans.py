"""What is simulated: plans and runs with the same models, disturbances, and in a time that grows with the graph."""

from __future__ import annotations

import sys
from math import inf

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plan_cases import chains, machine, problem, problems
from split_cases import split_problems

from manycl.errors import PolicyError
from manycl.plan.events import plan_of
from manycl.plan.plan import Plan
from manycl.plan.problem import Problem
from manycl.run.disturbance import Disturbance, Slowdown
from manycl.run.replay import replay
from manycl.run.simulate import plan_with, simulate


@pytest.mark.parametrize("name", ["in_order", "auto", "cpop", "peft"])
@settings(max_examples=60, deadline=None)
@given(p=problems(own_memory=False))
def test_a_simulated_run_is_a_plan_that_takes_exactly_as_long(name: str, p: Problem) -> None:
    trace = simulate(p, name)
    plan = plan_of(trace)
    again = simulate(p, Plan.from_json(plan.to_json()))
    assert again.makespan == pytest.approx(plan.makespan, rel=1e-12)
    assert {e.node: (e.device, e.queue) for e in again.kernels()} == {
        e.node: (e.device, e.queue) for e in trace.kernels()
    }


@pytest.mark.parametrize("name", ["auto", "heft", "eager", "clustering"])
def test_work_grows_with_the_number_of_kernels_not_its_square(name: str) -> None:
    """All kernels are ready at once: five times as many make at most eight times as many calls."""

    def calls(count: int) -> int:
        p = problem(chains(count, 1), [1.0, 2.0, 3.0], machine((0, 1, 2)), latency=0.1, handover=0.1)
        made = 0

        def called(*_: object) -> None:
            nonlocal made
            made += 1

        sys.setprofile(called)
        try:
            trace = simulate(p, name)
        finally:
            sys.setprofile(None)
        assert len(list(trace.kernels())) == count
        return made

    assert calls(1000) < 8 * calls(200)


@settings(max_examples=30, deadline=None)
@given(p=split_problems(), seed=st.integers(0, 5))
def test_split_plans_meet_disturbances_too(p: Problem, seed: int) -> None:
    plan = plan_with("balance", p)
    assume(plan.is_split)
    plain = replay(p, plan)
    assert plain.makespan == pytest.approx(plan.makespan)
    everywhere = tuple(Slowdown(d, 2.0, 0.0, inf) for d in range(len(p.machine.devices)))
    slow = replay(p, plan, disturbance=Disturbance(slowdowns=everywhere))
    assert plain.makespan <= slow.makespan <= 2 * plain.makespan * (1 + 1e-9)
    noisy = Disturbance(noise=0.2, seed=seed)
    assert replay(p, plan, disturbance=noisy) == replay(p, plan, disturbance=noisy)
    if plain.makespan == max(e.end for e in plain.kernels()):  # else a transfer may hide what kernels take
        assert slow.makespan > plain.makespan
        assert replay(p, plan, disturbance=noisy).makespan != plain.makespan
    with pytest.raises(PolicyError, match="replayed without faults"):
        replay(p, plan, disturbance=Disturbance(lost={0: 1.0}))
