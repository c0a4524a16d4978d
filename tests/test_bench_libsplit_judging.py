"""Which divisions are measured how often: what cannot be the best takes no time that the others need."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from manycl.bench.libsplit import judging
from manycl.bench.libsplit.judging import FAR, LONG, Bench, Division, Taken


class Counted(Bench):
    """Runs of two devices that take as many milliseconds as they have groups, the second one four times as many."""

    def __init__(self, groups: int = 100, unit: float = 1e-3) -> None:
        self.groups, self.unit = groups, unit
        self.families = (SimpleNamespace(members=(0,)),)  # type: ignore[assignment]
        self.problem = SimpleNamespace(handover=0.0)  # type: ignore[assignment]
        self._prepared = {}
        self.times: dict[Division, int] = {}

    def prepared(self, policy: Any, options: Any = None) -> Any:
        return policy.ranges

    def run(self, prepared: Any) -> Taken:
        (at,) = prepared[0]
        self.times[(at,)] = self.times.get((at,), 0) + 1
        return Taken(((self.unit * at[1], 4.0 * self.unit * (at[2] - at[1])),), 0.0)


@pytest.fixture(autouse=True)
def plain_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging.divisions, "of_family", lambda family, at: {0: (at,)})


def test_what_takes_far_longer_than_the_best_is_measured_once() -> None:
    bench = Counted()
    best, near, slow = ((0, 80, 100),), ((0, 70, 100),), ((0, 0, 100),)
    table = bench.in_turns([best, near, slow], 5, math.inf)
    assert {division: len(runs) for division, runs in table.runs.items()} == {best: 5, near: 5, slow: 1}
    assert table.seconds(slow) > FAR * table.seconds(best)


def test_a_long_run_is_not_made_twice_to_bring_its_data() -> None:
    for unit, times in ((1e-3, 2), (LONG / 50.0, 1)):
        bench = Counted(unit=unit)
        bench.measured(((0, 80, 100),))
        assert bench.times == {((0, 80, 100),): times}
