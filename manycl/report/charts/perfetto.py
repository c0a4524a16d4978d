"""A trace for ui.perfetto.dev and chrome://tracing: the Trace Event Format, JSON object form. Source: "Trace Event
Format", Google, 2016 (complete events ``X``, metadata ``M``, flows ``s`` and ``f``, instants ``i``). Its times are
microseconds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from manycl.report.charts.lanes import Bar, Lane, lanes
from manycl.trace import DecisionEvent, FailureEvent, HostEvent, KernelEvent, Trace


def write_perfetto(trace: Trace, path: str | Path) -> None:
    """Write the trace-event JSON file: a process per device, a thread per queue, flows along the edges. Raises OSError
    where the file cannot be written."""
    document = {
        "traceEvents": list(trace_events(trace)),
        "displayTimeUnit": "ns",
        "otherData": {"application": trace.application, "policy": trace.policy, "kind": trace.kind},
    }
    Path(path).write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")


def trace_events(trace: Trace) -> Iterator[dict[str, Any]]:
    """The trace events, metadata first."""
    processes: dict[str, int] = {}
    threads = 0
    slices: dict[int, dict[str, Any]] = {}
    for lane in lanes(trace):
        known = lane.group in processes
        process = processes.setdefault(lane.group, len(processes) + 1)
        if not known:
            yield _named("process", process, 0, lane.group)
            yield {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}}
        for row in range(lane.rows):
            yield _named("thread", process, threads + 1 + row, lane.label)
        for bar, row in zip(lane.bars, lane.row_of, strict=True):
            drawn = _slice(lane, bar, process, threads + 1 + row)
            if isinstance(bar, KernelEvent | HostEvent):
                slices[bar.node] = drawn
            yield drawn
        threads += lane.rows
    yield from _flows(trace, slices)
    for event in trace.events:
        if isinstance(event, DecisionEvent):
            args = {"nodes": event.nodes, "device": event.device}
            yield _instant(f"component {event.component} to {event.device}", event.time, args)
        elif isinstance(event, FailureEvent):
            yield _instant(f"failure of {event.name}", event.time, {"message": event.message})


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": f"{what}_name", "pid": process, "tid": thread, "args": {"name": name}}


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _slice(lane: Lane, bar: Bar, process: int, thread: int) -> dict[str, Any]:
    args: dict[str, Any]
    if isinstance(bar, KernelEvent):
        args = {"node": bar.node, "global_size": bar.global_size, "local_size": bar.local_size}
        args |= {"kernel": bar.kernel} if bar.kernel else {}
        args |= {"component": bar.component} if bar.component is not None else {}
    elif isinstance(bar, HostEvent):
        args = {"node": bar.node}
    else:
        args = {"bytes": bar.nbytes, "source": bar.source, "target": bar.target}
    return {
        "ph": "X",
        "cat": bar.event,
        "name": bar.name,
        "pid": process,
        "tid": thread,
        "ts": _us(bar.start),
        "dur": max(0.0, round(_us(bar.end) - _us(bar.start), 3)),
        "args": args,
    }


def _flows(trace: Trace, slices: dict[int, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for number, (before, after) in enumerate(trace.edges, 1):
        if before not in slices or after not in slices:
            continue
        source, target = slices[before], slices[after]
        # a flow belongs to the slice that is open at its time, so it leaves from the middle
        leave = round(source["ts"] + source["dur"] / 2, 3)
        common = {"cat": "dependence", "name": "dependence", "id": number}
        yield {"ph": "s", **common, "pid": source["pid"], "tid": source["tid"], "ts": leave}
        yield {"ph": "f", "bp": "e", **common, "pid": target["pid"], "tid": target["tid"], "ts": target["ts"]}


def _instant(name: str, time: float, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "i", "s": "g", "cat": "run", "name": name, "pid": 0, "tid": 0, "ts": _us(time), "args": args}
