"""A graph that runs again and again on the simulated machine, while a policy learns from what it took."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from manycl.machine import DeviceIndex
from manycl.plan.plan import Plan
from manycl.plan.policy import StaticPolicy, learns
from manycl.plan.problem import Problem
from manycl.run.graph_cache.stalls import waiting
from manycl.run.lowering.steps import RANGE, Lowered, Step, valid_intervals
from manycl.run.simulation.foresee import StepEstimates, directory_of, foresee
from manycl.trace import KernelEvent, Trace

Truth = Callable[[int, int, DeviceIndex, int, int], float]
"""``truth(repetition, node, device, first, count)``: seconds that a range really takes, in work-groups."""


@dataclass(frozen=True)
class Repetition:
    """One of the repetitions: its problem (what is where when it begins), plan and trace."""

    problem: Problem
    plan: Plan
    trace: Trace


class _Real(StepEstimates):
    """What steps really take in a repetition."""

    def __init__(self, problem: Problem, lowered: Lowered, truth: Truth, turn: int) -> None:
        super().__init__(problem, lowered)
        self._splits = problem.splits
        self._truth, self._turn = truth, turn

    def launch(self, token: int, device: DeviceIndex) -> float:
        step = self._lowered.step(token)
        if step.role:
            return super().launch(token, device)
        split = self._splits.get(step.node)
        return self._truth(self._turn, step.node, device, 0, 1 if split is None else split.groups)

    def range(self, step: Step, device: DeviceIndex) -> float:
        return self._truth(self._turn, step.node, device, step.first, step.groups)


def repetitions(problem: Problem, policy: StaticPolicy, truth: Truth) -> Iterator[Repetition]:
    """Plan with what is known, run with what is true, and let the policy see what it took: without end. Data stay where
    a repetition leaves them."""
    directory = directory_of(problem)
    for turn in count():
        plan = policy.plan(problem)
        trace = foresee(problem, plan, directory, estimates=partial(_Real, truth=truth, turn=turn))
        yield Repetition(problem, plan, trace)
        if learns(policy):
            devices = {name: i for i, name in enumerate(trace.devices)}
            events = (e for e in trace.events if isinstance(e, KernelEvent) and e.role in ("", RANGE))
            taken = [(e.node, devices[e.device], e.end - e.start) for e in events]
            policy.observe(problem.graph, taken, waiting(trace, problem.machine))
        valid = {key: directory.memories(key) for key in problem.graph.buffers}
        problem = replace(problem, valid=valid, valid_intervals=valid_intervals(directory, problem.graph))
