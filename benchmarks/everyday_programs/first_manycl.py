"""A first small program with manycl, from start to end; given may be devices."""

import sys

import numpy as np

import manycl as mc

SOURCE = "kernel void twice(global float *x) { x[get_global_id(0)] *= 2.0f; }"

queue = mc.Queue(*sys.argv[1:])
program = mc.Program(SOURCE).build()
data = np.arange(1024, dtype=np.float32)
x = queue.array(data)
program.twice(queue, data.shape, (64,), x)
assert (x.get() == 2 * data).all()
