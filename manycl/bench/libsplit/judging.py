"""Divisions of an application's kernels, measured beside each other on the devices that are here.

What a division takes is, family by family (kernels that are cut at the same places; families wait for one another), the
time of the slowest device, and a handover for every kernel that is divided: of several runs each device's median. All
divisions are run in turns, so whatever changes on the machine changes for all; a run from which processor time is
missing (kernels of CPU devices took longer than the processor worked for them: others used it) is repeated, at most
twice.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

from manycl.bench.libsplit import divisions
from manycl.bench.libsplit.application import Application
from manycl.bench.libsplit.divisions import Fixed
from manycl.front.queue import Queue
from manycl.graph.graph import Graph
from manycl.machine import HOST
from manycl.plan.families import families
from manycl.plan.policies.adaptive import Adaptive, Ranges
from manycl.plan.policy import StaticPolicy
from manycl.run.prepared import PreparedGraph

Division = tuple[tuple[int, ...], ...]
"""The cuts of every family, in work-groups of its leader: the first one of every device, and the number of all."""
MISSING = 0.03
"""Part of a run's processor time that may be missing."""
AGAIN = 2
"""How often a run from which more is missing is repeated."""
FAR = 3.0
"""A division that takes so many times as long as the best one is measured once: it is none that is compared."""
LONG = 0.5
"""Seconds of kernels after which it makes no difference that a run brought its data first."""


@dataclass(frozen=True)
class Taken:
    """Seconds of every device, by family; the part of the processor's time that is missing."""

    seconds: tuple[tuple[float, ...], ...]
    missing: float


@dataclass
class Bench:
    """An application on a queue: its graph, to be run with one division after another."""

    application: Application
    queue: Queue
    graph: Graph = field(init=False)

    def __post_init__(self) -> None:
        self.arrays = self.application.allocate(self.queue)
        self.application.enqueue(self.queue, self.arrays)
        self.graph = self.queue.take()
        self.queue.hold = {}
        self.contents = {k: v.copy() for k, v in self.application.arrays.items()}
        self.problem = self.queue.session.problem(self.graph)
        self.families = families(self.problem)
        self.devices = self.queue.session.machine.devices
        self._family = {m.node: i for i, f in enumerate(self.families) for m in f.members}
        self._alone = all(d.kind == "cpu" and d.memory == HOST for d in self.devices)
        self._prepared: dict[Division, PreparedGraph] = {}
        self._turn = 0

    def between(self) -> None:
        """The host's code before the next repetition."""
        self._turn += 1
        if self.application.between is not None:
            for name in self.application.between(self.contents, self._turn):
                self.arrays[name].set(self.contents[name])

    def prepared(self, policy: StaticPolicy, options: Mapping[str, str] | None = None) -> PreparedGraph:
        return PreparedGraph(self.queue.session, self.graph, policy, queues={}, options=options)

    def chosen(self, policy: Adaptive) -> Division:
        """What the policy's last plan of the graph was."""
        shares = policy.shares(self.graph)
        out = []
        for family in self.families:
            at = [0]
            for d in range(len(self.devices)):
                at.append(at[-1] + shares[family.leader.node].get(d, 0))
            out.append(tuple(at))
        return tuple(out)

    def parts(self, shares: Sequence[float]) -> Division:
        """Every family in these parts."""
        return tuple(_cuts([f.leader.groups * s / sum(shares) for s in shares]) for f in self.families)

    def nudged(self, division: Division, device: int, step: float) -> Division:
        """A division in which a device has that part more of its work-groups, at least one."""
        out = []
        for at in division:
            sizes = [float(b - a) for a, b in pairwise(at)]
            rest, groups = sum(sizes) - sizes[device], sum(sizes)
            more = min(max(sizes[device] + _away_from_0(sizes[device] * step), 0.0), groups)
            if rest > 0.0 and sizes[device] > 0.0:
                left = (groups - more) / rest
                sizes = [more if d == device else n * left for d, n in enumerate(sizes)]
            out.append(_cuts(sizes))
        return tuple(out)

    def run(self, prepared: PreparedGraph) -> Taken:
        """One run of whatever is prepared."""
        own, all_ = time.thread_time(), time.process_time()
        result = prepared.run()
        worked = (time.process_time() - all_) - (time.thread_time() - own)
        seconds = [[0.0] * len(self.devices) for _ in self.families]
        raw = 0.0
        for m in result.measured():
            raw += m.seconds / self.devices[m.device].slowdown
            if m.step.node in self._family:
                seconds[self._family[m.step.node]][m.device] += m.seconds
        missing = max(0.0, 1.0 - worked / raw) if self._alone and raw > 0.0 else 0.0
        return Taken(tuple(map(tuple, seconds)), missing)

    def measured(self, division: Division) -> Taken:
        """A run with a division; data are where it needs them, and the processor was its own if that can be had."""
        if division not in self._prepared:
            ranges: dict[int, Ranges] = {}
            for family, at in zip(self.families, division, strict=True):
                ranges.update(divisions.of_family(family, at))
            self._prepared[division] = self.prepared(Fixed(ranges))
        prepared = self._prepared[division]
        found = self.run(prepared)
        if sum(map(max, found.seconds)) < LONG:
            found = self.run(prepared)
        for _ in range(AGAIN):
            if found.missing > MISSING:
                found = min(found, self.run(prepared), key=lambda t: t.missing)
        return found

    def in_turns(self, several: Iterable[Division], turns: int, until: float, least: int = 2) -> Table:
        """All divisions, one after another, so many times or until a time (``time.monotonic``), those that take FAR
        longer than the best only once."""
        table = Table(self)
        wanted = list(dict.fromkeys(several))
        for turn in range(turns):
            if turn >= least and time.monotonic() > until:
                break
            for division in wanted if turn % 2 == 0 else reversed(wanted):
                table.add(division, self.measured(division))
            best = min(map(table.seconds, wanted))
            wanted = [division for division in wanted if table.seconds(division) < FAR * best]
        return table


class Table:
    """What divisions took."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.runs: dict[Division, list[Taken]] = {}

    def add(self, division: Division, *taken: Taken) -> None:
        self.runs.setdefault(division, []).extend(taken)

    def join(self, other: Table) -> None:
        for division, taken in other.runs.items():
            self.add(division, *taken)

    def devices(self, family: int, at: tuple[int, ...]) -> list[float]:
        """Median seconds of every device with these cuts of a family, whatever the others had."""
        rows = [t.seconds[family] for division, taken in self.runs.items() if division[family] == at for t in taken]
        return [statistics.median(of) for of in zip(*rows, strict=True)]

    def family_seconds(self, family: int, at: tuple[int, ...]) -> float:
        found = self.devices(family, at)
        divided = sum(b > a for a, b in pairwise(at)) > 1
        members = self.bench.families[family].members
        return max(found) + (self.bench.problem.handover * len(members) if divided else 0.0)

    def seconds(self, division: Division) -> float:
        """Of a division that was measured as it is, or each of its families."""
        return sum(self.family_seconds(f, at) for f, at in enumerate(division))

    def best(self) -> Division:
        """For every family the cuts with which it took the shortest."""
        out = []
        for f in range(len(self.bench.families)):
            every = dict.fromkeys(division[f] for division in self.runs)
            out.append(min(every, key=partial(self.family_seconds, f)))
        return tuple(out)

    def crossings(self) -> Division | None:
        """Of two devices: for every family the cut where, between two that were measured, both would take as long."""
        if len(self.bench.devices) != 2:
            return None
        out: list[tuple[int, ...]] = []
        for f, best in enumerate(self.best()):
            taken = [(at[1], self.devices(f, at)) for at in {d[f] for d in self.runs}]
            later = sorted((cut, t[0] - t[1]) for cut, t in taken if min(t) > 0.0)
            below = [r for r in later if r[1] <= 0.0]
            above = [r for r in later if r[1] > 0.0]
            if below and above and below[-1][0] < above[0][0]:
                (a, x), (b, y) = below[-1], above[0]
                out.append((0, round(a + (b - a) * x / (x - y)), best[-1]))
            else:
                out.append(best)
        return tuple(out)

    def rows(self) -> list[dict[str, Any]]:
        """For a report."""
        return [
            {
                "cuts": division,
                "ms": [[1e3 * s for s in self.devices(f, at)] for f, at in enumerate(division)],
                "runs": len(taken),
                "missing": statistics.median(t.missing for t in taken),
            }
            for division, taken in self.runs.items()
        ]


def _away_from_0(groups: float) -> float:
    return max(groups, 1.0) if groups > 0.0 else min(groups, -1.0)


def _cuts(sizes: Sequence[float]) -> tuple[int, ...]:
    at = [0.0]
    for size in sizes:
        at.append(at[-1] + size)
    return tuple(map(round, at))
