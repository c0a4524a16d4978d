"""Explanation of why an instruction of a run ran where and when it did: what the plan said, what it waited for, which
of these ended last, and what waited for it. Read from the graph played and from what the devices recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from manycl.errors import ManyclError
from manycl.graph.graph import Graph
from manycl.plan.plan import Assignment
from manycl.run.commands.backend import Copy, Evict, HostCall, Run
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.engine.playback import Playback
from manycl.run.engine.run_history import REPLANNED
from manycl.run.lowering.steps import RANGE
from manycl.trace import HostEvent, KernelEvent, TransferEvent

if TYPE_CHECKING:
    from manycl.run.engine.result import Result

MOST = 8  # commands named in an explanation, of all that an instruction waited for; our own choice


@dataclass(frozen=True)
class Cause:
    """A command that an instruction waited for: ``token``, and how its end became known (``queue``: commands of a queue
    run in order; ``device``: the device waited; ``report``: the host waited for its report)."""

    token: int
    how: str


def causes(command_graph: CommandGraph, token: int) -> list[Cause]:
    """Return the commands that a command waited for, each once, in the order of the command graph."""
    index = command_graph.index
    at = index[token]
    command = command_graph.commands[at]
    found: dict[int, str] = {}
    for line in command_graph.lines.values():
        if at in line and (place := line.index(at)):
            before = command_graph.commands[line[place - 1]]
            assert isinstance(before, Run | HostCall)
            found[before.token] = "queue"
    if not isinstance(command, HostCall | Evict):
        found.update(dict.fromkeys(command.after, "device"))
    found.update({heard: "report" for heard, waiting in command_graph.hears.items() if at in waiting})
    return [Cause(t, found[t]) for t in sorted(found, key=index.__getitem__)]


def node_of(graph: Graph, node: int | str) -> int:
    """Return the number of a node, given that number or a name that no other node has. Raises ManyclError if none."""
    if isinstance(node, str):
        named = [i for i, task in enumerate(graph.nodes) if task.name == node]
        if len(named) != 1:
            how_many = f"{len(named)} nodes are" if named else "no node is"
            raise ManyclError(f"{how_many} called {node!r}", hint="give a node's number")
        return named[0]
    if not 0 <= node < len(graph):
        raise ManyclError(f"there is no node {node}; the graph has {len(graph)}")
    return node


class Stories:
    """Explanations of a run's instructions."""

    def __init__(self, result: Result) -> None:
        if result.playback is None:
            raise ManyclError("nothing is known of how this came about: it is the result of no run")
        if REPLANNED in result.details:
            raise ManyclError("the run was planned anew on its way", hint="its trace tells what ran where and when")
        self._result = result
        self._playback: Playback = result.playback
        self._command_graph = self._playback.written()
        self._steps = self._playback.ran
        self._devices = self._command_graph.problem.machine.devices
        self._when: dict[int, tuple[float, float]] = {}
        self._moved: dict[tuple[int, str, str], list[tuple[float, float]]] = {}
        for event in result.record.events():
            if isinstance(event, KernelEvent | HostEvent):
                self._when[event.node] = event.start, event.end
            elif isinstance(event, TransferEvent):
                self._moved.setdefault((event.buffer, event.source, event.target), []).append((event.start, event.end))
        plan = self._steps.plan or self._command_graph.plan
        self._assigned: dict[int, Assignment] = {a.node: a for a in plan.assignments}

    def of_node(self, node: int) -> str:
        """Return the explanation of a node of the graph: of each step in which it ran."""
        command_graph = self._command_graph
        # (of a packet, its first step)
        own = {c.token for c in command_graph.commands if isinstance(c, Run | HostCall)}
        return "\n".join(self.of(t) for t in sorted(own) if self._steps.step(t).node == node)

    def of(self, token: int) -> str:
        """Return the explanation of one instruction, in lines."""
        return "\n".join(self._lines(token))

    def _lines(self, token: int) -> Iterator[str]:
        command_graph = self._command_graph
        yield f"{self._what(token)}: {self._playback.state(token).value}{self._time(token)}"
        a = self._assigned.get(token)
        if a is not None and a.end > a.start:
            by = f"by {command_graph.plan.policy}" if command_graph.plan.policy else "by its plan"
            yield f"  planned {by} from {_ms(a.start)} to {_ms(a.end)}"
        elif a is not None and self._result.decisions:
            yield f"  placed by {self._result.policy} while the run went on"
        yield from self._waited(token, "  ")

    def _waited(self, token: int, indent: str) -> Iterator[str]:
        """Yield what an instruction waited for; for each transfer among that, also what the transfer waited for."""
        waited = causes(self._command_graph, token)
        known = [(end, c) for c in waited if (end := self._end(c.token)) is not None]
        last = max(known, key=lambda found: found[0])[1] if known else None
        for cause in waited[-MOST:]:
            mark = " (the last to end)" if cause is last and len(waited) > 1 else ""
            yield f"{indent}waited ({cause.how}) for {self._what(cause.token)}{self._time(cause.token)}{mark}"
            if cause.token >= len(self._steps.graph):
                yield from self._waited(cause.token, indent + "  ")
        if len(waited) > MOST:
            yield f"{indent}… and for {len(waited) - MOST} before these"
        if not waited:
            yield f"{indent}waited for nothing"

    def _what(self, token: int) -> str:
        command_graph, graph = self._command_graph, self._steps.graph
        command = command_graph.commands[command_graph.index[token]]
        if isinstance(command, HostCall):
            return f"host function {graph.nodes[token].name} (node {self._steps.step(token).node})"
        assert not isinstance(command, Evict)
        where = self._devices[command.device].name
        if isinstance(command, Run):
            step = self._steps.step(token)
            part = f", work-groups {step.first} to {step.first + step.groups - 1}" if step.role == RANGE else ""
            role = f", {step.role}" if step.role and step.role != RANGE else ""
            name = self._result.graph.nodes[step.node].name
            return f"kernel {name} (node {step.node}{part}{role}) on {where}, queue {command.queue}"
        buffer = graph.buffers[command.buffer]
        name = f"{buffer.name or f'buffer {command.buffer}'} ({buffer.nbytes:,} bytes)"
        if command.source == command.target:
            return f"copy of {name} within {where}"
        return f"{'upload' if command.is_upload else 'download'} of {name}, {where}"

    def _span(self, token: int) -> tuple[float, float] | None:
        if token in self._when:
            return self._when[token]
        command = self._command_graph.commands[self._command_graph.index[token]]
        if not isinstance(command, Copy):
            return None
        machine = self._command_graph.problem.machine
        source, target = (machine.memory_name(memory, command.device) for memory in command.ends)
        found = self._moved.get((command.buffer, source, target), [])
        return found[0] if len(found) == 1 else None  # which one of several is unknown

    def _end(self, token: int) -> float | None:
        span = self._span(token)
        return span[1] if span is not None else None

    def _time(self, token: int) -> str:
        span = self._span(token)
        return "" if span is None else f", {_ms(span[0])} to {_ms(span[1])}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"
