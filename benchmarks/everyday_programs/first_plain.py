"""A first small program with plain PyOpenCL, from start to end; given are names of a platform and of a device."""

import sys

import numpy as np
import pyopencl as cl

from manycl.drivers.opencl.processor import introduce  # PoCL may be older than the processor

SOURCE = "kernel void twice(global float *x) { x[get_global_id(0)] *= 2.0f; }"

platform = next(p for p in cl.get_platforms() if p.name == sys.argv[1])
device = next(d for d in platform.get_devices() if d.name == sys.argv[2])
if platform.name.startswith("Portable"):
    introduce(device)
context = cl.Context([device])
queue = cl.CommandQueue(context)
program = cl.Program(context, SOURCE).build()
data = np.arange(1024, dtype=np.float32)
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, data.nbytes)
cl.enqueue_copy(queue, buffer, data)
program.twice(queue, data.shape, (64,), buffer)
result = np.empty_like(data)
cl.enqueue_copy(queue, result, buffer)
assert (result == 2 * data).all()
