"""List scheduling with insertion: one kernel at a time on every device, also in the gaps that are left there. ``cpop``,
``peft`` and ``portfolio`` share this. There are two models of transfers (option ``contention``): the engine's, where
data go by the host on one upload and one download queue a device (``plan/timeline/timeline.py``), and the literature's
(``plan/timeline/delays.py``), where transfers never meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from manycl.errors import PolicyError
from manycl.plan import options
from manycl.plan.plan import WHOLE, Plan
from manycl.plan.problem import Problem
from manycl.plan.search import rank
from manycl.plan.search.costs import Costs, costs
from manycl.plan.timeline.delays import Delays, delays, handovers, lower_bound
from manycl.plan.timeline.timeline import Schedule, Timeline
from manycl.plan.timeline.times_only import TimesOnly

CONTENTION = options.one_of("contention", "yes", "no")
"""The option of all policies with insertion."""


Growing = Timeline | TimesOnly
"""A partial schedule that grows node by node."""


@dataclass(frozen=True)
class Setting:
    """A problem looked up once. ``contention``: transfers share queues, as the engine's do. ``fixed``: nodes that are
    placed already."""

    problem: Problem
    table: Costs
    view: Delays
    contention: bool
    fixed: frozenset[int]

    def board(self, is_times_only: bool = False) -> Growing:
        """Return a new partial schedule with the fixed nodes. ``is_times_only``: its :meth:`by_node` is all that is
        asked for, not what simultaneous transfers then take longer."""
        problem = self.problem
        if self.contention and not (TimesOnly.holds(problem) and (is_times_only or not problem.contention.anything)):
            return Timeline(problem, self.table.seconds)
        return TimesOnly(problem, self._handovers if self.contention else self.view, self.contention)

    @cached_property
    def _handovers(self) -> Delays:
        return handovers(self.problem, self.view)

    def bound(self) -> float:
        """Return seconds that no schedule ends before."""
        ends = {a.node: a.end for a in sorted(self.problem.fixed, key=lambda a: a.end)}  # the last end of each node
        devices, enqueuing = self.problem.machine.indices, self.problem.enqueuing
        placed = [places for n, places in enumerate(self.view.places) if places and self.contention and n not in ends]
        given = sum([min([enqueuing[d][0] for d in places]) for places in placed])  # one command after another
        return max(self.problem.not_before + given, lower_bound(self.view, devices, ends))

    def plan(self, policy: str, found: Schedule, **details: object) -> Plan:
        return found.plan(self.problem, policy, contention=self.contention, **details)


def setting(problem: Problem, policy: str, contention: str = "yes") -> Setting:
    """Return the problem in the form for policies with insertion. ``contention``: the value of their option. Raises
    PolicyError for a partial schedule that is not consistent."""
    if contention == "no" and any(a.dimension is not WHOLE for a in problem.fixed):
        raise PolicyError(
            f"policy {policy} with contention=no knows no ranges, but one of the partial schedule is split"
        )
    problem.check_fixed()
    table = costs(problem)
    return Setting(
        problem, table, delays(problem, table), contention == "yes", frozenset(a.node for a in problem.fixed)
    )


def ready_order(given: Setting, priority: Sequence[float]) -> list[int]:
    """Return the nodes that are not fixed, in the order of :func:`manycl.plan.search.rank.ready_order`."""
    return [n for n in rank.ready_order(given.problem.graph, priority) if n not in given.fixed]
