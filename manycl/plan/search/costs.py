"""Costs that the static policies and the ranks need again and again, looked up once, in plain lists."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf

from manycl.graph.graph import HostTask
from manycl.machine import DeviceIndex
from manycl.plan.problem import Problem


@dataclass(frozen=True)
class Costs:
    """The costs of a problem. ``allowed[n]``: devices that may run node n as a whole (none: it is a host task), or do
    run it, if it is fixed. ``seconds[n][d]``: its time on device d. ``moves``: the machine has more than one memory, so
    data must be moved."""

    allowed: list[tuple[DeviceIndex, ...]]
    seconds: list[list[float]]
    moves: bool

    @cached_property
    def alone(self) -> list[float]:
        """Seconds that one queue of each device is busy for certain, at least (empty without nodes)."""
        busy = [0.0] * (len(self.seconds[0]) if self.seconds else 0)
        for places, row in zip(self.allowed, self.seconds, strict=True):
            for d in places:
                busy[d] += row[d]
        return busy


def costs(problem: Problem) -> Costs:
    """Return the table of a problem. Raises PolicyError for a node that no device can run as a whole."""
    devices = problem.machine.indices
    launch = problem.estimates.launch
    by_preference: dict[object, tuple[DeviceIndex, ...]] = {}
    allowed: list[tuple[DeviceIndex, ...]] = []
    seconds: list[list[float]] = []
    nothing = [0.0 for _ in devices]
    roomy, masks, every = problem.roomy, problem.masks, (1 << len(devices)) - 1
    fixed: dict[int, set[DeviceIndex]] = {}
    for a in problem.fixed:
        fixed.setdefault(a.node, set()).add(a.device)
    for index, node in enumerate(problem.graph.nodes):
        if isinstance(node, HostTask):
            allowed.append(())
            seconds.append(nothing)
            continue
        if index in fixed:  # it stays where it is, in whatever ranges
            allowed.append(tuple(sorted(fixed[index])))
            seconds.append([launch(index, d) for d in devices])
            continue
        places = by_preference.get(node.device)
        if places is None:
            places = by_preference[node.device] = problem.preferred(index)
        row = [launch(index, d) for d in devices]
        # devices are checked one by one only where one of them may not run it
        if not (roomy and masks[index] == every and sum(row) < inf) and not all(
            problem.can_run(index, d) and problem.fits(index, d) for d in places
        ):
            places = problem.allowed(index)
        allowed.append(places)
        seconds.append(row)
    return Costs(allowed, seconds, problem.machine.memories > 1)
