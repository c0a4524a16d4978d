"""``in_order``: everything on the fastest device, one queue, in the order of the graph; the baseline of every paper."""

from __future__ import annotations

from collections.abc import Sequence

from manycl.plan.options import Options
from manycl.plan.plan import ROUNDING, Plan
from manycl.plan.policy import register
from manycl.plan.problem import Problem
from manycl.plan.search.costs import Costs, costs
from manycl.plan.search.list_scheduling import list_schedule
from manycl.plan.timeline.timeline import Schedule


def on_one_device(
    problem: Problem, table: Costs, order: Sequence[int], queues: Sequence[int], below: float = float("inf")
) -> Schedule | None:
    """Return the schedule on the device where the predicted makespan is smallest, the first of equals; ``queues[d]``
    queues of device d are used. None: on no device is the end predicted before ``below``. A kernel whose preference
    excludes that device runs on the one of its own where it takes least time."""
    best: Schedule | None = None
    chosen, limit = -1, below
    devices = problem.machine.indices
    for least, device in sorted(zip(table.alone or [0.0 for _ in devices], devices, strict=True)):
        # its kernels are enqueued one after another; fixed nodes may be on other devices
        bound = sum([device in places for places in table.allowed]) * problem.enqueuing[device][0]
        if order and device in table.allowed[order[-1]]:
            bound += table.seconds[order[-1]][device]
        bound = max(bound, least if queues[device] == 1 else 0.0) if not problem.fixed else 0.0
        if problem.not_before + bound >= limit * (1.0 - ROUNDING):
            continue
        candidates = [
            (device,) if device in places else (min(places, key=row.__getitem__),) if places else ()
            for places, row in zip(table.allowed, table.seconds, strict=True)
        ]
        found = list_schedule(problem, table, order, candidates, queues, limit)
        if found.makespan < limit or (found.makespan == limit and device < chosen):
            best, chosen, limit = found, device, found.makespan
    return best


@register("in_order")
class InOrder:
    """The baseline: one in-order queue of the fastest device."""

    options = Options("in_order")

    def plan(self, problem: Problem) -> Plan:
        devices, nodes = problem.machine.devices, problem.graph.nodes
        found = on_one_device(problem, costs(problem), range(len(nodes)), [1] * len(devices))
        assert found is not None, "every makespan is below infinity"
        return found.plan(problem, "in_order")
