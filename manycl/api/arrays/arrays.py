"""Arrays: buffers with a shape and a type, whose contents stay where they were last computed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from manycl.api.arrays.host_arrays import READABLE, AnyArray, as_array, as_bytes, check_readable, copy_contents, fits
from manycl.api.arrays.interchange import Interchange
from manycl.api.arrays.operators import ArrayOperators
from manycl.errors import ArgumentError, LaunchError, ResultError
from manycl.graph.copies import Place
from manycl.graph.graph import Buffer, BufferArg, Owned
from manycl.units import show_bytes
from manycl.utilities.checked import checked

if TYPE_CHECKING:
    from manycl.api.arrays.array_queue import ArrayQueue as Queue


LARGE = 1 << 18
"""Bytes from which on new memory for a result costs more than finding memory that is not needed any more; our own
choice."""


Extents = tuple[object, object, tuple[int, ...], np.dtype[Any], int]
"""A shape and a type as the call gave them; the shape, the type, and the bytes."""


def size_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return the bytes of an array. Raises LaunchError for a shape or type that no array has."""
    if dtype not in READABLE:
        check_readable(dtype)
    nbytes = dtype.itemsize
    for extent in shape:
        nbytes *= max(extent, 0)
    if nbytes <= 0:
        raise LaunchError(f"an array of shape {shape} has no elements; OpenCL buffers need at least one")
    return nbytes


@checked("__init__", "check_out", "checked", "get", "meets", "new", "use")  # (``get`` has ``check_out``)
class Array(ArrayOperators, Interchange):
    """An n-dimensional array on all devices of a queue. Made by ``Queue.array``, ``empty`` and ``zeros``. Asking for
    its contents (``get``, ``map``, ``numpy.asarray``) runs what is enqueued first. ``a[2:5]``, ``a[3]`` and
    ``a.reshape(…)`` are views: elements of the array that follow one another; they can be used wherever arrays can. ``a
    + b`` and the like enqueue generated kernels, and are arrays; assigning to ``a[2:5]`` enqueues a write, copy or
    fill."""

    __slots__ = ("__weakref__", "_owned", "argument", "buffer", "dtype", "queue", "shape")
    offset: int = 0
    """The first byte of the array in its buffer."""

    def __init__(
        self, queue: Queue, shape: tuple[int, ...], dtype: np.dtype[Any], name: str, on_host: bool = False
    ) -> None:
        self.queue = queue
        self.shape = shape
        self.dtype = dtype
        nbytes = size_of(shape, dtype)
        queue.make_room(nbytes)
        self._own(queue.session.buffers.new(nbytes, name, on_host))

    @classmethod
    def new(cls, queue: Queue, extents: Extents, name: str) -> Array:
        """Return an array with undefined contents, of extents that were checked."""
        array = cls.__new__(cls)
        array.queue = queue
        _, _, array.shape, array.dtype, nbytes = extents
        queue.make_room(nbytes)
        array._owned = owned = queue.session.buffers.new(nbytes, name)
        array.buffer, array.argument = owned
        return array

    def _own(self, owned: Owned) -> None:
        """Take a buffer for the contents; it goes when the array does."""
        self._owned = owned
        self.buffer, self.argument = owned

    def __del__(self) -> None:
        try:  # noqa: SIM105 (which takes a third of a microsecond)
            self.queue.session.buffers.leave(self._owned)
        except AttributeError:  # the constructor failed before it had a buffer
            pass

    @property
    def nbytes(self) -> int:
        return self.buffer.nbytes

    @property
    def size(self) -> int:
        return self.nbytes // self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from an element to the next along each dimension; elements are in C order."""
        return tuple(self.itemsize * math.prod(self.shape[axis + 1 :]) for axis in range(self.ndim))

    @property
    def owner(self) -> Array:
        """The array whose buffer it is: itself, or the array that it is a view of."""
        return self

    @property
    def place(self) -> Place:
        """The bytes of the buffer that are the array's."""
        return Place(self.buffer, self.offset, self.nbytes)

    @property
    def name(self) -> str:
        return self.buffer.name

    def meets(self, other: Array) -> bool:
        """Return True if two arrays have bytes in common."""
        apart = self.offset + self.nbytes <= other.offset or other.offset + other.nbytes <= self.offset
        return self.buffer == other.buffer and not apart

    def use(self, queue: Queue) -> None:
        """Make the array belong to a queue of the same session, on which it is about to be enqueued: what other queues
        have enqueued with it runs first. Raises LaunchError while the array is mapped."""
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
        """Return the contents as a NumPy array of this shape and type: a new one, or ``out`` (C-contiguous, same shape
        and type, else ResultError). Runs what is enqueued; raises what that raises."""
        if out is not None:
            self.check_out(out)
        whole, low, nbytes = place = self.place
        self.queue.finish_for(place)
        buffers = self.queue.session.buffers
        if out is None and nbytes >= LARGE:
            return buffers.result(whole.key, low, nbytes).view(self.dtype).reshape(self.shape)
        source = self._view(buffers.host(whole.key, low, nbytes))
        if out is None:
            return source.copy()
        copy_contents(out, source)
        return out

    def check_out(self, out: AnyArray) -> None:
        """Raise ResultError for a NumPy array that cannot take the contents, ArgumentError for anything else."""
        if not isinstance(out, np.ndarray):
            raise ArgumentError(f"Array.get: out is a NumPy array, not {out!r:.60}")
        if out.shape != self.shape or out.dtype != self.dtype or not out.flags.c_contiguous:
            raise ResultError(
                f"out has shape {out.shape} and type {out.dtype}; this array is {self.shape} {self.dtype}"
                + ("" if out.flags.c_contiguous else ", and out is not C-contiguous")
            )

    def set(self, contents: npt.ArrayLike, *, copy: bool = True) -> None:
        """Replace the contents (same shape; integers must fit the type, floating-point numbers are rounded to it). With
        ``copy=False`` the memory of ``contents`` (same type, C-contiguous) is read in place when a device needs it: do
        not change it until the array has got other contents. It is never written to. Raises ResultError."""
        data = self.checked(contents, copy=copy)
        self.queue.finish()
        if copy:
            copy_contents(self._view(self.queue.session.buffers.overwrite(self.buffer.key)), data)
        else:
            self.queue.session.buffers.borrow(self.buffer.key, as_bytes(data))

    def checked(self, contents: npt.ArrayLike, *, copy: bool) -> AnyArray:
        """Return contents that the array may be given, as a NumPy array; contents that are read in place (``copy``
        False) have to be just its bytes. Raises ResultError."""
        data = as_array(contents)
        if data.shape != self.shape:
            raise ResultError(f"contents have shape {data.shape}; this array is {self.shape}")
        if not fits(data, self.dtype):
            raise ResultError(f"contents of type {data.dtype} do not fit an array of {self.dtype}")
        if not copy and not (data.dtype == self.dtype and data.flags.c_contiguous):
            raise ResultError(f"copy=False needs C-contiguous contents of type {self.dtype}")
        return data

    def fill(self, value: npt.ArrayLike) -> None:
        """Enqueue a fill (:meth:`Queue.fill`) that makes all elements one value; waits for nothing."""
        self.queue.fill(self, value)

    def exchange(self, other: Array) -> None:
        """Exchange contents with another array of the same shape and type, on any queue of the same devices: nothing is
        copied. Runs what is enqueued first. Raises LaunchError for arrays that do not match, or are mapped."""
        if isinstance(self, ArrayView) or isinstance(other, ArrayView):
            raise LaunchError("a view cannot exchange contents with anything: its array can")
        if (self.shape, self.dtype) != (other.shape, other.dtype):
            raise LaunchError(f"{self!r} and {other!r} cannot exchange contents: they differ in shape or type")
        for array in (self, other):
            array.use(self.queue)
        self.queue.finish()
        mine, theirs = self._owned, other._owned
        self._own(theirs)
        other._own(mine)

    @contextmanager
    def map(self) -> Iterator[AnyArray]:
        """Give the contents in place, for reading and writing on the host without a copy, while the ``with`` block
        lasts::

            with a.map() as host:
                host[:] = data
        """
        self.use(self.queue)
        self.queue.finish()
        view = self._view(self.queue.session.buffers.overwrite(self.buffer.key, keeps=True))
        self.queue.mapped.add(self.buffer.key)
        try:
            yield view
        finally:
            self.queue.mapped.discard(self.buffer.key)

    def __getitem__(self, key: Any) -> ArrayView:
        """Return the elements that ``key`` names (integers, slices, ``…``), as for a NumPy array: a view, whose
        contents are the array's. Raises LaunchError for none and for gaps; IndexError as NumPy does."""
        found = plain_part(self.shape, self.itemsize, key if type(key) is tuple else (key,))
        if found is not None:
            shape, first = found
            return ArrayView(self.owner, shape, self.offset + first, self.dtype)
        parts = key if isinstance(key, tuple) else (key,)
        for part in parts:
            if part is not Ellipsis and (isinstance(part, bool) or not isinstance(part, int | np.integer | slice)):
                raise LaunchError(
                    f"a part of an array is named by integers and slices, not by {part!r:.60}",
                    hint="a kernel, or a host function (Queue.call), can collect elements",
                )
        whole = () if Ellipsis in parts else (Ellipsis,)  # or NumPy would look at a single element
        model = self._model()
        try:
            part = model[(*parts, *whole)]
        except TypeError as error:
            raise LaunchError(f"{self!r}[{key!r:.60}]: {error}") from None
        return self._part(part, model.ctypes.data, f"[{key!r:.60}]")

    def reshape(self, *shape: Any) -> ArrayView:
        """Return a view with another shape, as of a NumPy array. Raises LaunchError for another number of elements."""
        try:
            model = self._model()
            return self._part(model.reshape(*shape), model.ctypes.data, f".reshape{shape}")
        except (TypeError, ValueError) as error:
            raise LaunchError(f"{self!r}: {error}") from None

    def _model(self) -> AnyArray:
        """Return a NumPy array of this shape, without memory of that size: its elements may not be read."""
        one = np.empty(1, self.dtype)
        return np.lib.stride_tricks.as_strided(one, self.shape, self.strides, writeable=False)

    def _part(self, model: AnyArray, first: int, words: str) -> ArrayView:
        """Return the view that is to this array what a NumPy view is to its :meth:`_model` at an address."""
        if not model.size:
            raise LaunchError(f"{self!r}{words} has no elements; OpenCL buffers need at least one")
        if not model.flags.c_contiguous:
            raise LaunchError(
                f"{self!r}{words}: its elements do not follow one another",
                hint="a view is a part of an array without gaps, such as a[i:j]; of others, call a kernel on the array",
            )
        return ArrayView(self.owner, model.shape, self.offset + model.ctypes.data - first, model.dtype)

    def view(self, dtype: npt.DTypeLike) -> ArrayView:
        """Return the same bytes as elements of another type, as for a NumPy array: a view, whose last dimension has
        more or fewer elements where the types differ in size. Raises LaunchError where that cannot be."""
        wanted = np.dtype(dtype)
        check_readable(wanted)
        try:
            model = self._model()
            return self._part(model.view(wanted), model.ctypes.data, f".view({wanted})")
        except (ValueError, TypeError) as error:
            raise LaunchError(f"{self!r} as {wanted}: {error}") from None

    def copy(self) -> Array:
        """Enqueue a copy, and return it: another array, with the contents of this one at the copy's turn."""
        other = self.queue.empty(self.shape, self.dtype, name=self.name and f"copy of {self.name}")
        self.queue.copy(other, self)
        return other

    def astype(self, dtype: npt.DTypeLike, *, copy: bool = True) -> Array:
        """Return the elements converted to another type, as by NumPy's ``astype``, in an array of their own; with
        ``copy=False`` the array itself where it has that type. Raises TypeError for types unknown to OpenCL C."""
        wanted = np.dtype(dtype)
        if wanted == self.dtype:
            return self.copy() if copy else self
        found: Array = self.queue.operations.converted(self, wanted)
        return found

    def transpose(self, *axes: Any) -> Array:
        """Return a copy with the dimensions in another order (dimension i is ``axes[i]`` of this; default: reversed),
        made by a kernel (NumPy's is a view: here, elements follow one another). Raises ValueError."""
        try:  # NumPy puts the numbers of the dimensions in that order
            order = np.empty(tuple(range(self.ndim))).transpose(*axes).shape
        except (TypeError, ValueError) as error:
            raise ValueError(f"{axes!r:.80} are not the {self.ndim} dimensions of {self!r}: {error}") from None
        found: Array = self.queue.operations.transposed(self, order)
        return found

    @property
    def T(self) -> ArrayView:  # noqa: N802 (NumPy's name)
        """A view with the dimensions reversed, where that needs no copy. Raises LaunchError for other arrays."""
        if sum(extent > 1 for extent in self.shape) > 1:
            raise LaunchError(f"{self!r}.T would be no part of an array without gaps", hint="transpose() makes a copy")
        return self.reshape(self.shape[::-1])

    def __setitem__(self, key: Any, value: Any) -> None:
        """Enqueue new contents for some elements, named as for a view: a fill, a write of what NumPy makes of
        ``value``, or a copy of an array, converted where the types differ, broadcast where the shapes do. Raises
        LaunchError and ResultError."""
        self.queue.operations.assign(self[key], value)

    def _repr_html_(self) -> str:
        """Return what the array is and where; not its contents, which would run what is enqueued."""
        from manycl.report.notebook import fields  # only notebooks need it

        session = self.queue.session
        where = sorted(session.directory.memories(self.buffer.key))
        names = ", ".join(session.machine.memory_name(memory) for memory in where)
        rows = [
            ("shape", " x ".join(map(str, self.shape)) or "one element"),
            ("type", str(self.dtype)),
            ("bytes", show_bytes(self.nbytes)),
            ("contents, after the last run", f"in the memory of {names}" if names else "undefined"),
            *([("begins", f"at byte {self.offset} of {self.owner!r}")] if self.owner is not self else []),
        ]
        return fields(repr(self), rows)

    def __repr__(self) -> str:
        return f"<manycl.Array {self.name or self.buffer.key} {self.shape} {self.dtype}>"

    def _view(self, data: npt.NDArray[np.uint8]) -> AnyArray:
        return data.view(self.dtype).reshape(self.shape)


@checked("__init__", "use")
class ArrayView(Array):
    """A view of array ``base``: made by indexing it, or by ``reshape``. It has no contents of its own: where the array
    exchanges contents with another one, the view is of those."""

    __slots__ = ("_nbytes", "base", "offset")

    def __init__(self, base: Array, shape: tuple[int, ...], offset: int, dtype: np.dtype[Any]) -> None:
        self.base = base
        self.shape = shape
        self.dtype = dtype
        self.offset = offset
        self._nbytes = dtype.itemsize * math.prod(shape)

    @property
    def queue(self) -> Queue:  # type: ignore[override]
        return self.base.queue

    @property
    def buffer(self) -> Buffer:  # type: ignore[override]
        return self.base.buffer

    @property
    def argument(self) -> BufferArg:  # type: ignore[override]
        buffer = self.base.buffer
        if self._nbytes == buffer.nbytes:
            return self.base.argument
        return BufferArg(buffer.key, self.offset, self._nbytes)

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def owner(self) -> Array:
        return self.base

    def __del__(self) -> None:
        """Do nothing: the buffer is the array's."""

    def use(self, queue: Queue) -> None:
        self.base.use(queue)

    def set(self, contents: npt.ArrayLike, *, copy: bool = True) -> None:
        """Replace the contents, as :meth:`Array.set`, always by a copy; other elements of the array stay."""
        data = self.checked(contents, copy=copy)
        self.queue.finish()
        place = self.queue.session.buffers.overwrite(self.buffer.key, self.offset, self._nbytes)
        copy_contents(self._view(place), data)

    def __repr__(self) -> str:
        return f"<view of {self.base!r} from byte {self.offset} on, {self.shape}>"

    def _view(self, data: npt.NDArray[np.uint8]) -> AnyArray:
        mine = data if len(data) == self._nbytes else data[self.offset : self.offset + self._nbytes]
        return mine.view(self.dtype).reshape(self.shape)


# Views by integers and slices without steps, as most are: found without NumPy, in 2 us.


def plain_part(shape: tuple[int, ...], itemsize: int, parts: tuple[Any, ...]) -> tuple[tuple[int, ...], int] | None:
    """Return the shape of a view, and the byte of the array that it begins with. None for keys that NumPy has to
    interpret (steps, ``...``, other integers than Python's), elements with gaps, none, and wrong keys."""
    if len(parts) > len(shape):
        return None
    first, step, extents, is_many = 0, math.prod(shape) * itemsize, list[int](), False
    for part, whole in zip(parts, shape, strict=False):
        if type(part) is int:
            start, extent = part + whole if part < 0 else part, 1
            if not 0 <= start < whole:
                return None
        elif type(part) is slice:
            try:
                start, end, stride = part.indices(whole)
            except TypeError:
                return None
            extent = end - start
            if stride != 1 or extent <= 0:
                return None
            extents.append(extent)
        else:
            return None
        if is_many and extent != whole:
            return None  # its elements do not follow one another
        is_many = is_many or extent > 1
        step //= whole
        first += start * step
    return (*extents, *shape[len(parts) :]), first
