"""What a plan with ranges would take on a simulated machine: the steps that the engine would run, by the very engine.

Where a replay of the plan (``run/replay.py``) follows the moves that the planner foresaw, this moves what the regions
of the launches say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from manycl.errors import PolicyError, RunError
from manycl.model.estimates import Ends, Estimates
from manycl.plan.plan import Plan
from manycl.plan.problem import Problem
from manycl.run.backends.sim import NO_TIME, SimBackend
from manycl.run.chains import ENQUEUING
from manycl.run.coherence import Directory
from manycl.run.engine import execute
from manycl.run.lower import lower
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

    def slowdowns(self, ends: Sequence[Ends]) -> list[float]:
        return self._problem.estimates.slowdowns(ends)


def foresee(
    problem: Problem, plan: Plan, directory: Directory | None = None, enqueuing: Mapping[str, float] = NO_TIME
) -> Trace:
    """The trace, of kind ``simulation``. ``directory``: where buffers are valid (None: where the problem says; it is
    brought up to date). ``enqueuing``: seconds that the engine takes for a command, by kind of device.

    Raises PolicyError for a plan that divides a launch that cannot be, and, of a problem that spills, RunError for a
    launch that does not fit into a memory.
    """
    if directory is None:
        directory = Directory()
        for key, places in problem.valid.items():
            if places:
                directory.valid[key] = sum(1 << memory for memory in places)
    limits = limited(problem, plan) if problem.spills else None
    lowered = lower(problem, plan, directory, limits)
    estimates = StepEstimates(problem, lowered)
    backend = SimBackend(problem.machine, estimates, report_latency=problem.handover, enqueuing=enqueuing)
    result = execute(problem, plan, backend, directory, name=plan.policy, lowering=lambda *_: lowered, aloud=False)
    trace = result.trace
    ends = [e.end for e in trace.events if isinstance(e, KernelEvent | TransferEvent | HostEvent)]
    return replace(trace, kind="simulation", makespan=max(ends, default=0.0))


def rehearsal(problem: Problem, directory: Directory) -> Callable[[Plan], float]:
    """``Problem.rehearse``, from the directory's present state on: infinite for a plan that the engine refuses."""

    def rehearse(plan: Plan) -> float:
        try:
            return foresee(problem, plan, directory.copy(), ENQUEUING).makespan
        except (PolicyError, RunError):
            return math.inf

    return rehearse
