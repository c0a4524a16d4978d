"""Estimates of devices for launches whose shares move (:mod:`manycl.run.stealing.share_scheduler`): how fast devices
run them, in packets of which sizes, and how long it takes to move what they need. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from manycl.graph.graph import BufferKey, Launch
from manycl.machine import HOST, DeviceIndex
from manycl.plan.movable import is_in_order
from manycl.plan.preemptible import at_a_time, least_groups, longest_packet
from manycl.plan.problem import Problem
from manycl.run.commands.write_back import WriteBack
from manycl.run.lowering.steps import Lowered
from manycl.run.stealing.packet_size import PacketSize, settled_packets
from manycl.run.stealing.prefetch import Prefetch
from manycl.run.stealing.worker import Terms

DECIDING = 20e-6
"""The seconds in which the engine decides on a packet and enqueues it."""


class DeviceEstimates:
    """The device estimates of a run. ``inputs``: the prefetching of inputs, where devices have memories of their
    own."""

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
        # chunks run one after another where work-groups begin with dimension 0 fastest
        shortens = owner.shortens and owner.memory == HOST and is_in_order(launch, chunks.dimension)
        items = None if shortens else self._problem.estimates.first_slice(node, device)
        first = math.inf if items is None else items * total / math.prod(launch.global_size)
        each = max(each, 1e-9 / total)
        size = self._packet_size(node, device, total, each) if device in self._problem.demanded else None
        return Terms(each, owner.launch_overhead + DECIDING, first, shortens, size)

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
