"""Rows of buffers as they travel: boxes of a buffer, one behind the other, without gaps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from manycl.drivers.driver import Bytes
from manycl.drivers.worker.rows import rows_of
from manycl.region import Box


def packed(data: Bytes, boxes: Sequence[Box], low: int) -> Bytes:
    """Return the bytes of boxes of a buffer that ``data`` has from byte ``low`` on: a view where there is one row."""
    found = [rows_of(data, box, -low) for box in boxes]
    if len(found) == 1 and boxes[0].rows == 1:
        return found[0]
    return np.concatenate([rows.reshape(-1) for rows in found]) if found else np.empty(0, np.uint8)


def unpack(target: Bytes, boxes: Sequence[Box], low: int, frame: Bytes) -> None:
    """Copy what :func:`packed` has returned to the same boxes elsewhere. Raises ValueError for a frame of another
    size."""
    if len(frame) != (expected := sum([box.nbytes for box in boxes])):
        raise ValueError(f"a frame has {len(frame)} bytes, and {expected} are expected")
    at = 0
    for box in boxes:
        rows = rows_of(target, box, -low)
        rows[...] = frame[at : at + box.nbytes].reshape(rows.shape)
        at += box.nbytes
