"""The program's memory, by its addresses: what functions are given, and where their answers go."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

import numpy as np

from manycl.drivers.driver import Bytes
from manycl.stand_in.errors import refuse

_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.restype, _view.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
_READ, _WRITE = 0x100, 0x200
_word = ctypes.c_uint64
Address = int | None
"""An address in the program's memory, or the handle of an object; None for NULL."""
_MOST = 1 << 47
"""Bytes: more than a process has; NumPy's sizes are signed."""


def memory(address: int, nbytes: int, *, writable: bool = False) -> Bytes:
    """Bytes in place."""
    refuse("INVALID_VALUE", not 0 <= nbytes < _MOST)
    return np.frombuffer(_view(address, nbytes, _WRITE if writable else _READ), np.uint8)


def words(address: Address, count: int) -> list[int]:
    """Numbers of eight bytes: sizes, handles, addresses."""
    if not count or not address:
        return []
    if count == 1:  # nearly always; the usual way takes a microsecond
        return [_word.from_address(address).value]
    return (_word * count).from_address(address)[:]


def until_zero(address: Address) -> list[int]:
    """A list of properties, which ends with a zero that is in the place of a name; without that."""
    found: list[int] = []
    while address:
        name, value = words(address, 2) if words(address, 1)[0] else (0, 0)
        if not name:
            break
        found += [name, value]
        address += 16
    return found


def text(address: int) -> bytes:
    """Up to the zero."""
    return ctypes.string_at(address)


def put(address: Address, form: str, value: int) -> None:
    """A number of a form (``struct``'s), where somebody wants it."""
    if address:
        data = struct.pack("=" + form, value)
        ctypes.memmove(address, data, len(data))


def put_words(address: Address, values: Sequence[int]) -> None:
    if address and values:
        data = struct.pack(f"={len(values)}Q", *values)
        ctypes.memmove(address, data, len(data))


def answer(data: bytes, size: int, address: Address, needed: Address) -> None:
    """What clGet…Info gives: the bytes, where there is room for them, and how many they are."""
    if address:
        refuse("INVALID_VALUE", size < len(data))
        ctypes.memmove(address, data, len(data))
    put(needed, "Q", len(data))
