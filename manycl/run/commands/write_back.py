"""Writing back: which results go to the host's memory as soon as they are made (:mod:`manycl.plan.merging`). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from manycl.graph.graph import BufferKey
from manycl.graph.reduction import Reduction
from manycl.plan.problem import Problem
from manycl.run.lowering.steps import RANGE, Lowered

DISTINCT = Reduction.NONE.words()
"""The method of ranges whose results are not combined."""


class WriteBack:
    """The results that the steps of a plan write back early."""

    def __init__(self, problem: Problem, lowered: Lowered) -> None:
        plan, merging = lowered.plan, problem.merging
        self._lowered, self._every = lowered, merging == "each"
        self._in_turn = frozenset(plan.in_turn if plan is not None else ())
        is_never = merging == "last" or not (self._every or self._in_turn)
        self.is_off = is_never or lowered.room is not None or problem.machine.memories == 1 or not lowered.steps

    def keys(self, nodes: Iterable[int]) -> list[BufferKey]:
        """Return what some steps write that is to be sent: of parts of launches, what no other part writes at the same
        time, needs not be put together, and is not written again."""
        if self.is_off:
            return []
        steps, graph = self._lowered.steps, self._lowered.graph
        tasks, last, together = graph.nodes, graph.last_writers, graph.written_together
        early: list[BufferKey] = []
        mine = self._in_turn
        for node in nodes:
            step = steps[node]
            if step.role == RANGE and step.method == DISTINCT and (self._every or step.node in mine):
                early += [key for key in tasks[node].writes if last[key] == node and key not in together]
        return early
