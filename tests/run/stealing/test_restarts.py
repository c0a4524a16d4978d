"""Packets of a device that has become slow are begun anew on another one (simulated)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from manycl.analysis import parse_program
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Launch
from manycl.machine import HOST, Device, DeviceIndex, Link, Machine
from manycl.model.estimates import Estimates
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.splitting import Splits
from manycl.run.commands.backend import Failed
from manycl.run.engine.engine import RunFailure, execute
from manycl.run.engine.result import Result
from manycl.run.engine.setup import Setup
from manycl.run.lowering.lower import lower
from manycl.run.lowering.steps import DROPPED
from manycl.run.recovery.device_events import DeviceEvents, EventMonitor
from manycl.run.simulation.disturbance import Disturbance, Slowdown
from manycl.run.simulation.foresee import StepEstimates, directory_of
from manycl.run.simulation.simulator import SimBackend
from manycl.trace import KernelEvent

PROGRAM = parse_program("""
kernel void tripled(global const int *a, global int *b) { b[get_global_id(0)] = 3 * a[get_global_id(0)]; }
kernel void triple(global const int *a, global int *b) { b[get_global_id(0)] *= 3; }
""")
ITEMS, GROUP = 1 << 16, 64
GROUPS = ITEMS // GROUP
SLOW = Slowdown(DeviceIndex(1), 20.0, 0.05, math.inf)
"""From the middle of 100 ms on."""


class Alike(Estimates):
    """Launches take 200 ms on each device."""

    def launch(self, node: int, device: DeviceIndex) -> float:
        return 0.2

    def groups(self, node: int, device: DeviceIndex, count: int, of: int) -> float:
        return 0.2 * count / of

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return 0.0 if source == target else 1e-5


class Pair:
    """A launch of 200 ms of which each of two GPUs has half. ``memories``: theirs."""

    def __init__(self, kernel: str = "tripled", memories: tuple[int, int] = (1, 2), still: bool = False) -> None:
        builder, facts = GraphBuilder(), PROGRAM.kernels[kernel]
        one, other = builder.buffer(4 * ITEMS, "one"), builder.buffer(4 * ITEMS, "other")
        reads = (one,) if kernel == "tripled" else (one, other)
        args = BufferArg(one), BufferArg(other)
        builder.add(Launch(kernel, PROGRAM, facts, (ITEMS,), (GROUP,), args, reads, (other,), overwrites=(other,)))
        graph = builder.build()
        devices = [Device(f"d{n}", "gpu", memory=m, launch_overhead=1e-5) for n, m in enumerate(memories)]
        links = [Link(*ends, bandwidth=1e10, latency=1e-5) for m in {*memories} for ends in ((HOST, m), (m, HOST))]
        machine, valid = Machine(tuple(devices), tuple(links)), dict.fromkeys((one, other), frozenset({HOST}))
        self.problem = Problem(graph, machine, Alike(), (1, 1), splits=Splits(graph), valid=valid)
        halves = [(DeviceIndex(0), 0), (DeviceIndex(1), GROUPS // 2)]
        ranges = tuple(Assignment(0, d, 0, 0.0, 0.1, 0, first, GROUPS // 2) for d, first in halves)
        self.plan = Plan(ranges, "by hand", ("d0", "d1"), 0.1, movable=(0,), still=(0,) if still else ())

    def run(self, disturbance: Disturbance, then: Callable[[SimBackend], None] = lambda backend: None) -> Result:
        problem, directory = self.problem, directory_of(self.problem)
        lowered = lower(problem, self.plan, directory)
        backend = SimBackend(problem.machine, StepEstimates(problem, lowered), disturbance=disturbance)
        then(backend)
        watch = EventMonitor(DeviceEvents(["d0", "d1"]), problem.machine)
        setup = Setup(lambda *_: lowered)
        return execute(problem, self.plan, backend, directory, setup=setup, watch=watch)


def parts(result: Result) -> tuple[list[KernelEvent], list[KernelEvent]]:
    """The kernels whose results count, which are all of the launch, and the dropped ones."""
    kernels = sorted(result.trace.kernels(), key=lambda e: e.first)
    ran, dropped = [e for e in kernels if e.role != DROPPED], [e for e in kernels if e.role == DROPPED]
    assert [e.first for e in ran] == [sum(e.groups for e in ran[:n]) for n in range(len(ran))]
    assert sum(e.groups for e in ran) == GROUPS
    return ran, dropped


@pytest.mark.parametrize("still", [False, True])
def test_what_a_slow_device_has_begun_is_begun_anew(still: bool) -> None:
    """Where it is not, the device computes for as long again as both devices for all of it."""
    pair = Pair(still=still)
    if still:  # the shares move once one is late
        pair.problem = replace(pair.problem, estimates=Measured())
    ran, dropped = parts(pair.run(Disturbance(slowdowns=(SLOW,))))
    assert dropped
    assert {e.device for e in dropped} == {"d1"}
    assert max(e.end for e in ran) < 0.16 < 0.17 < max(e.end for e in dropped)
    again = [e for e in ran if any(d.first <= e.first < d.first + d.groups for d in dropped)]
    assert {e.device for e in again} == {"d0"}
    begun = min(e.start for e in again)
    assert not [e for e in ran if e.device == "d1" and begun < e.start < max(d.end for d in dropped)]


class Measured(Alike):
    def is_measured(self, node: int, device: DeviceIndex) -> bool:
        return True


@pytest.mark.parametrize("how", ["undisturbed", "changes what it reads", "in one memory"])
def test_what_may_not_or_need_not_be_begun_anew_is_not(how: str) -> None:
    kernel, memories = ("triple" if how.startswith("changes") else "tripled"), ((1, 1) if "memory" in how else (1, 2))
    slow = () if how == "undisturbed" else (SLOW,)
    ran, dropped = parts(Pair(kernel, memories).run(Disturbance(slowdowns=slow)))
    assert not dropped
    assert (max(e.end for e in ran) > 0.2) == bool(slow)


def test_a_device_that_is_lost_with_a_dropped_packet_is_no_loss() -> None:
    """All other results of its are lost as well, and made again."""
    lost = Pair().run(Disturbance(slowdowns=(SLOW,), lost={1: 0.145}))
    ran, _ = parts(lost)
    assert {e.device for e in ran} == {"d0"}
    assert lost.lost == {"d1": "the device was lost"}


def test_a_dropped_packet_that_fails_ends_the_run() -> None:
    """Whatever is wrong with the device, or the kernel, is not kept from the user."""

    def fails(backend: SimBackend) -> None:
        complete = backend._complete

        def ends(active: Any) -> None:
            if active.start < 0.06 and active.end > 0.12:
                backend.record.failure = Failed(active.command.token, backend.now(), "made to fail")
            complete(active)

        backend._complete = ends  # type: ignore[assignment]

    with pytest.raises(RunFailure, match=r"tripled.* failed on d1.*made to fail") as found:
        Pair().run(Disturbance(slowdowns=(SLOW,)), fails)
    assert Counter(e.role for e in found.value.trace.kernels())[DROPPED]
