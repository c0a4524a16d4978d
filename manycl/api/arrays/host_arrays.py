"""NumPy arrays as contents of arrays: which types there are, which contents fit, and the bytes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from manycl.errors import LaunchError, ResultError
from manycl.graph.graph import BufferArg
from manycl.graph.launch import leaves

AnyArray = npt.NDArray[Any]

READABLE: set[np.dtype[Any]] = set()
"""Types that kernels can read, as found by ``check_readable`` (a few: programs have few)."""


def as_array(contents: npt.ArrayLike, order: Literal["K", "C"] = "K") -> AnyArray:
    """Return the NumPy array of contents that the user gives. Raises ResultError."""
    try:
        return np.asarray(contents, order=order)
    except Exception as error:  # of any type: NumPy calls the object's methods
        raise ResultError(f"NumPy makes no array of this {type(contents).__name__}: {error}") from None


def check_readable(dtype: np.dtype[Any]) -> None:
    """Raise LaunchError for a type of which kernels can read nothing."""
    if dtype.hasobject:
        raise LaunchError("an array of Python objects cannot go to a device")
    if not all(leaf.kind in "biufcSV" for leaf in leaves(dtype)):
        raise LaunchError(
            f"an array of type {dtype} is nothing that a kernel can read: numbers, bytes and structs of them are",
            hint="contents.view(np.uint8) are its bytes",
        )
    if not dtype.isnative:
        raise LaunchError(
            f"an array of type {dtype} has its bytes in another order than the devices",
            hint="convert it: contents.astype(contents.dtype.newbyteorder('='))",
        )
    if len(READABLE) < 256:
        READABLE.add(dtype)


def fits(data: AnyArray, dtype: np.dtype[Any]) -> bool:
    """Return True if conversion to a type loses no more than rounding does."""
    if data.dtype.kind in "iu" and dtype.kind in "iu" and data.size:
        limits = np.iinfo(dtype)
        return bool(limits.min <= int(data.min()) and int(data.max()) <= limits.max)
    return np.can_cast(data.dtype, dtype, "same_kind")


def copy_contents(target: AnyArray, source: AnyArray) -> None:
    if source.dtype == target.dtype and source.flags.c_contiguous and target.flags.c_contiguous:
        from manycl.run.data.host_memory import copy_bytes

        copy_bytes(as_bytes(target), as_bytes(source))
    else:
        np.copyto(target, source, casting="unsafe")  # checked by the caller


def as_bytes(array: AnyArray) -> npt.NDArray[np.uint8]:
    """Return a C-contiguous array's memory as bytes (no copy)."""
    return array.reshape(-1).view(np.uint8)


def view_of(data: npt.NDArray[np.uint8], what: tuple[Any, Any, BufferArg], written: Collection[BufferArg]) -> AnyArray:
    """Return bytes as an array of a shape and type, for an argument that a host function has; read-only where that is
    not ``written``."""
    shape, dtype, argument = what
    view: AnyArray = data.view(dtype).reshape(shape)
    if argument not in written:
        view.flags.writeable = False
    return view
