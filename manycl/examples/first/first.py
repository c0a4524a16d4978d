"""The Mandelbrot set on one core and on all cores, a device each: the Python API in forty lines."""

import os
import time
from typing import Any

import numpy as np

import manycl as mc

program = mc.Program("""
__kernel void mandelbrot(__global int *steps, float scale) {
  int x = get_global_id(0), y = get_global_id(1), n = 0;
  float re = x * scale - 2, im = y * scale - 1.25f, a = 0, b = 0;
  for (; n < 200 && a * a + b * b < 4; n++) {
    float next = a * a - b * b + re;
    b = 2 * a * b + im;
    a = next;
  }
  steps[y * get_global_size(0) + x] = n;
}""")  # parsed and analysed; errors carry line and column


def best(devices: str) -> tuple[float, Any, str]:
    with mc.Queue(devices) as queue:  # mc.Queue(): every device of this machine
        steps = queue.empty((1024, 1024), np.int32)
        times = []
        for _ in range(8):
            start = time.perf_counter()
            program.mandelbrot(queue, steps.shape, (16, 16), steps, 2.5 / 1024)
            result = steps.get()  # planned, run on all devices, gathered
            times.append(1000 * (time.perf_counter() - start))
        queue.trace.gantt("mandelbrot.html")
        return min(times), result, queue.trace.summary()


cores = len(os.sched_getaffinity(0))
one, expected, _ = best(f"cpu/{cores}#0")  # one of the cores
all_of_them, result, summary = best(f"cpu/{cores}")  # a device for each core
assert (result == expected).all()  # bit for bit
print(summary)
print(f"one core: {one:.1f} ms; {cores} cores: {all_of_them:.1f} ms")
