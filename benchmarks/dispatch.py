"""Overhead per kernel: 10,000 tiny kernels in a chain, and as 100 chains, over two CPU sub-devices.

chain_us_per_kernel, parallel_us_per_kernel: from the first enqueueing call to the last completion, planning and
dispatch included. prepared_extra_us_per_kernel: the chain run again as a prepared graph, less the same launches written
by hand with PyOpenCL (arguments set once, one in-order queue), measured in turn in the same process.
"""

from __future__ import annotations

import statistics
from typing import Any

import common
import numpy as np

import manycl as mc
from manycl.run.graph_cache.autotuner import PLANNED_RUNS

KERNELS, QUICK = 10_000, 1_000
"""Of a graph; with ``--quick``."""
CHAINS = 100
SOURCE = "__kernel void tick(__global int *x) { x[get_global_id(0)] += 1; }"
SIZE, GROUP = (16,), (16,)


def main() -> None:
    args = common.parse(__doc__)
    queue = mc.Queue("opencl/2#0-1")  # beside what PyOpenCL does with the same driver
    program = mc.Program(SOURCE)
    kernels = QUICK if args.quick else KERNELS

    def chain() -> float:
        x = queue.zeros(16, np.int32)

        def work() -> None:
            tick = program.tick
            for _ in range(kernels):
                tick(queue, SIZE, GROUP, x)
            queue.finish()

        taken = common.seconds(work)
        assert (x.get() == kernels).all()
        return taken

    def parallel() -> float:
        xs = [queue.zeros(16, np.int32) for _ in range(CHAINS)]

        def work() -> None:
            tick = program.tick
            for _ in range(kernels // CHAINS):
                for x in xs:
                    tick(queue, SIZE, GROUP, x)
            queue.finish()

        taken = common.seconds(work)
        assert all((x.get() == kernels // CHAINS).all() for x in xs)
        return taken

    chain()
    parallel()
    chains = common.median(chain, args.repeats)
    parallels = common.median(parallel, args.repeats)
    prepared, raw = again(queue, program, kernels, args.repeats)
    common.report(
        args,
        {
            "chain_us_per_kernel": chains / kernels * 1e6,
            "parallel_us_per_kernel": parallels / kernels * 1e6,
            "prepared_extra_us_per_kernel": (prepared - raw) / kernels * 1e6,
            "prepared_us_per_kernel": prepared / kernels * 1e6,
            "raw_pyopencl_us_per_kernel": raw / kernels * 1e6,
            "kernels": kernels,
            "repeats": args.repeats,
        },
    )


def again(queue: mc.Queue, program: mc.Program, kernels: int, repeats: int) -> tuple[float, float]:
    """Medians of a prepared run and of raw PyOpenCL, in turn."""
    import pyopencl as cl

    x = queue.zeros(16, np.int32)
    with queue.prepare() as prepared:
        for _ in range(kernels):
            program.tick(queue, SIZE, GROUP, x)

    driver: Any = queue.session.backend.drivers[0]
    context, device = driver.context, driver.cl
    kernel = cl.Kernel(cl.Program(context, SOURCE).build(), "tick")
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 64)
    raw_queue = cl.CommandQueue(context, device, properties=cl.command_queue_properties.PROFILING_ENABLE)
    kernel.set_args(buffer)

    def raw() -> None:
        enqueue = cl.enqueue_nd_range_kernel
        events: list[Any] = [enqueue(raw_queue, kernel, SIZE, GROUP) for _ in range(kernels)]
        events[-1].wait()
        raw_queue.finish()

    ours, theirs = [], []
    for _ in range(PLANNED_RUNS + 2):
        prepared.run()
    raw()
    for _ in range(repeats):
        ours.append(common.seconds(prepared.run))
        theirs.append(common.seconds(raw))
    return statistics.median(ours), statistics.median(theirs)


if __name__ == "__main__":
    main()
