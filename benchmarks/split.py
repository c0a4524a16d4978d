"""One kernel on two devices, in ranges of its work-groups, against one device; halos; what deciding costs.

equal_speedup: a compute-bound kernel divided by ``balance`` over two equal one-core CPU sub-devices against one of
them (median over runs, each pair measured one after the other). pair_speedup: the same over a device and one that is
slowed down four times, against the fast one. halo_only: whether all that moves between iterations of a stencil, on
devices that share no memory, are the rows at the cut. decide_us: time of the engine beside enqueueing and waiting, per
kernel, of a prepared graph of stencils in ranges. spill_ratio: an iterated stencil on data four times the memory that a
device is limited to, from the host and back to it, against the same device without limit (medians of runs that
alternate); spill_once_ratio: the same for a single sweep. spill_bytes_ratio: bytes that cross the link by the former
until the result is on the host; spill_commands: kernels and moves with the limit. ``--spill-on`` names the device: a
GPU (its data are sixteen times as large), or a CPU, which is given memory of its own.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import common
import numpy as np

import manycl as mc
from manycl.graph.graph import Graph, Launch
from manycl.machine import HOST, DeviceIndex
from manycl.plan.plan import Assignment, Plan
from manycl.run.engine.playback import Playback
from manycl.run.engine.result import Result
from manycl.run.graph_cache.cached_graph import CachedGraph
from manycl.trace import KernelEvent, TransferEvent

SOURCE = """
kernel void iterate(global float *x, int rounds) {
    float v = x[get_global_id(0)];
    for (int i = 0; i < rounds; i++) v = v * 0.999f + 0.5f;
    x[get_global_id(0)] = v;
}
kernel void stencil(global const float *a, global float *b, int n) {
    int i = get_global_id(0), j = get_global_id(1);
    if (i > 0 && j > 0 && i < n - 1 && j < get_global_size(1) - 1)
        b[j * n + i] = 0.25f * (a[j * n + i - 1] + a[j * n + i + 1] + a[(j - 1) * n + i] + a[(j + 1) * n + i]);
}
"""
ITEMS, ROUNDS = 1 << 16, 5_000
SIDE, STEPS = 512, 50
TALL, LARGE, SWEEPS = (4096, 2048), (16384, 8192), 16


def speedup(program: mc.Program, fast: str, pair: str, repeats: int) -> tuple[float, dict[str, float]]:
    """Median of the seconds on one device over those on two, and the shares of the groups of the last run."""
    queues = [mc.Queue(fast, policy="in_order"), mc.Queue(pair, policy="balance")]
    data = np.arange(ITEMS, dtype=np.float32)
    arrays = [q.array(data) for q in queues]

    def run(turn: int) -> float:
        queue, array = queues[turn], arrays[turn]
        array.set(data)
        program.iterate(queue, (ITEMS,), (64,), array, ROUNDS)
        queue.finish()
        return queue.result.seconds

    for turn in (0, 1, 1, 1):  # compiled, and measured: what balance goes by
        run(turn)
    ratios = [run(0) / run(1) for _ in range(repeats)]
    assert arrays[0].get().tobytes() == arrays[1].get().tobytes()
    shares: dict[str, float] = {}
    for m in queues[1].result.ranges(0):
        name = queues[1].devices[m.device]
        shares[name] = shares.get(name, 0.0) + m.step.groups / (ITEMS // 64)
    for queue in queues:
        queue.session.close()
    return statistics.median(ratios), shares


def halves(graph: Graph, devices: tuple[str, ...]) -> Plan:
    """Every stencil halved along its rows, on two devices."""
    out = []
    for n, task in enumerate(graph.nodes):
        assert isinstance(task, Launch)
        assert task.local_size is not None
        half = task.global_size[1] // task.local_size[1] // 2
        out += [Assignment(n, DeviceIndex(d), 0, 0.0, 0.0, 1, d * half, half) for d in range(2)]
    return Plan(tuple(out), "halves", devices, 0.0)


@contextmanager
def timed(*deciding: type) -> Iterator[Callable[[], float]]:
    """How many seconds objects of these classes have thought since it was last asked."""
    seconds = 0.0

    def measured(function: Any) -> Any:
        def call(*given: Any) -> Any:
            nonlocal seconds
            begin = time.perf_counter()
            found = function(*given)
            seconds += time.perf_counter() - begin
            return found

        return call

    def taken() -> float:
        nonlocal seconds
        seconds, since = 0.0, seconds
        return since

    before = [(of, name, getattr(of, name)) for of in deciding for name in ("start", "handle")]
    for of, name, function in before:
        setattr(of, name, measured(function))
    try:
        yield taken
    finally:
        for of, name, function in before:
            setattr(of, name, function)


def stencils(program: mc.Program, repeats: int) -> tuple[bool, float]:
    """Whether only halos move, and the seconds of deciding per kernel of the graph."""
    os.environ["MANYCL_ZERO_COPY"] = "0"
    try:
        queue = mc.Queue("cpu/2#0-1")
    finally:
        del os.environ["MANYCL_ZERO_COPY"]
    a, b = (queue.array(np.random.default_rng(1).random((SIDE, SIDE), np.float32)) for _ in range(2))
    with queue.prepare() as enqueued:
        for _ in range(STEPS):
            program.stencil(queue, (SIDE, SIDE), (16, 16), a, b, SIDE)
            a, b = b, a
    graph = enqueued.graph
    prepared = CachedGraph(queue.session, graph, halves(graph, queue.devices))
    results: list[Result] = []
    deciding = []
    with timed(Playback) as thought:
        for _ in range(repeats + 2):
            thought()
            begin = time.perf_counter()
            results.append(prepared.run())
            around = time.perf_counter() - begin - results[-1].seconds  # what to run, and putting pieces together
            deciding.append((around + thought()) / STEPS)
    row = 4 * (SIDE - 2)
    moved = [t.nbytes for r in results[2:] for t in r.trace.transfers()]
    # a row down and up for each device and step; the first step finds those of the last run
    halo_only = all(n == row for n in moved) and len(moved) <= 4 * STEPS * repeats
    queue.session.close()
    return halo_only, statistics.median(deciding[2:])


def spilled(program: mc.Program, device: str, repeats: int) -> tuple[float, float, float, int]:
    """Times as long as without limit: of many sweeps and of one; and the bytes moved by many, times as many, and their
    kernels and moves with the limit."""
    with mc.Queue(device) as queue:
        rows, columns = LARGE if queue.session.machine.devices[0].kind == "gpu" else TALL
    start = np.random.default_rng(1).random((rows, columns), np.float32)
    queues = []
    os.environ["MANYCL_ZERO_COPY"] = "0"
    try:
        for limit in ("", str(2 * start.nbytes // 4)):
            if limit:
                os.environ["MANYCL_DEVICE_MEMORY"] = limit
            queues.append(mc.Queue(device, policy="in_order"))
    finally:
        del os.environ["MANYCL_ZERO_COPY"], os.environ["MANYCL_DEVICE_MEMORY"]
    pairs = [[q.array(start), q.array(start)] for q in queues]

    def run(turn: int, sweeps: int) -> tuple[float, int, int]:
        queue, pair = queues[turn], list(pairs[turn])
        for array in pair:
            array.set(start)
        begin = time.perf_counter()
        for _ in range(sweeps):
            program.stencil(queue, (columns, rows), (64, 4), *pair, columns)
            pair.reverse()
        queue.finish()
        fetched = HOST not in queue.session.directory.memories(pair[0].buffer.key)
        found = pair[0].get()
        seconds = time.perf_counter() - begin
        results[turn] = found.tobytes()
        trace = queue.result.trace
        commands = sum(1 for e in trace.events if isinstance(e, KernelEvent | TransferEvent))
        return seconds, sum(t.nbytes for t in trace.transfers()) + fetched * start.nbytes, commands

    results = [b"", b""]
    ratios, moved, commands = [], (1, 1), 0
    for sweeps in (SWEEPS, 1):
        taken: list[list[float]] = [[], []]
        for turn in (0, 1):
            run(turn, sweeps)
        for _ in range(repeats):
            bytes_moved = []
            for turn in (0, 1):
                seconds, nbytes, count = run(turn, sweeps)
                taken[turn].append(seconds)
                bytes_moved.append(nbytes)
            assert results[0] == results[1]
        if sweeps > 1:
            moved, commands = (bytes_moved[0], bytes_moved[1]), count
        ratios.append(statistics.median(taken[1]) / statistics.median(taken[0]))
    for queue in queues:
        queue.session.close()
    return ratios[0], ratios[1], moved[1] / moved[0], commands


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--spill-on", default="cpu/2#0", metavar="DEVICE", help="for spill_ratio (default cpu/2#0)")
    args = parser.parse_args()
    program = mc.Program(SOURCE)
    equal, _ = speedup(program, "cpu/2#0", "cpu/2#0-1", args.repeats)
    pair, shares = speedup(program, "cpu/2#0", "cpu/2#0,cpu/2#1@4", args.repeats)
    halo_only, decide = stencils(program, args.repeats)
    spill, spill_once, spill_bytes, spill_commands = spilled(program, args.spill_on, args.repeats)
    common.report(
        args,
        {
            "spill_ratio": spill,
            "spill_once_ratio": spill_once,
            "spill_bytes_ratio": spill_bytes,
            "spill_commands": spill_commands,
            "equal_speedup": equal,
            "pair_speedup": pair,
            "halo_only": halo_only,
            "decide_us": decide * 1e6,
            "pair_shares": {k: float(f"{v:.3g}") for k, v in shares.items()},
            "repeats": args.repeats,
        },
    )


if __name__ == "__main__":
    main()
