"""What divisions take, transfers included, which of them are measured how often, and which is the oracle's."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from manycl.machine import Device, Machine
from manycl_bench.libsplit import judging, real
from manycl_bench.libsplit.judging import FAR, LONG, Bench, Division, Table, Taken

MACHINE = Machine((Device("cpu", "cpu"), Device("one", "gpu", memory=1), Device("two", "gpu", memory=2)))


class Counted(Bench):
    """Runs of two devices that take as many milliseconds as they have groups, the second one four times as many; and
    longer if others use them: ``slower`` says how many times, by the run's number and the device."""

    def __init__(self, groups: int = 100, unit: float = 1e-3, *, moves: bool = False) -> None:
        self.groups, self.unit = groups, unit
        self.families = (SimpleNamespace(members=(0,), leader=SimpleNamespace(groups=groups)),)  # type: ignore[assignment]
        self.problem = SimpleNamespace(handover=0.0)  # type: ignore[assignment]
        self.queue = SimpleNamespace(session=SimpleNamespace(models=SimpleNamespace(forget=lambda: None)))  # type: ignore[assignment]
        self.moves = moves
        self.devices = (Device("one", "cpu"), Device("two", "cpu", slowdown=4.0))
        self.held = ()
        self._prepared = {}
        self._looks = []
        self.times: dict[Division, int] = {}
        self.slower: Callable[[int, int], float] = lambda run, device: 1.0
        self.own: Division = ((0, groups // 2, groups),)
        self.reference = self.parts([1.0, 0.25])

    def learn(self) -> None:
        """Nothing."""

    def prepared(self, policy: Any, options: Any = None) -> Any:
        return policy.ranges if hasattr(policy, "ranges") else {0: self.own}

    def chosen(self, policy: Any) -> Division:
        return self.own

    def run(self, prepared: Any) -> Taken:
        (at,) = prepared[0]
        number = sum(self.times.values())
        self.times[(at,)] = self.times.get((at,), 0) + 1
        one, two = self.unit * at[1], 4.0 * self.unit * (at[2] - at[1])
        seconds = one * self.slower(number, 0), two * self.slower(number, 1)
        return Taken((seconds,), ((0.0, 0.0),) if self.moves else ())


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
        bench = Counted(unit=unit, moves=True)
        bench.measured(((0, 70, 100),))
        assert bench.times == {((0, 70, 100),): times}
    assert not Taken(((2.0 * LONG,),), ((0.1 * LONG,),)).long()  # bringing them is part of what it took


def test_however_late_it_is_all_are_measured_once() -> None:
    several = [((0, n, 100),) for n in (70, 80, 90)]
    for until, latest, times in ((math.inf, math.inf, 5), (0.0, math.inf, 3), (0.0, 0.0, 1)):
        table = Counted().in_turns(several, 5, until, 3, latest)
        assert [len(table.runs[division]) for division in several] == [times] * 3


def test_a_run_is_between_two_of_the_reference_which_divides_as_devices_are_said_to_be() -> None:
    bench = Counted()
    several = [((0, n, 100),) for n in (60, 70, 90)]
    table = bench.in_turns(several, 2, math.inf)
    assert bench.times[((0, 80, 100),)] == 1 + sum(map(len, table.runs.values()))
    assert {taken.beside for runs in table.runs.values() for taken in runs} == {(0.08, 0.08)}


@pytest.mark.parametrize("seed", range(20))
def test_what_others_do_to_a_device_for_longer_than_a_run_changes_nothing(seed: int) -> None:
    """Each is slower by something else, for some runs; what it takes is told as of the state that is held."""
    chance, bench = random.Random(seed), Counted()
    states = [[chance.uniform(1.0, 3.0) for _ in range(2)] for _ in range(6)]
    lasting = chance.randint(12, 60)
    bench.slower = lambda run, device: states[run // lasting % len(states)][device]
    several = [((0, n, 100),) for n in (60, 80, 95)]
    table = bench.in_turns(several, 30, math.inf)
    bench.held = (0.08, 0.08 * 1.5)
    for ((_, n, groups),) in several:
        one, two = table.devices(0, (0, n, groups))
        assert one == pytest.approx(1e-3 * n, rel=0.02)
        assert two == pytest.approx(4e-3 * (groups - n) * 1.5, rel=0.02)


@pytest.mark.parametrize("seed", range(20))
def test_a_range_is_told_by_those_of_about_its_length(seed: int) -> None:
    """A seventh of all times are three times too long."""
    chance = random.Random(seed)
    power, unit, length = chance.uniform(0.6, 2.0), chance.uniform(1e-5, 1.0), chance.randint(40, 400)

    def seconds(n: int) -> float:
        noise = math.exp(chance.gauss(0.0, 0.005))
        return float(unit * (n / 100.0) ** power * (noise if chance.random() < 0.85 else 3.0 * noise))

    lengths = [max(round(length * (1.0 + part)), 1) for part in (-0.5, -0.08, -0.03, 0.0, 0.03, 0.08, 1.0)]
    found = judging._level(length, [(n, seconds(n)) for n in lengths for _ in range(40)])
    assert found == pytest.approx(unit * (length / 100.0) ** power, rel=0.015)


TRY = 2 * real.Settings().repetitions + 1
"""Runs of a try: the reference before and after each repetition."""


@pytest.mark.parametrize(("cut", "behind"), [(67, 0.0), (80, 20.0)])
def test_the_oracle_is_the_best_split_for_the_speeds_that_devices_had_while_it_was_adapted(
    cut: int, behind: float
) -> None:
    """The first device was half as fast then, and the policy has followed it or has not; later it is alone again."""
    bench = Counted()
    bench.own = ((0, cut, 100),)
    early = (1 + real.COUNT) * TRY
    bench.slower = lambda run, device: 2.0 if device == 0 and run < early else 1.0
    row = real.judged(bench, real.Settings(seconds=1e6, turns=9))
    assert len(row["counted"]) == 1 + len(row["other_tries"]) == real.COUNT
    assert bench.reference == bench.own
    assert sum(bench.times.values()) > early + 100
    assert row["within_oracle_percent"] == pytest.approx(behind, abs=1.5)


@pytest.mark.parametrize(("slow", "behind"), [(2, 0.0), (3, 20.0)])
def test_what_is_told_is_the_median_of_tries_each_for_the_speeds_of_its_own_time(slow: int, behind: float) -> None:
    """The policy divides as is right where the second core is four times slower; in some tries the first one was half
    as fast."""
    bench = Counted()
    bench.own = ((0, 80, 100),)
    first, last = 2 * TRY, (2 + slow) * TRY  # not in the one that gives the reference, nor in the next
    bench.slower = lambda run, device: 2.0 if device == 0 and first <= run < last else 1.0
    row = real.judged(bench, real.Settings(seconds=1e6, turns=9))
    several = [counted["within_oracle_percent"] for counted in row["counted"]]
    assert sorted(several) == pytest.approx([0.0] * (real.COUNT - slow) + [20.0] * slow, abs=1.5)
    assert row["within_oracle_percent"] == pytest.approx(behind, abs=1.5)
    assert row["iterations"] == row["settled"] == (9 if behind else 1)
    assert [counted["oracle"] for counted in row["counted"]].count(((0, 80, 100),)) == real.COUNT - slow


@pytest.mark.parametrize(("cut", "behind"), [(80, 0.0), (76, 20.0)])
def test_a_cpu_beside_a_gpu_is_as_fast_as_it_was_while_it_was_adapted(cut: int, behind: float) -> None:
    """It is half as fast by the time that divisions are compared; there is no reference."""
    bench = Counted(moves=True)
    bench.devices = (Device("gpu", "gpu", memory=1), Device("cpu", "cpu"))
    bench.own = ((0, cut, 100),)
    tries = real.COUNT * real.Settings().repetitions
    bench.slower = lambda run, device: 2.0 if device == 1 and run >= tries else 1.0
    row = real.judged(bench, real.Settings(seconds=1e6, turns=9))
    assert len(row["counted"]) == real.COUNT
    assert row["within_oracle_percent"] == pytest.approx(behind, abs=1.5)


class Handing(Bench):
    """Two families of a CPU and a GPU: what the first one writes on one device and the second one needs on the other
    moves. Alone, the first one is the shortest divided in halves, the second one in quarters."""

    MOVING = 8.0

    def __init__(self, moves: bool = True) -> None:
        several = [SimpleNamespace(members=(n,), leader=SimpleNamespace(groups=20)) for n in (0, 1)]
        self.families = tuple(several)  # type: ignore[arg-type]
        self.problem = SimpleNamespace(handover=0.0)  # type: ignore[assignment]
        self.forgotten = 0
        models = SimpleNamespace(forget=lambda: setattr(self, "forgotten", self.forgotten + 1))
        self.queue = SimpleNamespace(session=SimpleNamespace(models=models))  # type: ignore[assignment]
        self.devices = (Device("cpu", "cpu"), Device("one", "gpu", memory=1))
        self.moves = moves
        self.held = ()
        self._looks = []
        self.reference = self.parts([1.0, 1.0])
        self._prepared = {}

    def learn(self) -> None:
        """What runs have shown."""
        self.problem = SimpleNamespace(handover=2.0)  # type: ignore[assignment]

    def prepared(self, policy: Any, options: Any = None) -> Any:
        return tuple(policy.ranges.values()) if hasattr(policy, "ranges") else ((0, 10, 20), (0, 15, 20))

    def chosen(self, policy: Any) -> Division:
        return (0, 10, 20), (0, 15, 20)

    def run(self, prepared: Any) -> Taken:
        (_, a, n), (_, b, _) = prepared
        first, second = (a / n, 1.0 - a / n), (b / n, 3.0 * (1.0 - b / n))
        moved = self.MOVING * abs(a - b) / n if self.moves else 0.0
        return Taken((first, (second[0] + moved, second[1])), ((0.0, 0.0), (moved, 0.0)))


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
def test_handovers_are_judged_as_runs_have_shown_them() -> None:
    """Two seconds each: nothing is divided by who knows that."""
    row = real.judged(Handing(False), real.Settings(seconds=1e6))
    assert row["handover_us"] == 2e6
    assert all(0 in groups for groups in ([b - a for a, b in pairwise(at)] for at in row["counted"][0]["oracle"]))


@pytest.mark.usefixtures("both_families")
def test_what_was_adapted_is_judged_with_what_it_moves() -> None:
    """It has cut each family as is best for itself."""
    free = Handing(False)
    free.learn = lambda: None  # type: ignore[method-assign]
    row = real.judged(free, real.Settings(seconds=1e6))
    assert row["within_oracle_percent"] == 0.0
    bench = Handing()
    bench.learn = lambda: None  # type: ignore[method-assign]
    row = real.judged(bench, real.Settings(seconds=1e6))
    assert bench.forgotten == 1 + len(row["other_tries"])  # each begins with nothing measured
    (_, a, _), (_, b, _) = row["counted"][0]["oracle"]
    assert abs(a - b) <= 1
    assert row["within_oracle_percent"] > 25.0
    assert row["iterations"] == row["settled"] == real.Settings().repetitions + 1


def repetition(cut: int, first: float, second: float, beside: tuple[float, ...] = ()) -> dict[str, Any]:
    brief = [0.1, 0.0]
    return {
        "cuts": ((0, 1, 1), (0, cut, 100)),
        "ms": [brief, [first, second]],
        "moved_ms": [[0.0, 0.0], [0.0, 0.0]],
        "beside_ms": beside,
    }


def test_a_try_in_which_the_policy_adapts_is_not_disturbed() -> None:
    moving = [repetition(c, 0.1 * c, 0.1 * (100 - c)) for c in (20, 70, 55, 50, 50, 50, 50, 50)]
    assert real._disturbed(moving) == pytest.approx(0.0, abs=1e-9)  # it adapts: that is no disturbance

    def taking(row: dict[str, Any], first: float, second: float) -> dict[str, Any]:
        own, (one, two) = row["ms"]
        return {**row, "ms": [own, [first * one, second * two]]}

    restless = [taking(row, 1.0, 1.0 + i % 2) for i, row in enumerate(moving)]
    assert real._disturbed(restless) > 1.0
    once = [taking(row, 9.0 if i == 4 else 1.0, 1.0) for i, row in enumerate(moving)]
    assert real._disturbed(once) <= 1.0  # the policy does not believe one time


def test_where_there_is_a_reference_a_try_is_disturbed_if_devices_change_against_each_other() -> None:
    def rows(*beside: tuple[float, ...]) -> Any:
        return [repetition(50, 0.2 * b[0], 0.2 * b[1], b) for b in beside]

    assert real._disturbed(rows(*[(5.0, 7.0)] * 8)) == pytest.approx(0.0, abs=1e-9)
    assert real._disturbed(rows(*[(5.0 * n, 7.0 * n) for n in range(1, 9)])) == pytest.approx(0.0, abs=1e-9)
    one = real._disturbed(rows(*[(5.0, 7.0)] * 7, (5.0, 7.7)))
    assert one == pytest.approx(math.log(1.1) / math.sqrt(8.0) / real.DISTURBED)
    assert real._disturbed(rows(*[(5.0, 7.0), (5.0, 7.7)] * 4)) > one


def test_a_try_is_disturbed_if_what_work_groups_take_is_not_as_their_ranges_are_long() -> None:
    """Two devices, the second one's work-groups being the dearer the later they are."""

    def taken(cuts: tuple[int, ...], longer: float = 1.0) -> float:
        several = [repetition(c, 0.1 * c, 0.2 * (100 - c) ** 1.3, (5.0, 7.0)) for c in cuts]
        several[3]["ms"][1][0] *= longer
        return real._disturbed(several)

    cuts = (50, 70, 66, 68, 68, 67, 68, 68)
    assert taken(cuts) < 0.2
    assert taken(cuts, 1.1) > 1.0
    assert taken((66,) * 8, 1.1) > 1.0


def test_a_try_is_not_less_disturbed_since_it_went_whole_soon() -> None:
    several = [repetition(c, 0.1 * c, 0.1 * (100 - c), (5.0, 7.0)) for c in (50, 60, 55, 100, 100, 100, 100, 100)]
    assert real._disturbed(several) < 0.2
    several[2]["ms"][1][1] *= 1.4
    one = real._disturbed(several)
    several[2]["ms"][1][0] *= 1.4
    assert 1.0 < real._disturbed(several) < one, "both: all together count, but less"


def test_a_load_that_drifts_is_no_disturbance() -> None:
    drifting = [(1.0 + 0.01 * n, 2.0 - 0.01 * n) for n in range(30)]
    assert real._unsteady(drifting) < 0.1 * real.DISTURBED
    assert real._unsteady([(1.1 * a if n % 5 == 0 else a, b) for n, (a, b) in enumerate(drifting)]) > real.DISTURBED


def test_a_drifting_load_is_judged_for_the_speeds_that_devices_had_by_and_by() -> None:
    by_and_by = [(math.exp(0.01 * n - 2e-4 * n * n), math.exp(0.5 - 0.01 * n)) for n in range(30)]
    assert np.allclose(real._course(by_and_by), by_and_by)
    once = [(a, 1.5 * b if n == 11 else b) for n, (a, b) in enumerate(by_and_by)]
    assert real._course(once)[11][1] < 1.05 * by_and_by[11][1]
