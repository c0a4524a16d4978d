"""A partial schedule of whole kernels with times only: for searches, which make thousands of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from manycl.graph.graph import BufferKey
from manycl.machine import HOST, DeviceIndex
from manycl.plan.plan import ON_HOST, Assignment
from manycl.plan.problem import BufferRange, Problem
from manycl.plan.timeline.delays import Delays
from manycl.plan.timeline.operations import BusyIntervals, times
from manycl.plan.timeline.timeline import Schedule

_Known = tuple[float, float, DeviceIndex | None]
"""When contents are in a memory for the device (last) that put them there, and for others; None: at the start."""

_Sent = tuple[BufferKey, BusyIntervals, int, DeviceIndex, float, float]
"""A transfer: buffer, queue, target memory, device, start and end."""

_Missing = tuple[float, BufferKey, int, int]
"""Missing contents: when they are ready at their source, the buffer, bytes, and the source memory."""


class TimesOnly:
    """Whole kernels and whole buffers, placed node by node, predecessors first. With ``contention``, all is where a
    :class:`~manycl.plan.timeline.timeline.Timeline` would have it, in two thirds of the time, but without dependences
    between operations, and only for problems for which :meth:`holds` is true. Without it, transfers never meet, as in
    the literature's model: all that counts are the delays of the ``view``."""

    def __init__(self, problem: Problem, view: Delays, contention: bool) -> None:
        self._problem, self._view, machine, nodes = problem, view, problem.machine, problem.graph.nodes
        self._kernels = [BusyIntervals() for _ in range(len(machine.devices) + 1)]
        self._where = [ON_HOST] * len(nodes)
        self._end = [problem.not_before] * len(nodes)
        self._start, self._order = list(self._end), list[int]()
        self._given = problem.not_before  # when the host's thread has enqueued all that is placed
        self._enqueues = problem.enqueuing if contention else [(0.0, 0.0)] * len(self._kernels)
        self._needs: Sequence[Sequence[BufferRange]] | None = None  # (without transfers)
        if contention and machine.memories > 1:
            self._needs, self._nodes, self._routes = problem.whole_needs, nodes, problem.routes
            self._floor, self._handover = problem.not_before, problem.handover
            self._transfer = problem.estimates.transfer
            self._queues = [BusyIntervals() for _ in range(2 * len(self._kernels))]  # by Routes.queue
            self._memory = [*(d.memory for d in machine.devices), HOST]  # the last: the host's memory, of device -1
            here = (self._floor, self._floor, None)
            self._at: dict[BufferKey, dict[int, _Known]] = {
                key: dict.fromkeys(places, here) for key, places in problem.valid.items() if places
            }
        self._fix()

    @staticmethod
    def holds(problem: Problem) -> bool:
        """Return whether nothing is fixed, no buffer is in parts, and the host's memory carries all that is drawn."""
        return not (problem.fixed or problem.valid_intervals or problem.graph.parts or problem.contention.limited)

    def _fix(self) -> None:
        """Place the fixed assignments as they are."""
        busy = [-inf] * len(self._kernels)
        for a in sorted(self._problem.fixed, key=lambda a: (a.start, a.end, a.node)):
            self._where[a.node], self._start[a.node], self._end[a.node] = a.device, a.start, a.end
            self._order.append(a.node)
            # in several queues they may overlap; only the time when the device is free counts
            if a.end > busy[a.device]:
                self._kernels[a.device].take(max(a.start, busy[a.device]), a.end)
                busy[a.device] = a.end

    def put(self, node: int, devices: Sequence[DeviceIndex], more: Sequence[float] = ()) -> None:
        """Place a node on the device (``ON_HOST``: the host) where it ends first, and its results are on the host, the
        first of equals. ``more``: seconds by device that are added to the end instead."""
        if not more:
            more = self._problem.homes.get(node, ())
        view, end, where, kernels, needs = self._view, self._end, self._where, self._kernels, self._needs
        enqueues = self._enqueues
        row, edges, earliest = view.seconds[node], view.before[node], view.earliest[node]
        best, begin, least = devices[0], 0.0, inf
        sent: list[_Sent] = []
        transfers = sent
        for device in devices:
            seconds, beside, ready = row[device], more[device] if more else 0.0, earliest[device]
            given = self._given + enqueues[device][0]
            if given > ready:
                ready = given
            for p, matrix in edges:
                known = end[p] + matrix[where[p]][device]
                if known > ready:
                    ready = known
            if needs is not None and ready + seconds + beside < least:
                sent = []
                ready = self._arrival(needs[node], device, ready, sent)
            if ready + seconds + beside < least:
                start = kernels[device].first(ready, seconds)
                if start + seconds + beside < least:
                    best, begin, least, transfers = device, start, start + seconds + beside, sent
        ended = begin + row[best]
        kernels[best].take(begin, ended)
        where[node], self._start[node], end[node] = best, begin, ended
        self._order.append(node)
        if needs is not None:
            at, handover = self._at, self._handover
            for key, slots, memory, lane, begin, arrived in transfers:
                slots.take(begin, arrived)
                at[key][memory] = (arrived, arrived + handover, lane)
                self._given += enqueues[lane][1]
            memory, here = self._memory[best], (ended, ended + handover, best)
            for key in self._nodes[node].writes:
                at[key] = {memory: here}
        self._given += enqueues[best][0]

    def _arrival(self, needs: Sequence[BufferRange], device: DeviceIndex, ready: float, sent: list[_Sent]) -> float:
        """Return when buffers can be on a device and a kernel enqueued, at ``ready`` or later; add the transfers."""
        memory, at = self._memory[device], self._at
        missing: list[_Missing] = []
        for key, _, nbytes in needs:
            places = at.get(key)
            if places is None:
                continue  # undefined
            here = places.get(memory)
            if here is None:
                source = next(iter(places)) if len(places) == 1 else self._routes.nearest(places, memory)
                missing.append((places[source][0], key, nbytes, source))
                continue
            known = here[0] if here[2] == device != ON_HOST else here[1]
            if known > ready:
                ready = known
        if not missing:
            return ready
        if len(missing) > 1:
            missing.sort(key=_by_time)
        arrive = self._bring(missing, device, sent)
        return arrive if arrive > ready else ready

    def _bring(self, missing: Sequence[_Missing], device: DeviceIndex, sent: list[_Sent]) -> float:
        """Add transfers as a timeline does; return when they arrive, and a kernel is enqueued behind them."""
        arrive, handover, transfer, queues = self._floor, self._handover, self._transfer, self._queues
        several, hops, at = len(missing) > 1, self._routes.hops, self._at
        busy: dict[BusyIntervals, float] = {}
        given, enqueues = self._given, self._enqueues
        for _, key, nbytes, source in missing:
            before: DeviceIndex | None = None
            for a, b, lane, queue in hops(source, device):
                if before is None:
                    own, heard, by = at[key][a]
                    ready = own if by == lane else heard
                elif lane != before:
                    ready += handover
                given += enqueues[lane][1]
                if given > ready:
                    ready = given
                slots = queues[queue]
                if several and busy.get(slots, ready) > ready:
                    ready = busy[slots]
                seconds = transfer(nbytes, a, b)
                start = slots.first(ready, seconds)
                ready, before = start + seconds, lane
                if several:
                    busy[slots] = ready
                sent.append((key, slots, b, lane, start, ready))
            if before != device:
                ready += handover
            if ready > arrive:
                arrive = ready
        return max(arrive, given + enqueues[device][0])

    def by_node(self) -> tuple[list[DeviceIndex], list[float], list[float]]:
        """Return for every node where it runs, when it starts and when it ends."""
        return self._where, self._start, self._end

    def schedule(self) -> Schedule:
        """Return the placed nodes in the order of dispatch."""
        fixed, version = {a.node: a for a in self._problem.fixed}, self._problem.version
        where, start, end = self.by_node()
        members = [
            fixed.get(n) or Assignment(n, d, 0, start[n], end[n], version=0 if d == ON_HOST else version(n, d))
            for n in self._order
            for d in (where[n],)
        ]
        members.sort(key=times)  # stable: nodes that take no time keep the order of placement
        return Schedule(members, max(end, default=self._problem.not_before))


def _by_time(item: _Missing) -> float:
    return item[0]
