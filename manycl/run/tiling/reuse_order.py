"""The order of ranges where not all of them have room: data are used again while they are there.

List scheduling over the steps of a run: of the steps whose predecessors have run, the one whose stores take the fewest
bytes that are not there yet comes next; of equals, the first in the program's order. Stores that the program uses again
last are evicted for it. For an iterated stencil this is known as time skewing (Wolf and Lam, "A data locality
optimizing algorithm", PLDI 1991, section 5; McCalpin and Wonnacott, "Time skewing", 1999): part c of sweep t + 1 comes
right after part c + 1 of sweep t, so parts cross the link once for several sweeps, as many as there is room for.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from manycl.graph.graph import BufferKey, Graph, HostTask, Piece
from manycl.machine import HOST, DeviceIndex
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.data.lifetimes import Lifetimes
from manycl.run.lowering.steps import Lowered, Room, Spill
from manycl.run.tiling.limits import stores

LOOKED_AT = 32
"""Ready steps of a device that are compared, at most: half the plan's first ones, half those made ready last; our own
choice."""


def ordered(problem: Problem, lowered: Lowered, room: Room) -> tuple[Plan, Room]:
    """Return the plan with its steps in such an order, and the room with the transfers that the limits cause."""
    assert lowered.plan is not None
    run = _Run(lowered.graph, lowered.plan, room)
    order = list(run.steps())
    plan = replace(lowered.plan, assignments=tuple(order))
    return plan, replace(room, spills=tuple(_spills(problem, run)))


class _Device:
    """The stores that a device with limited room holds, while the order is made. ``low``: bytes that may be held while
    the next step is chosen, so that there is room for one more, whose data arrive meanwhile."""

    def __init__(self, limit: int, most: int) -> None:
        self.limit = limit
        self.low = max(limit - most, most)
        self.held: dict[BufferKey, set[BufferKey]] = {}  # by store, the pieces that are there
        self.holders: dict[BufferKey, set[BufferKey]] = {}  # by piece, the stores where it is
        self.changed: set[BufferKey] = set()  # pieces whose contents are nowhere else
        self.total = 0
        self.known: set[BufferKey] = set()  # pieces that have been there
        self.up = self.down = self.first = 0  # bytes; first: of those up, the bytes that come for the first time


class _Uses(NamedTuple):
    """A step's needs on its device: stores and their bytes; the pieces that it finds and leaves there, by store."""

    stores: tuple[tuple[BufferKey, int], ...]
    finds: tuple[tuple[BufferKey, BufferKey], ...]
    leaves: tuple[tuple[BufferKey, BufferKey], ...]


class _Run:
    def __init__(self, graph: Graph, plan: Plan, room: Room) -> None:
        self.graph = graph
        self.room = room
        self.of = {a.node: a for a in plan.assignments}
        self.position = {a.node: i for i, a in enumerate(plan.assignments)}
        self.order = [a.node for a in plan.assignments]
        self.nbytes = {k: b.nbytes for k, b in graph.buffers.items()}
        self.done = bytearray(len(graph.nodes))
        self.lifetimes = Lifetimes(graph, lambda node: bool(self.done[node]))
        self.needs = self._all_needs()
        most = dict.fromkeys(room.limits, 0)
        self.uses: dict[tuple[int, int], list[int]] = {}  # positions of the steps that use a store, the next one last
        for node in reversed(self.order):
            device = self.of[node].device
            if device in most and node in self.needs:
                most[device] = max(most[device], sum(size for _, size in self.needs[node].stores))
                for store, _ in self.needs[node].stores:
                    self.uses.setdefault((device, store), []).append(self.position[node])
        self.devices = {d: _Device(limit, most[d]) for d, limit in room.limits.items()}

    def _all_needs(self) -> dict[int, _Uses]:
        whole = {k: b.whole if isinstance(b, Piece) else k for k, b in self.graph.buffers.items()}
        found: dict[int, _Uses] = {}
        known: dict[tuple[int, int], _Uses] = {}  # ranges of many launches share needs
        nothing: dict[BufferKey, BufferKey] = {}
        for node, task in enumerate(self.graph.nodes):
            if isinstance(task, HostTask):
                continue
            using = self.room.using[node] if self.room.using else nothing
            name = id(task), id(using)
            if name not in known:
                finds = dict.fromkeys((*task.reads, *(k for k in task.writes if k not in task.overwrites)))
                known[name] = _Uses(
                    tuple((store, self.room.sizes[store]) for store in sorted(stores(task))),
                    tuple((key, using.get(whole[key], whole[key])) for key in finds),
                    tuple((key, using.get(whole[key], whole[key])) for key in task.writes),
                )
            found[node] = known[name]
        return found

    def steps(self) -> Iterator[Assignment]:
        """Yield all assignments, in their order."""
        missing = [len(p) for p in self.graph.predecessors]
        ready: dict[DeviceIndex, list[int]] = {}  # positions by device
        latest: dict[DeviceIndex, list[int]] = {}
        for node in self.order:
            if not missing[node]:
                insort(ready.setdefault(self.of[node].device, []), self.position[node])
        while ready:
            for device in list(ready):
                line = ready[device]
                position = self._best(device, line, latest.get(device, ()))
                del line[bisect_left(line, position)]
                if not line:
                    del ready[device]
                node = self.order[position]
                self.done[node] = 1
                self._perform(device, node)
                yield self.of[node]
                for s in self.graph.successors[node]:
                    missing[s] -= 1
                    if not missing[s]:
                        insort(ready.setdefault(self.of[s].device, []), self.position[s])
                        latest.setdefault(self.of[s].device, []).append(self.position[s])

    def _best(self, device: DeviceIndex, line: Sequence[int], latest: Sequence[int]) -> int:
        state = self.devices.get(device)
        if state is None or len(line) == 1:
            return line[0]
        found = dict.fromkeys(line[: LOOKED_AT // 2])
        found.update(dict.fromkeys(p for p in latest[-LOOKED_AT // 2 :] if not self.done[self.order[p]]))
        return min(found, key=lambda p: (self._missing(state, self.order[p]), p))

    def _missing(self, state: _Device, node: int) -> int:
        """Return the bytes of the stores that a step needs and its device does not hold."""
        total, held = 0, state.held
        for store, size in self.needs[node].stores if node in self.needs else ():
            if store not in held:
                total += size
        return total

    def _perform(self, device: DeviceIndex, node: int) -> None:
        state, needs = self.devices.get(device), self.needs.get(node)
        if state is None or needs is None:
            return
        state.total += self._missing(state, node)
        for store, _ in needs.stores:
            state.held.setdefault(store, set())
            uses = self.uses[device, store]
            while uses and self.done[self.order[uses[-1]]]:
                uses.pop()
        mine = {store for store, _ in needs.stores}
        if state.total > state.limit:
            self._evict(device, state, mine, state.limit)
        for key, store in needs.finds:
            holders = state.holders.setdefault(key, set())
            if not holders:
                state.up += self.nbytes[key]
                if key not in state.known:
                    state.known.add(key)
                    state.first += self.nbytes[key]
            holders.add(store)
            state.held[store].add(key)
        for key, store in needs.leaves:
            holders = state.holders.setdefault(key, set())
            for other in holders:
                state.held[other].discard(key)
            holders.clear()
            holders.add(store)
            state.held[store].add(key)
            state.known.add(key)
            state.changed.add(key)
        if state.total > state.low:
            self._evict(device, state, mine, state.low)

    def _evict(self, device: DeviceIndex, state: _Device, needs: Container[BufferKey], most: int) -> None:
        """Evict the stores that the program uses again last, until no more than ``most`` bytes are held."""
        uses = self.uses
        found = sorted(
            (s for s in state.held if s not in needs),
            key=lambda s: -(uses[device, s][-1] if uses.get((device, s)) else inf),
        )
        for store in found:
            if state.total <= most:
                return
            state.total -= self.room.sizes[store]
            for key in state.held.pop(store):
                holders = state.holders[key]
                holders.discard(store)
                if key in state.changed and not holders:
                    state.changed.discard(key)
                    state.down += self.nbytes[key] if self.lifetimes.lives(key) else 0

    def left(self, state: _Device) -> int:
        """Return the bytes that are in windows alone at the end."""
        windows = self.room.windows.keys()
        return sum(self.nbytes[key] for key in state.changed if state.holders[key] <= windows)


def _spills(problem: Problem, run: _Run) -> Iterator[Spill]:
    sizes = {k: b.nbytes for k, b in problem.graph.buffers.items()}
    for index, state in run.devices.items():
        device = problem.machine.devices[index]
        mine = [n for n, a in run.of.items() if a.device == index and n in run.needs]
        used = {
            w.whole if (w := run.room.windows.get(s)) is not None else s for n in mine for s, _ in run.needs[n].stores
        }
        again = state.up - state.first
        down = state.down + run.left(state)
        transfer = problem.estimates.transfer
        seconds = transfer(again, HOST, device.memory) if again else 0.0
        seconds += transfer(down, device.memory, HOST) if down else 0.0
        yield Spill(index, state.limit, sum(sizes.get(k, 0) for k in used), again, down, seconds)
