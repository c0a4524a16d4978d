"""The input and output of models: the work of a launch, and an estimate of its time that says how good it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from manycl.analysis.costs.cost import Work
from manycl.graph.graph import Launch, Version
from manycl.graph.versions.versions import preferred
from manycl.model.trips import trip_count


@dataclass(frozen=True, slots=True)
class Estimate:
    """A predicted time in seconds, between ``low`` and ``high`` nine times out of ten as far as is known. ``source``:
    the model it is from; ``error_percent``: how far off that model has been for this kernel and device (None: never
    compared); ``samples``: the number of measurements it rests on."""

    seconds: float
    low: float
    high: float
    source: str
    error_percent: float | None = None
    samples: int = 0

    @property
    def known(self) -> bool:
        """True if it rests on measurements of the kernel on such a device, and is no first guess."""
        return self.source.startswith(("measured", "regression", "interpolation"))

    @property
    def spread(self) -> float:
        """The width of the bar: the factor between its ends (1: certain)."""
        return self.high / self.low if self.low > 0 else math.inf

    @property
    def error(self) -> float:
        """The mean relative error to expect here, which the bar stands for (:func:`around`)."""
        return (math.sqrt(self.spread) - 1.0) / _NINE_OF_TEN

    def times(self, factor: float) -> Estimate:
        """Return the same estimate for a device that takes ``factor`` times as long."""
        if factor == 1.0:
            return self
        ends = (self.seconds * factor, self.low * factor, self.high * factor)
        return Estimate(*ends, self.source, self.error_percent, self.samples)


def implementation(launch: Launch, kind: str) -> Launch | Version:
    """Return what a device of a kind would run: the launch itself, or the version of it that is preferred there."""
    if not launch.versions:
        return launch
    order = preferred(launch.versions, kind)
    return launch.versions[order[0]] if order else launch


def product(sizes: Sequence[int]) -> int:
    n = 1
    for size in sizes:
        n *= size
    return n


def work_of(launch: Launch, chosen: Launch | Version) -> Work:
    """Return T, work-groups (0: the driver chooses) and f of a whole launch of an implementation, in microseconds;
    nothing is counted (:class:`manycl.model.counts.Counts` does that)."""
    items = product(chosen.global_size)
    groups = -(-items // max(1, product(chosen.local_size))) if chosen.local_size is not None else 0
    return Work(items, groups, trip_count(chosen.program, chosen.kernel).of(launch, chosen))


_NINE_OF_TEN = NormalDist().inv_cdf(0.95) * math.sqrt(math.pi / 2.0)
"""Mean sizes of normal errors within which nine of ten errors lie."""
_UNSURE = 0.25
"""Relative error assumed where it is unknown: of one measurement, or of two that cannot disagree; our own choice."""
NOTHING = Estimate(0.0, 0.0, 0.0, "nothing to do", 0.0)
IMPOSSIBLE = Estimate(math.inf, math.inf, math.inf, "no version for such a device")


def beyond(value: float, least: float, most: float) -> float:
    """Return how far a value is outside a range of positive numbers: 1 inside, 2 at twice the most, half the least."""
    if value > most:
        return value / most if most > 0 else math.inf
    if value < least:
        return least / value if value > 0 else math.inf
    return 1.0


FLOOR = 0.02
"""The least relative error of any model, as what fits five points exactly is luck, not knowledge; our own choice."""


def around(seconds: float, error: float, distance: float, source: str, samples: int) -> Estimate:
    """Return an estimate of a model whose mean relative error is ``error`` (fraction; infinite where it is not known),
    ``distance`` times outside of its data (:func:`beyond`). Inside, the bar has the width within which nine of ten
    errors lie, if they are normal and the mean of their sizes is ``error``. Outside it grows with the distance, and the
    source says so."""
    known = error if math.isfinite(error) else _UNSURE
    reach = (1.0 + _NINE_OF_TEN * max(known, FLOOR)) * distance
    if distance > 1.0:
        source = f"{source}, extrapolated"
    percent = 100.0 * error if math.isfinite(error) else None
    return Estimate(seconds, seconds / reach, seconds * reach, source, percent, samples)
