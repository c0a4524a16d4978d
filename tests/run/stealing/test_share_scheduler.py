"""The scheduler of launches whose shares move, by the real engine on simulated machines: all of each launch runs once,
whatever devices are, and whoever leaves and comes meanwhile."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Graph, Launch
from manycl.machine import HOST, HOST_BIT, Device, DeviceIndex, Link, Machine
from manycl.model.estimates import Estimates
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.split import LinearRegion, Split
from manycl.run.commands.backend import Report, Run
from manycl.run.data.coherence import Directory
from manycl.run.engine.engine import execute
from manycl.run.engine.observers import Observer
from manycl.run.engine.playback import Playback
from manycl.run.engine.setup import Setup
from manycl.run.lowering.lower import lower
from manycl.run.lowering.steps import Lowered, Step
from manycl.run.recovery.device_events import DeviceComes, DeviceEvents, DeviceLeaves, EventMonitor
from manycl.run.simulation.disturbance import Disturbance, Slowdown
from manycl.run.simulation.foresee import StepEstimates
from manycl.run.simulation.simulator import SimBackend
from manycl.run.stealing.share_scheduler import ShareScheduler
from manycl.trace import KernelEvent

GROUPS, BYTES = 4096, 64


@dataclass(frozen=True)
class Each(Estimates):
    """``groups``: seconds of a work-group, by device."""

    seconds: tuple[float, ...]

    def launch(self, node: int, device: DeviceIndex) -> float:
        return self.groups(node, device, GROUPS, GROUPS)

    def groups(self, node: int, device: DeviceIndex, count: int, of: int) -> float:
        return 5e-6 + count * self.seconds[device]

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return 0.0


class Truth(StepEstimates):
    def __init__(self, problem: Problem, lowered: Lowered, times: Each) -> None:
        super().__init__(problem, lowered)
        self._times = times

    def range(self, step: Step, device: DeviceIndex) -> float:
        return self._times.groups(step.node, device, step.groups, GROUPS)


def chain(count: int, apart: bool) -> Graph:
    """Launches, each of which goes on with what the one before has made, or (``apart``) has nothing to do with it."""
    builder, facts = GraphBuilder(), KernelFacts("k", 1, ())
    program = ProgramFacts("", (), {"k": facts})
    keys = [builder.buffer(GROUPS * BYTES) for _ in range(count + 1)]
    for source, key in pairwise(keys):
        reads = () if apart else (source,)
        args = tuple(BufferArg(k) for k in (*reads, key))
        builder.add(Launch("k", program, facts, (GROUPS,), (1,), args, reads, (key,), overwrites=(key,)))
    return builder.build()


def run_one(seed: int, leaves: bool) -> None:
    """A run on a machine of two or three devices that are not what they were taken for; whether one leaves meanwhile,
    and may come again."""
    chance = random.Random(seed)
    devices = chance.randint(2, 3)
    graph = chain(chance.randint(1, 3), chance.random() < 0.3)
    length = chance.choice((0.01, 0.05)) / GROUPS
    true = Each(tuple(length * chance.uniform(1.0, 4.0) for _ in range(devices)))
    believed = Each(tuple(s * chance.choice((0.5, 1.0, 1.0, 2.0)) for s in true.seconds))
    where = Machine(
        tuple(
            Device(
                f"d{d}",
                "cpu",
                memory=HOST,
                launch_overhead=5e-6,
                enqueuing=2e-5,
                shortens=chance.random() < (0.5 if leaves else 0.2),
            )
            for d in range(devices)
        )
    )
    splits = {
        n: Split(0, GROUPS, regions={key: LinearRegion(BYTES) for key in (*task.reads, *task.writes)})
        for n, task in enumerate(graph.nodes)
    }
    problem = Problem(graph, where, believed, (1,) * devices, splits=splits)
    total = sum(1 / s for s in believed.seconds)
    shares: list[Assignment] = []
    for n in range(len(graph.nodes)):
        low = 0
        for d, seconds in enumerate(believed.seconds):
            high = GROUPS if d == devices - 1 else low + int(GROUPS / seconds / total)
            end = believed.groups(n, DeviceIndex(d), high - low, GROUPS)
            shares.append(Assignment(n, DeviceIndex(d), 0, 0.0, end, 0, low, high - low))
            low = high
    plan = Plan(tuple(shares), "", tuple(d.name for d in where.devices), 0.0, movable=tuple(range(len(graph.nodes))))
    slow = Slowdown(DeviceIndex(chance.randrange(devices)), chance.choice((1.0, 3.0)), 0.005, 0.02)
    said, leaving = DeviceEvents(plan.devices), chance.choice(plan.devices)
    moments = sorted(chance.uniform(0.0, 0.03) for _ in range(chance.choice((1, 2)) if leaves else 0))
    news = zip(moments, (DeviceLeaves(leaving), DeviceComes(leaving)), strict=False)
    happening = tuple([(moment, partial(said.put, event)) for moment, event in news])
    lowered = lower(problem, plan, Directory())
    disturbance = Disturbance(slowdowns=(slow,), happening=happening)
    backend = SimBackend(where, Truth(problem, lowered, true), disturbance=disturbance)
    said.listen(backend.wake)
    setup = Setup(lambda *_: lowered)
    result = execute(problem, plan, backend, Directory(), setup=setup, watch=EventMonitor(said, where))
    assert sum(e.groups for e in result.trace.events if isinstance(e, KernelEvent)) == GROUPS * len(graph.nodes)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.booleans())
@example(37, True)  # one leaves whose packet can end early, as the other one has enough
def test_launches_end_where_devices_are_not_what_they_were_taken_for_and_leave_and_come(
    seed: int, leaves: bool
) -> None:
    run_one(seed, leaves)


class Free(Observer):
    """Whoever runs something is not free."""

    def heard(self, playback: Playback, reports: Sequence[Report], now: float) -> None:
        busy = {command.device for command, is_over in playback.given if isinstance(command, Run) and not is_over}
        assert not any(playback.is_free(device) for device in busy)


@pytest.mark.parametrize("count", [1, 2])
def test_a_device_without_a_share_takes_what_those_with_shares_leave(count: int) -> None:
    graph, times, half = chain(count, False), Each((1e-5,) * 3), GROUPS // 2
    where = Machine(tuple(Device(f"d{d}", "cpu", memory=HOST, launch_overhead=5e-6) for d in range(3)))
    split = Split(0, GROUPS, regions={key: LinearRegion(BYTES) for key in graph.buffers})
    problem = Problem(graph, where, times, (1,) * 3, splits=dict.fromkeys(range(count), split))
    shares = [Assignment(n, DeviceIndex(d), 0, 0.0, 1.0, 0, half * d, half) for n in range(count) for d in range(2)]
    plan = Plan(tuple(shares), "", ("d0", "d1", "d2"), 0.0, movable=tuple(range(count)))
    said, lowered = DeviceEvents(plan.devices), lower(problem, plan, Directory())
    happening = tuple([(0.003 * d, partial(said.put, DeviceLeaves(f"d{d}"))) for d in range(2)])
    disturbance = Disturbance(happening=happening)
    backend = SimBackend(where, Truth(problem, lowered, times), disturbance=disturbance)
    said.listen(backend.wake)
    setup, watch, looking = Setup(lambda *_: lowered), EventMonitor(said, where), (Free(),)
    result = execute(problem, plan, backend, Directory(), setup=setup, watch=watch, observers=looking)
    kernels = [e for e in result.trace.events if isinstance(e, KernelEvent)]
    assert sum(e.groups for e in kernels) == GROUPS * count
    assert sum(e.groups for e in kernels if e.device == "d2") > half * count


@pytest.mark.parametrize("seconds", [1.0, 1e-9])
def test_what_a_device_that_may_be_lost_has_is_on_the_host_when_a_long_run_ends(seconds: float) -> None:
    graph, times, half = chain(2, False), Each((seconds,) * 2), GROUPS // 2
    links = tuple(Link(a, b, 1e9, 0.0) for a, b in ((0, 1), (1, 0)))
    where = Machine(tuple(Device(f"d{d}", "cpu", memory=1 - d, launch_overhead=5e-6) for d in range(2)), links)
    split = Split(0, GROUPS, regions={key: LinearRegion(BYTES) for key in graph.buffers})
    problem = Problem(graph, where, times, (1, 1), splits={0: split, 1: split})
    end = times.groups(0, DeviceIndex(0), half, GROUPS)
    shares = [Assignment(n, DeviceIndex(d), 0, 0.0, end, 0, half * d, half) for n in range(2) for d in range(2)]
    plan = Plan(tuple(shares), "", ("d0", "d1"), 0.0, movable=(0, 1))
    lowered, directory = lower(problem, plan, Directory()), Directory()
    for key in graph.buffers:
        directory.define(key)
    backend = SimBackend(where, Truth(problem, lowered, times))
    setup = Setup(lambda *_: lowered, mortal={DeviceIndex(0)})
    execute(problem, plan, backend, directory, setup=setup)
    made = graph.nodes[1].writes[0]
    masks = (
        {part.mask for part in directory.valid_regions[made]}
        if made in directory.valid_regions
        else {directory.valid[made]}
    )
    assert all(mask & HOST_BIT for mask in masks) == (seconds == 1.0)


def two(away: frozenset[DeviceIndex] = frozenset(), preferred: str = "") -> ShareScheduler:
    """One launch in halves on two devices, of which it prefers one."""
    graph, times, half = chain(1, False), Each((1e-5,) * 2), GROUPS // 2
    graph = replace(graph, nodes=tuple(replace(task, device=preferred) for task in graph.nodes))
    where = Machine(tuple(Device(f"d{d}", "cpu", memory=HOST, launch_overhead=5e-6) for d in range(2)))
    split = Split(0, GROUPS, regions={key: LinearRegion(BYTES) for key in graph.buffers})
    problem = Problem(graph, where, times, (1, 1), splits={0: split}, away=away)
    shares = [Assignment(0, DeviceIndex(d), 0, 0.0, 1.0, 0, half * d, half) for d in range(2)]
    plan = Plan(tuple(shares), "", ("d0", "d1"), 0.0, movable=(0,))
    return ShareScheduler(problem, lower(problem, plan, Directory()), {})


FIRST, SECOND = DeviceIndex(0), DeviceIndex(1)


def test_all_whose_packets_end_at_once_get_the_next_ones() -> None:
    scheduler = two()
    first = {assigned.device: assigned.node for assigned in reversed(scheduler.start(0.0))}
    assert [*sorted(first)] == [0, 1]
    following = scheduler.completed([*first.values()], 0.003, {})
    assert sorted(assigned.device for assigned in following) == [0, 1]


def test_a_device_that_was_away_when_the_run_was_planned_takes_part_once_it_comes() -> None:
    scheduler = two(away=frozenset({SECOND}))
    scheduler.leave(SECOND)
    assert {assigned.device for assigned in scheduler.start(0.0)} == {FIRST}
    scheduler.come(SECOND, 0.001)
    assert {assigned.device for assigned in scheduler.completed([], 0.001, {})} == {SECOND}


def test_a_device_that_has_come_back_unwanted_takes_part_once_the_preferred_one_leaves() -> None:
    scheduler = two(preferred="d0")
    scheduler.leave(SECOND)
    scheduler.come(SECOND, 0.0)
    scheduler.leave(FIRST)
    assert {assigned.device for assigned in scheduler.completed([], 0.001, {})} == {SECOND}
