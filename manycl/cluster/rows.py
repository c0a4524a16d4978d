"""Rows of buffers as they travel: rectangles of a buffer, one behind the other, without gaps; in messages, which Dask
packs, as bytes without a copy and without a pickle, which its own code for arrays has for their type."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from distributed.protocol.serialize import register_serialization_family

from manycl.drivers.driver import Bytes
from manycl.drivers.worker.rows import rows_of
from manycl.region import Rectangle

PLAIN = ("manycl",)
"""The only way in which what is in messages is written and read."""


def _dumps(data: Bytes) -> tuple[dict[str, str], list[memoryview]]:
    return {}, [data.data]


def _loads(header: dict[str, str], frames: Sequence[memoryview]) -> Bytes:
    return np.frombuffer(b"".join(frames) if len(frames) != 1 else frames[0], np.uint8)


register_serialization_family(PLAIN[0], _dumps, _loads)


def packed(data: Bytes, rectangles: Sequence[Rectangle], low: int) -> Bytes:
    """Return the bytes of rectangles of a buffer that ``data`` has from byte ``low`` on: of one row a view."""
    found = [rows_of(data, rect, -low) for rect in rectangles]
    if len(found) == 1 and rectangles[0].rows == 1:
        return found[0]
    return np.concatenate([rows.reshape(-1) for rows in found]) if found else np.empty(0, np.uint8)


def unpack(target: Bytes, rectangles: Sequence[Rectangle], low: int, frame: Bytes) -> None:
    """Copy what :func:`packed` has returned to the same rectangles elsewhere. Raises ValueError for a frame of another
    size."""
    if len(frame) != (expected := sum([rect.nbytes for rect in rectangles])):
        raise ValueError(f"a frame has {len(frame)} bytes, and {expected} are expected")
    at = 0
    for rect in rectangles:
        rows = rows_of(target, rect, -low)
        rows[...] = frame[at : at + rect.nbytes].reshape(rows.shape)
        at += rect.nbytes
