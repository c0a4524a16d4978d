"""The policies that split launches into ranges: valid plans that take as long as they say, on random problems."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from split_cases import split_problems

from manycl.plan.policy import find
from manycl.plan.problem import Problem
from manycl.plan.verify import verify
from manycl.run.replay import replay

NAMES = ("mkmd_coarse", "mkmd", "balance")


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=150, deadline=None)
@given(p=split_problems())
def test_plans_are_valid_and_take_as_long_as_they_say(name: str, p: Problem) -> None:
    plan = find(name).plan(p)  # type: ignore[union-attr]
    verify(plan, p.graph, p.machine, p)
    assert replay(p, plan).makespan == plan.makespan
