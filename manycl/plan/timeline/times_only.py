"""A timeline with times only: for searches, which make thousands of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from manycl.graph.graph import BufferKey
from manycl.machine import HOST, DeviceIndex
from manycl.plan.plan import ON_HOST
from manycl.plan.problem import Problem
from manycl.plan.timeline.busy_intervals import BusyIntervals

_Known = tuple[float, float, DeviceIndex | None]
"""The time when contents are in a memory for the device (last) that put them there, and the time for other devices;
None: they were there at the start."""

_Sent = tuple[BufferKey, BusyIntervals, int, DeviceIndex, float, float]
"""A transfer: buffer, queue, target memory, device, start and end."""

_Missing = tuple[float, BufferKey, int, int]
"""Missing contents: when they are ready at their source, the buffer, bytes, and the source memory."""

_new = tuple.__new__  # the constructor of named tuples' base, as in the timeline


class TimesOnlyFit(NamedTuple):
    """A place and time for a whole node, in seconds, and the transfers it needs first."""

    node: int
    device: DeviceIndex
    start: float
    end: float
    sent: list[_Sent]


class TimesOnly:
    """Whole kernels and whole buffers where a :class:`~manycl.plan.timeline.timeline.Timeline` would have them, in
    two thirds of the time, but without dependences between operations. Only for problems for which :meth:`holds` is
    true."""

    def __init__(self, problem: Problem, rows: Sequence[Sequence[float]]) -> None:
        machine, graph = problem.machine, problem.graph
        count = len(machine.devices)
        self._rows, self._floor, self._handover = rows, problem.not_before, problem.handover
        self._transfer, self._routes = problem.estimates.transfer, problem.routes
        self._nodes, self._needs = graph.nodes, problem.whole_needs if machine.memories > 1 else [()] * len(graph)
        self._predecessors = graph.predecessors
        self._memory = [*(d.memory for d in machine.devices), HOST]  # the last: the host's memory, of device -1
        self._kernels = [BusyIntervals() for _ in range(count + 1)]
        self._up, self._down = [BusyIntervals() for _ in range(count)], [BusyIntervals() for _ in range(count)]
        here = (self._floor, self._floor, None)
        self._at: dict[BufferKey, dict[int, _Known]] = {
            key: dict.fromkeys(places, here) for key, places in problem.valid.items() if places
        }
        self._where = [ON_HOST] * len(graph)
        self._start, self._end = [self._floor] * len(graph), [self._floor] * len(graph)

    @staticmethod
    def holds(problem: Problem) -> bool:
        """Return whether nothing is fixed, no buffer is in parts, and the host's memory carries all that is drawn of
        it."""
        return not (problem.fixed or problem.parts or problem.graph.parts or problem.contention.limited)

    def fit(self, node: int, device: DeviceIndex) -> TimesOnlyFit:
        """Return the earliest place for a node on a device (``ON_HOST``: the host)."""
        ready, handover, memory = self._floor, self._handover, self._memory[device]
        where, ends, at = self._where, self._end, self._at
        for p in self._predecessors[node]:
            known = ends[p] if where[p] == device != ON_HOST else ends[p] + handover
            if known > ready:
                ready = known
        missing: list[_Missing] = []
        for key, _, nbytes in self._needs[node]:
            places = at.get(key)
            if places is None:
                continue  # undefined
            here = places.get(memory)
            if here is None:
                source = self._routes.nearest(places, memory)
                missing.append((places[source][0], key, nbytes, source))
                continue
            known = here[0] if here[2] == device != ON_HOST else here[1]
            if known > ready:
                ready = known
        sent: list[_Sent] = []
        if missing:
            if len(missing) > 1:
                missing.sort(key=_by_time)
            arrive = self._bring(missing, device, sent)
            if arrive > ready:
                ready = arrive
        seconds = self._rows[node][device] if device != ON_HOST else 0.0
        start = self._kernels[device].first(ready, seconds)
        return _new(TimesOnlyFit, (node, device, start, start + seconds, sent))

    def _bring(self, missing: Sequence[_Missing], device: DeviceIndex, sent: list[_Sent]) -> float:
        """Add transfers as a timeline does."""
        memory, arrive, handover, transfer = self._memory[device], self._floor, self._handover, self._transfer
        several, routes, hosts = len(missing) > 1, self._routes, self._routes.hosts
        busy: dict[BusyIntervals, float] = {}
        for _, key, nbytes, source in missing:
            lane: DeviceIndex | None = None
            for a, b in routes.between(source, memory):
                before, lane = lane, routes.sender(a, b) if b < hosts else device
                slots = self._down[lane] if b < hosts else self._up[lane]
                if a == source:
                    own, heard, by = self._at[key][a]
                    ready = own if by == lane else heard
                elif lane != before:
                    ready += handover
                if several and busy.get(slots, ready) > ready:
                    ready = busy[slots]
                seconds = transfer(nbytes, a, b)
                start = slots.first(ready, seconds)
                ready = start + seconds
                if several:
                    busy[slots] = ready
                sent.append((key, slots, b, lane, start, ready))
            if lane != device:
                ready += handover
            if ready > arrive:
                arrive = ready
        return arrive

    def earliest(self, node: int, devices: Sequence[DeviceIndex]) -> TimesOnlyFit:
        """Return the fit on the device where the node ends first, the first of equals."""
        return min([self.fit(node, device) for device in devices], key=_ending)

    def place(self, fit: TimesOnlyFit) -> None:
        node, device, start, end, sent = fit
        at, handover = self._at, self._handover
        for key, slots, memory, lane, begin, arrived in sent:
            slots.take(begin, arrived)
            at[key][memory] = (arrived, arrived + handover, lane)
        self._kernels[device].take(start, end)
        memory, known = self._memory[device], (end, end + handover, device)
        for key in self._nodes[node].writes:
            at[key] = {memory: known}
        self._where[node], self._start[node], self._end[node] = device, start, end

    def by_node(self) -> tuple[list[DeviceIndex], list[float], list[float]]:
        """Return for every node where it runs, when it starts and when it ends."""
        return self._where, self._start, self._end


def _by_time(item: _Missing) -> float:
    return item[0]


def _ending(fit: TimesOnlyFit) -> float:
    return fit.end
