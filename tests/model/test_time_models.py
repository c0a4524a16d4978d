"""Regression and interpolation against times made by known formulas, with noise, outliers and first runs."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.model.interpolation import interpolate
from manycl.model.regression import Regression, Sample, fit

positive = st.floats(1e-12, 1e-3)
seeds = st.integers(0, 2**32)


def profiles(b1: float, b2: float, e: float, count: int, rng: random.Random, noise: float = 0.0) -> list[Sample]:
    out = []
    for _ in range(count):
        items, f = float(rng.randrange(64, 1 << 20)), float(rng.randrange(1, 4096))
        seconds = (b1 * items * f + b2 * items + e) * math.exp(rng.gauss(0, noise))
        out.append(Sample(items, items * f, seconds))
    return out


def mean_error(model: Regression, b1: float, b2: float, e: float, rng: random.Random) -> float:
    """Over unseen launches within the model's data."""
    unseen = [s for s in profiles(b1, b2, e, 200, rng) if model.distance(s.work_items, s.cost) == 1.0]
    return sum(abs(model.seconds(s.work_items, s.cost) - s.seconds) / s.seconds for s in unseen) / len(unseen)


@given(positive, positive, positive, seeds)
@settings(max_examples=25)
def test_exact_times_are_met_exactly(b1: float, b2: float, e: float, seed: int) -> None:
    rng = random.Random(seed)
    model = fit(profiles(b1, b2, e, 20, rng))
    assert model is not None
    assert mean_error(model, b1, b2, e, rng) < 0.02


@pytest.mark.parametrize("bad", [0, 1, 3, 6])
@pytest.mark.parametrize("factor", [1.5, 3.0, 1e4])
def test_three_in_ten_bad_samples_do_not_poison_it(bad: int, factor: float) -> None:
    b1, b2, e = 1e-11, 1e-10, 1e-5
    errors = []
    for seed in range(25):
        rng = random.Random(seed)
        samples = profiles(b1, b2, e, 20, rng, noise=0.01)
        for i in rng.sample(range(20), bad):
            samples[i] = samples[i]._replace(seconds=samples[i].seconds * factor)
        model = fit(samples)
        assert model is not None
        assert model.refused >= bad or factor < 2
        errors.append(mean_error(model, b1, b2, e, rng))
    # b2's part of these times is below their noise: a few of its fits are off where it counts most
    assert sorted(errors)[len(errors) // 2] < 0.01
    assert max(errors) < 0.2


@given(seeds)
@settings(max_examples=15)
def test_the_order_of_the_samples_is_of_no_matter(seed: int) -> None:
    rng = random.Random(seed)
    samples = profiles(1e-11, 1e-10, 1e-5, 12, rng, noise=0.05)
    shuffled = samples[:]
    rng.shuffle(shuffled)
    assert fit(samples) == fit(shuffled)


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 1000), st.floats(1e-7, 10)), max_size=12))
def test_whatever_it_is_given_no_coefficient_is_negative(rows: list[tuple[int, int, float]]) -> None:
    model = fit([Sample(t, t * f, y) for t, f, y in rows])
    if len({(t, f) for t, f, _ in rows}) < 3:
        assert model is None
    elif model is not None:
        assert min(model.b1, model.b2, model.e) >= 0
        for t, f, _ in rows:
            found = model.estimate(t, t * f)
            assert 0 <= found.low <= found.seconds <= found.high


def test_a_kernel_without_loops_needs_no_two_coefficients_for_one_column() -> None:
    model = fit([Sample(t, t, 1e-5 + 2e-9 * t) for t in (1000, 20000, 300000, 4000000)])
    assert model is not None
    assert model.seconds(1e6, 1e6) == pytest.approx(2.01e-3, rel=1e-6)


def test_what_was_not_seen_widens_the_bar_and_says_so() -> None:
    model = fit(profiles(1e-11, 0, 1e-5, 20, random.Random(1), noise=0.02))
    assert model is not None
    inside = model.estimate(model.items[1], model.costs[1])
    beyond = model.estimate(10 * model.items[1], 10 * model.costs[1])
    assert inside.source == "regression"
    assert beyond.source == "regression, extrapolated"
    assert beyond.high / beyond.seconds > 9 * inside.high / inside.seconds
    assert model.estimate(1, 1).low < model.seconds(1, 1) / 10


@given(seeds, st.floats(0.005, 0.1))
@settings(max_examples=20)
def test_the_error_it_states_is_the_error_it_has(seed: int, noise: float) -> None:
    rng = random.Random(seed)
    model = fit(profiles(1e-11, 1e-10, 1e-5, 40, rng, noise))
    assert model is not None
    # the mean of |normal| is 0.8 standard deviations; the trimmed mean is below it
    assert 0.25 * noise < model.error < 1.6 * noise


@given(st.lists(st.tuples(st.integers(1, 10**9), st.floats(1e-6, 10)), min_size=2, max_size=20))
def test_interpolation_agrees_with_an_independent_one_on_its_own_points(points: list[tuple[int, float]]) -> None:
    numpy = pytest.importorskip("numpy")
    found = interpolate(points)
    if len({s for s, _ in points}) < 2:
        assert found is None
        return
    assert found is not None
    assert list(found.sizes) == sorted(set(found.sizes))
    for size in range(int(found.sizes[0]), int(found.sizes[-1]) + 1, max(1, int(found.sizes[-1] / 50))):
        assert found.at(size) == pytest.approx(float(numpy.interp(size, found.sizes, found.seconds)))


def test_two_sizes_suffice_and_more_refine() -> None:
    found = interpolate([(100, 1.0), (300, 2.0)])
    assert found is not None
    assert found.at(200) == 1.5
    assert found.estimate(200).error_percent is None
    better = interpolate([(100, 1.0), (200, 1.8), (300, 2.0)])
    assert better is not None
    assert (better.at(150), better.at(250)) == (1.4, 1.9)
    assert better.error == pytest.approx(0.3 / 1.8)


def test_outside_it_goes_on_with_the_nearest_slope_and_never_falls() -> None:
    found = interpolate([(100, 1.0), (200, 2.0), (300, 1.9)])
    assert found is not None
    assert found.at(600) == 1.9
    assert found.at(50) == 0.5
    assert "extrapolated" in found.estimate(600).source
    assert found.estimate(600).high > 2 * 1.9


@given(st.integers(1, 8), st.floats(4, 1e6))
def test_one_bad_size_between_others_is_refused(where: int, factor: float) -> None:
    points = [(100.0 * i, 1.0 * i) for i in range(1, 11)]
    points[where] = (points[where][0], points[where][1] * factor)
    found = interpolate(points)
    assert found is not None
    assert all(found.at(s) == pytest.approx(s / 100) for s, _ in points[1:-1] if s != 100.0 * (where + 1))


def test_a_size_measured_often_counts_its_median() -> None:
    found = interpolate(itertools.chain([(1, 1.0)] * 3, [(1, 50.0)], [(2, 2.0)]))
    assert found is not None
    assert found.at(1) == 1.0
