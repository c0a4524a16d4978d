"""``optimal``: the shortest schedule of whole kernels, or how far from it one can be, by constraint programming.

There is one kernel at a time on a device, and transfers are of whole buffers (``manycl_bench/optimal/model.py``).
OR-Tools' CP-SAT searches from the portfolio's plan on. Its solution is timed exactly; *proven* says that this is not
longer than the bound by more than the model's rounding. In the model, transfers take turns on a device's links. Little
transfers that the engine puts into kernels' own queues (``run/commands/emit.py``) do not: where these decide, a run can
be shorter than the bound.
"""

from __future__ import annotations

from manycl.errors import PolicyError
from manycl.plan.options import Option, Options, real, whole
from manycl.plan.plan import WHOLE, Plan
from manycl.plan.policies.classical import portfolio
from manycl.plan.policy import register
from manycl.plan.problem import Problem
from manycl.plan.search.insertion import CONTENTION, setting
from manycl.plan.timeline.timing import contended
from manycl.utilities.interrupts import Uninterrupted
from manycl_bench.optimal.answer import schedule_of
from manycl_bench.optimal.model import Model

_EFFORT = Option("effort", 10.0, real(zero=False), "a number above zero")
_WORKERS = whole("workers", 1, most=999)


@register("optimal")
class Optimal:
    """The policy of CP-SAT, from the portfolio's plan on. Options: ``contention``; ``effort`` (as the solver counts its
    work, whatever the clock says: what a core does in some seconds is one); ``workers`` (threads; zero: as many as
    there are cores. Of several, the one that finds something first decides, so plans are no longer the same every
    time)."""

    options = Options("optimal", CONTENTION, _EFFORT, _WORKERS)

    def plan(self, problem: Problem) -> Plan:
        values = self.options.read(problem.options)
        given = setting(problem, "optimal", values[CONTENTION])
        warm = portfolio.schedule(given)[0]
        bound = min(given.bound(), warm.makespan)
        # ranges that are fixed take longer than planned where something slows them down
        sure = not (any(a.dimension is not WHOLE for a in problem.fixed) and contended(problem))
        if warm.makespan <= bound * (1 + 1e-12):
            return given.plan("optimal", warm, proven=sure, bound=bound, gap=0.0, status="bound reached")
        try:
            with Uninterrupted():
                from ortools.sat.python import cp_model
        except ImportError:
            raise PolicyError(
                "policy optimal needs OR-Tools", hint="pip install -e '.[optimal]' in the checkout"
            ) from None
        model = Model(given, warm, cp_model)
        answer = model.solve(values[_EFFORT], values[_WORKERS])
        best = warm
        if answer.solver is not None:
            found = schedule_of(model, answer.solver)
            best = min(warm, found, key=lambda schedule: schedule.makespan)
        bound = min(max(bound, answer.bound), best.makespan)
        gap = (best.makespan - bound) / max(best.makespan - problem.not_before, 1e-300)
        proven = sure and best.makespan - bound <= model.size * model.tick
        return given.plan("optimal", best, proven=proven, bound=bound, gap=gap, status=answer.status)
