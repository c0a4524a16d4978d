"""The merged trace of several runs, on one clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from manycl.run.engine.asking_policies import UNFORESEEN
from manycl.run.engine.compile_time import moved, phases, without
from manycl.run.engine.divisions import DIVISIONS, counted
from manycl.run.engine.result import Result
from manycl.run.streams.eager_rule import SUBMITTED
from manycl.trace import Event, Trace, later


class PastRun(NamedTuple):
    """The data that are kept of a run. ``begin``: by ``time.perf_counter``. ``happened``,
    ``waits`` (``Record.waited``) and ``seconds``, its duration, count from then, compiling included. ``nodes``: their
    number in its graph. ``trace``: all else."""

    begin: float
    seconds: float
    nodes: int
    happened: Sequence[Event]
    waits: Sequence[tuple[float, float]]
    trace: Trace


def past_run(result: Result) -> PastRun:
    """Return the data to keep of one run."""
    record = result.record
    return PastRun(
        record.begin, result.seconds, len(result.graph), result.happened, tuple(record.waited()), result.trace
    )


def joined(past: Iterable[PastRun], application: str = "") -> Trace:
    """Return one trace of runs, in the order in which they began; runs may overlap. Time begins with the first of them.
    Time in which devices only compiled and nothing else ran is left out. Nodes are numbered on from run to run.
    Predicted times are kept for the nodes; there is no predicted makespan."""
    runs = sorted(past, key=lambda run: run.begin)
    numbers = list(accumulate((run.nodes for run in runs), initial=0))
    shifts = [run.begin - runs[0].begin for run in runs]
    events = [
        later(event, shift, first)
        for run, shift, first in zip(runs, shifts, numbers, strict=False)
        for event in run.happened
    ]
    waited = [(shift + start, shift + end) for run, shift in zip(runs, shifts, strict=True) for start, end in run.waits]
    traces = [(run.trace, first) for run, first in zip(runs, numbers, strict=False)]
    planned = [
        [n + first, taken] for t, first in traces for n, taken in t.details.get("planned", {}).get("seconds", ())
    ]
    end = max((shift + run.seconds for run, shift in zip(runs, shifts, strict=True)), default=0.0)
    compiled = phases(waited, events)
    details = _details([run.trace.details for run in runs])
    if planned:
        details["planned"] = {"makespan": None, "seconds": planned}
    if compiled:
        details["compiled"] = sum(p.end - p.start for p in compiled)
    return Trace(
        events=tuple(moved(compiled, event) for event in events),
        devices=tuple(dict.fromkeys(name for run in runs for name in run.trace.devices)),
        policy=", ".join(dict.fromkeys(run.trace.policy for run in runs)),
        makespan=without(compiled, end),
        application=application,
        edges=tuple([(a + first, b + first) for t, first in traces for a, b in t.edges]),
        details=details,
    )


def _details(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the merged details: device models, how commands were submitted, and what could not be done."""
    out: dict[str, Any] = {"models": {name: model for one in found for name, model in one["models"].items()}}
    if kernels := counted(kernel for one in found for kernel in one.get(DIVISIONS, ())):
        out[DIVISIONS] = kernels
    for key in (UNFORESEEN, SUBMITTED):
        reasons = dict.fromkeys(reason for one in found for reason in one.get(key, ()))
        if reasons:
            out[key] = list(reasons)
    return out
