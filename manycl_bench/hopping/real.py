"""Device-Hopping's experiment on the devices that are here: a kernel comes while its fast device is taken (Section 7).

Each benchmark runs on the slower and the faster of two devices, whichever these are for it. Another kernel has the fast
one for a part of the time that the benchmark takes on the slow one (:mod:`manycl_bench.hopping.ways`): at evenly spaced
parts all ways run in turns. Nobody is told when the fast device will be free: what migrates finds out while it runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, geometric_mean, median
from typing import Any, NamedTuple

import manycl as mc
from manycl.graph.graph import BufferArg, Graph, Launch
from manycl.machine import DeviceIndex
from manycl.model.estimate import first_slice
from manycl.plan.problem import Problem
from manycl.run.graph_cache.cached_graph import CachedGraph
from manycl_bench.hopping import model
from manycl_bench.hopping.data import CASES, MOST, POWERS, SIZES
from manycl_bench.hopping.kept import Kept
from manycl_bench.hopping.ways import MIGRATING, WAYS, Benchmark, Occupant, Pair, asked, plan

__all__ = ["Settings", "run"]
Say = Callable[[str], None]
SHORT = 50.0
"""Milliseconds on the slow device below which a kernel tells nothing: a run whose launches may move costs the host some
2 to 5 ms (docs/results/hopping.md), and what migrating could gain is less."""
NEVER = 1.3
"""When the fast device becomes free of a kernel that never migrates, in parts of its time on the slow one."""
TELLING = 1.03
"""Shares are told of bounds of this at least: below, what could be gained is within what runs differ by."""
FIRST = 1 / 8
"""Of the usual size, is what is run to find out which one takes as long as it should, …"""
ROUGH, TRIES = (0.8, 1.25), 6
"""… in parts of that, and how many are tried."""
PREDICTED, SLICES = "predicted", 4096
"""The way in which a kernel runs whole on its slow device, in slices as predicted, and the most of these."""


@dataclass(frozen=True)
class Settings:
    """``parts``: when the fast device becomes free, in parts of the kernel's time on the slow one; ``warm`` runs before
    ``repeats`` that count; ``seconds`` that a kernel takes on its slow device, about, in each size (Section 7.2: 200 to
    250, 400 to 500, and 800 to 1000 ms)."""

    names: tuple[str, ...] = tuple(model.TABLE_3)
    parts: tuple[float, ...] = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875)
    repeats: int = 5
    warm: int = 1
    seconds: tuple[float, ...] = (0.2, 0.4, 0.8)


class Point(NamedTuple):
    """At one wait, ``part`` of the time on the slow device: medians of all ways; ``wait``: seconds after which the fast
    device was really free; ``switch``: seconds from then to the begin of the first launch there, of runs that migrated
    (nan: none did); ``launches``: on the slow and the fast device, of the last of them; ``predicted``: slices of the
    size that the shipped predictors give the slow device."""

    part: float
    wait: float
    switch: float
    seconds: Mapping[str, float]
    launches: tuple[int, ...]
    predicted: int


class _Devices:
    """Two devices, and what all benchmarks share."""

    def __init__(self, devices: str | None, settings: Settings) -> None:
        self.settings = settings
        self.queue = mc.Queue(devices, profile=True)
        self.session = self.queue.session
        self.machine = self.session.machine
        self.occupant = Occupant(self.queue)

    def prepared(self, graph: Graph, *way: Any) -> CachedGraph:
        return CachedGraph(self.session, graph, plan(*way))

    def alone(self, benchmark: Benchmark, device: DeviceIndex, repeats: int) -> list[float]:
        """The times of a benchmark on one device."""
        form = benchmark.enqueued()
        problem = asked(self.queue, form.graph)
        prepared = self.prepared(form.graph, problem, "slow", Pair(device, device), False)
        for _ in range(self.settings.warm):
            benchmark.run(prepared, form)
        return [benchmark.run(prepared, form).seconds for _ in range(repeats)]

    def sizes(self, name: str) -> Iterator[tuple[str, int]]:
        """The sizes in which a benchmark takes about as long as it should on its slow device, with their names; fewer
        where there are no larger inputs."""
        first, power, size = self.settings.seconds[0], POWERS.get(name, 1.0), int(SIZES[name] * FIRST)
        for _ in range(TRIES):
            size = min(max(size, 64), MOST[name])
            benchmark = Benchmark(self.queue, name, CASES[name](size))
            took = max(min(self.alone(benchmark, d, 2)) for d in self.machine.indices) / first
            if ROUGH[0] <= took <= ROUGH[1] or (took < 1.0 and size == MOST[name]):
                break
            size = int(size * min(1.0 / took, 64.0) ** power)
        for called, seconds in zip(model.INPUTS, self.settings.seconds, strict=False):
            wanted = int(size * (seconds / first) ** power)
            yield called, min(wanted, MOST[name])
            if wanted >= MOST[name]:
                break

    def benchmark(self, name: str, called: str, size: int) -> dict[str, Any]:
        """The figures of one benchmark in a size of that name."""
        benchmark = Benchmark(self.queue, name, CASES[name](size))
        alone = {d: median(self.alone(benchmark, d, 2 * self.settings.repeats)) for d in self.machine.indices}
        pair = Pair(max(alone, key=alone.__getitem__), min(alone, key=alone.__getitem__))
        k = alone[pair.slow] / alone[pair.fast]
        points = [self.point(benchmark, part, pair, alone) for part in self.settings.parts]
        never = self.point(benchmark, NEVER, pair, alone, ("slow", "hop", PREDICTED))
        whole = never.seconds["slow"]
        switches = [p.switch for p in points if not math.isnan(p.switch)]
        return {
            "benchmark": name,
            "size": called,
            "size_points": size,
            "slow": self._called(pair.slow),
            "fast": self._called(pair.fast),
            "k": k,
            "slow_ms": 1e3 * alone[pair.slow],
            "fast_ms": 1e3 * alone[pair.fast],
            "sliced_percent": 100.0 * (never.seconds["hop"] / whole - 1.0),
            "switch_ms": 1e3 * median(switches) if switches else math.nan,
            "slices": never.launches[0],
            "predicted_percent": 100.0 * (never.seconds[PREDICTED] / whole - 1.0),
            "predicted_slices": never.predicted,
            "points": [p._asdict() for p in points],
        }

    def _called(self, device: DeviceIndex) -> str:
        found = self.machine.devices[device]
        return f"{found.name} ({found.platform.partition(' (')[0]})"

    def point(
        self,
        benchmark: Benchmark,
        part: float,
        pair: Pair,
        alone: Mapping[DeviceIndex, float],
        ways: Sequence[str] = WAYS,
    ) -> Point:
        """Some ways at one wait, in turns; ``alone``: what it takes on each device."""
        names = [d.name for d in self.machine.devices]
        form = benchmark.enqueued(self.occupant.occupy(names[pair.fast], part * alone[pair.slow]))
        problem = asked(self.queue, form.graph)
        count = slices(problem, pair.slow)
        prepared = {
            way: self.prepared(form.graph, problem, way, pair, True, count if way == PREDICTED else 1, alone)
            for way in ways
        }
        for _ in range(self.settings.warm):
            for way, one in prepared.items():
                benchmark.run(one, form)
                if way not in WAYS[:2] and (wrong := benchmark.wrong(form)):
                    raise mc.ManyclError(f"{benchmark.name}, {way}: {', '.join(wrong)} came out wrong")
        taken: dict[str, list[float]] = {way: [] for way in ways}
        waits: list[float] = []
        switches: list[float] = []
        launches: tuple[int, ...] = ()
        for _ in range(self.settings.repeats):
            for way, one in prepared.items():
                ran = benchmark.run(one, form)
                taken[way].append(ran.seconds)
                waits.append(ran.occupied)
                if way == MIGRATING[0]:
                    switches += [ran.switch] if ran.switch is not None else []
                    launches = tuple(ran.launches.get(names[d], 0) for d in pair)
        seconds = {way: median(times) for way, times in taken.items()}
        return Point(part, median(waits), median(switches) if switches else math.nan, seconds, launches, count)


def slices(problem: Problem, device: DeviceIndex) -> int:
    """Into how many slices the shipped predictors cut the loop behind an occupant, at most SLICES (1: they know nothing
    of it)."""
    task, buffers = problem.graph.nodes[1], problem.graph.buffers
    assert isinstance(task, Launch)
    sizes = tuple((a.key, buffers[a.key].nbytes) for a in task.args if isinstance(a, BufferArg))
    items = first_slice(task, None, problem.machine.devices[device], sizes)
    return 1 if items is None else min(math.ceil(task.work_items / items), SLICES)


def run(devices: str | None, settings: Settings, say: Say, kept: Kept | None = None) -> dict[str, Any]:
    """All figures; benchmarks that are ``kept`` are not measured again. Raises ManyclError where there are fewer than
    two devices, or a result is wrong."""
    kept = Kept() if kept is None else kept
    known = {row["benchmark"] for row in kept.rows}
    bench = _Devices(devices, settings)
    try:
        if len(bench.machine.devices) < 2:
            raise mc.ManyclError("bench hopping needs two devices at least", hint="--devices cpu/2#0,cpu/2#1@2")
        for name in settings.names:
            rows = []
            for called, size in bench.sizes(name) if name not in known else ():
                row = bench.benchmark(name, called, size)
                wrong = any(beyond(row, way) for way in MIGRATING)
                told = " (faster than can be: something disturbed it)" * wrong
                told += f" ({row['slow_ms']:.3g} ms on the slow device: too short to tell)" * is_short(row)
                say(f"{name}, {called}: k = {row['k']:.2f}{told}")
                rows.append(row)
            kept.add(rows)
    finally:
        bench.queue.close()
    return {"settings": asdict(settings), "results": kept.rows, "summary": summary(kept.rows)}


def speedups(row: Mapping[str, Any], way: str) -> list[float]:
    """Over the perfect scheduler, at each wait."""
    return [min(p["seconds"]["waits"], p["seconds"]["slow"]) / p["seconds"][way] for p in row["points"]]


def beyond(row: Mapping[str, Any], way: str) -> bool:
    """Whether a speed-up is larger than can be, by more than what runs differ by: other programs disturbed some."""
    return row["k"] > 1.0 and max(speedups(row, way)) > TELLING * model.bound(row["k"], together=way == "both")


def is_short(row: Mapping[str, Any]) -> bool:
    """Whether a kernel could not be made to take long enough to tell what migrating gains."""
    return bool(row["slow_ms"] < SHORT)


def best_share(row: Mapping[str, Any], way: str) -> float:
    """How much of the largest possible gain is reached at the best wait; nan where the bound tells nothing, or the gain
    cannot be."""
    together = way == "both"
    if row["k"] <= 1.0 or model.bound(row["k"], together=together) < TELLING or beyond(row, way):
        return math.nan
    return model.share_of_bound(max(speedups(row, way)), row["k"], together=together)


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """``bound_share_mean`` and ``both_bound_share_mean``: how much of the largest possible gain is reached at the best
    wait, mean over benchmarks whose bound is TELLING at least, and the most; the same of speed-ups over all waits; by
    how much packets, and slices as predicted, slow a kernel down that never migrates; and the benchmarks that were
    faster than can be, which count for no share. Kernels that are ``too_short`` count nowhere else."""
    short = sum(map(is_short, rows))
    rows = [row for row in rows if not is_short(row)]
    if not rows:
        return {"too_short": short}
    shares = {way: [s for row in rows if not math.isnan(s := best_share(row, way))] for way in MIGRATING}
    all_of = {way: [s for row in rows for s in speedups(row, way)] for way in MIGRATING}
    slower, predicted = (
        100.0 * (geometric_mean([1.0 + row[f"{how}_percent"] / 100.0 for row in rows]) - 1.0)
        for how in ("sliced", "predicted")
    )
    return {
        "bound_share_mean": fmean(shares["hop"]) if shares["hop"] else math.nan,
        "bound_share_most": max(shares["hop"], default=math.nan),
        "geomean_over_pns": geometric_mean(all_of["hop"]),
        "most_over_pns": max(all_of["hop"]),
        "both_geomean": geometric_mean(all_of["both"]),
        "both_bound_share_mean": fmean(shares["both"]) if shares["both"] else math.nan,
        "never_migrating_percent": slower,
        "never_predicted_percent": predicted,
        "too_short": short,
        "cannot_be": sum(any(beyond(row, way) for way in MIGRATING) for row in rows),
    }
