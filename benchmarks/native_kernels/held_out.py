"""Whether first guesses hold for kernels that they were not fitted to: the weights of operations on native devices are
fitted anew to all benchmarks but one, which is then guessed with them; each benchmark in turn.

The fit starts from weights of 1 for every kind of operation, and changes one at a time as long as that brings guesses
nearer to what kernels took, so that nothing of the weights in ``manycl/model/prior.py`` is known to it. The shape of
the model, and its numbers that are no weights, stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from manycl.analysis.costs.cost import Work
from manycl.machine import NATIVE, Device
from manycl.model import prior

_FACTORS = (0.25, 0.5, 0.71, 1.41, 2.0, 4.0)
_SWEEPS = 8
_FAR = math.log(8.0)  # what is further off counts no more than this: a few wild ones decide nothing

Weights = dict[str, float]


class Judged(NamedTuple):
    """A launch of a kernel of some benchmark, and what it took, in seconds of one core."""

    benchmark: str
    work: Work
    device: Device
    plain: bool
    seconds: float


def held_out(kernels: Sequence[Judged]) -> list[float]:
    """Guess over time of every kernel, by weights that are fitted to the other benchmarks."""
    ratios = {}
    for benchmark in dict.fromkeys(kernel.benchmark for kernel in kernels):
        weights = fitted([kernel for kernel in kernels if kernel.benchmark != benchmark])
        with _weighed_by(weights):
            ratios.update({i: _ratio(k) for i, k in enumerate(kernels) if k.benchmark == benchmark})
    return [ratios[i] for i in range(len(kernels))]


def refitted(kernels: Sequence[Judged]) -> list[float]:
    """Likewise, by weights that are fitted to all of them."""
    with _weighed_by(fitted(kernels)):
        return [_ratio(kernel) for kernel in kernels]


def fitted(kernels: Sequence[Judged]) -> Weights:
    """The weights by which guesses are nearest to what kernels took."""
    weights = dict.fromkeys(prior._WEIGHTS[NATIVE], 1.0)
    best = _distance(kernels, weights)
    for _ in range(_SWEEPS):
        before = best
        for kind in weights:
            tries = [weights | {kind: weights[kind] * factor} for factor in _FACTORS]
            found = min((_distance(kernels, t), i) for i, t in enumerate(tries))
            if found[0] < best:
                best, weights = found[0], tries[found[1]]
        if best == before:
            break
    return weights


def within(ratios: Sequence[float], factor: float) -> float:
    """The share of guesses that are at most so many times off."""
    return sum(1 / factor <= ratio <= factor for ratio in ratios) / len(ratios)


def _distance(kernels: Sequence[Judged], weights: Weights) -> float:
    with _weighed_by(weights):
        return sum(min(abs(math.log(_ratio(kernel))), _FAR) for kernel in kernels)


def _ratio(kernel: Judged) -> float:
    return prior.prior(kernel.work, kernel.device, plain=kernel.plain).seconds / kernel.seconds


@contextmanager
def _weighed_by(weights: Weights) -> Iterator[None]:
    """While this lasts, native devices' operations have these weights."""
    own = prior._WEIGHTS[NATIVE]
    prior._WEIGHTS[NATIVE] = weights
    try:
        yield
    finally:
        prior._WEIGHTS[NATIVE] = own
