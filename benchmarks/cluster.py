"""What it costs that devices are the workers of a Dask cluster (two processes on this machine), not this process's.

``asked`` has what the project asks of each figure. same: whether results are those of one session, bit for bit.
bytes_beyond: bytes that went between the workers in some sweeps of a stencil, less the rows that one lacked and the
other had. step_ms: a sweep beyond one in this process, divided between the workers, on an array so small that all of
it is the exchange with the one neighbour, of 100 enqueued together; kept_step_ms: the same of a prepared graph.
kernel_us: of 2,000 small kernels for one worker, until the end of all is known, a kernel beyond one in this process;
kernel_client_us: of the client's thread. run_ms: one launch that is divided, until its end is known; run_client_ms: the
client's time of a processor for it. overlap_ratio: the time of a sweep by ``dask.array.map_overlap``, over that by this
package, of a larger array whose chunks are the workers' halves; the function of ``map_overlap`` is the same kernel,
compiled by this package on one native device in the worker. numba_ratio: likewise, with the same loops compiled by
Numba, if that is there. product_ratio: of a matrix product, by ``dask.array``. open_ms: until a session on both has
begun, when one has been there before. The least of several repetitions.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import Any

import common
import numpy as np

ASKED = {
    "same": True,
    "bytes_beyond": 0,
    "step_ms": 1.0,
    "kept_step_ms": 0.6,
    "kernel_us": 5.0,
    "run_ms": 22.0,
    "overlap_ratio": 5.0,
    "numba_ratio": 5.0,
    "product_ratio": 2.0,
}
"""The most of each figure, and of ratios the least."""
SOURCE = """kernel void sweep(global const float *u, global float *v, long n, long rows) {
    long x = get_global_id(0), y = get_global_id(1);
    if (x > 0 && x < n - 1 && y > 0 && y < rows - 1)
        v[y * n + x] = 0.2f * (u[y * n + x] + u[y * n + x - 1] + u[y * n + x + 1]
                               + u[(y - 1) * n + x] + u[(y + 1) * n + x]);
}
kernel void product(global const float *a, global const float *b, global float *c, long n) {
    long x = get_global_id(0), y = get_global_id(1);
    float sum = 0.0f;
    for (long k = 0; k < n; k++) sum += a[y * n + k] * b[k * n + x];
    c[y * n + x] = sum;
}
kernel void add(global uint *x, uint by) { x[get_global_id(0)] += by; }"""
SMALL, LARGE, STEPS, CHAIN, ORDER = 64, 2048, 100, 2000, 1024
LOCAL = (64, 1)


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
    program.sweep(queue, (n, n), LOCAL, u, v, n, n)
    program.sweep(queue, (n, n), LOCAL, v, u, n, n)
    queue.finish()  # the array is where it is needed
    begin, processor = time.perf_counter(), time.process_time()
    for _ in range(steps):
        program.sweep(queue, (n, n), LOCAL, u, v, n, n)
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


def kept(queue: Any, program: Any, steps: int) -> float:
    """Return the seconds of a sweep of a prepared graph of some."""
    start = np.random.default_rng(1).random((SMALL, SMALL), np.float32)
    u, v = queue.array(start), queue.array(start)
    with queue.prepare() as graph:
        for source, target in ((u, v), (v, u)) * (steps // 2):
            program.sweep(queue, (SMALL, SMALL), LOCAL, source, target, SMALL, SMALL)
    graph.run()
    seconds: float = min(graph.run().seconds for _ in range(3))
    return seconds / (2 * (steps // 2))


def by_overlap(sweep: Callable[[Any], Any], steps: int) -> float:
    """Return the seconds of a sweep by Dask's arrays, of which a function sweeps a chunk."""
    import dask.array

    start = np.random.default_rng(1).random((LARGE, LARGE), np.float32)
    begun = dask.array.from_array(start, chunks=(LARGE // 2, LARGE)).persist()
    seconds = []
    for _ in range(2):  # the first compiles
        found, begin = begun, time.perf_counter()
        for _ in range(steps):
            found = found.map_overlap(sweep, depth={0: 1, 1: 0}, boundary="none", dtype=np.float32, meta=start[:0])
        found.persist().sum().compute()
        seconds.append((time.perf_counter() - begin) / steps)
    return seconds[-1]


def by_kernel(u: Any) -> Any:
    """Sweep a chunk by this package's kernel, on one native device in the worker."""
    import builtins

    import manycl

    if not hasattr(builtins, "_swept_by"):
        builtins._swept_by = manycl.Queue("native/2#0"), manycl.Program(SOURCE)  # type: ignore[attr-defined]
    queue, program = builtins._swept_by  # type: ignore[attr-defined]
    rows, n = u.shape
    here, there = queue.array(u), queue.array(u)
    program.sweep(queue, (n, rows), LOCAL, here, there, n, rows)
    return there.get()


def by_numba(u: Any) -> Any:
    """Sweep a chunk by loops that Numba compiles."""
    import builtins

    import numba  # type: ignore[import-not-found]

    def sweep(u: Any, v: Any) -> None:
        for y in range(1, u.shape[0] - 1):
            for x in range(1, u.shape[1] - 1):
                v[y, x] = np.float32(0.2) * (u[y, x] + u[y, x - 1] + u[y, x + 1] + u[y - 1, x] + u[y + 1, x])

    if not hasattr(builtins, "_swept_by_numba"):
        builtins._swept_by_numba = numba.njit(sweep)  # type: ignore[attr-defined]
    v = u.copy()
    builtins._swept_by_numba(u, v)  # type: ignore[attr-defined]
    return v


def products(queue: Any, program: Any) -> tuple[float, float]:
    """Return the seconds of a matrix product by this package and by Dask's arrays, whose inputs are on the workers."""
    import dask.array

    a, b = np.random.default_rng(2).random((2, ORDER, ORDER), np.float32)
    x, y, z = queue.array(a), queue.array(b), queue.array(np.zeros_like(a))
    chunks = dask.array.from_array(a, chunks=(ORDER // 2, ORDER)).persist()
    whole = dask.array.from_array(b, chunks=(ORDER, ORDER)).persist()
    found = []
    for _ in range(3):
        begin = time.perf_counter()
        program.product(queue, (ORDER, ORDER), LOCAL, x, y, z, ORDER)
        queue.finish()
        middle = time.perf_counter()
        (chunks @ whole).persist().sum().compute()
        found.append((middle - begin, time.perf_counter() - middle))
    assert np.allclose(z.get(), a @ b, rtol=1e-3)
    ours, theirs = map(min, zip(*found, strict=True))
    return ours, theirs


def count_from_now_on() -> None:
    """Have this worker count the bytes that it gets from other nodes."""
    from manycl.cluster.exchange import ReceiveArbiter

    if not hasattr(ReceiveArbiter, "counted"):
        take = ReceiveArbiter.take

        def counted(self: Any, *given: Any) -> Any:
            frame = take(self, *given)
            ReceiveArbiter.counted += len(frame)  # type: ignore[attr-defined]
            return frame

        ReceiveArbiter.take = counted  # type: ignore[method-assign,assignment]
    ReceiveArbiter.counted = 0  # type: ignore[attr-defined]


def counted() -> int:
    """Return the bytes that this worker has counted."""
    from manycl.cluster.exchange import ReceiveArbiter

    found: int = ReceiveArbiter.counted  # type: ignore[attr-defined]
    return found


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
        figures = _figures(client, args.repeats, 6 if args.quick else STEPS)
        common.report(args, figures, {"asked": ASKED, "numba": importlib.util.find_spec("numba") is not None})


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
        figures["step_ms"], figures["step_client_ms"] = 1e3 * step[0] - 1e-3 * figures["local_us"], 1e3 * step[1]
        figures["kept_step_ms"] = 1e3 * least(repeats, lambda: kept(queue, program, steps)) - 1e-3 * figures["local_us"]
        run = least(3 * repeats, lambda: sweeps(queue, program, SMALL, 1)[:2])
        figures["run_ms"], figures["run_client_ms"] = (1e3 * s for s in run)
        client.run(count_from_now_on)
        *_, found = sweeps(queue, program, SMALL, steps)
        figures["same"] = found.tobytes() == alone.tobytes()
        # each of the sweeps reads what the one before it wrote: a row on both sides, whose ends nobody writes
        missing = (steps + 1) * 2 * (SMALL - 2) * 4
        figures["bytes_beyond"] = sum(client.run(counted).values()) - missing
        figures["sweep_ms"] = least(repeats, lambda: sweeps(queue, program, LARGE, steps)[0] / steps) * 1e3
        figures["product_ms"], figures["dask_product_ms"] = (1e3 * s for s in products(queue, program))
    few = min(steps, 10)
    figures["map_overlap_ms"] = least(repeats, lambda: by_overlap(by_kernel, few)) * 1e3
    figures["overlap_ratio"] = figures["map_overlap_ms"] / figures["sweep_ms"]
    if importlib.util.find_spec("numba") is not None:
        figures["numba_ms"] = least(repeats, lambda: by_overlap(by_numba, few)) * 1e3
        figures["numba_ratio"] = figures["numba_ms"] / figures["sweep_ms"]
    figures["product_ratio"] = figures["dask_product_ms"] / figures["product_ms"]
    return figures


if __name__ == "__main__":
    main()
