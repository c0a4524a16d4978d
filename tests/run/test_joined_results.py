"""Reductions, histograms, bodies, scans and sorts in halves on two memories: the bits of one device, the fewest bytes.

What each device needs whole is sent once, and partial results are joined on devices: nothing goes to the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.graph.graph import BufferArg, Graph, Launch
from manycl.plan.plan import Assignment, Plan
from manycl.plan.split import Split
from manycl.plan.splitting import split_of

N, GROUP, BINS, CHUNK = 2048, 32, 64, 64
GROUPS = N // GROUP
CHUNKS = N // CHUNK
PROGRAM = mc.Program("""
#define TREE(type) kernel void part_##type(global const type *x, global type *sums, local type *t) { \\
    int l = get_local_id(0); \\
    t[l] = x[get_global_id(0)]; \\
    barrier(CLK_LOCAL_MEM_FENCE); \\
    for (int step = get_local_size(0) / 2; step > 0; step /= 2) { \\
        if (l < step) t[l] += t[l + step]; \\
        barrier(CLK_LOCAL_MEM_FENCE); \\
    } \\
    if (l == 0) sums[get_group_id(0)] = t[0]; \\
}
TREE(int)
TREE(float)
kernel void scale(global float *x, global const float *sum) { x[get_global_id(0)] /= 1.0f + fabs(sum[0]); }
kernel void clear(global uint *bins) { bins[get_global_id(0)] = 0; }
kernel void count(global const uchar *x, global uint *bins, int chunk, local uint *mine) {
    int l = get_local_id(0), first = get_group_id(0) * chunk, bins_of = 64;
    for (int b = l; b < bins_of; b += get_local_size(0)) mine[b] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = l; i < chunk; i += get_local_size(0)) atomic_inc(&mine[x[first + i] % 64]);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int b = l; b < bins_of; b += get_local_size(0)) atomic_add(&bins[b], mine[b]);
}
kernel void extremes(global const int *x, global int *least, global int *most, global uint *bits) {
    int i = get_global_id(0);
    atomic_min(&least[x[i] & 7], x[i]);
    atomic_max(&most[x[i] & 7], x[i]);
    atomic_and(&bits[x[i] & 3], ~(uint)x[i]);
}
kernel void rows(global const uchar *x, global uint *all, int chunk) {
    uint mine[64];
    for (int b = 0; b < 64; b++) mine[b] = 0;
    for (int i = 0; i < chunk; i++) mine[x[get_global_id(0) * chunk + i] % 64]++;
    for (int b = 0; b < 64; b++) all[get_global_id(0) * 64 + b] = mine[b];
}
kernel void merge(global const uint *all, global uint *bins, int rows) {
    uint s = 0;
    for (int r = 0; r < rows; r++) s += all[r * 64 + get_global_id(0)];
    bins[get_global_id(0)] = s;
}
kernel void advance(global const float4 *from, global float4 *to, global float4 *v, int n) {
    int i = get_global_id(0);
    float4 p = from[i], a = (float4)(0.0f);
    for (int j = 0; j < n; j++) {
        float4 d = from[j] - p;
        float r = d.x * d.x + d.y * d.y + d.z * d.z + 0.01f;
        a += from[j].w / (r * sqrt(r)) * d;
    }
    v[i] += 0.001f * a;
    to[i] = p + 0.001f * v[i];
}
kernel void blocks(global const int *x, global int *out, global int *sums, local int *t) {
    int l = get_local_id(0), size = get_local_size(0);
    t[l] = x[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int d = 1; d < size; d *= 2) {
        int before = l >= d ? t[l - d] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        t[l] += before;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    out[get_global_id(0)] = t[l];
    if (l == size - 1) sums[get_group_id(0)] = t[l];
}
kernel void offsets(global int *sums, int n) {
    int s = 0;
    for (int i = 0; i < n; i++) { int own = sums[i]; sums[i] = s; s += own; }
}
kernel void add(global int *out, global const int *sums) { out[get_global_id(0)] += sums[get_group_id(0)]; }
kernel void pair(global uint *x, uint k, uint j) {
    uint t = get_global_id(0), i = 2 * j * (t / j) + t % j, p = i + j;
    uint a = x[i], b = x[p];
    int up = (i & k) == 0;
    if ((a > b) == up) { x[i] = b; x[p] = a; }
}
kernel void digits(global const uint *x, global int *counts, int chunk, int shift) {
    int g = get_global_id(0), n = get_global_size(0);
    uint mine[16];
    for (int d = 0; d < 16; d++) mine[d] = 0;
    for (int i = 0; i < chunk; i++) mine[x[g * chunk + i] >> shift & 15]++;
    for (int d = 0; d < 16; d++) counts[d * n + g] = mine[d];
}
kernel void scatter(global const uint *x, global uint *to, global const int *counts, int chunk, int shift) {
    int g = get_global_id(0), n = get_global_size(0);
    uint next[16];
    for (int d = 0; d < 16; d++) next[d] = counts[d * n + g];
    for (int i = 0; i < chunk; i++) to[next[x[g * chunk + i] >> shift & 15]++] = x[g * chunk + i];
}
""")
Program = Callable[[mc.Queue, Sequence[Any]], None]
Numbers = np.random.default_rng(3)


def reduction(queue: mc.Queue, arrays: Sequence[Any]) -> None:
    x, sums, total = arrays
    PROGRAM.part_int(queue, (N,), (GROUP,), x, sums, mc.LocalMemory(4 * GROUP))
    PROGRAM.part_int(queue, (GROUPS,), (GROUPS,), sums, total, mc.LocalMemory(4 * GROUPS))


def normalised(queue: mc.Queue, arrays: Sequence[Any]) -> None:
    x, sums, total = arrays
    PROGRAM.part_float(queue, (N,), (GROUP,), x, sums, mc.LocalMemory(4 * GROUP))
    PROGRAM.part_float(queue, (GROUPS,), (GROUPS,), sums, total, mc.LocalMemory(4 * GROUPS))
    PROGRAM.scale(queue, (N,), (GROUP,), x, total)


def histogram(queue: mc.Queue, arrays: Sequence[Any]) -> None:
    x, bins = arrays
    PROGRAM.clear(queue, (BINS,), (BINS,), bins)
    PROGRAM.count(queue, (CHUNKS * 8,), (8,), x, bins, CHUNK, mc.LocalMemory(4 * BINS))


def extremes(queue: mc.Queue, arrays: Sequence[Any]) -> None:
    PROGRAM.extremes(queue, (N,), (GROUP,), *arrays)


def privatised(queue: mc.Queue, arrays: Sequence[Any]) -> None:
    x, all_rows, bins = arrays
    PROGRAM.rows(queue, (CHUNKS,), (4,), x, all_rows, CHUNK)
    PROGRAM.merge(queue, (BINS,), (8,), all_rows, bins, CHUNKS)


def bodies(queue: mc.Queue, arrays: Sequence[Any]) -> None:
    x, y, v = arrays
    for _ in range(4):
        PROGRAM.advance(queue, (N // 8,), (GROUP,), x, y, v, N // 8)
        x, y = y, x


def scan(queue: mc.Queue, arrays: Sequence[Any]) -> None:
    x, out, sums = arrays
    PROGRAM.blocks(queue, (N,), (GROUP,), x, out, sums, mc.LocalMemory(4 * GROUP))
    PROGRAM.offsets(queue, (1,), (1,), sums, GROUPS)
    PROGRAM.add(queue, (N,), (GROUP,), out, sums)


def bitonic(queue: mc.Queue, arrays: Sequence[Any]) -> None:
    k = 2
    while k <= N // 32:
        j = k // 2
        while j:
            PROGRAM.pair(queue, (N // 64,), (4,), arrays[0], k, j)
            j //= 2
        k *= 2


def radix(queue: mc.Queue, arrays: Sequence[Any]) -> None:
    x, y, counts = arrays
    for shift in (0, 4):
        PROGRAM.digits(queue, (CHUNKS,), (4,), x, counts, CHUNK, shift)
        PROGRAM.offsets(queue, (1,), (1,), counts, 16 * CHUNKS)
        PROGRAM.scatter(queue, (CHUNKS,), (1,), x, y, counts, CHUNK, shift)
        x, y = y, x


INTS = Numbers.integers(0, 1 << 20, N).astype(np.int32)
FLOATS = Numbers.random(N, np.float32)
BYTES = Numbers.integers(0, 256, N, np.uint8)
UINTS = Numbers.integers(0, 1 << 32, N, np.uint32)
BODIES = Numbers.random((N // 8, 4), np.float32)
ZEROS = np.zeros(N, np.int32)
HALF_OF_ROWS = CHUNKS // 2 * BINS // 2 * 4
SORTED = N // 32 // 2 * 4  # bytes that each half of a sort sends: a quarter for the widest stage, and back for the next

PROGRAMS: dict[Program, tuple[list[np.ndarray], tuple[int, int]]] = {
    reduction: ([INTS, ZEROS[:GROUPS], ZEROS[:1]], (0, GROUPS // 2 * 4)),
    normalised: ([FLOATS, np.zeros(GROUPS, np.float32), np.zeros(1, np.float32)], (4, GROUPS // 2 * 4)),
    histogram: ([BYTES, np.full(BINS, 7, np.uint32)], (0, BINS * 4)),
    extremes: ([INTS - 500000, ZEROS[:8] + 5, ZEROS[:8] - 5, np.full(4, 1 << 31, np.uint32)], (0, (8 + 8 + 4) * 4)),
    privatised: ([BYTES, np.zeros((CHUNKS, BINS), np.uint32), np.zeros(BINS, np.uint32)], (HALF_OF_ROWS, HALF_OF_ROWS)),
    bodies: ([BODIES, 0 * BODIES, 0 * BODIES], (4 * N // 16 * 16, 4 * N // 16 * 16)),
    scan: ([INTS, ZEROS, ZEROS[:GROUPS]], (GROUPS // 2 * 4, GROUPS // 2 * 4)),
    bitonic: ([UINTS[: N // 32]], (SORTED, SORTED)),
    radix: ([UINTS, 0 * UINTS, ZEROS[: 16 * CHUNKS]], (2 * N // 2 * 4, 2 * 16 * CHUNKS // 2 * 4)),
}
"""What each program's arrays begin with, and the bytes that a run moves from the first device to the second, and back,
whose arrays are where the run before has left them."""


@pytest.fixture(scope="module")
def queue() -> Iterator[mc.Queue]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "0")
        queue = mc.Queue("cpu/2#0-1")
    with queue:
        yield queue


def halves(queue: mc.Queue, graph: Graph) -> Plan:
    """Every launch that may be divided in halves; else whole, on the first device."""
    assignments = []
    for node, task in enumerate(graph.nodes):
        assert isinstance(task, Launch)
        sizes = {a.key: graph.buffers[a.key].nbytes for a in task.args if isinstance(a, BufferArg)}
        split = split_of(task, sizes)
        if not isinstance(split, Split):
            assignments.append(Assignment(node, 0, 0, 0.0, 0.0))
            continue
        half = split.groups // 2
        assignments.append(Assignment(node, 0, 0, 0.0, 0.0, split.dimension, 0, half))
        assignments.append(Assignment(node, 1, 0, 0.0, 0.0, split.dimension, half, split.groups - half))
    return Plan(tuple(assignments), "halves", queue.devices, 0.0)


@pytest.mark.parametrize("program", PROGRAMS)
def test_halves_move_what_they_must(queue: mc.Queue, program: Program) -> None:
    data, least = PROGRAMS[program]
    arrays = [queue.array(d) for d in data]
    one, other = queue.devices  # which copy from each other
    for turn in range(3):
        with queue.prepare() as prepared:
            program(queue, arrays)
        plan = halves(queue, prepared.graph)
        assert plan.is_split
        trace = queue.session.run(prepared.graph, plan).trace
        moved: Counter[tuple[str, str]] = Counter()
        for t in trace.transfers():
            moved[t.source, t.target] += t.nbytes
        if turn:
            assert moved == Counter({(one, other): least[0], (other, one): least[1]}), turn
    with mc.Queue("cpu/2#0") as alone:
        whole = [alone.array(d) for d in data]
        for _ in range(3):
            program(alone, whole)
        for one_s, both_s in zip(whole, arrays, strict=True):
            assert one_s.get().tobytes() == both_s.get().tobytes()
