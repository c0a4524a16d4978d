"""Work stealing: which device runs which chunks of a divided launch is decided while it runs. Pure.

A launch is cut into *chunks*, once. Each device begins with a *deque* of neighbouring chunks and takes packets from its
front. A packet has at most a third of what the device would run until all devices end together, so that little is bound
when a prediction turns out to be wrong; and nothing is taken ahead if the packets in hand last until then. A device
whose deque is empty takes chunks from the far end of the deque that would end last, as many as let both end together:
work stealing (Blumofe and Leiserson, JACM 1999) with deques that begin as the plan's shares, so that neighbouring
chunks stay in one memory. Rates are measured from packets; until one has ended they are predicted. A packet that takes
longer than that shows it before it has ended.

Packets exist because an enqueued command cannot be taken back. Where launches can end early, a device takes all of its
deque at once, which costs no more than if shares could not move. A device that has nothing left asks for the end of
such a packet: it ends with the chunk that it is at, and the chunks after it are a deque again.

A device that has not begun, as it is busy with something else, delays no other device: these take packets from its
deque while they would otherwise be idle, whenever it is predicted to begin.

A launch may also be on one device at a time, the fastest that has begun (*in turn*): a faster device takes all that is
left, and a slower one takes nothing from it any more. So a kernel migrates (P. Metzger et al., "Device-Hopping", TACO
2021, Section 2.2): it begins on a slow device, and hops to a fast one when that is free.

Devices may leave, be lost and come meanwhile; the chunks that they leave are a deque for the next device.
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
"""The largest part of the time until all devices end together that a packet takes, where other devices are at work."""
MOMENT = 1 / 10
"""The largest part of the launch's time on all devices that a packet takes, or SHORTEST if that is more. So devices
that come or leave wait only so long. A packet may take longer so that its cost is at most COST of its computing."""
LAST = 2.0
"""The number of shortest packets. A device that would run less than so many until the end takes all of it at once."""
NEEDED = 0.5
"""The part of a shortest packet below which a device that has packets takes no more ahead."""
CRUMB = 1.25
"""The largest ratio of a deque's rest to a packet for which the packet takes all of it."""


def nothing_moves(device: DeviceIndex, first: int, last: int) -> float:
    """Return 0 seconds, for devices that share a memory."""
    return 0.0


class WorkStealing:
    """The work stealing of one launch. ``groups[c]``: the work-groups of chunk c. ``deques``: by device, its deque:
    chunks from one to before another. Each chunk is in one of them, or in one of the deques ``others``, which no device
    owns, except for ``ran`` chunks that need not run. ``terms``: the estimates of each device that may take part.
    ``moving(device, first, last)``: the seconds in which what chunks need comes to a device that does not have it.
    ``in_turn``: the launch runs on one device at a time."""

    def __init__(
        self,
        groups: Sequence[int],
        deques: Mapping[DeviceIndex, tuple[int, int]],
        terms: Mapping[DeviceIndex, Terms],
        moving: Callable[[DeviceIndex, int, int], float] = nothing_moves,
        *,
        others: Sequence[tuple[int, int]] = (),
        ran: int = 0,
        in_turn: bool = False,
    ) -> None:
        self._before = (0, *accumulate(groups))  # groups before a chunk
        self._moment = self._before[-1] * MOMENT
        self._members = {d: StealingWorker(t, deques.get(d, (0, 0))) for d, t in terms.items()}
        self._present = list(self._members.values())  # workers whose devices have not left
        self._open = list(others)  # deques that no device owns
        covered = sorted([*(w.rest for w in self._members.values() if w.rest[0] < w.rest[1]), *others])
        assert all(a[1] <= b[0] for a, b in pairwise(covered)), "no chunk is in two deques"
        assert sum(last - first for first, last in covered) == len(groups) - ran, "each chunk is in a deque"
        self._moving, self._in_turn = moving, in_turn
        self.shortening = {d for d, t in terms.items() if t.shortens}
        """The devices whose packets can end early."""
        self._left = len(groups) - ran  # chunks that no device was given
        self._rest = sum(self._before[last] - self._before[first] for first, last in covered)  # their groups

    @property
    def left(self) -> int:
        """The number of chunks that no device was given yet."""
        return self._left

    @property
    def is_over(self) -> bool:
        """True if all chunks have run."""
        return not (self._left or [w for w in self._members.values() if w.given])

    def wants(self, device: DeviceIndex) -> bool | None:
        """Return whether a device, whose deque has chunks, may be given a packet before one of those that it has has
        ended; None if its deque has none."""
        member = self._members.get(device)
        if member is None or not member.is_here or member.rest[0] == member.rest[1]:
            return None
        return len(member.given) < member.ahead

    def groups(self, first: int, last: int) -> int:
        """Return the number of work-groups in the chunks from one to before another."""
        return self._before[last] - self._before[first]

    def has_packets(self, device: DeviceIndex) -> bool:
        """Return whether a device has packets that are not known to have ended."""
        member = self._members.get(device)
        return member is not None and bool(member.given)

    def end(self, device: DeviceIndex, now: float) -> float:
        """Return when a device would have ended its packets and its deque."""
        return self._end(self._members[device], now)

    def standings(self, now: float) -> dict[DeviceIndex, Standing]:
        """Return the states of all devices that take part."""
        found = {}
        for device, w in self._members.items():
            first, last = w.rest
            since = None
            if w.given:
                packets = [packet for packet, _, _ in w.given]
                since, first, last = max(w.given[0][1], w.free), packets[0].first, packets[0].last
                for low, high in (*((p.first, p.last) for p in packets[1:]), w.rest):
                    if low == last:  # (chunks elsewhere are few)
                        last = high
            if w.is_here:
                found[device] = Standing(w.rate, w.packet, first, last, since, self._end(w, now))
        return found

    def ran(self, device: DeviceIndex) -> int:
        """Return the number of work-groups that a device was given, without those that other devices have taken from
        it."""
        member = self._members.get(device)
        return member.ran if member is not None else 0

    def settled(self, device: DeviceIndex) -> float:
        """Return the groups of the packets on which a device has settled; 0 where it has not."""
        member = self._members.get(device)
        size = member.size if member is not None else None
        return size.groups if size is not None and size.is_settled else 0.0

    @property
    def is_open(self) -> bool:
        """True if there is, or may be, something for devices to take: chunks that no device was given, or packets that
        can end early."""
        return bool(self._left) or any(w.given and w.shortens for w in self._members.values())

    # packets

    def deque(self, device: DeviceIndex) -> tuple[int, int]:
        """Return the deque of a device: chunks from one to before another."""
        return self._members[device].rest

    def take(self, device: DeviceIndex, now: float, limit: int | None = None) -> Packet | None:
        """Return the next packet of a device; None if it has enough, or if nothing that it would take would end earlier
        by that. ``limit``: the packet must be from its own deque, of chunks before this one."""
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
                return None  # its own packets have to end first
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
        packet, groups = named(Packet, (device, first, last, stolen)), self._before[last] - self._before[first]
        member.rest = last, end
        member.given.append((packet, now, groups))
        member.bound += groups
        member.ran += groups
        member.foresee()
        self._rest -= groups
        self._left -= last - first
        return packet

    def _end_of_packet(self, member: StealingWorker, first: int, end: int, now: float) -> int:
        """Return the end of the packet that begins with chunk ``first`` of a deque that ends before ``end``. Return
        ``first`` itself where the device's packets last until other devices will have run the rest."""
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
        if member.dear:  # but the end must not be late for that
            least = max(least, min(member.dear, seconds))
        if weight > rate and not self._in_turn:  # other devices are at work: all are to end together
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
        if not member.known and groups > member.first:  # the first packets measure the rate
            groups = member.first
        begin = before[first]
        if before[end] - begin <= CRUMB * groups:
            return end
        last = bisect_right(before, begin + groups, first, end + 1) - 1
        if last > first:
            return last
        if member.given and before[first + 1] - begin > 2 * left * rate:
            return first  # another device may run it earlier
        return first + 1

    def _in_a_turn(self, rate: float) -> float:
        """Return the seconds of a packet of a device with rate ``rate``, where the launch is on one device at a time. A
        faster device takes all that is left; packets given by then delay nothing as long as that takes longer."""
        fastest = max(w.rate for w in self._present)
        seconds = self._before[-1] / rate * MOMENT
        return min(seconds, self._rest / fastest / (GIVEN + 1)) if fastest > rate else seconds

    def _steal(self, device: DeviceIndex, thief: StealingWorker, now: float) -> DeviceIndex | None:
        """Move the end of the deque that would end last to a device whose deque is empty. Return the deque's owner."""
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
            at = self._end_of_packet(thief, low, high, now)
            if self._in_turn and self._moving(device, low, at) > self.groups(low, at) / own:
                return None  # the device for which all of it is planned may begin before that
            thief.rest, member.rest = (low, at), (at, high)
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
        chunks: tuple[int, int],
        end: float,
        now: float,
    ) -> int:
        """Return the chunk from which on a thief takes chunks of a victim that would end at ``end``; the end of the
        chunks if it takes none."""
        before, (low, high), own, theirs = self._before, chunks, thief.rate, victim.rate
        start = now + thief.packet
        if self._in_turn:
            groups = before[high] - before[low]
            return low if start + self._moving(device, low, high) + groups / own < end else high
        # both end together: groups / own + start == end - groups / theirs
        wanted = (end - start) / (1.0 / own + 1.0 / theirs)
        if wanted <= 0.0:
            return high
        cut = bisect_left(before, before[high] - wanted, low, high)
        for at in (max(cut - 1, low), cut):  # rather a bit more than too little: packets at a deque's end are small
            groups = before[high] - before[at]
            until = start + self._moving(device, at, high) + groups / own
            if groups and until < end and max(until, end - groups / theirs) < end:
                return at
        return high

    def _end(self, member: StealingWorker, now: float) -> float:
        """Return when a device would have ended its packets and its deque."""
        low, high = member.rest
        return member.through(now) + (self._before[high] - self._before[low]) / member.rate

    # packets that end early

    def wanted(self, device: DeviceIndex, now: float) -> Packet | None:
        """Return the packet of which an idle device wants the early end: that of the worker that would end last, if the
        device would take chunks of it. The worker may also be one that should end soon: if it does not, that is unknown
        until its packet ends."""
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
        # another device must not be stopped for chunks whose data come too late
        chunks = self._not_begun(victim, found, now), found.last
        return found if self._divide(device, thief, victim, chunks, latest, now) < found.last else None

    def _not_begun(self, member: StealingWorker, packet: Packet, now: float) -> int:
        """Return the first chunk of a packet that a device should not have begun yet, at most the last one."""
        before, begun = self._before[packet.first], 0.0
        for one, given, _ in member.given:
            if one == packet:
                begun = (now - max(given, member.free)) * member.rate
        return min(bisect_left(self._before, before + begun, packet.first, packet.last), packet.last - 1)

    def packets(self, device: DeviceIndex) -> list[Packet]:
        """Return the packets that a device has and that can end early."""
        return [packet for packet, _, _ in self._members[device].given] if device in self.shortening else []

    def shortened(self, packet: Packet, last: int, begun: float, now: float, thief: DeviceIndex | None) -> bool:
        """Shorten a packet to end before chunk ``last``; ``begun`` of its groups have begun by now. Return whether
        ``thief``, which has wanted that, has taken some of the chunks after it."""
        member, at, end = self._members[packet.device], packet.last, packet.last
        if last < end:
            member.shorten(packet, last, self.groups(packet.first, last), begun, now)
            self._left += end - last
            self._rest += self.groups(last, end)
            low, high = member.rest
            if member.is_here and low in (end, high):  # the deque follows the packet, or is empty
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
            self._opened(last, at)  # its deque is elsewhere
        return at < end

    @staticmethod
    def _has_nothing(member: StealingWorker) -> bool:
        return member.is_here and not member.given and member.rest[0] == member.rest[1]

    # events

    def ended(self, device: DeviceIndex, now: float) -> Packet:
        """Note that the first of a device's packets is complete, and return it."""
        return self._members[device].end(now)

    def leave(self, device: DeviceIndex) -> None:
        """Give a device nothing more. The packets that it was given end there."""
        member = self._members.get(device)
        if member is not None:
            member.is_here = False
            self._present = [w for w in self._members.values() if w.is_here]
            self._opened(*member.rest)
            member.rest = (0, 0)

    def come(self, device: DeviceIndex, terms: Terms, now: float) -> None:
        """Let a device take part from now on, with an empty deque."""
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


# The chunks of a launch that have not run, as deques: of the devices that owned them, and of no device. Pure.


def stocks_left(
    chunks: Chunks, done: Collection[int]
) -> tuple[dict[DeviceIndex, tuple[int, int]], list[tuple[int, int]]]:
    """Return the deque of each device, the first run of its neighbouring chunks that are left, and the other runs.
    ``done``: the steps that need not run."""
    own: dict[DeviceIndex, tuple[int, int]] = {}
    others: list[tuple[int, int]] = []
    for device, _, first, last in chunks.deques:
        found = list(_left(chunks, done, first, last))
        if found:
            own[device] = found[0]
            others += found[1:]
    return own, others


def _left(chunks: Chunks, done: Collection[int], first: int, last: int) -> Iterator[tuple[int, int]]:
    begin = first
    for chunk in range(first, last + 1):
        if chunk == last or chunks.steps[chunk] in done:
            if begin < chunk:
                yield begin, chunk
            begin = chunk + 1
