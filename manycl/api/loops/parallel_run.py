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
from manycl.api.arrays.host_arrays import AnyArray
from manycl.api.loops import parallel_text as text
from manycl.api.loops.parallel_text import Reduced
from manycl.api.loops.parallel_values import dtype_of, identity_of
from manycl.api.program import Kernel, Program
from manycl.api.queue import Queue
from manycl.errors import LaunchError
from manycl.graph.graph import Placement
from manycl.group_range import GROUP

_GROUPS = {1: ((64,), (256,)), 2: ((4, 16), (4, 64)), 3: ((2, 4, 8), (2, 4, 32))}
"""Points of a work-group along each index: for few points, and for many."""
_MANY = 1 << 15  # points
_HARD = 10_000  # candidates that NumPy tries to find whether arrays share memory

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
