"""Kernels that cannot be compiled for native devices run on an OpenCL driver of the same processor, in native queues.

To its queue such a launch is a command of one work-group, which calls Python: the other driver's kernel is launched on
the same memory, and waited for. Its errors become the command's.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from manycl.drivers.driver import Driver, DriverError, Source
from manycl.drivers.native.kernel import SHAPE, NativeMemory, SetKernel
from manycl.logs import logger
from manycl.machine import Device

log = logger(__name__)

_MOST_KEPT = 64  # memories of ours that the other driver knows
_FRAME = 128  # bytes: the word that says whether it has failed
_WORD = ctypes.c_uint64.from_address
_ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_size_t] * 5)

_NDRange = tuple[tuple[int, ...], tuple[int, ...] | None, tuple[int, ...] | None]


class NotNativeError(DriverError):
    """A kernel that cannot be compiled for native devices, and why."""


class _Launch(NamedTuple):
    kernel: Any
    values: dict[int, Any]
    ndrange: _NDRange


class Elsewhere:
    """``open_other`` opens the other driver, when it is first needed; it raises DriverError where there is none."""

    def __init__(self, device: Device, open_other: Callable[[Device], Driver]) -> None:
        self._device, self._open_other = device, open_other
        self._driver: Driver | None = None
        self._queue: Any = None
        self._lock = threading.Lock()
        self._tokens = itertools.count(1)
        self._launches: dict[int, _Launch] = {}
        self._memories: dict[tuple[int, int], Any] = {}
        self._kernels: dict[tuple[Source, str], Any] = {}
        self.faults: dict[int, str] = {}
        """Of launches that have failed, by their tokens."""
        self._entry = _ENTRY(self._called)
        address = ctypes.cast(self._entry, ctypes.c_void_p).value
        assert address is not None
        shape = SHAPE.pack(address, _FRAME, 1, 0, 8, 1, 1, *[1] * 6, *[0] * 3, *[1] * 3, 1) + struct.pack("@Q", 0)
        self._shape = ctypes.create_string_buffer(shape, len(shape))
        self.shape = ctypes.addressof(self._shape)
        """The ``struct shape`` of all launches; their only argument is a token, 8 bytes."""

    def launch(self, source: Source, kernel: SetKernel, ndrange: _NDRange, reason: NotNativeError) -> int:
        """Note a launch of a kernel with the values that its arguments have now: its token.

        Raises DriverError, with ``reason``, where the other driver cannot run it either.
        """
        other = self._kernel(source, kernel.kernel.name, reason)
        token = next(self._tokens)
        self._launches[token] = _Launch(other, kernel.set_values(), ndrange)
        return token

    def look(self, source: Source, name: str, reason: NotNativeError) -> None:
        """Raises DriverError, with ``reason``, where the other driver has no such kernel."""
        self._kernel(source, name, reason)

    def driver(self) -> Driver:
        """The other driver, opened."""
        if self._driver is None:
            self._driver = self._open_other(self._device)
            self._queue = self._driver.queue(False)
        return self._driver

    def release(self) -> None:
        if self._driver is not None:
            self._driver.release()

    def _kernel(self, source: Source, name: str, reason: NotNativeError) -> Any:
        with self._lock:
            found = self._kernels.get((source, name))
            if found is None:
                try:
                    driver = self.driver()
                    found = driver.kernel(driver.build(source), name)
                except DriverError as error:
                    raise DriverError(f"{reason}; and elsewhere: {error}", hint=error.hint) from None
                log.warning("%s: it runs on %s", reason, self._device.platform)
                self._kernels[source, name] = found
            return found

    def _called(self, arguments: int, _range: int, _first: int, _end: int, frame: int) -> None:
        """By a thread of the device, when it is a launch's turn."""
        token = _WORD(_WORD(arguments).value).value
        failed = 0
        try:
            self._run(self._launches.pop(token))
        except Exception as error:
            self.faults[token] = str(error)
            failed = 1
        _WORD(frame).value = failed

    def _run(self, launch: _Launch) -> None:
        driver = self._driver
        assert driver is not None
        with self._lock:
            for index, value in launch.values.items():
                launch.kernel.set(index, self._memory(driver, value) if isinstance(value, NativeMemory) else value)
            event = driver.launch(self._queue, launch.kernel, *launch.ndrange, None)
            driver.flush(self._queue)
            driver.wait(event)

    def _memory(self, driver: Driver, memory: NativeMemory) -> Any:
        """The same bytes as the other driver's."""
        key = memory.address, memory.nbytes
        found = self._memories.pop(key, None)
        if found is None:
            data = (ctypes.c_uint8 * memory.nbytes).from_address(memory.address)
            found = driver.allocate(memory.nbytes, np.frombuffer(memoryview(data), np.uint8))
        self._memories[key] = found
        while len(self._memories) > _MOST_KEPT:
            driver.free(self._memories.pop(next(iter(self._memories))))
        return found
