"""An independent judge of plans: every fault is found by one small check; it shares no code with the policies."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import isfinite

from manycl.errors import PolicyError
from manycl.graph.graph import Graph, HostTask, Launch, LocalArg, Node, Placement
from manycl.machine import HOST, Machine
from manycl.plan.plan import MERGE, ON_HOST, WHOLE, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.verification.verify_data import Data
from manycl.plan.verification.verify_memory import check_host_memory
from manycl.trace import HostEvent, KernelEvent, TransferEvent


def verify(
    plan: Plan, graph: Graph, machine: Machine, problem: Problem | None = None, *, preferences: bool = True
) -> None:
    """Raise :class:`PolicyError` that lists every fault of the plan, or return.

    Every work-group of every node runs exactly once. With a problem it is also checked that queues are within its
    counts, nothing runs before ``not_before``, no kernel is faster than estimated, no transfer between memories is
    faster than estimated, no more is drawn of the host's memory than it carries
    (``plan/verification/verify_memory.py``), working sets fit into the memories, fixed assignments are kept, and
    (``preferences``: ``eager`` ignores them by definition) kernels run only on devices that they allow.

    The engine runs divided launches in parts of its own, each as soon as the bytes that it touches allow. When a plan
    with ranges is foreseen by it, the waits of each part are judged in its command graph
    (``tests/run/commands/verify_commands.py``).
    """
    faults = [*check_devices(plan, machine), *check_nodes(plan, graph, problem), *check_places(plan, graph)]
    if not faults:
        in_parts = plan.foreseen and plan.is_split
        faults = [*check_order(plan, graph), *check_overlap(plan), *check_makespan(plan)]
        if not in_parts:
            faults += check_precedence(plan, graph)
        if problem is not None:
            checks = (check_queues, check_earliest, check_durations, check_feasible, check_fixed, check_host_memory)
            faults += [fault for check in checks for fault in check(plan, problem)]
            faults += [*check_needs(plan, problem), *check_placements(plan, problem)]
            if not in_parts:
                data = Data(plan, problem)
                faults += [*data.merges(), *data.arrivals()]
            if preferences:
                faults += check_preferences(plan, problem)
    if faults:
        shown = "\n".join(f"  - {f}" for f in faults)
        raise PolicyError(f"the plan of {plan.policy} is not valid:\n{shown}")


def _spans(plan: Plan) -> tuple[dict[int, float], dict[int, float]]:
    """Return when the first of each node's assignments starts, and when its last ends."""
    start: dict[int, float] = {}
    end: dict[int, float] = {}
    for a in plan.assignments:
        start[a.node] = min(start.get(a.node, a.start), a.start)
        end[a.node] = max(end.get(a.node, a.end), a.end)
    return start, end


def check_devices(plan: Plan, machine: Machine) -> Iterator[str]:
    """Yield a fault if the plan is not for this machine."""
    names = tuple(d.name for d in machine.devices)
    if plan.devices != names:
        yield f"it is for devices {', '.join(plan.devices)}, not for {', '.join(names)}"


def check_nodes(plan: Plan, graph: Graph, problem: Problem | None = None) -> Iterator[str]:
    """Yield faults unless every work-group of every node runs exactly once, and there are no other nodes."""
    of: list[list[Assignment]] = [[] for _ in graph.nodes]
    for a in plan.assignments:
        if 0 <= a.node < len(of):
            of[a.node].append(a)
        else:
            yield f"node {a.node} does not exist"
    for node, members in enumerate(of):
        name = f"node {node} ({graph.nodes[node].name})"
        if any(a.dimension is not WHOLE for a in members):
            yield from (f"{name} {fault}" for fault in _ranges(members, graph.nodes[node], node, problem))
        elif len(members) != 1:
            yield f"{name} is assigned {len(members)} times"


def _ranges(members: list[Assignment], task: Node, node: int, problem: Problem | None) -> Iterator[str]:
    """Yield the faults of a node that is divided into ranges of work-groups."""
    parts = [a for a in members if a.dimension is not MERGE]
    split = problem.splits.get(node) if problem is not None else None
    if not isinstance(task, Launch) or (problem is not None and split is None):
        yield "may not be split"
        return
    dimensions = {a.dimension for a in parts}
    if len(dimensions) != 1 or not dimensions <= set(range(len(task.global_size))):
        yield f"is split along the dimensions {', '.join(sorted(map(str, dimensions)))}"
        return
    dimension = parts[0].range.dimension
    known = set() if split is None else {split.groups}
    if task.local_size is not None:
        known.add(-(-task.global_size[dimension] // task.local_size[dimension]))
    if len(known) != 1 or (split is not None and split.dimension != dimension):
        yield f"has no known number of groups along dimension {dimension}"
        return
    following, groups = 0, known.pop()
    for a in sorted(parts, key=lambda a: a.first):
        if a.groups < 1 or a.first != following:
            what = "twice" if a.first < following else "never"
            yield f"has group {min(a.first, following)} run {what}" if a.groups > 0 else "has an empty range"
            return
        following = a.first + a.groups
    if following != groups:
        yield f"has {groups} groups along dimension {dimension}, but ranges for {following}"


def check_places(plan: Plan, graph: Graph) -> Iterator[str]:
    """Yield faults unless tasks are on the host, launches on a device, in a queue, and none ends before its start."""
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
    """Yield a fault for each node that is dispatched before one that it depends on."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for i, a in enumerate(plan.assignments):
        first.setdefault(a.node, i)
        if a.node in last and plan.assignments[last[a.node]].dimension is MERGE:
            yield f"node {a.node} is merged before all of it is dispatched"
        last[a.node] = i
    for before, after in graph.edges:
        if last[before] > first[after]:
            yield f"node {after} is dispatched before node {before}, on which it depends"


def check_overlap(plan: Plan) -> Iterator[str]:
    """Yield faults unless a queue runs one node at a time, in the order of dispatch, and so does the host. For a
    foreseen plan the kernels are known part by part."""
    queues: dict[tuple[str, int], list[tuple[float, float, int]]] = {}
    if plan.foreseen:
        for e in plan.events:
            if isinstance(e, KernelEvent):
                queues.setdefault((e.device, e.queue), []).append((e.start, e.end, e.node))
            elif isinstance(e, HostEvent):
                queues.setdefault(("the host", 0), []).append((e.start, e.end, e.node))
        for members in queues.values():
            members.sort()
    else:
        for a in plan.assignments:
            device = plan.devices[a.device] if a.device != ON_HOST else "the host"
            queues.setdefault((device, a.queue), []).append((a.start, a.end, a.node))
    for (device, queue), members in sorted(queues.items()):
        where = f"queue {queue} of {device}" if device != "the host" else device
        for (_, end, first), (start, _, second) in pairwise(members):
            if start < end - plan.slack:
                yield f"on {where} node {second} starts before node {first} ends"


def check_precedence(plan: Plan, graph: Graph) -> Iterator[str]:
    """Yield a fault for each node that starts before a node that it depends on has ended."""
    slack = plan.slack
    start, end = _spans(plan)
    for before, after in graph.edges:
        if start[after] < end[before] - slack:
            yield f"node {after} starts before node {before} ends, on which it depends"


def check_makespan(plan: Plan) -> Iterator[str]:
    """Yield a fault if the makespan is not the last end, for a foreseen plan also of transfers."""
    ends = [e.end for e in plan.events if isinstance(e, TransferEvent)] if plan.foreseen else []
    last = max([*(a.end for a in plan.assignments), *ends], default=plan.makespan)
    if abs(last - plan.makespan) > plan.slack:
        yield f"the makespan is given as {plan.makespan}, but the last node ends at {last}"


def check_queues(plan: Plan, problem: Problem) -> Iterator[str]:
    """Yield a fault for each queue that the problem does not offer."""
    for a in plan.assignments:
        if a.device != ON_HOST and a.queue >= problem.queues[a.device]:
            count = problem.queues[a.device]
            yield f"node {a.node} is in queue {a.queue} of {plan.devices[a.device]}, which has {count}"


def check_earliest(plan: Plan, problem: Problem) -> Iterator[str]:
    """Yield a fault for each assignment that starts before ``not_before`` and is not fixed."""
    slack, fixed = plan.slack, set(problem.fixed)
    for a in plan.assignments:
        if a.start < problem.not_before - slack and a not in fixed:
            yield f"node {a.node} starts at {a.start}, before {problem.not_before}"


def check_durations(plan: Plan, problem: Problem) -> Iterator[str]:
    """Yield a fault for each kernel that takes less time than estimated (beside others more), or in another version."""
    slack, fixed = plan.slack, set(problem.fixed)
    for a in plan.assignments:
        if a.device == ON_HOST or a.dimension is MERGE or a in fixed:
            continue
        least = problem.range_seconds(a.node, a.device, a.groups if a.dimension is not WHOLE else 0, a.first)
        if a.end - a.start < least - slack:
            yield f"node {a.node} takes {a.end - a.start} s, but is estimated at {least} s"
        if a.version and a.version != problem.version(a.node, a.device):
            yield f"node {a.node} runs version {a.version}, which is not the one estimated for its device"


def check_feasible(plan: Plan, problem: Problem) -> Iterator[str]:
    """Yield a fault where no version can run, or the bytes that a range touches do not fit into the device's memory;
    whole kernels that do not fit run in ranges."""
    fixed = set(problem.fixed)
    for a in plan.assignments:
        if a.device == ON_HOST or a in fixed:
            continue
        where = plan.devices[a.device]
        if a.dimension is MERGE:
            device, task = problem.machine.devices[a.device], problem.graph.nodes[a.node]
            # the old contents and two results of each buffer, one after another
            least = 3 * max((problem.graph.buffers[key].nbytes for key in task.writes), default=0)
            if problem.splits[a.node].merge == "kernel":  # its inputs as well, and one more result of all
                touched = {*task.reads, *task.writes}
                least = sum((1 + (key in task.writes)) * problem.graph.buffers[key].nbytes for key in touched)
            if device.memory != HOST and least > device.global_memory:
                yield f"what merging the results of node {a.node} needs does not fit into the memory of {where}"
        elif not isfinite(problem.estimates.launch(a.node, a.device)):
            yield f"node {a.node} cannot run on {where}, to which it is assigned"
        elif a.dimension is WHOLE and problem.in_ranges(a.node, a.device):
            continue
        elif not problem.fits(a.node, a.device, a.first, a.groups if a.dimension is not WHOLE else 0):
            yield f"what node {a.node} touches does not fit into the memory of {where}"


def check_needs(plan: Plan, problem: Problem) -> Iterator[str]:
    """Yield a fault for each launch on a device that does not have what its kernel needs (REPARA, Eq. 1, 2, 5)."""
    for a in plan.assignments:
        task = problem.graph.nodes[a.node]
        if a.device == ON_HOST or a.dimension is MERGE or not isinstance(task, Launch):
            continue
        device, runs = problem.machine.devices[a.device], task.versions[a.version] if task.versions else task
        kernel, items = runs.kernel, 1
        for n in runs.local_size or ():
            items *= n
        local = kernel.local_bytes + sum(x.nbytes for x in task.args if isinstance(x, LocalArg))
        lacking = {
            "double precision": kernel.uses_double and not device.double,
            "images": "images" in device.lacks.split() and any(x.kind == "image" for x in kernel.arguments),
            "extensions": not set(device.lacks.split()).isdisjoint(kernel.extensions),
            "work-groups so large": items > device.max_work_group,
            "so much local memory": local > device.local_memory,
        }
        yield from (
            f"node {a.node} needs {what}, which {device.name} lacks" for what, lacks in lacking.items() if lacks
        )


def check_placements(plan: Plan, problem: Problem) -> Iterator[str]:
    """Yield a fault for each launch on a device that its user has excluded, and for each on too many."""
    on: dict[int, set[int]] = {}
    for a in plan.assignments:
        wanted = getattr(problem.graph.nodes[a.node], "device", "")
        if not isinstance(wanted, Placement) or a.dimension is MERGE:
            continue
        device = problem.machine.devices[a.device]
        names = {device.kind, *(device.name.rsplit(".", n)[0] for n in range(device.name.count(".") + 1))}
        if (wanted.only and names.isdisjoint(wanted.only)) or not names.isdisjoint(wanted.never):
            yield f"node {a.node} is on {device.name}, which is excluded by {wanted}"
        on.setdefault(a.node, set()).add(a.device)
        if 0 < wanted.at_most < len(on[a.node]):
            yield f"node {a.node} is on {len(on[a.node])} devices, but has {wanted}"


def check_fixed(plan: Plan, problem: Problem) -> Iterator[str]:
    """Yield a fault for each fixed assignment that is not in the plan."""
    planned = set(plan.assignments)
    for a in problem.fixed:
        if a not in planned:
            yield f"node {a.node} was fixed to {a}, which is not in the plan"


def check_preferences(plan: Plan, problem: Problem) -> Iterator[str]:
    """Yield a fault for each launch on a device that its preference does not allow."""
    for a in plan.assignments:
        task = problem.graph.nodes[a.node]
        if not isinstance(task, HostTask) and a.device not in problem.preferred(a.node):
            yield f"node {a.node} prefers {task.device}, but is assigned to {plan.devices[a.device]}"
