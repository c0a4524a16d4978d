"""MKMD's eleven equations on the devices that are here: in order on one of them, by hand, and by policies.

Data are on the host before and after: a run begins with all inputs valid there alone, and ends when the result is
there. *In order* is the engine with everything on the fastest device, transfers pinned and asynchronous; *by hand* is
PyOpenCL on that device as people write it, with copies from and to ordinary NumPy arrays; of a native device, on the
same part of the processor by the best OpenCL driver. All of them run in turns; the results of the first and the last
turn are compared with that of in order: bit for bit where all devices are of one model, but for by hand beside native
devices, whose compiler is another.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from manycl.api.arrays.arrays import Array
from manycl.api.arrays.host_arrays import AnyArray
from manycl.api.program import Program
from manycl.api.queue import Queue
from manycl.drivers.native.devices import NativeHandle
from manycl.drivers.opencl.devices import OpenCLHandle
from manycl.errors import ManyclError, ResultError
from manycl.run.graph_cache.cached_graph import CachedGraph
from manycl.run.session.session import Session
from manycl_bench import pages, provenance
from manycl_bench.mkmd.equations import EQUATIONS, MEMORY_BOUND, TILE

KERNELS = Path(__file__).with_name("equations.cl")
POLICIES = ("balance", "mkmd", "auto")
LARGE, SMALL, QUICK = 4096, 512, 256
TOLERANCE = 1e-3
"""Across kinds of devices: max|difference| / max|result|; sums of thousands of products in other orders."""


@dataclass(frozen=True)
class Settings:
    """``n``: rows of the matrices; ``repeats``: turns, of which the median counts; ``warm``: runs of each way before,
    in which policies learn (``run/graph_cache/autotuner.py``). On two H200 all that should end in 100 s."""

    n: int = LARGE
    repeats: int = 5
    warm: int = 12
    policies: tuple[str, ...] = POLICIES
    equations: tuple[str, ...] = tuple(EQUATIONS)


class Runs(Protocol):
    """Something that launches kernels of ``equations.cl`` on what it calls arrays."""

    def given(self, data: AnyArray, name: str) -> Any: ...

    def made(self, shape: tuple[int, ...], name: str) -> Any: ...

    def launch(self, kernel: str, size: tuple[int, ...], local: tuple[int, ...], *args: Any) -> None: ...


class Kernels:
    """What the equations are made of, launched; stands for :class:`manycl_bench.mkmd.equations.Equation`."""

    def __init__(self, runs: Runs, n: int) -> None:
        self.runs = runs
        self.n = n
        self._random = np.random.default_rng(1)

    def _given(self, name: str, *shape: int) -> Any:
        # products of a few such matrices stay near one
        scale = np.float32(2.0 / np.sqrt(self.n)) if len(shape) == 2 else np.float32(1.0)
        return self.runs.given((self._random.random(shape, dtype=np.float32) - np.float32(0.45)) * scale, name)

    def matrix(self, name: str) -> Any:
        return self._given(name, self.n, self.n)

    def vector(self, name: str) -> Any:
        return self._given(name, self.n)

    def number(self, name: str) -> Any:
        return self._given(name, 1)

    def _square(self, kernel: str, *inputs: Any) -> Any:
        made = self.runs.made((self.n, self.n), kernel)
        self.runs.launch(kernel, (self.n, self.n), (TILE, TILE), *inputs, made, np.int32(self.n))
        return made

    def product(self, a: Any, b: Any) -> Any:
        return self._square("matmul", a, b)

    def transposed(self, a: Any) -> Any:
        return self._square("transpose", a)

    def plus(self, a: Any, b: Any) -> Any:
        return self._square("add", a, b)

    def minus(self, a: Any, b: Any) -> Any:
        return self._square("subtract", a, b)

    def times_vector(self, a: Any, x: Any) -> Any:
        made = self.runs.made((self.n,), "matvec")
        self.runs.launch("matvec", (self.n * 64,), (64,), a, x, made, np.int32(self.n))
        return made

    def dot(self, x: Any, y: Any) -> Any:
        made = self.runs.made((1,), "dot")
        self.runs.launch("dot_product", (256,), (256,), x, y, made, np.int32(self.n))
        return made

    def combined(self, name: str, vectors: tuple[Any, ...], scalars: tuple[Any, ...]) -> Any:
        made = self.runs.made((self.n,), name)
        size, local = (self.n,), (256,)
        if len(scalars) == 4:
            self.runs.launch("direction", size, local, *vectors, *scalars, made)
        elif scalars:
            above, below = scalars if name in ("x", "r") and len(vectors) == 2 else scalars[::-1]
            sign = np.float32(-1.0 if name in ("s", "r") else 1.0)
            self.runs.launch("axpy", size, local, *vectors, above, below, made, sign)
        else:
            self.runs.launch("difference", size, local, vectors[1], vectors[0], made)
        return made


class OnQueue:
    """Launches enqueued on a queue of manycl."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.program = Program.from_file(KERNELS)
        self.inputs: list[Array] = []
        self.arrays: list[Array] = []

    def given(self, data: AnyArray, name: str) -> Array:
        self.inputs.append(self.queue.array(data, name=name))
        return self.inputs[-1]

    def made(self, shape: tuple[int, ...], name: str) -> Array:
        self.arrays.append(self.queue.empty(shape, np.float32, name=name))
        return self.arrays[-1]

    def launch(self, kernel: str, size: tuple[int, ...], local: tuple[int, ...], *args: Any) -> None:
        self.program.kernel(kernel)(self.queue, size, local, *args)


class ByHand:
    """Launches by PyOpenCL on one device, one after another, with copies from and to NumPy's memory."""

    def __init__(self, device: Any) -> None:
        import pyopencl as cl

        self.cl = cl
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context, device)
        program = cl.Program(self.context, KERNELS.read_text(encoding="utf-8")).build()
        self.kernels = {kernel.function_name: kernel for kernel in program.all_kernels()}
        self.inputs: list[tuple[Any, AnyArray]] = []
        self.launches: list[tuple[Any, tuple[int, ...], tuple[int, ...], tuple[Any, ...]]] = []

    def given(self, data: AnyArray, name: str) -> Any:
        self.inputs.append((self.made(data.shape, name), data))
        return self.inputs[-1][0]

    def made(self, shape: tuple[int, ...], name: str) -> Any:
        return self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, 4 * int(np.prod(shape)))

    def launch(self, kernel: str, size: tuple[int, ...], local: tuple[int, ...], *args: Any) -> None:
        self.launches.append((self.kernels[kernel], size, local, args))

    def run(self, results: Sequence[tuple[Any, AnyArray]]) -> float:
        """Seconds from the first copy to the last."""
        begin = time.perf_counter()
        for buffer, data in self.inputs:
            self.cl.enqueue_copy(self.queue, buffer, data)
        for kernel, size, local, args in self.launches:
            kernel(self.queue, size, local, *args)
        for buffer, data in results:
            self.cl.enqueue_copy(self.queue, data, buffer)
        return time.perf_counter() - begin


def _wait_for(*arrays: AnyArray) -> None:
    """MKMD's sink: it needs the results to be on the host."""


class Bench:
    """One equation on a queue, to be run by one policy after another."""

    def __init__(self, name: str, queue: Queue, n: int) -> None:
        self.queue = queue
        self.runs = OnQueue(queue)
        self.results: tuple[Array, ...]
        with queue.prepare() as prepared:
            self.results = EQUATIONS[name](Kernels(self.runs, n))  # type: ignore[arg-type, assignment]
            queue.call(_wait_for, *self.results)
        self.graph = prepared.graph
        self.session: Session = queue.session
        self._prepared: dict[str, CachedGraph] = {}

    def run(self, policy: str) -> tuple[float, set[int]]:
        """Seconds of a run with data on the host before and after, and the devices that took part."""
        if policy not in self._prepared:
            self._prepared[policy] = CachedGraph(self.session, self.graph, policy, queues={})
        for array in self.runs.inputs:
            self.session.buffers.host(array.buffer.key)
            self.session.buffers.overwrite(array.buffer.key)  # valid on the host alone, as it is
        begin = time.perf_counter()
        result = self._prepared[policy].run()
        seconds = time.perf_counter() - begin
        return seconds, {m.device for m in result.measured()}

    def outcome(self) -> list[AnyArray]:
        return [array.get() for array in self.results]


def measure(name: str, queue: Queue, settings: Settings) -> dict[str, Any]:
    """One equation: medians of all ways to run it, and speed-ups."""
    bench = Bench(name, queue, settings.n)
    used = [d for _ in range(settings.warm) for d in bench.run("in_order")[1]]
    device = used[-1]  # the first runs may still learn which; kept plans are not timed
    expected = bench.outcome()
    by_hand, is_same = _opencl_device(queue, device)
    hand = ByHand(by_hand)
    made = EQUATIONS[name](Kernels(hand, settings.n))  # type: ignore[arg-type]
    results = [(buffer, np.empty_like(data)) for buffer, data in zip(made, expected, strict=True)]
    taken: dict[str, list[float]] = {"by_hand": [], "in_order": [], **{p: [] for p in settings.policies}}
    same = len({d.model for d in queue.session.machine.devices}) == 1
    for _ in range(settings.warm):
        for policy in settings.policies:
            bench.run(policy)
    for turn in range(1 + settings.repeats):  # whose memory is new by hand, too
        for way, seconds in taken.items():
            found = hand.run(results) if way == "by_hand" else bench.run(way)[0]
            if turn:
                seconds.append(found)
            if turn in (0, settings.repeats):
                outcome = [data for _, data in results] if way == "by_hand" else bench.outcome()
                _compare(name, way, expected, outcome, exactly=same and (is_same or way != "by_hand"))
    return row(name, len(bench.graph) - 1, queue.devices[device], taken)


def _opencl_device(queue: Queue, device: int) -> tuple[Any, bool]:
    """PyOpenCL's device for one of the queue's, and whether both run the same compiled code: a native device does not.
    Raises DriverError where no OpenCL driver shows it, ManyclError where none could."""
    name = queue.devices[device]
    handle = next(o.handle for o in queue.session.devices.opened if o.device.name == name)
    if isinstance(handle, OpenCLHandle | NativeHandle):
        return handle.cl, isinstance(handle, OpenCLHandle)
    raise ManyclError(f"{name} is no OpenCL device")


def _compare(name: str, way: str, expected: Sequence[AnyArray], found: Sequence[AnyArray], *, exactly: bool) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        if np.array_equal(ours, theirs):
            continue
        error = float(np.max(np.abs(ours - theirs))) / max(float(np.max(np.abs(theirs))), 1e-30)
        if exactly or not error <= TOLERANCE:
            raise ResultError(f"{name} by {way}: the result is off by {error:.2g} of its largest element")


def row(name: str, kernels: int, device: str, taken: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    medians = {way: statistics.median(seconds) for way, seconds in taken.items()}
    found: dict[str, Any] = {"equation": name, "kernels": kernels, "in_order_on": device}
    found |= {f"{way}_ms": 1e3 * seconds for way, seconds in medians.items()}
    found["samples_ms"] = {way: [float(f"{1e3 * s:.5g}") for s in seconds] for way, seconds in taken.items()}
    return found | {f"{way}_speedup": medians["in_order"] / seconds for way, seconds in medians.items()}


def run(devices: str | None, settings: Settings, say: Callable[[str], None]) -> dict[str, Any]:
    """All equations. Raises ManyclError for a size that the kernels do not take."""
    if settings.n % 256:
        raise ManyclError(f"matrices of {settings.n} rows: expected a multiple of 256")
    rows = []
    names: list[str] = []
    for name in settings.equations:
        with Queue(devices, profile="learning") as queue:
            names = [f"{d.name} ({d.model})" for d in queue.session.machine.devices]
            found = measure(name, queue, settings)
        words = ", ".join(f"{p} {found[f'{p}_speedup']:.2f}x" for p in settings.policies)
        say(f"{name}: in order {found['in_order_ms']:.1f} ms, by hand {found['by_hand_speedup']:.2f}x, {words}")
        rows.append(found)
    return {"settings": vars(settings), "devices": names, "equations": rows, "summary": summary(rows, settings)}


def summary(rows: Sequence[Mapping[str, Any]], settings: Settings) -> dict[str, float]:
    """Geometric means over all equations: over in order, and over what people write by hand; the least speed-up."""

    def mean(of: Sequence[float]) -> float:
        return statistics.geometric_mean(of)

    nine = [r for r in rows if r["equation"] not in MEMORY_BOUND] or list(rows)
    found: dict[str, float] = {}
    for p in settings.policies:
        found |= {
            f"geomean_speedup_{p}": mean([r[f"{p}_speedup"] for r in rows]),
            f"geomean_speedup_{p}_nine": mean([r[f"{p}_speedup"] for r in nine]),
            f"least_speedup_{p}": min(r[f"{p}_speedup"] for r in rows),
            f"over_by_hand_{p}": mean([r["by_hand_ms"] / r[f"{p}_ms"] for r in rows]),
        }
    return found


def write(figures: Mapping[str, Any], folder: Path) -> None:
    """``mkmd_real.json`` and ``mkmd_real.md``, in a folder that is made if need be."""
    pages.write(folder, "mkmd_real", figures, page(figures))


ABOUT = """\
Matrices of {n} rows, single precision, on {devices}; data are on the host before and after. *In order* is the engine
with everything on the fastest device, transfers pinned and asynchronous. *By hand* is PyOpenCL on that device (for a
native one: the best OpenCL driver of the same cores) with copies from and to NumPy's memory. Speed-ups are over in
order: medians of {repeats} turns in which all ways run one after another, after {warm} runs of each, so `balance`,
`mkmd` and `auto` repeat a plan that they keep. The results of the first and the last turn are equal.
"""
_OVERALL = {
    "geometric mean": "geomean_speedup_{}",
    "of the nine that compute": "geomean_speedup_{}_nine",
    "least": "least_speedup_{}",
    "geometric mean over by hand": "over_by_hand_{}",
}


def page(figures: Mapping[str, Any]) -> Iterator[str]:
    """The page of results, in Markdown."""
    settings, found = figures["settings"], figures["summary"]
    policies = settings["policies"]
    about = {key: settings[key] for key in ("n", "repeats", "warm")}
    yield "# MKMD's eleven equations on real devices\n"
    known = all("samples_ms" in r for r in figures["equations"])
    samples = "`samples_ms`: every turn" if known else "medians only: single turns were not kept"
    yield from provenance.header(figures, "mkmd_real", samples, provenance.SPREAD if known else provenance.UNKNOWN)
    yield ABOUT.format(devices=", ".join(figures["devices"]), **about)
    rows = [
        [r["equation"], str(r["kernels"]), _in_order(r)]
        + [f"{r[f'{way}_speedup']:.2f}" for way in ("by_hand", *policies)]
        for r in figures["equations"]
    ]
    rows += [[words, "", "", "", *(f"{found[key.format(p)]:.2f}" for p in policies)] for words, key in _OVERALL.items()]
    yield from pages.table(["equation", "kernels", "in order, ms", "by hand", *policies], rows)


def _in_order(r: Mapping[str, Any]) -> str:
    return provenance.with_spread(r["samples_ms"]["in_order"], 1) if "samples_ms" in r else f"{r['in_order_ms']:.1f}"
