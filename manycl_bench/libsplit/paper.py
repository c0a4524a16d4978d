"""Libsplit's two methods as the paper has them (Section 5), to be compared with ours.

Every kernel is adapted by itself. With x_i the part of its work-groups that device i has, and f_i(x) the mean time of
one of them in the last execution, measured, F(x)_i = (1 / f_i) / sum_j (1 / f_j) (Section 5.1). It begins with the same
for all devices. *Fixed point*: the next x is F(x). *Broyden*: the zero of G(x) = x - F(x) by Broyden's method, the
approximate Jacobian first the unit matrix, so that its first step is F's. Nothing is smoothed, nothing left out.

What the paper does not say: work-groups are dealt out by largest remainders; a device that has none keeps the f_i that
was measured last; parts that Broyden's step would make negative are 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from manycl.api.arrays.host_arrays import AnyArray
from manycl.graph.graph import Graph
from manycl.machine import DeviceIndex
from manycl.plan.plan import Plan
from manycl.plan.policies.adaptive import Ranges, divided
from manycl.plan.policy import Timed
from manycl.plan.problem import Problem

METHODS = ("fixed_point", "broyden")


def image(per_group: Sequence[float]) -> AnyArray:
    """F(x), by the mean time of a work-group on each device at x."""
    rates = 1.0 / np.asarray(per_group)
    shares: AnyArray = rates / rates.sum()
    return shares


def whole(shares: Sequence[float] | AnyArray, groups: int) -> list[int]:
    """As many work-groups as come nearest to these parts of all, by largest remainders."""
    exact = [groups * float(s) for s in shares]
    counts = [int(e) for e in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
    for i in by_remainder[: groups - sum(counts)]:
        counts[i] += 1
    return counts


@dataclass
class FixedPoint:
    """x_k = F(x_(k-1))."""

    def next(self, x: AnyArray, found: AnyArray) -> AnyArray:
        return found


@dataclass
class Broyden:
    """The zero of x - F(x): Broyden, *A class of methods for solving nonlinear simultaneous equations*, 1965, with the
    inverse of the approximate Jacobian kept (Sherman and Morrison's form)."""

    _inverse: AnyArray | None = None
    _before: tuple[AnyArray, AnyArray] | None = field(default=None, repr=False)

    def next(self, x: AnyArray, found: AnyArray) -> AnyArray:
        residual = x - found
        if self._inverse is None:
            self._inverse = np.eye(len(x))
        elif self._before is not None:
            step, change = x - self._before[0], residual - self._before[1]
            along = step @ self._inverse
            size = float(along @ change)
            if size != 0.0:  # else nothing has moved
                self._inverse = self._inverse + np.outer(step - self._inverse @ change, along) / size
        self._before = x, residual
        then = np.maximum(x - self._inverse @ residual, 0.0)
        shares: AnyArray = then / then.sum() if then.sum() > 0.0 else found
        return shares


@dataclass
class _Kernel:
    """One kernel: the work-groups of each device, and what is known of their mean times (0: nothing yet)."""

    groups: list[int]
    method: FixedPoint | Broyden
    per_group: list[float]

    def observed(self, taken: Sequence[float]) -> None:
        """After an execution that took the devices so many seconds."""
        for d, (seconds, count) in enumerate(zip(taken, self.groups, strict=True)):
            if count and seconds > 0.0:
                self.per_group[d] = seconds / count
        if all(self.per_group):
            total = sum(self.groups)
            x = np.asarray(self.groups, dtype=np.float64) / total
            self.groups = whole(self.method.next(x, image(self.per_group)), total)


class Libsplit:
    """A policy that learns as Libsplit does, by ``method``: one of METHODS."""

    def __init__(self, method: str) -> None:
        self._method = {"fixed_point": FixedPoint, "broyden": Broyden}[method]
        self._kernels: dict[int, _Kernel] = {}

    def plan(self, problem: Problem) -> Plan:
        devices = problem.machine.indices
        for node, split in problem.splits.items():
            if node not in self._kernels:
                even = whole([1.0 / len(devices)] * len(devices), split.groups)
                self._kernels[node] = _Kernel(even, self._method(), [0.0] * len(devices))
        return divided(problem, {node: _ranges(k.groups) for node, k in self._kernels.items()}, "libsplit")

    def observe(self, graph: Graph, durations: Iterable[Timed], waits: Iterable[Timed] | None = None) -> None:
        """Of the one graph that it plans."""
        taken: dict[int, dict[int, float]] = {}
        for node, device, seconds in durations:
            of = taken.setdefault(node, {})
            of[device] = of.get(device, 0.0) + seconds
        for node, kernel in self._kernels.items():
            kernel.observed([taken.get(node, {}).get(d, 0.0) for d in range(len(kernel.groups))])

    def settled(self, graph: Graph) -> bool:
        """It evaluates F at each execution."""
        return False


def _ranges(groups: Sequence[int]) -> Ranges:
    out, first = [], 0
    for device, count in enumerate(groups):
        out.append((DeviceIndex(device), first, count))
        first += count
    return out
