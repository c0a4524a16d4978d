"""Launches that were taken apart, and what a plan had foreseen of each kernel, beside what happened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from manycl.report.words import percent, printable, seconds
from manycl.trace import HostEvent, KernelEvent, Trace

RANGE = "range"


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
    """By node: its name, and the seconds that it cannot take less of: of one that ran in ranges, those of the longest
    and of what puts the ranges together."""
    names: dict[int, str] = {}
    longest: dict[int, float] = {}
    more: dict[int, float] = {}
    for event in events:
        if not isinstance(event, KernelEvent | HostEvent):
            continue
        taken = max(0.0, event.end - event.start)
        if isinstance(event, KernelEvent) and event.role not in ("", RANGE):
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
        if event.role not in ("", RANGE) and event.node in of_node:
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
