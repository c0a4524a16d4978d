"""Rows of bytes copied by the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

from manycl.drivers.driver import Bytes
from manycl.region import Rectangle


def copy_rows(target: Bytes, source: Bytes, rectangles: Sequence[Rectangle], to: int, of: int) -> None:
    """Copy rectangles of a buffer whose byte b is byte ``b + to`` of one array, and ``b + of`` of the other one."""
    for rect in rectangles:
        np.copyto(rows_of(target, rect, to), rows_of(source, rect, of))


def rows_of(data: Bytes, rect: Rectangle, shift: int) -> Bytes:
    """Return the rows of a rectangle of a buffer whose byte b is byte ``b + shift`` of ``data``: a view; of one row,
    all of it."""
    start = rect.offset + shift
    if rect.rows == 1:
        return data[start : start + rect.width]
    return as_strided(data[start:], (rect.rows, rect.width), (rect.pitch, 1))
