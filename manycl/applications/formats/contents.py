"""Initial contents of buffers, checked: types, shapes, ranges, files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from manycl.analysis.facts import ArgumentFacts
from manycl.applications.application import Contents
from manycl.applications.formats.kinds import Fields
from manycl.errors import LaunchError
from manycl.expressions import Number, suggest
from manycl.graph.launch import TYPES, scalar_bytes, split_type, stored_lanes
from manycl.units import LARGEST
from manycl.utilities.json_lines import Location

_FIELDS = {"random": ("seed", "low", "high"), "constant": ("value",), "file": ("path",)}
_REQUIRED = {"constant": ("value",), "file": ("path",)}
_OPENCL = {t.dtype: name for name, t in reversed(list(TYPES.items()))}


def check_fields(init: Fields) -> None:
    """That a kind of contents has its fields and no others."""
    kind = init["kind"]
    for key in init.values:
        if key != "kind" and key not in _FIELDS.get(kind, ()):
            raise init.where(key).error(f"contents of kind {kind} have no such field")
    for key in _REQUIRED.get(kind, ()):
        if key not in init:
            raise init.place.error(f"contents of kind {kind} need the field {key!r}")


def array_type(type_name: str, shape: tuple[int, ...], place: Location) -> tuple[str, tuple[int, ...]]:
    """NumPy's type and shape for elements of an OpenCL C type; a vector adds a dimension."""
    try:
        base, lanes = split_type(type_name)
    except ValueError as error:
        raise place.at("type").error(f"{error}{suggest(type_name, TYPES)}") from None
    full = (*shape, stored_lanes(lanes)) if lanes > 1 else shape
    nbytes = TYPES[base].size
    for extent in full:
        nbytes *= extent
    if nbytes > LARGEST:
        raise place.at("shape").error(f"{nbytes} bytes are too many")
    return TYPES[base].dtype, full


def random(dtype: str, shape: tuple[int, ...], seed: int, init: Fields) -> Contents:
    """Uniform numbers: floats from [0, 1) and integers from 0 to 99 unless ``init`` says otherwise."""
    integer = np.dtype(dtype).kind != "f"
    low, high = init["low"], init["high"]
    low, high = 0 if low is None else low, (100 if integer else 1) if high is None else high
    if not low < high:
        raise init.place.error(f"low must be less than high, not {low} and {high}")
    for key, value in (("low", low), ("high", high - 1 if integer else high)):
        _check_fits(dtype, value, init.where(key))
    return Contents("random", dtype, shape, seed=seed, low=float(low), high=float(high))


def constant(dtype: str, shape: tuple[int, ...], value: Number, place: Location) -> Contents:
    _check_fits(dtype, value, place)
    if float(value) != value:
        raise place.error(f"{value} has too many digits for initial contents")
    return Contents("constant", dtype, shape, value=float(value))


def from_file(path: Path, type_name: str, shape: tuple[int, ...] | None, place: Location) -> Contents:
    """A .npy file, whose header must agree with the declared type and shape, if any. Raises SpecificationError."""
    here = place.at("init", "path")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise here.error(f"{path} cannot be read as a .npy file: {why}") from None
    if not isinstance(array, np.ndarray) or array.dtype.name not in _OPENCL or not array.dtype.isnative:
        kind = getattr(array, "dtype", type(array).__name__)
        raise here.error(f"{path} holds {kind}, which is no type of OpenCL C's numbers")
    type_name = type_name or _OPENCL[array.dtype.name]
    expected_dtype, expected = array_type(type_name, shape if shape is not None else (1,), place)
    if shape is None:
        lanes = expected[1:]
        fits = not lanes or array.shape[-1:] == lanes
        expected = array.shape
    else:
        fits = array.shape == expected
    if array.dtype.name != expected_dtype or not fits or array.size == 0:
        raise here.error(f"{path} holds {array.dtype.name} {array.shape}, not {type_name} {expected}")
    return Contents("file", expected_dtype, tuple(array.shape), path=str(path))


def struct_bytes(argument: ArgumentFacts, types: Sequence[str], values: Sequence[Number], place: Location) -> bytes:
    """A struct with members of scalar types, laid out as C aligns them, as the bytes the kernel receives."""
    codes = []
    for index, (name, value) in enumerate(zip(types, values, strict=True)):
        if name not in TYPES:
            raise place.at("types", index).error(f"{name!r} is no scalar type of OpenCL C{suggest(name, TYPES)}")
        _check_fits(TYPES[name].dtype, value, place.at("values", index))
        codes.append((f"f{index}", TYPES[name].dtype))
    return scalar_bytes(argument, np.array([tuple(values)], np.dtype(codes, align=True))[0])


def _check_fits(dtype: str, value: Number, place: Location) -> None:
    base = _OPENCL[dtype]
    argument = ArgumentFacts(0, "", "scalar", base, base, 1, TYPES[base].size, "private")
    try:
        scalar_bytes(argument, value)
    except LaunchError:
        raise place.error(f"{value} does not fit {base}") from None
