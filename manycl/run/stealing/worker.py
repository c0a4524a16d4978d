"""A device that takes part in a launch whose shares move (:mod:`manycl.run.stealing.work_stealing`): what it was given,
how fast it is, and when it will be through. Pure."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import InitVar, dataclass, field
from typing import NamedTuple

from manycl.machine import DeviceIndex
from manycl.model.slices import MEASURED, MeasuredSlices
from manycl.run.stealing.packet_size import PacketSize

SHORTEST = 2.5e-3
"""Seconds of a packet of which its device's rate is learned as well as from a longer one."""
GIVEN = 2
"""Packets that a device is given ahead, the running one among them."""
COST = 1 / 30
"""What a packet costs is at most this part of what it computes."""
LATEST = 0.7
"""The weight of the last packet's rate among all that were measured (devices become slower and faster), of a packet of
SHORTEST seconds; shorter ones, which take as long as it takes to hear of them, count in proportion, and so do those
that were foreseen to be shorter: what they read may have had to come first."""
UNLIKE = 1.4
"""Three packets of a device tell what each of them costs beside its groups, if each size is so many times the next …"""
STRAIGHT = 0.03
"""… and none took so much longer or shorter than that and a rate say: else the device has become slower. …"""
DEAREST = 200e-6
"""… That is taken for so many seconds at most, and …"""
UNHEARD = 50e-6
"""… for so many less: the engine hears of some ends later than of others."""
LATE = 100e-6
"""Seconds after which a packet that should have ended has not, and not just not been heard of."""


class Terms(NamedTuple):
    """What is foreseen of a device: seconds of a work-group, and seconds that a packet costs beside its groups.
    ``first``: groups of a packet at most, until one was measured. ``shortens``: whether packets that it was given can
    end early. ``size``: how large packets are at most."""

    group: float
    packet: float
    first: float = math.inf
    shortens: bool = False
    size: PacketSize | None = None


class Packet(NamedTuple):
    """Cells from ``first`` to before ``last`` run on a device, as one packet. ``stolen``: from whom, if its stock was
    empty."""

    device: DeviceIndex
    first: int
    last: int
    stolen: DeviceIndex | None = None


class Standing(NamedTuple):
    """Of a device that takes part: its work-groups a second, and seconds that a packet costs beside them; the cells
    that it has got and that are not known to have ended, from ``first`` to before ``last``; since when it runs them
    (None: it was given none of them), and when it would have ended them (``end``)."""

    rate: float
    packet: float
    first: int
    last: int
    since: float | None
    end: float


@dataclass(slots=True)
class StealingWorker:
    """A device, with all that it has of a launch, and what is known of it."""

    terms: InitVar[Terms]
    rest: tuple[int, int] = (0, 0)
    """The stock: cells from one to before another."""
    given: deque[tuple[Packet, float, int]] = field(default_factory=deque)
    """Packets that have not ended, with when they were given, and their groups; …"""
    bound: int = 0
    """… all of their groups, …"""
    until: float = 0.0
    """… when they will have ended, …"""
    due: float = math.inf
    """… and by when the first one should be known to have."""
    ran: int = 0
    """All groups that it was given, less what others took back."""
    rate: float = field(init=False)
    """Groups a second: as foreseen, then as measured."""
    least: float = field(init=False)
    """Seconds that a packet is to take at least, for what it costs beside its groups, as foreseen; …"""
    dear: float = 0.0
    """… the same for what it costs as measured, if that is more; …"""
    packet: float = field(init=False)
    """… which is so many seconds."""
    first: float = field(init=False)
    """Groups of a packet at most, until one was measured."""
    measured: MeasuredSlices = field(init=False)
    """Packets of unlike sizes that the device went over to without waiting for anybody, …"""
    is_measured: bool = False
    """… and whether these are enough."""
    shortens: bool = field(init=False)
    size: PacketSize | None = field(init=False)
    longest: float = math.inf
    """Seconds of a packet at most; or …"""
    most: float = math.inf
    """… groups of it, once that is known."""
    ahead: int = field(init=False)
    """Packets that it is given ahead, the running one among them."""
    is_near: bool = False
    """Its packets are known to end too soon for anybody to take something of them."""
    known: float = 0.0
    """How much of the rate is measured: 1 after a packet of SHORTEST seconds, or some that are shorter."""
    free: float = 0.0
    """When it was last known to have ended something."""
    is_here: bool = True
    has_begun: bool = False

    def __post_init__(self, terms: Terms) -> None:
        self.rate, self.least, self.packet = 1.0 / terms.group, terms.packet / COST, terms.packet
        self.first, self.shortens, self.size = terms.first, terms.shortens, terms.size
        self.ahead = GIVEN
        if terms.size is not None:
            self.ahead, self.most = terms.size.at_a_time, terms.size.groups or math.inf
            self.longest = terms.size.seconds if math.isinf(self.most) else math.inf
        self.measured = MeasuredSlices(0)

    def end(self, now: float) -> Packet:
        """Its first packet has ended now."""
        packet, given, groups = self.given.popleft()
        self.bound -= groups
        self.is_near = False
        free = self.free
        took = now - (given if given > free else free)
        self._learn(groups, took)
        if self.size is not None:
            self.size.end(groups, now)
            if self.size.groups:
                self.most, self.longest = self.size.groups, math.inf
        if not self.is_measured and given <= free:
            self._measure(groups, took)
        self.free = now
        self.until, self.due = (now + self.bound / self.rate if self.given else 0.0), math.inf  # until it foresees
        return packet

    def _learn(self, groups: float, took: float) -> None:
        """So many groups took so long."""
        packet, rate, known = self.packet, self.rate, self.known
        if took <= packet:
            return
        # of few groups, what they wait for takes
        foreseen, unknown = groups / rate, 1.0 - known
        telling = (took if took < foreseen else foreseen) / SHORTEST
        if telling > 1.0:
            telling = 1.0
        weight = telling * (unknown if unknown > LATEST else LATEST)
        self.known = known + telling
        self.rate = 1.0 / (weight * (took - packet) / groups + (1.0 - weight) / rate)

    def shorten(self, packet: Packet, last: int, groups: int, begun: float, now: float) -> None:
        """A packet ends before cell ``last``, after so many groups, of which it has begun ``begun`` by now."""
        place = next(n for n, (one, _, _) in enumerate(self.given) if one == packet)
        _, given, before = self.given[place]
        if not place and begun > 0.0:
            self._learn(begun, now - (given if given > self.free else self.free))
        self.given[place] = packet._replace(last=last), given, groups
        self.bound -= before - groups
        self.ran -= before - groups
        self.foresee()

    def lose(self) -> list[Packet]:
        """It is to run nothing any more: its packets."""
        lost = [packet for packet, _, _ in self.given]
        self.given.clear()
        self.bound = 0
        self.foresee()
        return lost

    def foresee(self) -> None:
        """When its packets will have ended, after others were given, or have ended."""
        if not self.given:
            self.until, self.due = 0.0, math.inf
            return
        _, begun, first = self.given[0]
        if begun < self.free:
            begun = self.free
        rate = self.rate
        self.until, self.due = begun + self.bound / rate, begun + first / rate + LATE

    def through(self, now: float) -> float:
        """When it will have ended its packets."""
        until = self.until
        if now > self.due:  # it is slower than that
            _, begun, first = self.given[0]
            if begun < self.free:
                begun = self.free
            until = begun + self.bound * (now - begun) / first
        return until if until > now else now

    def _measure(self, groups: int, took: float) -> None:
        """A packet took so long: what packets cost, once that is known."""
        taken = self.measured.taken
        for n, _ in taken:
            if n < UNLIKE * groups and groups < UNLIKE * n:
                return
        self.measured.add(groups, took)
        self.is_measured = len(taken) == MEASURED
        if self.is_measured and (found := self.measured.fit()) is not None:
            once, rate = found
            if all(abs(once + n / rate - seconds) <= STRAIGHT * seconds for n, seconds in taken):
                foreseen, self.packet = self.packet, min(max(once - UNHEARD, self.packet), DEAREST)
                self.dear = self.packet / COST if self.packet > foreseen else 0.0
