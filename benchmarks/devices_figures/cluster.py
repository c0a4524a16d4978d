"""What it costs that devices are the workers of a Dask cluster (two processes on this machine), not this process's.

open_ms: until a session on both has begun, when one has been there before. step_ms: a sweep of a stencil that is
divided between the workers, on an array so small that all of it is the exchange, of 100 enqueued together; local_us:
the same sweep in this process. kernel_us: of 2,000 small kernels for one worker, until the end of all is known, a
kernel beyond one in this process; kernel_client_us: of the client's thread. run_ms: one launch that is divided, until
its end is known; run_client_ms: the client's time of a processor for it. map_overlap_ms: a sweep by
``dask.array.map_overlap``, of a larger array whose chunks are the workers' halves, with NumPy's code as its function;
sweep_ms: by this package. bytes: that have gone between the workers in a sweep, as its trace says; same: whether the
results are those of one session, bit for bit. The least of several repetitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import common
import numpy as np

SOURCE = """kernel void sweep(global const float *u, global float *v, long n) {
    long x = get_global_id(0), y = get_global_id(1);
    if (x > 0 && x < n - 1 && y > 0 && y < n - 1)
        v[y * n + x] = 0.2f * (u[y * n + x] + u[y * n + x - 1] + u[y * n + x + 1]
                               + u[(y - 1) * n + x] + u[(y + 1) * n + x]);
}
kernel void add(global uint *x, uint by) { x[get_global_id(0)] += by; }"""
SMALL, LARGE, STEPS, CHAIN = 64, 2048, 100, 2000


class Halves:
    """A policy that divides each launch into halves."""

    def plan(self, problem: Any) -> Any:
        from manycl.plan.plan import ON_HOST, Assignment, Plan

        found = []
        for node in range(len(problem.graph)):
            split = problem.splits.get(node)
            if split is None:  # the results
                found.append(Assignment(node, ON_HOST, 0, 0.0, 0.0))
                continue
            half = split.groups // 2
            for device, groups in zip(problem.machine.indices, ((0, half), (half, split.groups - half)), strict=True):
                found.append(Assignment(node, device, 0, 0.0, 0.0, split.dimension, *groups))
        return Plan(tuple(found), "halves", tuple(d.name for d in problem.machine.devices), 0.0)


def sweeps(queue: Any, program: Any, n: int, steps: int) -> tuple[float, float, Any]:
    """Return the seconds of some sweeps, those of the client's processor, and the result."""
    start = np.random.default_rng(1).random((n, n), np.float32)
    u, v = queue.array(start), queue.array(start)
    program.sweep(queue, (n, n), (16, 4), u, v, n)
    program.sweep(queue, (n, n), (16, 4), v, u, n)
    queue.finish()  # the array is where it is needed
    begin, processor = time.perf_counter(), time.process_time()
    for _ in range(steps):
        program.sweep(queue, (n, n), (16, 4), u, v, n)
        u, v = v, u
    queue.finish()
    return time.perf_counter() - begin, time.process_time() - processor, u.get()


def chain(driver: Any) -> tuple[float, float]:
    """Return the seconds of a kernel in a row of many, in all and of the thread that enqueues them."""
    from manycl.drivers.driver import Source

    queue = driver.queue(timed=False)
    kernel = driver.kernel(driver.build(Source(SOURCE)), "add")
    kernel.set(0, driver.allocate(4096))
    kernel.set(1, (1).to_bytes(4, "little"))
    begin, processor = time.perf_counter(), time.thread_time()
    for _ in range(CHAIN):
        event = driver.launch(queue, kernel, (1024,), (64,), None, None)
    driver.flush(queue)
    enqueued = time.thread_time() - processor
    driver.wait(event)
    return (time.perf_counter() - begin) / CHAIN, enqueued / CHAIN


def by_overlap(steps: int) -> float:
    """Return the seconds of a sweep by Dask's arrays."""
    import dask.array

    start = np.random.default_rng(1).random((LARGE, LARGE), np.float32)
    found = dask.array.from_array(start, chunks=(LARGE // 2, LARGE)).persist()
    begin = time.perf_counter()
    for _ in range(steps):
        found = found.map_overlap(_swept, depth=1, boundary="nearest", dtype=np.float32)
    found.persist().sum().compute()
    return (time.perf_counter() - begin) / steps


def _swept(u: Any) -> Any:
    v = u.copy()
    v[1:-1, 1:-1] = np.float32(0.2) * (u[1:-1, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] + u[:-2, 1:-1] + u[2:, 1:-1])
    return v


def least(repeats: int, measure: Callable[[], Any]) -> Any:
    """Return the least of some measurements, or of each of their parts."""
    found = [measure() for _ in range(repeats)]
    return tuple(map(min, zip(*found, strict=True))) if isinstance(found[0], tuple) else min(found)


def main() -> None:
    args = common.parse(__doc__)
    import distributed

    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "host": "127.0.0.1"}
    cluster = distributed.LocalCluster(**options, memory_limit=0, env={"MANYCL_DEVICES": "cpu/2#0"})
    with cluster, distributed.Client(cluster) as client:
        common.report(args, _figures(client, args.repeats, 5 if args.quick else STEPS))


def _figures(client: Any, repeats: int, steps: int) -> dict[str, Any]:
    import manycl as mc
    from manycl.api.node import workers
    from manycl.drivers.choice import open_devices

    program, figures = mc.Program(SOURCE), dict[str, Any]()
    with mc.Queue("cpu/2#0") as queue:
        figures["local_us"] = least(repeats, lambda: sweeps(queue, program, SMALL, steps)[0] / steps) * 1e6
        *_, alone = sweeps(queue, program, SMALL, steps)
    here = open_devices("cpu/2#0").devices[0].open()
    mc.Queue(client).close()
    figures["open_ms"] = least(repeats, lambda: common.seconds(lambda: mc.Queue(client).close())) * 1e3
    opened = [one.open() for one in workers(client, mc.Queue).devices]
    chain(opened[0])
    for name, driver in (("there", opened[0]), ("here", here)):
        figures[f"{name}_us"], figures[f"{name}_client_us"] = (
            1e6 * s
            for s in least(repeats, lambda d=driver: chain(d))  # type: ignore[misc]
        )
    figures["kernel_us"] = figures["there_us"] - figures["here_us"]
    figures["kernel_client_us"] = figures["there_client_us"] - figures["here_client_us"]
    for driver in (*opened, here):
        driver.release()
    with mc.Queue(client, policy=Halves()) as queue:
        sweeps(queue, program, SMALL, steps)
        step = [s / steps for s in least(repeats, lambda: sweeps(queue, program, SMALL, steps)[:2])]
        figures["step_ms"], figures["step_client_ms"] = (1e3 * s for s in step)
        run = least(3 * repeats, lambda: sweeps(queue, program, SMALL, 1)[:2])
        figures["run_ms"], figures["run_client_ms"] = (1e3 * s for s in run)
        *_, found = sweeps(queue, program, SMALL, steps)
        figures["same"] = found.tobytes() == alone.tobytes()
        figures["sweep_ms"] = least(repeats, lambda: sweeps(queue, program, LARGE, steps)[0] / steps) * 1e3
    figures["map_overlap_ms"] = least(repeats, lambda: by_overlap(min(steps, 10))) * 1e3
    return figures


if __name__ == "__main__":
    main()
