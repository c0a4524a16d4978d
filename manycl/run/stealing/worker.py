"""A worker: a device that takes part in a launch whose shares move (:mod:`manycl.run.stealing.work_stealing`): what it
was given, how fast it is, and when it will have ended. Pure."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from manycl.machine import DeviceIndex
from manycl.model.slices import measured_cost
from manycl.plan.preemptible import PACKETS_IN_FLIGHT
from manycl.plan.problem import HANDOVER
from manycl.run.stealing.packet_size import PacketSize
from manycl.utilities.kept import ENOUGH

SHORTEST = 2.5e-3
"""The seconds from which a packet tells its device's rate as well as a longer one does; our own choice."""
COST = 1 / 30
"""The largest part of a packet's computing time that the cost of the packet itself may be; our own choice."""
LATEST = 0.7
"""The weight of the last packet's rate among all that were measured (devices become slower and faster), for a packet of
SHORTEST seconds. Shorter packets, which take as long as it takes to learn of their ends, count in proportion. So do
packets that were predicted to be shorter: they may have waited for what they read."""
LATE = 1.25
"""The factor by which a packet has to take longer than predicted for its device to count as late, where shares stay as
long as none is: predictions of measured kernels are off by less (docs/results/models.md)."""
TIMES = 2.0
"""The factor by which a packet has to take longer than predicted where devices are not alike, so that results may
differ in their last bits; and each of the last kernels of a device, for what is left of a run to be planned anew. Our
own choice."""
UNLIKE = 1.4
"""The least ratio between the sizes of any two of the three packets from which the cost of a device's packet, beside
its groups, is measured."""
STRAIGHT = 0.03
"""The largest relative difference of a packet's time from a fixed cost and a rate at which the cost measured from three
packets is used. Beyond it the device has become slower."""
DEAREST = 200e-6
"""The largest measured cost of a packet, in seconds, that is used."""


class Terms(NamedTuple):
    """The estimates of a device: seconds of a work-group, and seconds that a packet costs beside its groups. ``first``:
    the most groups of a packet until one was measured. ``shortens``: whether packets that it was given can end early.
    ``size``: the largest packet size; ``filled``: the groups that fill the device: fewer take as long (0: unknown).
    ``chunks``: the least chunks of a packet, as far as its deque has them."""

    group: float
    packet: float
    first: float = math.inf
    shortens: bool = False
    size: PacketSize | None = None
    filled: float = 0.0
    chunks: int = 1


class Packet(NamedTuple):
    """Chunks from ``first`` to before ``last`` that run on a device as one packet. ``stolen``: the device from which
    they were taken, if the deque was empty. ``again``: how many times it was begun before, on other devices."""

    device: DeviceIndex
    first: int
    last: int
    stolen: DeviceIndex | None = None
    again: int = 0


class StealingWorker:
    """A device with all that it has of a launch, and what is known of it. ``queue``: its queue. ``rest``: its deque,
    chunks from one to before another. ``given``: packets that have not ended, each with the time when it was given and
    its groups; ``bound``: the groups of these; ``in_flight``: how many there may be, with the running one. ``ran``:
    groups that it was given, less those that other workers took back (0: it has not begun). ``until``: when all its
    packets are predicted to have ended, and ``due``: by when the first one's end should be known; ``free``: when it was
    last known to have ended one; ``begun``: when it can have begun the first one of those that have not. ``rate``:
    groups a second, as predicted (``planned``), then as measured (``known``: the part that is measured). ``packet``:
    seconds that a packet costs beside its groups; ``least``: of a packet for that cost as predicted, and ``dear`` as
    measured if that is more. ``is_near``: whether its packets are known to end too soon for others to take chunks of
    them."""

    def __init__(self, device: DeviceIndex, queue: int, terms: Terms) -> None:
        self.device, self.queue = device, queue
        self.rate, self.packet, self.first, self.shortens, self.size, self.filled = 1.0 / terms.group, *terms[1:6]
        self.chunks = terms.chunks
        self.planned = self.rate
        self.least, self.dear = max(terms.packet / COST, terms.filled * terms.group), 0.0
        self.rest = 0, 0
        self.given = deque[tuple[Packet, float, int]]()
        self.in_flight = PACKETS_IN_FLIGHT if self.size is None else self.size.at_a_time
        self.bound = self.ran = 0
        self.until, self.due, self.free, self.begun, self.known = 0.0, math.inf, 0.0, 0.0, 0.0
        # groups and seconds of packets of unlike sizes; None: enough are measured
        self.measured: list[tuple[int, float]] | None = []
        self.is_near = False
        self.is_here = True

    @property
    def is_idle(self) -> bool:
        """True if it takes part and has no chunks."""
        return self.is_here and not self.given and self.rest[0] == self.rest[1]

    @property
    def wants_more(self) -> bool:
        """True if it may be given a packet of its deque before one of those that it has has ended."""
        return self.is_here and self.rest[0] < self.rest[1] and len(self.given) < self.in_flight

    def give(self, packet: Packet, groups: int, now: float) -> None:
        """Note that it is given a packet of so many groups."""
        self.given.append((packet, now, groups))
        self.ran += groups
        if len(self.given) == 1:
            self.free = max(self.free, now)
            self.foresee(groups)
        else:  # the first one ends when it would have
            bound = self.bound = self.bound + groups
            self.until = self.begun + bound / self.rate

    def come(self, now: float) -> None:
        """Note that it takes part from now on."""
        self.is_here = True
        self.begins(now)

    def begins(self, now: float) -> None:
        """Note that it can have begun none of its packets before now."""
        self.free = max(now, self.free)
        self.foresee(0)

    def end(self, now: float) -> Packet:
        """Note that its first packet has ended now, and return that packet."""
        packet, given, groups = self.given.popleft()
        self.is_near = False
        took = now - self.begun
        self._learn(groups, took)
        if self.size is not None:
            self.size.end(groups, now)
        if self.measured is not None and given <= self.free and took > 0.0:
            self._measure(self.measured, groups, took)
        self.free = now
        self.foresee(-groups)
        return packet

    def _learn(self, groups: float, took: float) -> None:
        """Learn the rate from so many groups that took so long."""
        packet, rate, known = self.packet, self.rate, self.known
        if took <= packet:
            return
        # (the time of few groups is mostly what they waited for)
        foreseen = groups / rate
        unknown = 1.0 - known
        telling = (took if took < foreseen else foreseen) / SHORTEST
        if telling > 1.0:
            telling = 1.0
        weight = telling * (unknown if unknown > LATEST else LATEST)
        self.known = known + telling
        self.rate = 1.0 / (weight * (took - packet) / groups + (1.0 - weight) / rate)

    def shorten(self, packet: Packet, last: int, groups: int, begun: float, now: float) -> None:
        """Shorten a packet to end before chunk ``last``, after so many groups, with ``begun`` begun by now."""
        place = next(n for n, (one, _, _) in enumerate(self.given) if one == packet)
        _, given, before = self.given[place]
        if not place and begun > 0.0:
            self._learn(begun, now - self.begun)
        self.given[place] = packet._replace(last=last), given, groups
        self.ran -= before - groups
        self.foresee(groups - before)

    def drop(self, packet: Packet) -> tuple[float, int]:
        """Take out a packet that another device begins anew. Return when it was given, and its groups."""
        place = next(n for n, (one, _, _) in enumerate(self.given) if one == packet)
        _, given, groups = self.given[place]
        del self.given[place]
        self.ran -= groups
        self.foresee(-groups)
        return given, groups

    def dropped(self, given: float, groups: int, now: float) -> None:
        """Note that a packet that was dropped has ended now; ``given``: when it was given."""
        begun = max(given, self.free)
        self.begins(now)
        self._learn(groups, now - begun)

    def foresee(self, more: int) -> None:
        """Predict when its packets will have ended, after so many groups more were given, or less are left."""
        bound = self.bound = self.bound + more
        if not self.given:
            self.until, self.due = 0.0, math.inf
            return
        _, begun, first = self.given[0]
        if begun < self.free:
            begun = self.free
        rate, self.begun = self.rate, begun
        self.until = begun + bound / rate
        self.due = begun + first / rate + 2 * HANDOVER

    def overdue(self, factor: float) -> float:
        """Return the time from which its first packet takes ``factor`` times as long as planned."""
        if not self.given:
            return math.inf
        return self.begun + min(factor, factor * self.rate / self.planned) * (self.due - self.begun)

    def through(self, now: float) -> float:
        """Return when it will have ended its packets."""
        until = self.until
        if now > self.due:  # it is slower than predicted
            until = self.begun + self.bound * (now - self.begun) / self.given[0][2]
        return until if until > now else now

    def _measure(self, taken: list[tuple[int, float]], groups: int, took: float) -> None:
        """Note the time of a packet, and set the cost of a packet once enough are measured."""
        for n, _ in taken:
            if n < UNLIKE * groups and groups < UNLIKE * n:
                return
        taken.append((groups, took))
        if len(taken) == ENOUGH:
            self.measured = None
            if (found := measured_cost(taken)) is not None:
                once, rate = found
                if all(abs(once + n / rate - seconds) <= STRAIGHT * seconds for n, seconds in taken):
                    foreseen, self.packet = self.packet, min(max(once - HANDOVER, self.packet), DEAREST)
                    self.dear = self.packet / COST if self.packet > foreseen else 0.0
