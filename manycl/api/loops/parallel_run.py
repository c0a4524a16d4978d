"""Runs of ``parallel_for``: sizes, NumPy arrays to the devices and back, and the reduction of the blocks' results."""

from __future__ import annotations

import atexit
import math
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from manycl.api.arrays.array_queue import ArrayQueue
from manycl.api.arrays.arrays import Array
from manycl.api.arrays.elementwise import is_known, named
from manycl.api.arrays.host_arrays import AnyArray
from manycl.api.loops import parallel_text as text
from manycl.api.loops.parallel_text import Reduced
from manycl.api.program import Kernel, Program
from manycl.api.queue import Queue
from manycl.errors import LaunchError
from manycl.graph.graph import Placement
from manycl.group_range import GROUP

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


_GROUPS = {1: ((64,), (256,)), 2: ((4, 16), (4, 64)), 3: ((2, 4, 8), (2, 4, 32))}
"""Points of a work-group along each index: for few points, and for many."""
_MANY = 1 << 15  # points of a loop from which groups of work-items reduce; our own choice
_HARD = 10_000  # candidates that NumPy tries to find whether arrays share memory; our own choice

_default: list[Queue] = []
_opening = threading.Lock()


def default_queue() -> Queue:
    """Return the queue of loops that are given none: all devices (or MANYCL_DEVICES), opened when first needed."""
    with _opening:
        if not _default or _default[0].session.closed:
            if not _default:
                atexit.register(_close)
            _default[:] = [Queue()]
        return _default[0]


def _close() -> None:
    """Close the default queue as the process ends, while all that closing needs is there."""
    _default.pop().close()


def ndrange(
    counts: tuple[int, ...], local: Sequence[int] | None, reduces: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the global and local size of a loop. ``local``: points of a work-group along each index, as the user gives
    them. Raises LaunchError."""
    if reduces:
        if local is not None:
            raise LaunchError("parallel_for: a reduction has work-groups of its own, so local cannot be chosen")
        *others, last = counts
        blocks = -(-last // (GROUP * text.EACH))
        return (GROUP * blocks, *reversed(others)), (GROUP,) + (1,) * len(others)
    if local is None:
        few, many = _GROUPS[len(counts)]
        local = many if math.prod(counts) >= _MANY else few
    elif len(local) != len(counts) or not all(hasattr(n, "__index__") and n > 0 for n in local):
        raise LaunchError(f"parallel_for: local {tuple(local)!r:.60} does not fit the {len(counts)} indices")
    size = tuple(-(-n // g) * g for n, g in zip(counts, local, strict=True))
    return size[::-1], tuple(local)[::-1]


def blocks(size: tuple[int, ...]) -> int:
    """Return the number of blocks of a reduction with that global size."""
    return math.prod(size) // GROUP


class GivenArrays:
    """The arrays of a call, on its queue: ``on_queue`` by name, with copies of NumPy arrays. ``written``: the names of
    those that the body writes. ``lazy``: the loop may run after the call. Raises LaunchError for arrays that share
    memory of which one is written: the queue has copies."""

    def __init__(self, queue: ArrayQueue, arrays: Mapping[str, Any], written: set[str], lazy: bool) -> None:
        hosts = {name: a for name, a in arrays.items() if not isinstance(a, Array)}
        _check_apart(hosts, written)
        self.on_queue = {name: a for name, a in arrays.items() if isinstance(a, Array)}
        self._back: list[tuple[AnyArray, Array]] = []
        made: dict[int, Array] = {}  # an array given by two names is one
        changed = {id(a) for name, a in hosts.items() if name in written}
        for name, host in hosts.items():
            array = made.get(id(host))
            if array is None:
                data = np.ascontiguousarray(host)
                copy = lazy or id(host) in changed
                array = made[id(host)] = queue.array(data.reshape(host.shape), copy=copy, name=name)
                if id(host) in changed:
                    self._back.append((host, array))
            self.on_queue[name] = array

    def bring_back(self) -> None:
        """Copy new contents back to NumPy arrays, and wait for them."""
        for host, array in self._back:
            if host.flags.c_contiguous:
                array.get(out=host)
            else:
                host[...] = array.get()


def _check_apart(hosts: Mapping[str, AnyArray], written: set[str]) -> None:
    for name, host in hosts.items():
        if host.size == 0:
            raise LaunchError(f"parallel_for: {name} has no elements")
        if name not in written:
            continue
        if not host.flags.writeable:
            raise LaunchError(f"parallel_for: {name} is read-only, and the body writes it")
        for other, array in hosts.items():
            if array is not host and np.may_share_memory(host, array) and _share(host, array):
                raise LaunchError(
                    f"parallel_for: {name}, which the body writes, and {other} share memory",
                    hint="give the whole array once, or a copy of one of them",
                )


def _share(a: AnyArray, b: AnyArray) -> bool:
    try:
        return np.shares_memory(a, b, max_work=_HARD)  # type: ignore[arg-type]  # any number will do
    except np.exceptions.TooHardError:
        return True


def folded(r: Reduced, partial: Array, first: Any, queue: ArrayQueue, device: str | Placement) -> Array:
    """Return the results of a reduction's blocks, combined with the variable's first value: an array of shape ``()``.
    It has the same bits however the work is divided."""
    dtype = dtype_of(r.element)
    neutral = identity_of(r.operator, dtype)
    kernel = _fold_kernel(r.operator, r.element, GROUP, text.EACH)
    while True:
        count = -(-partial.size // (GROUP * text.EACH))
        result = queue.empty(() if count == 1 else count, dtype, name=r.name)
        begin = first if count == 1 else neutral
        kernel(queue, (GROUP * count,), (GROUP,), result, partial, partial.size, begin, device=device)
        if count == 1:
            return result
        partial = result


@lru_cache(maxsize=256)
def _fold_kernel(operator: str, element: str, group: int, each: int) -> Kernel:
    return Program(text.fold_source(operator, element), path="<parallel_for's results>").kernel("fold")
