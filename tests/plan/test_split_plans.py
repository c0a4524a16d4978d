"""Plans with ranges of work-groups: their form, the judge's eye for every fault, and what the engine takes for them, on
plans by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Graph, HostTask, Launch
from manycl.graph.reduction import Reduction
from manycl.machine import HOST
from manycl.model.estimates import Estimates
from manycl.plan.plan import MERGE, ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.split import LinearRegion, Split
from manycl.plan.verification.verify import verify
from manycl.run.simulation.foresee import with_times
from manycl.run.simulation.simulate import simulate
from tests.plan.plan_cases import FACTS, PROGRAM, machine, problem


def rows(name: str, reads: tuple[int, ...], writes: tuple[int, ...], groups: int = 10) -> Launch:
    """A launch of ``groups`` work-groups of 16 items along dimension 0."""
    args = tuple(BufferArg(k) for k in dict.fromkeys((*reads, *writes)))
    return Launch(name, PROGRAM, FACTS, (16 * groups, 4), (16, 4), args, reads, writes)


def two_kernels() -> Graph:
    """c = f(a), d = g(c): ten groups, ten bytes a group; then the host needs d."""
    builder = GraphBuilder()
    a, c, d = (builder.buffer(100, name) for name in "acd")
    builder.add(rows("f", (a,), (c,)))
    builder.add(rows("g", (c,), (d,)))
    builder.add(HostTask("sink", print, (), (d,), ()))
    return builder.build()


class Ranges(Estimates):
    """10 s a launch on the CPU, 5 on the GPU, in proportion to the groups; a byte takes 10 ms."""

    def launch(self, node: int, device: int) -> float:
        return (10.0, 5.0)[device]

    def groups(self, node: int, device: int, count: int, of: int) -> float:
        return self.launch(node, device) * count / 10

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return 0.0 if source == target else nbytes / 100


class Brief(Ranges):
    """A hundredth of that: the engine gives a queue no more than a second of work ahead."""

    def launch(self, node: int, device: int) -> float:
        return super().launch(node, device) / 100

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return super().transfer(nbytes, source, target) / 100


def brief(p: Problem, handover: float) -> Problem:
    """With times, and a handover, of a hundredth."""
    return replace(p, estimates=Brief(), handover=handover / 100)


def in_brief(plan: Plan) -> Plan:
    """The plan in such times: the engine paces itself by them."""
    shorter = tuple(a._replace(start=a.start / 100, end=a.end / 100) for a in plan.assignments)
    return replace(plan, assignments=shorter, makespan=plan.makespan / 100)


def long(seconds: float) -> float:
    return round(100 * seconds, 6)


ROW = Split(0, 10, {0: LinearRegion(10), 1: LinearRegion(10), 2: LinearRegion(10)})


def by_hand() -> tuple[Plan, Problem]:
    """f: groups 0-3 on the CPU, the others on the GPU; g: groups 0-4 on the CPU, which needs ten bytes of the GPU's."""
    p = replace(
        problem(two_kernels(), [0.0], machine((HOST, 1)), valid={0: frozenset({HOST})}),
        estimates=Ranges(),
        splits={0: ROW, 1: ROW},
    )
    assignments = (
        Assignment(0, 0, 0, 0.0, 4.0, 0, 0, 4),
        Assignment(0, 1, 0, 0.6, 3.6, 0, 4, 6),
        Assignment(1, 1, 0, 4.0, 6.5, 0, 5, 5),
        Assignment(1, 0, 0, 4.0, 9.0, 0, 0, 5),
        Assignment(2, ON_HOST, 0, 9.0, 9.0),
    )
    return Plan(assignments, "by hand", ("cpu0", "gpu1"), 9.0), p


def check(plan: Plan, p: Problem) -> None:
    verify(plan, p.graph, p.machine, p)


def test_a_right_plan_passes_and_is_simulated_as_by_hand() -> None:
    """The GPU goes on as soon as it can; its ten bytes reach the CPU's second range one handover late, and the sink is
    one more behind it."""
    plan, p = by_hand()
    check(plan, p)
    verify(plan, p.graph, p.machine)
    late = tuple(a._replace(start=a.start + 1, end=a.end + 2) for a in plan.assignments)
    for told in (plan, replace(plan, assignments=late)):  # times are not believed
        trace = simulate(brief(p, 0.5), in_brief(told))
        kernels = {(e.node, e.name, e.device, long(e.start), long(e.end)) for e in trace.kernels()}
        assert kernels == {
            (0, "f [0:4]", "cpu0", 0.0, 4.0),
            (0, "f [4:10]", "gpu1", 0.6, 3.6),
            (1, "g [0:5]", "cpu0", 4.2, 9.2),
            (1, "g [5:10]", "gpu1", 3.7, 6.2),  # what is small moves in the kernels' queue
        }
        assert [(e.buffer, e.source, e.target, e.nbytes, long(e.start), long(e.end)) for e in trace.transfers()] == [
            (0, "host", "gpu1", 60, 0.0, 0.6),
            (1, "gpu1", "host", 10, 3.6, 3.7),
            (2, "gpu1", "host", 50, 6.2, 6.7),
        ]
        assert long(trace.makespan) == 9.7
        assert [e.global_size for e in trace.kernels()][:2] == [(64, 4), (96, 4)]


def test_what_is_foreseen_has_the_times_of_every_range() -> None:
    plan, p = by_hand()
    plan, p = in_brief(plan), brief(p, 0.5)
    foreseen = with_times(p, plan, simulate(p, plan))
    times = [(long(a.start), long(a.end)) for a in foreseen.assignments]
    assert times == [(0.0, 4.0), (0.6, 3.6), (3.7, 6.2), (4.2, 9.2), (9.7, 9.7)]
    assert [a._replace(start=0.0, end=0.0) for a in foreseen.assignments] == [
        a._replace(start=0.0, end=0.0) for a in plan.assignments
    ]
    assert long(foreseen.makespan) == 9.7
    check(foreseen, p)


def test_ranges_survive_json_and_whole_launches_keep_their_form() -> None:
    plan, _ = by_hand()
    assert Plan.from_json(plan.to_json()) == plan
    record = json.loads(plan.to_json())
    assert record["assignments"][-1].keys() == {"node", "device", "queue", "start", "end"}
    assert record["assignments"][0] == {
        "node": 0,
        "device": 0,
        "queue": 0,
        "start": 0.0,
        "end": 4.0,
        "dimension": 0,
        "groups": 4,
    }
    old = '{"format": 2, "policy": "x", "devices": ["d"], "makespan": 1.0, "details": {}, "assignments": \
        [{"node": 0, "device": 0, "queue": 0, "start": 0.0, "end": 1.0}]}'
    assert Plan.from_json(old).assignments == (Assignment(0, 0, 0, 0.0, 1.0),)


Change = Callable[[list[Any]], object]


def put(index: int, **fields: object) -> Change:
    def change(items: list[Any]) -> None:
        items[index] = items[index]._replace(**fields)

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put(0, groups=3), r"node 0 \(f\) has group 3 run never"),
        (put(0, groups=5), r"node 0 \(f\) has group 4 run twice"),
        (put(1, groups=5), r"node 0 \(f\) has 10 groups along dimension 0, but ranges for 9"),
        (put(0, groups=0), r"node 0 \(f\) has an empty range"),
        (put(0, dimension=1), r"node 0 \(f\) is split along the dimensions 0, 1"),
        (lambda a: a.append(Assignment(0, 0, 0, 9.0, 19.0)), r"node 0 \(f\) is split along the dimensions 0, whole"),
        (put(4, dimension=0, groups=1), r"node 2 \(sink\) may not be split"),
        (put(3, start=4.5, end=8.0), "node 1 takes 3.5 s, but is estimated at 5.0 s"),
        (put(2, start=3.6), "node 1 starts before node 0 ends"),
        (put(1, start=0.5), "node 0 starts before buffer 0 can have arrived"),
        (put(1, start=1.0, end=4.0), "node 1 starts before buffer 1 of node 0 can have arrived"),
        (put(2, start=6.4, end=8.9), "node 2 starts before buffer 2 of node 1 can have arrived"),
        (put(0, version=1), "node 0 runs version 1, which is not the one estimated"),
    ],
)
def test_every_fault_of_ranges_is_named(change: Change, words: str) -> None:
    plan, p = by_hand()
    assignments = list(plan.assignments)
    change(assignments)
    with pytest.raises(PolicyError, match=words):
        check(replace(plan, assignments=tuple(assignments)), p)


def merged() -> tuple[Plan, Problem]:
    """f writes all over c: the GPU's partial result moves to the CPU, which merges it in 2 s."""
    builder = GraphBuilder()
    a, c = builder.buffer(100, "a"), builder.buffer(100, "c")
    builder.add(rows("f", (a,), (c,)))
    split = Split(0, 10, {a: LinearRegion(10)}, Reduction.SCATTER, (2.0, 3.0))
    p = replace(
        problem(builder.build(), [0.0], machine((HOST, 1)), valid={a: frozenset({HOST})}),
        estimates=Ranges(),
        splits={0: split},
    )
    members = (
        Assignment(0, 0, 0, 0.0, 4.0, 0, 0, 4),
        Assignment(0, 1, 0, 0.6, 3.6, 0, 4, 6),
        Assignment(0, 0, 0, 4.6, 6.6, MERGE),
    )
    return Plan(members, "by hand", ("cpu0", "gpu1"), 6.6), p


def test_partial_results_are_merged() -> None:
    plan, p = merged()
    check(plan, p)
    trace = simulate(p, plan)
    assert trace.makespan == pytest.approx(plan.makespan)
    assert [(e.nbytes, e.start, e.end) for e in trace.transfers()] == [(60, 0.0, 0.6), (100, 3.6, 4.6)]
    assert with_times(p, plan, trace).assignments[-1] == plan.assignments[-1]
    assert Plan.from_json(plan.to_json()) == plan
    for change, words in (
        (lambda a: a.pop(), "node 0 is merged 0 times, not 1"),
        (put(2, start=3.9), "node 0 is merged before all of it has run"),
        (put(2, end=5.0), "the merge of node 0 takes 0.4.* s, but is estimated at 2.0 s"),
    ):
        assignments = list(plan.assignments)
        change(assignments)
        with pytest.raises(PolicyError, match=words):
            check(replace(plan, assignments=tuple(assignments)), p)


def test_results_are_merged_by_difference() -> None:
    """Both work on the old contents: the GPU gets them, and its own come back."""
    plan, p = merged()
    split = replace(p.splits[0], merge=Reduction.DIFFERENCE)
    p = replace(p, splits={0: split}, valid={**p.valid, 1: frozenset({HOST})})
    trace = simulate(p, plan)
    kernels = [(e.role, e.device) for e in trace.kernels()]
    assert kernels.count(("merge", "cpu0")) == 1
    assert kernels.count(("range", "gpu1")) == 1
    assert [e.end - e.start for e in trace.kernels() if e.role == "merge"] == [2.0]
    assert sum(e.nbytes for e in trace.transfers()) == 60 + 100 + 100


def test_an_order_that_cannot_be_kept_is_refused() -> None:
    plan, p = by_hand()
    f, more, g = plan.assignments[0], plan.assignments[1:3], plan.assignments[3]
    with pytest.raises(PolicyError, match="before"):
        simulate(p, replace(plan, assignments=(g, *more, f, plan.assignments[4])))


@pytest.mark.parametrize(
    "split",
    [
        Split(0, 10, {0: LinearRegion(10)}),
        Split(0, 10, {0: LinearRegion(10), 1: LinearRegion(10, 20)}),
        Split(0, 10, {0: LinearRegion(10), 1: LinearRegion(10)}, Reduction.SCATTER),
        Split(0, 10, {0: LinearRegion(10)}, "addition"),
        Split(0, 0, {0: LinearRegion(10), 1: LinearRegion(10)}),
    ],
)
def test_splits_that_would_change_the_result_are_refused(split: Split) -> None:
    with pytest.raises(PolicyError):
        split.check((0,), (1,))


def test_a_halo_belongs_to_two_ranges() -> None:
    part = LinearRegion(10, 30, -10)
    assert [part.bounds(f, 2, 100) for f in (0, 4, 8)] == [(0, 30), (30, 70), (70, 100)]


def test_without_estimates_of_ranges_their_time_is_affine() -> None:
    """What does not shrink is the launch overhead of the device, or all of a launch that is shorter."""
    p = problem(two_kernels(), [[2.0, 1.0], [2.0, 4e-6], [0.0, 0.0]], machine((HOST, 1)))
    p = replace(p, splits={0: ROW, 1: ROW})
    overhead = p.machine.devices[0].launch_overhead
    assert p.range_seconds(0, 0, 0) == p.range_seconds(0, 0, 10) == 2.0
    assert p.range_seconds(0, 0, 5) == pytest.approx(overhead + (2.0 - overhead) / 2)
    assert p.range_seconds(1, 1, 1) == p.range_seconds(1, 1, 10) == 4e-6


def test_memory_decides_how_many_groups_fit() -> None:
    def devices(memory: int, allocation: int) -> Problem:
        p = by_hand()[1]
        gpu = replace(p.machine.devices[1], global_memory=memory, max_allocation=allocation)
        return replace(p, machine=replace(p.machine, devices=(p.machine.devices[0], gpu)))

    assert devices(200, 100).places(0) == ((0, 0), (1, 0))  # 100 bytes in, 100 out
    assert devices(199, 100).places(0) == ((0, 0), (1, 9))
    assert devices(200, 59).places(0) == ((0, 0), (1, 5))
    assert devices(19, 100).places(0) == ((0, 0),)
    assert devices(19, 100).allowed(0) == (0,)
    assert devices(199, 100).allowed(0) == (0,)
    assert devices(199, 100).places(2) == ()  # the host


def test_what_ranges_leave_alone_stays_as_it_was() -> None:
    """f writes the middle of c in two ranges; a whole reader on the CPU finds the ends in the host's copy."""
    builder = GraphBuilder()
    a, c, d = builder.buffer(100), builder.buffer(120), builder.buffer(100)
    builder.add(rows("f", (a,), (c,)))
    builder.add(rows("g", (c,), (d,)))
    p = replace(
        problem(builder.build(), [0.0], machine((HOST, 1)), valid={a: frozenset({HOST}), c: frozenset({HOST})}),
        estimates=Ranges(),
        splits={0: Split(0, 10, {a: LinearRegion(10), c: LinearRegion(10, offset=10)})},
    )
    members = (
        Assignment(0, 0, 0, 0.0, 4.0, 0, 0, 4),
        Assignment(0, 1, 0, 1.2, 4.2, 0, 4, 6),
        Assignment(1, 0, 0, 4.8, 14.8),
    )
    plan = Plan(members, "by hand", ("cpu0", "gpu1"), 14.8)
    check(plan, p)
    trace = simulate(brief(p, 1.0), in_brief(plan))
    moved = [(e.buffer, e.source, e.nbytes) for e in trace.transfers()]
    assert moved == [(a, "host", 60), (c, "host", 60), (c, "gpu1", 60)]
    assert long(trace.makespan) == 15.8
