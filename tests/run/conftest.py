"""Fixtures for the tests of runs."""

from __future__ import annotations

from typing import Any

import pytest

from manycl.plan.plan import Plan
from manycl.plan.policies.auto import Auto
from manycl.plan.problem import Problem
from manycl.run.stealing.player import MovingPlayer


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[MovingPlayer]:
    """Those who play runs with shares that may move."""
    found: list[MovingPlayer] = []
    following = MovingPlayer.following

    def noted(*given: Any) -> MovingPlayer:
        found.append(following(*given))
        return found[-1]

    monkeypatch.setattr(MovingPlayer, "following", noted)
    return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the graphs that ``auto`` has planned."""
    found: list[int] = []
    plan = Auto.plan

    def noted(self: Auto, problem: Problem) -> Plan:
        found.append(len(problem.graph))
        return plan(self, problem)

    monkeypatch.setattr(Auto, "plan", noted)
    return found
