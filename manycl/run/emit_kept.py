"""Who emits what a run keeps because a device may be lost (:mod:`manycl.run.keeping`). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from manycl.graph.graph import BufferKey, HostTask
from manycl.machine import HOST, DeviceIndex
from manycl.plan.plan import ON_HOST
from manycl.run.backend import Lane, TransferQueue
from manycl.run.coherence import HOST_BIT
from manycl.run.keeping import COMMAND, Checkpoints

if TYPE_CHECKING:
    from manycl.run.emit import Emitter
    from manycl.run.emit_copies import Subject


class Keeper:
    """Of an emitter."""

    def __init__(self, emitter: Emitter, subject: Subject) -> None:
        memories = [d.memory for d in subject.problem.machine.devices]
        self._emitter, self._keeping = emitter, subject.keeping
        self._graph, self._transfer = subject.lowered.graph, subject.problem.estimates.transfer
        self._valid, self._overwritten = subject.valid, subject.overwritten
        self._here = {d for d in subject.keeping.mortal if memories[d] == HOST}
        self._memory = memories
        # (of a memory that several devices have, one of them may be lost without it)
        self._checkpoints = {
            d: Checkpoints() for d in subject.keeping.mortal - self._here if memories.count(memories[d]) == 1
        }
        self._skipped = (
            frozenset(subject.lowered.own) | self._graph.written_together if self._checkpoints else frozenset()
        )
        self._busy = [0.0] * len(memories)  # foreseen seconds of what devices were given
        self._told = dict.fromkeys(self._checkpoints, 0.0)  # the most of these, when checkpoints were told last

    def begin(self, lines: Mapping[Lane, Sequence[int]]) -> None:
        """Nothing was given yet; ``lines``: the steps of each queue. What the run finds that a device alone has goes to
        the host, before steps change it."""
        owners = {1 << self._memory[device]: device for device in self._checkpoints}
        alone = {key: owners[m] for key in self._graph.buffers if (m := self._valid.get(key, 0)) in owners}
        if not alone:
            return
        busy = [0.0] * len(self._memory)
        for (device, _), line in lines.items():
            if device != ON_HOST:
                busy[device] += self._keeping.foreseen(line)
        costs: dict[DeviceIndex, dict[BufferKey, float]] = {device: {} for device in self._checkpoints}
        for node, task in enumerate(self._graph.nodes):
            for key in (*task.reads, *task.writes):
                device = alone.pop(key, ON_HOST)
                if device != ON_HOST and self._finds(node, key):
                    costs[device][key] = self._cost(key, device)
        for device, checkpoints in self._checkpoints.items():
            for key in checkpoints.begin(costs[device], max(busy)):
                self._keep(key, device)

    def _finds(self, node: int, key: BufferKey) -> bool:
        """Whether a step may find some of what is in a buffer that it touches."""
        task = self._graph.nodes[node]
        if key in task.reads:
            return True
        return key not in task.overwrites and (isinstance(task, HostTask) or not self._overwritten(node, key))

    def undo(self, steps: Collection[int], device: DeviceIndex) -> tuple[BufferKey, ...]:
        """What is copied before some steps that run as one command."""
        if device not in self._here or not self._keeping.undone.issuperset(steps):
            return ()
        return tuple(dict.fromkeys(key for step in steps for key in self._graph.nodes[step].writes))

    def wrote(self, steps: Collection[int], lane: Lane) -> None:
        """Steps were given to a queue, with all that takes their results to others: what else goes to the host."""
        if not self._checkpoints:
            return
        device, masks = lane[0], self._emitter.masks
        written = dict.fromkeys(key for step in steps for key in self._graph.nodes[step].writes)
        for checkpoints in self._checkpoints.values():
            for key in written:
                checkpoints.gone(key)
        self._busy[device] += self._keeping.foreseen(steps)
        mine = self._checkpoints.get(device)
        if mine is None:
            return
        costs = {
            key: self._cost(key, device) for key in written if key not in self._skipped and not masks[key] & HOST_BIT
        }
        self._copy(device, mine.wrote(costs, self._since(device)))

    def finish(self) -> None:
        """All steps were given."""
        for device, checkpoints in self._checkpoints.items():
            self._copy(device, checkpoints.wrote({}, self._since(device)))
            self._copy(device, checkpoints.last())

    def _since(self, device: DeviceIndex) -> float:
        """Seconds by which the run has become longer since a device's checkpoints were told last."""
        now = max(self._busy)
        before, self._told[device] = self._told[device], now
        return now - before

    def _copy(self, device: DeviceIndex, keys: Collection[BufferKey]) -> None:
        memory, masks = self._memory[device], self._emitter.masks
        for key in keys:
            if masks[key] >> memory & 1 and not masks[key] & HOST_BIT:
                self._keep(key, device)

    def _keep(self, key: BufferKey, device: DeviceIndex) -> None:
        token = self._emitter.keep(key, self._memory[device], device, TransferQueue.EARLY)
        self._emitter.reads_on(key, token)

    def _cost(self, key: BufferKey, device: DeviceIndex) -> float:
        """Seconds to bring what a device has to the host."""
        return COMMAND + self._transfer(self._graph.buffers[key].nbytes, self._memory[device], HOST)
