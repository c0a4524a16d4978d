"""Section A of issue 42: what all papers need; and C, the pages."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import manycl
from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.applications.planning import described_machine
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Launch
from manycl.machine import HOST, Device, DeviceIndex, Link, Machine
from manycl.machine_file import load_machine
from manycl.model.estimates import Estimates
from manycl.plan.policy import find
from manycl.plan.problem import Problem
from manycl.run.simulation.disturbance import Disturbance, Slowdown
from manycl.run.simulation.simulate import simulate
from manycl.trace import TransferEvent
from manycl_bench import repara
from manycl_bench.repara_graphs import BENCHMARKS
from manycl_bench.repara_rates import Real
from papers_items.item import DATA, RESULTS, Found, device, item, machine, milliseconds, page, problem

STATIC = ("in_order", "heft", "eager", "clustering", "mkmd_coarse", "mkmd", "balance", "repara", "portfolio")
EXAMPLES = Path(manycl.__file__).parent / "examples"
EQUATION, TRANSFORMER = EXAMPLES / "matrix_equation/matrix_equation.json", EXAMPLES / "transformer/transformer.json"


@item(
    "A1", "no policy takes longer than the fastest device alone, way home counted", "MKMD 5.1, REPARA Alg. 4: counted"
)
def way_home() -> Found:
    where = machine(device("cpu0", "60 GFLOP/s", "20 GB/s", 4), device("gpu0", "600 GFLOP/s", "200 GB/s"))
    given = problem(DATA / "home.json", {}, where)
    found = {p: round(milliseconds(given, p), 2) for p in (*STATIC, "adaptive", "auto")}
    nbytes, devices = next(iter(given.graph.buffers.values())).nbytes, where.machine.devices
    each = [given.estimates.launch(0, d) + given.estimates.transfer(nbytes, devices[d].memory, HOST)
            for d in where.machine.indices]  # fmt: skip
    alone = 1e3 * min(each)
    return Found({**found, "one_device_ms": round(alone, 2)}, max(found.values()) <= 1.01 * alone)


@item("A2", "run as planned; by default no slower than one device (2.12 ms)", "REPARA: the plan is what is run")
def as_planned() -> Found:
    of, where = repara.EXPERIMENTS["median filter"], load_machine(repara.MACHINE)
    _, real = repara.problems(BENCHMARKS["median filter"](1024), where, of.profiled)
    plan = find("repara").plan(real)  # type: ignore[union-attr]
    run, default = milliseconds(replace(real, as_planned=True), plan), milliseconds(real, "repara")
    alone = min(1e3 * real.estimates.launch(0, d) for d in where.indices if where.devices[d].memory == HOST)
    figure = {"planned_ms": 1e3 * plan.makespan, "as_planned_ms": run, "by_default_ms": default, "alone_ms": alone}
    return Found(figure, abs(run - 1e3 * plan.makespan) <= 1e-3 * run and default <= 1.001 * alone)


class _Given(Estimates):
    def launch(self, node: int, device: DeviceIndex) -> float:
        return 2e-5

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return 0.0 if source == target else 1e-5 + nbytes / 2e9


def _uploads() -> float:
    """By how much a link of 2 GB/s carries more than that, at most, in a run of 900 kernels with inputs of 60 kB."""
    facts = KernelFacts("k", 1, ())
    program, builder = ProgramFacts("", (), {"k": facts}), GraphBuilder()
    last = builder.buffer(64)
    valid = {last: frozenset({HOST})}
    for i in range(901):
        read, made = builder.buffer(60_000 if i < 900 else 64 << 20), builder.buffer(64)
        valid[read] = frozenset({HOST})
        args = tuple(map(BufferArg, (last, read, made)))
        builder.add(Launch(f"k{i}", program, facts, (64,), (64,), args, (last, read), (made,)))
        last = made
    links = tuple(Link(a, b, bandwidth=2e9, latency=1e-5) for a, b in ((0, 1), (1, 0)))
    where = Machine((Device("gpu0", "gpu", memory=1),), links)
    events = simulate(Problem(builder.build(), where, _Given(), (1,), valid, handover=0.0), "in_order").events
    ups = [e for e in events if isinstance(e, TransferEvent) and e.target == "gpu0"]
    most = 0.0
    for begin in sorted({e.start for e in ups}):  # what begins and ends in a while has to fit into it
        sent = 0
        for e in sorted((e for e in ups if e.start >= begin), key=lambda e: e.end):
            sent += e.nbytes
            most = max(most, sent / (e.end - begin) / 2e9)
    return most


@item("A3", "links carry at most their bandwidth, kernels draw at most their memory's", "MKMD Eq. 6")
def bandwidths() -> Found:
    where, beyond = load_machine(repara.MACHINE), 0
    for name, of in repara.EXPERIMENTS.items():
        benchmark = BENCHMARKS[name](of.sizes[-1])
        real = Real(benchmark, where)
        for n, d in ((n, d) for n in range(len(benchmark.graph)) if benchmark.kernels[n] for d in where.indices):
            seconds = real.launch(n, d) - where.devices[d].launch_overhead
            beyond += real.traffic(n, d) > 1.001 * seconds * where.devices[d].bandwidth
    most = _uploads()
    return Found({"of_a_links_bandwidth": most, "kernels_beyond_a_memory": beyond}, most <= 1.01 and not beyond)


@item("A4", "a GPU 4 times slower in mid-run: 1.6x by default; hop live both simulated in 5 s", "MKMD 5.5: a limit")
def others_use_it() -> Found:
    where, figure = described_machine("mkmd"), dict[str, float]()
    large, many = (EQUATION, {"n": 1024, "m": 8192}), (TRANSFORMER, {"H": 64, "beta": 512})  # of 7 and 513 launches
    runs: list[tuple[str, str, tuple[Path, Mapping[str, object]], Mapping[str, str]]] = [
        *[(name, name, large, {}) for name in ("mkmd", "balance", "auto")],
        ("auto_of_few_ms", "auto", many, {}),
        ("hop", "hop", large, {"live": "yes", "both": "yes"}),
    ]
    for name, policy, (path, size), options in runs:
        given = problem(path, size, where, options=options)
        begin = time.process_time()
        calm = milliseconds(given, policy)  # as manycl simulate does it: to plan, and to follow the plan
        figure[f"{name}_s"] = time.process_time() - begin
        index = DeviceIndex(next(i for i, d in where.machine.numbered() if d.name == "gpu0"))
        slow = Disturbance(slowdowns=(Slowdown(index, 4.0, calm * 1e-4, 10.0),))
        figure[name] = milliseconds(given, policy, disturbance=slow) / calm
    reached = max(figure[name] for name, policy, *_ in runs if policy != "hop") <= 1.6
    return Found(figure, reached and figure["hop_s"] <= 5.0)


@item("A5", "auto divides a one-shot graph, planning counted: within 5 % of balance (175.8 ms)", "MKMD 6: 1.89x")
def one_shot() -> Found:
    given = problem(EQUATION, {"n": 1024, "m": 8192}, described_machine("mkmd"))
    figure = {p: milliseconds(given, p) for p in ("in_order", "balance", "auto")}
    return Found(figure, figure["auto"] <= 1.05 * figure["balance"])


@item("pages", "every page tells commit (one that exists), machine, versions, spread; simulated ones are as today")
def pages() -> Found:
    root = RESULTS.parents[1]
    lacking = []
    for path in sorted(RESULTS.glob("*.md")):
        made = page(path.stem)["made"]
        named = re.match(r"[0-9a-f]{7,40}", made.get("commit") or "")
        told = named and subprocess.run(["git", "cat-file", "-e", f"{named[0]}^{{commit}}"], cwd=root).returncode == 0
        if not (told and made.get("machine") and made.get("versions")):
            lacking.append(path.stem)
    words = [sys.executable, "scripts/results", "--check", "pyschedcl_simulated"]
    checked = subprocess.run(words, cwd=root, capture_output=True)
    figure = {"without_provenance": lacking, "simulated_differs": checked.returncode != 0}
    return Found(figure, not lacking and not checked.returncode)
