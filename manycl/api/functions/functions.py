"""NumPy's functions of arrays that are computed on the queue's devices. A function of the table has the name and the
parameters of NumPy's; a call with others of NumPy's parameters, and every function that the table lacks, is given the
contents and runs on the host, of which a warning tells once."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from manycl.api.arrays.arithmetic import (
    apply,
    assign,
    axes_of,
    converted,
    copied,
    counted,
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
from manycl.api.arrays.strided import nothing
from manycl.api.functions import lines, shaping
from manycl.api.functions.indexing import collected, set_part

__all__ = ["apply", "assign", "collected", "converted", "copied", "counted", "full", "set_part", "settle"]

_FOLDS = {"add": "sum", "multiply": "prod", "minimum": "min", "maximum": "max"}
_FOLDS |= {"logical_or": "any", "logical_and": "all"}
_told: set[str] = set()


class HostWarning(UserWarning):
    """The warning of a function that no device computes."""


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
            return on_host(name, function, args, options)
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
    inputs, given = _contents(args), _contents(options)
    found = function(*inputs, **given)
    if found is None and inputs and isinstance(args[0], Array):  # it writes its first argument, as np.put does
        assign(args[0], inputs[0])
    if not outs:
        return found
    into = given["out"] if isinstance(out, tuple) else (given["out"],)  # (where ``where`` is False, these stay)
    for one, contents in zip(out if isinstance(out, tuple) else (out,), into, strict=True):
        if isinstance(one, Array):
            assign(one, contents)
    return out[0] if isinstance(out, tuple) and len(out) == 1 else out


def _contents(value: Any) -> Any:
    """Return a value with NumPy's arrays in place of ours."""
    if isinstance(value, Array):
        return value.get()
    if isinstance(value, dict):
        return {key: _contents(v) for key, v in value.items()}
    return type(value)(map(_contents, value)) if type(value) in (list, tuple) else value


def ufunc(function: np.ufunc, method: str, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    """Return the result of a ufunc, or of one of its methods."""
    outs, name = options.get("out", ()), function.__name__
    given = {key: value for key, value in options.items() if key != "out"}
    if all(isinstance(out, Array) for out in outs) and len(outs) < 2:
        found: Any = NotImplemented
        if method == "__call__" and not given:
            if not outs and name in _SEVERAL:
                return _SEVERAL[name](*inputs)
            found = apply(function, inputs, *outs)
        elif method == "reduce" and name in _FOLDS:
            given = {"axis": 0} | dict(zip(("axis", "dtype"), inputs[1:], strict=False)) | given
            return call(_FOLDS[name], getattr(np, _FOLDS[name]), inputs[:1], given | {"out": (*outs, None)[0]})
        elif method == "accumulate" and name in ("add", "multiply"):
            running = "cumsum" if name == "add" else "cumprod"
            return call(running, getattr(np, running), inputs, {"axis": 0} | given | {"out": (*outs, None)[0]})
        elif method == "outer" and not given and not outs:
            found = apply(function, (inputs[0].reshape(inputs[0].shape + (1,) * np.ndim(inputs[1])), inputs[1]))
        if found is not NotImplemented:
            return found
    if not all(isinstance(v, _NUMERIC) for v in inputs):
        return NotImplemented
    return on_host(name if method == "__call__" else f"{name}.{method}", getattr(function, method), inputs, options)


_NUMERIC = (Array, np.ndarray, np.generic, int, float, complex, list, tuple)


def _modf(x: Any) -> Any:
    whole = np.trunc(x)
    return np.copysign(where(np.isinf(x), whole.dtype.type(0), x - whole), x), whole


# reductions


def _fold(name: str, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    if not isinstance(a, Array) or not is_known(a.dtype):
        return NotImplemented
    if out is not None and not isinstance(out, Array):
        raise TypeError(f"{name}: out is an array of the queue's, not {type(out).__name__}")
    if name == "mean":
        return mean(a, axis, dtype, out, keepdims is True)
    return reduced(name, a, axis, dtype, out, keepdims is True)


def _plain_fold(name: str, a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    return _fold(name, a, axis, None, out, keepdims)


def _var(
    function: Any, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: Any = False
) -> Any:
    return var(a, axis, dtype, out, ddof, keepdims is True, function)


def _arg(name: str, a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the index of the first element that is the least, or greatest: NaN where there is one."""
    if not a.size:
        raise ValueError(f"attempt to get arg{name} of an empty sequence")
    if axis is None:
        flat = _arg(name, a.reshape(-1), 0)
        return flat.reshape((1,) * a.ndim) if keepdims else flat
    (at,) = axes_of(axis, a.ndim)
    best = reduced(name, a, at, keepdims=True)
    is_best = where(best != best, a != a, a == best) if a.dtype.kind == "f" else a == best
    n = a.shape[at]
    shape, steps = tuple([n if d == at else 1 for d in range(a.ndim)]), tuple([int(d == at) for d in range(a.ndim)])
    index = where(is_best, counted(a.queue, shape, steps), n)
    return folded("min", index, at, np.dtype(np.int64), None, keepdims)


def _average(a: Any, axis: Any = None, weights: Any = None) -> Any:
    if weights is None:
        return mean(a, axis, None, None)
    return (a * weights).sum(axis) / (a * 0 + weights).sum(axis) if np.shape(weights) == a.shape else NotImplemented


def _nan(name: str, a: Any, axis: Any = None) -> Any:
    """Return a reduction of the elements that are numbers."""
    if a.dtype.kind != "f":
        return FUNCTIONS[name](a, axis)
    of, is_nan = a.dtype.type, np.isnan(a)
    if name in ("sum", "prod"):
        return FUNCTIONS[name](where(is_nan, of(name == "prod"), a), axis)
    if name in ("min", "max"):
        found = FUNCTIONS[name](where(is_nan, of(np.inf if name == "min" else -np.inf), a), axis)
        return where(is_nan.all(axis), of(np.nan), found)
    axes = axes_of(axis, a.ndim)
    count = (~is_nan).astype(a.dtype if a.itemsize > 2 else np.float32).sum(axis)
    middle = (_nan("sum", a, axis) / count).astype(a.dtype)
    if name == "mean":
        return middle
    apart = a - middle.reshape(tuple([1 if d in axes else e for d, e in enumerate(a.shape)]))
    spread = (_nan("sum", apart * apart, axis) / count).astype(a.dtype)
    return np.sqrt(spread) if name == "std" else spread


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A002
    if ord is not None and not (ord == 2 and (x.ndim == 1 or isinstance(axis, int))):
        return NotImplemented
    wide = x if x.dtype.kind == "f" else x.astype(np.float64)
    return np.sqrt(folded("sum", wide * wide, axis, wide.dtype, None, keepdims))


# running sums, order


def _running(name: str, a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    if axis is None:
        a, axis = a.reshape(-1), 0
    (at,) = axes_of(axis, a.ndim)
    result = getattr(np.ones(1, a.dtype), f"cum{name}")(dtype=dtype).dtype
    if not is_known(result) or result.kind == "b":
        return NotImplemented
    if not a.size:
        found: Any = nothing(a.queue, a.shape, result)
    else:
        turned: Any = np.moveaxis(a, at, -1)
        scanned: Any = lines.scan(name, turned.astype(np.float32 if result == np.float16 else result))
        found = np.moveaxis(scanned, -1, at).astype(result, copy=at != a.ndim - 1)
    if out is None:
        return found
    assign(out, found)
    return out


def _diff(a: Any, n: int = 1, axis: int = -1) -> Any:
    (at,) = axes_of(axis, a.ndim)
    for _ in range(n):
        ahead, behind = (a[(*[slice(None)] * at, part)] for part in (slice(1, None), slice(-1)))
        a = ahead != behind if a.dtype.kind == "b" else ahead - behind
    return a


def _ordered(with_indices: bool, a: Any, axis: Any = -1, kind: Any = None, *, stable: Any = None) -> Any:
    if not is_known(a.dtype):
        return NotImplemented
    if axis is None:
        a, axis = a.reshape(-1), 0
    (at,) = axes_of(axis, a.ndim)
    if not a.size:
        return nothing(a.queue, a.shape, np.dtype(np.int64) if with_indices else a.dtype)
    turned: Any = np.moveaxis(a, at, -1)
    found: Any = lines.sort(turned.copy(), with_indices)
    return found if at == a.ndim - 1 else np.moveaxis(found, -1, at).copy()


def _median(a: Any, axis: Any = None) -> Any:
    if not a.size or isinstance(axis, tuple):
        return NotImplemented
    line: Any = np.moveaxis(np.sort(a, axis), 0 if axis is None else axis, -1)
    n, exact = line.shape[-1], np.ones(1, a.dtype).mean().dtype
    middle = mean(line[..., (n - 1) // 2 : n // 2 + 1], -1, None, None)
    return where(np.isnan(line[..., -1]), exact.type(np.nan), middle) if a.dtype.kind == "f" else middle


def _unique(ar: Any) -> Any:
    line = np.sort(ar, None)
    if line.size < 2:
        return line
    differs = line[1:] != line[:-1]
    if ar.dtype.kind == "f":
        differs = differs & ~(np.isnan(line[1:]) & np.isnan(line[:-1]))
    return line[np.concatenate([full(ar.queue, (1,), True, np.dtype(bool)), differs])]


def _searchsorted(a: Any, v: Any, side: str = "left") -> Any:
    if not isinstance(a, Array) or a.ndim != 1 or not a.size or not np.size(v):
        return NotImplemented
    other = v if isinstance(v, Array) else a.queue.array(np.asarray(v))
    dtype = np.result_type(a.dtype, other.dtype)
    return lines.bisect(a.astype(dtype).copy(), other.astype(dtype).copy(), side == "right")


# products


def _matmul(x1: Any, x2: Any) -> Any:
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
    if 1 in (a.shape[-2], b.shape[-1]):  # with a vector: a reduction
        wide = product_sum(a.reshape((*a.shape, 1)), b.reshape((*b.shape[:-2], 1, *b.shape[-2:])), (-2,))
        return wide.reshape(left)
    given = []
    array: Any
    for array in (a, b):  # as many planes as there are products, or one
        wanted = () if math.prod(array.shape[:-2]) == 1 else outer
        array = array.reshape(array.shape[-2:]) if not wanted else np.broadcast_to(array, wanted + array.shape[-2:])
        array = array.astype(dtype, copy=False)
        given.append((array if array.layout[0] is array else array.copy()).reshape(-1, *array.shape[-2:]))
    return lines.matmul(given[0], given[1], math.prod(outer)).reshape(left)


def _dot(a: Any, b: Any) -> Any:
    if not np.ndim(a) or not np.ndim(b):
        return a * b
    return _matmul(a, b) if np.ndim(b) <= 2 else NotImplemented


def _inner(a: Any, b: Any) -> Any:
    return _matmul(a, b.T) if 0 < a.ndim <= 2 and 0 < b.ndim <= 2 else NotImplemented


_SEVERAL: dict[str, Callable[..., Any]] = {
    "matmul": lambda x1, x2: call("matmul", np.matmul, (x1, x2), {}),
    "divmod": lambda x1, x2: (np.floor_divide(x1, x2), np.remainder(x1, x2)),
    "modf": _modf,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **shaping.FUNCTIONS,
    **{name: partial(_fold, name) for name in ("sum", "prod", "mean")},
    **{name: partial(_plain_fold, name) for name in ("min", "max", "any", "all")},
    **{f"nan{name}": partial(_nan, name) for name in ("sum", "prod", "min", "max", "mean", "std", "var")},
    "var": partial(_var, None),
    "std": partial(_var, np.sqrt),
    "argmin": partial(_arg, "min"),
    "argmax": partial(_arg, "max"),
    "ptp": lambda a, axis=None: a.max(axis) - a.min(axis),
    "count_nonzero": lambda a, axis=None, *, keepdims=False: (a != 0).sum(axis, np.int64, keepdims=keepdims),
    "average": _average,
    "linalg.norm": _norm,
    "trace": lambda a: np.diagonal(a).sum(-1),
    "cumsum": partial(_running, "sum"),
    "cumprod": partial(_running, "prod"),
    "diff": _diff,
    "sort": partial(_ordered, False),
    "argsort": partial(_ordered, True),
    "median": _median,
    "unique": _unique,
    "searchsorted": _searchsorted,
    "matmul": _matmul,
    "dot": _dot,
    "inner": _inner,
    "vdot": lambda a, b: _matmul(np.ravel(a), np.ravel(b)),
    "outer": lambda a, b: np.ravel(a).reshape(-1, 1) * np.ravel(b),
}
"""By the names of NumPy's functions, with ``linalg.`` before those of that module."""
FUNCTIONS |= {"amin": FUNCTIONS["min"], "amax": FUNCTIONS["max"]}
