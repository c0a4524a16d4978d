"""What a plan is lowered to: steps on pieces of buffers. Values only (:mod:`manycl.run.lower` makes them)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from manycl.graph.graph import Buffer, BufferKey, Graph, Launch, Window
from manycl.machine import DeviceIndex
from manycl.plan.plan import Plan
from manycl.region import Region
from manycl.run.coherence import HOST_BIT, Directory, ValidRegion

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


@dataclass(frozen=True)
class Cells:
    """A launch whose shares may move: the step of each cell (``steps``), in the order of work-groups, and its
    work-groups (``groups``); the devices' ``stocks``. ``launch(first, last)``: cells from one to before another as one
    launch."""

    steps: tuple[int, ...]
    groups: tuple[int, ...]
    stocks: tuple[Stock, ...]
    launch: Callable[[int, int], Launch]


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
    cells: Mapping[int, Cells] = field(default_factory=dict)
    joined: dict[tuple[int, ...], tuple[ValidRegion, ...]] = field(default_factory=dict, compare=False)
    """What ``Directory.close`` found when this ran before."""

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
