"""Plans foreseen: simulated by the engine itself, where a problem says how (``Problem.foresee``). A policy's own
estimate leaves out what the engine does beside the plan: parts of ranges that overlap transfers, transfers that the
policy did not think of, the time of enqueuing. A simulation has all that, but takes milliseconds: it pays for graphs
that run again and again, and for those that take long."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.tuning import PLANNING


def how_many(problem: Problem, makespan: float) -> int:
    """Return how many plans of a problem may be foreseen whose makespan is about ``makespan`` seconds."""
    if problem.foresee is None or not problem.splits:
        return 0
    cells = max(1, len(problem.graph) * len(problem.machine.devices))
    runs = PLANNING.foreseen_runs if problem.repeated else PLANNING.share
    worth = min(PLANNING.most, runs * makespan) / PLANNING.planned_cell
    return min(PLANNING.foreseen, int(worth / cells))


def foreseen(problem: Problem, plan: Plan) -> Plan:
    """Return the plan foreseen, where that is allowed; else the plan itself."""
    if plan.foreseen or problem.foresee is None or not how_many(problem, plan.makespan):
        return plan
    return problem.foresee(plan)


def best_of(problem: Problem, plans: Sequence[Plan]) -> Plan:
    """Return the plan that is expected to be the fastest; the first one of equals."""
    plans = sorted(plans, key=lambda plan: plan.makespan)
    number = how_many(problem, plans[0].makespan)
    if number > 1:
        different: dict[tuple[Assignment, ...], Plan] = {}
        for plan in plans:
            if plan.makespan <= PLANNING.nearly * plans[0].makespan:
                different.setdefault(plan.assignments, plan)
        plans = [foreseen(problem, plan) for plan in islice(different.values(), number)]
    return min(plans, key=lambda plan: plan.makespan)
