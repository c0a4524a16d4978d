"""Zooms into the Mandelbrot set by an ordinary PyOpenCL program, which knows nothing of manycl

manycl exec --explain -- mandelbrot.py
"""

from __future__ import annotations

import numpy as np
import pyopencl as cl

SOURCE = """
__kernel void mandelbrot(__global int *steps, float left, float top, float pixel) {
  int x = get_global_id(0), y = get_global_id(1), n = 0;
  float re = left + x * pixel, im = top + y * pixel, a = 0, b = 0;
  for (; n < 200 && a * a + b * b < 4; n++) {
    float next = a * a - b * b + re;
    b = 2 * a * b + im;
    a = next;
  }
  steps[y * get_global_size(0) + x] = n;
}
"""
SIZE, FRAMES = 512, 12

context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
program = cl.Program(context, SOURCE).build()
kernel = program.mandelbrot
steps = np.empty((SIZE, SIZE), np.int32)
buffer = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, steps.nbytes)
for frame in range(FRAMES):
    width = 3 * 0.7**frame
    view = (np.float32(number) for number in (-0.75 - width / 2, 0.1 - width / 2, width / SIZE))
    kernel(queue, steps.shape, (16, 16), buffer, *view)
    cl.enqueue_copy(queue, steps, buffer)
    print(f"{width:.4f} wide: {(steps == 200).mean():.1%} of the pixels never leave")
print(context.devices[0].name)
