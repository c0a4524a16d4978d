"""PySchedCL's three experiments (Section 5) on whatever devices are here.

One transformer layer of H heads, matrices beta x beta, each head a task component of eight kernels:

1. several command queues of the fast device against one (Figure 11; H varies, beta = 256);
2. clustering against eager (Figure 12 a; H = 16, beta varies);
3. clustering against HEFT (Figure 12 b).

Inputs stay where earlier runs have brought them; with ``cold`` every run starts with the inputs on the host only, and
has to bring them (as the paper's runs). Figures are medians of runs of one process.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from manycl.bench import pages
from manycl.errors import DeviceError
from manycl.front.application import Application
from manycl.front.load import load_application
from manycl.front.runner import Runner
from manycl.graph.graph import Launch
from manycl.machine import Device, Machine
from manycl.run.backends.platforms import open_devices
from manycl.run.engine import Result

SPECIFICATION = Path(__file__).with_name("transformer.json")
# the paper's milliseconds at H = 16 (GTX 970, i5-4690K): clustering, eager, HEFT; from its published runs
PAPER_MS = {64: (2.6, 107, 94), 128: (6.6, 163, 121), 256: (46, 388, 241), 512: (300, 1839, 735)}
PAPER_QUEUES = {1: (4.6, 3.7), 8: (35.8, 24.5), 10: (45.7, 27.9), 16: (73.9, 45.8)}  # ms: one queue, best


@dataclass(frozen=True)
class Settings:
    """What is varied. ``heads`` for experiment 1, ``beta`` for all (experiment 1 uses ``queue_beta``)."""

    heads: Sequence[int] = (1, 2, 4, 8, 10, 16)
    queue_betas: Sequence[int] = (256,)
    betas: Sequence[int] = (64, 128, 256, 512)
    most_heads: int = 16
    queues: Sequence[int] = (2, 3, 5, 8, 16)
    cpu_heads: Sequence[int] = (0, 1)
    repeats: int = 7
    profile: bool = False
    cold: bool = False


class Bench:
    """One application on one session; each ``measure`` is the median makespan of a configuration, in seconds."""

    def __init__(self, devices: str | None, heads: int, beta: int, settings: Settings) -> None:
        parameters = {"H": str(heads), "beta": str(beta)}
        self.application: Application = load_application(SPECIFICATION, parameters)
        self.runner = Runner(self.application, devices, profile=settings.profile)
        self.heads = heads
        self.beta = beta
        self.settings = settings
        self.fast, self.slow = fast_and_slow(self.runner.session.machine)

    def close(self) -> None:
        self.runner.session.close()

    def prefer(self, cpu_heads: int | None) -> None:
        """The first heads to the slow device, the others to the fast one; None: no preference."""
        for index, nodes in enumerate(self.application.graph.components):
            for n in nodes:
                node = self.application.graph.nodes[n]
                assert isinstance(node, Launch)
                if cpu_heads is None:
                    node.device = ""
                else:
                    node.device = self.slow.name if self.slow and index < cpu_heads else self.fast.name

    def measure(self, policy: str, cpu_heads: int | None, **options: Any) -> tuple[float, Result]:
        self.prefer(cpu_heads)
        words = {k: str(v) for k, v in options.items()}
        prepared = self.runner.prepare(policy, words)
        taken = []
        for turn in range(self.settings.repeats + 3):  # the first ones build, teach the estimates, and are recorded
            if self.settings.cold:
                self.runner.cold()
            # eager and HEFT decide while they run; that is what the paper compares with
            result = self.runner.run(policy, options=words) if policy in ("eager", "heft") else prepared.run()
            if turn >= 3:
                taken.append(result.seconds)
        return statistics.median(taken), result

    def clustering(self, queues: int, cpu_heads: int) -> tuple[float, Result]:
        """All heads resident at once, ``queues`` command queues on the fast device and one on the others."""
        where = f"{self.fast.name}:{queues},{self.slow.name}:1" if self.slow else f"{self.fast.name}:{queues}"
        return self.measure("clustering", cpu_heads, queues=where, resident=self.heads)

    def best_clustering(self) -> tuple[float, tuple[int, int], Result]:
        """The best mapping configuration (queues of the fast device, heads on the slow one)."""
        found = []
        for cpu_heads in self.settings.cpu_heads:
            if cpu_heads and (self.slow is None or cpu_heads >= self.heads):
                continue
            for queues in self.settings.queues:
                seconds, result = self.clustering(queues, cpu_heads)
                found.append((seconds, (queues, cpu_heads), result))
        return min(found, key=lambda f: f[0])


def fast_and_slow(machine: Machine) -> tuple[Device, Device | None]:
    """The first GPU (else the first device), and the first CPU device beside it."""
    if not machine.devices:
        raise DeviceError("there is no device")
    fast = next((d for d in machine.devices if d.kind == "gpu"), machine.devices[0])
    slow = next((d for d in machine.devices if d.kind == "cpu" and d is not fast), None)
    return fast, slow


def charts(devices: str | None, settings: Settings) -> dict[str, Result]:
    """A run of each policy at the largest beta with the devices' clocks on, for Gantt charts (Figure 13)."""
    bench = Bench(devices, settings.most_heads, max(settings.betas), replace(settings, profile=True, repeats=1))
    try:
        _, _, clustering = bench.best_clustering()
        shown = {"clustering": clustering, "eager": bench.measure("eager", None)[1]}
        shown["heft"] = bench.measure("heft", None)[1]
        for result in shown.values():
            _ = result.trace  # read out while the devices are open
    finally:
        bench.close()
    return shown


def several_queues(devices: str | None, settings: Settings, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Experiment 1: the best configuration against one queue that is given everything ahead (in_order)."""
    rows = []
    for beta in settings.queue_betas:
        for heads in settings.heads:
            bench = Bench(devices, heads, beta, settings)
            try:
                one, _ = bench.measure("in_order", 0)
                best, (queues, cpu_heads), _ = bench.best_clustering()
                alone = min(bench.clustering(q, 0)[0] for q in settings.queues)
            finally:
                bench.close()
            paper = PAPER_QUEUES.get(heads) if beta == 256 else None
            row = {
                "heads": heads,
                "beta": beta,
                "one_queue_ms": one * 1e3,
                "best_ms": best * 1e3,
                "several_queues_ms": alone * 1e3,
                "best_queues": queues,
                "best_cpu_heads": cpu_heads,
                "speedup": one / best,
                "queues_speedup": one / alone,
                "paper_speedup": paper[0] / paper[1] if paper else None,
            }
            say(f"queues: H={heads} beta={beta}: {row['queues_speedup']:.2f}x over one queue")
            rows.append(row)
    return rows


def against_others(devices: str | None, settings: Settings, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Experiments 2 and 3."""
    rows = []
    for beta in settings.betas:
        bench = Bench(devices, settings.most_heads, beta, settings)
        try:
            best, (queues, cpu_heads), _ = bench.best_clustering()
            eager, _ = bench.measure("eager", None)
            heft, _ = bench.measure("heft", None)
        finally:
            bench.close()
        paper = PAPER_MS.get(beta) if settings.most_heads == 16 else None
        row = {
            "heads": settings.most_heads,
            "beta": beta,
            "clustering_ms": best * 1e3,
            "eager_ms": eager * 1e3,
            "heft_ms": heft * 1e3,
            "best_queues": queues,
            "best_cpu_heads": cpu_heads,
            "over_eager": eager / best,
            "over_heft": heft / best,
            "paper_over_eager": paper[1] / paper[0] if paper else None,
            "paper_over_heft": paper[2] / paper[0] if paper else None,
        }
        say(f"policies: beta={beta}: {row['over_eager']:.2f}x over eager, {row['over_heft']:.2f}x over heft")
        rows.append(row)
    return rows


def geometric_mean(values: Sequence[float]) -> float:
    return statistics.geometric_mean(values) if values else float("nan")


def run(devices: str | None, settings: Settings, say: Callable[[str], None]) -> dict[str, Any]:
    """All three experiments: the figures as data."""
    machine, _ = open_devices(devices)
    queues = several_queues(devices, settings, say)
    policies = against_others(devices, settings, say)
    most = [r["queues_speedup"] for r in queues if r["heads"] == max(settings.heads)]
    return {
        "devices": [f"{d.name}: {d.model}" for d in machine.devices],
        "settings": {k: list(v) if isinstance(v, tuple) else v for k, v in vars(settings).items()},
        "several_queues": queues,
        "policies": policies,
        "summary": {
            "queues_speedup_geomean": geometric_mean(most),
            "over_eager_geomean": geometric_mean([r["over_eager"] for r in policies]),
            "over_eager_least": min(r["over_eager"] for r in policies),
            "over_heft_geomean": geometric_mean([r["over_heft"] for r in policies]),
            "over_heft_least": min(r["over_heft"] for r in policies),
        },
    }


def write(devices: str | None, settings: Settings, figures: dict[str, Any], folder: Path) -> None:
    """``figures.json``, ``figures.png`` and a Gantt chart of a run of each policy, in a folder that is made if need
    be."""
    from manycl.report.gantt import write_gantt

    pages.write(folder, "figures", figures)
    draw(figures, folder / "figures.png")
    for name, result in charts(devices, settings).items():
        write_gantt(result.trace, folder / f"{name}.html")


def draw(figures: dict[str, Any], path: Path) -> None:
    """The paper's Figures 11 and 12 from our figures, theirs beside them where they published any."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for beta in sorted({r["beta"] for r in figures["several_queues"]}):
        rows = [r for r in figures["several_queues"] if r["beta"] == beta]
        left.plot([r["heads"] for r in rows], [r["speedup"] for r in rows], "o-", label=f"manycl, beta {beta}")
    paper = [(r["heads"], r["paper_speedup"]) for r in figures["several_queues"] if r["paper_speedup"]]
    if paper:
        left.plot(*zip(*paper, strict=True), "s--", color="0.5", label="PySchedCL, beta 256")
    left.set(xlabel="heads", ylabel="speed-up over one queue", title="Several command queues", ylim=(0, None))
    for key, label, mark in (("over_eager", "eager", "o"), ("over_heft", "HEFT", "s")):
        rows = figures["policies"]
        right.plot([r["beta"] for r in rows], [r[key] for r in rows], f"{mark}-", label=f"over {label}")
        theirs = [(r["beta"], r[f"paper_{key}"]) for r in rows if r[f"paper_{key}"]]
        if theirs:
            right.plot(*zip(*theirs, strict=True), f"{mark}--", color="0.5", label=f"PySchedCL over {label}")
    right.set(xlabel="beta", ylabel="speed-up of clustering", title="Clustering against", xscale="log", yscale="log")
    right.set_xticks([r["beta"] for r in figures["policies"]], [str(r["beta"]) for r in figures["policies"]])
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path)
