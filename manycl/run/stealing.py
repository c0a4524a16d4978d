"""Who runs which cells of a divided launch, decided while it runs. Pure.

A launch is cut into *cells*, once. Each device begins with a *stock* of neighbouring cells and takes packets from its
front: a sixth of what is left at most, so that little is bound when something turns out to be otherwise. Who has none
left takes from the far end of the stock that would end last, as much as lets both end together: work stealing (Blumofe
and Leiserson, JACM 1999) with stocks that begin as the plan's shares, so that neighbouring cells stay in one memory.
Rates are what packets have taken, and what was foreseen as long as none has ended.

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
"""Of what is left of a stock, is a packet, …"""
MOMENT, SHORTEST = 1 / 10, 2e-3
"""… and at most this part of what the launch takes on all devices, or so many seconds: so late is noticed that others
come or leave; …"""
COST = 0.05
"""… but what a packet costs is at most this part of what it computes."""
GIVEN = 2
"""Packets that a device is given ahead, the running one among them."""
LATEST = 0.5
"""The weight of the last packet's rate among all that were measured: devices become slower and faster."""


class Terms(NamedTuple):
    """What is foreseen of a device: seconds of a work-group, and seconds that a packet costs beside its groups."""

    group: float
    packet: float


class Packet(NamedTuple):
    """Cells from ``first`` to before ``last`` run on a device, as one packet. ``stolen``: from whom, if its stock was
    empty."""

    device: DeviceIndex
    first: int
    last: int
    stolen: DeviceIndex | None = None


@dataclass(slots=True)
class _Member:
    terms: Terms
    rest: tuple[int, int] = (0, 0)
    """The stock: cells from one to before another."""
    given: deque[tuple[Packet, float]] = field(default_factory=deque)
    """Packets that have not ended, with when they were given."""
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
        self._members = {d: _Member(t, stocks.get(d, (0, 0))) for d, t in terms.items()}
        covered = sorted(w.rest for w in self._members.values() if w.rest[0] < w.rest[1])
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
        return not self._left and not any(w.given for w in self._members.values())

    def has_own(self, device: DeviceIndex) -> bool:
        """Whether a device has a stock left."""
        member = self._members.get(device)
        return member is not None and member.is_here and member.rest[0] < member.rest[1]

    # packets

    def stock(self, device: DeviceIndex) -> tuple[int, int]:
        """The cells that a device has left, from one to before another."""
        return self._members[device].rest

    def take(self, device: DeviceIndex, now: float, limit: int | None = None) -> Packet | None:
        """The next packet of a device; None: it has enough, or nothing that it would take would end earlier by that.
        ``limit``: the packet is one of its own, of cells before this one."""
        member = self._members.get(device)
        if member is None or len(member.given) >= GIVEN or not self._left or not member.is_here:
            return None
        stolen = None
        if limit is not None:
            if member.rest[0] >= min(limit, member.rest[1]):
                return None
        elif member.rest[0] == member.rest[1]:
            if self._open:
                member.rest = self._open.pop()
            elif member.given:
                return None  # what it has bound already is not known to have an end yet
            else:
                stolen = self._steal(device, member, now)
                if stolen is None:
                    return None
        first, end = member.rest
        last = self._end_of_packet(member, first, end)
        if limit is not None:
            last = min(last, limit)
        member.rest = last, end
        taken = Packet(device, first, last, stolen)
        if not member.given:
            member.free = max(member.free, now)
        member.given.append((taken, now))
        self._left -= last - first
        return taken

    def _end_of_packet(self, member: _Member, first: int, end: int) -> int:
        """The end of the packet that begins with cell ``first`` of a stock that ends before ``end``."""
        before, rate = self._before, self._rate(member)
        rest = before[end] - before[first]
        together = sum(self._rate(w) for w in self._members.values() if w.is_here)
        part = min(rest * PART, max(before[-1] / together * MOMENT, SHORTEST) * rate)
        least = member.terms.packet / COST * rate
        if part < least and rest < 2 * least:  # two would be too small
            return end
        return max(bisect_right(before, before[first] + max(part, least), first, end + 1) - 1, first + 1)

    def _rate(self, member: _Member) -> float:
        return member.rate or 1.0 / member.terms.group

    def _steal(self, device: DeviceIndex, thief: _Member, now: float) -> DeviceIndex | None:
        """The end of the stock that would end last becomes the stock of a device that has none; who it is from."""
        ends = {d: self._end(w, now) for d, w in self._members.items() if w.rest[0] < w.rest[1]}
        if not ends:
            return None
        victim = max(ends, key=ends.__getitem__)
        member = self._members[victim]
        low, high = member.rest
        own, theirs = self._rate(thief), self._rate(member)
        start = now + thief.terms.packet
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
                thief.rest, member.rest = (at, high), (low, at)
                return victim
        return None

    def _end(self, member: _Member, now: float) -> float:
        """When a device would be through with its packets and its stock."""
        before = self._before
        groups = before[member.rest[1]] - before[member.rest[0]]
        bound = sum(before[t.last] - before[t.first] for t, _ in member.given)
        rate = self._rate(member)
        running = max(member.free + bound / rate, now) if member.given else now
        return running + groups / rate

    # events

    def ended(self, device: DeviceIndex, now: float) -> Packet:
        """The first of the packets that a device has was heard to be complete."""
        member = self._members[device]
        taken, given = member.given.popleft()
        seconds = now - max(given, member.free) - member.terms.packet
        groups = self._before[taken.last] - self._before[taken.first]
        if seconds > 0.0:
            rate = groups / seconds
            member.rate = rate if not member.rate else 1.0 / (LATEST / rate + (1.0 - LATEST) / member.rate)
        member.free = now
        return taken

    def leave(self, device: DeviceIndex) -> None:
        """A device is given nothing more. What it was given ends there."""
        member = self._members.get(device)
        if member is not None:
            member.is_here = False
            self._opened(*member.rest)
            member.rest = (0, 0)

    def lose(self, device: DeviceIndex) -> list[Packet]:
        """A device is gone: the packets that it was given and that have not ended. They are for others to run."""
        member = self._members.get(device)
        if member is None:
            return []
        self.leave(device)
        lost = [taken for taken, _ in member.given]
        member.given.clear()
        for taken in lost:
            self._opened(taken.first, taken.last)
            self._left += taken.last - taken.first
        return lost

    def come(self, device: DeviceIndex, terms: Terms, now: float) -> None:
        """A device takes part from now on, with nothing of its own."""
        member = self._members.get(device)
        if member is None:
            member = self._members[device] = _Member(terms)
        member.terms, member.is_here, member.free = terms, True, max(now, member.free)

    def _opened(self, first: int, last: int) -> None:
        if first < last:
            self._open.append((first, last))
