"""The host's memory that programs hand over: anything with Python's buffer interface, as bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from manycl.drivers.driver import Bytes


def as_bytes(memory: Any, *, writable: bool = False) -> Bytes:
    """All bytes in place, in the order that they have in memory. Raises ValueError and TypeError as PyOpenCL does for
    what has gaps, may not be written or has no such interface."""
    if not isinstance(memory, np.ndarray):
        view = memoryview(memory)
        if not view.nbytes:
            return np.empty(0, np.uint8)
        if not view.contiguous:
            raise ValueError("the host's buffer is not contiguous")
        if writable and view.readonly:
            raise BufferError("Object is not writable.")
        if not isinstance(memory, np.generic) and not view.c_contiguous:
            return as_bytes(np.asarray(view), writable=writable)
        return np.frombuffer(memory, np.uint8)
    if not memory.flags.forc:
        raise ValueError("ndarray is not contiguous")
    if writable and not memory.flags.writeable:
        raise ValueError("buffer source array is read-only")
    ordered = memory if memory.flags.c_contiguous else memory.T
    if not ordered.size:
        return np.empty(0, np.uint8)
    plain: Bytes = ordered.view(np.ndarray).reshape(-1).view(np.uint8)
    return plain
