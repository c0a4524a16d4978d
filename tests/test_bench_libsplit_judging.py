"""What divisions take, transfers included, which of them are measured how often, and which is the oracle's."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.bench.libsplit import judging, real
from manycl.bench.libsplit.judging import FAR, LONG, Bench, Division, Table, Taken
from manycl.machine import Device, Machine

MACHINE = Machine((Device("cpu", "cpu"), Device("one", "gpu", memory=1), Device("two", "gpu", memory=2)))


class Counted(Bench):
    """Runs of two devices that take as many milliseconds as they have groups, the second one four times as many."""

    def __init__(self, groups: int = 100, unit: float = 1e-3) -> None:
        self.groups, self.unit = groups, unit
        self.families = (SimpleNamespace(members=(0,)),)  # type: ignore[assignment]
        self.problem = SimpleNamespace(handover=0.0)  # type: ignore[assignment]
        self.moves = False
        self.devices = (Device("one", "cpu"), Device("two", "cpu"))
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
    assert not Taken(((2.0 * LONG,),), 0.0, ((0.1 * LONG,),)).long()  # bringing them is part of what it took


def test_however_late_it_is_all_are_measured_once() -> None:
    several = [((0, n, 100),) for n in (70, 80, 90)]
    for until, latest, times in ((math.inf, math.inf, 5), (0.0, math.inf, 3), (0.0, 0.0, 1)):
        table = Counted().in_turns(several, 5, until, 3, latest)
        assert [len(table.runs[division]) for division in several] == [times] * 3


@given(st.lists(st.tuples(st.floats(0.0, 10.0), st.integers(1, 9)), min_size=1, max_size=8))
def test_times_that_rise_are_the_nearest_ones(measured: list[tuple[float, int]]) -> None:
    values, weights = [v for v, _ in measured], [float(w) for _, w in measured]

    def mean(first: int, last: int) -> float:
        several = range(first, last + 1)
        return sum(values[i] * weights[i] for i in several) / sum(weights[i] for i in several)

    count = range(len(values))  # the minimax formula for what least squares give
    nearest = [max(min(mean(i, j) for j in count if j >= k) for i in count if i <= k) for k in count]
    assert judging._rising(values, weights) == pytest.approx(nearest)


def test_a_device_takes_no_longer_for_a_part_of_its_range() -> None:
    table = Table(Counted())
    for cut, seconds in ((20, (3.0, 9.0)), (30, (6.0, 7.0)), (40, (5.0, 8.0)), (50, (8.0, 5.0))):
        table.add(((0, cut, 100),), Taken((seconds,), 0.0))
    assert [table.devices(0, (0, cut, 100)) for cut in (20, 30, 40, 50)] == [
        [3.0, 9.0],
        [5.5, 7.5],
        [5.5, 7.5],
        [8.0, 5.0],
    ]


class Handing(Bench):
    """Two families of a CPU and a GPU: what the first one writes on one device and the second one needs on the other
    moves. Alone, the first one is the shortest divided in halves, the second one in quarters."""

    MOVING = 8.0

    def __init__(self, moves: bool = True) -> None:
        several = [SimpleNamespace(members=(n,), leader=SimpleNamespace(groups=20)) for n in (0, 1)]
        self.families = tuple(several)  # type: ignore[arg-type]
        self.problem = SimpleNamespace(handover=0.0)  # type: ignore[assignment]
        self.forgotten = 0
        session = SimpleNamespace(forget=lambda: setattr(self, "forgotten", self.forgotten + 1))
        self.queue = SimpleNamespace(session=session)  # type: ignore[assignment]
        self.devices = (Device("cpu", "cpu"), Device("one", "gpu", memory=1))
        self.moves = moves
        self._prepared = {}

    def prepared(self, policy: Any, options: Any = None) -> Any:
        return tuple(policy.ranges.values()) if hasattr(policy, "ranges") else ((0, 10, 20), (0, 15, 20))

    def chosen(self, policy: Any) -> Division:
        return (0, 10, 20), (0, 15, 20)

    def run(self, prepared: Any) -> Taken:
        (_, a, n), (_, b, _) = prepared
        first, second = (a / n, 1.0 - a / n), (b / n, 3.0 * (1.0 - b / n))
        moved = self.MOVING * abs(a - b) / n if self.moves else 0.0
        return Taken((first, (second[0] + moved, second[1])), 0.0, ((0.0, 0.0), (moved, 0.0)))


@pytest.fixture
def both_families(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging.divisions, "of_family", lambda family, at: {family.members[0]: at})


@pytest.mark.usefixtures("both_families")
@pytest.mark.parametrize("moves", [True, False])
def test_where_data_move_the_best_whole_is_not_made_of_the_best_of_each(moves: bool) -> None:
    bench, apart = Handing(moves), ((0, 10, 20), (0, 15, 20))
    table = Table(bench)
    for first in range(21):
        for second in range(21):
            division = (0, first, 20), (0, second, 20)
            table.add(division, bench.run(division))
    least = min(sum(map(max, taken.seconds)) for (taken,) in table.runs.values())
    assert min(map(table.seconds, table.best())) == pytest.approx(least)
    assert (table.best() == [apart]) == (not moves)
    assert (table.swapped(apart) == []) == (not moves)


@pytest.mark.usefixtures("both_families")
def test_what_was_adapted_is_judged_with_what_it_moves() -> None:
    """It has cut each family as is best for itself."""
    row = real.judged(Handing(False), real.Settings(seconds=1e6))
    assert row["within_oracle_percent"] == 0.0
    bench = Handing()
    row = real.judged(bench, real.Settings(seconds=1e6))
    assert bench.forgotten == 1 + len(row["other_tries"])  # each begins with nothing measured
    (_, a, _), (_, b, _) = row["oracle"]
    assert abs(a - b) <= 1
    assert row["within_oracle_percent"] > 25.0
    assert row["iterations"] == real.Settings().repetitions + 1


def repetition(cut: int, first: float, second: float, missing: float = 0.0) -> dict[str, Any]:
    brief = [0.1, 0.0]
    return {
        "cuts": ((0, 1, 1), (0, cut, 100)),
        "ms": [brief, [first, second]],
        "moved_ms": [[0.0, 0.0], [0.0, 0.0]],
        "missing": missing,
    }


def test_of_several_tries_the_one_that_was_disturbed_least_counts() -> None:
    moving = [repetition(c, 0.1 * c, 0.1 * (100 - c)) for c in (20, 70, 55, 50, 50, 50, 50, 50)]
    chosen: list[Division] = []
    assert real._disturbed((chosen, moving)) == pytest.approx(0.0, abs=1e-9)  # it adapts: that is no disturbance

    def taking(row: dict[str, Any], first: float, second: float) -> dict[str, Any]:
        own, (one, two) = row["ms"]
        return {**row, "ms": [own, [first * one, second * two]]}

    restless = [taking(row, 1.0, 1.0 + i % 2) for i, row in enumerate(moving)]
    assert real._disturbed((chosen, restless)) > 1.0
    once = [taking(row, 9.0 if i == 4 else 1.0, 1.0) for i, row in enumerate(moving)]
    assert real._disturbed((chosen, once)) <= 1.0  # the policy does not believe one time
    assert real._disturbed((chosen, [dict(row, missing=0.1) for row in moving])) > 1.0
