"""``auto``, the default: HEFT's list scheduling or the fastest device alone, whichever is predicted to end
first.

HEFT: Topcuoglu, Hariri and Wu, "Performance-effective and low-complexity task scheduling for heterogeneous
computing", IEEE TPDS 13(3), 2002; here without insertion into gaps (an in-order queue that has been given
work cannot take any in between), O(V P), and with several queues a device.
"""

from __future__ import annotations

from manycl.plan.costs import Costs, costs
from manycl.plan.plan import Plan
from manycl.plan.policies import in_order
from manycl.plan.policy import register
from manycl.plan.problem import Problem
from manycl.plan.rank import bottom_levels, priority_order
from manycl.plan.timeline import Schedule, list_schedule


@register("auto")
class Auto:
    """Predict, compare, take the better; ``details["chosen"]`` says which it was."""

    def plan(self, problem: Problem) -> Plan:
        table = costs(problem)
        order = priority_order(problem.graph, bottom_levels(problem, table))
        best, chosen = list_schedule(problem, table, order, table.allowed, problem.queues), "heft"
        rival = _alone(problem, table, best.makespan)
        if rival is not None:
            best, chosen = rival, "in_order"
        return Plan(
            assignments=tuple(best.assignments),
            policy="auto",
            devices=tuple(d.name for d in problem.machine.devices),
            makespan=best.makespan,
            events=best.transfers,
            details={"chosen": chosen},
        )


def _alone(problem: Problem, table: Costs, makespan: float) -> Schedule | None:
    """The schedule of ``in_order`` if it is predicted to end sooner than ``makespan``."""
    if not table.moves:
        # no device can do the whole graph faster than its kernels take one after another
        least = min(map(sum, zip(*table.seconds, strict=True)), default=0.0)
        preferences = any(0 < len(places) < len(problem.machine.devices) for places in table.allowed)
        if not preferences and problem.not_before + least >= makespan:
            return None
    rival = in_order.schedule(problem, table)
    return rival if rival.makespan < makespan else None
