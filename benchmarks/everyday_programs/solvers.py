"""Programs that look at what came out and go on, and programs whose arrays are kept."""

from __future__ import annotations

from typing import Any

import numpy as np

import manycl as mc
from everyday_programs.program import Host, Plain, Program, ResultMemory, program, random


@program("conjugate_gradients", n=(128, 1024, 4096), steps=(10, 25, 50), groups=(64, 256, 1024))
class ConjugateGradients(Program):
    """Poisson's equation on a grid; two numbers are read back in each iteration."""

    source = """
    kernel void apply(global const float *p, global float *q, int n) {
        int i = get_global_id(0), j = get_global_id(1), at = j * n + i;
        float sum = 4.0f * p[at];
        if (i > 0) sum -= p[at - 1];
        if (i < n - 1) sum -= p[at + 1];
        if (j > 0) sum -= p[at - n];
        if (j < n - 1) sum -= p[at + n];
        q[at] = sum;
    }
    kernel void partial(global const float *x, global const float *y, global float *sums, int n) {
        local float part[64];
        int me = get_local_id(0);
        float sum = 0.0f;
        for (int i = get_global_id(0); i < n; i += get_global_size(0)) sum += x[i] * y[i];
        part[me] = sum;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int apart = 32; apart > 0; apart /= 2) {
            if (me < apart) part[me] += part[me + apart];
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (me == 0) sums[get_group_id(0)] = part[0];
    }
    kernel void whole(global const float *sums, global float *out, int n) {
        local float part[64];
        int me = get_local_id(0);
        float sum = 0.0f;
        for (int i = me; i < n; i += 64) sum += sums[i];
        part[me] = sum;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (me == 0) {
            for (int i = 1; i < 64; i++) sum += part[i];
            out[0] = sum;
        }
    }
    kernel void add_scaled(global float *x, global const float *y, float a) {
        x[get_global_id(0)] += a * y[get_global_id(0)];
    }
    kernel void direction(global float *p, global const float *r, float b) {
        p[get_global_id(0)] = r[get_global_id(0)] + b * p[get_global_id(0)];
    }"""

    def __init__(self, n: int, steps: int, groups: int) -> None:
        self.n, self.steps, self.groups = n, steps, groups
        self.b = random(n, n)

    def plain(self, at: Plain, turn: int) -> ResultMemory:
        n, k, q = self.n, at.k, at.queue
        square, flat, grid = n * n, (n * n,), (n, n)
        x, r, p = at.array(np.zeros_like(self.b)), at.array(self.b), at.array(self.b)
        w, sums, out = at.empty(4 * square), at.empty(4 * self.groups), at.empty(4)

        def dot(a: Any, b: Any) -> Any:
            k.partial(q, (64 * self.groups,), (64,), a, b, sums, np.int32(square))
            k.whole(q, (64,), (64,), sums, out, np.int32(self.groups))
            return at.get(out, (1,))[0]

        rest = dot(r, r)
        for _ in range(self.steps):
            k.apply(q, grid, (16, 16), p, w, np.int32(n))
            step = rest / dot(p, w)
            k.add_scaled(q, flat, (64,), x, p, step)
            k.add_scaled(q, flat, (64,), r, w, -step)
            before, rest = rest, dot(r, r)
            k.direction(q, flat, (64,), p, r, rest / before)
        return [at.get(x, grid)]

    def manycl(self, queue: mc.Queue, program: mc.Program, turn: int) -> ResultMemory:
        n = self.n
        square, flat, grid = n * n, (n * n,), (n, n)
        x, r, p = queue.zeros(grid), queue.array(self.b), queue.array(self.b)
        w, sums, out = queue.empty(grid), queue.empty(self.groups), queue.empty(1)

        def dot(a: mc.Array, b: mc.Array) -> Any:
            program.partial(queue, (64 * self.groups,), (64,), a, b, sums, square)
            program.whole(queue, (64,), (64,), sums, out, self.groups)
            return out.get()[0]

        rest = dot(r, r)
        for _ in range(self.steps):
            program.apply(queue, grid, (16, 16), p, w, n)
            step = rest / dot(p, w)
            program.add_scaled(queue, flat, (64,), x, p, step)
            program.add_scaled(queue, flat, (64,), r, w, -step)
            before, rest = rest, dot(r, r)
            program.direction(queue, flat, (64,), p, r, rest / before)
        return [x.get()]


@program("k_means", n=(1 << 14, 1 << 19, 1 << 23), steps=(5, 5, 10))
class Means(Program):
    """Points to the nearest mean; sums in integers on the device, the means on the host."""

    source = """
    kernel void nearest(global const float2 *points, global const float2 *means, global int *sums, int k) {
        float2 p = points[get_global_id(0)];
        int best = 0;
        float least = INFINITY;
        for (int m = 0; m < k; m++) {
            float2 d = p - means[m];
            float square = d.x * d.x + d.y * d.y;
            if (square < least) { least = square; best = m; }
        }
        atomic_add(&sums[3 * best], (int)(p.x * 64.0f));
        atomic_add(&sums[3 * best + 1], (int)(p.y * 64.0f));
        atomic_inc(&sums[3 * best + 2]);
    }"""
    k = 16

    def __init__(self, n: int, steps: int) -> None:
        self.steps = steps
        self.points = random(n, 2)
        self.start = random(self.k, 2, seed=2)

    def _moved(self, sums: Host) -> Host:
        counts = np.maximum(sums[:, 2:], 1)
        return (sums[:, :2] / (64.0 * counts)).astype(np.float32)

    def plain(self, at: Plain, turn: int) -> ResultMemory:
        points, means = at.array(self.points), self.start
        size, k = (len(self.points),), np.int32(self.k)
        for _ in range(self.steps):
            current, sums = at.array(means), at.array(np.zeros((self.k, 3), np.int32))
            at.k.nearest(at.queue, size, (64,), points, current, sums, k)
            means = self._moved(at.get(sums, (self.k, 3), np.int32))
        return [means]

    def manycl(self, queue: mc.Queue, program: mc.Program, turn: int) -> ResultMemory:
        points, means = queue.array(self.points), self.start
        for _ in range(self.steps):
            current, sums = queue.array(means), queue.zeros((self.k, 3), np.int32)
            program.nearest(queue, (len(self.points),), (64,), points, current, sums, self.k)
            means = self._moved(sums.get())
        return [means]


@program("bfs", n=(1 << 14, 1 << 18, 1 << 22))
class Levels(Program):
    """A graph from one vertex on, level by level, until a flag that is read back says that nothing was found."""

    source = """
    kernel void visit(global const int *first, global const int *next, global int *level, global int *found,
                      int depth) {
        int v = get_global_id(0);
        if (level[v] != depth) return;
        for (int e = first[v]; e < first[v + 1]; e++)
            if (level[next[e]] < 0) {
                level[next[e]] = depth + 1;
                found[0] = 1;
            }
    }"""
    degree = 4

    def __init__(self, n: int) -> None:
        self.first = np.arange(n + 1, dtype=np.int32) * self.degree
        self.next = np.random.default_rng(1).integers(0, n, n * self.degree, np.int32)
        self.level = np.full(n, -1, np.int32)
        self.level[0] = 0

    def plain(self, at: Plain, turn: int) -> ResultMemory:
        first, following, level = at.array(self.first), at.array(self.next), at.array(self.level)
        found = at.empty(4)
        for depth in range(len(self.level)):
            at.cl.enqueue_copy(at.queue, found, np.zeros(1, np.int32))
            at.k.visit(at.queue, self.level.shape, (64,), first, following, level, found, np.int32(depth))
            if not at.get(found, (1,), np.int32)[0]:
                break
        return [at.get(level, self.level.shape, np.int32)]

    def manycl(self, queue: mc.Queue, program: mc.Program, turn: int) -> ResultMemory:
        first, following, level = queue.array(self.first), queue.array(self.next), queue.array(self.level)
        found = queue.empty(1, np.int32)
        for depth in range(len(self.level)):
            found.set(np.zeros(1, np.int32))
            program.visit(queue, self.level.shape, (64,), first, following, level, found, depth)
            if not found.get()[0]:
                break
        return [level.get()]


@program("spmv", n=(1 << 13, 1 << 17, 1 << 20), steps=(10, 10, 20))
class Sparse(Program):
    """A sparse matrix in compressed rows, which is kept, times a new vector again and again."""

    source = """
    kernel void rows(global const int *first, global const int *columns, global const float *values,
                     global const float *x, global float *y) {
        int row = get_global_id(0);
        float sum = 0.0f;
        for (int e = first[row]; e < first[row + 1]; e++) sum += values[e] * x[columns[e]];
        y[row] = sum;
    }"""
    degree = 32

    def __init__(self, n: int, steps: int) -> None:
        self.steps = steps
        self.matrix = (
            np.arange(n + 1, dtype=np.int32) * self.degree,
            np.random.default_rng(1).integers(0, n, n * self.degree, np.int32),
            random(n * self.degree) * np.float32(2.0 / self.degree),
        )
        self.x = random(n, seed=2)
        self.kept: Any = None

    def plain(self, at: Plain, turn: int) -> ResultMemory:
        if self.kept is None:
            self.kept = [at.kept(part) for part in self.matrix]
        x, y = at.array(self.x), at.empty(self.x.nbytes)
        for _ in range(self.steps):
            at.k.rows(at.queue, self.x.shape, (64,), *self.kept, x, y)
            x, y = y, x
        return [at.get(x, self.x.shape)]

    def manycl(self, queue: mc.Queue, program: mc.Program, turn: int) -> ResultMemory:
        if self.kept is None:
            self.kept = [queue.array(part) for part in self.matrix]
        x, y = queue.array(self.x), queue.empty(self.x.shape)
        for _ in range(self.steps):
            program.rows(queue, self.x.shape, (64,), *self.kept, x, y)
            x, y = y, x
        return [x.get()]


ADAM = """
kernel void blend(global float *m, global const float *g, float keep) {
    int i = get_global_id(0);
    m[i] = keep * m[i] + (1.0f - keep) * g[i];
}
kernel void blend_squares(global float *v, global const float *g, float keep) {
    int i = get_global_id(0);
    v[i] = keep * v[i] + (1.0f - keep) * g[i] * g[i];
}
kernel void adjust(global float *w, global const float *m, global const float *v, float rate) {
    int i = get_global_id(0);
    w[i] -= rate * m[i] / (sqrt(v[i]) + 1e-6f);
}
"""


@program("arrays_anew", n=(1 << 17, 1 << 21, 1 << 25))
class Anew(Program):
    """Adam's update of weights: all four arrays come from NumPy and go back to it."""

    source = ADAM
    keep = False

    def __init__(self, n: int) -> None:
        self.gradient = random(n)
        self.state = [random(n, seed=2), np.zeros(n, np.float32), np.zeros(n, np.float32)]
        self.kept: Any = None

    def plain(self, at: Plain, turn: int) -> ResultMemory:
        size = self.gradient.shape
        if self.keep and self.kept is None:
            self.kept = [at.kept(data) for data in self.state]
        w, m, v = self.kept or [at.array(data) for data in self.state]
        g = at.array(self.gradient)
        at.k.blend(at.queue, size, (64,), m, g, np.float32(0.9))
        at.k.blend_squares(at.queue, size, (64,), v, g, np.float32(0.999))
        at.k.adjust(at.queue, size, (64,), w, m, v, np.float32(1e-3))
        return [at.get(x, size) for x in ([w] if self.keep else [w, m, v])]

    def manycl(self, queue: mc.Queue, program: mc.Program, turn: int) -> ResultMemory:
        size = self.gradient.shape
        if self.keep and self.kept is None:
            self.kept = [queue.array(data) for data in self.state]
        w, m, v = self.kept or [queue.array(data) for data in self.state]
        g = queue.array(self.gradient)
        program.blend(queue, size, (64,), m, g, 0.9)
        program.blend_squares(queue, size, (64,), v, g, 0.999)
        program.adjust(queue, size, (64,), w, m, v, 1e-3)
        return [x.get() for x in ([w] if self.keep else [w, m, v])]


@program("arrays_kept", n=(1 << 17, 1 << 21, 1 << 25))
class Kept(Anew):
    """The same, whose weights and moments stay where they are: gradients come, weights go."""

    keep = True
