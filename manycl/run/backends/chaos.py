"""A back end that does everything in the worst legal order, and watches for races.

Commands start and end at random (seeded) as far as queues and wait lists allow; reports are held back and shuffled.
Buffers hold values instead of bytes: a launch's result is a value that depends on the launch and on every buffer it
touches, so one stale or early read changes the end of the run. A command that finds that what it read has changed
before it ended was in a race. Ranges of one launch that write elements of the same piece at the same time (the graph's
note ``together`` names these) leave a value that depends on what was there before, and on which of them have written.
Used by the tests of the engine; the clock counts steps.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from manycl.graph.graph import Graph, Launch
from manycl.machine import HOST, Machine
from manycl.run.backend import (
    DOWNLOAD_QUEUE,
    HOST_DEVICE,
    UPLOAD_QUEUE,
    Command,
    Done,
    Download,
    Failed,
    HostCall,
    Report,
    Run,
    Upload,
)
from manycl.trace import Event

Value = object


@dataclass(slots=True)
class _Active:
    command: Command
    seen: dict[int, Value]


@dataclass(slots=True)
class ChaosRecord:
    """What ran: (node, device) in the order of ending."""

    ran: list[tuple[int, int]] = field(default_factory=list)
    moved: list[tuple[int, int, int]] = field(default_factory=list)  # buffer, source, target
    failure: Failed | None = None

    def events(self) -> Sequence[Event]:
        return []

    def durations(self) -> Iterable[tuple[int, int, float]]:
        return []


class Together(NamedTuple):
    """What several ranges of launch ``node`` have left in a piece: ``base`` was there before."""

    node: int
    base: Value
    done: frozenset[tuple[int, int]]  # steps, and what each of them found


def touched(graph: Graph, node: int) -> list[int]:
    """The buffers a node's result depends on: all it reads, and what it may leave partly as it was."""
    task = graph.nodes[node]
    overwritten = task.overwrites if isinstance(task, Launch) else ()
    return sorted({*task.reads, *(k for k in task.writes if k not in overwritten)})


def together(graph: Graph, node: int) -> tuple[int, frozenset[int]]:
    """The pieces that other ranges of the node's launch write at the same time, and which launch that is."""
    found: Mapping[int, tuple[int, frozenset[int]]] = graph.notes.get("together", {})
    return found.get(node, (-1, frozenset()))


def seen_by(graph: Graph, node: int, held: Mapping[int, Value]) -> dict[int, Value]:
    """What a node's result depends on, of what its memory holds: of a piece that other ranges write at the same time,
    what it was before all of them."""
    launch, shared = together(graph, node)
    seen = {k: held.get(k) for k in touched(graph, node)}
    for key in shared & seen.keys():
        value = seen[key]
        if isinstance(value, Together) and value.node == launch:
            seen[key] = value.base
    return seen


def left_by(graph: Graph, node: int, key: int, inputs: Mapping[int, Value], before: Value) -> Value:
    """The value that a node leaves in a buffer, or in a piece that held ``before``."""
    launch, shared = together(graph, node)
    if key not in shared:
        return hash((node, key, tuple(sorted(inputs.items()))))
    base, done = inputs.get(key), frozenset({(node, hash(tuple(sorted(inputs.items()))))})
    if isinstance(before, Together) and before.node == launch:
        done |= before.done
    return Together(launch, base, done)


class ChaosBackend:
    """``values[m][key]`` is what memory m holds. ``fail`` lists nodes that fail when they would end."""

    def __init__(self, machine: Machine, seed: int, fail: Iterable[int] = ()) -> None:
        self.machine = machine
        self.values: list[dict[int, Value]] = [{} for _ in range(machine.memories)]
        self._random = random.Random(seed)
        self._fail = set(fail)
        self._step = 0

    def begin(self, graph: Graph, queues: Sequence[int]) -> None:
        self._graph = graph
        self._queues = queues
        self._lines: dict[tuple[int, int], deque[Command]] = {}
        self._active: dict[tuple[int, int], _Active] = {}
        self._ended: set[int] = set()
        self._held: list[Report] = []
        self.record = ChaosRecord()

    def perform(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if isinstance(command, Run):
                assert 0 <= command.queue < self._queues[command.device], "a queue that was not announced"
                place = (command.device, command.queue)
            elif isinstance(command, Upload):
                place = (command.device, UPLOAD_QUEUE)
            elif isinstance(command, Download):
                place = (command.device, DOWNLOAD_QUEUE)
            else:
                place = (HOST_DEVICE, 0)
            self._lines.setdefault(place, deque()).append(command)

    def wait(self) -> list[Report]:
        while True:
            places = self._startable() + list(self._active)
            if self._held and (not places or self._random.random() < 0.3):
                self._random.shuffle(self._held)
                count = self._random.randint(1, len(self._held))
                out, self._held = self._held[:count], self._held[count:]
                return out
            assert places, "the engine waits, but nothing is under way: deadlock"
            self._advance(self._random.choice(places))

    def now(self) -> float:
        return float(self._step)

    def finish(self) -> ChaosRecord:
        while places := self._startable() + list(self._active):
            self._advance(self._random.choice(places))
        assert not any(self._lines.values()), "commands that can never start"
        return self.record

    def abort(self) -> ChaosRecord:
        self._lines.clear()
        self._active.clear()
        return self.record

    def _startable(self) -> list[tuple[int, int]]:
        return [
            place
            for place, line in self._lines.items()
            if line and place not in self._active and all(t in self._ended for t in getattr(line[0], "after", ()))
        ]

    def _advance(self, place: tuple[int, int]) -> None:
        self._step += 1
        active = self._active.pop(place, None)
        if active is None:
            command = self._lines[place].popleft()
            self._active[place] = _Active(command, self._read(command))
            return
        command = active.command
        assert self._read(command) == active.seen, f"{command} was in a race: what it read changed before it ended"
        self._ended.add(command.token)
        if command.token in self._fail:
            failed = Failed(command.token, self.now(), "made to fail")
            if isinstance(command, HostCall) or command.notify:
                self._held.append(failed)
                self._lines[place].clear()  # a later command must not report that all before it is complete
            else:
                self.record.failure = failed
            return
        self._write(command, active.seen)
        if isinstance(command, HostCall) or command.notify:
            self._held.append(Done(command.token, self.now()))

    def _memory(self, command: Run | HostCall) -> int:
        return HOST if isinstance(command, HostCall) else self.machine.devices[command.device].memory

    def _read(self, command: Command) -> dict[int, Value]:
        if isinstance(command, (Run, HostCall)):
            held = self.values[self._memory(command)]
            return seen_by(self._graph, command.token, held)
        source = HOST if isinstance(command, Upload) else self.machine.devices[command.device].memory
        return {command.buffer: self.values[source].get(command.buffer)}

    def _write(self, command: Command, seen: dict[int, Value]) -> None:
        if isinstance(command, (Run, HostCall)):
            memory = self._memory(command)
            held = self.values[memory]
            for key in self._graph.nodes[command.token].writes:
                held[key] = left_by(self._graph, command.token, key, seen, held.get(key))
            device = command.device if isinstance(command, Run) else HOST_DEVICE
            self.record.ran.append((command.token, device))
            return
        own = self.machine.devices[command.device].memory
        source, target = (HOST, own) if isinstance(command, Upload) else (own, HOST)
        self.values[target][command.buffer] = seen[command.buffer]
        self.record.moved.append((command.buffer, source, target))
