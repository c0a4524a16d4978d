"""What many different regions cost: LU decomposition in place, every launch divided at random, on devices that share no
memory.

No two launches touch the same bytes, so what one of them leaves is cut by all that come later. region_us: time of the
engine's thread for each launch and piece of the matrix that it touches, all of lowering, deciding and enqueueing of a
graph whose launches the analysis knows (median); first_region_us: the same when it runs for the first time, without
waiting for the analysis. launches, ranges, pieces, touched: how many of them there are; moves: transfers as they were
enqueued. The result is compared with that of one device.

lowered_ms: the engine's thread's time for lowering one five-point stencil in 512 ranges, on two devices in turns, of
which nobody has asked what they touch (median); lowered_again_ms: the same when all of that is known.
"""

from __future__ import annotations

import itertools
import os
import random
import statistics
import time

import common
import numpy as np

import manycl as mc
from manycl.machine import DeviceIndex
from manycl.plan.plan import Assignment, Plan
from manycl.run.lowering.lower import lower
from manycl.trace import TransferEvent

SOURCE = """
kernel void column(global float *a, int n, int k) {
    int j = get_global_id(0);
    if (j > k) a[j * n + k] /= a[k * n + k];
}
kernel void rest(global float *a, int n, int k) {
    int i = get_global_id(0), j = get_global_id(1);
    if (i > k && j > k) a[j * n + i] -= a[j * n + k] * a[k * n + i];
}
"""
STENCIL = """
kernel void stencil(global const float *a, global float *b, int n, int step) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x > 0 && y > 0 && x < n - 1 && y < n - 1)
        b[y * n + x] = a[y * n + x - 1] + a[y * n + x + 1] + a[(y - 1) * n + x] + a[(y + 1) * n + x] + step;
}
"""
GROUP = 8
RANGES = 3
LOWERED, SIDE = 512, 4096


def enqueue(queue: mc.Queue, program: mc.Program, array: mc.Array) -> None:
    n = array.shape[0]
    for k in range(n - 1):
        program.column(queue, (n,), (GROUP,), array, n, k)
        program.rest(queue, (n, n), (GROUP, GROUP), array, n, k)


def divided(queue: mc.Queue, launches: int, groups: int, seed: int) -> Plan:
    """Every launch in three ranges, cut and placed at random; those of two dimensions along either."""
    chance, out = random.Random(seed), []
    for node in range(launches):
        cuts = [0, *sorted(chance.sample(range(1, groups), RANGES - 1)), groups]
        dimension = chance.randrange(1 + node % 2)
        for a, b in itertools.pairwise(cuts):
            out.append(
                Assignment(node, DeviceIndex(chance.randrange(len(queue.devices))), 0, 0.0, 0.0, dimension, a, b - a)
            )
    return Plan(tuple(out), "random", queue.devices, 0.0)


def lowering(queue: mc.Queue, repeats: int) -> tuple[list[float], list[float]]:
    """Seconds of lowering a stencil in many ranges, for the first time and again, for different launches."""
    program, session, first, again = mc.Program(STENCIL), queue.session, list[float](), list[float]()
    arrays = queue.zeros((SIDE, SIDE), np.float32), queue.empty((SIDE, SIDE), np.float32)
    groups = SIDE // GROUP // LOWERED
    ranges = [Assignment(0, DeviceIndex(i % 2), 0, 0.0, 0.0, 1, groups * i, groups) for i in range(LOWERED)]
    plan = Plan(tuple(ranges), "in turns", queue.devices, 0.0)
    for step in range(repeats):
        with queue.prepare() as prepared:
            program.stencil(queue, (SIDE, SIDE), (GROUP, GROUP), *arrays, SIDE, step)
        problem = session.problem(prepared.graph)
        assert problem.splits[0].dimension == 1, "that is what its planner has asked"
        for seconds in (first, again):
            before = time.thread_time()
            assert len(lower(problem, plan, session.directory).steps) == LOWERED
            seconds.append(time.thread_time() - before)
    return first, again


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--rows", type=int, default=96, help="of the matrix (default 96)")
    args = parser.parse_args()
    os.environ["MANYCL_ZERO_COPY"] = "0"
    os.environ["MANYCL_MODELS"] = "0"
    n = args.rows
    start = np.random.default_rng(0).random((n, n), np.float32) + n * np.eye(n, dtype=np.float32)
    program = mc.Program(SOURCE)
    with mc.Queue("cpu/2", policy="in_order") as queue:
        array = queue.array(start)
        enqueue(queue, program, array)
        wanted = array.get().tobytes()
        with queue.prepare() as prepared:
            enqueue(queue, program, array)
        graph = prepared.graph
        plan = divided(queue, len(graph), n // GROUP, 1)
        seconds = []
        for _ in range(1 + args.repeats):
            array.set(start)
            before = time.thread_time()
            result = queue.session.run(graph, plan)
            seconds.append(time.thread_time() - before)
            assert array.get().tobytes() == wanted, "dividing has changed the result"
        first, again = lowering(queue, args.repeats)
    assert result.lowered is not None
    steps = result.lowered.graph
    touched = sum(len({*task.reads, *task.writes}) for task in steps.nodes)
    moves = {(e.start, e.end, e.source, e.target) for e in result.record.events() if isinstance(e, TransferEvent)}
    common.report(
        args,
        {
            "region_us": 1e6 * statistics.median(seconds[1:]) / touched,
            "first_region_us": 1e6 * seconds[0] / touched,
            "lowered_ms": 1e3 * statistics.median(first),
            "lowered_again_ms": 1e3 * statistics.median(again),
            "launches": len(graph),
            "ranges": len(steps),
            "pieces": len(steps.buffers),
            "touched": touched,
            "moves": len(moves),
        },
    )
