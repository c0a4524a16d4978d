"""OpenCL C for operations on arrays element by element: the same results as NumPy's ufuncs of the same names. What IEEE
754 fixes (+ - * / of floating-point numbers, comparisons, conversions to less precision) is NumPy's to the bit, as are
all operations on integers: these wrap around, division rounds down, and divided by zero they are 0. A kernel is made
for each operation and types, and kept; they are named after both, as in ``add_float32``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from manycl.api.program import Kernel, Program
from manycl.group_range import GROUP

DType = np.dtype[Any]

_C = {"b1": "uchar", "i1": "char", "i2": "short", "i4": "int", "i8": "long"}
_C |= {"u1": "uchar", "u2": "ushort", "u4": "uint", "u8": "ulong", "f2": "half", "f4": "float", "f8": "double"}

COMPARISONS = {"equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
_ARITHMETIC = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
_BITS = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
_CALLED = ("floor_divide", "remainder", "power", "left_shift", "right_shift")
_WORDS = re.compile(r"(\b\w+\b)")
UNARY = ("negative", "positive", "absolute", "invert", "convert")
OPERATIONS = (*COMPARISONS, *_ARITHMETIC, *_BITS, *_CALLED, *UNARY)

ROUNDED = "-cl-fp32-correctly-rounded-divide-sqrt"
"""The build option without which divisions of float may be off by 2.5 units in the last place (OpenCL C, 7.4)."""

# For a type T of integers, and U as wide and unsigned (at least 32 bits, which C computes in).
_SIGNED = """
T floor_divide_T(T a, T b) {
  if (b == 0) return 0;
  if (b == -1) return (T)(0 - (U)a);
  T q = (T)(a / b);
  return (T)(a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q);
}
T remainder_T(T a, T b) {
  if (b == 0 || b == -1) return 0;
  T r = (T)(a % b);
  return (T)(r != 0 && (r < 0) != (b < 0) ? r + b : r);
}
T power_T(T a, T b) {
  if (b < 0) return (T)(a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0);
  U power = 1;
  U square = (U)a;
  for (U left = (U)b; left != 0; left >>= 1) {
    if (left & 1) power *= square;
    square *= square;
  }
  return (T)power;
}
T left_shift_T(T a, T b) { return b >= 0 && b < BITS ? (T)((U)a << (U)b) : 0; }
T right_shift_T(T a, T b) { return (T)(b >= 0 && b < BITS ? a >> b : a < 0 ? -1 : 0); }
"""
_UNSIGNED = """
T floor_divide_T(T a, T b) { return b == 0 ? 0 : (T)(a / b); }
T remainder_T(T a, T b) { return b == 0 ? 0 : (T)(a % b); }
T power_T(T a, T b) {
  U power = 1;
  U square = a;
  for (T left = b; left != 0; left >>= 1) {
    if (left & 1) power *= square;
    square *= square;
  }
  return (T)power;
}
T left_shift_T(T a, T b) { return b < BITS ? (T)((U)a << (U)b) : 0; }
T right_shift_T(T a, T b) { return b < BITS ? (T)(a >> b) : 0; }
"""
# Python's: what is left has the sign of the divisor, and the quotient is what NumPy's npy_divmod makes of that.
_FLOATING = """
T remainder_T(T a, T b) {
  T r = fmod(a, b);
  if (b == 0) return r;
  if (r == 0) return copysign((T)0, b);
  return (b < 0) != (r < 0) ? r + b : r;
}
T floor_divide_T(T a, T b) {
  if (b == 0) return a / b;
  T r = fmod(a, b);
  T q = (a - r) / b;
  if (r != 0 && (b < 0) != (r < 0)) q -= 1;
  if (q == 0) return copysign((T)0, a / b);
  T down = floor(q);
  return q - down > (T)0.5 ? down + 1 : down;
}
T power_T(T a, T b) { return pow(a, b); }
"""


class KernelForm(NamedTuple):
    """The form of a kernel: an operation on operands of types ``given`` (None: a scalar), which are converted to
    ``loop`` (NumPy's types for them), and whose result is converted to the type ``out``. ``inplace``: the result is
    written to the first operand. ``strided``: each operand has strides of its own along up to three dimensions."""

    operation: str
    given: tuple[DType | None, ...]
    loop: tuple[DType, ...]
    out: DType
    inplace: bool = False
    strided: bool = False

    @property
    def name(self) -> str:
        words = ["scalar" if t is None else t.name for t in self.given]
        operation = self.operation
        if len(set(words)) == 1:
            del words[1:]
        if operation == "convert" and self.given == (self.out,):
            operation = "copy"
        elif operation == "convert" or (self.inplace and self.out != self.given[0]):
            words += ["to", self.out.name]
        words += ["inplace"] * self.inplace + ["strided"] * self.strided
        return "_".join((operation, *words))


def is_known(dtype: DType) -> bool:
    """Return True if there are kernels for a type."""
    return _key(dtype) in _C


def scalar(value: Any, dtype: DType) -> Any:
    """Return a number as the argument of a kernel that computes with it as a ``dtype``."""
    number = dtype.type(value)
    return np.float32(number) if dtype == np.float16 else np.uint8(number) if dtype == np.bool_ else number


@lru_cache(maxsize=1024)
def kernel(form: KernelForm) -> Kernel:
    """Return the kernel ``(out, operands but one in place…, n)``; strided: ``(out, operands, n, m, strides…)``."""
    divides = form.operation in ("divide", "floor_divide")
    options = [ROUNDED] if divides and form.loop[0].kind == "f" and form.loop[0].itemsize < 8 else []
    return Program(source(form), options, path=f"<{form.name}>").kernel(form.name)


def source(form: KernelForm) -> str:
    """Return the text of the kernel."""
    names = "ab"[: len(form.given)]
    index = {"out": "i", "a": "i", "b": "i"}
    parameters = [f"global {named(form.out)} *out"]
    for name, dtype, loop in zip(names, form.given, form.loop, strict=True):
        if name == "a" and form.inplace:
            continue
        if dtype is None:
            parameters.append(f"{computed(loop)} {name}")
        else:
            parameters.append(f"global const {named(dtype)} *{name}")
    read = [n for n, t in zip(names, form.given, strict=True) if t is not None and not (n == "a" and form.inplace)]
    if form.strided:
        parameters += ["ulong n", "ulong m", *(f"ulong {name}{d}" for name in read for d in range(3))]
        index = {name: f"k * {name}2 + j * {name}1 + i * {name}0" for name in read} | {"out": "(k * m + j) * n + i"}
        begin = ["size_t i = get_global_id(0);", "size_t j = get_global_id(1);", "size_t k = get_global_id(2);"]
    else:
        parameters.append("ulong n")
        begin = ["size_t i = get_global_id(0);"]
    operands = []
    for name, dtype, loop in zip(names, form.given, form.loop, strict=True):
        if dtype is None:
            operands.append(name)
        elif name == "a" and form.inplace:
            operands.append(converted(loaded("out", form.out, index["out"]), form.out, loop))
        else:
            operands.append(converted(loaded(name, dtype, index[name]), dtype, loop))
    result = expression(form.operation, form.loop, operands)
    returned = np.dtype(bool) if form.operation in COMPARISONS else form.loop[0]
    kept = stored(converted(result, returned, form.out), form.out, index["out"])
    fp64 = ["#pragma OPENCL EXTENSION cl_khr_fp64 : enable"] * ("double" in (kept + " ".join(parameters)))
    return "\n".join(
        [
            *fp64,
            "#pragma OPENCL FP_CONTRACT OFF",
            _helpers(form.operation, form.loop[0]),
            f"kernel void {form.name}({', '.join(parameters)}) {{",
            *(f"  {line}" for line in begin),
            f"  if (i < n) {kept};",
            "}",
            "",
        ]
    )


def expression(operation: str, loop: Sequence[DType], operands: Sequence[str]) -> str:
    """Return the expression for an operation on operands (in brackets) of the types of ``loop``."""
    dtype, a, b = loop[0], operands[0], operands[-1]
    if operation in COMPARISONS:
        return _compared(COMPARISONS[operation], loop, a, b)
    if operation in _BITS:
        return f"({computed(dtype)})({a} {_BITS[operation]} {b})"
    if operation in _CALLED:
        return f"{operation}_{computed(dtype)}({a}, {b})"
    if operation in _ARITHMETIC:
        sign = _ARITHMETIC[operation]
        if dtype.kind == "b":
            return f"({a} {'|' if sign == '+' else '&'} {b})"
        return (
            f"({a} {sign} {b})"
            if dtype.kind == "f"
            else _wrapped(dtype, f"({_wide(dtype)}){a} {sign} ({_wide(dtype)}){b}")
        )
    if operation == "negative":
        return f"(-{a})" if dtype.kind == "f" else _wrapped(dtype, f"0 - ({_wide(dtype)}){a}")
    if operation == "absolute":
        if dtype.kind == "f":
            return f"fabs({a})"
        return f"({a} < 0 ? {_wrapped(dtype, f'0 - ({_wide(dtype)}){a}')} : {a})" if dtype.kind == "i" else a
    if operation == "invert":
        return f"(uchar)(!{a})" if dtype.kind == "b" else f"({computed(dtype)})(~{a})"
    assert operation in ("positive", "convert")
    return a


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


def _wrapped(dtype: DType, words: str) -> str:
    return f"({computed(dtype)})({words})"


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
        return f"({a} {sign} {b})"
    if loop[0].kind == "u":
        sign = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign)
        a, b = b, a
    negative = int(sign in ("<", "<=", "!="))
    return f"({a} < 0 ? {negative} : (ulong){a} {sign} {b})"


def _helpers(operation: str, dtype: DType) -> str:
    """Return the functions that an operation calls."""
    if operation not in _CALLED:
        return ""
    text = {"i": _SIGNED, "u": _UNSIGNED, "f": _FLOATING}[dtype.kind]
    one = next(f"T {part}" for part in text.split("\nT ") if part.startswith(f"{operation}_T"))
    named = one.replace(f"{operation}_T", f"{operation}_{computed(dtype)}").replace("BITS", str(8 * dtype.itemsize))
    words = {"T": computed(dtype), "U": _wide(dtype)}
    return "".join(words.get(part, part) for part in _WORDS.split(named)).rstrip()


EACH = 64
"""Elements of a block for each work-item of a group, which reduces one block of neighbouring elements; of others, one
work-item reduces a block of GROUP (benchmarks/everyday.py)."""

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
def fold_kernel(form: FoldForm) -> Kernel:
    """Return the kernel ``(out, arrays, n, m)``: m results for each row of n elements; strided: ``(out, arrays, n, m,
    inner)``, for each of ``inner`` columns."""
    return Program(fold_source(form), path=f"<{form.name}>").kernel(form.name)


def fold_source(form: FoldForm) -> str:
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
