"""What many different regions cost: LU decomposition in place, every launch divided at random, on devices that share no
memory.

No two launches touch the same bytes, so what one of them leaves is cut by all that come later. region_us: time of the
engine's thread for each launch and piece of the matrix that it touches, all of lowering, deciding and enqueueing of a
graph whose launches the analysis knows (median); first_region_us: the same when it runs for the first time, without
waiting for the analysis. launches, ranges, pieces, touched: how many of them there are; moves: transfers as they were
enqueued. The result is compared with that of one device.
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
from manycl.plan.plan import Assignment, Plan
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
GROUP = 8
RANGES = 3


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
            out.append(Assignment(node, chance.randrange(len(queue.devices)), 0, 0.0, 0.0, dimension, a, b - a))
    return Plan(tuple(out), "random", queue.devices, 0.0)


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
        enqueue(queue, program, array)
        hold = dict(queue.hold)
        plan = divided(queue, len(queue), n // GROUP, 1)
        graph = queue.take()
        seconds = []
        for _ in range(1 + args.repeats):
            array.set(start)
            before = time.thread_time()
            result = queue.session.run(graph, plan)
            seconds.append(time.thread_time() - before)
            assert array.get().tobytes() == wanted, "dividing has changed the result"
        hold.clear()
    assert result.lowered is not None
    steps = result.lowered.graph
    touched = sum(len({*task.reads, *task.writes}) for task in steps.nodes)
    moves = {(e.start, e.end, e.source, e.target) for e in result.record.events() if isinstance(e, TransferEvent)}
    common.report(
        args,
        {
            "region_us": 1e6 * statistics.median(seconds[1:]) / touched,
            "first_region_us": 1e6 * seconds[0] / touched,
            "launches": len(graph),
            "ranges": len(steps),
            "pieces": len(steps.buffers),
            "touched": touched,
            "moves": len(moves),
        },
    )


if __name__ == "__main__":
    main()
