"""What a plan or a policy would take on a simulated machine: the steps that the engine would run, by the very engine.

Where a replay of a plan (``run/replay.py``) follows the moves that the planner foresaw, this moves what the regions of
the launches say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from manycl.errors import PolicyError, RunError
from manycl.model.estimates import Ends, Estimates
from manycl.plan.plan import Plan
from manycl.plan.policy import DynamicPolicy, StaticPolicy
from manycl.plan.problem import Problem
from manycl.run.backends.sim import NO_HOST_TIMES, NO_TIME, SimBackend
from manycl.run.chains import ENQUEUING
from manycl.run.coherence import Directory
from manycl.run.disturbance import UNDISTURBED, Disturbance
from manycl.run.engine import Setup, execute
from manycl.run.lower import lower
from manycl.run.planning import planned
from manycl.run.steps import RANGE, Lowered
from manycl.run.windows import limited
from manycl.trace import HostEvent, KernelEvent, Trace, TransferEvent


class StepEstimates(Estimates):
    """The estimates of a problem for the steps of one of its plans."""

    def __init__(self, problem: Problem, lowered: Lowered) -> None:
        self._problem = problem
        self._lowered = lowered
        self.contended = problem.estimates.contended

    def launch(self, token: int, device: int) -> float:
        """Seconds of a step; what is done beside the ranges takes the time of moving its bytes in the device's memory
        once."""
        step, problem = self._lowered.step(token), self._problem
        if step.role == RANGE:
            return problem.range_seconds(step.node, device, step.groups)
        if not step.role:
            return problem.estimates.launch(step.node, device)
        where, graph = problem.machine.devices[device], self._lowered.graph
        task = graph.nodes[token]
        nbytes = sum(graph.buffers[key].nbytes for key in (*task.reads, *task.writes))
        return where.launch_overhead + nbytes / where.bandwidth

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return self._problem.estimates.transfer(nbytes, source, target)

    def traffic(self, token: int, device: int) -> float:
        """Bytes of a step: of a range its part, of what is done beside the ranges all that it moves."""
        step, problem, graph = self._lowered.step(token), self._problem, self._lowered.graph
        if step.role == RANGE:
            return problem.estimates.traffic(step.node, device) * step.groups / problem.splits[step.node].groups
        if not step.role:
            return problem.estimates.traffic(step.node, device)
        task = graph.nodes[token]
        return float(sum(graph.buffers[key].nbytes for key in (*task.reads, *task.writes)))

    def slowdowns(self, ends: Sequence[Ends]) -> list[float]:
        return self._problem.estimates.slowdowns(ends)


def foresee(
    problem: Problem,
    policy: Plan | StaticPolicy | DynamicPolicy,
    directory: Directory | None = None,
    enqueuing: Mapping[str, float] = NO_TIME,
    *,
    name: str = "",
    host_seconds: Mapping[int, float] = NO_HOST_TIMES,
    disturbance: Disturbance = UNDISTURBED,
) -> Trace:
    """The trace, of kind ``simulation``. ``directory``: where buffers are valid (None: where the problem says; it is
    brought up to date). ``enqueuing``: seconds that the engine takes for a command, by kind of device. ``name``: of the
    policy. ``host_seconds[n]``: how long host function n takes, which is not called. ``disturbance``: what the
    estimates do not know; what it says of nodes is true of all their ranges.

    Raises PolicyError for a plan that divides a launch that cannot be, and for a problem some of whose nodes are fixed;
    of a problem that spills, RunError for a launch that does not fit into a memory; RunFailure for a fault.
    """
    if problem.fixed:
        raise PolicyError("the engine runs graphs as a whole: what has begun cannot be simulated, but replayed")
    if directory is None:
        directory = Directory()
        for key, places in problem.valid.items():
            if places:
                directory.valid[key] = sum(1 << memory for memory in places)
    plan = planned(problem, policy)
    limits = limited(problem, plan) if problem.spills and plan is not None else None
    lowered = lower(problem, plan, directory, limits)
    of = range(len(lowered.graph))
    backend = SimBackend(
        problem.machine,
        StepEstimates(problem, lowered),
        host_seconds={i: host_seconds.get(lowered.step(i).node, 0.0) for i in of} if host_seconds else host_seconds,
        report_latency=problem.handover,
        start=problem.not_before,
        disturbance=_of_steps(disturbance, lowered),
        enqueuing=enqueuing,
    )
    name = name or (plan.policy if plan is not None else "")
    result = execute(problem, plan or policy, backend, directory, name=name, setup=Setup(lambda *_: lowered))
    # the engine's own clock has also waited for the last report
    ends = [e.end for e in result.trace.events if isinstance(e, KernelEvent | TransferEvent | HostEvent)]
    return replace(result.trace, kind="simulation", makespan=max(ends, default=0.0))


def _of_steps(disturbance: Disturbance, lowered: Lowered) -> Disturbance:
    """A disturbance of a graph's nodes as one of the steps that they run in."""
    if not lowered.steps:
        return disturbance
    first: dict[int, int] = {}
    failing: dict[int, str] = {}
    for token, step in enumerate(lowered.steps):
        if not step.role:
            first[token] = step.node
        if step.node in disturbance.failing and step.role in ("", RANGE):
            failing[token] = disturbance.failing[step.node]
    return replace(disturbance, failing=failing, nodes=first)


def rehearsal(problem: Problem, directory: Directory) -> Callable[[Plan], float]:
    """``Problem.rehearse``, from the directory's present state on: infinite for a plan that the engine refuses."""

    def rehearse(plan: Plan) -> float:
        try:
            return foresee(problem, plan, directory.copy(), ENQUEUING).makespan
        except (PolicyError, RunError):
            return math.inf

    return rehearse
