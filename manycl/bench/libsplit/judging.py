"""Divisions of an application's kernels, measured beside each other on the devices that are here.

What a division takes is, family by family (kernels that are cut at the same places; families wait for one another), the
time of the slowest device, and a handover for every kernel that is divided. Of several runs each device's shortest
counts: others who use the machine make times longer, never shorter; and where a device took less time for all of a
range than for a part of it, neither is believed but what is between them. A device's time is that of its kernels, and
how long it waits for data before them, in a run that finds data where the one before has left them: for what moves in
every repetition. Where devices share the host's memory that is nothing, and what the cuts of a family take does not
depend on where others are cut; elsewhere it does, and divisions are compared as wholes.

All divisions are run in turns, so whatever changes on the machine changes for all; a run from which processor time is
missing (kernels of CPU devices took longer than the processor worked for them: others used it) is repeated, at most
twice.
"""

from __future__ import annotations

import math
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
from manycl.run.waiting import waiting
from manycl.trace import Trace

Division = tuple[tuple[int, ...], ...]
"""The cuts of every family, in work-groups of its leader: the first one of every device, and the number of all."""
MISSING = 0.03
"""Part of a run's processor time that may be missing."""
AGAIN = 2
"""How often a run from which more is missing is repeated."""
FAR = 3.0
"""A division that takes so many times as long as the best one is measured once: it is none that is compared."""
LONG, LITTLE = 0.5, 0.01
"""A run is made again, since it brought its data first; but not if it took so many seconds, at most this part of them
for what moved."""


@dataclass(frozen=True)
class Taken:
    """Seconds of every device, by family; the part of the processor's time that is missing; and the seconds that
    every device waited for data, by family (they are part of the first ones)."""

    seconds: tuple[tuple[float, ...], ...]
    missing: float
    moved: tuple[tuple[float, ...], ...] = ()

    def long(self) -> bool:
        """Whether it makes no difference that data were brought first."""
        total = sum(map(max, self.seconds))
        return total >= LONG and sum(map(max, self.moved)) <= LITTLE * total


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
        self.machine = self.queue.session.machine
        self.devices = self.machine.devices
        self._family = {m.node: i for i, f in enumerate(self.families) for m in f.members}
        self.moves = any(d.memory != HOST for d in self.devices)
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
        return self.with_moves(seconds, missing, result.trace if self.moves else None)

    def with_moves(self, kernels: Sequence[Sequence[float]], missing: float, trace: Trace | None) -> Taken:
        """What kernels took (by family, of every device), and what moved for them (no trace: nothing)."""
        moved = [[0.0] * len(self.devices) for _ in self.families]
        if trace is not None:
            for node, d, seconds in waiting(trace, self.machine):
                moved[self._family[node]][d] += seconds
        total = (tuple(a + b for a, b in zip(*rows, strict=True)) for rows in zip(kernels, moved, strict=True))
        return Taken(tuple(total), missing, tuple(map(tuple, moved)))

    def measured(self, division: Division) -> Taken:
        """A run with a division; data are where it needs them, and the processor was its own if that can be had."""
        if division not in self._prepared:
            ranges: dict[int, Ranges] = {}
            for family, at in zip(self.families, division, strict=True):
                ranges.update(divisions.of_family(family, at))
            self._prepared[division] = self.prepared(Fixed(ranges))
        prepared = self._prepared[division]
        found = self.run(prepared)
        if not found.long():
            found = self.run(prepared)
        for _ in range(AGAIN):
            if found.missing > MISSING:
                found = min(found, self.run(prepared), key=lambda t: t.missing)
        return found

    def in_turns(
        self, several: Iterable[Division], turns: int, until: float, least: int = 2, latest: float = math.inf
    ) -> Table:
        """All divisions, one after another, so many times or until a time (``time.monotonic``), then ``least`` times or
        until another; those that take FAR longer than the best only once."""
        table = Table(self)
        wanted = list(dict.fromkeys(several))
        for turn in range(turns if wanted else 0):
            if turn and time.monotonic() > (until if turn >= least else latest):
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

    def devices(self, family: int, at: tuple[int, ...], of: Division | None = None) -> list[float]:
        """Seconds of every device with these cuts of a family, whatever the others had; or in the runs of a
        division, if what moves is that division's."""
        if of in self.runs and self.bench.moves:
            return _least([t.seconds[family] for t in self.runs[of]])
        rows: dict[tuple[int, ...], list[tuple[float, ...]]] = {}
        for division, taken in self.runs.items():
            rows.setdefault(division[family], []).extend(t.seconds[family] for t in taken)
        if self.bench.moves or len(self.bench.devices) != 2:
            return _least(rows[at])
        cuts = sorted(rows)  # nested: the first device's range grows with each, the second one's shrinks
        first, second = zip(*(_least(rows[c]) for c in cuts), strict=True)
        weights = [float(len(rows[c])) for c in cuts]
        growing = _rising(first, weights)[cuts.index(at)]
        return [growing, _rising(second[::-1], weights[::-1])[::-1][cuts.index(at)]]

    def family_seconds(self, family: int, at: tuple[int, ...], of: Division | None = None) -> float:
        found = self.devices(family, at, of)
        divided = sum(b > a for a, b in pairwise(at)) > 1
        members = self.bench.families[family].members
        return max(found) + (self.bench.problem.handover * len(members) if divided else 0.0)

    def seconds(self, division: Division) -> float:
        """Of a division that was measured as it is, or each of its families."""
        return sum(self.family_seconds(f, at, division) for f, at in enumerate(division))

    def composed(self) -> Division:
        """For every family the cuts with which it took the shortest."""
        out = []
        for f in range(len(self.bench.families)):
            every = dict.fromkeys(division[f] for division in self.runs)
            out.append(min(every, key=partial(self.family_seconds, f)))
        return tuple(out)

    def best(self) -> list[Division]:
        """Those that may be the shortest: the one that is composed of every family's best, and, if its families then
        move other data than they did, the shortest of those that were measured."""
        found = [self.composed()]
        if self.bench.moves:
            found.append(min(self.runs, key=self.seconds))
        return list(dict.fromkeys(found))

    def swapped(self, division: Division) -> list[Division]:
        """That one with one of several families as a whole on a device, or cut as is best for itself; if it matters to
        the others."""
        if not self.bench.moves or len(division) == 1:
            return []
        out = []
        for f, best in enumerate(self.composed()):
            whole = [(0,) * (d + 1) + (best[-1],) * (len(best) - d - 1) for d in range(len(best) - 1)]
            out += [(*division[:f], at, *division[f + 1 :]) for at in (best, *whole) if at != division[f]]
        return out

    def crossings(self) -> Division | None:
        """Of two devices: for every family the cut where, between two that were measured, both would take as long."""
        if len(self.bench.devices) != 2:
            return None
        out: list[tuple[int, ...]] = []
        for f, best in enumerate(self.composed()):
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
                "ms": [[1e3 * s for s in self.devices(f, at, division)] for f, at in enumerate(division)],
                "moved_ms": [
                    [1e3 * statistics.median(s) for s in zip(*of, strict=True)]
                    for of in zip(*(t.moved for t in taken), strict=True)
                ],
                "runs": len(taken),
                "missing": statistics.median(t.missing for t in taken),
            }
            for division, taken in self.runs.items()
        ]


def _least(rows: Sequence[Sequence[float]]) -> list[float]:
    """Of each column."""
    return list(map(min, zip(*rows, strict=True)))


def _rising(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The nearest values that do not fall, by least squares (isotonic regression; Barlow, Bartholomew, Bremner and
    Brunk, *Statistical Inference under Order Restrictions*, 1972: pooling adjacent violators)."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many
    for value, weight in zip(values, weights, strict=True):
        pools.append((value, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, n, i), (b, m, j) = pools[-2:]
            pools[-2:] = [((a * n + b * m) / (n + m), n + m, i + j)]
    return [mean for mean, _, count in pools for _ in range(count)]


def _away_from_0(groups: float) -> float:
    return max(groups, 1.0) if groups > 0.0 else min(groups, -1.0)


def _cuts(sizes: Sequence[float]) -> tuple[int, ...]:
    at = [0.0]
    for size in sizes:
        at.append(at[-1] + size)
    return tuple(map(round, at))
