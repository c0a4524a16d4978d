"""Machines: devices, the memories they compute in, and the links between memories. Values only: the same shape
describes the machine that is here (``drivers.choice`` fills it in) and one that is only described in a file
(``machine_file``). Units: bytes, seconds, hertz, bytes per second, operations per second."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from heapq import heappop, heappush
from operator import attrgetter
from typing import NewType

from manycl.errors import DeviceError

HOST = 0
"""Index of the host's memory. A device that shares it has ``memory == HOST``; the others number from 1."""
HOST_BIT = 1 << HOST
"""The host's memory in a mask of memories, which has a bit for each."""

DeviceIndex = NewType("DeviceIndex", int)
"""Place of a device in :attr:`Machine.devices` (``plan.ON_HOST``: the host's)."""

ALIGNMENT = 4096  # bytes; where parts of allocations may begin: at multiples, on any device that there is

DEVICE_KINDS = ("cpu", "gpu", "accelerator", "node")
MOST_QUEUES = 64  # for kernels, of one device
EXTENSIONS = frozenset(("cl_khr_fp16", "cl_khr_int64_base_atomics", "cl_khr_int64_extended_atomics"))
"""The extensions of which the analysis finds out whether a kernel needs them."""
NATIVE = "native"
"""The ``platform`` of processors without an OpenCL driver: kernels become vectors of work-items there."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device or part of one. ``name`` is unique in its machine: ``cpu0``, ``cpu0.1`` (a part), ``gpu1``."""

    name: str
    kind: str  # one of DEVICE_KINDS
    model: str = ""
    platform: str = ""
    driver: str = ""
    memory: int = HOST  # index of the memory it computes in; HOST: no copies
    compute_units: int = 1
    clock: float = 1e9  # Hz
    flops: float = 1e9  # single-precision operations per second that a plain kernel may reach, for first estimates
    bandwidth: float = 1e10  # bytes per second to its own memory, likewise
    global_memory: int = 1 << 30  # bytes
    max_allocation: int = 1 << 28  # bytes
    local_memory: int = 32768  # bytes per work-group
    alignment: int = ALIGNMENT  # bytes; where parts of allocations may begin: at multiples
    max_work_group: int = 1024  # work-items
    double: bool = True  # has double precision
    lacks: str = ""  # of OpenCL's optional features that it does not have: ``images``, extensions' names; as words
    queues: int = 1  # in-order queues that pay (1 on CPUs, 16 on GPUs)
    launch_overhead: float = 10e-6  # seconds from enqueueing to starting an idle device
    enqueuing: float = 0.0  # seconds that the host's thread takes to enqueue a kernel
    enqueuing_copy: float = 0.0  # seconds that the host's thread takes to enqueue a transfer
    idle_power: float = 0.0  # watts that it always draws
    power: float = 0.0  # watts that it draws while it computes, with those (0: nobody knows)
    kernel_power: Mapping[str, float] = field(
        default_factory=dict, hash=False
    )  # the same for kernels that were measured
    slowdown: float = 1.0  # experiment: every kernel takes this many times longer
    simulator: bool = False  # an interpreter such as Oclgrind: only used when asked for by name
    shortens: bool = False  # launches that are under way can end early, at one of their work-groups
    event_domain: str = ""  # devices of one domain wait for each other's commands without the host; "": it does not

    def holds(self, sizes: Sequence[int]) -> bool:
        """Return whether there is room for buffers of these sizes (bytes) at once."""
        return sum(sizes) <= self.global_memory and max(sizes, default=0) <= self.max_allocation

    def above_idle(self, kernel: str) -> float:
        """Return the watts that it draws above its idle power while it computes a kernel, by the kernel's name."""
        return max(0.0, self.kernel_power.get(kernel, self.power) - self.idle_power)


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between two memories. A transfer of n bytes takes ``latency + n / bandwidth`` when alone.
    ``chunk``: bytes of the parts in which it carries long transfers nearly as fast as in one (0: nobody knows);
    ``energy``: joules per byte."""

    source: int
    target: int
    bandwidth: float  # bytes per second
    latency: float  # seconds
    chunk: int = 0
    energy: float = 0.0


@dataclass(frozen=True, slots=True)
class Sharing:
    """The sharing of links by transfers at the same time. ``half_duplex``: memories whose link to the host carries one
    direction at a time; ``sends``, ``receives``: the most bytes per second that a memory sends to, and receives from,
    all others together (absent: as much as its links carry)."""

    half_duplex: frozenset[int] = frozenset()
    sends: Mapping[int, float] = field(default_factory=dict)
    receives: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Network:
    """A network, which joins hosts' memories and nodes': each has a connection of its own, over which it exchanges
    bytes with all others. ``rack``: memories of a rack, in their order (0: all are in one); ``oversubscription``: how
    many times as much as the connection of a rack to all others its memories' own ones carry together."""

    bandwidth: float  # bytes per second of a memory's connection, in each direction
    latency: float  # seconds from any memory to any other one
    rack: int = 0
    oversubscription: float = 1.0

    def link(self, source: int, target: int) -> Link:
        """Return what joins two memories, as a link."""
        return Link(source, target, self.bandwidth, self.latency)

    def rack_of(self, memory: int) -> int:
        """Return the number of a memory's rack; the first host's memory is in none (-1)."""
        return (memory - 1) // self.rack if self.rack and memory != HOST else -1


Route = tuple[tuple[int, int], ...]
"""Transfers, one after another: the memories that each is from and to."""
Hop = tuple[int, int, DeviceIndex, int]
"""A transfer of a route: the memories that it is from and to, the device that makes it, and that one's queue."""


class Routes:
    """The ways of bytes between a machine's memories, each a few transfers one after another. A route has the fewest
    transfers that the links allow, and of such routes the fastest links. On its way it only goes through hosts'
    memories: a device's may be short. Where links do not lead, the host is taken to have one."""

    def __init__(self, machine: Machine) -> None:
        self.hosts = 1 + len(machine.hosts)
        """The number of hosts' memories, whose numbers come first."""
        self._network, self.joined = machine.network, machine.joined
        """The memories that the network joins."""
        self.has_peers = len(self.joined) > 2 or bool(machine.peers)
        """True if there is a way between memories of which none is the host's."""
        self._from: dict[int, list[Link]] = {}
        self._owners: dict[int, DeviceIndex] = {d.memory: i for i, d in machine.numbered()}
        for link in machine.links:
            self._from.setdefault(link.source, []).append(link)
            if (
                link.source in self._owners and link.source >= self.hosts
            ):  # of a host's memory without a device: one that has a link to it
                self._owners.setdefault(link.target, self._owners[link.source])
        self._known: dict[tuple[int, int], Route] = {}
        self._memory = [*(d.memory for d in machine.devices), HOST]
        self.hops = cache(self._hops)
        """Returns the transfers that bring bytes from one memory to a device's (-1: the host's)."""
        self._far = {m for m in range(machine.memories) if machine.hosts and len(self.between(HOST, m)) > 1}

    def between(self, source: int, target: int) -> Route:
        """Return the transfers, one after another, that bring bytes from one memory to another."""
        known = self._known.get((source, target))
        if known is None:
            known = () if source == target else self.by_links(source, target) or self._by_host(source, target)
            self._known[source, target] = known
        return known

    @staticmethod
    def _by_host(source: int, target: int) -> Route:
        return ((source, target),) if HOST in (source, target) else ((source, HOST), (HOST, target))

    def by_links(self, source: int, target: int) -> Route:
        """Return the route by links and the network alone (empty: they do not lead there); Dijkstra's algorithm."""
        if source in self.joined and target in self.joined:
            return ((source, target),)
        found: list[tuple[int, float, int, Route]] = [(0, 0.0, source, ())]
        seen: set[int] = set()
        while found:
            hops, seconds, at, way = heappop(found)
            if at == target:
                return way
            if at in seen or (hops and at >= self.hosts):
                continue
            seen.add(at)
            ways = self._from.get(at, ())
            if (
                self._network is not None and at in self.joined
            ):  # on to the memories of the network from which links lead, and to the target
                ways = [*ways, *(self._network.link(at, m) for m in self.joined if m in self._from or m == target)]
            for x in ways:
                heappush(found, (hops + 1, seconds + 1.0 / x.bandwidth, x.target, (*way, (at, x.target))))
        return ()

    def nearest(self, memories: Collection[int], target: int) -> int:
        """Return from which of the memories that have bytes these come to another one: with the fewest transfers;
        of such from the first: where they were made, so that not all that is made in several goes through one."""
        if HOST in memories and target not in self._far and target not in memories:
            return HOST  # (as on nearly all machines: from there it is one transfer to any memory)
        return min(memories, key=lambda memory: len(self.between(memory, target)))

    def _hops(self, source: int, device: DeviceIndex) -> tuple[Hop, ...]:
        ways = [
            (a, b, self.sender(a, b) if b < self.hosts else device)
            for a, b in self.between(source, self._memory[device])
        ]
        return tuple((*way, self.queue(way[1], way[2])) for way in ways)

    def queue(self, target: int, device: DeviceIndex) -> int:
        """Return the number of a device's queue of transfers to a memory: those to hosts' come first."""
        return device if target < self.hosts else len(self._memory) + device

    def sender(self, source: int, target: int) -> DeviceIndex:
        """Return the device whose driver makes a transfer to a host's memory (all others: the device that gets it)."""
        return self._owners.get(source if source != HOST else target, DeviceIndex(0))


_MEMORY, _TARGET = attrgetter("memory"), attrgetter("target")


@dataclass(frozen=True, slots=True)
class Machine:
    """Devices and links. Memories are numbered 0 (host) to ``memories - 1``; :attr:`routes`: which way data go between
    them. ``hosts``: the names of further hosts' memories, as nodes of a cluster have, which are numbered from 1 on,
    before devices' own; ``network``: what joins these and nodes' memories, besides links. ``host_bandwidth``: bytes
    per second that the host's memory carries, of all that reads and writes it at the same time, transfers and devices
    that compute in it (infinite: nobody knows a limit)."""

    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    name: str = "this machine"
    notes: dict[str, str] = field(default_factory=dict)  # where each number comes from
    host_bandwidth: float = math.inf
    hosts: tuple[str, ...] = ()
    sharing: Sharing = Sharing()  # it is frozen
    network: Network | None = None

    @property
    def joined(self) -> frozenset[int]:
        """The memories that the network joins: hosts' and those of nodes; none without a network."""
        if self.network is None:
            return frozenset()
        return frozenset((*range(1 + len(self.hosts)), *(d.memory for d in self.devices if d.kind == "node")))

    @property
    def indices(self) -> Sequence[DeviceIndex]:
        return range(len(self.devices))  # type: ignore[return-value]  # they are numbered here

    def numbered(self) -> Iterator[tuple[DeviceIndex, Device]]:
        return zip(self.indices, self.devices, strict=True)

    @property
    def memories(self) -> int:
        highest: int = max((len(self.hosts), *map(_MEMORY, self.devices), *map(_TARGET, self.links)))
        return 1 + highest

    def is_apart(self, device: DeviceIndex) -> bool:
        """Return whether a device is alone in a memory that is not a host's."""
        memory = self.devices[device].memory
        return memory > max(HOST, len(self.hosts) - 1) and [d.memory for d in self.devices].count(memory) == 1

    def drops(self, device: DeviceIndex) -> bool:
        """Return whether packets of a device may be begun anew elsewhere while it runs them: it is alone in its memory,
        and cannot end launches early."""
        return self.is_apart(device) and not self.devices[device].shortens

    def least_chunks(self, device: DeviceIndex) -> int:
        """Return the least chunks of a packet: one that is begun anew has the name of another chunk."""
        return 2 if self.drops(device) else 1

    @property
    def is_spread(self) -> bool:
        """True if there are several devices, not all in one memory: then where results come from can be chosen."""
        return len(self.devices) > 1 < self.memories

    def memory_name(self, memory: int, user: DeviceIndex | None = None) -> str:
        """Return ``host``, the name of another host's memory, or that of the device that owns a memory; where several
        devices have it, that of its ``user``."""
        if memory <= len(self.hosts):
            return ("host", *self.hosts)[memory]
        if user is None or self.devices[user].memory != memory:
            user = self.owner(memory)
        return self.devices[user].name

    def owner(self, memory: int) -> DeviceIndex:
        """Return the first device that has a memory."""
        return DeviceIndex([*map(_MEMORY, self.devices)].index(memory))

    def link(self, source: int, target: int) -> Link | None:
        found = next((x for x in self.links if x.source == source and x.target == target), None)
        if found is None and self.network is not None and {source, target} <= self.joined:
            return self.network.link(source, target)
        return found

    @property
    def routes(self) -> Routes:
        """The ways of bytes between the memories; new ones each time, which know what they have found."""
        return Routes(self)

    @property
    def peers(self) -> frozenset[tuple[int, int]]:
        """The pairs of memories, none of them the host's, of which one has a link to the other."""
        return frozenset((x.source, x.target) for x in self.links if HOST not in (x.source, x.target))

    def only(self, names: Collection[str]) -> Machine:
        """The machine that is left of some devices; its memories are numbered without gaps."""
        devices = [d for d in self.devices if d.name in names]
        memories = {memory: memory for memory in range(1 + len(self.hosts))}
        for d in devices:
            memories.setdefault(d.memory, len(memories))
        links = [x for x in self.links if x.source in memories and x.target in memories]
        return replace(
            self,
            devices=tuple(replace(d, memory=memories[d.memory]) for d in devices),
            links=tuple(replace(x, source=memories[x.source], target=memories[x.target]) for x in links),
            sharing=Sharing(),  # it was measured of all together
        )


def are_of_a_kind(devices: Sequence[Device]) -> bool:
    """Return whether devices are known to be of one model and driver."""
    if not all(d.model or d.platform for d in devices):
        return False
    return len({(d.kind, d.model, d.platform, d.driver) for d in devices}) == 1


def known_counts(machine: Machine, wanted: Mapping[str, int]) -> Mapping[str, int]:
    """Return the numbers of queues that a user gives, if they are possible. A name that no device has is a mistake, a
    kind without a device here is not. Raises DeviceError."""
    names = [d.name for d in machine.devices]
    known = {*DEVICE_KINDS, *names, *(n.partition(".")[0] for n in names), *(f"#{n}" for n in range(1, len(names) + 1))}
    for name, count in wanted.items():
        if name not in known:
            raise DeviceError(f"queues of {name}: there is no such device; here are {', '.join(names)}")
        if not 1 <= count <= MOST_QUEUES:
            raise DeviceError(f"{name} cannot have {count} command queues", hint=f"from 1 to {MOST_QUEUES}")
    return wanted


def queue_counts(machine: Machine, wanted: Mapping[str, int]) -> tuple[int, ...]:
    """Return the number of in-order queues of each device: ``wanted`` by the device's name, the name of the device that
    it is a part of, its place (``#1``: the first), or its kind; else the device's own number."""
    names = ((d.name, d.name.split(".")[0], f"#{place}", d.kind) for place, d in enumerate(machine.devices, 1))
    wants = (next((wanted[name] for name in of if name in wanted), None) for of in names)
    return tuple(d.queues if want is None else want for d, want in zip(machine.devices, wants, strict=True))
