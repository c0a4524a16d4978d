"""Random numbers on a queue's devices. They are a function of the seed and of how many were drawn before: the same on
all devices, however the work is divided."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from manycl.api.arrays.arithmetic import computed, counted
from manycl.api.arrays.arrays import Array
from manycl.api.arrays.creation import shape_of
from manycl.api.arrays.deferred import Number
from manycl.utilities.checked import checked

_U8 = np.dtype(np.uint64)
Shape = int | Sequence[int]


@checked("__init__")
class Generator:
    """A generator of random numbers: Philox4x64-10 (Salmon et al., SC 2011), as NumPy's. ``random()`` gives the numbers
    of ``numpy.random.Generator(numpy.random.Philox(seed))``."""

    def __init__(self, queue: Any, seed: int | None = None) -> None:
        self._queue = queue
        self._keys = [Number(key, _U8) for key in np.random.Philox(seed).state["state"]["key"]]
        self._drawn = 0

    def bits(self, size: Shape) -> Array:
        """Return random integers of 64 bits."""
        shape = shape_of(size)
        count = math.prod(shape)
        first = Number(self._drawn, _U8)
        self._drawn += count
        steps = tuple([math.prod(shape[a + 1 :]) for a in range(len(shape))])
        index = counted(self._queue, shape, steps).astype(_U8)
        index = computed(self._queue, "add", [index, first], (_U8, _U8), _U8, shape)
        return computed(self._queue, "philox", [index, *self._keys], (_U8,) * 3, _U8, shape)

    def random(self, size: Shape = (), dtype: npt.DTypeLike = np.float64) -> Array:
        """Return numbers of [0, 1), evenly spread: of 24 bits in float32, else of 53."""
        of = np.dtype(dtype)
        digits = 24 if of == np.float32 else 53
        wide = (self.bits(size) >> np.uint64(64 - digits)).astype(of if digits == 24 else np.float64)
        found: Array = wide * wide.dtype.type(0.5**digits)
        return found.astype(of, copy=False)

    def uniform(self, low: float = 0.0, high: float = 1.0, size: Shape = ()) -> Array:
        """Return numbers of [low, high), evenly spread."""
        found: Array = self.random(size) * (high - low) + low
        return found

    def normal(
        self, loc: float = 0.0, scale: float = 1.0, size: Shape = (), dtype: npt.DTypeLike = np.float64
    ) -> Array:
        """Return numbers of a normal distribution (by Box and Muller's transformation)."""
        radius = np.sqrt(-2.0 * np.log1p(-self.random(size)))
        found: Array = radius * np.cos(2 * math.pi * self.random(size)) * scale + loc
        return found.astype(dtype, copy=False)

    def standard_normal(self, size: Shape = (), dtype: npt.DTypeLike = np.float64) -> Array:
        """Return numbers of the normal distribution around 0 of variance 1."""
        return self.normal(0.0, 1.0, size, dtype)

    def integers(
        self,
        low: int,
        high: int | None = None,
        size: Shape = (),
        dtype: npt.DTypeLike = np.int64,
        endpoint: bool = False,
    ) -> Array:
        """Return integers of [low, high), or of [0, low); each is as likely as any other, to 2**-64 of their number."""
        begin, end = (0, low) if high is None else (low, high)
        count = end - begin + endpoint
        if not 0 < count < 1 << 63:
            raise ValueError(f"there are no such integers from {begin} to {end}")
        bits = self.bits(size)
        found = computed(self._queue, "mul_hi", [bits, Number(count, _U8)], (_U8, _U8), _U8, bits.shape)
        moved: Array = found.astype(np.int64) + begin
        return moved.astype(dtype, copy=False)

    def permutation(self, x: int | Array) -> Array:
        """Return the integers up to a number, or an array's elements along the first dimension, in any order."""
        order: Array = np.argsort(self.bits(x if isinstance(x, int) else x.shape[0]))  # type: ignore[assignment]
        return order if isinstance(x, int) else x[order]
