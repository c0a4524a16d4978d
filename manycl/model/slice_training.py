"""Training of the predictors of slice sizes (Device-Hopping, Sections 4.1 and 4.3); scikit-learn is needed here only.

A target is the smallest slice size at which a kernel that never migrates takes only a given part longer; it is found by
trying. Models are judged by leaving out one kernel after the other (Section 7.2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import geometric_mean, median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manycl.analysis.costs.cost_function import CPU, GPU
from manycl.errors import ManyclError
from manycl.model.slices import ForestSlices, LinearSlices, Predictors, SliceModel, Tree, TreeNode

TREES = 50  # trees of the random forest
DEPTH = 2  # depth of a tree, at most
FEATURES: Mapping[str, tuple[str, ...]] = {"cpu": CPU, "gpu": GPU}


class SliceSample(NamedTuple):
    """A kernel's launch on a kind of device: the logarithms of its features, and the target, in points of a slice."""

    kernel: str
    kind: str
    logarithms: tuple[float, ...]
    points: float


def train(samples: Sequence[SliceSample]) -> Predictors:
    """Return a model for each kind of device with samples of two kernels at least; ``about`` says how many, and how far
    off each was for kernels that it had not seen. Raises ManyclError where nothing can be learned."""
    models: dict[str, SliceModel] = {}
    about: dict[str, Any] = {}
    for kind in FEATURES:
        mine = [s for s in samples if s.kind == kind]
        if len({s.kernel for s in mine}) < 2:
            continue
        models[kind] = _fit(kind, mine)
        factors = [max(f, 1.0 / f) for f in leave_one_out(kind, mine).values()]
        about[kind] = {
            "kernels": len({s.kernel for s in mine}),
            "samples": len(mine),
            "median_factor": median(factors),
            "largest_factor": max(factors),
        }
    if not models:
        raise ManyclError("there is nothing to learn from: a kind of device needs samples of two kernels at least")
    return Predictors(models, about)


def leave_one_out(kind: str, samples: Sequence[SliceSample]) -> dict[str, float]:
    """Return, by kernel, the factor between its targets and the predictions of a model trained on the other kernels
    (geometric mean)."""
    found = {}
    for name in dict.fromkeys(s.kernel for s in samples):
        model = _fit(kind, [s for s in samples if s.kernel != name])
        ratios = [model.predict(s.logarithms) / s.points for s in samples if s.kernel == name]
        found[name] = geometric_mean(ratios)
    return found


def _fit(kind: str, samples: Sequence[SliceSample]) -> SliceModel:
    x = np.array([s.logarithms for s in samples], float)
    y = np.array([s.points for s in samples], float)
    return _linear(x, y) if kind == "cpu" else _forest(x, y)


def _linear(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> LinearSlices:
    from_library = _library().linear_model.LinearRegression()
    columns = np.column_stack([x, np.log(y)])
    means, scales = columns.mean(axis=0), columns.std(axis=0)
    scales[scales < 1e-12] = 1.0  # a feature that is the same for all kernels says nothing
    z = (columns - means) / scales
    from_library.fit(z[:, :-1], z[:, -1])
    return LinearSlices(
        tuple(map(float, from_library.coef_)),
        float(from_library.intercept_),
        tuple(map(float, means)),
        tuple(map(float, scales)),
    )


def _forest(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> ForestSlices:
    forest = _library().ensemble.RandomForestRegressor(n_estimators=TREES, max_depth=DEPTH, random_state=0)
    forest.fit(x, np.log(y))
    return ForestSlices(tuple(_tree(one.tree_, 0) for one in forest.estimators_))


def _tree(tree: Any, node: int) -> Tree:
    below, above = int(tree.children_left[node]), int(tree.children_right[node])
    if below == above:  # a leaf
        value = float(np.ravel(tree.value[node])[0])
        return value if math.isfinite(value) else 0.0
    return TreeNode(int(tree.feature[node]), float(tree.threshold[node]), _tree(tree, below), _tree(tree, above))


def _library() -> Any:
    try:
        import sklearn.ensemble
        import sklearn.linear_model
    except ImportError:
        raise ManyclError("training needs scikit-learn", hint="pip install -e '.[train]' in the checkout") from None
    return sklearn
