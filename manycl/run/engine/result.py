"""The result of a run: how long its steps took, its trace, and its command graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from manycl.graph.graph import BufferKey, Graph, Launch, Piece
from manycl.graph.versions.versions import run_as
from manycl.machine import DeviceIndex, Machine
from manycl.model.history.learning import enough
from manycl.plan.merging import SENT
from manycl.plan.movable import MOVING
from manycl.plan.plan import ON_HOST, Plan
from manycl.run.commands.backend import Record
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.commands.transfers import Subject
from manycl.run.engine.asking_policies import UNFORESEEN
from manycl.run.engine.compile_time import LEAST, Phase, moved, phases, united, without
from manycl.run.engine.divisions import MEASURED, divisions
from manycl.run.engine.playback import Playback
from manycl.run.engine.run_history import MergedRecord
from manycl.run.lowering.steps import DROPPED, RANGE, Lowered, Step
from manycl.trace import DecisionEvent, Event, FailureEvent, HostEvent, KernelEvent, Trace, TransferEvent

TYPICAL = 4
"""The number of ranges of a launch on a device that models learn from, where a memory does not hold all of it; our own
choice."""


class Measured(NamedTuple):
    """The measured time of a step: it took ``seconds`` on device ``device`` (index). The step is the whole node, a
    range of its work-groups, or one that puts ranges together (``step.role``)."""

    step: Step
    device: DeviceIndex
    seconds: float


@dataclass(frozen=True)
class Result:
    """A finished run. ``seconds``: from the first command to the last completion, compiling by drivers included.
    ``record`` knows *steps*: in a plan with ranges, each range and each merge is one (``lowered.steps``, by the tokens
    of the record). :meth:`measured` returns how long each of them took."""

    graph: Graph
    machine: Machine
    policy: str
    seconds: float
    record: Record
    decisions: tuple[DecisionEvent, ...] = ()
    failures: tuple[FailureEvent, ...] = ()  # where the run stopped
    plan: Plan | None = None  # for a dynamic policy: its decisions, without times
    lowered: Lowered | None = None  # the steps that were really run
    kind: str = "run"
    details: dict[str, Any] = field(default_factory=dict)
    playback: Playback | None = None  # the playback of the run
    lost: Mapping[str, str] = field(default_factory=dict)  # by name of a device that the run went on without, why

    def __repr__(self) -> str:
        what = self.kind + (f" of {self.graph.name}" if self.graph.name else "")
        return f"<manycl.Result {what} by {self.policy}, nodes: {len(self.graph)}, {self.seconds * 1e3:.3f} ms>"

    @property
    def command_graph(self) -> CommandGraph | None:
        """The command graph that was played, to be played again; None where a policy decided at run time, or the run
        was stopped on its way."""
        if self.playback is None or self.playback.issued or isinstance(self.record, MergedRecord):
            return None
        return self.playback.command_graph

    def moving(self, plan: Plan) -> Subject | None:
        """Return what was run, where it can be run again by a plan whose launches may move; None where it cannot."""
        playback = self.playback
        if playback is None or plan is not self.plan or playback.settled(plan) is not plan or not plan.movable:
            return None
        command_graph = playback.command_graph
        is_one = (
            command_graph.problem.machine.memories == 1
            and command_graph.lowered.room is None
            and not command_graph.problem.demanded
        )
        is_usual = is_one and not isinstance(self.record, MergedRecord)
        return Subject(command_graph.problem, command_graph.lowered, playback.directory.valid) if is_usual else None

    def story(self, node: int | str) -> str:
        """Return why a node of the graph (its number, or a name of its own) ran where and when it did, in lines."""
        from manycl.run.engine.explain import Stories, node_of  # seldom needed

        return Stories(self).of_node(node_of(self.graph, node))

    def measured(self) -> Iterator[Measured]:
        """Return the time of every launch that completed, as measured on the device (none without profiling)."""
        step = self.lowered.step if self.lowered is not None else Step
        return (Measured(step(token), device, seconds) for token, device, seconds in self.record.durations())

    def ranges(self, node: int) -> list[Measured]:
        """Return the ranges of work-groups in which a node ran, by their first groups."""
        found = (m for m in self.measured() if m.step.node == node and m.step.role == RANGE)
        return sorted(found, key=lambda m: m.step.first)

    def samples(self) -> tuple[Graph, Iterable[tuple[int, DeviceIndex, float]]]:
        """Return what models learn from: a graph, and (node, device, seconds) of its launches. A range counts as a
        smaller launch of the kernel; a step that puts ranges together does not count."""
        lowered = self.lowered if self.lowered is not None and self.lowered.steps else None
        nodes = list((self if lowered is None else lowered).graph.nodes)
        durations = self.record.durations(enough(nodes))
        if lowered is None:
            return self.graph, durations
        ran = [d for d in durations if lowered.steps[d[0]].role in ("", RANGE)]
        if lowered.room is not None:
            ran = _typical(lowered, ran)
        for token, _, _ in ran:
            step = lowered.steps[token]
            launch, own = self.graph.nodes[step.node], nodes[token]
            if step.role == RANGE and isinstance(launch, Launch) and isinstance(own, Launch):
                ran_as = run_as(launch, step.version)
                nodes[token] = replace(own, program=ran_as.program, kernel=ran_as.kernel, args=launch.args)
        return replace(lowered.graph, nodes=tuple(nodes), buffers={**self.graph.buffers, **lowered.graph.buffers}), ran

    @cached_property
    def times(self) -> dict[int, tuple[float, float]]:
        """The beginning and end of each timed node of the graph that was given, all its parts and units together, by
        ``time.perf_counter``."""
        origins = self.graph.origins or range(len(self.graph))
        found: dict[int, tuple[float, float]] = {}
        for event in self.happened:
            if isinstance(event, KernelEvent | HostEvent) and getattr(event, "role", "") != DROPPED:
                first, last = found.get(node := origins[event.node], (event.start, event.end))
                found[node] = min(first, event.start), max(last, event.end)
        begin = self.record.begin
        return {node: (begin + start, begin + end) for node, (start, end) in found.items()}

    def _planned(self) -> dict[str, Any]:
        """Return what was predicted for the plan, if it had times."""
        if self.plan is None or self.plan.makespan <= 0.0:
            return {}
        ran = [a for a in self.plan.assignments if a.device != ON_HOST]
        seconds = [[a.node, a.end - a.start] for a in ran]
        computing = sum(end - start for start, end in united(sorted((a.start, a.end) for a in ran)))
        return {"planned": {"makespan": self.plan.makespan, "seconds": seconds, "computing": computing}}

    def _limited(self) -> dict[str, Any]:
        """Return what was predicted to move because devices did not hold all of the run."""
        room = self.lowered.room if self.lowered is not None else None
        if room is None or not room.spills:
            return {}
        names = [d.name for d in self.machine.devices]
        said = ("limit", "needed", "again", "leave", "seconds")
        return {"memory": [{"name": names[s.device], **dict(zip(said, s[1:], strict=True))} for s in room.spills]}

    def _told(self) -> dict[str, Any]:
        """Return the plan's own details: what failed, and which shares could move."""
        known = self.plan.details if self.plan is not None else {}
        told = {name: known[name] for name in (UNFORESEEN, MOVING) if name in known}
        stolen = self.playback.stolen if self.playback is not None else {}
        return told | ({"stolen": stolen} if stolen else {}) | self._merged()

    def _merged(self) -> dict[str, Any]:
        """Return how many parts of launches, and bytes, were sent to the host's memory as soon as they were written."""
        if self.playback is None or not self.lowered or not any(s.role == RANGE for s in self.lowered.steps):
            return {}
        command_graph = self.playback.written()
        asked, (parts, nbytes) = command_graph.problem.merging, command_graph.sent
        return {SENT: {"asked": asked, "parts": parts, "nbytes": nbytes}} if parts or asked != "automatic" else {}

    @property
    def settled(self) -> Plan | None:
        """The plan to keep for runs like this one: shares that could move have their final sizes. None where the run
        was stopped on its way."""
        if isinstance(self.record, MergedRecord):
            return None
        return self.playback.settled(self.plan) if self.playback is not None else self.plan

    @cached_property
    def compiled(self) -> tuple[Phase, ...]:
        """The intervals in which devices only compiled kernels: part of ``seconds``, but not of the trace."""
        waited = [(start, end) for start, end in united(sorted(self.record.waited())) if end - start >= LEAST]
        return phases(waited, self.record.events()) if waited else ()  # reading events takes a while

    @cached_property
    def happened(self) -> tuple[Event, ...]:
        """All events, in seconds since the run began, compiling included."""
        return (*_events(self), *self.decisions, *self.failures)

    @cached_property
    def trace(self) -> Trace:
        """The trace, built when first asked for. It leaves out the time in which devices only compiled kernels; its
        details give that time."""
        return Trace(
            events=tuple(moved(self.compiled, event) for event in self.happened),
            devices=tuple(d.name for d in self.machine.devices),
            policy=self.policy,
            makespan=without(self.compiled, self.seconds),
            kind=self.kind,
            application=self.graph.name,
            edges=self.graph.edges,
            details={
                "models": {d.name: d.model for d in self.machine.devices},
                **self._planned(),
                **self._limited(),
                **self._told(),
                **divisions(self.playback.command_graph.problem if self.playback else None, self.plan, self.details),
                **({"compiled": sum(p.end - p.start for p in self.compiled)} if self.compiled else {}),
                **{key: value for key, value in self.details.items() if key != MEASURED},
            },
        )


def _typical(lowered: Lowered, ran: Sequence[tuple[int, DeviceIndex, float]]) -> list[tuple[int, DeviceIndex, float]]:
    """Return a few entries for each launch that ran in many ranges on a device, one after another: ranges of the most
    frequent size. They suffice for learning, and learning takes time."""
    sizes: dict[tuple[int, int], Counter[int]] = {}
    for token, device, _ in ran:
        step = lowered.steps[token]
        sizes.setdefault((step.node, device), Counter())[step.groups] += 1
    most = {place: counts.most_common(1)[0][0] for place, counts in sizes.items()}
    left = dict.fromkeys(most, TYPICAL)
    found = []
    for token, device, seconds in ran:
        step = lowered.steps[token]
        place = step.node, device
        if step.groups == most[place] and left[place]:
            left[place] -= 1
            found.append((token, device, seconds))
    return found


def _events(result: Result) -> Iterator[Event]:
    """Yield the events in terms of the graph's nodes and buffers."""
    lowered = result.lowered
    if lowered is None or not (lowered.steps or lowered.cut):
        yield from result.record.events()
        return
    for event in result.record.events():
        if isinstance(event, KernelEvent):
            step = lowered.step(event.node)
            yield replace(
                event,
                node=step.node,
                role=step.role,
                dimension=step.dimension,
                first=step.first,
                groups=step.groups,
                method=step.method,
            )
        elif isinstance(event, HostEvent):
            yield replace(event, node=lowered.step(event.node).node)
        elif isinstance(event, TransferEvent):
            # (eager commands moved whole buffers, which the steps may have cut)
            buffer = lowered.graph.buffers.get(BufferKey(event.buffer))
            yield replace(event, buffer=buffer.whole) if isinstance(buffer, Piece) else event
        else:
            yield event
