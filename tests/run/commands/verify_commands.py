"""A verifier of command graphs that knows nothing of how they are made: whichever command ends first, every command
finds the contents that the graph says, no command touches what another one is writing, and nothing is lost. Pure.

The certain order follows from the commands and their edges alone. A queue runs its kernels in the order in which it was
given them (staged transfers overtake each other). A command starts after what it waits for on its device, and is given
after the reports that it waits for. A command that may run beside the one before it in its queue comes after what that
one comes after. Of each two commands that touch the same bytes in the same memory, one of them writing, one must
certainly come before the other. Then the order of the commands in the graph is as good as any, and in that order each
command must find the last version of what it reads. Command graphs of runs in little memory, whose commands work on
windows, are judged by the chaos back end alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from manycl.errors import ManyclError
from manycl.graph.graph import BufferKey, HostTask
from manycl.machine import HOST
from manycl.plan.plan import ON_HOST
from manycl.run.commands.backend import Copy, Evict, HostCall, Run, nodes_of
from manycl.run.commands.command_graph import CommandGraph


class CommandGraphError(ManyclError):
    """The error of a command graph that is wrong: manycl itself is at fault."""


class _Access(NamedTuple):
    at: int
    writes: bool


def verify_commands(command_graph: CommandGraph) -> None:
    """Raise :class:`CommandGraphError` for the first fault."""
    assert command_graph.lowered.room is None, "windows are not judged here"
    judge = _Judge(command_graph)
    judge.order()
    judge.races()
    judge.contents()


class _Judge:
    def __init__(self, command_graph: CommandGraph) -> None:
        self._command_graph = command_graph
        self._commands = [c for c in command_graph.commands if not isinstance(c, Evict)]
        if len(self._commands) < len(command_graph.commands):
            raise CommandGraphError("a command graph with room makes way")
        self._nodes = command_graph.lowered.graph.nodes
        self._memory = [d.memory for d in command_graph.problem.machine.devices]
        self._domains = [d.event_domain for d in command_graph.problem.machine.devices]
        self._index = command_graph.index
        self._before: list[int] = []  # by command, the set of those that are complete before it starts, as bits
        self._together = command_graph.lowered.graph.written_together

    def order(self) -> None:
        """Find, for each command, those that are certainly complete before it starts."""
        command_graph, count = self._command_graph, len(self._commands)
        enqueued, heard = self._edges()
        at_start = sum(1 << i for i in range(count) if i not in command_graph.waits)
        first = (1 << command_graph.ahead) - 1
        given: list[int] = []  # by command, the set of those that are certainly given before it, as bits
        for i, command in enumerate(self._commands):
            needed = [*enqueued[i], *heard[i]]
            if len(needed) != command_graph.waits.get(i, 0) or any(b >= i for b in needed):
                raise CommandGraphError(f"{command} waits for {len(needed)} others, of which {needed} are known")
            mine = at_start
            if not needed:
                lower = (1 << i) - 1
                mine &= lower if i < command_graph.ahead else lower | first
            for b in needed:
                mine |= given[b] | 1 << b
            given.append(mine)
            queued = list(self._queued(i, mine))
            complete = 0
            if isinstance(command, Run) and command.beside and queued:
                complete = self._before[queued.pop()]  # it may begin while that one runs
                queued.clear()
            for b in {*heard[i], *self._waited(i, mine), *queued}:
                complete |= self._before[b] | 1 << b
            self._before.append(complete)

    def _edges(self) -> tuple[list[list[int]], list[list[int]]]:
        """Return, by command, which must be enqueued before it is, and which must be reported before."""
        enqueued: list[list[int]] = [[] for _ in self._commands]
        heard: list[list[int]] = [[] for _ in self._commands]
        for before, freed in self._command_graph.frees.items():
            for i in freed:
                enqueued[i].append(before)
        for token, freed in self._command_graph.hears.items():
            command = self._commands[self._index[token]]
            if not isinstance(command, HostCall) and not command.notify:
                raise CommandGraphError(f"{command} is waited for, but nobody hears of it")
            for i in freed:
                heard[i].append(self._index[token])
        return enqueued, heard

    def _waited(self, i: int, given: int) -> Iterator[int]:
        """Yield the commands that a command waits for on its device."""
        command = self._commands[i]
        for token in () if isinstance(command, HostCall) else command.after:
            b = self._index[token]
            if not given >> b & 1:
                raise CommandGraphError(f"{command} waits on its device for {token}, which may come later")
            here, there = self._place(i)[0], self._place(b)[0]
            domain = self._domains[here]
            if here != there and not (domain and there != ON_HOST and domain == self._domains[there]):
                raise CommandGraphError(f"{command} waits on its device for {token} of another one")
            yield b

    def _queued(self, i: int, given: int) -> Iterator[int]:
        """Yield the launches that the queue of a launch was given before it."""
        if isinstance(self._commands[i], Run):
            for b in range(i):
                if given >> b & 1 and self._place(b) == self._place(i) and isinstance(self._commands[b], Run):
                    yield b

    def _place(self, index: int) -> tuple[int, int]:
        command = self._commands[index]
        return (ON_HOST, 0) if isinstance(command, HostCall) else (command.device, command.queue)

    def _touches(self, index: int) -> Iterator[tuple[int, BufferKey, bool]]:
        """Yield (memory, buffer, whether it is written) for a command."""
        command = self._commands[index]
        if isinstance(command, Copy):
            yield command.source, command.buffer, False
            yield command.target, command.buffer, True
        else:
            memory = self._memory[command.device] if isinstance(command, Run) else HOST
            for task in [self._nodes[node] for node in nodes_of(command)]:
                for key in task.reads:
                    yield memory, key, False
                for key in task.writes:
                    yield memory, key, True

    def races(self) -> None:
        """Raise an error for two commands that touch bytes in no certain order, but of ranges that write together."""
        seen: dict[tuple[int, BufferKey], list[_Access]] = {}
        for i in range(len(self._commands)):
            for memory, key, writes in self._touches(i):
                for other in seen.setdefault((memory, key), []):
                    if not (writes or other.writes) or self._before[i] >> other.at & 1 or other.at == i:
                        continue
                    if not self._beside(other.at, i, key):
                        one, two = self._commands[other.at], self._commands[i]
                        raise CommandGraphError(
                            f"{one} and {two} touch buffer {key} in memory {memory} at the same time"
                        )
                seen[memory, key].append(_Access(i, writes))

    def _beside(self, one: int, other: int, key: BufferKey) -> bool:
        first, second = self._commands[one], self._commands[other]
        if key not in self._together or not (isinstance(first, Run) and isinstance(second, Run)):
            return False
        before = self._command_graph.lowered.graph.predecessors
        return not any(node in before[then] for node in nodes_of(first) for then in nodes_of(second))

    def contents(self) -> None:
        """Check, in the order of the commands, that each finds the last version of what it reads, and that the last
        versions are where ``leaves`` says at the end. A version is the number of times that a buffer was written."""
        command_graph = self._command_graph
        version: dict[BufferKey, int] = {}
        held: dict[tuple[int, BufferKey], int] = {}  # by (memory, buffer)
        for key, mask in command_graph.needs.items():
            held.update(((m, key), 0) for m in range(mask.bit_length()) if mask >> m & 1)
        done: set[int] = set()
        for command in self._commands:
            if isinstance(command, Copy):
                source, target, key = command.source, command.target, command.buffer
                if held.get((source, key)) != version.get(key, 0):
                    raise CommandGraphError(f"{command} moves contents that are not the last")
                if command.saves and held.get((HOST, key)) != 0:
                    raise CommandGraphError(f"{command} saves what the host had not got when the run began")
                if held.get((target, key)) == version.get(key, 0) and key not in self._together:
                    raise CommandGraphError(f"{command} brings what is there")
                held[target, key] = version.get(key, 0)
                continue
            for node in nodes_of(command):
                self._step(command, node, version, held)
                if not done.issuperset(command_graph.lowered.graph.predecessors[node]):
                    raise CommandGraphError(f"{command} stands before what it depends on")
            done.update(nodes_of(command))
        if len(done) < len(self._nodes):
            raise CommandGraphError(f"{len(self._nodes) - len(done)} nodes do not run")
        for key, mask in command_graph.leaves.items():
            for memory in range(mask.bit_length()):
                if mask >> memory & 1 and held.get((memory, key)) != version.get(key, 0):
                    raise CommandGraphError(f"buffer {key} is said to be valid in memory {memory} at the end")
            if not mask:
                raise CommandGraphError(f"buffer {key} is said to be valid nowhere at the end")
        written = {key for task in self._nodes for key in task.writes}
        if not written <= command_graph.leaves.keys():
            raise CommandGraphError(
                f"nothing is said of {sorted(written - command_graph.leaves.keys())}, which are written"
            )

    def _step(
        self, command: Run | HostCall, node: int, version: dict[BufferKey, int], held: dict[tuple[int, BufferKey], int]
    ) -> None:
        """Check that a node finds what it reads, and what it may leave unchanged, unless never defined."""
        memory = self._memory[command.device] if isinstance(command, Run) else HOST
        task = self._nodes[node]
        if isinstance(task, HostTask) != isinstance(command, HostCall):
            raise CommandGraphError(f"{command} is of another kind than its node")
        for key in dict.fromkeys((*task.reads, *task.writes)):
            if key not in task.reads and key in task.overwrites:
                continue
            known = self._command_graph.needs.get(key)
            if known is None and key not in version:
                if key in task.reads:
                    raise CommandGraphError(f"{command} reads buffer {key}, of which nothing is needed")
                continue  # it is known to write all of it
            is_undefined = key not in version and not known
            if held.get((memory, key)) != version.get(key, 0) and not is_undefined and key in task.reads:
                raise CommandGraphError(f"{command} reads buffer {key} in memory {memory}, where it is not valid")
        for key in task.writes:
            version[key] = version.get(key, 0) + 1
            held[memory, key] = version[key]
