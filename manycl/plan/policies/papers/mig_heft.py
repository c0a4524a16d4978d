"""``mig_heft``: HEFT whose kernels may migrate: by upward rank, each where it ends first, whole or going from device to
device.

After A. Loesch and M. Platzner, "MigHEFT: DAG-based Scheduling of Migratable Tasks on Heterogeneous Compute Nodes",
IPDPS Workshops 2020: the schedule that is made before a run, from estimates. With ``live=yes`` also their other half:
running kernels continue elsewhere where a run differs from the plan (:func:`manycl.plan.migration.on_the_move`).
"""

from __future__ import annotations

from manycl.plan.migration import LIVE, on_the_move, place_migrating
from manycl.plan.options import Options
from manycl.plan.plan import Plan
from manycl.plan.policies.papers.mkmd_coarse import as_plan, coarse, in_priority, look_up
from manycl.plan.policy import register
from manycl.plan.problem import Problem


@register("mig_heft")
class MigHeft:
    """HEFT with migration; option ``live``."""

    options = Options("mig_heft", LIVE)

    def plan(self, problem: Problem) -> Plan:
        is_live = self.options.read(problem.options)[LIVE] == "yes"
        table = look_up(problem)
        plan = as_plan(problem, coarse(problem, table, in_priority(problem, table), place_migrating), "mig_heft")
        return on_the_move(problem, plan) if is_live else plan
