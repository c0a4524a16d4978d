"""Estimates of devices for launches whose shares move (:mod:`manycl.run.stealing.share_scheduler`): how fast devices
run them, in packets of which sizes, and how long it takes to move what they need. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

from manycl.graph.graph import BufferKey, Launch
from manycl.graph.reduction import Reduction
from manycl.machine import HOST, DeviceIndex
from manycl.plan.movable import is_in_order
from manycl.plan.preemptible import at_a_time, least_groups, longest_packet
from manycl.plan.problem import Problem
from manycl.run.data.coherence import places
from manycl.run.lowering.steps import RANGE, Lowered
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
        self._problem, self._lowered, self._graph = problem, lowered, lowered.graph
        self._memory = [d.memory for d in problem.machine.devices]
        self._settled = settled_packets(lowered.plan) if problem.demanded else {}
        self._others = lowered.timetable.others
        self._early, self._home = MergedEarly(problem, lowered), dict[int, int]()
        self.inputs: Prefetch | None = None
        if problem.machine.memories > 1:
            self.inputs = Prefetch(lowered.graph, self._memory, problem.estimates)

    def terms(self, node: int, device: DeviceIndex, total: int, each: float = 0.0) -> Terms:
        """Return the estimates of a device for a launch of so many work-groups. ``each``: the seconds of one, if
        known."""
        owner = self._problem.machine.devices[device]
        overhead = owner.launch_overhead
        if not each:  # asking the models takes longer than all else before a run
            each = self._others.get((node, device), 0.0)
        if not each:
            each = (self._problem.range_seconds(node, device, total) - overhead) / total
            self._others[node, device] = each
        shortens = owner.shortens and owner.memory == HOST and self._ends_early(node)
        first = math.inf if shortens else self._first(node, device, total)
        each = max(each, 1e-9 / total)
        return Terms(each, overhead + DECIDING, first, shortens, self._packet_size(node, device, total, each))

    def _packet_size(self, node: int, device: DeviceIndex, groups: int, each: float) -> PacketSize | None:
        """Return the size of a launch's packets on a preemptible device. ``each``: the seconds of a work-group."""
        if device not in self._problem.demanded:
            return None
        settled = self._settled.get((node, device), 0.0)
        count = at_a_time(self._problem.machine.devices[device])
        longest = longest_packet(self._problem, device)
        if settled:
            return PacketSize(longest, count, groups, settled, True)
        least = least_groups(self._problem, node, device, groups)
        return PacketSize(longest, count, groups, least if least * each > longest else 0.0)

    def _ends_early(self, node: int) -> bool:
        """Return whether chunks of a launch run one after another, which is so where work-groups begin with dimension 0
        fastest."""
        launch, cells = self._problem.graph.nodes[node], self._lowered.cells[node]
        assert isinstance(launch, Launch)
        return is_in_order(launch, cells.dimension)

    def _first(self, node: int, device: DeviceIndex, total: int) -> float:
        """Return the most work-groups that the first packets of a device may have."""
        launch = self._problem.graph.nodes[node]
        items = self._problem.estimates.first_slice(node, device)
        if items is None or not isinstance(launch, Launch):
            return math.inf
        return items * total / math.prod(launch.global_size)

    def moving(self, steps: tuple[int, ...], device: DeviceIndex, valid: Mapping[BufferKey, int], now: float) -> float:
        """Return the seconds in which what some chunks read comes to a device, and in which what they write goes to the
        host, if it is to. ``valid``: where pieces are now."""
        memory, missing = self._memory[device], dict[int, int]()
        nodes, buffers = self._graph.nodes, self._graph.buffers
        reads = {key for step in steps for key in nodes[step].reads}
        for key in reads:
            mask = valid.get(key, 0)
            if mask and not mask >> memory & 1:
                source = min(places(mask))
                missing[source] = missing.get(source, 0) + buffers[key].nbytes
        transfer = self._problem.estimates.transfer
        seconds = sum(transfer(nbytes, source, memory) for source, nbytes in missing.items())
        if memory != HOST and (home := sum(map(self._goes_home, steps))):
            seconds += transfer(home, memory, HOST)
        if self.inputs is None or not self.inputs.is_coming(device):
            return seconds
        return seconds + self.inputs.left(reads, device, now)

    def _goes_home(self, step: int) -> int:
        """Return the bytes that a step writes and that go to the host's memory as soon as it has ended."""
        found = self._home.get(step)
        if found is None:
            found = self._home[step] = sum(self._graph.buffers[key].nbytes for key in self._early.keys(step))
        return found


# Merging early: what parts of divided launches write goes to the host's memory as soon as they have ended. Pure.


class MergedEarly:
    """The buffers that steps of a plan send to the host early (:mod:`manycl.plan.merging`)."""

    def __init__(self, problem: Problem, lowered: Lowered) -> None:
        self._lowered, self._merging, plan = lowered, problem.merging, lowered.plan
        self._in_turn = frozenset(plan.in_turn if plan is not None else ())
        self._is_off = problem.merging == "last" or lowered.room is not None or problem.machine.memories == 1

    def keys(self, step: int) -> Sequence[BufferKey]:
        """Return what a step writes that is to be sent: for a part of a launch, what no other part writes at the same
        time, needs not be put together, and is not written again."""
        if self._is_off:
            return ()
        of, graph = self._lowered.step(step), self._lowered.graph
        if of.role != RANGE or of.method != Reduction.NONE.words():
            return ()
        if self._merging == "automatic" and of.node not in self._in_turn:
            return ()
        last, together = self._last_writers, graph.written_together
        return [key for key in graph.nodes[step].writes if last[key] == step and key not in together]

    @cached_property
    def _last_writers(self) -> Mapping[BufferKey, int]:
        """The last step that writes each buffer."""
        return {key: step for step, task in enumerate(self._lowered.graph.nodes) for key in task.writes}
