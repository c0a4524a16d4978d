"""Predictions of a plan or a policy on a simulated machine: the engine plays the very command graph that it would play
on real devices. The times are those of the simulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from manycl.errors import PolicyError, RunError
from manycl.graph.graph import Graph
from manycl.graph.reduction import Reduction
from manycl.machine import DeviceIndex
from manycl.model.energy.powers import JOULES, spent
from manycl.model.estimates import Ends, Estimates, Slowed
from manycl.plan.plan import MERGE, WHOLE, Assignment, Plan
from manycl.plan.policy import DynamicPolicy, StaticPolicy
from manycl.plan.problem import Problem
from manycl.plan.search.alternatives import following, of_graph
from manycl.region import Region, union
from manycl.run.data.coherence import Directory
from manycl.run.engine.asking_policies import planned
from manycl.run.engine.engine import execute
from manycl.run.engine.setup import Setup
from manycl.run.engine.trial import Trial
from manycl.run.lowering.depth import IN_DEPTH
from manycl.run.lowering.lower import lower
from manycl.run.lowering.steps import COMBINE, DROPPED, RANGE, Lowered, Step, valid_intervals
from manycl.run.recovery.device_events import DeviceEvents, EventMonitor
from manycl.run.simulation.disturbance import UNDISTURBED, Disturbance
from manycl.run.simulation.simulator import SimBackend
from manycl.run.tiling.limits import limited
from manycl.trace import HostEvent, KernelEvent, Trace, TransferEvent


class StepEstimates(Estimates):
    """The estimates of a problem for the steps of one of its plans."""

    def __init__(self, problem: Problem, lowered: Lowered) -> None:
        self._problem = problem
        self._lowered = lowered
        self.contended = problem.estimates.contended

    def launch(self, token: int, device: DeviceIndex) -> float:
        """Return the seconds of a step. A step beside the ranges takes as long as moving its bytes in the device's
        memory once, or as the split says that merging the results of a memory takes."""
        step, problem = self._lowered.step(token), self._problem
        if step.role == RANGE:
            return self.range(step, device)
        if not step.role:
            return problem.estimates.launch(step.node, device)
        where, graph = problem.machine.devices[device], self._lowered.graph
        if step.role == COMBINE and (split := problem.splits.get(step.node)) is not None and split.merge_seconds:
            steps = len(problem.graph.nodes[step.node].writes) if step.method.startswith(Reduction.DIFFERENCE) else 1
            return split.merge_seconds[device] / steps
        task = graph.nodes[token]
        nbytes = sum(graph.buffers[key].nbytes for key in (*task.reads, *task.writes))
        return where.launch_overhead + nbytes / where.bandwidth

    def range(self, step: Step, device: DeviceIndex) -> float:
        """Return the seconds of a range of work-groups."""
        return self._problem.range_seconds(step.node, device, step.groups, step.first)

    def together(self, nodes: Sequence[int], device: DeviceIndex) -> float:
        steps = [self._lowered.step(node) for node in nodes]
        return self.range(steps[0]._replace(groups=sum(step.groups for step in steps)), device)

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return self._problem.estimates.transfer(nbytes, source, target)

    def traffic(self, token: int, device: DeviceIndex) -> float:
        """Return the bytes that a step moves: for a range its part, for a step beside the ranges all that it moves."""
        step, problem, graph = self._lowered.step(token), self._problem, self._lowered.graph
        if step.role == RANGE:
            return problem.estimates.traffic(step.node, device) * step.groups / problem.splits[step.node].groups
        if not step.role:
            return problem.estimates.traffic(step.node, device)
        task = graph.nodes[token]
        return float(sum(graph.buffers[key].nbytes for key in (*task.reads, *task.writes)))

    def slowdowns(self, ends: Sequence[Ends], most: Sequence[float]) -> list[float]:
        return self._problem.estimates.slowdowns(ends, most)


def foresee(
    problem: Problem,
    policy: Plan | StaticPolicy | DynamicPolicy,
    directory: Directory | None = None,
    *,
    name: str = "",
    disturbance: Disturbance = UNDISTURBED,
    estimates: Callable[[Problem, Lowered], StepEstimates] = StepEstimates,
    anew: StaticPolicy | None = None,
) -> Trace:
    """Return the trace, of kind ``simulation``.

    ``directory``: where buffers are valid (None: where the problem says); it is brought up to date. ``name``: of
    the policy. ``disturbance``: what the estimates do not know; for a node it holds for all its ranges. ``estimates``:
    makes the estimates of steps. Host functions are not called. ``anew``: the policy that has made the plan, if it may
    plan anew what is left where devices turn out to be slower, as in a run; its planning takes no time here.

    Raises PolicyError for a plan that divides a launch that cannot be divided, and for a problem some of whose nodes
    are fixed; for a problem that spills, RunError for a launch that does not fit into a memory; RunFailure for a fault.
    """
    if problem.fixed:
        raise PolicyError("the engine runs graphs as a whole: what has begun cannot be simulated")
    directory = directory if directory is not None else directory_of(problem)
    plan = planned(problem, policy)
    problem = following(problem, plan)
    limits = limited(problem, plan) if problem.spills and plan is not None else None
    lowered = lower(problem, plan, directory, limits)
    backend = SimBackend(
        problem.machine,
        estimates(problem, lowered),
        report_latency=problem.handover,
        start=problem.not_before,
        disturbance=_of_steps(disturbance, lowered),
    )
    name = name or (plan.policy if plan is not None else "")
    if anew is None or plan is None or not disturbance.slowdowns or not problem.estimates.for_graph(problem.graph):
        result = execute(problem, plan or policy, backend, directory, name=name, setup=Setup(lambda *_: lowered))
    else:

        def rest(graph: Graph) -> Problem:
            valid = {key: directory.memories(key) for key in graph.buffers}
            return replace(of_graph(problem, graph), valid=valid, valid_intervals=valid_intervals(directory, graph))

        def lowering(given: Problem, followed: Plan | None, directory: Directory) -> Lowered:
            if given.graph is problem.graph:
                return lowered
            steps = lower(given, followed, directory, limits)
            known = given.estimates.known if isinstance(given.estimates, Slowed) else given.estimates
            backend.follow(estimates(replace(given, estimates=known), steps), _of_steps(disturbance, steps))
            return steps

        watch = EventMonitor(DeviceEvents(d.name for d in problem.machine.devices), problem.machine)
        setup = Setup(lowering, rest=rest, trial=Trial(ahead=plan))
        result = execute(problem, anew, backend, directory, name=name, setup=setup, watch=watch)
    # (the engine's own clock has also waited for the last report)
    ran = (e for e in result.trace.events if getattr(e, "role", "") != DROPPED)
    ends = [e.end for e in ran if isinstance(e, KernelEvent | TransferEvent | HostEvent)]
    trace, makespan = result.trace, max(ends, default=0.0)
    details = {**trace.details, **spent(problem.machine, trace.events, makespan)}
    return replace(trace, kind="simulation", makespan=makespan, details=details)


def _of_steps(disturbance: Disturbance, lowered: Lowered) -> Disturbance:
    """Return a disturbance of a graph's nodes as one of the steps that they run in."""
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


def directory_of(problem: Problem) -> Directory:
    """Return a directory in which buffers are valid where a problem says."""
    directory = Directory()
    for key, buffer in problem.graph.buffers.items():
        found = problem.initial(key)
        parts = [(Region.span(low, high), sum(1 << memory for memory in there)) for low, high, there in found]
        if rest := Region.span(0, buffer.nbytes) - union(region for region, _ in parts):
            parts.append((rest, 0))
        directory.define_regions(key, parts)
    return directory


def with_times(problem: Problem, plan: Plan, trace: Trace) -> Plan:
    """Return the plan with the times of its simulation. Its ranges may have run in smaller parts, or in depth as larger
    ones, and steps that merge stand for the plan's merge."""
    whole: dict[int, tuple[float, float]] = {}
    merged: dict[int, tuple[float, float]] = {}
    ranges: dict[int, list[KernelEvent]] = {}
    for e in trace.events:
        if isinstance(e, HostEvent | KernelEvent):
            found = merged if isinstance(e, KernelEvent) and e.role == COMBINE else whole
            start, end = found.get(e.node, (e.start, e.end))
            found[e.node] = min(start, e.start), max(end, e.end)
            if isinstance(e, KernelEvent) and (e.role == RANGE or (e.role, e.method) == (COMBINE, IN_DEPTH)):
                ranges.setdefault(e.node, []).append(e)

    def times(a: Assignment) -> tuple[float, float]:
        if a.dimension is MERGE:
            end = max(e.end for e in ranges[a.node])
            return merged.get(a.node, (end, end))
        if a.dimension is WHOLE:
            return whole[a.node]
        device, end = plan.devices[a.device], a.first + a.groups
        mine = [e for e in ranges[a.node] if (e.device == device if e.method == IN_DEPTH else a.first <= e.first < end)]
        return min(e.start for e in mine), max(e.end for e in mine)

    at = [(a, *times(a)) for a in plan.assignments]
    return replace(
        plan,
        assignments=tuple(a._replace(start=start, end=end) for a, start, end in at),
        makespan=max(trace.makespan, problem.not_before),
        events=trace.events,
        details=plan.details | {key: trace.details[key] for key in (JOULES,) if key in trace.details},
        foreseen=True,
    )


def foreseeing(given: Problem, directory: Directory) -> Callable[..., Plan]:
    """Return ``Problem.foresee``, which simulates from the directory's present state on; its makespan is infinite for a
    plan that the engine refuses."""

    def foresee_plan(asked: Plan | DynamicPolicy, problem: Problem = given) -> Plan:
        plan = asked if isinstance(asked, Plan) else Plan((), "", (), 0.0)
        try:
            trace = foresee(problem, asked, directory.copy())
            return with_times(problem, plan, trace)
        except (PolicyError, RunError):
            return replace(plan, makespan=math.inf, foreseen=True)

    return foresee_plan
