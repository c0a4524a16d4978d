"""A graph that runs again and again: planned twice, then played."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from manycl.graph.graph import Graph
from manycl.plan.plan import Plan
from manycl.plan.policy import Policy
from manycl.run.backends.tape import Tape
from manycl.run.engine import Result
from manycl.run.session import Session

PLANNED_RUNS = 2
"""The second run's planning knows how long the kernels take; its plan is kept."""


class PreparedGraph:
    """``plan`` is what is kept after ``PLANNED_RUNS`` runs; a dynamic policy is not asked again either.

    Where the kept plan needs nothing but launches (all data are where they are used), its enqueue calls are recorded
    and from then on only played.
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
        self.plan: Plan | None = None
        self._run: Callable[[Any], Result] = lambda chosen: session.run(
            graph, chosen if chosen is not None else policy, queues=queues, options=options
        )
        self._runs = 0
        self._tape: Tape | None = None

    def run(self) -> Result:
        """Run on the buffers' present contents; raises what a run raises."""
        if self._tape is not None:
            result = self.session.play(self._tape)
            if result is not None:
                return result
        result = self._run(self.plan)
        self._runs += 1
        if self._runs >= PLANNED_RUNS:
            self.plan = result.plan
            self._tape = self.session.tape(result)
        return result
