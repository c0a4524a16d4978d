"""PyOpenCL's errors, raised by manycl."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from manycl.drivers.opencl.real import compiled
from manycl.errors import ManyclError

_STATUS = compiled.status_code


def error(code: str, routine: str, message: str = "") -> Exception:
    """The error with a status code by OpenCL's name for it, of the class that PyOpenCL has for such."""
    return numbered(int(getattr(_STATUS, code)), routine, message)


def numbered(number: int, routine: str, message: str = "") -> Exception:
    """The error with a status code."""
    return _class(number)(compiled._ErrorRecord(message, number, routine))


def _class(number: int) -> type[Exception]:
    kind: type[Exception]
    if number == _STATUS.MEM_OBJECT_ALLOCATION_FAILURE:
        kind = compiled.MemoryError
    elif number <= _STATUS.INVALID_VALUE:
        kind = compiled.LogicError
    else:
        kind = compiled.RuntimeError
    return kind


def told(failure: ManyclError, routine: str) -> Exception:
    """What went wrong on a device, as PyOpenCL would tell it."""
    return error("OUT_OF_RESOURCES", routine, str(failure))


@contextmanager
def translated(routine: str) -> Iterator[None]:
    """What manycl raises inside becomes one of PyOpenCL's errors."""
    try:
        yield
    except ManyclError as failure:
        raise told(failure, routine) from failure
