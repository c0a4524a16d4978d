"""A graph that runs again and again: planned a few times, then played; or planned anew whenever its policy has
learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from manycl.graph.graph import Graph
from manycl.plan.plan import Plan
from manycl.plan.policy import LearningPolicy, Policy
from manycl.run.backends.tape import Tape
from manycl.run.engine import Result
from manycl.run.learners import Learners, told
from manycl.run.recording import Recording
from manycl.run.session import Session

PLANNED_RUNS = 4
"""Every run's planning knows better how long kernels and transfers take; of so many plans, the one that ran fastest is
kept."""
POSTPONED_RUNS = 32
"""Unless the policy says that it will know more soon: then it is asked again, at most so often."""
RECORDINGS = 4
"""Of a plan: from where buffers were at the start of each."""


class PreparedGraph:
    """``plan`` is what is kept after ``PLANNED_RUNS`` runs (a plan that was given, at once); a dynamic policy is not
    asked again either. A policy that learns (``adaptive``) is told what every run took, and asked again when it would
    plan otherwise.

    Where the kept plan needs nothing but launches (all data are where they are used), its enqueue calls are recorded
    and from then on only played; else what it did is, and is done again without deciding anything.
    """

    def __init__(
        self,
        session: Session,
        graph: Graph,
        policy: str | Policy | Plan | None = None,
        *,
        queues: Mapping[str, int] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.session = session
        self.graph = graph
        self.plan: Plan | None = policy if isinstance(policy, Plan) else None
        policy = Learners().find(policy, options)
        self._learner = policy if isinstance(policy, LearningPolicy) else None
        self._run: Callable[[Any], Result] = lambda chosen: session.run(
            graph,
            chosen if chosen is not None else policy,
            queues=queues,
            options=options,
            repeated=len(self._tried) + 1,
            record=isinstance(chosen, Plan),
        )
        self._runs = 0
        self._tried: list[tuple[float, Plan | None]] = []
        self._tape: Tape | None = None
        self._recordings: list[Recording] = []

    def run(self) -> Result:
        """Run on the buffers' present contents; raises what a run raises."""
        if self._learner is not None:
            return self._learning(self._learner)
        if self.plan is not None:
            return self._again() or self._kept()
        result = self._run(None)
        self._runs += 1
        postponed = result.plan is not None and result.plan.details.get("postponed") and self._runs < POSTPONED_RUNS
        if not postponed:
            self._tried.append((result.seconds, result.plan))
        if len(self._tried) >= PLANNED_RUNS:
            self.plan = min(self._tried, key=lambda tried: tried[0])[1]
            if self.plan is result.plan:
                self._tape = self.session.tape(result)
        return result

    def _learning(self, policy: LearningPolicy) -> Result:
        if not policy.settled(self.graph):
            self.plan = self._tape = None
            self._recordings.clear()
        result = self._again()
        if result is None and self.plan is not None:  # where this plan needs its data they are now
            result = self._kept()
        elif result is None:
            result = self._run(None)
            self.plan = result.plan
        return told(policy, result)

    def _again(self) -> Result | None:
        """What is known of runs of this plan, done again, if one began as this one does."""
        result = self.session.play(self._tape) if self._tape is not None else None
        for recording in self._recordings if result is None else ():
            result = self.session.again(recording)
            if result is not None:
                break
        return result

    def _kept(self) -> Result:
        """A run of the plan that is kept."""
        result = self._run(self.plan)
        self._tape = self.session.tape(result)
        if self._tape is None and result.recording is not None:
            self._recordings = [result.recording, *self._recordings[: RECORDINGS - 1]]
        return result
