"""Operations on arrays, as arrays ask their queue for them."""

from manycl.api.arrays.arithmetic import apply, converted, transposed
from manycl.api.arrays.assigning import assign
from manycl.api.arrays.reductions import dot, mean, reduced

__all__ = ["apply", "assign", "converted", "dot", "mean", "reduced", "transposed"]
