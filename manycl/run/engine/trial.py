"""Trials: a run that tries a plan gives it up on its way where a plan that the graph has run by before is faster. Pure.
Before a plan has run, it is only predicted that it is fast. A run by it is compared with the fastest run so far while
it goes on: by the part of the planned work that its kernels have done, and the seconds that this took. What has not
begun then follows the other plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from manycl.machine import DeviceIndex
from manycl.plan.plan import ROUNDING, Plan
from manycl.plan.tuning import PLANNING
from manycl.run.commands.backend import Command, Done, Lane, Report, Run, lane_of, nodes_of
from manycl.run.commands.command_graph import CommandGraph, KernelEnds

LOSING = PLANNING.near
"""The ratio to the fastest plan's time from which another plan is not tried any further."""
SEEN = 0.2
"""The part of the fastest plan's time for which the progress of another one is watched before it is judged; our own
choice. New code and memory slow the first kernels."""


class Fallback(NamedTuple):
    """A plan by which a graph has run before, and the seconds of its fastest run."""

    plan: Plan
    seconds: float


class Trial(NamedTuple):
    """A run that a policy plans for a graph which may have run before. ``fallback``: the fastest plan so far (None:
    none); ``rival``: as in :class:`manycl.plan.problem.Problem`; ``ahead``: the policy's plan, if made before."""

    fallback: Fallback | None = None
    rival: bool = False
    ahead: Plan | None = None


FIRST = Trial()
"""The trial of a graph that has not run before."""


def part_of(plan: Plan, nodes: Sequence[int]) -> Plan:
    """Return a plan's assignments of some nodes, which have their place in ``nodes`` as their number."""
    number = {n: i for i, n in enumerate(nodes)}
    kept = tuple([a._replace(node=number[a.node]) for a in plan.assignments if a.node in number])
    movable, in_turn, still = (
        tuple([number[n] for n in of if n in number]) for of in (plan.movable, plan.in_turn, plan.still)
    )
    return Plan(kept, plan.policy, plan.devices, plan.makespan, movable=movable, in_turn=in_turn, still=still)


class TrialProgress:
    """The progress of a run that tries the plan which it has compiled to ``command_graph``: how many times as long as
    planned the kernels of each queue take, waiting included, from the time on when each queue has ended a kernel."""

    def __init__(self, fallback: Fallback, command_graph: CommandGraph) -> None:
        plan, of_lanes = command_graph.lowered.plan, command_graph.lines.items()
        self._work = {a.node: a.end - a.start for a in plan.assignments} if plan is not None else {}
        """The planned seconds of each step."""
        self._left = {
            lane: sum(map(self._of, map(command_graph.commands.__getitem__, line))) for lane, line in of_lanes
        }
        self._total, self._seconds = sum(self._left.values()), fallback.seconds
        self._planning = (
            PLANNING.planned_cell * len(command_graph.lowered.graph) * len(command_graph.problem.machine.devices)
        )
        self._ends = KernelEnds(command_graph)
        self._silent = {lane for lane, left in self._left.items() if left}  # queues that have ended nothing yet
        self._begin = 0.0
        self._before: dict[Lane, float] | None = None  # what was left then
        self.ratio, self.slowdowns = 1.0, dict[DeviceIndex, float]()
        """The predicted seconds of the whole run over those by the fallback (``ratio``), and each device's seconds over
        those planned (``slowdowns``)."""

    def _of(self, command: Command) -> float:
        return sum([self._work.get(step, 0.0) for step in nodes_of(command)]) if isinstance(command, Run) else 0.0

    def is_losing(self, reports: Sequence[Report], now: float) -> bool:
        """Note reports of kernels, and return whether what is left is to follow the fallback."""
        for report in reports:
            for command in self._ends.of(report) if isinstance(report, Done) else ():
                self._left[lane_of(command)] -= self._of(command)
                self._silent.discard(lane_of(command))
        if self._silent or not self._total:
            return False
        if self._before is None:
            self._begin, self._before = now, dict(self._left)
        took, rest, whole = now - self._begin, 0.0, 0.0
        if took < SEEN * self._seconds:
            return False
        for lane, left in self._left.items():
            if left > ROUNDING * self._total:
                if left >= self._before[lane]:
                    return False
                slowdown = self.slowdowns[lane[0]] = took / (self._before[lane] - left)
                rest, whole = max(rest, left * slowdown), max(whole, self._before[lane] * slowdown)
        self.ratio = whole / self._seconds
        by_fallback = self._seconds * sum(self._left.values()) / self._total
        return self.ratio > LOSING and rest - by_fallback > self._planning
