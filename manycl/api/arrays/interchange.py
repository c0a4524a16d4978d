"""Protocols of arrays: Python's of containers and numbers, NumPy's, and DLPack's. A caller that asks for contents by
one of these gets a copy of its own; what is enqueued runs first."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from manycl.api.arrays.host_arrays import as_array
from manycl.errors import LaunchError, ResultError

last_opened: Any = None
"""A weak reference to the queue that was opened last."""


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

    def tolist(self: Any) -> Any:
        """Return the elements as numbers of Python's, in lists."""
        return self.get().tolist()

    def __str__(self: Any) -> str:
        return str(self.get())

    def __format__(self: Any, spec: str) -> str:
        return format(self.item() if not self.shape else self.get(), spec) if spec else str(self)

    def __reduce__(self: Any) -> Any:
        """Pickle the contents: they are loaded into an array of the queue that was opened last."""
        return _loaded, (self.get(),)

    def __copy__(self: Any) -> Any:
        return self.copy()

    def __deepcopy__(self: Any, memo: Any) -> Any:
        return self.copy()

    def __bool__(self: Any) -> bool:
        if self.size != 1:
            raise ValueError("whether an array of several elements is true is not said: use any() or all()")
        return bool(self.item())

    def __float__(self: Any) -> float:
        return float(self.item())

    def __int__(self: Any) -> int:
        return int(self.item())

    def __index__(self: Any) -> int:
        return operator.index(self.item())

    def __complex__(self: Any) -> complex:
        return complex(self.item())

    # Dask

    def as_dask(self: Any) -> Any:
        """Return the contents as they are now as an array of Dask's (``dask.array``), whose chunks are futures and stay
        on the workers that have them. Runs what is enqueued. Raises ResultError where the devices are no workers of a
        Dask cluster."""
        if not any(device.kind == "node" for device in self.queue.session.machine.devices):
            raise ResultError("the devices are no workers of a Dask cluster", hint="mc.Queue(client)")
        from manycl.cluster.dask_arrays import ChunkArray, chunked

        self.queue.finish_for(self.place)
        return chunked(ChunkArray(self.queue.session, self.place, self.shape, self.dtype))

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
        """Call one of NumPy's ufuncs, or its method: on the queue's devices if there are kernels, else on the host."""
        given = (*inputs, *options.get("out", ()), options.get("where"))
        return _queue_of(given).operations.ufunc(ufunc, method, inputs, options)

    def __array_function__(self: Any, function: Any, types: Any, args: Any, options: Any) -> Any:
        """Call one of NumPy's functions (:mod:`manycl.api.functions.functions`)."""
        module = getattr(function, "__module__", "").removeprefix("numpy").removeprefix(".")
        name = f"{module}.{function.__name__}" if module else function.__name__
        return self.queue.operations.call(name, function, args, options)

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


def _queue_of(values: tuple[Any, ...]) -> Any:
    return next(v for v in values if isinstance(v, Interchange)).queue  # type: ignore[attr-defined]


def _loaded(contents: npt.NDArray[Any]) -> Any:
    """Return an array with contents that were pickled, on the queue that was opened last."""
    queue = last_opened() if last_opened is not None else None
    if queue is None:
        raise LaunchError("there is no queue to load an array into", hint="open a queue first")
    return queue.array(contents)


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
