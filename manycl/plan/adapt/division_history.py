"""The division history of a family of kernels, and the decision whether ``adaptive`` divides it at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from manycl.machine import DeviceIndex
from manycl.plan.adapt.data_flow import Waits
from manycl.plan.adapt.families import Family
from manycl.plan.adapt.granularity import Granularity, anew, beside, cuts, daring
from manycl.plan.tuning import ADAPT
from manycl.utilities.kept import ENOUGH


@dataclass(frozen=True, slots=True)
class DivisionHistory:
    """The history of a family's division.

    ``devices``: indices of those that may run it (empty: it is not divided). ``granularity``: how its groups are shared
    out. ``waits``: for each device, the seconds that it waits for data beside its kernels, if it has any groups and for
    each of the leader's (``plan/adapt/data_flow.py``). ``overhead``: seconds that dividing costs once. ``moving``: the
    seconds to move all linear regions to each device. ``believed``: by device, the ratio of measured to predicted
    waits, by which predictions are multiplied. ``whole``: the one of ``devices`` that has all groups, since dividing
    does not pay (None: it does); ``compared``: the devices measured like that. ``guessed``: data decide how often its
    loops run. ``trial``: it is divided to measure how long that takes."""

    family: Family
    devices: tuple[DeviceIndex, ...]
    granularity: Granularity
    waits: Waits
    overhead: float = 0.0
    moving: tuple[float, ...] = ()
    believed: tuple[float, ...] = ()
    whole: int | None = None
    compared: frozenset[int] = frozenset()
    guessed: bool = False
    trial: bool = False

    def cuts(self) -> tuple[int, ...]:
        """Return the cuts of the leader's groups, by device."""
        return cuts(self.granularity) if self.whole is None else self.granularity.whole(self.whole)

    def choices(self) -> list[tuple[int, ...]]:
        """Return the cuts between which it is judged: all groups on each device; divided."""
        return [*map(self.granularity.whole, range(len(self.devices))), cuts(self.granularity)]

    def judged(self, others: Sequence[float] = ()) -> DivisionHistory:
        """Return the history with the decision: divided or whole, whichever is predicted to be shorter, each as
        measured where it was. ``others``: the seconds that each of the choices costs other families."""
        g = self.granularity
        others = others or (0.0,) * (len(self.devices) + 1)
        used = [i for i, n in enumerate(g.shares) if n]
        single = [g.alone(i) + others[i] for i in range(len(self.devices))]
        best = self._best(single) if self.whole is None else self.whole
        both = g.divided > 0 and best in self.compared
        more = self.overhead + others[-1]
        untried = best in self.compared and not g.divided and g.turn < ENOUGH
        if untried and self._fastest(best) + more < (1.0 - ADAPT.worth) * single[best]:
            g = daring(g, best)  # the other devices' times are not known well: they are tried
            if sum(n > 0 for n in g.shares) > 1:
                return replace(self, granularity=g, whole=None, trial=True)
        together = (g.together() if both else max(*g.foreseen(), g.seen)) + more
        worth = self._worth(best, single[best], together, more)
        divided = len(used) > 1 and together < (1.0 - worth) * single[best]
        trial = divided and worth == -math.inf
        return replace(self, whole=None if divided else used[0] if len(used) == 1 else best, trial=trial)

    def waited(
        self, foreseen: Sequence[float], seconds: Sequence[float], *, again: bool, first: bool
    ) -> DivisionHistory:
        """Return the history after an execution in which devices waited for ``seconds`` instead of the time predicted
        from the machine's links (``foreseen``; 0: nothing is learned). Data that come only once make waits longer. So
        unless the execution before had the same cuts (``again``), only shorter waits are believed at once; nothing is
        learned from the ``first`` execution, whose data were on the host."""
        believed = list(self.believed or (1.0,) * len(self.devices))
        for i, (f, s) in enumerate(zip(foreseen, seconds, strict=True)):
            if f > ADAPT.jitter and not first:
                now = min(s / f, ADAPT.most_waiting)
                believed[i] += (now - believed[i]) * (1.0 if now < believed[i] else ADAPT.news if again else 0.0)
        return replace(self, believed=tuple(believed))

    def believing(self, waits: Waits) -> Waits:
        """Return predicted waits corrected by the measured ones."""
        if not self.believed:
            return waits
        return tuple((b * once, b * each) for b, (once, each) in zip(self.believed, waits, strict=True))

    def slowest(self, waits: Waits) -> float:
        """Return the seconds of the device that is predicted to take the longest with these waits."""
        at = self.cuts()
        beside = zip(self.granularity.foreseen(at), waits, self.waits, pairwise(at), strict=True)
        return max(s + o - p + (e - f) * (b - a) for s, (o, e), (p, f), (a, b) in beside if b > a)

    def adapted(self, waits: Waits) -> float:
        """Return the same with the cost of dividing, if the family is then divided anew, or whole at much gain."""
        now = self.slowest(waits)
        divided = anew(self.granularity, *self._more(waits)) + self.overhead
        if self.whole is None:
            return min(now + self.overhead, divided)
        return divided if divided < (1.0 - 2.0 * ADAPT.worth) * now else now

    def waiting(self, waits: Waits) -> DivisionHistory:
        """Return the history with other waits, if they make a difference."""
        g = self.granularity
        once, each = self._more(waits)
        news = max(abs(o) + abs(e) * g.groups for o, e in zip(once, each, strict=True))
        if news <= g.dead_band * max(g.foreseen()):
            return self
        return replace(self, granularity=beside(g, once, each), waits=waits)

    def _more(self, waits: Waits) -> tuple[list[float], list[float]]:
        """Return by how much waits are longer than known: once, and for each group."""
        both = list(zip(waits, self.waits, strict=True))
        return [o - p for (o, _), (p, _) in both], [e - f for (_, e), (_, f) in both]

    def _worth(self, best: int, single: float, together: float, more: float) -> float:
        """Return the part of its time on the best device that dividing must be predicted to gain; it costs ``more``."""
        g = self.granularity
        if g.divided and best in self.compared:
            alone = [run.turn for run in g.history if run.cuts == g.whole(best)]
            close = (1.0 - ADAPT.close) * single < together < (1.0 + ADAPT.close) * single
            if close and g.divided == 1 and alone == [1]:
                return math.inf  # the very first execution takes longer: so it is run whole again
            again = together < (1.0 + ADAPT.close) * single and g.divided == 1 and len(alone) == 1
            return -math.inf if again else 0.0 if self.whole is None else ADAPT.dead_band
        far = self.moving[best] * (1.0 - g.shares[best] / g.groups) > ADAPT.moving * together
        unknown = g.narrow or (self.guessed and single < ADAPT.dear * together)
        if unknown and g.divided == 1 and not far and together > (1.0 - ADAPT.noisy_band) * g.alone_at_least():
            return math.inf  # dividing may have gained nothing: it is run whole on trial
        if g.narrow and best in self.compared and g.evenly() + self.overhead < (1.0 - 2.0 * ADAPT.worth) * single:
            return -math.inf  # dividing may gain much
        if best in self.compared or (single < ADAPT.tried * self.overhead and not self.guessed):
            # a division given up before must promise more
            return ADAPT.worth if self.whole is None else 2.0 * ADAPT.worth
        if g.narrow or not g.divided or (not g.settled and g.divided < ENOUGH):
            return -math.inf  # a long kernel is divided on trial
        if not g.settled:  # other divisions may be better than those tried
            return -math.inf if max(g.foreseen()) + more < (1.0 - ADAPT.noisy_band) * single else math.inf
        return ADAPT.noisy_band

    def _fastest(self, best: int) -> float:
        """Return the seconds of all devices together if the other devices are as fast as they may be."""
        g = self.granularity
        faster = math.exp(ADAPT.sure * g.prior.rate_doubt)
        others = (faster / g.alone(i) for i in range(len(g.shares)) if i != best)
        return 1.0 / (1.0 / g.alone(best) + sum(others))

    def _best(self, single: Sequence[float]) -> int:
        """Return the device that would have all groups: one that has had them, if no other is much faster."""
        best = single.index(min(single))
        had = [i for i in self.compared if single[i] < (1.0 + ADAPT.close) * single[best]]
        return min(had, key=lambda i: single[i], default=best)
