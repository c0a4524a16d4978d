"""Launches like one before, on native devices, by compiled code (``again.c``): what Python's interpreter does of a
launch that :mod:`manycl.front.forms` knows takes 2 us and more, which is longer than many small kernels run.

A program that launches little never has it; whoever enqueues many commands in a row has it loaded beside, and, the
first time on a machine, compiled. Where that cannot be done (no C compiler, another interpreter than CPython, one
without its lock) everything is as it is without, but slower.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from ctypes import c_uint64, py_object
from pathlib import Path
from typing import Any

from manycl.disk_cache import DiskCache
from manycl.drivers.driver import DirectlyLaunched, Driver, DriverError
from manycl.front.arrays import Array
from manycl.front.events import Event
from manycl.front.program import Kernel
from manycl.logs import logger

log = logger(__name__)

_SOURCE = Path(__file__).with_name("again.c")
_CACHE = DiskCache("native-again", 1 << 20, ("manycl/front/again",))
IN_PYTHON = Kernel.__call__
_asked = threading.Event()
_made: list[Any] = []
"""What ``Kernel.__call__`` may be, once it is compiled."""


def soon(drivers: Sequence[Driver]) -> None:
    """Kernels are to be called so from soon on: a thread sees to it, once."""
    if not _asked.is_set():
        _asked.set()
        threading.Thread(target=install, args=(drivers,), name="manycl-again", daemon=True).start()


def install(drivers: Sequence[Driver]) -> bool:
    """Have kernels called so from now on, if one of the devices is one for that, and there is a compiler."""
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    try:
        for driver in drivers:
            if isinstance(driver, DirectlyLaunched):
                Kernel.__call__ = _compiled(driver)  # type: ignore[method-assign]
                return True
    except DriverError as error:
        log.debug("kernels are launched by Python alone: %s", error.message)
    return False


def uninstall() -> None:
    """Have kernels called by Python alone again."""
    Kernel.__call__ = IN_PYTHON  # type: ignore[method-assign]


def _compiled(driver: DirectlyLaunched) -> Any:
    """Raises DriverError."""
    if not _made:
        direct = driver.direct(_SOURCE, _CACHE)
        make = direct.library.manycl_again
        make.argtypes, make.restype = [py_object, py_object, c_uint64], py_object
        _made.append(make((Kernel, Event, Array, *direct.types), IN_PYTHON, direct.launch))
    return _made[0]
