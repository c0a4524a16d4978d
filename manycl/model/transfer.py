"""Transfer times: latency and bandwidth per link and direction, and how transfers at the same time slow each other down
(MKMD, Section 5.2, Eq. 6: the time at full bandwidth times full over available bandwidth). Available is what a fair
sharing leaves: rates rise alike until a link, or the most that a memory can send or receive, is full (max-min fairness;
progressive filling, Bertsekas and Gallager, *Data Networks*, 1992, Section 6.5)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from manycl.machine import HOST, Link, Machine

if TYPE_CHECKING:  # manycl devices asks for the default link without models of kernels
    from manycl.model.estimates import Ends

DEFAULT_LINK = Link(HOST, HOST, bandwidth=10e9, latency=10e-6)
"""The assumed link where the machine does not describe it: 10 GB/s, 10 us."""


class TransferModel:
    """Transfer times between the memories of a machine. Data go by the machine's routes."""

    def __init__(self, machine: Machine) -> None:
        self._links = {(x.source, x.target): x for x in machine.links}
        self._sharing, self._network, self._joined = machine.sharing, machine.network, machine.joined
        self._route = machine.routes.between
        self._alone: dict[Ends, tuple[float, float]] = {}

    def seconds(self, nbytes: float, source: int, target: int) -> float:
        """Return the seconds to move ``nbytes`` when nothing else moves; 0 within one memory."""
        if source == target:
            return 0.0
        known = self._alone.get((source, target))
        if known is None:
            known = 0.0, 0.0
            for link in (self.link(*hop) for hop in self._route(source, target)):
                known = known[0] + link.latency, known[1] + 1.0 / link.bandwidth
            self._alone[source, target] = known
        latency, per_byte = known
        return latency + nbytes * per_byte

    def link(self, source: int, target: int) -> Link:
        found = self._links.get((source, target))
        if found is None and self._network is not None and source in self._joined and target in self._joined:
            return self._network.link(source, target)
        return found or DEFAULT_LINK

    def rates(self, ends: Sequence[Ends], most: Sequence[float] = ()) -> list[float]:
        """Return the bytes per second of each of several transfers at the same time, each over its memories' link (two
        of the same ends share it). ``most``: what each carries at most by itself (empty: all of its link)."""
        room: dict[object, float] = {}
        users: dict[object, list[int]] = {}
        for index, (source, target) in enumerate(ends):
            for resource, capacity in (*self._resources(source, target), (index, most[index] if most else math.inf)):
                room[resource] = capacity
                users.setdefault(resource, []).append(index)
        rates = [0.0] * len(ends)
        rising = set(range(len(ends)))
        counts = {resource: len(members) for resource, members in users.items()}  # of those that rise
        while rising:
            step, full = math.inf, None
            for resource, count in counts.items():
                if count and room[resource] / count < step:
                    step, full = room[resource] / count, resource
            for resource, count in counts.items():
                room[resource] = max(0.0, room[resource] - step * count)
            for index in rising:
                rates[index] += step
            for index in rising.intersection(users[full]):
                for resource, _ in self._resources(*ends[index]):
                    counts[resource] -= 1
                counts[index] -= 1
                rising.remove(index)
        return rates

    def slowdowns(self, ends: Sequence[Ends], most: Sequence[float] = ()) -> list[float]:
        """Return how many times longer than alone each of several transfers takes; arguments as of :meth:`rates`."""
        together = self.rates(ends, most)
        alone: dict[tuple[Ends, Sequence[float]], float] = {}
        for i, e in enumerate(ends):
            one = e, tuple(most[i : i + 1])
            if one not in alone:
                alone[one] = self.rates([e], one[1])[0]
        return [alone[e, tuple(most[i : i + 1])] / together[i] for i, e in enumerate(ends)]

    def contended(self, machine: Machine) -> bool:
        """Return whether transfers of several devices, or of one in both directions, can disturb one another."""
        own = [d.memory for d in machine.devices if d.memory != HOST]
        limited = self._sharing.half_duplex.intersection(own) or self._sharing.sends or self._sharing.receives
        return bool(limited) or len(set(own)) < len(own)

    def _resources(self, source: int, target: int) -> list[tuple[object, float]]:
        """Return the resources that a transfer uses, each with its bytes per second."""
        link = self.link(source, target)
        shared = (source if target == HOST else target) in self._sharing.half_duplex and HOST in (source, target)
        wire: object = frozenset((source, target)) if shared else (source, target)
        bandwidth = max(link.bandwidth, self.link(target, source).bandwidth) if shared else link.bandwidth
        out = [(wire, bandwidth), ((source, target, "alone"), math.inf)]
        if shared:
            out[1] = ((source, target, "one way"), link.bandwidth)
        if source in self._sharing.sends:
            out.append((("sends", source), self._sharing.sends[source]))
        if target in self._sharing.receives:
            out.append((("receives", target), self._sharing.receives[target]))
        network = self._network
        if network is not None and source in self._joined and target in self._joined:
            out += [(("sends", source), network.bandwidth), (("receives", target), network.bandwidth)]
            racks = network.rack_of(source), network.rack_of(target)
            carries = network.rack * network.bandwidth / network.oversubscription
            ways = zip(("leaves", "enters"), racks, strict=True) if racks[0] != racks[1] else ()
            out += [((way, rack), carries) for way, rack in ways if rack >= 0]
        return out

    def shared_by(self, source: int, target: int) -> list[object]:
        """Return what a transfer may share with others."""
        return [name for name, capacity in self._resources(source, target) if capacity < math.inf]


# Chunk sizes of long transfers: the smallest that a link carries nearly as fast as larger ones.
#
# Device-Hopping (Section 3.3) searches for chunk sizes once for a machine, "at the factory", as the cost of chunks does
# not depend on kernels: small chunks keep every reaction short, and data that go from device to device by the host are
# uploaded sooner. Here measuring a link tries the smaller sizes; else the transfers of runs tell.


COPYING = 4e9
"""Bytes per second at which the host copies, and a link moves, where nothing is known (measured: 4 to 13)."""
TINY = 1 << 14
"""Bytes up to which a transfer takes hardly more than its latency, and longer to enqueue than to move: enqueueing takes
30 us, in which a link of 6 GB/s moves twelve times as many bytes. Drivers take so few with the command."""
SMALL = 1 << 16
"""Bytes that a link moves while the next command is enqueued, and in less time than a launch is analysed. Smaller
transfers go in the kernels' own queues: there nothing has to wait for another queue, and downloads do not wait for
large uploads, behind which NVIDIA's driver puts them in any other queue (measured with an H200)."""
LARGE = 1 << 20
"""Bytes from which a transfer tells the bandwidth of a link, and is worth a command, a queue or locked memory of its
own: a command that waits for another queue waits some 40 us longer (NVIDIA's driver)."""
CHUNK = 8 << 20
"""Bytes of a chunk where nothing is known of a machine's links; our own choice."""
SIZES = tuple(1 << n for n in range(18, 27))
"""Bytes that a chunk may have: 256 KiB to 64 MiB."""
SLOWER = 0.03
"""The part of the highest throughput that chunks may cost; our own choice."""
REACTION = 2e-3
"""The most seconds of a chunk, unless it is of the smallest size, as stopping a transfer takes as long; our own
choice."""


def smallest(rates: Mapping[int, float]) -> int:
    """Return the chunk size of a link. ``rates``: bytes per second that it carries in chunks of some of ``SIZES``."""
    best = max(rates.values())
    return min(min(n for n, rate in rates.items() if rate >= (1.0 - SLOWER) * best), _most(best))


def size_class(nbytes: int) -> int | None:
    """Return the size of chunks about which a transfer of so many bytes tells; None: it is too small or too large."""
    return next((n for n in SIZES if n <= nbytes < 2 * n), None)


def chunk_of(machine: Machine) -> int:
    """Return the bytes of chunks that all links between devices' memories and the host's carry well; 0: unknown."""
    known = [link for link in machine.links if HOST in (link.source, link.target) and link.chunk]
    if not known:
        return 0
    return min(max(link.chunk for link in known), _most(min(link.bandwidth for link in known)))


def _most(bandwidth: float) -> int:
    """Return the largest size that takes no longer than a reaction may."""
    return max(n for n in SIZES if n <= max(bandwidth * REACTION, SIZES[0]))
