"""Allocators and memory pools: numbers of bytes are handled as PyOpenCL's pools do (mempool.hpp), buffers kept by
size. What is handed out again is ordered by the one queue that runs everything."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar
from weakref import ref

import numpy as np

from manycl.drivers.opencl.real import compiled
from manycl.stand_in.errors import error
from manycl.stand_in.objects.contexts import CommandQueue, Context
from manycl.stand_in.objects.events import Event, submit
from manycl.stand_in.objects.images import as_command
from manycl.stand_in.objects.memory import Buffer
from manycl.stand_in.objects.objects import OpenCLObject
from manycl.stand_in.objects.transfers import WaitFor, complete

_FLAGS = compiled.mem_flags
Block = TypeVar("Block")


class AllocatorBase:
    """``allocator(nbytes)``: a buffer, or None of nothing."""

    is_deferred = False

    def __init__(self, context: Context, mem_flags: int = _FLAGS.READ_WRITE) -> None:
        if int(mem_flags) & (_FLAGS.USE_HOST_PTR | _FLAGS.COPY_HOST_PTR):
            raise error("INVALID_VALUE", "Allocator", "cannot specify USE_HOST_PTR or COPY_HOST_PTR flags")
        self._context = context
        self._flags = int(mem_flags)

    def __call__(self, size: int) -> Buffer | None:
        return Buffer.of_size(self._context, self._flags, size) if size else None


class DeferredAllocator(AllocatorBase):
    is_deferred = True

    def __init__(self, queue: Context, mem_flags: int = _FLAGS.READ_WRITE) -> None:
        super().__init__(queue, mem_flags)


class ImmediateAllocator(AllocatorBase):
    def __init__(self, queue: CommandQueue, mem_flags: int = _FLAGS.READ_WRITE) -> None:
        super().__init__(queue.own_context, mem_flags)


class Bins(Generic[Block]):
    """Blocks that were given back, by bins of sizes (a bin: the leading bits of a size, and how many there are)."""

    def __init__(self, allocate: Callable[[int], Block], leading_bits_in_bin_id: int) -> None:
        self._allocate = allocate
        self._bits = leading_bits_in_bin_id
        self._bins: dict[int, list[Block]] = {}
        self._is_holding = True
        self.held_blocks = self.active_blocks = self.managed_bytes = self.active_bytes = 0

    def bin_number(self, size: int) -> int:
        exponent = max(size.bit_length() - 1, 0)
        shift = exponent - self._bits
        shifted = size >> shift if shift >= 0 else size << -shift
        return exponent << self._bits | shifted & (1 << self._bits) - 1

    def alloc_size(self, number: int) -> int:
        """The bytes of the largest block of a bin."""
        shift = (number >> self._bits) - self._bits
        head = 1 << self._bits | number & (1 << self._bits) - 1
        return head >> -shift if shift < 0 else head << shift | (1 << shift) - 1

    def take(self, size: int) -> Block:
        """A block of at least so many bytes."""
        number = self.bin_number(size)
        kept = self._bins.setdefault(number, [])
        if kept:
            block = kept.pop()
            self.held_blocks -= 1
        else:
            nbytes = self.alloc_size(number)
            try:
                block = self._allocate(nbytes)
            except compiled.MemoryError:
                gc.collect()
                self.free_held()
                block = self._allocate(nbytes)
            self.managed_bytes += nbytes
        self.active_blocks += 1
        self.active_bytes += size
        return block

    def give_back(self, block: Block, size: int) -> None:
        self.active_blocks -= 1
        self.active_bytes -= size
        number = self.bin_number(size)
        if self._is_holding:
            self._bins.setdefault(number, []).append(block)
            self.held_blocks += 1
        else:
            self.managed_bytes -= self.alloc_size(number)

    def free_held(self) -> None:
        for number, kept in self._bins.items():
            self.managed_bytes -= len(kept) * self.alloc_size(number)
            kept.clear()
        self.held_blocks = 0

    def stop_holding(self) -> None:
        self._is_holding = False
        self.free_held()


class MemoryPool(Bins["Buffer | None"], OpenCLObject):
    """A pool of buffers."""

    def __init__(self, allocator: AllocatorBase, leading_bits_in_bin_id: int = 4) -> None:
        if getattr(allocator, "is_deferred", False):
            warnings.warn(
                "Memory pools expect non-deferred semantics from their allocators. You passed a deferred allocator,"
                " i.e. an allocator whose allocations can turn out to be unavailable long after allocation.",
                stacklevel=2,
            )
        super().__init__(allocator, leading_bits_in_bin_id)

    def allocate(self, size: int) -> PooledBuffer:
        return PooledBuffer(self, int(size))

    __call__ = allocate


class Lease(Generic[Block]):
    """A block of a pool's: it goes back there when nobody has the lease any more."""

    def __init__(self, pool: Bins[Block], size: int) -> None:
        self.block = pool.take(size)
        self._pool: Bins[Block] | None = pool
        self._size = size

    def end(self) -> None:
        """Give it back now."""
        pool, self._pool = self._pool, None
        if pool is None:
            raise error("INVALID_VALUE", "pooled_device_allocation::free")
        pool.give_back(self.block, self._size)

    def __del__(self) -> None:
        if getattr(self, "_pool", None) is not None and not sys.is_finalizing():
            self.end()


class PooledBuffer(Buffer):
    """A buffer of a pool."""

    def __init__(self, pool: MemoryPool, size: int) -> None:
        self._lease = Lease(pool, size)
        block = self._lease.block
        if block is not None:
            self._begin(block.own_context, block.own_flags, block.array, block.nbytes)
        else:
            self.array, self.nbytes, self._whole, self.low = None, 0, None, 0
            self.reference = ref(self)

    def release(self) -> None:
        self._lease.end()

    def bind_to_queue(self, queue: CommandQueue) -> None:
        """Do nothing: all queues are one."""

    def unbind_from_queue(self) -> None:
        """See ``bind_to_queue``."""


class _TestMemoryPool(Bins[None]):
    """A pool of nothing, as PyOpenCL's tests want one."""

    def __init__(self, leading_bits_in_bin_id: int = 4) -> None:
        super().__init__(lambda nbytes: None, leading_bits_in_bin_id)

    def allocate(self, size: int) -> None:
        return self.take(int(size))

    def _set_trace(self, flag: bool) -> None:
        pass


_TYPE = compiled.command_type
SVMPointer = compiled.SVMPointer
SVM = compiled.SVM


class SVMAllocation(compiled.SVMAllocation):  # type: ignore[misc]
    """Memory of a pool, as PyOpenCL's; commands that use it have ended when it is released."""

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
    """A pool of shared virtual memory."""

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
