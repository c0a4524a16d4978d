"""Ranges in parts: when devices compute while links are at work, what is cut, in which order it runs, and that nothing
else changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.analysis import parse_program
from manycl.errors import DeviceError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Graph, HostTask, Launch
from manycl.machine import HOST, Device, Machine
from manycl.model.estimates import Estimates
from manycl.plan.plan import ON_HOST, WHOLE, Assignment, Plan
from manycl.plan.policy import find
from manycl.plan.problem import Problem
from manycl.plan.split import LinearRegion
from manycl.plan.splitting import Splits
from manycl.run.data.coherence import Directory
from manycl.run.lowering import pipelining
from manycl.run.lowering.lower import lower
from manycl.run.lowering.pipelining import overlapped
from manycl.run.simulation.foresee import directory_of, foresee, with_times
from tests.run.chaos.test_divided_chaos import launch
from tests.run.test_divided_plans import APPLICATIONS, DEVICES, on_one_device, random_cuts

MACHINE = Machine(tuple(Device(f"gpu{i}", "gpu", memory=i + 1, launch_overhead=0.0) for i in range(2)))
ITEMS, GROUP, GROUPS = 1 << 19, 64, 1 << 13
TABLE = parse_program("""
kernel void table(global const int *a, global const int *b, global int *c) {
    int sum = 0;
    for (int k = 0; k < 64; k++) sum += b[k];
    c[get_global_id(0)] = a[get_global_id(0)] * sum;
}
kernel void twice(global const int *a, global int *b) { b[get_global_id(0)] = 2 * a[get_global_id(0)]; }
kernel void stencil(global const int *a, global int *b) {
    int i = get_global_id(0), n = get_global_size(0);
    if (i > 0 && i < n - 1) b[i] = a[i - 1] + a[i + 1];
}
""")


class Times(Estimates):
    """``table`` takes 16 seconds, everything else two; a link moves half of the items in a second."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def launch(self, node: int, device: int) -> float:
        return 16.0 if self._graph.nodes[node].name == "table" else 2.0

    def groups(self, node: int, device: int, count: int, of: int) -> float:
        return self.launch(node, device) * count / of

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return 0.0 if source == target else nbytes / (2 * ITEMS)


def enqueue(builder: GraphBuilder, name: str, *keys: int) -> None:
    facts = TABLE.kernels[name]
    args = tuple(BufferArg(k) for k in keys)
    builder.add(Launch(name, TABLE, facts, (ITEMS,), (GROUP,), args, keys[:-1], keys[-1:]))


def problem(*names: str, handover: float = 0.01) -> Problem:
    """Kernels one after another, and a host function that reads the result of the last."""
    builder = GraphBuilder()
    b = builder.buffer(256, "b")
    source = start = builder.buffer(4 * ITEMS, "a")
    for name in names:
        target = builder.buffer(4 * ITEMS)
        enqueue(builder, name, *((source, b, target) if name == "table" else (source, target)))
        source = target
    builder.add(HostTask("reads", print, (), (source,), ()))
    graph = builder.build()
    valid = {key: frozenset({HOST}) for key in (start, b)}
    return Problem(graph, MACHINE, Times(graph), (1, 1), valid, handover=handover, splits=Splits(graph))


def halves(graph: Graph) -> Plan:
    half = GROUPS // 2
    ranges = [Assignment(n, d, 0, 0.0, 1.0, 0, half * d, half) for n in range(len(graph) - 1) for d in range(2)]
    plan = (*ranges, Assignment(len(graph) - 1, ON_HOST, 0, 0.0, 0.0))
    return Plan(plan, "halves", ("gpu0", "gpu1"), 1.0)


def sizes(plan: Plan, node: int, device: int) -> list[int]:
    return [a.groups for a in plan.assignments if (a.node, a.device) == (node, device)]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut wherever it is possible, whatever it gains."""
    monkeypatch.setattr("manycl.run.lowering.pipelining._Cutter._pays", lambda self, gain: True)
    monkeypatch.setattr("manycl.run.lowering.pipelining.share_of", lambda *given: 1.0)


def test_a_first_part_runs_while_the_rest_arrives_and_the_last_while_others_leave() -> None:
    """Half of ``table`` takes eight seconds on a device, what it reads arrives in one, and its result leaves in one."""
    p = problem("table")
    plan, turns = overlapped(p, halves(p.graph))
    assert sizes(plan, 0, 0) == sizes(plan, 0, 1) == [512, 3072, 512]
    assert turns == {(0, 3584): 1, (0, 7680): 1}
    assert foresee(p, halves(p.graph)).makespan == pytest.approx(8 + 1 / 8 + 1 / 8, abs=0.02)


def test_the_last_kernels_run_depth_first() -> None:
    p = problem("table", "twice", "twice")
    plan, turns = overlapped(p, halves(p.graph))
    assert [sizes(plan, n, 0) for n in (1, 2)] == [[3584, 512]] * 2
    assert set(turns.values()) == {1}
    trace = foresee(p, halves(p.graph))
    order = [(e.node, e.first) for e in sorted(trace.kernels(), key=lambda e: e.start) if e.device == "gpu0"]
    assert order == [(0, 0), (0, 512), (1, 0), (2, 0), (0, 3584), (1, 3584), (2, 3584)]
    assert trace.makespan == pytest.approx(10 + 1 / 8 + 1 / 8, abs=0.02)


def test_no_more_kernels_are_cut_than_hide_what_leaves() -> None:
    """An eighth of half of ``table`` takes as long as seven eighths of its result take to leave."""
    p = problem("twice", "table")
    assert {node for node, _ in overlapped(p, halves(p.graph)).turns} == {1}


def test_what_streams_through_a_device_arrives_is_computed_and_leaves_at_the_same_time() -> None:
    """Two seconds of each: with four parts, half a second more each than one of them."""
    p = problem("twice")
    p = replace(p, machine=Machine(MACHINE.devices[:1]), queues=(1,))
    range_of_all = (Assignment(0, 0, 0, 0.0, 0.0, 0, 0, GROUPS), Assignment(1, ON_HOST, 0, 0.0, 0.0))
    plan = Plan(range_of_all, "all", ("gpu0",), 0.0)
    assert sizes(overlapped(p, plan).plan, 0, 0) == [GROUPS // 4] * 4
    assert foresee(p, plan).makespan == pytest.approx(3.0, abs=0.02)
    found = find("auto").plan(replace(p, repeated=2, foresee=lambda plan: with_times(p, plan, foresee(p, plan))))  # type: ignore[union-attr]
    assert found.details["chosen"] == "in parts"
    assert found.makespan == pytest.approx(3.0, abs=0.02)
    assert max(found.details["asked"].values()) == pytest.approx(6.0, abs=0.02)
    once = find("auto").plan(p)  # type: ignore[union-attr]
    assert not once.is_split, "nobody looks at how kernels of one device may be split for a single run"


def test_nothing_is_cut_for_less_than_a_handover() -> None:
    p = problem("table", "twice", handover=1.0)
    plan = halves(p.graph)
    assert overlapped(p, plan).plan is plan


class Latencies(Times):
    """Each transfer takes so many seconds more; kernels and links are ``faster`` than those of ``Times``."""

    def __init__(self, graph: Graph, latency: float, kernels: float, links: float) -> None:
        super().__init__(graph)
        self._latency, self._kernels, self._links = latency, kernels, links

    def launch(self, node: int, device: int) -> float:
        return super().launch(node, device) / self._kernels

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return 0.0 if source == target else self._latency + super().transfer(nbytes, source, target) / self._links


@given(
    st.lists(st.sampled_from(["table", "twice", "stencil"]), min_size=1, max_size=3),
    st.floats(0.0, 1.0),
    st.floats(0.1, 10.0),
    st.floats(0.1, 10.0),
)
@settings(max_examples=40, deadline=None)
def test_no_plan_takes_longer_in_parts(names: list[str], latency: float, kernels: float, links: float) -> None:
    """The engine runs both. A stencil's ranges share rows, whose transfers the prediction does not know."""
    p = problem(*names)
    p = replace(p, estimates=Latencies(p.graph, latency, kernels, links))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("manycl.run.lowering.lower.overlapped", lambda problem, plan: pipelining.Pipelined(plan, {}))
        plain = foresee(p, halves(p.graph)).makespan
    more = 2 * latency * len(names) if "stencil" in names else 0.0
    assert foresee(p, halves(p.graph)).makespan <= plain * 1.01 + more


def test_as_planned_nothing_is_cut_or_turned_round() -> None:
    p = problem("table", "twice", "stencil")
    plan = halves(p.graph)
    asked = [(a.device, a.node, a.first, a.groups) for a in plan.assignments]

    def ran(p: Problem) -> list[tuple[int, int, int, int]]:
        lowered = lower(p, plan, directory_of(p))
        steps = [(a.device, lowered.step(a.node)) for a in lowered.plan.assignments]  # type: ignore[union-attr]
        return [(device, step.node, step.first, step.groups) for device, step in steps]

    assert ran(replace(p, as_planned=True)) == asked
    assert len(ran(p)) > len(asked), "else nothing is shown"


def test_turns_of_one_device_do_not_wait_for_those_of_another() -> None:
    """A stencil's range reads a row that the other device makes at the same time."""
    p = problem("table", "stencil")
    _, turns = overlapped(p, halves(p.graph))
    assert all(node != 0 for node, _ in turns)


def test_data_that_are_there_need_no_parts() -> None:
    p = problem("table", "twice")
    there = {key: frozenset({HOST, 1, 2}) for key in p.valid}
    where = Problem(p.graph, MACHINE, Times(p.graph), (1, 1), there, handover=0.01, splits=p.splits)
    plan, _ = overlapped(where, halves(p.graph))
    assert sizes(plan, 0, 0) == [3584, 512], "only what leaves"


def test_parts_leave_no_compute_unit_without_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manycl.run.lowering.pipelining.share_of", lambda *given: 0.99)
    p = problem("table")
    plan = halves(p.graph)
    assert overlapped(p, plan).plan is plan


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.usefixtures("always")
def test_steps_come_after_those_that_they_depend_on(seed: int) -> None:
    """In the order of the plan, whatever was cut: then no queue can wait for itself, or two for one another."""
    chance = random.Random(seed)
    builder = GraphBuilder()
    keys = [builder.buffer(128, f"b{i}") for i in range(4)]
    for _ in range(6):
        builder.add(launch(chance.choice(["map", "stencil", "change", "reversed", "columns"]), chance.sample(keys, 2)))
    builder.add(HostTask("reads", print, (), tuple(keys), ()))
    graph = builder.build()
    assignments: list[Assignment] = []
    for n, task in enumerate(graph.nodes[:-1]):
        assert isinstance(task, Launch)
        for device, first, groups in random_cuts(task, 0, chance, 2):
            assignments.append(Assignment(n, device, 0, 0.0, 0.0, 0, first, groups))
    plan = Plan((*assignments, Assignment(len(graph) - 1, ON_HOST, 0, 0.0, 0.0)), "random", ("gpu0", "gpu1"), 0.0)
    directory = Directory()
    for key in keys:
        directory.define(key)
    valid = {key: frozenset({HOST}) for key in keys}
    p = Problem(graph, MACHINE, Times(graph), (1, 1), valid, handover=0.0, splits=Splits(graph))
    lowered = lower(p, plan, directory)
    assert lowered.plan is not None
    position = {a.node: i for i, a in enumerate(lowered.plan.assignments)}
    assert len(position) == len(lowered.graph) > len(plan.assignments) - 1
    assert all(position[a] < position[b] for a, b in lowered.graph.edges)
    for n in range(len(graph) - 1):
        ranges = sorted((s.first, s.groups) for s in lowered.steps if s.node == n and s.role == "range")
        assert all(a + b == c for (a, b), (c, _) in pairwise([*ranges, (8, 0)]))
        assert ranges[0][0] == 0


@pytest.fixture(scope="module")
def queue() -> Iterator[mc.Queue]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "0")
        with mc.Queue(DEVICES) as found:
            yield found


@pytest.mark.parametrize("build", APPLICATIONS)
@pytest.mark.usefixtures("always")
def test_parts_give_the_bits_of_one_device(queue: mc.Queue, build: object) -> None:
    """With any cuts, and a host function that reads all results."""
    assert callable(build)
    found: list[list[bytes]] = []
    parts = 0
    for seed in range(4):
        chance = random.Random(seed)
        seen: list[bytes] = []
        with queue.prepare() as prepared:
            arrays, dimensions = build(queue, np.random.default_rng(3))
            queue.call(lambda *given, seen=seen: seen.extend(a.tobytes() for a in given), *arrays)
        graph = prepared.graph
        if seed:
            cuts = [random_cuts(t, d, chance, 3) for t, d in zip(graph.nodes, dimensions, strict=False)]  # type: ignore
            ranges = [
                Assignment(n, device, 0, 0.0, 0.0, dimensions[n], first, groups)
                for n, of in enumerate(cuts)
                for device, first, groups in of
            ]
            plan = Plan((*ranges, Assignment(len(cuts), ON_HOST, 0, 0.0, 0.0)), "random", queue.devices, 0.0)
            result = queue.session.run(graph, plan)
            parts += sum(e.role == "range" for e in result.trace.kernels()) - len(ranges)
        else:
            alone = on_one_device(graph, queue.devices)
            last = alone.assignments[-1]._replace(device=ON_HOST, dimension=WHOLE)
            queue.session.run(graph, Plan((*alone.assignments[:-1], last), "one", queue.devices, 0.0))
        found.append(seen)
        assert [a.get().tobytes() for a in arrays] == seen
    assert all(one == found[0] for one in found)
    assert parts > 0 or all(s.merge != "none" for s in Splits(graph).values())


@pytest.mark.usefixtures("always")
def test_what_is_cut_follows_where_data_are(queue: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that is kept is lowered again when data that were there have to come from the host again."""
    monkeypatch.setattr("manycl.run.lowering.pipelining._Cutter._pays", lambda self, gain: gain > 0.0)
    monkeypatch.setattr("manycl.run.lowering.pipelining._Cutter._end_of", lambda *given: 0.0)
    count = 1 << 12
    program = mc.Program(
        "kernel void up(global const int *x, global int *y) { y[get_global_id(0)] = x[get_global_id(0)] + 1; }"
    )
    x, y = queue.array(np.zeros(count, np.int32)), queue.empty(count, np.int32)
    with queue.prepare() as prepared:
        program.up(queue, (count,), (16,), x, y)
    graph = prepared.graph
    plan = Plan((Assignment(0, 0, 0, 0.0, 0.0, 0, 0, count // 16),), "all", queue.devices, 0.0)
    numbers = []
    for turn in range(4):
        if turn != 1:
            x.set(np.full(count, turn, np.int32))
        numbers.append(len(queue.session.run(graph, plan).ranges(0)))
        assert (y.get() == (0 if turn == 1 else turn) + 1).all()
    assert numbers[0] == numbers[2] == numbers[3] > numbers[1] == 1


@pytest.mark.usefixtures("always")
def test_a_queue_runs_what_was_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    count = 1 << 12
    with mc.Queue(DEVICES, as_planned=True) as queue:
        program = mc.Program("kernel void up(global int *x) { x[get_global_id(0)] += 1; }")
        x = queue.array(np.arange(count, dtype=np.int32))
        with queue.prepare() as prepared:
            program.up(queue, (count,), (16,), x)
        half = count // 32
        ranges = tuple(Assignment(0, d, 0, 0.0, 0.0, 0, half * d, half) for d in range(2))
        result = queue.session.run(prepared.graph, Plan(ranges, "halves", queue.devices, 0.0))
        assert sorted((e.first, e.groups) for e in result.trace.kernels()) == [(0, half), (half, half)]
        assert (x.get() == np.arange(count) + 1).all()
        with pytest.raises(DeviceError, match="as_planned=False"):
            mc.Queue(session=queue.session, as_planned=False)


@given(st.lists(st.floats(0.05, 1.0), min_size=1, max_size=5), st.integers(1, 200))
def test_parts_end_where_their_shares_do(shares: list[float], groups: int) -> None:
    sizes = [share / sum(shares) for share in shares]
    ends = pipelining._ends(sizes, groups)
    assert len(ends) == len(sizes) - 1
    for number, end in enumerate(ends, 1):
        assert abs(end - max(1, sum(sizes[:number]) * groups)) <= 0.5 + 1e-6
        assert end >= 1


@given(st.integers(1, 9), st.integers(0, 12), st.integers(-5, 9), st.integers(1, 90))
def test_how_many_groups_touch_all_bytes_below_one(stride: int, width: int, offset: int, high: int) -> None:
    ends = {n: offset + stride * (n - 1) + (width or stride) for n in range(-40, 120)}
    assert pipelining._groups_until(LinearRegion(stride, width, offset), high) == min(
        n for n, end in ends.items() if end >= high
    )


def test_parts_share_the_time_of_their_range() -> None:
    p = problem("table", "twice", "twice")
    timed = [a._replace(start=3.0 + i, end=7.0 + 2 * i) for i, a in enumerate(halves(p.graph).assignments)]
    plan, _ = overlapped(p, replace(halves(p.graph), assignments=tuple(timed)))
    assert len(plan.assignments) > len(timed)
    for a in timed:
        parts = [b for b in plan.assignments if (b.node, b.device) == (a.node, a.device)]
        assert parts[0][:5] == (a.node, a.device, a.queue, a.start, parts[0].end)
        assert parts[-1].end == pytest.approx(a.end)
        assert sum(b.groups for b in parts) == a.groups
        for b in parts:
            assert b.end - b.start == pytest.approx((a.end - a.start) * (b.groups / a.groups if a.groups else 1.0))
        assert all(one.end == pytest.approx(other.start) for one, other in pairwise(parts))


@pytest.mark.parametrize(
    ("kind", "units", "is_cut"), [("cpu", 512, True), ("cpu", 513, False), ("gpu", 16, True), ("gpu", 17, False)]
)
def test_the_smallest_part_has_work_for_every_compute_unit(kind: str, units: int, is_cut: bool) -> None:
    """An eighth of half of the groups is 512, of 64 work-items: as many as 16 compute units of 2048."""
    cores = tuple(replace(d, kind=kind, compute_units=units) for d in MACHINE.devices)
    p = replace(problem("table"), machine=Machine(cores))
    assert (len(sizes(overlapped(p, halves(p.graph)).plan, 0, 0)) > 1) == is_cut
