"""Slice sizes of a kernel that may migrate: as small as they can be at little overhead.

There are three ways to find them. Device-Hopping's predictors (P. Metzger et al., TACO 2021, Section 4) use only a
kernel's features: linear regression on logarithms for CPUs, a random forest for GPUs (of logarithms, too, unlike the
paper's: targets differ a thousandfold), kept as JSON. A slice costs about as much on many compute units as on one: so
models are of points per compute unit, unlike the paper's, which are of one machine. Its rule for sparse matrices
(Section 4.5) keeps a slice in the cache. Ours measures: the first slices, of different sizes, show the cost of a slice
beside its work.

Predictors are trained with scikit-learn (Sections 4.1 and 4.3). A target is the smallest slice size at which a kernel
that never migrates takes only a given part longer; it is found by trying. Models are judged by leaving out one kernel
after the other (Section 7.2).
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manycl.analysis.costs.cost_function import CPU, GPU, Features
from manycl.errors import ManyclError
from manycl.units import LARGEST
from manycl.utilities.kept import ENOUGH
from manycl.utilities.unforeseen import told

FORMAT = 2  # version of the JSON files


class SliceError(ManyclError):
    """The error for a file that has no predictors, or holds numbers that no training gives."""


@dataclass(frozen=True, slots=True)
class LinearSlices:
    """The CPU model: the logarithm of the slice size is linear in the logarithms of the features; all of them have been
    standardised (``means`` and ``scales``; the last ones are the slice sizes')."""

    weights: tuple[float, ...]
    intercept: float
    means: tuple[float, ...]
    scales: tuple[float, ...]

    def predict(self, logarithms: Sequence[float]) -> float:
        """Return the points of a slice per compute unit, for a kernel's features
        (:meth:`manycl.analysis.costs.cost_function.Features.logarithms`)."""
        z = [(x - m) / s for x, m, s in zip(logarithms, self.means, self.scales, strict=False)]
        total = self.intercept + sum(w * x for w, x in zip(self.weights, z, strict=True))
        exponent = total * self.scales[-1] + self.means[-1]
        return _bounded(math.exp(min(exponent, 43.0)))

    def to_json(self) -> dict[str, Any]:
        return {"kind": "linear", **asdict(self)}


Tree = tuple[int, float, "Tree", "Tree"] | float
"""An inner node is a feature's number, a threshold, and the trees where the feature is at most that, and above it."""


@dataclass(frozen=True, slots=True)
class ForestSlices:
    """The GPU model: the mean of the trees' logarithms of the slice size. Features are float32, as in training."""

    trees: tuple[Tree, ...]

    def predict(self, logarithms: Sequence[float]) -> float:
        """Return what :meth:`LinearSlices.predict` returns."""
        given = struct.unpack(f"{len(logarithms)}f", struct.pack(f"{len(logarithms)}f", *logarithms))
        exponent = math.fsum(_leaf(tree, given) for tree in self.trees) / len(self.trees)
        return _bounded(math.exp(min(exponent, 43.0)))

    def to_json(self) -> dict[str, Any]:
        return {"kind": "forest of logarithms", **asdict(self)}


def _leaf(tree: Tree, given: Sequence[float]) -> float:
    while isinstance(tree, tuple):
        feature, threshold, below, above = tree
        tree = below if given[feature] <= threshold else above
    return tree


def _bounded(points: float) -> float:
    return min(max(points, 1.0), float(LARGEST))


SliceModel = LinearSlices | ForestSlices


@dataclass(frozen=True, slots=True)
class Predictors:
    """A model for each kind of device (``cpu``, ``gpu``) with training samples. ``about``: how the models were trained,
    and how far off they were for kernels that they had not seen."""

    models: Mapping[str, SliceModel]
    about: Mapping[str, Any] = field(default_factory=dict)

    def points(self, features: Features, kind: str, units: int) -> float | None:
        """Return the work-items of a slice of a launch, on a kind of device with so many compute units; None where
        nothing is known of it."""
        model = self.models.get(kind)
        return None if model is None else units * model.predict(features.logarithms(kind))

    def to_json(self) -> dict[str, Any]:
        models = {kind: model.to_json() for kind, model in self.models.items()}
        return {"format": FORMAT, "about": dict(self.about), "models": models}

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.to_json()) + "\n", encoding="utf-8")


def read(path: Path) -> Predictors:
    """Return the predictors in a file. Raises SliceError for a file without any, OSError as reading does."""
    try:
        return from_json(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, SliceError) as error:
        raise SliceError(f"{path}: {error}", hint="manycl train writes such files") from None


SHIPPED = Path(__file__).with_name("slices.json")
"""The predictors that come with manycl (docs/models.md: how they were made)."""


@cache
def shipped() -> Predictors:
    """Return the predictors that come with manycl: no models where there is no such file, or none that can be read."""
    try:
        return read(SHIPPED)
    except (OSError, SliceError) as error:
        if not isinstance(error, FileNotFoundError):
            told(error, "reading the predictors of slice sizes")
        return Predictors({})


def from_json(value: Any) -> Predictors:
    """Return predictors from JSON. Raises SliceError for a value that :meth:`Predictors.to_json` does not make."""
    if not isinstance(value, dict) or value.get("format") != FORMAT or not isinstance(value.get("models"), dict):
        raise SliceError(f"these are no predictors of slice sizes of format {FORMAT}")
    models: dict[str, SliceModel] = {}
    for kind, model in value["models"].items():
        names = {"cpu": CPU, "gpu": GPU}.get(kind)
        if names is None or not isinstance(model, dict):
            raise SliceError(f"there is no model for devices of kind {kind!r:.40}")
        if model.get("kind") == "linear":
            models[kind] = _linear(model, len(names))
        elif model.get("kind") == "forest of logarithms":
            trees = model.get("trees")
            if not isinstance(trees, list) or not trees:
                raise SliceError("a forest has trees")
            models[kind] = ForestSlices(tuple(_tree(tree, len(names), 0) for tree in trees))
        else:
            raise SliceError(f"a model is linear or a forest of logarithms, not {model.get('kind')!r:.40}")
    about = value.get("about")
    return Predictors(models, about if isinstance(about, dict) else {})


def _linear(model: Mapping[str, Any], count: int) -> LinearSlices:
    rows = [_numbers(model.get(name), n) for name, n in (("weights", count), ("means", count + 1))]
    scales = _numbers(model.get("scales"), count + 1)
    if min(scales) <= 0:
        raise SliceError("scales are above 0")
    return LinearSlices(rows[0], _number(model.get("intercept")), rows[1], scales)


def _numbers(value: Any, count: int) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) != count:
        raise SliceError(f"expected {count} numbers, found {value!r:.60}")
    return tuple(map(_number, value))


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SliceError(f"expected a number, found {value!r:.40}")
    return float(value)


_DEEPEST = 16  # levels of a tree that is read, at most; our own choice


def _tree(value: Any, features: int, depth: int) -> Tree:
    if not isinstance(value, list):
        return _number(value)
    if len(value) != 4 or depth >= _DEEPEST:
        raise SliceError(f"a tree's node is [feature, threshold, below, above], not {value!r:.60}")
    feature, threshold, below, above = value
    if isinstance(feature, bool) or not isinstance(feature, int) or not 0 <= feature < features:
        raise SliceError(f"there is no feature {feature!r:.40}: there are {features}")
    return feature, _number(threshold), _tree(below, features, depth + 1), _tree(above, features, depth + 1)


def cached_slice(points: int, nbytes: int, cache: int, group: int = 1) -> int:
    """Return the points of a slice, in whole work-groups of ``group`` points, whose data stay in a cache: for a kernel
    of ``points`` points that touches ``nbytes`` bytes, evenly (Section 4.5, for sparse matrix times vector and the L2
    cache; after Kim et al., "Compiler-Assisted GPU Thread Throttling for Reduced Cache Contention", ICPP 2019). At
    least one work-group, at most all."""
    if points <= 0 or group <= 0:
        raise ValueError(f"a kernel has points, and a work-group has: not {points} and {group}")
    fitting = points if nbytes <= cache else int(points * cache // nbytes)
    return min(max(fitting // group, 1) * group, points)


def measured_cost(taken: Sequence[tuple[int, float]]) -> tuple[float, float] | None:
    """Return the seconds that a slice takes beside its work, and points per second; None where too few slices were
    measured (``taken``: the points and seconds of each), or all had one size. A slice of n points takes ``o + n / r``,
    fitted by the slopes between all pairs of slices, and their median (Theil, 1950; Sen, 1968), so that up to 29 % of
    disturbed measurements do not matter."""
    pairs = [(t2 - t1) / (n2 - n1) for (n1, t1), (n2, t2) in combinations(taken, 2) if n1 != n2]
    if len(taken) < ENOUGH or not pairs:
        return None
    slope = median(pairs)
    if slope <= 0.0:  # measurements scatter more than sizes differ
        return None
    return max(median([t - slope * n for n, t in taken]), 0.0), 1.0 / slope


TREES = 50  # trees of the random forest; our own choice
DEPTH = 2  # depth of a tree, at most; our own choice
FEATURES: Mapping[str, tuple[str, ...]] = {"cpu": CPU, "gpu": GPU}


class SliceSample(NamedTuple):
    """A kernel's launch on a kind of device: the logarithms of its features, and the target, in points of a slice per
    compute unit."""

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
    """Return, by kernel, the factor (geometric mean) between its targets and predictions trained on the others."""
    found = {}
    for name in dict.fromkeys(s.kernel for s in samples):
        model = _fit(kind, [s for s in samples if s.kernel != name])
        ratios = [model.predict(s.logarithms) / s.points for s in samples if s.kernel == name]
        found[name] = geometric_mean(ratios)
    return found


def _fit(kind: str, samples: Sequence[SliceSample]) -> SliceModel:
    x = np.array([s.logarithms for s in samples], float)
    y = np.array([s.points for s in samples], float)
    return _fitted_line(x, y) if kind == "cpu" else _forest(x, y)


def _fitted_line(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> LinearSlices:
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
    return ForestSlices(tuple(_as_tree(one.tree_, 0) for one in forest.estimators_))


def _as_tree(tree: Any, node: int) -> Tree:
    below, above = int(tree.children_left[node]), int(tree.children_right[node])
    if below == above:  # a leaf
        value = float(np.ravel(tree.value[node])[0])
        return value if math.isfinite(value) else 0.0
    return int(tree.feature[node]), float(tree.threshold[node]), _as_tree(tree, below), _as_tree(tree, above)


def _library() -> Any:
    try:
        import sklearn.ensemble
        import sklearn.linear_model
    except ImportError:
        raise ManyclError("training needs scikit-learn", hint="pip install -e '.[train]' in the checkout") from None
    return sklearn
