"""Assignments to elements of arrays: ``a[2:5] = value``, enqueued."""

from __future__ import annotations

from typing import Any

import numpy as np

from manycl.api.arrays.arithmetic import converted
from manycl.api.arrays.arrays import Array, ArrayView
from manycl.api.arrays.host_arrays import as_array
from manycl.errors import ResultError
from manycl.graph.copies import PATTERNS


def assign(part: ArrayView, value: Any) -> None:
    """Enqueue what gives a view new contents: a fill, a write, a copy, or a kernel that converts. Raises ResultError
    for contents that do not fit."""
    if isinstance(value, Array):
        _assign_array(part, value)
        return
    data = as_array(value)
    if not data.shape and part.itemsize in PATTERNS:
        part.queue.fill(part, data)
        return
    try:
        data = np.broadcast_to(data, part.shape)
    except ValueError:
        raise ResultError(f"contents of shape {data.shape} do not fit a part of shape {part.shape}") from None
    part.queue.write(part, data)


def _assign_array(part: ArrayView, value: Array) -> None:
    is_alike = (part.shape, part.dtype) == (value.shape, value.dtype)
    if is_alike and part.argument == value.argument:
        return  # a[2:5] += 1 ends with assigning the view to itself
    if not np.can_cast(value.dtype, part.dtype, "same_kind"):
        raise ResultError(f"contents of type {value.dtype} do not fit an array of {part.dtype}")
    if is_alike:
        part.queue.copy(part, value.copy() if value.meets(part) else value)
        return
    try:
        fits = np.broadcast_shapes(value.shape, part.shape) == part.shape
    except ValueError:
        fits = False
    if not fits:
        raise ResultError(f"an array of shape {value.shape} does not fit a part of shape {part.shape}")
    converted(value, part.dtype, part)
