"""Launches without a source, divided as their declared linear regions say. Of papers' examples and described
applications only the kernels' times are known, and which linear regions of buffers ranges touch
(:class:`manycl.plan.split.Split`). They are simulated like all other launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from manycl.graph.access import Access
from manycl.graph.division import Division, divide
from manycl.graph.graph import BufferKey, Launch
from manycl.graph.reduction import Atomic, Reduction
from manycl.graph.work_groups import with_work_groups
from manycl.group_range import GroupRange
from manycl.plan.problem import Problem
from manycl.plan.split import Split
from manycl.region import NOTHING, Region

if TYPE_CHECKING:
    from manycl.analysis.texts.merge import MergeKernel


def divided(problem: Problem, node: int, launch: Launch, dimension: int, sizes: Mapping[BufferKey, int]) -> Division:
    """Return a node's launch, or a version of it, divided along a dimension."""
    if not launch.program.source and (split := problem.splits.get(node)) is not None:
        return Declared(launch, split, sizes)  # nothing else is known
    return divide(launch, dimension, sizes)


class Declared(Division):
    """A launch divided as its split says. ``sizes``: bytes of its buffers by key."""

    def __init__(self, launch: Launch, split: Split, sizes: Mapping[BufferKey, int]) -> None:
        self.own_groups = True
        self.launch = with_work_groups(launch)
        self.dimension = split.dimension
        self.sizes = sizes
        self.groups = split.groups
        self.operations: dict[BufferKey, Atomic] = {}
        self.promised: frozenset[BufferKey] = frozenset()
        self._split = split

    def expect(self, ranges: Sequence[GroupRange]) -> None:
        """Find out nothing: what ranges do is declared."""

    def access(self, groups: GroupRange) -> dict[BufferKey, Access]:
        launch = self.launch
        found: dict[BufferKey, Access] = {}
        for key in dict.fromkeys((*launch.reads, *launch.writes)):
            part, size = self._split.regions.get(key), self.sizes[key]
            touched = Region.span(*((0, size) if part is None else part.bounds(groups.first, groups.count, size)))
            overwrites = key in launch.overwrites and self._split.merge is Reduction.NONE
            reads = touched if key in launch.reads else NOTHING
            found[key] = Access(reads, touched if key in launch.writes else NOTHING, overwrites)
        return found

    def widened(self, inner: GroupRange, groups: GroupRange) -> dict[BufferKey, Access]:
        return self.access(groups)

    def hull(self, groups: GroupRange) -> Mapping[BufferKey, Access]:
        return self.access(groups)

    def density(self, groups: GroupRange) -> float:
        return 1.0

    @cached_property
    def movable(self) -> frozenset[BufferKey]:
        return frozenset()

    @cached_property
    def merge_kernel(self) -> MergeKernel:
        from manycl.analysis.texts.merge import MergeKernel  # few programs need it

        scatters = self._split.merge is Reduction.SCATTER
        return MergeKernel("", reason="" if scatters else "its results are merged by difference")

    @cached_property
    def merge_written(self) -> frozenset[BufferKey]:
        return frozenset(self.launch.writes)

    @cached_property
    def merge_reads(self) -> frozenset[BufferKey]:
        return frozenset()
