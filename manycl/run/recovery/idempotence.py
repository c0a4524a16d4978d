"""Idempotence: which interrupted steps of a run may run again on what they have left."""

from __future__ import annotations

from collections.abc import Mapping

from manycl.analysis import service
from manycl.errors import LaunchError, ManyclError, SourceError
from manycl.graph.graph import BufferKey, CopyTask, FillTask, HostTask, Launch, Node
from manycl.graph.known import known_launch
from manycl.plan.problem import Problem
from manycl.run.lowering.steps import COMBINE, Lowered
from manycl.utilities.unforeseen import told


def is_repeatable(task: Node, sizes: Mapping[BufferKey, int]) -> bool:
    """Return whether an interrupted node may run again on what it has left (Device-Hopping, Section 2.2: idempotence).
    This holds for a node that runs as a whole, and so for ranges of it; False where it is unknown. ``sizes``: bytes of
    buffers."""
    if isinstance(task, FillTask):
        return True
    if isinstance(task, CopyTask):
        return task.args[0].key != task.args[1].key
    if isinstance(task, HostTask) or not isinstance(task, Launch) or task.versions or not task.program.source:
        return False
    try:
        of = task.program, task.kernel.name
        return service.launched(*of, service.accessing(*of, known_launch(task, sizes))).repeat.idempotent
    except (LaunchError, SourceError):
        return False


class Repeatable:
    """A function that returns whether a step of a problem's plan is repeatable; called only when a device is lost."""

    def __init__(self, problem: Problem, lowered: Lowered) -> None:
        self._problem, self._lowered = problem, lowered
        self._found: dict[int, bool] = {}  # by node of the problem's graph
        self._sizes = {key: b.nbytes for key, b in problem.graph.buffers.items()}

    def __call__(self, step: int) -> bool:
        of, task = self._lowered.step(step), self._lowered.graph.nodes[step]
        if of.role == COMBINE:
            return False
        if isinstance(task, (CopyTask, FillTask)):
            return is_repeatable(task, {})
        if of.node not in self._found:
            self._found[of.node] = self._look(of.node)
        return self._found[of.node]

    def _look(self, node: int) -> bool:
        try:
            return is_repeatable(self._problem.graph.nodes[node], self._sizes)
        except ManyclError:
            return False
        except Exception as error:
            told(error, "finding out whether a kernel may run again")
            return False
