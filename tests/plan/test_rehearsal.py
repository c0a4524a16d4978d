"""Plans that are tried on the simulated machine: how many, which one is taken, and when."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from split_cases import split_problems
from test_auto import one, planned

from manycl.plan import rehearsal
from manycl.plan.plan import Plan
from manycl.plan.policy import find
from manycl.plan.problem import Problem
from manycl.plan.verify import verify


class Stage:
    """Rehearsals that take what is drawn for each plan."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self._chance = random.Random(1)
        self.took: dict[object, float] = {}

    def __call__(self, plan: Plan) -> float:
        self.plans.append(plan)
        return self.took.setdefault(plan.assignments, self._chance.random())


@given(split_problems())
@settings(max_examples=60)
def test_balance_takes_the_plan_that_is_best_at_its_rehearsal(p: Problem) -> None:
    stage = Stage()
    plan = find("balance").plan(replace(p, rehearse=stage))  # type: ignore[union-attr]
    verify(plan, p.graph, p.machine, p)
    if not p.splits:
        assert not stage.plans
        return
    assert plan.details["rehearsed"] == stage.took[plan.assignments] == min(stage.took.values())
    assert len(stage.plans) == len(stage.took) <= rehearsal.AT_ONCE, "none twice"
    assert max(t.makespan for t in stage.plans) <= rehearsal.NEARLY * min(t.makespan for t in stage.plans) + 1e-9


def test_large_graphs_are_not_rehearsed() -> None:
    p = replace(one(0.0, (1.0, 1.0)), rehearse=Stage())
    assert rehearsal.how_many(p, 1.0) == rehearsal.AT_ONCE
    assert rehearsal.how_many(replace(p, rehearse=None), 1.0) == 0
    assert rehearsal.how_many(replace(p, splits={}), 1.0) == 0
    assert rehearsal.how_many(p, 1e-6) == 0, "not for as long as it takes to run"

    class Large:
        def __len__(self) -> int:
            return 10**6

    assert rehearsal.how_many(replace(p, graph=Large()), 1e6) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("divided", [False, True])
def test_auto_believes_rehearsals_of_what_it_compares(divided: bool) -> None:
    p = one(0.0, (1.0, 1.0))
    assert planned(replace(p, repeated=2), budget=10).is_split
    plan = planned(replace(p, repeated=2, rehearse=lambda plan: 0.1 if plan.is_split == divided else 0.9), budget=10)
    assert plan.is_split == divided
