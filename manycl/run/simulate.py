"""What would happen: the real engine on the simulated machine, and the plan that any policy amounts to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from manycl.plan.events import plan_of, with_events
from manycl.plan.plan import Plan
from manycl.plan.policy import DynamicPolicy, StaticPolicy, find
from manycl.plan.problem import Problem
from manycl.plan.verify import verify
from manycl.run.backends.sim import SimBackend
from manycl.run.coherence import Directory
from manycl.run.engine import execute
from manycl.trace import HostEvent, KernelEvent, Trace, TransferEvent

_NO_HOST_TIMES: Mapping[int, float] = {}


def simulate(
    problem: Problem,
    policy: str | StaticPolicy | DynamicPolicy | Plan,
    *,
    host_seconds: Mapping[int, float] = _NO_HOST_TIMES,
    fail: Mapping[int, str] | None = None,
) -> Trace:
    """Run a problem's graph on a simulated machine: the trace, of kind ``simulation``.

    Times are the problem's estimates; what one device waits for from another costs ``problem.handover``
    seconds more. ``host_seconds``, ``fail``: see :class:`manycl.run.backends.sim.SimBackend`. Raises what a
    run raises.
    """
    chosen = find(policy) if isinstance(policy, str) else policy
    name = policy if isinstance(policy, str) else getattr(policy, "policy", type(policy).__name__)
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
        plan = with_events(cast("StaticPolicy", chosen).plan(problem), problem.graph)
        verify(plan, problem.graph, problem.machine)
        return plan
    plan = replace(plan_of(simulate(problem, chosen)), policy=name)
    verify(plan, problem.graph, problem.machine)
    return plan
