"""The history of a run's commands: which steps are complete, which may have begun, and where contents are. Pure. A
piece of a buffer has a *version* after each step that writes it, and memories hold versions: a kernel that changes what
was copied to its device leaves the version before where it came from. What a failed run leaves behind, and what is left
to do of a run that goes on (:mod:`manycl.run.recovery.lineage`), are read from the same history."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from manycl.graph.graph import BufferKey
from manycl.machine import HOST, DeviceIndex, Machine
from manycl.run.commands.backend import FIRST, Command, Copy, Evict, Failed, HostCall, Lane, Run, lane_of, nodes_of
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.data.coherence import places
from manycl.run.lowering.steps import Lowered
from manycl.run.tiling.locations import PieceLocations


class PieceVersion(NamedTuple):
    """The contents of a piece after its first ``number`` writers have run (0: before the run), and also the steps
    ``also``, of those that write it at the same time as the next one. The steps ``begun`` may have left anything of
    theirs there."""

    number: int
    also: frozenset[int] = frozenset()
    begun: frozenset[int] = frozenset()


GONE = PieceVersion(-1)
"""The version of what is held nowhere, or not known."""


class CommandHistory:
    """The effects of commands, taken in an order in which they could run one after another. ``valid``: where pieces are
    at the beginning, when the steps ``done`` have run. ``held[key]``: the versions of a piece, by memory, copy beside
    the host's own, or window; ``done``: steps that are complete."""

    def __init__(
        self, machine: Machine, lowered: Lowered, valid: Mapping[BufferKey, int], done: Collection[int] = ()
    ) -> None:
        self.lowered, self.graph, self._machine = lowered, lowered.graph, machine
        self._memory = [d.memory for d in machine.devices]
        room = lowered.room
        self._locations = PieceLocations(machine, lowered.graph, room) if room is not None else None
        self.writers = _writers(lowered)
        self._place = {
            (key, step): n for key, groups in self.writers.items() for n, group in enumerate(groups) for step in group
        }
        self.done = set(done)
        self._begun: set[int] = set()  # nodes of the graph that was lowered, of which a step may have begun
        self.is_defined = {key for key in self.graph.buffers if valid.get(key, 0)}  # before the run, or by now
        self.held = {key: dict.fromkeys(places(valid.get(key, 0)), self._present(key)) for key in self.graph.buffers}

    def _present(self, key: BufferKey) -> PieceVersion:
        """Return the version that the steps that are done have left."""
        for number, group in enumerate(groups := self.writers.get(key, [])):
            if not group <= self.done:
                return PieceVersion(number, frozenset(group & self.done))
        return PieceVersion(len(groups))

    def add(self, command: Command, is_complete: bool) -> None:
        """Add the next command. If it is not complete, it may have had any effect, or none."""
        if isinstance(command, Evict):
            at = self._at(self._memory[command.device], command.device, command.store)
            pieces = self._locations.pieces(command.store) if self._locations is not None else command.pieces
            for key in pieces:
                self.held[key].pop(at, None)
        elif isinstance(command, (Run, HostCall)):
            self._run(command, is_complete)
        else:
            self._copy(command, is_complete)

    def _run(self, command: Run | HostCall, is_complete: bool) -> None:
        at, homes = HOST, dict[BufferKey, int]()
        if isinstance(command, Run):
            at = self._memory[command.device]
            if self._locations is not None:
                homes = dict(self._locations.homes(command.token, command.device))
        for step in nodes_of(command):
            self._begun.add(self.lowered.step(step).node)
            for key in self.graph.nodes[step].writes:
                self._write(key, homes.get(key, at), step, is_complete)
            if is_complete:
                self.done.add(step)

    def _copy(self, command: Copy, is_complete: bool) -> None:
        held = self.held[command.buffer]
        target = self._at(command.target, command.device, command.target_store)
        if command.saves:
            held[FIRST] = held.get(HOST, GONE)
        found = held.get(self._at(command.source, command.device, command.source_store), GONE)
        if is_complete:
            held[target] = found
        elif held.get(target) != found:
            held[target] = GONE

    def _at(self, memory: int, device: DeviceIndex, store: BufferKey | None) -> int:
        """Return the location of a memory, or of a device's store in it."""
        return memory if self._locations is None or store is None else self._locations.at(device, store)

    def _write(self, key: BufferKey, at: int, step: int, is_complete: bool) -> None:
        number, held = self._place[key, step], self.held[key]
        before = held.get(at, GONE)
        group = self.writers[key][number]
        if not is_complete:
            held[at] = before._replace(begun=before.begun | {step}) if before.number == number else GONE
        else:
            if before.number != number:  # it was written without its old contents: as a whole, or they were undefined
                before = PieceVersion(number)
            also = before.also | {step}
            held[at] = PieceVersion(number + 1) if also == group else before._replace(also=also)

    def lose(self, devices: Collection[DeviceIndex]) -> None:
        """Remove the memories of which all devices are lost, with what they held."""
        for memory in {self._memory[d] for d in devices} - {HOST}:
            if all(i in devices for i, d in self._machine.numbered() if d.memory == memory):
                for held in self.held.values():
                    held.pop(memory, None)

    def contents(self) -> tuple[dict[BufferKey, int], set[BufferKey]]:
        """Return the masks of the memories where pieces are, and the pieces whose contents are unknown: those that are
        held nowhere any more, and those that a launch was to write of which not all has run."""
        unknown = {
            key
            for step, task in enumerate(self.graph.nodes)
            if step not in self.done and self.lowered.step(step).node in self._begun
            for key in task.writes
        }
        masks: dict[BufferKey, int] = {}
        for key, held in self.held.items():
            now = self._present(key)
            found = [m for m, v in held.items() if v == now and HOST <= m < self._machine.memories]  # windows end
            masks[key] = sum(1 << m for m in found)
            if not found and (key in self.is_defined or now != PieceVersion(0)):
                unknown.add(key)
        return masks, unknown


def _writers(lowered: Lowered) -> dict[BufferKey, list[frozenset[int]]]:
    """Return, by piece, the steps that write it, in their order; those that write it together form one group."""
    graph = lowered.graph
    found: dict[BufferKey, list[set[int]]] = {}
    launches: dict[BufferKey, int | None] = {}  # by piece, the launch whose steps are its last joint writers
    for step, task in enumerate(graph.nodes):
        joint = graph.beside.get(step)
        for key in task.writes:
            launch = joint.launch if joint is not None and key in joint.pieces else None
            groups = found.setdefault(key, [])
            if launch is not None and groups and launches.get(key) == launch:
                groups[-1].add(step)
            else:
                groups.append({step})
            launches[key] = launch
    return {key: [frozenset(group) for group in groups] for key, groups in found.items()}


class Stopped(NamedTuple):
    """The commands of a run that has stopped, as far as they are known. ``ended``: the tokens of commands that have
    ended without error, for lost devices as far as that is known (None: what was reported); ``begun``: of those that
    may have begun; ``unsound``: of those whose results do not count; ``lost``: the devices that are lost with what
    their memories held."""

    ended: Set[int] | None = None
    begun: Set[int] = frozenset()
    unsound: Set[int] = frozenset()
    lost: Collection[DeviceIndex] = ()

    def judged(self, given: Sequence[tuple[Command, bool]]) -> Iterator[tuple[Command, bool]]:
        """Yield the commands that may have begun, of those that were given, and whether they are complete. ``given``:
        with whether their end was reported."""
        begun = self.begun | _beginning([command for command, _ in given], self.begun)
        for command, is_told in given:
            if isinstance(command, Evict):
                yield command, True
                continue
            is_complete = is_told
            if self.ended is not None:
                is_away = not isinstance(command, HostCall) and command.device in self.lost
                is_complete = command.token in self.ended or (is_told and is_away)
                if not is_told and command.token not in begun:
                    continue
            tokens = nodes_of(command) if isinstance(command, (Run, HostCall)) else (command.token,)
            yield command, is_complete and self.unsound.isdisjoint(tokens)


def _beginning(given: Sequence[Command], begun: Set[int]) -> set[int]:
    """Return the tokens of transfers that may be a part of one that has begun, as they come right before it."""
    found: set[int] = set()
    behind: tuple[object, ...] = ()  # the way of the transfer that comes next, if it may have begun
    for command in reversed(given):
        mine: tuple[object, ...] = ()
        if isinstance(command, Copy):
            mine = command.device, command.ends
            if command.token in begun or mine == behind:
                found.add(command.token)
            else:
                mine = ()
        behind = mine
    return found


def ended(command_graph: CommandGraph, heard: Iterable[int]) -> dict[Lane, int]:
    """Return, by queue, the index of the last command up to which its nodes are known to be complete. ``heard``: the
    tokens that were reported."""
    commands, index, count = command_graph.commands, command_graph.index, len(command_graph.lowered.graph)
    found: dict[Lane, int] = {}
    for told in heard:
        command = commands[index[told]]
        # when a transfer is complete, so is what it waited for
        for token in (told, *command.after) if isinstance(command, Copy) else (told,):
            if token < count:
                of = commands[index[token]]
                assert not isinstance(of, Evict)
                lane = lane_of(of)
                found[lane] = max(found.get(lane, -1), index[token])
    return found


def unsound(command_graph: CommandGraph, given: Set[int], failures: Iterable[Failed]) -> set[int]:
    """Return the tokens of commands that have failed, or that may have read what failed commands were to write.
    ``given``: the indices of the commands that were enqueued."""
    found: set[int] = set()
    for failed in failures:
        found |= _spoilt(command_graph, given, failed)
    nodes, since = command_graph.lowered.graph.nodes, min((command_graph.index[t] for t in found), default=0)
    buffers = {key for t in found if t < len(nodes) for key in nodes[t].writes}
    commands = [command_graph.commands[i] for i in sorted(given) if i >= since]
    moves = [c for c in commands if isinstance(c, Copy)]
    buffers.update(c.buffer for c in moves if c.token in found)
    return found | {c.token for c in moves if c.buffer in buffers}


def _spoilt(command_graph: CommandGraph, given: Set[int], failed: Failed) -> set[int]:
    """Return the nodes that may have run without the contents that they read, as a command has failed."""
    index, graph = command_graph.index, command_graph.lowered.graph
    command, count = command_graph.commands[index[failed.token]], len(graph)
    spoilt = {failed.token, *(command.chunks if isinstance(command, Run) else ())}
    if failed.token >= count:  # a transfer: a driver that goes on has run all that was enqueued after it
        since = index[failed.token]
        spoilt.update(n for n in range(count) if index.get(n, -1) > since and index[n] in given)
    for n in range(min(spoilt) + 1, count):
        if index.get(n) in given and not spoilt.isdisjoint(graph.predecessors[n]):
            spoilt.add(n)
    return spoilt
