"""Policies of the user's own: as a function, as a class, from a file; and those that decide nonsense."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from manycl.errors import PolicyError
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policy import Choice, Component, DeviceState, KernelByKernel, find, names, register
from manycl.plan.problem import Problem
from manycl.plan.verification.verify import verify
from manycl.run.simulation.simulate import plan_with, simulate
from tests.plan.plan_cases import chains, problem


def case() -> Problem:
    return problem(chains(3, 2), [1.0, 2.0])


def last_device(frontier: Sequence[Component], devices: Sequence[DeviceState], now: float) -> Choice | None:
    return Choice(frontier[0].index, devices[-1].index) if devices[-1].free else None


def test_a_function() -> None:
    register("last")(last_device)
    assert "last" in names()
    plan = plan_with("last", case())
    assert {a.device for a in plan.assignments} == {1}
    assert plan.makespan == pytest.approx(12.0)
    assert plan.policy == "last"


def test_a_dynamic_class_with_queues_of_its_own() -> None:
    @register("halves")
    class Halves(KernelByKernel):
        def resident(self, device: int) -> int:
            return 2

        def queues(self, device: int) -> int:
            return 2

        def select(self, frontier: Sequence[Component], devices: Sequence[DeviceState], now: float) -> Choice | None:
            free = [d for d in devices if d.free]
            return Choice(frontier[0].index, free[0].index) if free else None

    plan = plan_with("halves", case())
    assert {(a.device, a.queue) for a in plan.assignments} == {(0, 0), (0, 1), (1, 0)}


def test_a_static_class() -> None:
    @register("backwards")
    class Backwards:
        def plan(self, p: Problem) -> Plan:
            members, t = [], 0.0
            for n in range(len(p.graph)):
                end = t + p.estimates.launch(n, 1)
                members.append(Assignment(n, 1, 0, t, end))
                t = end
            return Plan(tuple(members), "backwards", tuple(d.name for d in p.machine.devices), t)

    p = case()
    plan = plan_with("backwards", p)
    verify(plan, p.graph, p.machine, p)
    assert len(plan.events) == len(p.graph)
    assert simulate(p, "backwards").makespan == pytest.approx(12.0)


def test_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import manycl as mc\n"
        "@mc.policy('first_free')\n"
        "def first_free(frontier, devices, now):\n"
        "    return next((mc.Choice(frontier[0].index, d.index) for d in devices if d.free), None)\n"
    )
    assert plan_with(f"{file}:first_free", case()).makespan == pytest.approx(plan_with("eager", case()).makespan)
    with pytest.raises(PolicyError, match="no policy is called 'other'"):
        find(f"{file}:other")
    with pytest.raises(PolicyError, match="no such policy file"):
        find(f"{tmp_path / 'none.py'}:x")
    file.write_text("1 / 0")
    with pytest.raises(PolicyError, match="ZeroDivisionError"):
        find(f"{file}:x")


def test_unknown_names_list_what_there_is() -> None:
    with pytest.raises(PolicyError, match=r"(?s)no policy is called 'nonsense'.*auto, .*clustering, .*eager"):
        find("nonsense")


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(PolicyError, match="needs a method"):
        register("x")(type("Empty", (), {}))
    with pytest.raises(PolicyError, match="neither a class nor a function"):
        register("x")(3)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda f, d, now: (0, 0), "not a Choice"),
        (lambda f, d, now: Choice(99, 0), "not on the frontier"),
        (lambda f, d, now: Choice(f[0].index, 7), "chose device 7; there are 2"),
        (lambda f, d, now: Choice(f[0].index, 0), "cpu0, which is not free"),
        (lambda f, d, now: None, "places nothing although every device is idle"),
    ],
)
def test_a_dynamic_policy_that_answers_nonsense(answer: Any, words: str) -> None:
    register("nonsense")(answer)
    with pytest.raises(PolicyError, match=words):
        plan_with("nonsense", case())


def test_a_static_policy_that_plans_nonsense() -> None:
    class Partial:
        def plan(self, p: Problem) -> Plan:
            return Plan((Assignment(0, 0, 0, 0.0, 1.0),), "partial", ("cpu0", "cpu1"), 1.0)

    with pytest.raises(PolicyError, match=r"node 5 \(c2.1\) is assigned 0 times"):
        plan_with(Partial(), case())
    with pytest.raises(PolicyError, match="planned 1 of 6 nodes"):
        simulate(case(), Partial())


def test_components_that_are_no_partition() -> None:
    class Overlap(KernelByKernel):
        def components(self, graph: Any) -> tuple[tuple[int, ...], ...]:
            return ((0, 1), (1, 2))

    with pytest.raises(PolicyError, match="no partition"):
        plan_with(Overlap(), case())
