"""The autotuner keeps the plan that runs fastest, and its trials cost little beside all runs."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.plan.plan import Assignment, Plan
from manycl.run.engine.trial import LOSING, Fallback
from manycl.run.graph_cache.autotuner import (
    FIRST_WAIT,
    PLANNED_RUNS,
    RIVAL,
    TRIAL_SHARE,
    Autotuner,
    TrialBudget,
)
from manycl.utilities.kept import ENOUGH


def plan_named(name: str) -> Plan:
    return Plan((Assignment(0, 0, len(name), 0.0, 0.0),), name, ("one",), 0.0)


class Loop:
    """A loop whose policy answers with plans that take so many seconds, in turn (the last one again and again)."""

    def __init__(self, tuner: Autotuner, *answers: float, planning: float = 0.0) -> None:
        self.tuner, self.answers, self.planning = tuner, list(answers), planning
        self.seconds: dict[str, float] = {}
        self.total = 0.0
        self.ran: list[float] = []
        self.asked: list[tuple[int, bool]] = []

    def run(self, count: int = 1) -> list[float]:
        for _ in range(count):
            plan = self.tuner.plan
            if plan is None:
                self.asked.append((len(self.ran), self.tuner.rival))
                seconds = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                plan = plan_named("x" * (1 + round(1000 * seconds)))
                self.seconds[plan.policy] = seconds
                self.tuner.answered(seconds, plan, self.planning)
                self.total += self.planning
            else:
                self.tuner.repeated(self.seconds[plan.policy])
            self.ran.append(self.seconds[plan.policy])
            self.total += self.ran[-1]
        return self.ran[-count:]


def test_the_fastest_of_the_first_plans_is_kept() -> None:
    loop = Loop(Autotuner(is_asked=False, free=PLANNED_RUNS), 4.0, 2.0, 3.0, 5.0)
    assert loop.run(20) == [4.0, 2.0, 3.0, 5.0] + [2.0] * 16


@pytest.mark.parametrize("later", [1.0, 2.5, 2.0 * LOSING])
def test_a_later_plan_is_kept_if_it_runs_faster(later: float) -> None:
    loop = Loop(Autotuner(), 2.0, later)
    found = loop.run(2 + FIRST_WAIT + ENOUGH)
    assert found[: FIRST_WAIT + 2] == [2.0] * (1 + FIRST_WAIT) + [later]
    tried = 2 if later > LOSING * 2.0 else ENOUGH
    assert found.count(later) == (tried if later > 2.0 else ENOUGH + 1)
    assert loop.tuner.kept is not None
    assert loop.seconds[loop.tuner.kept.policy] == min(later, 2.0)


def test_a_later_plan_that_was_disturbed_once_is_tried_on() -> None:
    tuner, better = Autotuner(), plan_named("better")
    tuner.answered(2.0, plan_named("first"))
    for _ in range(FIRST_WAIT):
        tuner.repeated(2.0)
    assert tuner.plan is None
    for seconds in (1.0, 10.0, 1.0):
        tuner.answered(seconds, better) if tuner.plan is None else tuner.repeated(seconds)
    assert tuner.plan is better


def test_it_is_asked_ever_more_rarely_and_for_a_rival_now_and_then() -> None:
    loop = Loop(Autotuner(), 1.0)
    loop.run(200)
    gaps = [b - a for (a, _), (b, _) in zip(loop.asked, loop.asked[1:], strict=False)]
    assert gaps == [1 + FIRST_WAIT * 2**n for n in range(len(gaps))]
    assert [rival for _, rival in loop.asked] == [(n + 1) % RIVAL == 0 for n in range(len(loop.asked))]


def test_a_plan_that_was_given_is_kept() -> None:
    given_plan = plan_named("x")
    tuner = Autotuner(given_plan)
    for _ in range(50):
        assert tuner.plan is given_plan
        tuner.repeated(1.0)


@pytest.mark.parametrize(("later", "kept"), [(1.0, 1.0), (2.5, 2.0), (2.0 * LOSING + 0.1, 2.0)])
def test_a_plan_of_before_is_kept_until_another_one_is_faster(later: float, kept: float) -> None:
    """The policy is asked at once, whatever trials have cost."""
    budget = TrialBudget()
    budget.spent = 100.0
    former = plan_named("former")
    loop = Loop(Autotuner(budget=budget, former=Fallback(former, 2.0)), later)
    loop.seconds["former"] = 2.0
    assert loop.tuner.fallback == (former, 2.0)
    loop.run(1 + ENOUGH)
    assert loop.run(4) == [kept] * 4
    assert len(loop.asked) == 1


def test_a_plan_of_a_policy_that_will_know_more_is_fallen_back_upon() -> None:
    tuner = Autotuner()
    rough = replace(plan_named("rough"), details={"postponed": True})
    tuner.answered(2.0, rough)
    assert tuner.plan is None
    assert tuner.kept is None
    assert tuner.fallback == (rough, 2.0)
    tuner.answered(3.0, plan_named("later one"))
    assert getattr(tuner.kept, "policy", "") == "later one", "its plans count now"


def test_a_policy_without_a_plan_is_asked_each_time() -> None:
    tuner = Autotuner()
    for _ in range(10):
        assert tuner.plan is None
        tuner.answered(1.0, None)


@given(
    st.lists(st.floats(0.001, 2.0), min_size=1, max_size=12),
    st.floats(0.0, 0.5),
    st.integers(1, 300),
)
def test_trials_cost_little_beside_all_runs(answers: list[float], planning: float, runs: int) -> None:
    """Whatever plans take: no trial begins unless what all cost is below the share and one run; and the best plan
    seen is kept."""
    budget = TrialBudget()
    loop = Loop(Autotuner(budget=budget), *answers, planning=planning)
    for _ in range(runs):
        before, asked = budget.spare, len(loop.asked)
        loop.run()
        if asked and len(loop.asked) > asked:
            assert before >= planning
    assert budget.total == pytest.approx(loop.total)
    assert budget.least == min(loop.ran)
    least = inf
    over = planning * len(loop.asked)
    kept = loop.ran[0]
    for seconds in loop.ran:
        over += max(0.0, seconds - min(least, kept)) if least < inf else 0.0
        least = min(least, seconds)
    worst = max(answers)
    most = TRIAL_SHARE * loop.total + planning + (1 + ENOUGH) * worst
    assert budget.spent <= over + 1e-9
    assert budget.spent <= most + 1e-9
