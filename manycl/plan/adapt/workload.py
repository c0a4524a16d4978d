"""The workload of a kernel: the cost of its work-groups along its NDRange, and devices' speeds, from its executions.

The model, of a device that runs the groups of one range, tau executions after the last one:

    log(seconds - once) = rate + drift tau + log W + bend (log W - log W_last)

W is the work of the range: an integral over a density that all devices share. The *rate* is the device's; its *bend*
says how much dearer work becomes when there is more of it (caches, occupancy, memory that devices share), its *drift*
how its time changes by itself. All are found together, as the most likely values given the last executions and the
prior knowledge: how the counted work lies along the groups, how devices compare by the estimates, and that groups near
each other cost alike (an Ornstein-Uhlenbeck process). So a range teaches something about groups that other ranges
share, an uneven load is told from uneven devices as soon as a cut has moved, and an execution counts as far as others
agree: times that are too long are weighted as by a Cauchy distribution, since disturbances only make devices slower.

There is a drift only where it explains the measurements clearly better.

Measurements scatter, on some devices more than on others, and the slowest device counts. If a device with a twentieth
of the work has a hundredth of all groups too many, it ends a fifth later; if it has too few, the others end a hundredth
later. So all should end together with *margins*: the expected time of the slowest is shortest where each device is the
slowest as often as is its part of the work (the newsvendor's quantile).

On a device that the whole launch does not fill (too few work-items for its compute units) half of the groups may take
as long as all of them: its bend is expected to be far below 0, with a wide doubt that such devices have in common. Then
rates are compared at the same work for all of them, not where each was last. And a device that runs many groups at
once, one on each compute unit, takes as long for fewer: its range's W is at least theirs (``rounds``).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate
from statistics import NormalDist
from typing import Any, NamedTuple

from manycl.plan.tuning import ADAPT

_MOST = 300.0  # the largest exponent of e: products of two such powers are finite doubles
_NORMAL = NormalDist()

Floats = tuple[float, ...]


class Execution(NamedTuple):
    """An execution: its number ``turn``; ``cuts``: the first group of every device, and the number of all groups; the
    seconds of each device."""

    turn: int
    cuts: tuple[int, ...]
    seconds: Floats


@dataclass(frozen=True)
class Prior:
    """Knowledge before any execution. ``once``: seconds that a launch takes beside its groups, by device. ``density``:
    work of a group, by cell (1 on average), whose logarithm may be off by ``doubt``. ``rates``: logarithms of the
    seconds that devices would take for all groups; their differences may be off by ``rate_doubt``. ``bends``: below 0
    for the devices that the launch does not fill (empty: it fills all); they may be off by ``bend_doubt`` together, and
    by BEND each. ``rounds``: the groups that a device runs at once (empty: one). ``known``: the part of ``once`` that
    is certain, since it was added to all times (empty: nothing)."""

    groups: int
    once: Floats
    density: Floats
    doubt: float
    rates: Floats
    rate_doubt: float
    bends: Floats = ()
    bend_doubt: float = -ADAPT.narrow
    rounds: Floats = ()
    known: Floats = ()

    @property
    def floors(self) -> Floats:
        """The least part of all work that changes a device's time: it takes as long for less."""
        return tuple(min(r / self.groups, 1.0) if r > 1.0 else 0.0 for r in self.rounds) or (0.0,) * len(self.once)

    @property
    def narrow(self) -> tuple[bool, ...]:
        """True for each device that the launch does not fill."""
        return tuple(b < 0.0 for b in self.bends) or (False,) * len(self.once)


@dataclass(frozen=True)
class Workload:
    """A workload. ``work`` of every cell; ``rates``, ``bends`` and ``drifts`` by device; ``last``: the logarithm of the
    work that a device had last; ``floors`` as in the prior. ``doubts``: how far off the time of all groups is when
    predicted from that of a device's last part (standard deviation of the logarithm; empty: unknown). ``drifting``: a
    drift explained the measurements. ``scatter``: how far times of each device are off, beyond NOISE (standard
    deviation of logarithms; empty: no further, or they drift)."""

    groups: int
    once: Floats
    work: Floats
    rates: Floats
    bends: Floats
    drifts: Floats
    last: Floats
    floors: Floats
    doubts: Floats = ()
    noise: float = ADAPT.noise
    drifting: bool = False
    scatter: Floats = ()
    _sums: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sums", tuple(accumulate(self.work, initial=0.0)))

    def seconds(self, device: int, first: float, end: float, ahead: float = 1.0) -> float:
        """Return the seconds of the groups from one up to another (not included), ``ahead`` executions later."""
        if end <= first:
            return 0.0
        least = max(self.floors[device] * self._sums[-1], 1e-12)
        work = math.log(max(self._before(end) - self._before(first), least))
        bent = self.bends[device] * (work - self.last[device])
        own = self.rates[device] + ahead * self.drifts[device] + work + bent
        return self.once[device] + math.exp(min(own, _MOST))

    def part(self, first: int, end: int) -> float:
        """Return the part of all work that the groups from one up to another (not included) are."""
        return (self._before(end) - self._before(first)) / self._sums[-1]

    def whole_at_least(self, device: int, first: int, end: int) -> float:
        """Return the least seconds that all groups take on a device, as far as is known, given the time of these."""
        part = self.seconds(device, first, end)
        if not self.doubts:
            return part
        return max(part, self.seconds(device, 0, self.groups) * math.exp(-ADAPT.sure * self.doubts[device]))

    @cached_property
    def margins(self) -> Floats:
        """Factors of the seconds of each device, with which each is the slowest as often as is its part of the work."""
        if not self.scatter:
            return (1.0,) * len(self.rates)
        parts = self._together((1.0,) * len(self.rates), 1.0)
        total = sum(parts)
        quantiles = (_NORMAL.inv_cdf(min(max(1.0 - p / total, 1e-3), 1.0 - 1e-3)) if p else 0.0 for p in parts)
        return tuple(math.exp(s * q) for s, q in zip(self.scatter, quantiles, strict=True))

    def level(self, ahead: float = 1.0) -> list[float]:
        """Return the groups (fractions) of every device with which all end together, with their margins; none where the
        launch alone takes longer."""
        total = self._sums[-1]
        parts = self._together(self.margins, ahead)
        at, before = 0.0, 0.0
        out = []
        for part in parts:
            at += part * total / sum(parts)
            after = self._at(at)
            out.append(after - before)
            before = after
        return out

    def _together(self, margins: Floats, ahead: float) -> list[float]:
        """Return the work of every device with which all end together; some device has some."""
        total, devices = self._sums[-1], range(len(self.rates))
        alone = [self.seconds(d, 0, self.groups, ahead) * margins[d] for d in devices]
        low, high = 0.0, min(alone)
        while high - low > 1e-5 * high:
            middle = 0.5 * (low + high)
            enough = sum(self._done(d, middle / margins[d], ahead) for d in devices) >= total
            low, high = (low, middle) if enough else (middle, high)
        found = [self._done(d, high / margins[d], ahead) for d in devices]
        if any(found):
            return found
        # all of it: rounding has made that time a trifle too short for a device that takes as long for less
        return [total if d == alone.index(min(alone)) else 0.0 for d in devices]

    def _done(self, device: int, seconds: float, ahead: float) -> float:
        """Return the work that a device has done after ``seconds``."""
        if seconds <= self.once[device]:
            return 0.0
        bend = self.bends[device]
        own = math.log(seconds - self.once[device]) - self.rates[device] - ahead * self.drifts[device]
        done = math.exp(min((own + bend * self.last[device]) / (1.0 + bend), _MOST))
        return done if done >= self.floors[device] * self._sums[-1] else 0.0

    def _before(self, group: float) -> float:
        at = group * len(self.work) / self.groups
        cell = min(int(at), len(self.work) - 1)
        return self._sums[cell] + (at - cell) * self.work[cell]

    def _at(self, work: float) -> float:
        """Return the group before which so much work lies."""
        cell = min(bisect.bisect_right(self._sums, work), len(self.work)) - 1
        return (cell + min((work - self._sums[cell]) / self.work[cell], 1.0)) * self.groups / len(self.work)


def expected(prior: Prior) -> Workload:
    """Return the workload before there is any execution."""
    nothing = (0.0,) * len(prior.once)
    work = tuple(d / len(prior.density) for d in prior.density)
    return Workload(prior.groups, prior.once, work, prior.rates, prior.bends or nothing, nothing, nothing, prior.floors)


def fitted(prior: Prior, history: Sequence[Execution]) -> Workload:
    """Return the most likely workload, given these executions (the last one last; at least one)."""
    seen = _Seen(prior, history)
    steady, cost = _fit(prior, seen, drifting=False)
    if seen.executions > 2 and cost > ADAPT.drifting:
        moving, other = _fit(prior, seen, drifting=True)
        if other < cost - ADAPT.drifting:
            return moving
    return steady


class _Seen:
    """Measurements as arrays, the newest first: ``overlap`` (with each cell, in cells), ``device``, ``ago``
    (executions, negative), ``log`` of the seconds without the launch, their ``jitter`` (as a part of them), and the
    ``newest`` of each device."""

    def __init__(self, prior: Prior, history: Sequence[Execution]) -> None:
        import numpy as np

        known = prior.known or (0.0,) * len(prior.once)
        left = [o - k for o, k in zip(prior.once, known, strict=True)]
        rows = [
            (run.cuts[d], run.cuts[d + 1], d, run.turn - history[-1].turn, max(s - k - left[d], 0.3 * (s - k), 1e-9))
            for run in reversed(history)
            for d, (s, k) in enumerate(zip(run.seconds, known, strict=True))
            if run.cuts[d + 1] > run.cuts[d]
        ]
        cells, devices = len(prior.density), len(prior.once)
        table = np.array(rows)
        ends = table[:, :2] * (cells / prior.groups)
        edges = np.arange(cells)
        self.overlap = np.minimum(edges + 1, ends[:, 1:]) - np.maximum(edges, ends[:, :1])
        np.maximum(self.overlap, 0.0, out=self.overlap)
        self.device, self.ago, self.log = table[:, 2].astype(int), table[:, 3], np.log(table[:, 4])
        self.jitter = ADAPT.jitter / table[:, 4]
        self.floor = np.array(prior.floors)[self.device]
        self.own = np.zeros((len(rows), devices))
        self.own[np.arange(len(rows)), self.device] = 1.0
        self.newest = {d: i for i, d in reversed(list(enumerate(self.device.tolist())))}
        self.executions = len(history)

    def weights(self, fade: float) -> Any:
        """Return the weight of each measurement: 1 for the newest of its device, which may have had no groups since."""

        import numpy as np

        found = np.maximum(fade**-self.ago, ADAPT.least_fade)
        found[list(self.newest.values())] = 1.0
        return found


@lru_cache(maxsize=64)
def _stiffness(cells: int, doubt: float) -> Any:
    """Return the precision of the logarithms of the cells' densities."""
    import numpy as np

    at = np.arange(cells) / cells
    return np.linalg.inv(doubt * doubt * np.exp(-np.abs(at[:, None] - at) / ADAPT.length))


@lru_cache(maxsize=64)
def _precision(
    cells: int, doubt: float, rate_doubt: float, narrow: tuple[bool, ...], bend_doubt: float, drifting: bool
) -> Any:
    """Return the precision of all unknowns: logarithms of densities, rates, bends and drifts."""
    import numpy as np

    devices = len(narrow)
    size = cells + 3 * devices
    out = np.zeros((size, size))
    out[:cells, :cells] = _stiffness(cells, doubt)
    rates = slice(cells, cells + devices)
    out[rates, rates] = (np.eye(devices) - 1.0 / devices) / rate_doubt**2  # nothing is known of all rates together
    bends = slice(cells + devices, size - devices)
    out[bends, bends] = np.linalg.inv(ADAPT.bend**2 * np.eye(devices) + bend_doubt**2 * np.outer(narrow, narrow))
    drifts = np.arange(size - devices, size)
    out[drifts, drifts] = (ADAPT.strange if drifting else 1e-4) ** -2
    return out


def _fit(prior: Prior, seen: _Seen, *, drifting: bool) -> tuple[Workload, float]:
    """Return the most likely workload, and minus the logarithm of the measurements' likelihood given it."""
    import numpy as np

    cells, devices = len(prior.density), len(prior.once)
    base, narrow = np.array(prior.density) / cells, np.array(prior.narrow)
    precision = _precision(cells, prior.doubt, prior.rate_doubt, prior.narrow, prior.bend_doubt, drifting)
    rates, bends, drifts = (slice(cells + i * devices, cells + (i + 1) * devices) for i in range(3))
    last = np.full(devices, -math.log(devices))
    centre = np.zeros(len(precision))
    centre[bends] = prior.bends or 0.0
    centre[rates] = prior.rates + centre[bends] * last
    x = centre.copy()
    log = np.log(np.maximum(seen.overlap @ base, seen.floor))
    bent = x[bends][seen.device] * (log - last[seen.device])
    x[rates] += np.quantile(seen.log - x[rates][seen.device] - log - bent, 0.25)
    faded = seen.weights(ADAPT.fades[drifting])
    noise, size = ADAPT.noise, math.inf
    for step in range(ADAPT.steps + 1):
        parts = seen.overlap * (base * np.exp(x[:cells]))
        done = np.maximum(parts.sum(axis=1), seen.floor * (base * np.exp(x[:cells])).sum())
        log = np.log(done)
        for d, i in seen.newest.items():
            if not narrow[d]:
                last[d] = log[i]
        beyond, bend = log - last[seen.device], x[bends][seen.device]
        off = seen.log - (x[rates][seen.device] + x[drifts][seen.device] * seen.ago + log + bend * beyond)
        spread = np.hypot(noise, seen.jitter)
        robust = 1.0 / (1.0 + np.square(off / (spread * np.where(off > 0.0, ADAPT.above, ADAPT.below))))
        if step == ADAPT.steps or size < 2e-3:
            break
        own = seen.own
        slopes = np.hstack(
            (parts * ((1.0 + bend) / done)[:, None], own, own * beyond[:, None], own * seen.ago[:, None])
        )
        weighted = slopes.T * (faded * robust / spread**2)
        curved = precision + weighted @ slopes
        change = np.linalg.solve(curved, weighted @ off - precision @ (x - centre))
        size = float(np.abs(change).max())
        x += change / max(size, 1.0)
        np.maximum(x[bends], ADAPT.least_bend, out=x[bends])
        if step and len(off) > 2 * devices:
            noise = min(max(1.2 * float(np.sort(np.abs(off))[2 * len(off) // 3]), ADAPT.noise), ADAPT.close)
    limit = np.where(off > 0.0, ADAPT.above, ADAPT.below)
    loss = 0.5 * limit**2 * np.log1p(np.square(off / (spread * limit))) + np.log(
        spread / np.hypot(ADAPT.noise, seen.jitter)
    )
    cost = float(0.5 * (x - centre) @ precision @ (x - centre) + seen.weights(ADAPT.fades[0]) @ loss)
    work = tuple(map(float, base * np.exp(x[:cells])))
    further = np.zeros((devices, len(x)))  # derivatives of the other groups' addition (a logarithm) by the unknowns
    for d, i in seen.newest.items():
        further[d, :cells] = (1.0 + x[bends][d]) * (np.array(work) / sum(work) - parts[i] / done[i])
        further[d, cells + devices + d] = math.log(sum(work) / done[i])
    doubts = np.sqrt((further * np.linalg.solve(curved, further.T).T).sum(axis=1))
    beyond = np.maximum(np.abs(_apart(off, seen.ago)) - seen.jitter, 0.0) ** 2 * robust - ADAPT.noise**2
    several = np.bincount(seen.device, faded * beyond, devices) / (
        ADAPT.steady + np.bincount(seen.device, faded, devices)
    )
    scattered = np.sqrt(np.maximum(several, 0.0))
    found = (tuple(map(float, v)) for v in (x[rates], x[bends], x[drifts], last, doubts, scattered))
    rate, bent, drift, had, doubt, scatter = found
    return Workload(
        prior.groups,
        prior.once,
        work,
        rate,
        bent,
        drift,
        had,
        prior.floors,
        doubt,
        noise,
        drifting,
        () if drifting else scatter,
    ), cost


def _apart(off: Any, execution: Any) -> Any:
    """Return the errors of times (logarithms) that are not common to all devices of an execution: if all were slower,
    or all faster, the least error of them says nothing about which one is the slowest."""
    import numpy as np

    found = off.copy()
    for e in np.unique(execution):
        here = off[execution == e]
        if len(here) > 1 and (np.all(here > 0.0) or np.all(here < 0.0)):
            found[execution == e] -= here[np.argmin(np.abs(here))]
    return found
