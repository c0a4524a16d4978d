"""OpenCL C for reductions of arrays: sums, least and greatest elements, inner products. Elements are reduced block by
block, and the blocks' results likewise, until one is left. A block always has as many elements, reduced in one order,
so results are the same bits on all devices of one kind, however the work is divided. Sums of half are computed in float
and rounded once; integers wrap around; least and greatest are NaN if any is."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from manycl.api.arrays.elementwise import DType, computed, converted, expression, loaded, named, stored
from manycl.api.program import Kernel, Program
from manycl.group_range import GROUP

EACH = 64
"""Elements of a block for each work-item of a group, which reduces one block of neighbouring elements; of others, one
work-item reduces a block of GROUP (benchmarks/everyday.py)."""
OPERATIONS = "sum", "min", "max", "dot"

_ROWS = """
  local ACC part[GROUP];
  size_t me = get_local_id(0), group = get_group_id(0), row = get_global_id(1);
  size_t first = group * (GROUP * EACH);
  ACC x = BEGIN;
  for (int k = 0; k < EACH; k++) {
    size_t i = first + k * GROUP + me;
    if (i < n) { ACC y = AT(row * n + i); x = BOTH; }
  }
  part[me] = x;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int apart = GROUP / 2; apart > 0; apart /= 2) {
    if (me < apart) { ACC y = part[me + apart]; x = BOTH; part[me] = x; }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (me == 0) STORE(row * m + group);
"""
_GROUPS = """
  size_t i = get_global_id(0), block = get_global_id(1), row = get_global_id(2), first = block * GROUP;
  if (i < inner) {
    ACC x = AT((row * n + first) * inner + i);
    for (int k = 1; k < GROUP; k++)
      if (first + k < n) { ACC y = AT((row * n + first + k) * inner + i); x = BOTH; }
    STORE((row * m + block) * inner + i);
  }
"""


class FoldForm(NamedTuple):
    """The form of a kernel: an operation on arrays of types ``given`` (two: their products), computed in ``loop``,
    whose results are of type ``out``. ``is_strided``: elements of a block do not follow one another."""

    operation: str
    given: tuple[DType, ...]
    loop: DType
    out: DType
    is_strided: bool

    @property
    def name(self) -> str:
        words = list(dict.fromkeys(t.name for t in self.given))
        to = ["to", self.out.name] if self.out != self.given[0] else []
        return "_".join((self.operation, *words, *to, *["columns"] * self.is_strided))


@lru_cache(maxsize=256)
def kernel(form: FoldForm) -> Kernel:
    """Return the kernel ``(out, arrays, n, m)``: m results for each row of n elements; strided: ``(out, arrays, n, m,
    inner)``, for each of ``inner`` columns."""
    return Program(source(form), path=f"<{form.name}>").kernel(form.name)


def source(form: FoldForm) -> str:
    """Return the text of the kernel."""
    names = "ab"[: len(form.given)]
    pairs = list(zip(names, form.given, strict=True))
    element = [f"({converted(loaded(name, dtype, 'INDEX'), dtype, form.loop)})" for name, dtype in pairs]
    at = element[0] if len(element) == 1 else expression("multiply", (form.loop, form.loop), element)
    body = _GROUPS if form.is_strided else _ROWS
    begin = "0" if form.operation in ("sum", "dot") else "AT(row * n + first)"
    numbers = {"GROUP": GROUP, "EACH": EACH}
    parameters = [f"global {named(form.out)} *out", *(f"global const {named(dtype)} *{name}" for name, dtype in pairs)]
    parameters += ["ulong n", "ulong m", *["ulong inner"] * form.is_strided]
    keep = stored(converted("x", form.loop, form.out), form.out, "INDEX")
    defined = {
        "ACC": computed(form.loop),
        "BOTH": _both(form.operation, form.loop),
        "BEGIN": begin,
        "AT(INDEX)": at.replace("INDEX", "(INDEX)"),
        "STORE(INDEX)": keep.replace("INDEX", "(INDEX)"),
        **numbers,
    }
    is_double = "double" in " ".join([*parameters, computed(form.loop)])
    return "\n".join(
        [
            *["#pragma OPENCL EXTENSION cl_khr_fp64 : enable"] * is_double,
            "#pragma OPENCL FP_CONTRACT OFF",
            *(f"#define {name} {value}" for name, value in defined.items()),
            f"kernel void {form.name}({', '.join(parameters)}) {{{body}}}",
            "",
        ]
    )


def _both(operation: str, dtype: DType) -> str:
    """Return the expression that combines x and y."""
    if operation in ("sum", "dot"):
        return expression("add", (dtype, dtype), ["x", "y"])
    sign = "<" if operation == "min" else ">"
    is_nan = " || x != x" if dtype.kind == "f" else ""
    return f"(x {sign} y{is_nan} ? x : y)"


def accumulated(dtype: DType) -> DType:
    """Return the type in which elements of a type are accumulated."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype
