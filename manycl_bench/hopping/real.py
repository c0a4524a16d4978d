"""Device-Hopping's experiment on the devices that are here: a kernel comes while its fast device is taken (Section 7).

Each benchmark runs beside another kernel that has the fast device for a part of the time that it takes on the slow one:
whole on the fast device after it, whole on the slow one at once (the better of both is what the perfect scheduler that
cannot migrate does), by policy ``hop``, and by ``hop`` with ``both=yes``, in turns. What ``hop`` knows are the
estimates, from runs of the kernel on each device alone. Migrating is planned: ranges end when the fast device is
foreseen to be free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, geometric_mean, median
from typing import Any, NamedTuple

import numpy as np

import manycl as mc
from manycl.graph.graph import Launch
from manycl.model.slice_training import SliceSample
from manycl.plan.plan import Plan
from manycl.plan.policies.mkmd_coarse import as_plan, in_ranges, look_up
from manycl.plan.problem import Problem
from manycl.plan.split import Split
from manycl.plan.timeline import Timeline
from manycl.trace import KernelEvent
from manycl_bench.hopping import model, slice_samples
from manycl_bench.hopping.data import CASES, SIZES, Case
from manycl_bench.hopping.loops import LOOPS

__all__ = ["Settings", "run"]
Say = Callable[[str], None]
WAYS: Mapping[str, tuple[str, dict[str, str]]] = {
    "waits": ("pns", {}),
    "slow": ("pns", {}),
    "hop": ("hop", {}),
    "both": ("hop", {"both": "yes"}),
}
"""How a benchmark may run, with the policy and its options; the first two are pinned to the fast and to the slow
device, and the better of them is what the perfect scheduler does."""
OCCUPANT = "occupant"
_BUSY = "float x = a[i]; for (long q = 0; q < rounds; q++) x = x * 0.999f + 0.001f; a[i] = x;"


@dataclass(frozen=True)
class Settings:
    """``parts``: when the fast device becomes free, in parts of the kernel's time on the slow one; ``warm`` runs before
    ``repeats`` that count; ``scale``: of the sizes; ``slices``: of a kernel that never migrates;
    ``samples``: whether targets for predictors of slice sizes are searched for."""

    names: tuple[str, ...] = tuple(model.TABLE_3)
    parts: tuple[float, ...] = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85)
    repeats: int = 5
    warm: int = 5
    scale: float = 1.0
    slices: int = 36
    samples: bool = True


class OneDevice:
    """A policy: every kernel on one device, in so many ranges each where it may be divided."""

    def __init__(self, device: str, ranges: int = 1) -> None:
        self.device, self.ranges = device, ranges
        self.split: Split | None = None  # how the first kernel of the last graph may be divided

    def plan(self, problem: Problem) -> Plan:
        where = next(i for i, d in problem.machine.numbered() if d.name == self.device)
        table = look_up(problem)
        self.split = problem.splits.get(0)
        timeline = Timeline(problem, table.rows)
        for node in range(len(problem.graph)):
            split = problem.splits.get(node)
            if split is None or self.ranges == 1:
                timeline.place(timeline.fit(node, where))
            else:
                in_ranges(timeline, node, where, max(-(-split.groups // self.ranges), 1))
        return as_plan(problem, timeline, "one device")


class _Loop:
    """A benchmark on a session's arrays."""

    def __init__(self, queue: mc.Queue, name: str, case: Case) -> None:
        self.name, self.case = name, case
        self.given = {k: queue.array(v, name=k) if isinstance(v, np.ndarray) else v for k, v in case.given.items()}

    def prepared(self, queue: mc.Queue, occupant: Callable[[mc.Queue], None] | None = None, device: str = "") -> Any:
        """The graph: what has the fast device, if anything, and the benchmark."""
        with queue.prepare() as graph:
            if occupant is not None:
                occupant(queue)
            self.result = LOOPS[self.name](queue, device=device, **self.given)
        return graph

    def wrong(self) -> list[str]:
        """What the last run has got wrong."""
        found = {k: v.get() if isinstance(v, mc.Array) else v for k, v in self.given.items()}
        if isinstance(self.result, mc.Array):
            found |= dict.fromkeys(self.case.expected, self.result.get())
        return self.case.check(found)


def ended(graph: Any) -> float:
    """Run a graph; seconds until the benchmark in it has ended, from the start of the run's first kernel on."""
    result = graph.run()
    nodes = result.graph.nodes
    events = [e for e in result.trace.events if isinstance(e, KernelEvent)]
    mine = [e.end for e in events if not _is_occupant(nodes[e.node])]
    return max(mine) - min(e.start for e in events)


def _seconds(result: Any) -> float:
    """How long the kernels of a run took, the first to the last."""
    events = [e for e in result.trace.events if isinstance(e, KernelEvent)]
    return max(e.end for e in events) - min(e.start for e in events)


def _is_occupant(node: Any) -> bool:
    return isinstance(node, Launch) and node.kernel.name == OCCUPANT


class Point(NamedTuple):
    """Medians of one wait: seconds of each way, and the wait as a part of the slow device's time."""

    part: float
    seconds: dict[str, float]


class _Bench:
    """All of one session's measurements."""

    def __init__(self, devices: str | None, settings: Settings) -> None:
        self.settings = settings
        self.first = mc.Queue(devices, profile=True)
        self.session = self.first.session
        self.names = list(self.first.devices)

    def queue(self, policy: Any, options: Mapping[str, str] | None = None) -> mc.Queue:
        return mc.Queue(session=self.session, policy=policy, options=options)

    def on_one(self, loop: _Loop, device: str, ranges: int = 1) -> float:
        """The median time of a benchmark on one device."""
        graph = loop.prepared(self.queue(OneDevice(device, ranges)))
        return self._median(graph)

    def _median(self, graph: Any) -> float:
        for _ in range(self.settings.warm):
            ended(graph)
        return median(ended(graph) for _ in range(self.settings.repeats))

    def occupant(self, device: str, seconds: float) -> Callable[[mc.Queue], None]:
        """What takes a device for so long."""
        array = self.first.zeros(1 << 12, np.float32, name=OCCUPANT)
        rounds = 1 << 10
        for _ in range(4):  # until it takes about as long: launches cost something, too
            queue = self.queue(OneDevice(device))
            with queue.prepare() as graph:
                mc.parallel_for(1 << 12, _BUSY, a=array, rounds=rounds, name=OCCUPANT, queue=queue)
            took = median(_seconds(graph.run()) for _ in range(3))
            rounds = min(max(int(rounds * seconds / took), 1), 100 * rounds)
        queue = self.queue(OneDevice(device))
        with queue.prepare() as graph:  # so that policies know what it takes
            mc.parallel_for(1 << 12, _BUSY, a=array, rounds=rounds, name=OCCUPANT, queue=queue)
        for _ in range(3):
            graph.run()

        def occupy(queue: mc.Queue) -> None:
            mc.parallel_for(1 << 12, _BUSY, a=array, rounds=rounds, name=OCCUPANT, device=device, queue=queue)

        return occupy

    def benchmark(self, name: str) -> dict[str, Any]:
        """The figures of one benchmark."""
        loop = _Loop(self.first, name, CASES[name](max(int(SIZES[name] * self.settings.scale), 64)))
        alone = {device: self.on_one(loop, device) for device in self.names}
        slow, fast = max(alone, key=alone.__getitem__), min(alone, key=alone.__getitem__)
        k = alone[slow] / alone[fast]
        sliced = self.on_one(loop, slow, self.settings.slices)
        points = [self.point(loop, part, (slow, fast), alone[slow]) for part in self.settings.parts]
        if wrong := loop.wrong():
            raise mc.ManyclError(f"{name}: {', '.join(wrong)} came out wrong")
        found = self.sample(loop, slow) if self.settings.samples else None
        return {
            "benchmark": name,
            "slice_sample": None if found is None else slice_samples.as_json(found),
            "fast": fast,
            "slow": slow,
            "k": k,
            "slow_ms": 1e3 * alone[slow],
            "fast_ms": 1e3 * alone[fast],
            "sliced_percent": 100.0 * (sliced / alone[slow] - 1.0),
            "points": [p._asdict() for p in points],
        }

    def sample(self, loop: _Loop, device: str) -> SliceSample | None:
        """How large slices have to be on a device."""
        policy = OneDevice(device)
        graph = loop.prepared(self.queue(policy))
        graph.run()
        kind = next(d.kind for d in self.session.machine.devices if d.name == device)
        if policy.split is None:
            return None
        return slice_samples.sample(loop.name, kind, graph.graph, policy.split, lambda n: self.on_one(loop, device, n))

    def point(self, loop: _Loop, part: float, devices: tuple[str, str], slow_seconds: float) -> Point:
        """All ways at one wait, in turns."""
        slow, fast = devices
        occupant = self.occupant(fast, part * slow_seconds)
        graphs = {}
        for name, (policy, options) in WAYS.items():
            pinned = {"waits": fast, "slow": slow}.get(name, "")
            graphs[name] = loop.prepared(self.queue(policy, options), occupant, pinned)
            for _ in range(self.settings.warm):
                ended(graphs[name])
        taken: dict[str, list[float]] = {name: [] for name in graphs}
        for _ in range(self.settings.repeats):
            for name, graph in graphs.items():
                taken[name].append(ended(graph))
        return Point(part, {name: median(times) for name, times in taken.items()})


def run(devices: str | None, settings: Settings, say: Say) -> dict[str, Any]:
    """All figures. Raises ManyclError where there are fewer than two devices, or a result is wrong."""
    bench = _Bench(devices, settings)
    try:
        if len(bench.names) < 2:
            raise mc.ManyclError("bench hopping needs two devices at least", hint="--devices cpu/2#0,cpu/2#1@2")
        rows = []
        for name in settings.names:
            rows.append(bench.benchmark(name))
            say(f"{name}: k = {rows[-1]['k']:.2f}")
    finally:
        bench.first.close()
    samples = [row.pop("slice_sample") for row in rows]
    samples = [found for found in samples if found is not None]
    return {"settings": asdict(settings), "results": rows, "summary": summary(rows), "slice_samples": samples}


def speedups(row: Mapping[str, Any], policy: str) -> list[float]:
    """Over the perfect scheduler, at each wait."""
    return [min(p["seconds"]["waits"], p["seconds"]["slow"]) / p["seconds"][policy] for p in row["points"]]


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """``bound_share_mean``: how much of the largest possible gain is reached at the best wait, mean over benchmarks of
    which one device is faster (k of 1.05 at least); geometric means of speed-ups over all waits; and by how much slices
    slow a kernel down that never migrates."""
    unlike = [row for row in rows if row["k"] >= 1.05]
    shares = [model.share_of_bound(max(speedups(row, "hop")), row["k"]) for row in unlike]
    all_of = {policy: [s for row in rows for s in speedups(row, policy)] for policy in ("hop", "both")}
    slower = geometric_mean([1.0 + row["sliced_percent"] / 100.0 for row in rows])
    return {
        "bound_share_mean": fmean(shares) if shares else math.nan,
        "geomean_over_pns": geometric_mean(all_of["hop"]),
        "both_geomean": geometric_mean(all_of["both"]),
        "never_migrating_percent": 100.0 * (slower - 1.0),
    }
