"""A partial schedule of whole kernels with times only: for searches, which make thousands of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from manycl.graph.graph import BufferKey
from manycl.machine import DeviceIndex
from manycl.plan.plan import ON_HOST, Assignment
from manycl.plan.problem import BufferRange, Problem
from manycl.plan.timeline.delays import Delays
from manycl.plan.timeline.operations import Made, times
from manycl.plan.timeline.timeline import Missing, PendingMove, Schedule, Timeline
from manycl.plan.timeline.writer_intervals import INITIAL


class TimesOnly(Timeline):
    """Whole kernels and whole buffers, placed node by node, predecessors first. With ``contention``, a timeline that
    keeps no operations, only when devices and queues are busy and what is known where, which takes two thirds of the
    time, and only for problems for which :meth:`holds` is true. Without it, transfers never meet, as in the
    literature's model: all that counts are the delays of the ``view``."""

    __slots__ = ("_at", "_contention", "_last", "_order", "_start", "_view", "_where")

    def __init__(self, problem: Problem, view: Delays, contention: bool) -> None:
        self._view, self._contention = view, contention
        self._where = [ON_HOST] * len(problem.graph)
        self._start = [problem.not_before] * len(problem.graph)
        self._order, self._last = list[int](), list(self._start)
        super().__init__(problem, view.seconds)
        if not contention:
            self._several, self._enqueues = False, [(0.0, 0.0)] * len(self.kernels)

    @staticmethod
    def holds(problem: Problem) -> bool:
        """Return whether nothing is fixed, no buffer is in parts, and the host's memory carries all that is drawn."""
        return not (problem.fixed or problem.valid_intervals or problem.graph.parts or problem.contention.limited)

    def _fix(self) -> None:
        """Place the data that are there, and the fixed assignments as they are."""
        self._at: dict[BufferKey, dict[int, Made]] = {}
        if self._several and self._contention:
            here = self._initial
            self._at = {key: dict.fromkeys(places, here) for key, places in self.problem.valid.items()}
            self._queues = self._idle_queues()
        self._occupy()
        for a in sorted(self.problem.fixed, key=lambda a: (a.start, a.end, a.node)):
            self._where[a.node], self._start[a.node], self._last[a.node] = a.device, a.start, a.end
            self._order.append(a.node)

    def put(self, node: int, devices: Sequence[DeviceIndex], more: Sequence[float] = ()) -> None:
        """Place a node on the device (``ON_HOST``: the host) where it ends first, and its results are on the host, the
        first of equals. ``more``: seconds by device that are added to the end instead."""
        if not more:
            more = self.problem.homes.get(node, ())
        view, last, where, kernels, several = self._view, self._last, self._where, self.kernels, self._several
        enqueues, given = self._enqueues, self._given[-1]
        row, edges, earliest = view.seconds[node], view.before[node], view.earliest[node]
        best, begin, least = devices[0], 0.0, inf
        sent: list[PendingMove] = []
        hops = sent
        for device in devices:
            seconds, beside, ready = row[device], more[device] if more else 0.0, earliest[device]
            when = given + enqueues[device][0]
            if when > ready:
                ready = when
            for p, matrix in edges:
                known = last[p] + matrix[where[p]][device]
                if known > ready:
                    ready = known
            if ready + seconds + beside >= least:
                continue
            slots = kernels[device]
            if several and (least == inf or slots.first(ready, seconds) + seconds + beside < least):
                sent = []
                ready = self._arrival(self._whole_needs[node], device, ready, sent)
            start = slots.first(ready, seconds)
            if start + seconds + beside < least:
                best, begin, least, hops = device, start, start + seconds + beside, sent
        ended = begin + row[best]
        kernels[best].take(begin, ended)
        where[node], self._start[node], last[node] = best, begin, ended
        self._order.append(node)
        if several:
            at, handover = self._at, self._handover
            for key, _, _, _, _, memory, lane, begin, arrived, _, _, slots, _ in hops:
                slots.take(begin, arrived)
                at[key][memory] = (arrived, arrived + handover, lane, INITIAL)
            memory, here = self.memory[best], (ended, ended + handover, best, INITIAL)
            for key, _, _ in self._whole_writes[node]:
                at[key] = {memory: here}
        self._given[-1] = (hops[-1].given if hops else given) + enqueues[best][0]

    def _arrival(
        self, needs: Sequence[BufferRange], device: DeviceIndex, ready: float, hops: list[PendingMove]
    ) -> float:
        """Return when buffers can be on a device and a kernel enqueued, at ``ready`` or later; add the transfers."""
        memory, at = self.memory[device], self._at
        missing: list[Missing] = []
        for key, low, high in needs:
            places = at.get(key)
            if not places:
                continue  # undefined
            here = places.get(memory)
            if here is None:
                source = next(iter(places)) if len(places) == 1 else self._routes.nearest(places, memory)
                here = places[source]
                missing.append((here[0], key, low, high, INITIAL, source, here))
                continue
            known = here[0] if here[2] == device != ON_HOST else here[1]
            if known > ready:
                ready = known
        return max(ready, self._bring(missing, device, hops), self.enqueued(device, hops)) if missing else ready

    def by_node(self) -> tuple[list[DeviceIndex], list[float], list[float]]:
        """Return for every node where it runs, when it starts and when it ends."""
        return self._where, self._start, self._last

    def schedule(self) -> Schedule:
        """Return the placed nodes in the order of dispatch."""
        fixed, version = {a.node: a for a in self.problem.fixed}, self._version
        where, start, end = self.by_node()
        members = [
            fixed.get(n) or Assignment(n, d, 0, start[n], end[n], version=0 if d == ON_HOST else version(n, d))
            for n in self._order
            for d in (where[n],)
        ]
        members.sort(key=times)  # stable: nodes that take no time keep the order of placement
        return Schedule(members, max(end, default=self.problem.not_before))
