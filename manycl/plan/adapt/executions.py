"""The last executions of a repeated kernel: conclusions from them alone, whatever workload explains them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from manycl.plan.adapt.workload import Execution, Workload
from manycl.plan.tuning import ADAPT
from manycl.utilities.kept import ENOUGH

History = tuple[Execution, ...]
"""The last executions, in their order."""


def several(run: Execution) -> bool:
    """Return whether an execution was on several devices."""
    return sum(s > 0.0 for s in run.seconds) > 1


def drifts(history: History, workload: Workload) -> bool:
    """Return whether times drift as the workload says: not if the last cuts have taken the same time again."""
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
    """Return whether in the last execution some device took another time than in the one before with the same cuts."""
    before = _alike(history)[:-1]
    if not before:
        return False
    pairs = zip(before[-1].seconds, history[-1].seconds, strict=True)
    return any(abs(b - a) > ADAPT.strange * a for a, b in pairs)


def no_better(history: History, present: tuple[int, ...], other: tuple[int, ...], band: float) -> bool:
    """Return whether these cuts and others were both tried more than once, took the same time in each trial, and the
    others gained less than ``band`` of the time: that counts, whatever is predicted."""
    mine, theirs = ([run.seconds for run in history if run.cuts == at] for at in (present, other))
    if min(len(mine), len(theirs)) < 2:
        return False
    columns = (times for runs in (mine, theirs) for times in zip(*runs, strict=True))
    if any(max(times) > (1.0 + ADAPT.noisy_band) * min(times) for times in columns):
        return False
    return min(map(max, theirs)) > (1.0 - band) * min(map(max, mine))


def slower_by(history: History, doubted: Sequence[Sequence[float]]) -> list[float]:
    """Return by how much each device has become slower (logarithms), from the last executions, which ``doubted`` gives
    by their errors: the least of these errors. It is no more than the last execution is longer than one before them
    with the same cuts, which the workload may not explain."""
    by = [min(of) for of in zip(*doubted, strict=True)]
    last = history[-1]
    before = [run for run in _alike(history) if run.turn <= last.turn - len(doubted)]
    if not before:
        return by
    times = zip(by, last.seconds, before[-1].seconds, strict=True)
    return [min(b, math.log(now / then)) if now and then else b for b, now, then in times]


def slowed(history: History, by: Sequence[float], until: int) -> History:
    """Return the history with executions up to turn ``until`` at the speed of devices that have become slower ``by``
    (logarithms)."""
    slower = [math.exp(max(b, 0.0)) for b in by]
    return tuple(
        run._replace(seconds=tuple(s * f for s, f in zip(run.seconds, slower, strict=True)))
        if run.turn <= until
        else run
        for run in history
    )


def kept(history: History) -> History:
    """Return the executions to keep: the last ones, and with the same shares only the last few, as one more of these
    says less than one with other shares. The last execution of a device that has had no groups since is kept as well:
    it would be tried again as if nothing were known of it."""
    same = [run for run in history if run.cuts == history[-1].cuts]
    if len(same) > ENOUGH:
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
    """Return the executions with the cuts of the last one."""
    return tuple(run for run in history if run.cuts == history[-1].cuts)
