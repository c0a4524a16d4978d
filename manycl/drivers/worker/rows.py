"""Rows of bytes copied by the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

from manycl.drivers.driver import Bytes
from manycl.region import Box


def copy_rows(target: Bytes, source: Bytes, boxes: Sequence[Box], to: int, of: int) -> None:
    """Copy boxes of a buffer whose byte b is byte ``b + to`` of one array, and ``b + of`` of the other one."""
    for box in boxes:
        np.copyto(rows_of(target, box, to), rows_of(source, box, of))


def rows_of(data: Bytes, box: Box, shift: int) -> Bytes:
    """Return the rows of a box of a buffer whose byte b is byte ``b + shift`` of ``data``: a view; of one row, all of
    it."""
    start = box.offset + shift
    if box.rows == 1:
        return data[start : start + box.width]
    return as_strided(data[start:], (box.rows, box.width), (box.pitch, 1))
