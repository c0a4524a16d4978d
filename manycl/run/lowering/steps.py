"""Steps: the values that a plan is lowered to. Values only (:mod:`manycl.run.lowering.lower` makes them)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from manycl.graph.graph import Buffer, BufferKey, Graph, Launch, Piece, Window
from manycl.graph.reduction import Promised
from manycl.graph.rename import renamed_node
from manycl.group_range import RangeParts
from manycl.machine import HOST_BIT, DeviceIndex, Machine
from manycl.plan.plan import Plan
from manycl.plan.problem import ValidInterval
from manycl.plan.rescheduling import Extent
from manycl.region import NOTHING, Region
from manycl.run.data.coherence import Directory, Lies, ValidRegion, lie_in, places
from manycl.run.data.contents import LookedAt

RANGE, COPY, CLEAR, COMBINE, CHECK = "range", "copy", "clear", "merge", "check"
"""The roles of steps that are not whole nodes."""
DROPPED = "dropped"
"""The role of a packet that was begun anew on another device, so that its results do not count."""


class Step(NamedTuple):
    """A step of node ``node``. ``role`` is empty for the whole node, ``range`` for groups ``first`` … of ``dimension``,
    else the name of a step beside the ranges: ``copy``, ``clear``, ``merge``. ``method``: how what the ranges write is
    merged (:class:`~manycl.graph.reduction.Reduction`). ``version``: the version of the node that a range runs."""

    node: int
    role: str = ""
    dimension: int | None = None
    first: int = 0
    groups: int = 0
    method: str = ""
    version: int = 0


ANYWHERE, UNDEFINED, HOST_ALONE, ELSEWHERE = range(-1, 3)
"""The states of a buffer: any of the others (as the steps do not depend on it); not valid as a whole; valid on the host
alone; valid elsewhere too. All but the first are the buffer's mask, or ``ELSEWHERE`` where that is greater."""
assert HOST_BIT == HOST_ALONE

State = dict[BufferKey, tuple[tuple[Region, ...], int]]
"""By buffer, the parts along which it had to be cut, and one of the states above."""


class Spill(NamedTuple):
    """The transfers that a device (index) is predicted to need because its ``limit`` is less than the ``needed`` bytes
    of buffers: bytes that are uploaded again (``up``), bytes that are downloaded to make room or when the run ends
    (``down``), and the seconds of both."""

    device: DeviceIndex
    limit: int
    needed: int
    up: int
    down: int
    seconds: float


@dataclass(frozen=True)
class Room:
    """The memory of a run that does not fit. ``limits``: bytes that the stores (windows and whole buffers) of a device
    may have, for the devices that do not hold all of the run. ``windows`` by key. ``using[step]``: the windows that a
    step works on instead of buffers, by buffer. ``sizes``: bytes of all stores by key. ``spills``: the predicted
    transfers (none, where devices are chosen during the run)."""

    limits: Mapping[DeviceIndex, int]
    windows: Mapping[BufferKey, Window]
    using: Sequence[Mapping[BufferKey, BufferKey]]
    sizes: Mapping[BufferKey, int]
    spills: tuple[Spill, ...] = ()


class ChunkDeque(NamedTuple):
    """A device's deque of chunks at the beginning of a launch: from ``first`` to before ``last``, for its queue
    ``queue``."""

    device: DeviceIndex
    queue: int
    first: int
    last: int


class ChunkBytes(NamedTuple):
    """The pieces that any chunk of a launch finds as they are (``finds``), those that any writes, and the steps that
    any comes after."""

    finds: tuple[BufferKey, ...]
    writes: Mapping[BufferKey, None]
    before: frozenset[int]


@dataclass(frozen=True)
class Chunks:
    """A launch whose shares may move. ``steps``: the step of each chunk, in the order of work-groups; ``groups``: its
    work-groups, each of ``items`` work-items along the launch's ``dimension``. ``deques``: the devices' deques.
    ``launch(first, last)`` makes one launch of the chunks from ``first`` to before ``last``."""

    steps: tuple[int, ...]
    groups: tuple[int, ...]
    deques: tuple[ChunkDeque, ...]
    launch: Callable[[int, int], Launch]
    dimension: int = 0
    items: int = 1
    _bytes: list[ChunkBytes] = field(default_factory=list, compare=False, repr=False)
    _order: dict[BufferKey, int] = field(default_factory=dict, compare=False, repr=False)

    def each(self, deque: ChunkDeque, seconds: Mapping[int, float]) -> float:
        """Return the seconds of a work-group in a deque. ``seconds``: of its chunks, by step."""
        chunks = slice(deque.first, deque.last)
        return sum(seconds[step] for step in self.steps[chunks]) / sum(self.groups[chunks])

    def parts(self, first: int, count: int) -> RangeParts:
        """Return how a launch of ``count`` chunks from ``first`` on is divided into these."""
        ends = accumulate(self.groups[first : first + count])
        return RangeParts(self.dimension, tuple(map(self.items.__mul__, ends)))

    def bytes(self, graph: Graph) -> ChunkBytes:
        """Return the pieces that the chunks touch, in the graph that has their steps; computed once."""
        if not self._bytes:
            tasks = [graph.nodes[step] for step in self.steps]
            kept = (key for t in tasks for key in t.writes if key not in t.overwrites)
            self._bytes.append(
                ChunkBytes(
                    tuple(dict.fromkeys([*(key for t in tasks for key in t.reads), *kept])),
                    dict.fromkeys(key for t in tasks for key in t.writes),
                    frozenset().union(*[graph.predecessors[step] for step in self.steps]),
                )
            )
        return self._bytes[0]

    def order(self, graph: Graph) -> Mapping[BufferKey, int]:
        """Return the positions of all pieces that chunks touch, each buffer's in the order of its bytes: so many
        transfers become one. Computed once."""
        if not self._order:
            touched = self.bytes(graph)

            def place(key: BufferKey) -> tuple[int, int]:
                buffer = graph.buffers[key]
                return (buffer.whole, buffer.region.hull[0]) if isinstance(buffer, Piece) else (key, 0)

            keys = sorted(dict.fromkeys((*touched.finds, *touched.writes)), key=place)
            self._order.update((key, n) for n, key in enumerate(keys))
        return self._order


class Timetable(NamedTuple):
    """The times and order of a plan of steps. ``seconds`` and ``position`` (in the plan's order): of each step.
    ``launch``: the launch with moving shares that a step is a chunk of (a node of the graph before lowering). ``each``:
    seconds of a work-group of such a launch, by device with a share; ``others``: the same for other devices, filled as
    it is needed, by launch and device. ``lines``: the steps of each queue (device and number) in order, a launch with
    moving shares as -1 less its node."""

    seconds: Mapping[int, float]
    position: Mapping[int, int]
    launch: Mapping[int, int]
    lines: Mapping[tuple[DeviceIndex, int], tuple[int, ...]]
    each: Mapping[int, Mapping[DeviceIndex, float]]
    others: dict[tuple[int, DeviceIndex], float]


@dataclass(frozen=True)
class Lowered:
    """A lowered plan or graph. ``graph``: of steps and pieces. ``plan``: the devices of the steps (None: chosen during
    the run). ``steps[i]``: the step that node i of the graph is; empty where nodes are those of the graph before.
    ``cut``: the pieces of each buffer that has several, by key. ``temporaries``: buffers that only this run needs.
    ``state``: what of the directory has decided the steps. ``room``: for a run that does not fit into the devices
    that it uses. ``chunks``: the chunks of nodes of the graph before lowering whose shares may move."""

    graph: Graph
    plan: Plan | None = None
    steps: tuple[Step, ...] = ()
    cut: Mapping[BufferKey, Mapping[BufferKey, Region]] = field(default_factory=dict)
    temporaries: tuple[Buffer, ...] = ()
    own: tuple[BufferKey, ...] = ()  # keys of the temporaries and of their pieces
    state: State = field(default_factory=dict)
    room: Room | None = None
    chunks: Mapping[int, Chunks] = field(default_factory=dict)
    promised: tuple[Promised, ...] = ()
    """The promises that the steps rely on."""
    is_cut: bool = False
    """Whether some launches have border ranges first: what goes between devices travels beside the next ones."""
    looked_at: tuple[LookedAt, ...] = ()
    """The contents by which they were made."""
    joined: dict[tuple[int, ...], tuple[ValidRegion, ...]] = field(default_factory=dict, compare=False)
    """The results of ``Directory.close`` when this ran before."""
    reads: dict[BufferKey, tuple[ValidRegion, ...]] = field(default_factory=dict, compare=False, repr=False)
    """The answer of :func:`first_reads`, once it was asked for."""
    lies: Lies = field(default_factory=dict, compare=False, repr=False)
    """The parts in which pieces lay when this ran before."""

    @cached_property
    def timetable(self) -> Timetable:
        """The plan's times and order."""
        assert self.plan is not None
        given = self.plan.assignments
        launch = {step: node for node, chunks in self.chunks.items() for step in chunks.steps}
        lines: dict[tuple[DeviceIndex, int], list[int]] = {}
        for a in given:
            line = lines.setdefault((a.device, a.queue), [])
            item = -1 - launch[a.node] if a.node in launch else a.node
            if not line or line[-1] != item:
                line.append(item)
        seconds, position = {a.node: a.end - a.start for a in given}, {a.node: n for n, a in enumerate(given)}
        each = {n: {s.device: c.each(s, seconds) for s in c.deques} for n, c in self.chunks.items()}
        of = {lane: tuple(line) for lane, line in lines.items()}
        return Timetable(seconds, position, launch, of, each, {})

    def step(self, token: int) -> Step:
        return self.steps[token] if self.steps else Step(token)

    def extent(self, token: int) -> Extent:
        """Return how much of its node a step runs."""
        step = self.step(token)
        return Extent(step.node, not step.role, step.groups if step.role == RANGE else 0)

    def on(self, keys: Mapping[BufferKey, BufferKey], buffers: Mapping[BufferKey, Buffer]) -> Lowered | None:
        """Return the steps on buffers ``keys[b]``, of the same sizes, instead of b; ``buffers``: these by key. None
        where the steps depend on more than that. Both have the same pieces and temporary buffers."""
        if all(keys[key] == key for key in keys):
            return self
        if self.chunks or self.promised or self.looked_at or self.room is not None:
            return None
        nodes = {id(node): renamed_node(node, keys) for node in self.graph.nodes}
        made: dict[BufferKey, Buffer] = {}
        for key, buffer in self.graph.buffers.items():
            if isinstance(buffer, Piece):
                made[key] = replace(buffer, whole=keys.get(buffer.whole, buffer.whole))
            else:
                made[keys.get(key, key)] = buffers.get(keys.get(key, key), buffer)
        parts = frozenset(keys.get(key, key) for key in self.graph.parts)
        graph = replace(self.graph, nodes=tuple([nodes[id(n)] for n in self.graph.nodes]), buffers=made, parts=parts)
        cut = {keys.get(key, key): pieces for key, pieces in self.cut.items()}
        state = {keys.get(key, key): found for key, found in self.state.items()}
        return replace(self, graph=graph, cut=cut, state=state, joined={}, lies={}, reads={})

    def fits(self, directory: Directory) -> bool:
        """Return whether the steps would be the same in the directory's present state."""
        if self.promised and not all(promise.is_current for promise in self.promised):
            return False
        if self.looked_at and not all(array.is_current(directory) for array in self.looked_at):
            return False
        for key, (along, where) in self.state.items():
            parts = directory.valid_regions.get(key, ())
            if where != ANYWHERE and where != min(directory.valid.get(key, UNDEFINED), ELSEWHERE):
                return False
            if along or key not in self.cut:
                regions: tuple[Region, ...] = next(zip(*parts, strict=True), ())
                if along != regions:
                    return False
                self.state[key] = regions, where  # (the same objects are compared in no time)
            elif parts and lie_in(parts, key, self.cut[key], self.lies) is None:
                return False
        return True


def first_reads(lowered: Lowered, machine: Machine) -> Mapping[BufferKey, tuple[ValidRegion, ...]]:
    """Return, by buffer, the regions that devices need before a step has written them, with the masks of the devices'
    memories. What no device needs is among the bytes that the first one needs."""
    found = lowered.reads
    if found or lowered.plan is None:
        return found
    memory = {a.node: machine.devices[a.device].memory for a in lowered.plan.assignments if a.device >= 0}
    masks, written = dict[BufferKey, int](), set[BufferKey]()
    for step, task in enumerate(lowered.graph.nodes):
        for key in {*task.reads, *task.writes} - written if step in memory else ():
            if key in task.reads or key not in task.overwrites:
                masks[key] = masks.get(key, 0) | 1 << memory[step]
        written.update(task.writes)
    found.update({key: (ValidRegion(NOTHING, mask),) for key, mask in masks.items()})
    for buffer, pieces in lowered.cut.items():
        first = next((masks[piece] for piece in pieces if piece in masks), None)
        if first is not None:
            found[buffer] = tuple([ValidRegion(region, masks.get(piece, first)) for piece, region in pieces.items()])
    return found


def state_of(
    graph: Graph, directory: Directory, along: Mapping[BufferKey, tuple[Region, ...]], anywhere: bool
) -> State:
    """Return what of the directory decides how a graph is lowered: the parts along which buffers had to be cut
    (``along``), which buffers are undefined, and which have to come from the host (``anywhere``: nothing depends on
    these two)."""
    valid = directory.valid
    where = {key: ANYWHERE if anywhere else min(valid.get(key, UNDEFINED), ELSEWHERE) for key in graph.buffers}
    return {key: (along.get(key, ()), state) for key, state in where.items()}


def valid_intervals(directory: Directory, graph: Graph) -> dict[BufferKey, tuple[ValidInterval, ...]]:
    """Return the intervals of buffers that are valid in parts, for those whose parts are intervals
    (``Problem.valid_intervals``)."""
    out: dict[BufferKey, tuple[ValidInterval, ...]] = {}
    for key, parts in directory.valid_regions.items():
        if key in graph.buffers and all(rect.rows == 1 for part in parts for rect in part.region.rectangles):
            found = [ValidInterval(*ends, places(part.mask)) for part in parts for ends in part.region.intervals]
            out[key] = tuple(sorted(p for p in found if p.memories))
    return out
