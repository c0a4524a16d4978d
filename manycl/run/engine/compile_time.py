"""Compile phases: intervals in which devices did nothing but compile. They are not part of the run. Some drivers (PoCL)
compile a kernel when it is first launched with a work-group size, after time has started. A launch that was enqueued
then, and is the first of its kind on its device, *waits*. Where nothing ran anywhere meanwhile, it waited for the
compiler. Such intervals are taken out of the trace, and later events move forward."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from manycl.trace import DecisionEvent, Event, FailureEvent

LEAST = 1e-3
"""The least seconds of a wait that counts as compiling, and of a kernel whose time tells of its device; our own choice.
Shorter ones depend on what else the machine does: handing over and waking up take as long."""


class Phase(NamedTuple):
    """An interval in seconds since the run began, compiling included."""

    start: float
    end: float


def phases(waiting: Iterable[tuple[float, float]], events: Iterable[Event]) -> tuple[Phase, ...]:
    """Return the intervals in which devices only compiled, in order. ``waiting``: the intervals in which first launches
    waited to start."""
    busy = sorted((e.start, e.end) for e in events if not isinstance(e, DecisionEvent | FailureEvent))
    found: list[Phase] = []
    for start, end in united(sorted(waiting)):
        at = start
        for begin, stop in busy:
            if begin >= end:
                break
            if begin > at:
                found.append(Phase(at, begin))
            at = max(at, stop)
        if at < end:
            found.append(Phase(at, end))
    return tuple(p for p in found if p.end - p.start >= LEAST)


def united(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the union of intervals that are sorted by their beginnings, as disjoint intervals."""
    out: list[tuple[float, float]] = []
    for start, end in intervals:
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        elif end > start:
            out.append((start, end))
    return out


def without(phases_: Sequence[Phase], time: float) -> float:
    """Return a moment of the run with compiling taken out."""
    return time - sum(min(p.end, time) - p.start for p in phases_ if p.start < time)


def moved(phases_: Sequence[Phase], event: Event) -> Event:
    """Return an event at the times that it would have had without compiling."""
    if not phases_:
        return event
    if isinstance(event, DecisionEvent | FailureEvent):
        return replace(event, time=without(phases_, event.time))
    return replace(event, start=without(phases_, event.start), end=without(phases_, event.end))
