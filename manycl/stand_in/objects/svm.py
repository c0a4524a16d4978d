"""Shared virtual memory: the best real device's. Who uses it waits, so the host may always look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import ref

import numpy as np

from manycl.drivers.opencl.real import compiled
from manycl.stand_in.errors import error
from manycl.stand_in.objects.contexts import CommandQueue, Context
from manycl.stand_in.objects.events import Event, submit
from manycl.stand_in.objects.images import as_command
from manycl.stand_in.objects.pools import Bins, Lease
from manycl.stand_in.objects.transfers import WaitFor, complete

_TYPE = compiled.command_type
SVMPointer = compiled.SVMPointer
SVM = compiled.SVM


class SVMAllocation(compiled.SVMAllocation):  # type: ignore[misc]
    """As PyOpenCL's; commands that use it have ended when it is released."""

    def __init__(
        self, context: Context, size: int, alignment: int, flags: int, queue: CommandQueue | None = None
    ) -> None:
        super().__init__(context.real, size, alignment, int(flags))
        self.own_context = context
        self._bound = queue

    def enqueue_release(self, queue: CommandQueue | None = None, wait_for: WaitFor = None) -> Event:
        used = queue or self._bound
        if used is None:
            raise error("INVALID_VALUE", "SVMAllocation.enqueue_release", "no queue was given")
        return submit(used, _TYPE.SVM_FREE, wait_for, lambda: self._release_behind(used))

    def _release_behind(self, queue: CommandQueue) -> None:
        queue.runtime.finish()
        self.release()

    def bind_to_queue(self, queue: CommandQueue) -> None:
        self._bound = queue

    def unbind_from_queue(self) -> None:
        self._bound = None

    @property
    def _queue(self) -> CommandQueue | None:
        return self._bound


class SVMAllocator:
    """``allocator(nbytes)``: memory of a context."""

    def __init__(self, context: Context, alignment: int = 0, flags: int = 1, queue: CommandQueue | None = None) -> None:
        self._context, self._alignment, self._flags, self.queue = context, alignment, int(flags), queue

    def __call__(self, size: int) -> SVMAllocation:
        return SVMAllocation(self._context, size, self._alignment, self._flags, self.queue)


class SVMPool(Bins[SVMAllocation]):
    """Of shared virtual memory."""

    def __init__(self, allocator: SVMAllocator, leading_bits_in_bin_id: int = 4) -> None:
        super().__init__(allocator, leading_bits_in_bin_id)
        self.queue = allocator.queue

    def __call__(self, size: int) -> PooledSVM:
        return PooledSVM(self, int(size))


class PooledSVM(compiled.SVM):  # type: ignore[misc]
    """Memory of a pool."""

    def __init__(self, pool: SVMPool, size: int) -> None:
        self._lease = Lease(pool, size)
        super().__init__(np.asarray(self._lease.block.buf)[:size])
        self._queue = pool.queue
        self.reference = ref(self)

    def release(self) -> None:
        self._lease.end()

    enqueue_release = release

    def bind_to_queue(self, queue: CommandQueue) -> None:
        """(Commands that use it have ended when they return, so there is nothing to order.)"""
        self._queue = queue

    def unbind_from_queue(self) -> None:
        self._queue = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PooledSVM) and self.svm_ptr == other.svm_ptr

    def __hash__(self) -> int:
        return hash(self.svm_ptr)


# commands


def _enqueue_svm_memcpy(
    queue: CommandQueue, is_blocking: int, dst: Any, src: Any, wait_for: WaitFor = None, byte_count: Any = None
) -> Event:
    command = as_command(queue, compiled._enqueue_svm_memcpy, True, dst, src, None, byte_count)
    return complete(submit(queue, _TYPE.SVM_MEMCPY, wait_for, command, (dst, src)), bool(is_blocking))


def _enqueue_svm_memfill(
    queue: CommandQueue, dst: Any, pattern: Any, byte_count: Any = None, wait_for: WaitFor = None
) -> Event:
    command = as_command(queue, compiled._enqueue_svm_memfill, dst, pattern, byte_count)
    return submit(queue, _TYPE.SVM_MEMFILL, wait_for, command)


def _enqueue_svm_map(
    queue: CommandQueue, is_blocking: int, flags: int, svm: Any, wait_for: WaitFor = None, size: Any = None
) -> Event:
    command = as_command(queue, compiled._enqueue_svm_map, True, int(flags), svm, None, size)
    return complete(submit(queue, _TYPE.SVM_MAP, wait_for, command), bool(is_blocking))


def _enqueue_svm_unmap(queue: CommandQueue, svm: Any, wait_for: WaitFor = None) -> Event:
    return submit(queue, _TYPE.SVM_UNMAP, wait_for, as_command(queue, compiled._enqueue_svm_unmap, svm))


def _enqueue_svm_migrate_mem(
    queue: CommandQueue, svms: Sequence[Any], flags: int | None = None, wait_for: WaitFor = None
) -> Event:
    command = as_command(queue, compiled._enqueue_svm_migrate_mem, svms, flags)
    return submit(queue, getattr(_TYPE, "SVM_MIGRATE_MEM", _TYPE.MARKER), wait_for, command)
