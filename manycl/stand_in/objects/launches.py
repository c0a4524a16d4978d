"""Launching kernels: by manycl, or, what it does not take, on the best real device alone."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any
from weakref import ref

from manycl.api import events as api
from manycl.api.program import LocalMemory
from manycl.drivers.opencl.real import compiled
from manycl.errors import ManyclError
from manycl.stand_in.errors import error
from manycl.stand_in.native_model import NativeModel
from manycl.stand_in.objects.events import Event, are_free, submit
from manycl.stand_in.objects.images import Image, Sampler
from manycl.stand_in.objects.memory import Buffer, MemoryObject

if TYPE_CHECKING:
    from manycl.stand_in.objects.contexts import CommandQueue
    from manycl.stand_in.objects.kernels import Kernel

_ROUTINE = "clEnqueueNDRangeKernel"
_KIND = compiled.command_type.NDRANGE_KERNEL
_LOCAL = LocalMemory, compiled.LocalMemory
Sizes = tuple[int, ...]
NDRange = tuple[Sizes, Sizes | None, Sizes | None]
"""Global and local size, and offset."""


def enqueue_nd_range_kernel(
    queue: CommandQueue,
    kernel: Kernel,
    global_work_size: Any,
    local_work_size: Any,
    global_offset: Any = None,
    wait_for: Sequence[Event] | None = None,
    g_times_l: bool = False,
    allow_empty_ndrange: bool = False,
) -> Event:
    """With the arguments as they are set now."""
    if queue.is_usual and are_free(wait_for) and not g_times_l and global_offset is None:
        event = _again(queue, kernel, global_work_size, local_work_size)
        if event is not None:
            return event
    size, local, offset = ndrange(global_work_size, local_work_size, global_offset, g_times_l)
    if 0 in size or (local is not None and 0 in local):
        if allow_empty_ndrange:
            return submit(queue, _KIND, wait_for, lambda: None)
        # else as the real device sees it
        return _whole(queue, kernel, (size, local, None), kernel.arguments(), wait_for, "it has no work-items")
    given = kernel.arguments()
    if kernel.shares:
        for value in given:
            if isinstance(value, Buffer):
                value.share()
    if kernel.apart or kernel.facts is None:
        return _whole(queue, kernel, (size, local, offset), given, wait_for, kernel.why_whole)
    manycl = queue.manycl
    bound = [_bound(value) for value in given]

    def enqueue() -> api.Event | None:
        try:
            return kernel.front(manycl, size, local, *bound, global_offset=offset)
        except ManyclError as refused:
            _run_whole(queue, kernel, (size, local, offset), given, refused.message)
            return None

    return submit(queue, _KIND, wait_for, enqueue)


def _again(queue: CommandQueue, kernel: Kernel, size: Any, local: Any) -> Event | None:
    """A launch of arguments that are nothing special; None for others."""
    try:
        if kernel.missing or kernel.apart or kernel.shares:
            return None
        # (AttributeError for a buffer that is gone)
        bound = [value().array if type(value) is ref else value for value in kernel.given]  # type: ignore[union-attr]
        queued = perf_counter_ns() if queue.is_profiling else 0
        event = Event(queue, _KIND, kernel.front(queue.manycl, size, local, *bound))
        if queued:
            event.queued = queued
        return event
    except (ManyclError, AttributeError, TypeError):  # sizes that are lists, buffers that are gone, and what is refused
        return None


def _bound(value: Any) -> Any:
    """What manycl's kernel is given for an argument."""
    if isinstance(value, Image):
        return value.argument()
    return value.array if isinstance(value, Buffer) else value.number if isinstance(value, Sampler) else value


def ndrange(size: Any, local: Any, offset: Any, g_times_l: bool) -> tuple[Sizes, Sizes | None, Sizes | None]:
    """Sizes as tuples, as PyOpenCL takes them: with ``g_times_l`` the global size, and the offset, are counted in
    work-groups, and what has less dimensions is filled up."""
    routine = "enqueue_nd_range_kernel"
    extents = tuple([int(n) for n in size])
    groups = None if local is None else tuple([int(n) for n in local])
    first = None if offset is None else tuple([int(n) for n in offset])
    if groups is not None:
        if g_times_l:
            dimensions = max(len(extents), len(groups))
            extents += (1,) * (dimensions - len(extents))
            groups += (1,) * (dimensions - len(groups))
            extents = tuple([g * w for g, w in zip(extents, groups, strict=True)])
        elif len(groups) != len(extents):
            raise error("INVALID_VALUE", routine, "global/local work sizes have differing dimensions")
    if first is not None:
        if len(first) != len(extents):
            raise error("INVALID_VALUE", routine, "global work size and offset have differing dimensions")
        if g_times_l and groups is not None:
            first = tuple([o * w for o, w in zip(first, groups, strict=True)])
    return extents, groups, first


def _whole(
    queue: CommandQueue, kernel: Kernel, sizes: NDRange, given: Sequence[Any], wait_for: Any, reason: str
) -> Event:
    return submit(queue, _KIND, wait_for, lambda: _run_whole(queue, kernel, sizes, given, reason))


def _run_whole(queue: CommandQueue, kernel: Kernel, sizes: NDRange, given: Sequence[Any], reason: str) -> None:
    """On the best real device, when all that was enqueued before has ended; wait for it. Raises RuntimeError where it
    has not so much local memory as a work-group needs, which drivers need not look at."""
    from manycl.stand_in.objects.kernels import real_value, set_real

    runtime, (size, local, offset) = queue.runtime, sizes
    one, needed = runtime.one, sum([value.size for value in given if isinstance(value, _LOCAL)])
    needed += kernel.facts.local_bytes if kernel.facts is not None else 0
    if needed and needed > (most := one.device.get_info(compiled.device_info.LOCAL_MEM_SIZE)):
        raise error("OUT_OF_RESOURCES", _ROUTINE, f"{needed} bytes of local memory, where there are {most}")
    if local is not None and not kernel.apart and isinstance(one.device, NativeModel):
        raise error("INVALID_WORK_GROUP_SIZE", _ROUTINE, f"{reason}; {one.device.missing}")
    runtime.finish()
    real = kernel.real
    with one.lock:
        memory = {value for value in given if isinstance(value, MemoryObject)}
        loan = one.lend(value for value in memory if not isinstance(value, Buffer) or value.array is not None)
        try:
            for index, value in enumerate(given):
                set_real(real, index, loan.real.get(value) if isinstance(value, MemoryObject) else real_value(value))
            compiled.enqueue_nd_range_kernel(one.queue, real, size, local, offset).wait()
        finally:
            loan.end()
    runtime.whole[kernel.name, kernel.line, reason] += 1
