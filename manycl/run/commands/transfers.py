"""The books of a script that is being made: which command makes which bytes valid where, what has to wait for what, and
the copies between memories that follow. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from manycl.graph.graph import BufferKey
from manycl.machine import HOST, DeviceIndex
from manycl.plan.problem import Problem
from manycl.run.commands.backend import Command, Download, Lane, TransferQueue, Upload
from manycl.run.lowering.steps import Lowered
from manycl.run.recovery.checkpoints import NOTHING_KEPT, CheckpointPolicy
from manycl.run.recovery.lineage import Overwrites, nothing_known


class Subject(NamedTuple):
    """What is compiled: the steps of a problem's graph, and where their buffers are valid before them (masks of
    memories). ``overwritten(step, key)``: whether a step writes all of a buffer, which ``Launch.overwrites`` need not
    say. ``keeping``: what is kept in case a device is lost."""

    problem: Problem
    lowered: Lowered
    valid: Mapping[BufferKey, int]
    overwritten: Overwrites = nothing_known
    keeping: CheckpointPolicy = NOTHING_KEPT


class EndedTransfers(NamedTuple):
    """Transfers that must have ended: those ``after`` which something comes on its device, and others that must be
    ``heard`` of."""

    after: Collection[int] = ()
    heard: Collection[int] = ()


NOTHING = EndedTransfers()


class Copies:
    """``masks``: where each buffer is valid after the commands so far, as bits of places: memories, and where room is
    short also windows. ``made[key][place]``: the command whose end makes it so, where that is one of the run's.

    A command is *held* if it must hear of something, or comes behind a held one: in its queue, or by what it waits for
    on its device. All others are enqueued at once."""

    def __init__(self, subject: Subject) -> None:
        machine, graph = subject.problem.machine, subject.lowered.graph
        self._problem, self._lowered, self._graph = subject.problem, subject.lowered, graph
        self._valid = subject.valid
        self.far = machine.memories > 1
        self._peers = machine.peers
        self._memory = [d.memory for d in machine.devices]
        # memories of several devices: one of them may wait for what another has brought
        self._shared = {m for m in self._memory if m != HOST and self._memory.count(m) > 1}
        # pieces that ranges of a launch write at the same time: they have several writers
        self._together = graph.written_together
        self.commands: list[Command] = []
        self._at: dict[int, int] = {}  # the index of a transfer's command, by token; of a node's, by node
        self._lane: list[Lane | None] = [None] * len(graph.nodes)
        self._transfers: list[Lane] = []  # of transfers, by token less the number of nodes; and …
        self._tells: list[int | None] = []  # … the node that is complete when they are, if there is one
        self.masks: dict[BufferKey, int] = {}
        self._needs: dict[BufferKey, int] = {}
        self._made: dict[BufferKey, dict[int, int]] = {}
        self._writers: dict[BufferKey, list[int]] = {}  # the last; several, of what is written together
        self._arrived: dict[tuple[BufferKey, int], int] = {}  # transfers that those who write together wait for
        self._unawaited: dict[BufferKey, list[int]] = {}  # transfers that nobody need wait for, but who writes it
        self._last: dict[Lane, int] = {}  # the index of the last command of a kernel queue, or of the host
        self._ordered: dict[Lane, set[int]] = {}  # what commands of a kernel queue wait for already
        self.held: set[int] = set()  # indices
        self.enqueued: dict[int, set[int]] = {}  # of held commands: indices that must have been enqueued
        self.heard: dict[int, set[int]] = {}  # … and tokens that must have been heard of

    # what comes before what

    def _in_queue(
        self, index: int, lane: Lane, after: Sequence[int], heard: set[int], given: Iterable[int] = ()
    ) -> tuple[int, ...]:
        """A command comes after those that its queue was given before; what of ``after``, tokens on its own device, it
        has to wait for besides. ``given``: commands that must have been given before. Whether it is held is found out
        here."""
        held, last = self.held, self._last.get(lane)
        behind = {before for before in given if before in held}
        if last is not None and last in held:
            behind.add(last)
        self._last[lane] = index
        new: tuple[int, ...] = ()
        if after:
            ordered = self._ordered.setdefault(lane, set())
            # transfers that are staged are not in the queue that they are given to
            is_node, of = len(self._lane), self._lane_of
            new = tuple(dict.fromkeys(t for t in after if t not in ordered and (t >= is_node or of(t) != lane)))
            ordered.update(new)
            behind.update(at for t in after if (at := self._at[t]) in held)
        if behind or heard:
            self._hold(index, behind, heard)
        return new

    def _hold(self, index: int, behind: set[int], heard: set[int]) -> None:
        self.held.add(index)
        if behind:
            self.enqueued[index] = behind
        if heard:
            self.heard[index] = heard

    # what is where

    def _mask(self, key: BufferKey) -> int:
        mask = self.masks.get(key)
        if mask is None:
            mask = self._needs[key] = self._valid.get(key, 0)
        return mask

    def _lane_of(self, token: int) -> Lane:
        if token < len(self._lane):
            lane = self._lane[token]
            assert lane is not None
            return lane
        return self._transfers[token - len(self._lane)]

    def command(self, token: int) -> Command:
        """What was emitted under a token."""
        return self.commands[self._at[token]]

    def is_decided(self, node: int) -> bool:
        """Whether it has been said who runs a node."""
        return self._lane[node] is not None

    def told_by(self, token: int) -> int | None:
        """The node that is complete when a command is heard to be."""
        return token if token < len(self._lane) else self._tells[token - len(self._lane)]

    def _transfer(self, key: BufferKey, at: int, device: DeviceIndex, queue: int, tells: int | None) -> int:
        """A buffer is valid in one more place, where a transfer brings it."""
        token = len(self._lane) + len(self._transfers)
        self._transfers.append((device, queue))
        self._tells.append(tells)
        self._at[token] = len(self.commands)
        self.masks[key] = self._mask(key) | 1 << at
        self._made.setdefault(key, {})[at] = token
        return token

    def _transfer_to(self, key: BufferKey, at: int) -> int | None:
        """The transfer that makes a buffer valid in a place, if it is one that does."""
        token = self._made.get(key, {}).get(at)
        return token if token is not None and token >= len(self._lane) else None

    def _makers(self, key: BufferKey, at: int, device: DeviceIndex) -> tuple[list[int], set[int]]:
        """The commands that make a buffer valid in a place: of a device, and of others of its memory."""
        made = self._made.get(key, {}).get(at)
        if made is None:
            return [], set()
        found = self._writers[key] if made < len(self._lane) and key in self._together else [made]
        mine = [t for t in found if self._lane_of(t)[0] == device]
        return mine, {t for t in found if t not in mine}

    def _comes_after(
        self, key: BufferKey, at: int, device: DeviceIndex, after: list[int], told: set[int | None], heard: set[int]
    ) -> None:
        """A command of a device finds a buffer in a place: it comes after what brings it there. (Nodes that write it
        there are the command's predecessors, or write it at the same time.)"""
        token = self._made.get(key, {}).get(at)
        if token is not None and token < len(self._lane):
            token = self._arrived.get((key, at)) if key in self._together else None
        if token is None:
            return
        if self._lane_of(token)[0] != device:  # another device of this memory has asked for it
            heard.add(token)
        else:
            after.append(token)
        told.add(self.told_by(token))

    def reads_on(self, key: BufferKey, token: int) -> None:
        """A transfer reads a buffer, and maybe nobody waits for what it brings."""
        self._unawaited.setdefault(key, []).append(token)

    def _comes_behind_unawaited(
        self, writes: Iterable[BufferKey], device: DeviceIndex, after: list[int], heard: set[int]
    ) -> None:
        """What a command of a device (or of the host) writes comes after transfers that still read it."""
        if not self._unawaited:
            return
        for key in writes:
            # (others may write it together with this one)
            found = self._unawaited.get(key, ()) if key in self._together else self._unawaited.pop(key, ())
            for token in found:
                if self._lane_of(token)[0] == device:
                    after.append(token)
                else:
                    heard.add(token)

    # copies

    def _bring_up(
        self,
        key: BufferKey,
        at: int,
        device: DeviceIndex,
        queue: int,
        behind: Collection[int] = (),
        store: BufferKey | None = None,
        source: int = HOST,
        is_told: bool = False,
    ) -> int:
        """From the host's memory (or ``source``), when it is there, to a place of a device; the token. ``behind``:
        commands that must have been enqueued before; ``is_told``: its end is reported in any case."""
        index, maker = len(self.commands), self._made.get(key, {}).get(source)
        heard = {maker} if maker is not None else set()
        tells = self.told_by(maker) if maker is not None else None
        if maker is not None and maker < len(self._lane) and key in self._together:
            heard, tells = set(self._writers[key]), None
        token = self._transfer(key, at, device, queue, tells)
        self._copies_wait(index, (device, queue), (), heard, behind)
        is_told |= self._memory[device] in self._shared or bool(self._peers)  # others may wait for it
        self.commands.append(Upload(token, key, device, (), is_told, store, queue, source))
        return token

    def _bring_down(
        self,
        key: BufferKey,
        at: int,
        device: DeviceIndex,
        queue: int,
        store: BufferKey | None = None,
        ends: EndedTransfers = NOTHING,
    ) -> int:
        """From a place of a device, when it is there, to the host's memory, once other transfers have ended; the
        token."""
        index, writers = len(self.commands), self._writers.get(key, [])
        before, others = self._makers(key, at, device)
        waits, saves = tuple(dict.fromkeys((*before, *ends.after))), self._saves(key)
        token = self._transfer(key, HOST, device, queue, writers[0] if len(writers) == 1 else None)
        self._copies_wait(index, (device, queue), waits, others.union(ends.heard))
        self.commands.append(Download(token, key, device, waits, True, store, queue, saves=saves))
        return token

    def _saves(self, key: BufferKey) -> bool:
        """Whether what the host had of a buffer is copied beside before a transfer overwrites it."""
        return False

    def set_aside(self, key: BufferKey, device: DeviceIndex, queue: int, copy: int, ends: EndedTransfers) -> int:
        """From a device's memory, when it is there, to a copy that the host keeps beside, once other transfers have
        ended; the token."""
        index = len(self.commands)
        self._mask(key)  # it is needed there
        before, others = self._makers(key, self._memory[device], device)
        waits = tuple(dict.fromkeys((*before, *ends.after)))
        token = len(self._lane) + len(self._transfers)
        self._transfers.append((device, queue))
        self._tells.append(None)
        self._at[token] = index
        self._copies_wait(index, (device, queue), waits, others.union(ends.heard))
        self.commands.append(Download(token, key, device, waits, True, None, queue, copy))
        return token

    def _copies_wait(
        self, index: int, lane: Lane, after: Sequence[int], heard: set[int], behind: Collection[int] = ()
    ) -> None:
        """Queues of transfers keep no order that anybody may count on."""
        if not isinstance(lane[1], TransferQueue):
            self._in_queue(index, lane, after, heard, behind)
            return
        held = {at for at in (*behind, *(self._at[t] for t in after)) if at in self.held}
        if held or heard:
            self._hold(index, held, heard)
