"""Who runs which cells of a divided launch, decided while it runs. Pure.

A launch is cut into *cells*, once. Each device begins with a *stock* of neighbouring cells and takes packets from its
front: of what is left a sixth at most where others are at work, so that little is bound when something turns out to be
otherwise. Who has none left takes from the far end of the stock that would end last, as much as lets both end together:
work stealing (Blumofe and Leiserson, JACM 1999) with stocks that begin as the plan's shares, so that neighbouring cells
stay in one memory. Rates are what packets have taken, and what was foreseen as long as none has ended.

A device that has not begun, as it is busy with something else, keeps nobody waiting: of its stock, others take packet
by packet what they would otherwise be idle for, whatever is foreseen of when it begins.

A launch may also be on one device at a time, the fastest that has begun (*in turn*): who is faster takes all that is
left, and who is slower takes nothing from it any more. So a kernel migrates (P. Metzger et al., "Device-Hopping",
TACO 2021, Section 2.2): it begins on a slow device, and hops to a fast one when that is free.

Devices may leave, be lost and come while all of this goes on; what they leave behind is the next one's stock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple

from manycl.machine import DeviceIndex
from manycl.model.slices import MEASURED, MeasuredSlices

PART = 1 / 6
"""Of what is left of a stock, is a packet where others are at work, …"""
MOMENT, SHORTEST = 1 / 10, 2e-3
"""… and at most this part of what the launch takes on all devices, or so many seconds: so late is noticed that others
come or leave; …"""
COST = 0.05
"""… but what a packet costs is at most this part of what it computes."""
GIVEN = 2
"""Packets that a device is given ahead, the running one among them."""
LATEST = 0.5
"""The weight of the last packet's rate among all that were measured (devices become slower and faster), of a packet of
SHORTEST seconds; shorter ones, which take as long as it takes to hear of them, count in proportion."""
UNLIKE = 1.5
"""The first packets of a device tell what each of them costs beside its groups, if the largest is so many times the
smallest; later ones would as well tell that a device becomes slower. …"""
DEAREST = 2 * SHORTEST * COST
"""… That is taken for so many seconds at most."""


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
    terms: InitVar[Terms]
    rest: tuple[int, int] = (0, 0)
    """The stock: cells from one to before another."""
    given: deque[tuple[Packet, float]] = field(default_factory=deque)
    """Packets that have not ended, with when they were given."""
    rate: float = field(init=False)
    """Groups a second: as foreseen, then as measured."""
    packet: float = field(init=False)
    """Seconds that a packet costs beside its groups: as foreseen, then as measured."""
    measured: MeasuredSlices = field(init=False)
    """Packets that the device went over to without waiting for anybody."""
    known: float = 0.0
    """How much of the rate is measured: 1 after a packet of SHORTEST seconds, or some that are shorter."""
    free: float = 0.0
    """When it was last known to have ended something."""
    is_here: bool = True
    has_begun: bool = False

    def __post_init__(self, terms: Terms) -> None:
        self.rate, self.packet = 1.0 / terms.group, terms.packet
        self.measured = MeasuredSlices(0)

    def ran(self, groups: int, given: float, now: float) -> None:
        """A packet of so many groups that was given at a time has ended now."""
        took = now - max(given, self.free)
        if took > self.packet:
            telling = min(took / SHORTEST, 1.0)
            weight = telling * max(LATEST, 1.0 - self.known)
            self.known += telling
            self.rate = 1.0 / (weight * (took - self.packet) / groups + (1.0 - weight) / self.rate)
        if given <= self.free and len(self.measured.taken) < MEASURED:
            self.measured.add(groups, took)
            sizes = sorted(n for n, _ in self.measured.taken)
            found = self.measured.fit()
            if found is not None and sizes[-1] >= UNLIKE * sizes[0]:
                self.packet = min(found[0], DEAREST)
        self.free = now


def nothing_moves(device: DeviceIndex, first: int, last: int) -> float:
    """Of devices that share a memory."""
    return 0.0


class Stealing:
    """One launch. ``groups[c]``: the work-groups of cell c; ``stocks``: by device, cells from one to before another,
    each cell in one of them, or in one of ``others``, which are nobody's, but for ``ran`` cells that need not run;
    ``terms``: by device that may take part. ``moving(device, first, last)``: the seconds in which what cells need comes
    to a device that does not have it. ``in_turn``: it runs on one device at a time."""

    def __init__(
        self,
        groups: Sequence[int],
        stocks: Mapping[DeviceIndex, tuple[int, int]],
        terms: Mapping[DeviceIndex, Terms],
        moving: Callable[[DeviceIndex, int, int], float] = nothing_moves,
        *,
        others: Sequence[tuple[int, int]] = (),
        ran: int = 0,
        in_turn: bool = False,
    ) -> None:
        self._before = (0, *accumulate(groups))  # groups before a cell
        self._members = {d: _Member(t, stocks.get(d, (0, 0))) for d, t in terms.items()}
        self._open = list(others)  # stocks that nobody has any more
        covered = sorted([*(w.rest for w in self._members.values() if w.rest[0] < w.rest[1]), *others])
        assert all(a[1] <= b[0] for a, b in pairwise(covered)), "no cell is in two stocks"
        assert sum(last - first for first, last in covered) == len(groups) - ran, "each cell is in a stock"
        self._moving, self._in_turn = moving, in_turn
        self._left = len(groups) - ran  # cells that nobody was given

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
        member.has_begun = True
        member.given.append((taken, now))
        self._left -= last - first
        return taken

    def _end_of_packet(self, member: _Member, first: int, end: int) -> int:
        """The end of the packet that begins with cell ``first`` of a stock that ends before ``end``."""
        before, rate = self._before, member.rate
        rest = before[end] - before[first]
        together = sum(w.rate for w in self._members.values() if w.is_here)
        part = max(before[-1] / together * MOMENT, SHORTEST) * rate
        if not self._in_turn and any(w.has_begun and w.is_here for w in self._members.values() if w is not member):
            part = min(part, rest * PART)  # so that all end together
        least = member.packet / COST * rate
        if part < least and rest < 2 * least:  # two would be too small
            return end
        return max(bisect_right(before, before[first] + max(part, least), first, end + 1) - 1, first + 1)

    def _steal(self, device: DeviceIndex, thief: _Member, now: float) -> DeviceIndex | None:
        """The end of the stock that would end last becomes the stock of a device that has none; who it is from."""
        own = thief.rate
        ends = {
            d: self._end(w, now)
            for d, w in self._members.items()
            if w.rest[0] < w.rest[1] and (not self._in_turn or not w.has_begun or w.rate < own)
        }
        if not ends:
            return None
        victim = max(ends, key=ends.__getitem__)
        member = self._members[victim]
        low, high = member.rest
        if not member.has_begun:
            thief.rest, member.rest = self._front(thief, low, high)
            return victim
        theirs = member.rate
        start = now + thief.packet
        if self._in_turn:
            groups = self._before[high] - self._before[low]
            if start + self._moving(device, low, high) + groups / own >= ends[victim]:
                return None
            thief.rest, member.rest = (low, high), (high, high)
            return victim
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

    def _front(self, thief: _Member, low: int, high: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """The packet with which a stock begins, and the rest of it."""
        last = self._end_of_packet(thief, low, high)
        return (low, last), (last, high)

    def _end(self, member: _Member, now: float) -> float:
        """When a device would be through with its packets and its stock."""
        before = self._before
        groups = before[member.rest[1]] - before[member.rest[0]]
        bound = sum(before[t.last] - before[t.first] for t, _ in member.given)
        rate = member.rate
        running = max(member.free + bound / rate, now) if member.given else now
        return running + groups / rate

    # events

    def ended(self, device: DeviceIndex, now: float) -> Packet:
        """The first of the packets that a device has was heard to be complete."""
        member = self._members[device]
        taken, given = member.given.popleft()
        member.ran(self._before[taken.last] - self._before[taken.first], given, now)
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
        member.is_here, member.free = True, max(now, member.free)

    def _opened(self, first: int, last: int) -> None:
        if first < last:
            self._open.append((first, last))
