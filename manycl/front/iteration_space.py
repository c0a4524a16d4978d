"""Iteration spaces of ``parallel_for``: one to three indices, each from 0 on, or along a range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from manycl.errors import LaunchError

Space = int | range | Sequence[int | range]
"""How often each index counts from 0 on, or the numbers that it goes through."""
Bounds = tuple[tuple[int, int], ...]
"""Start and step of each index."""

_LIMIT = 1 << 62


def space_of(space: Any, indices: Sequence[str]) -> tuple[tuple[int, ...], Bounds | None]:
    """The points along each index, and where it starts and how it steps (None: all from 0 on by 1). Raises LaunchError
    for what is no space, or one with more dimensions than there are names of indices."""
    given = [space] if isinstance(space, range) or hasattr(space, "__index__") else space
    parts = [part if isinstance(part, range) else range(part.__index__()) for part in given]
    if not 1 <= len(parts) <= min(3, len(indices)):
        names = ", ".join(indices)
        raise LaunchError(f"an iteration space has one to three dimensions, not {len(parts)} (indices: {names})")
    negative = [part for part in (given if not isinstance(given, range) else []) if _is_negative(part)]
    if negative:
        raise LaunchError(f"an iteration space cannot count to {negative[0]}")
    counts = tuple(len(part) for part in parts)
    ends = [abs(end) for part in parts for end in (part.start, part.stop, part.step)]
    if math.prod(counts) >= _LIMIT or max(ends) >= _LIMIT:
        raise LaunchError(f"{space!r:.80} has more points than a kernel can have")
    if all(part.start == 0 and part.step == 1 for part in parts):
        return counts, None
    return counts, tuple((part.start, part.step) for part in parts)


def _is_negative(part: Any) -> bool:
    return not isinstance(part, range) and part.__index__() < 0
