"""The base of all objects of OpenCL: a handle that is a number."""

from __future__ import annotations

import weakref
from typing import Any, ClassVar, TypeVar

from manycl.stand_in.errors import error

Own = TypeVar("Own", bound="OpenCLObject")


class OpenCLObject:
    """``int_ptr`` is unique among the objects that are alive; objects are equal if they are the same."""

    __slots__ = ("__weakref__",)
    _known: ClassVar[weakref.WeakValueDictionary[int, Any]] = weakref.WeakValueDictionary()

    @property
    def int_ptr(self) -> int:
        number = id(self)
        self._known[number] = self
        return number

    @classmethod
    def from_int_ptr(cls: type[Own], int_ptr_value: int, retain: bool = True) -> Own:
        """The object with that number, which must have been asked for."""
        found = cls._known.get(int_ptr_value)
        if not isinstance(found, cls):
            raise error("INVALID_VALUE", "from_int_ptr", "manycl knows no such object")
        return found

    def _told(self, answers: dict[int, Any], param: int) -> Any:
        """An answer to ``get_info``; a function is called for it."""
        if param not in answers:
            raise error("INVALID_VALUE", f"{type(self).__name__}.get_info")
        answer = answers[param]
        return answer() if callable(answer) else answer
