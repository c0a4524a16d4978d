"""The order in which ranges run where not all of them have room: data are used again while they are there. Pure.

List scheduling over the steps of a run: of those whose predecessors have run, next comes the one whose stores take the
fewest bytes that are not there yet; of equals, the first in the program's order. What has to go for them is what the
program uses again last. For an iterated stencil this is what is known as time skewing (Wolf and Lam, "A data locality
optimizing algorithm", PLDI 1991, section 5; McCalpin and Wonnacott, "Time skewing", 1999): part c of sweep t + 1 comes
right after part c + 1 of sweep t, so parts cross the link once for several sweeps, as many as there is room for.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from manycl.graph.graph import Graph, Launch, Piece
from manycl.machine import HOST
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.steps import Lowered
from manycl.run.windows import Room, Spill, stores

LOOKED_AT = 32
"""Steps of a device that are compared: those that have waited longest, and those that were made ready last."""


def ordered(problem: Problem, lowered: Lowered, room: Room) -> tuple[Plan, Room]:
    """The plan with its steps in such an order, and what it moves because of the limits."""
    assert lowered.plan is not None
    run = _Run(lowered.graph, lowered.plan, room)
    order = list(run.steps())
    plan = replace(lowered.plan, assignments=tuple(order))
    return plan, replace(room, spills=tuple(_spills(problem, run)))


class _Device:
    """What a device with limited room holds, as the order is made. ``low``: bytes that may be held while the next step
    is chosen: there is to be room for one more, which arrives meanwhile."""

    def __init__(self, limit: int, most: int) -> None:
        self.limit = limit
        self.low = max(limit - most, most)
        self.held: dict[int, set[int]] = {}  # pieces that are there, by store
        self.changed: dict[int, set[int]] = {}  # those of which nobody else has the contents
        self.total = 0
        self.known: set[int] = set()  # pieces that have been there
        self.up = self.down = self.first = 0  # bytes; of those up: how many come for the first time


class _Run:
    def __init__(self, graph: Graph, plan: Plan, room: Room) -> None:
        self.graph = graph
        self.room = room
        self.of = {a.node: a for a in plan.assignments}
        self.position = {a.node: i for i, a in enumerate(plan.assignments)}
        self.order = [a.node for a in plan.assignments]
        self.needs = {n: tuple(sorted(stores(t))) for n, t in enumerate(graph.nodes) if isinstance(t, Launch)}
        self.whole = {k: b.whole if isinstance(b, Piece) else k for k, b in graph.buffers.items()}
        most = dict.fromkeys(room.limits, 0)
        self.uses: dict[tuple[int, int], list[int]] = {}  # positions of the steps that use a store, the next one last
        for node in reversed(self.order):
            device = self.of[node].device
            if device in most and node in self.needs:
                most[device] = max(most[device], sum(room.sizes[s] for s in self.needs[node]))
                for store in self.needs[node]:
                    self.uses.setdefault((device, store), []).append(self.position[node])
        self.devices = {d: _Device(limit, most[d]) for d, limit in room.limits.items()}
        self.done = bytearray(len(graph.nodes))

    def steps(self) -> Iterator[Assignment]:
        """All assignments, in their order."""
        missing = [len(p) for p in self.graph.predecessors]
        ready: dict[int, list[int]] = {}  # by device: positions
        latest: dict[int, list[int]] = {}
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

    def _best(self, device: int, line: Sequence[int], latest: Sequence[int]) -> int:
        state = self.devices.get(device)
        if state is None or len(line) == 1:
            return line[0]
        found = dict.fromkeys(line[: LOOKED_AT // 2])
        found.update(dict.fromkeys(p for p in latest[-LOOKED_AT // 2 :] if not self.done[self.order[p]]))
        return min(found, key=lambda p: (self._missing(state, self.order[p]), p))

    def _missing(self, state: _Device, node: int) -> int:
        return sum(self.room.sizes[s] for s in self.needs.get(node, ()) if s not in state.held)

    def _perform(self, device: int, node: int) -> None:
        state = self.devices.get(device)
        task = self.graph.nodes[node]
        if state is None or not isinstance(task, Launch):
            return
        needs = self.needs[node]
        state.total += self._missing(state, node)
        for store in needs:
            state.held.setdefault(store, set())
            uses = self.uses[device, store]
            while uses and self.done[self.order[uses[-1]]]:
                uses.pop()
        if state.total > state.low:
            self._evict(device, state, needs)
        using = self.room.using[node] if self.room.using else {}
        sizes = self.graph.buffers
        for key in dict.fromkeys((*task.reads, *(k for k in task.writes if k not in task.overwrites))):
            inside = state.held[using.get(self.whole[key], self.whole[key])]
            if key not in inside and not any(key in other for other in state.held.values()):
                state.up += sizes[key].nbytes
                state.first += 0 if key in state.known else sizes[key].nbytes
                state.known.add(key)
            inside.add(key)
        for key in task.writes:
            store = using.get(self.whole[key], self.whole[key])
            for other in state.held.values():
                other.discard(key)
            state.held[store].add(key)
            state.known.add(key)
            for changed in state.changed.values():
                changed.discard(key)
            state.changed.setdefault(store, set()).add(key)

    def _evict(self, device: int, state: _Device, needs: Sequence[int]) -> None:
        """Let go what the program uses again last."""
        uses = self.uses
        found = sorted(
            (s for s in state.held if s not in needs),
            key=lambda s: -(uses[device, s][-1] if uses.get((device, s)) else inf),
        )
        for store in found:
            if state.total <= state.low:
                return
            state.total -= self.room.sizes[store]
            del state.held[store]
            state.down += sum(self.graph.buffers[key].nbytes for key in state.changed.pop(store, ()))

    def left(self, state: _Device) -> int:
        """Bytes that are in windows alone at the end."""
        return sum(
            self.graph.buffers[key].nbytes
            for store, keys in state.changed.items()
            if store in self.room.windows
            for key in keys
        )


def _spills(problem: Problem, run: _Run) -> Iterator[Spill]:
    sizes: Mapping[int, int] = {k: b.nbytes for k, b in problem.graph.buffers.items()}
    for index, state in run.devices.items():
        device = problem.machine.devices[index]
        mine = [n for n, a in run.of.items() if a.device == index and n in run.needs]
        used = {w.whole if (w := run.room.windows.get(s)) is not None else s for n in mine for s in run.needs[n]}
        again = state.up - state.first
        down = state.down + run.left(state)
        transfer = problem.estimates.transfer
        seconds = transfer(again, HOST, device.memory) if again else 0.0
        seconds += transfer(down, device.memory, HOST) if down else 0.0
        yield Spill(index, state.limit, sum(sizes.get(k, 0) for k in used), again, down, seconds)
