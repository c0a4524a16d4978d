"""Plans with ranges on a simulated machine, by the engine itself: real regions, simulated times."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace as Of
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Graph, HostTask, Launch
from manycl.machine import HOST, Device, Machine
from manycl.model.estimates import Estimates
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.policy import StaticPolicy, find
from manycl.plan.problem import Problem
from manycl.plan.splitting import Splits
from manycl.region import Region
from manycl.run.data.coherence import Directory, ValidRegion
from manycl.run.engine.engine import RunFailure
from manycl.run.lowering.steps import RANGE, Step
from manycl.run.simulation.disturbance import Disturbance
from manycl.run.simulation.foresee import StepEstimates, foresee, foreseeing, with_times
from manycl.run.simulation.simulate import plan_with, simulate
from manycl.trace import FailureEvent, HostEvent, KernelEvent, TransferEvent
from tests.run.chaos.test_divided_chaos import PROGRAM, launch
from tests.run.lowering.test_pipelining import halves as halved
from tests.run.lowering.test_pipelining import problem as of_kernels

MACHINE = Machine(tuple(Device(f"gpu{i}", "gpu", memory=i + 1, launch_overhead=0.0, bandwidth=1e3) for i in range(2)))
ROW = 4
TWO_BUFFERS = ("map", "stencil", "reversed", "columns", "maybe", "scatter", "count")


class Times(Estimates):
    """A launch takes eight seconds, a range its part of them; a transfer takes a tenth of a second."""

    def launch(self, node: int, device: int) -> float:
        return 8.0

    def groups(self, node: int, device: int, count: int, of: int) -> float:
        return 8.0 * count / of

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return 0.0 if source == target else 0.1


def problem(*names: str) -> Problem:
    builder = GraphBuilder()
    a, b = builder.buffer(128, "a"), builder.buffer(128, "b")
    for name in names:
        builder.add(launch(name, [a, b]))
        a, b = b, a
    graph = builder.build()
    valid = {key: frozenset({HOST}) for key in graph.buffers}
    return Problem(graph, MACHINE, Times(), (1, 1), valid, handover=0.0, splits=Splits(graph))


def halves(graph: Graph) -> Plan:
    ranges = (Assignment(n, d, 0, 0.0, 0.0, 0, 4 * d, 4) for n in range(len(graph)) for d in range(2))
    return Plan(tuple(ranges), "halves", ("gpu0", "gpu1"), 0.0)


def test_a_stencil_waits_for_its_halos_only() -> None:
    p = problem("stencil", "stencil", "stencil")
    trace = foresee(p, halves(p.graph))
    assert trace.kind == "simulation"
    kernels = sorted((e.node, e.device, e.first, e.groups, round(e.end - e.start, 9)) for e in trace.kernels())
    assert kernels == [(n, f"gpu{d}", 4 * d, 4, 4.0) for n in range(3) for d in range(2)]
    between = [e for e in trace.transfers() if e.start >= 4.0 and e.source != "host"]
    assert [e.nbytes for e in between] == 4 * [ROW]
    # three kernels of four seconds; before each, at most a few transfers of a tenth
    assert 12.0 < trace.makespan < 13.5


@pytest.mark.parametrize("name", ["mkmd", "balance", "adaptive", "auto"])
@settings(max_examples=30, deadline=None)
@given(
    names=st.lists(st.sampled_from(TWO_BUFFERS), min_size=1, max_size=3),
    memory=st.integers(256, 700),
    other=st.sampled_from([256, 384, 512, 1 << 20]),
)
def test_putting_results_together_has_room(name: str, names: list[str], memory: int, other: int) -> None:
    """Any one device has room for a launch's two buffers of 128 bytes, so every plan runs; where there is room for the
    copies that are merged, launches are divided."""
    p = problem(*names)
    sizes = [memory, other]
    devices = tuple(replace(d, global_memory=s, max_allocation=s) for d, s in zip(MACHINE.devices, sizes, strict=True))
    p = replace(p, machine=replace(p.machine, devices=devices), spills=True)
    plan = plan_with(name, p)
    foresee(p, plan)
    if name != "auto" and min(sizes) >= 512:
        assert plan.is_split


def test_a_plan_that_the_engine_refuses_is_foreseen_as_the_worst() -> None:
    p = problem("count")
    devices = tuple(replace(d, global_memory=250) for d in MACHINE.devices)
    p = replace(p, machine=replace(p.machine, devices=devices), spills=True)
    assert foreseeing(p, Directory())(halves(p.graph)).makespan == math.inf


def test_atomics_are_merged_where_the_first_range_ran() -> None:
    p = problem("count")
    trace = foresee(p, halves(p.graph))
    roles = [(e.role, e.device, e.method) for e in trace.events if isinstance(e, KernelEvent)]
    method = "difference add"
    assert sorted(r for r in roles if r[0] == "range") == [("range", f"gpu{d}", method) for d in range(2)]
    others = [r for r in roles if r[0] != "range"]
    assert others == [("clear", "gpu1", method), ("merge", "gpu0", method)]  # the other copy begins with zeros
    moved = sorted((e.source, e.target, e.nbytes) for e in trace.transfers())
    inputs = [
        ("host", "gpu0", 32),
        ("host", "gpu0", 64),
        ("host", "gpu1", 64),
    ]  # the eight counts: where they are merged
    assert moved == [("gpu1", "host", 32), *sorted([*inputs, ("host", "gpu0", 32)])]


def test_what_cannot_be_split_is_refused() -> None:
    builder = GraphBuilder()
    key = builder.buffer(256)
    facts = PROGRAM.kernels["part"]
    builder.add(Launch("part", PROGRAM, facts, (32,), (4,), (BufferArg(key),), (), (key,)))
    graph = builder.build()
    with pytest.raises(PolicyError, match="part cannot be split"):
        foresee(Problem(graph, MACHINE, Times(), (1, 1)), halves(graph))


def test_host_functions_come_behind_divided_launches() -> None:
    builder = GraphBuilder()
    a, b = builder.buffer(128, "a"), builder.buffer(128, "b")
    builder.add(launch("map", [a, b]))
    builder.add(HostTask("looks", print, (), (b,), ()))
    graph = builder.build()
    p = Problem(graph, MACHINE, Times(), (1, 1), {key: frozenset({HOST}) for key in (a, b)}, splits=Splits(graph))
    ranges = tuple(Assignment(0, d, 0, 0.0, 0.0, 0, 4 * d, 4) for d in range(2))
    plan = Plan((*ranges, Assignment(1, ON_HOST, 0, 0.0, 0.0)), "halves", ("gpu0", "gpu1"), 0.0)
    events = foresee(p, plan).events
    (host,) = [e for e in events if isinstance(e, HostEvent)]
    assert (host.node, host.end) == (1, host.start)
    assert host.start >= max(e.end for e in events if isinstance(e, KernelEvent | TransferEvent))


def test_enqueuing_takes_the_host_s_time() -> None:
    p = of_kernels("table", "twice")
    plan = halved(p.graph)
    busy_devices = tuple(replace(d, enqueuing=0.5, enqueuing_copy=0.25) for d in p.machine.devices)
    plain, p = foresee(p, plan), replace(p, machine=replace(p.machine, devices=busy_devices))
    busy = foresee(p, plan)
    kernels, moves = len([*plain.kernels()]), len([*plain.transfers()])
    assert busy.makespan >= 0.5 * kernels
    assert plain.makespan < busy.makespan <= plain.makespan + 0.5 * kernels + 0.25 * moves + 1.0
    directory = Directory()
    for key in p.valid:
        directory.define(key)
    assert foreseeing(p, directory)(plan) == with_times(p, plan, busy)


def test_a_copy_of_a_directory_changes_apart() -> None:
    directory = Directory()
    directory.define(1)
    directory.valid_regions[2] = (ValidRegion(Region.span(0, 4), 1), ValidRegion(Region.span(4, 8), 2))
    copy = directory.copy()
    copy.define(2)
    copy.copied(1, 3)
    assert (directory.valid, set(directory.valid_regions)) == ({1: 1}, {2})


def test_foreseeing_says_nothing(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """What MANYCL_DEBUG asks for is about the run, not about plans that were tried before it."""
    monkeypatch.setenv("MANYCL_DEBUG", "4")
    p = problem("map")
    foresee(p, halves(p.graph))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("fault", [Disturbance(failing={1: "out of paper"}), Disturbance(lost={1: 5.0})])
def test_a_divided_plan_meets_faults(fault: Disturbance) -> None:
    p = problem("map", "map", "map")
    with pytest.raises(RunFailure, match="out of paper" if fault.failing else "the device was lost") as caught:
        simulate(p, halves(p.graph), disturbance=fault)
    last = caught.value.trace.events[-1]
    assert isinstance(last, FailureEvent)
    assert last.node == 1
    done = [(e.node, e.device) for e in caught.value.trace.kernels()]
    assert {(0, "gpu0"), (0, "gpu1")} <= set(done)
    assert not {(1, "gpu1"), *([(1, "gpu0")] if fault.failing else [])} & set(done)


@pytest.mark.parametrize("policy", ["in_order", "auto", "balance", "mkmd", "cpop", "heft"])
def test_every_policy_is_simulated_by_the_engine(policy: str) -> None:
    """Also where its plan has ranges: what it does is what a run of the plan would do."""
    p = problem("map", "stencil", "count")
    chosen = find(policy)
    trace = simulate(p, policy)
    assert trace.policy == policy
    again = foresee(p, chosen.plan(p) if isinstance(chosen, StaticPolicy) else chosen, name=policy)
    assert [e for e in trace.events if isinstance(e, KernelEvent | TransferEvent)] == [
        e for e in again.events if isinstance(e, KernelEvent | TransferEvent)
    ]
    noisy = simulate(p, policy, disturbance=Disturbance(noise=0.2, seed=3))
    assert noisy.makespan != trace.makespan
    assert noisy.makespan == simulate(p, policy, disturbance=Disturbance(noise=0.2, seed=3)).makespan


def test_what_has_begun_is_not_run_by_the_engine() -> None:
    p = problem("map", "map")
    begun = replace(p, fixed=(Assignment(0, 0, 0, 0.0, 8.0),), not_before=1.0)
    with pytest.raises(PolicyError, match="what has begun cannot be simulated"):
        simulate(begun, "auto")


def test_steps_take_and_draw_what_they_are_of_their_launch() -> None:
    """A range its part; what puts ranges together moves its bytes once."""
    buffers = {0: Of(nbytes=600), 1: Of(nbytes=400)}
    graph = Of(nodes=[Of(reads=(0,), writes=(1,))] * 3, buffers=buffers)
    steps = (Step(5, RANGE, 0, 0, 3), Step(6), Step(5, "merge"))
    lowered: Any = Of(step=steps.__getitem__, graph=graph)
    problem: Any = Of(
        estimates=Of(contended=True, launch=lambda n, d: 10.0 * n + d, traffic=lambda n, d: 100.0 * n + d),
        machine=Of(devices=[Of(launch_overhead=0.5, bandwidth=100.0)] * 2),
        splits={5: Of(groups=12, merge_seconds=())},
        range_seconds=lambda n, d, groups, first: 1000.0 * n + 10 * d + groups + first,
    )
    asked = StepEstimates(problem, lowered)
    assert [asked.launch(token, 1) for token in range(3)] == [5013.0, 61.0, 0.5 + 10.0]
    assert [asked.traffic(token, 1) for token in range(3)] == [501.0 * 3 / 12, 601.0, 1000.0]
    assert asked.contended
