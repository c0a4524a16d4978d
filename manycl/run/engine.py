"""The one loop that acts: reports from the back end go into the pure state, its commands go back out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from manycl import flags
from manycl.errors import ManyclError, RunError
from manycl.graph.graph import Graph, Launch
from manycl.machine import Machine
from manycl.plan.plan import Plan
from manycl.plan.policy import DynamicPolicy, StaticPolicy
from manycl.plan.problem import Problem
from manycl.run.assign import Follow
from manycl.run.backend import Backend, Command, Failed, Record, Run
from manycl.run.coherence import Directory
from manycl.run.state import RunState
from manycl.trace import DecisionEvent, FailureEvent, Trace


@dataclass(frozen=True)
class Result:
    """A finished run. ``seconds`` from the first command to the last completion."""

    graph: Graph
    machine: Machine
    policy: str
    seconds: float
    record: Record
    decisions: tuple[DecisionEvent, ...] = ()
    plan: Plan | None = None  # a dynamic policy's: what it decided, without times
    commands: tuple[Command, ...] | None = None  # all of them, where all could be enqueued at the start
    kind: str = "run"
    details: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def trace(self) -> Trace:
        """Built when first asked for."""
        events = [*self.record.events(), *self.decisions]
        return Trace(
            events=tuple(events),
            devices=tuple(d.name for d in self.machine.devices),
            policy=self.policy,
            makespan=self.seconds,
            kind=self.kind,
            application=self.graph.name,
            edges=self.graph.edges,
            details={"models": {d.name: d.model for d in self.machine.devices}, **self.details},
        )


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
    prepare: Callable[[tuple[int, ...]], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Run a problem's graph to its end on a back end.

    ``prepare(queues)`` is called once the devices that will be used are known (their queue counts), before time
    starts; ``progress(n)`` whenever n nodes are complete. Raises :class:`RunFailure` when a node fails; whatever
    happens, nothing is left running.
    """
    state = RunState(problem, policy, directory)
    if prepare is not None:
        prepare(state.queues)
    backend.begin(problem.graph, state.queues)
    level = flags.debug()
    if level:
        _say(backend, f"run of {len(problem.graph)} nodes by {name or 'a plan'}, queues {state.queues}")
    try:
        first = state.start(backend.now())
        _tell(level, state, backend, first)
        backend.perform(first)
        later = False
        while not state.finished:
            for report in backend.wait():
                if level >= 4:
                    _say(backend, str(report))
                commands = state.handle(report)
                if commands:
                    _tell(level, state, backend, commands)
                    later = True
                    backend.perform(commands)
            if state.failed is not None:
                break
            if level >= 4:
                state.validate()
            if progress is not None:
                progress(state.complete)
        seconds = backend.now()
        if level:
            _say(backend, f"{'failed' if state.failed else 'complete'}: {state.complete} nodes")
        record = backend.abort() if state.failed else backend.finish()
        if state.failed is None and record.failure is not None:
            state.fail(record.failure)
    except BaseException as error:
        _lose(state, directory, f"the run was stopped by {type(error).__name__}")
        backend.abort()
        raise
    result = Result(
        graph=problem.graph,
        machine=problem.machine,
        policy=name,
        seconds=seconds,
        record=record,
        decisions=tuple(state.assigner.decisions),
        plan=state.assigner.plan if isinstance(state.assigner, Follow) else _as_plan(state, name, problem.machine),
        commands=None if later else tuple(first),
    )
    if state.failed is not None:
        raise _failure(state, state.failed, result, directory)
    return result


def _say(backend: Backend, text: str) -> None:
    print(f"manycl {backend.now() * 1e3:10.3f} ms: {text}", file=sys.stderr)


def _tell(level: int, state: RunState, backend: Backend, commands: list[Command]) -> None:
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


def _as_plan(state: RunState, name: str, machine: Machine) -> Plan:
    """What a dynamic policy decided, so that it can be done again without asking."""
    return Plan(tuple(state.issued), name, tuple(d.name for d in machine.devices), 0.0)


def _lose(state: RunState, directory: Directory, reason: str) -> None:
    """After a failure: forget copies that may never have arrived, and what unfinished nodes were to write."""
    for key, memory in state.unfinished_copies():
        directory.drop(key, memory)
    for key in state.unfinished_writes():
        directory.lose(key, reason)


def _failure(state: RunState, failed: Failed, result: Result, directory: Directory) -> ManyclError:
    """Tell the story: which kernel, where, with which sizes, and what was done before."""
    graph, machine = state.graph, result.machine
    device, node, what = state.where(failed.token)
    on = machine.devices[device].name if device >= 0 else "host"
    sizes = ""
    if node is not None and isinstance(task := graph.nodes[node], Launch):
        sizes = f" with NDRange {task.global_size}, work-groups {task.local_size or 'chosen by the driver'}"
    _lose(state, directory, f"{what} failed on {on}")
    trace = result.trace
    kernels = sum(1 for _ in trace.kernels())
    message = (
        f"{what} failed on {on}{sizes}: {failed.message}\n"
        f"  done before: {state.complete} of {len(graph.nodes)} nodes ({kernels} kernels ended on the devices)"
    )
    event = FailureEvent(failed.time, -1 if node is None else node, what, on, failed.message)
    failed_trace = Trace(
        events=(*trace.events, event),
        devices=trace.devices,
        policy=trace.policy,
        makespan=trace.makespan,
        kind=trace.kind,
        application=trace.application,
        edges=trace.edges,
        details=trace.details,
    )
    return RunFailure(message, failed_trace, hint="arrays that unfinished kernels write have unknown contents now")
