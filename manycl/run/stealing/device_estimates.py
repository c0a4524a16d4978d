"""Estimates of devices for launches whose shares move (:mod:`manycl.run.stealing.share_scheduler`): how fast devices
run them, in packets of which sizes, and how long it takes to move what they need; and the prefetching of that. Pure.

A launch whose shares may move begins on the devices that are free. A device that becomes free later takes some of it,
or all that is left (:mod:`manycl.run.stealing.work_stealing`). If inputs came only then, the device would wait for them
first, and often longer than it computes; a plan that waits for that device has its inputs moved meanwhile. So inputs
are prefetched here, by prediction: those of the chunks that the device is predicted to take when it has ended
what it was given, from the far end, as other devices run the launch from its front. The link is used for a STEP at a
time, as it is unknown when that device will be free, and other commands may have to wait for what is moved in vain; and
only while there is something to gain. What any chunk of the launch writes stays where it is: it changes while the other
devices are at work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence, Set

from manycl.graph.graph import BufferKey, Graph, Launch
from manycl.machine import HOST, DeviceIndex
from manycl.model.estimates import Estimates
from manycl.plan.movable import is_in_order
from manycl.plan.preemptible import at_a_time, least_groups, longest_packet
from manycl.plan.problem import ENQUEUING, Problem
from manycl.run.commands.transfers import WriteBack
from manycl.run.lowering.steps import Chunks, Lowered
from manycl.run.stealing.packet_size import PacketSize, settled_packets
from manycl.run.stealing.work_stealing import Foreseen
from manycl.run.stealing.worker import Terms

STEP = 1e-3
"""Seconds of prefetching transfers in flight to a device at a time: so long may other data have to wait; our own
choice."""
LOADED = 1.5
"""The factor by which a transfer takes longer while the host's cores compute (beside an H200 with 16 cores, 64 MiB of
page-locked memory: 1.3 ms alone, and 1.5 to 1.8 ms while all compute; ordinary memory takes 13 to 19 ms)."""


class Prefetch:
    """The prefetching of a run. ``graph``: of steps and pieces; ``memory``: of each device. ``coming``: the
    transfers in flight, by device: what they bring, when they began, and the seconds that they would take alone."""

    def __init__(self, graph: Graph, memory: Sequence[int], estimates: Estimates) -> None:
        self._graph, self._memory, self._estimates = graph, memory, estimates
        self._slower = LOADED if HOST in memory else 1.0
        self.coming: dict[DeviceIndex, tuple[Set[BufferKey], float, float]] = {}
        # by first step of a launch and device, what may be missing there of the pieces that each step reads
        self._missing: dict[tuple[int, DeviceIndex], dict[int, list[BufferKey]]] = {}

    def arrived(self, device: DeviceIndex) -> None:
        """Note that all prefetching transfers to a device have ended."""
        del self.coming[device]

    def left(self, keys: Collection[BufferKey], device: DeviceIndex, now: float) -> float:
        """Return the seconds until prefetched pieces are at a device, if no other device computes any more."""
        coming, begun, seconds = self.coming.get(device, (frozenset(), 0.0, 0.0))
        return 0.0 if coming.isdisjoint(keys) else max(0.0, seconds - (now - begun) / self._slower)

    def next(
        self,
        chunks: Chunks,
        device: DeviceIndex,
        found: Foreseen,
        now: float,
        may_bring: Callable[[BufferKey], bool | None],
    ) -> list[BufferKey]:
        """Return the pieces to prefetch next for the chunks that a device would take, in the order of their bytes, and
        count them as in flight. Return nothing if they would come too late. ``may_bring``: None for a piece that is
        there, and so is until the launch has run: nothing else writes what it reads."""
        wanted, nbytes, seconds = dict[BufferKey, None](), 0, 0.0
        graph, written = self._graph, chunks.bytes(self._graph).writes
        missing = self._missing.setdefault((chunks.steps[0], device), {})
        for step in reversed(chunks.steps[found.first : found.last]):
            left = missing.get(step)
            if left is None:
                left = [k for k in graph.nodes[step].reads if k not in written]
            asked = [(k, may) for k in left if (may := may_bring(k)) is not None]
            missing[step] = [k for k, _ in asked]
            new = [k for k, may in asked if may and k not in wanted]
            if not new:
                continue
            more = nbytes + sum(graph.buffers[key].nbytes for key in new)
            took = self._estimates.transfer(more, HOST, self._memory[device])
            if wanted and took > STEP:
                break
            wanted.update(dict.fromkeys(new))
            nbytes, seconds = more, took
        if not wanted or (found.end is not None and now + self._slower * seconds >= found.end):
            return []
        self.coming[device] = wanted.keys(), now, seconds
        return sorted(wanted, key=chunks.order(graph).__getitem__)


class DeviceEstimates:
    """The device estimates of a run. ``inputs``: the prefetching of inputs, for devices with own memories."""

    def __init__(self, problem: Problem, lowered: Lowered) -> None:
        assert lowered.plan is not None
        self._problem, self._graph, self._chunks = problem, lowered.graph, lowered.chunks
        self._memory = [d.memory for d in problem.machine.devices]
        self._settled = settled_packets(lowered.plan) if problem.demanded else {}
        self._others = lowered.timetable.others
        self._write_back = WriteBack(problem, lowered)
        is_far = problem.machine.memories > 1
        self.inputs = Prefetch(lowered.graph, self._memory, problem.estimates) if is_far else None

    def known(self, node: int) -> set[DeviceIndex]:
        """Return the devices without a share of a launch that were asked for before."""
        return {device for launch, device in self._others if launch == node}

    def terms(self, node: int, device: DeviceIndex, each: float = 0.0) -> Terms:
        """Return the estimates of a device for a launch. ``each``: the seconds of a work-group, if known."""
        owner, launch, chunks = (
            self._problem.machine.devices[device],
            self._problem.graph.nodes[node],
            self._chunks[node],
        )
        assert isinstance(launch, Launch)
        total = sum(chunks.groups)
        if not each:  # asking the models takes longer than all else before a run
            each = self._others.get((node, device), 0.0)
        if not each:
            each = (self._problem.range_seconds(node, device, total) - owner.launch_overhead) / total
            self._others[node, device] = each
        each = max(each, 1e-9 / total)
        # chunks run one after another where work-groups begin with dimension 0 fastest
        shortens = owner.shortens and owner.memory == HOST and is_in_order(launch, chunks.dimension)
        filled = 0.0
        if not shortens and owner.kind == "cpu":  # each thread runs one group at a time
            groups = launch.work_items // math.prod(launch.local_size) if launch.local_size else total
            filled = owner.compute_units * total / max(total, groups)
        elif not shortens:  # one group takes as long as all those that run beside it
            filled = (self._problem.range_seconds(node, device, 1) - owner.launch_overhead) / each
        items = None if shortens else self._problem.estimates.first_slice(node, device)
        first = math.inf if items is None else max(items * total / math.prod(launch.global_size), filled)
        size = self._packet_size(node, device, total, each) if device in self._problem.demanded else None
        count = self._problem.machine.least_chunks(device)
        return Terms(each, owner.launch_overhead + ENQUEUING, first, shortens, size, min(filled, total), count)

    def _packet_size(self, node: int, device: DeviceIndex, total: int, each: float) -> PacketSize:
        """Return the size of a launch's packets on a preemptible device. ``each``: the seconds of a work-group."""
        count, longest = at_a_time(self._problem.machine.devices[device]), longest_packet(self._problem, device)
        if settled := self._settled.get((node, device), 0.0):
            return PacketSize(longest, count, total, settled, True)
        least = least_groups(self._problem, node, device, total)
        return PacketSize(longest, count, total, least if least * each > longest else 0.0)

    def moving(self, steps: tuple[int, ...], device: DeviceIndex, valid: Mapping[BufferKey, int], now: float) -> float:
        """Return the seconds in which what some chunks read comes to a device, and in which what they write goes to the
        host, if it is to. ``valid``: where pieces are now."""
        missing: dict[int, int] = {}  # bytes by memory
        memory = self._memory[device]
        nodes, buffers = self._graph.nodes, self._graph.buffers
        reads = {key for step in steps for key in nodes[step].reads}
        for key in reads:
            mask = valid.get(key, 0)
            if mask and not mask >> memory & 1:
                source = (mask & -mask).bit_length() - 1
                missing[source] = missing.get(source, 0) + buffers[key].nbytes
        transfer = self._problem.estimates.transfer
        seconds = sum(transfer(nbytes, source, memory) for source, nbytes in missing.items())
        if memory != HOST and (home := sum([buffers[key].nbytes for key in self._write_back.keys(steps)])):
            seconds += transfer(home, memory, HOST)
        return seconds + (self.inputs.left(reads, device, now) if self.inputs is not None else 0.0)
