"""Plans without the devices that are away."""

from __future__ import annotations

from dataclasses import replace

import pytest

from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.rescheduling import on_present
from tests.run.chaos.test_state import Unit, launch, machine

NAMES = ("d0", "d1", "d2")


def problem(count: int) -> Problem:
    builder = GraphBuilder()
    for _ in range(count):
        builder.add(launch("k", (builder.buffer(4),), (builder.buffer(4),)))
    return Problem(builder.build(), machine([1, 2, 3]), Unit(), (1, 1, 1))


def on(devices: list[int]) -> Plan:
    return Plan(tuple(Assignment(n, d, 0, 0.0, 1.0) for n, d in enumerate(devices)), "given", NAMES, 1.0)


def test_devices_that_are_left_share_what_others_were_to_run() -> None:
    found = on_present(replace(problem(5), away=frozenset({2})), on([0, 2, 2, 2, 2]))
    assert [a.device for a in found.assignments] == [0, 1, 0, 1, 0]
    assert not found.foreseen


def test_a_plan_stays_where_nothing_of_it_is_away_or_everything_is() -> None:
    plan = on([0, 1, 1])
    assert on_present(problem(3), plan) is plan
    assert on_present(replace(problem(3), away=frozenset({2})), plan) is plan
    assert on_present(replace(problem(3), away=frozenset({0, 1, 2})), plan) is plan


def test_what_no_other_device_can_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Problem, "can_run", lambda _, node, device: device == 2)
    with pytest.raises(PolicyError):
        on_present(replace(problem(2), away=frozenset({2})), on([2, 2]))
