"""Red zones: a pattern before and after every buffer that kernels see, looked at after each kernel (MANYCL_DEBUG=5).

A kernel that writes up to :data:`ZONE` bytes outside of a buffer changes a pattern instead of what lies beside, and is
named. One kernel runs at a time then, so it is that kernel. What is read outside, or written further away, is not seen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyopencl as cl

Bytes = npt.NDArray[np.uint8]

ZONE = 4096  # bytes; a multiple of what any device asks of sub-buffers (CL_DEVICE_MEM_BASE_ADDR_ALIGN)
PATTERN: Bytes = (np.arange(ZONE) * 37 + 11).astype(np.uint8)


class Trespass(NamedTuple):
    """Bytes outside of a buffer that were written: the first, counted from its beginning, and how many."""

    first: int
    written: int


def around(whole: Bytes) -> Bytes:
    """What lies between the red zones of host memory, which are drawn."""
    whole[:ZONE] = PATTERN
    whole[-ZONE:] = PATTERN
    return whole[ZONE:-ZONE]


def on_device(context: cl.Context, queue: cl.CommandQueue, nbytes: int) -> cl.Buffer:
    """A buffer of a device between red zones, which it keeps alive."""
    whole = cl.Buffer(context, cl.mem_flags.READ_WRITE, nbytes + 2 * ZONE)
    _draw(queue, whole, nbytes)
    return whole.get_sub_region(ZONE, nbytes)


def look_at_host(whole: Bytes) -> Trespass | None:
    """What was written into the red zones of host memory, which are drawn again."""
    nbytes = len(whole) - 2 * ZONE
    found = _compare(whole[:ZONE], whole[-ZONE:], nbytes)
    if found is not None:
        around(whole)
    return found


def look_on_device(queue: cl.CommandQueue, buffer: cl.Buffer) -> Trespass | None:
    """What was written into the red zones of a device's buffer, which are drawn again."""
    parent = buffer.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT)
    whole = cl.Buffer.from_int_ptr(parent.int_ptr)
    before, after = np.empty(ZONE, np.uint8), np.empty(ZONE, np.uint8)
    nbytes = buffer.size
    cl.enqueue_copy(queue, before, whole, src_offset=0)
    cl.enqueue_copy(queue, after, whole, src_offset=ZONE + nbytes)
    found = _compare(before, after, nbytes)
    if found is not None:
        _draw(queue, whole, nbytes)
    return found


def _draw(queue: cl.CommandQueue, whole: cl.Buffer, nbytes: int) -> None:
    cl.enqueue_copy(queue, whole, PATTERN, dst_offset=0)
    cl.enqueue_copy(queue, whole, PATTERN, dst_offset=ZONE + nbytes)


def _compare(before: Bytes, after: Bytes, nbytes: int) -> Trespass | None:
    places = np.concatenate([np.flatnonzero(before != PATTERN) - ZONE, np.flatnonzero(after != PATTERN) + nbytes])
    return Trespass(int(places[0]), len(places)) if len(places) else None
