"""Offsets of slots in Python's objects, for the compiled code (``slots.h``)."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from types import MemberDescriptorType
from typing import Any

from manycl.drivers.driver import DriverError


class _Type(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("found", ctypes.c_void_p)]


class _Slot(ctypes.Structure):
    _fields_ = [("type", ctypes.c_char_p), ("name", ctypes.c_char_p), ("at", ctypes.c_ssize_t)]


def tell(library: ctypes.PyDLL, types: dict[str, type]) -> None:
    """Give the library the classes, which are never freed from now on, and the offsets of their slots. Raises
    DriverError where these cannot be found out."""
    for kind in _entries(library, "manycl_types", _Type):
        found = types[kind.name.decode()]
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(found))
        kind.found = id(found)
    slots: dict[str, list[Any]] = {}
    for slot in _entries(library, "manycl_slots", _Slot):
        slots.setdefault(slot.type.decode(), []).append(slot)
    for kind, some in slots.items():
        for slot, at in zip(some, offsets(types[kind], [slot.name.decode() for slot in some]), strict=True):
            slot.at = at


def _entries(library: ctypes.PyDLL, table: str, kind: Any) -> list[Any]:
    """Return the entries of a table of the library, which ends with an entry without a name."""
    address, found = ctypes.addressof(kind.in_dll(library, table)), list[Any]()
    while (entry := kind.from_address(address + len(found) * ctypes.sizeof(kind))).name:
        found.append(entry)
    return found


def offsets(kind: type, names: Sequence[str]) -> list[int]:
    """Return the offsets of slots, in bytes from the address of an object (``id``), that its class, or one above it,
    has. Raises DriverError for an attribute that is no slot. Python does not tell offsets, so the memory of an object
    is searched for values that were put there, twice."""
    # (the class's own __del__ would use attributes that this object has not)
    sample: Any = object.__new__(type("Sample", (kind,), {"__slots__": (), "__del__": lambda self: None}))
    words = kind.__basicsize__ // 8
    found: list[set[int]] = [set(range(words)) for _ in names]
    for _ in range(2):
        markers = [object() for _ in names]
        for name, marker in zip(names, markers, strict=True):
            member: Any = getattr(kind, name, None)
            if not isinstance(member, MemberDescriptorType):
                raise DriverError(f"{kind.__name__}.{name} is no slot")
            member.__set__(sample, marker)
        seen = struct.unpack(f"@{words}Q", ctypes.string_at(id(sample), 8 * words))
        for places, marker in zip(found, map(id, markers), strict=True):
            places &= {i for i, word in enumerate(seen) if word == marker}
    if any(len(places) != 1 for places in found):
        raise DriverError(f"where {kind.__name__} has {', '.join(names)} cannot be told")
    return [8 * places.pop() for places in found]
