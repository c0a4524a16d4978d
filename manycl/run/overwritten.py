"""Which launches write all of a buffer, so that its old contents need not be brought to where they run; planners must
know, too."""

from __future__ import annotations

from manycl.analysis import service
from manycl.errors import LaunchError, SourceError
from manycl.graph.graph import BufferArg, Graph, Launch, Piece
from manycl.graph.known import known_launch
from manycl.graph.work_groups import with_work_groups
from manycl.run.steps import Lowered
from manycl.unforeseen import told

WORTH = 1 << 16
"""Bytes; fewer are brought sooner than a launch is analysed, which pays for a graph that runs again and again."""


class Overwritten:
    """Answers whether a node of the lowered graph writes every byte of a buffer, as far as can be proved. ``whole``:
    the graph as it was, with the buffers as they are. ``worth``: of buffers with fewer bytes, the answer is no."""

    def __init__(self, lowered: Lowered, whole: Graph, worth: int = WORTH) -> None:
        self._lowered = lowered
        self._buffers = whole.buffers
        self._worth = worth

    def __call__(self, node: int, key: int) -> bool:
        task, buffer = self._lowered.graph.nodes[node], self._lowered.graph.buffers[key]
        key = buffer.whole if isinstance(buffer, Piece) else key
        if self._lowered.step(node).role or self._buffers[key].nbytes < self._worth:
            return False
        if not isinstance(task, Launch) or task.versions:
            return False
        task = with_work_groups(task)
        if task.local_size is None:
            return False
        keys = {i: a.key for i, a in enumerate(task.args) if isinstance(a, BufferArg)}
        try:
            known = known_launch(task, {k: self._buffers[k].nbytes for k in keys.values()})
            facts = service.launched(task.program, task.kernel.name, known)
        except (LaunchError, SourceError):
            return False
        except Exception as error:
            told(error, f"finding out what {task.name} overwrites")
            return False
        regions = (facts.region(i, "write") for i, k in keys.items() if k == key)
        everything = (0, self._buffers[key].nbytes, 1)
        return any(
            r.exact and r.tight and [(b.offset, b.nbytes, b.rows * b.slices) for b in r.boxes] == [everything]
            for r in regions
        )


def unneeded(graph: Graph) -> frozenset[int]:
    """The buffers whose contents no node of a graph finds: the first that uses them writes every byte."""
    overwritten = Overwritten(Lowered(graph), graph, worth=0)
    used: set[int] = set()
    found: set[int] = set()
    for node, task in enumerate(graph.nodes):
        used.update(task.reads)
        for key in task.writes:
            if key not in used and (key in getattr(task, "overwrites", ()) or overwritten(node, key)):
                found.add(key)
            used.add(key)
    return frozenset(found)
