"""MKMD's eleven equations (Table 3) as graphs of linear algebra kernels, and what each kernel does to its data.

Matrices are 4096 x 4096, vectors 4096, single precision. Equations are evaluated from left to right, with kernels as in
NVIDIA's SDK, from which the paper took them: a matrix product in work-groups of 16 x 16, a transposition likewise, one
work-group for each row of a matrix-vector product. Products of a matrix and a matrix are never formed where a vector
stands on the right (BiCGSTAB and Jacobi end within 70 ms in the paper). A result is read back by the host at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, BufferKey, Graph, HostTask, Launch
from manycl.machine import HOST, DeviceIndex, Machine
from manycl.model.estimates import Estimates
from manycl.plan.problem import Problem
from manycl.plan.split import LinearRegion, Split
from manycl.plan.verification.verify_memory import check_launches

N = 4096
TILE = 16
FLOAT = 4


@dataclass
class Equation:
    """A graph under construction, and the work of its nodes: floating-point operations and bytes of global memory.

    ``device``: a preference for all kernels; ``shapes``: of matrices, rows and columns.
    """

    device: str = ""
    builder: GraphBuilder = field(default_factory=GraphBuilder)
    operations: list[float] = field(default_factory=list)
    nbytes: list[float] = field(default_factory=list)
    splits: dict[int, Split] = field(default_factory=dict)
    inputs: set[BufferKey] = field(default_factory=set)
    shapes: dict[BufferKey, tuple[int, int]] = field(default_factory=dict)

    # data

    def matrix(self, name: str, rows: int = N, columns: int = N) -> BufferKey:
        key = self._new(name, rows, columns)
        self.inputs.add(key)
        return key

    def vector(self, name: str) -> BufferKey:
        return self.matrix(name, N, 1)

    def number(self, name: str) -> BufferKey:
        return self.matrix(name, 1, 1)

    def _new(self, name: str, rows: int, columns: int = 1) -> BufferKey:
        key = self.builder.buffer(rows * columns * FLOAT, name)
        self.shapes[key] = rows, columns
        return key

    # kernels

    def _add(
        self,
        name: str,
        size: tuple[tuple[int, ...], tuple[int, ...]],
        reads: tuple[BufferKey, ...],
        write: BufferKey,
        work: tuple[float, float],
        split: Split | None,
    ) -> BufferKey:
        facts = KernelFacts(name, 1, ())
        program = ProgramFacts("", (), {name: facts})
        args = tuple(BufferArg(k) for k in (*reads, write))
        reads = tuple(dict.fromkeys(reads))
        node = self.builder.add(Launch(name, program, facts, *size, args, reads, (write,), None, self.device))
        self.operations.append(work[0])
        self.nbytes.append(work[1])
        if split is not None:
            self.splits[node] = split
        return write

    def product(self, a: BufferKey, b: BufferKey, name: str = "product") -> BufferKey:
        """A times B: a range of rows of work-groups needs its rows of A and all of B."""
        (rows, inner), (_, columns) = self.shapes[a], self.shapes[b]
        c = self._new(name, rows, columns)
        regions = {a: LinearRegion(TILE * inner * FLOAT), c: LinearRegion(TILE * columns * FLOAT)}
        if a == b:
            del regions[a]
        # each tile of A and of B is read once for every tile of C in its row or column
        traffic = FLOAT * (2.0 * rows * columns * (inner // TILE) + rows * columns)
        work = 2.0 * rows * columns * inner, traffic
        return self._add("matmul", ((columns, rows), (TILE, TILE)), (a, b), c, work, Split(1, rows // TILE, regions))

    def transposed(self, a: BufferKey, name: str = "transposed") -> BufferKey:
        """A's transpose: a range of columns of work-groups writes rows; what it reads lies all over A."""
        rows, columns = self.shapes[a]
        c, work = self._new(name, columns, rows), (0.0, 2.0 * rows * columns * FLOAT)
        split = Split(0, columns // TILE, {c: LinearRegion(TILE * rows * FLOAT)})
        return self._add("transpose", ((columns, rows), (TILE, TILE)), (a,), c, work, split)

    def plus(self, a: BufferKey, b: BufferKey, name: str = "add") -> BufferKey:
        """A + B (or A - B), element by element."""
        c = self._new(name, N, N)
        rows = LinearRegion(TILE * N * FLOAT)
        work = (1.0 * N * N, 3.0 * N * N * FLOAT)
        split = Split(1, N // TILE, dict.fromkeys((a, b, c), rows))
        return self._add(name, ((N, N), (TILE, TILE)), (a, b), c, work, split)

    def minus(self, a: BufferKey, b: BufferKey) -> BufferKey:
        return self.plus(a, b, "subtract")

    def times_vector(self, a: BufferKey, x: BufferKey) -> BufferKey:
        """A times a vector: a work-group a row."""
        y = self._new("matvec", N)
        split = Split(0, N, {a: LinearRegion(N * FLOAT), y: LinearRegion(FLOAT)})
        return self._add("matvec", ((N * 64,), (64,)), (a, x), y, (2.0 * N * N, 1.0 * N * N * FLOAT), split)

    def dot(self, x: BufferKey, y: BufferKey) -> BufferKey:
        """The inner product of two vectors, a sum over all work-groups: one launch, never split."""
        s = self._new("dot", 1)
        return self._add("dot", ((N,), (256,)), (x, y), s, (2.0 * N, 2.0 * N * FLOAT), None)

    def combined(self, name: str, vectors: tuple[BufferKey, ...], scalars: tuple[BufferKey, ...]) -> BufferKey:
        """A linear combination of vectors, with coefficients from scalars on the device."""
        y = self._new(name, N)
        chunk = 256
        split = Split(0, N // chunk, {k: LinearRegion(chunk * FLOAT) for k in (*vectors, y)})
        work = (2.0 * N * len(vectors), (1.0 + len(vectors)) * N * FLOAT)
        return self._add("axpy", ((N,), (chunk,)), (*vectors, *scalars), y, work, split)

    def graph(self, name: str, *results: BufferKey) -> Graph:
        """The graph, with a host function at its end that needs the results (MKMD's sink)."""
        self.builder.add(HostTask("sink", _nothing, (), results, ()))
        self.operations.append(0.0)
        self.nbytes.append(0.0)
        return self.builder.build(name=name)


def _nothing(*arrays: object) -> None:
    """The sink only needs the results to be on the host."""


class RooflineEstimates(Estimates):
    """A launch takes the launch overhead and the longer of its operations at the device's rate and its bytes at the
    bandwidth of the device's memory; a matrix product is bound by its operations (its tiles are read from caches and
    local memory; of memory it moves its operands and its result once). Transfers: latency and bandwidth of the link."""

    def __init__(self, of: Equation, machine: Machine) -> None:
        self._machine = machine
        self._rows: list[list[float]] = []
        self._traffic: list[float] = []
        for operations, nbytes in zip(of.operations, of.nbytes, strict=True):
            product = operations >= 2.0 * N**3
            moved = 0.0 if product else nbytes
            self._traffic.append(3.0 * N * N * FLOAT if product else nbytes)
            self._rows.append(
                [d.launch_overhead + max(operations / d.flops, moved / d.bandwidth) for d in machine.devices]
            )
        self._links = {(x.source, x.target): (x.latency, x.bandwidth) for x in machine.links}

    def launch(self, node: int, device: DeviceIndex) -> float:
        return self._rows[node][device]

    def traffic(self, node: int, device: DeviceIndex) -> float:
        return self._traffic[node]

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        if source == target:
            return 0.0
        if (source, target) in self._links:
            latency, bandwidth = self._links[source, target]
            return latency + nbytes / bandwidth
        return self.transfer(nbytes, source, HOST) + self.transfer(nbytes, HOST, target)


def problem(name: str, machine: Machine, device: str = "", handover: float = 50e-6) -> Problem:
    """One of the equations on a machine: its inputs on the host, its result wanted there. ``device``: all kernels
    prefer it. ``handover`` in seconds: see :class:`Problem`."""
    of = Equation(device)
    return asked(of, of.graph(name, *EQUATIONS[name](of)), machine, handover)


def asked(of: Equation, graph: Graph, machine: Machine, handover: float = 50e-6) -> Problem:
    """What a policy is asked of an equation's graph. Raises MachineError for launches that would draw more of a memory
    than it carries."""
    given = Problem(
        graph=graph,
        machine=machine,
        estimates=RooflineEstimates(of, machine),
        queues=(1,) * len(machine.devices),
        valid={key: frozenset({HOST}) for key in of.inputs},
        splits=of.splits,
        handover=handover,
    )
    check_launches(given)
    return given


@dataclass(frozen=True)
class Matrix:
    """A matrix in a formula, whose operators add kernels in Python's order."""

    of: Equation
    key: BufferKey

    @property
    def t(self) -> Matrix:
        return Matrix(self.of, self.of.transposed(self.key))

    def __matmul__(self, other: Matrix) -> Matrix:
        return Matrix(self.of, self.of.product(self.key, other.key))

    def __add__(self, other: Matrix) -> Matrix:
        return Matrix(self.of, self.of.plus(self.key, other.key))

    def __sub__(self, other: Matrix) -> Matrix:
        return Matrix(self.of, self.of.minus(self.key, other.key))


def _formula(names: Iterable[str], result: Callable[..., Matrix]) -> Callable[[Equation], tuple[BufferKey, ...]]:
    """Of matrices with these names."""
    return lambda e: (result(*[Matrix(e, e.matrix(name)) for name in names]).key,)


def _bicgstab(e: Equation) -> tuple[BufferKey, ...]:
    a = e.matrix("A")
    x, r, first, p, v = (e.vector(n) for n in ("x", "r", "r0", "p", "v"))
    old = [e.number(n) for n in ("rho", "alpha", "omega")]
    rho = e.dot(first, r)
    p = e.combined("p", (r, p, v), (rho, *old))
    v = e.times_vector(a, p)
    alpha = e.dot(first, v)
    h = e.combined("h", (x, p), (alpha, rho))
    s = e.combined("s", (r, v), (alpha, rho))
    t = e.times_vector(a, s)
    ts = e.dot(t, s)
    tt = e.dot(t, t)
    return e.combined("x", (h, s), (ts, tt)), e.combined("r", (s, t), (ts, tt))


def _commutator(a: Matrix, b: Matrix, c: Matrix) -> Matrix:
    three = [x @ y @ z for x, y, z in ((a, b, c), (b, c, a), (c, a, b))]
    back = [x @ y @ z for x, y, z in ((b, a, c), (a, c, b), (c, b, a))]
    return three[0] + three[1] + three[2] - back[0] - back[1] - back[2]


def _general_bernoulli(a: Matrix, x: Matrix, e: Matrix, g: Matrix) -> Matrix:
    turned = e.t
    left = a.t @ x @ e
    ex = turned @ x
    middle, right = ex @ a, ex @ g @ x @ e
    return left + middle - right


def _jacobi(e: Equation) -> tuple[BufferKey, ...]:
    d, low, up = (e.matrix(n) for n in ("D^-1", "L", "U"))
    x, b = e.vector("x"), e.vector("b")
    left = e.times_vector(d, e.times_vector(e.plus(low, up), x))
    return (e.combined("x", (left, e.times_vector(d, b)), ()),)


EQUATIONS: dict[str, Callable[[Equation], tuple[BufferKey, ...]]] = {
    "ABE": _formula("AXB", lambda a, x, b: a.t @ x + x @ a - x @ b @ b.t @ x),
    "BiCGSTAB": _bicgstab,
    "Commutator": _formula("ABC", _commutator),
    "GABE": _formula("AXEG", _general_bernoulli),
    "Gramian": _formula("APB", lambda a, p, b: a @ p + p @ a.t + b @ b.t),
    "Jacobi": _jacobi,
    "Lyapunov": _formula("AXQ", lambda a, x, q: a @ x + x @ a.t + q),
    "CARE": _formula(("A", "X", "B", "R^-1", "Q"), lambda a, x, b, r, q: a.t @ x + x @ a - x @ b @ r @ b.t @ x + q),
    "Stein": _formula("AX", lambda a, x: a @ x @ a.t - x),
    "SVD": _formula("USV", lambda u, s, v: u @ s @ v.t),
    "Sylvester": _formula("AXBC", lambda a, x, b, c: a @ x + x @ b - c),
}
"""The equations of Table 3, in its order: each builds its kernels and says which buffers are the results."""

MEMORY_BOUND = ("BiCGSTAB", "Jacobi")
"""Those without a product of two matrices."""
