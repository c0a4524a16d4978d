"""Libsplit's methods as the paper has them, and what the simulated machines are calibrated by."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.plan.policy import LearningPolicy
from manycl_bench.libsplit import experiments
from manycl_bench.libsplit.experiments import PAPER, Settings, machine_file, pays_after
from manycl_bench.libsplit.paper import Broyden, FixedPoint, Libsplit, image, whole
from manycl_bench.libsplit.registry import APPLICATIONS
from manycl_bench.libsplit.simulated import Case, auto_over_one_device, seconds_of

SMALL = Settings(scale=16)


@cache
def case(name: str, machine: str, settings: Settings = SMALL) -> Case:
    return experiments.case_of(name, machine_file(machine), settings)


def test_the_image_makes_all_end_together() -> None:
    """Section 5.1 by hand: devices that take 1, 2 and 4 s for a work-group get 4/7, 2/7 and 1/7 of them."""
    assert image([1.0, 2.0, 4.0]) == pytest.approx([4 / 7, 2 / 7, 1 / 7])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6).filter(lambda s: sum(s) > 0.1), st.integers(1, 10**6))
def test_whole_groups_are_all_and_next_to_the_shares(shares: list[float], groups: int) -> None:
    exact = [groups * s / sum(shares) for s in shares]
    found = whole([s / sum(shares) for s in shares], groups)
    assert sum(found) == groups
    assert all(abs(n - e) <= 1.0 + 1e-6 * groups for n, e in zip(found, exact, strict=True))


def solved(method: FixedPoint | Broyden, of: Callable[[np.ndarray], np.ndarray], times: int) -> list[float]:
    """How far from the fixed point each iterate is."""
    x = np.full(3, 1 / 3)
    out = []
    for _ in range(times):
        x = method.next(x, of(x))
        out.append(float(np.abs(x - of(x)).max()))
    return out


def test_broyden_needs_fewer_executions_than_the_fixed_point() -> None:
    """Where the mean time of a work-group depends on the share, F contracts linearly; Broyden's method is superlinear
    (Section 5.2)."""

    def of(x: np.ndarray) -> np.ndarray:
        return image([1.0 + 2.0 * x[0], 2.0 + x[1], 8.0 - 4.0 * x[2]])

    linear, quick = solved(FixedPoint(), of, 12), solved(Broyden(), of, 12)
    assert linear[0] == pytest.approx(quick[0])  # the first step is F's
    ratios = [b / a for a, b in pairwise(linear[2:9])]
    assert max(ratios) - min(ratios) < 0.1
    assert quick[6] < 1e-3 * linear[6]


def test_constant_times_take_one_step() -> None:
    for method in (FixedPoint(), Broyden()):
        assert solved(method, lambda x: image([1.0, 3.0, 5.0]), 3)[0] == pytest.approx(0.0, abs=1e-12)


def test_a_policy_of_its_own_measures_its_own_times() -> None:
    """It goes by what it is told of the last execution only; a device without groups keeps what it took."""
    made = case("GEMM", "conan")
    policy = Libsplit("fixed_point")
    assert isinstance(policy, LearningPolicy)
    plan = policy.plan(made.problem)
    groups = made.splits[0].groups
    counts = [a.groups for a in sorted(plan.assignments, key=lambda a: a.device)]
    assert counts == whole([0.25] * 4, groups)
    policy.observe(made.graph, [(0, d, (10.0, 1.0, 1.0, 0.5)[d] * counts[d]) for d in range(4)])
    assert policy._kernels[0].groups == whole([0.1 / 4.1, 1 / 4.1, 1 / 4.1, 2 / 4.1], groups)
    policy._kernels[0].groups = [0, 0, 0, groups]
    policy.observe(made.graph, [(0, 3, 0.25 * groups)])
    assert policy._kernels[0].groups == whole([0.1 / 6.1, 1 / 6.1, 1 / 6.1, 4 / 6.1], groups)


@pytest.mark.parametrize("name", ["EP", "AESEncrypt"])
def test_calibrated_by_figure_4(name: str) -> None:
    """The peak of the fixed point is the paper's; the first iteration is slower than one GPU, and the curves of the
    three methods are not one."""
    found = experiments.per_iteration(name, machine_file("conan"), Settings())
    assert max(found["fixed_point"]) == pytest.approx(PAPER[name]["speedup"], abs=0.05)
    assert found["fixed_point"][0] < 0.75
    curves = {tuple(round(v, 3) for v in found[m]) for m in ("profile", "fixed_point", "broyden")}
    assert len(curves) == 3


def test_one_kernel_at_a_time_pays_for_the_transfers() -> None:
    """Section 7: Jacobi's stencil and copy get different shares, which costs transfers; ours cuts both alike."""
    made = case("Jacobi1D", "conan")
    single = seconds_of(made, Libsplit("fixed_point"), 12)
    from manycl.plan.policies.adaptive import Adaptive

    assert seconds_of(made, Adaptive(), 12, {"first": "uniform"})[-1] < 0.8 * single[-1]


@pytest.mark.parametrize("machine", ["conan", "happycl"])
@pytest.mark.parametrize("name", APPLICATIONS)
def test_auto_chooses_nothing_slower_than_one_device(name: str, machine: str) -> None:
    # smaller ones take less than it takes to hand over what one device has made to another
    assert auto_over_one_device(case(name, machine, Settings(scale=4))) >= 0.98


def test_when_a_slower_beginning_pays() -> None:
    assert pays_after([5.0, 1.0, 1.0], [2.0, 2.0, 2.0]) == 4
    assert pays_after([3.0, 1.0, 1.0], [2.0, 2.0, 2.0]) == 2
    assert pays_after([5.0, 2.0], [2.0, 2.0]) is None
