"""``auto``, the default: HEFT's list scheduling or the fastest device alone, whichever is predicted to end
first.

HEFT: Topcuoglu, Hariri and Wu, "Performance-effective and low-complexity task scheduling for heterogeneous
computing", IEEE TPDS 13(3), 2002; here without insertion into gaps (an in-order queue that has been given
work cannot take any in between), O(V P), and with several queues a device.
"""

from __future__ import annotations

from manycl.plan.costs import costs
from manycl.plan.plan import Plan
from manycl.plan.policies.in_order import on_one_device
from manycl.plan.policy import register
from manycl.plan.problem import Problem
from manycl.plan.rank import bottom_levels, priority_order
from manycl.plan.timeline import list_schedule


@register("auto")
class Auto:
    """Predict, compare, take the better; ``details["chosen"]`` says which it was."""

    def plan(self, problem: Problem) -> Plan:
        table = costs(problem)
        order = priority_order(problem.graph, bottom_levels(problem, table))
        best, chosen = list_schedule(problem, table, order, table.allowed, problem.queues), "heft"
        rival = on_one_device(problem, table, order, problem.queues, below=best.makespan)
        if rival is not None:
            best, chosen = rival, "one device"
        rival = on_one_device(problem, table, range(len(order)), [1] * len(problem.queues), below=best.makespan)
        if rival is not None:
            best, chosen = rival, "in_order"
        return best.plan(problem, "auto", chosen=chosen)
