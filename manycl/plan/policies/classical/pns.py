"""``pns``: whole kernels in the order in which they come, each where it ends first, if need be after waiting. The
perfect non-migrating scheduler with which Device-Hopping is compared (P. Metzger, V. Seeker, C. Fensch and M. Cole,
TACO 2021, Section 6.1): first come, first served, but it knows what kernels take on each device, and so when devices
become free: a kernel ends at min(C_slow, W + C_fast) (Equations 5 and 13). Here that knowledge is the estimates."""

from __future__ import annotations

from manycl.plan.options import Options
from manycl.plan.plan import Plan
from manycl.plan.policies.papers.mkmd_coarse import as_plan, coarse, look_up
from manycl.plan.policy import register
from manycl.plan.problem import Problem


@register("pns")
class Pns:
    """The perfect non-migrating scheduler."""

    options = Options("pns")

    def plan(self, problem: Problem) -> Plan:
        table = look_up(problem)
        return as_plan(problem, coarse(problem, table, range(len(problem.graph))), "pns")
