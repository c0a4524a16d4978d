"""Versions of kernels that are functions of Python, for devices that compute where NumPy does. Such a version is a
program with one kernel, which has the arguments and directions of the kernel that it is a version of; what it touches
is what that one touches, as the analysis finds it, range by range. A driver calls it with the memory of its arguments
(:meth:`manycl.drivers.driver.Driver.function`)."""

from __future__ import annotations

import inspect
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manycl.analysis.facts import ArgumentFacts, KernelFacts, ProgramFacts
from manycl.errors import ManyclError
from manycl.graph.graph import LocalArg
from manycl.graph.launch import TYPES, stored_lanes

HOST_KIND = "host"
"""What functions of Python are for, in the place of a kind of device."""
RUNS_ON = ("cpu",)
"""The kinds of device that may call them."""


class _Calling(threading.local):
    now = False  # of the class: found at once in threads that have none of their own


calling = _Calling()
"""Whether the caller (``now``) is a function that is a version, or what it called."""


class ArrayForm(NamedTuple):
    """The form of a buffer argument for the function: an array of a shape and type, from byte ``offset`` of the
    buffer."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int = 0


class FunctionSource(NamedTuple):
    """The file of a function, whose ``text`` tells it from others of its name, and its line there (0: not known)."""

    path: str
    text: str
    line: int


class FunctionError(ManyclError):
    """A version that is a function of Python has raised an exception."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HostProgram(ProgramFacts):
    """A function of Python as a version of ``kernel`` of program ``original``, for arrays of these ``forms`` (None: no
    array). ``dimension``: of the NDRange, along which it can be told which part to do; None: it does all of it. Its own
    ``source`` names it for models: functions of the same text are taken to be equally fast."""

    function: Callable[..., Any]
    original: ProgramFacts = field(repr=False)
    kernel: KernelFacts
    forms: tuple[ArrayForm | None, ...]
    dimension: int | None = None

    def call(
        self,
        values: Sequence[npt.NDArray[np.uint8] | bytes | LocalArg],
        global_size: tuple[int, ...],
        offset: tuple[int, ...] | None,
    ) -> None:
        """The function for some work-items. ``values``: of all arguments, of buffers bytes. Raises FunctionError."""
        given: list[Any] = []
        if self.dimension is not None:
            first = offset[self.dimension] if offset else 0
            given.append(slice(first, first + global_size[self.dimension]))
        for facts, form, value in zip(self.kernel.arguments, self.forms, values, strict=True):
            given.append(_array(facts, form, value) if form is not None else _scalar(facts, value))
        before, calling.now = calling.now, True
        try:
            self.function(*given)
        except BaseException as error:  # also SystemExit: the thread is a device's
            raise FunctionError(self._words(error)) from None
        finally:
            calling.now = before

    def _words(self, error: BaseException) -> str:
        """Return an error's words with the line of the function in which it came up, or of what it called."""
        (name,) = self.kernels
        frames = traceback.extract_tb(error.__traceback__)[1:]
        own = [f for f in frames if f.filename == self.path]
        at = (own or frames)[-1:]
        where = f" ({at[0].filename}, line {at[0].lineno})" if at else ""
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return f"version {name} of kernel {self.kernel.name} failed: {said}{where}"


def host_program(
    function: Callable[..., Any],
    original: ProgramFacts,
    kernel: KernelFacts,
    forms: tuple[ArrayForm | None, ...],
    dimension: int | None,
    origin: FunctionSource | None = None,
) -> HostProgram:
    """A function as a version of a kernel. ``origin``: where it is from, if it cannot be asked yet."""
    name = function_name(function)
    if origin is None:
        code = getattr(inspect.unwrap(function), "__code__", None)
        path = code.co_filename if code is not None else f"<{getattr(function, '__module__', None) or 'built in'}>"
        origin = FunctionSource(path, _text(function, kernel), code.co_firstlineno if code is not None else 0)
    return HostProgram(
        source=origin.text,
        options=(),
        kernels={name: replace(kernel, name=name, line=origin.line)},
        path=origin.path,
        function=function,
        original=original,
        kernel=kernel,
        forms=forms,
        dimension=dimension,
    )


def function_name(function: Callable[..., Any]) -> str:
    """Return the name that traces have for it."""
    return getattr(function, "__name__", "") or type(function).__name__


def analysed(program: ProgramFacts, kernel: KernelFacts) -> tuple[ProgramFacts, KernelFacts]:
    """The program and kernel whose analysis holds for a version: those that it is a version of, of a function."""
    return (program.original, program.kernel) if isinstance(program, HostProgram) else (program, kernel)


def _text(function: Callable[..., Any], kernel: KernelFacts) -> str:
    """Return what tells functions apart that take different time, in this process and others."""
    plain = inspect.unwrap(function)
    try:
        body = inspect.getsource(plain)
    except (OSError, TypeError):
        code = getattr(plain, "__code__", None)
        body = sha256(code.co_code).hexdigest() if code is not None else ""
    name = f"{getattr(plain, '__module__', '')}.{getattr(plain, '__qualname__', type(plain).__qualname__)}"
    return f"function {name} as kernel {kernel.name}\n{body}"


def _array(facts: ArgumentFacts, form: ArrayForm, value: Any) -> npt.NDArray[Any]:
    nbytes = int(np.prod(form.shape, dtype=np.int64)) * form.dtype.itemsize
    found: npt.NDArray[Any] = value[form.offset : form.offset + nbytes].view(form.dtype).reshape(form.shape)
    if not facts.writes:
        found.flags.writeable = False
    return found


def _scalar(facts: ArgumentFacts, value: Any) -> Any:
    """A number of NumPy's, of the declared type; of a vector an array; of a struct bytes; of local memory None."""
    if not isinstance(value, bytes):
        return None
    known = TYPES.get(facts.base)
    if known is None:
        return value
    numbers = np.frombuffer(value, known.dtype)
    if facts.lanes > 1:
        return numbers[: facts.lanes] if len(numbers) == stored_lanes(facts.lanes) else numbers
    return numbers[0]
