"""Libsplit's experiments on the devices that are here: one device, divided evenly, adapted, and the best split found.

The oracle is found by measuring: what ``adaptive`` chose in each repetition, the neighbours of its last split (some per
cent more or less for each device), the even one and every device alone are run in turns, several times; medians count.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from manycl.bench.libsplit import divisions
from manycl.bench.libsplit.application import Application
from manycl.bench.libsplit.divisions import Fixed
from manycl.bench.libsplit.registry import APPLICATIONS
from manycl.front.queue import Queue
from manycl.graph.graph import Graph
from manycl.plan.families import families
from manycl.plan.granularity import METHODS
from manycl.plan.policies.adaptive import Adaptive, Ranges
from manycl.plan.policy import StaticPolicy
from manycl.run.engine import Result
from manycl.run.prepared import PreparedGraph

Say = Callable[[str], None]
CLOSE = 1.03
STEPS = (0.03, 0.08)
"""By which parts of a device's work-groups the neighbours of a split differ from it."""
FAR_BEHIND = 2.0
"""How many times the shortest a division takes that is measured once only."""
DRIFT_FROM = 2
"""The drifting load counts from the third repetition on."""


@dataclass(frozen=True)
class Settings:
    """``repetitions`` that are adapted; ``turns`` in which each split is then measured; ``first`` and ``method`` as the
    policy's options; ``large``: sizes for GPUs; ``names``: of the applications (none: all)."""

    repetitions: int = 8
    turns: int = 5
    drifting: int = 30
    first: str = "estimates"
    method: str = METHODS[0]
    large: bool = False
    names: tuple[str, ...] = ()


class Bench:
    """An application on a queue: its graph, to be run with one division after another."""

    def __init__(self, application: Application, queue: Queue) -> None:
        self.application = application
        self.queue = queue
        self.arrays = application.allocate(queue)
        application.enqueue(queue, self.arrays)
        self.graph: Graph = queue.take()
        queue.hold = {}
        self.contents = {k: v.copy() for k, v in application.arrays.items()}
        self._prepared: dict[object, PreparedGraph] = {}
        self._turn = 0

    def between(self) -> None:
        """The host's code before the next repetition."""
        self._turn += 1
        if self.application.between is not None:
            for name in self.application.between(self.contents, self._turn):
                self.arrays[name].set(self.contents[name])

    def fixed(self, ranges: Mapping[int, Ranges]) -> PreparedGraph:
        """The graph, prepared with a division."""
        key = _key(ranges)
        if key not in self._prepared:
            self._prepared[key] = self.prepared(Fixed(ranges))
        return self._prepared[key]

    def prepared(self, policy: StaticPolicy, options: Mapping[str, str] | None = None) -> PreparedGraph:
        return PreparedGraph(self.queue.session, self.graph, policy, queues={}, options=options)

    def in_turns(self, splits: Sequence[Mapping[int, Ranges]], turns: int) -> list[float]:
        """Median seconds of each division; data are where it needs them when time is taken. What is far behind after
        the first turn is not run again."""
        taken: list[list[float]] = [[] for _ in splits]
        for turn in range(turns):
            least = min((found[0] for found in taken if found), default=float("inf"))
            for found, ranges in zip(taken, splits, strict=True):
                if turn and found[0] > FAR_BEHIND * least:
                    continue
                prepared = self.fixed(ranges)
                prepared.run()
                found.append(busy(prepared.run(), len(self.queue.devices)))
        return [statistics.median(t) for t in taken]


def busy(result: Result, devices: int) -> float:
    """Seconds that the slowest device's kernels took, all together: what the split decides."""
    taken = [0.0] * devices
    for m in result.measured():
        taken[m.device] += m.seconds
    return max(taken)


def _key(ranges: Mapping[int, Ranges]) -> object:
    return tuple(sorted((n, tuple(r for r in of if r[2])) for n, of in ranges.items()))


def _division(policy: Adaptive, graph: Graph) -> dict[int, Ranges]:
    """What the policy's last plan of a graph was."""
    out: dict[int, Ranges] = {}
    for node, of in policy.shares(graph).items():
        at, ranges = 0, list[tuple[int, int, int]]()
        for device, count in sorted(of.items()):
            ranges.append((device, at, count))
            at += count
        out[node] = ranges
    return out


def measure(name: str, devices: str | None, settings: Settings) -> dict[str, Any]:
    """A row: speed-ups over the fastest device alone, how far the adapted split is behind the best one found, and after
    how many repetitions it was within 3 % of that."""
    entry = APPLICATIONS[name]
    with Queue(devices) as queue:
        bench = Bench(entry.make(entry.large if settings.large else entry.quick), queue)
        count = len(queue.devices)
        policy = Adaptive()
        prepared = bench.prepared(policy, {"first": settings.first, "method": settings.method})
        chosen = []
        for _ in range(settings.repetitions):
            prepared.run()
            chosen.append(_division(policy, bench.graph))
        problem = queue.session.problem(bench.graph)
        even = divisions.parts(problem, [1.0] * count)
        single = [divisions.alone(problem, d) for d in range(count)]
        near = [_nudged(problem, chosen[-1], d, step) for d in range(count) for s in STEPS for step in (s, -s)]
        every = {_key(s): s for s in [*chosen, even, *single, *near]}
        medians = dict(zip(every, bench.in_turns(list(every.values()), settings.turns), strict=True))
    alone = min(medians[_key(s)] for s in single)
    best = min(medians.values())
    taken = [medians[_key(s)] for s in chosen]
    late = [i for i, t in enumerate(taken) if t > CLOSE * best]
    return {
        "application": name,
        "alone_ms": 1e3 * alone,
        "uniform_speedup": alone / medians[_key(even)],
        "adaptive_speedup": alone / taken[-1],
        "oracle_speedup": alone / best,
        "within_oracle_percent": 100.0 * (taken[-1] / best - 1.0),
        "iterations": late[-1] + 2 if late else 1,
    }


def _nudged(problem: Any, division: Mapping[int, Ranges], device: int, step: float) -> dict[int, Ranges]:
    """A division in which a device has that part more of its work-groups."""
    out: dict[int, Ranges] = {}
    count = len(problem.machine.devices)
    for family in families(problem):
        groups = float(family.leader.groups)
        sizes = [0.0] * count
        for d, _, n in division[family.leader.node]:
            sizes[d] = float(n)
        rest = groups - sizes[device]
        more = min(sizes[device] * (1.0 + step), groups)
        if rest > 0.0:
            left = (groups - more) / rest
            sizes = [more if d == device else n * left for d, n in enumerate(sizes)]
        at = [0.0]
        for size in sizes:
            at.append(at[-1] + size)
        out.update(divisions.of_family(family, [*map(round, at[:-1]), family.leader.groups]))
    return out


def drifting(devices: str | None, settings: Settings) -> dict[str, Any]:
    """The N-body whose crowd moves: how much longer than the mean the slowest device takes, per repetition."""
    entry = APPLICATIONS["NBody"]
    with Queue(devices) as queue:
        bench = Bench(entry.make(entry.large if settings.large else entry.quick), queue)
        prepared = bench.prepared(Adaptive(), {"first": settings.first, "method": settings.method})
        found = []
        for turn in range(settings.drifting):
            if turn:
                bench.between()
            taken: dict[int, float] = {}
            for m in prepared.run().measured():
                taken[m.device] = taken.get(m.device, 0.0) + m.seconds
            found.append(100.0 * (max(taken.values()) / statistics.mean(taken.values()) - 1.0))
    return {"imbalance_percent": found, "drift_imbalance_percent": max(found[DRIFT_FROM:])}


def run(devices: str | None, settings: Settings, say: Say) -> dict[str, Any]:
    """All applications, and the drifting load."""
    rows = []
    for name in settings.names or APPLICATIONS:
        row = measure(name, devices, settings)
        say(
            f"{name}: uniform {row['uniform_speedup']:.2f}x, adaptive {row['adaptive_speedup']:.2f}x, "
            f"best found {row['oracle_speedup']:.2f}x, {row['within_oracle_percent']:.1f} % behind, "
            f"{row['iterations']} iterations"
        )
        rows.append(row)
    return {"settings": vars(settings), "applications": rows, "drifting": drifting(devices, settings)}
