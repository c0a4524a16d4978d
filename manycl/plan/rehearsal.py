"""Plans tried by the engine itself on the simulated machine, where a problem says how (``Problem.rehearse``).

A policy's own prediction knows nothing of what the engine does beside the plan: parts of ranges that overlap transfers,
what moves although nobody foresaw it, how long enqueuing takes. A rehearsal does, but takes milliseconds: it pays for
graphs that run again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem

AT_ONCE = 8
"""Plans that are rehearsed in one planning, at most."""
RUNS, MOST = 20, 1.0
"""Rehearsing may take as long as so many runs, and so many seconds."""
EACH = 5e-4
"""Seconds that a rehearsal takes for a node and a device (measured: 0.1 to 1 ms)."""
NEARLY = 1.15
"""Plans that are predicted to take so many times longer than another one are not tried."""


def how_many(problem: Problem, makespan: float) -> int:
    """How many plans of a problem may be rehearsed whose makespan is about this."""
    if problem.rehearse is None or not problem.splits:
        return 0
    cells = len(problem.graph) * len(problem.machine.devices)
    return min(AT_ONCE, int(min(MOST, RUNS * makespan) / (EACH * max(1, cells))))


def expected(plan: Plan) -> float:
    """The seconds that a plan will take: as rehearsed, or else as predicted."""
    return float(plan.details.get("rehearsed", plan.makespan))


def rehearsed(problem: Problem, plan: Plan) -> Plan:
    """The plan, with what its rehearsal took in its ``details`` where it may be rehearsed."""
    if "rehearsed" in plan.details or problem.rehearse is None or not how_many(problem, plan.makespan):
        return plan
    return replace(plan, details={**plan.details, "rehearsed": problem.rehearse(plan)})


def best_of(problem: Problem, plans: Sequence[Plan]) -> Plan:
    """The plan that is expected to be the fastest; the first one of equals."""
    plans = sorted(plans, key=lambda plan: plan.makespan)
    number = how_many(problem, plans[0].makespan)
    if number > 1:
        different: dict[tuple[Assignment, ...], Plan] = {}
        for plan in plans:
            if plan.makespan <= NEARLY * plans[0].makespan:
                different.setdefault(plan.assignments, plan)
        plans = [rehearsed(problem, plan) for plan in islice(different.values(), number)]
    return min(plans, key=expected)
