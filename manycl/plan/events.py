"""Plans and traces have one shape: a plan's events for charts, and the plan that a trace followed."""

from __future__ import annotations

from dataclasses import replace

from manycl.errors import PolicyError
from manycl.graph.graph import Graph, Launch
from manycl.graph.work_groups import with_work_groups
from manycl.plan.plan import MERGE, ON_HOST, WHOLE, Assignment, Move, Plan
from manycl.plan.problem import Problem
from manycl.trace import Event, HostEvent, KernelEvent, Trace, TransferEvent


def with_events(plan: Plan, graph: Graph) -> Plan:
    """The plan with an event for every node beside the transfers that it holds already, sorted by start."""
    component = {n: c for c, nodes in enumerate(graph.components) for n in nodes}
    events: list[TransferEvent | KernelEvent | HostEvent] = [e for e in plan.events if isinstance(e, TransferEvent)]
    for a in plan.assignments:
        task = graph.nodes[a.node]
        if isinstance(task, Launch):
            events.append(kernel_event(a, task, plan.devices[a.device], component.get(a.node, -1)))
        else:
            events.append(HostEvent(a.node, task.name, a.start, a.end))
    events.sort(key=lambda e: e.start)
    return replace(plan, events=tuple(events))


def kernel_event(a: Assignment, task: Launch, device: str, component: int = -1) -> KernelEvent:
    """The event of a launch, or of a range of it: its NDRange is the range's, its name says which groups."""
    name, size, role = task.name, task.global_size, ""
    if a.dimension == MERGE:
        name, role = f"merge {name}", "merge"
    elif a.dimension != WHOLE:
        name, role = f"{name} [{a.first}:{a.first + a.groups}]", "range"
        local = with_work_groups(task).local_size
        if local is not None:
            items = a.groups * local[a.dimension]
            size = (*size[: a.dimension], items, *size[a.dimension + 1 :])
    part = (role, a.dimension, a.first, a.groups) if role == "range" else (role,)
    return KernelEvent(
        a.node, name, device, a.queue, a.start, a.end, size, task.local_size, component, task.kernel.name, *part
    )


def move_event(m: Move, problem: Problem) -> TransferEvent:
    """The event of a move."""
    machine, buffer = problem.machine, problem.graph.buffers[m.buffer]
    name = buffer.name or f"buffer {buffer.key}"
    source, target = machine.memory_name(m.source), machine.memory_name(m.target)
    return TransferEvent(m.buffer, name, source, target, m.nbytes, m.start, m.end)


def plan_of(trace: Trace) -> Plan:
    """The plan that a complete trace followed: who ran where and when. Raises PolicyError after a failed
    run."""
    assignments: list[Assignment] = []
    events: list[Event] = []
    for e in trace.events:
        if isinstance(e, KernelEvent):
            assignments.append(Assignment(e.node, trace.devices.index(e.device), e.queue, e.start, e.end))
            events.append(e)
        elif isinstance(e, HostEvent):
            assignments.append(Assignment(e.node, ON_HOST, 0, e.start, e.end))
            events.append(e)
        elif isinstance(e, TransferEvent):
            events.append(e)
    if sorted(a.node for a in assignments) != list(range(len(assignments))) or any(
        max(edge) >= len(assignments) for edge in trace.edges
    ):
        raise PolicyError("the trace is not of a complete run: there is no plan in it")
    # edges lead from low to high nodes, so this order is topological even where something takes no time
    assignments.sort(key=lambda a: (a.start, a.end, a.node))
    return Plan(
        assignments=tuple(assignments),
        policy=trace.policy,
        devices=trace.devices,
        makespan=max((a.end for a in assignments), default=0.0),
        events=tuple(events),
        details=trace.details,
    )
