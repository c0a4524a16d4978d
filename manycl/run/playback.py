"""Who plays a script: reports in, commands out. Pure.

The directory is brought up to date when all is complete. Of a run that does not get there, what is known to be complete
counts, and the contents of what else it has begun to write are unknown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Set
from heapq import heappop, heappush

from manycl.graph.graph import Piece
from manycl.machine import HOST
from manycl.run.backend import HOST_DEVICE, Command, Copy, Done, Download, Evict, Failed, HostCall, Report, Run, Upload
from manycl.run.coherence import Directory
from manycl.run.script import Script
from manycl.run.state import where
from manycl.trace import DecisionEvent


class Playback:
    """The state of a run that follows a script. Where copies make way for others, what came to the host before they
    did is noted at once."""

    def __init__(self, script: Script, directory: Directory) -> None:
        self.script = script
        self.graph = script.lowered.graph
        self.queues = script.queues
        self.decisions: list[DecisionEvent] = []
        self.failed: Failed | None = None
        self._directory = directory
        self._waits = dict(script.waits)
        self._ready: list[int] = []  # a heap
        self._reports = len(script.hears)  # that are to come
        self._heard: list[int] = []  # tokens that are complete
        self._begun = 0  # how many of the two lots that wait for nothing are given
        self._freed: list[int] = []  # commands that waited, and are given
        self._evicted: list[Evict] = []
        self._comes_home = _coming_home(script)

    @property
    def finished(self) -> bool:
        return not self._reports

    @property
    def complete(self) -> int:
        """How many nodes are known to be."""
        if not self._reports:
            return len(self.graph.nodes)
        return sum(bisect_right(self.script.lines[place], last) for place, last in self._done().items())

    @property
    def limited(self) -> Collection[int]:
        """As :meth:`manycl.run.state.RunState.limited`."""
        return self.script.held.keys()

    @property
    def buffers(self) -> Set[int]:
        """As :meth:`manycl.run.state.RunState.buffers`."""
        return {b.whole if isinstance(b, Piece) else key for key, b in self.graph.buffers.items()}

    def held(self, device: int) -> Set[int]:
        """As :meth:`manycl.run.state.RunState.held`."""
        return self.script.held[device]

    def start(self, now: float) -> list[Command]:
        return self._given(0) or self._given(1)

    def handle(self, *reports: Report) -> list[Command]:
        waits, ready, hears = self._waits, self._ready, self.script.hears
        for report in reports:
            if isinstance(report, Failed):
                self.failed = self.failed or report
                continue
            self._heard.append(report.token)
            waiting = hears.get(report.token)
            if waiting is None:
                continue
            self._reports -= 1
            if report.token in self._comes_home and isinstance(report, Done):
                self._directory.copied(self._comes_home[report.token], HOST)
            for i in waiting:
                waits[i] -= 1
                if not waits[i]:
                    heappush(ready, i)
        if self.failed is not None:
            return []
        if not self._reports:
            valid = self._directory.valid
            for key, mask in self.script.leaves.items():
                if mask:
                    valid[key] = mask
                else:
                    valid.pop(key, None)
        return (self._given(1) if self._begun < 2 else []) + self._released()

    def _given(self, lot: int) -> list[Command]:
        """The commands that wait for nothing, of the first or the second lot."""
        self._begun = lot + 1
        commands, script = self.script.commands, self.script
        if not script.waits and not script.ahead:
            found = list(commands) if lot else []
        else:
            found = [commands[i] for i in script.begins[lot]]
        if script.held:
            self._evicted += [c for c in found if type(c) is Evict]
        return found

    def _released(self) -> list[Command]:
        """The commands that wait for nothing any more."""
        waits, ready, commands, frees = self._waits, self._ready, self.script.commands, self.script.frees
        out: list[Command] = []
        while ready:
            index = heappop(ready)
            command = commands[index]
            out.append(command)
            self._freed.append(index)
            if type(command) is Evict:
                self._evicted.append(command)
            for i in frees.get(index, ()):
                waits[i] -= 1
                if not waits[i]:
                    heappush(ready, i)
        return out

    def _done(self) -> dict[tuple[int, int], int]:
        """Up to which command the queues' nodes are known to be complete."""
        commands, index, count = self.script.commands, self.script.index, len(self.graph.nodes)
        found: dict[tuple[int, int], int] = {}
        for heard in self._heard:
            command = commands[index[heard]]
            assert not isinstance(command, Evict)
            # what a transfer was to wait for is complete when it is
            for token in (heard,) if isinstance(command, (HostCall, Run)) else (heard, *command.after):
                if token < count:
                    of = commands[index[token]]
                    place = (of.device, of.queue) if isinstance(of, Run) else (HOST_DEVICE, 0)
                    found[place] = max(found.get(place, -1), index[token])
        return found

    def fail(self, failure: Failed) -> None:
        """A launch or transfer turned out to have failed after all was over: nothing that was reported since can be
        trusted."""
        self.failed = failure
        self._heard = [t for t in self._heard if self.script.index[t] < self.script.index[failure.token]]
        self._reports = max(1, self._reports)

    def where(self, token: int, node: int) -> tuple[int, int | None, str]:
        """As :meth:`manycl.run.state.RunState.where`."""
        command = self.script.commands[self.script.index[token]]
        device = HOST_DEVICE if isinstance(command, (HostCall, Evict)) else command.device
        return where(self.graph, device, token, node)

    def held_up(self) -> str:
        """As :meth:`manycl.run.state.RunState.held_up`."""
        held = [self.script.commands[i] for i, n in self._waits.items() if n]
        return f"{len(held)} commands of a script were not enqueued, first {held[:1]}"

    def lose(self, reason: str) -> None:
        """The run has not come to its end: where contents are that are known, and which are not."""
        if self.script.held:
            self._lose_all(reason)
            return
        masks, lost = self._left()
        directory, needs = self._directory, self.script.needs
        for key in self.script.leaves:
            mask = masks.get(key, needs.get(key, directory.valid.get(key, 0)))
            if key in lost:
                directory.lose(key, reason)
            elif mask:
                directory.valid[key] = mask
            else:
                directory.valid.pop(key, None)

    def _left(self) -> tuple[dict[int, int], set[int]]:
        """Where the commands that are known to be complete have left buffers; and the buffers whose contents are
        unknown: written by what was enqueued and is not complete, or comes after what failed (a driver may run it all
        the same)."""
        script, memories = self.script, [d.memory for d in self.script.problem.machine.devices]
        given = self._was_given()
        done, spoilt, heard = self._done(), self._spoilt(given), set(self._heard)
        masks: dict[int, int] = {}
        lost: set[int] = set()
        for index in sorted(given):
            command = script.commands[index]
            assert not isinstance(command, (Evict, Copy)), "only where memory is short"
            if isinstance(command, (Upload, Download)):
                if command.token in heard and command.buffer not in lost:
                    memory = HOST if isinstance(command, Download) else memories[command.device]
                    before = masks.get(command.buffer, script.needs.get(command.buffer, 0))
                    masks[command.buffer] = before | 1 << memory
                continue
            if isinstance(command, HostCall):
                place, memory = (HOST_DEVICE, 0), HOST
            else:
                place, memory = (command.device, command.queue), memories[command.device]
            is_known = index <= done.get(place, -1) and command.token not in spoilt
            for key in self.graph.nodes[command.token].writes:
                if is_known:
                    masks[key] = 1 << memory
                else:
                    lost.add(key)
        return masks, lost

    def _was_given(self) -> set[int]:
        """The places of the commands that were enqueued."""
        return {*self._freed, *(i for lot in self.script.begins[: self._begun] for i in lot)}

    def _spoilt(self, given: Set[int]) -> set[int]:
        """The nodes that may have run without what they read."""
        failed, index, count = self.failed, self.script.index, len(self.graph.nodes)
        if failed is None:
            return set()
        spoilt = {failed.token}
        if failed.token >= count:  # a transfer: a driver that goes on has run all that was enqueued after it
            since = index[failed.token]
            spoilt.update(n for n in range(count) if index.get(n, -1) > since and index[n] in given)
        for n in range(min(spoilt) + 1, count):
            if index.get(n) in given and not spoilt.isdisjoint(self.graph.predecessors[n]):
                spoilt.add(n)
        return spoilt

    def _lose_all(self, reason: str) -> None:
        """Where copies make way: all that the run writes is lost, and what was nowhere but in a copy that has gone."""
        gone = list(self._gone())
        for key, memory, is_only in gone:
            if not is_only:
                self._directory.drop(key, memory)
        for key in {k for task in self.graph.nodes for k in task.writes} | {k for k, _, is_only in gone if is_only}:
            self._directory.lose(key, reason)

    def _gone(self) -> Iterator[tuple[int, int, bool]]:
        """(buffer, memory, whether it is valid nowhere else) of copies that have made way and were there before."""
        devices, valid = self.script.problem.machine.devices, self._directory.valid
        for device, store in dict.fromkeys(self._evicted):
            bit = 1 << devices[device].memory
            for key, buffer in self.graph.buffers.items():
                whole = buffer.whole if isinstance(buffer, Piece) else key
                if whole == store and (mask := valid.get(key, 0)) & bit:
                    yield key, devices[device].memory, mask == bit

    def validate(self) -> None:
        """Assert the invariants; used by tests and at debug level 4."""
        assert min(self._waits.values(), default=0) >= 0, "a command was freed twice"

    def close(self) -> None:
        """The run has ended, well or not."""


def _coming_home(script: Script) -> dict[int, int]:
    """Where copies make way: of transfers to the host, what they bring and the run does not change."""
    if not script.held:
        return {}
    written = {key for task in script.lowered.graph.nodes for key in task.writes}
    return {
        c.token: c.buffer
        for c in script.commands
        if isinstance(c, Download) and c.buffer not in written and c.buffer in script.needs
    }
