"""Idempotence: which interrupted steps of a run may run again on what they have left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from manycl.analysis import service
from manycl.errors import LaunchError, ManyclError, SourceError
from manycl.graph.graph import BufferKey, CopyTask, FillTask, HostTask, Launch, Node
from manycl.graph.known import known_launch
from manycl.graph.work_groups import with_work_groups
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
        return service.launched(
            *of, service.accessing(*of, known_launch(with_work_groups(task), sizes))[0]
        ).repeat.idempotent
    except (LaunchError, SourceError):
        return False


def repeatable(problem: Problem, lowered: Lowered) -> Callable[[int], bool]:
    """Return a function that returns whether a step of a problem's plan is repeatable; called when one is lost."""
    sizes = {key: b.nbytes for key, b in problem.graph.buffers.items()}

    @cache
    def is_node_repeatable(node: int) -> bool:
        try:
            return is_repeatable(problem.graph.nodes[node], sizes)
        except ManyclError:
            return False
        except Exception as error:
            told(error, "finding out whether a kernel may run again")
            return False

    def is_step_repeatable(step: int) -> bool:
        of, task = lowered.step(step), lowered.graph.nodes[step]
        if isinstance(task, (CopyTask, FillTask)) and of.role != COMBINE:
            return is_repeatable(task, {})
        return of.role != COMBINE and is_node_repeatable(of.node)

    return is_step_repeatable
