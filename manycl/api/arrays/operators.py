"""Python's operators on arrays: each is NumPy's ufunc for it, as a kernel (:mod:`manycl.api.arrays.arithmetic`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import numpy.typing as npt

from manycl.utilities.checked import checked

if TYPE_CHECKING:
    from manycl.api.arrays.arrays import Array

Axis = int | None
Out = Union["Array", None]
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

    def sum(
        self: Any, axis: Axis = None, dtype: npt.DTypeLike | None = None, out: Out = None, keepdims: bool = False
    ) -> Array:
        """Enqueue the sum of all elements, an array of shape ``()``, or of each line along an axis, with the type of
        NumPy's sum. ``out``: the array that takes it."""
        found: Array = self.queue.operations.reduced("sum", self, axis, dtype, out, keepdims)
        return found

    def min(self: Any, axis: Axis = None, out: Out = None, keepdims: bool = False) -> Array:
        """Enqueue the least element (NaN where there is one); as ``sum``."""
        found: Array = self.queue.operations.reduced("min", self, axis, None, out, keepdims)
        return found

    def max(self: Any, axis: Axis = None, out: Out = None, keepdims: bool = False) -> Array:
        """Enqueue the greatest element (NaN where there is one); as ``sum``."""
        found: Array = self.queue.operations.reduced("max", self, axis, None, out, keepdims)
        return found

    def mean(
        self: Any, axis: Axis = None, dtype: npt.DTypeLike | None = None, out: Out = None, keepdims: bool = False
    ) -> Array:
        """Enqueue the sum over the count; as ``sum``."""
        found: Array = self.queue.operations.mean(self, axis, dtype, out, keepdims)
        return found

    def dot(self: Any, other: Array) -> Array:
        """Enqueue the inner product with another array, both of one dimension: an array of shape ``()``."""
        found: Array = self.queue.operations.dot(self, other)
        return found

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
