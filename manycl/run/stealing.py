"""Who runs which cells of a divided launch, decided while it runs. Pure.

A launch is cut into *cells*, once. Each device begins with a *stock* of neighbouring cells and takes pieces from its
front: a sixth of what is left at most, so that little is bound when something turns out to be otherwise. Who has none
left takes from the far end of the stock that would end last, as much as lets both end together: work stealing (Blumofe
and Leiserson, JACM 1999) with stocks that begin as the plan's shares, so that neighbouring cells stay in one memory.
Rates are what pieces have taken, and what was foreseen as long as none has ended.

Devices may leave, be lost and come while all of this goes on; what they leave behind is the next one's stock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from manycl.machine import DeviceIndex

PART = 1 / 6
"""Of what is left of a stock, is a piece, …"""
MOMENT, SHORTEST = 1 / 10, 2e-3
"""… and at most this part of what the launch takes on all devices, or so many seconds: so late is noticed that others
come or leave; …"""
COST = 0.05
"""… but what a piece costs is at most this part of what it computes."""
GIVEN = 2
"""Pieces that a device is given ahead, the running one among them."""
LATEST = 0.5
"""The weight of the last piece's rate among all that were measured: devices become slower and faster."""


class Terms(NamedTuple):
    """What is foreseen of a device: seconds of a work-group, and seconds that a piece costs beside its groups."""

    group: float
    piece: float


class Take(NamedTuple):
    """Cells from ``first`` to before ``last`` run on a device, as one piece. ``stolen``: from whom, if its stock was
    empty."""

    device: DeviceIndex
    first: int
    last: int
    stolen: DeviceIndex | None = None


@dataclass(slots=True)
class _Worker:
    terms: Terms
    rest: tuple[int, int] = (0, 0)
    """The stock: cells from one to before another."""
    given: deque[tuple[Take, float]] = field(default_factory=deque)
    """Pieces that have not ended, with when they were given."""
    rate: float = 0.0
    """Groups a second, measured (0: not yet)."""
    free: float = 0.0
    """When it was last known to have ended something."""
    is_here: bool = True


def _nothing_moves(device: DeviceIndex, first: int, last: int) -> float:
    return 0.0


class Stealing:
    """One launch. ``groups[c]``: the work-groups of cell c; ``stocks``: by device, cells from one to before another,
    each cell in one of them; ``terms``: by device that may take part. ``moving(device, first, last)``: the seconds in
    which what cells need comes to a device that does not have it."""

    def __init__(
        self,
        groups: Sequence[int],
        stocks: Mapping[DeviceIndex, tuple[int, int]],
        terms: Mapping[DeviceIndex, Terms],
        moving: Callable[[DeviceIndex, int, int], float] = _nothing_moves,
    ) -> None:
        self._before = (0, *accumulate(groups))  # groups before a cell
        self._workers = {d: _Worker(t, stocks.get(d, (0, 0))) for d, t in terms.items()}
        covered = sorted(w.rest for w in self._workers.values() if w.rest[0] < w.rest[1])
        bounds = [0, *(last for _, last in covered)]
        assert bounds[-1] == len(groups), "each cell is in one stock"
        assert [first for first, _ in covered] == bounds[:-1], "each cell is in one stock"
        self._moving = moving
        self._open: list[tuple[int, int]] = []  # stocks that nobody has any more
        self._left = len(groups)  # cells that nobody was given

    @property
    def left(self) -> int:
        """How many cells nobody was given yet."""
        return self._left

    @property
    def is_over(self) -> bool:
        """Whether all cells have run."""
        return not self._left and not any(w.given for w in self._workers.values())

    def has_own(self, device: DeviceIndex) -> bool:
        """Whether a device has a stock left."""
        worker = self._workers.get(device)
        return worker is not None and worker.is_here and worker.rest[0] < worker.rest[1]

    # pieces

    def take(self, device: DeviceIndex, now: float) -> Take | None:
        """The next piece of a device; None: it has enough, or nothing that it would take would end earlier by that."""
        worker = self._workers.get(device)
        if worker is None or not worker.is_here or len(worker.given) >= GIVEN or not self._left:
            return None
        stolen = None
        if worker.rest[0] == worker.rest[1]:
            if self._open:
                worker.rest = self._open.pop()
            elif worker.given:
                return None  # what it has bound already is not known to have an end yet
            else:
                stolen = self._steal(device, worker, now)
                if stolen is None:
                    return None
        first, end = worker.rest
        last = self._piece(worker, first, end)
        worker.rest = last, end
        taken = Take(device, first, last, stolen)
        if not worker.given:
            worker.free = max(worker.free, now)
        worker.given.append((taken, now))
        self._left -= last - first
        return taken

    def _piece(self, worker: _Worker, first: int, end: int) -> int:
        """The end of the piece that begins with cell ``first`` of a stock that ends before ``end``."""
        before, rate = self._before, self._rate(worker)
        rest = before[end] - before[first]
        together = sum(self._rate(w) for w in self._workers.values() if w.is_here)
        part = min(rest * PART, max(before[-1] / together * MOMENT, SHORTEST) * rate)
        least = worker.terms.piece / COST * rate
        if part < least and rest < 2 * least:  # two would be too small
            return end
        return max(bisect_right(before, before[first] + max(part, least), first, end + 1) - 1, first + 1)

    def _rate(self, worker: _Worker) -> float:
        return worker.rate or 1.0 / worker.terms.group

    def _steal(self, device: DeviceIndex, thief: _Worker, now: float) -> DeviceIndex | None:
        """The end of the stock that would end last becomes the stock of a device that has none; who it is from."""
        ends = {d: self._end(w, now) for d, w in self._workers.items() if w.rest[0] < w.rest[1]}
        if not ends:
            return None
        victim = max(ends, key=ends.__getitem__)
        worker = self._workers[victim]
        low, high = worker.rest
        own, theirs = self._rate(thief), self._rate(worker)
        start = now + thief.terms.piece
        spare = ends[victim] - start
        # both end together: groups / own + start == end - groups / theirs
        wanted = spare / (1.0 / own + 1.0 / theirs)
        if wanted <= 0.0:
            return None
        before = self._before
        cut = bisect_left(before, before[high] - wanted, low, high)
        for at in (max(cut - 1, low), cut):  # rather a bit more than too little: the ends of what is stolen are small
            groups = before[high] - before[at]
            if not groups:
                return None
            until = start + self._moving(device, at, high) + groups / own
            if until < ends[victim] and max(until, ends[victim] - groups / theirs) < ends[victim]:
                thief.rest, worker.rest = (at, high), (low, at)
                return victim
        return None

    def _end(self, worker: _Worker, now: float) -> float:
        """When a device would be through with its pieces and its stock."""
        before = self._before
        groups = before[worker.rest[1]] - before[worker.rest[0]]
        bound = sum(before[t.last] - before[t.first] for t, _ in worker.given)
        rate = self._rate(worker)
        running = max(worker.free + bound / rate, now) if worker.given else now
        return running + groups / rate

    # events

    def ended(self, device: DeviceIndex, now: float) -> Take:
        """The first of the pieces that a device has was heard to be complete."""
        worker = self._workers[device]
        taken, given = worker.given.popleft()
        seconds = now - max(given, worker.free) - worker.terms.piece
        groups = self._before[taken.last] - self._before[taken.first]
        if seconds > 0.0:
            rate = groups / seconds
            worker.rate = rate if not worker.rate else 1.0 / (LATEST / rate + (1.0 - LATEST) / worker.rate)
        worker.free = now
        return taken

    def leave(self, device: DeviceIndex) -> None:
        """A device is given nothing more. What it was given ends there."""
        worker = self._workers.get(device)
        if worker is not None:
            worker.is_here = False
            self._opened(*worker.rest)
            worker.rest = (0, 0)

    def lose(self, device: DeviceIndex) -> list[Take]:
        """A device is gone: the pieces that it was given and that have not ended. They are for others to run."""
        worker = self._workers.get(device)
        if worker is None:
            return []
        self.leave(device)
        lost = [taken for taken, _ in worker.given]
        worker.given.clear()
        for taken in lost:
            self._opened(taken.first, taken.last)
            self._left += taken.last - taken.first
        return lost

    def come(self, device: DeviceIndex, terms: Terms, now: float) -> None:
        """A device takes part from now on, with nothing of its own."""
        worker = self._workers.get(device)
        if worker is None:
            worker = self._workers[device] = _Worker(terms)
        worker.terms, worker.is_here, worker.free = terms, True, max(now, worker.free)

    def _opened(self, first: int, last: int) -> None:
        if first < last:
            self._open.append((first, last))
