"""Independent compute-bound kernels over two one-core CPU sub-devices against one of them.

speedup: median over runs of (seconds on one) / (seconds on both), each pair measured one after the other.
"""

from __future__ import annotations

import statistics

import common
import numpy as np

import manycl as mc

SOURCE = """
__kernel void iterate(__global float *x, int rounds) {
  float v = x[get_global_id(0)];
  for (int i = 0; i < rounds; i++) v = v * 0.999f + 0.5f;
  x[get_global_id(0)] = v;
}
"""
KERNELS, ITEMS, ROUNDS = 32, 4096, 20_000


def main() -> None:
    args = common.parse(__doc__)
    program = mc.Program(SOURCE)
    one, both = mc.Queue("cpu/2#0"), mc.Queue("cpu/2")
    results: dict[int, list[np.ndarray]] = {}

    def run(queue: mc.Queue) -> float:
        data = [np.arange(ITEMS, dtype=np.float32) + k for k in range(KERNELS)]
        arrays = [queue.array(d) for d in data]

        def work() -> None:
            for a in arrays:
                program.iterate(queue, (ITEMS,), (64,), a, ROUNDS)
            queue.finish()

        taken = common.seconds(work)
        results[id(queue)] = [a.get() for a in arrays]
        return taken

    run(one)
    run(both)
    ratios, alone = [], []
    for _ in range(args.repeats):
        first = run(one)
        alone.append(first)
        ratios.append(first / run(both))
        assert all((a == b).all() for a, b in zip(results[id(one)], results[id(both)], strict=True))
    shares = {d: sum(1 for k in both.trace.kernels() if k.device == d) for d in both.devices}
    common.report(
        args,
        {
            "speedup": statistics.median(ratios),
            "one_device_s": statistics.median(alone),
            "kernels": KERNELS,
            "share": shares,
            "repeats": args.repeats,
        },
    )
