"""How a launch may be split: into ranges of work-groups along one dimension, and which bytes each range touches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from manycl.errors import PolicyError
from manycl.graph.graph import BufferKey
from manycl.graph.reduction import Reduction

_WHOLE: Mapping[BufferKey, Slice] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Slice:
    """The part of a buffer that a range of groups touches: groups f … f + n - 1 touch the bytes from
    ``offset + stride f`` to ``offset + stride (f + n - 1) + width``, cut at the buffer's ends.

    ``width`` over ``stride`` is what neighbours share (the halo of a stencil); 0 stands for ``stride``: nothing.
    ``stride`` 0: all groups touch the same.
    """

    stride: int
    width: int = 0
    offset: int = 0

    def bounds(self, first: int, count: int, nbytes: int) -> tuple[int, int]:
        """First byte, and one past the last; at least one byte, of a buffer of ``nbytes``."""
        low = min(self.begin(first), nbytes - 1)
        return low, max(low + 1, min(self.end(first + count), nbytes))

    def begin(self, first: int) -> int:
        """The first byte that groups from ``first`` on touch."""
        return max(self.offset + self.stride * first, 0)

    def end(self, count: int) -> int:
        """One past the last byte that the first groups touch."""
        return self.offset + self.stride * (count - 1) + (self.width or self.stride)

    def until(self, limit: float, groups: int) -> int:
        """How many of the first groups touch nothing behind a byte."""
        if limit == inf:
            return groups
        if not self.stride:
            return groups if self.end(1) <= limit else 0
        return min(max((int(limit) - self.end(0)) // self.stride, 0), groups)


class Along(NamedTuple):
    """The counted operations of a launch in equal parts of its work-groups. ``exact``: counted for certain; ``loops``:
    those of all loops are, and only branches are assumed."""

    work: tuple[float, ...]
    exact: bool
    loops: bool


class AnalysedSplits(Mapping[int, "Split"]):
    """How the nodes of a graph may be split, from somebody who also knows what ranges of them do."""

    @abstractmethod
    def work(self, node: int, parts: int) -> Along | None:
        """The counted work in equal parts of the groups of a node that may be split; None where nothing is counted."""

    def is_known(self, node: int) -> bool:
        """Whether nothing need be found out to tell how a node may be split."""
        return True

    def following(self, node: int) -> float:
        """Seconds that finding out how a node may be split is foreseen to take beside what it takes of any."""
        return 0.0

    @abstractmethod
    def touched(self, node: int, key: BufferKey, first: int, count: int) -> float:
        """Which part of a buffer some groups of a node that may be split read, wherever it lies."""


@dataclass(frozen=True, slots=True)
class Split:
    """A launch of ``groups`` work-groups along ``dimension`` may be split there.

    ``slices[key]`` says which part of a buffer a range touches; every range touches all of the other buffers.
    ``merge``: how partial results of several memories become one. Where it is not NONE, they move to one device, which
    takes ``merge_seconds[device]`` for each other memory (empty: estimated from bytes and bandwidth); whatever the
    launch writes is in its memory alone then.
    """

    dimension: int
    groups: int
    slices: Mapping[BufferKey, Slice] = field(default_factory=lambda: _WHOLE)
    merge: Reduction = Reduction.NONE
    merge_seconds: tuple[float, ...] = ()

    def check(self, reads: tuple[BufferKey, ...], writes: tuple[BufferKey, ...]) -> None:
        """Raise PolicyError where ranges of a launch with these directions would not give the launch's result."""
        if self.groups < 1 or self.dimension not in (0, 1, 2) or self.merge not in tuple(Reduction):
            raise PolicyError(f"no launch can be split like this: {self}")
        for key in writes:
            part = self.slices.get(key)
            if self.merge is Reduction.NONE and (part is None or part.width not in (0, part.stride)):
                raise PolicyError(f"ranges that all write buffer {key} need to be merged: {self}")
            if self.merge is not Reduction.NONE and part is not None:
                # parts of a merged buffer would be brought, changed and sent in one memory, whole in another
                raise PolicyError(f"buffer {key} is merged: it cannot be sliced: {self}")
            if self.merge is Reduction.SCATTER and key in reads:
                raise PolicyError(f"buffer {key} is read by the launch: it is merged by difference: {self}")
