"""Sizes of slices: predictors against scikit-learn's own predictions, measured ones against exact times."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis.costs.cost_function import Features
from manycl.model import slices
from manycl.model.slices import SliceError, SliceSample, cached_slice, leave_one_out, measured_cost, train
from manycl_bench.slices.targets import target


def samples(kind: str, seed: int, kernels: int = 8) -> list[SliceSample]:
    """Kernels whose targets are inverse to their work, with some noise."""
    random = np.random.default_rng(seed)
    found = []
    for k in range(kernels):
        for _ in range(3):
            x = random.uniform(0, 8, 3 if kind == "cpu" else 2)
            points = math.exp(14 - x.sum() * 0.6 + random.normal(0, 0.1))
            found.append(SliceSample(f"k{k}", kind, tuple(x), points))
    return found


@pytest.fixture(scope="module")
def sklearn() -> Any:
    return pytest.importorskip("sklearn", reason="the extra train")


@pytest.mark.usefixtures("sklearn")
@pytest.mark.parametrize("seed", range(3))
def test_the_cpu_model_is_least_squares_on_logarithms(seed: int) -> None:
    """NumPy's least squares, without standardising, gives the same predictions."""
    given_samples = samples("cpu", seed)
    model = train(given_samples).models["cpu"]
    x = np.column_stack([np.array([s.logarithms for s in given_samples]), np.ones(len(given_samples))])
    weights, *_ = np.linalg.lstsq(x, np.log([s.points for s in given_samples]), rcond=None)
    for s in given_samples:
        assert math.isclose(model.predict(s.logarithms), math.exp(weights @ [*s.logarithms, 1.0]), rel_tol=1e-9)


@pytest.mark.usefixtures("sklearn")
def test_the_gpu_model_is_the_librarys_forest_and_survives_its_file(tmp_path: Path) -> None:
    from sklearn.ensemble import RandomForestRegressor

    given_samples = samples("gpu", 7)
    found = train([*given_samples, *samples("cpu", 7)])
    found.write(tmp_path / "slices.json")
    again = slices.read(tmp_path / "slices.json")
    assert again == found
    forest = RandomForestRegressor(n_estimators=50, max_depth=2, random_state=0)
    x, y = [s.logarithms for s in given_samples], [math.log(s.points) for s in given_samples]
    forest.fit(x, y)
    assert len(again.models["gpu"].trees) == 50  # type: ignore[union-attr]
    random = np.random.default_rng(3).uniform(-1, 9, (200, 2))
    expected = np.exp(forest.predict(random))
    assert np.allclose([again.models["gpu"].predict(tuple(row)) for row in random], expected, rtol=1e-12)
    features = Features(bytes_transferred=12.0, comparisons=1.0, compute=30.0, memory_accesses=4.0)
    for kind in ("cpu", "gpu"):
        assert again.points(features, kind, 3) == 3 * again.models[kind].predict(features.logarithms(kind))
    assert again.points(features, "accelerator", 1) is None


@pytest.mark.usefixtures("sklearn")
def test_leaving_a_kernel_out_leaves_all_of_its_samples_out() -> None:
    """A kernel that is unlike all others is predicted badly, though it would be learned."""
    given_samples = samples("cpu", 1)
    odd = [s._replace(kernel="odd", points=s.points * 1000.0) for s in samples("cpu", 2, 2)]
    ratios = leave_one_out("cpu", [*given_samples, *odd])
    assert ratios["odd"] < 0.02
    assert set(ratios) == {*(f"k{i}" for i in range(8)), "odd"}
    about = train([*given_samples, *odd]).about["cpu"]
    assert about["kernels"] == 9
    assert about["largest_factor"] > 50.0


@settings(max_examples=60)
@given(
    st.floats(1e-6, 1e-3),
    st.floats(1e4, 1e9),
    st.lists(st.integers(1, 10**6), min_size=12, max_size=30, unique=True),
    st.randoms(use_true_random=False),
)
def test_a_few_disturbed_slices_do_not_matter(once: float, rate: float, sizes: list[int], random: Any) -> None:
    disturbed = set(random.sample(range(len(sizes)), len(sizes) // 8))
    fit = measured_cost(
        [(n, once + n / rate + (i in disturbed) * random.uniform(0.01, 10.0)) for i, n in enumerate(sizes)]
    )
    assert fit is not None
    if not disturbed:
        assert math.isclose(fit[0], once, rel_tol=1e-6, abs_tol=1e-9)
    assert math.isclose(fit[1], rate, rel_tol=0.5)


def test_three_exact_slices_are_enough_and_two_are_not() -> None:
    taken = [(n, 5e-5 + n * 1e-7) for n in (1500, 3000, 6000)]
    fit = measured_cost(taken)
    assert fit is not None
    assert math.isclose(fit[0], 5e-5, rel_tol=1e-9)
    assert math.isclose(fit[1], 1e7, rel_tol=1e-9)
    assert measured_cost(taken[:2]) is None


def test_slices_of_one_size_tell_nothing() -> None:
    assert measured_cost([(10, 1e-3)] * 5) is None


@given(st.integers(1, 10**6), st.integers(1, 10**9), st.integers(1, 10**7), st.integers(1, 512))
def test_a_cached_slice_fits_into_the_cache_unless_it_is_one_group(
    points: int, nbytes: int, cache: int, group: int
) -> None:
    size = cached_slice(points, nbytes, cache, group)
    assert 1 <= size <= points
    assert size == points or size % group == 0
    if size > group:
        assert size * nbytes <= cache * points
        larger = size + group
        if larger <= points:
            assert larger * nbytes > cache * points or nbytes <= cache


@given(st.floats(1e-4, 0.05), st.floats(0.01, 0.2), st.integers(2, 12))
def test_a_target_is_where_slices_cost_as_much_as_they_may(once: float, allowed: float, tried: int) -> None:
    """Each slice after the first one costs ``once``; what was tried is 2, 4, 8, … slices."""
    overheads = {2**e: once * (2**e - 1) for e in range(1, tried + 1)}
    found = target(overheads, allowed)
    exact = 1.0 + allowed / once
    if exact < 2.0 or exact >= 2**tried:
        assert found is None
    else:
        assert found == pytest.approx(exact, rel=1e-9)


def test_noise_does_not_make_fewer_slices_dearer_than_more() -> None:
    overheads = {2: 0.01, 4: 0.05, 8: -0.4, 16: 0.02, 32: 0.08}  # the first three have a median of 1 %
    assert target(overheads, 0.04) == pytest.approx(16 + 16 * 0.02 / 0.06)
    assert target(overheads, 0.015) == pytest.approx(8 + 8 * 0.5)
    assert target({}, 0.04) is None


@given(st.floats(1e-3, 0.1), st.integers(0, 3), st.floats(-0.9, 9.0))
def test_one_disturbed_number_of_slices_matters_little(allowed: float, which: int, disturbed: float) -> None:
    """Of slices up to 16, which cost next to nothing, one seems to cost anything; 64 cost much more than they may."""
    overheads = {2: 0.0, 4: allowed / 30, 8: allowed / 20, 16: allowed / 10, 32: allowed / 2, 64: allowed * 20}
    exact = target(overheads, allowed)
    assert exact is not None
    assert exact > 32
    overheads[2 << which] = disturbed
    found = target(overheads, allowed)
    assert found is not None
    assert 16 <= found < 64


@pytest.mark.parametrize(
    "change",
    [
        {"format": 1},
        {"models": []},
        {"models": {"npu": {}}},
        {"models": {"cpu": {"kind": "linear"}}},
        {"models": {"cpu": {"kind": "net"}}},
        {"models": {"gpu": {"kind": "forest", "trees": [4096.0]}}},
        {"models": {"gpu": {"kind": "forest of logarithms", "trees": []}}},
        {"models": {"gpu": {"kind": "forest of logarithms", "trees": [[2, 0.5, 1.0, 2.0]]}}},
        {"models": {"gpu": {"kind": "forest of logarithms", "trees": [[0, 0.5, 1.0]]}}},
        {"models": {"gpu": {"kind": "forest of logarithms", "trees": ["1"]}}},
    ],
)
def test_what_are_no_predictors(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "slices.json"
    path.write_text(json.dumps({"format": 2, "models": {}, **change}))
    with pytest.raises(SliceError, match=r"slices\.json"):
        slices.read(path)
    path.write_text("{")
    with pytest.raises(SliceError):
        slices.read(path)
