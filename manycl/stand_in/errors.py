"""PyOpenCL's errors, raised by manycl."""

from __future__ import annotations

from manycl.drivers.opencl.real import compiled
from manycl.errors import ManyclError

_STATUS = compiled.status_code


def error(code: str, routine: str, message: str = "") -> Exception:
    """The error with a status code by OpenCL's name for it, of the class that PyOpenCL has for such."""
    return numbered(int(getattr(_STATUS, code)), routine, message)


def refuse(code: str, condition: object, routine: str = "") -> None:
    """Raise the error with a status code where a condition holds."""
    if condition:
        raise error(code, routine)


def numbered(number: int, routine: str, message: str = "") -> Exception:
    """The error with a status code."""
    kind: type[Exception] = compiled.LogicError if number <= _STATUS.INVALID_VALUE else compiled.RuntimeError
    if number == _STATUS.MEM_OBJECT_ALLOCATION_FAILURE:
        kind = compiled.MemoryError
    return kind(compiled._ErrorRecord(routine, number, message))


def told(failure: ManyclError, routine: str) -> Exception:
    """Return what went wrong on a device, as PyOpenCL would tell it."""
    return error("OUT_OF_RESOURCES", routine, str(failure))


class translated:  # noqa: N801  (used as a function; a generator would take a microsecond more)
    """A block of which manycl's errors become PyOpenCL's."""

    __slots__ = ("_routine",)

    def __init__(self, routine: str) -> None:
        self._routine = routine

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, raised: BaseException | None, where: object) -> None:
        if isinstance(raised, ManyclError):
            raise told(raised, self._routine) from raised
