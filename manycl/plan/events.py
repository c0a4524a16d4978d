"""Plans and traces have one shape: the plan that a trace followed."""

from __future__ import annotations

from manycl.errors import PolicyError
from manycl.machine import DeviceIndex
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.trace import Event, HostEvent, KernelEvent, Trace, TransferEvent


def plan_of(trace: Trace) -> Plan:
    """The plan that a complete trace followed: who ran where and when. Raises PolicyError after a failed
    run."""
    assignments: list[Assignment] = []
    events: list[Event] = []
    for e in trace.events:
        if isinstance(e, KernelEvent):
            assignments.append(Assignment(e.node, DeviceIndex(trace.devices.index(e.device)), e.queue, e.start, e.end))
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
        foreseen=trace.kind == "simulation",
    )
