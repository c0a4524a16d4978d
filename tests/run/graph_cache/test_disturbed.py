"""Whether a loop divides its launches, in sessions whose times something else disturbs; without devices."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from manycl.graph.signature import Signature
from manycl.machine import DeviceIndex
from manycl.plan.plan import COMPARED, Assignment, Plan
from manycl.run.graph_cache.autotuner import TRIAL_SHARE
from manycl.run.graph_cache.recurring_graph import RecurringGraph
from manycl.run.session.session import Session
from manycl.run.streams.eager_rule import Facts, decide, is_worth_planning

ZERO, ONE = DeviceIndex(0), DeviceIndex(1)
SESSIONS, RUNS, STEADY = 20, 60, 7  # STEADY: the first run that counts
NEW, SECOND = 2.0, 1.5  # times as long as later ones that the first run of a plan takes, and the second


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "0")
        made = Session("cpu/2")
    yield made
    made.close()


class Disturbed:
    """Times beside other work, which comes and goes: a part of all runs takes up to ``most`` times as long, as many one
    after another as ``length`` says."""

    def __init__(self, seed: int, part: float, length: float, most: float) -> None:
        self.random, self.ends, self.most = random.Random(seed), 1.0 / length, most
        self.begins, self.is_on = self.ends * part / (1.0 - part), False

    def __call__(self, seconds: float) -> float:
        self.is_on = self.random.random() < (1.0 - self.ends if self.is_on else self.begins)
        seconds *= 1.0 + 0.03 * abs(self.random.gauss(0.0, 1.0))
        return seconds * self.random.uniform(1.2, self.most) if self.is_on else seconds


def loop(session: Session, whole: float, divided: float, planning: float, begin: str, disturbed: Disturbed) -> Any:
    """Return how a loop runs (p: by a plan that divides; e: on one device) and its measurements. ``whole``,
    ``divided``: seconds of both, undisturbed; ``planning``: of making a plan; ``begin``: how the first run goes."""
    halves = tuple([Assignment(0, d, 64, 0.0, divided, 0) for d in (ZERO, ONE)])
    plan = Plan(halves, "auto", ("a", "b"), divided, details={COMPARED: {"whole": whole}})
    known, ways = RecurringGraph(session, 1, Signature((), (), ()), "auto"), ""
    known.is_looked_at = True
    eager = cast("Any", SimpleNamespace(device=ZERO, given=[]))
    if begin == "e":
        known.ran_eagerly(eager, 10 * whole)
    for _ in range(RUNS):
        decision, tuner = decide(Facts(devices=2, fastest=ZERO, graph=known.measured)), known._tuner
        known.obey(decision)
        if decision.device is not None:
            ways += "e"
            known.ran_eagerly(eager, disturbed(whole))
            if known._takes_long and is_worth_planning(known.measured):
                tuner.ahead = plan
            continue
        ways += "p"
        follows = tuner.plan or (tuner.kept if known._takes_long and tuner.ahead is None else None)
        seconds = disturbed(divided) * {0: NEW, 1: SECOND}.get(known._planned, 1.0)
        known.ran = None if follows is not None else seconds
        took = 0.0 if follows is not None or tuner.ahead is not None else planning
        if follows is not None:
            tuner.ahead = plan if tuner.plan is None else None
            tuner.repeated(seconds)
        else:
            tuner.ahead = None
            tuner.answered(seconds, plan, took)
        known._answer = plan
        known.took(seconds + took)
    return ways, known


@pytest.mark.parametrize("noise", [(0.1, 3.0, 2.5), (0.25, 4.0, 2.5)], ids=["a tenth", "a quarter"])
@pytest.mark.parametrize("begin", ["p", "e"])
@pytest.mark.parametrize(
    ("whole", "divided", "planning"), [(0.025, 0.0132, 0.03), (0.0027, 0.0016, 0.012)], ids=["n-body", "logistic map"]
)
def test_a_division_that_gains_is_kept_in_every_session(
    session: Session, whole: float, divided: float, planning: float, begin: str, noise: tuple[float, float, float]
) -> None:
    for seed in range(SESSIONS):
        ways, known = loop(session, whole, divided, planning, begin, Disturbed(seed, *noise))
        assert ways[STEADY:].count("p") > 0.8 * len(ways[STEADY:]), (seed, ways)
        assert known.budget.spent <= TRIAL_SHARE * known.budget.total + noise[2] * NEW * whole


@pytest.mark.parametrize("begin", ["p", "e"])
def test_a_division_that_loses_is_not_kept(session: Session, begin: str) -> None:
    for seed in range(SESSIONS):
        ways, _ = loop(session, 0.005, 0.009, 0.012, begin, Disturbed(seed, 0.1, 3.0, 2.5))
        assert ways[STEADY:].count("p") < 0.1 * len(ways[STEADY:]), (seed, ways)
