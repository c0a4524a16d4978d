"""Transfers of whole buffers while a schedule is built: where each buffer is valid from when on, and when each device's
transfer queues are free.

Data that are not valid where they are needed go through the host, on one upload and one download queue a device.
Commands of one device wait for each other inside it; what another device, or the host, must finish first is known
``handover`` seconds after it has ended. ``plan/placement.py`` does the same for ranges of buffers.
"""

from __future__ import annotations

from typing import NamedTuple

from manycl.machine import HOST
from manycl.plan.available import Available
from manycl.plan.plan import ON_HOST, Assignment
from manycl.plan.problem import Problem, contents_needed
from manycl.plan.slots import Slots

NOBODY = -2
"""A device index for what was there at the start."""


class Move(NamedTuple):
    """Bytes ``low`` … ``high - 1`` of a buffer are taken to be copied between two memories on the upload (into its
    memory) or download (from it) queue of device ``device`` (index); one of the memories is the host's.

    They are as node ``writer`` left them (-1: as they were at the start). ``partial``: not contents of the buffer but a
    partial result of the split node ``writer`` from the device of that index, on its way to be merged (-1: it is not).
    """

    buffer: int
    low: int
    high: int
    writer: int
    source: int
    target: int
    device: int
    start: float
    end: float
    partial: int = -1

    @property
    def nbytes(self) -> int:
        return self.high - self.low


_NO_MOVES: list[Move] = []


class Transfers:
    """What is where in a partial schedule of whole kernels that grows node by node, predecessors first."""

    def __init__(self, problem: Problem) -> None:
        machine, graph = problem.machine, problem.graph
        self._problem = problem
        self._nodes = graph.nodes
        self._floor = floor = problem.not_before
        self._handover = problem.handover
        self._transfer = problem.estimates.transfer
        self._memory = [d.memory for d in machine.devices]
        self._owner = {d.memory: i for i, d in enumerate(machine.devices) if d.memory != HOST}
        self._size = {key: buffer.nbytes for key, buffer in graph.buffers.items()}
        self._needed: list[tuple[int, ...] | None] = [None] * len(graph.nodes)
        # buffer -> memory -> (valid there from when on, when others than the device know that, the device)
        self._at = {
            key: dict.fromkeys(places, (floor, floor, NOBODY)) for key, places in problem.valid.items() if places
        }
        self._writer: dict[int, int] = {}
        self._up = [floor] * len(self._memory)
        self._down = [floor] * len(self._memory)
        self._contention = problem.contention
        self._host = Available(machine.host_bandwidth) if problem.contention.limited else None
        self.moves: list[Move] = []

    def need(self, node: int, device: int) -> tuple[float, list[Move]]:
        """When all buffers the node touches can be valid for a device (``ON_HOST``: the host), and the copies
        to make.

        Buffers that are only written count too, unless they are overwritten for certain: a kernel may leave parts of
        them as they were.
        """
        keys = self._needed[node]
        if keys is None:
            keys = self._needed[node] = contents_needed(self._nodes[node])
        memory = HOST if device == ON_HOST else self._memory[device]
        arrive = self._floor
        missing: list[int] = []
        for key in keys:
            places = self._at.get(key)
            if places is None:
                continue  # undefined contents need no copy
            here = places.get(memory)
            if here is None:
                missing.append(key)
                continue
            own, heard, by = here
            known = own if by == device != ON_HOST else heard
            if known > arrive:
                arrive = known
        return self._bring(missing, memory, device, arrive) if missing else (arrive, _NO_MOVES)

    def _bring(self, missing: list[int], memory: int, device: int, arrive: float) -> tuple[float, list[Move]]:
        """Copies one after the other on each queue, in the order in which the data are there."""
        moves: list[Move] = []
        downs: dict[int, float] = {}
        up = self._up[device] if memory != HOST else 0.0
        if len(missing) > 1:
            missing.sort(key=self._known)
        for key in missing:
            places = self._at[key]
            nbytes, writer = self._size[key], self._writer.get(key, -1)
            if HOST in places:
                here = places[HOST][1]
            else:
                source = min(places)
                lane = self._owner[source]
                own, heard, by = places[source]
                start = max(own if by == lane else heard, downs.get(lane, self._down[lane]))
                end = downs[lane] = self._until(start, nbytes, source, HOST)
                moves.append(Move(key, 0, nbytes, writer, source, HOST, lane, start, end))
                here = end + self._handover
            if memory != HOST:
                start = max(here, up)
                here = up = self._until(start, nbytes, HOST, memory)
                moves.append(Move(key, 0, nbytes, writer, HOST, memory, device, start, here))
            if here > arrive:
                arrive = here
        return arrive, moves

    def _until(self, start: float, nbytes: int, source: int, target: int) -> float:
        """When a transfer ends that begins then."""
        seconds = self._transfer(nbytes, source, target)
        if self._host is None:
            return start + seconds
        return self._host.end(start, seconds, self._contention.use(None, nbytes, seconds).draws)

    def runs(
        self, node: int, device: int, ready: float, seconds: float, slots: Slots | None = None
    ) -> tuple[float, float]:
        """Start and end of a kernel that takes so long alone, from ``ready`` on, in the first of a device's ``slots``
        that is long enough."""
        if self._host is None or not (draws := self._problem.draws(Assignment(node, device, 0, 0.0, 0.0), seconds)):
            start = slots.first(ready, seconds) if slots is not None else ready
            return start, start + seconds
        if slots is not None:
            return self._host.first(slots, ready, seconds, draws)
        return ready, self._host.end(ready, seconds, draws)

    def _known(self, key: int) -> float:
        places = self._at[key]
        return places[HOST][1] if HOST in places else places[min(places)][0]

    def commit(
        self,
        node: int,
        device: int,
        end: float,
        heard: float,
        moves: list[Move],
        start: float = 0.0,
        alone: float = 0.0,
    ) -> None:
        """The node runs there, from ``start`` on (it takes ``alone`` seconds alone), and ends then, which others know
        at ``heard``."""
        if self._host is not None:
            for move in moves:
                seconds = self._transfer(move.nbytes, move.source, move.target)
                self._host.take(move.start, move.end, self._contention.use(None, move.nbytes, seconds).draws)
            self._host.take(start, end, self._problem.draws(Assignment(node, device, 0, 0.0, 0.0), alone))
        at = self._at
        for move in moves:
            lane, arrived = move.device, move.end
            if move.target == HOST:
                self._down[lane] = arrived
            else:
                self._up[lane] = arrived
            at[move.buffer][move.target] = (arrived, arrived + self._handover, lane)
        self.moves.extend(moves)
        memory = HOST if device == ON_HOST else self._memory[device]
        for key in self._nodes[node].writes:
            at[key] = {memory: (end, heard, device)}
            self._writer[key] = node


def known_by_others(problem: Problem, end: float, fixed: bool) -> float:
    """When others than its own device know that a node has ended: what was fixed and had ended when planning began is
    known to everybody."""
    return end if fixed and end <= problem.not_before else end + problem.handover
