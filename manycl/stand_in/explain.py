"""What became of a program's kernels: which were divided, which not and why, and what that gained."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from manycl.report.divided import RANGE, divided, divided_rows, own_name
from manycl.report.undivided import undivided
from manycl.report.words import printable, seconds
from manycl.stand_in.runtime import Runtime
from manycl.trace import KernelEvent, Trace


class Single(NamedTuple):
    """All kernels on one device, by what they took there."""

    device: str
    seconds: float


def explanation(trace: Trace, runtimes: Sequence[Runtime]) -> str:
    """In words, a kernel a line."""
    return "\n".join(["manycl: what became of this program's kernels", *_lines(trace, runtimes)])


def _lines(trace: Trace, runtimes: Sequence[Runtime]) -> Iterator[str]:
    launches = _launches(trace)
    whole = _whole(runtimes)
    if not launches and not whole:
        yield "  no kernel was launched"
        return
    for name, times, cost, shares, methods in divided_rows(divided(trace)):
        merged = "" if cost == "-" else f"; put together ({methods}) in {cost}"
        yield f"  divided: {name} x{times} of {launches.get(name, 0)}: {shares}{merged}"
    told = {kernel.name for kernel in divided(trace)}
    reasons: dict[str, list[str]] = defaultdict(list)
    for kernel in undivided(trace):
        reasons[kernel.kernel].append(f"line {kernel.line}: {' '.join(kernel.reason.split())}")
    for name, count in launches.items():
        for reason in reasons.get(name, ()):
            yield f"  not divided: {printable(name)}, {printable(reason)}"
        if name not in told and name not in reasons:
            yield f"  not divided: {printable(name)} x{count}: it was expected to gain nothing"
    for (name, line, reason), count in whole.items():
        place = f", line {line}" if line else ""
        yield f"  on one device alone: {printable(name)} x{count}{place}: {printable(reason)}"
    yield from _gain(trace)


def _launches(trace: Trace) -> dict[str, int]:
    """Of each kernel function, how many nodes ran."""
    nodes: dict[str, set[int]] = defaultdict(set)
    for event in trace.kernels():
        if event.role in ("", RANGE):
            nodes[event.kernel or own_name(event)].add(event.node)
    return {name: len(found) for name, found in nodes.items()}


def _whole(runtimes: Iterable[Runtime]) -> Counter[tuple[str, int, str]]:
    return sum((runtime.whole for runtime in runtimes), Counter())


def _gain(trace: Trace) -> Iterator[str]:
    single = best_single(trace)
    if single is None or len(trace.devices) < 2:
        return
    yield (
        f"  all of them on {single.device} alone: {seconds(single.seconds)}, as far as can be told; with all devices"
        f" kernels ran for {seconds(_covered(trace))}"
    )


def best_single(trace: Trace) -> Single | None:
    """The device that would have done all of it soonest, by itself: what ran there counts as it was, of the rest as
    much as launches of the same kernel, or parts of them, have taken there at other times. None where too little is
    known."""
    groups: dict[int, int] = defaultdict(int)  # by node, of what ran in ranges
    events = [event for event in trace.kernels() if event.role in ("", RANGE)]
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
        done[name, event.device] += share
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
    """Seconds in which any kernel ran."""
    covered, end = 0.0, float("-inf")
    for event in sorted(trace.kernels(), key=lambda event: event.start):
        begin = max(event.start, end)
        if event.end > begin:
            covered += event.end - begin
            end = event.end
    return covered
