"""A run of a plan as it went, to be done again without deciding anything: what is left of a prepared graph whose data
move when all is decided.

A recording has the commands of a run in the order in which they were given, and for each of them what must have been
enqueued before, or must have been heard to be complete. Both follow from the commands alone: from what they read and
write, and where. What the run happened to know already when it gave a command plays no part, so a recording can be
played whatever ends first. It can be played when the buffers that it finds are where they were when it was made.
Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from manycl.graph.graph import Piece
from manycl.machine import HOST
from manycl.plan.plan import Plan
from manycl.plan.problem import Problem
from manycl.run.backend import HOST_DEVICE, Command, Done, Download, Evict, Failed, HostCall, Report
from manycl.run.coherence import Directory
from manycl.run.state import RunState, where
from manycl.run.steps import Lowered
from manycl.trace import DecisionEvent


@dataclass(frozen=True, eq=False)
class Recording:
    """``commands`` of the steps of ``lowered``; the first ``ahead`` of them are enqueued before anything else is looked
    at.

    ``waits[i]``: how many others must have been enqueued or heard of before command i is enqueued; ``frees[i]``: the
    commands that wait for it to be enqueued; ``hears``: by token that is reported, the commands that wait for that.
    ``needs``: by buffer whose contents it finds, the mask of the memories where they must be valid; ``leaves``: the
    masks afterwards, of buffers that it writes or copies. ``held``: by device whose memory is short, the stores that
    are there when it begins.
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
    held: Mapping[int, frozenset[int]]

    def fits(self, directory: Directory) -> bool:
        """Whether buffers are where it needs them (while the directory is open for the steps)."""
        valid, parts = directory.valid, directory.parts
        if parts and not parts.keys().isdisjoint(self.lowered.graph.buffers):
            return False
        return all(valid.get(key, 0) == mask for key, mask in self.needs.items())


class Beginning(NamedTuple):
    """Where buffers were when a run began: masks by buffer; by device whose memory is short, its stores."""

    masks: Mapping[int, int]
    held: Mapping[int, frozenset[int]]


def beginning(state: RunState, directory: Directory) -> Beginning:
    """Of a run that is to be recorded."""
    masks = {key: directory.valid.get(key, 0) for key in state.graph.buffers}
    return Beginning(masks, {device: frozenset(state.held(device)) for device in state.limited})


class Playback:
    """The state of a run that follows a recording: reports in, commands out. The directory is brought up to date when
    all is complete; of a run that fails, what it would have written is lost, and copies that made way for others are
    gone. What came to the host before they did is noted at once."""

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
        self._evicted: list[Evict] = []
        written = {key for task in self.graph.nodes for key in task.writes} if recording.held else set()
        # where copies make way: of transfers to the host, what they bring and the run does not change
        self._comes_home = {
            c.token: c.buffer
            for c in (recording.commands if recording.held else ())
            if isinstance(c, Download) and c.buffer not in written and c.buffer in recording.needs
        }

    @property
    def finished(self) -> bool:
        return not self._reports

    @property
    def limited(self) -> Collection[int]:
        """As :meth:`manycl.run.state.RunState.limited`."""
        return self._recording.held.keys()

    @property
    def buffers(self) -> Set[int]:
        """As :meth:`manycl.run.state.RunState.buffers`."""
        return {b.whole if isinstance(b, Piece) else key for key, b in self.graph.buffers.items()}

    def held(self, device: int) -> Set[int]:
        """As :meth:`manycl.run.state.RunState.held`."""
        return self._recording.held[device]

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
            if report.token in self._comes_home and isinstance(report, Done):
                self._directory.copied(self._comes_home[report.token], HOST)
            for i in waiting:
                waits[i] -= 1
                if not waits[i]:
                    heappush(ready, i)
        if self.failed is not None:
            return []
        if not self._reports:
            self.complete = len(self.graph.nodes)
            valid = self._directory.valid
            for key, mask in self._recording.leaves.items():
                if mask:
                    valid[key] = mask
                else:
                    valid.pop(key, None)
        return self._released(len(waits))

    def _released(self, end: int) -> list[Command]:
        """The commands that wait for nothing any more, up to one."""
        waits, ready, commands, frees = self._waits, self._ready, self._recording.commands, self._recording.frees
        out: list[Command] = []
        while ready and ready[0] < end:
            index = heappop(ready)
            command = commands[index]
            out.append(command)
            if type(command) is Evict:
                self._evicted.append(command)
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

    def held_up(self) -> str:
        """As :meth:`manycl.run.state.RunState.held_up`."""
        held = [self._recording.commands[i] for i, n in enumerate(self._waits) if n]
        return f"{len(held)} commands of a recording were not enqueued, first {held[:1]}"

    def unfinished_copies(self) -> list[tuple[int, int]]:
        """(buffer, memory) that the directory counts as valid though the copy has made way; there is another one."""
        return [(key, memory) for key, memory, is_only in self._gone() if not is_only]

    def unfinished_writes(self) -> set[int]:
        """Buffers whose contents a failure leaves unknown: what the run writes, and what was nowhere but in a copy that
        has made way."""
        written = {key for task in self.graph.nodes for key in task.writes}
        return written | {key for key, _, is_only in self._gone() if is_only}

    def _gone(self) -> Iterator[tuple[int, int, bool]]:
        """(buffer, memory, whether it is valid nowhere else) of copies that have made way and were there before."""
        devices, valid = self._recording.problem.machine.devices, self._directory.valid
        for device, store in dict.fromkeys(self._evicted):
            bit = 1 << devices[device].memory
            for key, buffer in self.graph.buffers.items():
                whole = buffer.whole if isinstance(buffer, Piece) else key
                if whole == store and (mask := valid.get(key, 0)) & bit:
                    yield key, devices[device].memory, mask == bit

    def validate(self) -> None:
        """Assert the invariants; used by tests and at debug level 4."""
        assert min(self._waits, default=0) >= 0, "a command was freed twice"

    def close(self) -> None:
        """The run has ended, well or not."""
