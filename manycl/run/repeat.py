"""A graph that runs again and again on the simulated machine, while a policy learns from what it took."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from manycl.model.estimates import Estimates, Wrapped
from manycl.plan.contents import Contents
from manycl.plan.plan import WHOLE, Plan
from manycl.plan.policy import StaticPolicy, learns
from manycl.plan.problem import Problem
from manycl.run.disturbance import UNDISTURBED, Disturbance
from manycl.run.replay import replay
from manycl.run.waiting import waiting
from manycl.trace import KernelEvent, Trace

Truth = Callable[[int, int, int, int, int], float]
"""``truth(repetition, node, device, first, count)``: seconds that a range really takes, in work-groups."""


@dataclass(frozen=True)
class Repetition:
    """One of the repetitions: its problem (what is where when it begins), plan and trace."""

    problem: Problem
    plan: Plan
    trace: Trace


class _Real(Wrapped):
    """Estimates that say what a plan's ranges really take: every device has one range of a node at most."""

    def __init__(self, known: Estimates, plan: Plan, problem: Problem, truth: Truth, turn: int) -> None:
        super().__init__(known)
        self._first = {(a.node, a.device): a.first for a in plan.assignments if a.dimension != WHOLE}
        self._problem, self._truth, self._turn = problem, truth, turn

    def launch(self, node: int, device: int) -> float:
        return self._truth(self._turn, node, device, 0, self._all(node))

    def groups(self, node: int, device: int, count: int, of: int) -> float:
        first = self._first.get((node, device), 0)
        return self._truth(self._turn, node, device, first, count or of)

    def _all(self, node: int) -> int:
        split = self._problem.splits.get(node)
        return 1 if split is None else split.groups


def repetitions(
    problem: Problem, policy: StaticPolicy, truth: Truth, *, disturbance: Disturbance = UNDISTURBED
) -> Iterator[Repetition]:
    """Plan with what is known, replay with what is true, and let the policy see what it took: without end.

    Data stay where a repetition leaves them. The noise of a disturbance is another in every repetition.
    """
    turn = 0
    while True:
        plan = policy.plan(problem)
        real = replace(problem, estimates=_Real(problem.estimates, plan, problem, truth, turn))
        with_noise = replace(disturbance, seed=disturbance.seed * 7919 + turn)
        trace = replay(real, plan, disturbance=with_noise)
        yield Repetition(problem, plan, trace)
        if learns(policy):
            devices = {name: i for i, name in enumerate(trace.devices)}
            events = (e for e in trace.events if isinstance(e, KernelEvent))
            taken = [(e.node, devices[e.device], e.end - e.start) for e in events]
            policy.observe(problem.graph, taken, waiting(trace, problem.machine))
        left = Contents(plan, problem).left()
        problem = replace(
            problem,
            valid={k: frozenset.intersection(*(p.memories for p in of)) or of[0].memories for k, of in left.items()},
            parts={key: parts for key, parts in left.items() if len(parts) > 1},
        )
        turn += 1
