"""How far off predictions of a part of a launch are.

Kernels run whole on a queue's first device, and in halves, quarters and eighths one after another, in turns. From the
whole launch alone, and once more from its quarters as well, the models predict each range; a range's error is the
factor between its predicted and its shortest time (others who use the machine only make it longer).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

from manycl.api.queue import Queue
from manycl.errors import ManyclError
from manycl.graph.graph import Graph, Launch
from manycl.machine import DeviceIndex
from manycl.model.estimate import ModelEstimates
from manycl.model.history.history import History, Shape, identity, kernel_key
from manycl.model.occupancy import LaunchRange
from manycl.model.work import work_of
from manycl.run.lowering.steps import RANGE
from manycl_bench.hopping.ways import Pair, asked, plan
from manycl_bench.slices.loops import Sampled, sampled
from manycl_bench.slices.sampling import Sampler, Settings

RANGES = (2, 4, 8)  # into how many ranges kernels are divided
TURNS = 4  # turns of ranges for a run of a launch: ranges are many, and one that was disturbed spoils an error
SECONDS = 4e-3  # that whole launches take, about; shorter ones are less often disturbed
ENOUGH, LEAST = 1.0, 2  # seconds after which a kernel is not run again, once it was so often
LONG = 1e-3  # seconds from which launches are judged one by one
FIRST = DeviceIndex(0)


class Enqueued(Protocol):
    """What keeps the arrays of a graph, whose first node is the launch that is divided."""

    @property
    def graph(self) -> Graph: ...


class Ranged(NamedTuple):
    """A kernel whose whole launch took ``seconds``: the factors by which predictions of its ranges are off, from the
    whole ``alone``, and with its quarters ``learned`` (of its halves and eighths); ``noise``: the mean factor between
    the times of a range and the shortest of them."""

    kernel: str
    seconds: float
    alone: list[float]
    learned: list[float]
    noise: float


def ranged(queue: Queue, kernel: str, graph: Graph, runs: int) -> Ranged:
    """Measure a kernel in ranges. Raises ManyclError where it cannot be divided."""
    session, about, pair = queue.session, queue.session.machine.devices[FIRST], Pair(FIRST, FIRST)
    problem = asked(queue, graph)
    plans = [plan(problem, "slow", pair, False, n) for n in (1, *RANGES)]
    times: dict[LaunchRange, list[float]] = {}
    of = problem.splits[0].groups
    if of < max(RANGES):
        raise ManyclError(f"it has {of} work-groups")
    begin = time.perf_counter()
    for turn in range(runs + 1):  # the first ones hold page faults and compiling
        if turn > LEAST and time.perf_counter() - begin > ENOUGH:
            break
        for p in plans:
            for m in session.run(graph, p).measured():
                if m.step.node == 0 and m.step.role in ("", RANGE):
                    times.setdefault(LaunchRange(m.step.first, m.step.groups or of, of), []).append(m.seconds)
    took = {where: min(seconds[1:]) for where, seconds in times.items()}
    launch, history = graph.nodes[0], History()
    assert isinstance(launch, Launch)
    shape = Shape(launch.global_size, work_of(launch, launch).f)

    def off(seen: Mapping[LaunchRange, float], predicted: Mapping[LaunchRange, float]) -> list[float]:
        for where, seconds in seen.items():
            known = shape if where.groups == of else shape._replace(range=where)
            history.observe(kernel_key(launch), known, identity(about), seconds / about.slowdown)
        now = replace(problem, estimates=ModelEstimates(graph, problem.machine, history))
        return [factor(now.range_seconds(0, FIRST, w.groups, w.first), seconds) for w, seconds in predicted.items()]

    whole = {where: seconds for where, seconds in took.items() if where.groups == of}
    quarters = {where: seconds for where, seconds in took.items() if where.groups in (of // 4, of // 4 + 1)}
    rest = {where: seconds for where, seconds in took.items() if where not in whole}
    alone = off(whole, rest)
    learned = off(quarters, {where: seconds for where, seconds in rest.items() if where not in quarters})
    noise = statistics.fmean(factor(s, took[where]) for where in rest for s in times[where][1:])
    return Ranged(kernel, next(iter(whole.values())), alone, learned, noise)


def factor(a: float, b: float) -> float:
    """How many times one is the other, whichever is larger."""
    return max(a / b, b / a)


def sampled_launches(queue: Queue) -> Iterator[tuple[str, Callable[[], Enqueued]]]:
    """The kernels of ``manycl bench slices``, in sizes in which they take about ``SECONDS``."""
    sampler = Sampler(queue, FIRST, Settings(seconds=SECONDS))
    for what in sampled():
        yield what.name, partial(_sized, sampler, what)


def _sized(sampler: Sampler, what: Sampled) -> Enqueued:
    return sampler.sized(what)[1]


def range_errors(
    queue: Queue, launches: Iterable[tuple[str, Callable[[], Enqueued]]], runs: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Errors of predicted ranges: medians over all in percent, and the largest factors of launches over ``LONG``; and
    for each kernel its whole launch, median and largest factor, alone and learned."""
    rows: dict[str, list[float]] = {}
    every: list[Ranged] = []
    for name, enqueue in launches:
        try:
            of = enqueue()
            r = ranged(queue, name, of.graph, runs)
        except ManyclError as error:
            say(f"{name}: {error}")
            continue
        every.append(r)
        found = [x for off in (r.alone, r.learned) for x in (statistics.median(off), max(off))]
        row = rows[f"{len(every)} {name}"] = [float(f"{x:.4g}") for x in (1e3 * r.seconds, *found, r.noise)]
        say("{}: {:.3f} ms, off {:.2f} (most {:.2f}), learned {:.2f} ({:.2f}), noise {:.2f}".format(name, *row))
    long = [r for r in every if r.seconds > LONG]
    return {
        "ranges_off_percent": 100 * statistics.median(x - 1 for r in every for x in r.alone),
        "ranges_worst": max((x for r in long for x in r.alone), default=1.0),
        "ranges_learned_off_percent": 100 * statistics.median(x - 1 for r in every for x in r.learned),
        "ranges_learned_worst": max((x for r in long for x in r.learned), default=1.0),
        "ranges_noise_percent": 100 * statistics.median(r.noise - 1 for r in every),
        "ranges": rows,
    }
