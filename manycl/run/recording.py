"""A run of a plan as it went, to be done again without deciding anything: what is left of a prepared graph whose data
move when all is decided.

A recording has the commands of a run in the order in which they were given, and for each of them what must have been
enqueued before, or must have been heard to be complete. Both follow from the commands alone: from what they read and
write, and where. What the run happened to know already when it gave a command plays no part, so a recording can be
played whatever ends first. It can be played when the buffers that it finds are where they were when it was made.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from manycl.graph.graph import Graph, Launch
from manycl.machine import HOST, Machine
from manycl.plan.plan import Plan
from manycl.plan.problem import Problem
from manycl.run.backend import HOST_DEVICE, Command, Download, Evict, Failed, HostCall, Report, Run, Upload
from manycl.run.coherence import Directory
from manycl.run.state import where
from manycl.run.steps import Lowered
from manycl.trace import DecisionEvent

_FOUND = -1


@dataclass(frozen=True, eq=False)
class Recording:
    """``commands`` of the steps of ``lowered``; the first ``ahead`` of them are enqueued before anything else is looked
    at.

    ``waits[i]``: how many others must have been enqueued or heard of before command i is enqueued; ``frees[i]``: the
    commands that wait for it to be enqueued; ``hears``: by token that is reported, the commands that wait for that.
    ``needs``: by buffer whose contents it finds, the mask of the memories where they must be valid; ``leaves``: the
    masks afterwards, of buffers that it writes or copies.
    """

    problem: Problem
    plan: Plan
    lowered: Lowered
    queues: tuple[int, ...]
    commands: tuple[Command, ...]
    ahead: int
    waits: tuple[int, ...]
    frees: tuple[tuple[int, ...], ...]
    hears: Mapping[int, tuple[int, ...]]
    needs: Mapping[int, int]
    leaves: Mapping[int, int]

    def fits(self, directory: Directory) -> bool:
        """Whether buffers are where it needs them (while the directory is open for the steps)."""
        valid, parts = directory.valid, directory.parts
        if parts and not parts.keys().isdisjoint(self.lowered.graph.buffers):
            return False
        return all(valid.get(key, 0) == mask for key, mask in self.needs.items())


def recorded(
    problem: Problem,
    plan: Plan,
    lowered: Lowered,
    queues: Sequence[int],
    batches: Sequence[Sequence[Command]],
    before: Mapping[int, int],
    overwritten: Callable[[int, int], bool],
) -> Recording | None:
    """The recording of a run that has succeeded; None for one whose commands do not tell all: where memory is short, or
    where ranges of a kernel write the same bytes. ``batches``: the commands that were given together. ``before``: the
    masks of buffers when it began. ``overwritten``: as in :class:`manycl.run.state.RunState`."""
    commands = [c for batch in batches for c in batch]
    if lowered.room is not None or lowered.graph.notes.get("together"):
        return None
    order = _Order(lowered.graph, problem.machine, before, overwritten)
    if not all(order.add(command) for command in commands):
        return None
    return order.recording(problem, plan, lowered, tuple(queues), len(batches[0]))


class _Order:
    """What commands wait for, one after another."""

    def __init__(
        self, graph: Graph, machine: Machine, before: Mapping[int, int], overwritten: Callable[[int, int], bool]
    ) -> None:
        self._graph = graph
        self._memory = [d.memory for d in machine.devices]
        self._before = before
        self._overwritten = overwritten
        self._commands: list[Command] = []
        self._index: dict[int, int] = {}  # of a command, by its token
        self._place: dict[int, tuple[int, int]] = {}  # device and queue, by token
        self._masks: dict[int, int] = {}  # of buffers that were written or copied
        self._needs: dict[int, int] = {}
        self._made: dict[int, dict[int, int]] = {}  # by buffer and memory: the token that has made it valid there
        self._writers: dict[int, int] = {}  # by buffer, the node that was the last to write it
        self._tells: dict[int, int] = {}  # by transfer: the node that is complete when its data come or have come
        self._last: dict[tuple[int, int], int] = {}  # the last node of a queue, or of the host
        self._ordered: dict[tuple[int, int], set[int]] = {}  # what launches of a queue wait for already
        self._enqueued: list[set[int]] = []  # tokens that must have been enqueued, by command
        self._heard: list[set[int]] = []  # … that must have been heard of

    def add(self, command: Command) -> bool:
        """Whether it is understood."""
        if not isinstance(command, (Run, Upload, Download, HostCall)):
            return False
        token = command.token
        self._index[token] = len(self._commands)
        self._commands.append(command)
        self._enqueued.append(set())
        self._heard.append(set())
        if isinstance(command, HostCall):
            self._place[token] = HOST_DEVICE, 0
            return self._call(command)
        self._place[token] = command.device, command.queue
        if isinstance(command, Run):
            return self._run(command)
        memory = self._memory[command.device]
        if isinstance(command, Upload):
            understood = self._finds(command.buffer, HOST, HOST_DEVICE) is not None
            self._copied(command.buffer, memory, token)
        else:
            maker = self._finds(command.buffer, memory, command.device)
            understood = maker is not None
            self._commands[-1] = command._replace(after=() if maker in (None, _FOUND) else (maker,))
            self._copied(command.buffer, HOST, token)
        if command.buffer in self._writers:
            self._tells[token] = self._writers[command.buffer]
        return understood and command.store is None

    def _run(self, command: Run) -> bool:
        node, device, place = command.token, command.device, self._place[command.token]
        task, memory = self._graph.nodes[node], self._memory[device]
        assert isinstance(task, Launch)
        after, told = [], set()
        for key in dict.fromkeys((*task.reads, *task.writes)):
            if key not in task.reads and (key in task.overwrites or self._overwritten(node, key)):
                continue
            maker = self._finds(key, memory, device)
            if maker is None:
                return False
            if maker >= len(self._graph.nodes):
                after.append(maker)
                told.add(self._tells.get(maker))
        told.update(self._tells.get(token) for token in self._heard[-1])
        for p in self._graph.predecessors[node]:
            if self._place[p][0] != device:
                if p not in told:
                    self._heard[-1].add(p)
            elif self._place[p] != place:
                after.append(p)
        ordered = self._ordered.setdefault(place, set())
        after = [token for token in after if token not in ordered]
        ordered.update(after)
        self._enqueued[-1].update(after)
        self._behind(node)
        self._written(task.writes, memory, node)
        self._commands[-1] = command._replace(after=tuple(after))
        return True

    def _call(self, command: HostCall) -> bool:
        task = self._graph.nodes[command.token]
        found = [self._finds(key, HOST, HOST_DEVICE) for key in dict.fromkeys((*task.reads, *task.writes))]
        told = {self._tells.get(token) for token in self._heard[-1]}
        self._heard[-1].update(p for p in self._graph.predecessors[command.token] if p not in told)
        self._behind(command.token)  # what functions do beside arrays is done in their order
        self._written(task.writes, HOST, command.token)
        return None not in found

    def _behind(self, node: int) -> None:
        """A node comes after those that its queue was given before."""
        place = self._place[node]
        if place in self._last:
            self._enqueued[-1].add(self._last[place])
        self._last[place] = node

    def _finds(self, key: int, memory: int, device: int) -> int | None:
        """A command of a device reads a buffer in a memory: the token that has made it valid there, if the device can
        wait for that itself; ``_FOUND`` if it cannot, or if it was valid when the run began. None: it is not there."""
        token = self._made.get(key, {}).get(memory)
        if token is None:
            if key in self._writers:
                return None
            self._needs.setdefault(key, self._before.get(key, 0))
            return _FOUND
        if device == HOST_DEVICE or self._place[token][0] != device:
            self._heard[-1].add(token)
            return _FOUND
        self._enqueued[-1].add(token)
        return token

    def _copied(self, key: int, memory: int, token: int) -> None:
        self._masks[key] = self._masks.get(key, self._before.get(key, 0)) | 1 << memory
        self._made.setdefault(key, {})[memory] = token

    def _written(self, keys: Sequence[int], memory: int, node: int) -> None:
        for key in keys:
            self._made[key] = {memory: node}
            self._masks[key] = 1 << memory
            self._writers[key] = node

    def recording(
        self, problem: Problem, plan: Plan, lowered: Lowered, queues: tuple[int, ...], ahead: int
    ) -> Recording:
        always = [c.token for c in self._commands if isinstance(c, (Download, HostCall))]
        told = {self._tells.get(token) for token in always}
        ends = [node for node in self._last.values() if node not in told]  # of queues
        hears: dict[int, list[int]] = {token: [] for token in (*always, *ends)}
        frees: list[list[int]] = [[] for _ in self._commands]
        for i, (enqueued, heard) in enumerate(zip(self._enqueued, self._heard, strict=True)):
            for token in enqueued:
                frees[self._index[token]].append(i)
            for token in heard:
                hears.setdefault(token, []).append(i)
        commands = [c._replace(notify=c.token in hears) if isinstance(c, (Run, Upload)) else c for c in self._commands]
        return Recording(
            problem=problem,
            plan=plan,
            lowered=lowered,
            queues=queues,
            commands=tuple(commands),
            ahead=ahead,
            waits=tuple(len(e) + len(h) for e, h in zip(self._enqueued, self._heard, strict=True)),
            frees=tuple(map(tuple, frees)),
            hears={token: tuple(waiting) for token, waiting in hears.items()},
            needs=self._needs,
            leaves=self._masks,
        )


class Playback:
    """The state of a run that follows a recording: reports in, commands out. The directory is brought up to date when
    all is complete; of a run that fails, what it would have written is lost."""

    def __init__(self, recording: Recording, directory: Directory) -> None:
        self.graph = recording.lowered.graph
        self.queues = recording.queues
        self.decisions: list[DecisionEvent] = []
        self.failed: Failed | None = None
        self.complete = 0
        self._recording = recording
        self._directory = directory
        self._waits = list(recording.waits)
        self._ready = [i for i, n in enumerate(recording.waits) if not n]  # a heap
        self._reports = len(recording.hears)  # that are to come

    @property
    def finished(self) -> bool:
        return not self._reports

    def start(self, now: float) -> list[Command]:
        return self._released(self._recording.ahead)

    def handle(self, *reports: Report) -> list[Command]:
        waits, ready, hears = self._waits, self._ready, self._recording.hears
        for report in reports:
            if isinstance(report, Failed):
                self.failed = self.failed or report
            waiting = hears.get(report.token)
            if waiting is None:
                continue
            self._reports -= 1
            self.complete += report.token < len(self.graph.nodes)
            for i in waiting:
                waits[i] -= 1
                if not waits[i]:
                    heappush(ready, i)
        if self.failed is not None:
            return []
        if not self._reports:
            self.complete = len(self.graph.nodes)
            self._directory.valid.update(self._recording.leaves)
        return self._released(len(waits))

    def _released(self, end: int) -> list[Command]:
        """The commands that wait for nothing any more, up to one."""
        waits, ready, commands, frees = self._waits, self._ready, self._recording.commands, self._recording.frees
        out: list[Command] = []
        while ready and ready[0] < end:
            index = heappop(ready)
            out.append(commands[index])
            for i in frees[index]:
                waits[i] -= 1
                if not waits[i]:
                    heappush(ready, i)
        return out

    def fail(self, failure: Failed) -> None:
        """A launch turned out to have failed after all was over."""
        self.failed = failure

    def where(self, token: int, node: int) -> tuple[int, int | None, str]:
        """As :meth:`manycl.run.state.RunState.where`."""
        command = next(c for c in self._recording.commands if not isinstance(c, Evict) and c.token == token)
        device = HOST_DEVICE if isinstance(command, HostCall) else command.device
        return where(self.graph, device, token, node)

    def unfinished_copies(self) -> list[tuple[int, int]]:
        """None: the directory knows of no copies of this run."""
        return []

    def unfinished_writes(self) -> set[int]:
        """Buffers whose contents a failure leaves unknown."""
        return {key for task in self.graph.nodes for key in task.writes}

    def validate(self) -> None:
        """Assert the invariants; used by tests and at debug level 4."""
        assert min(self._waits, default=0) >= 0, "a command was freed twice"

    def close(self) -> None:
        """The run has ended, well or not."""
