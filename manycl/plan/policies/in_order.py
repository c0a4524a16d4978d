"""``in_order``: everything on the fastest device, one queue, in the order of the graph. What every paper
compares with."""

from __future__ import annotations

from manycl.plan.costs import Costs, costs
from manycl.plan.plan import Plan
from manycl.plan.policy import register
from manycl.plan.problem import Problem
from manycl.plan.timeline import Schedule, list_schedule


def schedule(problem: Problem, table: Costs) -> Schedule:
    """The schedule on the device where the predicted makespan is smallest; the first of equals.

    A kernel whose preference excludes that device runs on the one of its own where it takes least time.
    """
    devices = range(len(problem.machine.devices))
    order = range(len(problem.graph.nodes))
    one_queue = [1] * len(devices)
    schedules = []
    for device in devices:
        candidates = [
            (device,) if device in places else (min(places, key=row.__getitem__),) if places else ()
            for places, row in zip(table.allowed, table.seconds, strict=True)
        ]
        schedules.append(list_schedule(problem, table, order, candidates, one_queue))
    return min(schedules, key=lambda s: s.makespan)


@register("in_order")
class InOrder:
    """The baseline: one in-order queue of the fastest device."""

    def plan(self, problem: Problem) -> Plan:
        found = schedule(problem, costs(problem))
        return Plan(
            assignments=tuple(found.assignments),
            policy="in_order",
            devices=tuple(d.name for d in problem.machine.devices),
            makespan=found.makespan,
            events=found.transfers,
        )
