"""Judges what a plan draws of the host's memory: in no span of time more than it carries (MKMD, Section 5.2, Eq. 6);
and whether the times of single launches let them draw more of a memory than it carries.

An operation may be fast at one time and slow at another, so a plan does not say what is drawn at a moment. But of the
bytes that it moves in all, no more can have been moved outside of a span than it draws when alone, times the time that
it lasts there: the rest was moved in the span. This is energetic reasoning (Baptiste, Le Pape and Nuijten,
*Constraint-Based Scheduling*, 2001, Section 3.3).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from manycl.errors import MachineError
from manycl.graph.graph import Launch
from manycl.machine import HOST
from manycl.plan.plan import MERGE, ON_HOST, WHOLE, Plan
from manycl.plan.problem import Problem
from manycl.trace import TransferEvent

SLACK = 1e-6
"""The tolerance, as a part of the bandwidth, as sums of floats are not exact; our own choice."""
SPANS = 100
"""The most beginnings, and ends for each, of the spans that are checked in a period of time; our own choice."""


class Drawn(NamedTuple):
    """An operation that moves bytes to or from the host's memory between two times, at most ``rate`` a second."""

    start: float
    end: float
    nbytes: float
    rate: float


def check_launches(problem: Problem) -> None:
    """Raise MachineError for a launch that would move its bytes faster than the memory of its device carries them, by
    the times given for a machine that is described."""
    for node, task in enumerate(problem.graph.nodes):
        for index, device in problem.machine.numbered() if isinstance(task, Launch) else ():
            nbytes = problem.estimates.traffic(node, index)
            seconds = problem.estimates.launch(node, index) - device.launch_overhead
            if nbytes > max(0.0, seconds) * device.bandwidth * (1 + SLACK):
                needed = f"{nbytes / seconds / 1e9:.4g} GB/s" if seconds > 0.0 else "no time at all"
                raise MachineError(
                    f"{problem.machine.name}: {task.name} moves {nbytes / 1e6:.4g} MB on {device.name} at {needed},"
                    f" but its memory carries {device.bandwidth / 1e9:.4g} GB/s",
                    hint=f"give {device.name} the bandwidth of its memory, or the kernel a rate that this can feed:"
                    " a launch takes the longer of its operations and its bytes",
                )


def check_host_memory(plan: Plan, problem: Problem) -> Iterator[str]:
    """Yield a fault for each span between start and end in which more is drawn of the host's memory than it carries."""
    limit = problem.machine.host_bandwidth
    if limit == float("inf"):
        return
    for members in _periods(list(_drawn(plan, problem)), limit):
        found = _worst(members, limit, plan.slack)
        if found is not None:
            start, end, nbytes = found
            rate = nbytes / (end - start)
            yield (
                f"from {start} s to {end} s it draws {rate / 1e9:.3g} GB/s of the host's memory, which carries"
                f" {limit / 1e9:.3g} GB/s"
            )


def _drawn(plan: Plan, problem: Problem) -> Iterator[Drawn]:
    """Yield the operations that are known to move bytes; one that draws more than there is when alone (times are what
    they are) draws as much as there is. Fixed assignments are left out: they happen whatever is planned."""
    limit, devices, fixed = problem.machine.host_bandwidth, problem.machine.devices, set(problem.fixed)
    for e, alone in _transfers(plan, problem):
        if e.end > e.start and alone > 0.0:
            rate = min(limit, e.nbytes / alone)
            yield Drawn(e.start, e.end, rate * alone, rate)
    for a in plan.assignments:
        if a.device == ON_HOST or a in fixed or devices[a.device].memory != HOST or a.dimension is MERGE:
            continue
        part = a.groups / problem.splits[a.node].groups if a.dimension is not WHOLE else 1.0
        nbytes = problem.estimates.traffic(a.node, a.device) * part
        alone = problem.range_seconds(a.node, a.device, a.groups if a.dimension is not WHOLE else 0, a.first)
        if nbytes > 0.0 and a.end > a.start and alone > 0.0:
            rate = min(limit, nbytes / alone)
            yield Drawn(a.start, a.end, rate * alone, rate)


def _transfers(plan: Plan, problem: Problem) -> Iterator[tuple[TransferEvent, float]]:
    """Yield the transfers to and from the host, and the least seconds of each when alone. A buffer that is moved in
    several pieces may be one transfer, which is begun once (``run/commands/backend.py: continues``): a piece behind
    other bytes of it then takes only as much longer as these bytes take longer together. Its pieces follow one another,
    or other transfers of the link; where they might be one transfer they are taken for one."""
    devices, seconds = problem.machine.devices, problem.estimates.transfer
    hosts = ("host", *problem.machine.hosts)
    memories = {**{name: i for i, name in enumerate(hosts)}, **{d.name: d.memory for d in devices}}
    ways: dict[tuple[int, int], list[TransferEvent]] = {}
    for e in plan.events:
        if isinstance(e, TransferEvent) and e.source != e.target:
            ways.setdefault((memories[e.source], memories[e.target]), []).append(e)
    for ends, events in ways.items():
        if HOST not in ends:
            continue
        until, sent = -math.inf, dict[int, int]()
        for e in sorted(events, key=lambda e: (e.start, e.end)):
            if e.start > until + plan.slack:
                sent.clear()
            until, before = max(until, e.end), sent.get(e.buffer, 0)
            sent[e.buffer] = before + e.nbytes
            alone = seconds(e.nbytes, *ends)
            yield e, min(alone, seconds(before + e.nbytes, *ends) - seconds(before, *ends)) if before else alone


def _periods(drawn: list[Drawn], limit: float) -> Iterator[list[Drawn]]:
    """Yield the operations that overlap where all together may draw more than the limit: only there can be a fault."""
    changes = sorted([(d.start, d.rate) for d in drawn] + [(d.end, -d.rate) for d in drawn])
    rate, begin = 0.0, None
    for at, change in changes:
        rate += change
        if rate > limit * (1 + SLACK) and begin is None:
            begin = at
        elif rate <= limit * (1 + SLACK) and begin is not None:
            if at > begin:
                yield [d for d in drawn if d.start < at and d.end > begin]
            begin = None


def _worst(members: list[Drawn], limit: float, slack: float) -> tuple[float, float, float] | None:
    """Return the span in which most bytes must have been moved beyond what the memory carries, if there is one: from,
    to, bytes. ``slack``: seconds by which two times may differ and count as equal."""
    start, end, nbytes, rate = (np.array(column) for column in zip(*members, strict=True))
    worst, found = 0.0, None
    for low in _some(np.unique(np.concatenate([start, end]))):
        # bytes left to move from here on, and of these, by each end, those that cannot come after it
        left = np.maximum(0.0, nbytes - rate * np.maximum(0.0, np.minimum(end, low) - start))
        for high in _some(np.unique(end[end > low])):
            must = np.maximum(0.0, left - rate * np.maximum(0.0, end - np.maximum(high, start))).sum()
            beyond = float(must - limit * (high - low))
            if beyond > max(worst, limit * (SLACK * (high - low) + slack)):
                worst, found = beyond, (float(low), float(high), float(must))
    return found


def _some(times: np.ndarray) -> np.ndarray:
    """Return at most ``SPANS`` of the times, evenly: a period of thousands of transfers is checked less closely."""
    return times if len(times) <= SPANS else times[np.linspace(0, len(times) - 1, SPANS).astype(int)]
