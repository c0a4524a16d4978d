"""What the last executions of a repeated kernel say by themselves, whatever workload explains them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from manycl.plan.adapt.workload import Execution, Workload
from manycl.plan.tuning import ADAPT

History = tuple[Execution, ...]
"""The last executions, in their order."""


def several(run: Execution) -> bool:
    """Whether it was on several devices."""
    return sum(s > 0.0 for s in run.seconds) > 1


def drifts(history: History, workload: Workload) -> bool:
    """Whether times drift as the workload says: not if the last cuts have taken the same again."""
    if not workload.drifting:
        return False
    first, last = _alike(history)[0], history[-1]
    used = [i for i, s in enumerate(last.seconds) if s]
    if first is last or not used:
        return True
    device = max(used, key=lambda i: abs(workload.drifts[i]))
    said = (last.turn - first.turn) * abs(workload.drifts[device])
    before = first.seconds[device]
    return before == 0.0 or abs(math.log(last.seconds[device] / before)) > 0.5 * said


def news(history: History) -> bool:
    """Whether the last execution took a device another time than the one before with the same cuts."""
    before = _alike(history)[:-1]
    if not before:
        return False
    pairs = zip(before[-1].seconds, history[-1].seconds, strict=True)
    return any(abs(b - a) > ADAPT.strange * a for a, b in pairs)


def no_better(history: History, present: tuple[int, ...], other: tuple[int, ...], band: float) -> bool:
    """Whether these cuts and others were both tried more than once, took each time the same, and the others gained
    less than this part of the time: that counts, whatever is foreseen."""
    mine, theirs = ([run.seconds for run in history if run.cuts == at] for at in (present, other))
    if min(len(mine), len(theirs)) < 2:
        return False
    columns = (times for runs in (mine, theirs) for times in zip(*runs, strict=True))
    if any(max(times) > (1.0 + ADAPT.unforeseen) * min(times) for times in columns):
        return False
    return min(map(max, theirs)) > (1.0 - band) * min(map(max, mine))


def slower_by(history: History, doubted: Sequence[Sequence[float]]) -> list[float]:
    """By how much each device has become slower (logarithms) with so many executions at the end: the least of what
    these were off, and no more than the last one is longer than one before them with the same cuts, which the workload
    may not explain."""
    by = [min(of) for of in zip(*doubted, strict=True)]
    last = history[-1]
    before = [run for run in _alike(history) if run.turn <= last.turn - len(doubted)]
    if not before:
        return by
    times = zip(by, last.seconds, before[-1].seconds, strict=True)
    return [min(b, math.log(now / then)) if now and then else b for b, now, then in times]


def slowed(history: History, by: Sequence[float], until: int) -> History:
    """Devices have become slower (logarithms): executions up to one as they would be now."""
    slower = [math.exp(max(b, 0.0)) for b in by]
    return tuple(
        run._replace(seconds=tuple(s * f for s, f in zip(run.seconds, slower, strict=True)))
        if run.turn <= until
        else run
        for run in history
    )


def kept(history: History) -> History:
    """The last executions, of the same shares only the last few: how others did says more than one more of these. And
    the last one of a device that has had no groups since: it would be tried again as if nothing were known of it."""
    same = [run for run in history if run.cuts == history[-1].cuts]
    if len(same) > ADAPT.window_alike:
        history = tuple(run for run in history if run is not same[0])
    if len(history) <= ADAPT.window:
        return history
    kept = history[-ADAPT.window :]
    known = [any(run.seconds[d] > 0.0 for run in kept) for d in range(len(kept[-1].seconds))]
    for run in reversed(history[: -ADAPT.window]):
        if any(s > 0.0 and not k for s, k in zip(run.seconds, known, strict=True)):
            kept = (run, *kept)
            known = [k or s > 0.0 for s, k in zip(run.seconds, known, strict=True)]
    return kept


def _alike(history: History) -> History:
    """Those with the cuts of the last one."""
    return tuple(run for run in history if run.cuts == history[-1].cuts)
