"""Shared virtual memory, with what NumPy makes of the same: plain PyOpenCL is not asked, as PoCL 3.0 ends the process
when such memory is released behind commands."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pyopencl.array as clarray
from pyopencl.tools import SVMAllocator, SVMPool

TWICE = "__kernel void twice(__global float *a) { a[get_global_id(0)] *= 2; }"


def case_coarse_grained(ctx, queue):
    array = cl.SVM(cl.csvm_empty(ctx, (64,), np.float32))
    with array.map_rw(queue) as host:
        host[:] = np.arange(64)
    cl.Program(ctx, TWICE).build().twice(queue, (64,), None, array)
    with array.map_ro(queue) as host:
        return host.tolist(), (2.0 * np.arange(64)).tolist()


def case_opaque(ctx, queue):
    memory = cl.SVMAllocation(ctx, 256, 0, cl.svm_mem_flags.READ_WRITE, queue=queue)
    cl.enqueue_copy(queue, memory, np.arange(64, dtype=np.float32))
    cl.Program(ctx, TWICE).build().twice(queue, (64,), None, memory)
    copied, filled = np.empty(64, np.float32), np.empty(64, np.float32)
    cl.enqueue_copy(queue, copied, memory)
    cl.enqueue_svm_memfill(queue, memory, np.float32(4)).wait()
    cl.enqueue_copy(queue, filled, memory)
    memory.enqueue_release().wait()
    return [copied.tolist(), filled.tolist()], [(2.0 * np.arange(64)).tolist(), [4.0] * 64]


def case_beside_buffers(ctx, queue):
    """A kernel that takes memory of both kinds, between others that manycl may divide."""
    source = "__kernel void add(__global float *a, __global float *b) { int i = get_global_id(0); a[i] += b[i]; }"
    program = cl.Program(ctx, TWICE + source).build()
    buffer = cl.Buffer(ctx, cl.mem_flags.COPY_HOST_PTR, hostbuf=np.arange(64, dtype=np.float32))
    memory = cl.SVMAllocation(ctx, 256, 0, cl.svm_mem_flags.READ_WRITE)
    cl.enqueue_svm_memfill(queue, memory, np.float32(1)).wait()
    twice = program.twice
    twice(queue, (64,), None, buffer)
    program.add(queue, (64,), None, buffer, memory)
    twice(queue, (64,), None, buffer)
    out = np.empty(64, np.float32)
    cl.enqueue_copy(queue, out, buffer)
    return out.tolist(), (2 * (2.0 * np.arange(64) + 1)).tolist()


def case_pool(ctx, queue):
    pool = SVMPool(SVMAllocator(ctx, flags=cl.svm_mem_flags.READ_WRITE, queue=queue))
    array = clarray.to_device(queue, np.arange(16, dtype=np.float32), allocator=pool)
    found = (2 * array + 1).get().tolist()
    del array
    return [found, pool.active_blocks], [(2.0 * np.arange(16) + 1).tolist(), 0]
