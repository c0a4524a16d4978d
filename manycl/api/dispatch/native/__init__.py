"""The launch cache of native devices in compiled code (``again.c``, ``arrays.h``).

For a launch that is in :mod:`manycl.api.dispatch.launch_cache`, Python's interpreter takes 2 us and more, which is
longer than many small kernels run. A program that launches little never loads the compiled code. A program that
enqueues many commands in a row has it loaded meanwhile, and, the first time on a machine, compiled. Where that cannot
be done (no C compiler, another interpreter than CPython, one without its lock) all works as without it, but slower.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from ctypes import c_uint64, py_object
from pathlib import Path
from typing import Any, NamedTuple

from manycl.api.arrays.arrays import Array
from manycl.api.dispatch.launch_cache import CachedLaunch
from manycl.api.dispatch.native.places import tell
from manycl.api.events import Event
from manycl.api.program import Kernel
from manycl.api.queue import Queue
from manycl.api.submission import Submission
from manycl.drivers.driver import DirectlyLaunched, Driver, DriverError
from manycl.graph.graph import Buffer
from manycl.run.data.buffers import Buffers
from manycl.run.data.coherence import Directory
from manycl.run.data.pool import BufferPool
from manycl.run.executor.programs import KernelObject
from manycl.run.streams.batch import CommandBatch
from manycl.run.streams.eager_stream import EagerStream
from manycl.utilities.disk_cache import DiskCache
from manycl.utilities.logs import logger

log = logger(__name__)

_SOURCE = Path(__file__).with_name("again.c")
_CACHE = DiskCache("native-again", 1 << 20, ("manycl/api/dispatch/native",))
_TYPES = {
    "array": Array,
    "buffer": Buffer,
    "buffers": Buffers,
    "directory": Directory,
    "enqueued": Submission,
    "event": Event,
    "flight": EagerStream,
    "form": CachedLaunch,
    "kernel": Kernel,
    "leg": CommandBatch,
    "queue": Queue,
    "resting": BufferPool,
    "setter": KernelObject,
}
"""The Python classes, by their names in the C code."""


class Methods(NamedTuple):
    """Implementations of ``Kernel.__call__`` and ``Queue.empty``."""

    call: Any
    empty: Any

    def use(self) -> None:
        Kernel.__call__ = self.call  # type: ignore[method-assign]
        Queue.empty = self.empty  # type: ignore[method-assign]


IN_PYTHON = Methods(Kernel.__call__, Queue.empty)
_asked = threading.Event()
_made: list[Methods] = []
"""The compiled implementations, once there are some."""


def soon(drivers: Sequence[Driver]) -> None:
    """Have kernels called by compiled code from now on, or from the end of its compilation on, for which a thread is
    started, once. (A compiled library is loaded in 2 ms; a thread beside a loop would wait 100 ms for its turns at
    Python's lock.)"""
    if not _asked.is_set():
        _asked.set()
        if not install(drivers, compiles=False):
            threading.Thread(target=install, args=(drivers,), name="manycl-again", daemon=True).start()


def install(drivers: Sequence[Driver], compiles: bool = True) -> bool:
    """Have kernels called by compiled code, if one of the devices is native and there is a compiler; without
    ``compiles`` only if it was compiled before. Returns whether that was done."""
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    try:
        for driver in drivers:
            if isinstance(driver, DirectlyLaunched):
                _compiled(driver, compiles).use()
                return True
    except DriverError as error:
        log.debug("kernels are launched by Python alone: %s", error.message)
    return False


def uninstall() -> None:
    """Have kernels called by Python alone again."""
    IN_PYTHON.use()


def _compiled(driver: DirectlyLaunched, compiles: bool) -> Methods:
    """Return the compiled implementations. Raises DriverError."""
    if not _made:
        direct = driver.direct(_SOURCE, _CACHE, compiles)
        library = direct.library
        tell(library, _TYPES | direct.types)
        library.manycl_again.argtypes, library.manycl_again.restype = [py_object, c_uint64], py_object
        library.manycl_empty.argtypes, library.manycl_empty.restype = [py_object, py_object], py_object
        (usual,) = Queue.empty.__defaults__ or ()
        call = library.manycl_again(IN_PYTHON.call, direct.launch)
        _made.append(Methods(call, library.manycl_empty(IN_PYTHON.empty, usual)))
    return _made[0]
