"""The outcome of a run that did not come to its end: where known contents are, and which contents are unknown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Set

from manycl.graph.graph import BufferKey
from manycl.machine import HOST, DeviceIndex
from manycl.run.commands.backend import Copy, Download, Evict, Failed, HostCall, Lane, Run, Upload, lane_of, nodes_of
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.tiling.locations import PieceLocations


def done(script: CommandGraph, heard: Iterable[int]) -> dict[Lane, int]:
    """Return, by queue, the index of the last command up to which its nodes are known to be complete. ``heard``: the
    tokens that were reported."""
    commands, index, count = script.commands, script.index, len(script.lowered.graph)
    found: dict[Lane, int] = {}
    for told in heard:
        command = commands[index[told]]
        # when a transfer is complete, so is what it waited for
        for token in (told, *command.after) if isinstance(command, (Upload, Download, Copy)) else (told,):
            if token < count:
                of = commands[index[token]]
                assert not isinstance(of, Evict)
                lane = lane_of(of)
                found[lane] = max(found.get(lane, -1), index[token])
    return found


def left(
    script: CommandGraph, given: Set[int], heard: Iterable[int], failed: Failed | None
) -> tuple[dict[BufferKey, int], set[BufferKey]]:
    """Return the masks of the memories where the complete commands have left buffers, and the buffers whose contents
    are unknown: those written by a command that was enqueued (``given``) and is not complete, or that depends on one
    that failed (a driver may run it all the same), and those let go."""
    outcome = _Outcome(script)
    ended, spoilt, told = done(script, heard), _spoilt(script, given, failed), set(heard)
    known: set[int] = set()
    begun: set[int] = set()  # nodes of the graph that was lowered, of which a step was enqueued
    for index in sorted(given):
        command = script.commands[index]
        if isinstance(command, Evict):
            outcome.evicted(command)
        elif isinstance(command, (Upload, Download, Copy)):
            if command.token in told:
                outcome.moved(command)
        else:
            nodes = nodes_of(command)
            is_known = index <= ended.get(lane_of(command), -1) and spoilt.isdisjoint(nodes)
            outcome.ran(command, is_known)
            begun.add(script.lowered.step(command.token).node)
            if is_known:
                known.update(nodes)
    # where only some ranges of a launch have run, what the other ranges were to write counts as unknown
    steps = script.lowered.steps
    outcome.lose_all({step.node for token, step in enumerate(steps) if token not in known and step.node in begun})
    return outcome.found()


def _spoilt(script: CommandGraph, given: Set[int], failed: Failed | None) -> set[int]:
    """Return the nodes that may have run without the contents that they read."""
    index, graph = script.index, script.lowered.graph
    if failed is None:
        return set()
    command, count = script.commands[index[failed.token]], len(graph)
    spoilt = {failed.token, *(command.cells if isinstance(command, Run) else ())}
    if failed.token >= count:  # a transfer: a driver that goes on has run all that was enqueued after it
        since = index[failed.token]
        spoilt.update(n for n in range(count) if index.get(n, -1) > since and index[n] in given)
    for n in range(min(spoilt) + 1, count):
        if index.get(n) in given and not spoilt.isdisjoint(graph.predecessors[n]):
            spoilt.add(n)
    return spoilt


def unsound(script: CommandGraph, given: Set[int], failures: Iterable[Failed]) -> set[int]:
    """Return the tokens of commands that have failed, or that may have read what failed commands were to write."""
    found: set[int] = set()
    for failed in failures:
        found |= _spoilt(script, given, failed)
    nodes, since = script.lowered.graph.nodes, min((script.index[t] for t in found), default=0)
    buffers = {key for t in found if t < len(nodes) for key in nodes[t].writes}
    commands = [script.commands[i] for i in sorted(given) if i >= since]
    moves = [c for c in commands if isinstance(c, (Upload, Download, Copy))]
    buffers.update(c.buffer for c in moves if c.token in found)
    return found | {c.token for c in moves if c.buffer in buffers}


class _Outcome:
    """The effect of commands, taken in their order, on where buffers are valid."""

    def __init__(self, script: CommandGraph) -> None:
        room, machine = script.lowered.room, script.problem.machine
        self._script = script
        self._memory = [d.memory for d in machine.devices]
        self._places = PieceLocations(machine, script.lowered.graph, room) if room is not None else None
        self._masks: dict[BufferKey, int] = {}
        self._lost: set[BufferKey] = set()
        self._gone: set[BufferKey] = set()  # let go as no longer needed; known again once written

    def _mask(self, key: BufferKey) -> int:
        return self._masks.get(key, self._script.needs.get(key, 0))

    def _at(self, device: DeviceIndex, store: BufferKey | None) -> int:
        return self._memory[device] if self._places is None or store is None else self._places.at(device, store)

    def moved(self, command: Upload | Download | Copy) -> None:
        if isinstance(command, Download):
            if command.aside is not None:
                return
            place = HOST
        else:
            place = self._at(command.device, command.target if isinstance(command, Copy) else command.store)
        self._masks[command.buffer] = self._mask(command.buffer) | 1 << place

    def evicted(self, command: Evict) -> None:
        assert self._places is not None, "only where memory is short"
        bit = 1 << self._at(command.device, command.store)
        for key in self._places.pieces(command.store):
            if (mask := self._mask(key)) & bit:
                self._masks[key] = mask & ~bit
                if mask == bit:
                    self._gone.add(key)

    def ran(self, command: Run | HostCall, is_known: bool) -> None:
        memory, homes = HOST, dict[BufferKey, int]()
        if isinstance(command, Run):
            memory = self._memory[command.device]
            if self._places is not None:
                homes = dict(self._places.homes(command.token, command.device))
        nodes = self._script.lowered.graph.nodes
        for key in [key for node in nodes_of(command) for key in nodes[node].writes]:
            self._gone.discard(key)
            if is_known:
                self._masks[key] = 1 << homes.get(key, memory)
            else:
                self._lost.add(key)

    def lose_all(self, nodes: Set[int]) -> None:
        """Mark as unknown what any step of these nodes writes."""
        for token, step in enumerate(self._script.lowered.steps):
            if step.node in nodes:
                self._lost.update(self._script.lowered.graph.nodes[token].writes)

    def found(self) -> tuple[dict[BufferKey, int], set[BufferKey]]:
        if self._places is not None:  # windows end with the run
            everywhere = (1 << self._places.base) - 1
            self._gone.update(key for key, mask in self._masks.items() if mask and not mask & everywhere)
            self._masks = {key: mask & everywhere for key, mask in self._masks.items()}
        return self._masks, self._lost | self._gone
