"""Objectives: what makes one plan better than another one. Time, by default; energy; energy times time; and the least
of these among the plans that end before a deadline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from manycl.errors import PolicyError
from manycl.graph.graph import HostTask, Launch
from manycl.machine import DeviceIndex
from manycl.model.energy.powers import JOULES, has_powers, joules, usage
from manycl.plan.options import Option, Values, one_of
from manycl.plan.plan import ON_HOST, ROUNDING, Plan
from manycl.plan.problem import Problem
from manycl.trace import Event, KernelEvent
from manycl.units import parse_quantity
from manycl.utilities.logs import logger

log = logger(__name__)


class Objective(NamedTuple):
    """The least ``goal``: ``time``, ``energy`` or ``edp`` (the product of energy and delay), within ``deadline``
    seconds where a plan is so fast, else the least time."""

    goal: str = "time"
    deadline: float = math.inf

    def cost(self, seconds: float, joules: float) -> float:
        """Return the cost of a plan: seconds, joules, or joules times seconds; infinite behind the deadline."""
        if seconds > self.deadline * (1.0 + ROUNDING):
            return math.inf
        return seconds if self.goal == "time" else joules if self.goal == "energy" else joules * seconds

    def within(self, cost: float, joules: float, idle: float) -> float:
        """Return the seconds that a plan must not reach to be below a cost, where it takes at least these joules and
        ``idle`` watts."""
        if self.goal == "time":
            found = cost
        elif self.goal == "energy":
            found = (cost - joules) / idle if idle > 0.0 else math.copysign(math.inf, cost - joules)
        elif idle > 0.0:  # the root of idle t^2 + joules t = cost
            found = (math.sqrt(joules * joules + 4.0 * idle * cost) - joules) / (2.0 * idle)
        else:
            found = cost / joules if joules > 0.0 else math.inf
        return min(
            found, self.deadline * (1.0 + 2.0 * ROUNDING)
        )  # a sum of the same times in another order may be later


TIME = Objective()
_GOAL = one_of("objective", "time", "energy", "edp")
_DEADLINE: Option[float] = Option("deadline", math.inf, lambda text: parse_quantity(text, "s"), "a time, such as 20ms")
OPTIONS = _GOAL, _DEADLINE
"""The options of policies that plan for an objective."""


def objective(problem: Problem, given: Values) -> Objective:
    """Return the objective that options say: with a deadline alone, energy. Where nobody knows the devices' powers it
    is time, which is told."""
    goal, deadline = given[_GOAL], given[_DEADLINE]
    found = Objective("energy" if deadline < math.inf and _GOAL.name not in problem.options else goal, deadline)
    if found.goal != TIME.goal and not has_powers(problem.machine):
        log.warning("planned for time, not %s: nobody knows the powers of %s", found.goal, problem.machine.name)
        return TIME
    return found


def energy(problem: Problem, plan: Plan) -> float:
    """Return the joules of a plan. Those of transfers count where the engine has foreseen them."""
    if JOULES in plan.details:
        return float(sum(plan.details[JOULES].values()))
    events = list[Event]()
    for a in plan.assignments:
        task = problem.graph.nodes[a.node]
        if a.device != ON_HOST and not isinstance(task, HostTask):
            kernel = task.kernel.name if isinstance(task, Launch) else ""
            names = task.name, plan.devices[a.device]
            events.append(KernelEvent(a.node, *names, a.queue, a.start, a.end, (), None, kernel=kernel))
    return sum(joules(problem.machine, usage(events, plan.makespan)).values())


def with_fewer_devices(problem: Problem) -> Iterator[Problem]:
    """Yield the problem, and where nothing is fixed the same with some of its devices away: each alone, and the first
    few of those that compute everything with the fewest joules. Nodes stay on devices that they prefer."""
    yield problem
    devices = [d for d in problem.machine.indices if d not in problem.away] if not problem.fixed else []
    launch, nodes = problem.estimates.launch, problem.graph.nodes

    def dynamic(d: DeviceIndex) -> float:
        found = [(launch(n, d), task) for n, task in enumerate(nodes) if isinstance(task, Launch)]
        return sum(t * problem.machine.devices[d].above_idle(task.kernel.name) for t, task in found if t < math.inf)

    devices.sort(key=dynamic)
    groups = dict.fromkeys((*((d,) for d in devices), *(tuple(devices[:n]) for n in range(2, len(devices)))))
    for group in groups if len(devices) > 1 else ():
        part = replace(problem, away=frozenset(problem.machine.indices).difference(group))
        with suppress(PolicyError):
            if all({d for d, _ in part.places(n)} <= {*problem.preferred(n)} for n in range(len(nodes))):
                yield part


def cheapest(problem: Problem, wanted: Objective, plans: Iterable[Plan]) -> Plan:
    """Return the plan of the least cost, as the engine would run it where it can foresee that; of plans that all end
    behind the deadline the shortest."""
    if wanted == TIME:
        return min(plans, key=lambda plan: plan.makespan)
    foresee = problem.foresee if problem.foresee is not None and not problem.fixed else lambda plan: plan
    found = [p if p.foreseen else foresee(p) for p in plans]
    return min(found, key=lambda p: (wanted.cost(p.makespan, energy(problem, p)), p.makespan))
