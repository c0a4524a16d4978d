"""NumPy's functions of arrays that are computed on the queue's devices. A function of the table has the name and the
parameters of NumPy's; a call with others of NumPy's parameters, and every function that the table lacks, is given the
contents and runs on the host, of which a warning tells once."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np

from manycl.api.arrays import lines
from manycl.api.arrays.arithmetic import (
    apply,
    assign,
    axes_of,
    converted,
    copied,
    counted,
    dot,
    folded,
    full,
    mean,
    product_sum,
    reduced,
    settle,
    var,
    where,
)
from manycl.api.arrays.arrays import Array
from manycl.api.arrays.elementwise import is_known
from manycl.api.arrays.indexing import collected, nonzero, set_part
from manycl.api.arrays.strided import nothing, view_like

__all__ = ["apply", "assign", "collected", "converted", "copied", "counted", "full", "set_part", "settle"]

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""By the names of NumPy's functions, with ``linalg.`` before those of that module."""
_VIEWS = """transpose swapaxes moveaxis rollaxis squeeze expand_dims flip fliplr flipud rot90 broadcast_to diagonal
atleast_1d atleast_2d atleast_3d split array_split hsplit vsplit dsplit matrix_transpose permute_dims unstack"""
_SAME = {"amin": "min", "amax": "max", "around": "round", "vstack": "row_stack", "concat": "concatenate"}
_FOLDS = {"add": "sum", "multiply": "prod", "minimum": "min", "maximum": "max"}
_FOLDS |= {"logical_or": "any", "logical_and": "all"}
_told: set[str] = set()


class HostWarning(UserWarning):
    """The warning of a function that no device computes."""



def _numpys(function: Callable[..., Any]) -> Callable[..., Any]:
    FUNCTIONS[function.__name__.strip("_").replace("linalg_", "linalg.")] = function
    return function


@cache
def _signature(name: str) -> inspect.Signature:
    return inspect.signature(FUNCTIONS[name])


def call(name: str, function: Callable[..., Any], args: Sequence[Any], options: dict[str, Any]) -> Any:
    """Return what one of NumPy's functions returns: from devices if there is one of its name and parameters, else from
    the host."""
    if name in FUNCTIONS:
        try:
            _signature(name).bind(*args, **options)
        except TypeError:
            pass
        else:
            found = FUNCTIONS[name](*args, **options)
            if found is not NotImplemented:
                return found
    return on_host(name, function, args, options)


def on_host(name: str, function: Callable[..., Any], args: Sequence[Any], options: dict[str, Any]) -> Any:
    """Return what a function of NumPy's makes of the contents, and warn of the first such call of each."""
    if name not in _told:
        _told.add(name)
        words = f"numpy.{name} runs on the host, by NumPy: its arrays are copied there"
        warnings.warn(words, HostWarning, stacklevel=4)
    out = options.get("out")
    outs = [o for o in (out if isinstance(out, tuple) else (out,)) if isinstance(o, Array)]
    if not outs:
        return function(*_contents(args), **_contents(options))
    found = function(*_contents(args), **_contents({k: v for k, v in options.items() if k != "out"}))
    for one, contents in zip(outs, found if isinstance(found, tuple) else (found,), strict=True):
        assign(one, np.asarray(contents))
    return outs[0] if len(outs) == 1 else tuple(outs)


def _contents(value: Any) -> Any:
    """Return a value with NumPy's arrays in place of ours."""
    if isinstance(value, Array):
        return value.get()
    if isinstance(value, dict):
        return {key: _contents(v) for key, v in value.items()}
    return type(value)(map(_contents, value)) if type(value) in (list, tuple) else value


def ufunc(function: np.ufunc, method: str, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    """Return the result of a ufunc, or of one of its methods."""
    outs = options.get("out", ())
    name, more = function.__name__, options.keys() - {"out"}
    ours = all(isinstance(out, Array) for out in outs)
    if method == "__call__" and not more and ours:
        if name == "matmul" and not outs:
            return call("matmul", function, inputs, {})
        if name == "divmod" and not outs:
            return apply(np.floor_divide, inputs), apply(np.remainder, inputs)
        if name == "modf" and not outs:
            whole = apply(np.trunc, inputs)
            parts = where(np.isinf(inputs[0]), inputs[0].dtype.type(0), inputs[0] - whole)
            return np.copysign(parts, inputs[0]), whole
        found = apply(function, inputs, *outs) if len(outs) < 2 else NotImplemented
        if found is not NotImplemented:
            return found
    if method == "reduce" and name in _FOLDS and ours and len(outs) < 2:
        given = dict(zip(("axis", "dtype"), inputs[1:], strict=False)) | options
        return call(_FOLDS[name], getattr(np, _FOLDS[name]), inputs[:1], {"axis": 0} | given | {"out": (*outs, None)[0]})
    if method == "accumulate" and name in ("add", "multiply") and not outs:
        running = "cumsum" if name == "add" else "cumprod"
        return call(running, getattr(np, running), inputs, {"axis": 0} | options)
    if method == "outer" and not options and all(isinstance(a, Array) for a in inputs):
        return apply(function, (inputs[0].reshape(inputs[0].shape + (1,) * inputs[1].ndim), inputs[1]))
    if not any(isinstance(v, Array | np.ndarray | np.generic | int | float | complex | list | tuple) for v in inputs):
        return NotImplemented
    words = name if method == "__call__" else f"{name}.{method}"
    return on_host(words, getattr(function, method), inputs, options)


# views


def _view(name: str, array: Any, *args: Any, **options: Any) -> Any:
    if not isinstance(array, Array):
        return NotImplemented
    one = np.empty(1, array.dtype)
    model = np.lib.stride_tricks.as_strided(one, array.shape, array.strides, writeable=False)
    found = getattr(np, name)(model, *args, **options)
    first = int(model.__array_interface__["data"][0])
    if isinstance(found, list | tuple):
        return type(found)(view_like(array, part, first) for part in found)
    return view_like(array, found, first)


for _name in _VIEWS.split():
    if hasattr(np, _name):
        FUNCTIONS[_name] = partial(_view, _name)


@_numpys
def reshape(a: Array, shape: Any, order: str = "C") -> Any:
    return a.reshape(shape) if order == "C" else NotImplemented


@_numpys
def ravel(a: Array, order: str = "C") -> Any:
    return a.reshape(-1) if order in ("C", "K") else NotImplemented


@_numpys
def real(val: Array) -> Any:
    return val if val.dtype.kind != "c" else NotImplemented


@_numpys
def shape(a: Array) -> tuple[int, ...]:
    return a.shape


@_numpys
def ndim(a: Array) -> int:
    return a.ndim


@_numpys
def size(a: Array, axis: int | None = None) -> int:
    return a.size if axis is None else a.shape[axis]


@_numpys
def iscomplexobj(x: Array) -> bool:
    return x.dtype.kind == "c"


# reductions


def _fold(name: str, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    if not isinstance(a, Array) or not is_known(a.dtype):
        return NotImplemented
    if out is not None and not isinstance(out, Array):
        raise TypeError(f"{name}: out is an array of the queue's, not {type(out).__name__}")
    return reduced(name, a, axis, dtype, out, keepdims is True)


for _name in ("sum", "prod", "any", "all"):
    FUNCTIONS[_name] = partial(_fold, _name)


@_numpys
def min(a: Array, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    return _fold("min", a, axis, None, out, keepdims)


@_numpys
def max(a: Array, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    return _fold("max", a, axis, None, out, keepdims)


@_numpys
def mean_(a: Array, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    return mean(a, axis, dtype, out, keepdims is True)


@_numpys
def var_(a: Array, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: Any = False) -> Any:
    return var(a, axis, dtype, out, ddof, keepdims is True)


@_numpys
def std(a: Array, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: Any = False) -> Any:
    return var(a, axis, dtype, out, ddof, keepdims is True, np.sqrt)


def _arg(name: str, a: Array, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the index of the first element that is the least, or greatest: NaN where there is one."""
    if not a.size:
        raise ValueError(f"attempt to get {name} of an empty sequence")
    if axis is None:
        flat = _arg(name, a.reshape(-1), 0)
        return flat.reshape((1,) * a.ndim) if keepdims else flat
    (at,) = axes_of(axis, a.ndim)
    best = reduced(name[3:], a, at, keepdims=True)
    is_best = (a == best) | (a != a) if a.dtype.kind == "f" else a == best
    if a.dtype.kind == "f":
        is_best = where(best != best, a != a, is_best)
    n = a.shape[at]
    index = counted(a.queue, tuple([n if d == at else 1 for d in range(a.ndim)]), tuple([int(d == at) for d in range(a.ndim)]))
    return folded("min", where(is_best, index, n), at, np.dtype(np.int64), None, keepdims)


FUNCTIONS["argmin"] = partial(_arg, "argmin")
FUNCTIONS["argmax"] = partial(_arg, "argmax")


@_numpys
def ptp(a: Array, axis: Any = None) -> Array:
    return a.max(axis) - a.min(axis)


@_numpys
def count_nonzero(a: Array, axis: Any = None, *, keepdims: bool = False) -> Array:
    return folded("sum", (a != 0).astype(np.int64), axis, np.dtype(np.int64), None, keepdims)


@_numpys
def average(a: Array, axis: Any = None, weights: Any = None) -> Any:
    if weights is None:
        return mean(a, axis, None, None)
    if np.shape(weights) != a.shape:
        return NotImplemented
    return (a * weights).sum(axis) / (a * 0 + weights).sum(axis)


def _nan(name: str, a: Array, axis: Any = None) -> Any:
    if a.dtype.kind != "f":
        return FUNCTIONS[name](a, axis)
    if name in ("sum", "prod"):
        return FUNCTIONS[name](where(np.isnan(a), a.dtype.type(name == "prod"), a), axis)
    if name in ("min", "max"):
        limit = a.dtype.type(np.inf if name == "min" else -np.inf)
        found = FUNCTIONS[name](where(np.isnan(a), limit, a), axis)
        return where(np.isnan(a).all(axis), a.dtype.type(np.nan), found)
    axes = axes_of(axis, a.ndim)
    kept = tuple([1 if d in axes else e for d, e in enumerate(a.shape)])
    count = (~np.isnan(a)).astype(a.dtype if a.itemsize > 2 else np.float32).sum(axis)
    middle = (_nan("sum", a, axis) / count).astype(a.dtype)
    if name == "mean":
        return middle
    apart = a - middle.reshape(kept)
    spread = (_nan("sum", apart * apart, axis) / count).astype(a.dtype)
    return np.sqrt(spread) if name == "std" else spread


for _name in ("sum", "prod", "min", "max", "mean", "std", "var"):
    FUNCTIONS[f"nan{_name}"] = partial(_nan, _name)


@_numpys
def linalg_norm(x: Array, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    if ord is not None and not (ord == 2 and (x.ndim == 1 or isinstance(axis, int))):
        return NotImplemented
    wide = x if x.dtype.kind == "f" else x.astype(np.float64)
    return np.sqrt(folded("sum", wide * wide, axis, wide.dtype, None, keepdims))


@_numpys
def trace(a: Array) -> Any:
    return a.sum() if a.ndim < 2 else np.diagonal(a).sum(-1)


# running sums, order


def _running(name: str, a: Array, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    if axis is None:
        a, axis = a.reshape(-1), 0
    (at,) = axes_of(axis, a.ndim)
    result = getattr(np.ones(1, a.dtype), f"cum{name}")(dtype=dtype).dtype
    exact = np.dtype(np.float32) if result == np.float16 else result
    if not is_known(result) or result.kind == "b":
        return NotImplemented
    if not a.size:
        found: Any = nothing(a.queue, a.shape, result)
    else:
        turned = np.moveaxis(a, at, -1).astype(exact)
        found = np.moveaxis(lines.scan(name, turned), -1, at).astype(result, copy=at != a.ndim - 1)
    if out is None:
        return found
    assign(out, found)
    return out


FUNCTIONS["cumsum"] = partial(_running, "sum")
FUNCTIONS["cumprod"] = partial(_running, "prod")


@_numpys
def diff(a: Array, n: int = 1, axis: int = -1) -> Any:
    (at,) = axes_of(axis, a.ndim)
    for _ in range(n):
        key = (slice(None),) * at
        a = np.not_equal(a[(*key, slice(1, None))], a[(*key, slice(-1))]) if a.dtype.kind == "b" else (
            a[(*key, slice(1, None))] - a[(*key, slice(-1))]
        )
    return a


def _ordered(a: Array, axis: Any, with_indices: bool) -> Any:
    if not is_known(a.dtype):
        return NotImplemented
    if axis is None:
        a, axis = a.reshape(-1), 0
    if not a.ndim:
        raise np.exceptions.AxisError(axis, 0)
    (at,) = axes_of(axis, a.ndim)
    if not a.size:
        return nothing(a.queue, a.shape, np.dtype(np.int64) if with_indices else a.dtype)
    found = lines.sort(np.moveaxis(a, at, -1).copy(), with_indices)
    return found if at == a.ndim - 1 else np.moveaxis(found, -1, at).copy()


@_numpys
def sort(a: Array, axis: Any = -1, kind: Any = None, *, stable: Any = None) -> Any:
    return _ordered(a, axis, False)


@_numpys
def argsort(a: Array, axis: Any = -1, kind: Any = None, *, stable: Any = None) -> Any:
    return _ordered(a, axis, True)


@_numpys
def median(a: Array, axis: Any = None) -> Any:
    if not a.size or isinstance(axis, tuple):
        return NotImplemented
    line = np.moveaxis(np.sort(a, axis), 0 if axis is None else axis, -1)
    n = line.shape[-1]
    exact = np.ones(1, a.dtype).mean().dtype
    middle = mean(line[..., (n - 1) // 2 : n // 2 + 1], -1, None, None).astype(exact)
    return where(np.isnan(line[..., -1]), exact.type(np.nan), middle) if a.dtype.kind == "f" else middle


@_numpys
def unique(ar: Array) -> Any:
    line = np.sort(ar, None)
    if line.size < 2:
        return line
    differs = line[1:] != line[:-1]
    if ar.dtype.kind == "f":
        differs = differs & ~(np.isnan(line[1:]) & np.isnan(line[:-1]))
    return line[concatenate([full(ar.queue, (1,), True, np.dtype(bool)), differs])]


@_numpys
def searchsorted(a: Any, v: Any, side: str = "left") -> Any:
    if not isinstance(a, Array) or a.ndim != 1 or not a.size or not np.size(v):
        return NotImplemented
    other = v if isinstance(v, Array) else a.queue.array(np.asarray(v))
    dtype = np.result_type(a.dtype, other.dtype)
    return lines.bisect(a.astype(dtype).copy(), other.astype(dtype).copy(), side == "right")


# products


@_numpys
def matmul(x1: Any, x2: Any) -> Any:
    queue = next(a.queue for a in (x1, x2) if isinstance(a, Array))
    a, b = (v if isinstance(v, Array) else queue.array(np.asarray(v)) for v in (x1, x2))
    if not a.ndim or not b.ndim:
        raise ValueError("matmul: an array without dimensions is no matrix")
    dtype = np.result_type(a.dtype, b.dtype)
    if not is_known(dtype):
        return NotImplemented
    one, other = a.ndim == 1, b.ndim == 1
    a, b = (a.reshape(1, -1) if one else a), (b.reshape(-1, 1) if other else b)
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"matmul: shapes {np.shape(x1)} and {np.shape(x2)} do not match")
    outer = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    left = (*outer, *[a.shape[-2]] * (not one), *[b.shape[-1]] * (not other))
    if not math.prod(left) or not a.shape[-1]:
        return full(queue, left, 0, dtype)
    if 1 in (a.shape[-2], b.shape[-1]) and dtype != np.bool_:  # of a vector: a reduction
        wide = product_sum(a.reshape((*a.shape, 1)), b.reshape((*b.shape[:-2], 1, *b.shape[-2:])), (-2,))
        return wide.reshape(left)
    given = []
    for array in (a, b):
        wanted = () if math.prod(array.shape[:-2]) == 1 else outer
        array = array.reshape(array.shape[-2:]) if not wanted else np.broadcast_to(array, wanted + array.shape[-2:])
        given.append(_contiguous(array.astype(dtype, copy=False)).reshape(-1, *array.shape[-2:]))
    return lines.matmul(*given, math.prod(outer)).reshape(left)


def _contiguous(a: Array) -> Array:
    return a if a.layout[0] is a else a.copy()


@_numpys
def dot_(a: Any, b: Any) -> Any:
    if not np.ndim(a) or not np.ndim(b):
        return a * b
    return matmul(a, b) if np.ndim(b) <= 2 else NotImplemented


@_numpys
def inner(a: Any, b: Any) -> Any:
    return matmul(a, np.matrix_transpose(b) if b.ndim > 1 else b) if a.ndim <= 2 and b.ndim <= 2 else NotImplemented


@_numpys
def vdot(a: Any, b: Any) -> Any:
    return dot(np.ravel(a), np.ravel(b))


@_numpys
def outer(a: Any, b: Any) -> Any:
    return np.ravel(a).reshape(-1, 1) * np.ravel(b)


# choosing


@_numpys
def where_(condition: Any, x: Any = None, y: Any = None) -> Any:
    return tuple(_on(condition.queue, nonzero(condition))) if x is None else where(condition, x, y)


def _on(queue: Any, indices: Sequence[Any]) -> list[Any]:
    return [i if isinstance(i, Array) else queue.array(i) for i in indices]


@_numpys
def nonzero_(a: Array) -> Any:
    return tuple(_on(a.queue, nonzero(a)))


@_numpys
def flatnonzero(a: Array) -> Any:
    return _on(a.queue, nonzero(a.reshape(-1)))[0]


@_numpys
def clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    found = a if low is None else np.maximum(a, low)
    found = found if high is None else np.minimum(found, high)
    if out is None:
        return a.copy() if found is a else found
    assign(out, found)
    return out


@_numpys
def take(a: Array, indices: Any, axis: Any = None) -> Any:
    if axis is None:
        a, axis = a.reshape(-1), 0
    (at,) = axes_of(axis, a.ndim)
    index = indices if isinstance(indices, Array) else np.asarray(indices)
    return a[(*[slice(None)] * at, index)]


@_numpys
def compress(condition: Any, a: Array, axis: Any = None) -> Any:
    return take(a, _on(a.queue, nonzero(condition if isinstance(condition, Array) else np.asarray(condition)))[0], axis)


@_numpys
def extract(condition: Any, arr: Array) -> Any:
    return arr.reshape(-1)[np.ravel(condition)]


@_numpys
def take_along_axis(arr: Array, indices: Any, axis: int = -1) -> Any:
    (at,) = axes_of(axis, arr.ndim)
    key: list[Any] = list(np.ogrid[tuple([slice(e) for e in arr.shape])])
    key[at] = indices
    return arr[tuple(key)]


# putting together


@_numpys
def concatenate(arrays: Sequence[Any], axis: Any = 0) -> Any:
    queue = next(a.queue for a in arrays if isinstance(a, Array))
    given = [a if isinstance(a, Array) else queue.array(np.asarray(a)) for a in arrays]
    if axis is None:
        given, axis = [a.reshape(-1) for a in given], 0
    (at,) = axes_of(axis, given[0].ndim)
    shape, dtype = list(given[0].shape), np.result_type(*(a.dtype for a in given))
    for a in given:
        if a.ndim != len(shape) or any(x != y for d, (x, y) in enumerate(zip(a.shape, shape, strict=True)) if d != at):
            raise ValueError(f"arrays of shapes {shape} and {a.shape} cannot be concatenated along axis {at}")
    ends = np.cumsum([0] + [a.shape[at] for a in given]).tolist()
    shape[at] = ends[-1]
    out = queue.empty(tuple(shape), dtype)
    for a, (begin, end) in zip(given, pairwise(ends), strict=True):
        if a.size:
            assign(out[(*[slice(None)] * at, slice(begin, end))], a)
    return out


@_numpys
def stack(arrays: Sequence[Any], axis: int = 0) -> Any:
    return concatenate([np.expand_dims(a, axis) for a in arrays], axis)


@_numpys
def row_stack(tup: Sequence[Any]) -> Any:
    return concatenate([np.atleast_2d(a) for a in tup])


@_numpys
def hstack(tup: Sequence[Any]) -> Any:
    given = [np.atleast_1d(a) for a in tup]
    return concatenate(given, 0 if given[0].ndim == 1 else 1)


@_numpys
def dstack(tup: Sequence[Any]) -> Any:
    return concatenate([np.atleast_3d(a) for a in tup], 2)


@_numpys
def column_stack(tup: Sequence[Any]) -> Any:
    return concatenate([a.reshape(-1, 1) if a.ndim < 2 else a for a in tup], 1)


@_numpys
def append(arr: Array, values: Any, axis: Any = None) -> Any:
    return concatenate([np.ravel(arr), np.ravel(values)] if axis is None else [arr, values], axis or 0)


@_numpys
def tile(A: Array, reps: Any) -> Any:  # noqa: N803 (NumPy's name)
    times = (reps,) if isinstance(reps, int) else tuple(reps)
    deep = (1,) * (len(times) - A.ndim) + A.shape
    times = (1,) * (len(deep) - len(times)) + times
    pairs = [e for r, s in zip(times, deep, strict=True) for e in (r, s)]
    wide = np.broadcast_to(A.reshape([e for s in deep for e in (1, s)]), pairs)
    return wide.copy().reshape([r * s for r, s in zip(times, deep, strict=True)])


@_numpys
def repeat(a: Array, repeats: Any, axis: Any = None) -> Any:
    if not isinstance(repeats, int):
        return NotImplemented
    if axis is None:
        a, axis = a.reshape(-1), 0
    (at,) = axes_of(axis, a.ndim)
    wide = np.broadcast_to(np.expand_dims(a, at + 1), (*a.shape[: at + 1], repeats, *a.shape[at + 1 :]))
    return wide.copy().reshape((*a.shape[:at], a.shape[at] * repeats, *a.shape[at + 1 :]))


@_numpys
def roll(a: Array, shift: Any, axis: Any = None) -> Any:
    if not isinstance(shift, int) or isinstance(axis, tuple):
        return NotImplemented
    if axis is None:
        return roll(a.reshape(-1), shift, 0).reshape(a.shape)
    (at,) = axes_of(axis, a.ndim)
    by, key = shift % np.maximum(a.shape[at], 1), (slice(None),) * at
    return concatenate([a[(*key, slice(a.shape[at] - by, None))], a[(*key, slice(a.shape[at] - by))]], at)


@_numpys
def pad(array: Array, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Any:
    if mode != "constant" or np.ndim(constant_values):
        return NotImplemented
    widths = np.broadcast_to(pad_width, (array.ndim, 2)).tolist()
    wide = [low + e + high for e, (low, high) in zip(array.shape, widths, strict=True)]
    out = full(array.queue, tuple(wide), constant_values, array.dtype)
    assign(out[tuple([slice(low, low + e) for e, (low, _) in zip(array.shape, widths, strict=True)])], array)
    return out


def _triangle(upper: bool, m: Array, k: int = 0) -> Any:
    rows, columns = (counted(m.queue, s, t) for s, t in (((m.shape[-2], 1), (1, 0)), ((1, m.shape[-1]), (0, 1))))
    apart = columns - rows
    return where(apart >= k if upper else apart <= k, m, m.dtype.type(0))


FUNCTIONS["triu"], FUNCTIONS["tril"] = partial(_triangle, True), partial(_triangle, False)


# like others; comparing; rounding


@_numpys
def full_like(a: Array, fill_value: Any, dtype: Any = None, shape: Any = None) -> Any:
    extents = a.shape if shape is None else (shape,) if isinstance(shape, int) else tuple(shape)
    return full(a.queue, extents, fill_value, np.dtype(dtype or a.dtype))


@_numpys
def zeros_like(a: Array, dtype: Any = None, shape: Any = None) -> Any:
    return full_like(a, 0, dtype, shape)


@_numpys
def ones_like(a: Array, dtype: Any = None, shape: Any = None) -> Any:
    return full_like(a, 1, dtype, shape)


@_numpys
def empty_like(prototype: Array, dtype: Any = None, shape: Any = None) -> Any:
    return prototype.queue.empty(prototype.shape if shape is None else shape, dtype or prototype.dtype)


@_numpys
def copy(a: Array) -> Array:
    return a.copy()


@_numpys
def copyto(dst: Any, src: Any) -> Any:
    return assign(dst, src) if isinstance(dst, Array) else NotImplemented


@_numpys
def isclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    near = abs(a - b) <= atol + rtol * abs(b)
    same = (a == b) | (near & np.isfinite(b))
    return same | ((a != a) & (b != b)) if equal_nan else same


@_numpys
def allclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    return bool(isclose(a, b, rtol, atol, equal_nan).all())


@_numpys
def array_equal(a1: Any, a2: Any) -> bool:
    return np.shape(a1) == np.shape(a2) and (not np.size(a1) or bool((a1 == a2).all()))


@_numpys
def round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    if a.dtype.kind == "b" or (a.dtype.kind != "f" and decimals < 0):
        return NotImplemented
    by = a.dtype.type(10.0 ** abs(decimals)) if a.dtype.kind == "f" else 1
    found = a.copy() if a.dtype.kind != "f" else np.rint(a) if not decimals else (
        np.rint(a * by) / by if decimals > 0 else np.rint(a / by) * by
    )
    if out is None:
        return found
    assign(out, found)
    return out


@_numpys
def nan_to_num(x: Array, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    if x.dtype.kind != "f":
        return x.copy()
    most, kind = np.finfo(x.dtype).max, x.dtype.type
    high, low = kind(most if posinf is None else posinf), kind(-most if neginf is None else neginf)
    return where(np.isnan(x), kind(nan), where(x == kind(np.inf), high, where(x == kind(-np.inf), low, x)))


for _name, _other in _SAME.items():
    FUNCTIONS[_name] = FUNCTIONS[_other]
