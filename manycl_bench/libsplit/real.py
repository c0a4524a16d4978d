"""Libsplit's experiments on the devices that are here: one device, divided evenly, adapted, and the best split found.

The oracle is found by measuring: what ``adaptive`` chose in each repetition, the neighbours of its last split, the even
one and every device alone; then the neighbours of the best of these, and where their times cross. Where data move
between families, and so the best of each may not be the best of all, the shortest whole is the best one, too, and both
are changed family by family (``Table.best``, ``Table.swapped``). Whoever is the best of many by measurements that
scatter has been lucky, so its time is no measure: what ``adaptive`` has chosen from its fourth repetition on and the
oracle's split are measured once more, in turns, and only that is compared.

Others who use the processor make one device slower than the other, and the policy rightly follows. So devices are
watched (``judging.py``), and an application is adapted from the start again and again: those tries count in which the
ratio between their speeds changed least, each beside the split that is best for the speeds that they had then, and what
is told is the median of them.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from manycl.api.queue import Queue
from manycl.plan.policies.adaptive import Adaptive
from manycl_bench.libsplit import granularity
from manycl_bench.libsplit.divisions import settled
from manycl_bench.libsplit.judging import Bench, Division, Table, Taken
from manycl_bench.libsplit.registry import APPLICATIONS

Say = Callable[[str], None]
CLOSE = 1.03
WIDE, NARROW = (0.03, 0.08), (0.015,)
"""By which parts of a device's work-groups the neighbours of a split differ from it."""
JUDGED_FROM = 4
"""The repetition from which on the adapted splits are compared with the oracle's."""
DRIFT_FROM = 2
"""The drifting load counts from the third repetition on."""
SHOWN = 10
"""Iterations of Figure 1 d."""
AGAIN, DRIFTS = 7, 8
"""How often a repetition's split is measured while the load stands still; and how often it is followed at most."""
LATEST = 5.0
"""After so many times the seconds that an application may take each division is measured once only."""
TRIES, COUNT = 300, 5
"""How often an application is adapted from the start at most, until the machine did not change in so many of the tries;
so many count."""
DISTURBED, RESTLESS = 0.02, 0.04
"""By which part the ratio between the speeds of devices that share memory may change, and by which the times of
work-groups of others may differ from one repetition to the next, where the machine does not."""
TOGETHER = 0.3
"""What counts of the same in what all devices take together: it changes the split less than what one takes."""
FLAT = 1e-3
"""Lengths of ranges whose squared differences are less have no line."""
PART, FEW = 0.8, 6
"""Of the seconds of an application, what tries may take that are more than so many."""
ALONE = 3
"""How often every device is measured alone."""
MEDIANS = (
    *("alone_ms", "uniform_speedup", "adaptive_speedup", "oracle_speedup"),
    *("within_oracle_percent", "iterations", "settled"),
)
"""What is told of the tries that count."""


@dataclass(frozen=True)
class Settings:
    """``repetitions`` that are adapted; ``turns`` in which splits are compared; ``seconds`` that an application may
    take for that; ``drifting`` repetitions while the load drifts, followed ``drifts`` times at most; ``first`` as the
    policy's option; ``large``: sizes for GPUs; ``names``: of the applications (none: all)."""

    repetitions: int = 8
    turns: int = 300
    seconds: float = 8.0
    drifting: int = 30
    drifts: int = DRIFTS
    first: str = "estimates"
    large: bool = False
    names: tuple[str, ...] = ()

    @property
    def options(self) -> Mapping[str, str]:
        return {"first": self.first}


def measure(name: str, devices: str | None, settings: Settings) -> dict[str, Any]:
    """A row: speed-ups over the fastest device alone, how far the adapted split is behind the best one found, and after
    how many repetitions it was within 3 % of that (``iterations``), and stayed so (``settled``): the medians of the
    tries that were disturbed least, whatever came of them (``counted``: each of these). ``tried``, ``table`` and
    ``compared``: how that was found."""
    with Queue(devices, profile=True) as queue:
        return {"application": name, **judged(_bench(name, queue, settings), settings), "load": os.getloadavg()[0]}


def _bench(name: str, queue: Queue, settings: Settings) -> Bench:
    entry = APPLICATIONS[name]
    return Bench(entry.make(entry.large if settings.large else entry.quick), queue)


def judged(bench: Bench, settings: Settings) -> dict[str, Any]:
    """The row of an application."""
    tries = sorted(_tries(bench, settings), key=_disturbed)
    counted = tries[:COUNT]
    bench.learn()
    begin, every = time.monotonic(), range(len(bench.devices))
    single = [bench.parts([float(d == i) for d in every]) for i in every]
    table = bench.in_turns(single, ALONE, begin, ALONE)
    table.join(_searched(bench, counted, settings, begin))
    best = [division for tried in counted for division in _best(table, tried)]
    late = [row["cuts"] for tried in counted for row in tried[JUDGED_FROM - 1 :]]
    until, latest = begin + settings.seconds, begin + LATEST * settings.seconds
    compared = bench.in_turns([*late, *best], settings.turns, until, min(5, settings.turns), latest)
    table.join(compared)
    rows = [_judged(bench, tried, table, compared, single) for tried in counted]
    return {
        **{key: statistics.median_high(row[key] for row in rows) for key in MEDIANS},
        "groups": [f.leader.groups for f in bench.families],
        "handover_us": 1e6 * bench.problem.handover,
        "counted": rows,
        "tried": tries[0],
        "other_tries": tries[1:],
        "spread_percent": _spread(compared, tries[0][-1]["cuts"], rows[0]["oracle"]),
        "table": table.rows(),
        "compared": compared.rows(),
    }


def _judged(bench: Bench, tried: Try, table: Table, compared: Table, single: Sequence[Division]) -> dict[str, Any]:
    """One try, for the speeds that devices had then."""
    _as_in(tried, table, compared)
    chosen = [row["cuts"] for row in tried]
    oracle = min(compared.runs, key=compared.seconds)
    best, by_all = compared.seconds(oracle), table.seconds(oracle)
    ratios = [compared.seconds(c) / best if c in compared.runs else table.seconds(c) / by_all for c in chosen]
    outside = [ratio > CLOSE for ratio in ratios]
    alone = min(map(table.seconds, single))
    even = bench.parts([1.0] * len(bench.devices))
    return {
        "alone_ms": 1e3 * alone,
        "uniform_speedup": alone / table.seconds(even),
        "adaptive_speedup": alone / (ratios[-1] * best),
        "oracle_speedup": alone / best,
        "within_oracle_percent": 100.0 * (ratios[-1] - 1.0),
        "iterations": [*outside, False].index(False) + 1,
        "settled": settled(outside),
        "behind_percent": [100.0 * (ratio - 1.0) for ratio in ratios],
        "oracle": oracle,
        "disturbed": _disturbed(tried),
    }


def _as_in(tried: Try, *tables: Table) -> None:
    """Devices are as fast as in a try."""
    for table in tables:
        table.bench.held = _state(tried)
        table.keep((row["cuts"], _taken(row)) for row in tried)


def _taken(row: Mapping[str, Any]) -> Taken:
    """A repetition of a try."""
    seconds, moved = (tuple(tuple(1e-3 * s for s in family) for family in row[key]) for key in ("ms", "moved_ms"))
    return Taken(seconds, moved)


def _state(rows: Try) -> tuple[float, ...]:
    """Seconds that the reference took each device while these were run (the median)."""
    return tuple(1e-3 * statistics.median(of) for of in zip(*(row["beside_ms"] for row in rows), strict=True))


def _best(table: Table, tried: Try) -> list[Division]:
    """What may be the shortest for the speeds that devices had in a try."""
    _as_in(tried, table)
    cross = table.crossings()
    return [*table.best(), *([cross] if cross and not table.bench.moves else [])]


def _searched(bench: Bench, counted: Sequence[Try], settings: Settings, begin: float) -> Table:
    """What was chosen, the even division, and others near the best of them for the speeds that devices had in the try
    that was disturbed least."""
    count, turns = len(bench.devices), max(2, settings.turns // 3)

    def near(division: Division, steps: Iterable[float]) -> list[Division]:
        return [bench.nudged(division, d, s) for d in range(count) for step in steps for s in (step, -step)]

    def measured(several: Iterable[Division], part: float) -> Table:
        return bench.in_turns(several, turns, begin + part * settings.seconds, latest=begin + latest)

    latest = LATEST * settings.seconds
    known = [row["cuts"] for tried in counted for row in tried]
    table = measured([*known, bench.parts([1.0] * count), *near(counted[0][-1]["cuts"], WIDE)], 0.4)
    _as_in(counted[0], table)
    table.join(measured([other for best in table.best() for other in table.swapped(best)], 0.5))
    wanted = [division for best in table.best() for division in (best, *near(best, NARROW))]
    cross = table.crossings()
    table.join(measured([*wanted, *([cross] if cross else [])], 0.6))
    return table


Try = Sequence[Mapping[str, Any]]
"""The repetitions of an application that was adapted from the start: the ``cuts`` that the policy has chosen, and the
milliseconds that these took, as in the report."""


def _tries(bench: Bench, settings: Settings) -> list[Try]:
    """Adapted from the start, and again if others used the processor meanwhile. What came of a try before them is the
    reference, so that what makes ranges slower makes it slower, too."""
    if not bench.moves:
        first = _adapted(bench, settings)
        cuts = first[-1]["cuts"]
        if all(b > a for a, b in pairwise(cuts[_longest(first)])):
            bench.refer(cuts)
    tries: list[Try] = []
    calm = 0
    until = time.monotonic() + PART * settings.seconds
    while len(tries) < TRIES:
        tries.append(_adapted(bench, settings))
        calm += _disturbed(tries[-1]) <= 1.0
        if calm >= COUNT or (len(tries) >= FEW and time.monotonic() > until):
            break
    return tries


def _adapted(bench: Bench, settings: Settings) -> Try:
    """With nothing measured before. Between repetitions the reference is run, if there is one: the policy, which asks
    what was measured before its first plan only, learns nothing of it."""
    if not bench.moves:
        bench.look()
    bench.queue.session.models.forget()
    policy = Adaptive()
    prepared = bench.prepared(policy, settings.options)
    tried = []
    for _ in range(settings.repetitions):
        taken = bench.watched(prepared)
        ms, moved = ([[1e3 * s for s in family] for family in of] for of in (taken.seconds, taken.moved))
        beside = [1e3 * s for s in taken.beside]
        tried.append({"cuts": bench.chosen(policy), "ms": ms, "moved_ms": moved, "beside_ms": beside})
    return tried


def _disturbed(rows: Try) -> float:
    """By how much others have disturbed it (up to 1: hardly): how far the ratio between what the reference takes
    devices was from its median, and how far what work-groups take them, against it, from a line over the lengths of
    their ranges (as parts; the root of the mean square over the repetitions). Where there is no reference, what a
    device's work-groups take longer or shorter than in the repetition before (the median, of the device and the family
    for which that is most). It matters not what was chosen."""
    if not rows[0]["beside_ms"]:
        return _restless(rows[1:]) / RESTLESS
    logs = _against(np.log([row["beside_ms"] for row in rows]))
    return math.hypot(_spread_of(logs - np.median(logs, axis=0)), _off_lines(rows)) / DISTURBED


def _off_lines(rows: Sequence[Mapping[str, Any]]) -> float:
    """How far the logarithm of what a work-group takes a device, against the reference beside it, is from a line over
    the logarithm of how many it had, of the longest family: of devices against each other, and a part of that of all
    together, which tells how dividing compares with one device (the root of the mean square over the repetitions; a
    line follows two of them, so those do not count)."""
    at = _longest(rows)
    groups = np.diff([row["cuts"][at] for row in rows])
    off = np.full(groups.shape, np.nan)
    for device, had in enumerate(groups.T > 0):
        if (count := int(had.sum())) > 2:
            each = [row["ms"][at][device] / row["beside_ms"][device] for row, h in zip(rows, had, strict=True) if h]
            x, y = np.log(groups[had, device]), np.log(each / groups[had, device])
            x, y = x - x.mean(), y - y.mean()
            off[had, device] = (y - x * (x @ y) / (x @ x + FLAT)) * math.sqrt(count / (count - 2))
    several = off[~np.isnan(off).any(axis=1)]
    some = off[~np.isnan(off).all(axis=1)]
    apart = _spread_of(several) if len(several) else 0.0
    together = float(np.sqrt(np.mean(np.square(np.nanmean(some, axis=1))))) if len(some) else 0.0
    return math.hypot(apart, TOGETHER * together)


def _longest(rows: Sequence[Mapping[str, Any]]) -> int:
    """The family that takes the longest."""
    return max(range(len(rows[0]["ms"])), key=lambda f: sum(max(row["ms"][f]) for row in rows))


def _against(logs: Any) -> Any:
    """Of each device against the mean of all."""
    return logs - logs.mean(axis=1, keepdims=True)


def _spread_of(off: Any) -> float:
    """Between the devices: the root of the mean square."""
    return float(np.sqrt(np.mean(np.square(np.ptp(off, axis=1)))))


def _restless(rows: Sequence[Mapping[str, Any]]) -> float:
    """How far the times of a work-group differ from one repetition to the next: see :func:`_disturbed`."""
    found = [0.0]
    longest = _longest(rows)
    for device in range(len(rows[0]["ms"][longest])):
        each = []
        for row in rows:
            at, ms, moved = (row[key][longest] for key in ("cuts", "ms", "moved_ms"))
            groups = at[device + 1] - at[device]
            each.append((ms[device] - moved[device]) / groups if groups else 0.0)
        changes = [abs(math.log(b / a)) for a, b in pairwise(each) if a > 0.0 and b > 0.0]
        found.append(statistics.median(changes) if changes else 0.0)
    return max(found)


def _spread(compared: Table, mine: Division, oracle: Division) -> list[float]:
    """How far behind the oracle's the split was in single turns: the quartiles."""
    if mine == oracle:
        return [0.0] * 3
    ratios = [a / b for a, b in zip(compared.single(mine), compared.single(oracle), strict=False)]
    return [100.0 * (q - 1.0) for q in statistics.quantiles(ratios, n=4)] if len(ratios) > 1 else ratios


def drifting(devices: str | None, settings: Settings) -> dict[str, Any]:
    """The N-body whose crowd moves: how much longer than the mean the slowest device takes, per repetition (of some
    runs with the repetition's split and bodies, of which the policy is told only the first). Where devices share
    memory, what they take is told for the speeds that they had by and by (:func:`_course`): what others did to the
    machine in one repetition is not to be foreseen. ``single_run_imbalance_percent``: as it was, of the first run. Of
    several tries the one counts that was disturbed least, as in :func:`measure`."""
    tries: list[dict[str, Any]] = []
    while len(tries) < settings.drifts and not any(row["disturbed"] <= 1.0 for row in tries):
        with Queue(devices, profile=True) as queue:
            tries.append(_followed(queue, settings))
    best = min(tries, key=lambda row: row["disturbed"])
    return {**best, "other_tries": [row for row in tries if row is not best]}


def _followed(queue: Queue, settings: Settings) -> dict[str, Any]:
    once, cuts, beside, tables = [], [], [], []
    bench = _bench("NBody", queue, settings)
    if not bench.moves:
        bench.look()
    queue.session.models.forget()
    policy = Adaptive()
    prepared = bench.prepared(policy, settings.options)
    for turn in range(settings.drifting):
        if turn:
            bench.between()
        taken = bench.watched(prepared)
        at = bench.chosen(policy)
        table = Table(bench)
        for _ in range(AGAIN):
            table.add(at, bench.measured(at))
        once.append(_imbalance([s - m for s, m in zip(taken.seconds[0], taken.moved[0], strict=True)]))
        cuts.append(at)
        tables.append(table)
        beside.append(taken.beside)
    course = [()] * len(cuts) if bench.moves else [tuple(row) for row in _course(beside)]
    found = []
    for at, table, held in zip(cuts, tables, course, strict=True):
        bench.held = held
        found.append(_imbalance(table.devices(0, at[0])))
    return {
        "imbalance_percent": found,
        "drift_imbalance_percent": max(found[DRIFT_FROM:]),
        "single_run_imbalance_percent": once,
        "shares": [[b - a for a, b in pairwise(at[0])] for at in cuts],
        "beside_ms": [[1e3 * s for s in row] for row in beside],
        "disturbed": 0.0 if bench.moves else _unsteady(beside) / DISTURBED,
    }


def _course(beside: Sequence[Sequence[float]]) -> Any:
    """What the reference takes each device, by repetition, as far as that changes slowly, as the load does: a parabola
    through the logarithms."""
    turns = np.arange(len(beside))
    return np.exp(np.vander(turns, 3) @ np.polyfit(turns, np.log(beside), 2))


def _unsteady(beside: Sequence[Sequence[float]]) -> float:
    """How far what the reference takes devices, compared with each other, is from what changes slowly (the root of the
    mean square)."""
    return _spread_of(_against(np.log(beside) - np.log(_course(beside))))


def _imbalance(seconds: tuple[float, ...] | list[float]) -> float:
    used = [s for s in seconds if s > 0.0]
    return 100.0 * (max(used) / statistics.mean(used) - 1.0)


def run(devices: str | None, settings: Settings, say: Say) -> dict[str, Any]:
    """All applications, Figure 1, and the drifting load."""
    rows = []
    with Queue(devices, profile=True) as queue:
        machine = queue.session.machine
        ranges = granularity.figures(
            lambda name: granularity.measured(_bench(name, queue, settings)), machine, min(settings.drifting, SHOWN)
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
