"""Python's operators on arrays: each is NumPy's ufunc for it, as a kernel (:mod:`manycl.api.arrays.arithmetic`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from manycl.utilities.checked import checked

Unary = Callable[[Any], Any]
Binary = Callable[[Any, Any], Any]


def _unary(ufunc: np.ufunc) -> Unary:
    return lambda a: a.queue.operations.apply(ufunc, (a,))


def _compare(ufunc: np.ufunc) -> Binary:
    return lambda a, b: a.queue.operations.apply(ufunc, (a, b))


def _binary(ufunc: np.ufunc) -> tuple[Binary, Binary, Binary]:
    """Return the operator, its reflection, and the operator in place."""
    return (
        lambda a, b: a.queue.operations.apply(ufunc, (a, b)),
        lambda a, b: a.queue.operations.apply(ufunc, (b, a)),
        lambda a, b: a.queue.operations.apply(ufunc, (a, b), a),
    )


def _method(name: str) -> Callable[..., Any]:
    """Return NumPy's method of a name: its function of the array."""

    def method(self: Any, *args: Any, **options: Any) -> Any:
        return self.queue.operations.call(name, getattr(np, name), (self, *args), options)

    method.__name__, method.__doc__ = name, f"NumPy's ``{name}``, of the array on the queue's devices (docs/arrays.md)."
    return method


@checked()
class ArrayOperators:
    """The base class of arrays with operators. ``a == b`` is an array, too: sets know arrays by identity."""

    __slots__ = ()

    __add__, __radd__, __iadd__ = _binary(np.add)
    __sub__, __rsub__, __isub__ = _binary(np.subtract)
    __mul__, __rmul__, __imul__ = _binary(np.multiply)
    __truediv__, __rtruediv__, __itruediv__ = _binary(np.divide)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _binary(np.floor_divide)
    __mod__, __rmod__, __imod__ = _binary(np.remainder)
    __pow__, __rpow__, __ipow__ = _binary(np.power)
    __and__, __rand__, __iand__ = _binary(np.bitwise_and)
    __or__, __ror__, __ior__ = _binary(np.bitwise_or)
    __xor__, __rxor__, __ixor__ = _binary(np.bitwise_xor)
    __lshift__, __rlshift__, __ilshift__ = _binary(np.left_shift)
    __rshift__, __rrshift__, __irshift__ = _binary(np.right_shift)

    def __matmul__(self: Any, other: Any) -> Any:
        return self.queue.operations.call("matmul", np.matmul, (self, other), {})

    def __rmatmul__(self: Any, other: Any) -> Any:
        return self.queue.operations.call("matmul", np.matmul, (other, self), {})

    def __divmod__(self: Any, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    sum, prod, min, max, mean, std, var, any, all = map(
        _method, ["sum", "prod", "min", "max", "mean", "std", "var", "any", "all"]
    )
    argmin, argmax, cumsum, cumprod, argsort = map(_method, ["argmin", "argmax", "cumsum", "cumprod", "argsort"])
    clip, round, dot, take, nonzero, repeat = map(_method, ["clip", "round", "dot", "take", "nonzero", "repeat"])
    ravel, swapaxes, squeeze, diagonal, trace = map(_method, ["ravel", "swapaxes", "squeeze", "diagonal", "trace"])
    compress, searchsorted, __round__ = map(_method, ["compress", "searchsorted", "round"])

    def sort(self: Any, axis: int = -1) -> None:
        """Enqueue what puts the elements in order along an axis, in place."""
        self[...] = np.sort(self, axis)

    def flatten(self: Any) -> Any:
        """Return a copy of one dimension."""
        return self.copy().reshape(-1)

    __neg__ = _unary(np.negative)
    __pos__ = _unary(np.positive)
    __abs__ = _unary(np.absolute)
    __invert__ = _unary(np.invert)

    __eq__ = _compare(np.equal)
    __ne__ = _compare(np.not_equal)
    __lt__ = _compare(np.less)
    __le__ = _compare(np.less_equal)
    __gt__ = _compare(np.greater)
    __ge__ = _compare(np.greater_equal)
    __hash__ = object.__hash__
