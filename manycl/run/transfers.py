"""What is brought where, and when: the transfers of a run. Pure.

What a launch reads comes in its turn at the latest, and whenever possible before: what the host has, when it is known
who will read it; what a device makes, when it has made it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from manycl.graph.graph import Graph, Launch
from manycl.machine import HOST, Machine
from manycl.plan.plan import Assignment
from manycl.run.assign import Assigned
from manycl.run.backend import (
    AHEAD_QUEUE,
    DOWNLOAD_QUEUE,
    EARLY_QUEUE,
    HOST_DEVICE,
    UPLOAD_QUEUE,
    Command,
    Download,
    Upload,
)
from manycl.run.coherence import HOST_BIT, Directory

NOT_ISSUED = -2
LOOK_AHEAD = 16
"""Nodes of a queue, from one that waits on, whose data on the host are brought before their turn."""
SMALL = 1 << 16
"""Bytes that a link brings while the next command is enqueued. Less than that goes in the kernels' own queues: there
nothing has to wait for another queue, which takes a GPU's driver 40 us, and what leaves the device does not wait for
large uploads, behind which NVIDIA's driver puts it in any other queue (measured with an H200). But where a device has
several queues for kernels, what the host has had from the start waits for none of them: the others may read it too."""
LARGE = 1 << 20
"""Bytes of a buffer, or a piece of one, that is brought before anything else of a run is enqueued; what is due before
it comes before it, as links carry first what was enqueued first."""


class Transfers:
    """What transfers are decided by. ``overwritten(node, key)``: whether a node writes all of a buffer, so that what it
    held need not be brought."""

    queues: tuple[int, ...]
    """How many queues for kernels each device has."""
    issued: list[Assignment]
    """In the order of enqueueing."""

    def __init__(
        self, graph: Graph, machine: Machine, directory: Directory, overwritten: Callable[[int, int], bool]
    ) -> None:
        self.graph = graph
        self.directory = directory
        self._overwritten = overwritten
        self._predecessors: Sequence[Sequence[int]] = graph.predecessors
        self._successors: Sequence[Sequence[int]] = graph.successors
        self._memory = [d.memory for d in machine.devices]
        self._far = machine.memories > 1
        # pieces that ranges of a launch write at the same time: they have several writers
        self._together = {k for _, keys in graph.notes.get("together", {}).values() for k in keys}
        self._owner = {d.memory: i for i, d in enumerate(machine.devices) if d.memory != HOST}
        # memories of several devices: one of them may wait for what another has brought
        self._shared = {m for m in self._memory if m != HOST and self._memory.count(m) > 1}
        count = len(graph.nodes)
        self.done = bytearray(count)
        self._device = [NOT_ISSUED] * count
        self._queue = [0] * count
        self._latest: dict[tuple[int, int], int] = {}  # the node that was the last to be enqueued, by device and queue
        self._writer: dict[int, int] = {}
        self._waiting: dict[tuple[int, int], deque[Assigned]] = {}  # nodes that were given to a queue
        self._going: dict[int, tuple[int, int]] = {}  # the device and the queue that a node was given to
        # token of the transfer under way (or done) that makes a buffer valid in a memory
        self._arriving: dict[int, dict[int, int]] = {}
        self._transfer_done: set[int] = set()
        self._transfer_device: dict[int, int] = {}
        self._next_token = count
        self._issued_before: dict[int, int] = {}  # by transfer: how many nodes were
        # by what makes a buffer valid on the host, a node or a transfer: the buffer, and who waits for it elsewhere
        self._follow: dict[int, list[tuple[int, int]]] = {}
        self._makers: dict[int, int] = {}  # by transfer: the node that makes what it moves, whose end it tells
        self._brought: set[int] = set()

    # before their turn

    def _look_ahead(self, following: Iterable[Assigned], commands: list[Command], least: int = 0) -> None:
        """Bring what the next nodes of a queue need and the host has already, of buffers of ``least`` bytes. No later
        version of it exists before they have run."""
        valid, buffers = self.directory.valid, self.graph.buffers
        for node, device, queue, *_ in following:
            memory, task = self._memory[device], self.graph.nodes[node]
            # who comes first finds final contents also in what it changes
            keys = task.reads if self._predecessors[node] else dict.fromkeys((*task.reads, *task.writes))
            for key in keys:
                mask, writer = valid.get(key, 0), self._writer.get(key)
                if not mask & HOST_BIT or mask >> memory & 1 or buffers[key].nbytes < least:
                    continue
                if (writer is not None and not self.done[writer]) or not self._is_final(node, key):
                    continue
                if key not in task.reads and (key in getattr(task, "overwrites", ()) or self._overwritten(node, key)):
                    continue
                if self._arrived(key, HOST, HOST_DEVICE, []):
                    commands.append(self._upload_ahead(key, memory, device, queue))

    def _until_large(self, line: Iterable[Assigned]) -> int:
        """How many of the next nodes of a queue to look at for the last large buffer among what they touch."""
        nodes, buffers, until = self.graph.nodes, self.graph.buffers, 0
        for turn, assigned in enumerate(islice(line, LOOK_AHEAD)):
            task = nodes[assigned.node]
            if any(buffers[key].nbytes >= LARGE for key in (*task.reads, *task.writes)):
                until = turn + 1
        return until

    def _is_final(self, node: int, key: int) -> bool:
        """Whether all that writes a buffer before the node, which reads it, was issued."""
        nodes, device_of = self.graph.nodes, self._device
        return all(device_of[p] != NOT_ISSUED or key not in nodes[p].writes for p in self._predecessors[node])

    def _hand_over(self, node: int, device: int, commands: list[Command]) -> bool:
        """What nodes read that were given to other devices leaves as soon as this one has made it, whatever else they
        wait for. Whether all of them will so hear that it is complete."""
        nodes, memories, going = self.graph.nodes, self._memory, self._going
        memory = HOST if device == HOST_DEVICE else memories[device]
        written = nodes[node].writes
        leaving: dict[int, int] = {}
        heard = memory != HOST
        for s in self._successors[node]:
            other, _ = going.get(s, (HOST_DEVICE, 0))
            if other == device:
                continue
            if other == HOST_DEVICE or memories[other] == memory:
                heard = False
                continue
            reads = nodes[s].reads
            sent = False
            for key in written:
                if key in reads and key not in self._together and self._is_final(s, key):
                    if memory == HOST:
                        by = node
                    elif key in leaving:
                        by = leaving[key]
                    else:
                        by = leaving[key] = self._new_transfer(key, HOST, device)
                        queue = self._leaves_by(key, node, EARLY_QUEUE)
                        commands.append(Download(by, key, device, [node], True, queue=queue))
                        self._makers[by] = node
                    self._follow.setdefault(by, []).append((key, s))
                    sent = True
            heard = heard and sent
        return heard

    def _send_on(self, tokens: list[int], commands: list[Command]) -> None:
        """What has come to the host goes on to those who wait for it, also for other things."""
        valid = self.directory.valid
        for token in tokens:
            for key, node in self._follow.pop(token, ()):
                device, queue = self._going[node]
                memory, mask = self._memory[device], valid.get(key, 0)
                if self._device[node] == NOT_ISSUED and mask & HOST_BIT and not mask >> memory & 1:
                    line = self._waiting[device, queue]
                    is_due = bool(line) and line[0].node == node
                    commands.append(self._upload_ahead(key, memory, device, queue, is_due))

    def _upload_ahead(self, key: int, memory: int, device: int, queue: int, is_due: bool = False) -> Upload:
        """Bring a buffer before the turn of a launch in a queue. ``is_due``: it is the next one there."""
        token = self._new_transfer(key, memory, device)
        by = self._comes_by(key, device, queue, is_due)
        return Upload(token, key, device, (), memory in self._shared, queue=by)

    def _comes_by(self, key: int, device: int, queue: int, is_due: bool = True) -> int:
        """The queue by which a buffer comes for a launch in a queue: what takes long, and is not due, in one of its
        own, where it holds up nothing."""
        is_small = self.graph.buffers[key].nbytes < SMALL
        if is_small and (self.queues[device] == 1 or (is_due and key in self._writer)):
            return queue
        return UPLOAD_QUEUE if is_due or is_small else AHEAD_QUEUE

    def _leaves_by(self, key: int, writer: int | None, otherwise: int) -> int:
        """The queue by which a buffer leaves the device of its writer."""
        if writer is None or self.graph.buffers[key].nbytes >= SMALL:
            return otherwise
        queue = self._queue[writer]
        return queue if self._latest.get((self._device[writer], queue)) == writer else otherwise

    def _bring_early(self, node: int, device: int, queue: int, commands: list[Command]) -> None:
        """All predecessors of a node are enqueued, some on other devices: what it needs of what they leave can be on
        its way before they are known to be complete, and is sent on when it has come. No later version of it exists
        before the node has run."""
        if node in self._brought:
            return
        self._brought.add(node)
        task = self.graph.nodes[node]
        assert isinstance(task, Launch)
        memory, valid = self._memory[device], self.directory.valid
        for key in dict.fromkeys((*task.reads, *(k for k in task.writes if k not in task.overwrites))):
            mask = valid.get(key, 0)
            if not mask or mask >> memory & 1 or key in self._together:
                continue
            writer = self._writer.get(key)
            if writer is not None and not self.done[writer]:
                made_in = self._written_in(key)
                # only the device itself can wait for what it has not completed
                if made_in == HOST or self._device[writer] != self._owner[made_in]:
                    continue
            if key in task.reads or not self._overwritten(node, key):
                token = self._next_token
                if not self._bring(key, memory, device, [], commands, queue) and self._next_token > token:
                    self._follow.setdefault(token, []).append((key, node))

    def _fetch_early(self, node: int, commands: list[Command]) -> None:
        """What a host function reads and devices have, or will have when what they were given is complete, can come
        before all of it is there."""
        valid = self.directory.valid
        for key in self.graph.nodes[node].reads:
            mask = valid.get(key, 0)
            if not mask or mask & HOST_BIT or key in self._together or not self._is_final(node, key):
                continue
            writer = self._writer.get(key)
            if writer is None or self.done[writer] or self._device[writer] == self._owner[self._written_in(key)]:
                self._bring(key, HOST, HOST_DEVICE, [], commands)

    # in their turn

    def _bring(
        self,
        key: int,
        memory: int,
        device: int,
        after: list[int],
        commands: list[Command],
        queue: int = UPLOAD_QUEUE,
    ) -> bool:
        """Make a buffer valid in a memory, for a launch in a queue. True when it is, or will be once the tokens added
        to ``after`` are done."""
        mask = self.directory.valid.get(key, 0)
        if not mask:
            return True  # undefined contents: nothing to bring
        if mask >> memory & 1:
            return self._arrived(key, memory, device, after)
        if mask & HOST_BIT:
            if not self._arrived(key, HOST, HOST_DEVICE, after):
                return False
            token = self._new_transfer(key, memory, device)
            by = self._comes_by(key, device, queue)
            commands.append(Upload(token, key, device, (), memory in self._shared, queue=by))
            after.append(token)
            return True
        owner = self._owner[(mask & -mask).bit_length() - 1]
        writer = self._writer.get(key)
        pending: list[int] = []
        if writer is not None and not self.done[writer]:
            pending.append(writer)
            owner = self._device[writer]  # of those with this memory, only it can wait for what it has not completed
        token = self._new_transfer(key, HOST, owner)
        queue = EARLY_QUEUE if device == HOST_DEVICE else DOWNLOAD_QUEUE
        if writer is not None and self._device[writer] == owner:
            queue = self._leaves_by(key, writer, queue)
        commands.append(Download(token, key, owner, pending, True, queue=queue))
        return False

    def _arrived(self, key: int, memory: int, device: int, after: list[int]) -> bool:
        tokens = self._arriving.get(key)
        token = tokens.get(memory) if tokens else None
        if token is None or token in self._transfer_done:
            return True
        if self._transfer_device[token] != device:
            return False
        after.append(token)
        return True

    def _new_transfer(self, key: int, memory: int, device: int) -> int:
        token = self._next_token
        self._next_token += 1
        self.directory.copied(key, memory)
        self._arriving.setdefault(key, {})[memory] = token
        self._transfer_device[token] = device
        self._issued_before[token] = len(self.issued)
        return token

    def unfinished_copies(self) -> list[tuple[int, int]]:
        """(buffer, memory) that the directory counts as valid for a transfer that is not known to have ended."""
        return [
            (key, memory)
            for key, tokens in self._arriving.items()
            for memory, token in tokens.items()
            if token not in self._transfer_done and self._written_in(key) != memory
        ]

    def _written_in(self, key: int) -> int:
        """The memory that the last writer of a buffer has left it in (-1: nobody wrote it)."""
        writer = self._writer.get(key)
        if writer is None:
            return -1
        return self._memory[self._device[writer]] if self._device[writer] >= 0 else HOST
