"""Protocols of arrays: Python's of containers and numbers, NumPy's, and DLPack's. A caller that asks for contents by
one of these gets a copy of its own; what is enqueued runs first."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from manycl.api.arrays.host_arrays import as_array
from manycl.errors import ResultError


class Interchange:
    """The base class of arrays with these protocols."""

    __slots__ = ()

    # containers and numbers

    def __len__(self: Any) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return int(self.shape[0])

    def __iter__(self: Any) -> Iterator[Any]:
        """Iterate over the elements of a 1-d array, fetched at once; of others over views along the first dimension."""
        if not self.shape:
            raise TypeError("an array without dimensions has nothing to iterate over")
        return iter(self.get()) if len(self.shape) == 1 else (self[i] for i in range(self.shape[0]))

    def __contains__(self: Any, value: Any) -> bool:
        return value in self.get()

    def item(self: Any) -> Any:
        """Return the only element, as a number of Python's. Raises ValueError where there are more."""
        return self.get().item()

    def __bool__(self: Any) -> bool:
        if self.size != 1:
            raise ValueError("whether an array of several elements is true is not said: ask any() or all() of get()")
        return bool(self.item())

    def __float__(self: Any) -> float:
        return float(self.item())

    def __int__(self: Any) -> int:
        return int(self.item())

    # Dask

    def as_dask(self: Any) -> Any:
        """Return the contents as they are now as an array of Dask's (``dask.array``), whose chunks are futures and stay
        on the workers that have them. Runs what is enqueued. Raises ResultError where the devices are no workers of a
        Dask cluster."""
        if not any(device.kind == "node" for device in self.queue.session.machine.devices):
            raise ResultError("the devices are no workers of a Dask cluster", hint="mc.Queue(client)")
        from manycl.api.node import as_chunks

        return as_chunks(self)

    # NumPy

    @property
    def __array_interface__(self: Any) -> dict[str, Any]:
        """A read-only copy of the contents: writing to it would not change the array."""
        contents = self.get()
        contents.flags.writeable = False
        told = dict(contents.__array_interface__)
        return told | {"data": contents.reshape(-1).view(np.uint8)}

    def __array__(self: Any, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("the contents of a manycl array cannot be had without a copy; use map()")
        contents: npt.NDArray[Any] = self.get()
        return contents if dtype is None else contents.astype(dtype, copy=False)

    def __array_ufunc__(self: Any, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Call one of NumPy's ufuncs: one that has kernels (:mod:`manycl.api.arrays.elementwise`) makes an array on the
        queue's devices, others are given the contents."""
        outs = options.get("out", ())
        ours = [isinstance(out, Interchange) for out in outs]
        if method == "__call__" and not options.keys() - {"out"} and len(outs) <= 1 and all(ours):
            found = self.queue.operations.apply(ufunc, inputs, *outs)
            if found is not NotImplemented:
                return found
        if any(ours):
            return NotImplemented
        given = {key: _on_host(value) for key, value in options.items()}
        return getattr(ufunc, method)(*map(_on_host, inputs), **given)

    # DLPack

    def __dlpack__(
        self: Any,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return the contents in the host's memory, for ``from_dlpack`` of NumPy, PyTorch and others: a copy, which
        lives as long as the receiver needs it. Raises BufferError where another device or no copy is wanted."""
        if copy is False:
            raise BufferError("the contents of a manycl array cannot be had without a copy")
        if stream is not None or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError(f"a manycl array is given away in the host's memory, not on device {dl_device}")
        contents = self.get()
        if max_version is None:
            return contents.__dlpack__()
        try:
            return contents.__dlpack__(max_version=max_version)
        except TypeError:  # NumPy before 2.1
            return contents.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return np.empty(0).__dlpack_device__()


def _on_host(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, Interchange) else value


def are_chunks(contents: Any) -> bool:
    """Return whether contents are an array of Dask's."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(contents, module.Array)


def from_others(contents: Any) -> npt.NDArray[Any]:
    """Return the user's contents as a C-contiguous NumPy array: of what NumPy accepts, else of what exports DLPack."""
    numpys = ("__array__", "__array_interface__", "__array_struct__")
    if hasattr(contents, "__dlpack__") and not any(hasattr(contents, name) for name in numpys):
        contents = np.from_dlpack(contents)
    return as_array(contents, "C")
