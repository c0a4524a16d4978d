"""Launches that do not fill their devices: half of the work-groups may take as long as all of them.

What is true is a function of the test; the best division is found by trying every one. Times that were measured are
those of two H200 (milliseconds there).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Launch
from manycl.machine import HOST, Device, Machine
from manycl.plan.adapt.granularity import Beforehand, Wanted, adapted, cuts, start
from manycl.plan.adapt.workload import Execution, Prior, expected, fitted
from manycl.plan.policies.adaptive import Adaptive
from manycl.plan.problem import Problem
from manycl.plan.split import LinearRegion, Split
from manycl.plan.tuning import ADAPT
from tests.plan.plan_cases import FACTS, PROGRAM, problem
from tests.plan.split_cases import Affine

HANDOVER = 5e-5
GPU = Device("gpu", "gpu", compute_units=132)
CPU = Device("cpu", "cpu", compute_units=32)
ITEMS = 32
"""Of a work-group: thousands of them fit on a GPU at once."""

Time = Callable[[int, int, int], float]
"""Seconds of a device for the groups from one up to another (not included; there are some)."""


def on_two(groups: int, seconds: tuple[float, float], first: Device = GPU) -> Problem:
    """A kernel that may be divided between a GPU and another one, or a CPU; what they are estimated to take."""
    builder = GraphBuilder()
    a, b = builder.buffer(groups * 64, "a"), builder.buffer(groups * 64, "b")
    args = (BufferArg(a), BufferArg(b))
    builder.add(Launch("k", PROGRAM, FACTS, (ITEMS * groups,), (ITEMS,), args, (a,), (b,)))
    memory = 1 if first.kind == "gpu" else HOST
    where = Machine((replace(first, name="one", memory=memory), replace(GPU, name="two", memory=memory + 1)))
    p = problem(builder.build(), seconds, where, valid={a: frozenset({HOST})}, handover=HANDOVER)
    split = Split(0, groups, {a: LinearRegion(64), b: LinearRegion(64)})
    return replace(p, estimates=Affine([seconds], 0.0, 1e-12), splits={0: split})


def cost(time: Time, cut: int, groups: int) -> float:
    if cut in (0, groups):
        return time(int(cut == 0), 0, groups)
    return max(time(0, 0, cut), time(1, cut, groups)) + HANDOVER


def adapt(p: Problem, time: Time, times: int, noise: float = 0.0) -> tuple[list[int], list[float]]:
    """Where it is cut each time, and how much longer that takes than the best."""
    policy, groups, chance = Adaptive(), p.splits[0].groups, random.Random(1)
    best = min(cost(time, cut, groups) for cut in range(groups + 1))
    found = []
    for _ in range(times):
        policy.plan(p)
        cut = policy.shares(p.graph)[0].get(0, 0)
        found.append(cut)
        taken = [(d, time(d, a, b)) for d, (a, b) in enumerate(((0, cut), (cut, groups))) if b > a]
        policy.observe(p.graph, [(0, d, t * math.exp(abs(chance.gauss(0.0, noise)))) for d, t in taken])
    return found, [cost(time, cut, groups) / best - 1.0 for cut in found]


@settings(max_examples=60, deadline=None)
@given(
    groups=st.sampled_from([64, 256, 1000, 2048]),
    whole=st.floats(2e-4, 5e-3),
    fixed=st.floats(0.0, 1.0),
    skew=st.floats(-0.8, 0.8),
    guess=st.floats(0.2, 5.0),
    noise=st.sampled_from([0.0, 0.005]),
)
def test_within_3_percent_of_the_best_from_the_fourth_execution_on(
    groups: int, whole: float, fixed: float, skew: float, guess: float, noise: float
) -> None:
    """A part of the time is there however few groups there are; groups at one end cost more than at the other."""

    def work(at: float) -> float:
        return at * (1.0 + skew * (at - 1.0))

    def time(device: int, a: int, b: int) -> float:
        return whole * (fixed + (1.0 - fixed) * (work(b / groups) - work(a / groups)))

    found, behind = adapt(on_two(groups, (guess * whole, guess * whole)), time, 8, noise)
    # 3 %, half a per cent of noise, and half a group, which is as near as it can be told
    assert max(behind[3:]) <= 0.035 + 0.5 / groups, found


def test_a_kernel_that_half_of_its_groups_do_not_shorten_is_not_divided() -> None:
    """The second kernel of ATAX: 0.593 whole, 0.604 halved."""
    found, behind = adapt(on_two(256, (6e-4, 6e-4)), lambda d, a, b: 5.93e-4 if b - a == 256 else 6.04e-4, 10)
    assert behind[0] > 0.08  # it is divided to see
    assert all(cut in (0, 256) for cut in found[3:])
    assert sum(0 < cut < 256 for cut in found) <= 2


def test_a_kernel_that_gains_a_little_is_divided_again_after_it_was_compared() -> None:
    """The first kernel of ATAX: 0.591 whole, 0.505 halved, and a step where a compute unit gets a second group."""

    def time(device: int, a: int, b: int) -> float:
        return 5.91e-4 if b - a == 256 else 5.05e-4 if b - a <= 132 else 5.74e-4

    found, behind = adapt(on_two(256, (6e-4, 6e-4)), time, 10)
    assert found.count(0) + found.count(256) == 1  # it was run whole to see
    assert max(behind[3:]) == pytest.approx(0.0, abs=1e-3)


def test_of_a_cpu_and_a_gpu_that_is_faster_by_far_only_the_gpu_is_used() -> None:
    """Its share would be worth less than a handover: it is given up after the shares have come to rest."""

    def time(device: int, a: int, b: int) -> float:
        part = max(b - a, 32) / 20000 if device == 0 else (b - a) / 20000
        return (0.7 if device == 0 else 3e-3) * part

    found, behind = adapt(on_two(20000, (0.2, 3e-3), CPU), time, 12)
    assert 0 < found[0] < 20000
    assert found[-4:] == [0] * 4
    assert max(behind[3:]) <= 0.03


def test_a_cpu_that_helps_enough_is_used_and_the_gpu_is_never_run_alone() -> None:
    def time(device: int, a: int, b: int) -> float:
        return (0.05 if device == 0 else 5e-3) * (b - a) / 20000

    found, behind = adapt(on_two(20000, (0.07, 5e-3), CPU), time, 12)
    assert all(0 < cut < 20000 for cut in found)
    assert max(behind[3:]) <= 0.03


def test_a_crowd_that_wanders_is_followed() -> None:
    """As the N-body on two GPUs: the longest groups last, and beside that all work counts."""
    groups, parts = 2048, 256

    def density(turn: int) -> list[float]:
        away = [abs((i + 0.5) / parts - (0.2 + 0.005 * turn)) for i in range(parts)]
        return [0.5 + 1.5 * math.exp(-0.5 * (min(d, 1.0 - d) / 0.13) ** 2) for d in away]

    p, policy, imbalance = on_two(groups, (6e-4, 6e-4)), Adaptive(), []
    for turn in range(30):
        work = density(turn)
        policy.plan(p)
        cut = policy.shares(p.graph)[0].get(0, 0)
        taken = []
        for device, (a, b) in enumerate(((0, cut), (cut, groups))):
            if b > a:
                own = work[a * parts // groups : max(-(-b * parts // groups), a * parts // groups + 1)]
                seconds = 4e-4 * max(own) / max(work) + 2.2e-4 * (sum(own) / len(own)) * (b - a) / groups
                taken.append((0, device, seconds))
        several = [seconds for _, _, seconds in taken]
        imbalance.append(max(several) / (sum(several) / len(several)))
        policy.observe(p.graph, taken)
    assert imbalance[0] > 1.1
    assert max(imbalance[2:]) <= 1.10


# what is known of the workload


def test_two_cuts_say_how_much_of_the_time_is_fixed() -> None:
    def time(part: float) -> float:
        return 0.4 + 0.2 * part

    flat = Prior(400, (0.0, 0.0), (1.0,) * 20, ADAPT.counted, (0.0, 0.0), ADAPT.counted, (ADAPT.narrow, ADAPT.narrow))
    runs = [Execution(2, (0, 200, 400), (time(0.5),) * 2), Execution(3, (0, 400, 400), (time(1.0), 0.0))]
    first, both = fitted(flat, runs[:1]), fitted(flat, runs)
    assert first.whole_at_least(0, 0, 200) <= 1.01 * time(0.5)  # it may all be fixed
    for device in (0, 1):  # devices of a kind are alike in that
        assert both.seconds(device, 0, 100) == pytest.approx(time(0.25), rel=0.1)
        assert both.seconds(device, 0, 400) == pytest.approx(time(1.0), rel=0.03)
    known = replace(flat, bends=())
    assert fitted(known, runs[:1]).seconds(0, 0, 400) > 1.9 * time(0.5)  # of a device that is filled


def test_fewer_groups_than_a_device_has_cores_take_as_long_as_one_for_each() -> None:
    cores = Prior(256, (0.0, 0.0), (1.0,) * 20, ADAPT.counted, (math.log(8.0), 0.0), ADAPT.unknown, rounds=(32.0, 1.0))
    load = expected(cores)
    assert load.seconds(0, 0, 4) == pytest.approx(load.seconds(0, 0, 32)) == pytest.approx(1.0)
    assert load.seconds(0, 0, 64) == pytest.approx(2.0)
    seen = fitted(cores, [Execution(1, (0, 8, 256), (2.0, 0.97))])
    assert seen.seconds(0, 0, 32) == pytest.approx(2.0, rel=0.02)
    assert seen.level() == pytest.approx([0.0, 256.0])  # one round alone takes twice as long as the other device


def test_brief_times_that_scatter_do_not_make_the_cuts_wander() -> None:
    """FDTD-2D, whose three kernels take a quarter of a millisecond: what was measured, at the cuts of then. The best is
    2048; 2.5 % more for a device is nothing beside the handovers."""
    measured = [
        (2048, 0.3190, 0.3114), (2021, 0.2725, 0.2620), (1976, 0.2658, 0.2680), (1976, 0.2515, 0.2799),
        (2025, 0.2558, 0.2854), (2177, 0.2692, 0.2615), (2081, 0.2799, 0.2508), (2052, 0.2816, 0.2584),
    ]  # fmt: skip
    g = start(
        4096,
        [1e-5] * 2,
        [1.2e-7] * 2,
        Wanted(least=2),
        Beforehand(density=[1.0] * 20, doubt=ADAPT.counted, rate_doubt=ADAPT.counted),
    )
    for cut, *ms in measured:
        g = adapted(g, [1e-3 * t for t in ms], (0, cut, 4096))
        assert not g.workload.drifting
        assert cuts(g)[1] == pytest.approx(2048, rel=0.04)


def test_a_device_that_was_given_up_is_not_forgotten() -> None:
    """It has no groups for longer than executions are remembered, while the load of the others wanders."""
    groups = 512
    g = start(groups, [0.0] * 3, [1.0] * 3, Wanted(uniform=True), Beforehand(rounds=(16.0, 1.0, 1.0)))
    shares = []
    for turn in range(30):
        at, tilt = cuts(g), 0.1 * turn
        shares.append(g.shares)
        parts = [(x + tilt * x * x) / (1.0 + tilt) for x in (n / groups for n in at)]
        first, *others = (after - before for before, after in pairwise(parts))
        g = adapted(g, [40.0 * max(first, 16 / groups) if first else 0.0, *others])
    assert len(set(shares)) > 8
    assert all(share[0] == 0 for share in shares[1:])
