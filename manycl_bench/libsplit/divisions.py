"""Divisions that no policy finds: everything on one device, the same for all, and given parts; and when a policy has
found its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from manycl.machine import DeviceIndex
from manycl.plan.adapt.families import Family, families
from manycl.plan.plan import Plan
from manycl.plan.policies.adaptive import Ranges, divided
from manycl.plan.problem import Problem


def settled(outside: Sequence[bool]) -> int:
    """The first repetition (from 1 on) from which on none is outside; one more than there are, if the last one is."""
    return max((i + 2 for i, out in enumerate(outside) if out), default=1)


class Fixed:
    """A policy that divides as it is told, whatever was measured."""

    def __init__(self, ranges: Mapping[int, Ranges]) -> None:
        self.ranges = ranges

    def plan(self, problem: Problem) -> Plan:
        return divided(problem, self.ranges, "fixed")


def of_family(family: Family, at: Sequence[int]) -> dict[int, Ranges]:
    """A family's members cut where the leader is (first group of every device, and the number of all)."""
    return {
        m.node: [(DeviceIndex(d), a, b - a) for d, (a, b) in enumerate(pairwise(m.cuts(at)))] for m in family.members
    }


def parts(problem: Problem, shares: Sequence[float]) -> dict[int, Ranges]:
    """Every family in these parts of its work-groups, by device."""
    out: dict[int, Ranges] = {}
    for family in families(problem):
        groups, at = family.leader.groups, [0.0]
        for share in shares:
            at.append(at[-1] + share / sum(shares))
        out.update(of_family(family, [round(groups * a) for a in at]))
    return out


def alone(problem: Problem, device: DeviceIndex) -> dict[int, Ranges]:
    """Everything on one device."""
    return {node: [(device, 0, split.groups)] for node, split in problem.splits.items()}
