"""y += a x, three times, on all devices of this machine: the Python API in twenty lines."""

import numpy as np

import manycl as mc

program = mc.Program("""
__kernel void saxpy(__global const float *x, __global float *y, float a) {
  int i = get_global_id(0);
  y[i] += a * x[i];
}""")  # parsed and analysed; errors carry line and column
queue = mc.Queue()  # every device of this machine
n = 1 << 16
x, y = queue.array(np.arange(n, dtype=np.float32)), queue.zeros(n, np.float32)
for a in (1.0, 2.0, 3.0):
    program.saxpy(queue, (n,), (64,), x, y, a)  # PyOpenCL's calling convention; nothing runs yet
queue.call(lambda v: print("sum", v.sum()), y, writes=[])  # host functions are nodes of the graph
result = y.get()  # planned, run on all devices, gathered
assert (result == 6 * np.arange(n, dtype=np.float32)).all()
print(queue.trace.summary())
queue.trace.gantt("saxpy.html")
