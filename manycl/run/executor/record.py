"""The record of a run on real devices: its events, whose times are read from the drivers' clocks when asked for."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence, Set
from functools import cached_property
from itertools import chain, pairwise
from time import perf_counter
from typing import NamedTuple

from manycl.drivers.driver import Driver, DriverError, Event
from manycl.graph.graph import BufferKey, Graph, HostTask, Launch, Version, ndrange
from manycl.machine import HOST, DeviceIndex, Machine
from manycl.run.commands.backend import Failed
from manycl.trace import Event as TraceEvent
from manycl.trace import HostEvent, KernelEvent, TransferEvent

_NDRange = tuple[tuple[int, ...], tuple[int, ...] | None, str]


class Transferred(NamedTuple):
    """A transfer that was enqueued, of some buffers (or neighbouring pieces of one), whole, or ``nbytes`` of one, from
    the memory ``source`` to ``target`` by the driver of ``device``. ``events``: in order. ``token``: the first of the
    commands that it performs."""

    keys: tuple[BufferKey, ...]
    device: DeviceIndex
    source: int
    target: int
    events: Sequence[Event]
    token: int
    nbytes: int | None = None


Kind = tuple[DeviceIndex, bool]
"""The kind of a command: its device, and whether it is a transfer. Those of one kind take equally long to enqueue."""

NO_KIND = sys.maxsize
"""The mark of host functions, in place of a device."""

_Times = tuple[Transferred, float, float]
"""Start and end, in seconds since the run began."""


class RunRecord:
    """The record of one run. ``profiled`` False: the devices' clocks are off, and kernels leave no events."""

    def __init__(
        self, graph: Graph, machine: Machine, drivers: Sequence[Driver], begin: float, *, profiled: bool = True
    ) -> None:
        self.graph = graph
        self.profiled = profiled
        self.machine = machine
        self._drivers = drivers
        self.begin = begin
        self.kernels: list[tuple[int, DeviceIndex, int, Event]] = []  # node, device, queue, event
        self.versions: dict[int, Version] = {}  # the version that ran, for nodes with several
        self.together: dict[int, Launch] = {}  # the launch that ran for several nodes, by the first of these
        self.transfers: list[Transferred] = []
        self.hosts: list[tuple[int, float, float]] = []
        self.parts: dict[int, list[_NDRange]] = {}
        """NDRange and name of each kernel, for nodes that ran several kernels one after another."""
        self.first: dict[int, float] = {}
        """The times when launches were enqueued that are the first of their kind on their device, which may have to be
        compiled, in seconds since the run began."""
        self.kinds: list[list[tuple[int, int, float]]] = []
        """For commands that were enqueued together: at which of them, and when, those of each kind began, kernels of
        device d, and transfers where that is ``~d``; the last entry is the end."""
        self.timed: Collection[DeviceIndex] = ()
        """Devices whose clocks are read when times are asked for. Comparing them with the host's takes a while, for
        which no run should wait."""
        self.failure: Failed | None = None
        self.failed_transfer: Failed | None = None
        self._times: list[tuple[int, DeviceIndex, int, float, float]] | None = None

    @property
    def enqueued(self) -> dict[Kind, tuple[int, float]]:
        """The number of commands of a kind, and the seconds of the host's thread that enqueued them."""
        found: dict[Kind, tuple[int, float]] = {}
        for (first, place, began), (end, _, ended) in chain.from_iterable(map(pairwise, self.kinds)):
            if place != NO_KIND:
                kind = DeviceIndex(place if place >= 0 else ~place), place < 0
                count, seconds = found.get(kind, (0, 0.0))
                found[kind] = count + end - first, seconds + ended - began
        return found

    @cached_property
    def offsets(self) -> list[float | None]:
        """The offsets of the devices' clocks, where they are known, in seconds."""
        return [driver.clock() if i in self.timed else None for i, driver in enumerate(self._drivers)]

    def batch(self, begin: float, nodes: tuple[int, int], moved: tuple[int, int]) -> RunRecord:
        """Return the record of a command batch, as a run that began at ``begin``. ``nodes``: the first of its commands
        and how many. ``moved``: the first of its transfers, and the one behind its last."""
        first, count = nodes
        other = RunRecord(self.graph, self.machine, self._drivers, begin, profiled=self.profiled)
        other.timed = self.timed
        other.transfers = [
            m._replace(token=max(min(m.token - first, count - 1), 0)) for m in self.transfers[slice(*moved)]
        ]
        later = begin - self.begin
        other.first = {n - first: seconds - later for n, seconds in self.first.items() if 0 <= n - first < count}
        return other

    def find_failure(self) -> None:
        """Find the failure, by every launch's final status, also of launches that were not waited for. Of several
        failures, that of the node that comes first in the graph counts: what may depend on it comes after."""
        found: dict[DeviceIndex, list[Event]] = {}
        for _, device, _, event in self.kernels:
            found.setdefault(device, []).append(event)
        for moved in self.transfers:
            found.setdefault(moved.device, []).extend(moved.events)
        for device, events in found.items():
            if not self._drivers[device].succeeded(events):
                break
        else:  # all is complete and nothing has failed, as nearly always
            return
        done, now = [driver.done for driver in self._drivers], perf_counter() - self.begin
        if self.failure is None:
            failed: list[tuple[int, str]] = []
            for node, device, _, event in self.kernels:
                try:
                    done[device](event)
                except DriverError as error:
                    failed.append((node, error.message))
            if failed:
                node, words = min(failed)
                self.failure = Failed(node, now, words)
        if self.failed_transfer is None:
            for moved in self.transfers:
                try:
                    for event in moved.events:
                        done[moved.device](event)
                except DriverError as error:
                    if self.failed_transfer is None or moved.token < self.failed_transfer.token:
                        self.failed_transfer = Failed(moved.token, now, error.message)

    def times(self, nodes: Set[int] | None = None) -> list[tuple[int, DeviceIndex, int, float, float]]:
        """Return (node, device, queue, start, end) of every launch that completed, or of these ``nodes``; seconds since
        the run began."""
        if self._times is not None:
            return [time for time in self._times if time[0] in nodes] if nodes is not None else self._times
        shift = [None if o is None else o - self.begin for o in self.offsets]
        times = []
        for node, device, queue, event in self.kernels if self.profiled else ():
            if nodes is not None and node not in nodes:
                continue
            try:
                start, end = self._drivers[device].times(event)
            except DriverError:
                continue  # it never completed
            offset = shift[device]
            if offset is not None:
                begin = max(0.0, start + offset)
                times.append((node, device, queue, begin, begin + end - start))
        if nodes is None:
            self._times, self.kernels = times, []
        return times

    def waited(self) -> Iterable[tuple[float, float]]:
        """Return from when to when launches that are the first of their kind waited to start, in seconds since the run
        began."""
        return [(self.first[n], start) for n, _, _, start, _ in self.times(self.first.keys())]

    def durations(self, nodes: Set[int] | None = None) -> Iterable[tuple[int, DeviceIndex, float]]:
        times = self.times(nodes)
        if not self.parts:
            return [(n, d, end - start) for n, d, _, start, end in times]
        found: dict[int, tuple[DeviceIndex, float, float]] = {}
        for n, d, _, start, end in times:
            _, first, last = found.get(n, (d, start, end))
            found[n] = d, min(first, start), max(last, end)
        return [(n, d, end - start) for n, (d, start, end) in found.items()]

    def events(self) -> Sequence[TraceEvent]:
        graph, devices = self.graph, self.machine.devices
        parts = {node: iter(sizes) for node, sizes in self.parts.items()}
        component = {n: c for c, nodes in enumerate(graph.components) for n in nodes}
        out: list[KernelEvent | TransferEvent | HostEvent] = []
        for node, device, queue, start, end in self.times():
            task = self.together.get(node, graph.nodes[node])
            assert not isinstance(task, HostTask)
            left = parts.get(node)
            sizes = next(left) if left is not None else ndrange(self.versions.get(node, task))
            what = node, task.name, devices[device].name, queue
            out.append(KernelEvent(*what, start, end, *sizes[:2], component.get(node), sizes[2]))
        for moved, start, end in self._transfer_times:
            key = moved.keys[0]
            name = graph.buffers[key].name or f"buffer {key}"
            source, target = (self.machine.memory_name(m, moved.device) for m in (moved.source, moved.target))
            out.append(TransferEvent(key, name, source, target, self._nbytes(moved), start, end))
        out.extend(HostEvent(n, graph.nodes[n].name, start, end) for n, start, end in self.hosts)
        return sorted(out, key=lambda e: e.start)

    def moved(self) -> Iterable[tuple[int, bool, int, float]]:
        """Yield (device, whether to it, bytes, seconds) of every completed transfer between it and the host."""
        for moved, start, end in self._transfer_times:
            if moved.source != moved.target and HOST in (moved.source, moved.target):
                yield moved.device, moved.source == HOST, self._nbytes(moved), end - start

    def _nbytes(self, moved: Transferred) -> int:
        return sum(self.graph.buffers[key].nbytes for key in moved.keys) if moved.nbytes is None else moved.nbytes

    def handovers(self) -> Iterable[float]:
        """Yield the seconds between the end of a download and the beginning of the same buffers' next upload."""
        came: dict[int, float] = {}
        for moved, start, end in sorted(self._transfer_times, key=lambda t: t[1]):
            if moved.target == HOST:
                came.update(dict.fromkeys(moved.keys, end))
            elif moved.source != moved.target and all(key in came for key in moved.keys):
                yield max(0.0, start - max(came[key] for key in moved.keys))

    @cached_property
    def _transfer_times(self) -> Sequence[_Times]:
        found: list[_Times] = []
        for moved in self.transfers:
            times, offset, events = self._drivers[moved.device].times, self.offsets[moved.device], moved.events
            if offset is None:
                continue
            try:
                start = max(0.0, times(events[0])[0] + offset - self.begin)
                end = max(start, times(events[-1])[1] + offset - self.begin)
            except DriverError:
                continue
            found.append((moved, start, end))
        return found
