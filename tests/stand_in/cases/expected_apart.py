"""Cases with what is right: plain PyOpenCL is not asked. PoCL 3.0 ends the process when shared virtual memory is
released behind commands, and takes any size of local memory, beyond which kernels then write."""

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


def case_more_local_memory_than_there_is(ctx, queue):
    most = queue.device.local_mem_size
    source = f"""
    __kernel void given(__global int *x, __local int *t) {{ t[get_local_id(0)] = 2; x[get_global_id(0)] = t[0]; }}
    __kernel void own(__global int *x) {{ __local int t[{most // 4 + 1}]; t[get_local_id(0)] = 2; x[0] = t[0]; }}
    """
    program, found = cl.Program(ctx, source).build(), []
    buffer = cl.Buffer(ctx, cl.mem_flags.COPY_HOST_PTR, hostbuf=np.arange(16, dtype=np.int32))
    for name, local in (("given", (most + 4,)), ("given", (1 << 40,)), ("own", ())):
        try:
            getattr(program, name)(queue, (16,), (4,), buffer, *map(cl.LocalMemory, local))
        except cl.Error as error:
            found.append([type(error).__name__, error.code == cl.status_code.OUT_OF_RESOURCES, error.routine])
    out = np.empty(16, np.int32)
    cl.enqueue_copy(queue, out, buffer)
    program.given(queue, (16,), (4,), buffer, cl.LocalMemory(most))
    twos = np.empty(16, np.int32)
    cl.enqueue_copy(queue, twos, buffer)
    refused = ["RuntimeError", True, "clEnqueueNDRangeKernel"]
    return [found, out.tolist(), twos.tolist()], [[refused] * 3, list(range(16)), [2] * 16]
