"""Arrays: buffers with a shape and a type, whose contents live wherever they were last computed."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from manycl.errors import LaunchError, ResultError
from manycl.graph.graph import Buffer, BufferArg
from manycl.graph.launch import leaves

if TYPE_CHECKING:
    from manycl.front.queue import Queue

AnyArray = npt.NDArray[Any]


class Array:
    """An n-dimensional array on all devices of a queue. Made by ``Queue.array``, ``empty`` and ``zeros``.

    Asking for its contents (``get``, ``map``, ``numpy.asarray``) runs what is enqueued first.
    """

    __slots__ = ("__weakref__", "_owned", "argument", "buffer", "dtype", "queue", "shape")

    def __init__(self, queue: Queue, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> None:
        self.queue = queue
        self.shape = shape
        self.dtype = dtype
        if dtype.hasobject:
            raise LaunchError("an array of Python objects cannot go to a device")
        if not all(leaf.kind in "biufcSV" for leaf in leaves(dtype)):
            raise LaunchError(
                f"an array of type {dtype} is nothing that a kernel can read: numbers, bytes and structs of them are",
                hint="contents.view(np.uint8) are its bytes",
            )
        if not dtype.isnative:
            raise LaunchError(
                f"an array of type {dtype} has its bytes in another order than the devices",
                hint="convert it: contents.astype(contents.dtype.newbyteorder('='))",
            )
        nbytes = dtype.itemsize
        for extent in shape:
            nbytes *= max(extent, 0)
        if nbytes <= 0:
            raise LaunchError(f"an array of shape {shape} has no elements; OpenCL buffers need at least one")
        if nbytes >= 1 << 62:
            raise LaunchError(f"an array of shape {shape} has {nbytes} bytes, more than any device can address")
        self._own(queue.session.buffers.new(nbytes, name))

    def _own(self, buffer: Buffer) -> None:
        """The contents are those of a buffer, which goes when the array does."""
        self.buffer = buffer
        self.argument = BufferArg(buffer.key)
        self._owned = weakref.finalize(self, self.queue.session.buffers.discard, buffer.key)
        self._owned.atexit = False

    @property
    def nbytes(self) -> int:
        return self.buffer.nbytes

    @property
    def size(self) -> int:
        return self.buffer.nbytes // self.dtype.itemsize

    @property
    def name(self) -> str:
        return self.buffer.name

    def use(self, queue: Queue) -> None:
        """The array is about to be enqueued on a queue of the same session: what other queues have enqueued with it
        runs first, and from now on it is this queue's. Raises LaunchError while the array is mapped."""
        while True:
            before = self.queue
            if self.buffer.key in before.mapped:
                raise LaunchError("the array is mapped; leave its `with` block first")
            if before is queue:
                return
            if before.session is not queue.session:
                raise LaunchError("the array belongs to another queue's devices")
            if before.give(self, queue):
                return
            before.finish()

    def get(self, out: AnyArray | None = None) -> AnyArray:
        """The contents as a NumPy array of this shape and type: a new one, or ``out`` (C-contiguous, same shape and
        type, else ResultError). Runs what is enqueued; raises what that raises."""
        if out is not None and not isinstance(out, np.ndarray):
            raise ResultError(f"out must be a NumPy array, not {type(out).__name__}")
        if out is not None and (out.shape != self.shape or out.dtype != self.dtype or not out.flags.c_contiguous):
            raise ResultError(
                f"out has shape {out.shape} and type {out.dtype}; this array is {self.shape} {self.dtype}"
                + ("" if out.flags.c_contiguous else ", and out is not C-contiguous")
            )
        self.queue.finish()
        source = self._view(self.queue.session.buffers.host(self.buffer.key))
        if out is None:
            out = np.empty(self.shape, self.dtype)
        _copy(out, source)
        return out

    def set(self, contents: npt.ArrayLike, *, copy: bool = True) -> None:
        """Replace the contents (same shape; integers must fit the type, floating-point numbers are rounded to it).

        With ``copy=False`` the memory of ``contents`` (same type, C-contiguous) is read in place when a device needs
        it: do not change it until the array has got other contents. It is never written to. Raises ResultError.
        """
        data = np.asarray(contents)
        if data.shape != self.shape:
            raise ResultError(f"contents have shape {data.shape}; this array is {self.shape}")
        if not fits(data, self.dtype):
            raise ResultError(f"contents of type {data.dtype} do not fit an array of {self.dtype}")
        self.queue.finish()
        if copy:
            _copy(self._view(self.queue.session.buffers.overwrite(self.buffer.key)), data)
        elif data.dtype == self.dtype and data.flags.c_contiguous:
            self.queue.session.buffers.borrow(self.buffer.key, as_bytes(data))
        else:
            raise ResultError(f"copy=False needs C-contiguous contents of type {self.dtype}")

    def fill(self, value: npt.ArrayLike) -> None:
        """Make all elements one value of the array's type, when its turn comes: enqueued (:meth:`Queue.fill`), so
        nothing is waited for."""
        self.queue.fill(self, value)

    def exchange(self, other: Array) -> None:
        """Exchange contents with another array of the same shape and type, on any queue of the same devices: nothing is
        copied. Runs what is enqueued first. Raises LaunchError for arrays that do not match, or are mapped."""
        if (self.shape, self.dtype) != (other.shape, other.dtype):
            raise LaunchError(f"{self!r} and {other!r} cannot exchange contents: they differ in shape or type")
        for array in (self, other):
            array.use(self.queue)
        self.queue.finish()
        for array in (self, other):
            array._owned.detach()
        mine, theirs = self.buffer, other.buffer
        self._own(theirs)
        other._own(mine)

    @contextmanager
    def map(self) -> Iterator[AnyArray]:
        """The contents in place, for reading and writing on the host without a copy, while the ``with`` block lasts::

        with a.map() as host:
            host[:] = data
        """
        self.use(self.queue)
        self.queue.finish()
        self.queue.session.buffers.host(self.buffer.key)
        view = self._view(self.queue.session.buffers.overwrite(self.buffer.key))
        self.queue.mapped.add(self.buffer.key)
        try:
            yield view
        finally:
            self.queue.mapped.discard(self.buffer.key)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        if copy is False:
            raise ValueError("the contents of a manycl array cannot be had without a copy; use map()")
        contents = self.get()
        return contents if dtype is None else contents.astype(dtype)

    def __repr__(self) -> str:
        return f"<manycl.Array {self.name or self.buffer.key} {self.shape} {self.dtype}>"

    def _view(self, data: npt.NDArray[np.uint8]) -> AnyArray:
        return data.view(self.dtype).reshape(self.shape)


def fits(data: AnyArray, dtype: np.dtype[Any]) -> bool:
    """Whether conversion to a type loses no more than rounding does."""
    if data.dtype.kind in "iu" and dtype.kind in "iu" and data.size:
        limits = np.iinfo(dtype)
        return bool(limits.min <= int(data.min()) and int(data.max()) <= limits.max)
    return np.can_cast(data.dtype, dtype, "same_kind")


def _copy(target: AnyArray, source: AnyArray) -> None:
    if source.dtype == target.dtype and source.flags.c_contiguous and target.flags.c_contiguous:
        from manycl.run.backends.memory import copy_bytes

        copy_bytes(as_bytes(target), as_bytes(source))
    else:
        np.copyto(target, source, casting="unsafe")  # checked by the caller


def as_bytes(array: AnyArray) -> npt.NDArray[np.uint8]:
    """A C-contiguous array's memory as bytes (no copy)."""
    return array.reshape(-1).view(np.uint8)
