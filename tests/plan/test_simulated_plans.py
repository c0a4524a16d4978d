"""Given exact models, a simulation takes exactly as long as the plan says: also where data move."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from plan_cases import chains, machine, problem, problems

from manycl.plan.events import plan_of
from manycl.plan.plan import Plan
from manycl.plan.problem import Problem
from manycl.run.simulate import simulate


@pytest.mark.parametrize("name", ["in_order", "auto", "cpop", "peft"])
@settings(max_examples=60, deadline=None)
@given(p=problems())
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
