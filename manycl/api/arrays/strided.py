"""Views with gaps: elements of an array that do not follow one another, or none at all."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from manycl.api.arrays.arrays import Array, ArrayView
from manycl.api.arrays.host_arrays import AnyArray, copy_contents
from manycl.errors import LaunchError
from manycl.graph.copies import Place
from manycl.utilities.checked import checked

if TYPE_CHECKING:
    from manycl.graph.graph import BufferArg


@checked("__init__", "get", "on")
class StridedView(ArrayView):
    """A view whose elements have ``strides`` (in bytes, as NumPy's: also negative, or 0). Operations on arrays take it,
    and it can be assigned to; kernels of programs take a ``copy()``, whose elements follow one another."""

    __slots__ = ("_strides",)

    def __init__(
        self, base: Array, shape: tuple[int, ...], offset: int, dtype: np.dtype[Any], strides: tuple[int, ...]
    ) -> None:
        super().__init__(base, shape, offset, dtype)
        self._strides = strides

    @property
    def strides(self) -> tuple[int, ...]:
        return self._strides

    @property
    def extent(self) -> tuple[int, int]:
        reach = [(e - 1) * s for e, s in zip(self.shape, self._strides, strict=True)] if self._nbytes else []
        low = self.offset + sum([r for r in reach if r < 0])
        return low, self.offset + sum([r for r in reach if r > 0]) + self.itemsize * bool(self._nbytes)

    @property
    def layout(self) -> tuple[Array, int, tuple[int, ...]]:
        low, high = self.extent
        if any(s % self.itemsize for s in (*self._strides, high - low)):
            raise LaunchError(f"{self!r}: its elements do not begin at multiples of their size")
        span = ArrayView(self.base, ((high - low) // self.itemsize,), low, self.dtype)
        return span, (self.offset - low) // self.itemsize, tuple([s // self.itemsize for s in self._strides])

    @property
    def argument(self) -> BufferArg:  # type: ignore[override]
        raise self._refused

    @property
    def place(self) -> Place:
        raise self._refused

    @property
    def _refused(self) -> LaunchError:
        what = "its elements do not follow one another" if self._nbytes else "it has no elements"
        return LaunchError(f"{self!r}: {what}", hint="a.copy() has them one after another" if self._nbytes else "")

    def on(self, base: Array) -> StridedView:
        return StridedView(base, self.shape, self.offset, self.dtype, self._strides)

    def get(self, out: AnyArray | None = None) -> AnyArray:
        if self._nbytes:
            return self.copy().get(out)
        if out is not None:
            self.check_out(out)
        return np.empty(self.shape, self.dtype) if out is None else out

    def set(self, contents: npt.ArrayLike, *, copy: bool = True) -> None:
        """Replace the contents, as :meth:`Array.set`, always by a copy; other elements of the array stay."""
        data = np.empty(self.shape, self.dtype)
        copy_contents(data, self.checked(contents, copy=copy))
        self.queue.operations.assign(self, data)

    def fill(self, value: npt.ArrayLike) -> None:
        self.queue.operations.assign(self, np.asarray(value))

    def copy(self) -> Array:
        found: Array = self.queue.operations.copied(self)
        return found

    def __getitem__(self, key: Any) -> Array:
        return self._found(key if isinstance(key, tuple) else (key,))

    def reshape(self, *shape: Any) -> Array:
        """Return a view with another shape where there is one, else a copy, as NumPy does."""
        wanted = np.empty(0).reshape(0).shape if not shape else shape[0] if len(shape) == 1 else shape
        sizes = (wanted,) if isinstance(wanted, int | np.integer) else tuple(wanted)
        if not self._nbytes:
            found = np.empty(self.shape, np.uint8).reshape(sizes).shape
            return StridedView(self.base, found, self.offset, self.dtype, (0,) * len(found))
        return self.copy().reshape(sizes)


def view_like(array: Array, model: AnyArray, first: int) -> ArrayView:
    """Return the view that is to an array what a NumPy view is to its model at an address."""
    offset = array.offset + int(model.__array_interface__["data"][0]) - first if model.size else array.offset
    if model.flags.c_contiguous and model.size:
        return ArrayView(array.owner, model.shape, offset, model.dtype)
    return StridedView(array.owner, model.shape, offset, model.dtype, model.strides)


def nothing(queue: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> StridedView:
    """Return an array without elements."""
    assert not math.prod(shape)
    return StridedView(Array(queue, (1,), dtype, ""), shape, 0, dtype, (0,) * len(shape))
