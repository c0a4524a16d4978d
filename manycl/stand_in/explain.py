"""An explanation of a program's kernels: which were divided, which not and why, and what that gained. Whether kernels
that ran whole could have been divided is asked of the analysis when the program ends, as launches that went to a device
at once were never looked at."""

from __future__ import annotations

import atexit
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from manycl.api.recording import Recording, Runs
from manycl.errors import ManyclError
from manycl.graph.graph import BufferArg, BufferKey, Graph, Launch
from manycl.plan.problem import HANDOVER
from manycl.plan.split import Split
from manycl.plan.splitting import ONE_WORK_GROUP, split_of
from manycl.plan.tuning import PLANNING
from manycl.report import decisions
from manycl.report.divided import RANGE, divided, divided_rows, own_name
from manycl.report.words import printable, seconds
from manycl.run.streams.eager_rule import gains_nothing
from manycl.stand_in.runtime import Runtime, runtimes
from manycl.trace import KernelEvent, Trace

if TYPE_CHECKING:
    from manycl.run.engine.merged_traces import PastRun
    from manycl.run.engine.result import Result


class Single(NamedTuple):
    """The time of all kernels on one device, by what they took there."""

    device: str
    seconds: float


@dataclass
class WholeLaunches:
    """Launches of a kernel function that ran as a whole: how many on which device, and how long all of them took."""

    launches: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def __str__(self) -> str:
        count = self.launches.total()
        took = f"{seconds(self.seconds / count)} each" if count > 1 else seconds(self.seconds)
        return f"x{count}, {took} on {', '.join(map(printable, sorted(self.launches)))}"


def explanation(trace: Trace, runtimes: Sequence[Runtime], kernels: Kernels | None = None) -> str:
    """In words, a kernel a line. ``kernels``: who is asked about those that nobody has looked at."""
    return "\n".join(["manycl: what became of this program's kernels", *_lines(trace, runtimes, kernels)])


def _lines(trace: Trace, runtimes: Sequence[Runtime], kernels: Kernels | None) -> Iterator[str]:
    whole, alone, parts = _whole(trace), _alone(runtimes), divided(trace)
    if not whole and not parts and not alone:
        yield "  no kernel was launched"
        return
    others = {printable(name): kernel.launches.total() for name, kernel in whole.items()}
    for name, times, cost, shares, methods in divided_rows(parts):
        merged = "" if cost == "-" else f"; put together ({methods}) in {cost}"
        yield f"  divided: {name} x{times} of {int(times) + others.get(name, 0)}: {shares}{merged}"
    yield from _undivided(trace, whole, {part.name for part in parts}, kernels)
    for (name, line, reason), count in alone.items():
        place = f", line {line}" if line else ""
        yield f"  on one device alone: {printable(name)} x{count}{place}: {printable(reason)}"
    yield from (f"  {line}" for line in decisions.submitted(trace))
    yield from _gain(trace)


def _whole(trace: Trace) -> dict[str, WholeLaunches]:
    """Return what ran as a whole, by kernel function."""
    found: dict[str, WholeLaunches] = defaultdict(WholeLaunches)
    for event in _kernels(trace):
        if not event.role:
            kernel = found[event.kernel or own_name(event)]
            kernel.launches[event.device] += 1
            kernel.seconds += _duration(event)
    return dict(found)


def _alone(runtimes: Iterable[Runtime]) -> Counter[tuple[str, int, str]]:
    return sum((runtime.whole for runtime in runtimes), Counter())


def _undivided(
    trace: Trace, whole: Mapping[str, WholeLaunches], told: set[str], kernels: Kernels | None
) -> Iterator[str]:
    """Why kernels ran whole. ``told``: of which it has been said that some of their launches were divided."""
    found = decisions.told(trace, "divisions", decisions.LaunchDivision)
    ordered = sorted(found, key=lambda said: said.launches)  # the reason of most launches counts
    reasons = {said.kernel: " ".join(said.reason.split()) for said in ordered if not said.divided}
    unknown = [name for name in whole if name not in told and name not in reasons]
    asked = kernels.asked(unknown) if kernels is not None else {}
    is_alone = len(trace.devices) == 1
    for name, kernel in whole.items():
        if name in told and name not in reasons:
            continue
        why = reasons.get(name, asked.get(name))
        if is_alone:
            could = (
                "" if why is None else "; several devices could share it" if not why else f"; several could not: {why}"
            )
            yield f"  whole: {printable(name)} {kernel}{printable(could)}"
            continue
        if not why and kernels is not None and name in kernels.found:
            why = kernels.found[name].why()
            why = why if name not in asked else f"it could be, but {why}"
        yield f"  not divided: {printable(name)} {kernel}: {printable(why or 'nobody has looked at it')}"


def _kernels(trace: Trace) -> Iterator[KernelEvent]:
    """Launches and ranges of them; no copies and fills."""
    return (event for event in trace.kernels() if event.role in ("", RANGE) and event.global_size)


def _gain(trace: Trace) -> Iterator[str]:
    used = {event.device for event in _kernels(trace)}
    if not used:
        return
    covered = _covered(trace)
    took = f"  kernels ran for {seconds(covered)}"
    if len(trace.devices) == 1:
        yield took
    elif len(used) == 1:
        yield f"{took}, all of them on {printable(*used)}"
    elif (single := best_single(trace)) is None:
        yield f"{took}; how long one device alone would have taken is not known"
    else:
        times = single.seconds / covered if covered else 1.0
        yield (
            f"{took}; {printable(single.device)} alone would have taken {seconds(single.seconds)},"
            f" as far as can be told: {times:.2f} times as long"
        )


def best_single(trace: Trace) -> Single | None:
    """The device that would have done all of it soonest, by itself: each launch in what whole launches of its kernel
    have taken there. None where a kernel has not run so: parts say little, as others ran beside them."""
    groups: dict[int, int] = defaultdict(int)  # by node, of what ran in ranges
    events = list(_kernels(trace))
    for event in events:
        if event.role == RANGE:
            groups[event.node] += event.groups
    done: dict[tuple[str, str], float] = defaultdict(float)  # launches, of a kernel on a device
    took: dict[tuple[str, str], float] = defaultdict(float)
    launches: dict[str, float] = defaultdict(float)
    for event in events:
        name = event.kernel or own_name(event)
        share = event.groups / groups[event.node] if event.role == RANGE and groups[event.node] else 1.0
        launches[name] += share
        if event.role != RANGE:
            done[name, event.device] += 1
            took[name, event.device] += _duration(event)
    found = []
    for device in trace.devices:
        if all(done[name, device] for name in launches):
            alone = sum(took[name, device] / done[name, device] * count for name, count in launches.items())
            found.append(Single(device, alone))
    return min(found, key=lambda single: single.seconds, default=None)


def _duration(event: KernelEvent) -> float:
    return max(0.0, event.end - event.start)


def _covered(trace: Trace) -> float:
    """Seconds in which any launch, or range of one, ran."""
    covered, end = 0.0, float("-inf")
    for event in sorted(_kernels(trace), key=lambda event: event.start):
        begin = max(event.start, end)
        if event.end > begin:
            covered += event.end - begin
            end = event.end
    return covered


# What ``manycl exec`` tells of a program when it ends: charts and traces of all its runs, and what was divided.


def begin(wanted: Mapping[str, Any]) -> None:
    """Note all runs from now on. ``wanted``: ``files`` to write, by their suffixes (as ``mc.trace_all``), and whether
    to ``explain`` (on standard error)."""
    recordings = [Recording(path) for path in wanted.get("files", ())]
    runs = Kernels() if wanted.get("explain") else None

    def end() -> None:
        for runtime in runtimes():
            runtime.end()
        if runs is not None:
            runs.stop()
            print(explanation(runs.trace, runtimes(), runs), file=sys.stderr)
        for recording in recordings:
            try:
                recording.end()
            except (OSError, ManyclError) as failure:
                print(f"manycl: {failure}", file=sys.stderr)

    if recordings or runs is not None:
        atexit.register(end)


ASKED = 32
"""Kernels that the analysis is asked about, at most, those first that took longest."""
SHORT = "it is too short to gain by that"
UNKNOWN = "the program was over before it was found out how"


@dataclass(slots=True)
class Whole:
    """The launches of a kernel function that ran. ``launch``: of its launches the one that took longest, with the bytes
    of its ``sizes``; ``seconds`` that it took; ``runs_took``: the longest run with it."""

    launch: Launch
    sizes: Mapping[BufferKey, int]
    seconds: float = -1.0
    runs_took: float = 0.0

    def why(self) -> str:
        """Why it was not divided although it can be, where no run says so."""
        if gains_nothing(self.runs_took) or self.seconds < PLANNING.worth * HANDOVER:
            return SHORT
        return UNKNOWN


class Kernels(Runs):
    """All runs from now on, and of each kernel function, by its name, a launch that can be asked about."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, Whole] = {}

    def add(self, run: PastRun, result: Result) -> None:
        super().add(run, result)
        for event in run.happened:
            if isinstance(event, KernelEvent) and event.role in ("", RANGE):
                task = result.graph.nodes[event.node]
                if isinstance(task, Launch):
                    found = self._of(task, result.graph, max(0.0, event.end - event.start))
                    found.runs_took = max(found.runs_took, run.seconds)

    def _of(self, launch: Launch, graph: Graph, seconds: float) -> Whole:
        found = self.found.get(launch.kernel.name)
        if found is not None and seconds <= found.seconds:
            return found
        sizes = {a.key: graph.buffers[a.key].nbytes for a in launch.args if isinstance(a, BufferArg)}
        if found is None:
            found = self.found[launch.kernel.name] = Whole(launch, sizes, seconds)
        else:
            found.launch, found.sizes, found.seconds = launch, sizes, seconds
        return found

    def asked(self, names: Iterable[str]) -> dict[str, str]:
        """Why kernels cannot be divided, with the line, by their names; "" where they can; without those not known."""
        wanted = [(name, self.found[name]) for name in names if name in self.found]
        wanted.sort(key=lambda pair: -pair[1].seconds)
        return {name: _reason(found) for name, found in wanted[:ASKED]}


def _reason(found: Whole) -> str:
    reason = split_of(found.launch, found.sizes)
    if isinstance(reason, Split):
        return ""
    return reason if reason == ONE_WORK_GROUP else f"line {found.launch.kernel.line}: {' '.join(reason.split())}"
