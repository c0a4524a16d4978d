"""Device-Hopping's model: the paper's values, and a simulation of events that shares no code with it."""

from __future__ import annotations

import heapq
import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl_bench.hopping import model

ratios = st.floats(1.01, 20.0)
places = st.floats(0.0, 1.2)
"""When the fast device becomes free, as a part of the kernel's time on the slow one."""


def simulated(k: Fraction, free_at: Fraction, pieces: int, goes_on: bool) -> Fraction:
    """When the last piece of a kernel ends: each device takes the next piece when it is free; the slow one stops taking
    any when the fast one has come, unless it goes on."""
    seconds = {"slow": k / pieces, "fast": Fraction(1, pieces)}
    events: list[tuple[Fraction, str]] = [(Fraction(0), "slow"), (free_at, "fast")]
    heapq.heapify(events)
    left, last = pieces, Fraction(0)
    while events and left:
        now, device = heapq.heappop(events)
        if device == "slow" and now >= free_at and not goes_on:
            continue
        left -= 1
        heapq.heappush(events, (now + seconds[device], device))
        last = max(last, now + seconds[device])
    return last


@given(ratios, places, st.booleans())
def test_ends_are_those_of_a_simulation(k: float, place: float, goes_on: bool) -> None:
    free_at, pieces = place * k, 400
    end = (model.both if goes_on else model.migrating)(k, free_at - k + 1.0)
    slow = k / pieces  # a piece that the slow device has begun is not given up
    assert abs(float(simulated(Fraction(k), Fraction(free_at), pieces, goes_on)) - end) <= 2.0 * slow + 1e-9


@given(ratios, places)
def test_the_perfect_scheduler_takes_the_better_of_its_two_choices(k: float, place: float) -> None:
    free_at = place * k
    end = model.pns(k, free_at - k + 1.0)
    assert math.isclose(end, min(k, free_at + 1.0), rel_tol=1e-12)


@given(ratios, places)
def test_migrating_is_never_slower_and_both_never_slower_than_that(k: float, place: float) -> None:
    delta = place * k - k + 1.0
    assert model.both(k, delta) <= model.migrating(k, delta) + 1e-12 <= model.pns(k, delta) + 1e-9


@given(ratios, places, st.booleans())
def test_no_speedup_is_above_its_bound(k: float, place: float, together: bool) -> None:
    assert model.speedup(k, place * k - k + 1.0, together=together) <= model.bound(k, together=together) + 1e-9


@given(ratios)
def test_the_papers_bound_is_the_largest_of_all_k(k: float) -> None:
    assert model.bound(k) <= 4.0 / 3.0 + 1e-12
    assert math.isclose(model.bound(k, together=True), 1.0 + 1.0 / k)
    assert math.isclose(model.speedup(k, 0.0, together=True), 1.0 + 1.0 / k, rel_tol=1e-12)


def test_the_papers_values() -> None:
    assert math.isclose(model.speedup(2.0, 0.0), 4.0 / 3.0)  # Equation 16
    # Figure 1: a wait of 0.4, then twice as fast, in units of the slow device's time: 0.9 and 0.7, 1.29 times
    assert math.isclose(model.pns(2.0, -0.2) / 2.0, 0.9)
    assert math.isclose(model.migrating(2.0, -0.2) / 2.0, 0.7)
    assert round(model.speedup(2.0, -0.2), 2) == 1.29
    # Figures 9a and 9b: the largest at k = 2; and where it lies: right of the middle for k above 2, left of it below
    nine_a, together = model.figure_9a()
    assert nine_a.x[nine_a.y.index(max(nine_a.y))] == 2.0
    assert round(max(nine_a.y), 2) == 1.33
    assert list(together.y) == sorted(together.y, reverse=True)
    for curve, k in zip(model.figure_9b((1.5, 2.0, 4.0), points=1200), (1.5, 2.0, 4.0), strict=True):
        assert math.isclose(curve.x[curve.y.index(max(curve.y))], (k - 1.0) / k, abs_tol=1e-3)
        assert math.isclose(max(curve.y), model.bound(k), rel_tol=1e-3)
        assert math.isclose(curve.y[0], 1.0)
        assert math.isclose(curve.y[-1], 1.0)


def test_means_of_what_was_computed_before() -> None:
    """At k = 2 and 3, means over all waits, and the largest with both devices."""
    assert round(model.bound(2.0, together=True), 3) == 1.5
    assert round(model.bound(3.0, together=True), 3) == 1.333
    assert 1.16 < model.mean(2.0) < 1.18
    assert model.mean(2.0, together=True) > 1.34


@given(ratios, places, st.booleans())
def test_figure_8_does_all_of_the_kernel_once(k: float, place: float, together: bool) -> None:
    delta = place * k - k + 1.0
    bars = model.figure_8(k, delta, together=together)
    done = sum((b.end - b.start) / (k if b.device == "slow" else 1.0) for b in bars if b.whose == "the kernel")
    assert math.isclose(done, 1.0, rel_tol=1e-9)
    for device in ("slow", "fast"):
        mine = sorted((b.start, b.end) for b in bars if b.device == device)
        assert all(a[1] <= b[0] + 1e-12 for a, b in itertools.pairwise(mine))


@pytest.mark.parametrize(("k", "delta"), [(1.0, 0.0), (0.5, 1.0), (2.0, -1.5), (float("nan"), 0.0)])
def test_what_the_model_does_not_hold_for(k: float, delta: float) -> None:
    with pytest.raises(ValueError, match=r"k is above 1|delta is at least"):
        model.pns(k, delta)


def test_shares_of_the_bound() -> None:
    assert math.isclose(model.share_of_bound(1.2, 2.0), 0.6)
    assert math.isclose(model.share_of_bound(1.25, 2.0, together=True), 0.5)
    assert model.share_of_bound(0.9, 2.0) < 0
