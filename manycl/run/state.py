"""The engine's mind: a pure state machine. Reports in, commands out; it knows no threads, no devices and no clock.

A node may be enqueued as soon as each predecessor is complete or was enqueued on the same device (whose queues order
them), and each of its buffers is valid in the device's memory or a transfer that makes it so is under way there. So a
static plan is enqueued far ahead, and only dependences between devices wait for a report.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Set
from itertools import islice

from manycl.errors import GraphError
from manycl.graph.graph import Graph, Launch
from manycl.machine import HOST
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policy import DynamicPolicy, StaticPolicy
from manycl.plan.problem import Problem
from manycl.run.assign import Assigned, Assigner, assigner
from manycl.run.backend import (
    HOST_DEVICE,
    Command,
    Failed,
    HostCall,
    Report,
    Run,
)
from manycl.run.coherence import HOST_BIT, Directory
from manycl.run.pace import Pace
from manycl.run.transfers import LOOK_AHEAD, NOT_ISSUED, SMALL, Transfers
from manycl.trace import DecisionEvent


def nothing_overwritten(node: int, key: int) -> bool:
    """What is known of graphs whose kernels nobody has looked at."""
    return False


def where(graph: Graph, device: int, token: int, node: int) -> tuple[int, int | None, str]:
    """As :meth:`RunState.where`, of a command whose device is known."""
    if token >= len(graph.nodes):
        return device, None, "a transfer"
    task = graph.nodes[token]
    if not isinstance(task, Launch):
        return device, token, f"host function {task.name} (node {node})"
    alias = "" if task.name == task.kernel.name else f"{task.name}, "
    return device, token, f"kernel {task.kernel.name} ({alias}node {node})"


class RunState(Transfers):
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
        super().__init__(problem.graph, problem.machine, directory, overwritten)
        self.failed: Failed | None = None
        self.complete = 0
        self.issued: list[Assignment] = []  # in the order of enqueueing
        self.assigner: Assigner = assigner(problem, policy, directory.valid)
        self.queues = self.assigner.queues
        self._blocked: dict[tuple[int, int], int] = {}  # a node of another device that a queue's head waits for
        self._crossing: set[int] = set()  # nodes with successors on other devices
        self._looked: dict[tuple[int, int], int] = {}  # nodes of a queue that are still to come and were looked at
        self._issued: dict[tuple[int, int], deque[int]] = {}
        self._place: dict[int, tuple[int, int]] = {}
        self._pace = Pace()
        self._spoilt: set[int] = set()  # nodes that may have run without what they read

    @property
    def finished(self) -> bool:
        return self.complete == len(self.graph.nodes)

    @property
    def limited(self) -> Collection[int]:
        """The devices whose room is limited: none, here."""
        return ()

    @property
    def buffers(self) -> Set[int]:
        """The run's buffers, as they are without being cut; asked only where room is limited."""
        return frozenset()

    def held(self, device: int) -> Set[int]:
        """The stores that a device whose room is limited is counted to hold."""
        return frozenset()

    @property
    def decisions(self) -> list[DecisionEvent]:
        """Of the policy, while it ran."""
        return self.assigner.decisions

    def start(self, now: float) -> list[Command]:
        """The first commands: where devices have memories of their own, the large transfers, and those that are due
        before one of them, so that links are at work while all else is thought of (``handle()``)."""
        commands: list[Command] = []
        self._accept(self.assigner.start(now))
        if self._far:
            lines = [(line, self._until_large(line)) for place, line in self._waiting.items() if place[0] >= 0]
            for turn in range(LOOK_AHEAD):  # all links begin
                for line, until in lines:
                    if turn < until:
                        self._look_ahead(islice(line, turn, turn + 1), commands, SMALL)
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
                self._send_on([*completed, report.token], commands)
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
            self._going.update((a.node, (a.device, a.queue)) for a in assigned)
        last: dict[tuple[int, int], int] = {}
        for a in assigned:
            last[a.device, a.queue] = a.node
        for a in assigned:
            node, device, queue, watched, seconds = a
            place = (device, queue)
            if not watched and last[place] == node:
                watched = True
            if not watched:
                for s in successors[node]:
                    if device_of.get(s, device) != device:
                        self._crossing.add(node)
                        break
            line = waiting.get(place)
            if line is None:
                line = waiting[place] = deque()
            line.append(Assigned(node, device, queue, True, seconds) if watched else a)

    def _issue_all(self, commands: list[Command]) -> None:
        """Enqueue whatever can be, in turns, so that all devices begin; a queue's head may free another queue's, so
        repeat until nothing moves."""
        blocked, done = self._blocked, self.done
        moved = True
        while moved:
            moved = False
            for place, line in self._waiting.items():
                if not line or (place in blocked and not done[blocked[place]]):
                    continue
                if (self._issue if place[0] >= 0 else self._call)(line[0], commands):
                    line.popleft()
                    moved = True
                    self._looked[place] = self._looked.get(place, 0) - 1
        if self._far:
            for place, line in self._waiting.items():
                if line and place[0] >= 0:
                    self._look_along(place, line, commands)

    def _look_along(self, place: tuple[int, int], line: deque[Assigned], commands: list[Command]) -> None:
        """Look at those of a queue's next nodes that were not looked at yet."""
        looked = max(0, self._looked.get(place, 0))
        if looked < min(len(line), LOOK_AHEAD):
            self._look_ahead(islice(line, looked, LOOK_AHEAD), commands)
            self._looked[place] = min(len(line), LOOK_AHEAD)

    def _issue(self, assigned: Assigned, commands: list[Command]) -> bool:
        """Enqueue a launch and the transfers it needs, or say that it must wait."""
        node, device, queue, watched, seconds = assigned
        if seconds and (device, queue) in self._pace.full:
            return False
        done, device_of, queue_of = self.done, self._device, self._queue
        after: list[int] = []
        early = -1
        for p in self._predecessors[node]:
            if not done[p]:
                if device_of[p] != device:
                    if not self._far or device_of[p] < 0:
                        return False
                    early = p
                elif queue_of[p] != queue:
                    after.append(p)
        if early >= 0:
            self._bring_early(node, device, queue, commands)
            self._blocked[device, queue] = early
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
                ready &= self._bring(key, memory, device, after, commands, queue)
        for key in writes:
            if (key in arriving or not valid.get(key, bit) & bit) and key not in task.reads:
                assert isinstance(task, Launch)
                if key in task.overwrites or (not valid.get(key, bit) & bit and self._overwritten(node, key)):
                    continue
                ready &= self._bring(key, memory, device, after, commands, queue)
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
        self._latest[device, queue] = node
        self.issued.append(Assignment(node, device, queue, 0.0, 0.0))
        leaving: list[Command] = []
        if self._far:
            heard = self._hand_over(node, device, leaving)
            watched = watched or (node in self._crossing and not heard)
        else:
            watched = watched or node in self._crossing
        if seconds:
            watched = self._pace.give(node, device, queue, seconds, watched)
        commands.append(Run(node, device, queue, after, watched))
        commands += leaving
        return True

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

    def _push(self, node: int, device: int, queue: int) -> None:
        place = (device, queue)
        line = self._issued.get(place)
        if line is None:
            line = self._issued[place] = deque()
        line.append(node)
        self._place[node] = place

    def _mark_done(self, token: int) -> list[int]:
        """The nodes that are complete now: one, and with it all that its queue held before it.

        Transfers count one by one: staged and direct ones of a device may overtake each other. With a transfer, the
        node is complete that has made what it moves.
        """
        if token >= len(self.graph.nodes):
            self._transfer_done.add(token)
            maker = self._makers.pop(token, None)
            return [] if maker is None else self._mark_done(maker)
        if token not in self._place:
            return []  # complete already, through a later command of its queue
        place = self._place[token]
        line = self._issued[place]
        self._pace.end(token, place)
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
        """A launch or transfer turned out to have failed after all was over: nothing that was reported since can be
        trusted."""
        if failure.token >= len(self.done):
            self._spoilt.update(self._enqueued_after(failure.token))
            self.failed = self.failed or failure
            return
        self.failed = failure
        self.done[failure.token :] = bytes(len(self.done) - failure.token)
        self.complete = sum(self.done)

    def _enqueued_after(self, transfer: int) -> set[int]:
        """The nodes that were enqueued after a transfer: a driver that goes on has run them without what it brings."""
        return {a.node for a in self.issued[self._issued_before[transfer] :]}

    def where(self, token: int, node: int) -> tuple[int, int | None, str]:
        """For messages: the device of a command, its token if it is a step (of node ``node``), and what it is in
        words."""
        device = self._device[token] if token < len(self.graph.nodes) else self._transfer_device[token]
        return where(self.graph, device, token, node)

    def held_up(self) -> str:
        """For messages: what has not been enqueued, by the heads of queues, and what each of them comes after."""
        said = [f"{self.complete} of {len(self.graph.nodes)} nodes are complete"]
        for (device, queue), line in self._waiting.items():
            if line:
                node = line[0].node
                before = [p for p in self._predecessors[node] if not self.done[p]]
                after = f" comes after {before}" if before else ""
                where = "the host" if device < 0 else f"device {device} queue {queue}"
                said.append(f"on {where}, node {node} ({self.graph.nodes[node].name}){after} was not enqueued")
        return "; ".join(said)

    def lose(self, reason: str) -> None:
        """After a failure: forget copies that may never have arrived, and what unfinished nodes were to write."""
        for key, memory in self.unfinished_copies():
            self.directory.drop(key, memory)
        for key in self.unfinished_writes():
            self.directory.lose(key, reason)

    def unfinished_writes(self) -> set[int]:
        """Buffers whose contents a failure leaves unknown: written by a node that was issued but is not complete, or
        that comes after the one that failed (a driver may run it all the same)."""
        failed = self.failed.token if self.failed is not None else len(self.graph.nodes)
        after = {failed, *self._spoilt}
        if self.failed is not None and failed >= len(self.graph.nodes):
            after |= self._enqueued_after(failed)
        keys: set[int] = set()
        for n, task in enumerate(self.graph.nodes):
            if n > failed and not after.isdisjoint(self._predecessors[n]):
                after.add(n)
            if self._device[n] != NOT_ISSUED and (n in after or not self.done[n]):
                keys.update(task.writes)
        return keys

    def validate(self) -> None:
        """Assert the invariants; used by tests after every transition, and at debug level 4."""
        nodes, device_of = range(len(self.graph.nodes)), self._device
        for n in nodes:
            issued = device_of[n] != NOT_ISSUED
            assert issued or not self.done[n], f"node {n} complete but never issued"
            if issued:
                for p in self._predecessors[n]:
                    assert device_of[p] != NOT_ISSUED, f"node {n} issued before its predecessor {p}"
            assert (n in self._place) == (issued and not self.done[n]), f"node {n} is in a queue, or is not, wrongly"
        in_queues = [(node, place) for place, line in self._issued.items() for node in line]
        assert len(in_queues) == len(self._place), "a node is in two queues"
        for node, place in in_queues:
            assert self._place[node] == place, f"node {node} is in two queues"
        assert len(self.issued) == len({a.node for a in self.issued}), "a node was issued twice"
        assert {a.node for a in self.issued} == {n for n in nodes if device_of[n] != NOT_ISSUED}, "issued and not noted"
        for line in self._waiting.values():
            for assigned in line:
                assert device_of[assigned.node] == NOT_ISSUED, f"node {assigned.node} was issued and waits"
        assert self.complete == sum(self.done), "the count of complete nodes is wrong"
        self.directory.validate(self._valid_in)
        for key, tokens in self._arriving.items():
            for memory, token in tokens.items():
                is_valid = self.directory.valid.get(key, 0) >> memory & 1
                assert is_valid or key in self._together, f"buffer {key} arrives in {memory}, but is not valid there"
                assert token < self._next_token, f"transfer {token} was never given"
        for token in self._transfer_done:
            assert token in self._transfer_device, f"transfer {token} complete but never given"

    @property
    def _valid_in(self) -> int:
        """How many places there are in which a buffer may be valid."""
        return 1 + max((HOST, *self._memory))
