"""The engine's mind: a pure state machine. Reports in, commands out; it knows no threads, no devices and no clock.

A node may be enqueued as soon as each predecessor is complete or was enqueued on the same device (whose queues order
them), and each of its buffers is valid in the device's memory or a transfer that makes it so is under way there. So a
static plan is enqueued far ahead, and only dependences between devices wait for a report.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice

from manycl.errors import GraphError
from manycl.graph.graph import Launch
from manycl.machine import HOST
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policy import DynamicPolicy, StaticPolicy
from manycl.plan.problem import Problem
from manycl.run.assign import Assigned, Assigner, assigner
from manycl.run.backend import (
    AHEAD_QUEUE,
    DOWNLOAD_QUEUE,
    EARLY_QUEUE,
    HOST_DEVICE,
    UPLOAD_QUEUE,
    Command,
    Download,
    Failed,
    HostCall,
    Report,
    Run,
    Upload,
)
from manycl.run.coherence import HOST_BIT, Directory

_NOT_ISSUED = -2
LOOK_AHEAD = 16
"""Nodes of a queue, from one that waits on, whose data on the host are brought before their turn."""
SMALL = 1 << 16
"""Bytes that a link brings while the next command is enqueued."""
LARGE = 1 << 20
"""Bytes of a buffer, or a piece of one, that is brought before anything else of a run is enqueued."""


def nothing_overwritten(node: int, key: int) -> bool:
    """What is known of graphs whose kernels nobody has looked at."""
    return False


class RunState:
    """The state of one run. ``directory`` is brought up to date as commands are issued.

    ``overwritten(node, key)``: whether a node writes all of a buffer, so that what it held need not be brought; asked
    only where it would have to be (what ``Launch.overwrites`` names is never brought).

    Invariants (``validate``): a node is issued at most once, after its predecessors; a node is complete only when it
    was issued; what is in a queue was issued there and is not complete.
    """

    def __init__(
        self,
        problem: Problem,
        policy: StaticPolicy | DynamicPolicy | Plan,
        directory: Directory,
        overwritten: Callable[[int, int], bool] = nothing_overwritten,
    ) -> None:
        graph = problem.graph
        self.graph = graph
        self.directory = directory
        self.failed: Failed | None = None
        self.complete = 0
        self.issued: list[Assignment] = []  # in the order of enqueueing
        self.assigner: Assigner = assigner(problem, policy, directory.valid)
        self.queues = self.assigner.queues
        self._overwritten = overwritten
        self._predecessors = graph.predecessors
        self._successors = graph.successors
        self._memory = [d.memory for d in problem.machine.devices]
        self._far = problem.machine.memories > 1
        # pieces that ranges of a launch write at the same time: they have several writers
        self._together = {k for _, keys in graph.notes.get("together", {}).values() for k in keys}
        self._owner = {d.memory: i for i, d in enumerate(problem.machine.devices) if d.memory != HOST}
        # memories of several devices: one of them may wait for what another has brought
        self._shared = {m for m in self._memory if m != HOST and self._memory.count(m) > 1}
        count = len(graph.nodes)
        self.done = bytearray(count)
        self._device = [_NOT_ISSUED] * count
        self._queue = [0] * count
        self._writer: dict[int, int] = {}
        # token of the transfer under way (or done) that makes a buffer valid in a memory
        self._arriving: dict[int, dict[int, int]] = {}
        self._transfer_done: set[int] = set()
        self._transfer_device: dict[int, int] = {}
        self._going: dict[int, int] = {}  # the device that a node was given to
        # by what makes a buffer valid on the host, a node or a transfer: the buffer, and who waits for it elsewhere
        self._follow: dict[int, list[tuple[int, int]]] = {}
        self._looked_at: set[int] = set()
        self._looked_from: dict[tuple[int, int], int] = {}  # the head of a queue when it was last looked along
        self._next_token = count
        self._waiting: dict[tuple[int, int], deque[Assigned]] = {}
        self._issued: dict[tuple[int, int], deque[int]] = {}
        self._place: dict[int, tuple[int, int]] = {}

    @property
    def finished(self) -> bool:
        return self.complete == len(self.graph.nodes)

    def start(self, now: float) -> list[Command]:
        """The first commands: where devices have memories of their own, the large transfers alone, so that links are
        at work while all else is thought of (``handle()``)."""
        commands: list[Command] = []
        self._accept(self.assigner.start(now))
        if self._far:
            lines = [line for place, line in self._waiting.items() if place[0] >= 0]
            for turn in range(LOOK_AHEAD):  # all links begin
                for line in lines:
                    self._look_ahead(islice(line, turn, turn + 1), commands, LARGE)
        if not commands:
            self._issue_all(commands)
        return commands

    def handle(self, *reports: Report) -> list[Command]:
        """What to do after reports that came together (none: what the start has left). After a failure: nothing
        more."""
        commands: list[Command] = []
        for report in reports:
            if isinstance(report, Failed):
                self.failed = self.failed or report
            if self.failed is not None:
                return commands
            completed = self._mark_done(report.token)
            if self._follow:
                self._send_on(completed or [report.token], commands)
            more = self.assigner.completed(completed, report.time, self.directory.valid)
            if more:
                self._accept(more)
        self._issue_all(commands)
        return commands

    def _accept(self, assigned: list[Assigned]) -> None:
        """Queue assignments, each behind what its queue was given before."""
        successors, waiting = self._successors, self._waiting
        device_of = {a.node: a.device for a in assigned}
        if self._far:
            self._going.update(device_of)
        last: dict[tuple[int, int], int] = {}
        for a in assigned:
            last[a.device, a.queue] = a.node
        for a in assigned:
            node, device, queue, watched = a
            place = (device, queue)
            if not watched:
                watched = last[place] == node
                for s in successors[node]:
                    if device_of.get(s, device) != device:
                        watched = True
                        break
            line = waiting.get(place)
            if line is None:
                line = waiting[place] = deque()
            line.append(Assigned(node, device, queue, True) if watched else a)

    def _issue_all(self, commands: list[Command]) -> None:
        """Enqueue whatever can be, in turns, so that all devices begin; a queue's head may free another queue's, so
        repeat until nothing moves."""
        moved = True
        while moved:
            moved = False
            for place, line in self._waiting.items():
                if line and (self._issue if place[0] >= 0 else self._call)(line[0], commands):
                    line.popleft()
                    moved = True
        if self._far:
            for place, line in self._waiting.items():
                if line and place[0] >= 0 and self._looked_from.get(place) != line[0].node:
                    self._looked_from[place] = line[0].node
                    self._look_ahead(islice(line, LOOK_AHEAD), commands)

    def _look_ahead(self, following: Iterable[Assigned], commands: list[Command], least: int = 0) -> None:
        """Bring what the next nodes of a queue need and the host has already, of buffers of ``least`` bytes. No later
        version of it exists before they have run."""
        valid, buffers = self.directory.valid, self.graph.buffers
        for node, device, _, _ in following:
            if node in self._looked_at:
                continue
            if not least:
                self._looked_at.add(node)
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
                    token = self._new_transfer(key, memory, device)
                    # what is done at once does not hold up what is due
                    queue = AHEAD_QUEUE if buffers[key].nbytes >= SMALL else UPLOAD_QUEUE
                    commands.append(Upload(token, key, device, (), memory in self._shared, queue=queue))

    def _is_final(self, node: int, key: int) -> bool:
        """Whether all that writes a buffer before the node, which reads it, was issued."""
        nodes, device_of = self.graph.nodes, self._device
        return all(device_of[p] != _NOT_ISSUED or key not in nodes[p].writes for p in self._predecessors[node])

    def _issue(self, assigned: Assigned, commands: list[Command]) -> bool:
        """Enqueue a launch and the transfers it needs, or say that it must wait."""
        node, device, queue, watched = assigned
        done, device_of, queue_of = self.done, self._device, self._queue
        after: list[int] = []
        early = False
        for p in self._predecessors[node]:
            if not done[p]:
                if device_of[p] != device:
                    if not self._far or device_of[p] < 0:
                        return False
                    early = True
                elif queue_of[p] != queue:
                    after.append(p)
        if early:
            self._bring_early(node, device, commands)
            return False
        task = self.graph.nodes[node]
        memory = self._memory[device]
        bit = 1 << memory
        valid = self.directory.valid
        writes = task.writes
        ready = True
        arriving = self._arriving
        for key in task.reads:
            if key in arriving or not valid.get(key, bit) & bit:
                ready &= self._bring(key, memory, device, after, commands)
        for key in writes:
            if (key in arriving or not valid.get(key, bit) & bit) and key not in task.reads:
                assert isinstance(task, Launch)
                if key in task.overwrites or (not valid.get(key, bit) & bit and self._overwritten(node, key)):
                    continue
                ready &= self._bring(key, memory, device, after, commands)
        if not ready:
            return False
        writer = self._writer
        for key in writes:
            valid[key] = bit
            writer[key] = node
            if arriving and key not in self._together:  # other ranges, which write it too, still wait for it to arrive
                arriving.pop(key, None)
        device_of[node] = device
        queue_of[node] = queue
        self._push(node, device, queue)
        self.issued.append(Assignment(node, device, queue, 0.0, 0.0))
        commands.append(Run(node, device, queue, after, watched))
        if self._far:
            self._hand_over(node, device, commands)
        return True

    def _hand_over(self, node: int, device: int, commands: list[Command]) -> None:
        """What nodes read that were given to other devices leaves as soon as this one has made it, whatever else they
        wait for."""
        nodes = self.graph.nodes
        memory = HOST if device == HOST_DEVICE else self._memory[device]
        written = nodes[node].writes
        leaving: dict[int, int] = {}
        for s in self._successors[node]:
            other = self._going.get(s, HOST_DEVICE)
            if other == HOST_DEVICE or self._memory[other] == memory:
                continue
            for key in written:
                if key in nodes[s].reads and key not in self._together and self._is_final(s, key):
                    if memory == HOST:
                        by = node
                    elif key in leaving:
                        by = leaving[key]
                    else:
                        by = leaving[key] = self._new_transfer(key, HOST, device)
                        commands.append(Download(by, key, device, [node], True, queue=EARLY_QUEUE))
                    self._follow.setdefault(by, []).append((key, s))

    def _send_on(self, tokens: list[int], commands: list[Command]) -> None:
        """What has come to the host goes on to those who wait for it, also for other things."""
        valid = self.directory.valid
        for token in tokens:
            for key, node in self._follow.pop(token, ()):
                device = self._going[node]
                memory, mask = self._memory[device], valid.get(key, 0)
                if self._device[node] != _NOT_ISSUED or not mask & HOST_BIT or mask >> memory & 1:
                    continue
                if any(line and line[0].node == node for line in self._waiting.values()):
                    continue  # it is its turn
                arriving = self._new_transfer(key, memory, device)
                commands.append(Upload(arriving, key, device, (), memory in self._shared, queue=AHEAD_QUEUE))

    def _bring_early(self, node: int, device: int, commands: list[Command]) -> None:
        """All predecessors of a node are enqueued, some on other devices: what it needs of what they leave can be on
        its way before they are known to be complete. No later version of it exists before the node has run."""
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
                self._bring(key, memory, device, [], commands)

    def _call(self, assigned: Assigned, commands: list[Command]) -> bool:
        """Start a host function whose predecessors are complete and whose buffers are valid on the host."""
        node = assigned.node
        task = self.graph.nodes[node]
        if isinstance(task, Launch):
            raise GraphError(f"node {node} ({task.name}) is a launch, but was assigned to the host")
        if not all(self.done[p] for p in self._predecessors[node]):
            self._fetch_early(node, commands)
            return False
        ready = True
        for key in {*task.reads, *task.writes}:
            ready &= self._bring(key, HOST, HOST_DEVICE, [], commands)
        if not ready:
            return False
        for key in task.writes:
            self.directory.valid[key] = HOST_BIT
            self._writer[key] = node
            self._arriving.pop(key, None)
        self._device[node] = HOST_DEVICE
        self._push(node, HOST_DEVICE, 0)
        self.issued.append(Assignment(node, HOST_DEVICE, 0, 0.0, 0.0))
        commands.append(HostCall(node))
        if self._far:
            self._hand_over(node, HOST_DEVICE, commands)
        return True

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

    def _bring(self, key: int, memory: int, device: int, after: list[int], commands: list[Command]) -> bool:
        """Make a buffer valid in a memory. True when it is, or will be once the tokens added to ``after`` are done."""
        mask = self.directory.valid.get(key, 0)
        if not mask:
            return True  # undefined contents: nothing to bring
        if mask >> memory & 1:
            return self._arrived(key, memory, device, after)
        if mask & HOST_BIT:
            if not self._arrived(key, HOST, HOST_DEVICE, after):
                return False
            token = self._new_transfer(key, memory, device)
            commands.append(Upload(token, key, device, (), memory in self._shared))
            after.append(token)
            return True
        owner = self._owner[(mask & -mask).bit_length() - 1]
        writer = self._writer.get(key)
        pending = [writer] if writer is not None and not self.done[writer] else []
        token = self._new_transfer(key, HOST, owner)
        queue = EARLY_QUEUE if device == HOST_DEVICE else DOWNLOAD_QUEUE
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
        return token

    def _push(self, node: int, device: int, queue: int) -> None:
        place = (device, queue)
        line = self._issued.get(place)
        if line is None:
            line = self._issued[place] = deque()
        line.append(node)
        self._place[node] = place

    def _mark_done(self, token: int) -> list[int]:
        """The nodes that are complete now: one, and with it all that its queue held before it.

        Transfers count one by one: staged and direct ones of a device may overtake each other.
        """
        if token >= len(self.graph.nodes):
            self._transfer_done.add(token)
            return []
        if token not in self._place:
            return []  # complete already, through a later command of its queue
        line = self._issued[self._place[token]]
        nodes: list[int] = []
        while not nodes or nodes[-1] != token:
            first = line.popleft()
            del self._place[first]
            self.done[first] = 1
            nodes.append(first)
        self.complete += len(nodes)
        return nodes

    def close(self) -> None:
        """The run has ended, well or not."""

    def fail(self, failure: Failed) -> None:
        """A launch turned out to have failed after all was over: nothing that was reported since can be trusted."""
        self.failed = failure
        self.done[failure.token :] = bytes(len(self.done) - failure.token)
        self.complete = sum(self.done)

    def where(self, token: int, node: int) -> tuple[int, int | None, str]:
        """For messages: the device of a command, its token if it is a step (of node ``node``), and what it is in
        words."""
        if token < len(self.graph.nodes):
            task = self.graph.nodes[token]
            if isinstance(task, Launch):
                alias = "" if task.name == task.kernel.name else f"{task.name}, "
                return self._device[token], token, f"kernel {task.kernel.name} ({alias}node {node})"
            return self._device[token], token, f"host function {task.name} (node {node})"
        return self._transfer_device[token], None, "a transfer"

    def unfinished_writes(self) -> set[int]:
        """Buffers whose contents a failure leaves unknown: written by a node that was issued but is not complete, or
        that comes after the one that failed (a driver may run it all the same)."""
        failed = self.failed.token if self.failed is not None else len(self.graph.nodes)
        after = {failed}
        keys: set[int] = set()
        for n, task in enumerate(self.graph.nodes):
            if n > failed and not after.isdisjoint(self._predecessors[n]):
                after.add(n)
            if self._device[n] != _NOT_ISSUED and (n in after or not self.done[n]):
                keys.update(task.writes)
        return keys

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

    def validate(self) -> None:
        """Assert the invariants; used by tests and at debug level 4."""
        for n in range(len(self.graph.nodes)):
            issued = self._device[n] != _NOT_ISSUED
            assert issued or not self.done[n], f"node {n} complete but never issued"
            if issued:
                for p in self._predecessors[n]:
                    assert self._device[p] != _NOT_ISSUED, f"node {n} issued before its predecessor {p}"
        for place, line in self._issued.items():
            for node in line:
                assert self._place[node] == place, f"node {node} is in two queues"
        assert self.complete == sum(self.done), "the count of complete nodes is wrong"
