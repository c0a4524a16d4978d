"""The part of a queue that makes arrays."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from manycl.api.arrays.arrays import Array
from manycl.api.arrays.host_arrays import as_bytes
from manycl.api.arrays.interchange import are_chunks, from_others
from manycl.errors import ResultError
from manycl.utilities.checked import checked

Shape = int | Sequence[int]


@checked()
class ArrayMaker:
    """The base class of queues with these methods: NumPy's functions of these names, for arrays of the queue."""

    __slots__ = ()
    session: Any
    empty: Any
    first_reads: Any

    @property
    def operations(self) -> Any:
        """The operations on arrays (:mod:`manycl.api.functions.functions`), imported with the first."""
        from manycl.api.functions import functions

        return functions

    def array(self, contents: npt.ArrayLike, *, copy: bool = True, name: str = "") -> Array:
        """Return an array with the contents, shape and type of a NumPy array, or of anything that becomes one or
        exports DLPack from the host's memory. Chunks of Dask's arrays stay on their workers (docs/clusters.md). With
        ``copy=False`` the memory of ``contents`` is read in place when a device needs it: do not change it until the
        array has got other contents. It is never written to."""
        if are_chunks(contents) and any(device.kind == "node" for device in self.session.machine.devices):
            from manycl.api.node import of_chunks

            chunks: Array = of_chunks(self, contents, name)
            return chunks
        data = from_others(contents)
        if not data.size:
            nothing: Array = self.empty(data.shape, data.dtype)
            return nothing
        array = Array(self, data.shape, data.dtype, name, copy)  # type: ignore[arg-type]
        buffers = self.session.buffers
        if copy:
            buffers.copy_in(array.buffer.key, as_bytes(data), self.first_reads)
        else:
            buffers.borrow(array.buffer.key, as_bytes(data))
        return array

    def from_dlpack(self, producer: Any, *, copy: bool = True, name: str = "") -> Array:
        """Return an array with the contents of an object that exports DLPack from the host's memory (an array of
        PyTorch's, JAX's, …); ``copy`` as of ``array``. Raises ResultError for contents elsewhere, or of a type that
        NumPy lacks."""
        try:
            data = np.from_dlpack(producer)
        except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
            raise ResultError(f"{type(producer).__name__} gives no contents by DLPack: {error}") from None
        return self.array(data, copy=copy, name=name)

    def zeros(self, shape: int | Sequence[int], dtype: npt.DTypeLike = np.float32, *, name: str = "") -> Array:
        """Return an array of zeros."""
        from manycl.run.data.host_memory import clear_bytes  # run/ is imported when a queue opens devices

        wanted = shape_of(shape)
        if 0 in wanted:
            nothing: Array = self.empty(wanted, dtype)
            return nothing
        array = Array(self, wanted, np.dtype(dtype), name, True)  # type: ignore[arg-type]
        clear_bytes(self.session.buffers.overwrite(array.buffer.key))
        return array

    def full(self, shape: Shape, fill_value: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Array:
        """Return an array all elements of which are one value; its type is the value's unless one is given."""
        value = np.asarray(fill_value)
        array: Array = self.operations.full(self, shape_of(shape), value, np.dtype(dtype or value.dtype))
        return array

    def ones(self, shape: Shape, dtype: npt.DTypeLike = np.float32) -> Array:
        """Return an array of ones."""
        return self.full(shape, 1, dtype)

    def arange(
        self, start: float, stop: float | None = None, step: float = 1, dtype: npt.DTypeLike | None = None
    ) -> Array:
        """Return the numbers from ``start`` up to ``stop``, which is left out, as ``numpy.arange``."""
        begin, end = (0, start) if stop is None else (start, stop)
        of = np.dtype(dtype or np.result_type(np.asarray(begin), np.asarray(end), np.asarray(step)))
        count = max(0, math.ceil((end - begin) / step))
        number: Any = of.type
        first = number(begin)
        apart = number(begin + step) - first
        counted: Array = self.operations.counted(self, (count,), (1,))
        found: Array = counted.astype(of, copy=False) * apart + first
        return found

    def linspace(
        self, start: float, stop: float, num: int = 50, endpoint: bool = True, dtype: npt.DTypeLike = np.float64
    ) -> Array:
        """Return ``num`` numbers at equal distances, as ``numpy.linspace``."""
        parts = num - 1 if endpoint else num
        wide: Array = self.operations.counted(self, (num,), (1,)).astype(np.float64)
        found: Array = wide * ((stop - start) / parts) + start if parts > 0 else wide + start
        if endpoint and num > 1:
            found[-1:] = float(stop)
        return found.astype(dtype, copy=False)

    def eye(self, n: int, m: int | None = None, k: int = 0, dtype: npt.DTypeLike = np.float32) -> Array:
        """Return a matrix with ones on a diagonal."""
        rows = self.operations.counted(self, (n, 1), (1, 0))
        found: Array = (self.operations.counted(self, (1, n if m is None else m), (0, 1)) - rows == k).astype(dtype)
        return found

    def default_rng(self, seed: int | None = None) -> Any:
        """Return a generator of random numbers (:class:`manycl.api.functions.random.Generator`)."""
        from manycl.api.functions.random import Generator  # few programs need it

        return Generator(self, seed)


def shape_of(shape: Shape) -> tuple[int, ...]:
    """Return a shape as a tuple."""
    return (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(map(operator.index, shape))
