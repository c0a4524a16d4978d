"""OpenCL C for operations on arrays: one kernel for a chain of operations element by element, with a reduction at its
end if there is one. Results are those of NumPy's ufuncs of the same names. What IEEE 754 fixes (+ - * / and square
roots of floating-point numbers, comparisons, conversions to less precision) is NumPy's to the bit, as are all
operations on integers: these wrap around, division rounds down, and divided by zero they are 0. A kernel is made for
each chain and its types, and kept; it is named after both, as in ``add_float32``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from manycl.api.arrays.functions_text import FLOATING, SIGNED, TABLE, UNSIGNED
from manycl.api.program import Kernel, Program
from manycl.group_range import GROUP

DType = np.dtype[Any]

_C = {"b1": "uchar", "i1": "char", "i2": "short", "i4": "int", "i8": "long"}
_C |= {"u1": "uchar", "u2": "ushort", "u4": "uint", "u8": "ulong", "f2": "half", "f4": "float", "f8": "double"}

COMPARISONS = {"equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
_ROUNDED = ("divide", "floor_divide", "sqrt", "reciprocal", "hypot")
_WORDS = re.compile(r"(\b\w+\b)")
DIMENSIONS = 3
"""Dimensions of an NDRange, at most (clEnqueueNDRangeKernel)."""
EACH = 64
"""Elements of a block for each work-item of a group, which reduces one block of neighbouring elements; of others, one
work-item reduces a block of GROUP (benchmarks/everyday.py)."""

ROUNDED = "-cl-fp32-correctly-rounded-divide-sqrt"
"""The build option without which divisions of float may be off by 2.5 units in the last place (OpenCL C, 7.4)."""


class ChainStep(NamedTuple):
    """An operation of a chain. ``operands``: inputs from 0 on, the results of earlier steps from -1 down; they are
    converted to ``loop`` (NumPy's types for them), and the result is of type ``out``."""

    operation: str
    loop: tuple[DType, ...]
    operands: tuple[int, ...]
    out: DType


class ChainForm(NamedTuple):
    """The form of a kernel: a chain of ``steps`` on ``inputs`` (of each its type, and what it is: an ``array``, a
    ``scalar``, or an ``index``, which is computed from where an element is), whose last result is converted to the type
    ``out``. ``is_strided``: inputs and result have strides of their own along three dimensions. ``inplace``: the input
    that is the result's own memory, else -1. ``fold``: how elements along the second dimension are put together, in the
    type ``loop``; empty: they are not. ``columns``: elements of a block do not follow one another. ``is_exact``: the
    NDRange ends where the elements do: without a condition compilers do better."""

    inputs: tuple[tuple[DType, str], ...]
    steps: tuple[ChainStep, ...]
    out: DType
    is_strided: bool = False
    inplace: int = -1
    fold: str = ""
    loop: DType = np.dtype(bool)
    columns: bool = False
    is_exact: bool = False

    @property
    def name(self) -> str:
        words = [s.operation for s in self.steps if s.operation != "convert"]
        words = words or ["convert"] * (bool(self.steps) and self.inputs[0][0] != self.out)
        given = [self.inputs[i] for s in self.steps[:1] for i in s.operands if i >= 0] or list(self.inputs)
        types = ["scalar" if kind == "scalar" else dtype.name for dtype, kind in given]
        if len(self.steps) > 1 or self.fold or len(set(types)) == 1:
            types = list(dict.fromkeys(types)) if len(self.steps) > 1 or self.fold else types[:1]
        to = ["to", self.out.name]
        if self.fold:
            types += to if self.out != self.inputs[0][0] else []
        elif not words:
            words = ["copy" if self.inputs[0][0] == self.out else "convert"]
            types += to * (words == ["convert"])
        elif words == ["convert"] or (self.inplace >= 0 and self.out != self.inputs[self.inplace][0]):
            types += to
        marks = ["inplace"] * (self.inplace >= 0) + ["strided"] * self.is_strided + ["columns"] * self.columns
        return "_".join((*words[:4], *["more"] * (len(words) > 4), *[self.fold] * bool(self.fold), *types[:3], *marks))


def is_known(dtype: DType) -> bool:
    """Return True if there are kernels for a type."""
    return _key(dtype) in _C


def has_kernel(operation: str, dtype: DType) -> bool:
    """Return True if there is a kernel for an operation that computes in a type."""
    return operation in COMPARISONS or dtype.kind in TABLE.get(operation, {})


def scalar(value: Any, dtype: DType) -> Any:
    """Return a number as the argument of a kernel that computes with it as a ``dtype``."""
    number = dtype.type(value)
    return np.float32(number) if dtype == np.float16 else np.uint8(number) if dtype == np.bool_ else number


@lru_cache(maxsize=1024)
def kernel(form: ChainForm) -> Kernel:
    """Return the kernel ``(out, arrays and scalars…, n, m…, strides…)``."""
    is_rounded = any(s.operation in _ROUNDED and s.loop[0].kind == "f" and s.loop[0].itemsize < 8 for s in form.steps)
    return Program(source(form), [ROUNDED] * is_rounded, path=f"<{form.name}>").kernel(form.name)


_ROWS = """
  local ACC part[GROUP];
  long me = get_local_id(0), group = get_group_id(0), k = get_global_id(1), i = 0;
  long first = group * (GROUP * EACH);
  ACC x = 0;
  int any = 0;
  for (int turn = 0; turn < EACH; turn++) {
    long j = first + turn * GROUP + me;
    if (j < n) {
      ACC y;
      ELEMENT
      x = any ? BOTH : y;
      any = 1;
    }
  }
  part[me] = x;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int apart = GROUP / 2; apart > 0; apart /= 2) {
    if (me < apart && first + me + apart < n) { ACC y = part[me + apart]; x = BOTH; part[me] = x; }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (me == 0) STORE(k * m + group);
"""
_COLUMNS = """
  long i = get_global_id(0), block = get_global_id(1), k = get_global_id(2), first = block * GROUP;
  if (i < inner) {
    ACC x = 0;
    for (int turn = 0; turn < GROUP; turn++) {
      long j = first + turn;
      if (j < n) {
        ACC y;
        ELEMENT
        x = turn ? BOTH : y;
      }
    }
    STORE((k * m + block) * inner + i);
  }
"""
_PLAIN = """
  long i = get_global_id(0);
  if (i < n) {
    ELEMENT
  }
"""
_STRIDED = """
  long i = get_global_id(0), j = get_global_id(1), k = get_global_id(2);
  if (i < n) {
    ELEMENT
  }
"""


def source(form: ChainForm) -> str:
    """Return the text of the kernel."""
    parameters = [f"global {named(form.out)} *out"]
    for i, (dtype, kind) in enumerate(form.inputs):
        if kind == "array" and i != form.inplace:
            parameters.append(f"global const {named(dtype)} *a{i}")
        elif kind == "scalar":
            parameters.append(f"{computed(dtype)} v{i}")
    parameters += ["long n", *["long m"] * (form.is_strided or bool(form.fold)), *["long inner"] * form.columns]
    moved = [f"a{i}" for i, (_, kind) in enumerate(form.inputs) if kind != "scalar" and i != form.inplace]
    moved = ([] if form.fold else ["out"]) + moved
    if form.is_strided:
        parameters += [f"long {name}_{d}" for name in moved for d in "bkji"]
        index = {name: f"{name}_b + k * {name}_k + j * {name}_j + i * {name}_i" for name in moved}
    else:
        plain = "i" if not form.fold else "(k * n + j) * inner + i" if form.columns else "k * n + j"
        index = dict.fromkeys(moved, plain)
    lines, value, dtype = _chain(form, index)
    if form.fold:
        body = _COLUMNS if form.columns else _ROWS
        lines.append(f"y = {converted(value, dtype, form.loop)};")
    else:
        body = _STRIDED if form.is_strided else _PLAIN
        body = body.replace("if (i < n) ", "") if form.is_exact else body
        lines.append(f"{stored(converted(value, dtype, form.out), form.out, index['out'])};")
    body = body.replace("ELEMENT", "\n    ".join(lines))
    defined: dict[str, Any] = {}
    if form.fold:
        keep = stored(converted("x", form.loop, form.out), form.out, "INDEX")
        defined = {"ACC": computed(form.loop), "BOTH": _both(form.fold, form.loop), "GROUP": GROUP, "EACH": EACH}
        defined["STORE(INDEX)"] = keep.replace("INDEX", "(INDEX)")
    text = "\n".join(
        [
            "#pragma OPENCL FP_CONTRACT OFF",
            *(f"#define {name} {words}" for name, words in defined.items()),
            *dict.fromkeys(_helper(s.operation, s.loop[0]) for s in form.steps),
            f"kernel void {form.name}({', '.join(parameters)}) {{{body}}}",
            "",
        ]
    )
    return "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" * ("double" in text) + text


def _chain(form: ChainForm, index: dict[str, str]) -> tuple[list[str], str, DType]:
    """Return statements that compute the chain's last result, its name, and its type."""
    lines = []
    for i, (dtype, kind) in enumerate(form.inputs):
        at = index["out" if i == form.inplace else f"a{i}"] if kind != "scalar" else ""
        if kind == "array":
            name = "out" if i == form.inplace else f"a{i}"
            lines.append(f"{computed(dtype)} v{i} = {loaded(name, dtype, at)};")
        elif kind == "index":
            lines.append(f"long v{i} = {at};")
    value, dtype = "v0", form.inputs[0][0]
    for number, step in enumerate(form.steps):
        operands = []
        for ref, loop in zip(step.operands, step.loop, strict=True):
            name, of = (f"v{ref}", form.inputs[ref][0]) if ref >= 0 else (f"t{-1 - ref}", form.steps[-1 - ref].out)
            operands.append(converted(name, of, loop))
        value, dtype = f"t{number}", step.out
        is_exact = step.operation == "convert" and step.loop[0] == np.float64 and dtype == np.float16
        kind = "double" if is_exact else computed(dtype)  # doubles become halves in one step, as they are stored
        lines.append(f"{kind} {value} = {expression(step, operands)};")
    return lines, value, dtype


def expression(step: ChainStep, operands: Sequence[str]) -> str:
    """Return the expression for an operation on operands of the types of its loop."""
    if step.operation in COMPARISONS:
        return _compared(COMPARISONS[step.operation], step.loop, operands[0], operands[-1])
    kind = step.loop[-1] if step.operation == "where" else step.loop[0]
    words = TABLE[step.operation][kind.kind]
    if step.operation == "convert":
        return converted(operands[0], step.loop[0], step.out)
    names = dict(zip("abcd", (f"({o})" for o in operands), strict=False)) | {"T": computed(kind), "U": _wide(kind)}
    found = "".join(names.get(part, part) for part in _WORDS.split(words))
    found = found.replace("@", f"_{computed(kind)}")
    return f"({computed(step.out)})({found})"


def _key(dtype: DType) -> str:
    return f"{dtype.kind}{dtype.itemsize}"


def named(dtype: DType) -> str:
    """Return the type of C that elements have in memory."""
    return _C[_key(dtype)]


def computed(dtype: DType) -> str:
    """Return the type of C that is computed in: float for halves, with the same bits as if rounded once."""
    return "float" if dtype == np.float16 else _C[_key(dtype)]


def _wide(dtype: DType) -> str:
    """Return the unsigned type of C to compute in, so that it wraps around; C computes in 32 bits at least."""
    return "ulong" if dtype.itemsize == 8 else "uint"


def loaded(name: str, dtype: DType, index: str) -> str:
    """Return the expression that loads an element for computing."""
    return f"vload_half({index}, {name})" if dtype == np.float16 else f"{name}[{index}]"


def stored(value: str, dtype: DType, index: str) -> str:
    """Return the statement that stores a value as an element of ``out``."""
    if dtype == np.float16:
        return f"vstore_half_rte({value}, {index}, out)"
    return f"out[{index}] = {value}"


def converted(value: str, dtype: DType, to: DType) -> str:
    """Return the expression of a value in another type; doubles become halves in one step, as they are stored."""
    if dtype == to or (dtype == np.float64 and to == np.float16):
        return value
    if to == np.bool_:
        return f"(uchar)({value} != 0)"
    return f"({computed(to)})({value})"


def _compared(sign: str, loop: Sequence[DType], a: str, b: str) -> str:
    """Return the expression of a comparison; long and ulong are compared as numbers, as by NumPy."""
    if len({t.kind for t in loop}) == 1:
        return f"(uchar)({a} {sign} {b})"
    if loop[0].kind == "u":
        sign = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign)
        a, b = b, a
    negative = int(sign in ("<", "<=", "!="))
    return f"(uchar)({a} < 0 ? {negative} : (ulong){a} {sign} {b})"


def _helper(operation: str, dtype: DType) -> str:
    """Return the function that an operation calls; empty if there is none."""
    if "@" not in TABLE.get(operation, {}).get(dtype.kind, ""):
        return ""
    text = {"i": SIGNED, "u": UNSIGNED, "f": FLOATING}[dtype.kind]
    one = next(f"T {part}" for part in text.split("\nT ") if part.startswith(f"{operation}_T"))
    named = one.replace(f"{operation}_T", f"{operation}_{computed(dtype)}").replace("BITS", str(8 * dtype.itemsize))
    words = {"T": computed(dtype), "U": _wide(dtype)}
    return "".join(words.get(part, part) for part in _WORDS.split(named)).rstrip()


def _both(operation: str, dtype: DType) -> str:
    """Return the expression that combines x and y."""
    if operation in ("sum", "prod"):
        step = ChainStep({"sum": "add", "prod": "multiply"}[operation], (dtype, dtype), (0, 1), dtype)
        return expression(step, ["x", "y"])
    sign = "<" if operation == "min" else ">"
    is_nan = " || x != x" if dtype.kind == "f" else ""
    return f"(x {sign} y{is_nan} ? x : y)"


def accumulated(dtype: DType) -> DType:
    """Return the type in which elements of a type are accumulated."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype
