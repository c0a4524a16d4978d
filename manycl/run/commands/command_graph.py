"""Command graphs: what a plan is compiled to, and the engine plays. Values only.

A command graph has commands in an order in which they may be given to the devices. For some of them it says what must
have been given before, or must have been reported complete. Both follow from what the commands read and write, and
where, not from what a run happens to know. So a command graph can be played whichever command ends first, and again
whenever the buffers that it finds are where they were when it was made.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from manycl.graph.graph import BufferKey, Graph
from manycl.machine import DeviceIndex
from manycl.plan.plan import Plan
from manycl.plan.problem import Problem
from manycl.run.commands.backend import Command, Copy, Done, Evict, HostCall, Lane, Run, lane_of
from manycl.run.data.coherence import Directory
from manycl.run.lowering.steps import Lowered
from manycl.utilities.changed import changed


@dataclass(frozen=True, eq=False)
class CommandGraph:
    """A command graph: ``commands`` of the steps of ``lowered``. The first ``ahead`` of them are enqueued before
    reports are looked at.

    ``waits[i]``: how many other commands must be enqueued or reported before command i is enqueued, where not all that
    it comes after is enqueued at the start; ``frees[i]``: the commands that wait until command i is enqueued;
    ``hears``: by token that is reported, the commands that wait for that report. ``needs``: by buffer whose contents it
    finds, the mask of the memories where they must be valid; ``leaves``: the masks afterwards, of buffers that it
    writes or copies. ``held``: by device whose memory is short, the stores that are there when it begins. ``sent``: the
    number of pieces, and their bytes, that go to the host as soon as they are written although no step needs them
    there.
    """

    problem: Problem
    plan: Plan
    lowered: Lowered
    queues: tuple[int, ...]
    commands: tuple[Command, ...]
    ahead: int
    waits: Mapping[int, int]
    frees: Mapping[int, Sequence[int]]
    hears: Mapping[int, Sequence[int]]
    needs: Mapping[BufferKey, int]
    leaves: Mapping[BufferKey, int]
    held: Mapping[DeviceIndex, frozenset[BufferKey]]
    sent: tuple[int, int] = (0, 0)

    def fits(self, directory: Directory) -> bool:
        """Return whether buffers are where the graph needs them (while the directory is open for the steps)."""
        valid, parts = directory.valid, directory.valid_regions
        if parts and not parts.keys().isdisjoint(self.lowered.graph.buffers):
            return False
        for key, mask in self.needs.items():  # noqa: SIM110 (a generator takes twice the time)
            if valid.get(key, 0) != mask:
                return False
        return True

    @property
    def is_plain(self) -> bool:
        """True if the steps are the problem graph's nodes, on whole buffers for which there is room."""
        return self.lowered.graph is self.problem.graph and self.lowered.room is None and not self.held

    def on(self, graph: Graph, keys: Mapping[BufferKey, BufferKey]) -> CommandGraph:
        """Return a plain command graph for a graph of the same shape with buffers ``keys[b]`` instead of b."""
        assert self.is_plain, "pieces and windows are those of some buffers"
        commands = self.commands
        if any(type(c) is not Run for c in commands):
            commands = tuple([_on(command, keys) for command in commands])
        return changed(  # (cached are only indices, which stay the same)
            self,
            problem=replace(self.problem, graph=graph),
            lowered=changed(self.lowered, graph=graph),
            commands=commands,
            needs={keys[key]: mask for key, mask in self.needs.items()},
            leaves={keys[key]: mask for key, mask in self.leaves.items()},
        )

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices that it uses."""
        return tuple([d.name for d, count in zip(self.problem.machine.devices, self.queues, strict=True) if count])

    @cached_property
    def index(self) -> Mapping[int, int]:
        """The indices of commands by token; for a command that runs several nodes, by each of these."""
        found = {c.token: i for i, c in enumerate(self.commands) if not isinstance(c, Evict)}
        found.update((n, i) for i, c in enumerate(self.commands) if isinstance(c, Run) and c.chunks for n in c.chunks)
        return found

    @cached_property
    def lines(self) -> Mapping[Lane, list[int]]:
        """The indices of each queue's commands that run nodes, in their order."""
        found: dict[Lane, list[int]] = {}
        for i, c in enumerate(self.commands):
            if isinstance(c, (Run, HostCall)):
                found.setdefault(lane_of(c), []).append(i)
        return found

    @cached_property
    def begins(self) -> tuple[list[int], list[int]]:
        """The indices of the commands that wait for nothing, in order: of the first ``ahead``, and of the rest."""
        free = [i for i in range(len(self.commands)) if i not in self.waits]
        return [i for i in free if i < self.ahead], [i for i in free if i >= self.ahead]


class KernelEnds:
    """The kernels of a command graph that are known to have ended: reported ones, and those before in their queues."""

    def __init__(self, command_graph: CommandGraph) -> None:
        self._command_graph = command_graph
        self._ended: dict[Lane, int] = {}  # by queue, how many of its commands

    def of(self, report: Done) -> Sequence[Run]:
        """Return the kernels of which a report tells first."""
        command_graph = self._command_graph
        at = command_graph.index[report.token]
        command = command_graph.commands[at]
        if not isinstance(command, Run):
            return ()
        line, first = command_graph.lines[lane_of(command)], self._ended.get(lane_of(command), 0)
        until = self._ended[lane_of(command)] = max(first, bisect_right(line, at))
        return [kernel for i in line[first:until] if isinstance(kernel := command_graph.commands[i], Run)]


def _on(command: Command, keys: Mapping[BufferKey, BufferKey]) -> Command:
    if isinstance(command, Copy):  # of whole buffers: a plain command graph has no windows
        return command._replace(buffer=keys[command.buffer])
    return command._replace(store=keys[command.store]) if isinstance(command, Evict) else command


def linked(
    enqueued: Mapping[int, Sequence[int]], heard: Mapping[int, Sequence[int]]
) -> tuple[dict[int, int], dict[int, list[int]], dict[int, list[int]]]:
    """Return ``waits``, ``frees`` and ``hears`` of commands, from what each of them comes after: ``enqueued``, indices
    of commands that must be enqueued before, and ``heard``, tokens that must be reported before."""
    waits: dict[int, int] = {}
    frees: dict[int, list[int]] = {}
    hears: dict[int, list[int]] = {}
    for index in sorted(enqueued.keys() | heard.keys()):
        behind = [before for before in enqueued.get(index, ()) if before in waits]  # the rest is given at the start
        told = heard.get(index, ())
        if behind or told:
            waits[index] = len(behind) + len(told)
        for before in behind:
            frees.setdefault(before, []).append(index)
        for token in told:
            hears.setdefault(token, []).append(index)
    return waits, frees, hears
