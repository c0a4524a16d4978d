"""REPARA's benchmarks (Section 3.1) as graphs of real kernels (``repara.cl``), one iteration each, as the paper plans.

How each kernel may be divided is what the analysis finds out. The host reads the results at the end; that is REPARA's
final transfer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from manycl.analysis import parse_program
from manycl.analysis.facts import ProgramFacts
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Buffer, BufferArg, BufferKey, Graph, HostTask
from manycl.graph.launch import LaunchOptions, make_launch
from manycl.machine import HOST
from manycl.plan.split import Split
from manycl.plan.splitting import Splits

SOURCE = Path(__file__).with_name("repara.cl")
FLOAT = 4
TILE = 16
SPECIES, REACTIONS, BLOCKS, STEPS = 22, 25, 8, 64
"""As in ``repara.cl``."""
PATHS = 256
BLOCK = 64
"""Rows of a block of the LU decomposition."""
PASSES = (512, 256, 128, 64, 32, 16)
"""Distances of the bitonic passes."""


@dataclass(frozen=True)
class Benchmark:
    """A graph; ``kernels[n]`` names node n's kernel ("" for the host's), ``work[n]`` is what it has to do, in
    operations. ``valid`` and ``splits`` as in a problem."""

    name: str
    size: int
    graph: Graph
    kernels: tuple[str, ...]
    work: tuple[float, ...]
    valid: dict[BufferKey, frozenset[int]]
    splits: dict[int, Split]

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers together."""
        return sum(b.nbytes for b in self.graph.buffers.values())


@cache
def program() -> ProgramFacts:
    return parse_program(SOURCE.read_text(encoding="utf-8"), path=str(SOURCE), options=())


@dataclass
class _Maker:
    """A graph under construction."""

    builder: GraphBuilder = field(default_factory=GraphBuilder)
    buffers: dict[BufferKey, Buffer] = field(default_factory=dict)
    kernels: list[str] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    inputs: set[BufferKey] = field(default_factory=set)

    def made(self, nbytes: int, name: str) -> BufferKey:
        key = self.builder.buffer(nbytes, name)
        self.buffers[key] = Buffer(key, nbytes, name)
        return key

    def given(self, nbytes: int, name: str) -> BufferKey:
        key = self.made(nbytes, name)
        self.inputs.add(key)
        return key

    def run(
        self, kernel: str, size: tuple[int, ...], local: tuple[int, ...], buffers: tuple[BufferKey, ...], *scalars: int,
        work: float, name: str = "",
    ) -> None:  # fmt: skip
        args = (*map(BufferArg, buffers), *scalars)
        self.builder.add(
            make_launch(
                program(), kernel, size, local, args, buffers=self.buffers, options=LaunchOptions(name=name or kernel)
            )
        )
        self.kernels.append(kernel)
        self.work.append(work)

    def benchmark(self, name: str, size: int, results: tuple[BufferKey, ...], *, divided: bool = True) -> Benchmark:
        self.builder.add(HostTask("read", _read, (), results, ()))
        graph = self.builder.build(name=f"{name} {size}")
        splits = {n: s for n, s in Splits(graph).items() if s.merge == "none"} if divided else {}
        valid = {key: frozenset({HOST}) for key in self.inputs}
        return Benchmark(name, size, graph, (*self.kernels, ""), (*self.work, 0.0), valid, splits)


def _read(*arrays: object) -> None:
    """The host only needs the results."""


def stencil(n: int) -> Benchmark:
    m = _Maker()
    heat, after = m.given((n + 2) ** 2 * FLOAT, "heat"), m.made(n * n * FLOAT, "after")
    m.run("stencil", (n, n), (TILE, TILE), (heat, after), n, work=n * n)
    return m.benchmark("stencil", n, (after,))


def transitive_closure(n: int) -> Benchmark:
    """Product, union and comparison of matrices of the iteration before: independent of one another, as in the paper.
    Only the product may be divided."""
    m = _Maker()
    relation, turned, last, before = (m.given(n * n, name) for name in ("relation", "turned", "last", "before"))
    product, both, differs = (m.made(n * n, name) for name in ("product", "union", "differs"))
    m.run("multiply", (n, n), (TILE, TILE), (relation, turned, product), n, work=float(n) ** 3)
    m.run("unite", (n, n), (TILE, TILE), (relation, last, both), n, work=n * n)
    m.run("compare", (n, n), (TILE, TILE), (last, before, differs), n, work=n * n)
    found = m.benchmark("transitive closure", n, (product, both, differs))
    return _only(found, "multiply")


def _only(found: Benchmark, kernel: str) -> Benchmark:
    splits = {n: s for n, s in found.splits.items() if found.kernels[n] == kernel}
    return Benchmark(found.name, found.size, found.graph, found.kernels, found.work, found.valid, splits)


def s3d(n: int) -> Benchmark:
    """27 kernels at n³ points: two groups of eight that do not depend on one another, and what stands around them."""
    m = _Maker()
    points = n**3
    size, local = (points,), (64,)
    plane = points * FLOAT
    pressure, heat = m.given(plane, "pressure"), m.given(plane, "heat")
    mass = m.given(SPECIES * plane, "mass")
    moles, gibbs = m.made(SPECIES * plane, "moles"), m.made(SPECIES * plane, "gibbs")
    base = m.made(REACTIONS * plane, "base")
    forward = [m.made(REACTIONS * plane, f"forward {b}") for b in range(BLOCKS)]
    backward = [m.made(REACTIONS * plane, f"backward {b}") for b in range(BLOCKS)]
    low = m.made(REACTIONS * plane, "low")
    shares = [m.made(plane, f"share {i}") for i in range(3)]
    changes = [m.made(plane, f"change {b}") for b in range(BLOCKS)]
    exponentials = 60.0  # operations of a logarithm and an exponential
    m.run("concentrations", size, local, (pressure, heat, mass, moles), points, work=points * SPECIES * 4.0)
    m.run("arrhenius", size, local, (heat, base), points, work=points * REACTIONS * exponentials)
    m.run("equilibria", size, local, (heat, gibbs), points, work=points * SPECIES * exponentials)
    for b in range(BLOCKS):
        buffers = (heat, gibbs, forward[b], backward[b])
        m.run("rates", size, local, buffers, points, b, work=points * REACTIONS * exponentials, name=f"rates {b}")
    m.run("arrhenius", size, local, (heat, low), points, work=points * REACTIONS * exponentials, name="low")
    for b in range(0, BLOCKS, 2):
        buffers = (moles, low, forward[b], backward[b])
        m.run("reactions", size, local, buffers, points, b, work=points * REACTIONS * 8.0, name=f"reactions {b}")
    for i in range(3):
        three = (forward[i], backward[i], shares[i])
        m.run("steady", size, local, three, points, work=points * REACTIONS * 2.0, name=f"steady {i}")
    for b in range(BLOCKS):
        buffers = (forward[b], backward[b], shares[b % 3], changes[b])
        m.run("produced", size, local, buffers, points, work=points * REACTIONS * 3.0, name=f"produced {b}")
    return m.benchmark("S3D", n, (moles, base, *changes), divided=False)


def lud(n: int) -> Benchmark:
    """The first block column of n x n: the corner, the panels beside it, the rest."""
    m = _Maker()
    rest = n - BLOCK
    corner = m.given(BLOCK * BLOCK * FLOAT, "corner")
    top, left = m.given(BLOCK * rest * FLOAT, "top"), m.given(BLOCK * rest * FLOAT, "left")
    inner = m.given(rest * rest * FLOAT, "rest")
    m.run("lud_corner", (1,), (1,), (corner,), BLOCK, work=2.0 / 3.0 * BLOCK**3 * 30)  # on one work-item
    m.run("lud_top", (rest,), (BLOCK,), (corner, top), BLOCK, rest, work=rest * float(BLOCK) ** 2)
    m.run("lud_left", (rest,), (BLOCK,), (corner, left), BLOCK, work=rest * float(BLOCK) ** 2)
    m.run("lud_rest", (rest, rest), (TILE, TILE), (left, top, inner), BLOCK, rest, work=2.0 * rest * rest * BLOCK)
    return m.benchmark("LUD", n, (corner, top, left, inner))


def gemm(n: int) -> Benchmark:
    m = _Maker()
    a, b = m.given(n * n * FLOAT, "a"), m.given(n * n * FLOAT, "b")
    c = m.made(n * n * FLOAT, "c")
    m.run("gemm", (n, n), (TILE, TILE), (a, b, c), n, work=2.0 * n**3)
    return m.benchmark("GEMM", n, (c,))


def monte_carlo(n: int) -> Benchmark:
    m = _Maker()
    price, strike = m.given(n * FLOAT, "price"), m.given(n * FLOAT, "strike")
    value = m.made(n * FLOAT, "value")
    m.run("monte_carlo", (n,), (64,), (price, strike, value), PATHS, work=float(n) * PATHS * STEPS)
    return m.benchmark("Monte Carlo", n, (value,))


def median_filter(n: int) -> Benchmark:
    m = _Maker()
    image, filtered = m.given((n + 2) ** 2 * FLOAT, "image"), m.made(n * n * FLOAT, "filtered")
    m.run("median_filter", (n, n), (TILE, TILE), (image, filtered), n, work=n * n)
    return m.benchmark("median filter", n, (filtered,))


def bitonic_sort(n: int) -> Benchmark:
    """Six passes of a merge of n elements."""
    m = _Maker()
    data = m.given(n * FLOAT, "data")
    for d in PASSES:
        m.run("bitonic", (d, n // (2 * d)), (TILE, TILE), (data,), d, work=n / 2, name=f"bitonic {d}")
    return m.benchmark("bitonic sort", n, (data,))


BENCHMARKS: dict[str, Callable[[int], Benchmark]] = {
    "stencil": stencil,
    "transitive closure": transitive_closure,
    "S3D": s3d,
    "LUD": lud,
    "GEMM": gemm,
    "Monte Carlo": monte_carlo,
    "median filter": median_filter,
    "bitonic sort": bitonic_sort,
}
