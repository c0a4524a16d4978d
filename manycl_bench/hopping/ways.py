"""The ways in which a kernel runs that comes while its fast device is taken, as plans that the engine follows, and how
long it takes so: from the call that runs it until its results are in the host's memory.

What takes the fast device is a kernel of a known length, which none of the plans knows: those that migrate give the
fast device nothing, and what it runs is decided while the run goes on, when it turns out to be free.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

import manycl as mc
from manycl.graph.graph import Graph
from manycl.machine import DeviceIndex
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policies.classical.in_order import InOrder
from manycl.plan.problem import Problem
from manycl.plan.splitting import Splits
from manycl.run.graph_cache.cached_graph import CachedGraph
from manycl.trace import KernelEvent
from manycl_bench.hopping.data import Case
from manycl_bench.hopping.loops import LOOPS

WAYS = ("waits", "slow", "hop", "both")
"""Whole on the fast device after what it is taken by; whole on the slow one at once (the better of these is what the
perfect scheduler does, which cannot migrate); from the slow to the fast device when that is free; on both from then
on."""
MIGRATING = ("hop", "both")
OCCUPANT = "occupant"
POINTS = 1 << 12
"""Of the kernel that takes the fast device, …"""
GROUP = 256
"""… in work-groups of so many: native devices run small ones that are neighbours beside each other, as far as they lie
in one block, so that a round of long launches, whose blocks are single groups, would take up to five times as long."""
_BUSY = "float x = a[i]; for (long q = 0; q < rounds; q++) x = x * 0.999f + 0.001f; a[i] = x;"


class Pair(NamedTuple):
    """The devices of a benchmark."""

    slow: DeviceIndex
    fast: DeviceIndex


class Asked:
    """A policy that keeps what it was asked, and whether kernels may be divided; they run in order on one device."""

    def __init__(self) -> None:
        self.problem: Problem | None = None

    def plan(self, problem: Problem) -> Plan:
        self.problem = problem
        return InOrder().plan(problem)


def asked(queue: mc.Queue, graph: Graph) -> Problem:
    """The problem that a policy is asked for a graph, with what is known by now of its times."""
    policy = Asked()
    queue.session.run(graph, policy)
    assert policy.problem is not None
    return policy.problem


def plan(
    problem: Problem,
    way: str,
    devices: Pair,
    occupied: bool,
    ranges: int = 1,
    seconds: Mapping[DeviceIndex, float] = MappingProxyType({}),
) -> Plan:
    """The plan of a graph that is a benchmark's, with what takes the fast device before it if that is ``occupied``. The
    loop of a benchmark is its first kernel; others (which put together what a reduction's blocks have found) are short.
    ``ranges``: in so many it runs on the slow device; ``seconds`` of the benchmark alone, by device. Raises ManyclError
    where it cannot be divided."""
    first = int(occupied)
    out = [Assignment(0, devices.fast, 0, 0.0, 0.0)] if occupied else []
    on = devices.fast if way == "waits" else devices.slow
    split = problem.splits.get(first)
    if way in MIGRATING or ranges > 1:
        if split is None or split.groups < 2:
            splits = problem.splits
            reason = splits.why(first) if isinstance(splits, Splits) else ""
            raise mc.ManyclError(f"the kernel cannot migrate, as it cannot be divided: {reason or 'it is too small'}")
        if way in MIGRATING:
            shares = [(devices.slow, split.groups)]
        else:
            least, more = divmod(split.groups, min(ranges, split.groups))
            shares = [(on, least + (r < more)) for r in range(min(ranges, split.groups))]
        begin = 0
        for device, groups in shares:
            end = seconds.get(device, 0.0) * groups / split.groups
            out.append(Assignment(first, device, 0, 0.0, end, split.dimension, begin, groups))
            begin += groups
    else:
        out.append(Assignment(first, on, 0, 0.0, 0.0))
    out += [Assignment(node, on, 0, 0.0, 0.0) for node in range(first + 1, len(problem.graph))]
    names = tuple(d.name for d in problem.machine.devices)
    movable = (first,) if way in MIGRATING else ()
    return Plan(tuple(out), way, names, 0.0, movable=movable, in_turn=movable if way == "hop" else ())


class Ran(NamedTuple):
    """A run: seconds from its call until the benchmark's results are in the host's memory; launches of its loop on each
    device (by name); seconds of what had the fast device, from the call on; and from then to the begin of the first
    launch of the loop there (None: there was none after it)."""

    seconds: float
    launches: Mapping[str, int]
    occupied: float
    switch: float | None


class Submission(NamedTuple):
    """What was enqueued of a benchmark: the ``graph``; arrays with its ``results``; whether what takes the fast device
    comes first (``occupied``); ``owner``: keeps memory that only this graph uses."""

    graph: Graph
    results: tuple[mc.Array, ...]
    occupied: bool
    owner: object


Enqueue = Callable[..., Any]
"""What enqueues a loop: called with a queue, and its inputs by name; returns the results of reductions."""


class Benchmark:
    """A benchmark on a session's arrays; ``enqueue``: what enqueues it, that of its name unless given."""

    def __init__(self, queue: mc.Queue, name: str, case: Case, enqueue: Enqueue | None = None) -> None:
        self.queue, self.name, self.case = queue, name, case
        self.enqueue = enqueue or LOOPS[name]
        self.given = {k: queue.array(v, name=k) if isinstance(v, np.ndarray) else v for k, v in case.given.items()}
        self.arrays = [a for a in self.given.values() if isinstance(a, mc.Array)]
        self.far = queue.session.machine.memories > 1

    def enqueued(self, occupy: Callable[[], None] | None = None) -> Submission:
        """What has the fast device, if anything, and the benchmark."""
        with self.queue.prepare() as prepared:
            if occupy is not None:
                occupy()
            result = self.enqueue(self.queue, **self.given)
        results = [self.given[name] for name in self.case.expected if name in self.given]
        results += [result] if isinstance(result, mc.Array) else []
        return Submission(prepared.graph, tuple(results), occupy is not None, prepared)

    def run(self, prepared: CachedGraph, of: Submission) -> Ran:
        """A run whose inputs are in the host's memory, and nowhere else where devices have their own."""
        self.bring_home(self.arrays)
        begin = time.perf_counter()
        result = prepared.run()
        before = time.perf_counter()
        self.bring_home(of.results)
        fetched = time.perf_counter() - before if self.far else 0.0
        first = int(of.occupied)
        end = max(times[1] for node, times in result.times.items() if node >= first)
        kernels = [e for e in result.trace.events if isinstance(e, KernelEvent)]
        launches = Counter(e.device for e in kernels if e.node == first)
        busy = result.times[0][1] - begin if first else 0.0
        taken = [e for e in kernels if first and e.node == 0]
        behind = [
            e.start - taken[-1].end for e in kernels if taken and e.node == first and e.device == taken[-1].device
        ]
        return Ran(end - begin + fetched, launches, busy, min(behind, default=None))

    def bring_home(self, arrays: Sequence[mc.Array]) -> None:
        """Contents are in the host's memory then, and nowhere else where devices have their own."""
        for array in arrays if self.far else ():
            with array.map():
                pass

    def wrong(self, of: Submission) -> list[str]:
        """What the last run has got wrong."""
        found = {name: array.get() for name, array in self.given.items() if isinstance(array, mc.Array)}
        for array in of.results:
            if all(array is not a for a in self.arrays):
                found |= dict.fromkeys(self.case.expected, array.get())
        return self.case.check(found)


class Occupant:
    """What takes the fast device."""

    def __init__(self, queue: mc.Queue) -> None:
        self.queue = queue
        self.array = queue.zeros(POINTS, np.float32, name=OCCUPANT)
        self._each: dict[str, float] = {}  # seconds of a round, by device

    def occupy(self, device: str, seconds: float) -> Callable[[], None]:
        """What enqueues a kernel that takes the device for so long."""
        if device not in self._each:
            self._each[device] = self._measured(device)
        rounds = max(int(seconds / self._each[device]), 1)
        return lambda: self._enqueue(device, rounds)

    def _measured(self, device: str) -> float:
        """Seconds of a round: launches cost something, too, so many of them are measured."""
        rounds, took = 1 << 10, 0.0
        while took < 20e-3:
            rounds *= 4
            with self.queue.prepare() as graph:
                self._enqueue(device, rounds)
            took = min(_seconds(graph.run()) for _ in range(5))
        return took / rounds

    def _enqueue(self, device: str, rounds: int) -> None:
        given = {"a": self.array, "rounds": rounds}
        mc.parallel_for(POINTS, _BUSY, local=(GROUP,), name=OCCUPANT, device=device, queue=self.queue, arguments=given)


def _seconds(result: Any) -> float:
    """How long the kernels of a run took, the first to the last."""
    events = [e for e in result.trace.events if isinstance(e, KernelEvent)]
    return max(e.end for e in events) - min(e.start for e in events)
