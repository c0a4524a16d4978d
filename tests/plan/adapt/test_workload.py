"""The workload that explains executions: foretold times are those of synthetic loads it was never told."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.plan.adapt.granularity import Beforehand, Wanted, adapted, cuts, start
from manycl.plan.adapt.workload import Execution, Prior, Workload, expected, fitted
from manycl.plan.tuning import ADAPT

GROUPS = 400
EVEN = (1.0,) * ADAPT.cells


def prior(speeds: tuple[float, ...], doubt: float = ADAPT.uncounted, rate_doubt: float = ADAPT.counted) -> Prior:
    return Prior(GROUPS, (0.0,) * len(speeds), EVEN, doubt, tuple(-math.log(s) for s in speeds), rate_doubt)


def executions(
    time: Callable[[int, int, int, int], float],
    *several: tuple[int, ...],
    noise: Callable[[int, int], float] = lambda turn, device: 1.0,
) -> list[Execution]:
    """Of these cuts, one after another; ``time(turn, device, first, end)``."""
    out = []
    for turn, at in enumerate(several):
        devices = range(len(at) - 1)
        seconds = (time(turn, d, at[d], at[d + 1]) * noise(turn, d) for d in devices)
        out.append(Execution(turn, at, tuple(seconds)))
    return out


def steep(at: float) -> float:
    """Work before a place: a group at the end costs nine times one at the start."""
    x = at / GROUPS
    return (x + 4.0 * x * x) / 5.0


def test_an_uneven_load_is_told_from_uneven_devices() -> None:
    """The same first times, of devices that are alike and a steep load, and of an even load."""

    def uneven(turn: int, d: int, a: int, b: int) -> float:
        return steep(b) - steep(a)

    first = uneven(0, 0, 0, 200), uneven(0, 1, 200, 400)

    def unlike(turn: int, d: int, a: int, b: int) -> float:
        return first[d] * (b - a) / 200

    for time in (uneven, unlike):
        load = fitted(prior((1.0, 1.0), rate_doubt=ADAPT.unknown), executions(time, (0, 200, 400), (0, 300, 400)))
        for at in (250, 270, 290):
            for d, (a, b) in enumerate(((0, at), (at, 400))):
                assert load.seconds(d, a, b) == pytest.approx(time(2, d, a, b), rel=0.06)


def test_what_was_counted_is_believed_until_times_say_otherwise() -> None:
    density = tuple(1.0 + 8.0 * (i + 0.5) / ADAPT.cells for i in range(ADAPT.cells))
    counted = Prior(GROUPS, (0.0, 0.0), density, ADAPT.counted, (0.0, 0.0), ADAPT.counted)
    half = expected(counted).level()
    assert steep(half[0]) == pytest.approx(0.5, abs=0.02)  # the density of this work

    g = start(
        GROUPS, (0.0, 0.0), (1.0, 1.0), known=Beforehand(density=density, doubt=ADAPT.counted, rate_doubt=ADAPT.counted)
    )
    assert cuts(g)[1] == pytest.approx(half[0], abs=1)
    for _ in range(8):
        g = adapted(g, [float(n) for n in g.shares])  # but all groups cost the same
    assert cuts(g)[1] == pytest.approx(200, abs=5)


@pytest.mark.parametrize("slower", [1.3, 2.0, 20.0])
@pytest.mark.parametrize("doubt", [ADAPT.counted, ADAPT.uncounted])
def test_one_time_that_is_too_long_says_little(slower: float, doubt: float) -> None:
    def even(turn: int, d: int, a: int, b: int) -> float:
        return (b - a) / GROUPS / (4.0, 1.0)[d]

    several = [(0, 320, 400)] * 3
    runs = executions(even, *several, noise=lambda turn, d: slower if (turn, d) == (2, 1) else 1.0)
    load = fitted(prior((4.0, 1.0), doubt), runs)
    assert load.level() == pytest.approx([320, 80], abs=2)


def test_a_drift_is_foreseen_and_noise_is_none() -> None:
    chance = random.Random(3)

    def drifting(turn: int, d: int, a: int, b: int) -> float:
        return (b - a) / GROUPS * (1.0 + 0.06 * turn * d)

    several = [(0, n, 400) for n in (200, 201, 207, 210, 215, 219, 223)]
    load = fitted(prior((1.0, 1.0)), executions(drifting, *several))
    assert load.drifting
    assert load.seconds(1, 225, 400) == pytest.approx(drifting(7, 1, 225, 400), rel=0.02)

    def steady(turn: int, d: int, a: int, b: int) -> float:
        return (b - a) / GROUPS

    found = 0
    for _ in range(40):
        runs = executions(steady, *several, noise=lambda turn, d: math.exp(chance.gauss(0.0, 0.03)))
        found += fitted(prior((1.0, 1.0), ADAPT.counted), runs).drifting
    assert found <= 2


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_all_end_together(data: st.DataObject) -> None:
    devices = data.draw(st.integers(2, 4))
    work = data.draw(st.lists(st.floats(0.05, 3.0), min_size=ADAPT.cells, max_size=ADAPT.cells))

    def some(low: float, high: float) -> tuple[float, ...]:
        return tuple(data.draw(st.lists(st.floats(low, high), min_size=devices, max_size=devices)))

    load = Workload(
        GROUPS,
        some(0.0, 0.1),
        tuple(work),
        some(-1, 1),
        some(-0.3, 0.5),
        some(-0.1, 0.1),
        some(-2, 0),
        (0.0,) * devices,
    )
    shares = load.level()
    assert sum(shares) == pytest.approx(GROUPS)
    at, ends = 0.0, []
    for d, n in enumerate(shares):
        ends.append(load.seconds(d, at, at + n) if n > 1e-9 else None)
        at += n
    used = [e for e in ends if e is not None]
    assert max(used) <= 1.001 * min(used)
    for d, e in enumerate(ends):
        if e is None:
            assert load.once[d] >= 0.999 * max(used)


def test_times_of_devices_that_never_ran_come_from_the_estimates() -> None:
    load = fitted(prior((4.0, 1.0)), [Execution(0, (0, 400, 400), (8.0, 0.0))])
    assert load.seconds(0, 0, 400) == pytest.approx(8.0, rel=0.02)
    assert load.seconds(1, 0, 400) == pytest.approx(32.0, rel=0.02)


def slowest(cut: float, scatter: float, times: int = 4000) -> float:
    """The mean time of the slower of two devices, the first of which is nineteen times as slow, and scatters."""
    chance = random.Random(7)
    return sum(max(19.0 * cut * chance.lognormvariate(0.0, scatter), 1.0 - cut) for _ in range(times)) / times


@pytest.mark.parametrize("scatter", [0.05, 0.1, 0.2])
def test_a_slow_device_that_scatters_gets_less(scatter: float) -> None:
    chance = random.Random(5)

    def even(turn: int, d: int, a: int, b: int) -> float:
        return (b - a) / GROUPS * (19.0, 1.0)[d] * (chance.lognormvariate(0.0, scatter) if d == 0 else 1.0)

    several = [(0, n, 400) for n in (20, 18, 21, 19, 20, 17, 20, 19)]
    load = fitted(prior((1.0, 19.0)), executions(even, *several))
    found = load.level()[0] / GROUPS
    cut = 1 / 20
    best = min(slowest(cut * (0.5 + 0.02 * i), scatter) for i in range(40))
    assert found < cut
    assert slowest(found, scatter) < best + 0.4 * (slowest(cut, scatter) - best)
    calm = fitted(prior((1.0, 19.0)), executions(lambda turn, d, a, b: (b - a) * (19.0, 1.0)[d], *several))
    assert calm.margins == (1.0, 1.0)


def test_alike_devices_that_scatter_alike_need_no_margins() -> None:
    chance = random.Random(9)
    several = [(0, 200 + n, 400) for n in range(8)]
    load = fitted(
        prior((1.0, 1.0)), executions(lambda turn, d, a, b: (b - a) * chance.lognormvariate(0.0, 0.05), *several)
    )
    assert load.margins == pytest.approx((1.0, 1.0), abs=0.01)
    assert max(load.scatter) > 0.0


@pytest.mark.parametrize("seed", range(5))
def test_what_makes_all_devices_slower_together_makes_no_margins(seed: int) -> None:
    """Times as of memory that others use, too: which device is the slowest is as certain as if they did not."""
    chance = random.Random(seed)
    both = [chance.lognormvariate(0.0, 0.2) for _ in range(8)]

    def time(turn: int, d: int, a: int, b: int) -> float:
        return (b - a) / GROUPS * (4.0, 1.0)[d] * both[turn]

    load = fitted(prior((1.0, 4.0)), executions(time, *[(0, 80 + n, GROUPS) for n in (0, 2, 1, 0, 1, 2, 0, 1)]))
    assert not load.drifting
    assert load.margins == pytest.approx((1.0, 1.0), abs=1e-3)


def test_a_wait_that_is_known_is_no_launch_overhead() -> None:
    """Nine tenths of a device's time are such: its kernels take what is left."""
    once = (0.9, 0.0)
    known = Prior(GROUPS, once, EVEN, ADAPT.counted, (-1.0, 0.0), ADAPT.counted, known=once)

    def even(turn: int, d: int, a: int, b: int) -> float:
        return once[d] + 0.5 * (b - a) / GROUPS

    load = fitted(known, executions(even, *[(0, n, 400) for n in (80, 90, 100, 80)]))
    for n in (80, 90, 100):
        assert load.seconds(0, 0, n) == pytest.approx(even(0, 0, 0, n), rel=0.05)


def test_while_times_drift_there_are_no_margins() -> None:
    chance = random.Random(2)

    def drifting(turn: int, d: int, a: int, b: int) -> float:
        return (b - a) / GROUPS * (4.0 * chance.lognormvariate(0.0, 0.025) if d else 1.0 + 0.1 * turn)

    load = fitted(prior((1.0, 0.25)), executions(drifting, *[(0, n, 400) for n in (320, 310, 300, 290, 280, 270, 260)]))
    assert load.drifting
    assert load.margins == (1.0, 1.0)


SECONDS = st.one_of(st.sampled_from([0.0, 1e-9, 1e-3, 1.0, 1e3]), st.floats(1e-9, 1e3))


@settings(max_examples=200, deadline=None)
@given(data=st.data(), groups=st.integers(1, 5), devices=st.integers(1, 4))
def test_few_groups_and_many_compute_units(data: st.DataObject, groups: int, devices: int) -> None:
    """However few groups, whatever devices take and run at once: every group is somebody's."""

    def each(of: st.SearchStrategy[Any]) -> list[Any]:
        return data.draw(st.lists(of, min_size=devices, max_size=devices))

    units = each(st.sampled_from([1.0, 1.0, 2.0, 3.0, 64.0]))
    g = start(
        groups,
        each(SECONDS),
        each(st.one_of(SECONDS, st.just(1.0))),
        Wanted(uniform=data.draw(st.booleans())),
        Beforehand(
            rate_doubt=data.draw(st.sampled_from([ADAPT.counted, ADAPT.unknown])),
            narrow=each(st.booleans()),
            rounds=units,
        ),
    )
    for _ in range(data.draw(st.integers(0, 6))):
        assert sum(g.shares) == groups
        level = g.workload.level()
        assert min(level) >= 0.0
        assert sum(level) == pytest.approx(groups)
        at = cuts(g) if data.draw(st.booleans()) else g.whole(data.draw(st.integers(0, devices - 1)))
        times = each(st.one_of(st.floats(1e-9, 1e3), st.sampled_from([1e-3, 1.0])))
        g = adapted(g, [t if b > a else 0.0 for t, (a, b) in zip(times, pairwise(at), strict=True)], at)
    assert sum(g.shares) == groups
