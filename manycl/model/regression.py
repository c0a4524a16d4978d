"""MKMD's execution-time model (Section 4, Eq. 3): ``y = b1 T f + b2 T + e``, per kernel and device.

y is in seconds, T the work-items, f the product of the loops' trip counts; b1 is the cost of a step of the loops, b2 of
starting a work-item, e of a launch. None of them can be negative. Errors count relative to y (the papers and we report
relative errors), and samples that do not fit the others are left out: a fit starts from the candidate whose typical
error over all samples is least (least median of squares; Rousseeuw, 1984), then uses samples whose errors are typical.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from manycl.model.work import Estimate, around, beyond
from manycl.utilities.kept import ENOUGH

if TYPE_CHECKING:
    import numpy as np

_CANDIDATES = 400  # the most sets of samples to start from; all of them up to 14 samples; our own choice
_TYPICAL = 3.5
"""Robust standard deviations within which a sample is used (B. Iglewicz and D. Hoaglin, 1993; our own choice)."""
_LEAST_SCATTER = 0.002  # relative; samples closer than this to a fit are never refused; our own choice
_SIMPLER = 1.1  # a model with more terms must be better by this factor; our own choice
_TRIMMED = 0.8  # the share of samples that judge a model; the others may be outliers; our own choice

# the terms of T f, T and 1 (MKMD, Section 4, Eq. 3) that models may have
_TERMS = ((0,), (1,), (2,), (0, 2), (1, 2), (0, 1), (0, 1, 2))


class Sample(NamedTuple):
    """A profile: T, T f, and the seconds it took (all positive)."""

    work_items: float
    cost: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Regression:
    """A fitted model. ``error``: mean relative error when each sample is predicted by the others (a fraction; infinite:
    unknown); ``items`` and ``costs``: the ranges of T and T f that it was fitted on."""

    b1: float
    b2: float
    e: float
    error: float
    samples: int
    refused: int
    items: tuple[float, float]
    costs: tuple[float, float]

    def seconds(self, work_items: float, cost: float) -> float:
        return self.b1 * cost + self.b2 * work_items + self.e

    def distance(self, work_items: float, cost: float) -> float:
        """Return how many times outside of its data a launch lies (:func:`manycl.model.work.beyond`)."""
        return max(beyond(work_items, *self.items), beyond(cost, *self.costs))

    def estimate(self, work_items: float, cost: float, error: float | None = None) -> Estimate:
        """Return the time of a launch; outside of the domain its bar widens and its source says so. ``error``: the
        model's error as compared with measurements, where that is known."""
        seconds, distance = self.seconds(work_items, cost), self.distance(work_items, cost)
        known = self.error if error is None else error
        return around(seconds, known, distance, "regression", self.samples)


def fit(samples: Sequence[Sample]) -> Regression | None:
    """Return the model of some samples, or None for fewer than three different launches. It is deterministic, and
    independent of the samples' order. It takes about a millisecond."""
    import numpy as np

    kept = sorted(s for s in samples if min(s) > 0 and all(map(math.isfinite, s)))
    if len({(s.work_items, s.cost) for s in kept}) < ENOUGH:
        return None
    data = np.array(kept, dtype=np.float64)
    rows = np.column_stack([data[:, 1], data[:, 0], np.ones(len(kept))]) / data[:, 2:3]
    scale = np.abs(rows).max(axis=0)
    rows = rows / scale
    best: tuple[float, _Fit] | None = None
    for terms in _TERMS:
        found = _fit_terms(rows, terms)
        if found is not None and (best is None or found.score * _SIMPLER < best[0]):
            best = (found.score, found)
    if best is None:
        return None
    chosen = best[1]
    b1, b2, e = (float(b) for b in chosen.beta / scale)
    inside = data[chosen.used]
    return Regression(
        b1=b1,
        b2=b2,
        e=e,
        error=chosen.score,
        samples=len(kept),
        refused=len(kept) - int(chosen.used.sum()),
        items=(float(inside[:, 0].min()), float(inside[:, 0].max())),
        costs=(float(inside[:, 1].min()), float(inside[:, 1].max())),
    )


class _Fit(NamedTuple):
    beta: np.ndarray[Any, Any]  # coefficients of all three terms
    used: np.ndarray[Any, Any]  # which samples are used
    score: float  # mean relative error of predicting samples by the others, over the better ones


def _fit_terms(rows: np.ndarray[Any, Any], terms: tuple[int, ...]) -> _Fit | None:
    """Return the robust fit with some of the terms; None where there is none without negative coefficients. The rows
    are divided by the seconds, so the target is 1 and residuals are relative."""
    import numpy as np

    x = rows[:, terms]
    count, width = x.shape
    start = _start(x)
    if start is None:
        return None
    residuals = np.abs(x @ start - 1.0)
    used = residuals <= _limit(residuals)
    beta = start
    for _ in range(8):
        solved = np.linalg.lstsq(x[used], np.ones(int(used.sum())), rcond=None)[0]
        if (solved < 0).any():
            return None  # fewer terms are tried as well
        beta = solved
        residuals = np.abs(x @ beta - 1.0)
        now = residuals <= _limit(residuals)
        if now.sum() < max(width, (count + 1) // 2) or (now == used).all():
            break
        used = now
    # a sample that the fit rests on was predicted too well by 1 - h, h its weight in its own prediction
    inverse = np.linalg.pinv(x[used].T @ x[used])
    weight = np.einsum("ij,jk,ik->i", x, inverse, x)
    free = np.where(used, np.maximum(1.0 - weight, 0.0), 1.0)
    if (free < 1e-9).any():
        score = math.inf  # as many terms as samples: the error is unknown
    else:
        left_out = np.sort(residuals / free)
        score = float(left_out[: max(1, math.ceil(_TRIMMED * count))].mean())
    full = np.zeros(3)
    full[list(terms)] = beta
    return _Fit(full, used, score)


def _start(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Return, of the exact fits to as many samples as there are terms, the one with the least median error."""
    import numpy as np

    count, width = x.shape
    if math.comb(count, width) <= _CANDIDATES:
        chosen = np.array(list(itertools.combinations(range(count), width)))
    else:
        generator = np.random.default_rng(0)
        chosen = np.argsort(generator.random((_CANDIDATES, count)), axis=1)[:, :width]
    systems = x[chosen]
    regular = np.abs(np.linalg.det(systems)) > 1e-12
    if not regular.any():
        return None
    betas = np.linalg.solve(systems[regular], np.ones((int(regular.sum()), width, 1)))[..., 0]
    betas = betas[(betas >= 0).all(axis=1)]
    if not len(betas):
        return None
    errors = np.sort(np.abs(betas @ x.T - 1.0), axis=1)[:, count // 2]
    best: np.ndarray[Any, Any] = betas[int(np.argmin(errors))]
    return best


def _limit(residuals: np.ndarray[Any, Any]) -> float:
    """Return the relative error up to which a sample is typical (median absolute deviation)."""
    typical: float = median(residuals.tolist())  # (NumPy's own imports its masked arrays, which takes 10 ms)
    return max(_LEAST_SCATTER, _TYPICAL * 1.4826 * typical)
