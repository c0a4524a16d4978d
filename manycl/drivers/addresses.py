"""Where bytes of the host lie."""

from __future__ import annotations

import ctypes
from typing import Any

from manycl.drivers.driver import Bytes

_byte: Any = ctypes.c_char.from_buffer
_address = ctypes.addressof


def address_of(data: Bytes) -> int:
    """Of the first byte. (What NumPy tells takes eight times as long.)"""
    if data.flags.writeable and len(data):
        return _address(_byte(data))
    address: int = data.__array_interface__["data"][0]
    return address
