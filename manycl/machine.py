"""What a machine is: devices, the memories they compute in, and the links between memories.

Values only: the same shape describes the machine that is here (``drivers.choice`` fills it in) and one that
is only described in a file (``machine_file``). Units: bytes, seconds, hertz, bytes per second, operations per second.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NewType

HOST = 0
"""Index of the host's memory. A device that shares it has ``memory == HOST``; the others number from 1."""

DeviceIndex = NewType("DeviceIndex", int)
"""Place of a device in :attr:`Machine.devices` (``plan.ON_HOST``: the host's)."""

ALIGNMENT = 4096  # bytes; where parts of allocations may begin: at multiples, on any device that there is

DEVICE_KINDS = ("cpu", "gpu", "accelerator")
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
    queues: int = 1  # in-order queues that pay (1 on CPUs, 16 on GPUs)
    launch_overhead: float = 10e-6  # seconds from enqueueing to starting an idle device
    enqueuing: float = 0.0  # seconds that the engine and the driver take to enqueue a command
    slowdown: float = 1.0  # experiment: every kernel takes this many times longer
    simulator: bool = False  # an interpreter such as Oclgrind: only used when asked for by name
    shortens: bool = False  # launches that are under way can end early, at one of their work-groups

    def holds(self, sizes: Sequence[int]) -> bool:
        """Whether there is room for buffers of these sizes (bytes) at once."""
        return sum(sizes) <= self.global_memory and max(sizes, default=0) <= self.max_allocation


@dataclass(frozen=True, slots=True)
class Link:
    """One direction between two memories. A transfer of n bytes takes ``latency + n / bandwidth`` when alone.
    ``chunk``: bytes of the parts in which it carries long transfers nearly as fast as in one (0: nobody knows)."""

    source: int
    target: int
    bandwidth: float  # bytes per second
    latency: float  # seconds
    chunk: int = 0


def nearest(memories: Collection[int], target: int, peers: Collection[tuple[int, int]]) -> int:
    """From which of the memories that have bytes these come to another one: the host's, from which there is a way to
    all; else one that has a link to it (``peers``: see :attr:`Machine.peers`); else any, by the host."""
    if HOST in memories:
        return HOST
    return min([m for m in memories if (m, target) in peers] or memories) if peers else min(memories)


def hops(source: int, target: int, peers: Collection[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """As :meth:`Machine.route`, by :attr:`Machine.peers`."""
    if source == target:
        return ()
    if HOST in (source, target) or (source, target) in peers:
        return ((source, target),)
    return (source, HOST), (HOST, target)


@dataclass(frozen=True, slots=True)
class Machine:
    """Devices and links. Memories are numbered 0 (host) to ``memories - 1``; :meth:`route`: which way data go between
    them. ``host_bandwidth``: bytes per second that the host's memory carries, of all that reads and writes it at the
    same time, transfers and devices that compute in it (infinite: nobody knows a limit)."""

    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    name: str = "this machine"
    notes: dict[str, str] = field(default_factory=dict)  # where each number comes from
    host_bandwidth: float = math.inf

    @property
    def indices(self) -> Sequence[DeviceIndex]:
        return range(len(self.devices))  # type: ignore[return-value]  # they are numbered here

    def numbered(self) -> Iterator[tuple[DeviceIndex, Device]]:
        return zip(self.indices, self.devices, strict=True)

    @property
    def memories(self) -> int:
        return 1 + max((d.memory for d in self.devices), default=0)

    def memory_name(self, memory: int) -> str:
        """``host``, or the name of the device that owns the memory."""
        return "host" if memory == HOST else self.devices[self.owner(memory)].name

    def owner(self, memory: int) -> DeviceIndex:
        """Return the first device that has a memory."""
        return next(i for i, d in self.numbered() if d.memory == memory)

    def link(self, source: int, target: int) -> Link | None:
        return next((x for x in self.links if x.source == source and x.target == target), None)

    def route(self, source: int, target: int) -> tuple[tuple[int, int], ...]:
        """The memories that bytes go from and to, hop by hop, on their way from one memory to another: by a link of
        these two, else by the host."""
        return hops(source, target, self.peers)

    @property
    def peers(self) -> frozenset[tuple[int, int]]:
        """The pairs of memories, none of them the host's, of which one has a link to the other."""
        return frozenset((x.source, x.target) for x in self.links if HOST not in (x.source, x.target))

    def only(self, names: Collection[str]) -> Machine:
        """The machine that is left of some devices; its memories are numbered without gaps."""
        devices = [d for d in self.devices if d.name in names]
        memories = {HOST: HOST}
        for d in devices:
            memories.setdefault(d.memory, len(memories))
        links = [x for x in self.links if x.source in memories and x.target in memories]
        return replace(
            self,
            devices=tuple(replace(d, memory=memories[d.memory]) for d in devices),
            links=tuple(replace(x, source=memories[x.source], target=memories[x.target]) for x in links),
        )
