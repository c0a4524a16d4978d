"""Two cores of a processor, alike or one four times slower, simulated with the noise of a machine that others use, too.

What the policy is told has noise: times are longer by some per cent (the size of a normal deviate), and with some
probability much longer, as where the core was taken for something else meanwhile. How good a split is is told by the
times without noise: how much longer than with the best split there is all kernels take, a family's time being that of
its slowest device, and a handover for every kernel that is divided.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import islice

from manycl.machine import Device, DeviceIndex, Machine
from manycl.plan.adapt.families import Family
from manycl.plan.plan import ON_HOST, WHOLE, Plan
from manycl.plan.policies.adaptive import Adaptive, Ranges
from manycl.plan.policy import StaticPolicy
from manycl_bench.libsplit.application import Application
from manycl_bench.libsplit.registry import APPLICATIONS
from manycl_bench.libsplit.repeat import repetitions
from manycl_bench.libsplit.simulated import Case

PAIRS = {"two alike": 1.0, "one four times slower": 4.0}
TILT, UNLIKE = 0.12, 1.1
"""By which part of it the last groups cost more than is counted (the first ones: less); and how many times slower the
second core is than the estimates know."""
DRIFT_FROM = 2


@dataclass(frozen=True)
class Noise:
    """``part``: standard deviation of the normal deviate whose size is what a kernel takes longer, as a part of it.
    ``often``: probability of a disturbance, by which a kernel takes longer by ``longer`` of its time on average."""

    part: float = 0.012
    often: float = 0.1
    longer: float = 0.6

    def factor(self, seed: int, turn: int, node: int, device: DeviceIndex) -> float:
        """What the time of a range is multiplied by: the same for the same arguments."""
        chance = random.Random(f"{seed} {turn} {node} {device}")
        factor = math.exp(abs(chance.gauss(0.0, self.part)))
        return factor * (1.0 + chance.expovariate(1.0 / self.longer)) if chance.random() < self.often else factor


QUIET = Noise(0.0, 0.0)


def machine(slower: float) -> Machine:
    """A core, and another one that is so many times slower; both in the host's memory."""
    return Machine(tuple(_core(i, s) for i, s in enumerate((1.0, slower))))


def _core(index: int, slower: float) -> Device:
    return Device(
        f"cpu0.{index}",
        "cpu",
        model="core",
        flops=4e9 / slower,
        bandwidth=6e9 / slower,
        launch_overhead=5e-6,
        global_memory=1 << 34,
        max_allocation=1 << 33,
    )


class Pair(Case):
    """An application on two cores. Every range reads its bytes anew: there is no cache that holds what another read.
    What is true is not what can be known before: groups cost more towards the end than is counted, and the second core
    is slower than it is said to be."""

    def __init__(self, application: Application, slower: float) -> None:
        super().__init__(application, machine(slower))

    def _seconds(self, turn: int, node: int, device: DeviceIndex, first: int, count: int) -> float:
        where, profile = self.machine.devices[device], self._profile(turn, node)
        if node not in self.splits:
            first, count = 0, profile.groups
        operations, touched, _ = profile.between(first, first + count)
        dearer = (1.0 + TILT * ((2.0 * first + count) / profile.groups - 1.0)) * (UNLIKE if device else 1.0)
        return where.launch_overhead + dearer * max(operations / where.flops, touched / where.bandwidth)

    @cached_property
    def oracle(self) -> float:
        """Seconds of a repetition with the best split, each family divided or whole, whatever is shorter."""
        best = self.best()
        return sum(min(self.family_seconds(f, best), self._alone(f)) for f in self.families)

    def _alone(self, family: Family) -> float:
        whole = ((d, {m.node: [(DeviceIndex(d), 0, m.groups)] for m in family.members}) for d in range(2))
        return min(self.family_seconds(family, ranges) for _, ranges in whole)

    def family_seconds(self, family: Family, ranges: Mapping[int, Ranges]) -> float:
        taken: dict[int, float] = {}
        for m in family.members:
            for device, first, count in ranges[m.node]:
                if count:
                    taken[device] = taken.get(device, 0.0) + self.seconds(0, m.node, device, first, count)
        handovers = len(family.members) if len(taken) > 1 else 0
        return max(taken.values()) + handovers * self.problem.handover

    def taken(self, plan: Plan) -> float:
        """Seconds of a repetition with a plan."""
        ranges: dict[int, list[tuple[DeviceIndex, int, int]]] = {}
        for a in plan.assignments:
            if a.device != ON_HOST:
                whole = a.dimension is WHOLE
                groups = self.splits[a.node].groups if whole else a.groups
                ranges.setdefault(a.node, []).append((a.device, 0 if whole else a.first, groups))
        return sum(self.family_seconds(f, ranges) for f in self.families)


def pair(name: str, slower: float) -> Pair:
    """A benchmark at the size for CPUs; the load of the N-body stands still."""
    entry = APPLICATIONS[name]
    return Pair(replace(entry.make(entry.quick), between=None), slower)


def behind(
    case: Pair, seed: int, noise: Noise, options: Mapping[str, str], times: int, policy: StaticPolicy | None = None
) -> list[float]:
    """How many per cent longer than the oracle's the splits of so many repetitions take (by ``adaptive``, or a policy
    that knows nothing yet)."""
    problem = replace(case.problem, options=options)

    def truth(turn: int, node: int, device: DeviceIndex, first: int, count: int) -> float:
        return case.seconds(0, node, device, first, count) * noise.factor(seed, turn, node, device)

    runs = islice(repetitions(problem, policy or Adaptive(), truth), times)
    return [100.0 * (case.taken(r.plan) / case.oracle - 1.0) for r in runs]


@cache
def _crowd(slower: float) -> Pair:
    """The N-body whose crowd moves: what its ranges take is counted anew in every repetition, but only once."""
    entry = APPLICATIONS["NBody"]
    return Pair(entry.make(entry.quick), slower)


def drift(
    slower: float, seed: int, noise: Noise, options: Mapping[str, str], times: int, policy: StaticPolicy | None = None
) -> list[float]:
    """How many per cent longer than the mean the slowest device takes with the N-body whose crowd moves (by
    ``adaptive``, or a policy that knows nothing yet)."""
    case = _crowd(slower)
    problem = replace(case.problem, options=options)

    def truth(turn: int, node: int, device: DeviceIndex, first: int, count: int) -> float:
        return case.seconds(turn, node, device, first, count) * noise.factor(seed, turn, node, device)

    found = []
    for turn, r in enumerate(islice(repetitions(problem, policy or Adaptive(), truth), times)):
        taken = [case.seconds(turn, 0, a.device, a.first, a.groups) for a in r.plan.assignments if a.groups]
        found.append(100.0 * (max(taken) / statistics.mean(taken) - 1.0) if len(taken) > 1 else 100.0)
    return found
