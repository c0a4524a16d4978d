"""Handles: the addresses by which programs know objects, how often these were retained, and what is told then."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import ref

from manycl.stand_in.errors import error

Kind = TypeVar("Kind")
_Words = ctypes.c_void_p * 2  # what an ICD's handle begins with, and one to spare


class ObjectHandle:
    """Of one object. ``count``: the program's references; while there are any, the handle keeps the object. Others
    (commands, objects made of it) may keep it longer, and until then the handle is valid. ``when_gone``: functions for
    the time after, the last one first."""

    __slots__ = ("address", "count", "kept", "memory", "weak", "when_gone")

    def __init__(self, target: Any, table: int) -> None:
        self.memory = _Words(table, None)
        self.address = ctypes.addressof(self.memory)
        self.count = 0
        self.kept: Any = None
        self.weak: ref[Any]
        self.when_gone: list[Callable[[], None]] = []


class Handles:
    """``table``: where the functions are that the ICD mechanism finds by a handle."""

    def __init__(self) -> None:
        self.table = 0
        self._by_address: dict[int, ObjectHandle] = {}
        self._by_object: dict[int, ObjectHandle] = {}

    def of(self, target: Any) -> ObjectHandle:
        """The handle of an object, which is made if it has none."""
        found = self._by_object.get(id(target))
        if found is not None:
            return found
        handle = ObjectHandle(target, self.table)
        number, address = id(target), handle.address

        def gone(_: Any) -> None:
            self._by_object.pop(number, None)
            self._by_address.pop(address, None)
            while handle.when_gone:
                handle.when_gone.pop()()

        handle.weak = ref(target, gone)
        self._by_object[number] = self._by_address[address] = handle
        return handle

    def give(self, target: Any) -> int:
        """The address of an object that the program gets a reference to."""
        handle = self.of(target)
        handle.count += 1
        handle.kept = target
        return handle.address

    def known(self, address: int | None) -> ObjectHandle | None:
        return self._by_address.get(address) if address else None

    def find(self, address: int | None, kind: type[Kind], code: str) -> Kind:
        """The object behind an address. Raises the error with that code where there is none of the kind."""
        handle = self._by_address.get(address) if address else None
        if handle is not None:
            found = handle.kept if handle.kept is not None else handle.weak()
            if isinstance(found, kind):
                return found
        raise error(code, "")

    def finder(self, kind: type[Kind], code: str) -> Callable[[int | None], Kind]:
        """``find`` for one kind of object."""
        return lambda address: self.find(address, kind, code)

    def retain(self, address: int | None, kind: type[Any], code: str) -> None:
        found = self.find(address, kind, code)
        handle = self.of(found)
        handle.count += 1
        handle.kept = found

    def release(self, address: int | None, kind: type[Any], code: str) -> Any:
        """The object, if that was the program's last reference; None if not."""
        found = self.find(address, kind, code)
        handle = self.of(found)
        if handle.count == 0:
            raise error(code, "")
        handle.count -= 1
        if handle.count:
            return None
        handle.kept = None
        return found


handles = Handles()
"""All of the process."""
