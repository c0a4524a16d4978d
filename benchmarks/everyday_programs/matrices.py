"""Programs of matrices that are made of helpers, as people write them: a product, a sum, and so on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

import manycl as mc
from everyday_programs.program import Divisible, Hand, Host, Plain, ResultMemory, Rows, program, random

TILE = (16, 16)
SOURCE = """
kernel void product(global const float *a, global const float *b, global float *c, int m, int n, int k) {
    int column = get_global_id(0), row = get_global_id(1);
    float sum = 0.0f;
    for (int i = 0; i < k; i++) sum += a[row * k + i] * b[i * n + column];
    c[row * n + column] = sum;
}
kernel void turned(global const float *a, global float *b, int m, int n) {
    int column = get_global_id(0), row = get_global_id(1);
    b[column * m + row] = a[row * n + column];
}
kernel void combined(global const float *a, global const float *b, global float *c, int n, float factor) {
    int i = get_global_id(1) * n + get_global_id(0);
    c[i] = a[i] + factor * b[i];
}
kernel void rectified(global const float *a, global float *b, int n) {
    int i = get_global_id(1) * n + get_global_id(0);
    b[i] = fmax(a[i], 0.0f);
}
kernel void softmax(global const float *a, global float *b, int n, float scale) {
    global const float *x = a + get_global_id(0) * n;
    global float *y = b + get_global_id(0) * n;
    float most = x[0], sum = 0.0f;
    for (int i = 1; i < n; i++) most = fmax(most, x[i]);
    for (int i = 0; i < n; i++) sum += exp(scale * (x[i] - most));
    for (int i = 0; i < n; i++) y[i] = exp(scale * (x[i] - most)) / sum;
}
"""


class Algebra(Protocol):
    """What formulas are written with."""

    def product(self, a: Any, b: Any) -> Any: ...

    def transpose(self, a: Any) -> Any: ...

    def plus(self, a: Any, b: Any, factor: float = 1.0) -> Any: ...

    def relu(self, a: Any) -> Any: ...

    def softmax(self, a: Any, scale: float) -> Any: ...


class Matrix(NamedTuple):
    """A buffer of PyOpenCL's, and its shape."""

    buffer: Any
    rows: int
    columns: int

    @property
    def size(self) -> tuple[int, int]:
        return self.columns, self.rows


class PlainAlgebra:
    """With PyOpenCL."""

    def __init__(self, at: Plain) -> None:
        self.at, self.k, self.queue = at, at.k, at.queue

    def made(self, rows: int, columns: int) -> Matrix:
        return Matrix(self.at.empty(4 * rows * columns), rows, columns)

    def product(self, a: Matrix, b: Matrix) -> Matrix:
        c = self.made(a.rows, b.columns)
        sizes = np.int32(a.rows), np.int32(b.columns), np.int32(a.columns)
        self.k.product(self.queue, c.size, TILE, a.buffer, b.buffer, c.buffer, *sizes)
        return c

    def transpose(self, a: Matrix) -> Matrix:
        c = self.made(a.columns, a.rows)
        self.k.turned(self.queue, a.size, TILE, a.buffer, c.buffer, np.int32(a.rows), np.int32(a.columns))
        return c

    def plus(self, a: Matrix, b: Matrix, factor: float = 1.0) -> Matrix:
        c = self.made(a.rows, a.columns)
        values = np.int32(a.columns), np.float32(factor)
        self.k.combined(self.queue, a.size, TILE, a.buffer, b.buffer, c.buffer, *values)
        return c

    def relu(self, a: Matrix) -> Matrix:
        c = self.made(a.rows, a.columns)
        self.k.rectified(self.queue, a.size, TILE, a.buffer, c.buffer, np.int32(a.columns))
        return c

    def softmax(self, a: Matrix, scale: float) -> Matrix:
        c = self.made(a.rows, a.columns)
        self.k.softmax(self.queue, (a.rows,), (16,), a.buffer, c.buffer, np.int32(a.columns), np.float32(scale))
        return c


class ManyAlgebra:
    """With manycl."""

    def __init__(self, queue: mc.Queue, program: mc.Program) -> None:
        self.queue, self.p = queue, program

    def product(self, a: mc.Array, b: mc.Array) -> mc.Array:
        (m, k), n = a.shape, b.shape[1]
        c = self.queue.empty((m, n))
        self.p.product(self.queue, (n, m), TILE, a, b, c, m, n, k)
        return c

    def transpose(self, a: mc.Array) -> mc.Array:
        m, n = a.shape
        c = self.queue.empty((n, m))
        self.p.turned(self.queue, (n, m), TILE, a, c, m, n)
        return c

    def plus(self, a: mc.Array, b: mc.Array, factor: float = 1.0) -> mc.Array:
        m, n = a.shape
        c = self.queue.empty((m, n))
        self.p.combined(self.queue, (n, m), TILE, a, b, c, n, factor)
        return c

    def relu(self, a: mc.Array) -> mc.Array:
        m, n = a.shape
        c = self.queue.empty((m, n))
        self.p.rectified(self.queue, (n, m), TILE, a, c, n)
        return c

    def softmax(self, a: mc.Array, scale: float) -> mc.Array:
        m, n = a.shape
        c = self.queue.empty((m, n))
        self.p.softmax(self.queue, (m,), (16,), a, c, n, scale)
        return c


class Divided:
    """A matrix in buffers of several devices, each of which has its own rows, or all."""

    def __init__(self, buffers: Sequence[Any], rows: int, columns: int, is_whole: bool = False) -> None:
        self.buffers, self.rows, self.columns, self.is_whole = buffers, rows, columns, is_whole


class HandAlgebra:
    """With PyOpenCL on several devices: each computes rows of every result, of operands that are exchanged."""

    def __init__(self, at: Hand) -> None:
        self.at = at

    def given(self, data: Host) -> Divided:
        rows, columns = data.shape
        return Divided(self.at.upload(data), rows, columns, is_whole=True)

    def split(self, matrix: Divided) -> Rows:
        return self.at.split(matrix.rows, TILE[1])

    def whole(self, matrix: Divided) -> Divided:
        if not matrix.is_whole:
            self.at.exchange(matrix.buffers, self.split(matrix), 4 * matrix.columns)
            matrix.is_whole = True
        return matrix

    def made(self, rows: int, columns: int) -> Divided:
        return Divided(self.at.empty(4 * rows * columns), rows, columns)

    def product(self, a: Divided, b: Divided) -> Divided:
        c, sizes = self.made(a.rows, b.columns), [np.int32(n) for n in (a.rows, b.columns, a.columns)]
        for q, k, begin, count, x, y, z in self.at.each(self.split(c), a.buffers, self.whole(b).buffers, c.buffers):
            k.product(q, (c.columns, count), TILE, x, y, z, *sizes, global_offset=(0, begin))
        return c

    def transpose(self, a: Divided) -> Divided:
        c, sizes = self.made(a.columns, a.rows), [np.int32(n) for n in (a.rows, a.columns)]
        for q, k, begin, count, x, y in self.at.each(self.split(c), self.whole(a).buffers, c.buffers):
            k.turned(q, (count, a.rows), TILE, x, y, *sizes, global_offset=(begin, 0))
        return c

    def plus(self, a: Divided, b: Divided, factor: float = 1.0) -> Divided:
        c, values = self.made(a.rows, a.columns), (np.int32(a.columns), np.float32(factor))
        for q, k, begin, count, x, y, z in self.at.each(self.split(c), a.buffers, b.buffers, c.buffers):
            k.combined(q, (c.columns, count), TILE, x, y, z, *values, global_offset=(0, begin))
        return c

    def relu(self, a: Divided) -> Divided:
        c = self.made(a.rows, a.columns)
        for q, k, begin, count, x, y in self.at.each(self.split(c), a.buffers, c.buffers):
            k.rectified(q, (c.columns, count), TILE, x, y, np.int32(a.columns), global_offset=(0, begin))
        return c

    def softmax(self, a: Divided, scale: float) -> Divided:
        c, values = self.made(a.rows, a.columns), (np.int32(a.columns), np.float32(scale))
        for q, k, begin, count, x, y in self.at.each(self.split(c), a.buffers, c.buffers):
            k.softmax(q, (count,), (16,), x, y, *values, global_offset=(begin,))
        return c


class Formula(Divisible):
    """A formula of matrices, written once with the helpers of all."""

    source = SOURCE

    @abstractmethod
    def formula(self, of: Algebra, *given: Any) -> Any:
        """The result."""

    def plain_launches(self, at: Plain, *buffers: Any) -> Sequence[tuple[Any, Host]]:
        given = (Matrix(b, *data.shape) for b, data in zip(buffers, self.inputs, strict=True))
        made = self.formula(PlainAlgebra(at), *given)
        return [(made.buffer, np.empty((made.rows, made.columns), np.float32))]

    def launches(self, queue: mc.Queue, program: mc.Program, *arrays: mc.Array) -> Sequence[mc.Array]:
        return [self.formula(ManyAlgebra(queue, program), *arrays)]

    def hand(self, at: Hand) -> ResultMemory:
        of = HandAlgebra(at)
        made = self.formula(of, *(of.given(data) for data in self.inputs))
        return [at.download(made.buffers, np.empty((made.rows, made.columns), np.float32), of.split(made))]


def matrix(rows: int, columns: int, seed: int) -> Host:
    """Products of a few such matrices stay near one."""
    return (random(rows, columns, seed=seed) - np.float32(0.45)) * np.float32(2.0 / np.sqrt(columns))


class Equation(Formula):
    """One of MKMD's (Table 3), of square matrices."""

    matrices = 2

    def __init__(self, n: int) -> None:
        self.inputs = [matrix(n, n, seed) for seed in range(self.matrices)]


N = (96, 1024, 4096)


@program("product", n=N)
class Product(Equation):
    """A B"""

    def formula(self, of: Algebra, *given: Any) -> Any:
        return of.product(*given)


@program("stein", n=N)
class Stein(Equation):
    """A X A' - X"""

    def formula(self, of: Algebra, *given: Any) -> Any:
        a, x = given
        return of.plus(of.product(of.product(a, x), of.transpose(a)), x, -1.0)


@program("sylvester", n=N)
class Sylvester(Equation):
    """A X + X B - C"""

    matrices = 4

    def formula(self, of: Algebra, *given: Any) -> Any:
        a, x, b, c = given
        return of.plus(of.plus(of.product(a, x), of.product(x, b)), c, -1.0)


@program("lyapunov", n=N)
class Lyapunov(Equation):
    """A X + X A' + Q"""

    matrices = 3

    def formula(self, of: Algebra, *given: Any) -> Any:
        a, x, q = given
        return of.plus(of.plus(of.product(a, x), of.product(x, of.transpose(a))), q)


@program("commutator", n=N)
class Commutator(Equation):
    """A B C + B C A + C A B - B A C - A C B - C B A"""

    matrices = 3

    def formula(self, of: Algebra, *given: Any) -> Any:
        a, b, c = given
        total = of.product(of.product(a, b), c)
        for x, y, z in ((b, c, a), (c, a, b)):
            total = of.plus(total, of.product(of.product(x, y), z))
        for x, y, z in ((b, a, c), (a, c, b), (c, b, a)):
            total = of.plus(total, of.product(of.product(x, y), z), -1.0)
        return total


@program("abe", n=N)
class Bernoulli(Equation):
    """The algebraic Bernoulli equation: A' X + X A - X B B' X"""

    matrices = 3

    def formula(self, of: Algebra, *given: Any) -> Any:
        a, x, b = given
        left = of.plus(of.product(of.transpose(a), x), of.product(x, a))
        return of.plus(left, of.product(of.product(of.product(x, b), of.transpose(b)), x), -1.0)


@program("matrix_chain", n=(96, 1024, 4096))
class MatrixChain(Formula):
    """A B C D E, of matrices that are no squares, from the left."""

    def __init__(self, n: int) -> None:
        extents = [n, 2 * n, n // 2, n, 2 * n, n // 2]
        self.inputs = [matrix(extents[i], extents[i + 1], i) for i in range(5)]

    def formula(self, of: Algebra, *given: Any) -> Any:
        made = given[0]
        for other in given[1:]:
            made = of.product(made, other)
        return made


@program("transformer", words=(64, 512, 2048), width=(64, 512, 1024), heads=(4, 8, 8))
class Transformer(Formula):
    """A layer: attention of several heads, and two dense layers."""

    def __init__(self, words: int, width: int, heads: int) -> None:
        self.heads, self.scale = heads, (width / heads) ** -0.5
        head = width // heads
        shapes = [(words, width)]
        shapes += heads * [(width, head), (width, head), (width, head), (head, width)]
        shapes += [(width, 2 * width), (2 * width, width)]
        self.inputs = [matrix(*shape, seed) for seed, shape in enumerate(shapes)]

    def formula(self, of: Algebra, *given: Any) -> Any:
        x, *weights, first, second = given
        made = x
        for head in range(self.heads):
            q, k, v, out = weights[4 * head : 4 * head + 4]
            scores = of.product(of.product(x, q), of.transpose(of.product(x, k)))
            seen = of.product(of.softmax(scores, self.scale), of.product(x, v))
            made = of.plus(made, of.product(seen, out))
        return of.plus(made, of.product(of.relu(of.product(made, first)), second))
