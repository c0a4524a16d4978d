"""How long planning takes, and how it grows with the graph.

coarse_1000_s, split_1000_s: planning a random graph of 1,000 kernels on four devices with memories of their own, by
mkmd_coarse and by the slower of mkmd and balance. exponent: of the growth with the number of kernels from 250 to 2,000,
of the policy that grows fastest (MKMD's bound is 2). simulate_10000_s: the real engine on the virtual clock, 10,000
kernels. saga_ratio: the makespan of our best policy over the
best of anrg-saga's on a few graphs, on average, and saga_worst where it is largest, if that library is there
(``benchmarks/stages.py planning_saga`` has all graphs).

Wall time, the least of the repeats, of which there are three at most.
"""

from __future__ import annotations

import functools
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import common
from stages_figures import planning_saga

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, BufferKey, Launch
from manycl.machine import HOST, Device, DeviceIndex, Link, Machine
from manycl.model.estimates import Estimates
from manycl.plan.plan import Plan
from manycl.plan.policy import StaticPolicy, find
from manycl.plan.problem import Problem
from manycl.plan.split import LinearRegion, Split
from manycl.run.simulation.simulate import simulate

POLICIES = ("mkmd_coarse", "mkmd", "balance")
SIZES = (250, 500, 1000, 2000)
QUICK = (20, 40)
"""Kernels of the graphs that ``--quick`` plans."""
GROUPS = 256
ROW = 1 << 16  # bytes of a buffer that a work-group writes
WIDTH = 16  # kernels that may run at the same time, about


class Rates(Estimates):
    """A kernel takes its work over the device's rate; a transfer 20 us and its bytes over 8 GB/s."""

    def __init__(self, work: list[float], machine: Machine) -> None:
        self._work = work
        self._rates = [d.flops for d in machine.devices]

    def launch(self, node: int, device: DeviceIndex) -> float:
        return self._work[node] / self._rates[device]

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return 0.0 if source == target else 2e-5 + nbytes / 8e9


def random_problem(kernels: int, seed: int = 1, *, split: bool = True) -> Problem:
    """A layered random graph: every kernel reads two buffers of the layer before, all of one and rows of the other."""
    chance = random.Random(seed)
    facts = KernelFacts("k", 1, ())
    program = ProgramFacts("", (), {"k": facts})
    builder = GraphBuilder()
    before = [builder.buffer(GROUPS * ROW) for _ in range(WIDTH)]
    valid = {key: frozenset({HOST}) for key in before}
    layer: list[BufferKey] = []
    splits: dict[int, Split] = {}
    work: list[float] = []
    for i in range(kernels):
        a, b = chance.choice(before), chance.choice(before)
        c = builder.buffer(GROUPS * ROW)
        reads = tuple(dict.fromkeys((a, b)))
        args = tuple(BufferArg(k) for k in (*reads, c))
        builder.add(Launch(f"k{i}", program, facts, (16 * GROUPS,), (16,), args, reads, (c,)))
        splits[i] = Split(0, GROUPS, {a: LinearRegion(ROW), c: LinearRegion(ROW)} if a != b else {c: LinearRegion(ROW)})
        work.append(chance.uniform(1.0, 10.0))
        layer.append(c)
        if len(layer) == WIDTH:
            before, layer = layer, []
    rates = (20.0, 100.0, 60.0, 80.0)
    devices = tuple(
        Device(f"{'gpu' if d else 'cpu'}{d}", "gpu" if d else "cpu", memory=d, flops=r, global_memory=1 << 46)
        for d, r in enumerate(rates)
    )
    links = tuple(Link(a, b, 8e9, 2e-5) for a in range(4) for b in range(4) if a != b and HOST in (a, b))
    machine = Machine(devices, links)
    return Problem(
        graph=builder.build(),
        machine=machine,
        estimates=Rates(work, machine),
        queues=(1,) * len(devices),
        valid=valid,
        splits=splits if split else {},
    )


def plan(problem: Problem, policy: str) -> Plan:
    chosen = find(policy)
    assert isinstance(chosen, StaticPolicy)
    return chosen.plan(problem)


def wall_seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def exponent(times: dict[int, float]) -> float:
    """The slope of seconds over kernels, both as logarithms, by least squares."""
    xs = [math.log(n) for n in times]
    ys = [math.log(t) for t in times.values()]
    mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / sum((x - mx) ** 2 for x in xs)


def planning_times(repeats: int, sizes: Sequence[int] = SIZES) -> dict[str, dict[int, float]]:
    """Seconds by policy and number of kernels."""
    out: dict[str, dict[int, float]] = {}
    for policy in POLICIES:
        out[policy] = {}
        for kernels in sizes:
            problem = random_problem(kernels)
            found = plan(problem, policy)
            assert len({a.node for a in found.assignments}) == kernels
            work = functools.partial(plan, problem, policy)
            out[policy][kernels] = min(wall_seconds(work) for _ in range(repeats))
            common.progress(f"{policy} {kernels}: {out[policy][kernels]:.3f} s")
    return out


def simulations(repeats: int, kernels: int = 10000) -> dict[str, float]:
    """Seconds to simulate a graph of so many kernels that ``mkmd_coarse`` has planned."""
    problem = random_problem(kernels, split=False)
    found = plan(problem, "mkmd_coarse")
    return {f"simulate_{kernels}_s": min(wall_seconds(lambda: simulate(problem, found)) for _ in range(repeats))}


def saga_ratio() -> dict[str, Any]:
    """What ``benchmarks/stages.py planning_saga`` finds on one graph of 20 tasks of each family and ratio; nothing
    without its library."""
    try:
        outcomes = [planning_saga.compare(of) for of in planning_saga.instances(1, (20,))]
    except ImportError:
        return {}
    found = planning_saga.figures(outcomes)
    return {name: found[name] for name in ("saga_ratio", "saga_worst")}


def main() -> None:
    args = common.parse(__doc__)
    repeats = min(args.repeats, 3)
    sizes, simulated = (QUICK, QUICK[-1]) if args.quick else (SIZES, 10000)
    times, middle = planning_times(repeats, sizes), sizes[len(sizes) // 2]
    figures: dict[str, Any] = {
        f"coarse_{middle}_s": times["mkmd_coarse"][middle],
        f"split_{middle}_s": max(times["mkmd"][middle], times["balance"][middle]),
        "exponent": max(exponent(t) for t in times.values()),
        **{f"{name}_{n}_s": t for name, of in times.items() for n, t in of.items()},
        **simulations(1, simulated),
        **({} if args.quick else saga_ratio()),
        "repeats": repeats,
    }
    common.report(args, figures)


if __name__ == "__main__":
    main()
