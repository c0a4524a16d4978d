"""The task graph: launches, copies, fills and host functions as nodes, dependences as edges, and their buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, NewType

from manycl.analysis.annotations import Annotation
from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.errors import LaunchError
from manycl.machine import DeviceIndex
from manycl.region import NOTHING, Region

BufferKey = NewType("BufferKey", int)
"""Of a buffer, or of a piece or window of one: unique in its session. Only who numbers buffers makes one."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """A one-dimensional run of ``nbytes`` bytes that kernels read and write. ``key`` is unique in its session."""

    key: BufferKey
    nbytes: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class Piece(Buffer):
    """The bytes ``region`` of buffer ``whole``, ``nbytes`` together: what a run that takes launches apart keeps track
    of instead of the buffer. ``key`` is negative."""

    whole: BufferKey = BufferKey(0)
    region: Region = NOTHING


class Window(NamedTuple):
    """An allocation on a device for bytes ``low`` … of buffer ``whole``."""

    key: BufferKey
    whole: BufferKey
    low: int
    nbytes: int
    device: DeviceIndex


class Beside(NamedTuple):
    """The pieces of a range of ``launch`` that other ranges write meanwhile, in elements apart or atomically: no
    race."""

    launch: int
    pieces: frozenset[BufferKey]


@dataclass(frozen=True, slots=True)
class LocalArg:
    """An argument in local memory of ``nbytes`` bytes."""

    nbytes: int


@dataclass(frozen=True, slots=True)
class BufferArg:
    """A buffer argument: the key of the buffer. Of a view, which is a part of it: the ``nbytes`` bytes from byte
    ``offset`` on (``nbytes`` None: all of the buffer)."""

    key: BufferKey
    offset: int = 0
    nbytes: int | None = None

    def size(self, sizes: Mapping[BufferKey, int]) -> int:
        """Bytes behind the argument; ``sizes``: those of buffers, by key."""
        return sizes[self.key] if self.nbytes is None else self.nbytes

    def of(self, key: BufferKey) -> BufferArg:
        """Return the same bytes of another buffer."""
        return self if key == self.key else BufferArg(key, self.offset, self.nbytes)


class Owned(NamedTuple):
    """A buffer, and what launches are given for all of it: made once, as arrays are made all the time."""

    buffer: Buffer
    argument: BufferArg


def owned(buffer: Buffer) -> Owned:
    """That of a buffer."""
    return Owned(buffer, BufferArg(buffer.key))


Argument = BufferArg | LocalArg | bytes
"""A launch's argument: a buffer or a view of one, local memory, or a scalar (or struct) as bytes."""


@dataclass(frozen=True)
class Placement:
    """The devices that may run a launch: ``only`` these, ``never`` those, each a kind (``cpu``, ``gpu``) or a device's
    name, or several; by preference ``prefer``. If it is divided, it has ``at_most`` so many of them (0: any number).
    Raises LaunchError for what cannot be."""

    only: str | Sequence[str] = ()
    never: str | Sequence[str] = ()
    at_most: int = 0
    prefer: str = ""

    def __post_init__(self) -> None:
        for name in ("only", "never"):
            given = getattr(self, name)
            words = given if isinstance(given, list | tuple | set | frozenset) else (given,)
            object.__setattr__(self, name, tuple(words))
        is_count = isinstance(self.at_most, int) and 0 <= self.at_most <= 1000
        named = all(isinstance(word, str) and word for word in (*self.only, *self.never))
        if not is_count or isinstance(self.at_most, bool) or not isinstance(self.prefer, str) or not named:
            raise LaunchError(
                "a launch cannot be restricted to these devices",
                hint="only, never: kinds or names of devices; prefer: one; at_most: a number up to 1000, 0 for any",
            )

    def __str__(self) -> str:
        said = [f"{name} {', '.join(getattr(self, name))}" for name in ("only", "never") if getattr(self, name)]
        said += [f"at most {self.at_most}"] * (self.at_most > 0) + [f"{self.prefer} if possible"] * bool(self.prefer)
        return "; ".join(said)


@dataclass(frozen=True, slots=True)
class Version:
    """One implementation of a step, with an NDRange of its own. ``kinds``: the device kinds it is for (none: any)."""

    program: ProgramFacts
    kernel: KernelFacts
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    kinds: tuple[str, ...] = ()
    annotations: tuple[Annotation, ...] = ()


@dataclass(slots=True, eq=False)
class Launch:
    """One kernel launch. ``reads`` and ``writes`` are buffer keys (one in both: read and written).

    ``device`` is a preference: ``""`` any, a kind (``cpu``, ``gpu``), or a device's name; or a restriction. ``rank``
    orders the frontier before everything else (higher first). Sizes are in work-items, as for clEnqueueNDRangeKernel.
    ``annotations`` are the user's promises about the arguments. ``versions``, where there are several, are all
    implementations, the launch's own kernel first: any of them may run, with the same arguments
    (:mod:`manycl.graph.versions.versions`). ``overwrites`` are those of the ``writes`` of which it writes every byte
    that its arguments have, so what these held is not needed. ``partition``, 1 to 9, are the tenths of its work-groups
    that are meant for GPUs, the rest being for CPUs. Treat as frozen (plain slots because ten thousand of them are made
    per run).
    """

    name: str
    program: ProgramFacts = field(repr=False)  # as long as its source
    kernel: KernelFacts = field(repr=False)
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    args: tuple[Argument, ...]
    reads: tuple[BufferKey, ...]
    writes: tuple[BufferKey, ...]
    global_offset: tuple[int, ...] | None = None
    device: str | Placement = ""
    rank: float | None = None
    annotations: tuple[Annotation, ...] = ()
    versions: tuple[Version, ...] = ()
    overwrites: tuple[BufferKey, ...] = ()
    partition: int | None = None

    @property
    def work_items(self) -> int:
        n = 1
        for g in self.global_size:
            n *= g
        return n


@dataclass(slots=True, eq=False)
class HostTask:
    """A host function: called as ``function(*arrays)`` when its inputs are valid on the host; else a launch.
    ``repeats``: it may be called again, with the same effect."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    reads: tuple[BufferKey, ...]
    writes: tuple[BufferKey, ...]
    rank: float | None = None
    overwrites: tuple[BufferKey, ...] = ()
    repeats: bool = False


@dataclass(slots=True, eq=False)
class ResultTask(HostTask):
    """The results that the host will read: they are on the host when it is called, and nothing else is done (MKMD's
    sink, Section 5.1; REPARA's final transfer, Algorithm 4; PySchedCL's isolated reads, Section 3). Made by
    :mod:`manycl.graph.copies`."""


def results_of(nodes: Sequence[Node]) -> Sequence[BufferKey]:
    """Return the buffers that the host will read, of which the last node is."""
    return nodes[-1].reads if nodes and isinstance(nodes[-1], ResultTask) else ()


@dataclass(slots=True, eq=False)
class MemoryTask:
    """``nbytes`` bytes of a buffer (the first of ``args``) are written, from byte ``target_offset`` on; no kernel.
    Other fields are as of a launch. Made by :mod:`manycl.graph.copies`, which checks the sizes."""

    function: ClassVar[str]  # what traces have for a kernel's name
    name: str
    args: tuple[BufferArg, ...]
    nbytes: int
    target_offset: int
    reads: tuple[BufferKey, ...]
    writes: tuple[BufferKey, ...]
    overwrites: tuple[BufferKey, ...] = ()
    device: str = ""
    rank: float | None = None

    @property
    def moved(self) -> int:
        """Bytes that are read or written."""
        return self.nbytes * (1 + len(self.reads))


@dataclass(slots=True, eq=False, kw_only=True)
class CopyTask(MemoryTask):
    """A copy of bytes from another buffer (the second of ``args``), or from other bytes of the same one."""

    function: ClassVar[str] = "copy"
    source_offset: int


@dataclass(slots=True, eq=False, kw_only=True)
class FillTask(MemoryTask):
    """A fill of bytes with a pattern, again and again."""

    function: ClassVar[str] = "fill"
    pattern: bytes


DeviceTask = Launch | CopyTask | FillTask
"""What runs on a device, in one of its queues."""
_NAMES: Mapping[type[Node], tuple[str, ...]] = {
    kind: tuple(f.name for f in fields(kind)) for kind in (Launch, CopyTask, FillTask, ResultTask)
}
Node = DeviceTask | HostTask


def ndrange(task: DeviceTask | Version) -> tuple[tuple[int, ...], tuple[int, ...] | None, str]:
    """Global and local size, and the kernel function's name; ``copy`` or ``fill``, which have no sizes."""
    if isinstance(task, CopyTask | FillTask):
        return (), None, task.function
    return task.global_size, task.local_size, task.kernel.name


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which they may run one after another (a topological order: edges go from low to high).

    ``predecessors[i]`` and ``successors[i]`` are sorted node indices. ``components`` partitions the nodes into the
    task components the user declared (PySchedCL's T); empty where none were declared. ``warnings``: what the user is
    to be told of it. ``parts``: the buffers of which some nodes touch only a part; nodes that touch different bytes of
    these are not ordered. Of a graph of steps, ``beside``: steps that write the same pieces at the same time;
    ``windows`` by key, where ranges work on such. Of a graph made of another one, ``origins``: by node, the node of
    that one. ``own``: buffers that only this graph has, between its nodes.
    """

    nodes: tuple[Node, ...]
    buffers: Mapping[BufferKey, Buffer]
    predecessors: tuple[tuple[int, ...], ...]
    components: tuple[tuple[int, ...], ...] = ()
    name: str = ""
    warnings: tuple[str, ...] = ()
    parts: frozenset[BufferKey] = frozenset()
    beside: Mapping[int, Beside] = field(default_factory=dict)
    windows: Mapping[BufferKey, Window] = field(default_factory=dict)
    origins: tuple[int, ...] = ()
    own: frozenset[BufferKey] = frozenset()

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        after: list[list[int]] = [[] for _ in self.nodes]
        for node, before in enumerate(self.predecessors):
            for p in before:
                after[p].append(node)
        return tuple(tuple(s) for s in after)

    @cached_property
    def written_together(self) -> frozenset[BufferKey]:
        """The pieces that several steps write at the same time."""
        return frozenset(key for _, pieces in self.beside.values() for key in pieces)

    @cached_property
    def last_writers(self) -> Mapping[BufferKey, int]:
        """The last node that writes each buffer."""
        return {key: node for node, task in enumerate(self.nodes) for key in task.writes}

    @cached_property
    def brought_home(self) -> frozenset[BufferKey]:
        """The results that no other node reads once they have been written last."""
        last, found = self.last_writers, set[BufferKey]()
        for task in self.nodes:
            if isinstance(task, ResultTask):
                found.update(task.reads)
        for node, task in enumerate(self.nodes):
            if not isinstance(task, ResultTask):
                found.difference_update([key for key in task.reads if last.get(key, -1) < node])
        return frozenset(found)

    def explicit(self, node: int) -> list[int]:
        """Return the predecessors of a node that come first although no buffer requires it."""
        task, found = self.nodes[node], list[int]()
        for p in self.predecessors[node]:
            other = self.nodes[p]
            if not {*other.writes} & {*task.reads, *task.writes} and not {*other.reads} & {*task.writes}:
                found.append(p)
        return found

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        return tuple((p, n) for n, before in enumerate(self.predecessors) for p in before)

    @cached_property
    def same(self) -> list[int]:
        """Per node, the first node that is the same launch, of the same buffers: what is found out about the one holds
        for the other, whatever their place in the graph. Its own index where there is none, and for host tasks."""
        first: dict[object, int] = {}
        out: list[int] = []
        for index, task in enumerate(self.nodes):
            out.append(index if isinstance(task, HostTask) else first.setdefault(_contents(task), index))
        return out

    def __len__(self) -> int:
        return len(self.nodes)


def _contents(task: DeviceTask) -> tuple[object, ...]:
    """Return all that a launch consists of but its rank; facts by identity, as they are shared and large."""
    if isinstance(task, CopyTask | FillTask):
        return type(task), *(getattr(task, name) for name in _NAMES[type(task)] if name not in ("name", "rank"))
    return (
        id(task.program),
        id(task.kernel),
        task.global_size,
        task.local_size,
        task.global_offset,
        tuple([a.key if type(a) is BufferArg and a.nbytes is None else a for a in task.args]),
        task.reads,
        task.writes,
        task.device,
        task.annotations,
        task.versions and version_contents(task.versions),
        task.overwrites,
        task.partition,
    )


def version_contents(versions: tuple[Version, ...]) -> tuple[object, ...]:
    """Return the parts of a launch's versions, as a key: programs and kernels by identity."""
    return tuple([(id(v.program), id(v.kernel), v.global_size, v.local_size, v.kinds, v.annotations) for v in versions])


def same_graph(one: Graph, other: Graph) -> bool:
    """Return whether the steps of one graph are those of another: the same launches of the same buffers."""
    return one is other or (
        len(one) == len(other)
        and one.predecessors == other.predecessors
        and one.components == other.components
        and one.buffers == other.buffers
        and all(same_node(a, b) for a, b in zip(one.nodes, other.nodes, strict=True))
    )


def same_node(one: Node, other: Node) -> bool:
    """Return whether a node does what another one does, with the same buffers."""
    return one is other or (
        type(one) is type(other) is not HostTask  # (a host function may do something else)
        and all(getattr(one, name) == getattr(other, name) for name in _NAMES[type(one)])
    )
