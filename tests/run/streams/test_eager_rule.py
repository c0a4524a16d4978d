"""The eager rule: tables of facts and decisions, and how queues obey it and say why."""

from __future__ import annotations

import ast
from contextlib import nullcontext
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import manycl
import manycl as mc
from manycl.graph.horizon import HORIZON
from manycl.machine import DeviceIndex
from manycl.plan.movable import SHORTEST
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import ENQUEUING
from manycl.plan.tuning import PLANNING
from manycl.run.engine.asking_policies import UNPLANNED
from manycl.run.engine.trial import LOSING
from manycl.run.streams import eager_rule
from manycl.run.streams.eager_rule import (
    LIGHT,
    LONG,
    MOST_ARRAYS,
    RARELY,
    RETRIED,
    SEVERAL,
    SUBMITTED,
    TRIALS,
    WORTH,
    Decision,
    Facts,
    MeasuredGraph,
    Need,
    decide,
    is_light,
)
from manycl.trace import Trace
from manycl.utilities.kept import ENOUGH
from tests.run.graph_cache.loops import COUNT, GROUP, PROGRAM

ZERO, ONE = DeviceIndex(0), DeviceIndex(1)
SHORT, MIDDLE = WORTH / 2, 3 * WORTH
SLOWER = 0.9 * LOSING * MIDDLE


def graph(eager: float = inf, planned: float = inf, **more: object) -> Facts:
    """What is known of a graph that device 1 can run, on two devices. A way was tried if it has a time."""
    known: dict[str, object] = {
        "device": ONE,
        "eager": eager,
        "planned": planned,
        "eager_runs": TRIALS if eager < inf else 0,
        "planned_runs": TRIALS if planned < inf else 0,
        "is_analysed": True,
        "spare": 1.0,
        **more,
    }
    return Facts(devices=2, graph=MeasuredGraph(**known))  # type: ignore[arg-type]


UNKNOWN = Facts(devices=2, fastest=ONE)
TABLE: dict[str, tuple[Facts, DeviceIndex | None]] = {
    "one device": (Facts(), ZERO),
    "one device, in order": (Facts("in_order"), ZERO),
    "another policy": (Facts("heft"), None),
    "another policy, one that plans": (Facts("Plan (an object)"), None),
    "one device, away": (Facts(away=frozenset([ZERO])), None),
    "one device, demanded": (Facts(is_demanded=True), ZERO),
    "one device, awaited": (Facts(is_demanded=True, is_awaited=True), None),
    "unknown, of a processor": (UNKNOWN, None),
    "unknown, begins with a short command": (UNKNOWN._replace(first=SHORT), ONE),
    "unknown, begins with another one": (UNKNOWN._replace(first=WORTH), None),
    "unknown, begins with a short command, in order": (UNKNOWN._replace(policy="in_order", first=SHORT), None),
    "unknown, with a GPU": (UNKNOWN._replace(gpu=ZERO), ZERO),
    "unknown, with a GPU that is away": (UNKNOWN._replace(gpu=ZERO, away=frozenset([ZERO])), None),
    "unknown, in order": (UNKNOWN._replace(policy="in_order", gpu=ZERO, fresh=((SHORT, 2),) * ENOUGH), None),
    "unknown, after short ones": (UNKNOWN._replace(fresh=((SHORT, 2),) * ENOUGH), ONE),
    "unknown, after too few": (UNKNOWN._replace(fresh=((SHORT, 2),) * (ENOUGH - 1)), None),
    "unknown, after one that took longer": (UNKNOWN._replace(fresh=((SHORT, 2),) * (ENOUGH - 1) + ((WORTH, 2),)), None),
    "unknown, after single commands": (UNKNOWN._replace(fresh=((LONG / 2, 1),) * ENOUGH), ONE),
    "by plans of several devices": (graph(device=None, planned=MIDDLE, eager_runs=0)._replace(fastest=ONE), ONE),
    "by one such plan": (graph(device=None, planned=MIDDLE, eager_runs=0, planned_runs=1)._replace(fastest=ONE), None),
    "one run without a plan tells little": (graph(LONG, MIDDLE, eager_runs=1), ONE),
    "no device can be given it": (graph(device=None), None),
    "in order, as it has chosen the device": (graph(SHORT)._replace(policy="in_order"), ONE),
    "some of it stays": (graph(SHORT, stays=True), None),
    "a part of a long program": (graph(1.01 * ENQUEUING * HORIZON, nodes=HORIZON, planning=inf), None),
    "a long program of the shortest commands": (graph(0.99 * ENQUEUING * HORIZON, nodes=HORIZON, planning=inf), ONE),
    "long, devices may be lost": (graph(LONG, 2 * LONG, latest=LONG)._replace(is_mortal=True), None),
    "long, no device may be lost": (graph(LONG, 2 * LONG, latest=LONG), ONE),
    "short, devices may be lost": (graph(MIDDLE, 2 * MIDDLE, latest=MIDDLE)._replace(is_mortal=True), ONE),
    "long launches, which may move": (graph(2 * SHORTEST, nodes=2)._replace(shortens=True), None),
    "long launches, a little slower by plans": (
        graph(SHORTEST, 0.99 * PLANNING.nearly * SHORTEST)._replace(shortens=True),
        None,
    ),
    "long launches, slower by plans": (graph(SHORTEST, 1.01 * PLANNING.nearly * SHORTEST)._replace(shortens=True), ONE),
    "long launches, before contents go straight to their device": (
        graph(2 * SHORTEST, is_cold=True)._replace(shortens=True),
        ONE,
    ),
    "long, but of launches that are not": (
        graph(1.9 * SHORTEST, 2 * SHORTEST, nodes=2)._replace(shortens=True),
        ONE,
    ),
    "long launches, not known to move": (graph(SHORTEST, is_analysed=False)._replace(shortens=True), ONE),
    "long launches, which cannot end early": (graph(SHORTEST, 1.1 * SHORTEST), ONE),
    "not tried without a plan": (graph(planned=SHORT), ONE),
    "not tried without a plan, and long": (graph(planned=LONG), None),
    "not analysed": (graph(MIDDLE, is_analysed=False), ONE),
    "not analysed, planned is quicker": (graph(MIDDLE, SHORT, is_analysed=False), None),
    "short, never planned": (graph(SHORT), ONE),
    "short, planned shorter": (graph(SHORT, SHORT / 2), None),
    "not short, never planned": (graph(MIDDLE), None),
    "planned is quicker": (graph(MIDDLE, MIDDLE - 1e-6), None),
    "eager is as quick": (graph(MIDDLE, MIDDLE), ONE),
    "never planned, and trials have cost enough": (graph(MIDDLE, spare=0.0), ONE),
    "never planned, and planning costs too much": (graph(MIDDLE, planning=1.1), ONE),
    "one plan tells little": (graph(MIDDLE, 1.2 * MIDDLE, planned_runs=1), None),
    "one run of a plan tells little, whatever it has cost": (
        graph(MIDDLE, 1.2 * MIDDLE, planned_runs=1, spare=-1.0),
        None,
    ),
    "a plan that is to be made again costs too much": (
        graph(MIDDLE, 1.2 * MIDDLE, planned_runs=1, spare=0.0, planning=0.1),
        ONE,
    ),
    "one plan suffices to see that it loses, where a second run is not to spare": (
        graph(MIDDLE, 1.1 * LOSING**2 * MIDDLE, planned_runs=1, spare=0.0),
        ONE,
    ),
    "one run of a plan may have been disturbed": (graph(MIDDLE, 1.1 * LOSING**2 * MIDDLE, planned_runs=1), None),
    "a plan that loses is not tried again for the time of one run": (
        graph(MIDDLE, 1.1 * LOSING * MIDDLE, since=RARELY, spare=MIDDLE),
        ONE,
    ),
    "eager runs that lose are not tried again for that": (
        graph(1.1 * LOSING * MIDDLE, MIDDLE, since=RARELY, spare=MIDDLE),
        None,
    ),
    "a plan that divides as predicted needs no comparison yet": (
        graph(planned=LOSING * MIDDLE, whole=MIDDLE),
        None,
    ),
    "a plan that takes longer than predicted without it": (graph(planned=1.1 * LOSING * MIDDLE, whole=MIDDLE), ONE),
    "eager runs have been forgotten": (graph(planned=MIDDLE, eager_runs=TRIALS), None),
}


@pytest.mark.parametrize("name", TABLE)
def test_facts_decide(name: str) -> None:
    facts, device = TABLE[name]
    decision = decide(facts)
    assert decision.device == device, decision
    within = inf if decision.lasts else WORTH
    assert (decision.until, decision.within) == ((0, 0.0) if device is None else (SEVERAL, within))
    assert not decision.is_trial


@pytest.mark.parametrize("need", Need)
def test_what_only_plans_can_do_is_planned_and_says_why(need: Need) -> None:
    for facts in (Facts(), graph(SHORT), UNKNOWN._replace(gpu=ZERO)):
        assert decide(facts._replace(need=need)) == Decision(need.value)


NAMES = st.sampled_from(["auto", "in_order", "heft", "eager", "balance", "file.py:Mine", "Plan (an object)"])
TIMES = st.sampled_from([SHORT, WORTH, MIDDLE, LONG, 10 * LONG, inf])
COUNTS = st.integers(0, 40)
GRAPHS = st.builds(
    MeasuredGraph,
    nodes=st.sampled_from([1, 5, HORIZON]),
    device=st.sampled_from([None, ZERO, ONE]),
    stays=st.booleans(),
    repeats=st.booleans(),
    latest=TIMES,
    eager=TIMES,
    eager_runs=COUNTS,
    planned=TIMES,
    planned_runs=COUNTS,
    is_analysed=st.booleans(),
    spare=st.floats(-1.0, 1.0),
    planning=st.floats(0.0, 1.0),
    since=COUNTS,
    retries=st.integers(0, 20),
    whole=TIMES,
)
ALL_FACTS = st.builds(
    Facts,
    policy=NAMES,
    need=st.none() | st.sampled_from(Need),
    devices=st.integers(1, 3),
    away=st.frozensets(st.sampled_from([ZERO, ONE])),
    gpu=st.sampled_from([None, ZERO]),
    fastest=st.sampled_from([None, ONE]),
    is_demanded=st.booleans(),
    is_awaited=st.booleans(),
    is_mortal=st.booleans(),
    fresh=st.lists(st.tuples(TIMES, st.integers(1, 3)), max_size=ENOUGH).map(tuple),
    first=TIMES,
    graph=st.none() | GRAPHS,
)


@given(ALL_FACTS)
def test_whatever_is_known_a_decision_can_be_obeyed(facts: Facts) -> None:
    decision = decide(facts)
    assert decision == decide(facts)
    assert decision.reason
    assert "\n" not in decision.reason
    if decision.device is not None:  # no policy that was named is replaced by another one
        assert facts.policy in ("auto", "in_order")
        assert facts.need is None
        assert decision.device not in facts.away
        guessed = facts.devices > 1 and (facts.graph is None or facts.graph.device is None)
        assert not (facts.policy == "in_order" and guessed)
    if decision.is_settled:
        assert facts.devices == 1 or (facts.graph is not None and facts.graph.eager < WORTH)


def test_the_other_way_is_tried_again_ever_more_rarely() -> None:
    for eager, planned, other in ((MIDDLE, SLOWER, None), (SLOWER, MIDDLE, ONE)):
        for retries in range(12):
            due = min(RETRIED * 2**retries, RARELY)
            before = decide(graph(eager, planned, since=due - 1, retries=retries))
            then = decide(graph(eager, planned, since=due, retries=retries))
            assert (before.is_compared, before.is_trial, then.is_trial) == (True, False, True)
            assert (then.device, before.device) == (other, ONE if other is None else None)


@pytest.mark.parametrize(("eager", "planned"), [(MIDDLE, 2 * LOSING * MIDDLE), (2 * LOSING * MIDDLE, MIDDLE)])
def test_what_has_lost_is_tried_again_when_all_runs_pay_for_it(eager: float, planned: float) -> None:
    """One run that something else has disturbed does not decide for ever."""
    cost = 2 * LOSING * MIDDLE
    for spare, is_trial in ((cost + 1e-9, True), (cost - 1e-9, False)):
        assert decide(graph(eager, planned, since=RETRIED, spare=spare)).is_trial is is_trial


def test_what_gains_nothing_is_not_tried_again() -> None:
    assert not decide(graph(SHORT, MIDDLE, since=10 * RARELY)).is_trial


@pytest.mark.parametrize(("eager", "planned"), [(MIDDLE, SLOWER), (SLOWER, MIDDLE)])
def test_no_trial_costs_more_than_is_to_spare(eager: float, planned: float) -> None:
    for spare, is_trial in ((SLOWER - MIDDLE + 1e-9, True), (SLOWER - MIDDLE - 1e-9, False)):
        assert decide(graph(eager, planned, since=RARELY, spare=spare)).is_trial is is_trial


@pytest.mark.parametrize(
    ("changed", "settled"),
    [
        ({}, True),
        ({"eager_runs": ENOUGH}, False),
        ({"repeats": False}, False),
        ({"eager": WORTH}, False),
        ({"planned": SHORT / 2}, False),
    ],
)
def test_what_repeats_and_is_short_is_not_examined_each_time(changed: dict[str, object], settled: bool) -> None:
    known = {"eager": SHORT, "planned": MIDDLE, "eager_runs": ENOUGH + 1, "repeats": True, **changed}
    assert decide(graph(**known)).is_settled is settled  # type: ignore[arg-type]


def test_streams_end_some_time() -> None:
    assert is_light(MOST_ARRAYS, LIGHT)
    assert not is_light(MOST_ARRAYS + 1, 0)
    assert not is_light(0, LIGHT + 1)


ELSEWHERE = {
    "ENOUGH": {"recurring_graph.py", "graph_cache.py"},
    "RECENT": {"recurring_graph.py"},
    "WORTH": {"recurring_graph.py"},
}
"""The modules that remember as much as the rule asks for."""


def test_nobody_else_decides() -> None:
    """Other modules gather facts and obey: they have none of the rule's numbers."""
    own = {name for name in vars(eager_rule) if name.isupper()} - {
        *("ENQUEUING", "HORIZON", "LOSING", "PLANNING", "SHORTEST", "SUBMITTED")
    }
    assert own == {
        "WORTH",
        "SHORT",
        "LONG",
        "ENOUGH",
        "TRIALS",
        "RECENT",
        "RETRIED",
        "RARELY",
        "SEVERAL",
        "MOST_ARRAYS",
        "LIGHT",
    }
    for path in Path(manycl.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "eager_rule" in text else ():
            if isinstance(node, ast.ImportFrom) and node.module == "manycl.run.streams.eager_rule":
                for name in {alias.name for alias in node.names} & own:
                    assert path.name in ELSEWHERE.get(name, ()), (path, name)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "eager_rule":
                raise AssertionError(f"{path} reaches into the rule: {node.attr}")


@pytest.mark.parametrize("zero_copy", ["0", "1"])
@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("then", ["heft", "eager", "in_order", "plan"])
def test_a_policy_that_is_named_later_is_what_runs(
    zero_copy: str, then: str, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the device was about to be given the next commands without a plan."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", zero_copy)
    with mc.Queue("cpu/1") as queue:
        a, count = queue.zeros(COUNT, np.int32), 0
        for _ in range(6):
            PROGRAM.add(queue, (COUNT,), (GROUP,), a, 1)
            queue.finish()
        PROGRAM.add(queue, (COUNT,), (GROUP,), a, 1)
        if asks:
            queue.finish()
        plan = Plan((Assignment(0, DeviceIndex(0), 0, 0.0, 1.0),), "in_order", tuple(queue.devices), 1.0)
        for policy, name in ((plan if then == "plan" else then, "in_order" if then == "plan" else then), ("auto", "")):
            queue.policy = policy
            for _ in range(3):
                PROGRAM.add(queue, (COUNT,), (GROUP,), a, 1)
                count += 1
                queue.finish()
                (why,) = queue.result.details[SUBMITTED]
                is_eager = queue.result.plan is not None and UNPLANNED in queue.result.plan.details
                assert is_eager == why.startswith("eager: ")
                assert not is_eager or policy in ("auto", "in_order")
                assert not name or queue.result.policy == name
        assert is_eager, "auto goes on as before"
        assert (a.get() == 7 + count).all()


def test_a_run_says_why_it_was_not_planned_or_why_it_was(tmp_path: Path) -> None:
    def reasons(queue: mc.Queue) -> list[str]:
        return queue.trace.details[SUBMITTED]

    with mc.Queue("cpu/1") as queue:
        a = queue.zeros(COUNT, np.int32)
        for _ in range(3):
            PROGRAM.add(queue, (COUNT,), (GROUP,), a, 1)
            queue.finish()
            assert reasons(queue) == ["eager: there is one device"]
            assert "eager: there is one device" in queue.trace.summary().splitlines()
        PROGRAM.add(queue, (COUNT,), (GROUP,), a, 1)
        queue.call(lambda x: None, a)
        queue.finish()
        assert reasons(queue) == ["eager: there is one device", f"planned: {Need.HOST.value}"]
        for made, need in (
            (lambda: queue.component(), Need.COMPONENT),
            (lambda: nullcontext(), Need.PREFERENCE),
        ):
            with made():
                PROGRAM.add(queue, (COUNT,), (GROUP,), a, 1, device="cpu" if need is Need.PREFERENCE else "")
            queue.finish()
            assert reasons(queue) == [f"planned: {need.value}"]
    for settings, reason in (
        ({"policy": "heft"}, "policy heft was asked for"),
        ({"queues": {"cpu": 2}}, Need.QUEUES.value),
        ({"options": {"budget": "1.0"}}, Need.OPTIONS.value),
    ):
        with mc.Queue("cpu/1", **settings) as queue:
            a = queue.zeros(COUNT, np.int32)
            PROGRAM.add(queue, (COUNT,), (GROUP,), a, 1)
            queue.finish()
            assert reasons(queue) == [f"planned: {reason}"]
    with mc.Queue("cpu/1") as queue, queue.report(tmp_path / "all.jsonl"):
        a = queue.zeros(COUNT, np.int32)
        for _ in range(5):
            PROGRAM.add(queue, (COUNT,), (GROUP,), a, 1)
            queue.finish()
    found = Trace.load(tmp_path / "all.jsonl").details[SUBMITTED]
    assert found == ["eager: there is one device"]
