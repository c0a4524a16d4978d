"""Checks of a launch: its arguments, their bytes, and its NDRange; checked before it is planned. The rules are OpenCL's
(clSetKernelArg, clEnqueueNDRangeKernel), narrowed where OpenCL leaves room for silent mistakes: a scalar is converted
by value to the declared type, never reinterpreted, and must fit."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from manycl.analysis.annotations import Annotation
from manycl.analysis.facts import ArgumentFacts, KernelFacts, ProgramFacts
from manycl.errors import LaunchError, a
from manycl.graph.graph import Argument, Buffer, BufferArg, BufferKey, Launch, LocalArg, Placement, Version
from manycl.graph.versions.versions import all_versions

Sizes = tuple[int, ...]


class ScalarType(NamedTuple):
    """A scalar type of OpenCL C: its code for :mod:`struct`, its NumPy dtype, its bytes."""

    code: str
    dtype: str
    size: int


_TYPES = {
    "char": ScalarType("b", "int8", 1),
    "uchar": ScalarType("B", "uint8", 1),
    "short": ScalarType("h", "int16", 2),
    "ushort": ScalarType("H", "uint16", 2),
    "int": ScalarType("i", "int32", 4),
    "uint": ScalarType("I", "uint32", 4),
    "long": ScalarType("q", "int64", 8),
    "ulong": ScalarType("Q", "uint64", 8),
    "half": ScalarType("e", "float16", 2),
    "float": ScalarType("f", "float32", 4),
    "double": ScalarType("d", "float64", 8),
}
_ALIASES = {
    "bool": "uchar",
    "signed char": "char",
    "unsigned char": "uchar",
    "unsigned short": "ushort",
    "signed": "int",
    "signed int": "int",
    "unsigned": "uint",
    "unsigned int": "uint",
    "unsigned long": "ulong",
    "size_t": "ulong",
    "ptrdiff_t": "long",
    "intptr_t": "long",
    "uintptr_t": "ulong",
}
TYPES: Mapping[str, ScalarType] = {**_TYPES, **{alias: _TYPES[name] for alias, name in _ALIASES.items()}}
"""Scalar types by every name that OpenCL C has for them (sizes of a 64-bit device)."""

VECTOR_WIDTHS = (2, 3, 4, 8, 16)

_PACK: dict[str, Callable[..., bytes]] = {name: struct.Struct("=" + t.code).pack for name, t in TYPES.items()}
INTEGERS = frozenset(name for name, t in TYPES.items() if t.code not in "efd")
"""The integer types among them."""
_BUFFER_LIKE = ("buffer", "local", "scalar")
_MAX_ITEMS = 2**63 - 1


def split_type(name: str) -> tuple[str, int]:
    """``float4`` -> ``("float", 4)``, ``unsigned int`` -> ``("uint", 1)``; ValueError for what is no such type."""
    plain = " ".join(name.split())
    plain = _ALIASES.get(plain, plain)
    if plain in _TYPES:
        return plain, 1
    base = plain.rstrip("0123456789")
    lanes = plain[len(base) :]
    base = _ALIASES.get(base, base)
    if base in _TYPES and lanes in {str(w) for w in VECTOR_WIDTHS}:
        return base, int(lanes)
    raise ValueError(f"{name!r} is not a scalar or vector type of OpenCL C")


def stored_lanes(lanes: int) -> int:
    """Lanes that an element takes in memory: three-wide vectors are stored as four (OpenCL C, 6.1.5)."""
    return 4 if lanes == 3 else lanes


def scalar_bytes(argument: ArgumentFacts, value: Any) -> bytes:
    """The bytes that the kernel receives for a by-value argument. ``value`` is a number (Python's or NumPy's), a
    sequence of ``lanes`` numbers for a vector, or, for any type, bytes or a NumPy value with exactly the argument's
    bytes. Numbers are converted by value: an integer must lie in the range of the declared type, and a fractional
    number does not go into an integer. Raises LaunchError."""
    if argument.lanes == 1 and argument.kind == "scalar" and not isinstance(value, (np.ndarray, np.bool_)):
        pack = _PACK.get(argument.base)
        if pack is not None:
            try:
                return pack(value)
            except (struct.error, TypeError, OverflowError, ValueError):
                pass
    return _scalar_bytes_slow(argument, value)


def _scalar_bytes_slow(argument: ArgumentFacts, value: Any) -> bytes:
    if argument.kind != "scalar":
        raise LaunchError(f"{_describe(argument)} takes {a(_noun(argument))}, not a value")
    raw = _raw_bytes(argument, value)
    if raw is not None:
        return raw
    if argument.base not in _PACK:
        wanted = f"{argument.size} bytes" if argument.size else "its exact bytes"
        raise LaunchError(
            f"{_describe(argument)} needs {wanted} (a NumPy structured value or bytes), got {value!r:.80}"
        )
    items = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
    if argument.lanes == 1:
        return _pack_one(argument, items)
    if not isinstance(items, (list, tuple)) or len(items) != argument.lanes:
        raise LaunchError(f"{_describe(argument)} needs {argument.lanes} numbers, got {value!r:.80}")
    data = b"".join(_pack_one(argument, item) for item in items)
    return data.ljust(max(argument.size, TYPES[argument.base].size * stored_lanes(argument.lanes)), b"\0")


def _raw_bytes(argument: ArgumentFacts, value: Any) -> bytes | None:
    """Values that are bytes already: bytes-like objects and structured NumPy values of the right size."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
    elif isinstance(value, (np.ndarray, np.generic)) and (value.dtype.names or argument.base not in _PACK):
        data = value.tobytes()
    else:
        return None
    if argument.size and len(data) != argument.size:
        raise LaunchError(f"{_describe(argument)} has {argument.size} bytes, got {len(data)}")
    return data


def _pack_one(argument: ArgumentFacts, value: Any) -> bytes:
    if isinstance(value, np.generic):
        value = value.item()
    try:
        return _PACK[argument.base](value)
    except (struct.error, TypeError, OverflowError, ValueError):
        pass
    if argument.base in INTEGERS and isinstance(value, int):
        bits = 8 * TYPES[argument.base].size
        signed = TYPES[argument.base].code.islower()
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        raise LaunchError(f"{_describe(argument)} is out of range: {value!r:.80} is not in {low}..{high}")
    if isinstance(value, (int, float)) and argument.base not in INTEGERS:
        raise LaunchError(f"{_describe(argument)} is out of range: {value!r:.80} does not fit {argument.base}")
    wanted = "an integer" if argument.base in INTEGERS else "a number"
    raise LaunchError(f"{_describe(argument)} needs {wanted}, got {value!r:.80}")


def check_ndrange(
    kernel: KernelFacts, global_size: int | Iterable[int], local_size: int | Iterable[int] | None
) -> tuple[Sizes, Sizes | None]:
    """The NDRange as tuples, in work-items, or LaunchError. One to three dimensions, all positive; the work-group
    divides the global size, and has the size that the kernel requires, if any. Without ``local_size`` a kernel's
    required size is used."""
    size = _sizes(kernel, "global", global_size)
    required = kernel.required_work_group
    if local_size is None:
        if required is None:
            return size, None
        local = required[: len(size)]
    else:
        local = _sizes(kernel, "local", local_size)
        if len(local) != len(size):
            raise LaunchError(
                f"kernel {kernel.name}: the work-group {local} has {len(local)} dimensions,"
                f" the global size {size} {len(size)}"
            )
    if required is not None and local + (1,) * (3 - len(local)) != required:
        raise LaunchError(f"kernel {kernel.name} requires work-groups of {required}, not {local}")
    for d, (g, w) in enumerate(zip(size, local, strict=True)):
        if g % w:
            raise LaunchError(
                f"kernel {kernel.name}: global size {size} is not divisible by its work-group {local}"
                f" in dimension {d} ({g} % {w} = {g % w})",
                hint="round the global size up and let the kernel leave out what is beyond the data",
            )
    return size, local


def local_bytes(launch: Launch, kernel: KernelFacts) -> int:
    """Return the bytes of local memory that a work-group takes of a launch, or of a version of it (its kernel)."""
    return kernel.local_bytes + sum([a.nbytes for a in launch.args if type(a) is LocalArg])


def _sizes(kernel: KernelFacts, which: str, value: Any) -> Sizes:
    try:
        size = integers(value)
    except TypeError:
        raise LaunchError(f"kernel {kernel.name}: {which} size {value!r:.80} is not made of integers") from None
    if not 1 <= len(size) <= 3:
        raise LaunchError(f"kernel {kernel.name}: {which} size {size!r:.80} has {len(size)} dimensions, not 1 to 3")
    if min(size) <= 0:
        raise LaunchError(f"kernel {kernel.name}: {which} size {size} must be positive in every dimension")
    if prod(size) > _MAX_ITEMS:
        raise LaunchError(f"kernel {kernel.name}: {which} size {size!r:.80} has too many work-items")
    return size


def integers(value: Any) -> Sizes:
    """One integer or several as a tuple, which sizes and offsets are made of. Raises TypeError."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    parts = [value] if hasattr(value, "__index__") else value
    if isinstance(parts, bytes) or bool in map(type, parts):
        raise TypeError(f"{value!r:.80} is not made of integers")
    return tuple(map(operator.index, parts))


def check_element_type(argument: ArgumentFacts, dtype: str | np.dtype[Any]) -> None:
    """Raises LaunchError when an array of NumPy type ``dtype`` cannot be what a buffer argument points to. The widths
    and integer or floating must agree, of every member of a structured type (and of the parts of a complex number); the
    sign may differ. Bytes go anywhere; so does anything into structs and void, whose layout is the user's."""
    known = TYPES.get(argument.base)
    if known is None:
        return
    have, want = np.dtype(dtype), np.dtype(known.dtype)
    for leaf in leaves(have):
        if leaf == np.uint8 or leaf.kind in "SV":  # bytes, padding
            continue
        size = leaf.itemsize // 2 if leaf.kind == "c" else leaf.itemsize
        if size != want.itemsize or (leaf.kind in "fc") != (want.kind == "f"):
            name = have.name if have.names is None else f"elements of {have}"
            raise LaunchError(f"{_describe(argument)} points to {argument.element}, but the buffer holds {name}")


def leaves(dtype: np.dtype[Any]) -> list[np.dtype[Any]]:
    """The types of all members of a structured type, of members of members too; the type itself where it has none."""
    if dtype.subdtype is not None:
        return leaves(dtype.subdtype[0])
    if dtype.names is None or dtype.fields is None:
        return [dtype]
    return [leaf for name in dtype.names for leaf in leaves(dtype.fields[name][0])]


class LaunchOptions(NamedTuple):
    """Options of a launch: its ``name`` (else the kernel's), where it may run (``device``), its place among others
    (``rank``: highest first), promises of what it touches, tenths for GPUs (``partition``)."""

    name: str = ""
    device: str | Placement = ""
    rank: float | None = None
    global_offset: tuple[int, ...] | None = None
    annotations: tuple[Annotation, ...] = ()
    partition: int | None = None


PLAIN = LaunchOptions()


def make_launch(
    program: ProgramFacts,
    kernel_name: str,
    global_size: int | Iterable[int],
    local_size: int | Iterable[int] | None,
    args: Sequence[Any],
    *,
    buffers: Mapping[BufferKey, Buffer],
    dtypes: Mapping[BufferKey, str] | None = None,
    options: LaunchOptions = PLAIN,
) -> Launch:
    """A checked launch. ``args`` are BufferArg, LocalArg or values for scalars, one per parameter of the kernel.
    ``buffers`` are the buffers by key; ``dtypes`` the NumPy types of those whose element type is to be checked. What
    the launch reads and writes is what the analysis found, whatever anyone declared. Raises LaunchError."""
    name, global_offset = options.name, options.global_offset
    kernel = find_kernel(program, kernel_name)
    where = f"kernel {kernel.name}" if name in ("", kernel.name) else f"kernel {kernel.name} ({name})"
    if len(args) != len(kernel.arguments):
        names = ", ".join(a.name or f"#{a.index}" for a in kernel.arguments)
        raise LaunchError(f"{where} takes {len(kernel.arguments)} arguments ({names}), got {len(args)}")
    size, local = check_ndrange(kernel, global_size, local_size)
    checked: list[Argument] = []
    reads: list[BufferKey] = []
    writes: list[BufferKey] = []
    for facts, value in zip(kernel.arguments, args, strict=True):
        try:
            checked.append(_argument(facts, value, buffers, dtypes or {}))
        except LaunchError as error:
            raise LaunchError(f"{where}: {error.message}", hint=error.hint) from None
        if isinstance(value, BufferArg):
            if facts.reads and value.key not in reads:
                reads.append(value.key)
            if facts.writes and value.key not in writes:
                writes.append(value.key)
    return Launch(
        name=name or kernel.name,
        program=program,
        kernel=kernel,
        global_size=size,
        local_size=local,
        args=tuple(checked),
        reads=tuple(reads),
        writes=tuple(writes),
        global_offset=global_offset,
        device=options.device,
        rank=options.rank,
        annotations=options.annotations,
        partition=options.partition,
    )


def find_kernel(program: ProgramFacts, name: str) -> KernelFacts:
    """The kernel of that name, or LaunchError naming those that there are."""
    kernel = program.kernels.get(name)
    if kernel is None:
        have = ", ".join(program.kernels) or "none"
        raise LaunchError(f"{program.path} has no kernel {name!r} (it has: {have})")
    return kernel


def _argument(
    facts: ArgumentFacts, value: Any, buffers: Mapping[BufferKey, Buffer], dtypes: Mapping[BufferKey, str]
) -> Argument:
    if facts.kind not in _BUFFER_LIKE:
        raise LaunchError(f"{_describe(facts)} is of a kind ({facts.kind}) that manycl does not run yet")
    if isinstance(value, BufferArg):
        if facts.kind != "buffer":
            raise LaunchError(f"{_describe(facts)} takes {a(_noun(facts))}, not a buffer")
        _check_buffer(facts, value, buffers, dtypes)
        return value
    if isinstance(value, LocalArg):
        if facts.kind != "local":
            raise LaunchError(f"{_describe(facts)} takes {a(_noun(facts))}, not local memory")
        if value.nbytes <= 0 or (facts.size and value.nbytes % facts.size):
            raise LaunchError(
                f"{_describe(facts)}: {value.nbytes} bytes of local memory are not a positive number of {facts.element}"
            )
        return value
    if facts.kind != "scalar":
        raise LaunchError(f"{_describe(facts)} takes {a(_noun(facts))}, not {value!r:.80}")
    return scalar_bytes(facts, value)


def _check_buffer(
    facts: ArgumentFacts, value: BufferArg, buffers: Mapping[BufferKey, Buffer], dtypes: Mapping[BufferKey, str]
) -> None:
    buffer = buffers.get(value.key)
    if buffer is None:
        raise LaunchError(f"{_describe(facts)}: there is no buffer {value.key}")
    if facts.size and buffer.nbytes % facts.size:
        raise LaunchError(
            f"{_describe(facts)}: buffer {buffer.name or buffer.key} of {buffer.nbytes} bytes"
            f" is not a whole number of {facts.element} ({facts.size} bytes each)"
        )
    dtype = dtypes.get(value.key)
    if dtype is not None:
        check_element_type(facts, dtype)


def _noun(facts: ArgumentFacts) -> str:
    return {"buffer": "buffer", "local": "size of local memory", "scalar": f"value of type {facts.element}"}.get(
        facts.kind, facts.kind
    )


def _describe(facts: ArgumentFacts) -> str:
    return f"argument {facts.index} ({facts.name})" if facts.name else f"argument {facts.index}"


def with_arguments(launch: Launch, args: tuple[Argument, ...]) -> Launch:
    """Return a launch with other arguments, of the same kinds."""
    given = list(zip(launch.kernel.arguments, args, strict=True))
    reads = dict.fromkeys(a.key for fact, a in given if isinstance(a, BufferArg) and fact.reads)
    writes = dict.fromkeys(a.key for fact, a in given if isinstance(a, BufferArg) and fact.writes)
    return replace(launch, args=args, reads=tuple(reads), writes=tuple(writes))


def with_versions(launch: Launch, versions: Sequence[Version]) -> Launch:
    """A launch that has none, with alternatives to its kernel. Raises LaunchError for those that it cannot have."""
    own = Version(launch.program, launch.kernel, launch.global_size, launch.local_size, annotations=launch.annotations)
    for version in versions:
        check_ndrange(version.kernel, version.global_size, version.local_size)
    return replace(launch, versions=all_versions(own, versions, launch.global_offset))
