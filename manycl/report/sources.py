"""The estimates that a plan rests on: for every kernel and device where they come from, and how far off they have
been."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from manycl.graph.graph import Graph, HostTask, Launch
from manycl.machine import Machine
from manycl.model.estimate import ModelEstimates
from manycl.model.work import Estimate
from manycl.report.words import aligned, count, printable, seconds
from manycl.trace import Trace

_MOST = 16  # rows that a table shows


@dataclass(frozen=True, slots=True)
class EstimateSource:
    """The launches of one kernel on one device whose estimates come from the same place: how many (also ranges of one),
    and the mean seconds of a whole one and the mean ends of the bar. ``error_percent``: how far off the model has been
    for them (None: it has never been compared). ``samples``: how many measurements each rests on at least."""

    kernel: str
    device: str
    source: str
    launches: int
    seconds: float
    low: float
    high: float
    error_percent: float | None
    samples: int

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def sources(trace: Trace, graph: Graph, machine: Machine, estimates: ModelEstimates) -> list[EstimateSource]:
    """Return the sources of all whole launches and ranges in a plan's or a simulation's trace, the costliest first."""
    devices = {d.name: i for i, d in machine.numbered()}
    groups: dict[tuple[str, str, str], list[Estimate]] = {}
    for event in trace.kernels():
        if event.role not in ("", "range"):
            continue  # what puts ranges together
        launch, device = graph.nodes[event.node], devices[event.device]
        assert not isinstance(launch, HostTask)
        if isinstance(launch, Launch):
            ran = launch.versions[estimates.version(event.node, device)] if launch.versions else launch
            name = ran.kernel.name
        else:
            name = launch.function
        found = estimates.estimate(event.node, device)
        groups.setdefault((name, event.device, found.source), []).append(found)
    out = []
    for key, of in groups.items():
        errors = [e.error_percent for e in of if e.error_percent is not None]
        ends = fmean(e.seconds for e in of), fmean(e.low for e in of), fmean(e.high for e in of)
        error = fmean(errors) if errors else None
        out.append(EstimateSource(*key, len(of), *ends, error, min(e.samples for e in of)))
    return sorted(out, key=lambda s: (-s.seconds * s.launches, s.kernel, s.device, s.source))


def table(found: Sequence[EstimateSource]) -> str:
    """Return a table for people: a row for each, the costliest first."""
    rows = [("KERNEL", "DEVICE", "LAUNCHES", "EACH", "BETWEEN", "HAS BEEN OFF", "ESTIMATE FROM")]
    for s in found[:_MOST]:
        off = "never compared" if s.error_percent is None else f"{s.error_percent:.1f} %"
        between = f"{seconds(s.low)} - {seconds(s.high)}"
        words = f"{s.source}, {count(s.samples, 'sample')}" if s.samples else s.source
        rows.append((printable(s.kernel), s.device, str(s.launches), seconds(s.seconds), between, off, words))
    lines = aligned(rows)
    if len(found) > _MOST:
        lines.append(f"and {len(found) - _MOST} more")
    return "\n".join(lines)


def in_words(found: Sequence[EstimateSource]) -> str:
    """One line: how many launches are estimated by what."""
    by_source: dict[str, int] = {}
    for s in found:
        by_source[s.source] = by_source.get(s.source, 0) + s.launches
    ordered = sorted(by_source.items(), key=lambda x: (-x[1], x[0]))
    return "; ".join(f"{count(n, 'launch') if n == 1 else f'{n} launches'}: {source}" for source, n in ordered)
