"""Libsplit's experiments on the devices that are here: one device, divided evenly, adapted, and the best split found.

An application is adapted from the start several times. The oracle is found by measuring: what ``adaptive`` chose in
each repetition, the even split, every device alone and neighbours of the last splits are run in turns, so whatever
changes on the machine changes for all; then neighbours of the best of these, and the best of each family together.
Whoever is the best of many by measurements that scatter has been lucky, so what was chosen from the fourth repetition
on and the oracle's split are run in turns once more, and only that is compared.

What a division takes is, family by family (kernels that are cut at the same places; families wait for one another), the
time of the slowest device, its kernels and what it waits for data before them, and a handover for every kernel that is
divided. Each device's shortest run counts: others who use the machine make times longer, never shorter.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from manycl.api.queue import Queue
from manycl.machine import HOST, DeviceIndex
from manycl.plan.adapt.families import families
from manycl.plan.policies.adaptive import Adaptive, Ranges
from manycl.plan.policy import StaticPolicy
from manycl.run.graph_cache.cached_graph import CachedGraph
from manycl.run.graph_cache.stalls import waiting
from manycl_bench.libsplit import granularity
from manycl_bench.libsplit.application import Application
from manycl_bench.libsplit.divisions import Fixed, of_family, settled
from manycl_bench.libsplit.registry import APPLICATIONS

Say = Callable[[str], None]
Floats = tuple[float, ...]
Division = tuple[tuple[int, ...], ...]
"""The cuts of every family, in work-groups of its leader: the first one of every device, and the number of all."""
CLOSE = 1.03
WIDE, NARROW = (0.03, 0.08), (0.015,)
"""By which parts of a device's work-groups the neighbours of a split differ from it."""
FAR = 3.0
"""A division that takes so many times as long as the best one is measured once: it is none that is compared."""
TRIES = 5
"""How often an application is adapted from the start."""
JUDGED_FROM = 4
"""The repetition from which on the adapted splits are compared with the oracle's."""
DRIFT_FROM = 2
"""The drifting load counts from the third repetition on."""
SHOWN = 10
"""Iterations of Figure 1 d."""
AGAIN = 7
"""How often a repetition's split is measured while the load stands still."""
MEDIANS = (
    *("alone_ms", "uniform_speedup", "adaptive_speedup", "oracle_speedup"),
    *("within_oracle_percent", "iterations", "settled"),
)
"""What is told of the tries."""


@dataclass(frozen=True)
class Settings:
    """``repetitions`` that are adapted; ``turns`` in which splits are compared; ``seconds`` that an application may
    take for that; ``drifting`` repetitions while the load drifts; ``first`` as the policy's option; ``large``: sizes
    for GPUs; ``names``: of the applications (none: all)."""

    repetitions: int = 8
    turns: int = 300
    seconds: float = 8.0
    drifting: int = 30
    first: str = "estimates"
    large: bool = False
    names: tuple[str, ...] = ()


class Taken(NamedTuple):
    """Seconds of every device, by family, and those of them in which it waited for data."""

    seconds: tuple[Floats, ...]
    moved: tuple[Floats, ...]

    def kernels(self, family: int, device: int) -> float:
        """Seconds that are not waited."""
        return self.seconds[family][device] - self.moved[family][device]


class Bench:
    """An application on a queue: its graph, to be run with one division after another, and all ``runs`` so far."""

    def __init__(self, application: Application, queue: Queue) -> None:
        self.application, self.queue = application, queue
        self.arrays = application.allocate(queue)
        with queue.prepare() as prepared:
            application.enqueue(queue, self.arrays)
        self.graph = prepared.graph
        self.contents = {k: v.copy() for k, v in application.arrays.items()}
        self.problem = queue.session.problem(self.graph)
        self.families = families(self.problem)
        self.devices = queue.session.machine.devices
        self._family = {m.node: i for i, f in enumerate(self.families) for m in f.members}
        self.moves = any(d.memory != HOST for d in self.devices)
        self.runs: dict[Division, list[Taken]] = {}
        self._prepared: dict[Division, CachedGraph] = {}
        self._turn = 0

    def between(self) -> None:
        """The host's code before the next repetition."""
        self._turn += 1
        self.runs.clear()
        if self.application.between is not None:
            for name in self.application.between(self.contents, self._turn):
                self.arrays[name].set(self.contents[name])

    def prepared(self, policy: StaticPolicy, options: Mapping[str, str] | None = None) -> CachedGraph:
        return CachedGraph(self.queue.session, self.graph, policy, queues={}, options=options)

    def chosen(self, policy: Adaptive) -> Division:
        """What the policy's last plan of the graph was."""
        shares, devices = policy.shares(self.graph), range(len(self.devices))
        return tuple(_cuts([shares[f.leader.node].get(d, 0) for d in devices]) for f in self.families)

    def parts(self, shares: Sequence[float]) -> Division:
        """Every family in these parts."""
        return tuple(_cuts([f.leader.groups * s / sum(shares) for s in shares]) for f in self.families)

    def near(self, division: Division, steps: Iterable[float]) -> list[Division]:
        """Divisions in which a device has these parts more, or less, of its work-groups, at least one."""
        every, both = range(len(self.devices)), [s for step in steps for s in (step, -step)]
        return [tuple(_nudged(at, d, step) for at in division) for d in every for step in both]

    def run(self, prepared: CachedGraph) -> Taken:
        """One run of whatever is prepared."""
        result = prepared.run()
        seconds, moved = ([[0.0] * len(self.devices) for _ in self.families] for _ in range(2))
        for m in result.measured():
            if m.step.node in self._family:
                seconds[self._family[m.step.node]][m.device] += m.seconds
        for node, d, waited in waiting(result.trace, self.queue.session.machine) if self.moves else ():
            moved[self._family[node]][d] += waited
            seconds[self._family[node]][d] += waited
        return Taken(tuple(map(tuple, seconds)), tuple(map(tuple, moved)))

    def measure(self, division: Division) -> None:
        """A run with a division; data are where it needs them."""
        if division not in self._prepared:
            ranges: dict[int, Ranges] = {}
            for family, at in zip(self.families, division, strict=True):
                ranges.update(of_family(family, at))
            self._prepared[division] = self.prepared(Fixed(ranges))
        if self.moves:
            self.run(self._prepared[division])
        self.runs.setdefault(division, []).append(self.run(self._prepared[division]))

    def in_turns(self, several: Iterable[Division], turns: int, until: float) -> list[Division]:
        """All divisions, one after another, so many times or until a time (``time.monotonic``), but twice; those that
        take FAR longer than the best only once. Return them."""
        found = wanted = list(dict.fromkeys(several))
        for turn in range(turns):
            if turn > 1 and time.monotonic() > until:
                break
            for division in wanted if turn % 2 == 0 else reversed(wanted):
                self.measure(division)
            best = min(map(self.seconds, wanted))
            wanted = [division for division in wanted if self.seconds(division) < FAR * best]
        return found

    def seconds(self, division: Division) -> float:
        """Of a division that was measured."""
        return sum(self._of_family(f, division) for f in range(len(self.families)))

    def _of_family(self, family: int, division: Division) -> float:
        least: list[float] = [min(of) for of in zip(*(t.seconds[family] for t in self.runs[division]), strict=True)]
        divided = sum(b > a for a, b in pairwise(division[family])) > 1
        return max(least) + (self.problem.handover * len(self.families[family].members) if divided else 0.0)

    def composed(self) -> Division:
        """For every family the cuts with which it took the shortest."""
        best = (min(self.runs, key=lambda d, f=f: self._of_family(f, d)) for f in range(len(self.families)))  # type: ignore[misc]
        return tuple(division[f] for f, division in enumerate(best))


def _cuts(sizes: Sequence[float]) -> tuple[int, ...]:
    return tuple(round(sum(sizes[:d])) for d in range(len(sizes) + 1))


def _nudged(at: Sequence[int], device: int, step: float) -> tuple[int, ...]:
    """Cuts with which a device has that part more, and the others share the rest as before."""
    sizes = [float(b - a) for a, b in pairwise(at)]
    rest, own = sum(sizes) - sizes[device], sizes[device]
    if rest <= 0.0 or own <= 0.0:
        return tuple(at)
    more = own * step
    own = min(max(own + (max(more, 1.0) if more > 0.0 else min(more, -1.0)), 0.0), sum(sizes))
    return _cuts([own if d == device else n * (sum(sizes) - own) / rest for d, n in enumerate(sizes)])


def measure(name: str, devices: str | None, settings: Settings) -> dict[str, Any]:
    """A row: speed-ups over the fastest device alone, how far the adapted split is behind the best one found, and after
    how many repetitions it was within 3 % of that (``iterations``), and stayed so (``settled``): the medians of the
    tries (``counted``: each of these). ``tried`` and ``compared``: how that was found."""
    with Queue(devices, profile=True) as queue:
        return {"application": name, **judged(_bench(name, queue, settings), settings), "load": os.getloadavg()[0]}


def _bench(name: str, queue: Queue, settings: Settings) -> Bench:
    entry = APPLICATIONS[name]
    return Bench(entry.make(entry.large if settings.large else entry.quick), queue)


def judged(bench: Bench, settings: Settings) -> dict[str, Any]:
    """The row of an application."""
    tries = [_adapted(bench, settings) for _ in range(TRIES)]
    bench.problem = bench.queue.session.problem(bench.graph)  # with the handovers that runs have shown
    every, begin = range(len(bench.devices)), time.monotonic()
    alone = [bench.parts([float(d == i) for d in every]) for i in every]
    even = bench.parts([1.0] * len(every))
    known = [division for tried in tries for division in tried]
    turns = max(2, settings.turns // 3)
    bench.in_turns([*known, even, *alone, *bench.near(tries[0][-1], WIDE)], turns, begin + 0.4 * settings.seconds)
    for part in (0.5, 0.6):
        best = [min(bench.runs, key=bench.seconds), bench.composed()]
        wanted = [other for division in best for other in (division, *bench.near(division, NARROW))]
        bench.in_turns(wanted, turns, begin + part * settings.seconds)
    oracle = min(bench.runs, key=bench.seconds)
    late = [division for tried in tries for division in tried[JUDGED_FROM - 1 :]]
    compared = bench.in_turns([*late, oracle], settings.turns, begin + settings.seconds)
    oracle = min(compared, key=bench.seconds)
    seconds = {division: bench.seconds(division) for division in bench.runs}
    single = min(map(seconds.__getitem__, alone))
    rows: list[dict[str, Any]] = []
    for tried in tries:
        ratios = [seconds[division] / seconds[oracle] for division in tried]
        outside = [ratio > CLOSE for ratio in ratios]
        rows.append(
            {
                "alone_ms": 1e3 * single,
                "uniform_speedup": single / seconds[even],
                "adaptive_speedup": single / seconds[tried[-1]],
                "oracle_speedup": single / seconds[oracle],
                "within_oracle_percent": 100.0 * (ratios[-1] - 1.0),
                "iterations": [*outside, False].index(False) + 1,
                "settled": settled(outside),
                "behind_percent": [100.0 * (ratio - 1.0) for ratio in ratios],
            }
        )
    return {
        **{key: statistics.median_high(row[key] for row in rows) for key in MEDIANS},
        "groups": [f.leader.groups for f in bench.families],
        "handover_us": 1e6 * bench.problem.handover,
        "counted": rows,
        "oracle": oracle,
        "tried": tries,
        "compared": [{"cuts": d, "ms": 1e3 * s, "runs": len(bench.runs[d])} for d, s in seconds.items()],
    }


def _adapted(bench: Bench, settings: Settings) -> list[Division]:
    """What is chosen in each repetition, with nothing measured before."""
    bench.queue.session.models.forget()
    policy, tried = Adaptive(), []
    prepared = bench.prepared(policy, {"first": settings.first})
    for _ in range(settings.repetitions):
        prepared.run()
        tried.append(bench.chosen(policy))
    return tried


def drifting(devices: str | None, settings: Settings) -> dict[str, Any]:
    """The N-body whose crowd moves: how much longer than the mean the slowest device takes, per repetition (the
    shortest of some runs with the repetition's split and bodies, of which the policy is told only the first;
    ``single_run_imbalance_percent``: as it was, of that one)."""
    once, found, shares = [], [], []
    with Queue(devices, profile=True) as queue:
        bench = _bench("NBody", queue, settings)
        queue.session.models.forget()
        policy = Adaptive()
        prepared = bench.prepared(policy, {"first": settings.first})
        every = range(len(bench.devices))
        for turn in range(settings.drifting):
            if turn:
                bench.between()
            taken, at = bench.run(prepared), bench.chosen(policy)
            for _ in range(AGAIN):
                bench.measure(at)
            once.append(_imbalance([taken.kernels(0, d) for d in every]))
            found.append(_imbalance([min(t.seconds[0][d] for t in bench.runs[at]) for d in every]))
            shares.append([b - a for a, b in pairwise(at[0])])
    return {
        "imbalance_percent": found,
        "drift_imbalance_percent": max(found[DRIFT_FROM:]),
        "single_run_imbalance_percent": once,
        "shares": shares,
    }


def _imbalance(seconds: Sequence[float]) -> float:
    used = [s for s in seconds if s > 0.0]
    return 100.0 * (max(used) / statistics.mean(used) - 1.0)


def ranges_of(bench: Bench) -> tuple[granularity.Seconds, int]:
    """What ranges take (Figure 1), the shorter of two runs with data in place; all else is on the next device."""
    (family, *_), count = bench.families, len(bench.devices)
    turns = [0]

    def seconds(turn: int, d: DeviceIndex, first: int, groups: int) -> float:
        while turns[0] < turn:
            bench.between()
            turns[0] += 1
        other = DeviceIndex((d + 1) % count)
        cuts = (m.cuts((0, first, first + groups, family.leader.groups)) for m in family.members)
        ranges = {
            m.node: [(where, a, b - a) for where, (a, b) in zip((other, d, other), pairwise(at), strict=True) if b > a]
            for m, at in zip(family.members, cuts, strict=True)
        }
        prepared = bench.prepared(Fixed(ranges))
        bench.run(prepared)  # brings data
        return min(bench.run(prepared).kernels(0, d) for _ in range(2))

    return seconds, family.leader.groups


def run(devices: str | None, settings: Settings, say: Say) -> dict[str, Any]:
    """All applications, Figure 1, and the drifting load."""
    rows = []
    with Queue(devices, profile=True) as queue:
        machine = queue.session.machine
        ranges = granularity.figures(
            lambda name: ranges_of(_bench(name, queue, settings)), machine, min(settings.drifting, SHOWN)
        )
    for name in settings.names or APPLICATIONS:
        row = measure(name, devices, settings)
        say(
            f"{name}: uniform {row['uniform_speedup']:.2f}x, adaptive {row['adaptive_speedup']:.2f}x, "
            f"best found {row['oracle_speedup']:.2f}x, {row['within_oracle_percent']:.1f} % behind, "
            f"{row['iterations']} iterations"
        )
        rows.append(row)
    found = {"granularity": ranges, "applications": rows, "drifting": drifting(devices, settings)}
    return {"settings": vars(settings), "devices": [d.name for d in machine.devices], **found}
