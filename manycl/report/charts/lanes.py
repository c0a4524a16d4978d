"""A trace as bars on lanes: a device's queues, a link's directions, the host. What every picture draws."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from manycl.report.words import between, printable
from manycl.trace import HostEvent, KernelEvent, Trace, TransferEvent

Bar = KernelEvent | TransferEvent | HostEvent
MOST_ROWS = 8
"""Bars of one lane that overlap go to rows of their own, up to so many."""

# Okabe and Ito's colours, told apart with every kind of colour vision; sorted names take them in turn, and from
# the eighth name on the same colours come again with a pattern
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
TRANSFER_COLOUR = "#8A8F98"
HOST_COLOUR = "#5C4B8A"
FAILURE_COLOUR = "#C1121F"


@dataclass(frozen=True, slots=True)
class Lane:
    """Bars in order of their start, each with its row (0 to ``rows`` - 1); in a row none overlap unless more
    than MOST_ROWS of them run at once. ``group`` is a device's name, ``transfers`` or ``host``."""

    group: str
    label: str
    bars: tuple[Bar, ...]
    row_of: tuple[int, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class Style:
    """``pattern`` 0 is plain; 1, 2, ... tell apart names that share a colour."""

    colour: str
    pattern: int


def lanes(trace: Trace) -> tuple[Lane, ...]:
    """Devices in the trace's order (an idle one has one empty lane), then links by name, then host functions."""
    queues: dict[str, dict[int, list[Bar]]] = {name: {} for name in trace.devices}
    links: dict[tuple[str, str], list[Bar]] = {}
    hosts: list[Bar] = []
    for event in trace.events:
        if isinstance(event, KernelEvent):
            queues.setdefault(event.device, {}).setdefault(event.queue, []).append(event)
        elif isinstance(event, TransferEvent):
            links.setdefault((event.source, event.target), []).append(event)
        elif isinstance(event, HostEvent):
            hosts.append(event)
    out = []
    for device, used in queues.items():
        for queue, bars in sorted(used.items()) or [(0, [])]:
            out.append(_lane(device, f"{device} q{queue}" if len(used) > 1 else device, bars))
    for (source, target), bars in sorted(links.items()):
        out.append(_lane("transfers", between(source, target), bars))
    if hosts:
        out.append(_lane("host", "host functions", hosts))
    return tuple(out)


def styles(names: Iterable[str]) -> dict[str, Style]:
    """A style for every kernel name: the same set of names always gets the same styles, so that charts of one
    application under several policies can be compared."""
    ordered = sorted(set(names), key=lambda name: (_natural(name), name))
    return {name: Style(COLOURS[i % len(COLOURS)], i // len(COLOURS)) for i, name in enumerate(ordered)}


def function(event: KernelEvent) -> str:
    """The kernel function's name: what bars are coloured by."""
    return event.kernel or event.name


def _natural(name: str) -> list[tuple[int, str]]:
    """Orders ``k2`` before ``k10``."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]


def extent(trace: Trace) -> tuple[float, float]:
    """First and last moment to show, in seconds: the run, and whatever sticks out of it."""
    bars = [e for e in trace.events if isinstance(e, Bar)]
    start = min((e.start for e in bars), default=0.0)
    end = max((e.end for e in bars), default=0.0)
    return min(0.0, start), max(trace.makespan, end, 1e-9)


def _lane(group: str, label: str, bars: list[Bar]) -> Lane:
    bars.sort(key=lambda e: (e.start, e.end))
    # neighbours in an in-order queue may touch within the resolution of a device's clock
    slack = 1e-6
    ends: list[float] = []
    row_of = []
    for bar in bars:
        row = next((r for r, end in enumerate(ends) if end <= bar.start + slack), None)
        if row is None:
            if len(ends) < MOST_ROWS:
                ends.append(bar.end)
                row = len(ends) - 1
            else:
                row = min(range(MOST_ROWS), key=lambda r: ends[r])
        ends[row] = max(ends[row], bar.end)
        row_of.append(row)
    return Lane(printable(group), printable(label), tuple(bars), tuple(row_of), max(1, len(ends)))
