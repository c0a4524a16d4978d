"""Migration: a kernel goes from device to device while it runs, in ranges of its work-groups, one after another.
``hop`` and ``mig_heft`` share this. A kernel begins on the device that is available first, and continues, group for
group, on a faster one as soon as that is available (Device-Hopping, Section 2.2); or on all of them together. In a plan
this is a range for each device; the estimates decide which groups it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from manycl.plan.movable import SHORTEST, may_move
from manycl.plan.options import one_of
from manycl.plan.plan import Plan
from manycl.plan.policies.papers.mkmd_coarse import Table, earliest, place
from manycl.plan.problem import Problem
from manycl.plan.search.partition import Slot, last_slot, place_ranges, water_fill
from manycl.plan.split import as_ranges
from manycl.plan.timeline.timeline import Timeline

LIVE = one_of("live", "no", "yes")
"""The option whether kernels migrate while they run, when devices really become free."""


def on_the_move(problem: Problem, plan: Plan) -> Plan:
    """Return the plan in which all kernels that last long enough and may be divided may go from device to device while
    they run, also those that it has on one device: to any device that is faster and idle."""
    seconds: dict[int, float] = {}
    for a in plan.assignments:
        seconds[a.node] = max(seconds.get(a.node, 0.0), a.end - a.start)
    moving = {n for n, t in seconds.items() if t >= SHORTEST and may_move(problem, n)}
    nodes = tuple(sorted(moving))
    return replace(plan, assignments=as_ranges(plan.assignments, problem.splits, moving), movable=nodes, in_turn=nodes)


def place_migrating(timeline: Timeline, table: Table, node: int, *, together: bool = False) -> float:
    """Place a kernel as it migrates, or whole where it would end no later or may not be split. Return when it ends, in
    seconds. ``together``: a device that it has moved away from, or that comes later, works on it as well."""
    problem = timeline.problem
    places = problem.partners(node, table.places[node])
    if not places:
        return place(timeline, table, node)
    slots = [last_slot(timeline, node, device, most) for device, most in places]
    slots = slots if together else in_turn(slots)
    groups = problem.splits[node].groups
    shares = water_fill(slots, groups)
    if sum(1 for n in shares if n) < 2:
        return place(timeline, table, node)
    home = max(zip(slots, shares, strict=True), key=lambda part: part[1])[0].reach.device
    whole = any(most == 0 for _, most in table.places[node])
    limit = earliest(timeline, table, node).end if whole else inf
    mark = timeline.mark()
    end = place_ranges(timeline, node, slots, shares, home)
    if end < limit:
        return end
    timeline.back(mark)
    return place(timeline, table, node)


def in_turn(slots: Sequence[Slot]) -> list[Slot]:
    """Return the slots that a kernel goes through: devices in the order in which they are available, each if it is
    faster than the one before, until the next one is available."""
    found: list[Slot] = []
    for slot in sorted(slots, key=lambda s: (max(s.low, s.reach.ready), s.reach.each)):
        if not found or slot.reach.each < found[-1].reach.each:
            begin = max(slot.low, slot.reach.ready)
            if found:
                found[-1] = found[-1]._replace(high=min(found[-1].high, begin))
            found.append(slot)
    return [slot for slot in found if slot.high > slot.low]
