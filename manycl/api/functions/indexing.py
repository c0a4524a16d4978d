"""Elements of arrays that are named by masks and by arrays of indices: collected into a new array, or written to."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from manycl.api.arrays.arithmetic import assign, converted, counted, where
from manycl.api.arrays.arrays import Array
from manycl.api.arrays.host_arrays import as_array
from manycl.api.arrays.launches import collapsed
from manycl.api.arrays.strided import nothing
from manycl.api.functions import lines
from manycl.errors import ResultError

Index = Any
"""An array of indices: one of ours, or NumPy's."""


class NamedElements(NamedTuple):
    """Elements of a view that arrays of indices name. ``shape``: of the indices; ``rest``: of what each of them names;
    ``at``: where that begins, in elements, ``element``: its number, of ``among``; ``inner`` and ``step``: elements
    that follow at a distance. ``axis``: the dimension of the result with which those of ``shape`` begin."""

    view: Array
    shape: tuple[int, ...]
    rest: tuple[int, ...]
    axis: int
    at: Array | None
    element: Array | None
    among: int
    inner: int
    step: int


def collected(array: Array, parts: tuple[Any, ...]) -> Array:
    """Return the elements that a key with masks or arrays of indices names, in a new array. Waits where a mask, or an
    array of indices, is on devices: for the number of elements, and to know that there are such. Raises IndexError."""
    found = _places(array, parts)
    shape = found.shape + found.rest
    if found.at is None:
        return nothing(array.queue, _placed(shape, found), array.dtype)
    span, first, _ = found.view.layout
    out = lines.collect((span, first, found.step), found.at, found.inner).reshape(shape)
    if not found.axis:
        return out
    among = range(len(found.shape))
    to = [found.axis + a for a in among]
    return out.like(lambda model: np.moveaxis(model, among, to)).copy()


def set_part(array: Array, parts: tuple[Any, ...], value: Any) -> None:
    """Enqueue new contents of the elements that a key names. Raises IndexError, LaunchError and ResultError."""
    if not any(_is_index(part) for part in parts):
        assign(array[parts], value)
        return
    if len(parts) == 1 and _is_mask(parts[0]) and np.shape(value) == ():
        mask = array.queue.array(np.asarray(parts[0])) if not isinstance(parts[0], Array) else parts[0]
        _check_mask(mask.shape, array.shape)
        wide = mask.reshape(mask.shape + (1,) * (array.ndim - mask.ndim))
        if not isinstance(value, Array):
            value = as_array(value)
        if not np.can_cast(value.dtype, array.dtype, "same_kind"):
            raise ResultError(f"contents of type {value.dtype} do not fit an array of {array.dtype}")
        if array.size:
            assign(array, where(wide, value.astype(array.dtype), array))
        return
    found = _places(array, parts)
    shape = _placed(found.shape + found.rest, found)
    if not isinstance(value, Array):
        value = array.queue.array(as_array(value))
    if not np.can_cast(value.dtype, array.dtype, "same_kind"):
        raise ResultError(f"contents of type {value.dtype} do not fit an array of {array.dtype}")
    try:
        values = value.like(lambda model: np.broadcast_to(model, shape))
    except ValueError:
        raise ResultError(f"an array of shape {value.shape} does not fit a part of shape {shape}") from None
    if found.at is None or found.element is None:
        return
    among = range(found.axis, found.axis + len(found.shape))
    order = [*among, *(a for a in range(len(shape)) if a not in among)]
    own = converted(values.transpose(*order), array.dtype)
    span, first, _ = found.view.layout
    lines.scatter((span, first, found.step), found.at, found.element, found.among, own)


def _is_index(part: Any) -> bool:
    return (
        part is not None
        and part is not Ellipsis
        and not (isinstance(part, int | np.integer | slice) and not isinstance(part, bool))
    )


def _placed(shape: tuple[int, ...], found: NamedElements) -> tuple[int, ...]:
    """Return a shape with the dimensions of the indices where they belong."""
    count = len(found.shape)
    rest = shape[count:]
    return rest[: found.axis] + shape[:count] + rest[found.axis :]


def _is_mask(part: Any) -> bool:
    return (part if isinstance(part, Array | np.ndarray) else np.asarray(part)).dtype == np.bool_


def _check_mask(mask: tuple[int, ...], shape: tuple[int, ...]) -> None:
    if mask != shape[: len(mask)]:
        raise IndexError(f"a mask of shape {mask} is none of an array of shape {shape}")


def _places(array: Array, parts: tuple[Any, ...]) -> NamedElements:
    """Return the elements that a key names."""
    found: list[Any] = []  # slices, None, and tuples of an index
    left = array.ndim - sum(_dimensions(p) for p in parts)
    if left < 0:
        raise IndexError(f"too many indices for an array of {array.ndim} dimensions")
    whole = [i for i, p in enumerate(parts) if p is Ellipsis]
    at = whole[0] if whole else len(parts)
    axis = 0
    for part in (*parts[:at], *[slice(None)] * left, *parts[at + 1 :]):
        if part is None or isinstance(part, slice):
            found.append(part)
        elif _is_index(part) and _is_mask(part):
            mask = part if isinstance(part, Array) else np.asarray(part)
            _check_mask(mask.shape, array.shape[axis:])
            found += [(index,) for index in nonzero(mask)]
        else:
            found.append((part if isinstance(part, Array) else as_array(part),))
        axis += _dimensions(part)
    view = array.like(lambda model: model[tuple([slice(None) if isinstance(f, tuple) else f for f in found])])
    axes = [a for a, f in enumerate(found) if isinstance(f, tuple)]
    indices = [found[a][0] for a in axes]
    is_together = axes == list(range(axes[0], axes[0] + len(axes)))
    shape = np.broadcast_shapes(*[i.shape for i in indices])
    others = [a for a in range(view.ndim) if a not in axes]
    extents = [view.shape[a] for a in axes]
    rest = tuple([view.shape[a] for a in others])
    begin = axes[0] if is_together else 0
    indices = [_checked(index, extent, axis) for index, extent, axis in zip(indices, extents, axes, strict=True)]
    if not math.prod(shape + rest):
        return NamedElements(view, shape, rest, begin, None, None, 0, 0, 0)
    steps = view.layout[2]
    numbers = [math.prod(extents[k + 1 :]) for k in range(len(extents))]
    places = _sum(view, indices, [steps[a] for a in axes], shape)
    element = _sum(view, indices, numbers, shape)
    (inner, *more), ((step, *_),) = collapsed(rest, [[steps[a] for a in others]])
    count = math.prod(extents)
    if more:  # elements are named one by one
        size = math.prod(rest)
        each = counted(view.queue, rest, tuple(steps[a] for a in others)).reshape(1, -1)
        number = counted(view.queue, (1, size), (0, 1))
        places = (places.reshape(-1, 1) + each).reshape(-1)
        element = (element.reshape(-1, 1) * size + number).reshape(-1)
        inner, step, count = 1, 1, count * size
    return NamedElements(view, shape, rest, begin, places, element, count, inner, step)


def _dimensions(part: Any) -> int:
    """Return how many dimensions of an array a part of a key is about."""
    if part is None or part is Ellipsis:
        return 0
    return max(1, np.ndim(part)) if _is_index(part) and _is_mask(part) else 1


def _checked(index: Index, extent: int, axis: int) -> Index:
    """Return indices that count from the beginning. Raises IndexError for those of no element, and other types."""
    if index.dtype.kind not in "iu":
        if index.size:
            raise IndexError(f"arrays of {index.dtype} are no indices: integers and masks are")
        return np.zeros(index.shape, np.int64) if not isinstance(index, Array) else index.astype(np.int64)
    if not index.size:
        return index.astype(np.int64)
    low, high = int(index.min()), int(index.max())
    if low < -extent or high >= extent:
        wrong = low if low < -extent else high
        raise IndexError(f"index {wrong} is out of bounds for axis {axis} with size {extent}")
    wide = index.astype(np.int64)
    if low >= 0:
        return wide
    return where(wide < 0, wide + extent, wide) if isinstance(index, Array) else np.where(wide < 0, wide + extent, wide)


def _sum(view: Array, indices: list[Index], steps: list[int], shape: tuple[int, ...]) -> Array:
    """Return the sum of indices, each times a step, for all elements of a shape, in one dimension."""
    total: Any = np.zeros((), np.int64)
    for index, step in zip(indices, steps, strict=True):
        total = total + index * step
    if not isinstance(total, Array):
        return view.queue.array(np.ascontiguousarray(np.broadcast_to(total, shape)).reshape(-1))
    return total.like(lambda model: np.broadcast_to(model, shape)).reshape(-1)


def nonzero(mask: Any) -> list[Index]:
    """Return the indices of what is not 0, of each dimension. Waits for their number."""
    if not isinstance(mask, Array):
        return list(np.nonzero(mask))
    if not mask.size:
        return [np.zeros(0, np.int64)] * mask.ndim
    flat = mask if mask.dtype == np.bool_ else mask != 0
    found = lines.found(flat.copy().reshape(-1))
    if mask.ndim == 1:
        return [found]
    sizes = [math.prod(mask.shape[a + 1 :]) for a in range(mask.ndim)]
    return [found // size % extent for size, extent in zip(sizes, mask.shape, strict=True)]
