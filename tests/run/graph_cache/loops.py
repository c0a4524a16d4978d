"""For tests of graphs that come again: some kernels, and a loop of them on arrays that are new each time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import manycl as mc

Numbers = npt.NDArray[np.int32]
COUNT, GROUP = 256, 16
PROGRAM = mc.Program("""
kernel void copy(global const int *x, global int *y) { int i = get_global_id(0); y[i] = x[i]; }
kernel void add(global int *x, int n) { int i = get_global_id(0); x[i] += n; }
kernel void stencil(global const int *x, global int *y) {
    int i = get_global_id(0), n = get_global_size(0);
    if (i < n - 1) y[i] = x[i + 1] + 3 * x[i];
}
kernel void bins(global const int *x, global int *y) { atomic_add(&y[x[get_global_id(0)] & 7], 1); }
""")


def loop(queue: mc.Queue, number: int, times: int = 3) -> Numbers:
    x, y = queue.array(np.full(COUNT, number, np.int32)), queue.zeros(COUNT, np.int32)
    for _ in range(times):
        PROGRAM.stencil(queue, (COUNT,), (GROUP,), x, y)
        PROGRAM.add(queue, (COUNT,), (GROUP,), y, 1)
        x, y = y, x
    return x.get()
