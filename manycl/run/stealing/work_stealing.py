"""Who runs which cells of a divided launch, decided while it runs. Pure.

A launch is cut into *cells*, once. Each device begins with a *stock* of neighbouring cells and takes packets from its
front: of what it would run until all end together a third at most, so that little is bound when something turns out to
be otherwise, and nothing ahead of what lasts until then. Who has none left takes from the far end of the stock that
would end last, as much as lets both end together: work stealing (Blumofe and Leiserson, JACM 1999) with stocks that
begin as the plan's shares, so that neighbouring cells stay in one memory. Rates are what packets have taken, and what
was foreseen as long as none has ended; a packet that takes longer than that tells so before it has ended.

Packets are there because what a device was given cannot be taken back. Where it can, as launches can end early, a
device takes all of its stock at once, which costs nothing more than if shares could not move; and who has nothing left
asks for the end of that: it ends with the cell that it is at, and what is behind is a stock again.

A device that has not begun, as it is busy with something else, keeps nobody waiting: of its stock, others take packet
by packet what they would otherwise be idle for, whatever is foreseen of when it begins.

A launch may also be on one device at a time, the fastest that has begun (*in turn*): who is faster takes all that is
left, and who is slower takes nothing from it any more. So a kernel migrates (P. Metzger et al., "Device-Hopping",
TACO 2021, Section 2.2): it begins on a slow device, and hops to a fast one when that is free.

Devices may leave, be lost and come while all of this goes on; what they leave behind is the next one's stock.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

from manycl.machine import DeviceIndex
from manycl.run.lowering.steps import Chunks
from manycl.run.stealing.worker import GIVEN, SHORTEST, Packet, Standing, StealingWorker, Terms
from manycl.utilities.changed import named

PART = 1 / 3
"""Of the time until all end together, takes a packet where others are at work, …"""
MOMENT = 1 / 10
"""… and at most this part of what the launch takes on all devices, or SHORTEST: so late is noticed that others come or
leave; but what a packet costs is at most COST of what it computes. …"""
LAST = 2.0
"""… A device that would run fewer of the shortest packets than this takes all at once, …"""
NEEDED = 0.5
"""… and nothing ahead where it would run less than this part of one; …"""
CRUMB = 1.25
"""… and all of a stock that is at most so many times the packet."""


def nothing_moves(device: DeviceIndex, first: int, last: int) -> float:
    """Of devices that share a memory."""
    return 0.0


class WorkStealing:
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
        self._moment = self._before[-1] * MOMENT
        self._members = {d: StealingWorker(t, stocks.get(d, (0, 0))) for d, t in terms.items()}
        self._present = list(self._members.values())  # those who are here
        self._open = list(others)  # stocks that nobody has any more
        covered = sorted([*(w.rest for w in self._members.values() if w.rest[0] < w.rest[1]), *others])
        assert all(a[1] <= b[0] for a, b in pairwise(covered)), "no cell is in two stocks"
        assert sum(last - first for first, last in covered) == len(groups) - ran, "each cell is in a stock"
        self._moving, self._in_turn = moving, in_turn
        self.shortening = {d for d, t in terms.items() if t.shortens}
        """The devices whose packets can end early."""
        self._left = len(groups) - ran  # cells that nobody was given
        self._rest = sum(self._before[last] - self._before[first] for first, last in covered)  # their groups

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

    def groups(self, first: int, last: int) -> int:
        """The work-groups of the cells from one to before another."""
        return self._before[last] - self._before[first]

    def has_enough(self, device: DeviceIndex) -> bool:
        """Whether a device is given no packet before one of those that it has has ended."""
        member = self._members[device]
        return len(member.given) >= member.ahead

    def standings(self, now: float) -> dict[DeviceIndex, Standing]:
        """Of all devices that take part."""
        found = {}
        for device, w in self._members.items():
            first, last = w.rest
            since = None
            if w.given:
                packets = [packet for packet, _, _ in w.given]
                since, first, last = max(w.given[0][1], w.free), packets[0].first, packets[0].last
                for low, high in (*((p.first, p.last) for p in packets[1:]), w.rest):
                    if low == last:  # what is elsewhere is little
                        last = high
            if w.is_here:
                found[device] = Standing(w.rate, w.packet, first, last, since, self._end(w, now))
        return found

    def ran(self, device: DeviceIndex) -> int:
        """The work-groups that a device was given, and nobody else has taken from it."""
        member = self._members.get(device)
        return member.ran if member is not None else 0

    def settled(self, device: DeviceIndex) -> float:
        """Groups of the packets that a device has settled on; 0 where it has not."""
        member = self._members.get(device)
        size = member.size if member is not None else None
        return size.groups if size is not None and size.is_settled else 0.0

    @property
    def is_open(self) -> bool:
        """Whether there is, or may be, something for devices to take: of what nobody has, or of what others have."""
        return bool(self._left) or any(w.given and w.shortens for w in self._members.values())

    @property
    def is_supplied(self) -> bool:
        """Whether that is so of all devices that are here, none ends a packet early, those that have left have ended
        what they had, and something is left."""
        for w in self._members.values():
            if w.given if not w.is_here else len(w.given) < w.ahead or w.shortens:
                return False
        return self._left > 0

    # packets

    def stock(self, device: DeviceIndex) -> tuple[int, int]:
        """The cells that a device has left, from one to before another."""
        return self._members[device].rest

    def take(self, device: DeviceIndex, now: float, limit: int | None = None) -> Packet | None:
        """The next packet of a device; None: it has enough, or nothing that it would take would end earlier by that.
        ``limit``: the packet is one of its own, of cells before this one."""
        member = self._members.get(device)
        if member is None or len(member.given) >= member.ahead or not self._left or not member.is_here:
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
        last = self._end_of_packet(member, first, end, now)
        if member.shortens and first < last:
            last = end
        if limit is not None and last > limit:
            last = limit
        if first == last:
            return None
        if not member.given and member.free < now:
            member.free = now
        member.has_begun = True
        return self._given(member, Packet(device, first, last, stolen), end, now)

    def _given(self, member: StealingWorker, packet: Packet, end: int, now: float) -> Packet:
        """A device is given the beginning of its stock, which ends before cell ``end``."""
        _, first, last, _ = packet
        before = self._before
        groups = before[last] - before[first]
        member.rest = last, end
        member.given.append((packet, now, groups))
        member.bound += groups
        member.ran += groups
        member.foresee()
        self._rest -= groups
        self._left -= last - first
        return packet

    def follow(self, device: DeviceIndex, now: float, is_last: bool) -> Packet | None:
        """A packet of a device has ended where none waits for another one (``is_supplied``): the next one of its own
        stock. None if there is none, or it is all of the stock, and not ``is_last``: nothing comes behind that."""
        member = self._members[device]
        member.end(now)
        first, end = member.rest
        if first < end:
            last = self._end_of_packet(member, first, end, now)
            if first < last and (last < end or is_last):
                return self._given(member, named(Packet, (device, first, last, None)), end, now)
        member.foresee()
        return None

    def _end_of_packet(self, member: StealingWorker, first: int, end: int, now: float) -> int:
        """The end of the packet that begins with cell ``first`` of a stock that ends before ``end``; ``first`` itself
        where what the device has bound lasts until others will have run the rest."""
        before, rate, until = self._before, member.rate, member.until
        mine = until if now < until and now <= member.due else member.through(now)
        weight, ends, together = rate, rate * mine, rate
        for w in self._present:
            if w is not member:
                theirs = w.rate
                together += theirs
                if w.has_begun:
                    weight += theirs
                    until = w.until
                    ends += theirs * (until if now < until and now <= w.due else w.through(now))
        left = (self._rest + ends) / weight - mine
        seconds = max(self._in_a_turn(rate) if self._in_turn else self._moment / together, SHORTEST)
        least = member.least
        if member.dear:  # that is no reason to be late
            least = max(least, min(member.dear, seconds))
        if weight > rate and not self._in_turn:  # others are at work: so that all end together
            if left < NEEDED * least and member.given:
                return first
            if left < LAST * member.least:
                seconds = left
            elif left * PART < seconds:
                seconds = left * PART
        if seconds < least and LAST * least <= left:
            seconds = least
        groups = (seconds if seconds < member.longest else member.longest) * rate
        groups = groups if groups < member.most else member.most
        if not member.known and groups > member.first:  # the first ones are to tell how long they take
            groups = member.first
        begin = before[first]
        if before[end] - begin <= CRUMB * groups:
            return end
        last = bisect_right(before, begin + groups, first, end + 1) - 1
        if last > first:
            return last
        if member.given and before[first + 1] - begin > 2 * left * rate:
            return first  # somebody else may run it earlier
        return first + 1

    def _in_a_turn(self, rate: float) -> float:
        """Seconds of a packet of a device that so many groups a second take, where the launch is on one at a time: who
        is faster takes all that is left, so those that are bound by then are in nobody's way as long as that lasts."""
        fastest = max(w.rate for w in self._present)
        seconds = self._before[-1] / rate * MOMENT
        return min(seconds, self._rest / fastest / (GIVEN + 1)) if fastest > rate else seconds

    def _steal(self, device: DeviceIndex, thief: StealingWorker, now: float) -> DeviceIndex | None:
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
            front, rest = self._front(thief, low, high, now)
            seconds = (self._before[front[1]] - self._before[low]) / own
            if self._in_turn and self._moving(device, *front) > seconds:
                return None  # who has all of it planned for himself may begin before that
            thief.rest, member.rest = front, rest
            return victim
        at = self._divide(device, thief, member, (low, high), ends[victim], now)
        if at == high:
            return None
        thief.rest, member.rest = (at, high), (low, at)
        return victim

    def _divide(
        self,
        device: DeviceIndex,
        thief: StealingWorker,
        victim: StealingWorker,
        cells: tuple[int, int],
        end: float,
        now: float,
    ) -> int:
        """From which cell on a thief takes some of a victim's, who would end at ``end``; the last one: nothing."""
        before, (low, high), own, theirs = self._before, cells, thief.rate, victim.rate
        start = now + thief.packet
        if self._in_turn:
            groups = before[high] - before[low]
            return low if start + self._moving(device, low, high) + groups / own < end else high
        # both end together: groups / own + start == end - groups / theirs
        wanted = (end - start) / (1.0 / own + 1.0 / theirs)
        if wanted <= 0.0:
            return high
        cut = bisect_left(before, before[high] - wanted, low, high)
        for at in (max(cut - 1, low), cut):  # rather a bit more than too little: the ends of what is stolen are small
            groups = before[high] - before[at]
            until = start + self._moving(device, at, high) + groups / own
            if groups and until < end and max(until, end - groups / theirs) < end:
                return at
        return high

    def _front(self, thief: StealingWorker, low: int, high: int, now: float) -> tuple[tuple[int, int], tuple[int, int]]:
        """The packet with which a stock begins, and the rest of it."""
        last = self._end_of_packet(thief, low, high, now)
        return (low, last), (last, high)

    def _end(self, member: StealingWorker, now: float) -> float:
        """When a device would be through with its packets and its stock."""
        low, high = member.rest
        return member.through(now) + (self._before[high] - self._before[low]) / member.rate

    # packets that end early

    def wanted(self, device: DeviceIndex, now: float) -> Packet | None:
        """Of whose packet a device that would take nothing wants the end: of what would end last, if it would take
        something of that. Also of one that should end soon: nobody hears of it before its end, if it does not."""
        thief = self._members.get(device)
        if thief is None or not self._has_nothing(thief) or self._open:
            return None
        latest, found, victim = -math.inf, None, thief
        for w in self._members.values():
            if w is thief or not w.shortens or not w.given or w.is_near or (self._in_turn and w.rate >= thief.rate):
                continue
            end = math.inf if now > w.due else self._end(w, now)
            packet = max((packet for packet, _, _ in w.given), key=lambda p: p.last - p.first)
            if end > latest and packet.last - packet.first > 1:
                latest, found, victim = end, packet, w
        if found is None or self._moving is nothing_moves or latest == math.inf:
            return found
        # who would only find out that what it needs comes too late has stopped another one for nothing
        cells = self._not_begun(victim, found, now), found.last
        return found if self._divide(device, thief, victim, cells, latest, now) < found.last else None

    def _not_begun(self, member: StealingWorker, packet: Packet, now: float) -> int:
        """The first of a packet's cells that a device should not have begun yet, but for the last one."""
        before, begun = self._before[packet.first], 0.0
        for one, given, _ in member.given:
            if one == packet:
                begun = (now - max(given, member.free)) * member.rate
        return min(bisect_left(self._before, before + begun, packet.first, packet.last), packet.last - 1)

    def packets(self, device: DeviceIndex) -> list[Packet]:
        """Those that a device has and that can end early."""
        return [packet for packet, _, _ in self._members[device].given] if device in self.shortening else []

    def shortened(self, packet: Packet, last: int, begun: float, now: float, thief: DeviceIndex | None) -> bool:
        """A packet ends before cell ``last``; of its groups it has begun ``begun`` by now. Whether ``thief``, who has
        wanted that, has taken some of the cells behind."""
        member, at, end = self._members[packet.device], packet.last, packet.last
        if last < end:
            member.shorten(packet, last, self.groups(packet.first, last), begun, now)
            self._left += end - last
            self._rest += self.groups(last, end)
            low, high = member.rest
            if member.is_here and low in (end, high):  # what is behind it, or nothing
                end = at = high if low < high else end
                member.rest = last, end
        taker = None if thief is None else self._members[thief]
        if thief is not None and taker is not None and self._has_nothing(taker):
            if last < end:
                ends = self._end(member, now)
                if member.rest != (last, end):
                    ends += self.groups(last, end) / member.rate
                at = self._divide(thief, taker, member, (last, end), ends, now)
                taker.rest = at, end
            member.is_near = at == end
        if member.rest == (last, end):
            member.rest = last, at
        else:
            self._opened(last, at)  # what it has is elsewhere
        return at < end

    @staticmethod
    def _has_nothing(member: StealingWorker) -> bool:
        return member.is_here and not member.given and member.rest[0] == member.rest[1]

    # events

    def ended(self, device: DeviceIndex, now: float) -> Packet:
        """The first of the packets that a device has was heard to be complete."""
        member = self._members[device]
        packet = member.end(now)
        member.foresee()
        return packet

    def leave(self, device: DeviceIndex) -> None:
        """A device is given nothing more. What it was given ends there."""
        member = self._members.get(device)
        if member is not None:
            member.is_here = False
            self._present = [w for w in self._members.values() if w.is_here]
            self._opened(*member.rest)
            member.rest = (0, 0)

    def lose(self, device: DeviceIndex) -> list[Packet]:
        """A device is gone: the packets that it was given and that have not ended. They are for others to run."""
        member = self._members.get(device)
        if member is None:
            return []
        self.leave(device)
        lost = member.lose()
        for taken in lost:
            self._opened(taken.first, taken.last)
            self._rest += self._before[taken.last] - self._before[taken.first]
            self._left += taken.last - taken.first
        return lost

    def come(self, device: DeviceIndex, terms: Terms, now: float) -> None:
        """A device takes part from now on, with nothing of its own."""
        member = self._members.get(device)
        if member is None:
            member = self._members[device] = StealingWorker(terms)
            if terms.shortens:
                self.shortening.add(device)
        member.is_here, member.free = True, max(now, member.free)
        self._present = [w for w in self._members.values() if w.is_here]

    def _opened(self, first: int, last: int) -> None:
        if first < last:
            self._open.append((first, last))


# The cells of a launch that have not run, as stocks: of the devices whose they were, and of nobody. Pure.


def stocks_left(
    cells: Chunks, done: Collection[int]
) -> tuple[dict[DeviceIndex, tuple[int, int]], list[tuple[int, int]]]:
    """Of each device the first of the cells that neighbour each other, and others; ``done``: the steps that need not
    run."""
    own: dict[DeviceIndex, tuple[int, int]] = {}
    others: list[tuple[int, int]] = []
    for device, _, first, last in cells.stocks:
        found = list(_left(cells, done, first, last))
        if found:
            own[device] = found[0]
            others += found[1:]
    return own, others


def _left(cells: Chunks, done: Collection[int], first: int, last: int) -> Iterator[tuple[int, int]]:
    begin = first
    for cell in range(first, last + 1):
        if cell == last or cells.steps[cell] in done:
            if begin < cell:
                yield begin, cell
            begin = cell + 1
