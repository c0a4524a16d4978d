"""The planning benchmark's own parts: its graphs are what it says, and its exponent is one."""

from __future__ import annotations

import sys

import pytest

from tests import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import planning

from manycl.plan.verification.verify import verify
from manycl.run.simulation.simulate import simulate


@pytest.mark.parametrize("policy", planning.POLICIES)
def test_its_plans_are_valid(policy: str) -> None:
    problem = planning.random_problem(60)
    assert len(problem.graph) == 60
    plan = planning.plan(problem, policy)
    verify(plan, problem.graph, problem.machine, problem)
    assert simulate(problem, plan).makespan == pytest.approx(plan.makespan, rel=0.02)
    assert plan.is_split == (policy != "mkmd_coarse")


def test_splitting_uses_the_machine_better() -> None:
    problem = planning.random_problem(60)
    coarse, fine, balanced = (planning.plan(problem, name).makespan for name in planning.POLICIES)
    work = sum(problem.estimates.launch(n, 1) for n in range(60)) * 100 / 260  # all devices' rates: 260
    assert work <= balanced < coarse
    assert work <= fine < 1.05 * coarse  # nothing keeps MKMD from losing a little by splitting


def test_whole_plans_are_simulated_by_the_engine() -> None:
    problem = planning.random_problem(60, split=False)
    plan = planning.plan(problem, "mkmd_coarse")
    assert simulate(problem, plan).makespan == pytest.approx(plan.makespan, rel=0.1)


def test_the_exponent_of_a_power() -> None:
    assert planning.exponent({n: 3e-6 * n**1.7 for n in (250, 500, 1000)}) == pytest.approx(1.7)
