"""Programs on grids, images and bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import manycl as mc
from everyday_programs.program import Divisible, Hand, Host, Plain, Repeatable, ResultMemory, program, random

LOCAL = (16, 16)


@program("stencil", n=(256, 2048, 8192), steps=(40, 50, 100))
@program("stencil_large", n=(512, 4096, 16384), steps=(40, 50, 100))
@program("stencil_once", n=(1024, 4096, 8192), steps=(1, 1, 1))
class Stencil(Divisible):
    """Five points, two arrays in turn."""

    source = """
    kernel void relax(global const float *a, global float *b, int n) {
        int i = get_global_id(0), j = get_global_id(1), at = j * n + i;
        if (i > 0 && j > 0 && i < n - 1 && j < n - 1)
            b[at] = 0.2f * (a[at] + a[at - 1] + a[at + 1] + a[at - n] + a[at + n]);
        else
            b[at] = a[at];
    }"""

    def __init__(self, n: int, steps: int) -> None:
        self.n, self.steps = n, steps
        self.inputs = [random(n, n)]

    def plain_launches(self, at: Plain, *buffers: Any) -> Sequence[tuple[Any, Host]]:
        (a,), b = buffers, at.empty(self.inputs[0].nbytes)
        for _ in range(self.steps):
            at.k.relax(at.queue, (self.n, self.n), LOCAL, a, b, np.int32(self.n))
            a, b = b, a
        return [(a, self.inputs[0])]

    def launches(self, queue: mc.Queue, program: mc.Program, *arrays: mc.Array) -> Sequence[mc.Array]:
        (a,), b = arrays, queue.empty((self.n, self.n))
        for _ in range(self.steps):
            program.relax(queue, (self.n, self.n), LOCAL, a, b, self.n)
            a, b = b, a
        return [a]

    def hand(self, at: Hand) -> ResultMemory:
        n, rows, grid = self.n, at.split(self.n, LOCAL[1]), self.inputs[0]
        a, b = at.upload(grid, rows, reach=1), at.empty(grid.nbytes)
        for step in range(self.steps):
            if step:
                at.exchange(a, rows, 4 * n, reach=1)
            for queue, k, begin, count, x, y in at.each(rows, a, b):
                k.relax(queue, (n, count), LOCAL, x, y, np.int32(n), global_offset=(0, begin))
            a, b = b, a
        return [at.download(a, grid, rows)]


@program("nbody", n=(1024, 8192, 65536), steps=(5, 5, 5))
@program("nbody_large", n=(4096, 16384, 262144), steps=(2, 2, 2))
class Bodies(Divisible):
    """All bodies read all bodies."""

    source = """
    kernel void advance(global const float4 *from, global float4 *to, global float4 *speed, int n, float dt) {
        int i = get_global_id(0);
        float4 me = from[i], pull = (float4)(0.0f);
        for (int j = 0; j < n; j++) {
            float4 other = from[j];
            float4 apart = other - me;
            float square = apart.x * apart.x + apart.y * apart.y + apart.z * apart.z + 0.01f;
            pull += apart * (other.w / (square * sqrt(square)));
        }
        pull.w = 0.0f;
        float4 now = speed[i] + dt * pull;
        speed[i] = now;
        to[i] = me + dt * now;
    }"""

    def __init__(self, n: int, steps: int) -> None:
        self.n, self.steps = n, steps
        self.inputs = [random(n, 4), np.zeros((n, 4), np.float32)]

    def plain_launches(self, at: Plain, *buffers: Any) -> Sequence[tuple[Any, Host]]:
        (here, speed), there = buffers, at.empty(self.inputs[0].nbytes)
        for _ in range(self.steps):
            at.k.advance(at.queue, (self.n,), (64,), here, there, speed, np.int32(self.n), np.float32(1e-4))
            here, there = there, here
        return [(here, self.inputs[0])]

    def launches(self, queue: mc.Queue, program: mc.Program, *arrays: mc.Array) -> Sequence[mc.Array]:
        (here, speed), there = arrays, queue.empty((self.n, 4))
        for _ in range(self.steps):
            program.advance(queue, (self.n,), (64,), here, there, speed, self.n, 1e-4)
            here, there = there, here
        return [here]

    def hand(self, at: Hand) -> ResultMemory:
        rows, bodies, n, dt = at.split(self.n, 64), self.inputs[0], np.int32(self.n), np.float32(1e-4)
        here, there, speed = at.upload(bodies), at.empty(bodies.nbytes), at.upload(self.inputs[1], rows)
        for step in range(self.steps):
            if step:
                at.exchange(here, rows, 16)
            for queue, k, begin, count, x, y, v in at.each(rows, here, there, speed):
                k.advance(queue, (count,), (64,), x, y, v, n, dt, global_offset=(begin,))
            here, there = there, here
        return [at.download(here, bodies, rows)]


@program("image_filters", n=(512, 2048, 8192))
class Filters(Repeatable):
    """From colours to fattened edges, in six kernels."""

    source = """
    int within(int i, int n) { return clamp(i, 0, n - 1); }
    kernel void grey(global const uchar4 *in, global float *out, int n) {
        int i = get_global_id(1) * n + get_global_id(0);
        out[i] = 0.299f * in[i].x + 0.587f * in[i].y + 0.114f * in[i].z;
    }
    kernel void blur_rows(global const float *in, global float *out, int n) {
        int x = get_global_id(0), y = get_global_id(1);
        float sum = 0.0f;
        for (int d = -3; d <= 3; d++) sum += in[y * n + within(x + d, n)];
        out[y * n + x] = sum / 7.0f;
    }
    kernel void blur_columns(global const float *in, global float *out, int n) {
        int x = get_global_id(0), y = get_global_id(1);
        float sum = 0.0f;
        for (int d = -3; d <= 3; d++) sum += in[within(y + d, n) * n + x];
        out[y * n + x] = sum / 7.0f;
    }
    kernel void sharpen(global const float *in, global const float *blurred, global float *out, int n) {
        int i = get_global_id(1) * n + get_global_id(0);
        out[i] = in[i] + 1.5f * (in[i] - blurred[i]);
    }
    kernel void edges(global const float *in, global float *out, int n) {
        int x = get_global_id(0), y = get_global_id(1);
        int l = within(x - 1, n), r = within(x + 1, n), u = within(y - 1, n) * n, d = within(y + 1, n) * n, c = y * n;
        float h = in[u + r] + 2.0f * in[c + r] + in[d + r] - in[u + l] - 2.0f * in[c + l] - in[d + l];
        float v = in[d + l] + 2.0f * in[d + x] + in[d + r] - in[u + l] - 2.0f * in[u + x] - in[u + r];
        out[c + x] = sqrt(h * h + v * v);
    }
    kernel void fatten(global const float *in, global uchar *out, int n, float least) {
        int x = get_global_id(0), y = get_global_id(1);
        float most = 0.0f;
        for (int b = -1; b <= 1; b++)
            for (int a = -1; a <= 1; a++) most = fmax(most, in[within(y + b, n) * n + within(x + a, n)]);
        out[y * n + x] = most > least ? 255 : 0;
    }"""

    def __init__(self, n: int) -> None:
        self.n = n
        self.inputs = [np.random.default_rng(1).integers(0, 256, (n, n, 4), np.uint8)]
        self.mask = np.empty((n, n), np.uint8)

    def plain_launches(self, at: Plain, *buffers: Any) -> Sequence[tuple[Any, Host]]:
        size, n, k, q = (self.n, self.n), np.int32(self.n), at.k, at.queue
        grey, rows, blurred, sharp, edges = (at.empty(4 * self.n * self.n) for _ in range(5))
        mask = at.empty(self.n * self.n)
        k.grey(q, size, LOCAL, buffers[0], grey, n)
        k.blur_rows(q, size, LOCAL, grey, rows, n)
        k.blur_columns(q, size, LOCAL, rows, blurred, n)
        k.sharpen(q, size, LOCAL, grey, blurred, sharp, n)
        k.edges(q, size, LOCAL, sharp, edges, n)
        k.fatten(q, size, LOCAL, edges, mask, n, np.float32(200))
        return [(mask, self.mask)]

    def launches(self, queue: mc.Queue, program: mc.Program, *arrays: mc.Array) -> Sequence[mc.Array]:
        size, n = (self.n, self.n), self.n
        grey, rows, blurred, sharp, edges = (queue.empty(size) for _ in range(5))
        mask = queue.empty(size, np.uint8)
        program.grey(queue, size, LOCAL, arrays[0], grey, n)
        program.blur_rows(queue, size, LOCAL, grey, rows, n)
        program.blur_columns(queue, size, LOCAL, rows, blurred, n)
        program.sharpen(queue, size, LOCAL, grey, blurred, sharp, n)
        program.edges(queue, size, LOCAL, sharp, edges, n)
        program.fatten(queue, size, LOCAL, edges, mask, n, 200.0)
        return [mask]


@program("blur", n=(512, 2048, 8192))
class Blur(Divisible):
    """Means of seven by seven points: along rows, then along columns."""

    source = Filters.source

    def __init__(self, n: int) -> None:
        self.n = n
        self.inputs = [random(n, n)]

    def plain_launches(self, at: Plain, *buffers: Any) -> Sequence[tuple[Any, Host]]:
        size, n, like = (self.n, self.n), np.int32(self.n), self.inputs[0]
        rows, blurred = at.empty(like.nbytes), at.empty(like.nbytes)
        at.k.blur_rows(at.queue, size, LOCAL, buffers[0], rows, n)
        at.k.blur_columns(at.queue, size, LOCAL, rows, blurred, n)
        return [(blurred, like)]

    def launches(self, queue: mc.Queue, program: mc.Program, *arrays: mc.Array) -> Sequence[mc.Array]:
        size = (self.n, self.n)
        rows, blurred = queue.empty(size), queue.empty(size)
        program.blur_rows(queue, size, LOCAL, arrays[0], rows, self.n)
        program.blur_columns(queue, size, LOCAL, rows, blurred, self.n)
        return [blurred]

    def hand(self, at: Hand) -> ResultMemory:
        n, own, image = self.n, at.split(self.n, LOCAL[1]), self.inputs[0]
        given, rows, blurred = at.upload(image, own), at.empty(image.nbytes), at.empty(image.nbytes)
        for queue, k, begin, count, x, y in at.each(own, given, rows):
            k.blur_rows(queue, (n, count), LOCAL, x, y, np.int32(n), global_offset=(0, begin))
        at.exchange(rows, own, 4 * n, reach=3)
        for queue, k, begin, count, x, y in at.each(own, rows, blurred):
            k.blur_columns(queue, (n, count), LOCAL, x, y, np.int32(n), global_offset=(0, begin))
        return [at.download(blurred, image, own)]


@program("mandelbrot", n=(256, 1024, 8192), most=(100, 300, 1000))
class Mandelbrot(Divisible):
    """After how many steps each point leaves: rows are unequal work."""

    source = """
    kernel void leave(global int *out, int n, int most) {
        #pragma OPENCL FP_CONTRACT OFF
        int i = get_global_id(0), j = get_global_id(1), step = 0;
        float a = 3.0f * i / n - 2.25f, b = 2.0f * j / n - 1.25f, x = 0.0f, y = 0.0f;
        for (; step < most && x * x + y * y <= 4.0f; step++) {
            float next = x * x - y * y + a;
            y = 2.0f * x * y + b;
            x = next;
        }
        out[j * n + i] = step;
    }"""

    def __init__(self, n: int, most: int) -> None:
        self.n, self.most = n, most
        self.inputs, self.out = [], np.empty((n, n), np.int32)

    def plain_launches(self, at: Plain, *buffers: Any) -> Sequence[tuple[Any, Host]]:
        out = at.empty(self.out.nbytes)
        at.k.leave(at.queue, (self.n, self.n), LOCAL, out, np.int32(self.n), np.int32(self.most))
        return [(out, self.out)]

    def launches(self, queue: mc.Queue, program: mc.Program, *arrays: mc.Array) -> Sequence[mc.Array]:
        out = queue.empty((self.n, self.n), np.int32)
        program.leave(queue, (self.n, self.n), LOCAL, out, self.n, self.most)
        return [out]

    def hand(self, at: Hand) -> ResultMemory:
        n, rows, out = self.n, at.split(self.n, LOCAL[1]), at.empty(self.out.nbytes)
        for queue, k, begin, count, x in at.each(rows, out):
            k.leave(queue, (n, count), LOCAL, x, np.int32(n), np.int32(self.most), global_offset=(0, begin))
        return [at.download(out, self.out, rows)]


@program("one_huge_kernel", n=(1 << 14, 1 << 18, 1 << 22), rounds=(1000, 5000, 20000))
class Huge(Divisible):
    """One launch that computes for long."""

    source = """
    kernel void iterate(global float *x, int rounds) {
        float v = x[get_global_id(0)];
        for (int i = 0; i < rounds; i++) v = v * 0.999f + 0.5f;
        x[get_global_id(0)] = v;
    }"""

    def __init__(self, n: int, rounds: int) -> None:
        self.rounds = rounds
        self.inputs = [random(n)]

    def plain_launches(self, at: Plain, *buffers: Any) -> Sequence[tuple[Any, Host]]:
        at.k.iterate(at.queue, self.inputs[0].shape, None, buffers[0], np.int32(self.rounds))
        return [(buffers[0], self.inputs[0])]

    def launches(self, queue: mc.Queue, program: mc.Program, *arrays: mc.Array) -> Sequence[mc.Array]:
        program.iterate(queue, self.inputs[0].shape, None, arrays[0], self.rounds)
        return arrays

    def hand(self, at: Hand) -> ResultMemory:
        rows, like = at.split(len(self.inputs[0]), 64), self.inputs[0]
        given = at.upload(like, rows)
        for queue, k, begin, count, x in at.each(rows, given):
            k.iterate(queue, (count,), None, x, np.int32(self.rounds), global_offset=(begin,))
        return [at.download(given, like, rows)]


@program("logistic_map", n=(1 << 14, 1 << 18, 1 << 24), rounds=(1000, 5000, 10000))
class Logistic(Huge):
    """The logistic map, again and again: every rounding error grows until it is all that there is."""

    source = """
    kernel void iterate(global float *x, int rounds) {
        #pragma OPENCL FP_CONTRACT OFF
        float v = x[get_global_id(0)];
        for (int i = 0; i < rounds; i++) v = 3.9f * v * (1.0f - v);
        x[get_global_id(0)] = v;
    }"""
