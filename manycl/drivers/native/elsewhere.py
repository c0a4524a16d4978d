"""Kernels that cannot be compiled for native devices run on an OpenCL driver of the same processor, in native queues.
To its queue such a launch is a call of Python (:mod:`manycl.drivers.native.calls`): the other driver's kernel is
launched on the same memory, and waited for. Its errors become the command's."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from manycl.drivers.driver import Driver, DriverError, Source
from manycl.drivers.native.kernel import NativeMemory, SetKernel
from manycl.machine import Device
from manycl.utilities.logs import logger

log = logger(__name__)

_MOST_KEPT = 64  # memories of ours that the other driver knows

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
        self._memories: dict[tuple[int, int], Any] = {}
        self._kernels: dict[tuple[Source, str], Any] = {}

    def launch(
        self, source: Source, kernel: SetKernel, ndrange: _NDRange, reason: NotNativeError
    ) -> Callable[[], None]:
        """A launch of a kernel with the values that its arguments have now, to be called when its turn comes. Raises
        DriverError, with ``reason``, where the other driver cannot run it either."""
        other = self.kernel(source, kernel.kernel.name, reason)
        noted = _Launch(other, kernel.set_values(), ndrange)
        return lambda: self._run(noted)

    def driver(self) -> Driver:
        """The other driver, opened."""
        if self._driver is None:
            self._driver = self._open_other(self._device)
            self._queue = self._driver.queue(False)
        return self._driver

    def release(self) -> None:
        if self._driver is not None:
            self._driver.release()

    def kernel(self, source: Source, name: str, reason: NotNativeError) -> Any:
        """The other driver's kernel. Raises DriverError, with ``reason``, where it has no such kernel."""
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
        """Return the same bytes as memory of the other driver's."""
        key = memory.address, memory.nbytes
        found = self._memories.pop(key, None)
        if found is None:
            data = (ctypes.c_uint8 * memory.nbytes).from_address(memory.address)
            found = driver.allocate(memory.nbytes, np.frombuffer(memoryview(data), np.uint8))
        self._memories[key] = found
        while len(self._memories) > _MOST_KEPT:
            driver.free(self._memories.pop(next(iter(self._memories))))
        return found
