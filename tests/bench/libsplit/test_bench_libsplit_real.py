"""What divisions take on devices that are here, which of them are measured how often, and which is the oracle's."""

from __future__ import annotations

import math
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from manycl.machine import Device
from manycl_bench.libsplit import real
from manycl_bench.libsplit.real import FAR, Bench, Division, Settings, Taken

COSTS = (1.0, 4.0)


class Counted(Bench):
    """Families of 100 groups on two devices, the second four times as slow; a policy that always divides like ``own``.
    What families on several devices wait for each other is ``moving`` times how far their cuts are apart."""

    def __init__(self, own: Division, moving: float = 0.0) -> None:
        self.own, self.moving, self.forgotten, self.moves = own, moving, 0, False
        self.families = tuple(  # type: ignore[assignment]
            SimpleNamespace(members=(n,), leader=SimpleNamespace(groups=100, node=n)) for n in range(len(own))
        )
        self.problem = SimpleNamespace(handover=0.0)  # type: ignore[assignment]
        self.later = self.problem
        forget = SimpleNamespace(forget=lambda: setattr(self, "forgotten", self.forgotten + 1))
        session = SimpleNamespace(models=forget, problem=lambda graph: self.later)
        self.queue, self.graph = SimpleNamespace(session=session), None  # type: ignore[assignment]
        self.devices = (Device("one", "cpu"), Device("two", "cpu", slowdown=4.0))
        self.runs, self._prepared, self.disturbed = {}, {}, 0

    def prepared(self, policy: Any, options: Any = None) -> Any:
        division = tuple(policy.ranges.values()) if hasattr(policy, "ranges") else self.own
        return SimpleNamespace(division=division, run=lambda: None)

    def chosen(self, policy: Any) -> Division:
        return self.own

    def run(self, prepared: Any) -> Taken:
        self.disturbed += 1
        slower = 3.0 if self.disturbed % 5 == 0 else 1.0  # somebody else uses the machine
        firsts = [at[1] for at in prepared.division]
        moved = self.moving * (max(firsts) - min(firsts))
        seconds = tuple((slower * (at[1] * COSTS[0] + moved), COSTS[1] * (100 - at[1])) for at in prepared.division)
        return Taken(seconds, tuple((moved, 0.0) for _ in seconds))


@pytest.fixture(autouse=True)
def plain_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real, "of_family", lambda family, at: {family.members[0]: at})


def test_what_takes_far_longer_than_the_best_is_measured_once_and_the_shortest_run_counts() -> None:
    bench = Counted(((0, 80, 100),))
    best, near, slow = ((0, 80, 100),), ((0, 70, 100),), ((0, 0, 100),)
    bench.in_turns([best, near, slow, near], 5, math.inf)
    assert {division: len(runs) for division, runs in bench.runs.items()} == {best: 5, near: 5, slow: 1}
    assert [bench.seconds(d) for d in (best, near, slow)] == [80.0, 120.0, 400.0]
    assert bench.seconds(slow) > FAR * bench.seconds(best)
    bench.in_turns([best], 5, 0.0)
    assert len(bench.runs[best]) == 7, "however late it is, twice"


@pytest.mark.parametrize(("cut", "behind"), [(80, 0.0), (76, 20.0)])
def test_the_oracle_is_the_best_of_all_that_are_near(cut: int, behind: float) -> None:
    bench = Counted(((0, cut, 100),))
    row = real.judged(bench, Settings(seconds=1e6, turns=9))
    assert bench.forgotten == len(row["tried"]) == real.TRIES
    assert row["oracle"] == ((0, 80, 100),)
    assert row["within_oracle_percent"] == pytest.approx(behind)
    assert row["iterations"] == row["settled"] == (9 if behind else 1)
    assert (row["alone_ms"], row["uniform_speedup"], row["oracle_speedup"]) == (1e5, 0.5, 1.25)


def test_families_are_the_best_together_unless_data_move_between_them() -> None:
    """Cut apart, each is as good as the other; what moves is seen only by whoever runs both."""
    apart = (0, 60, 100), (0, 80, 100)
    free, moving = Counted(apart), Counted(apart, moving=10.0)
    for bench in (free, moving):
        bench.in_turns([apart, ((0, 80, 100), (0, 60, 100)), ((0, 70, 100), (0, 70, 100))], 3, math.inf)
        assert bench.composed() == ((0, 80, 100), (0, 80, 100)) if bench is free else bench.composed() != apart
    assert min(moving.runs, key=moving.seconds) == ((0, 70, 100), (0, 70, 100))


def test_handovers_are_judged_as_runs_have_shown_them() -> None:
    """So long that nothing is divided by who knows that."""
    bench = Counted(((0, 80, 100),))
    bench.later = SimpleNamespace(handover=30.0)
    row = real.judged(bench, Settings(seconds=1e6, turns=3))
    assert row["handover_us"] == 30e6
    assert 0 in [b - a for at in row["oracle"] for a, b in pairwise(at)]


def test_neighbours_have_a_group_more_or_less_at_least_and_the_others_share_the_rest() -> None:
    bench = Counted(((0, 80, 100),))
    assert bench.near(((0, 80, 100),), (0.05, 0.001)) == [
        *([((0, n, 100),) for n in (84, 76, 81, 79)]),
        *([((0, n, 100),) for n in (79, 81, 79, 81)]),
    ]
    assert bench.near(((0, 0, 100),), (0.1,)) == [((0, 0, 100),)] * 4
