"""Adaptive granularity: how many work-groups each device gets, learned from measured times while a kernel repeats.

The shares are those with which all devices end together by the workload that explains the executions so far
(``plan/adapt/workload.py``), in which groups differ, devices do not keep their speed, and loads drift. Libsplit
(Huchant, Counilh, Barthou, Euro-Par 2016, Section 5) goes by the mean time of a work-group on each device in the last
execution (its methods are in ``manycl_bench/libsplit/paper.py``). Shares are changed only for a predicted gain above
the dead band; where times are as predicted, nothing is computed. Values are frozen and functions pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from manycl.plan.adapt.workload import Execution, Prior, Workload, expected, fitted
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
    """Return the history up to turn ``until`` at the speed of devices that are slower ``by`` (logarithms)."""
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


Floats = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Granularity:
    """The groups of every device (``shares``; ranges lie in the order of the devices), and what has been learned of
    them.

    ``least``: groups below which a device gets none. ``history``: the last executions; ``turn``: how many there were.
    ``settled``: the last examination of the workload has changed nothing. ``off``: since then, the running mean of the
    difference between measured and predicted times (logarithms), by device. ``doubted``: these differences of the last
    times in a row that were strange. ``unexplained``: executions in a row that took longer than even the workload says
    that was found with them. ``changes``: how often shares were changed since turn ``since``.
    """

    shares: tuple[int, ...]
    prior: Prior
    workload: Workload
    least: int = 1
    dead_band: float = ADAPT.dead_band
    history: tuple[Execution, ...] = ()
    turn: int = 0
    settled: bool = False
    off: Floats = ()
    doubted: tuple[Floats, ...] = ()
    unexplained: int = 0
    changes: int = 0
    since: int = 0

    @property
    def groups(self) -> int:
        return self.prior.groups

    def foreseen(self, at: Sequence[int] = ()) -> list[float]:
        """Return the seconds of every device with these cuts (empty: its own) in the next execution."""
        at = at or cuts(self)
        return [self.workload.seconds(i, at[i], at[i + 1]) for i in range(len(at) - 1)]

    def guarded(self, at: Sequence[int] = ()) -> float:
        """Return the seconds of the slowest device with these cuts (empty: its own), with the devices' margins;
        divisions are compared by this."""
        return max(s * m for s, m in zip(self.foreseen(at), self.workload.margins, strict=True))

    @property
    def seen(self) -> float:
        """Seconds of the slowest device in the shortest of the last executions on several devices that should have been
        about as short as this division, by the present prediction (0.0: there were few)."""
        alike = (1.0 + ADAPT.close) * max(self.foreseen())
        found = [max(r.seconds) for r in self.history if several(r) and max(self.foreseen(r.cuts)) < alike]
        return min(found) if len(found) >= ENOUGH else 0.0

    @property
    def narrow(self) -> bool:
        """True if a device that has groups is not filled even by all of them."""
        return any(n and s for n, s in zip(self.prior.narrow, self.shares, strict=True))

    @property
    def divided(self) -> int:
        """The number of the last executions that were on several devices."""
        return sum(map(several, self.history))

    def together(self) -> float:
        """Return the seconds of the slowest device with these shares: the shortest of the last executions, or the
        prediction where there was none; or less than one execution took, which may have been disturbed."""
        at = cuts(self)
        here = [max(run.seconds) for run in self.history if run.cuts == at]
        if len(here) == 1:
            here.append(max(self.foreseen()))
        return min(here, default=max(*self.foreseen(), self.seen))

    def whole(self, device: int) -> tuple[int, ...]:
        """Return the cuts with which one device has all groups."""
        return (0,) * (device + 1) + (self.groups,) * (len(self.shares) - device)

    def alone(self, device: int) -> float:
        """Return the seconds that all groups take on one device: the shortest of the last executions there, or the
        prediction where there was none."""
        at = self.whole(device)
        here = (run.seconds[device] for run in self.history if run.cuts == at)
        return min(here, default=self.workload.seconds(device, 0, self.groups))

    def evenly(self) -> float:
        """Return the seconds of the slowest device with these shares if each took its part of all groups' time."""
        at, load = cuts(self), self.workload
        return max(self.alone(i) * load.part(at[i], at[i + 1]) for i in range(len(self.shares)))

    def alone_at_least(self) -> float:
        """Return the least seconds that all groups take on the best device, as far as is known."""
        at = cuts(self)
        used = [i for i, n in enumerate(self.shares) if n]
        least = (self.workload.whole_at_least(i, at[i], at[i + 1]) for i in used)
        return min(*map(self.alone, range(len(self.shares))), *least)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Settings of a search for shares: the fewest groups that a device gets if it gets any, and the part of the time
    that a change must be predicted to gain. ``uniform``: at first the same share for each, as in Libsplit."""

    least: int = 1
    uniform: bool = False
    dead_band: float = ADAPT.dead_band


@dataclass(frozen=True, slots=True)
class Beforehand:
    """Knowledge of a kernel before it has run. ``density``: the cost of groups in equal parts of the NDRange (empty:
    all the same). ``doubt``, ``rate_doubt``: how far off that, and the ratios of the devices' times, may be (standard
    deviations of logarithms). ``narrow``: the devices that all groups together do not fill (empty: they fill all).
    ``rounds``: the groups that each device runs at once, so that fewer take as long (empty: one). ``waits``: the part
    of the seconds beside its groups that is certainly in the measured times (empty: nothing)."""

    density: Sequence[float] = ()
    doubt: float = ADAPT.uncounted
    rate_doubt: float = ADAPT.unknown
    narrow: Sequence[bool] = ()
    rounds: Sequence[float] = ()
    waits: Sequence[float] = ()


_WANTED, _KNOWN = Wanted(), Beforehand()


def start(
    groups: int, once: Sequence[float], each: Sequence[float], wanted: Wanted = _WANTED, known: Beforehand = _KNOWN
) -> Granularity:
    """Return the first split: all devices end together by the estimates. ``once`` and ``each``: seconds that a launch
    takes beside its groups, and that a group takes on average (infinite: the device gets nothing)."""
    able = [i for i, e in enumerate(each) if e < math.inf]
    if groups < 1 or not able or wanted.least < 1:
        raise ValueError(f"no granularity for {groups} groups on {len(able)} devices")
    cells = min(ADAPT.cells, groups)
    mean = sum(known.density) / len(known.density) if known.density else 1.0
    work = tuple(max(d / mean, 1e-3) for d in known.density) or (1.0,) * cells
    rates = tuple(math.log(max(e, 1e-15) * groups) if e < math.inf else math.inf for e in each)
    slowest = max(r for r in rates if r < math.inf)
    rates = tuple(min(r, slowest + 50.0) for r in rates)  # of a device that cannot run it, or takes for ever
    bends = tuple(ADAPT.narrow if n else 0.0 for n in known.narrow) if any(known.narrow) else ()
    prior = Prior(
        groups,
        tuple(once),
        work,
        known.doubt,
        rates,
        known.rate_doubt,
        bends,
        rounds=tuple(known.rounds),
        known=tuple(known.waits),
    )
    workload = expected(prior)
    g = Granularity((0,) * len(each), prior, workload, wanted.least, wanted.dead_band)
    even = [groups / len(able) if i in able else 0.0 for i in range(len(each))]
    return replace(g, shares=_rounded(g, even if wanted.uniform else workload.level(), exact=wanted.uniform))


def adapted(g: Granularity, measured: Sequence[float], at: Sequence[int] = ()) -> Granularity:
    """Return the granularity after an execution with these shares (or with cuts ``at``) that took each device
    ``measured`` seconds (0 where it had no groups)."""
    at = tuple(at) or cuts(g)
    turn = g.turn + 1
    history = kept((*g.history, Execution(turn, at, tuple(measured))))
    if g.settled and g.history[-1].cuts == at:
        off = tuple(math.log(m / f) if m and f else 0.0 for m, f in zip(measured, g.foreseen(at), strict=True))
        if max(off) > ADAPT.strange:
            doubted = (*g.doubted, off)
            if len(doubted) < ENOUGH:
                return replace(g, history=history, turn=turn, doubted=doubted)
            slower = slower_by(history, doubted)
            history = slowed(history, slower, turn - ENOUGH)
            if max(slower) > ADAPT.strange:
                g = replace(g, changes=0)
        else:
            mean = tuple(o + ADAPT.news * (n - o) for o, n in zip(g.off, off, strict=True))
            used = [o for o, m in zip(mean, measured, strict=True) if m]
            if max(used) - min(used) < ADAPT.dead_band + 0.5 * ADAPT.jitter / max(measured):
                return replace(g, history=history, turn=turn, off=mean, doubted=())
    quiet = (0.0,) * len(g.shares)
    g = replace(g, history=history, turn=turn, workload=fitted(g.prior, history), off=quiet, doubted=())
    return _changed(_compared(_refuted(g)))


def beside(g: Granularity, once: Sequence[float], each: Sequence[float]) -> Granularity:
    """Return the granularity where devices take more (or less) seconds beside their kernels than before: ``once`` if
    they have any groups, and ``each`` for each of them."""

    def now(run: Execution) -> Execution:
        more = (o + e * (b - a) for o, e, (a, b) in zip(once, each, pairwise(run.cuts), strict=True))
        both = zip(run.seconds, more, strict=True)
        return run._replace(seconds=tuple(max(s + m, 0.01 * s) if s else 0.0 for s, m in both))

    history = tuple(map(now, g.history))
    prior, none = g.prior, (0.0,) * len(once)
    rates = _longer_rates(prior.rates, each, g.groups)
    prior = replace(prior, once=_longer(prior.once, once), known=_longer(prior.known or none, once), rates=rates)
    workload = fitted(prior, history) if history else expected(prior)
    quiet = (0.0,) * len(g.shares)
    return _changed(replace(g, prior=prior, history=history, workload=workload, off=quiet, doubted=()), measured=False)


def anew(g: Granularity, once: Sequence[float], each: Sequence[float]) -> float:
    """Return about the seconds of the slowest device after :func:`beside`, if groups were then shared out anew."""
    load = g.workload
    rates = _longer_rates(load.rates, each, g.groups)
    then = replace(g, workload=replace(load, once=_longer(load.once, once), rates=rates))
    return max(then.foreseen(_cuts(_rounded(then, then.workload.level()))))


def _longer(seconds: Sequence[float], more: Sequence[float]) -> Floats:
    """Return ``seconds`` with ``more`` added by device; not below 0."""
    return tuple(max(s + m, 0.0) for s, m in zip(seconds, more, strict=True))


def _longer_rates(rates: Sequence[float], each: Sequence[float], groups: int) -> Floats:
    """Return logarithms of the seconds of all groups, where each group takes ``each`` more."""
    return tuple(math.log(max(math.exp(r) + e * groups, 1e-15)) for r, e in zip(rates, each, strict=True))


def daring(g: Granularity, best: int) -> Granularity:
    """Return shares that are right if all devices but one are faster than predicted by as much as is to be expected:
    each gets enough groups to show how fast it is."""
    rates = tuple(r - (i != best) * g.prior.rate_doubt for i, r in enumerate(g.workload.rates))
    hoped = replace(g, workload=replace(g.workload, rates=rates))
    return replace(g, shares=_rounded(hoped, hoped.workload.level()), settled=False)


def _changed(g: Granularity, *, measured: bool = True) -> Granularity:
    """Return the granularity with other shares, if that is predicted to gain enough, after an execution (``measured``)
    or for another reason. After too many changes it gets the best shares that were tried: the workload does not explain
    the times then, and shares would change for ever."""
    then = _wished(g, measured=measured)
    if then.shares == g.shares or not measured or drifts(g.history, g.workload):
        return then
    begins = not g.changes or g.turn - g.since >= ADAPT.patience or news(g.history)
    if begins or g.changes < ADAPT.window:
        return replace(then, changes=1, since=g.turn) if begins else replace(then, changes=g.changes + 1)
    best = min(g.history, key=lambda run: max(run.seconds))
    mine = min((max(run.seconds) for run in g.history if run.cuts == cuts(g)), default=math.inf)
    if max(best.seconds) > (1.0 - g.dead_band) * mine:
        return replace(g, settled=True)
    return replace(g, shares=tuple(b - a for a, b in pairwise(best.cuts)), settled=False)


def _wished(g: Granularity, *, measured: bool) -> Granularity:
    """Return other shares by the predictions of the workload, and by the times of those that were tried."""
    shares = _rounded(g, g.workload.level())
    tried = {} if g.workload.drifting else {run.cuts: run for run in g.history}  # the last execution counts
    if _cuts(shares) in tried and cuts(g) in tried:
        best = min(tried.values(), key=lambda run: max(run.seconds))
        mine = [max(run.seconds) for run in g.history if run.cuts == cuts(g)]
        if max(best.seconds) < (1.0 - ADAPT.noisy_band) * min(mine):
            if len(mine) == 1 and measured:  # it may have been disturbed, and is repeated
                return replace(g, settled=False)
            return replace(g, shares=tuple(b - a for a, b in pairwise(best.cuts)), settled=False)
    now, then = g.guarded(), g.guarded(_cuts(shares))
    flat = -min(g.workload.bends) if g.narrow and not g.workload.drifting else 0.0
    band = max(g.dead_band, ADAPT.noisy_band * flat, 0.5 * ADAPT.jitter / now)
    if shares == g.shares or then > (1.0 - band) * now:
        return replace(g, settled=bool(g.history) and not g.workload.drifting)
    if no_better(g.history, cuts(g), _cuts(shares), band):
        return replace(g, settled=True)
    if g.turn == 1 and then > (1.0 - ADAPT.noisy_band) * now:
        return replace(g, settled=False)  # the next executions tell
    return replace(g, shares=shares, settled=False)


def cuts(g: Granularity) -> tuple[int, ...]:
    """Return the cuts: device i runs the groups from ``cuts[i]`` to ``cuts[i + 1] - 1``."""
    return _cuts(g.shares)


def _cuts(shares: Sequence[int]) -> tuple[int, ...]:
    return tuple(accumulate(shares, initial=0))


def _refuted(g: Granularity) -> Granularity:
    """Return the granularity with a wider prior, if times are again and again longer than the prior allows."""
    run = g.history[-1]
    said = (g.workload.seconds(i, run.cuts[i], run.cuts[i + 1], 0.0) for i in range(len(g.shares)))
    longer = any(s > 0.0 and s > (1.0 + ADAPT.strange) * f for s, f in zip(run.seconds, said, strict=True))
    g = replace(g, unexplained=g.unexplained + 1 if longer else 0)
    if g.unexplained < ENOUGH or g.prior.rate_doubt == ADAPT.unknown:
        return g
    prior = replace(g.prior, doubt=ADAPT.uncounted, rate_doubt=ADAPT.unknown)
    return replace(g, prior=prior, workload=fitted(prior, g.history), unexplained=0)


def _compared(g: Granularity) -> Granularity:
    """Return the granularity with a narrower prior, if a device that the launch does not fill has just run all of it,
    and parts before: the bend of its times is known from now on, whatever happens to the load."""
    whole = sum(s > 0.0 for s in g.history[-1].seconds) == 1
    if not (whole and g.divided and any(g.prior.narrow)):
        return g
    bends = tuple(min(b, -1e-3) if n else 0.0 for b, n in zip(g.workload.bends, g.prior.narrow, strict=True))
    return replace(g, prior=replace(g.prior, bends=bends, bend_doubt=ADAPT.bend))


# whole groups


def _rounded(g: Granularity, targets: Sequence[float], *, exact: bool = False) -> tuple[int, ...]:
    """Return whole groups. A device that would get less than half of the least gets none; then a group moves from one
    device to the next as long as the slowest one ends earlier (if ``exact``, shares are only rounded)."""
    wanted = [0.0 if t < 0.5 * g.least else max(t, float(g.least)) for t in targets]
    some = [i for i, w in enumerate(wanted) if w]
    if not some or g.groups < g.least * len(some):
        best = max(range(len(targets)), key=lambda i: targets[i])
        return tuple(g.groups if i == best else 0 for i in range(len(targets)))
    scale = g.groups / sum(wanted)
    shares = [max(int(w * scale + 1e-9), g.least) if w else 0 for w in wanted]
    for _ in range(abs(g.groups - sum(shares))):
        if sum(shares) < g.groups:
            shares[min(some, key=lambda i: shares[i] + 1 - wanted[i] * scale)] += 1
        else:
            shares[max((i for i in some if shares[i] > g.least), key=lambda i: shares[i] - wanted[i] * scale)] -= 1
    return tuple(shares) if exact else _improved(g, shares, some)


def _improved(g: Granularity, shares: list[int], some: Sequence[int]) -> tuple[int, ...]:
    """Return shares in which groups move to neighbouring devices, at most one for every device."""
    now = g.guarded(_cuts(shares))
    for _ in some:
        found = None
        for a, b in (*pairwise(some), *pairwise(reversed(some))):
            if shares[a] > g.least:
                tried = [n - (i == a) + (i == b) for i, n in enumerate(shares)]
                then = g.guarded(_cuts(tried))
                if then < now:
                    found, now = tried, then
        if found is None:
            break
        shares = found
    return tuple(shares)
