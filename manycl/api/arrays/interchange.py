"""Arrays as others see them: Python's protocols of containers and numbers, NumPy's, and DLPack's.

Whoever asks for contents by one of these gets a copy, which is the asker's own; it runs what is enqueued first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from manycl.api.arrays.host_arrays import as_array

_CPU = 1  # kDLCPU


class Interchange:
    """What arrays have these protocols from."""

    __slots__ = ()

    # containers and numbers

    def __len__(self: Any) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return int(self.shape[0])

    def __iter__(self: Any) -> Iterator[Any]:
        """The elements, all fetched at once, of an array of one dimension; of others, views of what is along the
        first."""
        if not self.shape:
            raise TypeError("an array without dimensions has nothing to iterate over")
        return iter(self.get()) if len(self.shape) == 1 else (self[i] for i in range(self.shape[0]))

    def __contains__(self: Any, value: Any) -> bool:
        return value in self.get()

    def item(self: Any) -> Any:
        """The only element, as a number of Python's. ValueError where there are more."""
        return self.get().item()

    def __bool__(self: Any) -> bool:
        if self.size != 1:
            raise ValueError("whether an array of several elements is true is not said: ask any() or all() of get()")
        return bool(self.item())

    def __float__(self: Any) -> float:
        return float(self.item())

    def __int__(self: Any) -> int:
        return int(self.item())

    # NumPy

    @property
    def __array_interface__(self: Any) -> dict[str, Any]:
        """A copy of the contents that nobody can write to: who did would not change the array."""
        contents = self.get()
        contents.flags.writeable = False
        told = dict(contents.__array_interface__)
        return told | {"data": contents.reshape(-1).view(np.uint8)}

    def __array__(self: Any, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("the contents of a manycl array cannot be had without a copy; use map()")
        contents: npt.NDArray[Any] = self.get()
        return contents if dtype is None else contents.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's ufuncs: those that there are kernels for (:mod:`manycl.api.arrays.elementwise`) make an array of the
        queue's devices, all others are given the contents."""
        from manycl.api.arrays.arithmetic import apply

        outs = options.get("out", ())
        ours = [isinstance(out, Interchange) for out in outs]
        if method == "__call__" and not options.keys() - {"out"} and len(outs) <= 1 and all(ours):
            found = apply(ufunc, inputs, *outs)
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
        """The contents in the host's memory, for ``from_dlpack`` of NumPy, PyTorch and others: a copy of its own, which
        lives as long as the receiver needs it. Raises BufferError where another device or no copy is wanted."""
        if copy is False:
            raise BufferError("the contents of a manycl array cannot be had without a copy")
        if stream is not None or dl_device not in (None, (_CPU, 0)):
            raise BufferError(f"a manycl array is given away in the host's memory, not on device {dl_device}")
        contents = self.get()
        if max_version is None:
            return contents.__dlpack__()
        try:
            return contents.__dlpack__(max_version=max_version)
        except TypeError:  # NumPy before 2.1
            return contents.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU, 0


def _on_host(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, Interchange) else value


def from_others(contents: Any) -> npt.NDArray[Any]:
    """Contents that are given, as an array of NumPy's, C-contiguous: what NumPy takes, else what exports DLPack."""
    numpys = ("__array__", "__array_interface__", "__array_struct__")
    if hasattr(contents, "__dlpack__") and not any(hasattr(contents, name) for name in numpys):
        contents = np.from_dlpack(contents)
    return as_array(contents, "C")
