"""A worker: a device that takes part in a launch whose shares move (:mod:`manycl.run.stealing.work_stealing`): what it
was given, how fast it is, and when it will have ended. Pure."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import InitVar, dataclass, field
from typing import NamedTuple

from manycl.machine import DeviceIndex
from manycl.model.slices import MEASURED, MeasuredSlices
from manycl.run.stealing.packet_size import PacketSize

SHORTEST = 2.5e-3
"""The seconds from which a packet tells its device's rate as well as a longer one does."""
GIVEN = 2
"""The number of packets that a device is given ahead, the running one among them."""
COST = 1 / 30
"""The largest part of a packet's computing time that the cost of the packet itself may be."""
LATEST = 0.7
"""The weight of the last packet's rate among all that were measured (devices become slower and faster), for a packet of
SHORTEST seconds. Shorter packets, which take as long as it takes to learn of their ends, count in proportion. So do
packets that were predicted to be shorter: they may have waited for what they read."""
UNLIKE = 1.4
"""The least ratio between the sizes of any two of the three packets from which the cost of a device's packet, beside
its groups, is measured."""
STRAIGHT = 0.03
"""The largest relative difference of a packet's time from a fixed cost and a rate at which the cost measured from three
packets is used. Beyond it the device has become slower."""
DEAREST = 200e-6
"""The largest measured cost of a packet, in seconds, that is used."""
UNHEARD = 50e-6
"""The seconds by which the measured cost of a packet is lowered, as some ends are reported later than others."""
LATE = 100e-6
"""The seconds after which a packet that should have ended is taken to run still, and not merely to be unreported."""


class Terms(NamedTuple):
    """The estimates of a device: seconds of a work-group, and seconds that a packet costs beside its groups. ``first``:
    the most groups of a packet until one was measured. ``shortens``: whether packets that it was given can end early.
    ``size``: the largest packet size."""

    group: float
    packet: float
    first: float = math.inf
    shortens: bool = False
    size: PacketSize | None = None


class Packet(NamedTuple):
    """Chunks from ``first`` to before ``last`` that run on a device as one packet. ``stolen``: the device from which
    they were taken, if the deque was empty."""

    device: DeviceIndex
    first: int
    last: int
    stolen: DeviceIndex | None = None


class Standing(NamedTuple):
    """The state of a worker: its work-groups a second, and seconds that a packet costs beside them; the chunks that it
    has and that are not known to have ended, from ``first`` to before ``last``; since when it runs them (None: it was
    given none of them), and when it would have ended them (``end``)."""

    rate: float
    packet: float
    first: int
    last: int
    since: float | None
    end: float


@dataclass(slots=True)
class StealingWorker:
    """A device with all that it has of a launch, and what is known of it."""

    terms: InitVar[Terms]
    rest: tuple[int, int] = (0, 0)
    """The deque: chunks from one to before another."""
    given: deque[tuple[Packet, float, int]] = field(default_factory=deque)
    """Packets that have not ended, each with the time when it was given and its groups."""
    bound: int = 0
    """The groups of all its packets."""
    until: float = 0.0
    """The predicted time when all its packets will have ended."""
    due: float = math.inf
    """The time by which the end of its first packet should be known."""
    ran: int = 0
    """The groups that it was given, less those that other workers took back."""
    rate: float = field(init=False)
    """Groups a second, as predicted, then as measured."""
    least: float = field(init=False)
    """The least seconds of a packet, for what it costs beside its groups, as predicted."""
    dear: float = 0.0
    """The least seconds of a packet for its measured cost, if that is more."""
    packet: float = field(init=False)
    """The cost of a packet beside its groups, in seconds."""
    first: float = field(init=False)
    """The most groups of a packet until one was measured."""
    measured: MeasuredSlices = field(init=False)
    """Packets of unlike sizes that the device began at once after the one before."""
    is_measured: bool = False
    """True if enough packets are measured."""
    shortens: bool = field(init=False)
    size: PacketSize | None = field(init=False)
    longest: float = math.inf
    """The most seconds of a packet, as long as ``most`` is unknown."""
    most: float = math.inf
    """The most groups of a packet, once that is known."""
    ahead: int = field(init=False)
    """The number of packets that it is given ahead, the running one among them."""
    is_near: bool = False
    """True if its packets are known to end too soon for another worker to take chunks of them."""
    known: float = 0.0
    """The part of the rate that is measured: 1 after a packet of SHORTEST seconds, or some that are shorter."""
    free: float = 0.0
    """The last time when it was known to have ended a packet."""
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
        """Note that its first packet has ended now, and return that packet."""
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
        self.foresee()
        return packet

    def _learn(self, groups: float, took: float) -> None:
        """Learn the rate from so many groups that took so long."""
        packet, rate, known = self.packet, self.rate, self.known
        if took <= packet:
            return
        # (the time of few groups is mostly what they waited for)
        foreseen, unknown = groups / rate, 1.0 - known
        telling = (took if took < foreseen else foreseen) / SHORTEST
        if telling > 1.0:
            telling = 1.0
        weight = telling * (unknown if unknown > LATEST else LATEST)
        self.known = known + telling
        self.rate = 1.0 / (weight * (took - packet) / groups + (1.0 - weight) / rate)

    def shorten(self, packet: Packet, last: int, groups: int, begun: float, now: float) -> None:
        """Shorten a packet to end before chunk ``last``, after so many groups, of which it has begun ``begun`` by
        now."""
        place = next(n for n, (one, _, _) in enumerate(self.given) if one == packet)
        _, given, before = self.given[place]
        if not place and begun > 0.0:
            self._learn(begun, now - (given if given > self.free else self.free))
        self.given[place] = packet._replace(last=last), given, groups
        self.bound -= before - groups
        self.ran -= before - groups
        self.foresee()

    def foresee(self) -> None:
        """Predict when its packets will have ended, after packets were given or have ended."""
        if not self.given:
            self.until, self.due = 0.0, math.inf
            return
        _, begun, first = self.given[0]
        if begun < self.free:
            begun = self.free
        rate = self.rate
        self.until, self.due = begun + self.bound / rate, begun + first / rate + LATE

    def through(self, now: float) -> float:
        """Return when it will have ended its packets."""
        until = self.until
        if now > self.due:  # it is slower than predicted
            _, begun, first = self.given[0]
            if begun < self.free:
                begun = self.free
            until = begun + self.bound * (now - begun) / first
        return until if until > now else now

    def _measure(self, groups: int, took: float) -> None:
        """Note the time of a packet, and set the cost of a packet once enough are measured."""
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
