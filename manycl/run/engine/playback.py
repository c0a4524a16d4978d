"""Playback of a command graph: reports in, commands out. Pure. The directory is brought up to date when all is
complete. Where a run does not get there, what is known to be complete counts, and the contents of whatever else it has
begun to write are unknown."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from enum import Enum
from heapq import heappop, heappush
from typing import NamedTuple

from manycl.graph.graph import BufferKey, Graph, HostTask, Launch, Piece
from manycl.machine import DeviceIndex
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.run.commands.backend import Command, EndsEarly, Evict, Failed, HostCall, Report, Run, Shorten, lane_of
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.data.coherence import Directory
from manycl.run.lowering.steps import Lowered
from manycl.run.recovery.history import CommandHistory, Stopped, ended, unsound
from manycl.trace import DecisionEvent


class State(Enum):
    """The state of an instruction. Held: not given to its device yet. Issued: given, so that it cannot be taken back.
    Done: known to be complete. Cancelled: never given, as the run has ended without it."""

    HELD = "held"
    ISSUED = "issued"
    DONE = "done"
    CANCELLED = "cancelled"


class Changed(NamedTuple):
    """A change of a device: it comes, or leaves, or takes ``factor`` times as long as was measured (0: that has not
    changed). ``returns``: a device that leaves will come again."""

    device: DeviceIndex
    comes: bool
    factor: float = 0.0
    returns: bool = False


class Playback:
    """The state of a run that follows a command graph. ``full``: devices whose memory has no room for all of the run
    beside what they hold. ``frozen``: those that are given no more launches, as the run will be stopped."""

    def __init__(self, command_graph: CommandGraph, directory: Directory) -> None:
        self.command_graph = command_graph
        self.graph = command_graph.lowered.graph
        self.queues = command_graph.queues
        self.decisions: list[DecisionEvent] = []
        self._issued: list[Assignment] = []
        self.failed: Failed | None = None
        self.full: Set[DeviceIndex] = frozenset()
        self.frozen: Collection[DeviceIndex] = ()
        self._is_over = False  # the run ended before it was complete
        self._is_disturbed = False
        self.directory = directory
        self._commands: Sequence[Command] = command_graph.commands
        self._frees = command_graph.frees
        self._waits = dict(command_graph.waits)
        self._ready: list[int] = []  # a heap
        self._reports = len(command_graph.hears)  # the number that is still to come
        self._heard: list[int] = []  # tokens that are complete
        self._begun = 0  # how many of the two lots of ``begins`` are given
        self._freed: list[int] = []  # indices of commands that waited and are given
        self._held: set[int] = set()  # of a graph that grows, indices of commands that are not given yet

    @property
    def finished(self) -> bool:
        return not self._reports

    @property
    def complete(self) -> int:
        """The number of nodes that are known to be complete."""
        if not self._reports:
            return len(self.graph.nodes)
        return sum(isinstance(c, (Run, HostCall)) and is_complete for c, is_complete in self.given)

    @property
    def done(self) -> Set[int]:
        """The steps that had run before, where this run resumes another one."""
        return frozenset()

    @property
    def found(self) -> Mapping[BufferKey, int]:
        """The masks of the memories where the run has found buffers. Buffers that it has overwritten may be unknown."""
        valid, command_graph = self.directory.valid, self.written()
        overwritten = dict.fromkeys(command_graph.leaves, 0) if self.finished else {}
        return {key: mask for key, mask in {**valid, **overwritten, **command_graph.needs}.items() if mask}

    @property
    def is_paused(self) -> bool:
        """True if nothing more is given to devices until one of them comes."""
        return False

    @property
    def is_fixed(self) -> bool:
        """True if all is decided before the run begins."""
        return True

    @property
    def issued(self) -> Sequence[Assignment]:
        """The assignments that were decided while the run went on."""
        return self._issued

    @property
    def to_come(self) -> list[Command]:
        """The commands that are decided and not enqueued yet."""
        given = self._was_given()
        return [command for index, command in enumerate(self._commands) if index not in given]

    def is_free(self, device: DeviceIndex) -> bool:
        """Return whether a device is known to have ended all that it was given."""
        return all(
            is_complete or isinstance(c, (HostCall, Evict)) or c.device != device for c, is_complete in self.given
        )

    @property
    def ran(self) -> Lowered:
        """The steps as they have run."""
        return self.command_graph.lowered

    @property
    def stolen(self) -> Mapping[str, float]:
        """The part of each kernel's work-groups, by name, that ran elsewhere than planned, where shares could move."""
        return {}

    def settled(self, plan: Plan | None) -> Plan | None:
        """Return a plan that was followed in the form in which it can be followed again without decisions."""
        return plan

    @property
    def limited(self) -> Collection[DeviceIndex]:
        """The devices whose room is limited."""
        return self.command_graph.held.keys()

    @property
    def buffers(self) -> Set[int]:
        """The run's buffers, whole."""
        return {b.whole if isinstance(b, Piece) else key for key, b in self.graph.buffers.items()}

    def held(self, device: DeviceIndex) -> Set[int]:
        """Return the stores that a device with limited room holds at the beginning."""
        return self.command_graph.held[device]

    def shortening(self) -> Sequence[Shorten]:
        """Return the given launches that are to end early; each is returned once."""
        return ()

    def shortened(self, command: Shorten, found: EndsEarly | None, now: float) -> list[Command]:
        """Return the commands that may be enqueued as a launch ends early, if it does."""
        raise NotImplementedError

    @property
    def alarm(self) -> float | None:
        """The time at which ``late`` is to be called, if nothing is reported before."""
        return None

    def late(self, now: float) -> list[Command]:
        """Return the commands to enqueue as what should have been reported by now was not."""
        return []

    def start(self, now: float) -> list[Command]:
        return self._given(0) or self._given(1)

    def handle(self, *reports: Report) -> list[Command]:
        waits, ready, hears = self._waits, self._ready, self.command_graph.hears
        for report in reports:
            if isinstance(report, Failed):
                self.failed = self.failed or report
                continue
            self._heard.append(report.token)
            waiting = hears.get(report.token)
            if waiting is None:
                continue
            self._reports -= 1
            for i in waiting:
                waits[i] -= 1
                if not waits[i]:
                    heappush(ready, i)
        if self.failed is not None:
            return []
        if not self._reports:
            leave(self.command_graph.leaves, self.directory)
        return (self._given(1) if self._begun < 2 else []) + self._released()

    def end(self) -> None:
        """Note that all commands were given and are complete, without a report of each."""
        self._begun, self._reports = 2, 0
        leave(self.command_graph.leaves, self.directory)

    def _given(self, lot: int) -> list[Command]:
        """Return the commands of the first or the second lot that wait for nothing."""
        self._begun = lot + 1
        commands, command_graph = self.command_graph.commands, self.command_graph
        if not command_graph.waits and not command_graph.ahead:
            found = list(commands) if lot else []
        else:
            found = [commands[i] for i in command_graph.begins[lot]]
        return found

    def _released(self) -> list[Command]:
        """Return the commands that have nothing left to wait for."""
        ready, commands, freed = self._ready, self._commands, self._freed
        out: list[Command] = []
        while ready:
            index = heappop(ready)
            command = commands[index]
            if self.frozen and isinstance(command, Run) and command.device in self.frozen:
                continue  # it is not given, and so is decided anew
            out.append(command)
            freed.append(index)
            if index in self._waits:  # it was held back, and others may be so behind it
                waits = self._waits
                self._held.discard(index)
                for i in self._frees.get(index, ()):
                    waits[i] -= 1
                    if not waits[i]:
                        heappush(ready, i)
        return out

    def react(self, events: Sequence[Changed], now: float) -> list[Command] | None:
        """Return the commands to enqueue when devices have left or come. Return None if the run is to be stopped and
        its rest decided anew: here, where a device has left that is still to be given something."""
        gone = {event.device for event in events if not (event.comes or event.factor)}
        has_left = any(not isinstance(c, HostCall) and c.device in gone for c in self.to_come) if gone else False
        return None if has_left else []

    def unsound(self, failures: Sequence[Failed]) -> set[int]:
        """Return the tokens of commands that have failed, or that may have read what failed commands were to write."""
        return unsound(self.written(), self._was_given(), failures)

    @property
    def given(self) -> list[tuple[Command, bool]]:
        """The commands that were enqueued, in their order, and whether they are known to be complete."""
        command_graph = self.written()
        until, told = ended(command_graph, self._heard), set(self._heard)
        out: list[tuple[Command, bool]] = []
        for index in sorted(self._was_given()):
            command = command_graph.commands[index]
            if isinstance(command, (Run, HostCall)):
                out.append((command, index <= until.get(lane_of(command), -1)))
            else:
                out.append((command, isinstance(command, Evict) or command.token in told))
        return out

    def fail(self, failure: Failed) -> None:
        """Note a launch or transfer that is found to have failed after all was over: no report is trusted."""
        self.command_graph = self.written()
        self.failed = failure
        self._heard = [t for t in self._heard if self.command_graph.index[t] < self.command_graph.index[failure.token]]
        self._reports = max(1, self._reports)

    def plan(self, name: str) -> Plan:
        """Return the plan that was followed. ``name``: the policy's."""
        return self.command_graph.plan

    def where(self, token: int, node: int) -> tuple[DeviceIndex, int | None, str]:
        """Return what :func:`where` returns, for any command."""
        command_graph = self.written()
        command = command_graph.commands[command_graph.index[token]]
        device = ON_HOST if isinstance(command, (HostCall, Evict)) else command.device
        return where(self.graph, device, token, node)

    def written(self) -> CommandGraph:
        """Return the command graph, as far as it is known."""
        return self.command_graph

    def state(self, token: int) -> State:
        """Return the state of the instruction with a token."""
        if self.finished:
            return State.DONE
        command = self.written().commands[self.written().index[token]]
        known = next((is_complete for c, is_complete in self.given if c is command), None)
        if known is None:
            return State.HELD if self.failed is None and not self._is_over else State.CANCELLED
        return State.DONE if known else State.ISSUED

    def held_up(self) -> str:
        """Return, for messages, what has not been given to any device yet."""
        held = [self.command_graph.commands[i] for i, n in self._waits.items() if n]
        return f"{len(held)} commands of a command graph were not enqueued, first {held[:1]}"

    def history(self, stopped: Stopped) -> CommandHistory:
        """Return the history of the commands that were enqueued, as far as it is known now that the run has stopped."""
        history = CommandHistory(self.command_graph.problem.machine, self.command_graph.lowered, self.found, self.done)
        for command, is_complete in stopped.judged(self.given):
            history.add(command, is_complete)
        history.lose(stopped.lost)
        return history

    def lose(self, reason: str) -> list[BufferKey]:
        """Record in the directory, for a run that has not come to its end, where contents are, or unknown. Return the
        keys of buffers, or pieces, whose contents are unknown now."""
        self.command_graph = self.written()
        self._is_over = True
        failures = [self.failed] if self.failed is not None else []
        masks, unknown = self.history(Stopped(unsound=self.unsound(failures))).contents()
        leave({key: masks[key] for key in self.command_graph.leaves}, self.directory)
        for key in unknown.intersection(self.command_graph.leaves):
            self.directory.lose(key, reason)
        return [key for key in self.command_graph.leaves if key in self.directory.lost]

    def _was_given(self) -> set[int]:
        """Return the indices of the commands that were enqueued."""
        return {*self._freed, *(i for lot in self.command_graph.begins[: self._begun] for i in lot)}

    def validate(self) -> None:
        """Assert the invariants; used by tests and at debug level 4."""
        assert min(self._waits.values(), default=0) >= 0, "a command was freed twice"


def leave(leaves: Mapping[BufferKey, int], directory: Directory) -> None:
    """Record in the directory where buffers are at the end of a run."""
    valid = directory.valid
    if all(leaves.values()):  # as nearly always
        valid.update(leaves)
        return
    for key, mask in leaves.items():
        if mask:
            valid[key] = mask
        else:
            valid.pop(key, None)


def where(graph: Graph, device: DeviceIndex, token: int, node: int) -> tuple[DeviceIndex, int | None, str]:
    """Return, for messages, the device of a command, its token if it is a step (of node ``node``), and a
    description."""
    if token >= len(graph.nodes):
        return device, None, "a transfer"
    task = graph.nodes[token]
    if isinstance(task, HostTask):
        return device, token, f"host function {task.name} (node {node})"
    if not isinstance(task, Launch):
        alias = "" if task.name == task.function else f" {task.name}"
        return device, token, f"{task.function}{alias} (node {node})"
    alias = "" if task.name == task.kernel.name else f"{task.name}, "
    return device, token, f"kernel {task.kernel.name} ({alias}node {node})"
