"""OpenCL's functions as the installed drivers have them, below PyOpenCL: for what is handed on as it is."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from manycl.drivers.opencl.real import compiled
from manycl.stand_in.errors import numbered
from manycl_c.signatures import LETTERS, SIGNATURES

_BY_NAME = {signature.name: signature for signature in SIGNATURES}


@cache
def library() -> Any:
    """The loader that PyOpenCL has."""
    return ctypes.CDLL(compiled.__file__)


@cache
def function(name: str) -> Any:
    """One of them; None where that loader does not have it."""
    found = getattr(library(), name, None)
    if found is not None:
        signature = _BY_NAME[name]
        found.restype = LETTERS[signature.result][0]
        found.argtypes = [LETTERS[letter][0] for letter in signature.arguments]
    return found


def check(status: int, name: str) -> None:
    """Raise the error of a status that is one."""
    if status:
        raise numbered(status, name)


def do(name: str, *given: Any) -> None:
    """Call one that returns a status."""
    check(function(name)(*given), name)


def make(name: str, *given: Any) -> int:
    """Call one that makes an object, which takes the address of a status behind these arguments."""
    status = ctypes.c_int32()
    found = function(name)(*given, ctypes.addressof(status))
    check(status.value, name)
    return int(found)


def ask(name: str, *given: Any) -> bytes:
    """What one of clGet…Info tells (``given``: all before the size)."""
    needed = ctypes.c_size_t()
    do(name, *given, 0, None, ctypes.addressof(needed))
    data = ctypes.create_string_buffer(max(needed.value, 1))
    do(name, *given, needed.value, ctypes.addressof(data), None)
    return data.raw[: needed.value]
