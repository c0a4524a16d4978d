"""Plans when some devices have left: the assignments of these are given to other devices. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from manycl.machine import DeviceIndex
from manycl.plan.plan import MERGE, ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem


def uses(plan: Plan, devices: Collection[DeviceIndex]) -> bool:
    """Return whether a plan has assignments on one of the devices."""
    return bool(devices) and any(a.device in devices for a in plan.assignments)


def on_present(problem: Problem, plan: Plan) -> Plan:
    """Return a plan without the devices that are ``away``. In the plan's order, each of their assignments is given to
    the device that would end it first, by the plan's own times of all that comes before. Raises PolicyError where no
    other device can run it."""
    if not uses(plan, problem.away):
        return plan
    busy = [0.0] * len(problem.machine.devices)
    out: list[Assignment] = []
    for a in plan.assignments:
        if a.device in problem.away:
            a = _elsewhere(problem, a, busy)
        if a.device != ON_HOST:
            busy[a.device] += _seconds(problem, a, a.device)
        out.append(a)
    # a device may now hold more at once than the plan was made for
    return replace(plan, assignments=tuple(out), events=(), foreseen=False)


def _elsewhere(problem: Problem, a: Assignment, busy: list[float]) -> Assignment:
    places = problem.preferred(a.node) if a.is_range or a.dimension is MERGE else problem.allowed(a.node)
    able = [d for d in places if problem.can_run(a.node, d)] or list(problem.allowed(a.node))
    device = min(able, key=lambda d: (busy[d] + _seconds(problem, a, d), d))
    return a._replace(device=device, queue=0, version=problem.version(a.node, device))


def _seconds(problem: Problem, a: Assignment, device: DeviceIndex) -> float:
    if a.dimension is MERGE:
        return a.end - a.start
    if a.is_range:
        if a.node not in problem.splits:
            return a.end - a.start
        return problem.range_seconds(a.node, device, a.groups)
    return problem.estimates.launch(a.node, device)
