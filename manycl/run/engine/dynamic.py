"""Playback for a policy that decides at run time: each decision is compiled into commands at once and played. Pure."""

from __future__ import annotations

from collections import ChainMap, defaultdict, deque
from collections.abc import Collection, Sequence, Set
from dataclasses import replace
from heapq import heappush

from manycl.machine import DeviceIndex
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policy import DynamicPolicy
from manycl.run.commands.backend import Command, Copy, Evict, Failed, HostCall, Lane, Report
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.commands.compiler import emitting
from manycl.run.commands.emit import Emitter
from manycl.run.commands.transfers import Subject
from manycl.run.data.coherence import Directory
from manycl.run.engine.assign import Ask, Assigned, Assigner
from manycl.run.engine.playback import Changed, Playback, leave

Incomplete = tuple[int, tuple[int, ...], Collection[int]]
"""A command that is not known to be complete: its token, the nodes that it runs, and those that it depends on."""


class Dynamic(Playback):
    """Playback of a command graph that grows while it runs. ``asks_at_transfers``: the assigner is asked also when a
    transfer has ended, and no node has."""

    asks_at_transfers = True

    def __init__(
        self, subject: Subject, assigner: Assigner, emitter: Emitter, directory: Directory, done: Set[int] = frozenset()
    ) -> None:
        self._assigner, self._emitter = assigner, emitter
        self._names = tuple(d.name for d in subject.problem.machine.devices)
        super().__init__(emitter.command_graph(Plan((), "", self._names, 0.0)), directory)
        self.decisions = self._assigner.decisions
        self._commands, self._held, self._lanes = emitter.commands, emitter.held, emitter.lanes
        self._frees: dict[int, list[int]] = {}
        self._hears: dict[int, list[int]] = {}
        # by queue, the commands that run nodes and are not known to be complete
        self._lines: defaultdict[Lane | None, deque[Incomplete]] = defaultdict(deque)
        self._complete: set[int] = set(done)
        self._coming: dict[int, DeviceIndex] = {}  # by token of a prefetching transfer, its device
        self._moving: set[int] = set()  # tokens of transfers that will be reported
        self._moved: set[int] = set()  # tokens of transfers that were
        self._done = done
        self._count = len(self.graph.nodes)
        self._undecided = self._count - len(done)  # nodes whose device is not decided yet
        self._far: Sequence[DeviceIndex] = ()  # devices to which data are prefetched
        self._valid = ChainMap(self._emitter.masks, directory.valid)

    @staticmethod
    def of(subject: Subject, policy: DynamicPolicy, directory: Directory) -> Dynamic:
        """Return the playback of what a dynamic policy decides."""
        problem, lowered = subject.problem, subject.lowered

        def fits(step: int, device: DeviceIndex) -> bool:
            """Return whether a device can hold a step's whole buffers, whichever pieces it touches."""
            return problem.fits(lowered.step(step).node, device)

        assigner = Ask(replace(problem, graph=lowered.graph), policy, directory.valid, fits)
        return Dynamic(subject, assigner, emitting(subject, assigner.queues, None), directory)

    def written(self) -> CommandGraph:
        return self._emitter.command_graph(self.plan(""))

    @property
    def is_fixed(self) -> bool:
        return False

    @property
    def finished(self) -> bool:
        return len(self._complete) == self._count and not self._moving

    @property
    def complete(self) -> int:
        return len(self._complete)

    @property
    def done(self) -> Set[int]:
        return self._done

    def is_free(self, device: DeviceIndex) -> bool:
        moving = (self._emitter.command(token) for token in self._moving)
        return not any(line for lane, line in self._lines.items() if lane and lane[0] == device) and all(
            isinstance(c, (HostCall, Evict)) or c.device != device for c in moving
        )

    def start(self, now: float) -> list[Command]:
        self._add(self._assigner.start(now))
        return self._released()

    def handle(self, *reports: Report) -> list[Command]:
        for report in reports:
            if isinstance(report, Failed):
                self.failed = self.failed or report
            if self.failed is not None:
                return []
            token = self._counts(report.token)
            if token >= 0:
                self._heard.append(token)
            if token < self._count:
                ended = self._end(token)
            else:  # a transfer
                self._moved.add(token)
                self._moving.discard(token)
                if token in self._coming:
                    self._came(token, report.time)
                node = self._emitter.told_by(token)
                ended = [] if node is None else self._end(node)
            if self._hears:  # a node's end may be known by the report of a later node of its queue
                for told in {token, *ended}:
                    for i in self._hears.pop(told, ()):
                        self._free(i)
            if ended or self.asks_at_transfers:
                self._add(self._assigner.completed(ended, report.time, self._valid))
        if not self._undecided and self.finished:
            leave(self._emitter.leaves(), self.directory)
        return self._released()

    def _counts(self, token: int) -> int:
        """Return the token of a command that was reported; a negative number if its results do not count."""
        return token

    def _came(self, token: int, now: float) -> None:
        """Note that a prefetching transfer has ended."""
        raise NotImplementedError

    def _prefetch(self) -> None:
        """Emit prefetching transfers."""
        raise NotImplementedError

    def _end(self, node: int) -> list[int]:
        """Return the nodes that are known to be complete when one is: what its queue was given before, and whatever any
        of these depends on; for packets, their tokens."""
        complete = self._complete
        ended: list[int] = []
        pending = [node]
        for last in pending:  # (it grows meanwhile)
            while last not in complete:
                token, nodes, before = self._lines[self._lanes[last]].popleft()
                ended.append(token)
                complete.update(nodes)
                pending += before
        ended.sort()
        return ended

    def _add(self, assigned: Sequence[Assigned]) -> None:
        """Compile the assignments that were decided, and queue the commands."""
        emitter, commands = self._emitter, self._commands
        first = len(commands)
        unwatched: list[int] = []
        if emitter.far:  # in one memory nothing is transferred ahead
            for a in assigned:
                emitter.give((a.device, a.queue), a.chunks or (a.node,))
        for token, device, queue, watched, seconds, nodes, task, launch in assigned:
            if task is not None and launch is not None:
                before = emitter.take(token, device, queue, nodes, task, launch)
            else:
                nodes, before = (token,), self.graph.predecessors[token]
                emitter.add(Assignment(token, device, queue, 0.0, seconds), watched)
                self._issued.append(Assignment(token, device, queue, 0.0, 0.0))
                if not watched:
                    unwatched.append(token)
            self._lines[self._lanes[token]].append((token, nodes, before))
            self._undecided -= len(nodes)
        for token in unwatched:
            if self._lines[self._lanes[token]][-1][0] == token:  # the last one of its queue
                emitter.watch(token, first)
        if assigned and not self._undecided:
            emitter.finish()
        if self._far:
            self._prefetch()
        for index in range(first, len(commands)):
            command = commands[index]
            if isinstance(command, Copy) and not command.is_upload:
                self._moving.add(command.token)
            if index in self._held:
                self._hold(index, first)
            else:
                heappush(self._ready, index)

    def _hold(self, index: int, first: int) -> None:
        """Hold back a command until the commands that it waits for are enqueued or reported. It is one of those from
        index ``first`` on, which were emitted just now."""
        emitter = self._emitter
        behind = [b for b in emitter.enqueued.get(index, ()) if b in emitter.held]
        told = [t for t in emitter.heard.get(index, ()) if not self._is_heard(t)]
        for b in behind:
            self._frees.setdefault(b, []).append(index)
        for token in told:
            self._hears.setdefault(token, []).append(index)
            emitter.watch(token, first)
        self._waits[index] = len(behind) + len(told)
        if not self._waits[index]:
            heappush(self._ready, index)

    def _is_heard(self, token: int) -> bool:
        """Return whether a command is known to be complete."""
        return token in (self._complete if token < self._count else self._moved)

    def react(self, events: Sequence[Changed], now: float) -> list[Command]:
        for device, comes, factor, _ in events:
            if factor:
                self._assigner.slow(device)
            elif comes:
                self._assigner.come(device, now)
            else:
                self._assigner.leave(device)
        self._is_disturbed = True
        self._add(self._assigner.completed([], now, self._valid))
        return self._released()

    def _free(self, index: int) -> None:
        self._waits[index] -= 1
        if not self._waits[index]:
            heappush(self._ready, index)

    def _was_given(self) -> set[int]:
        return set(self._freed)

    def fail(self, failure: Failed) -> None:
        super().fail(failure)
        index = self.command_graph.index
        last = index[failure.token]
        self._complete = {n for n in self._complete if n in self._done or index.get(n, last) < last}

    def plan(self, name: str) -> Plan:
        """Return what was decided as a plan, so that it can run again without asking the policy."""
        return Plan(tuple(self._issued), name, self._names, 0.0)

    def held_up(self) -> str:
        commands = [self._emitter.commands[i] for i, n in self._waits.items() if n]
        waiting = [n for n in range(len(self.graph)) if self._lanes[n] is None]
        return (
            f"{len(self._complete)} of {len(self.graph)} nodes are complete; nobody has decided who runs {waiting[:5]};"
            f" {len(commands)} commands were not enqueued, first {commands[:1]}"
        )

    def validate(self) -> None:
        super().validate()
        waiting = {i for i, n in self._waits.items() if n}
        assert waiting.isdisjoint(self._freed), "a command was given that waits"
        assert len(self._freed) == len(set(self._freed)), "a command was given twice"
