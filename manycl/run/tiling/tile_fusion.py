"""Tile fusion: which launches of a plan make time tiles (:mod:`manycl.run.tiling.time_skewing`), how many launches a
time tile has, and in how many tiles they run.

With more launches in a time tile, their data cross the link less often. But each launch widens the band that a tile
shares with the one before, so there are more tiles and more commands, each of which costs the engine time. The memory
holds two tiles, one that is computed and one that is transferred, or three, so that one arrives while another leaves.
The fastest prediction is chosen."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from itertools import pairwise
from math import ceil, inf
from typing import NamedTuple

from manycl.errors import PolicyError
from manycl.graph.division import divide
from manycl.graph.graph import BufferKey, Graph, Launch
from manycl.machine import HOST, DeviceIndex
from manycl.plan.plan import MERGE, WHOLE, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.tiling.time_skewing import (
    Boundary,
    Outline,
    TileMember,
    TimeTile,
    contracted,
    cuts,
    movable,
    needed,
    shape_of,
    tiles_of,
    touched,
)
from manycl.run.tiling.windows import STEPS, is_window

AT_ONCE = (2, 3)
"""Tiles that a device's memory may hold at once; our own choice."""
_TRIES = 6  # numbers of tiles that are tried; our own choice


class _Chain:
    """Launches that may form one time tile, or several."""

    def __init__(self, sizes: Mapping[BufferKey, int]) -> None:
        self.members: list[TileMember] = []
        self.shapes: list[Outline] = []
        self._sizes = sizes
        self._middle = Boundary(0.5, sizes)
        self._moving: set[BufferKey] = set()  # buffers of which groups touch one part after another

    def add(self, member: TileMember, shape: Outline) -> bool:
        """Add a launch if it has data in common with the launches so far, and needs about the same part of them at the
        same time; return whether it was added. After a refusal nothing may be added."""
        moving = {key for key, line in shape.lines if line.stride}
        if not self.members:
            self._middle.begin(shape, shape.groups // 2)
        elif moving.isdisjoint(self._moving) or not self._keeps_up(shape):
            return False
        self._moving |= moving
        self.members.append(member)
        self.shapes.append(shape)
        return True

    def _keeps_up(self, shape: Outline) -> bool:
        middle = self._middle.add(shape)
        if 0 < middle < shape.groups:
            return middle >= shape.groups // 4
        # one tile has all of it
        whole = touched([shape], [0], [shape.groups])
        return sum(whole.values()) <= sum(self._sizes[key] for key in whole) // 16


class _Choice(NamedTuple):
    seconds: float
    launches: int
    at_once: int


def find_time_tiles(
    problem: Problem, plan: Plan, limits: Mapping[DeviceIndex, int], dimensions: Mapping[int, int], cut: Container[int]
) -> tuple[TimeTile, ...]:
    """Return the time tiles of a plan. ``dimensions``: the dimension of each assignment (index) that may be cut;
    ``cut``: the assignments that have to be cut."""
    found: list[TimeTile] = []
    must = {a.node for i, a in enumerate(plan.assignments) if i in cut}
    for device, limit in limits.items():
        for chain in _chains(problem, plan, device, dimensions):
            if any(m.node in must for m in chain.members):
                found += _Chooser(problem, device, limit, chain).time_tiles()
    if found and contracted(problem.graph, found) is None:
        return ()  # time tiles of several devices wait for one another
    return tuple(found)


# launches with data in common


def _chains(problem: Problem, plan: Plan, device: DeviceIndex, dimensions: Mapping[int, int]) -> Iterator[_Chain]:
    """Yield the longest sequences of a device's launches that may run in tiles."""
    sizes = {key: b.nbytes for key, b in problem.graph.buffers.items()}
    count: dict[int, int] = {}
    for a in plan.assignments:
        count[a.node] = count.get(a.node, 0) + 1
    line = [(i, a) for i, a in enumerate(plan.assignments) if a.device == device and a.dimension is not MERGE]
    may = {a.node for i, a in line if i in dimensions and count[a.node] == 1}
    links, chain = _Links(problem.graph, may), _Chain(sizes)
    for i, a in line:
        found = _member(problem, a, dimensions[i], sizes) if a.node in may else None
        if found is None or (chain.members and not (links.admits(a.node) and chain.add(*found))):
            if chain.members:
                yield chain
            links, chain = _Links(problem.graph, may), _Chain(sizes)
        if found is not None:
            if not chain.members:
                chain.add(*found)
            links.add(a.node)
    if chain.members:
        yield chain


def _member(
    problem: Problem, a: Assignment, dimension: int, sizes: Mapping[BufferKey, int]
) -> tuple[TileMember, Outline] | None:
    task = problem.graph.nodes[a.node]
    if not isinstance(task, Launch) or not problem.graph.parts.isdisjoint((*task.reads, *task.writes)):
        return None  # a tile touches the bytes between views, which other launches may touch at the same time
    try:
        division = divide(task, dimension, sizes)
    except PolicyError:
        return None
    if a.dimension is not WHOLE and a.range != division.whole:
        return None
    shape = shape_of(division)
    return None if shape is None else (TileMember(a.node, division, problem.estimates.launch(a.node, a.device)), shape)


class _Links:
    """The nodes that depend on the launches of a chain. ``may``: nodes that may become part of it."""

    def __init__(self, graph: Graph, may: set[int]) -> None:
        self._graph = graph
        self._may = may
        self._members: set[int] = set()
        self._outside: set[int] = set()  # nodes that depend on the chain, directly or not

    def add(self, node: int) -> None:
        self._members.add(node)
        pending = [s for s in self._graph.successors[node] if s not in self._may]
        while pending:
            n = pending.pop()
            if n not in self._outside:
                self._outside.add(n)
                pending += self._graph.successors[n]

    def admits(self, node: int) -> bool:
        """Return whether nothing has to run between the chain and a launch, and only data dependences order these."""
        nodes = self._graph.nodes
        mine = {*nodes[node].reads, *nodes[node].writes}
        for p in self._graph.predecessors[node]:
            if p in self._outside:
                return False
            if p in self._members and mine.isdisjoint({*nodes[p].reads, *nodes[p].writes}):
                return False
        return True


# the number of launches and tiles


class _Chooser:
    def __init__(self, problem: Problem, device: DeviceIndex, limit: int, chain: _Chain) -> None:
        self._problem = problem
        self._device = device
        self._limit = limit
        self._members, self._shapes = chain.members, chain.shapes
        self._sizes = {key: size for m in chain.members for key, size in m.division.sizes.items()}
        where = problem.machine.devices[device]
        self._memory, self._largest = where.memory, where.max_allocation
        self._known: dict[tuple[int, int], tuple[int, float, float]] = {}

    def time_tiles(self) -> Iterator[TimeTile]:
        total = len(self._members)
        depths = dict.fromkeys(-(-total // number) for number in range(1, total))
        choices = [self._predicted(d, n) for d in depths if d > 1 for n in AT_ONCE]
        best = min(choices, key=lambda c: c.seconds, default=None)
        if best is None or best.seconds == inf:
            return
        number = -(-total // best.launches)
        ends = [total * i // number for i in range(number + 1)]
        for first, last in pairwise(ends):
            found = self._made(first, last, best.at_once)
            if found is not None:
                yield found

    def _tiles(self, first: int, last: int, at_once: int) -> int:
        """Return about how many tiles launches ``first`` … ``last - 1`` need for ``at_once`` tiles to have room; 0:
        there is never room."""
        if (first, last) not in self._known:
            self._known[first, last] = self._needed(first, last)
        whole, each, band = self._known[first, last]
        groups = self._shapes[first].groups
        room = (self._limit - whole) / at_once / (1 + 1 / STEPS)  # (sizes of windows are rounded up)
        # a tile shares only a small part with the one before
        if groups < 4 or each <= 0 or room - band < each or 2 * room < 3 * band:
            return 0
        return max(2, ceil(groups * each / (room - band)))

    def _needed(self, first: int, last: int) -> tuple[int, float, float]:
        """Return the bytes that launches ``first`` … ``last - 1`` need in tiles: of buffers that are not windows, for
        each group of the first launch, and of the band that a tile shares with the one before."""
        shapes, members = self._shapes[first:last], self._members[first:last]
        may = movable(members)
        keys = {key for m in members for key in m.division.sizes}
        windows = {key for key in keys if key in may and is_window(0, 1, self._sizes[key])}
        low, step = shapes[0].groups // 2, max(1, shapes[0].groups // 8)
        begin = cuts(shapes, low, self._sizes)
        spans = [touched(shapes, begin, cuts(shapes, low + step * i, self._sizes)) for i in (1, 2)]
        one, two = (sum(nbytes for key, nbytes in s.items() if key in windows) for s in spans)
        each = (two - one) / step
        return sum(self._sizes[key] for key in keys - windows), each, max(one - each * step, 0.0)

    def _predicted(self, launches: int, at_once: int) -> _Choice:
        """Return the seconds of the whole chain in time tiles of so many launches."""
        number = self._tiles(0, launches, at_once)
        if not number or number > self._shapes[0].groups:
            return _Choice(inf, launches, at_once)
        members, shapes = self._members[:launches], self._shapes[:launches]
        written = {key for s in shapes for key in s.writes}
        read = {key for s in shapes for key in s.reads}
        for m in members:
            hull = m.division.hull(m.division.whole) or {}
            read |= {key for key, found in hull.items() if found.writes and not found.overwrites}
        transfer = self._problem.estimates.transfer
        up, down = (sum(self._sizes[key] for key in keys) // number for keys in (read, written))
        comes = transfer(up, HOST, self._memory) if up else 0.0
        leaves = transfer(down, self._memory, HOST) if down else 0.0
        runs = sum(m.seconds for m in members) / number
        # what a tile shares with the one before is copied within the device, and leaves and comes apart from the rest
        engine = self._problem.given(self._device, launches + len(read), 2 * (len(read) + len(written)))
        around = (comes + runs + leaves + self._problem.handover) / at_once
        one = number * max(engine, comes, leaves, runs, around) + comes + leaves
        return _Choice(one * len(self._members) / launches, launches, at_once)

    def _made(self, first: int, last: int, at_once: int) -> TimeTile | None:
        members, shapes = self._members[first:last], self._shapes[first:last]
        number = self._tiles(first, last, at_once) if len(members) > 1 else 0
        for _ in range(_TRIES):
            if not 0 < number <= shapes[0].groups:
                break
            tiles = tiles_of(members, shapes, number)
            if tiles is None:
                break
            whole, windows, largest = needed(tiles, self._sizes)
            if whole + at_once * windows <= self._limit and largest <= self._largest:
                return TimeTile(self._device, tuple(m.node for m in members), tiles)
            number += max(1, number // 8)
        return None
