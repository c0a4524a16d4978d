"""Divisions of an application's kernels, measured beside each other on the devices that are here.

What a division takes is, family by family (kernels that are cut at the same places; families wait for one another), the
time of the slowest device, and a handover for every kernel that is divided. A device's time is that of its kernels, and
how long it waits for data before them, in a run that finds data where the one before has left them: for what moves in
every repetition. All divisions are run in turns, so whatever changes on the machine changes for all.

Where devices have memories of their own each device's shortest run counts: others who use the machine make times
longer, never shorter; and divisions are compared as wholes. Only a CPU's kernels are told by all runs, as follows, and
for the speed that it had when it was adapted (``Table.keep``).

Where they share the host's memory nothing moves, and what the cuts of a family take does not depend on where others are
cut. There, processors are as fast as others who use them let them be, each by itself, for seconds or for milliseconds.
So a *reference*, always the same division, near those that are compared, is run before and after every run, and what
counts is how many times as long as in the reference a device took; in seconds: of what the reference takes in one state
of the machine, the same for all divisions (``Bench.state``). And two devices' times hardly differ from one cut to the
next: what a device takes for a range is read off a line through the ranges of about that length (``_level``), so all
runs near it count.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from manycl.api.queue import Queue
from manycl.graph.graph import Graph
from manycl.machine import HOST
from manycl.plan.adapt.families import families
from manycl.plan.policies.adaptive import Adaptive, Ranges
from manycl.plan.policy import StaticPolicy
from manycl.run.graph_cache.cached_graph import CachedGraph
from manycl.run.graph_cache.stalls import waiting
from manycl.trace import Trace
from manycl_bench.libsplit import divisions
from manycl_bench.libsplit.application import Application
from manycl_bench.libsplit.divisions import Fixed

Division = tuple[tuple[int, ...], ...]
"""The cuts of every family, in work-groups of its leader: the first one of every device, and the number of all."""
FAR = 3.0
"""A division that takes so many times as long as the best one is measured once: it is none that is compared."""
LONG, LITTLE = 0.5, 0.01
"""A run is made again, since it brought its data first; but not if it took so many seconds, at most this part of them
for what moved."""


NEAR = 0.1
"""Ranges are of about the same length if the logarithms of that differ by less."""
SLOPE, SLOPE_DOUBT = 1.0, 0.2
"""By which power of a range's length a device's time grows before anything was measured, and how far off that is."""
SCATTER, FAR_OFF = 0.01, 2.0
"""How far a time is off (of its logarithm), at least; one that is off so many times as far as others counts half."""
STEPS = 5
"""In which the runs are found that count less."""

Floats = tuple[float, ...]


@dataclass(frozen=True)
class Taken:
    """Seconds of every device, by family; the seconds that every device waited for data, by family (they are part of
    the first ones); and what the reference took each device just before and after (none: it was not run)."""

    seconds: tuple[Floats, ...]
    moved: tuple[Floats, ...] = ()
    beside: Floats = ()

    def kernels(self, family: int, device: int) -> float:
        """Seconds that are not waited."""
        return self.seconds[family][device] - (self.moved[family][device] if self.moved else 0.0)

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
        with self.queue.prepare() as prepared:
            self.application.enqueue(self.queue, self.arrays)
        self.graph = prepared.graph
        self.contents = {k: v.copy() for k, v in self.application.arrays.items()}
        self.problem = self.queue.session.problem(self.graph)
        self.families = families(self.problem)
        self.machine = self.queue.session.machine
        self.devices = self.machine.devices
        self._family = {m.node: i for i, f in enumerate(self.families) for m in f.members}
        self.moves = any(d.memory != HOST for d in self.devices)
        self._looks: list[Floats] = []
        self.held: Floats = ()
        self.reference = self.parts([1.0 / d.slowdown for d in self.devices])
        self._prepared: dict[Division, CachedGraph] = {}
        self._turn = 0

    def learn(self) -> None:
        """From now on what runs have shown of handovers counts, not what is assumed before there are any."""
        self.problem = self.queue.session.problem(self.graph)

    def between(self) -> None:
        """The host's code before the next repetition."""
        self._turn += 1
        self._looks = []
        if self.application.between is not None:
            for name in self.application.between(self.contents, self._turn):
                self.arrays[name].set(self.contents[name])

    def prepared(self, policy: StaticPolicy, options: Mapping[str, str] | None = None) -> CachedGraph:
        return CachedGraph(self.queue.session, self.graph, policy, queues={}, options=options)

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

    def run(self, prepared: CachedGraph) -> Taken:
        """One run of whatever is prepared."""
        result = prepared.run()
        seconds = [[0.0] * len(self.devices) for _ in self.families]
        for m in result.measured():
            if m.step.node in self._family:
                seconds[self._family[m.step.node]][m.device] += m.seconds
        return self.with_moves(seconds, result.trace if self.moves else None)

    def watched(self, prepared: CachedGraph) -> Taken:
        """The same between two runs of the reference, where devices share memory; the reference that was run last is
        the first one if nothing else has been run since."""
        if self.moves:
            return self.run(prepared)
        before = self._looks[-1] if self._looks else self.look()
        taken = self.run(prepared)
        both = zip(before, self.look(), strict=True)
        return replace(taken, beside=tuple(0.5 * (a + b) for a, b in both))

    def refer(self, division: Division) -> None:
        """To another reference from now on (first: each device has as much as its speed is said to be)."""
        self.reference, self._looks = division, []

    def look(self) -> Floats:
        """What the reference takes each device now."""
        found = self.run(self._fixed(self.reference))
        self._looks.append(tuple(map(sum, zip(*found.seconds, strict=True))))
        return self._looks[-1]

    def state(self) -> Floats:
        """What the reference takes each device in the state of the machine for which divisions are compared: the one
        that is ``held``, or how it was mostly since the host's code ran last."""
        return self.held or tuple(map(statistics.median, zip(*self._looks, strict=True)))

    def with_moves(self, kernels: Sequence[Sequence[float]], trace: Trace | None) -> Taken:
        """What kernels took (by family, of every device), and what moved for them (no trace: nothing)."""
        moved = [[0.0] * len(self.devices) for _ in self.families]
        if trace is not None:
            for node, d, seconds in waiting(trace, self.machine):
                moved[self._family[node]][d] += seconds
        total = (tuple(a + b for a, b in zip(*rows, strict=True)) for rows in zip(kernels, moved, strict=True))
        return Taken(tuple(total), tuple(map(tuple, moved)))

    def measured(self, division: Division) -> Taken:
        """A run with a division; data are where it needs them."""
        prepared = self._fixed(division)
        if self.moves and not (found := self.run(prepared)).long():
            found = self.run(prepared)
        return found if self.moves else self.watched(prepared)

    def _fixed(self, division: Division) -> CachedGraph:
        if division not in self._prepared:
            ranges: dict[int, Ranges] = {}
            for family, at in zip(self.families, division, strict=True):
                ranges.update(divisions.of_family(family, at))
            self._prepared[division] = self.prepared(Fixed(ranges))
        return self._prepared[division]

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
            if turn == 0:
                best = min(map(table.seconds, wanted))
                wanted = [division for division in wanted if table.seconds(division) < FAR * best]
        return table


class Table:
    """What divisions took. ``pace``: what the times of CPUs beside other devices are multiplied by (:meth:`keep`)."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.runs: dict[Division, list[Taken]] = {}
        self.pace: dict[int, float] = {}

    def add(self, division: Division, *taken: Taken) -> None:
        self.runs.setdefault(division, []).extend(taken)

    def join(self, other: Table) -> None:
        for division, taken in other.runs.items():
            self.add(division, *taken)

    def keep(self, several: Iterable[tuple[Division, Taken]]) -> None:
        """From now on CPUs beside other devices are as fast as they were in these runs: there is no reference to tell
        that."""
        self.pace = {}
        known = [(division, taken) for division, taken in several if division in self.runs]
        for d, device in enumerate(self.bench.devices):
            if not (self.bench.moves and device.kind == "cpu"):
                continue
            found = []
            for division, taken in known:
                had = [f for f, at in enumerate(division) if at[d] < at[d + 1]]
                if had:
                    here = sum(self._kernels(f, division[f], d) for f in had)
                    found.append(sum(taken.kernels(f, d) for f in had) / here)
            self.pace[d] = statistics.median(found) if found else 1.0

    def devices(self, family: int, at: tuple[int, ...], of: Division | None = None) -> list[float]:
        """Seconds of every device with these cuts of a family, whatever the others had; or in the runs of a
        division, if what moves is that division's."""
        every = range(len(at) - 1)
        if not self.bench.moves:
            return [self._kernels(family, at, d) for d in every]
        runs = self.runs[of] if of in self.runs else self._with(family, at)
        least = list(map(min, zip(*(t.seconds[family] for t in runs), strict=True)))
        scatter = [d for d in every if self.bench.devices[d].kind == "cpu" and at[d] < at[d + 1]]
        for d in scatter:
            moved = statistics.median(t.moved[family][d] for t in runs)
            least[d] = self._kernels(family, at, d) * self.pace.get(d, 1.0) + moved
        return least

    def _kernels(self, family: int, at: tuple[int, ...], device: int) -> float:
        """Seconds that kernels take a device that others use, too."""
        if at[device] == at[device + 1]:
            return 0.0
        if len(at) == 3:  # of two, the range is known by its length
            near = [(d[family][device + 1] - d[family][device], taken) for d, taken in self.runs.items()]
            found = [(n, t) for n, taken in near if n for t in taken]
        else:
            found = [(at[device + 1] - at[device], t) for t in self._with(family, at)]
        seconds = [(n, t.kernels(family, device) * self._scale(t, device)) for n, t in found]
        return _level(at[device + 1] - at[device], seconds)

    def _scale(self, taken: Taken, device: int) -> float:
        """What a device's times are multiplied by to be as in the state for which divisions are compared."""
        if not taken.beside or not taken.beside[device]:
            return 1.0
        return self.bench.state()[device] / taken.beside[device]

    def _with(self, family: int, at: tuple[int, ...]) -> list[Taken]:
        """Runs in which a family had these cuts."""
        return [t for division, taken in self.runs.items() if division[family] == at for t in taken]

    def family_seconds(self, family: int, at: tuple[int, ...], of: Division | None = None) -> float:
        found = self.devices(family, at, of)
        divided = sum(b > a for a, b in pairwise(at)) > 1
        members = self.bench.families[family].members
        return max(found) + (self.bench.problem.handover * len(members) if divided else 0.0)

    def seconds(self, division: Division) -> float:
        """Of a division that was measured as it is, or each of its families."""
        return sum(self.family_seconds(f, at, division) for f, at in enumerate(division))

    def single(self, division: Division) -> list[float]:
        """Seconds of each run."""
        scales = [[self._scale(t, d) for d in range(len(self.bench.devices))] for t in self.runs[division]]
        return [
            sum(max(s * by for s, by in zip(family, scale, strict=True)) for family in taken.seconds)
            for taken, scale in zip(self.runs[division], scales, strict=True)
        ]

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
                "beside_ms": [1e3 * statistics.median(s) for s in zip(*(t.beside for t in taken), strict=True)],
            }
            for division, taken in self.runs.items()
        ]


def _level(length: float, measured: Sequence[tuple[float, float]]) -> float:
    """Seconds that a device takes for a range of some length, by what it took for ranges of some lengths: a line
    through the logarithms of those that are NEAR, which counts the nearer ones more and those less that are far from it
    (locally weighted regression; Cleveland, *Robust Locally Weighted Regression and Smoothing Scatterplots*, 1979)."""
    points = np.log(np.array([(n / length, s) for n, s in measured if n and s > 0.0]))
    x, y = points[np.abs(points[:, 0]) < NEAR].T
    weights = np.square(1.0 - np.square(x / NEAR))
    counts = np.ones_like(x)
    for _ in range(STEPS):
        w = weights * counts / SCATTER**2
        sums = np.array([[w.sum(), w @ x], [w @ x, w @ (x * x) + SLOPE_DOUBT**-2]])
        level, slope = np.linalg.solve(sums, [w @ y, w @ (x * y) + SLOPE * SLOPE_DOUBT**-2])
        off = np.abs(y - level - slope * x)
        counts = 1.0 / (1.0 + np.square(off / (FAR_OFF * max(float(np.median(off)), SCATTER))))
    return math.exp(level)


def _away_from_0(groups: float) -> float:
    return max(groups, 1.0) if groups > 0.0 else min(groups, -1.0)


def _cuts(sizes: Sequence[float]) -> tuple[int, ...]:
    at = [0.0]
    for size in sizes:
        at.append(at[-1] + size)
    return tuple(map(round, at))
