"""Simulation: the real engine on the simulated machine, and the plan that any policy amounts to."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from manycl.errors import PolicyError
from manycl.graph.graph import HostTask
from manycl.machine import DeviceIndex
from manycl.plan.plan import ON_HOST, Assignment, Plan, fitted
from manycl.plan.policy import DynamicPolicy, StaticPolicy, find, is_static
from manycl.plan.problem import Problem
from manycl.plan.search.alternatives import following
from manycl.plan.verification.verify import verify
from manycl.run.engine.asking_policies import otherwise, planned
from manycl.run.simulation.disturbance import UNDISTURBED, Disturbance
from manycl.run.simulation.foresee import foresee, with_times
from manycl.trace import Event, HostEvent, KernelEvent, Trace, TransferEvent


def simulate(
    problem: Problem,
    policy: str | StaticPolicy | DynamicPolicy | Plan,
    *,
    disturbance: Disturbance = UNDISTURBED,
    anew: StaticPolicy | None = None,
) -> Trace:
    """Run a problem's graph on a simulated machine by the real engine, with any policy. Return the trace, of kind
    ``simulation``. Times are the problem's estimates; a dependence between two devices costs ``problem.handover``
    seconds more. ``disturbance``, ``anew``, and what is raised: see :func:`manycl.run.simulation.foresee.foresee`."""
    chosen = find(policy) if isinstance(policy, str) else policy
    if isinstance(chosen, Plan):
        problem = following(problem, chosen)
        chosen = fitted(chosen, problem.graph)
    name = policy if isinstance(policy, str) else chosen.policy if isinstance(chosen, Plan) else type(chosen).__name__
    return foresee(problem, chosen, name=name, disturbance=disturbance, anew=anew)


def plan_with(policy: str | StaticPolicy | DynamicPolicy, problem: Problem) -> Plan:
    """Return the plan that a policy makes of a problem, with the times at which it runs on the simulated machine. A
    static policy makes the plan, which is verified (PolicyError lists the faults); the plan of a dynamic policy is what
    it did. Where nodes are fixed, times are those that the policy estimates."""
    chosen = find(policy) if isinstance(policy, str) else policy
    name = policy if isinstance(policy, str) else type(policy).__name__
    if is_static(chosen):
        plan, given = cast("Plan", planned(problem, chosen)), problem
        # ranges can only be followed with the problem at hand
        problem = following(problem, plan)
        verify(plan, problem.graph, problem.machine, problem if plan.is_split else None)
        if problem.fixed:
            return plan
        try:
            return with_times(problem, plan, foresee(problem, plan))
        except PolicyError as error:
            problem, plan = given, otherwise(given, chosen, plan, error)
            return with_times(problem, plan, foresee(problem, plan))
    plan = replace(plan_of(simulate(problem, chosen)), policy=name)
    verify(plan, problem.graph, problem.machine)
    return plan


def with_ranges(
    problem: Problem, policy: StaticPolicy | DynamicPolicy, name: str
) -> StaticPolicy | DynamicPolicy | Plan:
    """Return the policy itself; where a dynamic one meets a launch that fits on no device as a whole, the plan that it
    makes on the simulated machine: ranges run only in plans. Raises PolicyError where a launch runs nowhere."""
    if is_static(policy) or problem.roomy:
        return policy
    launches = (n for n, task in enumerate(problem.graph.nodes) if not isinstance(task, HostTask))
    if all(any(problem.fits(n, d) for d in problem.allowed(n)) for n in launches):
        return policy
    return replace(plan_with(policy, problem), policy=name)


# Plans and traces have one shape.


def plan_of(trace: Trace) -> Plan:
    """Return the plan that a complete trace followed: the devices and times of its nodes. Raises PolicyError after a
    failed run."""
    assignments: list[Assignment] = []
    events: list[Event] = []
    for e in trace.events:
        if isinstance(e, KernelEvent):
            assignments.append(Assignment(e.node, DeviceIndex(trace.devices.index(e.device)), e.queue, e.start, e.end))
            events.append(e)
        elif isinstance(e, HostEvent):
            assignments.append(Assignment(e.node, ON_HOST, 0, e.start, e.end))
            events.append(e)
        elif isinstance(e, TransferEvent):
            events.append(e)
    if sorted(a.node for a in assignments) != list(range(len(assignments))) or any(
        max(edge) >= len(assignments) for edge in trace.edges
    ):
        raise PolicyError("the trace is not of a complete run: there is no plan in it")
    # edges lead from low to high nodes, so this order is topological even where something takes no time
    assignments.sort(key=lambda a: (a.start, a.end, a.node))
    return Plan(
        assignments=tuple(assignments),
        policy=trace.policy,
        devices=trace.devices,
        makespan=max((a.end for a in assignments), default=0.0),
        events=tuple(events),
        details=trace.details,
        foreseen=trace.kind == "simulation",
    )
