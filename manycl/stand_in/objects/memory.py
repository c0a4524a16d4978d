"""Buffers: arrays of bytes; parts of them are views."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from manycl.api.arrays.arrays import Array
from manycl.drivers.driver import Bytes
from manycl.drivers.opencl.real import compiled
from manycl.stand_in.errors import error, refuse, translated
from manycl.stand_in.objects.objects import OpenCLObject

if TYPE_CHECKING:
    from manycl.stand_in.objects.contexts import Context
    from manycl.stand_in.runtime import Loan


def as_bytes(memory: Any, *, writable: bool = False) -> Bytes:
    """The host's memory that a program hands over, as bytes in place, in the order that they have in memory: anything
    with Python's buffer interface. Raises ValueError and TypeError as PyOpenCL does for what has gaps, may not be
    written or has no such interface."""
    if not isinstance(memory, np.ndarray):
        view = memoryview(memory)
        if not view.nbytes:
            return np.empty(0, np.uint8)
        if not view.contiguous:
            raise ValueError("the host's buffer is not contiguous")
        if writable and view.readonly:
            raise BufferError("Object is not writable.")
        if not isinstance(memory, np.generic) and not view.c_contiguous:
            return as_bytes(np.asarray(view), writable=writable)
        return np.frombuffer(memory, np.uint8)
    if not memory.flags.forc:
        raise ValueError("ndarray is not contiguous")
    if writable and not memory.flags.writeable:
        raise ValueError("buffer source array is read-only")
    ordered = memory if memory.flags.c_contiguous else memory.T
    if not ordered.size:
        return np.empty(0, np.uint8)
    plain: Bytes = ordered.view(np.ndarray).reshape(-1).view(np.uint8)
    return plain


_FLAGS = compiled.mem_flags
_INFO = compiled.mem_info
_KIND, _BUFFER = _INFO.TYPE, compiled.mem_object_type.BUFFER
_USE, _COPY = int(_FLAGS.USE_HOST_PTR), int(_FLAGS.COPY_HOST_PTR)
_HOST = _USE | _COPY | int(_FLAGS.ALLOC_HOST_PTR)
_ACCESS = int(_FLAGS.READ_WRITE), int(_FLAGS.WRITE_ONLY), int(_FLAGS.READ_ONLY)
_ANY_ACCESS = sum(_ACCESS)
_KNOWN = sum(getattr(_FLAGS, name) for name in (*("READ_WRITE", "WRITE_ONLY", "READ_ONLY"), "USE_HOST_PTR")) | sum(
    getattr(_FLAGS, name, 0)
    for name in ("ALLOC_HOST_PTR", "COPY_HOST_PTR", "HOST_WRITE_ONLY", "HOST_READ_ONLY", "HOST_NO_ACCESS")
)


class MemoryObjectHolder(OpenCLObject):
    """An object that has contents on devices."""

    own_context: Context

    def get_info(self, param: int) -> Any:
        return self._information(param)

    def _information(self, param: int) -> Any:
        """(PyOpenCL's attributes call this class's ``get_info``, whatever has another one.)"""
        raise NotImplementedError

    def get_host_array(self, shape: Any, dtype: Any, order: Any = "C") -> np.ndarray[Any, Any]:
        """The host's memory that the buffer was made on, as an array."""
        host = getattr(self, "hostbuf", None)
        if host is None:
            raise error(
                "INVALID_VALUE", "MemoryObject.get_host_array", "Only MemoryObject with USE_HOST_PTR is supported."
            )
        extents = tuple(shape) if isinstance(shape, Sequence | np.ndarray) else (int(shape),)
        wanted, memory = np.dtype(dtype), as_bytes(host)
        nbytes = wanted.itemsize * int(np.prod(extents, dtype=object))
        if nbytes > len(memory):
            raise error("INVALID_VALUE", "MemoryObject.get_host_array", "Resulting array is larger than memory object.")
        owner: Any = self
        owner.__array_interface__ = np.ndarray(extents, wanted, memory, order=order).__array_interface__
        try:  # it tells NumPy that the array's memory is this object's, which it keeps
            return np.asarray(owner)
        finally:
            del owner.__array_interface__


class MemoryObject(MemoryObjectHolder):
    """``hostbuf``: the host's memory that a program keeps its contents in (USE_HOST_PTR), or None; ``real``: the object
    of the real context, of what has one."""

    hostbuf: Any = None
    real: Any = None

    def release(self) -> None:
        raise NotImplementedError

    def lent(self, loan: Loan) -> Any:
        """Return what the real device uses for it in one command."""
        return self.real


class Buffer(MemoryObject):
    """``array``: the contents (None: released, or nothing). ``low``: the byte of the ``whole`` that it begins with."""

    def __init__(self, context: Context, flags: int, size: int = 0, hostbuf: Any = None) -> None:
        flags = int(flags)
        if hostbuf is not None and not flags & (_USE | _COPY):
            warnings.warn("'hostbuf' was passed, but no memory flags to make use of it.", stacklevel=2)
        host: Bytes | None = None
        if hostbuf is not None:
            writable = bool(flags & _USE and flags & (_ACCESS[0] | _ACCESS[1]))
            host = as_bytes(hostbuf, writable=writable)
            if size > len(host):
                raise error("INVALID_VALUE", "Buffer", "specified size is greater than host buffer size")
            size = size or len(host)
        _check_flags(flags, host is not None)
        self._begin(context, flags, self._allocated(context, int(size)), int(size))
        self.hostbuf = hostbuf if flags & _USE else None
        if host is not None and flags & _COPY:
            assert self.array is not None
            context.runtime.store(self.array, 0, host[: self.nbytes])

    @classmethod
    def of_size(cls, context: Context, flags: int, size: int) -> Buffer:
        return cls(context, flags, size)

    def _begin(self, context: Context, flags: int, array: Array | None, nbytes: int) -> None:
        self.own_context = context
        self.runtime = context.runtime
        self.array = array
        self.nbytes = nbytes
        self._whole: Buffer | None = None  # (nothing refers to itself: buffers go when the program drops them)
        self.low = 0
        self.own_flags = flags
        self.reference = ref(self)
        self._maps = 0

    @staticmethod
    def _allocated(context: Context, size: int) -> Array:
        refuse("INVALID_BUFFER_SIZE", not 0 < size <= context.runtime.session.buffers.most, "create_buffer")
        with translated("create_buffer"):
            return context.runtime.queue.empty(size, np.uint8)

    def get_sub_region(self, origin: int, size: int, flags: int = 0) -> Buffer:
        """A part of it. Raises LogicError for what it does not have, and where no device can begin a buffer."""
        routine = "clCreateSubBuffer"
        mine, wanted = self.own_flags & _ANY_ACCESS, int(flags) & _ANY_ACCESS
        if self._whole is not None:
            raise error("INVALID_MEM_OBJECT", routine)
        if size <= 0:
            raise error("INVALID_BUFFER_SIZE", routine)
        if origin < 0 or origin + size > self.nbytes:
            raise error("INVALID_VALUE", routine)
        if wanted and wanted != mine and mine & (_ACCESS[1] | _ACCESS[2]):  # it may do more than the whole
            raise error("INVALID_VALUE", routine)
        if origin % max(device.alignment for device in self.runtime.session.machine.devices):
            raise error("MISALIGNED_SUB_BUFFER_OFFSET", routine)
        part = Buffer.__new__(Buffer)
        given = (int(flags) or mine) | self.own_flags & _HOST
        part._begin(self.own_context, given, self.live()[origin : origin + size], int(size))
        part._whole, part.low = self, int(origin)
        if self.hostbuf is not None:
            part.hostbuf = as_bytes(self.hostbuf)[origin : origin + size]
        return part

    def __getitem__(self, part: slice) -> Buffer:
        routine = "Buffer.__getitem__"
        if not isinstance(part, slice):
            raise error("INVALID_VALUE", routine, "Buffer slice must be a slice object")
        start, end, step = part.indices(self.nbytes)
        if step != 1:
            raise error("INVALID_VALUE", routine, "Buffer slice must have stride 1")
        if end <= start:
            raise error("INVALID_VALUE", routine, "Buffer slice have end > start")
        return self.get_sub_region(start, end - start, self.own_flags & ~_COPY)

    @property
    def whole(self) -> Buffer:
        """The buffer that it is a part of, or itself."""
        return self._whole or self

    def live(self) -> Array:
        """The contents, which a command is about to use. Raises LogicError if it was released."""
        if self.array is None:
            raise error("INVALID_MEM_OBJECT", "clGetMemObjectInfo")
        if self.hostbuf is not None or self._whole is not None:
            self.share()
        return self.array

    def share(self) -> None:
        """A command is about to use it: if it lies on the host's memory, it has what that has."""
        whole = self._whole or self
        if whole.hostbuf is not None and whole.array is not None:
            self.runtime.shared.use(self.runtime, whole.array, as_bytes(whole.hostbuf)[: whole.nbytes])

    def in_place(self) -> Bytes:
        """Return all bytes where the host has them, once what was enqueued has run."""
        return self.runtime.in_place(self.live())

    def release(self) -> None:
        """The program needs it no more; what was enqueued with it does."""
        if self.array is None:
            raise error("INVALID_VALUE", "MemoryObject.free", "trying to double-unref mem object")
        self.array = None

    def lent(self, loan: Loan) -> Any:
        return loan.buffer(self)

    def mapped(self, count: int) -> None:
        """Note that it is mapped once more, or once less."""
        self._maps += count

    def _information(self, param: int) -> Any:
        if param == _KIND:  # PyOpenCL's layer asks it at each copy
            return _BUFFER
        answers = {
            _KIND: _BUFFER,
            _INFO.FLAGS: self.own_flags,
            _INFO.SIZE: self.nbytes,
            _INFO.MAP_COUNT: self._maps,
            _INFO.REFERENCE_COUNT: 1,
            _INFO.CONTEXT: self.own_context,
            _INFO.OFFSET: self.low,
            _INFO.ASSOCIATED_MEMOBJECT: self._whole,
            _INFO.USES_SVM_POINTER: False,
        }
        if hasattr(_INFO, "PROPERTIES"):
            answers[_INFO.PROPERTIES] = []
        return self._told(answers, param)


def _check_flags(flags: int, has_host: bool) -> None:
    """Raise LogicError for flags that exclude one another."""
    accesses = sum(bool(flags & access) for access in _ACCESS)
    apart = flags & _USE and flags & (_COPY | int(_FLAGS.ALLOC_HOST_PTR))
    refuse("INVALID_VALUE", flags & ~_KNOWN or accesses > 1 or apart, "create_buffer")
    refuse("INVALID_HOST_PTR", has_host != bool(flags & (_USE | _COPY)), "create_buffer")
