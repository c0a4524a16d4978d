"""Addresses of the host's bytes, and memory that lies as devices want it."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

from manycl.drivers.driver import Bytes

_byte: Any = ctypes.c_char.from_buffer
_address = ctypes.addressof


def address_of(data: Bytes) -> int:
    """Return the address of the first byte. (What NumPy tells takes eight times as long.)"""
    if data.flags.writeable and len(data):
        return _address(_byte(data))
    address: int = data.__array_interface__["data"][0]
    return address


def aligned(nbytes: int, alignment: int = mmap.PAGESIZE) -> Bytes:
    """Uninitialised host memory whose address is a multiple of ``alignment``. Raises MemoryError, ValueError where it
    is more than an array can have."""
    raw = np.empty(nbytes + alignment, np.uint8)
    start = -address_of(raw) % alignment
    return raw[start : start + nbytes]
