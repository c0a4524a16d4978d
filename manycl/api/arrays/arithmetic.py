"""Operations on arrays, element by element and reductions, with NumPy's types, shapes and memory, on all devices. An
operand is an array of the queue's devices, one of NumPy's (which is copied), or a number. Types are promoted and shapes
broadcast as NumPy 2 does, nothing is waited for, and the result is a new array, or one that is given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manycl.api.arrays import elementwise
from manycl.api.arrays.arrays import Array, ArrayView
from manycl.api.arrays.elementwise import EACH, DType, FoldForm, KernelForm
from manycl.api.arrays.host_arrays import as_array
from manycl.errors import LaunchError, ResultError
from manycl.graph.copies import PATTERNS
from manycl.group_range import GROUP

_DIMENSIONS = 3  # of an NDRange, at most (clEnqueueNDRangeKernel)


class _Scalar(NamedTuple):
    value: Any
    dtype: DType | type  # int and float are weak types, as in NumPy 2
    shape: tuple[int, ...] = ()


_Operand = Array | _Scalar


def apply(ufunc: np.ufunc, inputs: Sequence[Any], out: Array | None = None) -> Any:
    """Return the result of one of NumPy's ufuncs on operands, of which at least one, or ``out``, is an array. ``out``:
    the array that takes the result (as for NumPy: of the shape of the result, and a type that it may be cast to by
    ``same_kind``). Returns NotImplemented for a ufunc without kernels, and for operands that are no numbers. Raises
    what NumPy raises (TypeError, ValueError, OverflowError), and LaunchError for shapes of more than three dimensions
    that cannot be seen as fewer."""
    name = "absolute" if ufunc.__name__ == "abs" else ufunc.__name__
    if name not in elementwise.OPERATIONS:
        return NotImplemented
    queue = next(a.queue for a in (*inputs, out) if isinstance(a, Array))
    operands: list[_Operand] = []
    for value in inputs:
        operand = value if isinstance(value, Array) else _operand(queue, value)
        if operand is None:
            return NotImplemented
        operands.append(operand)
    if name in elementwise.COMPARISONS and (beyond := _beyond(name, operands)) is not None:
        return _filled(queue, operands, beyond)
    *loop, result = _resolved(ufunc, operands)
    shape = np.broadcast_shapes(*[o.shape for o in operands])
    if name == "power" and isinstance(operands[1], _Scalar) and loop[1].kind == "i" and operands[1].value < 0:
        raise ValueError("Integers to negative integer powers are not allowed.")
    if out is None:
        target = queue.empty(shape, result)
    else:
        target = out
        if out.shape != shape:
            raise ValueError(f"an array of shape {out.shape} cannot take a result of shape {shape}")
        if not np.can_cast(result, out.dtype, "same_kind"):
            raise TypeError(f"{name}: a result of type {result} cannot become {out.dtype} (by 'same_kind')")
    _launch(name, operands, tuple(loop), target)
    return target


def converted(array: Array, dtype: DType, out: Array | None = None) -> Array:
    """Return the elements as another type, by C's conversions (NumPy's ``unsafe``): a new array, or ``out``, to whose
    shape they are broadcast."""
    for one in (array.dtype, dtype):
        if not elementwise.is_known(one):
            raise TypeError(f"there is no kernel that converts {array.dtype} to {dtype}")
    target = array.queue.empty(array.shape, dtype) if out is None else out
    _launch("convert", [array], (array.dtype,), target)
    return target


def transposed(array: Array, axes: Sequence[int]) -> Array:
    """Return a copy of an array whose axis ``i`` is axis ``axes[i]`` of the array."""
    if not elementwise.is_known(array.dtype):
        raise TypeError(f"there is no kernel that copies {array.dtype}")
    out = array.queue.empty([array.shape[a] for a in axes], array.dtype)
    steps = [_strides(array.shape, array.shape)[a] for a in axes]
    _enqueue("convert", [array], (array.dtype,), out, [steps])
    return out


def _operand(queue: Any, value: Any) -> _Operand | None:
    """Return a value that is no array of ours as an operand; None if it is no number, nor an array of numbers."""
    if isinstance(value, int | float) and not isinstance(value, bool | np.generic):
        return _Scalar(value, type(value) if type(value) in (int, float) else int if isinstance(value, int) else float)
    if isinstance(value, complex) or not isinstance(value, bool | np.generic | np.ndarray | list | tuple):
        return None
    data = as_array(value)
    if data.dtype.kind not in "biuf":
        return None
    if not data.shape:
        return _Scalar(data[()], data.dtype)
    contents: Array = queue.array(data.astype(data.dtype.newbyteorder("="), copy=False))
    return contents


def _resolved(ufunc: np.ufunc, operands: Sequence[_Operand]) -> tuple[DType, ...]:
    """Return the types that are computed with, and the type of the result. Raises TypeError for those of no kernel."""
    given: tuple[Any, ...] = tuple([o.dtype for o in operands])
    if all(isinstance(t, type) for t in given):  # numbers only, into an array
        given = tuple(np.dtype(t) for t in given)
    found: tuple[DType, ...] = ufunc.resolve_dtypes((*given, None))
    if not all(map(elementwise.is_known, found)):
        raise TypeError(f"there is no kernel for {ufunc.__name__} of {', '.join(str(t) for t in given)}")
    for operand, dtype in zip(operands, found, strict=False):
        if isinstance(operand, _Scalar) and operand.dtype is int and dtype.kind in "iu":
            limits = np.iinfo(dtype)
            if not limits.min <= operand.value <= limits.max:
                raise OverflowError(f"the integer {operand.value} is no {dtype}")
    return found


def _beyond(name: str, operands: list[_Operand]) -> bool | None:
    """Return the result of comparing integers with an integer beyond the range of their type, which is the same for all
    of them; None where the operands can be compared by a kernel."""
    for i, (one, other) in enumerate(zip(operands, reversed(operands), strict=True)):
        if not isinstance(one, _Scalar) or one.dtype is not int or not isinstance(other.dtype, np.dtype):
            continue
        if other.dtype.kind not in "iu":
            return None
        limits = np.iinfo(other.dtype)
        if limits.min <= one.value <= limits.max:
            return None
        greater = (one.value > 0) == (i == 1)  # the right operand is
        return name in ("not_equal", *(("less", "less_equal") if greater else ("greater", "greater_equal")))
    return None


def _filled(queue: Any, operands: Sequence[_Operand], value: bool) -> Array:
    out: Array = queue.empty(np.broadcast_shapes(*(o.shape for o in operands)), np.bool_)
    out.fill(value)
    return out


def _launch(name: str, operands: Sequence[_Operand], loop: tuple[DType, ...], out: Array) -> None:
    """Enqueue the operation on the operands' present contents, also where the result is written over them."""
    apart = [_apart(o, out) for o in operands]
    _enqueue(name, apart, loop, out, [_strides(o.shape, out.shape) for o in apart])


def _apart(operand: _Operand, out: Array) -> _Operand:
    """Return the operand, or a copy of it if elements of the result would be written over other elements of it."""
    if isinstance(operand, _Scalar) or not operand.meets(out):
        return operand
    same = (
        operand.argument == out.argument and operand.shape == out.shape and operand.dtype.itemsize == out.dtype.itemsize
    )
    return operand if same else operand.copy()


def _enqueue(
    name: str, operands: Sequence[_Operand], loop: tuple[DType, ...], out: Array, strides: Sequence[Sequence[int]]
) -> None:
    """Enqueue the kernel of an operation. ``strides``: of each operand along the axes of the result, in elements."""
    first = operands[0]
    inplace = isinstance(first, Array) and first.argument == out.argument and first.dtype == out.dtype
    read = [(o, s) for o, s in zip(operands, strides, strict=True) if isinstance(o, Array)][inplace:]
    shape, steps = _collapsed(out.shape, [s for _, s in read])
    plain = len(shape) == 1 and all(s == [1] for s in steps)
    if len(shape) > _DIMENSIONS:
        shapes = ", ".join(str(o.shape) for o in operands)
        raise LaunchError(
            f"{name}: shapes {shapes} have {len(shape)} dimensions that cannot be seen as {_DIMENSIONS}",
            hint="make one of them as large as the result first",
        )
    given = tuple([o.dtype if isinstance(o, Array) else None for o in operands])
    kernel = elementwise.kernel(KernelForm(name, given, loop, out.dtype, inplace, not plain))
    args: list[Any] = [out]
    for operand, dtype in zip(operands[inplace:], loop[inplace:], strict=True):
        args.append(operand if isinstance(operand, Array) else elementwise.scalar(operand.value, dtype))
    columns, rows, planes = (*reversed(shape), *(1,) * (_DIMENSIONS - len(shape)))
    local = min(GROUP, 1 << (columns - 1).bit_length())
    across = -(-columns // local) * local
    args.append(columns)
    if plain:
        kernel(out.queue, (across,), (local,), *args)
        return
    args.append(rows)
    for step in steps:
        args += [*reversed(step), *(0,) * (_DIMENSIONS - len(step))]
    kernel(out.queue, (across, rows, planes), (local, 1, 1), *args)


def _strides(shape: tuple[int, ...], to: tuple[int, ...]) -> list[int]:
    """Return the strides, in elements, of an array of a shape that is broadcast to another one."""
    steps, size = [], 1
    for extent in reversed(shape):
        steps.append(size if extent > 1 else 0)
        size *= extent
    return [0] * (len(to) - len(shape)) + steps[::-1]


def _collapsed(shape: tuple[int, ...], strides: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], list[list[int]]]:
    """Return the shape and strides of the same elements with as few axes as possible, at least one."""
    axes = [a for a, extent in enumerate(shape) if extent > 1]
    extents: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for a in axes:
        if extents and all(mine[-1] == theirs[a] * shape[a] for mine, theirs in zip(steps, strides, strict=True)):
            extents[-1] *= shape[a]
            for mine, theirs in zip(steps, strides, strict=True):
                mine[-1] = theirs[a]
            continue
        extents.append(shape[a])
        for mine, theirs in zip(steps, strides, strict=True):
            mine.append(theirs[a])
    if not extents:
        return (1,), [[1] for _ in strides]
    assert math.prod(extents) == math.prod(shape)
    return tuple(extents), steps


def assign(part: ArrayView, value: Any) -> None:
    """Enqueue what gives a view new contents: a fill, a write, a copy, or a kernel that converts. Raises ResultError
    for contents that do not fit."""
    if isinstance(value, Array):
        _assign_array(part, value)
        return
    data = as_array(value)
    if not data.shape and part.itemsize in PATTERNS:
        part.queue.fill(part, data)
        return
    try:
        data = np.broadcast_to(data, part.shape)
    except ValueError:
        raise ResultError(f"contents of shape {data.shape} do not fit a part of shape {part.shape}") from None
    part.queue.write(part, data)


def _assign_array(part: ArrayView, value: Array) -> None:
    is_alike = (part.shape, part.dtype) == (value.shape, value.dtype)
    if is_alike and part.argument == value.argument:
        return  # a[2:5] += 1 ends with assigning the view to itself
    if not np.can_cast(value.dtype, part.dtype, "same_kind"):
        raise ResultError(f"contents of type {value.dtype} do not fit an array of {part.dtype}")
    if is_alike:
        part.queue.copy(part, value.copy() if value.meets(part) else value)
        return
    try:
        fits = np.broadcast_shapes(value.shape, part.shape) == part.shape
    except ValueError:
        fits = False
    if not fits:
        raise ResultError(f"an array of shape {value.shape} does not fit a part of shape {part.shape}")
    converted(value, part.dtype, part)


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
    total = _into("sum", (array,), axis, elementwise.accumulated(wanted), None, keepdims)
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
    loop = elementwise.accumulated(target.dtype)
    queue, is_strided = target.queue, inner > 1
    while True:
        blocks = -(-count // (GROUP if is_strided else GROUP * EACH))
        result = target if blocks == 1 else queue.empty(outer * blocks * inner, loop)
        kernel = elementwise.fold_kernel(FoldForm(name, tuple(a.dtype for a in arrays), loop, result.dtype, is_strided))
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
