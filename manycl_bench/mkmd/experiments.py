"""MKMD's experiments (Section 6, Figures 9, 10 and 12) and its worked example on its machine, simulated.

Eleven equations (``equations.py``) in order on the GTX 760, and planned by ``mkmd_coarse``, ``mkmd`` and
``balance`` on all three devices. The machine file beside this module says where each rate is from. All times are what
the engine takes for the plans on the simulated machine, transfers beside kernels; in order is one queue of the GTX 760.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, BufferKey, HostTask, Launch
from manycl.intervals import union_length
from manycl.machine import HOST, DeviceIndex, Machine
from manycl.machine_file import load_machine, shipped_machines
from manycl.model.estimates import Estimates
from manycl.plan.plan import ON_HOST, WHOLE, Plan
from manycl.plan.policy import StaticPolicy, find
from manycl.plan.problem import Problem
from manycl.plan.verification.verify import verify
from manycl.run.simulation.foresee import with_times
from manycl.run.simulation.simulate import simulate
from manycl.trace import KernelEvent, Trace, TransferEvent
from manycl_bench.mkmd import example
from manycl_bench.mkmd.equations import EQUATIONS, MEMORY_BOUND, Equation, RooflineEstimates, problem

MACHINE = shipped_machines()["mkmd"]
BASELINE = "gpu0"
"""The GTX 760, where the paper runs everything in order."""
POLICIES = {"coarse": "mkmd_coarse", "mkmd": "mkmd", "balance": "balance"}
PAPER = {
    "geomean_speedup": 1.89,
    "coarse_share_percent": 52.0,
    "busy_share": 0.94,
    "busy_share_in_order": 0.30,
    "planning_max_ms": 10.0,
    "speedups": {"BiCGSTAB": 1.12, "Jacobi": 1.12, "Stein": 1.9, "SVD": 1.9},
}
"""What the text of Section 6 says in numbers."""
SMALL_GRAPHS = 8
SMALL_NODES = 10


@dataclass(frozen=True)
class Settings:
    """``repeats`` of planning, of which the shortest counts; ``optimum``: the effort that the search for the
    proven optimum of each graph may take (0: no comparison)."""

    repeats: int = 40
    optimum: float = 3.0


def static(name: str) -> StaticPolicy:
    found = find(name)
    assert isinstance(found, StaticPolicy)
    return found


def busy(trace: Trace) -> float:
    """The part of the makespan that the machine's devices run kernels, on average."""
    worked = sum(e.end - e.start for e in trace.events if isinstance(e, KernelEvent))
    return worked / (trace.makespan * len(trace.devices))


def used(trace: Trace) -> float:
    """The part of the makespan that the machine's devices run kernels or have data moved to or from them."""
    spans: dict[str, list[tuple[float, float]]] = {name: [] for name in trace.devices}
    for e in trace.events:
        if isinstance(e, KernelEvent):
            spans[e.device].append((e.start, e.end))
        elif isinstance(e, TransferEvent):
            for end in (e.source, e.target):
                if end in spans:
                    spans[end].append((e.start, e.end))
    return sum(map(union_length, spans.values())) / (trace.makespan * len(trace.devices))


def in_order(name: str, machine: Machine) -> Trace:
    return simulate(problem(name, machine, BASELINE), "in_order")


def planned(given: Problem, policy: str, repeats: int) -> tuple[Plan, Trace, list[float]]:
    """A judged plan as it is foreseen, its trace, and the processor's seconds that planning, which is one thread, took
    each time."""
    chosen, taken = static(policy), []
    for _ in range(max(1, repeats)):
        begin = time.process_time()
        plan = chosen.plan(given)
        taken.append(time.process_time() - begin)
    verify(plan, given.graph, given.machine, given)
    trace = simulate(given, plan)
    plan = with_times(given, plan, trace)
    verify(plan, given.graph, given.machine, given)
    return plan, trace, taken


def drawn(plan: Plan, given: Problem) -> float:
    """Bytes that a plan's transfers and the kernels of devices in the host's memory read from it and write to it."""
    devices, splits = given.machine.devices, given.splits
    total = float(moved(plan))
    for a in plan.assignments:
        if a.device != ON_HOST and devices[a.device].memory == HOST:
            part = a.groups / splits[a.node].groups if a.dimension is not WHOLE else 1.0
            total += given.estimates.traffic(a.node, a.device) * part
    return total


def moved(plan: Plan) -> int:
    """Bytes of a plan's transfers."""
    return sum(e.nbytes for e in plan.events if isinstance(e, TransferEvent))


def throughput_bound(machine: Machine) -> float:
    """All devices' rates over the fastest one's: no plan is faster than one device by more, were all else free."""
    rates = [d.flops for d in machine.devices]
    return sum(rates) / max(rates)


def measure(name: str, machine: Machine, settings: Settings) -> dict[str, Any]:
    """One equation by all policies."""
    base = in_order(name, machine)
    given = problem(name, machine)
    row: dict[str, Any] = {
        "equation": name,
        "kernels": len(given.graph) - 1,
        "in_order_ms": base.makespan * 1e3,
        "in_order_busy": busy(base),
    }
    for label, policy in POLICIES.items():
        plan, trace, taken = planned(given, policy, settings.repeats)
        seconds = min(taken)
        row |= {
            f"{label}_ms": plan.makespan * 1e3,
            f"{label}_speedup": base.makespan / plan.makespan,
            f"{label}_busy": busy(trace),
            f"{label}_used": used(trace),
            f"{label}_planned_speedup": base.makespan / (plan.makespan + seconds),
            f"{label}_planning_ms": seconds * 1e3,
            f"{label}_planning_ms_samples": [float(f"{1e3 * t:.4g}") for t in taken],
            f"{label}_overhead_percent": 100.0 * seconds / plan.makespan,
            f"{label}_moved_mb": moved(plan) / 1e6,
            f"{label}_host_gb_per_s": drawn(plan, given) / plan.makespan / 1e9,
        }
    row["bound_speedup"] = None if name in MEMORY_BOUND else throughput_bound(machine)
    row["paper_speedup"] = PAPER["speedups"].get(name)  # type: ignore[attr-defined]
    return row


# the proven optimum of whole kernels


class _Given(Estimates):
    """Estimates of random kernels: seconds by node and device; transfers as the machine's links."""

    def __init__(self, rows: list[list[float]], transfers: RooflineEstimates) -> None:
        self._rows = rows
        self._transfers = transfers

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return self._transfers.transfer(nbytes, source, target)

    def launch(self, node: int, device: DeviceIndex) -> float:
        return self._rows[node][device]


def small_graph(seed: int, machine: Machine) -> Problem:
    """A random graph of few kernels, each of which reads one or two results or inputs, of 64 to 512 MB; transfers take
    about half as long as kernels. Every device is up to a third faster or slower at each kernel than its rate says."""
    chance = random.Random(seed)
    builder = GraphBuilder()
    facts = KernelFacts("k", 1, ())
    program = ProgramFacts("", (), {"k": facts})

    def buffer() -> BufferKey:
        return builder.buffer(chance.randrange(64, 512) * 10**6)

    known = [buffer() for _ in range(3)]
    valid = {key: frozenset({HOST}) for key in known}
    unused: set[BufferKey] = set()
    rows: list[list[float]] = []
    for i in range(SMALL_NODES):
        reads = tuple(sorted({chance.choice(known), chance.choice(known)}))
        made = buffer()
        args = tuple(BufferArg(key) for key in (*reads, made))
        builder.add(Launch(f"k{i}", program, facts, (4096,), (16,), args, reads, (made,)))
        operations = chance.uniform(2e9, 2e10)
        rows.append([operations / d.flops * chance.uniform(0.75, 1.33) for d in machine.devices])
        unused = {*(unused - {*reads}), made}
        known.append(made)
    builder.add(HostTask("sink", print, (), tuple(sorted(unused)), ()))
    rows.append([0.0 for _ in machine.devices])
    estimates = _Given(rows, RooflineEstimates(Equation(), machine))
    queues = (1,) * len(machine.devices)
    return Problem(builder.build(name=f"random {seed}"), machine, estimates, queues, valid)


def against_optimum(machine: Machine, effort: float, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """``balance`` beside CP-SAT's optimum where no kernel may be split: the equations, and small random graphs. Without
    a limit of the host's memory, which CP-SAT's model does not have."""
    machine = replace(machine, host_bandwidth=math.inf)
    cases = [problem(name, machine) for name in EQUATIONS]
    cases += [small_graph(seed, machine) for seed in range(SMALL_GRAPHS)]
    rows = []
    for case in cases:
        given = replace(case, splits={})
        limited = replace(given, options={"effort": f"{effort:g}"})
        best = static("optimal").plan(limited)
        ours = static("balance").plan(given)
        gap = 100.0 * (ours.makespan / best.makespan - 1.0)
        rows.append({"graph": given.graph.name, "proven": bool(best.details["proven"]), "gap_percent": gap})
        say(f"optimum: {given.graph.name}: {gap:.2f} % {'' if best.details['proven'] else '(not proven)'}")
    return rows


def optimum_or_none(machine: Machine, settings: Settings, say: Callable[[str], None]) -> list[dict[str, Any]] | None:
    if settings.optimum <= 0:
        return None
    try:
        return against_optimum(machine, settings.optimum, say)
    except PolicyError as error:
        if "OR-Tools" not in str(error):
            raise
        say(f"no comparison with the optimum: {error}")
        return None


# the figures


def run(settings: Settings, say: Callable[[str], None]) -> dict[str, Any]:
    """All experiments: the figures as data."""
    machine = load_machine(MACHINE)
    rows = []
    for name in EQUATIONS:
        row = measure(name, machine, settings)
        say(f"{name}: coarse {row['coarse_speedup']:.2f}x, mkmd {row['mkmd_speedup']:.2f}x, "
            f"balance {row['balance_speedup']:.2f}x")  # fmt: skip
        rows.append(row)
    optimum = optimum_or_none(machine, settings, say)
    bound = throughput_bound(machine)
    return {
        "machine": machine.name,
        "devices": [f"{d.name}: {d.model}" for d in machine.devices],
        "sources": dict(machine.notes),
        "settings": vars(settings),
        "throughput_bound": bound,
        "equations": rows,
        "optimum": optimum,
        "example": example.figures(example.worked(machine)),
        "paper": PAPER,
        "summary": summary(rows, bound, optimum),
    }


def summary(rows: list[dict[str, Any]], bound: float, optimum: list[dict[str, Any]] | None) -> dict[str, float | None]:
    """Geometric means over all equations; of the bound and of busy devices, over the nine that compute.

    ``planned``: with the time that planning takes added to every run. ``busy_share_all``: over all eleven;
    ``used_share_all``: the same with the time in which data are moved.
    ``coarse_share_percent``: of mkmd's gain over in order, what the coarse phase has already.
    ``gap_to_optimum_percent``: of ``balance``, where the optimum is proven, no kernel split."""
    nine = [r for r in rows if r["equation"] not in MEMORY_BOUND]
    memory = [r for r in rows if r["equation"] in MEMORY_BOUND]

    def mean(key: str, of: list[dict[str, Any]]) -> float:
        return statistics.geometric_mean([r[key] for r in of])

    proven = [r["gap_percent"] for r in optimum or () if r["proven"]]
    coarse, fine = mean("coarse_speedup", rows), mean("mkmd_speedup", rows)
    return {
        "geomean_speedup_coarse": coarse,
        "geomean_speedup_mkmd": fine,
        "geomean_speedup_balance": mean("balance_speedup", rows),
        "geomean_planned_speedup_mkmd": mean("mkmd_planned_speedup", rows),
        "geomean_planned_speedup_balance": mean("balance_planned_speedup", rows),
        "share_of_bound_mkmd": mean("mkmd_speedup", nine) / bound,
        "share_of_bound_balance": mean("balance_speedup", nine) / bound,
        "memory_bound_least_speedup_mkmd": min(r["mkmd_speedup"] for r in memory),
        "memory_bound_planned_mkmd": min(r["mkmd_planned_speedup"] for r in memory),
        "memory_bound_least_speedup_balance": min(r["balance_speedup"] for r in memory),
        "host_most_gb_per_s": max(r[f"{label}_host_gb_per_s"] for r in rows for label in POLICIES),
        "coarse_share_percent": 100.0 * (coarse - 1.0) / (fine - 1.0),
        "busy_share": mean("balance_busy", nine),
        "busy_share_mkmd": mean("mkmd_busy", nine),
        "busy_share_all": mean("balance_busy", rows),
        "used_share_all": mean("balance_used", rows),
        "used_share_all_mkmd": mean("mkmd_used", rows),
        "busy_share_in_order": mean("in_order_busy", rows),
        "planning_max_ms": max(max(r["mkmd_planning_ms"], r["balance_planning_ms"]) for r in rows),
        "gap_to_optimum_percent": statistics.mean(proven) if proven else None,
        "optimum_graphs": float(len(proven)),
    }


def timelines(equation: str = "Commutator") -> Mapping[str, Trace]:
    """Figure 12: an equation's traces, in order and by every policy."""
    machine = load_machine(MACHINE)
    given = problem(equation, machine)
    traces = {"in_order": in_order(equation, machine)}
    for policy in POLICIES.values():
        traces[policy] = simulate(given, policy)
    return traces
