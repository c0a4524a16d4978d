"""Whether a node that was interrupted may run again on what it has left (Device-Hopping, Section 2.2: idempotence)."""

from __future__ import annotations

from collections.abc import Mapping

from manycl.analysis import service
from manycl.errors import LaunchError, SourceError
from manycl.graph.graph import BufferKey, CopyTask, FillTask, HostTask, Launch, Node
from manycl.graph.known import known_launch


def is_repeatable(task: Node, sizes: Mapping[BufferKey, int]) -> bool:
    """Of a node that runs as a whole, and so of ranges of it; False where nobody knows. ``sizes``: bytes of buffers."""
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
