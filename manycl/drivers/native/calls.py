"""Calls of Python in native queues. To its queue such a call is a command of one work-group, whose function is
Python's: a thread of the device runs it when its turn comes, and its exception becomes the command's failure."""

from __future__ import annotations

import ctypes
import itertools
import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from manycl.drivers.driver import Bytes, DriverError
from manycl.drivers.native.kernel import SHAPE, NativeMemory
from manycl.graph.graph import LocalArg

_FRAME = 128  # bytes: the word that says whether it has failed
_WORD = ctypes.c_uint64.from_address
_ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_size_t] * 5)


class PythonCalls:
    """The calls of a device."""

    def __init__(self) -> None:
        self._tokens = itertools.count(1)
        self._jobs: dict[int, Callable[[], None]] = {}
        self.faults: dict[int, str] = {}
        """Of calls that have failed, by their tokens."""
        self._entry = _ENTRY(self._called)
        address = ctypes.cast(self._entry, ctypes.c_void_p).value
        assert address is not None
        shape = SHAPE.pack(address, _FRAME, 1, 0, 8, 1, 1, *[1] * 6, *[0] * 3, *[1] * 3, 1) + struct.pack("@Q", 0)
        self._shape = ctypes.create_string_buffer(shape, len(shape))
        self.shape = ctypes.addressof(self._shape)
        """The ``struct shape`` of all calls; their only argument is a token, 8 bytes."""

    def enter(self, job: Callable[[], None]) -> int:
        """Note what a command will do: its token."""
        token = next(self._tokens)
        self._jobs[token] = job
        return token

    def _called(self, arguments: int, _range: int, _first: int, _end: int, frame: int) -> None:
        """By a thread of the device, when it is a call's turn."""
        token = _WORD(_WORD(arguments).value).value
        failed = 0
        try:
            self._jobs.pop(token)()
        except BaseException as error:  # also SystemExit, which would end nothing here
            self.faults[token] = str(error) or type(error).__name__
            failed = 1
        _WORD(frame).value = failed


class FunctionKernel:
    """A function of Python as a kernel of a native device (:meth:`manycl.drivers.driver.Driver.function`)."""

    def __init__(self, function: Callable[..., None], arguments: int) -> None:
        self.function = function
        self.most_items = sys.maxsize
        self._values: list[Any] = [None] * arguments

    def set(self, index: int, value: Any) -> None:
        """Set an argument, as DeviceKernel.set."""
        if not 0 <= index < len(self._values):
            raise DriverError(f"a function has {len(self._values)} arguments: there is no number {index}")
        if type(value) not in (NativeMemory, bytes, LocalArg):
            raise DriverError(f"argument {index} of a function is not set to {type(value).__name__}")
        self._values[index] = value

    def job(self, global_size: tuple[int, ...], offset: tuple[int, ...] | None) -> Callable[[], None]:
        """A call with the values that the arguments have now."""
        values = list(self._values)
        if None in values:
            raise DriverError(f"argument {values.index(None)} of a function is not set")
        return lambda: self.function([_given(value) for value in values], global_size, offset)

    def uses(self) -> tuple[object, ...]:
        """Return what a call uses until it is complete."""
        return (self, *self._values)


def _given(value: NativeMemory | bytes | LocalArg) -> Bytes | bytes | LocalArg:
    if not isinstance(value, NativeMemory):
        return value
    return np.frombuffer(memoryview((ctypes.c_uint8 * value.nbytes).from_address(value.address)), np.uint8)
