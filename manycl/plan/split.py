"""Splits: how a launch may be divided into ranges of work-groups along one dimension, and the bytes of each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from manycl.errors import PolicyError
from manycl.graph.graph import BufferKey, Graph
from manycl.graph.reduction import Reduction
from manycl.plan.plan import WHOLE, Assignment

_MERGES = tuple(Reduction)
_WHOLE: Mapping[BufferKey, LinearRegion] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LinearRegion:
    """The bytes of a buffer that a range of groups touches: groups f … f + n - 1 touch the bytes from ``offset + stride
    f`` to ``offset + stride (f + n - 1) + width``, cut at the buffer's ends. ``width - stride`` bytes are shared by
    neighbours (the halo of a stencil); ``width`` 0 stands for ``stride``: none. ``stride`` 0: all groups touch the same
    bytes. ``anywhere``: they touch as many bytes, which may lie elsewhere."""

    stride: int
    width: int = 0
    offset: int = 0
    anywhere: bool = field(default=False, compare=False)

    def bounds(self, first: int, count: int, nbytes: int) -> tuple[int, int]:
        """Return the first byte, and one past the last; at least one byte, of a buffer of ``nbytes``."""
        low = min(self.begin(first), nbytes - 1)
        return low, max(low + 1, min(self.end(first + count), nbytes))

    def begin(self, first: int) -> int:
        """Return the first byte that groups from ``first`` on touch."""
        return max(self.offset + self.stride * first, 0)

    def end(self, count: int) -> int:
        """Return one past the last byte that the first ``count`` groups touch."""
        return self.offset + self.stride * (count - 1) + (self.width or self.stride)

    def until(self, limit: float, groups: int) -> int:
        """Return how many of the first groups touch nothing behind a byte."""
        if limit == inf:
            return groups
        if not self.stride:
            return groups if self.end(1) <= limit else 0
        return min(max((int(limit) - self.end(0)) // self.stride, 0), groups)


class Along(NamedTuple):
    """The counted operations of a launch in equal parts of its work-groups. ``exact``: they are certain; ``loops``:
    those of all loops are certain, and only branches are assumed."""

    work: tuple[float, ...]
    exact: bool
    loops: bool


class AnalysedSplits(Mapping[int, "Split"]):
    """The splits of a graph's nodes, with what an analysis knows of ranges."""

    @abstractmethod
    def work(self, node: int, parts: int) -> Along | None:
        """Return the counted work in equal parts of the groups of a node that may be split; None: not counted."""

    def for_graph(self, graph: Graph, seconds: Callable[[int], float]) -> Mapping[int, Split]:
        """Return the splits of another graph, whose nodes take so many ``seconds``; by default none."""
        return {}

    def is_known(self, node: int) -> bool:
        """Return whether the split of a node is known without further analysis."""
        return True

    def following(self, node: int) -> float:
        """Return the predicted seconds of analysing how a node may be split, beyond those of any node."""
        return 0.0

    @abstractmethod
    def touched(self, node: int, key: BufferKey, first: int, count: int) -> float:
        """Return the part of a buffer that some groups of a node that may be split read, wherever it lies."""


@dataclass(frozen=True, slots=True)
class Split:
    """A split: a launch of ``groups`` work-groups along ``dimension`` may be divided there. ``regions[key]`` says
    what a range touches of a buffer; every range touches all of the other buffers. ``merge``: how partial results of
    several memories become one. Where it is not NONE, they move to one device, which takes ``merge_seconds[device]``
    for each other memory (empty: estimated from bytes and bandwidth); all that the launch writes is in its memory alone
    then."""

    dimension: int
    groups: int
    regions: Mapping[BufferKey, LinearRegion] = field(default_factory=lambda: _WHOLE)
    merge: Reduction = Reduction.NONE
    merge_seconds: tuple[float, ...] = ()

    def check(self, reads: tuple[BufferKey, ...], writes: tuple[BufferKey, ...]) -> None:
        """Raise PolicyError where ranges of a launch with these directions would not give the launch's result."""
        if self.groups < 1 or self.dimension not in (0, 1, 2) or self.merge not in _MERGES:
            raise PolicyError(f"no launch can be split like this: {self}")
        for key in writes:
            part = self.regions.get(key)
            if self.merge is Reduction.NONE and (part is None or part.width not in (0, part.stride)):
                raise PolicyError(f"ranges that all write buffer {key} need to be merged: {self}")
            if self.merge is not Reduction.NONE and part is not None:
                # parts of a merged buffer would be transferred and changed in one memory, whole in another
                raise PolicyError(f"buffer {key} is merged: it has no linear region: {self}")
            if self.merge is Reduction.SCATTER and key in reads:
                raise PolicyError(f"buffer {key} is read by the launch: it is merged by difference: {self}")


def as_ranges(
    assignments: Iterable[Assignment], splits: Mapping[int, Split], nodes: Container[int]
) -> tuple[Assignment, ...]:
    """Return assignments in which those of some nodes as wholes are ranges of all their work-groups."""
    return tuple(
        a._replace(dimension=splits[a.node].dimension, first=0, groups=splits[a.node].groups)
        if a.node in nodes and a.dimension is WHOLE
        else a
        for a in assignments
    )
