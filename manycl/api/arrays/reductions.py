"""Reductions of arrays: sums, means, least and greatest elements and inner products, with NumPy's types and shapes, by
kernels on all devices. Nothing is waited for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from manycl.api.arrays import elementwise, folding
from manycl.api.arrays.arrays import Array
from manycl.api.arrays.elementwise import DType
from manycl.api.arrays.folding import EACH, FoldForm
from manycl.group_range import GROUP


def reduced(
    name: str, array: Array, axis: Any, dtype: npt.DTypeLike | None, out: Array | None, keepdims: bool = False
) -> Array:
    """Enqueue the sum (``sum``), least (``min``) or greatest element (``max``) of an array, or of each of its lines
    along an axis. Raises what NumPy raises: TypeError for types, ValueError for axes and shapes."""
    one: Any = getattr(np.ones(1, array.dtype), name)
    _check_known(name, dtype)
    return _into(name, (array,), axis, one(dtype=dtype).dtype if name == "sum" else one().dtype, out, keepdims)


def mean(array: Array, axis: Any, dtype: npt.DTypeLike | None, out: Array | None, keepdims: bool = False) -> Array:
    """Enqueue the sum over the count; of integers in float64, of half in float."""
    _check_known("mean", dtype)
    wanted = np.ones(1, array.dtype).mean(dtype=dtype).dtype
    if wanted.kind != "f":
        raise TypeError(f"a mean is no {wanted}")
    total = _into("sum", (array,), axis, folding.accumulated(wanted), None, keepdims)
    result: Array = total / (array.size // total.size)
    if out is not None:
        _check(out, result.shape, wanted)
        out[...] = result
        return out
    return result.astype(wanted, copy=False)


def dot(a: Array, b: Array) -> Array:
    """Enqueue the inner product of two arrays of one dimension and of equal lengths: an array of shape ``()``, with the
    type of NumPy's ``dot``. Raises ValueError for other shapes, TypeError for types that there are no kernels for."""
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"shapes {a.shape} and {b.shape} are not those of two vectors of one length")
    return _into("dot", (a, b), None, np.dot(np.ones(1, a.dtype), np.ones(1, b.dtype)).dtype, None, False)


def _into(name: str, arrays: tuple[Array, ...], axis: Any, result: DType, out: Array | None, keepdims: bool) -> Array:
    _check_known(name, result, *(a.dtype for a in arrays))
    shape = arrays[0].shape
    outer, inner, left = 1, 1, tuple[int, ...]()
    if axis is not None:
        at = _axis(axis, shape)
        outer, inner = math.prod(shape[:at]), math.prod(shape[at + 1 :])
        left = (*shape[:at], *[1] * keepdims, *shape[at + 1 :])
    elif keepdims:
        left = (1,) * len(shape)
    if out is not None:
        _check(out, left, result)
    target = arrays[0].queue.empty(left, result) if out is None or any(a.meets(out) for a in arrays) else out
    _fold(name, arrays, (outer, arrays[0].size // (outer * inner), inner), target)
    if out is not None and target is not out:
        arrays[0].queue.copy(out, target)
    return target if out is None else out


def _check_known(name: str, *dtypes: npt.DTypeLike | None) -> None:
    for dtype in dtypes:
        if dtype is not None and not elementwise.is_known(np.dtype(dtype)):
            raise TypeError(f"there is no kernel for {name} of {np.dtype(dtype)}")


def _axis(axis: int, shape: tuple[int, ...]) -> int:
    if not -len(shape) <= axis < len(shape):
        raise np.exceptions.AxisError(axis, len(shape))
    return axis % len(shape)


def _check(out: Array, shape: tuple[int, ...], dtype: DType) -> None:
    if out.shape != shape or out.dtype != dtype:
        raise ValueError(f"the result has shape {shape} and type {dtype}; out is {out.shape} {out.dtype}")


def _fold(name: str, arrays: Sequence[Array], shape: tuple[int, int, int], target: Array) -> None:
    """Enqueue the reduction of arrays, seen as of three dimensions, along the middle one, into an array of as many
    elements as the others have: block by block, and then the blocks."""
    outer, count, inner = shape
    loop = folding.accumulated(target.dtype)
    queue, is_strided = target.queue, inner > 1
    while True:
        blocks = -(-count // (GROUP if is_strided else GROUP * EACH))
        result = target if blocks == 1 else queue.empty(outer * blocks * inner, loop)
        kernel = folding.kernel(FoldForm(name, tuple(a.dtype for a in arrays), loop, result.dtype, is_strided))
        if is_strided:
            local = min(GROUP, 1 << (inner - 1).bit_length())
            size = -(-inner // local) * local, blocks, outer
            kernel(queue, size, (local, 1, 1), result, *arrays, count, blocks, inner)
        else:
            kernel(queue, (GROUP * blocks, outer), (GROUP, 1), result, *arrays, count, blocks)
        if blocks == 1:
            return
        arrays, count = (result,), blocks
        name = "sum" if name == "dot" else name
