"""A launch as far as the analysis asks, without what the analysis does with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from manycl.analysis.symbolic.expr import Expr, var
from manycl.group_range import GroupRange

LARGEST = (1 << 31) - 1  # work-items per dimension that the symbolic form assumes at most


def parameter(index: int) -> str:
    """Return the name of the variable that stands for a scalar argument; no variable of a kernel is named so."""
    return f"[{index}]"


@dataclass(frozen=True)
class KnownLaunch:
    """A launch as far as the analysis asks: sizes in work-items (outermost dimension last), the bytes of scalar
    arguments by index, the bytes of memory behind each buffer argument, and which arguments share memory: all of it
    (``same``), or, views of one buffer, a part (``overlapping``).

    What the user promises: ``values``, bounds (low, below) that the elements of an index array keep; ``within``, by
    argument and kind (``read``, ``write``), the elements [low, below) that one work-item touches, in terms of the
    launch's own variables (``grp0``, ``lid0``, …); ``distinct``, arguments whose elements all differ;
    ``apart``, arguments on whose elements work-groups do not meet.
    """

    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    offset: tuple[int, ...] = ()
    scalars: Mapping[int, bytes] = field(default_factory=dict)
    sizes: Mapping[int, int] = field(default_factory=dict)
    same: Mapping[int, int] = field(default_factory=dict)  # argument -> earlier one with the same buffer
    values: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    within: Mapping[tuple[int, str], tuple[Expr, Expr]] = field(default_factory=dict)
    distinct: frozenset[int] = frozenset()
    apart: frozenset[int] = frozenset()
    overlapping: frozenset[int] = frozenset()  # arguments whose memory has bytes of another one's, and others
    parameters: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """The least and the greatest value of scalar arguments that may have any between: then it is many launches, one for
    each (:mod:`manycl.analysis.parametric`)."""

    @cached_property
    def key(self) -> tuple[object, ...]:
        """Launches with the same key are the same to the analysis."""
        parts = (self.scalars, self.sizes, self.same, self.values, self.parameters)
        known = tuple(tuple(sorted(part.items())) for part in parts)
        within = tuple((key, self.within[key]) for key in sorted(self.within))
        promised = within, self.distinct, self.apart
        return (self.global_size, self.local_size, self.offset, *known, *promised, self.overlapping)

    def groups(self, dimension: int) -> int:
        if dimension >= len(self.global_size):
            return 1
        return -(-self.global_size[dimension] // self.local_size[dimension])

    def whole(self, dimension: int = 0) -> GroupRange:
        """Return all work-groups, along a dimension."""
        return GroupRange(dimension, 0, self.groups(dimension))

    @cached_property
    def variables(self) -> tuple[Expr, ...]:
        """The variables that stand for its parameters."""
        return tuple(var(parameter(index), *ends) for index, ends in sorted(self.parameters.items()))

    @cached_property
    def ids(self) -> dict[str, tuple[int, int]]:
        """The least and the greatest value of the launch's own variables: ids of groups, of work-items in a group."""
        found: dict[str, tuple[int, int]] = {}
        for d in range(3):
            local = min(self.local_size[d], self.global_size[d]) if d < len(self.local_size) else 1
            found |= {f"grp{d}": (0, self.groups(d) - 1), f"lid{d}": (0, local - 1)}
        return found

    def ids_of(self, groups: GroupRange) -> dict[str, tuple[int, int]]:
        """Return the bounds of ids in some work-groups."""
        return {**self.ids, f"grp{groups.dimension}": (groups.first, groups.end - 1)}

    def start(self, dimension: int) -> int:
        return self.offset[dimension] if dimension < len(self.offset) else 0
