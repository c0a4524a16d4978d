"""Operations on arrays, element by element and reductions, with NumPy's types, shapes and memory, on all devices. An
operand is an array of the queue's devices, one of NumPy's (which is copied), or a number. Types are promoted and shapes
broadcast as NumPy 2 does, nothing is waited for, and the result is a new array, or one that is given."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from manycl.api.arrays import elementwise
from manycl.api.arrays.arrays import Array
from manycl.api.arrays.deferred import (
    ArrayOperation,
    DType,
    Index,
    Number,
    Operand,
    deferred,
    operand_of,
    settle,
    write,
)
from manycl.api.arrays.functions_text import TABLE
from manycl.api.arrays.host_arrays import as_array, fits
from manycl.api.arrays.strided import nothing
from manycl.errors import ResultError
from manycl.graph.copies import PATTERNS

__all__ = ["settle"]
_BOOL = np.dtype(bool)
_NAMES = {"abs": "absolute", "radians": "deg2rad", "degrees": "rad2deg", "conj": "conjugate"}


def apply(ufunc: np.ufunc, inputs: Sequence[Any], out: Array | None = None) -> Any:
    """Return the result of one of NumPy's ufuncs on operands, of which at least one, or ``out``, is an array. ``out``:
    the array that takes the result (as for NumPy: of the shape of the result, and a type that it may be cast to by
    ``same_kind``). Returns NotImplemented for a ufunc without kernels, and for operands that are no numbers. Raises
    what NumPy raises (TypeError, ValueError, OverflowError), and LaunchError for what cannot be enqueued."""
    name = _NAMES.get(ufunc.__name__, ufunc.__name__)
    if name not in elementwise.COMPARISONS and name not in TABLE:
        return NotImplemented
    queue = next(a.queue for a in (*inputs, out) if isinstance(a, Array))
    given: list[Array | Number] = []
    for value in inputs:
        operand = value if isinstance(value, Array) else given_operand(queue, value)
        if operand is None:
            return NotImplemented
        given.append(operand)
    if name in elementwise.COMPARISONS and (beyond := _beyond(name, given)) is not None:
        return full(queue, np.broadcast_shapes(*(o.shape for o in given)), beyond, _BOOL)
    *loop, result = _resolved(ufunc, given)
    if not elementwise.has_kernel(name, loop[0]):
        return NotImplemented
    if name == "power" and isinstance(given[1], Number) and loop[1].kind == "i" and given[1].value < 0:
        raise ValueError("Integers to negative integer powers are not allowed.")
    shape = np.broadcast_shapes(*[o.shape for o in given])
    if out is not None:
        if out.shape != shape:
            raise ValueError(f"an array of shape {out.shape} cannot take a result of shape {shape}")
        if not np.can_cast(result, out.dtype, "same_kind"):
            raise TypeError(f"{name}: a result of type {result} cannot become {out.dtype} (by 'same_kind')")
    return computed(queue, name, given, tuple(loop), result, shape, out)


def computed(
    queue: Any,
    name: str,
    given: Sequence[Operand],
    loop: tuple[DType, ...],
    dtype: DType,
    shape: tuple[int, ...],
    out: Array | None = None,
) -> Array:
    """Return the result of an operation, whose types and shape are known."""
    operands = tuple([_used(queue, o) if isinstance(o, Array) else o for o in given])
    if out is not None:
        out.use(queue)
        write(out, ArrayOperation(name, operands, loop, dtype, shape))
        return out
    if not math.prod(shape):
        return nothing(queue, shape, dtype)
    return deferred(queue, ArrayOperation(name, operands, loop, dtype, shape))


def _used(queue: Any, array: Array) -> Array | ArrayOperation:
    array.use(queue)
    return operand_of(array)


def converted(array: Array, dtype: DType, out: Array | None = None) -> Array:
    """Return the elements as another type, by C's conversions (NumPy's ``unsafe``): a new array, or ``out``, to whose
    shape they are broadcast."""
    for one in (array.dtype, dtype):
        if not elementwise.is_known(one):
            raise TypeError(f"there is no kernel that converts {array.dtype} to {dtype}")
    shape = array.shape if out is None else out.shape
    return computed(array.queue, "convert", [array], (array.dtype,), dtype, shape, out)


def copied(array: Array) -> Array:
    """Return a copy of an array, whatever its strides, with elements that follow one another."""
    if elementwise.is_known(array.dtype):
        return converted(array, array.dtype)
    if array.itemsize in (1, 2, 4, 8):  # of any other type its bytes
        return converted(array.view(f"u{array.itemsize}"), np.dtype(f"u{array.itemsize}")).view(array.dtype)
    raise TypeError(f"there is no kernel that copies {array.dtype}")


def full(queue: Any, shape: tuple[int, ...], value: Any, dtype: DType) -> Array:
    """Return an array all elements of which are one value."""
    out: Array = queue.empty(shape, dtype)
    if out.size:
        out.fill(np.asarray(value).astype(dtype))
    return out


def given_operand(queue: Any, value: Any) -> Array | Number | None:
    """Return a value that is no array of ours as an operand; None if it is no number, nor an array of numbers."""
    if isinstance(value, int | float) and not isinstance(value, bool | np.generic):
        return Number(value, type(value) if type(value) in (int, float) else int if isinstance(value, int) else float)
    if isinstance(value, complex) or not isinstance(value, bool | np.generic | np.ndarray | list | tuple):
        return None
    data = as_array(value)
    if data.dtype.kind not in "biuf":
        return None
    if not data.shape:
        return Number(data[()], data.dtype)
    contents: Array = queue.array(data.astype(data.dtype.newbyteorder("="), copy=False))
    return contents


def _resolved(ufunc: np.ufunc, operands: Sequence[Array | Number]) -> tuple[DType, ...]:
    """Return the types that are computed with, and the type of the result. Raises TypeError for those of no kernel."""
    given: tuple[Any, ...] = tuple([o.dtype for o in operands])
    if all(isinstance(t, type) for t in given):  # numbers only, into an array
        given = tuple(np.dtype(t) for t in given)
    found: tuple[DType, ...] = ufunc.resolve_dtypes((*given, *[None] * ufunc.nout))
    if not all(map(elementwise.is_known, found)):
        raise TypeError(f"there is no kernel for {ufunc.__name__} of {', '.join(str(t) for t in given)}")
    for operand, dtype in zip(operands, found, strict=False):
        if isinstance(operand, Number) and operand.dtype is int and dtype.kind in "iu":
            limits = np.iinfo(dtype)
            if not limits.min <= operand.value <= limits.max:
                raise OverflowError(f"the integer {operand.value} is no {dtype}")
    return found


def _beyond(name: str, operands: Sequence[Array | Number]) -> bool | None:
    """Return the result of comparing integers with an integer beyond the range of their type, which is the same for all
    of them; None where the operands can be compared by a kernel."""
    for i, (one, other) in enumerate(zip(operands, reversed(operands), strict=True)):
        if not isinstance(one, Number) or one.dtype is not int or not isinstance(other.dtype, np.dtype):
            continue
        if other.dtype.kind not in "iu":
            return None
        limits = np.iinfo(other.dtype)
        if limits.min <= one.value <= limits.max:
            return None
        greater = (one.value > 0) == (i == 1)  # the right operand is
        return name in ("not_equal", *(("less", "less_equal") if greater else ("greater", "greater_equal")))
    return None


def where(condition: Any, x: Any, y: Any) -> Array:
    """Return elements of ``x`` where ``condition`` holds, else of ``y``, as ``numpy.where``."""
    queue = next(a.queue for a in (condition, x, y) if isinstance(a, Array))
    given = [a if isinstance(a, Array) else given_operand(queue, a) for a in (condition, x, y)]
    if any(o is None for o in given):
        raise TypeError("where: an operand is no number, nor an array of numbers")
    operands: Any = given
    weak = [np.empty((), o.dtype) if isinstance(o.dtype, np.dtype) else o.value for o in operands[1:]]
    dtype = np.result_type(*weak)
    test = operands[0].dtype if isinstance(operands[0].dtype, np.dtype) else np.dtype(operands[0].dtype)
    if test != _BOOL:
        no = Number(test.type(0), test)
        operands[0] = computed(queue, "not_equal", [operands[0], no], (test, test), _BOOL, operands[0].shape)
    if not elementwise.is_known(dtype):
        raise TypeError(f"there is no kernel for where of {dtype}")
    shape = np.broadcast_shapes(*[o.shape for o in operands])
    return computed(queue, "where", operands, (_BOOL, dtype, dtype), dtype, shape)


def counted(queue: Any, shape: tuple[int, ...], steps: tuple[int, ...]) -> Array:
    """Return an array of integers: the sum of the indices of each element, each times a step."""
    index = Index(shape, steps)
    if not math.prod(shape):
        return nothing(queue, shape, index.dtype)
    return deferred(queue, ArrayOperation("convert", (index,), (index.dtype,), index.dtype, shape))


def assign(part: Array, value: Any) -> None:
    """Enqueue what gives an array, or a view, new contents: a fill, a write, a copy, or a kernel that converts. Raises
    ResultError for contents that do not fit."""
    if isinstance(value, Array):
        _assign_array(part, value)
        return
    data = as_array(value)
    is_plain = part.size and part.layout[0] is part
    if not data.shape and part.itemsize in PATTERNS and is_plain:
        part.queue.fill(part, data)
        return
    try:
        wide = np.broadcast_to(data, part.shape)
    except ValueError:
        raise ResultError(f"contents of shape {data.shape} do not fit a part of shape {part.shape}") from None
    if is_plain:
        part.queue.write(part, wide)
    elif part.size:
        if not fits(data, part.dtype):
            raise ResultError(f"contents of type {data.dtype} do not fit an array of {part.dtype}")
        _assign_array(part, part.queue.array(data.astype(part.dtype)))


def _assign_array(part: Array, value: Array) -> None:
    is_alike = (part.shape, part.dtype) == (value.shape, value.dtype)
    if is_alike and part.owner is value.owner and part.offset == value.offset and part.strides == value.strides:
        return  # a[2:5] += 1 ends with assigning the view to itself
    if not np.can_cast(value.dtype, part.dtype, "same_kind"):
        raise ResultError(f"contents of type {value.dtype} do not fit an array of {part.dtype}")
    is_deferred = isinstance(operand_of(value), ArrayOperation) and elementwise.is_known(part.dtype)
    if is_alike and not is_deferred and part.layout[0] is part and value.layout[0] is value:
        part.queue.copy(part, value.copy() if value.meets(part) else value)
        return
    try:
        is_wide = np.broadcast_shapes(value.shape, part.shape) == part.shape
    except ValueError:
        is_wide = False
    if not is_wide:
        raise ResultError(f"an array of shape {value.shape} does not fit a part of shape {part.shape}")
    if part.dtype == value.dtype and not elementwise.is_known(part.dtype):
        part, value = part.view(f"u{part.itemsize}"), value.view(f"u{part.itemsize}")
    converted(value, part.dtype, part)


# reductions

_FOLDS = {"any": "max", "all": "min"}


def reduced(
    name: str,
    array: Array,
    axis: Any = None,
    dtype: npt.DTypeLike | None = None,
    out: Array | None = None,
    keepdims: bool = False,
) -> Array:
    """Return the sum (``sum``), product (``prod``), least (``min``) or greatest element (``max``) of an array, or of
    its elements along some axes; of ``any`` and ``all`` whether elements are not 0. Raises what NumPy raises."""
    one: Any = getattr(np.ones(1, array.dtype), name)
    _check_known(name, dtype, array.dtype)
    result = one(dtype=dtype).dtype if name in ("sum", "prod") else one().dtype
    if name in _FOLDS and array.dtype != _BOOL:
        array = array != array.dtype.type(0)
    return folded(name, array, axis, result, out, keepdims)


def folded(name: str, array: Array, axis: Any, result: DType, out: Array | None, keepdims: bool) -> Array:
    """Return an array reduced along some axes, with elements of a type."""
    _check_known(name, result)
    axes = axes_of(axis, array.ndim)
    kept = [a for a in range(array.ndim) if keepdims or a not in axes]
    left = tuple([1 if a in axes else array.shape[a] for a in kept])
    if out is not None:
        _check(out, left, result)
    if name in ("min", "max") and not array.size and 0 not in left:
        raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
    queue, loop = array.queue, elementwise.accumulated(result)
    if not axes:
        return computed(queue, "convert", [array], (array.dtype,), result, left, out)
    if not array.size:
        found = full(queue, left, name in ("prod", "all"), result)
        if out is not None:
            assign(out, found)
        return found if out is None else out
    node = ArrayOperation(_FOLDS.get(name, name), (_used(queue, array),), (loop,), result, left, axes)
    if out is None:
        return deferred(queue, node)
    out.use(queue)
    write(out, node)
    return out


def mean(array: Array, axis: Any, dtype: npt.DTypeLike | None, out: Array | None, keepdims: bool = False) -> Array:
    """Return the sum over the count; of integers in float64, of half in float."""
    _check_known("mean", dtype)
    wanted = np.ones(1, array.dtype).mean(dtype=dtype).dtype
    if wanted.kind != "f":
        raise TypeError(f"a mean is no {wanted}")
    total = folded("sum", array, axis, elementwise.accumulated(wanted), None, keepdims)
    return _finished(total / _count(array, axis), wanted, out)


def var(
    array: Array,
    axis: Any = None,
    dtype: npt.DTypeLike | None = None,
    out: Array | None = None,
    ddof: float = 0,
    keepdims: bool = False,
    function: Callable[[Array], Array] | None = None,
) -> Array:
    """Return the mean of the squared distances from the mean, as NumPy computes it; ``function``: what is done to it
    (``std``: the square root)."""
    wanted = np.ones(1, array.dtype).var(dtype=dtype).dtype
    _check_known("var", wanted)
    exact = elementwise.accumulated(wanted)
    wide = array.astype(exact, copy=False)
    apart = wide - mean(wide, axis, exact, None, True)
    total = folded("sum", apart * apart, axis, exact, None, keepdims)
    result = total / max(_count(array, axis) - ddof, 0)
    return _finished(result if function is None else function(result), wanted, out)


def _count(array: Array, axis: Any) -> int:
    return math.prod([array.shape[a] for a in axes_of(axis, array.ndim)])


def _finished(result: Array, dtype: DType, out: Array | None) -> Array:
    if out is None:
        return result.astype(dtype, copy=False)
    _check(out, result.shape, dtype)
    converted(result, dtype, out)
    return out


def dot(a: Array, b: Array) -> Array:
    """Return the inner product of two arrays of one dimension and of equal lengths: an array of shape ``()``, with the
    type of NumPy's ``dot``. Raises ValueError for other shapes, TypeError for types that there are no kernels for."""
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"shapes {a.shape} and {b.shape} are not those of two vectors of one length")
    return product_sum(a, b, (0,))


def product_sum(a: Array, b: Array, axes: tuple[int, ...]) -> Array:
    """Return the sum of the products of elements along some axes; halves are multiplied and added as floats."""
    _check_known("dot", a.dtype, b.dtype)
    result = np.dot(np.ones(1, a.dtype), np.ones(1, b.dtype)).dtype
    exact = elementwise.accumulated(result)
    wide = computed(a.queue, "multiply", [a, b], (exact, exact), exact, np.broadcast_shapes(a.shape, b.shape))
    return folded("sum", wide, axes, result, None, False)


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return which axes are meant, in order. Raises AxisError, ValueError and TypeError as NumPy does."""
    if axis is None:
        return tuple(range(ndim))
    given = [operator.index(a) for a in (axis if isinstance(axis, tuple) else (axis,))]
    for one in given:
        if not -ndim <= one < ndim:
            raise np.exceptions.AxisError(one, ndim)
    found = sorted({a % ndim for a in given})
    if len(found) < len(given):
        raise ValueError(f"an axis is named twice in {axis}")
    return tuple(found)


def _check_known(name: str, *dtypes: npt.DTypeLike | None) -> None:
    for dtype in dtypes:
        if dtype is not None and not elementwise.is_known(np.dtype(dtype)):
            raise TypeError(f"there is no kernel for {name} of {np.dtype(dtype)}")


def _check(out: Array, shape: tuple[int, ...], dtype: DType) -> None:
    if out.shape != shape or out.dtype != dtype:
        raise ValueError(f"the result has shape {shape} and type {dtype}; out is {out.shape} {out.dtype}")
