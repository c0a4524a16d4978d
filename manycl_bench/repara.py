"""REPARA's experiments (Section 3.2, Tables 2 to 4, Figures 2 to 7) on its machine, simulated.

Every benchmark is planned by ``repara`` from interpolated profiles. That plan and all other valid ones, or a sample of
them where they are too many, then run on the simulated machine with the times that kernels really take there.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from manycl.errors import PolicyError
from manycl.machine import Machine
from manycl.machine_file import load_machine
from manycl.plan.plan import ON_HOST, Plan
from manycl.plan.policies.papers.mkmd_coarse import as_plan, look_up
from manycl.plan.policy import StaticPolicy, find
from manycl.plan.problem import Problem
from manycl.plan.search.execution_units import Partition, Way
from manycl.plan.timeline.timeline import Timeline
from manycl.plan.tuning import PLANNING
from manycl.plan.verification.verify import verify
from manycl.plan.verification.verify_memory import check_launches
from manycl.run.simulation.simulate import simulate
from manycl_bench.repara_graphs import BENCHMARKS, Benchmark
from manycl_bench.repara_rates import Profiled, Real

MACHINE = Path(__file__).with_name("repara.toml")
OTHERS = ("mkmd", "balance")
SAME = 1e-9
"""Two makespans are the same when they differ by no more than this part."""


class Experiment(NamedTuple):
    """Sizes to plan, sizes that are profiled, and how many of the machine's devices take part."""

    sizes: tuple[int, ...]
    profiled: tuple[int, ...]
    devices: int


_STENCIL = (256, 512, 1024, 2048, 4096, 8192)
EXPERIMENTS = {
    "stencil": Experiment(_STENCIL, _STENCIL, 3),
    "transitive closure": Experiment((128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192), _STENCIL, 2),
    "S3D": Experiment((24, 32, 40, 48), (24, 32, 40, 48), 2),
    "LUD": Experiment((1024, 4096), (512, 2048, 8192), 3),
    "GEMM": Experiment((256, 1024, 4096), (256, 2048, 4096), 3),
    "Monte Carlo": Experiment((1 << 12, 1 << 16), (1 << 10, 1 << 18), 3),
    "median filter": Experiment((1024, 4096), (512, 2048, 8192), 3),
    "bitonic sort": Experiment((1 << 18, 1 << 22), (1 << 16, 1 << 24), 3),
}
PAPER = {
    # sixteenths on the CPU, GPU and accelerator
    "stencil": {n: (16, 0, 0) if n <= 1024 else (4, 12, 0) for n in _STENCIL},
    # where the product, the union and the comparison run
    "transitive closure": {
        n: ("CPU 3/4", "CPU", "GPU") if n == 512 else ("CPU", "GPU", "CPU" if n <= 384 else "GPU")
        for n in EXPERIMENTS["transitive closure"].sizes
    },
    # kernels of 27 on the CPU
    "S3D": {24: 3, 32: 2, 40: 2, 48: 6},
}
"""Tables 2, 3 and 4."""


@dataclass(frozen=True)
class Settings:
    """``sample``: plans that are run at most beside the one chosen; ``effort``: of every search, in nodes of its tree;
    ``sizes``: of every benchmark the first so many (0: all)."""

    sample: int = 500
    effort: int = 120_000
    sizes: int = 0
    seed: int = 0


def problems(of: Benchmark, machine: Machine, profiled: Sequence[int]) -> tuple[Problem, Problem]:
    """The problem as profiles show it, and as it really is. Raises MachineError for launches that would draw more of a
    memory than it carries."""
    queues = (1,) * len(machine.devices)
    seen = Profiled(of, machine, profiled, BENCHMARKS[of.name])
    given = Problem(of.graph, machine, seen, queues, of.valid, splits=of.splits)
    real = replace(given, estimates=Real(of, machine))
    check_launches(real)
    return given, real


# all plans


def valid_ways(problem: Problem, node: int) -> list[Way]:
    """All ways to run a node in sixteenths on the devices that can, whether or not they are worth it."""
    if not problem.preferred(node):
        return [(Partition(ON_HOST),)]
    devices = problem.allowed(node)
    found: list[Way] = [(Partition(d),) for d in devices]
    split = problem.splits.get(node)
    if split is None:
        return found
    count = min(PLANNING.rates, split.groups)
    cuts = [split.groups * i // count for i in range(count + 1)]
    for shares in product(range(count), repeat=len(devices)):
        if sum(shares) == count:
            ends = [sum(shares[: i + 1]) for i in range(len(shares))]
            used = [(d, cuts[e - n], cuts[e] - cuts[e - n]) for d, e, n in zip(devices, ends, shares, strict=True) if n]
            found.append(tuple(Partition(*u) for u in used))
    return found


def combinations(of_nodes: Sequence[Sequence[Way]], most: int, seed: int) -> Iterator[tuple[Way, ...]]:
    """All choices of a way for every node, or, where there are more than ``most``, as many of them at random."""
    if math.prod(map(len, of_nodes)) <= most:
        yield from product(*of_nodes)
        return
    chance = random.Random(seed)
    for _ in range(most):
        yield tuple(chance.choice(found) for found in of_nodes)


def laid_out(problem: Problem, chosen: Sequence[Way]) -> Plan:
    """The plan with these ways, kernels in the order of the graph."""
    timeline = Timeline(problem, look_up(problem).rows)
    for node, way in enumerate(chosen):
        timeline.complete(node, [timeline.take(timeline.fit(node, *part)) for part in way])
    return as_plan(problem, timeline, "given")


# one benchmark


def measure(name: str, size: int, machine: Machine, settings: Settings, bounded: bool) -> dict[str, Any]:
    """One benchmark of one size. ``bounded``: not all plans are run, however few they are."""
    experiment = EXPERIMENTS[name]
    machine = replace(machine, devices=machine.devices[: experiment.devices])
    given, real = problems(BENCHMARKS[name](size), machine, experiment.profiled)
    begin = time.perf_counter()
    plan = static("repara").plan(replace(given, options={"effort": str(settings.effort), "beside": "no"}))
    seconds = time.perf_counter() - begin
    verify(plan, given.graph, machine, given)
    took = simulate(real, plan).makespan
    of_nodes = [valid_ways(given, n) for n in range(len(given.graph))]
    number = math.prod(map(len, of_nodes))
    most = min(settings.sample, number - 1) if bounded else settings.sample
    everything = [simulate(real, laid_out(given, c)).makespan for c in combinations(of_nodes, most, settings.seed)]
    alone = {}
    for d, device in machine.numbered():
        ways = [(Partition(ON_HOST if not given.preferred(n) else d),) for n in range(len(given.graph))]
        alone[device.kind] = simulate(real, laid_out(given, ways)).makespan
    others = {p: simulate(real, static(p).plan(given)).makespan for p in OTHERS}
    if number > len(everything):
        everything += alone.values()  # a sample hardly ever has them
    best, worst = min(*everything, took, *others.values()), max(everything)
    return {
        "benchmark": name,
        "size": size,
        "plan": _shares(plan, given),
        "ms": took * 1e3,
        "predicted_ms": plan.makespan * 1e3,
        "model_ms": plan.details["model_seconds"] * 1e3,
        "best_ms": best * 1e3,
        "worst_ms": worst * 1e3,
        "percent_of_best": 100.0 * best / took,
        "percentile": 100.0 * sum(t >= took * (1 - SAME) for t in everything) / len(everything),
        "plans": number,
        "plans_run": len(everything),
        "alone_ms": {kind: t * 1e3 for kind, t in alone.items()},
        "speedup_over_best_device": min(alone.values()) / took,
        **{f"{p}_ms": t * 1e3 for p, t in others.items()},
        "search_complete": plan.details["complete"],
        "search_gap_percent": 100.0 * (plan.details["model_seconds"] / plan.details["bound"] - 1.0),
        "visited": plan.details["visited"],
        "planning_s": seconds,
        "paper": _paper(name, size),
        "as_paper": _as_paper(name, size, _shares(plan, given)),
    }


def static(name: str) -> StaticPolicy:
    found = find(name)
    assert isinstance(found, StaticPolicy)
    return found


def _shares(plan: Plan, problem: Problem) -> list[list[int]]:
    """Of every kernel, the sixteenths on each device (rounded where groups are no multiple of sixteen)."""
    shares = []
    for node in range(len(problem.graph)):
        mine = [a for a in plan.assignments if a.node == node]
        if mine[0].device == ON_HOST:
            continue
        groups = sum(a.groups for a in mine) or 1
        of = [0.0] * len(problem.machine.devices)
        for a in mine:
            of[a.device] += (a.groups or 1) / groups
        shares.append([round(PLANNING.rates * s) for s in of])
    return shares


def words(shares: Sequence[int]) -> str:
    """A kernel's sixteenths as in Table 3: ``CPU``, or ``CPU 3/4`` and the rest elsewhere."""
    most = max(range(len(shares)), key=lambda d: shares[d])
    name = ("CPU", "GPU", "ACC")[most]
    if shares[most] == PLANNING.rates:
        return name
    divisor = math.gcd(shares[most], PLANNING.rates)
    return f"{name} {shares[most] // divisor}/{PLANNING.rates // divisor}"


def _paper(name: str, size: int) -> object:
    return PAPER.get(name, {}).get(size)  # type: ignore[attr-defined]


def _as_paper(name: str, size: int, shares: Sequence[Sequence[int]]) -> float | None:
    """What part of the paper's plan is ours: of the kernels those where its table has them (S3D's are not the paper's
    one by one: none)."""
    theirs = _paper(name, size)
    if name == "stencil" and theirs is not None:
        return float(tuple(shares[0]) == theirs)
    if name == "transitive closure" and isinstance(theirs, tuple):
        return float(statistics.mean(words(s) == t for s, t in zip(shares, theirs, strict=True)))
    return None


# the figures


def run(settings: Settings, say: Callable[[str], None]) -> dict[str, Any]:
    """All experiments: the figures as data."""
    machine = load_machine(MACHINE)
    rows = []
    for name, experiment in EXPERIMENTS.items():
        for size in experiment.sizes[: settings.sizes or None]:
            row = measure(name, size, machine, settings, bounded=name == "S3D")
            say(f"{name} {size}: percentile {row['percentile']:.1f} of {row['plans_run']} plans, "
                f"{row['percent_of_best']:.1f} % of the best")  # fmt: skip
            rows.append(row)
    return {
        "machine": machine.name,
        "devices": [f"{d.name}: {d.model}" for d in machine.devices],
        "sources": dict(machine.notes),
        "settings": vars(settings),
        "results": rows,
        "summary": summary(rows),
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """``as_paper_…``: the part of the table's plans that are ours. ``gap_of_cut_off_percent``: how far above its bound
    the worst plan of a search is that was cut off (0: none was)."""
    if not rows:
        raise PolicyError("no experiment was run")

    def of(name: str) -> list[dict[str, Any]]:
        return [r for r in rows if r["benchmark"] == name]

    found = {
        "least_percentile": min(r["percentile"] for r in rows),
        "mean_percentile": statistics.mean(r["percentile"] for r in rows),
        "mean_percent_of_best": statistics.mean(r["percent_of_best"] for r in rows),
        "least_percent_of_best": min(r["percent_of_best"] for r in rows),
        "geomean_speedup_over_best_device": statistics.geometric_mean([r["speedup_over_best_device"] for r in rows]),
        "searches_complete": statistics.mean(r["search_complete"] for r in rows),
        "gap_of_cut_off_percent": max((r["search_gap_percent"] for r in rows if not r["search_complete"]), default=0.0),
        "planning_max_s": max(r["planning_s"] for r in rows),
    }
    for name in ("stencil", "transitive closure"):
        known = [r["as_paper"] for r in of(name) if r["as_paper"] is not None]
        if known:
            found[f"as_paper_{name.replace(' ', '_')}"] = statistics.mean(known)
    return found
