"""The one loop that acts: reports from the back end go to the player of a script, its commands go back out."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, cast

from manycl import flags
from manycl.errors import ManyclError, RunError
from manycl.graph.graph import Graph, Launch, Piece
from manycl.interrupts import interruptible
from manycl.machine import Machine
from manycl.plan.plan import ON_HOST, Plan
from manycl.plan.policy import DynamicPolicy, StaticPolicy
from manycl.plan.problem import Problem
from manycl.plan.rehearsal import expected
from manycl.run.awaited import Awaited
from manycl.run.backend import Backend, Command, Failed, Record, Run
from manycl.run.coherence import Directory
from manycl.run.compiler import compiled
from manycl.run.compiling import Phase, moved, phases, without
from manycl.run.dynamic import Dynamic
from manycl.run.lower import lower
from manycl.run.overwritten import Overwritten, brought_to_be_overwritten
from manycl.run.planning import POSTPONED, UNDIVIDED, UNFORESEEN, careful, decided
from manycl.run.playback import Playback
from manycl.run.script import Script
from manycl.run.steps import RANGE, Lowered, Step
from manycl.trace import DecisionEvent, Event, FailureEvent, HostEvent, KernelEvent, Trace, TransferEvent

TYPICAL = 4
"""Ranges of a launch on a device that models learn from, where a memory does not hold all of it."""


class Measured(NamedTuple):
    """A step of a run took ``seconds`` on device ``device`` (index): the whole node, a range of its work-groups, or
    what puts ranges together (``step.role``)."""

    step: Step
    device: int
    seconds: float


@dataclass(frozen=True)
class Result:
    """A finished run. ``seconds`` from the first command to the last completion, compiling by drivers included.

    ``record`` knows *steps*: of a plan with ranges, each range and each merge is one (``lowered.steps``, by the tokens
    of the record). :meth:`measured` tells how long each of them took.
    """

    graph: Graph
    machine: Machine
    policy: str
    seconds: float
    record: Record
    decisions: tuple[DecisionEvent, ...] = ()
    plan: Plan | None = None  # a dynamic policy's: what it decided, without times
    commands: tuple[Command, ...] | None = None  # all of them, where all could be enqueued at the start
    lowered: Lowered | None = None  # what was really run
    kind: str = "run"
    details: dict[str, Any] = field(default_factory=dict)
    script: Script | None = None  # to do it again, if that was asked for and is possible

    def measured(self) -> Iterator[Measured]:
        """The seconds of every launch that completed, as measured on the device (none without profiling)."""
        step = self.lowered.step if self.lowered is not None else Step
        return (Measured(step(token), device, seconds) for token, device, seconds in self.record.durations())

    def ranges(self, node: int) -> list[Measured]:
        """The ranges of work-groups in which a node ran, by their first groups."""
        found = (m for m in self.measured() if m.step.node == node and m.step.role == RANGE)
        return sorted(found, key=lambda m: m.step.first)

    def samples(self) -> tuple[Graph, Iterable[tuple[int, int, float]]]:
        """What models learn from: (node, device, seconds) of launches of a graph. A range is a launch of the kernel as
        well, a smaller one; what puts ranges together is none."""
        lowered, durations = self.lowered, self.record.durations()
        if lowered is None or not lowered.steps:
            return self.graph, durations
        nodes = list(lowered.graph.nodes)
        ran = [d for d in durations if lowered.steps[d[0]].role in ("", RANGE)]
        if lowered.room is not None:
            ran = _typical(lowered, ran)
        for token, _, _ in ran:
            step = lowered.steps[token]
            launch, own = self.graph.nodes[step.node], nodes[token]
            if step.role == RANGE and isinstance(launch, Launch) and isinstance(own, Launch):
                nodes[token] = replace(own, program=launch.program, kernel=launch.kernel, args=launch.args)
        return replace(lowered.graph, nodes=tuple(nodes), buffers={**self.graph.buffers, **lowered.graph.buffers}), ran

    def _planned(self) -> dict[str, Any]:
        """What the plan had foreseen, where there was one with times; the whole time as rehearsed, if it was."""
        if self.plan is None or self.plan.makespan <= 0.0:
            return {}
        seconds = [[a.node, a.end - a.start] for a in self.plan.assignments if a.device != ON_HOST]
        return {"planned": {"makespan": expected(self.plan), "seconds": seconds}}

    def _limited(self) -> dict[str, Any]:
        """What was predicted to move because devices did not hold all of the run."""
        room = self.lowered.room if self.lowered is not None else None
        if room is None or not room.spills:
            return {}
        names = [d.name for d in self.machine.devices]
        said = ("limit", "needed", "again", "leave", "seconds")
        return {"memory": [{"name": names[s.device], **dict(zip(said, s[1:], strict=True))} for s in room.spills]}

    def _told(self) -> dict[str, Any]:
        """What the plan says of itself: what failed, and what could not be divided."""
        known = self.plan.details if self.plan is not None else {}
        return {name: known[name] for name in (UNFORESEEN, UNDIVIDED, POSTPONED) if name in known}

    @cached_property
    def compiled(self) -> tuple[Phase, ...]:
        """When devices only compiled kernels: part of ``seconds``, but not of the trace."""
        waited = list(self.record.waited())
        return phases(waited, self.record.events()) if waited else ()

    @cached_property
    def trace(self) -> Trace:
        """Built when first asked for; without the time in which devices only compiled kernels, which is said."""
        events = [*_events(self), *self.decisions]
        return Trace(
            events=tuple(moved(self.compiled, event) for event in events),
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
                **({"compiled": sum(p.end - p.start for p in self.compiled)} if self.compiled else {}),
                **self.details,
            },
        )


def _typical(lowered: Lowered, ran: Sequence[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    """Of launches that ran in many ranges on a device, one after another, a few ranges of the size that most of them
    have: these tell what can be learned, and learning takes time."""
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
    """What happened, in terms of the graph's nodes and buffers."""
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
            buffer = lowered.graph.buffers[event.buffer]
            yield replace(event, buffer=buffer.whole) if isinstance(buffer, Piece) else event
        else:
            yield event


class RunFailure(RunError):
    """A run that failed; ``trace`` has what was done before and the failure itself."""

    def __init__(self, message: str, trace: Trace, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.trace = trace


def execute(
    problem: Problem,
    policy: StaticPolicy | DynamicPolicy | Plan,
    backend: Backend,
    directory: Directory,
    *,
    name: str = "",
    prepare: Callable[[Lowered, Playback], None] | None = None,
    progress: Callable[[int], None] | None = None,
    lowering: Callable[[Problem, Plan | None, Directory], Lowered] = lower,
    aloud: bool = True,
    record: bool = False,
) -> Result:
    """Run a problem's graph to its end on a back end.

    ``prepare(lowered, state)`` is called once it is known what will run on which devices (``state.queues``), before
    time starts; ``progress(n)`` whenever n nodes are complete. ``lowering`` turns the plan into steps. ``aloud``: say
    what MANYCL_DEBUG asks for. ``record``: so that a plan can be followed again by ``again``. Raises
    :class:`RunFailure` when a node fails; whatever happens, nothing is left running.
    """
    policy = careful(policy)
    with interruptible:
        plan, lowered = decided(problem, policy, directory, lowering)
    steps = replace(problem, graph=lowered.graph) if lowered.graph is not problem.graph else problem
    lowered.open(directory)
    try:
        overwritten = Overwritten(lowered, problem.graph, problem.repeated > 0)
        if problem.machine.memories > 1:
            with interruptible:
                where = problem.machine, directory.valid, problem.repeated > 0
                overwritten.ask(brought_to_be_overwritten(lowered, *where))
        level = flags.debug() if aloud else 0
        found = _player(steps, problem, policy, plan, lowered, directory, overwritten)
        if prepare is not None:
            prepare(lowered, found)
            if not found.script.fits(directory):  # something made way
                found = _player(steps, problem, policy, plan, lowered, directory, overwritten)
        result, _ = _execute(problem, plan, lowered, found, backend, directory, name, progress, level)
        if record and plan is not None:
            result = replace(result, script=found.script)
    finally:
        lowered.close(directory)
    return result


def again(
    script: Script,
    backend: Backend,
    directory: Directory,
    *,
    name: str = "",
    prepare: Callable[[Lowered, Playback], None] | None = None,
) -> Result | None:
    """Play a script; None if buffers are not where it needs them. Raises what ``execute`` raises."""
    lowered = script.lowered
    lowered.open(directory)
    try:
        if not script.fits(directory):
            return None
        state = Playback(script, directory)
        if prepare is not None:
            prepare(lowered, state)
            if not script.fits(directory):
                return None
        given = script.problem, script.plan, lowered
        return _execute(*given, state, backend, directory, name, None, flags.debug())[0]
    finally:
        lowered.close(directory)


def _player(
    steps: Problem,
    problem: Problem,
    policy: StaticPolicy | DynamicPolicy | Plan,
    plan: Plan | None,
    lowered: Lowered,
    directory: Directory,
    overwritten: Overwritten,
) -> Playback:
    """Who plays a plan, or what a policy decides while it goes on."""
    if plan is not None:
        return Playback(compiled(problem, plan, lowered, directory, overwritten), directory)
    return Dynamic(steps, cast("DynamicPolicy", policy), lowered, directory, overwritten)


def _execute(
    problem: Problem,
    plan: Plan | None,
    lowered: Lowered,
    state: Playback,
    backend: Backend,
    directory: Directory,
    name: str,
    progress: Callable[[int], None] | None,
    level: int,
) -> tuple[Result, list[list[Command]]]:
    """The result, and the commands that were given together."""
    run = backend.begin(lowered.graph, state.queues)
    if level:
        _say(backend, f"run of {len(lowered.graph)} steps by {name or 'a plan'}, queues {state.queues}")
    total, steps = len(problem.graph), len(lowered.graph)
    awaited = Awaited()
    try:
        batches = [state.start(backend.now())]
        _tell(level, state, backend, batches[0])
        backend.perform(batches[0])
        awaited.given(batches[0])
        if problem.machine.memories > 1 and not state.finished:
            batches.append(state.handle())
            _tell(level, state, backend, batches[1])
            backend.perform(batches[1])
            awaited.given(batches[1])
        at_once = len(batches)
        while not state.finished:
            awaited.check(state)
            with interruptible:
                reports = [report for report in backend.wait() if report.run == run]
            awaited.heard(reports)
            if level >= 4:
                for report in reports:
                    _say(backend, str(report))
            commands = state.handle(*reports)
            if commands:
                _tell(level, state, backend, commands)
                backend.perform(commands)
                awaited.given(commands)
                batches.append(commands)
            if state.failed is not None:
                break
            if level >= 4:
                state.validate()
            if progress is not None:
                progress(state.complete * total // steps)
        seconds = backend.now()
        if level:
            _say(backend, f"{'failed' if state.failed else 'complete'}: {state.complete} steps")
        record = backend.abort() if state.failed else backend.finish()
        if record.failed_transfer is not None:
            state.fail(record.failed_transfer)
        if record.failure is not None and (state.failed is None or record.failure.token < state.failed.token):
            state.fail(record.failure)  # nobody waited for it, or what waited for it has failed, too
    except BaseException as error:
        state.lose(f"the run was stopped by {type(error).__name__}")
        backend.abort()
        raise
    result = Result(
        graph=problem.graph,
        machine=problem.machine,
        policy=name,
        seconds=seconds,
        record=record,
        decisions=tuple(state.decisions),
        plan=plan or _as_plan(state, name, problem.machine),
        commands=tuple(c for batch in batches for c in batch) if len(batches) == at_once else None,
        lowered=lowered,
    )
    if state.failed is not None:
        raise _failure(state, state.failed, result)
    return result, batches


def _say(backend: Backend, text: str) -> None:
    print(f"manycl {backend.now() * 1e3:10.3f} ms: {text}", file=sys.stderr)


def _tell(level: int, state: Playback, backend: Backend, commands: list[Command]) -> None:
    """MANYCL_DEBUG=2: which node goes where; 3: every command."""
    if level >= 3:
        for command in commands:
            _say(backend, str(command))
    elif level == 2:
        devices, nodes = backend.machine.devices, state.graph.nodes
        for command in commands:
            if isinstance(command, Run):
                where = f"{devices[command.device].name} queue {command.queue}"
                _say(backend, f"{nodes[command.token].name} (node {command.token}) on {where}")


def _as_plan(state: Playback, name: str, machine: Machine) -> Plan:
    """What a dynamic policy decided, so that it can be done again without asking."""
    return Plan(tuple(state.issued), name, tuple(d.name for d in machine.devices), 0.0)


def _failure(state: Playback, failed: Failed, result: Result) -> ManyclError:
    """Tell the story: which kernel, where, with which sizes, and what was done before."""
    graph, machine = state.graph, result.machine
    assert result.lowered is not None
    number = result.lowered.step(failed.token).node if failed.token < len(graph) else -1
    device, node, what = state.where(failed.token, number)
    on = machine.devices[device].name if device >= 0 else "host"
    sizes = ""
    if node is not None and isinstance(task := graph.nodes[node], Launch):
        sizes = f" with NDRange {task.global_size}, work-groups {task.local_size or 'chosen by the driver'}"
    state.lose(f"{what} failed on {on}")
    trace = result.trace
    kernels = sum(1 for _ in trace.kernels())
    message = (
        f"{what} failed on {on}{sizes}: {failed.message}\n"
        f"  done before: {state.complete} of {len(graph.nodes)} nodes ({kernels} kernels ended on the devices)"
    )
    event = FailureEvent(without(result.compiled, failed.time), number, what, on, failed.message)
    failed_trace = replace(trace, events=(*trace.events, event))
    return RunFailure(message, failed_trace, hint="arrays that unfinished kernels write have unknown contents now")
