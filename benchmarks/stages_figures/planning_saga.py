"""Makespans beside those of anrg-saga's 23 schedulers: the same graphs, costs and transfers, no kernel split.

saga_ratio: the makespan of our best policy over the best of theirs, averaged over all graphs; saga_worst: the largest.
Needs ``pip install -e .[bench]``, but for ``--quick``. ``--repeats``: graphs of each family, size and ratio of
communication to computation.

The conversion is exact. A task of cost c takes c / s seconds on a node of speed s, data of b bytes take b / w seconds
on a link of speed w between two nodes and none inside a node, whatever else is under way (``contention=no``). For us
every edge is a buffer of its own, every node a device with a memory of its own, and no way leads by the host. Every
schedule of theirs is put to our judge of plans; one that is not valid counts for nothing, and is named.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import multiprocessing
import random
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Launch
from manycl.machine import HOST, Device, DeviceIndex, Machine
from manycl.model.estimates import Estimates
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policy import StaticPolicy, find
from manycl.plan.problem import Problem
from manycl.plan.verification.verify import verify

Edges = dict[tuple[int, int], int]
OURS = ("portfolio", "peft", "cpop")
RECORDED = Path(__file__).parents[2] / "tests" / "plan" / "policies" / "saga_makespans.json"
EXACT = ("BruteForceScheduler", "SMTScheduler")
WITHIN = 1e300
"""Bytes per second inside a node: no time in floating point, yet a number that SMT can divide by."""
LIMIT = 20.0
"""Seconds that one scheduler may take for one graph: some list all paths, of which there can be exponentially many."""
MOST_FOR_EXACT = 5
"""Tasks of the largest graph that the two schedulers of exponential time are asked about."""


@dataclass(frozen=True)
class Instance:
    """Tasks (an operation count each), edges (bytes), and a network: speeds of nodes and of the links between."""

    family: str
    costs: tuple[float, ...]
    edges: Edges
    speeds: tuple[float, ...]
    links: Mapping[tuple[int, int], float]


# graphs: nodes from 0, edges from low to high, one entry and one exit


def out_tree(rng: random.Random, size: int) -> set[tuple[int, int]]:
    """Each node has one predecessor; the leaves are joined at the end."""
    return _close({(rng.randrange(max(0, (n - 1) // 3), n), n) for n in range(1, size - 1)}, size)


def in_tree(rng: random.Random, size: int) -> set[tuple[int, int]]:
    return {(size - 1 - b, size - 1 - a) for a, b in out_tree(rng, size)}


def chains(rng: random.Random, size: int) -> set[tuple[int, int]]:
    """Parallel chains between an entry and an exit."""
    width = max(2, round(math.sqrt(size) * rng.uniform(0.5, 1.5)))
    return _close({(n - width, n) for n in range(width + 1, size - 1)}, size)


def layered(rng: random.Random, size: int) -> set[tuple[int, int]]:
    """Layers of random width; each node needs some of the layer before, few of the one before that."""
    layers: list[list[int]] = [[0]]
    n = 1
    while n < size - 1:
        width = min(size - 1 - n, max(1, round(math.sqrt(size) * rng.uniform(0.3, 1.7))))
        layers.append(list(range(n, n + width)))
        n += width
    edges: set[tuple[int, int]] = set()
    for i in range(1, len(layers)):
        for node in layers[i]:
            edges.update((p, node) for p in rng.sample(layers[i - 1], rng.randint(1, min(4, len(layers[i - 1])))))
            if i > 1 and rng.random() < 0.3:
                edges.add((rng.choice(layers[i - 2]), node))
    return _close(edges, size)


def random_order(rng: random.Random, size: int) -> set[tuple[int, int]]:
    """Erdos and Renyi: every pair from low to high is an edge with the same probability."""
    chance = min(1.0, 3.0 / size)
    return _close({(a, b) for a in range(size - 1) for b in range(a + 1, size) if rng.random() < chance}, size)


def fork_join(rng: random.Random, size: int) -> set[tuple[int, int]]:
    """Forks and joins one after another."""
    edges: set[tuple[int, int]] = set()
    hub = 0
    while hub < size - 1:
        join = min(size - 1, hub + rng.randint(3, 8))
        for n in range(hub + 1, join):
            edges |= {(hub, n), (n, join)}
        if join == hub + 1:
            edges.add((hub, join))
        hub = join
    return edges


def gauss(rng: random.Random, size: int) -> set[tuple[int, int]]:
    """Gaussian elimination: a pivot, then the columns right of it, for a matrix of about sqrt(2 size) columns."""
    width = max(3, int(math.sqrt(2 * size)))
    edges: set[tuple[int, int]] = set()
    number: dict[tuple[int, int], int] = {}
    for k in range(width - 1):
        for j in range(k, width):
            number[k, j] = len(number)
    for k in range(width - 1):
        for j in range(k + 1, width):
            edges.add((number[k, k], number[k, j]))
            if (k + 1, j) in number:
                edges.add((number[k, j], number[k + 1, j]))
    return _close(edges, len(number))


def fft(rng: random.Random, size: int) -> set[tuple[int, int]]:
    """The butterflies of a fast Fourier transform, after an entry."""
    points = 2 ** max(1, round(math.log2(max(2, size / 4))))
    stages = int(math.log2(points))
    at = {(s, i): 1 + s * points + i for s in range(stages + 1) for i in range(points)}
    edges = {(0, at[0, i]) for i in range(points)}
    for s in range(stages):
        for i in range(points):
            edges |= {(at[s, i], at[s + 1, i]), (at[s, i], at[s + 1, i ^ (1 << s)])}
    return _close(edges, len(at) + 2)


def _close(edges: set[tuple[int, int]], size: int) -> set[tuple[int, int]]:
    """What nothing leads to comes after the first node, what leads to nothing before the last."""
    led, leading = {b for _, b in edges}, {a for a, _ in edges}
    edges |= {(0, n) for n in range(1, size - 1) if n not in led}
    edges |= {(n, size - 1) for n in range(size - 1) if n not in leading and n}
    if 0 not in {a for a, _ in edges}:
        edges.add((0, size - 1))
    if size - 1 not in {b for _, b in edges}:
        edges.add((0, size - 1))
    return edges


FAMILIES: tuple[Callable[[random.Random, int], set[tuple[int, int]]], ...] = (
    out_tree, in_tree, chains, layered, random_order, fork_join, gauss, fft,
)  # fmt: skip


def instances(
    count: int, sizes: Sequence[int], ratios: Sequence[float] = (0.2, 1.0, 5.0), seed: int = 1
) -> Iterator[Instance]:
    """``count`` graphs of every family, size and ratio (mean time of a transfer over that of a task), three to five
    nodes whose speeds differ up to four times and links up to three times."""
    rng = random.Random(seed)
    for family in FAMILIES:
        for size in sizes:
            for ratio in ratios:
                for _ in range(count):
                    shape = sorted(family(rng, size))
                    tasks = 1 + max(max(e) for e in shape)
                    nodes = range(rng.randint(3, 5) if size > MOST_FOR_EXACT else 2)
                    costs = tuple(rng.uniform(1.0, 10.0) for _ in range(tasks))
                    edges = {e: rng.randint(100, 1000) for e in shape}
                    speeds = tuple(rng.uniform(0.5, 2.0) for _ in nodes)
                    task = statistics.mean(costs) / statistics.mean(speeds)
                    speed = statistics.mean(edges.values()) / (ratio * task)
                    links = {(a, b): speed * rng.uniform(0.5, 1.5) for a in nodes for b in nodes if a < b}
                    yield Instance(family.__name__, costs, edges, speeds, links)


# ours


class Costs(Estimates):
    """An instance's times; nothing goes by the host."""

    def __init__(self, of: Instance) -> None:
        self.of = of

    def launch(self, node: int, device: DeviceIndex) -> float:
        return self.of.costs[node] / self.of.speeds[device]

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        if source == target:
            return 0.0
        if HOST in (source, target):
            return math.inf
        a, b = sorted((source - 1, target - 1))
        return nbytes / self.of.links[a, b]


def as_problem(of: Instance, options: Mapping[str, str] | None = None) -> Problem:
    builder = GraphBuilder()
    keys = {edge: builder.buffer(size) for edge, size in of.edges.items()}
    facts = KernelFacts("task", 1, ())
    program = ProgramFacts("", (), {"task": facts})
    for node in range(len(of.costs)):
        reads = tuple(key for (_, b), key in keys.items() if b == node)
        writes = tuple(key for (a, _), key in keys.items() if a == node)
        args = tuple(BufferArg(key) for key in (*reads, *writes))
        builder.add(Launch(f"t{node}", program, facts, (1,), None, args, reads, writes))
    machine = Machine(tuple(Device(f"n{i}", "gpu", memory=1 + i) for i in range(len(of.speeds))))
    return Problem(
        graph=builder.build(),
        machine=machine,
        estimates=Costs(of),
        queues=(1,) * len(of.speeds),
        options={"contention": "no", **(options or {})},
        handover=0.0,
    )


def our_makespan(of: Instance, policy: str) -> tuple[float, float]:
    """Makespan of a valid plan, and the seconds it took to plan."""
    problem = as_problem(of)
    chosen = find(policy)
    assert isinstance(chosen, StaticPolicy)
    begin = time.perf_counter()
    plan = chosen.plan(problem)
    taken = time.perf_counter() - begin
    verify(plan, problem.graph, problem.machine, problem)
    return plan.makespan, taken


# theirs


def schedulers() -> dict[str, Any]:
    """The 23 of anrg-saga by name, made as they come. Hybrid takes the best of those it is given: three quick ones, as
    all of them run anyway."""
    from saga import schedulers as module

    made = {name: getattr(module, name) for name in module.__all__}
    out = {name: kind() for name, kind in made.items() if name != "HybridScheduler"}
    quick = [out[f"{name}Scheduler"] for name in ("Heft", "Cpop", "Duplex")]
    return {**out, "HybridScheduler": made["HybridScheduler"](quick)}


def as_saga(of: Instance) -> tuple[Any, Any]:
    """Network and task graph; names sort as the numbers do."""
    from saga import Network, TaskGraph

    nodes = [(f"n{i}", speed) for i, speed in enumerate(of.speeds)]
    links = [(f"n{a}", f"n{b}", speed) for (a, b), speed in of.links.items()]
    links += [(name, name, WITHIN) for name, _ in nodes]
    tasks = [(f"t{i:04}", cost) for i, cost in enumerate(of.costs)]
    edges = [(f"t{a:04}", f"t{b:04}", float(size)) for (a, b), size in of.edges.items()]
    return Network.create(nodes, links), TaskGraph.create(tasks, edges)


def as_plan(schedule: Any, of: Instance, name: str) -> Plan:
    """One of their schedules in our form; makespan and times as they say."""
    members = [
        Assignment(int(task.name[1:]), DeviceIndex(int(node[1:])), 0, task.start, task.end)
        for node, tasks in schedule.items()
        for task in tasks
    ]
    members.sort(key=lambda a: (a.start, a.end, a.node))
    return Plan(tuple(members), name, tuple(f"n{i}" for i in range(len(of.speeds))), schedule.makespan)


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """TimeoutError after so many seconds (on POSIX, in the main thread)."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no schedule within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def their_makespans(of: Instance) -> dict[str, float | str]:
    """The makespan of each scheduler, or why there is none."""
    logging.disable(logging.CRITICAL)
    network, graph = as_saga(of)
    problem = as_problem(of)
    out: dict[str, float | str] = {}
    for name, scheduler in schedulers().items():
        if name in EXACT and len(of.costs) > MOST_FOR_EXACT:
            continue
        try:
            with _limited(LIMIT):
                plan = as_plan(scheduler.schedule(network, graph), of, name)
        except Exception as error:
            out[name] = f"{type(error).__name__}: {error}"
            continue
        try:
            verify(plan, problem.graph, problem.machine, problem)
            out[name] = plan.makespan
        except PolicyError as error:
            out[name] = str(error).splitlines()[1].strip(" -")
    return out


@dataclass(frozen=True)
class Outcome:
    """One instance: makespans of ours and theirs, seconds that each of ours took to plan."""

    family: str
    tasks: int
    ours: dict[str, float]
    seconds: dict[str, float]
    theirs: dict[str, float | str]

    @property
    def best(self) -> float:
        """The shortest valid schedule of theirs."""
        return min(m for m in self.theirs.values() if isinstance(m, float))


def compare(of: Instance, theirs: Mapping[str, float | str] | None = None) -> Outcome:
    """``theirs``: their makespans, if somebody knows them."""
    ours = {name: our_makespan(of, name) for name in OURS}
    return Outcome(
        of.family,
        len(of.costs),
        {name: m for name, (m, _) in ours.items()},
        {name: s for name, (_, s) in ours.items()},
        dict(their_makespans(of) if theirs is None else theirs),
    )


def quick() -> list[Outcome]:
    """The smallest graphs, beside what was recorded of theirs: what ``--quick`` compares, without anrg-saga."""
    known = {e["fingerprint"]: e for e in json.loads(RECORDED.read_text(encoding="utf-8"))}
    small = [of for of in recorded() if len(of.costs) <= MOST_FOR_EXACT]
    return [compare(of, {(e := known[fingerprint(of)])["scheduler"]: e["makespan"]}) for of in small]


def figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What the benchmark prints."""
    out: dict[str, Any] = {}
    for name in OURS:
        ratios = [o.ours[name] / o.best for o in outcomes]
        suffix = "" if name == OURS[0] else f"_{name}"
        out[f"saga_ratio{suffix}"] = statistics.mean(ratios)
        out[f"saga_worst{suffix}"] = max(ratios)
    out["policy"] = OURS[0]
    out["graphs"] = len(outcomes)
    out["largest_graph"] = max(o.tasks for o in outcomes)
    out["planning_max_s"] = max(o.seconds[OURS[0]] for o in outcomes)
    valid: dict[str, int] = {}
    reasons: dict[str, str] = {}
    for o in outcomes:
        for name, found in o.theirs.items():
            valid[name] = valid.get(name, 0) + isinstance(found, float)
            if isinstance(found, str):
                reasons.setdefault(name, found)
    out["schedulers"] = len(valid)
    out["valid_schedules"] = valid
    out["why_not_valid"] = reasons
    return out


def standard(count: int) -> list[Instance]:
    """What the figures are about: small graphs, where two of theirs try everything, and larger ones."""
    return [*instances(count, (MOST_FOR_EXACT,)), *instances(count, (20, 40, 60), seed=2)]


def fingerprint(of: Instance) -> float:
    """Different for instances that differ (but for bad luck): to know recorded ones again."""
    return math.fsum((*of.costs, *of.edges.values(), *of.speeds, *of.links.values()))


def recorded() -> list[Instance]:
    """Instances whose makespans are kept for the tests, which need no anrg-saga then."""
    return [of for of in standard(1) if len(of.costs) <= 40]


def record(path: str) -> None:
    """Write down the best of theirs for each: ``python -c "import planning_saga; planning_saga.record('FILE')"``."""
    lines = []
    for of in recorded():
        theirs = {name: m for name, m in their_makespans(of).items() if isinstance(m, float)}
        name = min(theirs, key=lambda n: (theirs[n], n))
        entry = {"family": of.family, "tasks": len(of.costs), "fingerprint": fingerprint(of), "makespan": theirs[name]}
        lines.append(json.dumps({**entry, "scheduler": name}))
    Path(path).write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def saga_ratio(count: int = 1) -> float | None:
    """The mean for ``count`` graphs of each kind of at most 40 tasks; None where anrg-saga is not installed."""
    if importlib.util.find_spec("saga") is None:
        return None
    wanted = [of for of in standard(count) if len(of.costs) <= 40]
    return statistics.mean(o.ours[OURS[0]] / o.best for o in map(compare, wanted))


def main() -> None:
    args = common.parse(__doc__)
    if args.quick:
        common.report(args, figures(quick()))
        return
    wanted = standard(args.repeats)
    outcomes = []
    with multiprocessing.get_context("spawn").Pool(min(2, multiprocessing.cpu_count())) as pool:
        for done, outcome in enumerate(pool.imap_unordered(compare, wanted), 1):
            outcomes.append(outcome)
            common.progress(f"{done}/{len(wanted)} graphs")
    common.report(args, figures(outcomes))
