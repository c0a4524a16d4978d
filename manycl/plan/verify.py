"""An independent judge of plans: every fault is found by one small check; shares no code with the
policies."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from manycl.errors import PolicyError
from manycl.graph.graph import Graph, HostTask, Launch
from manycl.machine import HOST, Machine
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem

SLACK = 1e-9
"""Two times are equal when they differ by no more than this part of the makespan (sums of floats are not
exact)."""


def verify(
    plan: Plan, graph: Graph, machine: Machine, problem: Problem | None = None, *, preferences: bool = True
) -> None:
    """Raise :class:`PolicyError` that lists every fault of the plan, or return.

    With a problem also: queues within its counts, nothing before ``not_before``, no kernel faster than
    estimated, data moved between memories in no less than the estimated time, and (``preferences``: ``eager``
    ignores them by definition) only devices that each kernel allows.
    """
    faults = [*check_devices(plan, machine), *check_nodes(plan, graph), *check_places(plan, graph)]
    if not faults:
        faults = [
            *check_order(plan, graph),
            *check_overlap(plan, graph),
            *check_precedence(plan, graph),
            *check_makespan(plan),
        ]
        if problem is not None:
            faults += [
                *check_queues(plan, problem),
                *check_earliest(plan, problem),
                *check_durations(plan, problem),
                *check_transfers(plan, problem),
            ]
            if preferences:
                faults += check_preferences(plan, problem)
    if faults:
        shown = "\n".join(f"  - {f}" for f in faults)
        raise PolicyError(f"the plan of {plan.policy} is not valid:\n{shown}")


def _slack(plan: Plan) -> float:
    return SLACK * max(abs(plan.makespan), max((abs(a.end) for a in plan.assignments), default=0.0))


def _by_node(plan: Plan) -> dict[int, Assignment]:
    return {a.node: a for a in plan.assignments}


def check_devices(plan: Plan, machine: Machine) -> Iterator[str]:
    """The plan is for this machine."""
    names = tuple(d.name for d in machine.devices)
    if plan.devices != names:
        yield f"it is for devices {', '.join(plan.devices)}, not for {', '.join(names)}"


def check_nodes(plan: Plan, graph: Graph) -> Iterator[str]:
    """Every node exactly once, and no others."""
    times = [0] * len(graph.nodes)
    for a in plan.assignments:
        if 0 <= a.node < len(times):
            times[a.node] += 1
        else:
            yield f"node {a.node} does not exist"
    for node, count in enumerate(times):
        if count != 1:
            yield f"node {node} ({graph.nodes[node].name}) is assigned {count} times"


def check_places(plan: Plan, graph: Graph) -> Iterator[str]:
    """Host tasks on the host, launches on a device, in a queue; an end not before its start."""
    for a in plan.assignments:
        if not 0 <= a.node < len(graph.nodes):
            continue
        name = f"node {a.node} ({graph.nodes[a.node].name})"
        if isinstance(graph.nodes[a.node], HostTask):
            if a.device != ON_HOST:
                yield f"{name} is a host task but is assigned to device {a.device}"
        elif not 0 <= a.device < len(plan.devices):
            yield f"{name} is assigned to device {a.device}; there are {len(plan.devices)}"
        if a.queue < 0:
            yield f"{name} is assigned to queue {a.queue}"
        if not a.start <= a.end:
            yield f"{name} starts at {a.start} and ends at {a.end}"


def check_order(plan: Plan, graph: Graph) -> Iterator[str]:
    """No node is dispatched before one that it depends on."""
    position = {a.node: i for i, a in enumerate(plan.assignments)}
    for before, after in graph.edges:
        if position[before] > position[after]:
            yield f"node {after} is dispatched before node {before}, on which it depends"


def check_overlap(plan: Plan, graph: Graph) -> Iterator[str]:
    """A queue runs one node at a time, in the order of dispatch; so does the host."""
    slack = _slack(plan)
    queues: dict[tuple[int, int], list[Assignment]] = {}
    for a in plan.assignments:
        queues.setdefault((a.device, a.queue), []).append(a)
    for (device, queue), members in sorted(queues.items()):
        where = f"queue {queue} of {plan.devices[device]}" if device != ON_HOST else "the host"
        for first, second in pairwise(members):
            if second.start < first.end - slack:
                yield f"on {where} node {second.node} starts before node {first.node} ends"


def check_precedence(plan: Plan, graph: Graph) -> Iterator[str]:
    """No node starts before every node it depends on has ended."""
    slack, of = _slack(plan), _by_node(plan)
    for before, after in graph.edges:
        if of[after].start < of[before].end - slack:
            yield f"node {after} starts before node {before} ends, on which it depends"


def check_makespan(plan: Plan) -> Iterator[str]:
    """The makespan is the last end."""
    last = max((a.end for a in plan.assignments), default=plan.makespan)
    if abs(last - plan.makespan) > _slack(plan):
        yield f"the makespan is given as {plan.makespan}, but the last node ends at {last}"


def check_queues(plan: Plan, problem: Problem) -> Iterator[str]:
    """Only queues that the problem offers."""
    for a in plan.assignments:
        if a.device != ON_HOST and a.queue >= problem.queues[a.device]:
            count = problem.queues[a.device]
            yield f"node {a.node} is in queue {a.queue} of {plan.devices[a.device]}, which has {count}"


def check_earliest(plan: Plan, problem: Problem) -> Iterator[str]:
    """Nothing starts before ``not_before``."""
    for a in plan.assignments:
        if a.start < problem.not_before - _slack(plan):
            yield f"node {a.node} starts at {a.start}, before {problem.not_before}"


def check_durations(plan: Plan, problem: Problem) -> Iterator[str]:
    """No kernel takes less time than estimated (it may take more, beside others)."""
    slack = _slack(plan)
    for a in plan.assignments:
        if a.device != ON_HOST:
            least = problem.estimates.launch(a.node, a.device)
            if a.end - a.start < least - slack:
                yield f"node {a.node} takes {a.end - a.start} s, but is estimated at {least} s"


def check_transfers(plan: Plan, problem: Problem) -> Iterator[str]:
    """Between the end of a writer and the start of a reader in another memory lies the time of the transfer;
    and before the first reader of initial contents, the time from the nearest memory that holds them."""
    slack, of = _slack(plan), _by_node(plan)
    graph, devices = problem.graph, problem.machine.devices

    def memory(a: Assignment) -> int:
        return HOST if a.device == ON_HOST else devices[a.device].memory

    def least(key: int, source: int, target: int) -> float:
        nbytes, transfer = graph.buffers[key].nbytes, problem.estimates.transfer
        by_host = transfer(nbytes, source, HOST) + transfer(nbytes, HOST, target)
        return min(transfer(nbytes, source, target), by_host)

    for node, before in enumerate(graph.predecessors):
        here = of[node]
        produced = set()
        for p in before:
            for key in {*graph.nodes[p].writes} & {*graph.nodes[node].reads}:
                produced.add(key)
                earliest = of[p].end + least(key, memory(of[p]), memory(here))
                if here.start < earliest - slack:
                    yield f"node {node} starts before buffer {key} of node {p} can have arrived"
        for key in {*graph.nodes[node].reads} - produced:
            places = problem.valid.get(key)
            if places and not any(key in graph.nodes[n].writes for n in range(node)):
                earliest = problem.not_before + min(least(key, m, memory(here)) for m in places)
                if here.start < earliest - slack:
                    yield f"node {node} starts before buffer {key} can have arrived"


def check_preferences(plan: Plan, problem: Problem) -> Iterator[str]:
    """Every launch runs on a device that its preference allows."""
    for a in plan.assignments:
        task = problem.graph.nodes[a.node]
        if isinstance(task, Launch) and a.device not in problem.allowed(a.node):
            yield f"node {a.node} prefers {task.device}, but is assigned to {plan.devices[a.device]}"
