"""What would happen: the real engine on the simulated machine, and the plan that any policy amounts to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from manycl.errors import PolicyError
from manycl.graph.graph import Launch
from manycl.plan.events import plan_of, with_events
from manycl.plan.plan import Plan
from manycl.plan.policy import DynamicPolicy, StaticPolicy, find
from manycl.plan.problem import Problem
from manycl.plan.verify import verify
from manycl.run.backends.sim import SimBackend
from manycl.run.coherence import Directory
from manycl.run.disturbance import Disturbance
from manycl.run.engine import execute
from manycl.run.planning import planned
from manycl.run.replay import replay
from manycl.trace import HostEvent, KernelEvent, Trace, TransferEvent

_NO_HOST_TIMES: Mapping[int, float] = {}


def simulate(
    problem: Problem,
    policy: str | StaticPolicy | DynamicPolicy | Plan,
    *,
    host_seconds: Mapping[int, float] = _NO_HOST_TIMES,
    fail: Mapping[int, str] | None = None,
    disturbance: Disturbance | None = None,
) -> Trace:
    """Run a problem's graph on a simulated machine: the trace, of kind ``simulation``.

    Times are the problem's estimates; what one device waits for from another costs ``problem.handover``
    seconds more. ``host_seconds``, ``fail``, ``disturbance``: see :class:`manycl.run.backends.sim.SimBackend`. Raises
    what a run raises. A plan with moves, as static policies make them for machines with several memories, is replayed
    (:func:`manycl.run.replay.replay`); with a fault, its moves are left to the engine, and a plan that splits launches
    is refused.
    """
    chosen = find(policy) if isinstance(policy, str) else policy
    name = policy if isinstance(policy, str) else getattr(policy, "policy", type(policy).__name__)
    plan = chosen if isinstance(chosen, Plan) else None
    if plan is None and isinstance(chosen, StaticPolicy):
        plan = planned(problem, chosen)
        chosen = plan if plan is not None else chosen
    if plan is not None:
        faults = bool(fail or (disturbance is not None and disturbance.faults))
        versions = any(a.version for a in plan.assignments)
        if plan.is_split or problem.fixed or ((plan.moves or versions) and not faults):
            if faults:
                raise PolicyError("a plan that splits launches is replayed without faults")
            return replay(problem, plan, host_seconds=host_seconds, disturbance=disturbance)
    directory = Directory()
    for key, places in problem.valid.items():
        if places:
            directory.valid[key] = sum(1 << memory for memory in places)
    backend = SimBackend(
        problem.machine,
        problem.estimates,
        host_seconds=host_seconds,
        fail=fail,
        report_latency=problem.handover,
        start=problem.not_before,
        disturbance=disturbance,
    )
    trace = execute(problem, chosen, backend, directory, name=str(name)).trace
    # the engine's own clock has also waited for the last report
    ends = [e.end for e in trace.events if isinstance(e, (KernelEvent, TransferEvent, HostEvent))]
    return replace(trace, kind="simulation", makespan=max(ends, default=0.0))


def plan_with(policy: str | StaticPolicy | DynamicPolicy, problem: Problem) -> Plan:
    """The plan a policy makes of a problem, with all its events.

    A static policy is asked for it, and its plan is judged (PolicyError lists the faults); a dynamic one is
    run on the simulated machine, and what it did is the plan.
    """
    chosen = find(policy) if isinstance(policy, str) else policy
    name = policy if isinstance(policy, str) else type(policy).__name__
    if hasattr(chosen, "plan"):
        plan = with_events(cast("Plan", planned(problem, chosen)), problem.graph)
        # ranges and moves can only be followed with the problem at hand
        verify(plan, problem.graph, problem.machine, problem if plan.is_split or plan.moves else None)
        return plan
    plan = replace(plan_of(simulate(problem, chosen)), policy=name)
    verify(plan, problem.graph, problem.machine)
    return plan


def with_ranges(
    problem: Problem, policy: StaticPolicy | DynamicPolicy, name: str
) -> StaticPolicy | DynamicPolicy | Plan:
    """The policy; but where it decides while it runs, and a launch fits on no device as a whole, what it decides on the
    simulated machine: only of plans are launches run in ranges. Raises PolicyError where a launch runs nowhere."""
    if hasattr(policy, "plan") or problem.roomy:
        return policy
    launches = (n for n, task in enumerate(problem.graph.nodes) if isinstance(task, Launch))
    if all(any(problem.fits(n, d) for d in problem.allowed(n)) for n in launches):
        return policy
    return replace(plan_with(policy, problem), policy=name)
