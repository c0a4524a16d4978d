"""Loops on all devices: heat in a plate until it has settled, and how much heat there is, by bodies of loops alone.

    python parallel_for.py [n]

Every step is one loop over the inner points of an n x n plate; each hundred steps a reduction tells the largest change.
The result is compared with NumPy's.
"""

import sys

import numpy as np

import manycl as mc

n = int(sys.argv[1]) if len(sys.argv) > 1 else 256
STEPS = 300
STEP = """
long at = i * n + j;
b[at] = 0.25f * (a[at - n] + a[at + n] + a[at - 1] + a[at + 1]);
"""

plate = np.zeros((n, n), np.float32)
plate[0] = 100.0  # one edge is hot

queue = mc.Queue()
a, b = queue.array(plate), queue.array(plate)
inner = range(1, n - 1), range(1, n - 1)
for step in range(1, STEPS + 1):
    mc.parallel_for(inner, STEP, a=a, b=b, n=n)
    a, b = b, a
    if step % 100 == 0:
        change = mc.parallel_for(n * n, "d = max(d, fabs(a[i] - b[i]));", a=a, b=b, reduction={"d": "max"})
        print(f"after {step} steps the largest change is {float(change):.4f}")
heat = mc.parallel_for(n * n, "s += a[i];", a=a, s=np.float64(0), reduction={"s": "+"})
print(f"heat: {float(heat):.1f}")

expected = plate.copy()
for _ in range(STEPS):
    new = expected.copy()
    new[1:-1, 1:-1] = np.float32(0.25) * (
        ((expected[:-2, 1:-1] + expected[2:, 1:-1]) + expected[1:-1, :-2]) + expected[1:-1, 2:]
    )
    expected = new
assert np.allclose(a.get(), expected, rtol=1e-5, atol=1e-4)
print("as NumPy's")
print(queue.trace.summary())
