"""PySchedCL's three experiments (Section 5), on the devices that are here or on a machine that is described.

One transformer layer of H heads, matrices beta x beta, each head a task component of eight kernels:

1. several command queues of the fast device against one (Figure 11; H varies, beta = 256);
2. clustering against eager (Figure 12 a; H = 16, beta varies);
3. clustering against HEFT (Figure 12 b).

The best mapping configuration of clustering (queues of the fast device, heads on the slow one) is found first, by runs
that count for nothing else; then it and its rivals run in turns, equally often, and medians are compared. They run
*anew*, which decides while it runs, as in the paper; and *prepared*, which does what earlier runs have decided. Both
are what the caller waits for. With ``cold`` every run starts with its inputs on the host only, and has to bring them,
as the paper's did; a simulated run always does, and takes what the machine file says, always the same. Experiments 2
and 3 are also simulated with late callbacks, by which the paper explains them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from manycl.applications.application import Application
from manycl.applications.load import load_application
from manycl.applications.planning import PlanningTarget, described_machine, problem_of
from manycl.applications.runner import Runner
from manycl.drivers.choice import open_devices
from manycl.errors import DeviceError
from manycl.graph.graph import Launch
from manycl.machine import Device, Machine
from manycl.plan.problem import HANDOVER
from manycl.run.graph_cache.cached_graph import CachedGraph
from manycl.run.simulation.simulate import simulate
from manycl.trace import Trace

SPECIFICATION = Path(__file__).with_name("transformer.json")
FORK_JOIN = Path(__file__).with_name("fork_join.json")
PUBLISHED_MS = {
    64: (3.55, 106.5, 93.9),
    128: (7.16, 161.9, 121.0),
    256: (48.8, 388.4, 240.5),
    512: (319.3, 1775.7, 735.1),
}
"""Milliseconds at H = 16 of clustering with all heads on the GPU, eager and HEFT, by beta: of the runs that the authors
published (github.com/anighose25/pyschedcl-concurrent, pyschedcl/TC), from the beginning of the first command to the end
of the last, on a GTX 970 and an i5-4690K."""
_ONE = (4.46, 9.14, 13.84, 18.49, 23.40, 27.88, 32.33, 35.67, 41.94, 45.56, 50.58, 55.24, 60.02, 64.78, 69.33, 73.73)
_SEVERAL = (3.58, 6.27, 9.12, 12.16, 15.24, 18.49, 21.79, 24.34, 27.45, 30.20, 33.71, 36.63, 39.86, 42.75, 45.73, 48.93)
PUBLISHED_QUEUES = dict(enumerate(zip(_ONE, _SEVERAL, strict=True), 1))
"""Likewise of clustering at beta = 256 with one queue of the GPU, and with the best number of them, by heads."""
WARM = 5
"""Runs of each way before those that count: a prepared graph keeps the best of its first four plans, and records it."""
SEARCHED = 3
"""Runs of each mapping configuration, of which the first does not count."""
Say = Callable[[str], None]
Samples = dict[str, list[float]]
"""Seconds of every run, by how it was run."""


@dataclass(frozen=True)
class Settings:
    """What is varied. ``heads`` for experiment 1, ``betas`` for 2 and 3 (experiment 1 uses ``queue_betas``).
    ``machine``: a machine file, to be simulated (none: the devices that are here). ``callback_delay``: seconds from a
    command's end until the host is told, in simulated runs with late callbacks (0: there are none); the default is what
    the published runs of eager at beta = 64 imply."""

    heads: Sequence[int] = tuple(range(1, 17))
    queue_betas: Sequence[int] = (256,)
    betas: Sequence[int] = (64, 128, 256, 512)
    most_heads: int = 16
    queues: Sequence[int] = (2, 3, 5, 8, 16)
    cpu_heads: Sequence[int] = (0, 1)
    repeats: int = 7
    profile: bool = False
    cold: bool = False
    machine: str | None = None
    callback_delay: float = 1.3e-3


class Way(NamedTuple):
    """A policy with its options. ``cpu_heads``: so many heads on the slow device, the others on the fast one (None: no
    preference). ``in_kernel_queues``: transfers are in the kernels' queues, in simulated runs."""

    policy: str
    cpu_heads: int | None = None
    options: tuple[tuple[str, str], ...] = ()
    in_kernel_queues: bool = False


EAGER, HEFT = Way("eager"), Way("heft")


class Bench(Protocol):
    """An application of so many heads where it can be run."""

    heads: int
    fast: Device
    slow: Device | None

    def in_turns(self, ways: Mapping[str, Way], repeats: int, warm: int) -> dict[str, Samples]:
        """Every way so many times, in turns."""

    def trace(self, way: Way) -> Trace:
        """Of one run, with the times of its commands."""

    def close(self) -> None: ...


def prefer(application: Application, fast: Device, slow: Device | None, cpu_heads: int | None) -> None:
    """The first heads to the slow device, the others to the fast one; None: no preference."""
    for index, nodes in enumerate(application.graph.components):
        for n in nodes:
            node = application.graph.nodes[n]
            assert isinstance(node, Launch)
            if cpu_heads is None:
                node.device = ""
            else:
                node.device = slow.name if slow and index < cpu_heads else fast.name


class Real:
    """On the devices that are here."""

    def __init__(self, devices: str | None, heads: int, beta: int, settings: Settings) -> None:
        self.application = _application(heads, beta)
        self.runner = Runner(self.application, devices, profile=settings.profile)
        self.heads = heads
        self.settings = settings
        self.fast, self.slow = fast_and_slow(self.runner.session.machine)

    def close(self) -> None:
        self.runner.session.close()

    def in_turns(self, ways: Mapping[str, Way], repeats: int, warm: int) -> dict[str, Samples]:
        taken: dict[str, Samples] = {name: {"anew": [], "prepared": []} for name in ways}
        session, graph = self.runner.session, self.runner.graph
        kept = {
            name: CachedGraph(session, graph, way.policy, queues=self.application.queues, options=dict(way.options))
            for name, way in ways.items()
        }
        for turn in range(warm + repeats):
            for name in list(ways) if turn % 2 == 0 else reversed(list(ways)):
                for how, of in taken[name].items():
                    seconds = self._run(ways[name], kept[name] if how == "prepared" else None)
                    if turn >= warm:
                        of.append(seconds)
        return taken

    def _cold(self) -> None:
        """As before the first run: initial contents, and on the host only."""
        self.runner.reset()
        for key, contents in self.application.contents.items():
            if contents.kind == "undefined":
                self.runner.session.directory.forget(key)
            else:
                self.runner.session.directory.define(key)

    def _run(self, way: Way, prepared: CachedGraph | None) -> float:
        """Seconds that the caller waits for a run."""
        prefer(self.application, self.fast, self.slow, way.cpu_heads)
        if self.settings.cold:
            self._cold()
        begin = time.perf_counter()
        if prepared is None:
            self.runner.run(way.policy, options=dict(way.options))
        else:
            prepared.run()
        return time.perf_counter() - begin

    def trace(self, way: Way) -> Trace:
        prefer(self.application, self.fast, self.slow, way.cpu_heads)
        for _ in range(2):  # the first one builds
            self._cold()
            result = self.runner.run(way.policy, options=dict(way.options))
        return result.trace


class Simulated:
    """On a machine that is described."""

    def __init__(self, place: PlanningTarget, heads: int, beta: int, callback_delay: float) -> None:
        self.application = _application(heads, beta)
        self.place = place
        self.callback_delay = callback_delay
        self.heads = heads
        self.fast, self.slow = fast_and_slow(place.machine)

    def close(self) -> None:
        """Nothing is open."""

    def in_turns(self, ways: Mapping[str, Way], repeats: int, warm: int) -> dict[str, Samples]:
        late = {"late callbacks": self.callback_delay} if self.callback_delay else {}
        delays: dict[str, float | None] = {"simulated": None, **late}
        return {
            name: {how: [self.trace(way, delay).makespan] for how, delay in delays.items()}
            for name, way in ways.items()
        }

    def trace(self, way: Way, callback_delay: float | None = None) -> Trace:
        prefer(self.application, self.fast, self.slow, way.cpu_heads)
        return self.as_preferred(way, HANDOVER if callback_delay is None else callback_delay)

    def as_preferred(self, way: Way, callback_delay: float = HANDOVER) -> Trace:
        """Of one run, kernels where the application wants them."""
        options, rides, delay = dict(way.options), way.in_kernel_queues, callback_delay
        problem, _ = problem_of(self.application, self.place, {}, options, handover=delay, in_kernel_queues=rides)
        return simulate(problem, way.policy)


def _application(heads: int, beta: int) -> Application:
    return load_application(SPECIFICATION, {"H": str(heads), "beta": str(beta)})


def opened(devices: str | None, heads: int, beta: int, settings: Settings) -> Bench:
    """Where the settings say."""
    if settings.machine is not None:
        return Simulated(described_machine(settings.machine), heads, beta, settings.callback_delay)
    return Real(devices, heads, beta, settings)


def machine_of(devices: str | None, settings: Settings) -> Machine:
    """What the experiments run on."""
    return open_devices(devices)[0] if settings.machine is None else described_machine(settings.machine).machine


def fast_and_slow(machine: Machine) -> tuple[Device, Device | None]:
    """The first GPU (else the first device), and the first CPU device beside it."""
    if not machine.devices:
        raise DeviceError("there is no device")
    fast = next((d for d in machine.devices if d.kind == "gpu"), machine.devices[0])
    slow = next((d for d in machine.devices if d.kind == "cpu" and d is not fast), None)
    return fast, slow


def clustering(bench: Bench, queues: int, cpu_heads: int, *, alone: bool = False) -> Way:
    """All heads resident at once, ``queues`` command queues on the fast device and one on the other. ``alone``: one
    head after another, and transfers in the queues of the kernels, as in the paper's Algorithm 1."""
    where = f"{bench.fast.name}:{queues}" + (f",{bench.slow.name}:1" if bench.slow else "")
    resident = 1 if alone else bench.heads
    return Way("clustering", cpu_heads, (("queues", where), ("resident", str(resident))), in_kernel_queues=alone)


def configurations(bench: Bench, settings: Settings) -> dict[tuple[int, int], Way]:
    """Those of clustering that are tried, by queues and heads on the slow device: a few of the paper's H + 1, and half
    of the heads where that device is no slower."""
    heads = list(settings.cpu_heads)
    if bench.slow is not None and (bench.slow.model, bench.slow.slowdown) == (bench.fast.model, bench.fast.slowdown):
        heads.append(bench.heads // 2)
    return {
        (queues, cpu_heads): clustering(bench, queues, cpu_heads)
        for cpu_heads in dict.fromkeys(heads)
        if not cpu_heads or (bench.slow is not None and cpu_heads < bench.heads)
        for queues in settings.queues
    }


def searched(bench: Bench, settings: Settings) -> dict[tuple[int, int], float]:
    """Seconds of every configuration (the least of its runs, run anew), to choose among them."""
    found = configurations(bench, settings)
    taken = bench.in_turns({f"{q} {c}": way for (q, c), way in found.items()}, SEARCHED - 1, 1)
    return {(q, c): min(next(iter(taken[f"{q} {c}"].values()))) for q, c in found}


def compared(bench: Bench, ways: Mapping[str, Way], settings: Settings) -> tuple[dict[str, Samples], dict[str, Any]]:
    """Milliseconds of every run, and by how it was run the median of each way."""
    taken = bench.in_turns(ways, settings.repeats, WARM)
    samples = {name: {how: [1e3 * s for s in of] for how, of in found.items()} for name, found in taken.items()}
    hows = next(iter(samples.values()))
    return samples, {how: {f"{n}_ms": statistics.median(of[how]) for n, of in samples.items()} for how in hows}


def several_queues(devices: str | None, settings: Settings, say: Say) -> list[dict[str, Any]]:
    """Experiment 1: the best configuration, and the best one that leaves the slow device alone, against clustering with
    one queue on the fast device."""
    rows = []
    for beta in settings.queue_betas:
        for heads in settings.heads:
            bench = opened(devices, heads, beta, replace(settings, callback_delay=0.0))
            try:
                seconds = searched(bench, settings)
                best = min(seconds, key=seconds.__getitem__)
                alone = min((c for c in seconds if c[1] == 0), key=seconds.__getitem__)
                ways = {"one": (1, 0), "several": alone, "best": best}
                samples, how = compared(bench, {n: clustering(bench, *c) for n, c in ways.items()}, settings)
                strict = _strict(bench, settings) if isinstance(bench, Simulated) else None
            finally:
                bench.close()
            for of in how.values():
                of |= {"speedup": of["one_ms"] / of["best_ms"], "queues_speedup": of["one_ms"] / of["several_ms"]}
            published = PUBLISHED_QUEUES.get(heads) if beta == 256 else None
            row: dict[str, Any] = {"heads": heads, "beta": beta, "several_queues": alone[0], "best_queues": best[0]}
            row |= {"best_cpu_heads": best[1], "published_speedup": published[0] / published[1] if published else None}
            rows.append(row | {"how": how, "samples_ms": samples, "strict": strict})
            words = ", ".join(f"{h} {of['queues_speedup']:.2f}x" for h, of in how.items())
            say(f"queues: H={heads} beta={beta}: over one queue {words}")
    return rows


def _strict(bench: Simulated, settings: Settings) -> dict[str, float]:
    """Experiment 1 as Algorithm 1 has it, in milliseconds: one head after another on the fast device, transfers in the
    kernels' queues; with one queue, and with the best number of them."""
    took = {n: 1e3 * bench.trace(clustering(bench, n, 0, alone=True)).makespan for n in (1, *settings.queues)}
    queues = min(took, key=took.__getitem__)
    return {"one_ms": took[1], "several_ms": took[queues], "queues": queues, "speedup": took[1] / took[queues]}


def against_others(devices: str | None, settings: Settings, say: Say) -> list[dict[str, Any]]:
    """Experiments 2 and 3."""
    rows = []
    for beta in settings.betas:
        bench = opened(devices, settings.most_heads, beta, settings)
        try:
            seconds = searched(bench, settings)
            best = min(seconds, key=seconds.__getitem__)
            ways = {"clustering": clustering(bench, *best), "eager": EAGER, "heft": HEFT}
            samples, how = compared(bench, ways, settings)
        finally:
            bench.close()
        for of in how.values():
            of |= {f"over_{p}": of[f"{p}_ms"] / of["clustering_ms"] for p in ("eager", "heft")}
        published = PUBLISHED_MS.get(beta) if settings.most_heads == 16 else None
        row: dict[str, Any] = {
            "heads": settings.most_heads,
            "beta": beta,
            "best_queues": best[0],
            "best_cpu_heads": best[1],
        }
        row |= {
            f"published_over_{p}": published[1 + i] / published[0] if published else None
            for i, p in enumerate(("eager", "heft"))
        }
        rows.append(row | {"how": how, "samples_ms": samples})
        words = ", ".join(f"{h} {of['over_eager']:.2f}x / {of['over_heft']:.2f}x" for h, of in how.items())
        say(f"policies: beta={beta}: over eager / heft {words}")
    return rows


def run(devices: str | None, settings: Settings, say: Say) -> dict[str, Any]:
    """All three experiments: the figures as data."""
    queues = several_queues(devices, settings, say)
    policies = against_others(devices, settings, say)
    return {
        "settings": {k: list(v) if isinstance(v, tuple) else v for k, v in vars(settings).items()},
        "several_queues": queues,
        "policies": policies,
        "in_queues_ms": {n: 1e3 * t.makespan for n, t in in_queues(settings).items()} if settings.machine else None,
        "summary": summary(queues, policies),
    }


def summary(queues: Sequence[Mapping[str, Any]], policies: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """By how it was run: with the most heads, what several queues gain; what clustering gains over the others, on
    average (geometric mean) and at least."""
    out = {}
    most = max(r["heads"] for r in queues)
    for how in policies[0]["how"]:
        name = how.replace(" ", "_")
        if of := [r["how"][how]["queues_speedup"] for r in queues if r["heads"] == most and how in r["how"]]:
            out[f"{name}_queues_speedup_geomean"] = statistics.geometric_mean(of)
        for rival in ("eager", "heft"):
            found = [r["how"][how][f"over_{rival}"] for r in policies]
            out[f"{name}_over_{rival}_geomean"] = statistics.geometric_mean(found)
            out[f"{name}_over_{rival}_least"] = min(found)
    return out


def in_queues(settings: Settings) -> dict[str, Trace]:
    """On the described machine, with one queue of the fast device, which does everything in turn, and with three: a
    fork and join of four kernels (Figure 1), and one head at the largest beta (Figures 3 to 5)."""
    bench = Simulated(described_machine(settings.machine or ""), 1, max(settings.betas), 0.0)
    ways = {queues: clustering(bench, queues, 0, alone=True) for queues in (1, 3)}
    found = {f"head_{queues}": bench.trace(way) for queues, way in ways.items()}
    bench.application = load_application(FORK_JOIN, {})
    return found | {f"fork_join_{queues}": bench.as_preferred(way) for queues, way in ways.items()}


def charts(devices: str | None, settings: Settings) -> dict[str, Trace]:
    """A run of each policy at the largest beta with the devices' clocks on, for Gantt charts (Figure 13)."""
    bench = opened(devices, settings.most_heads, max(settings.betas), replace(settings, profile=True))
    try:
        seconds = searched(bench, settings)
        best = clustering(bench, *min(seconds, key=seconds.__getitem__))
        return {"clustering": bench.trace(best), "eager": bench.trace(EAGER), "heft": bench.trace(HEFT)}
    finally:
        bench.close()
