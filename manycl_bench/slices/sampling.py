"""Targets of slice sizes, measured: a kernel runs whole and in more and more slices, in turns, until these cost more
than they may (Device-Hopping, Sections 4.1 and 4.3)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import manycl as mc
from manycl.analysis import service
from manycl.graph.graph import Graph, Launch
from manycl.graph.known import known_launch
from manycl.machine import DeviceIndex
from manycl.run.graph_cache.cached_graph import CachedGraph
from manycl_bench.hopping.ways import Benchmark, Pair, Submission, asked, plan
from manycl_bench.slices.loops import Sampled, sampled
from manycl_bench.slices.targets import target

Say = Callable[[str], None]
OVERHEADS = {"cpu": 0.04, "gpu": 0.02}
"""How much longer than unsliced a sliced kernel may take (Section 4.3), as a part."""
CLEAR = 3.0
"""What slices cost is clear where it is so many times what they may, twice: single times may be disturbed."""
MOST_SLICES = 2048
GPU_OVERHEAD = 0.0275
"""What the paper allows slices on GPUs where there are none at 2 %."""


@dataclass(frozen=True)
class Settings:
    """``seconds`` that a kernel takes unsliced, about; ``repeats`` that count, of each number of
    slices; ``names``: of kernels (none: all)."""

    seconds: float = 0.02
    repeats: int = 5
    names: tuple[str, ...] = ()


class Measured(NamedTuple):
    """A kernel on a device: ``logarithms`` of its features there; ``points`` of the smallest slices that cost as little
    as they may (None where no number of slices that was tried does, or every one); ``seconds`` unsliced, of ``total``
    points in ``groups``; by number of slices, how much longer than that it took, as a part; ``units`` of the device."""

    kernel: str
    kind: str
    logarithms: tuple[float, ...]
    points: float | None
    device: str
    seconds: float
    total: int
    groups: int
    overheads: dict[int, float]
    units: int

    def as_json(self) -> dict[str, Any]:
        """As ``manycl train`` reads it, where there are ``points``; the rest tells how they came about."""
        return {**self._asdict(), "overheads": [list(pair) for pair in self.overheads.items()]}


class Sampler:
    """Measures on a device of a queue's machine."""

    def __init__(self, queue: mc.Queue, device: DeviceIndex, settings: Settings) -> None:
        self.queue, self.device, self.settings = queue, device, settings
        self.about = queue.session.machine.devices[device]

    def measured(self, what: Sampled) -> Measured:
        """One kernel, in a size in which it takes about as long as it should. Raises ManyclError where it cannot be
        divided."""
        return self._of(*self.sized(what))

    def sized(self, what: Sampled) -> tuple[Benchmark, Submission, CachedGraph]:
        """A kernel in such a size, and what runs it as a whole."""
        size, took = what.size, 0.0
        for _ in range(6):
            benchmark = Benchmark(self.queue, what.name, what.make(size), what.enqueue)
            form = benchmark.enqueued()
            whole = self._prepared(form, 1)
            took = min(_seconds(benchmark, whole, form) for _ in range(3))
            wanted = int(size * min(self.settings.seconds / took, 32.0) ** what.power)
            if 0.6 <= took / self.settings.seconds <= 1.8 or (wanted > size and size >= what.most):
                break
            size = min(max(wanted, 64), what.most)
        return benchmark, form, whole

    def _prepared(self, form: Submission, slices: int) -> CachedGraph:
        problem = asked(self.queue, form.graph)
        pair = Pair(self.device, self.device)
        return CachedGraph(self.queue.session, form.graph, plan(problem, "slow", pair, False, slices))

    def _of(self, benchmark: Benchmark, form: Submission, whole: CachedGraph) -> Measured:
        launch = form.graph.nodes[0]
        assert isinstance(launch, Launch)
        split = asked(self.queue, form.graph).splits.get(0)
        if split is None:
            raise mc.ManyclError(f"{benchmark.name} cannot be divided")
        overhead = OVERHEADS[self.about.kind]
        found: dict[int, float] = {}
        seconds, slices, beyond = math.inf, 2, 0
        while slices <= min(split.groups, MOST_SLICES) and beyond < 2:
            unsliced, found[slices] = self._overhead(benchmark, form, whole, slices)
            seconds = min(seconds, unsliced)
            beyond = beyond + 1 if found[slices] > CLEAR * overhead else 0
            slices *= 2
        total, kind = math.prod(launch.global_size), self.about.kind
        count = target(found, overhead)
        if count is None and kind == "gpu":
            count = target(found, GPU_OVERHEAD)
        points = None if count is None else total / count
        device = f"{self.about.name} ({self.about.platform.partition(' (')[0]})"
        logarithms = features(form.graph, launch, kind)
        return Measured(
            benchmark.name,
            kind,
            logarithms,
            points,
            device,
            seconds,
            total,
            split.groups,
            found,
            self.about.compute_units,
        )

    def _overhead(self, benchmark: Benchmark, form: Submission, whole: CachedGraph, slices: int) -> tuple[float, float]:
        """Seconds unsliced, and how much longer slices take, as a part: of the shortest of some runs, in turns."""
        sliced = self._prepared(form, slices)
        both = (whole, sliced)
        for way in both:
            _seconds(benchmark, way, form)
        runs = [[_seconds(benchmark, way, form) for way in both] for _ in range(self.settings.repeats)]
        unsliced, cut = (min(column) for column in zip(*runs, strict=True))
        return unsliced, cut / unsliced - 1.0


def _seconds(benchmark: Benchmark, prepared: CachedGraph, form: Submission) -> float:
    """From the call of a run, whose inputs are in the host's memory, until its results are."""
    benchmark.bring_home(benchmark.arrays)
    begin = time.perf_counter()
    prepared.run()
    benchmark.bring_home(form.results)
    return time.perf_counter() - begin


def features(graph: Graph, launch: Launch, kind: str) -> tuple[float, ...]:
    """The logarithms of a launch's features."""
    sizes = {key: buffer.nbytes for key, buffer in graph.buffers.items()}
    return service.launched(launch.program, launch.kernel.name, known_launch(launch, sizes)).features.logarithms(kind)


def run(devices: str, settings: Settings, say: Say, keep: Callable[[Sequence[Measured]], None]) -> list[Measured]:
    """All kernels on the first of some devices; ``keep`` is given all that was found after each of them. What fails is
    told, and left out."""
    found: list[Measured] = []
    with mc.Queue(devices) as queue:
        sampler = Sampler(queue, DeviceIndex(0), settings)
        for what in sampled():
            if settings.names and what.name not in settings.names:
                continue
            try:
                found.append(sampler.measured(what))
            except mc.ManyclError as error:
                say(f"{what.name}: {error}")
                continue
            last = found[-1]
            points = "no target" if last.points is None else f"{last.points:.0f} points"
            costs = ", ".join(f"{n}: {100.0 * part:.1f} %" for n, part in last.overheads.items())
            say(f"{what.name}: {1e3 * last.seconds:.1f} ms, {points} ({costs})")
            keep(found)
    return found
