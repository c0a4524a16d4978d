"""Plans foreseen by the engine itself on the simulated machine, where a problem says how (``Problem.foresee``).

A policy's own estimate knows nothing of what the engine does beside the plan: parts of ranges that overlap transfers,
what moves although nobody thought of it, how long enqueuing takes. What is foreseen does, but takes milliseconds: it
pays for graphs that run again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.tuning import PLANNING


def how_many(problem: Problem, makespan: float) -> int:
    """How many plans of a problem may be foreseen whose makespan is about this."""
    if problem.foresee is None or not problem.splits:
        return 0
    cells = max(1, len(problem.graph) * len(problem.machine.devices))
    worth = min(PLANNING.foreseen_cells, PLANNING.foreseen_runs * makespan / PLANNING.foreseen_cell)
    return min(PLANNING.foreseen, int(worth / cells))


def foreseen(problem: Problem, plan: Plan) -> Plan:
    """The plan as it is foreseen, where it may be."""
    if plan.foreseen or problem.foresee is None or not how_many(problem, plan.makespan):
        return plan
    return problem.foresee(plan)


def best_of(problem: Problem, plans: Sequence[Plan]) -> Plan:
    """The plan that is expected to be the fastest; the first one of equals."""
    plans = sorted(plans, key=lambda plan: plan.makespan)
    number = how_many(problem, plans[0].makespan)
    if number > 1:
        different: dict[tuple[Assignment, ...], Plan] = {}
        for plan in plans:
            if plan.makespan <= PLANNING.nearly * plans[0].makespan:
                different.setdefault(plan.assignments, plan)
        plans = [foreseen(problem, plan) for plan in islice(different.values(), number)]
    return min(plans, key=lambda plan: plan.makespan)
