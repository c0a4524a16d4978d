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
from collections.abc import Callable, Mapping, Set
from itertools import accumulate, groupby
from operator import itemgetter
from typing import NamedTuple

from manycl.graph.graph import Launch
from manycl.machine import DeviceIndex
from manycl.plan.preemptible import PACKETS_IN_FLIGHT
from manycl.run.lowering.steps import Chunks
from manycl.run.stealing.worker import SHORTEST, TIMES, Packet, StealingWorker, Terms
from manycl.utilities.changed import named

PART = 1 / 3
"""The largest part of the time until all devices end together that a packet takes, where other devices are at work; and
of the rest of its share that a chunk is, so that the last ones, which are stolen, are short. Our own choice."""
MOMENT = 1 / 10
"""The largest part of the launch's time on all devices that a packet takes, or SHORTEST if that is more; our own
choice. So devices that come or leave wait only so long. A packet may take longer so that its cost is at most COST of
its computing."""
LAST = 2.0
"""The number of shortest packets that a device would run until the end, below which it takes all of the rest at once;
our own choice."""
NEEDED = 0.5
"""The part of a shortest packet below which a device that has packets takes no more ahead; our own choice."""
CRUMB = 1.25
"""The largest ratio of a deque's rest to a packet for which the packet takes all of it; our own choice."""

Moving = Callable[[DeviceIndex, int, int], float]
"""The seconds in which what chunks, from one to before another, need comes to a device that does not have it."""


class Foreseen(NamedTuple):
    """The chunks that a device would take, from ``first`` to before ``last``, and the time by which they would have
    been run if it did not (None: no other device runs them)."""

    first: int
    last: int
    end: float | None


def nothing_moves(device: DeviceIndex, first: int, last: int) -> float:
    """Return 0 seconds, for devices that share a memory."""
    return 0.0


class WorkStealing:
    """The work stealing of one launch. Chunks whose steps are ``done`` need not run. ``terms``: the estimates of each
    device with a deque. ``in_turn``: the launch runs on one device at a time; ``still``: each device runs what it has,
    until they are ``loosened``, a packet being as few chunks as it may be; ``free``: when a device that has not begun
    is predicted to. ``workers``: the devices that take part, or did; ``thieves``: devices that have stolen, or of whose
    packets some was taken back; ``is_ready``: whether all that any chunk depends on has been given to devices."""

    def __init__(
        self,
        chunks: Chunks,
        terms: Mapping[DeviceIndex, Terms],
        moving: Moving = nothing_moves,
        done: Set[int] = frozenset(),
        in_turn: bool = False,
        still: bool = False,
        free: Callable[[DeviceIndex], float] = lambda device: 0.0,
    ) -> None:
        self.chunks, self.in_turn, self.still, self._moving, self.free = chunks, in_turn, still, moving, free
        self.workers: dict[DeviceIndex, StealingWorker] = {}
        self.thieves: set[DeviceIndex] = set()
        self.is_ready = False
        self._present: list[StealingWorker] = []  # workers whose devices have not left
        self._open: list[tuple[int, int]] = []  # deques that no device owns
        self._before = (0, *accumulate(chunks.groups))  # groups before a chunk
        self._moment = self._before[-1] * MOMENT
        self._rest = 0  # groups of chunks that no device was given
        is_done = [step in done for step in chunks.steps]
        for device, queue, first, last in chunks.deques:
            self.come(device, terms[device], 0.0, queue)
            runs = [[*run] for key, run in groupby(range(first, last), is_done.__getitem__) if not key]
            self.workers[device].rest, *others = [(run[0], run[-1] + 1) for run in runs] or [(0, 0)]
            self._open += others
            self._rest += sum([self.groups(run[0], run[-1] + 1) for run in runs])

    @property
    def left(self) -> int:
        """The number of chunks that no device was given."""
        return sum([last - first for first, last in (*self._open, *[w.rest for w in self.workers.values()])])

    @property
    def is_over(self) -> bool:
        """True if all chunks have run."""
        return not (self._rest or [w for w in self.workers.values() if w.given])

    @property
    def is_open(self) -> bool:
        """True if there is, or may be, something for devices to take: chunks that no device was given, or packets that
        can end early."""
        return bool(self._rest) or any(w.given and w.shortens for w in self.workers.values())

    def has_packets(self, devices: Set[DeviceIndex]) -> bool:
        """Return whether some of these devices were given packets that have not ended."""
        return any(w.given for w in self.workers.values() if w.device in devices)

    def groups(self, first: int, last: int) -> int:
        """Return the number of work-groups in the chunks from one to before another."""
        return self._before[last] - self._before[first]

    # packets

    def take(self, device: DeviceIndex, now: float, limit: int | None = None) -> Packet | None:
        """Return the next packet of a device; None if it has enough, or if nothing that it would take would end earlier
        by that. ``limit``: the packet must be from its own deque, of chunks before this one."""
        worker = self.workers.get(device)
        if worker is None or len(worker.given) >= worker.in_flight:
            return None
        stolen = None
        first, end = worker.rest
        if limit is not None:
            if first >= min(limit, end):
                return None
        elif first == end:
            if not worker.is_here:
                return None
            if self._open:
                worker.rest = self._open.pop()
            elif worker.given:
                return None  # its own packets have to end first
            else:
                stolen = self._steal(worker, now)
                if stolen is None:
                    return None
                self.thieves.add(device)
            first, end = worker.rest
        if self.still:
            last = min(first + (1 if self.in_turn else worker.chunks), end)
        else:
            last = self._end_of_packet(worker, first, end, now)
        if worker.shortens and first < last:
            last = end
        if limit is not None and last > limit:
            last = limit
        if first == last:
            return None
        before = self._before
        groups, packet = before[last] - before[first], named(Packet, (device, first, last, stolen, 0))
        worker.rest = last, end
        worker.give(packet, groups, now)
        self._rest -= groups
        return packet

    def _end_of_packet(self, worker: StealingWorker, first: int, end: int, now: float) -> int:
        """Return the end of the packet that begins with chunk ``first`` of a deque that ends before ``end``. Return
        ``first`` itself where the device's packets last until other devices will have run the rest."""
        before, rate, until = self._before, worker.rate, worker.until
        mine = until if now < until and now <= worker.due else worker.through(now)
        weight, ends, together = rate, rate * mine, rate
        for w in self._present:
            if w is not worker:
                theirs = w.rate
                together += theirs
                if w.ran:
                    weight += theirs
                    until = w.until
                    ends += theirs * (until if now < until and now <= w.due else w.through(now))
        left = (self._rest + ends) / weight - mine
        seconds = max(self._in_a_turn(rate) if self.in_turn else self._moment / together, SHORTEST)
        least = worker.least
        if worker.dear:  # but the end must not be late for that
            least = max(least, min(worker.dear, seconds))
        if weight > rate and not self.in_turn:  # other devices are at work: all are to end together
            if left < NEEDED * least and worker.given:
                return first
            if left < LAST * worker.least:
                seconds = left
            elif left * PART < seconds:
                seconds = left * PART
        if seconds < least and LAST * least <= left:
            seconds = least
        groups = seconds * rate
        if worker.size is not None:
            groups = min(groups, worker.size.groups or worker.size.seconds * rate)
        if not worker.known and groups > worker.first:  # the first packets measure the rate
            groups = worker.first
        begin = before[first]
        if before[end] - begin <= CRUMB * groups:
            return end
        last = bisect_right(before, begin + groups, first, end + 1) - 1
        if last > first:
            return last
        if worker.given and before[first + 1] - begin > 2 * left * rate:
            return first  # another device may run it earlier
        return first + 1

    def _in_a_turn(self, rate: float) -> float:
        """Return the seconds of a packet of a device with rate ``rate``, where the launch is on one device at a time. A
        faster device takes all that is left; packets given by then delay nothing as long as that takes longer."""
        fastest = max(w.rate for w in self._present)
        seconds = self._before[-1] / rate * MOMENT
        return min(seconds, self._rest / fastest / (PACKETS_IN_FLIGHT + 1)) if fastest > rate else seconds

    # stealing

    def _steal(self, thief: StealingWorker, now: float) -> DeviceIndex | None:
        """Move the end of the deque that would end last to a device whose deque is empty. Return the deque's owner."""
        if self.still:
            return None
        owners = [
            (self.end(w, now), w)
            for w in self.workers.values()
            if w.rest[0] < w.rest[1] and (not self.in_turn or not w.ran or w.rate < thief.rate)
        ]
        if not owners:
            return None
        end, victim = max(owners, key=itemgetter(0))
        low, high = victim.rest
        if not victim.ran:
            at = self._end_of_packet(thief, low, high, now)
            if self.in_turn and self._moving(thief.device, low, at) > self.groups(low, at) / thief.rate:
                return None  # the device for which all of it is planned may begin before that
            free = self.free(victim.device)
            if now < free and free + self.groups(low, high) / victim.rate < now + self.groups(low, at) / thief.rate:
                return None  # it would have ended all of it first
            thief.rest, victim.rest = (low, at), (at, high)
        else:
            at = self._divide(thief, victim, victim.rest, end, now, self._moving)
            if at == high:
                return None
            thief.rest, victim.rest = (at, high), (low, at)
        return victim.device

    def _divide(
        self,
        thief: StealingWorker,
        victim: StealingWorker,
        chunks: tuple[int, int],
        end: float,
        now: float,
        moving: Moving,
    ) -> int:
        """Return the chunk from which on a thief that is free ``now`` takes chunks of a victim that would end them at
        ``end``; the end of the chunks if it takes none."""
        before, (low, high), own, theirs = self._before, chunks, thief.rate, victim.rate
        start = now + thief.packet
        if self.in_turn:
            seconds = moving(thief.device, low, high) + (before[high] - before[low]) / own
            return low if start + seconds < end else high
        # both end together: groups / own + start == end - groups / theirs
        wanted = (end - start) / (1.0 / own + 1.0 / theirs)
        if wanted <= 0.0:
            return high
        cut = bisect_left(before, before[high] - wanted, low, high)
        for at in (max(cut - 1, low), cut):  # rather a bit more than too little: packets at a deque's end are small
            groups = before[high] - before[at]
            until = start + moving(thief.device, at, high) + max(groups, thief.filled) / own
            if groups and until < end and max(until, end - groups / theirs) < end:
                return at
        return high

    def end(self, worker: StealingWorker, now: float) -> float:
        """Return when a device would have ended its packets and its deque."""
        return worker.through(now) + self.groups(*worker.rest) / worker.rate

    def foreseen(self, device: DeviceIndex, free: float, now: float) -> Foreseen | None:
        """Return the chunks that a device is predicted to take when it has ended what it was given of other launches
        (``free``), if their data are there by then. Return None if it takes none, or has packets of this launch. Until
        then the other devices are taken to work at their predicted rates."""
        thief = self.workers.get(device)
        if thief is None or not thief.is_here or thief.given:
            return None
        if thief.rest[0] < thief.rest[1]:
            return Foreseen(*thief.rest, None)
        at_work = [w for w in self._present if w.given and (not self.in_turn or w.rate < thief.rate)]
        if not at_work:
            return None
        end, victim = max([(self.end(w, now), w) for w in at_work], key=itemgetter(0))
        packets = [packet for packet, _, _ in victim.given]
        first, last = packets[0].first, packets[0].last
        for low, high in (*[(p.first, p.last) for p in packets[1:]], victim.rest):
            if low == last:  # (chunks elsewhere are few)
                last = high
        if self.in_turn:  # all chunks that have not begun by then
            first = self._not_begun(victim, packets[0], last, free)
        at = self._divide(thief, victim, (first, last), end, free, nothing_moves)
        return Foreseen(at, last, end) if at < last else None

    # packets that are begun anew

    def restart(
        self, device: DeviceIndex, now: float, may: Callable[[Packet], bool | None]
    ) -> tuple[float, Packet] | None:
        """Return the packet that an idle device would begin anew, although another device runs it, and from when on
        (Device-Hopping, Section 3.2: a slice is restarted on the fast device): as soon as what is left of it is
        predicted to take TIMES as long as all of it would here, its data moved. A packet that takes longer than
        predicted is predicted to take as long again. ``may``: whether it may be dropped (None: not yet)."""
        thief = self.workers.get(device)
        if thief is None or not thief.is_idle or self._open or self.still:
            return None
        found: tuple[float, Packet] | None = None
        for w in self.workers.values():
            if w is thief or w.shortens or not w.given:
                continue
            packet = w.given[-1][0]
            if packet.last - packet.first <= packet.again + 1:
                continue  # each attempt has the token of another chunk
            seconds = self._moving(device, packet.first, packet.last)
            seconds += thief.packet + max(self.groups(packet.first, packet.last), thief.filled) / thief.rate
            left = w.through(now) - now + max(0.0, now - w.due)
            at = now if left >= TIMES * seconds else w.due + TIMES * seconds
            if (found is None or at < found[0]) and (can := may(packet)) is not False and (can or at > now):
                found = at, packet
        return found

    def drop(self, packet: Packet, thief: DeviceIndex, now: float) -> tuple[Packet, float, int]:
        """Give a packet to another device, which begins it anew. Return it as that device has it, and when its own
        device was given it, and its groups. That device takes no part until the packet has ended there, too."""
        worker, anew = self.workers[packet.device], packet._replace(device=thief, stolen=packet.device)
        anew = anew._replace(again=packet.again + 1)
        given, groups = worker.drop(packet)
        self._leaves(worker)
        self.thieves.add(thief)
        self.workers[thief].give(anew, groups, now)
        return anew, given, groups

    def _leaves(self, worker: StealingWorker) -> None:
        """Let others have a device's deque."""
        worker.is_here = False
        self._present = [w for w in self._present if w is not worker]
        if worker.rest[0] < worker.rest[1]:
            self._open.append(worker.rest)
        worker.rest = 0, 0

    def dropped(self, device: DeviceIndex, given: float, groups: int, now: float, returns: bool) -> None:
        """Note that a packet that was dropped has ended on its device. ``returns``: it takes part again."""
        self.workers[device].dropped(given, groups, now)
        if returns:
            self._enter(device, now)

    # packets that end early

    def wanted(self, device: DeviceIndex, now: float) -> Packet | None:
        """Return the packet of which an idle device wants the early end: that of the worker that would end last, if the
        device would take chunks of it. The worker may also be one that should end soon: if it does not, that is unknown
        until its packet ends."""
        thief = self.workers.get(device)
        if thief is None or not thief.is_idle or self._open or self.still:
            return None
        latest, found, victim = -math.inf, None, thief
        for w in self.workers.values():
            if w is thief or not w.shortens or not w.given or w.is_near or (self.in_turn and w.rate >= thief.rate):
                continue
            end = math.inf if now > w.due else self.end(w, now)
            packet = max((packet for packet, _, _ in w.given), key=lambda p: p.last - p.first)
            if end > latest and packet.last - packet.first > 1 and not packet.again:
                latest, found, victim = end, packet, w
        if found is None or self._moving is nothing_moves or latest == math.inf:
            return found
        # another device must not be stopped for chunks whose data come too late
        chunks = min(self._not_begun(victim, found, found.last, now), found.last - 1), found.last
        return found if self._divide(thief, victim, chunks, latest, now, self._moving) < found.last else None

    def _not_begun(self, worker: StealingWorker, packet: Packet, last: int, now: float) -> int:
        """Return the first chunk from a packet on, or ``last``, that a device should not have begun yet."""
        since = next(given for one, given, _ in worker.given if one == packet)
        begun = max(0.0, now - max(since, worker.free)) * worker.rate
        return bisect_left(self._before, self._before[packet.first] + begun, packet.first, last)

    def shorter(self, packet: Packet, count: int) -> Launch:
        """Return the launch of the first chunks of a packet."""
        return self.chunks.launch(packet.first, packet.first + count)

    def shortened(self, packet: Packet, last: int, begun: float, now: float) -> None:
        """Shorten a packet to end before chunk ``last``; ``begun``, a part of it, has begun by now. The chunks after it
        are its device's deque again, if they are next to it."""
        worker, end, groups = self.workers[packet.device], packet.last, self.groups(packet.first, packet.last)
        worker.shorten(packet, last, self.groups(packet.first, last), begun * groups, now)
        self.thieves.add(packet.device)  # its queue may have gone on to what follows
        self._rest += self.groups(last, end)
        low, high = worker.rest
        if worker.is_here and low in (end, high):
            worker.rest = last, high if low < high else end
        else:
            self._open.append((last, end))

    # events

    def place(self, device: DeviceIndex, terms: Terms, queue: int) -> None:
        """Give all of a launch that no device has begun to one."""
        self.workers.clear()
        self.come(device, terms, 0.0, queue)
        self.workers[device].rest = 0, len(self.chunks.steps)

    def foresee(self, speeds: Mapping[DeviceIndex, float]) -> None:
        """Take devices that have not begun to be so many times as fast as planned, and divide a launch that none has
        begun, now or before, so that all would end together."""
        for w in self._present:
            if not w.ran:
                w.rate = w.planned * speeds.get(w.device, 1.0)
        workers = sorted((w for w in self._present if w.rest[0] < w.rest[1]), key=lambda w: w.rest)
        if self._rest < self._before[-1] or self.in_turn or self._open:
            return
        rates, begin = [*accumulate(w.rate for w in workers)], 0
        for w, until in zip(workers, rates, strict=True):
            end = bisect_left(self._before, round(until / rates[-1] * self._before[-1]))
            w.rest, begin = (begin, end), end

    def loosen(self) -> None:
        """Let shares move from now on."""
        self.still = False

    def overdue(self, factor: float) -> float:
        """Return the time from which a device with a share that stays takes ``factor`` times as long as planned."""
        return min([w.overdue(factor) for w in self._present], default=math.inf) if self.still else math.inf

    def late(self, now: float, factor: float) -> list[DeviceIndex]:
        """Return the devices with shares that stay, and that take so long by now."""
        return [w.device for w in self._present if w.overdue(factor) <= now] if self.still else []

    def leave(self, device: DeviceIndex) -> None:
        """Give a device nothing more. The packets that it was given end there."""
        worker = self.workers.get(device)
        if worker is not None:
            if worker.given or worker.rest[0] < worker.rest[1]:
                self.loosen()
            self._leaves(worker)

    def come(self, device: DeviceIndex, terms: Terms, now: float, queue: int = 0) -> None:
        """Let a device take part from now on, with an empty deque. ``queue``: its queue, if it is new."""
        if device not in self.workers:
            self.workers[device] = StealingWorker(device, queue, terms)
        self._enter(device, now)

    def _enter(self, device: DeviceIndex, now: float) -> None:
        self.workers[device].come(now)
        self._present = [w for w in self.workers.values() if w.is_here]
