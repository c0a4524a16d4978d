"""Launches that were taken apart, and what a plan had foreseen of each kernel, beside what happened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from manycl.intervals import union_length
from manycl.report.words import percent, printable, seconds
from manycl.trace import HostEvent, KernelEvent, Trace, TransferEvent

RANGE, DROPPED = "range", "dropped"


@dataclass(frozen=True, slots=True)
class DividedKernel:
    """A kernel function of which ``launches`` launches ran in ranges of work-groups. ``shares``: of their work-groups,
    0 to 1, by device; ``methods``: how what the ranges wrote was put together; ``merging``: seconds that it took."""

    name: str
    launches: int
    ranges: int
    shares: dict[str, float]
    methods: tuple[str, ...]
    merging: float


@dataclass(frozen=True, slots=True)
class PlannedKernel:
    """Seconds that the launches of a kernel function were planned to take on their devices, and what they took."""

    name: str
    launches: int
    planned: float
    took: float


def spans(events: Iterable[object]) -> dict[int, tuple[str, float]]:
    """By node: its name, and its least seconds: in ranges, those of the longest and of what puts them together."""
    names: dict[int, str] = {}
    longest: dict[int, float] = {}
    more: dict[int, float] = {}
    for event in events:
        if not isinstance(event, KernelEvent | HostEvent):
            continue
        taken = max(0.0, event.end - event.start)
        if isinstance(event, KernelEvent) and event.role not in ("", RANGE):
            taken = 0.0 if event.role == DROPPED else taken
            more[event.node] = more.get(event.node, 0.0) + taken
            continue
        names[event.node] = own_name(event) if isinstance(event, KernelEvent) else event.name
        longest[event.node] = max(longest.get(event.node, 0.0), taken)
    return {node: (name, longest[node] + more.get(node, 0.0)) for node, name in names.items()}


def own_name(event: KernelEvent) -> str:
    """The name of the event's node."""
    if event.role != RANGE:
        return event.name
    return event.name.removesuffix(f" [{event.first}:{event.first + event.groups}]")


def divided(trace: Trace) -> tuple[DividedKernel, ...]:
    """Every kernel function of which a launch ran in ranges, those with the most ranges first."""
    ranges: dict[str, list[KernelEvent]] = {}
    of_node: dict[int, str] = {}
    for event in trace.kernels():
        if event.role == RANGE:
            name = event.kernel or own_name(event)
            ranges.setdefault(name, []).append(event)
            of_node[event.node] = name
    merging = dict.fromkeys(ranges, 0.0)
    for event in trace.kernels():
        if event.role not in ("", RANGE, DROPPED) and event.node in of_node:
            merging[of_node[event.node]] += max(0.0, event.end - event.start)
    found = [_kernel(name, events, merging[name]) for name, events in ranges.items()]
    return tuple(sorted(found, key=lambda k: (-k.ranges, k.name)))


def _kernel(name: str, ranges: list[KernelEvent], merging: float) -> DividedKernel:
    groups: dict[str, int] = {}
    for event in ranges:
        groups[event.device] = groups.get(event.device, 0) + event.groups
    total = sum(groups.values()) or 1
    return DividedKernel(
        name=name,
        launches=len({e.node for e in ranges}),
        ranges=len(ranges),
        shares={device: n / total for device, n in sorted(groups.items())},
        methods=tuple(dict.fromkeys(e.method for e in ranges if e.method)),
        merging=merging,
    )


def planned(trace: Trace) -> tuple[PlannedKernel, ...]:
    """Kernel by kernel, the plan that a run followed (``details["planned"]``) beside what happened."""
    foreseen: dict[int, float] = {}
    for node, taken in trace.details.get("planned", {}).get("seconds", ()):
        foreseen[node] = foreseen.get(node, 0.0) + taken
    took: dict[str, float] = {}
    expected: dict[str, float] = {}
    nodes: dict[str, set[int]] = {}
    of_node = {e.node: e.kernel or own_name(e) for e in trace.kernels() if e.role in ("", RANGE)}
    for event in trace.kernels():
        if event.node in of_node and event.node in foreseen:
            name = of_node[event.node]
            took[name] = took.get(name, 0.0) + max(0.0, event.end - event.start)
            nodes.setdefault(name, set()).add(event.node)
    for name, members in nodes.items():
        expected[name] = sum(foreseen[n] for n in members)
    found = [PlannedKernel(name, len(nodes[name]), expected[name], took[name]) for name in took]
    return tuple(sorted(found, key=lambda k: (-k.took, k.name)))


def divided_rows(found: Iterable[DividedKernel]) -> Iterator[tuple[str, ...]]:
    """Rows of a table: kernel, launches, shares, how they were put together, what that took."""
    for kernel in found:
        shares = ", ".join(f"{printable(device)} {percent(share)}" for device, share in kernel.shares.items())
        cost = seconds(kernel.merging) if kernel.merging else "-"
        yield printable(kernel.name), str(kernel.launches), cost, shares, ", ".join(kernel.methods) or "-"


def planned_rows(found: Iterable[PlannedKernel]) -> Iterator[tuple[str, ...]]:
    """Rows of a table: kernel, launches, planned, took, how far off the plan was."""
    for kernel in found:
        off = f"{100 * (kernel.planned / kernel.took - 1):+.0f} %" if kernel.took else "-"
        yield printable(kernel.name), str(kernel.launches), seconds(kernel.planned), seconds(kernel.took), off


# Why a run took another time than its plan had foreseen: where the time went, beside where it was to go.


NEAR = 0.2
"""A makespan no further off than this part of what was planned needs no explanation."""
_MOST = 3  # kernels that are named


@dataclass(frozen=True, slots=True)
class MissedPlan:
    """A run whose makespan is more than a fifth off its plan's; all in seconds. ``computing``: kernels ran, and so it
    was planned (``planned_computing``); of the rest, ``moving``: only data moved, ``hosting``: only host functions ran,
    ``waiting``: nothing ran. ``kernels``: those that took another time than planned, furthest off first."""

    makespan: float
    planned: float
    computing: float
    planned_computing: float
    moving: float
    hosting: float
    waiting: float
    kernels: tuple[PlannedKernel, ...]


def missed_plan(trace: Trace) -> MissedPlan | None:
    """Return what is to be explained of a run; None where it took about what was planned, or nobody had foreseen
    that."""
    plan = trace.details.get("planned", {})
    foreseen, computing = plan.get("makespan"), plan.get("computing")
    makespan = trace.makespan
    if trace.kind != "run" or not foreseen or computing is None or abs(makespan - foreseen) <= NEAR * foreseen:
        return None
    spans: dict[type[object], list[tuple[float, float]]] = {KernelEvent: [], TransferEvent: [], HostEvent: []}
    for event in trace.events:
        if isinstance(event, KernelEvent | TransferEvent | HostEvent):
            # a device's clock is matched to the host's, so an event may stick out of the run by microseconds
            spans[type(event)].append((max(0.0, event.start), min(makespan, event.end)))
    ran = union_length(spans[KernelEvent])
    hosted = union_length(spans[KernelEvent] + spans[HostEvent])
    busy = union_length(spans[KernelEvent] + spans[HostEvent] + spans[TransferEvent])
    kernels = sorted(planned(trace), key=lambda k: (-abs(k.took - k.planned), k.name))
    return MissedPlan(makespan, foreseen, ran, computing, busy - hosted, hosted - ran, makespan - busy, tuple(kernels))


def missed_lines(missed: MissedPlan) -> Iterator[str]:
    """Return them as lines for people."""
    times = missed.makespan / missed.planned
    yield f"the run took {times:.2g} times what was planned:"
    if not missed.kernels:
        moved = seconds(missed.moving)
        yield f"  its kernels were not timed (Queue(profile=True) has them); something moved for {moved}"
        return
    yield f"  kernels ran for {seconds(missed.computing)}, planned {seconds(missed.planned_computing)}" + _named(missed)
    rest, planned_rest = missed.makespan - missed.computing, missed.planned - missed.planned_computing
    parts = (
        ("only data moved", missed.moving),
        ("only host functions ran", missed.hosting),
        ("nothing ran", missed.waiting),
    )
    shown = ", ".join(f"{words} {seconds(time)}" for words, time in parts if time >= 0.01 * missed.makespan)
    yield f"  the rest was {seconds(rest)}, planned {seconds(max(0.0, planned_rest))}" + (f": {shown}" if shown else "")


def _named(missed: MissedPlan) -> str:
    """Return the kernels that say most."""
    worth = NEAR * abs(missed.makespan - missed.planned) / _MOST
    far = [k for k in missed.kernels[:_MOST] if abs(k.took - k.planned) > worth]
    words = (f"{printable(k.name)} took {seconds(k.took)} instead of {seconds(k.planned)}" for k in far)
    return f": {', '.join(words)}" if far else ""
