"""How the launches of a graph may be split, derived from what the analysis knows of them.

The slices are for predictions: intervals of bytes that move evenly with the groups, as far as a launch's regions are
such. What a run really moves follows the regions themselves (``run/lower.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from manycl.analysis import service
from manycl.errors import LaunchError, SourceError
from manycl.graph.graph import BufferArg, Graph, Launch
from manycl.graph.known import known_launch
from manycl.graph.work_groups import why_none, with_work_groups
from manycl.kept import Kept
from manycl.plan.split import Along, Slice, Split
from manycl.region import union
from manycl.unforeseen import told

if TYPE_CHECKING:  # they import islpy
    from manycl.analysis.launched import LaunchFacts
    from manycl.analysis.regions import Footprint

_NEARLY_ALL = 0.9  # of a buffer that one group touches: no slice is worth the name
ONE_WORK_GROUP = "it has one work-group"
_WEIGHTS = {"special": 8.0}  # what an operation of a kind costs beside an addition

_known: Kept[object, Split | str] = Kept(4096)  # launches


class Splits(Mapping[int, Split]):
    """How the nodes of a graph may be split, each found out when it is first asked for (``Problem.splits``).

    Launches with several versions of their kernel are not split: these have work-groups of their own. ``why(node)``
    tells why a node is not.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._found: dict[int, Split | str] = {}

    def _look(self, node: int) -> Split | str:
        found = self._found.get(node)
        if found is None:
            task = self._graph.nodes[node]
            if isinstance(task, Launch):
                keys = {a.key for a in task.args if isinstance(a, BufferArg)}
                found = split_of(task, {k: self._graph.buffers[k].nbytes for k in keys})
            else:
                found = "it is a host function"
            self._found[node] = found
        return found

    def why(self, node: int) -> str:
        """Why the node cannot be split; empty if it can."""
        found = self._look(node)
        return found if isinstance(found, str) else ""

    def undivided(self) -> list[dict[str, str | int]]:
        """Which kernels cannot be divided, of those that somebody asked about, and why: ``kernel``, ``path`` and
        ``line`` of its definition, ``reason``, and how many ``launches``. One work-group is no reason."""
        found: dict[tuple[str, str, int, str], int] = {}
        for node, reason in self._found.items():
            task = self._graph.nodes[node]
            if isinstance(reason, str) and isinstance(task, Launch) and reason != ONE_WORK_GROUP:
                key = task.kernel.name, task.program.path, task.kernel.line, reason
                found[key] = found.get(key, 0) + 1
        names = ("kernel", "path", "line", "reason")
        return [{**dict(zip(names, key, strict=True)), "launches": launches} for key, launches in found.items()]

    def work(self, node: int, parts: int) -> Along | None:
        """The counted work in equal parts of the groups of a node that may be split; None where nothing is counted."""
        task, split = self._graph.nodes[node], self[node]
        assert isinstance(task, Launch)
        keys = {a.key for a in task.args if isinstance(a, BufferArg)}
        return work_along(task, {k: self._graph.buffers[k].nbytes for k in keys}, split, parts)

    def touched(self, node: int, key: int, first: int, count: int) -> float:
        """Which part of a buffer some groups of a node that may be split read, wherever it lies."""
        task, split, size = self._graph.nodes[node], self[node], self._graph.buffers[key].nbytes
        assert isinstance(task, Launch)
        launch = with_work_groups(task)
        sizes = {a.key: self._graph.buffers[a.key].nbytes for a in launch.args if isinstance(a, BufferArg)}
        try:
            facts = service.launched(launch.program, launch.kernel.name, known_launch(launch, sizes))
            found = _Along(launch, facts, sizes, split.dimension).regions(key, ("read",), first, count)
        except (LaunchError, SourceError):
            return 1.0
        except Exception as error:
            told(error, f"finding out what ranges of {task.name} read")
            return 1.0
        return min(sum(region.nbytes for region in found) / size, 1.0)

    def __getitem__(self, node: int) -> Split:
        found = self._look(node) if 0 <= node < len(self._graph) else ""
        if isinstance(found, str):
            raise KeyError(node)
        return found

    def __iter__(self) -> Iterator[int]:
        return (n for n in range(len(self._graph)) if isinstance(self._look(n), Split))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def split_of(launch: Launch, sizes: Mapping[int, int]) -> Split | str:
    """How a launch may be split best, or why it cannot. ``sizes``: bytes of its buffers by key."""
    if launch.versions:
        return "it has several versions"
    launch = with_work_groups(launch)
    if launch.local_size is None:
        return why_none(launch)
    try:
        known = known_launch(launch, sizes)
        shared = tuple(a.key if isinstance(a, BufferArg) else -1 for a in launch.args)
        key = launch.program.tree, launch.kernel.name, known.key, shared
        found = _known.get(key)
        if found is None:
            facts = service.launched(launch.program, launch.kernel.name, known)
            before = facts.unanswered
            found = _best(launch, facts, sizes)
            if facts.unanswered == before:  # else there may be a better answer the next time
                found = _known.keep(key, found)
        return found
    except (LaunchError, SourceError) as error:
        return error.message
    except Exception as error:
        return told(error, f"finding out how {launch.name} may be split")


def work_along(launch: Launch, sizes: Mapping[int, int], split: Split, parts: int) -> Along | None:
    """The counted operations in ``parts`` equal parts of a launch's work-groups, a group on average. ``sizes``: bytes
    of its buffers by key."""
    launch = with_work_groups(launch)
    try:
        facts = service.launched(launch.program, launch.kernel.name, known_launch(launch, sizes))
        ends = [split.groups * i // parts for i in range(parts + 1)]
        found = [facts.work(split.dimension, a, b - a) for a, b in pairwise(ends)]
    except (LaunchError, SourceError):
        return None
    except Exception as error:
        told(error, f"counting ranges of {launch.name}")
        return None
    # by group, since parts have not all the same number of groups
    work = [
        sum(n * _WEIGHTS.get(kind, 1.0) for kind, n in w.operations.items()) / (b - a)
        for w, (a, b) in zip(found, pairwise(ends), strict=True)
    ]
    if not any(work):
        return None
    return Along(tuple(work), all(w.exact for w in found), not any("loop" in w.reason for w in found))


def _best(launch: Launch, facts: LaunchFacts, sizes: Mapping[int, int]) -> Split | str:
    """Of the dimensions that may be split: one along which nothing has to be merged, and bytes lie side by side; of
    several such, the last, along which neighbouring groups are furthest apart."""
    reason = ONE_WORK_GROUP
    found: list[tuple[int, Split]] = []
    for dimension in reversed(range(len(launch.global_size))):
        if facts.launch.groups(dimension) < 2:
            continue
        verdict = facts.split(dimension)
        if not verdict.mergeable:
            reason = verdict.reasons[0]
            continue
        rank, split = _Along(launch, facts, sizes, dimension).split()
        found.append((rank, split))
        if rank == 0:
            break
    if not found:
        return reason
    sub = service.sub_kernel(launch.program, launch.kernel.name)
    return sub.reason or min(found, key=lambda f: f[0])[1]


class _Along:
    """A launch that is split along a dimension."""

    def __init__(self, launch: Launch, facts: LaunchFacts, sizes: Mapping[int, int], dimension: int) -> None:
        self.launch = launch
        self.facts = facts
        self.sizes = sizes
        self.dimension = dimension
        self.groups = facts.launch.groups(dimension)
        self.arguments: dict[int, list[int]] = {}
        for index, argument in enumerate(launch.args):
            if isinstance(argument, BufferArg):
                self.arguments.setdefault(argument.key, []).append(index)

    def split(self) -> tuple[int, Split]:
        """The split, and how good it is: 0 the best."""
        reads = [k for k in self.launch.reads if k not in self.launch.writes]
        slices = {k: part for k in reads if (part := self.slice(k, ("read",))) is not None}
        if self.facts.split(self.dimension).merges:
            return 3, Split(self.dimension, self.groups, slices, "difference")
        rank = 0
        written: dict[int, Slice] = {}
        for key in self.launch.writes:
            part = self.slice(key, ("read", "write"))
            if part is not None and part.width <= part.stride:
                written[key] = Slice(part.stride, 0, part.offset)
            elif self.apart(key):
                rank = 1  # rectangles: as many bytes, wherever they lie
                written[key] = Slice(-(-self.sizes[key] // self.groups))
            else:
                kernel = not any(k in self.launch.reads for k in self.launch.writes) and self.has_merge_kernel()
                merge = "kernel" if kernel else "difference"
                return 2 if kernel else 3, Split(self.dimension, self.groups, slices, merge)
        return rank, Split(self.dimension, self.groups, {**slices, **written})

    def has_merge_kernel(self) -> bool:
        return not service.merge_kernel(self.launch.program, self.launch.kernel.name).reason

    def regions(self, key: int, kinds: Sequence[str], first: int, count: int) -> list[Footprint]:
        return [self.facts.region(i, kind, self.dimension, first, count) for i in self.arguments[key] for kind in kinds]

    def slice(self, key: int, kinds: Sequence[str]) -> Slice | None:
        """The interval that moves with the groups and holds what these touch; None where there is none."""
        middle = self.groups // 2
        sample = sorted({f for f in (0, 1, 2, middle - 1, middle, self.groups - 2, self.groups - 1) if f >= 0})
        ends: dict[int, tuple[int, int]] = {}
        for f in sample:
            if f < self.groups:
                boxes = [b for r in self.regions(key, kinds, f, 1) for b in r.boxes if b.width]
                if boxes:
                    ends[f] = min(b.offset for b in boxes), max(b.end for b in boxes)
        if middle - 1 not in ends or middle not in ends:
            return None
        stride = ends[middle][0] - ends[middle - 1][0]
        if stride <= 0:
            return None
        offset = min(low - stride * f for f, (low, _) in ends.items())
        width = max(high - stride * f for f, (_, high) in ends.items()) - offset
        return Slice(stride, width, offset) if width < _NEARLY_ALL * self.sizes[key] or width <= stride else None

    def apart(self, key: int) -> bool:
        """Whether the two halves of the groups write other bytes."""
        half = self.groups // 2
        mine, theirs = (
            union(found.around()[0] for found in self.regions(key, ("write",), first, count))
            for first, count in ((0, half), (half, self.groups - half))
        )
        return not mine.meets(theirs)
