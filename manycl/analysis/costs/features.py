"""Device-Hopping's features of a kernel (Table 1 and Section 4.2), per point of the iteration space: per work-item.

The paper's rules: operations inside of loops count as often as the loops run; terms of a loop's condition that cannot
be evaluated before the kernel runs are ignored, and a loop without any other counts once; operations in a branch
without else inside of a loop do not count; all other branches do. Where trips depend on ids, which the paper's rules
leave open, features have the mean over all work-items. Branches are left out as they are rarely taken, such as one that
is taken where something was found; so those that ids, counters and scalars decide (is this point inside?) do count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from manycl.analysis.costs.cost import LaunchCost, Visits
from manycl.analysis.costs.cost_function import Trips
from manycl.analysis.facts import KernelFacts
from manycl.analysis.summary import CountedPlace, KernelSummary, Loop
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr

if TYPE_CHECKING:  # imports islpy
    pass

COMPARISONS = "Comparison operations"
COMPUTE = "Floating point and integer compute operations"
MEMORY = "Memory accesses"
TRANSFERRED = "Bytes transferred to the GPU per CUDA thread"
CPU = (COMPARISONS, COMPUTE, MEMORY)
GPU = (TRANSFERRED, COMPUTE)

_COMPUTE = ("float", "double", "half", "int", "special")


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a launch, per work-item."""

    bytes_transferred: float
    comparisons: float
    compute: float
    memory_accesses: float

    def values(self, device: str) -> tuple[float, ...]:
        """What the predictor of slice sizes for a device (``cpu`` or ``gpu``) is given, in the order of ``CPU`` and
        ``GPU``. Raises KeyError for another device."""
        named = {
            TRANSFERRED: self.bytes_transferred,
            COMPARISONS: self.comparisons,
            COMPUTE: self.compute,
            MEMORY: self.memory_accesses,
        }
        return tuple(named[name] for name in {"cpu": CPU, "gpu": GPU}[device])

    def logarithms(self, device: str) -> tuple[float, ...]:
        """Their logarithms, which the paper's models take (Section 4.3); of 1 more, as features may be 0."""
        return tuple(math.log1p(value) for value in self.values(device))


def feature_of(kind: str) -> str:
    """Which feature operations of a kind count to; empty for none."""
    family, _, rest = kind.partition(".")
    if rest.endswith("bytes"):
        return ""
    if family == "compare":
        return COMPARISONS
    if family in ("load", "store", "atomic"):
        return MEMORY
    return COMPUTE if family in _COMPUTE else ""


def static_features(summary: KernelSummary) -> Mapping[str, Expr]:
    """Every feature that a kernel's source tells, in terms of scalars, sizes and ids."""
    trips = Trips(unknown=x.ONE)
    found: dict[str, Expr] = dict.fromkeys(CPU, x.ZERO)
    for place, counts in summary.counts:
        for kind, times in counts.items():
            name = feature_of(kind)
            if name and not place.lone:
                found[name] = x.add(found[name], x.scale(trips.product(place.loops), times))
    return found


def launch_features(cost: LaunchCost, facts: KernelFacts) -> Features:
    """The features of a launch."""
    launch = cost.launch
    items, _ = cost.extent(launch.whole())
    axes = cost.axes(launch.whole())
    seen: dict[tuple[object, ...], Visits] = {}
    found = dict.fromkeys(CPU, 0.0)
    for place, counts in cost.summary.counts:
        if place.lone or not items:
            continue
        rounds = cost.visits(CountedPlace(_within(place.loops), place.loops), axes, seen).number / items
        for kind, times in counts.items():
            name = feature_of(kind)
            if name:
                found[name] += times * rounds
    needed = [a.index for a in facts.arguments if a.kind == "buffer" and a.reads and a.index not in launch.same]
    transferred = sum(launch.sizes.get(index, 0) for index in needed) / items if items else 0.0
    return Features(transferred, found[COMPARISONS], found[COMPUTE], found[MEMORY])


def _within(loops: tuple[Loop, ...]) -> Expr:
    """That counters are below trips which are known."""
    limits = [
        x.less(x.var(loop.name, 0, x.INFINITE), loop.trips)
        for loop in loops
        if loop.trips is not None and not loop.trips.unknown
    ]
    return x.both(*limits)
