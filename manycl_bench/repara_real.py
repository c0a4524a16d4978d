"""REPARA's benchmarks on the devices that are here: what the chosen plan takes, beside what was planned, and others.

Every device first runs each benchmark alone, and in halves, which are the profiles; ``repara`` plans with what was
measured; then its plan and others, each device alone and a sample of all valid ones, run in turns. Every run begins
with its inputs on the host alone, and ends when the results are there. All plans' results are compared; those of
devices that are alike, bit for bit.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from manycl.errors import ManyclError, ResultError
from manycl.graph.graph import BufferKey, Graph
from manycl.machine import Machine
from manycl.plan.plan import Plan
from manycl.plan.problem import Problem
from manycl.run.session.session import Session
from manycl.run.simulation.simulate import simulate
from manycl.trace import KernelEvent, TransferEvent
from manycl_bench import pages, provenance
from manycl_bench.pages import table
from manycl_bench.repara import Settings, combinations, laid_out, static, valid_ways
from manycl_bench.repara_graphs import BENCHMARKS, Benchmark

SIZES = {"stencil": 2048, "transitive closure": 512, "LUD": 512, "GEMM": 512, "Monte Carlo": 1 << 14}
SIZES |= {"median filter": 1024, "bitonic sort": 1 << 18}
"""Milliseconds to tens of them on two cores. S3D's rates need its data, which the paper does not give."""
PROFILES = 5
"""Runs of each plan that is a profile, after one that does not count: first runs pin memory and wake devices, and what
they took of the best device too much, other plans would seem to gain."""


def run(devices: str | None, settings: Settings, turns: int, say: Callable[[str], None]) -> dict[str, Any]:
    """All benchmarks (with ``settings.sizes`` the first so many), each plan so many turns."""
    rows = []
    for name in list(SIZES)[: settings.sizes or None]:
        with Session(devices, profile=True, remember=False) as session:
            if len(session.machine.devices) < 2:
                raise ManyclError(f"--devices {devices}: bench repara needs two devices at least")
            rows.append(_measure(session, BENCHMARKS[name](SIZES[name]), settings, turns))
        r = rows[-1]
        say(f"{name}: planned {r['planned_ms']:.2f} ms, {r['ms']:.2f} measured, {r['best_ms']:.2f} the best of others")
    off, share = ([r[key] for r in rows] for key in ("off_percent", "percent_of_best"))
    summary = {"median_off_percent": statistics.median(map(abs, off)), "most_off_percent": max(map(abs, off))}
    summary |= {"mean_percent_of_best": statistics.mean(share), "least_percent_of_best": min(share)}
    return {"settings": {**vars(settings), "turns": turns}, "results": rows, "summary": summary}


def _measure(session: Session, of: Benchmark, settings: Settings, turns: int) -> dict[str, Any]:
    graph, chance = of.graph, np.random.default_rng(1)
    given = {}
    for key, buffer in graph.buffers.items():
        session.buffers.adopt(buffer)
        if key in of.valid:
            given[key] = _contents(of.name, buffer.nbytes, chance).view(np.uint8)
            session.buffers.overwrite(key)[:] = given[key]
    problem = session.problem(graph)
    ways = [valid_ways(problem, n) for n in range(len(graph))]
    alone = [laid_out(problem, [w[min(d, len(w) - 1)] for w in ways]) for d in problem.machine.indices]
    half = [next((w for w in node if len(w) > 1 and abs(w[0].groups - w[1].groups) <= 1), node[0]) for node in ways]
    _, expected = _run(session, graph, given, alone[0])
    profiles = _in_turns(session, graph, given, [*alone, laid_out(problem, half)], PROFILES, lambda found: None)
    _on_host(session, given)  # as every run begins: what a problem's devices hold is not brought again
    problem = with_host_time(session.problem(graph), alone, [statistics.median(seconds) for seconds in profiles])
    plans = [static("repara").plan(problem), *alone]
    plans += [laid_out(problem, c) for c in combinations(ways, min(settings.sample, 12), settings.seed)]
    planned = simulate(problem, plans[0]).makespan

    def check(found: list[Any]) -> None:
        if not all(_same(problem.machine, of, a, b) for a, b in zip(found, expected, strict=True)):
            raise ResultError(f"{of.name}: the results of a plan are not those of one device")

    taken = _in_turns(session, graph, given, plans, turns, check)
    ms = [1e3 * statistics.median(t) for t in taken]
    return {
        "benchmark": of.name,
        "size": of.size,
        "planned_ms": 1e3 * planned,
        "ms": ms[0],
        "off_percent": 100.0 * (1e3 * planned / ms[0] - 1.0),
        "alone_ms": min(ms[1 : 1 + len(alone)]),
        "best_ms": min(ms[1:]),
        "percent_of_best": 100.0 * min(ms) / ms[0],
        "plans": len(plans),
        "samples_ms": [1e3 * seconds for seconds in taken[0]],
    }


def _in_turns(
    session: Session,
    graph: Graph,
    given: Mapping[BufferKey, Any],
    plans: Sequence[Plan],
    turns: int,
    check: Callable[[list[Any]], None],
) -> list[list[float]]:
    """Seconds of every plan in so many turns, after one that does not count: plans run in another order each time."""
    taken: list[list[float]] = [[] for _ in plans]
    for turn in range(1 + turns):
        for i in random.Random(turn).sample(range(len(plans)), len(plans)):
            seconds, found = _run(session, graph, given, plans[i])
            check(found)
            taken[i] += [seconds] if turn else []
    return taken


def with_host_time(problem: Problem, alone: Sequence[Plan], seconds: Sequence[float]) -> Problem:
    """Return the problem on a machine whose devices' commands take the host so long that each device alone takes as
    long as measured (``seconds``): to enqueue, to launch and to wait, all that drivers and the engine need beside what
    devices do, which is what profiles have."""
    for index, (plan, measured) in enumerate(zip(alone, seconds, strict=False)):
        for _ in range(3):  # what is enqueued while the device computes costs nothing
            trace = simulate(problem, plan)
            commands = sum(isinstance(e, KernelEvent | TransferEvent) for e in trace.events)
            more = (measured - trace.makespan) / max(1, commands)
            devices = list(problem.machine.devices)
            known = devices[index]
            copy, kernel = (max(0.0, s + more) for s in (known.enqueuing_copy, known.enqueuing))
            devices[index] = replace(known, enqueuing=kernel, enqueuing_copy=copy)
            problem = replace(problem, machine=replace(problem.machine, devices=tuple(devices)))
    return problem


def _same(machine: Machine, of: Benchmark, found: Any, expected: Any) -> bool:
    if len({d.model for d in machine.devices}) == 1 or of.name == "transitive closure":
        return np.array_equal(found, expected)
    return np.allclose(found.view(np.float32), expected.view(np.float32), rtol=1e-3, atol=1e-3)


def _contents(name: str, nbytes: int, chance: np.random.Generator) -> Any:
    """Relations are of bytes, everything else of floats; a matrix to be decomposed has a strong diagonal."""
    if name == "transitive closure":
        return (chance.random(nbytes) < 0.01).astype(np.uint8)
    found = chance.random(nbytes // 4, np.float32)
    if name == "LUD":
        n = int(np.sqrt(len(found)))
        found[: n * n : n + 1] += n
    return found


def _on_host(session: Session, given: Mapping[BufferKey, Any]) -> None:
    """The inputs are on the host alone."""
    for key, contents in given.items():
        session.buffers.overwrite(key)[:] = contents


def _run(session: Session, graph: Graph, given: Mapping[BufferKey, Any], plan: Plan) -> tuple[float, list[Any]]:
    """Seconds of a run that begins with its inputs on the host alone, and what it leaves there."""
    _on_host(session, given)
    seconds = session.run(graph, plan).seconds
    return seconds, [np.array(session.buffers.host(key)) for key in graph.nodes[-1].reads]


def write(figures: Mapping[str, Any], folder: Path) -> None:
    """``repara_real.json`` and ``repara_real.md``, in a folder that is made if need be."""
    pages.write(folder, "repara_real", figures, page(figures))


def page(figures: Mapping[str, Any]) -> Iterator[str]:
    """The page of results, in Markdown."""
    yield "# REPARA's benchmarks on real devices\n"
    yield from provenance.header(figures, "repara_real", "`samples_ms`: every run", provenance.SPREAD)
    yield (__doc__ or "").partition("\n\n")[2]
    head = [
        "benchmark",
        "size",
        "planned, ms",
        "measured",
        "planned is off",
        "best device",
        "best of all",
        "plans",
        "%",
    ]
    rows = ([r["benchmark"], str(r["size"]), f"{r['planned_ms']:.2f}", provenance.with_spread(r["samples_ms"]),
             f"{r['off_percent']:+.1f} %", f"{r['alone_ms']:.2f}", f"{r['best_ms']:.2f}", str(r["plans"]),
             f"{r['percent_of_best']:.0f}"] for r in figures["results"])  # fmt: skip
    yield from table(head, rows)
    yield from table(["", ""], ([k.replace("_", " "), f"{v:.1f}"] for k, v in figures["summary"].items()))
