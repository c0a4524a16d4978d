"""Launches on a queue of OpenCL's: the words about them for faults, and what compiled code (``enqueue.c``) takes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from manycl.drivers.driver import DirectLaunch, DirectQueue, DriverError
from manycl.drivers.last_words import Line
from manycl.drivers.native.compiler.library import load
from manycl.drivers.opencl.real import cl, compiled
from manycl.utilities.disk_cache import DiskCache

_SOURCE = Path(__file__).with_name("enqueue.c")
_CACHE = DiskCache("opencl-launches", 1 << 20, ("manycl/drivers/opencl/enqueue.c",))
_FUNCTIONS = "clSetKernelArg", "clEnqueueNDRangeKernel", "clRetainEvent", "clReleaseEvent"
_numbers = count(1)


class _QueueBlock(ctypes.Structure):
    """``struct queue`` of enqueue.c."""

    _fields_ = (
        ("queue", ctypes.c_void_p),
        *((name, ctypes.c_void_p) for name in _FUNCTIONS),
        ("line", ctypes.c_void_p),
        ("longest", ctypes.c_uint64),
        ("noted", ctypes.c_uint64),
        ("last", ctypes.c_void_p),
    )


class _Shape(ctypes.Structure):
    """``struct shape`` of enqueue.c."""

    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("number", ctypes.c_uint64),
        ("words", ctypes.c_char_p),
        ("arguments", ctypes.c_uint64),
        ("dims", ctypes.c_uint64),
        ("has_local", ctypes.c_uint64),
        ("global_size", ctypes.c_size_t * 3),
        ("local_size", ctypes.c_size_t * 3),
    )


class _Library:
    """The functions of enqueue.c, and the addresses of OpenCL's (``_FUNCTIONS``) in the loader that PyOpenCL uses."""

    def __init__(self, path: str) -> None:
        loader, library = ctypes.CDLL(compiled.__file__), ctypes.PyDLL(path)
        self.addresses = [_address(getattr(loader, name)) for name in _FUNCTIONS]
        self.launch = _address(library.manycl_launch)
        self.take_last: Callable[[Any], int | None] = library.manycl_take_last
        library.manycl_take_last.argtypes, library.manycl_take_last.restype = [ctypes.c_void_p], ctypes.c_void_p


def _address(function: Any) -> int:
    """Return the address of a function of a library."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


@cache
def _library() -> _Library | None:
    """Return the library; None where it cannot be had: nothing compiles it, or PyOpenCL's core does not show the
    loader's functions (on systems that look for them in one library only)."""
    try:
        return load(_SOURCE, _CACHE, _Library)
    except (AttributeError, DriverError):
        return None


class QueueLaunches:
    """The launches on a queue. ``is_noted``: words about them are noted for the case of a fault, as they run in this
    process's threads. ``noted``: kernel, global and local size of what Python has noted last; launches behind it differ
    in arguments and offset. ``last``: the last one's event."""

    __slots__ = ("_block", "_line", "last", "noted", "queue")

    def __init__(self, queue: cl.CommandQueue, is_noted: bool) -> None:
        self.queue = queue
        self.noted: tuple[object, ...] | None = None
        self.last: cl.Event | None = None
        self._line = Line() if is_noted else None
        self._block: _QueueBlock | None = None

    def __del__(self) -> None:
        self._last_of_block()

    @property
    def is_direct(self) -> bool:
        """True if what is noted is a launch that compiled code has enqueued."""
        return self._block is not None and bool(self._block.noted)

    def note(self, noted: tuple[object, ...] | None, words: str) -> None:
        """Note what Python is about to enqueue; None: nothing."""
        self.noted = noted
        if self._block is not None:
            self._block.noted = 0
        if self._line is not None:
            self._line.say(words)

    def settle(self) -> None:
        """Forget what was noted if the last launch is complete."""
        if self._line is None or not (self.noted or self.is_direct):
            return
        self.last = self._last_of_block() or self.last
        with suppress(cl.Error):  # the device may be lost: then it runs nothing any more
            if self.last is not None and self.last.command_execution_status > 0:
                return
        self.note(None, "")

    def _last_of_block(self) -> cl.Event | None:
        """Return the event of the last launch that compiled code has enqueued since it was asked for."""
        block, library = self._block, _library()
        if block is None or library is None:
            return None
        last = library.take_last(ctypes.addressof(block))
        return cl.Event.from_int_ptr(last, retain=False) if last else None

    def direct(self) -> DirectQueue | None:
        """Return the queue for compiled code; None where that cannot enqueue."""
        library = _library()
        if library is None:
            return None
        if self._block is None:
            line, longest = (self._line.address, self._line.longest) if self._line is not None else (None, 0)
            self._block = _QueueBlock(self.queue.int_ptr, *library.addresses, line, longest)
        release = library.addresses[_FUNCTIONS.index("clReleaseEvent")]
        return DirectQueue(
            library.launch, ctypes.addressof(self._block), cl.Buffer, "int_ptr", event=_event, release=release
        )


def _event(number: int) -> cl.Event:
    return cl.Event.from_int_ptr(number, retain=False)


def direct_launch(
    kernel: cl.Kernel, global_size: tuple[int, ...], local_size: tuple[int, ...] | None, words: str
) -> DirectLaunch | None:
    """Return a kernel at an NDRange for compiled code; None where that cannot enqueue."""
    if _library() is None:
        return None
    arguments, dims = kernel.num_args, len(global_size)
    sizes = [(ctypes.c_size_t * 3)(*size) for size in (global_size, local_size or ())]
    said = words.encode(errors="replace")
    shape = _Shape(kernel.int_ptr, next(_numbers), said, arguments, dims, local_size is not None, *sizes)
    memory = (ctypes.c_void_p * arguments)()
    return DirectLaunch(ctypes.addressof(shape), ctypes.addressof(memory), tuple(range(arguments)), (shape, memory))
