"""Devices whose estimates are not to be trusted: whether they help is found out by trying them once."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Launch
from manycl.machine import HOST, Device, Machine
from manycl.plan.adapt.division_history import DivisionHistory
from manycl.plan.adapt.families import families
from manycl.plan.adapt.granularity import Beforehand, adapted, start
from manycl.plan.policies.adaptive import Adaptive
from manycl.plan.problem import Problem
from manycl.plan.split import LinearRegion, Split
from manycl.plan.tuning import ADAPT
from tests.plan.plan_cases import FACTS, PROGRAM, problem
from tests.plan.split_cases import Affine

GROUPS, HANDOVER = 8192, 5e-5
WHERE = Machine((Device("cpu", "cpu", compute_units=32), Device("gpu", "gpu", compute_units=132, memory=1)))


class Doubtful(Affine):
    far_off = 0.0

    def groups(self, node: int, device: int, count: int, of: int) -> float:
        return self.seconds[node][device] * count / of

    def doubt(self, node: int, devices: object) -> float:
        return self.far_off


def brief(seconds: tuple[float, float], doubt: float) -> Problem:
    """A kernel that is estimated to be brief."""
    builder = GraphBuilder()
    a, b = builder.buffer(GROUPS * 64, "a"), builder.buffer(GROUPS * 64, "b")
    args = (BufferArg(a), BufferArg(b))
    builder.add(Launch("k", PROGRAM, FACTS, (256 * GROUPS,), (256,), args, (a,), (b,)))
    p = problem(builder.build(), seconds, WHERE, valid={a: frozenset({HOST})}, handover=HANDOVER)
    estimates = Doubtful([seconds], 0.0, 1e-12)
    estimates.far_off = doubt
    return replace(p, estimates=estimates, splits={0: Split(0, GROUPS, {a: LinearRegion(64), b: LinearRegion(64)})})


def adapt(
    p: Problem, cpu: float, gpu: float, cold: float, times: int = 10, noise: float = 0.0, seed: int = 1
) -> tuple[list[int], list[float]]:
    """The CPU's groups each time, and how far that is behind the best; the first execution takes longer, and the CPU's
    times scatter."""

    def seconds(cut: int) -> tuple[float, float]:
        return (3e-5 + cpu * max(cut, 32) / GROUPS if cut else 0.0), gpu * (GROUPS - cut) / GROUPS

    def total(cut: int) -> float:
        return max(seconds(cut)) + (HANDOVER if 0 < cut < GROUPS else 0.0)

    policy, found, chance = Adaptive(), [], random.Random(seed)
    for turn in range(times):
        policy.plan(p)
        cut = policy.shares(p.graph)[0].get(0, 0)
        found.append(cut)
        off = (chance.lognormvariate(0.0, noise), 1.0)
        taken = [(0, d, s * off[d] * (1.0 + cold * (turn == 0))) for d, s in enumerate(seconds(cut)) if s]
        policy.observe(p.graph, taken)
    best = min(map(total, range(GROUPS + 1)))
    return found, [total(cut) / best - 1.0 for cut in found]


@settings(max_examples=60, deadline=None)
@given(gpu=st.floats(6e-4, 2e-3), ratio=st.floats(4.0, 100.0), cold=st.floats(0.0, 0.1))
def test_whether_it_helps_is_known_from_the_fourth_execution_on(gpu: float, ratio: float, cold: float) -> None:
    p = brief((3e-2, 1.5e-4), 5.0)  # two hundred times as slow, and both brief
    found, behind = adapt(p, ratio * gpu, gpu, cold)
    assert found[0] == 0
    settled = 3 if ratio > 8.0 else 4  # what is tried is brief: of a far faster device it says less
    assert max(behind[settled:]) <= 0.035, (found, behind)


def test_what_estimates_are_sure_of_is_not_tried() -> None:
    found, _ = adapt(brief((3e-2, 1.5e-4), 0.05), 0.2, 1e-3, 0.05)
    assert found == [0] * 10


@pytest.mark.parametrize("cold", [0.0, 0.1])
def test_a_first_execution_that_took_longer_does_not_speak_for_dividing(cold: float) -> None:
    found, _ = adapt(brief((3e-2, 1.5e-4), 5.0), 3e-2, 1e-3, cold)
    assert found[1] > 0  # it is tried
    assert found[3:] == [0] * 7


@pytest.mark.parametrize("seed", range(10))
def test_times_that_never_come_to_rest_do_not_keep_a_kernel_divided(seed: int) -> None:
    p = brief((2.2e-2, 1.2e-3), 0.5)
    found, _ = adapt(p, 4e-2, 1.2e-3, 0.0, 8, noise=0.3, seed=seed)  # what it gains is less than a handover
    assert found[6:] == [0] * 2
    found, _ = adapt(p, 4e-3, 1.2e-3, 0.0, 8, noise=0.2, seed=seed)  # a quarter
    assert min(found) > 0


def test_a_kernel_that_was_given_up_for_disturbed_times_is_divided_again() -> None:
    """Sparse rows, on a core and one that is four times slower, with times as they were once measured: of all divided
    executions those with other cuts were bad, and the only one with good cuts was disturbed."""
    measured = [(2499, 2.934, 11.999), (3125, 4.574, 0.0), (2844, 3.5, 5.903), (2941, 4.084, 4.83), (3125, 4.38, 0.0)]
    (family,) = families(brief((1e-3, 4e-3), ADAPT.counted))
    g = start(3125, (1e-5, 1e-5), (1.6e-6, 6.4e-6), known=Beforehand(doubt=ADAPT.uncounted, rate_doubt=ADAPT.counted))
    course = DivisionHistory(family, (0, 1), g, ((0.0, 0.0),) * 2, 5e-5, (0.0, 0.0))
    for cut, one, two in measured:
        g = adapted(course.granularity, [1e-3 * one, 1e-3 * two], (0, cut, 3125))
        whole, compared = (0, frozenset({0})) if cut == 3125 else (-1, course.compared)
        course = replace(course, granularity=g, compared=compared, whole=whole, trial=False).judged()
    assert course.whole is None
    assert 2900 < course.cuts()[1] < 3000


def test_nothing_is_tried_late_for_a_hope() -> None:
    """What was too brief to divide takes longer later: others are not tried for being faster than foreseen, perhaps."""
    p, policy = brief((3e-2, 1.5e-4), 5.0), Adaptive()
    for turn in range(10):
        policy.plan(p)
        assert policy.shares(p.graph)[0] == {1: GROUPS}
        policy.observe(p.graph, [(0, 1, 2e-5 if turn < 3 else 1e-3)])


@pytest.mark.parametrize("guessed", [True, False])
@pytest.mark.parametrize(
    ("cpu", "doubt", "helps"), [(8e-3, 1.0, False), (8e-3, ADAPT.counted, True), (1.6e-3, 1.0, True)]
)
def test_where_data_decide_the_work_a_kernel_is_run_whole_once_if_the_other_device_may_not_help(
    guessed: bool, cpu: float, doubt: float, helps: bool
) -> None:
    """Both devices ended together: the first one helps for certain if it has half of the groups, or if how the devices
    compare is known and so what its groups would have taken the second one."""
    (family,) = families(brief((cpu, 1.6e-3), doubt))
    g = start(
        GROUPS,
        (1e-5, 1e-5),
        (cpu / GROUPS, 1.6e-3 / GROUPS),
        known=Beforehand(doubt=ADAPT.uncounted, rate_doubt=doubt),
    )
    course = DivisionHistory(family, (0, 1), adapted(g, (1.2e-3, 1.2e-3)), ((0.0, 0.0),) * 2, HANDOVER, (0.0, 0.0))
    judged = replace(course, guessed=guessed).judged()
    assert judged.whole == (1 if guessed and not helps else None)
