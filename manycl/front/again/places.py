"""Where attributes that are slots lie in objects, for the compiled code (``slots.h``)."""

from __future__ import annotations

import ctypes
import struct
from types import MemberDescriptorType
from typing import Any

from manycl.drivers.driver import DriverError


class _Type(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("found", ctypes.c_void_p)]


class _Slot(ctypes.Structure):
    _fields_ = [("type", ctypes.c_char_p), ("name", ctypes.c_char_p), ("at", ctypes.c_ssize_t)]


def tell(library: ctypes.PyDLL, types: dict[str, type]) -> None:
    """Have the library know the classes, which are never freed from now on, and where their slots are. Raises
    DriverError where that cannot be found out."""
    for kind in _entries(library, "manycl_types", _Type):
        found = types[kind.name.decode()]
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(found))
        kind.found = id(found)
    for slot in _entries(library, "manycl_slots", _Slot):
        slot.at = offset(types[slot.type.decode()], slot.name.decode())


def _entries(library: ctypes.PyDLL, table: str, kind: Any) -> list[Any]:
    """Of a table that ends with one without a name."""
    address, found = ctypes.addressof(kind.in_dll(library, table)), list[Any]()
    while (entry := kind.from_address(address + len(found) * ctypes.sizeof(kind))).name:
        found.append(entry)
    return found


def offset(kind: type, name: str) -> int:
    """Bytes from the address of an object (``id``) to a slot that its class, or one above it, has. Raises DriverError
    where that is not so. Python does not tell; so an object is looked at that has something there."""
    member: Any = getattr(kind, name, None)
    if not isinstance(member, MemberDescriptorType):
        raise DriverError(f"{kind.__name__}.{name} is no slot")
    # (what ends objects of the class would look at attributes that this one has not)
    sample: Any = object.__new__(type("Sample", (kind,), {"__slots__": (), "__del__": lambda self: None}))
    words = kind.__basicsize__ // 8
    places = set(range(words))
    for marker in (object(), object()):
        member.__set__(sample, marker)
        found = struct.unpack(f"@{words}Q", ctypes.string_at(id(sample), 8 * words))
        places &= {i for i, word in enumerate(found) if word == id(marker)}
    if len(places) != 1:
        raise DriverError(f"where {kind.__name__}.{name} is cannot be told")
    return 8 * places.pop()
