"""REPARA's execution units, the devices that they fit, and their partitions. "Static partitioning and scheduling of
kernels from profiles" (REPARA), Section 2.1, Eq. 3-5, and Section 2.2.1, Algorithm 1. A node of the graph is run by
exactly one of its units: those are alternatives of one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from manycl.graph.graph import HostTask
from manycl.machine import DeviceIndex
from manycl.plan.plan import ON_HOST
from manycl.plan.problem import Problem
from manycl.plan.split import Split
from manycl.plan.tuning import PLANNING


class ExecutionUnit(NamedTuple):
    """A way to run node ``node``: as a whole in version ``version``, or ``divided``, each partition in the version that
    is estimated for its device."""

    node: int
    version: int
    divided: bool


class Partition(NamedTuple):
    """A partition: groups ``first`` … ``first + groups - 1`` of a unit on a device, at once; ``groups`` 0: all."""

    device: DeviceIndex
    first: int = 0
    groups: int = 0


Way = tuple[Partition, ...]
"""Partitions of one unit that are all of its data."""


def execution_units(problem: Problem) -> Iterator[tuple[ExecutionUnit, tuple[DeviceIndex, ...]]]:
    """Yield the units of all nodes, each with the devices where it is feasible (F, Eq. 5; ``ON_HOST`` for a host task).
    A version is feasible on the devices that it is estimated for and whose memory holds all of it; a divided unit also
    where only some of it fits at a time. Raises PolicyError for a node that no device can run, and for a wrong
    split."""
    for node, task in enumerate(problem.graph.nodes):
        if isinstance(task, HostTask):
            yield ExecutionUnit(node, 0, False), (ON_HOST,)
            continue
        places = problem.places(node)
        by_version: dict[int, list[DeviceIndex]] = {}
        for device, most in places:
            if most == 0:
                by_version.setdefault(problem.version(node, device), []).append(device)
        for version, devices in sorted(by_version.items()):
            yield ExecutionUnit(node, version, False), tuple(devices)
        split = problem.splits.get(node)
        if split is not None:
            split.check(task.reads, task.writes)
            yield ExecutionUnit(node, 0, True), tuple(d for d, _ in places)


def ways(
    problem: Problem, unit: ExecutionUnit, devices: Sequence[DeviceIndex], rates: int = PLANNING.rates
) -> list[Way]:
    """Return every way to cover a unit's data by partitions on feasible devices, in ``rates`` equal parts (Algorithm
    1). A device that holds only some parts at a time takes its share in ranges, as many full ones as it needs and the
    rest (the text's reading: line 9 counts too few ranges where the memory's bound is no whole number of parts). A way
    with a share below the threshold on a device that is no CPU is left out. Neighbouring groups stay on one device."""
    if not unit.divided:
        return [(Partition(d),) for d in devices]
    split = problem.splits[unit.node]
    most = dict(problem.places(unit.node))
    while True:
        count = min(rates, split.groups)
        cuts = [split.groups * i // count for i in range(count + 1)]
        bounds = [_bound(split, most[d], count) for d in devices]
        found = [
            _as_way(devices, bounds, shares, cuts) for shares in _shares(problem, unit.node, devices, bounds, count)
        ]
        if found or 0 in most.values():
            return found
        rates *= 2  # the unit must be divided, and not even one part fits: smaller ones (one group does)


def _bound(split: Split, most: int, count: int) -> int:
    """Return the memory bound of a device, in parts: all, or as many of which none is larger than ``most`` groups."""
    if most == 0:
        return count
    return next((n for n in range(count, 0, -1) if -(-split.groups * n // count) <= most), 0)


def _shares(
    problem: Problem, node: int, devices: Sequence[DeviceIndex], bounds: Sequence[int], count: int
) -> Iterator[tuple[int, ...]]:
    """Yield parts by device that add up to ``count``, at least two partitions in all (one would be the whole unit).
    REPARA has no partitions whose results need merging: these stay on one device."""
    split = problem.splits[node]
    where = problem.machine.devices
    most = 1 if split.merge != "none" else problem.together(node)
    least = [1 if where[d].kind == "cpu" else -int(-PLANNING.threshold * count // 1) for d in devices]

    def of(i: int, left: int) -> Iterator[tuple[int, ...]]:
        if i == len(devices):
            if left == 0:
                yield ()
            return
        for n in range(left + 1) if bounds[i] else (0,):
            if n == 0 or n >= least[i]:
                for rest in of(i + 1, left - n):
                    yield (n, *rest)

    for shares in of(0, count):
        used = [(n, b) for n, b in zip(shares, bounds, strict=True) if n]
        if len(used) > most:
            continue
        if len(used) > 1 or used[0][0] > used[0][1]:
            yield shares


def _as_way(devices: Sequence[DeviceIndex], bounds: Sequence[int], shares: Sequence[int], cuts: Sequence[int]) -> Way:
    parts: list[Partition] = []
    at = 0
    for device, bound, share in zip(devices, bounds, shares, strict=True):
        end = at + share
        while at < end:
            n = min(bound, end - at)
            parts.append(Partition(device, cuts[at], cuts[at + n] - cuts[at]))
            at += n
    return tuple(parts)
