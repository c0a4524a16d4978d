"""NumPy's functions that rearrange, choose, put together and compare elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from manycl.api.arrays.arithmetic import assign, axes_of, counted, full, where
from manycl.api.arrays.arrays import Array
from manycl.api.arrays.strided import view_like
from manycl.api.functions.indexing import nonzero

_VIEWS = """transpose swapaxes moveaxis rollaxis squeeze expand_dims flip fliplr flipud rot90 broadcast_to diagonal
atleast_1d atleast_2d atleast_3d split array_split hsplit vsplit dsplit matrix_transpose permute_dims unstack"""


def _view(name: str, array: Any, *args: Any, **options: Any) -> Any:
    """Return the views that NumPy's function makes of an array of this shape: its elements are not read."""
    if not isinstance(array, Array):
        return NotImplemented
    one = np.empty(1, array.dtype)
    model = np.lib.stride_tricks.as_strided(one, array.shape, array.strides, writeable=False)
    found = getattr(np, name)(model, *args, **options)
    first = int(model.__array_interface__["data"][0])
    if isinstance(found, list | tuple):
        return type(found)(view_like(array, part, first) for part in found)
    return view_like(array, found, first)


# choosing


def _on(queue: Any, indices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([i if isinstance(i, Array) else queue.array(i) for i in indices])


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    return _on(condition.queue, nonzero(condition)) if x is None else where(condition, x, y)


def _into(out: Any, found: Any) -> Any:
    """Return a result, or the array ``out`` that takes it."""
    if out is None:
        return found
    assign(out, found)
    return out


def _clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None) -> Any:  # noqa: A002
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    found = a if low is None else np.maximum(a, low)
    found = found if high is None else np.minimum(found, high)
    return _into(out, a.copy() if found is a else found)


def _take(a: Any, indices: Any, axis: Any = None) -> Any:
    if axis is None:
        a, axis = a.reshape(-1), 0
    (at,) = axes_of(axis, a.ndim)
    return a[(*[slice(None)] * at, indices if isinstance(indices, Array) else np.asarray(indices))]


def _compress(condition: Any, a: Any, axis: Any = None) -> Any:
    test = condition if isinstance(condition, Array) else np.asarray(condition)
    return _take(a, _on(a.queue, nonzero(test))[0], axis)


def _take_along(arr: Any, indices: Any, axis: int = -1) -> Any:
    (at,) = axes_of(axis, arr.ndim)
    key: list[Any] = list(np.ogrid[tuple([slice(e) for e in arr.shape])])
    key[at] = indices
    return arr[tuple(key)]


# putting together


def _concatenate(arrays: Sequence[Any], axis: Any = 0) -> Any:
    queue = next(a.queue for a in arrays if isinstance(a, Array))
    given = [a if isinstance(a, Array) else queue.array(np.asarray(a)) for a in arrays]
    if axis is None:
        given, axis = [a.reshape(-1) for a in given], 0
    (at,) = axes_of(axis, given[0].ndim)
    shape, dtype = list(given[0].shape), np.result_type(*(a.dtype for a in given))
    for a in given:
        if a.ndim != len(shape) or any(x != y for d, (x, y) in enumerate(zip(a.shape, shape, strict=True)) if d != at):
            raise ValueError(f"arrays of shapes {tuple(shape)} and {a.shape} cannot be concatenated along axis {at}")
    ends = np.cumsum([0] + [a.shape[at] for a in given]).tolist()
    shape[at] = ends[-1]
    out = queue.empty(tuple(shape), dtype)
    for a, (begin, end) in zip(given, pairwise(ends), strict=True):
        assign(out[(*[slice(None)] * at, slice(begin, end))], a)
    return out


def _hstack(tup: Sequence[Any]) -> Any:
    given = [np.atleast_1d(a) for a in tup]
    return _concatenate(given, 0 if given[0].ndim == 1 else 1)


def _append(arr: Any, values: Any, axis: Any = None) -> Any:
    return _concatenate([np.ravel(arr), np.ravel(values)] if axis is None else [arr, values], axis or 0)


def _tile(A: Any, reps: Any) -> Any:  # noqa: N803 (NumPy's name)
    times = (reps,) if isinstance(reps, int) else tuple(reps)
    deep = (1,) * (len(times) - A.ndim) + A.shape
    times = (1,) * (len(deep) - len(times)) + times
    pairs = tuple([e for r, s in zip(times, deep, strict=True) for e in (r, s)])
    wide: Any = np.broadcast_to(A.reshape([e for s in deep for e in (1, s)]), pairs)
    return wide.copy().reshape([r * s for r, s in zip(times, deep, strict=True)])


def _repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    if not isinstance(repeats, int):
        return NotImplemented
    if axis is None:
        a, axis = a.reshape(-1), 0
    (at,) = axes_of(axis, a.ndim)
    before, extent, behind = a.shape[:at], a.shape[at], a.shape[at + 1 :]
    wide: Any = np.broadcast_to(np.expand_dims(a, at + 1), (*before, extent, repeats, *behind))
    return wide.copy().reshape((*before, extent * repeats, *behind))


def _roll(a: Any, shift: Any, axis: Any = None) -> Any:
    if not isinstance(shift, int) or isinstance(axis, tuple):
        return NotImplemented
    if axis is None:
        return _roll(a.reshape(-1), shift, 0).reshape(a.shape)
    (at,) = axes_of(axis, a.ndim)
    by, key = a.shape[at] - shift % max(a.shape[at], 1), (slice(None),) * at
    return _concatenate([a[(*key, slice(by, None))], a[(*key, slice(by))]], at)


def _pad(array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Any:
    if mode != "constant" or np.ndim(constant_values):
        return NotImplemented
    sides = list(zip(array.shape, np.broadcast_to(pad_width, (array.ndim, 2)).tolist(), strict=True))
    out = full(array.queue, tuple([low + e + high for e, (low, high) in sides]), constant_values, array.dtype)
    assign(out[tuple([slice(low, low + e) for e, (low, _) in sides])], array)
    return out


def _triangle(upper: bool, m: Any, k: int = 0) -> Any:
    rows, columns = counted(m.queue, (m.shape[-2], 1), (1, 0)), counted(m.queue, (1, m.shape[-1]), (0, 1))
    return where(columns - rows >= k if upper else columns - rows <= k, m, m.dtype.type(0))


# like others; comparing; rounding


def _full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Any:
    extents = a.shape if shape is None else (shape,) if isinstance(shape, int) else tuple(shape)
    return full(a.queue, extents, fill_value, np.dtype(dtype or a.dtype))


def _empty_like(prototype: Any, dtype: Any = None, shape: Any = None) -> Any:
    return prototype.queue.empty(prototype.shape if shape is None else shape, dtype or prototype.dtype)


def _isclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    same = (a == b) | ((abs(a - b) <= atol + rtol * abs(b)) & np.isfinite(b))
    return same | ((a != a) & (b != b)) if equal_nan else same


def _allclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    return bool(_isclose(a, b, rtol, atol, equal_nan).all())


def _array_equal(a1: Any, a2: Any) -> bool:
    return np.shape(a1) == np.shape(a2) and (not np.size(a1) or bool((a1 == a2).all()))


def _round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    if a.dtype.kind == "b" or (a.dtype.kind != "f" and decimals < 0):
        return NotImplemented
    if a.dtype.kind != "f" or not decimals:
        return _into(out, a.copy() if a.dtype.kind != "f" else np.rint(a))
    by = a.dtype.type(10.0 ** abs(decimals))
    return _into(out, np.rint(a * by) / by if decimals > 0 else np.rint(a / by) * by)


def _nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    if x.dtype.kind != "f":
        return x.copy()
    most, of = np.finfo(x.dtype).max, x.dtype.type
    high, low = of(most if posinf is None else posinf), of(-most if neginf is None else neginf)
    return where(np.isnan(x), of(nan), where(x == of(np.inf), high, where(x == of(-np.inf), low, x)))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: partial(_view, name) for name in _VIEWS.split() if hasattr(np, name)},
    "reshape": lambda a, shape: a.reshape(shape),
    "ravel": lambda a: a.reshape(-1),
    "real": lambda val: val if val.dtype.kind != "c" else NotImplemented,
    "shape": lambda a: a.shape,
    "ndim": lambda a: a.ndim,
    "size": lambda a, axis=None: a.size if axis is None else a.shape[axis],
    "iscomplexobj": lambda x: x.dtype.kind == "c",
    "where": _where,
    "nonzero": lambda a: _on(a.queue, nonzero(a)),
    "flatnonzero": lambda a: _on(a.queue, nonzero(a.reshape(-1)))[0],
    "clip": _clip,
    "take": _take,
    "compress": _compress,
    "extract": lambda condition, arr: arr.reshape(-1)[np.ravel(condition)],
    "take_along_axis": _take_along,
    "concatenate": _concatenate,
    "stack": lambda arrays, axis=0: _concatenate([np.expand_dims(a, axis) for a in arrays], axis),
    "vstack": lambda tup: _concatenate([np.atleast_2d(a) for a in tup]),
    "hstack": _hstack,
    "dstack": lambda tup: _concatenate([np.atleast_3d(a) for a in tup], 2),
    "column_stack": lambda tup: _concatenate([a.reshape(-1, 1) if a.ndim < 2 else a for a in tup], 1),
    "append": _append,
    "tile": _tile,
    "repeat": _repeat,
    "roll": _roll,
    "pad": _pad,
    "triu": partial(_triangle, True),
    "tril": partial(_triangle, False),
    "full_like": _full_like,
    "zeros_like": lambda a, dtype=None, shape=None: _full_like(a, 0, dtype, shape),
    "ones_like": lambda a, dtype=None, shape=None: _full_like(a, 1, dtype, shape),
    "empty_like": _empty_like,
    "copy": lambda a: a.copy(),
    "copyto": lambda dst, src: assign(dst, src) if isinstance(dst, Array) else NotImplemented,
    "isclose": _isclose,
    "allclose": _allclose,
    "array_equal": _array_equal,
    "round": _round,
    "nan_to_num": _nan_to_num,
}
FUNCTIONS |= {"around": _round, "concat": _concatenate}
