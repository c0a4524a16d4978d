"""What a plan is lowered to: steps on pieces of buffers. Values only (:mod:`manycl.run.lowering.lower` makes them)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from manycl.graph.graph import Buffer, BufferKey, Graph, Launch, Piece, Window
from manycl.group_range import RangeParts
from manycl.machine import DeviceIndex
from manycl.plan.plan import Plan
from manycl.region import Region
from manycl.run.data.coherence import HOST_BIT, Directory, ValidRegion

RANGE, COPY, CLEAR, COMBINE = "range", "copy", "clear", "merge"
"""The roles of steps that are no whole nodes."""


class Step(NamedTuple):
    """What a step is of node ``node``: ``role`` is empty for the whole node, else ``range`` (groups ``first`` … of
    ``dimension``), or what is needed beside the ranges: ``copy``, ``clear``, ``merge``. ``method`` says how what the
    ranges write is put together (:class:`~manycl.graph.reduction.Reduction`); ``version``: which of the node's versions
    a range runs."""

    node: int
    role: str = ""
    dimension: int | None = None
    first: int = 0
    groups: int = 0
    method: str = ""
    version: int = 0


UNDEFINED, HOST_ALONE, ELSEWHERE = range(3)
"""Where a buffer is valid as a whole: nowhere, on the host alone, or also elsewhere."""

State = tuple[tuple[BufferKey, tuple[Region, ...], int], ...]


class Spill(NamedTuple):
    """What a device (index) is predicted to move because its ``limit`` is less than the ``needed`` bytes of buffers:
    bytes that come again, and that leave to make room or when the run ends; seconds of both."""

    device: DeviceIndex
    limit: int
    needed: int
    up: int
    down: int
    seconds: float


@dataclass(frozen=True)
class Room:
    """What a run that does not fit has to do with. ``limits``: bytes that the stores (windows and whole buffers) of a
    device may have, for the devices that do not hold all of the run. ``windows`` by key. ``using[step]``: the windows
    that a step works on instead of buffers, by buffer. ``sizes``: bytes of all stores by key. ``spills``: what that is
    predicted to cost (nothing, where it is decided while the run goes on)."""

    limits: Mapping[DeviceIndex, int]
    windows: Mapping[BufferKey, Window]
    using: Sequence[Mapping[BufferKey, BufferKey]]
    sizes: Mapping[BufferKey, int]
    spills: tuple[Spill, ...] = ()


class Stock(NamedTuple):
    """The cells from ``first`` to before ``last`` are a device's to begin with, for its queue ``queue``."""

    device: DeviceIndex
    queue: int
    first: int
    last: int


class ChunkBytes(NamedTuple):
    """Of all cells of a launch: the pieces that any of them finds as they are (``finds``) and that any writes, and the
    steps that any comes after."""

    finds: tuple[BufferKey, ...]
    writes: tuple[BufferKey, ...]
    before: frozenset[int]


@dataclass(frozen=True)
class Chunks:
    """A launch whose shares may move: the step of each cell (``steps``), in the order of work-groups, and its
    work-groups (``groups``), of so many ``items`` along the launch's ``dimension`` each; the devices' ``stocks``.
    ``launch(first, last)``: cells from one to before another as one launch."""

    steps: tuple[int, ...]
    groups: tuple[int, ...]
    stocks: tuple[Stock, ...]
    launch: Callable[[int, int], Launch]
    dimension: int = 0
    items: int = 1
    _bytes: list[ChunkBytes] = field(default_factory=list, compare=False, repr=False)
    _order: dict[BufferKey, int] = field(default_factory=dict, compare=False, repr=False)

    def each(self, stock: Stock, seconds: Mapping[int, float]) -> float:
        """Of the seconds of a stock's cells, by step, those of a work-group."""
        cells = slice(stock.first, stock.last)
        return sum(seconds[step] for step in self.steps[cells]) / sum(self.groups[cells])

    def parts(self, first: int, count: int) -> RangeParts:
        """How the launch of so many cells falls into them."""
        groups = self.groups[first : first + count]
        return RangeParts(self.dimension, tuple(accumulate(self.items * n for n in groups)))

    def bytes(self, graph: Graph) -> ChunkBytes:
        """In the graph of steps that the cells are of; found out once."""
        if not self._bytes:
            tasks = [graph.nodes[step] for step in self.steps]
            kept = (key for t in tasks for key in t.writes if key not in t.overwrites)
            self._bytes.append(
                ChunkBytes(
                    tuple(dict.fromkeys([*(key for t in tasks for key in t.reads), *kept])),
                    tuple(dict.fromkeys(key for t in tasks for key in t.writes)),
                    frozenset().union(*[graph.predecessors[step] for step in self.steps]),
                )
            )
        return self._bytes[0]

    def order(self, graph: Graph) -> Mapping[BufferKey, int]:
        """The places of all pieces that cells touch, of each buffer in the order of their bytes: so many transfers
        become one. Found out once."""
        if not self._order:
            touched = self.bytes(graph)

            def place(key: BufferKey) -> tuple[int, int]:
                buffer = graph.buffers[key]
                return (buffer.whole, buffer.region.hull[0]) if isinstance(buffer, Piece) else (key, 0)

            keys = sorted(dict.fromkeys((*touched.finds, *touched.writes)), key=place)
            self._order.update((key, n) for n, key in enumerate(keys))
        return self._order


class Timetable(NamedTuple):
    """What a plan of steps says: of each step, its ``seconds`` and its place in the plan's order; the launch that moves
    which a step is a cell of (``launch``: a node of the graph that was lowered), and seconds of a work-group of these
    by device that has a share (``each``), and by others that were asked for (``others``, by launch and device); and the
    ``lines`` of queues (device and number): in their order steps, and such launches, as -1 less their nodes."""

    seconds: Mapping[int, float]
    position: Mapping[int, int]
    launch: Mapping[int, int]
    lines: Mapping[tuple[DeviceIndex, int], tuple[int, ...]]
    each: Mapping[int, Mapping[DeviceIndex, float]]
    others: dict[tuple[int, DeviceIndex], float]


@dataclass(frozen=True)
class Lowered:
    """``graph``: of steps and pieces. ``plan``: who runs the steps (None: it is decided while it runs). ``steps[i]``:
    what node i of the graph is; empty where nodes are what they were. ``cut``: the pieces of each buffer that falls
    into several, by key; ``opens``: the same for ``Directory.open``. ``temporaries``: buffers that only this run
    needs. ``state``: which parts of which buffers were where (see :func:`state_of`). ``room``: for a run that does not
    fit into the devices that it uses. ``cells``: of the nodes, of the graph that was lowered, whose shares may move."""

    graph: Graph
    plan: Plan | None = None
    steps: tuple[Step, ...] = ()
    cut: Mapping[BufferKey, Mapping[BufferKey, Region]] = field(default_factory=dict)
    opens: Mapping[BufferKey, Sequence[tuple[BufferKey, int]]] = field(default_factory=dict)
    temporaries: tuple[Buffer, ...] = ()
    own: tuple[BufferKey, ...] = ()  # keys of the temporaries and of their pieces
    state: State = ()
    room: Room | None = None
    cells: Mapping[int, Chunks] = field(default_factory=dict)
    joined: dict[tuple[int, ...], tuple[ValidRegion, ...]] = field(default_factory=dict, compare=False)
    """What ``Directory.close`` found when this ran before."""
    _timetable: list[Timetable] = field(default_factory=list, compare=False, repr=False)

    @property
    def timetable(self) -> Timetable:
        """Of the plan, found out once."""
        if not self._timetable:
            assert self.plan is not None
            given = self.plan.assignments
            launch = {step: node for node, cells in self.cells.items() for step in cells.steps}
            lines: dict[tuple[DeviceIndex, int], list[int]] = {}
            for a in given:
                line = lines.setdefault((a.device, a.queue), [])
                item = -1 - launch[a.node] if a.node in launch else a.node
                if not line or line[-1] != item:
                    line.append(item)
            seconds, position = {a.node: a.end - a.start for a in given}, {a.node: n for n, a in enumerate(given)}
            each = {n: {s.device: c.each(s, seconds) for s in c.stocks} for n, c in self.cells.items()}
            of = {lane: tuple(line) for lane, line in lines.items()}
            self._timetable.append(Timetable(seconds, position, launch, of, each, {}))
        return self._timetable[0]

    def step(self, token: int) -> Step:
        return self.steps[token] if self.steps else Step(token)

    def open(self, directory: Directory) -> None:
        """From now on the directory keeps track of the pieces."""
        if self.opens:
            directory.open(self.opens)

    def close(self, directory: Directory) -> None:
        """The run has ended."""
        if self.cut:
            directory.close(self.cut, self.joined)
        for key in self.own:
            directory.forget(key)


def state_of(graph: Graph, directory: Directory) -> State:
    """What of the directory decides how a graph is lowered: which parts buffers have, what is undefined, and what has
    to come from the host."""
    parts, valid = directory.parts, directory.valid

    def where(key: BufferKey) -> int:
        mask = valid.get(key)
        return UNDEFINED if mask is None else HOST_ALONE if mask == HOST_BIT else ELSEWHERE

    return tuple((key, tuple(p.region for p in parts.get(key, ())), where(key)) for key in graph.buffers)
