"""Ranges of work-groups."""

from __future__ import annotations

from typing import NamedTuple

GROUP = 256
"""Work-items in a work-group of manycl's own kernels; a smaller power of two where a row of an array is shorter."""


class GroupRange(NamedTuple):
    """The work-groups from number ``first`` to ``first + count - 1`` along a dimension of an NDRange, and all of them
    along the others."""

    dimension: int
    first: int
    count: int  # type: ignore[assignment]  # a tuple's method of this name is not needed

    @property
    def end(self) -> int:
        """One past the last."""
        return self.first + self.count

    def __str__(self) -> str:
        return f"[{self.first}:{self.end}]"


class RangeParts(NamedTuple):
    """The parts of a launch along a dimension: at how many of its work-items each of them ends."""

    dimension: int
    ends: tuple[int, ...]
