"""Summaries of traces: makespan, busy devices, bytes on links, the longest path."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import groupby
from typing import Any

from manycl.errors import ManyclError
from manycl.intervals import quotient, union_length
from manycl.report import decisions
from manycl.report.divided import (
    DividedKernel,
    MissedPlan,
    PlannedKernel,
    divided,
    divided_rows,
    missed_lines,
    missed_plan,
    planned,
    planned_rows,
)
from manycl.report.divided import spans as node_spans
from manycl.report.words import aligned, between, count, joules, nbytes, percent, printable, rate, seconds
from manycl.trace import FailureEvent, HostEvent, KernelEvent, Trace, TransferEvent

_MOST_DEVICES = 8
_MOST_LINKS = 6
_MOST_FAILURES = 2
_MOST_KERNELS = 5
_WIDTH = 100
_BAR = 20


@dataclass(frozen=True, slots=True)
class DeviceSummary:
    """``busy``: seconds within the makespan in which a queue ran a kernel; ``share``: of it, 0 to 1."""

    name: str
    kernels: int
    queues: int
    busy: float
    share: float


@dataclass(frozen=True, slots=True)
class LinkSummary:
    """Transfers from one memory to another, or within a device's (``source`` and ``target`` are the same). ``busy``:
    seconds in which one was under way; ``rate``: bytes per busy second, or None."""

    source: str
    target: str
    transfers: int
    nbytes: int
    busy: float
    rate: float | None


@dataclass(frozen=True, slots=True)
class PathSummary:
    """The longest path through the edges by the nodes' own durations, in seconds (transfers and waiting left
    out): with these durations no schedule is shorter. ``share`` is of the makespan."""

    nodes: tuple[int, ...]
    names: tuple[str, ...]
    seconds: float
    share: float

    def runs(self) -> Iterator[str]:
        """The names, safe to show, with equal neighbours counted: ``scale x3``."""
        for name, group in groupby(self.names):
            times = len(list(group))
            yield printable(name) + (f" x{times}" if times > 1 else "")


@dataclass(frozen=True, slots=True)
class Summary:
    """Times in seconds. ``devices`` in the trace's order, idle ones too; ``links`` by bytes, most first. ``divided``:
    kernels that ran in ranges of work-groups; ``planned``: what the plan of a run had foreseen of each kernel, and of
    the run; ``memory``: devices that did not hold all that they needed; ``unforeseen``: what failed that the run went
    on without; ``moving``: kernels of which it was decided whether their shares move while they run; ``compiled``:
    seconds beside the makespan in which devices only compiled kernels; ``missed``: why it took another time than
    planned; ``replanned``: when and why what was left of it was planned anew; ``merged``: when what parts of launches
    wrote went to the host; ``submitted``: which commands were eager, or planned, and why; ``divisions``: which launches
    were divided, and why others were not; ``joules``: by device, as predicted, or by meter, as measured."""

    application: str
    policy: str
    kind: str
    makespan: float
    kernels: int
    host_tasks: int
    host_seconds: float
    devices: tuple[DeviceSummary, ...]
    links: tuple[LinkSummary, ...]
    path: PathSummary
    failures: tuple[str, ...]
    divided: tuple[DividedKernel, ...] = ()
    planned: tuple[PlannedKernel, ...] = ()
    planned_makespan: float | None = None
    memory: tuple[decisions.LimitedDevice, ...] = ()
    unforeseen: tuple[str, ...] = ()
    moving: tuple[decisions.MovingShares, ...] = ()
    compiled: float = 0.0
    missed: MissedPlan | None = None
    replanned: tuple[decisions.Replanned, ...] = ()
    merged: decisions.Merged | None = None
    submitted: tuple[str, ...] = ()
    divisions: tuple[decisions.LaunchDivision, ...] = ()
    joules: Mapping[str, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; the keys are the fields' names."""
        return asdict(self)

    def text(self) -> str:
        """Return it for people: aligned, at most about 25 lines whatever the trace."""
        return "\n".join(_lines(self))


def summarise(trace: Trace) -> Summary:
    """The summary of a run, a simulation or a plan; an empty trace gives zeros. Raises
    :class:`manycl.errors.ManyclError` where the trace's edges form a cycle."""
    kernels: dict[str, list[KernelEvent]] = {name: [] for name in trace.devices}
    transfers: defaultdict[tuple[str, str], list[TransferEvent]] = defaultdict(list)
    hosts: list[HostEvent] = []
    failures: list[str] = []
    for event in trace.events:
        if isinstance(event, KernelEvent):
            kernels.setdefault(event.device, []).append(event)
        elif isinstance(event, TransferEvent):
            transfers[event.source, event.target].append(event)
        elif isinstance(event, HostEvent):
            hosts.append(event)
        elif isinstance(event, FailureEvent):
            failures.append(f"{event.name} on {event.device} at {seconds(event.time)}: {event.message}")
    makespan = max(0.0, trace.makespan)
    spans = node_spans(trace.events)
    path = longest_path({node: duration for node, (_, duration) in spans.items()}, trace.edges)
    length = sum(spans[node][1] for node in path)
    links = [_link(*ends, moved) for ends, moved in transfers.items()]
    return Summary(
        application=trace.application,
        policy=trace.policy,
        kind=trace.kind,
        makespan=makespan,
        kernels=sum(map(len, kernels.values())),
        host_tasks=len(hosts),
        host_seconds=sum(map(_duration, hosts)),
        devices=tuple(_device(name, ran, makespan) for name, ran in kernels.items()),
        links=tuple(sorted(links, key=lambda link: (-link.nbytes, link.source, link.target))),
        path=PathSummary(path, tuple(spans[node][0] for node in path), length, _share(length, makespan)),
        failures=tuple(failures),
        divided=divided(trace),
        planned=planned(trace),
        planned_makespan=trace.details.get("planned", {}).get("makespan"),
        memory=decisions.told(trace, "memory", decisions.LimitedDevice),
        unforeseen=decisions.unforeseen(trace),
        moving=decisions.moving_shares(trace),
        compiled=trace.details.get("compiled", 0.0),
        missed=missed_plan(trace),
        replanned=decisions.told(trace, "replanned", decisions.Replanned),
        merged=decisions.merged(trace),
        submitted=decisions.submitted(trace),
        divisions=decisions.told(trace, "divisions", decisions.LaunchDivision),
        joules=trace.details.get("joules"),
    )


def _duration(event: KernelEvent | TransferEvent | HostEvent) -> float:
    return max(0.0, event.end - event.start)


def _share(part: float, whole: float) -> float:
    return quotient(part, whole) or 0.0


def _device(name: str, ran: list[KernelEvent], makespan: float) -> DeviceSummary:
    # a device's clock is matched to the host's, so an event may stick out of the run by microseconds
    busy = min(makespan, union_length((max(0.0, e.start), min(makespan, e.end)) for e in ran))
    return DeviceSummary(name, len(ran), len({e.queue for e in ran}), busy, _share(busy, makespan))


def _link(source: str, target: str, moved: list[TransferEvent]) -> LinkSummary:
    total = sum(e.nbytes for e in moved)
    busy = union_length((e.start, e.end) for e in moved)
    return LinkSummary(source, target, len(moved), total, busy, quotient(total, busy))


def _lines(summary: Summary) -> Iterator[str]:
    title = printable(summary.application) or "application"
    yield f"{title}: {summary.kind}, policy {printable(summary.policy) or 'unnamed'}"
    counts = count(summary.kernels, "kernel")
    if summary.host_tasks:
        counts += f", {count(summary.host_tasks, 'host function')} ({seconds(summary.host_seconds)})"
    foreseen = f" (planned {seconds(summary.planned_makespan)})" if summary.planned_makespan is not None else ""
    yield f"makespan {seconds(summary.makespan)}{foreseen}, {counts}"
    if summary.joules:
        each = ", ".join(f"{printable(name)} {joules(value)}" for name, value in summary.joules.items())
        yield _cut(f"energy {joules(sum(summary.joules.values()))}: {each}")
    yield from map(_cut, summary.submitted[:_MOST_KERNELS])
    if summary.compiled:
        yield f"compiled {seconds(summary.compiled)}: drivers built kernels for their first launch; not in the makespan"
    for failure in summary.failures[:_MOST_FAILURES]:
        yield _cut(printable(f"FAILED: {' '.join(failure.split())}"), 3 * _WIDTH)
    for failed in summary.unforeseen[:_MOST_FAILURES]:
        yield _cut(printable(f"went on without: {' '.join(failed.split())}"), 3 * _WIDTH)
    memory = decisions.limited_rows(summary.memory[:_MOST_DEVICES])
    ranges = divided_rows(summary.divided[:_MOST_KERNELS])
    for part in (
        _devices(summary),
        _links(summary),
        table(("memory", "holds", "of", "again", "leave", "predicted"), memory),
        decisions.replanned_lines(summary.replanned, _MOST_KERNELS),
        table(("divided", "launches", "merging", "", ""), ranges),
    ):
        yield from _apart(part)
    yield from decisions.merged_lines(summary.merged) if summary.merged is not None else ()
    foreseen_rows = planned_rows(summary.planned[:_MOST_KERNELS])
    for part in (
        decisions.moving_lines(summary.moving, _MOST_KERNELS),
        _divisions(summary),
        table(("kernel", "launches", "planned", "took", "off"), foreseen_rows),
        missed_lines(summary.missed) if summary.missed is not None else iter(()),
        _path(summary),
    ):
        yield from _apart(part)


def _apart(lines: Iterator[str]) -> Iterator[str]:
    """Lines below an empty one, cut where they are far too long."""
    for number, line in enumerate(lines):
        if number == 0:
            yield ""
        yield _cut(line, 3 * _WIDTH)


DEVICES = ("device", "kernels", "queues", "busy", "share", "")
LINKS = ("link", "transfers", "bytes", "busy", "rate")


def _devices(summary: Summary) -> Iterator[str]:
    bars = ("#" * round(_BAR * device.share) for device in _shown(summary))
    rows = ((*device_row(device), bar) for device, bar in zip(_shown(summary), bars, strict=True))
    yield from table(DEVICES, rows)
    if len(summary.devices) > _MOST_DEVICES:
        yield f"... and {len(summary.devices) - _MOST_DEVICES} less busy devices"


def _links(summary: Summary) -> Iterator[str]:
    yield from table(LINKS, map(link_row, summary.links[:_MOST_LINKS]))
    if len(summary.links) > _MOST_LINKS:
        rest = sum(link.nbytes for link in summary.links[_MOST_LINKS:])
        yield f"... and {len(summary.links) - _MOST_LINKS} more links, {nbytes(rest)}"


def _divisions(summary: Summary) -> Iterator[str]:
    yield from aligned([found.row() for found in summary.divisions[:_MOST_KERNELS]])
    if len(summary.divisions) > _MOST_KERNELS:
        yield f"... and {len(summary.divisions) - _MOST_KERNELS} more kinds of launches"


def _path(summary: Summary) -> Iterator[str]:
    path = summary.path
    if path.nodes:
        yield f"longest path {seconds(path.seconds)} ({percent(path.share)}), {count(len(path.nodes), 'node')}:"
        yield _cut(f"  {' -> '.join(path.runs())}")


def _shown(summary: Summary) -> tuple[DeviceSummary, ...]:
    """The busiest devices, in the trace's order."""
    if len(summary.devices) <= _MOST_DEVICES:
        return summary.devices
    busiest = set(sorted(summary.devices, key=lambda d: (-d.busy, d.name))[:_MOST_DEVICES])
    return tuple(d for d in summary.devices if d in busiest)


def device_row(device: DeviceSummary) -> tuple[str, ...]:
    """The cells below DEVICES, but for the bar."""
    counts = str(device.kernels), str(device.queues)
    return printable(device.name), *counts, seconds(device.busy), percent(device.share)


def link_row(link: LinkSummary, arrow: str = "->") -> tuple[str, ...]:
    """The cells below LINKS."""
    name = printable(between(link.source, link.target, arrow))
    speed = rate(link.rate) if link.rate is not None else "-"
    return name, str(link.transfers), nbytes(link.nbytes), seconds(link.busy), speed


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Rows as aligned lines: first column and those without a heading to the left, others to the right."""
    cells = [head, *rows]
    if len(cells) == 1:
        return
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    for row in cells:
        words = [
            cell.rjust(width) if i and head[i] else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(words).rstrip()


def _cut(line: str, width: int = _WIDTH) -> str:
    return line if len(line) <= width else f"{line[: width - 4]} ..."


# The longest path through a trace's edges.


def longest_path(durations: Mapping[int, float], edges: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """Nodes of a path with the largest sum of ``durations`` (node to seconds, none negative), first to last. Nodes
    without a duration (never run) end a path: they are left out with their edges. Ties go to the lowest node. O(nodes +
    edges). Raises :class:`ManyclError` for a cycle."""
    before: dict[int, list[int]] = {node: [] for node in durations}
    for one, after in edges:
        if one in before and after in before:
            before[after].append(one)
    best: dict[int, float] = {}  # the length of the longest path that ends with a node
    origin: dict[int, int | None] = {}  # and the node that it comes from
    try:
        for node in TopologicalSorter(before).static_order():
            origin[node] = max(before[node], key=lambda n: (best[n], -n), default=None)
            best[node] = durations[node] + max((best[n] for n in before[node]), default=0.0)
    except CycleError:
        raise ManyclError("the edges of the trace form a cycle: it is not the trace of a run") from None
    path: list[int] = []
    last = max(best, key=lambda n: (best[n], -n), default=None)
    while last is not None:
        path.append(last)
        last = origin[last]
    return tuple(reversed(path))


# Two traces side by side: was the second one faster, and why.


@dataclass(frozen=True, slots=True)
class TraceComparison:
    """``speedup``: the first makespan over the second (None where the second is 0)."""

    first: Summary
    second: Summary
    speedup: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"first": self.first.to_dict(), "second": self.second.to_dict(), "speedup": self.speedup}

    def text(self) -> str:
        """A table with a column for each trace."""
        return "\n".join(_side_by_side(self))


def compare(first: Trace, second: Trace) -> TraceComparison:
    """Compare a trace with another one, of the same application or not."""
    one, other = summarise(first), summarise(second)
    return TraceComparison(one, other, quotient(one.makespan, other.makespan))


def _side_by_side(comparison: TraceComparison) -> Iterator[str]:
    pair = (comparison.first, comparison.second)
    rows = [
        ("application", *(printable(s.application) or "-" for s in pair)),
        ("policy", *(printable(s.policy) or "-" for s in pair)),
        ("kind", *(s.kind for s in pair)),
        ("makespan", *(seconds(s.makespan) for s in pair)),
        ("longest path", *(seconds(s.path.seconds) for s in pair)),
        ("kernels", *(str(s.kernels) for s in pair)),
    ]
    busy = [{d.name: percent(d.share) for d in s.devices} for s in pair]
    names = dict.fromkeys([*busy[0], *busy[1]])
    rows += [(f"busy {printable(name)}", *(b.get(name, "-") for b in busy)) for name in names]
    moved = [{(k.source, k.target): nbytes(k.nbytes) for k in s.links} for s in pair]
    for ends in dict.fromkeys([*moved[0], *moved[1]]):
        rows.append((printable(between(*ends)), *(m.get(ends, "-") for m in moved)))
    yield from table(("", "first", "second"), rows)
    if comparison.speedup is not None:
        yield f"the second is {comparison.speedup:.2f} times as fast as the first"
