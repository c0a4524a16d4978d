"""``hop``: kernels in the order in which they come, each begun on the device that is available first, and moved to
faster ones as they become available.

First come, first served with mid-kernel migration (Device-Hopping: P. Metzger, V. Seeker, C. Fensch and M. Cole, TACO
2021, Sections 2.2 and 6.2), as a plan: a kernel that migrates is in ranges, which end when the next device is predicted
to be free. A kernel stays whole where moving its data would take longer than it gains. With ``both=yes`` the devices
continue together, which raises the bound of k / (k - 1 + 1 / k) over ``pns`` to 1 + 1 / k. With ``live=yes`` the ranges
are those with which a run begins: the times at which devices really become free decide during the run
(``Plan.in_turn``).
"""

from __future__ import annotations

from dataclasses import replace

from manycl.plan.migration import LIVE, place_migrating
from manycl.plan.options import Options, one_of
from manycl.plan.plan import Plan
from manycl.plan.policies.papers.mkmd_coarse import Table, as_plan, coarse, look_up
from manycl.plan.policy import register
from manycl.plan.problem import Problem
from manycl.plan.timeline.timeline import Timeline

BOTH = one_of("both", "no", "yes")


@register("hop")
class Hop:
    """First come, first served with migration; options ``both`` and ``live``."""

    options = Options("hop", BOTH, LIVE)

    def plan(self, problem: Problem) -> Plan:
        options = self.options.read(problem.options)
        together = options[BOTH] == "yes"

        def put(timeline: Timeline, table: Table, node: int) -> float:
            return place_migrating(timeline, table, node, together=together)

        table = look_up(problem)
        plan = as_plan(problem, coarse(problem, table, range(len(problem.graph)), put), "hop", both=together)
        if options[LIVE] == "no":
            return plan
        migrating = tuple(sorted({a.node for a in plan.assignments if a.is_range}))
        return replace(plan, movable=migrating, in_turn=() if together else migrating)
