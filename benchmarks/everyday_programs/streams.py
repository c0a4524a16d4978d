"""Programs of many numbers or many launches, each of which computes little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import manycl as mc
from everyday_programs.program import Divisible, Hand, Host, Plain, Program, Repeatable, ResultMemory, program, random

TICK = "kernel void tick(global int *x) { x[get_global_id(0)] += 1; }"


@program("triad", n=(1 << 20, 1 << 24, 1 << 27))
class Triad(Divisible):
    """c = a s + b."""

    source = """
    kernel void triad(global const float *a, global const float *b, global float *c, float s) {
        int i = get_global_id(0);
        c[i] = a[i] * s + b[i];
    }"""

    def __init__(self, n: int) -> None:
        self.inputs = [random(n), random(n, seed=2)]

    def plain_launches(self, at: Plain, *buffers: Any) -> Sequence[tuple[Any, Host]]:
        (a, b), like = buffers, self.inputs[0]
        c = at.empty(like.nbytes)
        at.k.triad(at.queue, like.shape, (64,), a, b, c, np.float32(3))
        return [(c, like)]

    def launches(self, queue: mc.Queue, program: mc.Program, *arrays: mc.Array) -> Sequence[mc.Array]:
        a, b = arrays
        c = queue.empty(a.shape)
        program.triad(queue, a.shape, (64,), a, b, c, 3.0)
        return [c]

    def hand(self, at: Hand) -> ResultMemory:
        like = self.inputs[0]
        rows, c = at.split(len(like), 64), at.empty(like.nbytes)
        a, b = (at.upload(data, rows) for data in self.inputs)
        for queue, k, begin, count, x, y, z in at.each(rows, a, b, c):
            k.triad(queue, (count,), (64,), x, y, z, np.float32(3), global_offset=(begin,))
        return [at.download(c, like, rows)]


@program("independent_64", n=(4096, 4096, 4096))
class Independent(Repeatable):
    """Sixty-four kernels that have nothing to do with one another."""

    source = "kernel void twice(global float *x) { x[get_global_id(0)] = x[get_global_id(0)] * 2.0f + 1.0f; }"

    def __init__(self, n: int) -> None:
        self.inputs = list(random(64, n))

    def plain_launches(self, at: Plain, *buffers: Any) -> Sequence[tuple[Any, Host]]:
        for x, like in zip(buffers, self.inputs, strict=True):
            at.k.twice(at.queue, like.shape, (64,), x)
        return list(zip(buffers, self.inputs, strict=True))

    def launches(self, queue: mc.Queue, program: mc.Program, *arrays: mc.Array) -> Sequence[mc.Array]:
        for x in arrays:
            program.twice(queue, x.shape, (64,), x)
        return arrays


@program("chain_20", n=(256, 256, 256), launches=(20, 20, 20))
@program("chain_2000", n=(256, 256, 256), launches=(2000, 2000, 2000))
class Chain(Divisible):
    """Tiny kernels, each on what the last one has left."""

    source = TICK

    def __init__(self, n: int, launches: int) -> None:
        self.times = launches
        self.inputs = [np.arange(n, dtype=np.int32)]

    def plain_launches(self, at: Plain, *buffers: Any) -> Sequence[tuple[Any, Host]]:
        for _ in range(self.times):
            at.k.tick(at.queue, self.inputs[0].shape, (64,), buffers[0])
        return [(buffers[0], self.inputs[0])]

    def launches(self, queue: mc.Queue, program: mc.Program, *arrays: mc.Array) -> Sequence[mc.Array]:
        (x,) = arrays
        for _ in range(self.times):
            program.tick(queue, x.shape, (64,), x)
        return arrays

    def hand(self, at: Hand) -> ResultMemory:
        return self.plain(at.devices[0], 0)


@program("graph_1000", n=(1024, 4096, 16384))
class Layers(Repeatable):
    """Fifty layers of twenty small kernels; each reads two results of the layer before."""

    source = """
    kernel void mean(global const float *a, global const float *b, global float *c) {
        int i = get_global_id(0);
        c[i] = 0.5f * (a[i] + b[i]);
    }"""

    def __init__(self, n: int) -> None:
        self.inputs = list(random(20, n))

    def plain_launches(self, at: Plain, *buffers: Any) -> Sequence[tuple[Any, Host]]:
        layer, like = list(buffers), self.inputs[0]
        for _ in range(50):
            before, layer = layer, [at.empty(like.nbytes) for _ in layer]
            for i, made in enumerate(layer):
                at.k.mean(at.queue, like.shape, (64,), before[i], before[(i + 1) % 20], made)
        return list(zip(layer, self.inputs, strict=True))

    def launches(self, queue: mc.Queue, program: mc.Program, *arrays: mc.Array) -> Sequence[mc.Array]:
        layer, shape = list(arrays), arrays[0].shape
        for _ in range(50):
            before, layer = layer, [queue.empty(shape) for _ in layer]
            for i, made in enumerate(layer):
                program.mean(queue, shape, (64,), before[i], before[(i + 1) % 20], made)
        return layer


@program("histogram", n=(1 << 18, 1 << 23, 1 << 27))
class Histogram(Divisible):
    """Counts by atomic additions."""

    source = """
    kernel void count(global const uchar *data, global uint *counts) {
        atomic_inc(&counts[data[get_global_id(0)]]);
    }"""

    def __init__(self, n: int) -> None:
        self.inputs = [np.random.default_rng(1).integers(0, 256, n, np.uint8)]
        self.counts = np.empty(256, np.uint32)

    def plain_launches(self, at: Plain, *buffers: Any) -> Sequence[tuple[Any, Host]]:
        counts = at.empty(self.counts.nbytes)
        at.cl.enqueue_fill_buffer(at.queue, counts, np.uint32(0), 0, self.counts.nbytes)
        at.k.count(at.queue, self.inputs[0].shape, (256,), buffers[0], counts)
        return [(counts, self.counts)]

    def launches(self, queue: mc.Queue, program: mc.Program, *arrays: mc.Array) -> Sequence[mc.Array]:
        counts = queue.empty(256, np.uint32)
        counts.fill(0)
        program.count(queue, arrays[0].shape, (256,), arrays[0], counts)
        return [counts]

    def hand(self, at: Hand) -> ResultMemory:
        rows = at.split(len(self.inputs[0]), 256)
        data, counts = at.upload(self.inputs[0], rows), at.upload(np.zeros((1, 256), np.uint32))
        for queue, k, begin, count, x, sums in at.each(rows, data, counts):
            k.count(queue, (count,), (256,), x, sums, global_offset=(begin,))
        found = [one.get(sums, (256,), np.uint32) for one, sums in zip(at.devices, counts, strict=True)]
        return [np.asarray(sum(found))]


@program("bitonic_sort", n=(1 << 13, 1 << 18, 1 << 24))
class Bitonic(Divisible):
    """A sorting network: launches of strides that grow and shrink."""

    source = """
    kernel void compare(global uint *x, int stride, int block) {
        int i = get_global_id(0), other = i ^ stride;
        if (other > i) {
            uint a = x[i], b = x[other];
            if ((a > b) == ((i & block) == 0)) { x[i] = b; x[other] = a; }
        }
    }"""

    def __init__(self, n: int) -> None:
        self.inputs = [np.random.default_rng(1).integers(0, 1 << 32, n, np.uint32)]
        self.strides = [(1 << s, 2 << b) for b in range(n.bit_length() - 1) for s in range(b, -1, -1)]

    def plain_launches(self, at: Plain, *buffers: Any) -> Sequence[tuple[Any, Host]]:
        for stride, block in self.strides:
            at.k.compare(at.queue, self.inputs[0].shape, (64,), buffers[0], np.int32(stride), np.int32(block))
        return [(buffers[0], self.inputs[0])]

    def launches(self, queue: mc.Queue, program: mc.Program, *arrays: mc.Array) -> Sequence[mc.Array]:
        for stride, block in self.strides:
            program.compare(queue, arrays[0].shape, (64,), arrays[0], stride, block)
        return arrays

    def hand(self, at: Hand) -> ResultMemory:
        data = self.inputs[0]
        n, rows = len(data), at.split(len(data), 1 << (len(data) // len(at.devices)).bit_length() - 1)
        least, whole = min(count for _, count in rows if count), [(0, n)] * len(rows)
        x, is_whole = at.upload(data), True
        for stride, block in self.strides:
            across = stride >= least  # pairs of two devices: all devices compare all
            if across and not is_whole:
                at.exchange(x, rows, 4)
            is_whole = across
            for queue, k, begin, count, own in at.each(whole if across else rows, x):
                k.compare(queue, (count,), (64,), own, np.int32(stride), np.int32(block), global_offset=(begin,))
        return [at.download(x, data, rows)]


@program("fft", n=(1 << 15, 1 << 20, 1 << 24))
class Fourier(Repeatable):
    """Stockham's fast Fourier transform of radix two: a launch for each stride."""

    source = """
    kernel void butterfly(global const float2 *x, global float2 *y, int stride) {
        int i = get_global_id(0), half_n = get_global_size(0), k = i & (stride - 1), j = 2 * (i - k) + k;
        float angle = -M_PI_F * k / stride, c = cos(angle), s = sin(angle);
        float2 a = x[i], b = x[i + half_n];
        float2 turned = (float2)(b.x * c - b.y * s, b.x * s + b.y * c);
        y[j] = a + turned;
        y[j + stride] = a - turned;
    }"""

    def __init__(self, n: int) -> None:
        self.inputs = [random(n, 2)]
        self.strides = [1 << s for s in range(n.bit_length() - 1)]
        self.half = (n // 2,)

    def plain_launches(self, at: Plain, *buffers: Any) -> Sequence[tuple[Any, Host]]:
        (x,), y = buffers, at.empty(self.inputs[0].nbytes)
        for stride in self.strides:
            at.k.butterfly(at.queue, self.half, (64,), x, y, np.int32(stride))
            x, y = y, x
        return [(x, self.inputs[0])]

    def launches(self, queue: mc.Queue, program: mc.Program, *arrays: mc.Array) -> Sequence[mc.Array]:
        (x,), y = arrays, queue.empty(arrays[0].shape)
        for stride in self.strides:
            program.butterfly(queue, self.half, (64,), x, y, stride)
            x, y = y, x
        return [x]


@program("monte_carlo", n=(1 << 12, 1 << 16, 1 << 20), rounds=(500, 2000, 8000))
class MonteCarlo(Program):
    """How many random points lie in a circle; other ones each time."""

    source = """
    kernel void hits(global uint *out, int rounds, uint seed) {
        uint s = seed ^ (get_global_id(0) * 2654435761u + 1u), count = 0;
        for (int i = 0; i < rounds; i++) {
            s ^= s << 13; s ^= s >> 17; s ^= s << 5;
            float x = (s & 0xffff) / 65536.0f, y = (s >> 16) / 65536.0f;
            count += x * x + y * y < 1.0f;
        }
        out[get_global_id(0)] = count;
    }"""

    def __init__(self, n: int, rounds: int) -> None:
        self.n, self.rounds = n, rounds

    def plain(self, at: Plain, turn: int) -> ResultMemory:
        out = at.empty(4 * self.n)
        at.k.hits(at.queue, (self.n,), (64,), out, np.int32(self.rounds), np.uint32(1000 + turn))
        return [at.get(out, (self.n,), np.uint32).sum(keepdims=True)]

    def manycl(self, queue: mc.Queue, program: mc.Program, turn: int) -> ResultMemory:
        out = queue.empty(self.n, np.uint32)
        program.hits(queue, (self.n,), (64,), out, self.rounds, 1000 + turn)
        return [out.get().sum(keepdims=True)]


@program("changing_sizes", n=(1 << 17, 1 << 21, 1 << 25))
class Changing(Program):
    """Another size each time."""

    source = Triad.source

    def __init__(self, n: int) -> None:
        self.n = n
        self.a, self.b = random(2 * n), random(2 * n, seed=2)

    def plain(self, at: Plain, turn: int) -> ResultMemory:
        n = self.n + 64 * (turn * turn % 97)
        a, b, c = at.array(self.a[:n]), at.array(self.b[:n]), at.empty(4 * n)
        at.k.triad(at.queue, (n,), (64,), a, b, c, np.float32(0.5))
        return [at.get(c, (n,))]

    def manycl(self, queue: mc.Queue, program: mc.Program, turn: int) -> ResultMemory:
        n = self.n + 64 * (turn * turn % 97)
        a, b, c = queue.array(self.a[:n]), queue.array(self.b[:n]), queue.empty(n)
        program.triad(queue, (n,), (64,), a, b, c, 0.5)
        return [c.get()]


@program("launch_and_wait", n=(4096, 4096, 4096))
class Waiting(Program):
    """One small kernel, launched and waited for again and again; its array is kept."""

    source = TICK
    waits = 25

    def __init__(self, n: int) -> None:
        self.data = np.arange(n, dtype=np.int32)
        self.x: Any = None

    def plain(self, at: Plain, turn: int) -> ResultMemory:
        if self.x is None:
            self.x = at.kept(self.data)
        for _ in range(self.waits):
            at.k.tick(at.queue, self.data.shape, (64,), self.x).wait()
        return [at.get(self.x, (1,), np.int32)]

    def manycl(self, queue: mc.Queue, program: mc.Program, turn: int) -> ResultMemory:
        if self.x is None:
            self.x = queue.array(self.data)
        for _ in range(self.waits):
            program.tick(queue, self.data.shape, (64,), self.x).wait()
        return [self.x.get()[:1]]
