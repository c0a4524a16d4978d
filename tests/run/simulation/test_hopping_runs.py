"""Kernels that begin while their fast device is taken: by the real engine on a simulated machine, when they end,
against formulas that share no code with it; and on real devices, that what they give is right."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import manycl as mc
from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Graph, Launch
from manycl.machine import HOST, Device, Machine
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policy import find
from manycl.plan.problem import Problem
from manycl.plan.split import LinearRegion, Split
from manycl.plan.verification.verify import verify
from manycl.run.simulation.foresee import foresee
from manycl.trace import KernelEvent
from tests.run.simulation.hopping_times import FAST, GROUPS, PACKET, SLOW, HoppingTimes, HoppingTruth

BYTES = 64
"""That each work-group writes."""
SECONDS = 0.2
"""Of the kernel on the slow device."""


def hopping_graph() -> Graph:
    builder = GraphBuilder()
    facts = KernelFacts("k", 1, ())
    program = ProgramFacts("", (), {"k": facts})
    for _ in range(2):
        key = builder.buffer(GROUPS * BYTES)
        builder.add(Launch("k", program, facts, (GROUPS,), (1,), (BufferArg(key),), (), (key,), overwrites=(key,)))
    return builder.build()


def slow_and_fast() -> Machine:
    return Machine(
        tuple(Device(name, "cpu", memory=HOST, launch_overhead=PACKET, enqueuing=20e-6) for name in ("slow", "fast"))
    )


def simulated(k: float, wait: float, in_turn: bool, in_packets: bool = False) -> tuple[float, set[str]]:
    """When the kernel ends, and the devices on which it ran. ``in_packets``: what takes the fast device, too."""
    graph = hopping_graph()
    times = HoppingTimes(SECONDS, wait, k)
    machine = slow_and_fast()
    keys = [graph.nodes[n].writes[0] for n in range(2)]
    splits = {n: Split(0, GROUPS, regions={keys[n]: LinearRegion(BYTES)}) for n in range(2)}
    plan = Plan(
        (
            Assignment(0, FAST, 0, 0.0, wait, 0, 0, GROUPS) if in_packets else Assignment(0, FAST, 0, 0.0, 0.0),
            Assignment(1, SLOW, 0, 0.0, 0.0, 0, 0, GROUPS - 1),
            Assignment(1, FAST, 0, 0.0, 0.0, 0, GROUPS - 1, 1),
        ),
        "by hand",
        ("slow", "fast"),
        0.0,
        movable=(0, 1) if in_packets else (1,),
        in_turn=(1,) if in_turn else (),
    )
    problem = Problem(graph, machine, times, (1, 1), splits=splits)
    trace = foresee(problem, plan, estimates=partial(HoppingTruth, times=times))
    mine = [e for e in trace.events if isinstance(e, KernelEvent) and e.node == 1]
    assert sum(e.groups for e in mine) == GROUPS
    return max(e.end for e in mine), {e.device for e in mine}


@pytest.mark.parametrize("k", [1.3, 2.0, 3.5, 6.0])
@pytest.mark.parametrize("part", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_kernel_ends_when_the_formulas_say(k: float, part: float) -> None:
    wait = part * SECONDS
    moved = wait + (SECONDS - wait) / k  # Device-Hopping's Equations 6 and 14
    together = wait + (SECONDS - wait) / (1.0 + k)
    # what the slow device was given before the fast one came ends there: two packets, of a chunk at least, which saves
    # time, or costs some; of a launch on one device at a time they end before what the fast one has taken over
    least, most = 2 * max(2e-3, SECONDS / 40.0), 2 * SECONDS / 10.0
    bound = max(2 * SECONDS / (1.0 + k) / 10.0, least)
    hop, ran = simulated(k, wait, in_turn=True)
    assert moved - most / k <= hop <= max(moved * 1.02, wait + least)
    assert ran == {"slow", "fast"} or hop <= wait + least
    both, _ = simulated(k, wait, in_turn=False)
    assert together <= both <= max(together * 1.05, together + bound / 2, wait + bound)


@pytest.mark.parametrize("wait", [0.06, 0.1])
def test_packets_behind_those_of_another_kernel_tell_no_device_to_be_slow(wait: float) -> None:
    """The slow device would take what the fast one has left: the fast one's first packet was given long before it
    began."""
    k = 4.0
    end, _ = simulated(k, wait, True, in_packets=True)
    assert end <= 1.02 * (wait + (SECONDS - wait) / k)


@pytest.mark.parametrize("in_turn", [False, True])
def test_a_kernel_whose_fast_device_never_comes_ends_as_on_the_slow_one(in_turn: bool) -> None:
    end, ran = simulated(3.0, 5.0 * SECONDS, in_turn)
    assert SECONDS <= end <= 1.01 * SECONDS
    assert ran == {"slow"}


def test_plans_are_kept_as_they_are() -> None:
    plan = Plan((), "p", ("a", "b"), 0.0, movable=(1, 2), in_turn=(2,))
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("in_turn", [False, True])
def test_what_migrates_gives_one_devices_bits(apart: bool, in_turn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast device is taken for about a third of the time, and for longer than the kernel takes."""
    monkeypatch.setattr("manycl.plan.migration.SHORTEST", 0.0)
    if apart:
        monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    program = mc.Program("""
    kernel void spin(global float *y, int rounds) {
        float v = y[get_global_id(0)];
        for (int k = 0; k < rounds; k++) v = v * 0.999f + 0.5f;
        y[get_global_id(0)] = v;
    }""")
    items, local = 1 << 14, 64
    groups = items // local
    data = np.random.default_rng(1).random(items, np.float32)
    with mc.Queue("native/2") as queue:
        y, busy = queue.array(data), queue.zeros(items, np.float32)
        for rounds in (300, 3000):
            with queue.prepare() as graph:
                program.spin(queue, (items,), (local,), busy, rounds)
                program.spin(queue, (items,), (local,), y, 1000)
            whole = [Assignment(n, SLOW, 0, 0.0, 0.0) for n in range(2)]
            plan = Plan(tuple(whole), "whole", queue.devices, 0.0)
            results: list[bytes] = []
            shares = (
                Assignment(0, FAST, 0, 0.0, 0.0),
                Assignment(1, SLOW, 0, 0.0, 0.0, 0, 0, groups - 1),
                Assignment(1, FAST, 0, 0.0, 0.0, 0, groups - 1, 1),
            )
            hop = Plan(shares, "hop", queue.devices, 0.0, movable=(1,), in_turn=(1,) if in_turn else ())
            for chosen, options in ((plan, {}), (hop, {}), ("mig_heft", {"live": "yes"})):
                y.set(data)
                queue.session.run(graph.graph, chosen, options=options)
                results.append(y.get().tobytes())
            assert results[1:] == results[:1] * 2


@pytest.mark.parametrize("k", [2.0, 4.0])
@pytest.mark.parametrize("wait", [0.2, 0.5])
def test_kernels_of_mig_heft_migrate_when_a_run_goes_otherwise(k: float, wait: float) -> None:
    """What takes the fast device is foreseen to take twice as long as the kernel, which is planned on the slow one;
    really it takes a part of that."""
    graph, machine = hopping_graph(), slow_and_fast()
    keys = [graph.nodes[n].writes[0] for n in range(2)]
    foreseen, truth = HoppingTimes(SECONDS, 2 * SECONDS, k), HoppingTimes(SECONDS, wait * SECONDS, k)
    splits = {1: Split(0, GROUPS, regions={keys[1]: LinearRegion(BYTES)})}
    graph = replace(graph, nodes=(replace(graph.nodes[0], device="fast"), graph.nodes[1]))
    ends = {}
    for live in ("no", "yes"):
        problem = Problem(graph, machine, foreseen, (1, 1), splits=splits, options={"live": live})
        plan = find("mig_heft").plan(problem)
        assert {a.device for a in plan.assignments if a.node == 1} == {SLOW}
        verify(plan, graph, machine, problem)
        trace = foresee(problem, plan, estimates=partial(HoppingTruth, times=truth))
        mine = [e for e in trace.events if isinstance(e, KernelEvent) and e.node == 1]
        assert sum(e.groups or GROUPS for e in mine) == GROUPS
        ends[live] = max(e.end for e in mine)
    begun = wait * SECONDS
    assert ends["no"] == pytest.approx(SECONDS, rel=0.01)
    assert ends["yes"] <= 1.02 * (begun + (SECONDS - begun) / k) + 2 * SECONDS / 40.0
