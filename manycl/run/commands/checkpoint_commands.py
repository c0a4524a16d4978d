"""Commands for the copies that runs keep as devices may be lost (:mod:`manycl.run.recovery.checkpoints`). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from manycl.graph.graph import BufferKey, HostTask
from manycl.machine import HOST, HOST_BIT, DeviceIndex
from manycl.model.transfer import COPYING
from manycl.plan.plan import ON_HOST
from manycl.plan.problem import ENQUEUING
from manycl.run.commands.backend import ASIDE, Lane, TransferQueue
from manycl.run.commands.transfers import NOTHING, EndedTransfers
from manycl.run.recovery.checkpoints import Checkpoints

if TYPE_CHECKING:
    from manycl.run.commands.emit import Emitter
    from manycl.run.commands.transfers import Subject


class Keeper:
    """The part of an emitter that decides on checkpoints and undo copies."""

    def __init__(self, emitter: Emitter, subject: Subject) -> None:
        memories = [d.memory for d in subject.problem.machine.devices]
        self._emitter, self._keeping = emitter, subject.keeping
        self._graph, self._transfer = subject.lowered.graph, subject.problem.estimates.transfer
        self._valid, self._overwritten = subject.valid, subject.overwritten
        self._here = {d for d in subject.keeping.mortal if memories[d] == HOST}
        self._memory = memories
        # (the contents of a memory that several devices share survive the loss of one of them)
        self._alone = {d for d in subject.keeping.mortal - self._here if memories.count(memories[d]) == 1}
        self.is_on = bool(self._alone)  # whether it makes checkpoints
        self._checkpoints: Checkpoints | None = None
        self._skipped = self._graph.written_together
        self._own = frozenset(subject.lowered.own)
        if self.is_on:
            work = sum((subject.keeping.seconds or {}).values())
            self._checkpoints = Checkpoints(work / len(memories))
        self._busy = [0.0] * len(memories)  # predicted seconds of the steps given, by device
        self._changed: set[BufferKey] = set()  # buffers whose host copy is not what it was at first
        self._latest: dict[DeviceIndex, list[int]] = {}  # the transfers of the last checkpoint
        self._aside: set[BufferKey] = set()  # buffers that are in a checkpoint

    def begin(self, lines: Mapping[Lane, Sequence[int]]) -> None:
        """Begin before any command; ``lines``: the steps of each queue. Contents that only a device has at the
        beginning go to the host before steps change them."""
        if self._checkpoints is None:
            return
        busy = [0.0] * len(self._memory)
        for (device, _), line in lines.items():
            if device != ON_HOST:
                busy[device] += self._keeping.foreseen(line)
        self._checkpoints = checkpoints = Checkpoints(max(busy))
        owner = {memory: DeviceIndex(d) for d, memory in enumerate(self._memory) if memory != HOST}
        masks = {key: m for key in self._graph.buffers if (m := self._valid.get(key, 0)) and not m & HOST_BIT}
        costs: dict[DeviceIndex, dict[BufferKey, float]] = {}
        for node, task in enumerate(self._graph.nodes) if masks else ():
            for key in (*task.reads, *task.writes):
                mask = masks.pop(key, 0)
                if mask and self._finds(node, key):
                    device = owner[(mask & -mask).bit_length() - 1]
                    costs.setdefault(device, {})[key] = self._cost(key, device)
        for device, mine in costs.items():
            for key in checkpoints.begin(device, mine):
                self._keep(key, device, NOTHING)

    def _finds(self, node: int, key: BufferKey) -> bool:
        """Return whether a step may find some of the old contents of a buffer that it touches."""
        task = self._graph.nodes[node]
        if key in task.reads:
            return True
        return key not in task.overwrites and (isinstance(task, HostTask) or not self._overwritten(node, key))

    def undo(self, steps: Collection[int], device: DeviceIndex) -> tuple[BufferKey, ...]:
        """Return the buffers that are copied before some steps that run as one command."""
        if device not in self._here or not self._keeping.undone.issuperset(steps):
            return ()
        return tuple(dict.fromkeys(key for step in steps for key in self._graph.nodes[step].writes))

    def saves(self, key: BufferKey, needed: int) -> bool:
        """Return whether the host's copy of a piece is kept beside, as a transfer is about to overwrite it. ``needed``:
        the mask of the memories where steps need what was there when the run began."""
        if self._checkpoints is None or key in self._changed:
            return False
        self._changed.add(key)
        if not needed & HOST_BIT:
            return False
        return self._checkpoints.saves(ENQUEUING + self._graph.buffers[key].nbytes / COPYING)

    def wrote_here(self, keys: Collection[BufferKey]) -> None:
        """Note that a host function, or a device that computes there, changes the host's own copies of pieces."""
        if self._checkpoints is not None:
            for key in keys:
                self._changed.add(key)
                self._checkpoints.elsewhere(key)

    def wrote(self, steps: Collection[int], lane: Lane) -> None:
        """Note that steps were given to a queue, with the transfers of their results, and make one if due."""
        if (checkpoints := self._checkpoints) is None:
            return
        device, masks = lane[0], self._emitter.masks
        written = dict.fromkeys(key for step in steps for key in self._graph.nodes[step].writes)
        self._busy[device] += self._keeping.foreseen(steps)
        if self._memory[device] == HOST:
            self.wrote_here(written)
        for key in written:
            checkpoints.gone(key)
            if key in self._skipped:
                checkpoints.elsewhere(key)  # parts of it may be in several memories
            if key in self._skipped or self._memory[device] == HOST:
                continue
            cost = self._cost(key, device)
            checkpoints.wrote(key, device, cost)
            if device in self._alone and not masks[key] & HOST_BIT and key not in self._own:
                checkpoints.alone(key, device, cost)
        self._look(checkpoints)

    def finish(self) -> None:
        """Bring the last buffers to the host, as all steps were given."""
        if (checkpoints := self._checkpoints) is None:
            return
        self._look(checkpoints)
        ends = {d: self._ends(d) for d in self._alone}
        for key, device in checkpoints.last().items():
            masks = self._emitter.masks
            if masks[key] >> self._memory[device] & 1 and not masks[key] & HOST_BIT:
                if key in self._aside:
                    self._changed.add(key)  # the host's old contents are not needed once that has ended
                self._keep(key, device, ends[device])

    def _look(self, checkpoints: Checkpoints) -> None:
        """Make a checkpoint, if one is due."""
        if not checkpoints.is_due(max(self._busy)):
            return
        turn, found = checkpoints.make()
        made: dict[DeviceIndex, list[int]] = {}
        self._aside.update(found)
        for key, device in found.items():
            mine = made.setdefault(device, [])
            # a device's transfers come after its first, which waits for the previous checkpoint
            ends = EndedTransfers(mine[:1]) if mine else self._ends(device)
            token = self._emitter.set_aside(key, device, TransferQueue.EARLY, ASIDE[turn], ends)
            mine.append(token)
            self._emitter.reads_on(key, token)
        self._latest = made

    def _ends(self, device: DeviceIndex) -> EndedTransfers:
        """Return the transfers of the last checkpoint, all of which a device's next transfer waits for."""
        others = [token for d, tokens in self._latest.items() if d != device for token in tokens]
        return EndedTransfers(self._latest.get(device, ()), others)

    def _keep(self, key: BufferKey, device: DeviceIndex, ends: EndedTransfers) -> None:
        token = self._emitter.keep(key, self._memory[device], device, TransferQueue.EARLY, ends)
        self._emitter.reads_on(key, token)

    def _cost(self, key: BufferKey, device: DeviceIndex) -> float:
        """Return the seconds in which a device's buffer comes to the host."""
        return ENQUEUING + self._transfer(self._graph.buffers[key].nbytes, self._memory[device], HOST)
