"""The launch cache in compiled code (``launch.c``): its entries, and the command logs of eager streams.

The library is compiled once on a machine, when a program has launched kernels several times, and loaded when the first
queue opens. Where that cannot be done (no C compiler, another interpreter than CPython, one without its lock)
all works as without it, but each launch costs what the first one does.

May import, of api: its modules, arrays.
"""

from __future__ import annotations

import os
import sys
import threading
from ctypes import py_object
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from manycl.api.arrays.arrays import Array, ArrayView
from manycl.api.events import Event
from manycl.api.program import Kernel
from manycl.api.queue import Queue
from manycl.api.submission import Submission
from manycl.drivers.driver import DriverError
from manycl.drivers.kinds import load
from manycl.graph.graph import Buffer
from manycl.run.data.buffers import Buffers
from manycl.run.data.pool import BufferPool
from manycl.run.session.session import Session
from manycl.run.streams.eager_stream import EagerStream
from manycl.utilities.disk_cache import DiskCache
from manycl.utilities.logs import logger

log = logger(__name__)

MANY = 32
"""The launches of a process from which compiling the library pays; our own choice."""
_SOURCE = Path(__file__).with_name("launch.c")
_CACHE = DiskCache("launch-cache", 1 << 20, ("manycl/api/dispatch/compiled",))
_CLASSES = Array, Buffer, Buffers, DriverError, Event, Kernel, BufferPool, Queue, EagerStream, Submission, ArrayView
"""The Python classes that the library knows, in the order of ``objects.h``."""


class LaunchLibrary(NamedTuple):
    """The types of command logs and of entries, and implementations of ``Kernel.__call__`` and ``Queue.empty``."""

    log: Any
    entry: Any
    call: Any
    empty: Any

    def use(self) -> None:
        Kernel.__call__ = self.call  # type: ignore[method-assign]
        Queue.empty = self.empty  # type: ignore[method-assign]


IN_PYTHON = Kernel.__call__, Queue.empty
_used: list[LaunchLibrary] = []
"""The library, while it is used."""
_loaded: list[LaunchLibrary] = []
_loading = threading.Lock()
_wanted = count(1)
_sought = threading.Event()


def install(compiles: bool = True) -> bool:
    """Use the library from the next eager stream on (without ``compiles`` only one that is there)."""
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    try:
        with _loading:
            if not _loaded:
                _loaded.append(_load(compiles))
    except DriverError as error:
        log.debug("each launch is checked: %s", error.message)
        return False
    if not _used:
        _loaded[0].use()
        _used.append(_loaded[0])
    return True


def uninstall() -> None:
    """Do without the library."""
    Kernel.__call__, Queue.empty = IN_PYTHON  # type: ignore[method-assign]
    _used.clear()


os.register_at_fork(after_in_child=uninstall)  # native devices' threads are not there


def wanted() -> None:
    """Note a launch that the library would have put into the cache; at the ``MANY``-th one of the process a thread
    compiles the library. A process that ends waits for it: else short ones would begin to compile it ever again."""
    if next(_wanted) == MANY:
        threading.Thread(target=install, name="manycl-compile", daemon=False).start()


def _load(compiles: bool) -> LaunchLibrary:
    """Return the library. Raises DriverError."""
    library = load(_SOURCE, _CACHE, compiles)
    make = library.manycl_dispatch
    make.argtypes, make.restype = [py_object] * 4, py_object
    (usual,) = IN_PYTHON[1].__defaults__ or ()
    return LaunchLibrary(*make(_CLASSES, *IN_PYTHON, usual))


def seek() -> None:
    """Load the library if it was compiled before, once in a process: the first launch need not wait for it."""
    if not _sought.is_set():
        _sought.set()
        install(compiles=False)


def use_log(session: Session, stream: EagerStream) -> None:
    """Have a new eager stream note its commands in a log of the library, if that is loaded."""
    for library in _used:
        driver, former = session.backend.lanes[stream.device].direct, stream.given
        direct = driver.direct_queue(stream.queue) if driver is not None else None
        launch, written = stream.launch, stream.batch.written
        stream.log_in(library.log(stream.device, stream.lock, launch, stream.queue, written, former.limit, direct))


def entry_type() -> Any:
    """Return the type of entries; None where the library is not used."""
    return _used[0].entry if _used else None
