"""Types and numbers of C for the arguments of a ``parallel_for``'s body."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from manycl.api.arrays.elementwise import is_known, named
from manycl.errors import LaunchError

DType = np.dtype[Any]

_COMPLEX = {"complex64": "float2", "complex128": "double2"}
_TYPES = {"char": "i1", "short": "i2", "int": "i4", "long": "i8", "half": "f2", "float": "f4", "double": "f8"}
_TYPES |= {f"u{name}": code.replace("i", "u") for name, code in _TYPES.items() if code[0] == "i"}
_WORDS = (str, bytes)


def element_of(name: str, dtype: DType) -> str:
    """Return the type of C that elements of an array have: of complex numbers vectors of two. Raises LaunchError."""
    if dtype.name in _COMPLEX:
        return _COMPLEX[dtype.name]
    if dtype.names is not None or dtype.subdtype is not None or not is_known(dtype):
        raise LaunchError(f"parallel_for: {name} is an array of {dtype}, which has no type in the body's C")
    return named(dtype)


def structure(name: str, dtype: DType) -> tuple[str, int]:
    """Return the structure of C that elements of an array are, and its alignment. Raises LaunchError for elements that
    C lays out differently."""
    fields, end, aligned = [], 0, 1
    for field, (kind, offset, *_) in (dtype.fields or {}).items():
        base, shape = kind.subdtype or (kind, ())
        element, at = structure(name, base) if base.names else (element_of(name, base), base.itemsize)
        fields.append(f"{element} {field}{''.join(f'[{n}]' for n in shape)};")
        if offset != -(-end // at) * at:
            break
        end, aligned = offset + kind.itemsize, max(aligned, at)
    else:
        if fields and dtype.itemsize == -(-end // aligned) * aligned:
            return f"struct {{ {' '.join(fields)} }}", aligned
    raise LaunchError(
        f"parallel_for: {name} is an array of {dtype}, which C lays out differently", hint="np.dtype(…, align=True)"
    )


def dtype_of(element: str) -> DType:
    """Return NumPy's type for a scalar type of C."""
    return np.dtype(_TYPES[element])


def initial(name: str, value: Any, double: bool) -> Any:
    """Return a number as NumPy's scalar of the type that it has in the body. Python's integers are long (ulong where
    they have to be); its floats are float, or double beside arrays of double; half is computed in float."""
    if isinstance(value, bool | np.bool_):
        return np.int32(value)
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return np.int64(value)
        if 0 <= value < 2**64:
            return np.uint64(value)
        raise LaunchError(f"parallel_for: {name} is {value}, which no integer of C holds")
    if isinstance(value, float) and not isinstance(value, np.generic):
        return np.float64(value) if double else _single(name, value)
    if isinstance(value, np.float16):
        return np.float32(value)
    if isinstance(value, np.generic) and is_known(value.dtype):
        return value
    hint = "np.asarray(…) makes an array" if isinstance(value, Sequence) and not isinstance(value, _WORDS) else ""
    raise LaunchError(f"parallel_for: {name} is {type(value).__name__}: no array, and no number of C", hint=hint)


def _single(name: str, value: float) -> np.float32:
    with np.errstate(over="ignore"):
        number = np.float32(value)
    if math.isinf(number) and not math.isinf(value):
        raise LaunchError(f"parallel_for: {name} is {value}, too large for float", hint="np.float64(…) is a double")
    return number


def constant(name: str, value: Any) -> str:
    """Return a constant as text of C: Python's floats are double, NumPy's numbers of their own type; text stays."""
    if isinstance(value, str):
        if "\n" in value or not value.strip():
            raise LaunchError(f"parallel_for: the constant {name} is one line of text, not {value!r:.60}")
        return value
    if isinstance(value, bool | np.bool_):
        return str(int(value))
    if isinstance(value, np.generic):
        if value.dtype.kind == "f":
            return _floating(float(value), "f" if value.dtype.itemsize < 8 else "")
        if value.dtype.kind in "iu":
            return f"(({named(value.dtype)}){_integer(name, int(value))})"
    if isinstance(value, int):
        return _integer(name, value)
    if isinstance(value, float):
        return _floating(value, "")
    raise LaunchError(f"parallel_for: the constant {name} is a number or text, not {type(value).__name__}")


def _integer(name: str, value: int) -> str:
    if value == -(2**63):
        return "(-9223372036854775807L - 1)"
    if not -(2**63) < value < 2**64:
        raise LaunchError(f"parallel_for: the constant {name} is {value}, which no integer of C holds")
    return f"({value}{'' if abs(value) < 2**31 else 'L' if value < 2**63 else 'UL'})"


def _floating(value: float, suffix: str) -> str:
    """Return a floating-point number exactly, in hexadecimal digits."""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "(-INFINITY)" if value < 0 else "INFINITY"
    return f"({value.hex()}{suffix})"


def sum_type(name: str, types: Sequence[DType]) -> DType:
    """Return the type of a reduced variable that is given no first value: the arrays' type, as NumPy sums them."""
    if not types or any(t.kind == "c" for t in types):
        raise LaunchError(
            f"parallel_for: the type of {name}, which is reduced, cannot be told from the arrays",
            hint=f"give what it begins with: {name}=np.float64(0)",
        )
    common = np.result_type(*types)
    if common == np.float16:
        return np.dtype(np.float32)
    summed: DType = np.zeros(1, common).sum().dtype
    return summed


def identity_of(operator: str, dtype: DType) -> Any:
    """Return the identity of an operator, in a type."""
    if operator in ("min", "max"):
        if dtype.kind == "f":
            return dtype.type(math.inf if operator == "min" else -math.inf)
        limits = np.iinfo(dtype)
        return dtype.type(limits.max if operator == "min" else limits.min)
    if operator == "&":
        return np.invert(dtype.type(0))
    return dtype.type(1 if operator == "*" else 0)
