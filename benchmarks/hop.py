"""Shares that move while a launch runs, by the real engine on a simulated machine of two devices that share the host's
memory, one of them three times as fast, for launches of 20, 50 and 100 ms.

Each figure compares with an oracle that knows all speeds, and pays for nothing. over_oracle_worst_percent: the worst of
all cases: the faster device's speed was taken for 0.5 to 2 times what it is; it is half as fast from the middle on; it
begins nothing before a third of the launch (a device that comes). static_worst_percent: the same with shares that stay.
over_oracle_percent: each case, of the launch of 50 ms. All of these are the worse of two kinds of devices: launches
that are under way can end early (native devices), or not, so that shares are run in packets. stealing_cost_percent:
what shares that may move cost where times are exact, against shares that stay (the most of all lengths). free_ms: the
longest packet there behind a device's first, where launches cannot end early: so long whoever wants the device waits
at most. decide_us: the
engine's time of deciding and compiling a packet, beside enqueueing it (processor time of the thread, less what asking
for that takes; median of ``--repeats`` runs). A packet costs a device 5 or 30 us in simulation, enqueueing it the host
20 us, and the host hears of its end 50 us later.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import common

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Launch
from manycl.machine import HOST, Device, DeviceIndex, Machine
from manycl.model.estimates import Estimates
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.split import LinearRegion, Split
from manycl.run.engine.dynamic import Dynamic
from manycl.run.lowering.steps import Lowered, Step
from manycl.run.simulation.disturbance import UNDISTURBED, Disturbance, Slowdown
from manycl.run.simulation.foresee import StepEstimates, foresee
from manycl.trace import KernelEvent

GROUPS, BYTES = 16384, 64
LENGTHS = (0.02, 0.05, 0.1)
RATIO = 3.0
WRONG = (0.5, 1 / 1.5, 1 / 1.3, 1 / 1.1, 1.1, 1.3, 1.5, 2.0)
ENQUEUING = 20e-6
NEVER = 1e9
FACTS = KernelFacts("k", 1, ())


@dataclass(frozen=True)
class Speeds(Estimates):
    """``rates``: work-groups a second of each device; ``overheads``: seconds of a range beside them."""

    rates: tuple[float, float]
    overheads: tuple[float, float] = (0.0, 0.0)

    def launch(self, node: int, device: DeviceIndex) -> float:
        return self.groups(node, device, GROUPS, GROUPS)

    def groups(self, node: int, device: DeviceIndex, count: int, of: int) -> float:
        return self.overheads[device] + count / self.rates[device]

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return 0.0


class Truth(StepEstimates):
    """What ranges really take."""

    def __init__(self, problem: Problem, lowered: Lowered, speeds: Speeds) -> None:
        super().__init__(problem, lowered)
        self._speeds = speeds

    def range(self, step: Step, device: DeviceIndex) -> float:
        return self._speeds.groups(step.node, device, step.groups, GROUPS)


@dataclass(frozen=True)
class Case:
    """A launch of ``seconds`` at true speeds, of which the fast device's was taken for ``wrong`` times what it is;
    ``slower``: from when to when it takes how many times as long."""

    seconds: float
    wrong: float = 1.0
    slower: tuple[float, float, float] | None = None

    @property
    def rates(self) -> tuple[float, float]:
        whole = GROUPS / self.seconds
        return whole / (1 + RATIO), whole * RATIO / (1 + RATIO)

    @property
    def oracle(self) -> float:
        """Seconds with all known, and nothing paid."""
        if self.slower is None:
            return self.seconds
        (slow, fast), (begin, end, factor) = self.rates, self.slower
        early = begin * (slow + fast)
        during = slow + fast / factor
        if end >= NEVER:
            return begin + (GROUPS - early) / during
        return end + (GROUPS - early - (end - begin) * during) / (slow + fast)


class Ran(NamedTuple):
    """What a launch takes, in so many ranges, of which the longest behind a device's first takes so long."""

    seconds: float
    ranges: int
    longest: float


def run(case: Case, overheads: tuple[float, float], moves: bool, ends_early: bool = False) -> Ran:
    """A launch whose shares move, or stay; ``ends_early``: what devices have begun can."""
    builder = GraphBuilder()
    key = builder.buffer(GROUPS * BYTES)
    program = ProgramFacts("", (), {"k": FACTS})
    builder.add(Launch("k", program, FACTS, (GROUPS,), (1,), (BufferArg(key),), (), (key,), overwrites=(key,)))
    where = Machine(
        tuple(
            Device(f"d{i}", "cpu", memory=HOST, launch_overhead=o, enqueuing=ENQUEUING, shortens=ends_early)
            for i, o in enumerate(overheads)
        )
    )
    slow, fast = case.rates
    believed = Speeds((slow, fast * case.wrong), overheads)
    split = Split(0, GROUPS, regions={key: LinearRegion(BYTES)})
    problem = Problem(builder.build(), where, believed, (1, 1), splits={0: split})
    cut = round(GROUPS * slow / (slow + fast * case.wrong))
    shares = [
        Assignment(
            0, DeviceIndex(d), 0, 0.0, believed.groups(0, DeviceIndex(d), high - low, GROUPS), 0, low, high - low
        )
        for d, (low, high) in enumerate(((0, cut), (cut, GROUPS)))
    ]
    plan = Plan(tuple(shares), "by hand", ("d0", "d1"), 0.0, movable=(0,) if moves else ())
    disturbed = UNDISTURBED
    if case.slower is not None:
        begin, end, factor = case.slower
        disturbed = Disturbance(slowdowns=(Slowdown(DeviceIndex(1), factor, begin, min(end, NEVER)),))
    truth = partial(Truth, speeds=Speeds(case.rates, overheads))
    trace = foresee(problem, plan, disturbance=disturbed, estimates=truth)
    kernels = [e for e in trace.events if isinstance(e, KernelEvent)]
    assert sum(e.groups for e in kernels) == GROUPS
    assert ends_early or moves == (len(kernels) > 2)
    later = [e.end - e.start for e in kernels if any(e.device == o.device and o.start < e.start for o in kernels)]
    return Ran(max(e.end for e in kernels), len(kernels), max(later, default=0.0))


def cases(length: float) -> dict[str, Case]:
    return {
        **{f"speed taken for {factor:.2g} times": Case(length, factor) for factor in WRONG},
        "half as fast from the middle": Case(length, slower=(length / 2, math.inf, 2.0)),
        "comes at a third": Case(length, slower=(0.0, length / 3, NEVER)),
    }


@contextmanager
def thinking() -> Iterator[list[float]]:
    """Processor seconds of this thread in each transition of runs whose shares move."""
    spent: list[float] = []
    asked = [time.thread_time() for _ in range(100)]
    asking = statistics.median(b - a for a, b in pairwise(asked))
    before = [(name, getattr(Dynamic, name)) for name in ("start", "handle")]

    def timed(function: Any) -> Any:
        def call(*given: Any) -> Any:
            begin = time.thread_time()
            found = function(*given)
            spent.append(time.thread_time() - begin - asking)
            return found

        return call

    for name, function in before:
        setattr(Dynamic, name, timed(function))
    try:
        yield spent
    finally:
        for name, function in before:
            setattr(Dynamic, name, function)


def decide_us(repeats: int) -> float:
    """Microseconds of a packet."""
    found = []
    for _ in range(repeats + 1):
        with thinking() as spent:
            ran = run(Case(0.05, 1.3), (5e-6, 5e-6), True)
        found.append(sum(spent) / ran.ranges * 1e6)
    return statistics.median(found[1:])


def main() -> None:
    args = common.parse(__doc__)
    worst = {True: 0.0, False: 0.0}
    each: dict[str, float] = {}
    cost = free = 0.0
    for overheads in ((5e-6, 5e-6), (5e-6, 30e-6)):
        for length in LENGTHS:
            exact = Case(length)
            for early in (False, True):
                moving, staying = (run(exact, overheads, moves, early) for moves in (True, False))
                cost = max(cost, moving.seconds / staying.seconds - 1)
                free = max(free, 0.0 if early else moving.longest)
            for name, case in cases(length).items():
                for moves in worst:
                    over = max(run(case, overheads, moves, early).seconds for early in (False, True)) / case.oracle - 1
                    worst[moves] = max(worst[moves], over)
                    if moves and length == 0.05 and overheads[1] == 5e-6:
                        each[name] = 100 * over
    figures = {
        "over_oracle_worst_percent": 100 * worst[True],
        "static_worst_percent": 100 * worst[False],
        "stealing_cost_percent": 100 * cost,
        "free_ms": 1e3 * free,
        "decide_us": decide_us(args.repeats),
    }
    common.report(args, figures, {"over_oracle_percent": {name: float(f"{x:.3g}") for name, x in each.items()}})


if __name__ == "__main__":
    main()
