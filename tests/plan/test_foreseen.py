"""Plans that policies have foreseen by the engine: how many, which one is taken, and when."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings

from manycl.plan import foreseen
from manycl.plan.plan import Plan
from manycl.plan.policy import find
from manycl.plan.problem import Problem
from manycl.plan.tuning import PLANNING
from manycl.plan.verification.verify import verify
from tests.plan.policies.test_auto import one, planned
from tests.plan.split_cases import split_problems


class Stage:
    """Takes what is drawn for each plan."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self._chance = random.Random(1)
        self.took: dict[object, float] = {}

    def __call__(self, plan: Plan) -> Plan:
        self.plans.append(plan)
        took = self.took.setdefault(plan.assignments, self._chance.random())
        return replace(plan, makespan=took, foreseen=True)


@given(split_problems())
@settings(max_examples=60)
def test_balance_takes_the_plan_that_is_foreseen_to_be_the_best(p: Problem) -> None:
    stage = Stage()
    plan = find("balance").plan(replace(p, repeated=2, foresee=stage))  # type: ignore[union-attr]
    verify(replace(plan, foreseen=False, makespan=max(a.end for a in plan.assignments)), p.graph, p.machine, p)
    if not p.splits:
        assert not stage.plans
        return
    assert plan.makespan == stage.took[plan.assignments] == min(stage.took.values())
    assert len(stage.plans) == len(stage.took) <= PLANNING.foreseen, "none twice"
    assert max(t.makespan for t in stage.plans) <= PLANNING.nearly * min(t.makespan for t in stage.plans) + 1e-9


def test_large_graphs_are_not_foreseen() -> None:
    p = replace(one(0.0, (1.0, 1.0)), foresee=Stage())
    assert foreseen.how_many(p, 1.0) == PLANNING.foreseen
    assert foreseen.how_many(replace(p, foresee=None), 1.0) == 0
    assert foreseen.how_many(replace(p, splits={}), 1.0) == 0
    assert foreseen.how_many(p, 1e-6) == 0, "not for as long as it takes to run"
    assert foreseen.how_many(p, 1e-3) == 0 < foreseen.how_many(replace(p, repeated=2), 1e-3), "that pays for many runs"

    class Large:
        def __len__(self) -> int:
            return 10**6

    assert foreseen.how_many(replace(p, graph=Large()), 1e6) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("phase", ["coarse", "fine"])
def test_mkmd_takes_the_phase_that_the_engine_ends_first(phase: str) -> None:
    """By its own times both are near each other; a graph that runs once is foreseen if it takes long."""
    p = one(0.0, (1.0, 10.0))

    def foresee(plan: Plan) -> Plan:
        return replace(plan, makespan=0.5 if plan.details["phase"] == phase else 0.9, foreseen=True)

    plan = find("mkmd").plan(replace(p, foresee=foresee))  # type: ignore[union-attr]
    assert plan.details["phase"] == phase
    assert find("mkmd").plan(p).details["phase"] == "fine"  # type: ignore[union-attr]


@pytest.mark.parametrize("divided", [False, True])
def test_auto_believes_what_is_foreseen_of_what_it_compares(divided: bool) -> None:
    p = one(0.0, (1.0, 1.0))
    assert planned(replace(p, repeated=2), budget=10).is_split

    def foresee(plan: Plan) -> Plan:
        return replace(plan, makespan=0.1 if plan.is_split == divided else 0.9, foreseen=True)

    plan = find("auto").plan(replace(p, repeated=2, foresee=foresee, options={"budget": "10"}))  # type: ignore[union-attr]
    assert plan.is_split == divided
