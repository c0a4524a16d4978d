"""Why a run took another time than its plan had foreseen: where the time went, beside where it was to go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from manycl.report.divided import PlannedKernel, planned
from manycl.report.intervals import union_length
from manycl.report.words import printable, seconds
from manycl.trace import HostEvent, KernelEvent, Trace, TransferEvent

NEAR = 0.2
"""A makespan no further off than this part of what was planned needs no explanation."""
_MOST = 3  # kernels that are named


@dataclass(frozen=True, slots=True)
class MissedPlan:
    """A run whose makespan is more than a fifth off its plan's; all in seconds. ``computing``: at least one kernel ran,
    and so it was planned (``planned_computing``); of the rest, ``moving``: only data moved, ``hosting``: only host
    functions ran, ``waiting``: nothing ran. ``kernels``: those that took another time than planned, furthest off
    first."""

    makespan: float
    planned: float
    computing: float
    planned_computing: float
    moving: float
    hosting: float
    waiting: float
    kernels: tuple[PlannedKernel, ...]


def missed_plan(trace: Trace) -> MissedPlan | None:
    """What is to be explained of a run; None where it took about what was planned, or nobody had foreseen that."""
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
    """For people."""
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
    """Of the kernels, those that say most."""
    worth = NEAR * abs(missed.makespan - missed.planned) / _MOST
    far = [k for k in missed.kernels[:_MOST] if abs(k.took - k.planned) > worth]
    words = (f"{printable(k.name)} took {seconds(k.took)} instead of {seconds(k.planned)}" for k in far)
    return f": {', '.join(words)}" if far else ""
