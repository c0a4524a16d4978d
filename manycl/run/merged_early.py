"""What parts of divided launches write that goes to the host's memory as soon as they have ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from manycl.graph.graph import BufferKey
from manycl.graph.reduction import Reduction
from manycl.plan.problem import Problem
from manycl.run.steps import RANGE, Lowered


class MergedEarly:
    """Of the steps of a problem's plan (:mod:`manycl.plan.merging`)."""

    def __init__(self, problem: Problem, lowered: Lowered) -> None:
        self._lowered, self._merging, plan = lowered, problem.merging, lowered.plan
        self._in_turn = frozenset(plan.in_turn if plan is not None else ())
        self._is_off = problem.merging == "last" or lowered.room is not None or problem.machine.memories == 1

    def keys(self, step: int) -> Sequence[BufferKey]:
        """What a step writes that is to be sent: of a part of a launch, what no other part writes at the same time,
        needs not be put together, and is not written again."""
        if self._is_off:
            return ()
        of, graph = self._lowered.step(step), self._lowered.graph
        if of.role != RANGE or of.method != Reduction.NONE.words():
            return ()
        if self._merging == "automatic" and of.node not in self._in_turn:
            return ()
        last, together = self._last_writers, graph.written_together
        return [key for key in graph.nodes[step].writes if last[key] == step and key not in together]

    @cached_property
    def _last_writers(self) -> Mapping[BufferKey, int]:
        """The last step that writes a buffer."""
        return {key: step for step, task in enumerate(self._lowered.graph.nodes) for key in task.writes}
