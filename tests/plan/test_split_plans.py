"""Plans with ranges of work-groups: their form, the judge's eye for every fault, and their replay, on plans by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from plan_cases import FACTS, PROGRAM, machine, problem

from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Graph, HostTask, Launch
from manycl.graph.reduction import Reduction
from manycl.machine import HOST
from manycl.model.estimates import Estimates
from manycl.plan.contents import Contents
from manycl.plan.events import with_events
from manycl.plan.plan import MERGE, ON_HOST, Assignment, Move, Plan
from manycl.plan.problem import Problem
from manycl.plan.split import Slice, Split
from manycl.plan.verify import verify
from manycl.run.replay import replay
from manycl.trace import KernelEvent, TransferEvent


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


ROW = Split(0, 10, {0: Slice(10), 1: Slice(10), 2: Slice(10)})


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
    moves = (
        Move(0, 40, 100, -1, HOST, 1, 1, 0.0, 0.6),
        Move(1, 40, 50, 0, 1, HOST, 1, 3.6, 3.7),
        Move(2, 50, 100, 1, 1, HOST, 1, 6.5, 7.0),
    )
    return Plan(assignments, "by hand", ("cpu0", "gpu1"), 9.0, moves=moves), p


def check(plan: Plan, p: Problem) -> None:
    verify(plan, p.graph, p.machine, p)


def test_a_right_plan_passes_and_takes_as_long_as_it_says() -> None:
    plan, p = by_hand()
    check(plan, p)
    verify(plan, p.graph, p.machine)
    trace = replay(p, plan)
    assert trace.makespan == plan.makespan
    kernels = {(e.node, e.device, e.start, e.end) for e in trace.events if isinstance(e, KernelEvent)}
    assert kernels == {(a.node, plan.devices[a.device], a.start, a.end) for a in plan.assignments if a.device >= 0}
    moves = {(e.buffer, e.nbytes, e.start, e.end) for e in trace.events if isinstance(e, TransferEvent)}
    assert moves == {(m.buffer, m.nbytes, m.start, m.end) for m in plan.moves}


def test_the_replay_does_not_believe_the_times() -> None:
    plan, p = by_hand()
    late = tuple(a._replace(start=a.start + 1, end=a.end + 2) for a in plan.assignments)
    assert replay(p, replace(plan, assignments=late)).makespan == plan.makespan


def test_the_replay_counts_handovers_between_devices_only() -> None:
    plan, p = by_hand()
    # the GPU's ten bytes reach the CPU's second range one handover late; the sink is one more behind it
    trace = replay(replace(p, handover=0.5), plan)
    ends = {(e.node, e.device): (e.start, e.end) for e in trace.events if isinstance(e, KernelEvent)}
    assert ends[1, "cpu0"] == (pytest.approx(4.2), pytest.approx(9.2))
    assert ends[1, "gpu1"] == (4.5, 7.0)
    assert trace.events[-1].start == pytest.approx(9.7)  # type: ignore[union-attr]


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
    old = '{"format": 1, "policy": "x", "devices": ["d"], "makespan": 1.0, "details": {}, "assignments": \
        [{"node": 0, "device": 0, "queue": 0, "start": 0.0, "end": 1.0}]}'
    assert Plan.from_json(old).assignments == (Assignment(0, 0, 0, 0.0, 1.0),)


def test_events_have_the_range_of_each_part() -> None:
    plan, p = by_hand()
    events = with_events(plan, p.graph).events
    assert [(e.name, e.global_size) for e in events if isinstance(e, KernelEvent)][:2] == [
        ("f [0:4]", (64, 4)),
        ("f [4:10]", (96, 4)),
    ]


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
        (put(0, dimension=1), r"node 0 \(f\) is split along the dimensions \[0, 1\]"),
        (lambda a: a.append(Assignment(0, 0, 0, 9.0, 19.0)), r"node 0 \(f\) is split along the dimensions \[-1, 0\]"),
        (put(4, dimension=0, groups=1), r"node 2 \(sink\) may not be split"),
        (put(3, start=4.5, end=8.0), "node 1 takes 3.5 s, but is estimated at 5.0 s"),
        (put(2, start=3.6), "node 1 starts before node 0 ends"),
        (put(1, start=0.5), "node 0 starts before bytes 40 to 100 of buffer 0 of node -1 can have arrived"),
        (put(0, version=1), "node 0 runs version 1, which is not the one estimated"),
    ],
)
def test_every_fault_of_ranges_is_named(change: Change, words: str) -> None:
    plan, p = by_hand()
    assignments = list(plan.assignments)
    change(assignments)
    with pytest.raises(PolicyError, match=words):
        check(replace(plan, assignments=tuple(assignments)), p)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda m: m.pop(0),
            "node 0 needs bytes 40 to 100 of buffer 0 as node -1 leaves them, but nothing brings them",
        ),
        (lambda m: m.pop(1), "node 1 needs bytes 40 to 50 of buffer 1 as node 0 leaves them, but nothing brings them"),
        (put(0, low=41), "node 0 needs bytes 40 to 100 of buffer 0"),
        (put(1, high=49), "node 1 needs bytes 40 to 50 of buffer 1"),
        (put(1, writer=-1), "move 1 needs bytes 40 to 50 of buffer 1 as node -1 leaves them, but nothing brings"),
        (put(1, start=3.5), "move 1 starts before bytes 40 to 50 of buffer 1 of node 0 can have arrived"),
        (put(1, start=3.65), "move 1 takes 0.05.* s, but is estimated at 0.1 s"),
        (put(1, end=4.1), "node 1 starts before bytes 40 to 50 of buffer 1 of node 0 can have arrived"),
        (put(0, device=0), "move 0 goes from memory 0 to 1 on a queue of cpu0"),
        (put(0, high=101), "move 0 is of bytes 40 to 101"),
        (put(2, end=9.5), "node 2 starts before bytes 50 to 100 of buffer 2"),
        (lambda m: m.insert(1, m[2]), "on the download queue of gpu1 move 2 starts before move 1 ends"),
        (put(0, start=-0.1), "move 0 starts at -0.1, before 0.0"),
    ],
)
def test_every_fault_of_moves_is_named(change: Change, words: str) -> None:
    plan, p = by_hand()
    moves = list(plan.moves)
    change(moves)
    with pytest.raises(PolicyError, match=words):
        check(replace(plan, moves=tuple(moves)), p)


def test_a_move_may_not_be_overtaken_by_the_next_writer() -> None:
    builder = GraphBuilder()
    a, b = builder.buffer(100), builder.buffer(100)
    builder.add(rows("f", (a,), (b,)))  # on the GPU
    builder.add(rows("g", (), (a,)))  # on the CPU: overwrites a, which f has read
    p = replace(
        problem(builder.build(), [0.0], machine((HOST, 1)), valid={a: frozenset({HOST})}),
        estimates=Ranges(),
        splits={0: ROW, 1: Split(0, 10, {a: Slice(10)})},
    )
    members = (Assignment(0, 1, 0, 1.0, 6.0), Assignment(1, 0, 0, 6.0, 16.0))
    move = Move(a, 0, 100, -1, HOST, 1, 1, 0.0, 1.0)
    check(Plan(members, "by hand", ("cpu0", "gpu1"), 16.0, moves=(move,)), p)
    again = Move(a, 0, 50, -1, HOST, 1, 1, 6.0, 6.5)  # of the old contents, which g destroys
    with pytest.raises(PolicyError, match="move 1 ends after node 1 began to overwrite what it moves"):
        check(Plan(members, "by hand", ("cpu0", "gpu1"), 16.0, moves=(move, again)), p)


def merged() -> tuple[Plan, Problem]:
    """f writes all over c: the GPU's partial result moves to the CPU, which merges it in 2 s."""
    builder = GraphBuilder()
    a, c = builder.buffer(100, "a"), builder.buffer(100, "c")
    builder.add(rows("f", (a,), (c,)))
    split = Split(0, 10, {a: Slice(10)}, Reduction.SCATTER, (2.0, 3.0))
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
    moves = (Move(a, 40, 100, -1, HOST, 1, 1, 0.0, 0.6), Move(c, 0, 100, 0, 1, HOST, 1, 3.6, 4.6, 1))
    return Plan(members, "by hand", ("cpu0", "gpu1"), 6.6, moves=moves), p


def test_partial_results_are_merged() -> None:
    plan, p = merged()
    check(plan, p)
    assert replay(p, plan).makespan == pytest.approx(plan.makespan)
    assert Plan.from_json(plan.to_json()) == plan
    for change, words in (
        (lambda a, m: a.pop(), "node 0 is merged 0 times, not 1"),
        (lambda a, m: m.pop(), "nothing brings them"),
        (lambda a, m: put(2, start=4.0)(a), "node 0 starts before bytes 0 to 100 of buffer 1"),
        (lambda a, m: put(2, end=5.0)(a), "the merge of node 0 takes 0.4.* s, but is estimated at 2.0 s"),
    ):
        assignments, moves = list(plan.assignments), list(plan.moves)
        change(assignments, moves)
        with pytest.raises(PolicyError, match=words):
            check(replace(plan, assignments=tuple(assignments), moves=tuple(moves)), p)


def test_a_replay_needs_every_move_and_an_order_that_can_be_kept() -> None:
    plan, p = by_hand()
    with pytest.raises(PolicyError, match="no move of the plan brings them"):
        replay(p, replace(plan, moves=plan.moves[1:]))
    f, more, g = plan.assignments[0], plan.assignments[1:3], plan.assignments[3]
    with pytest.raises(PolicyError, match="waits for itself"):
        replay(p, replace(plan, assignments=(g, *more, f, plan.assignments[4])))


@pytest.mark.parametrize(
    "split",
    [
        Split(0, 10, {0: Slice(10)}),
        Split(0, 10, {0: Slice(10), 1: Slice(10, 20)}),
        Split(0, 10, {0: Slice(10), 1: Slice(10)}, Reduction.SCATTER),
        Split(0, 10, {0: Slice(10)}, "addition"),
        Split(0, 0, {0: Slice(10), 1: Slice(10)}),
    ],
)
def test_splits_that_would_change_the_result_are_refused(split: Split) -> None:
    with pytest.raises(PolicyError):
        split.check((0,), (1,))


def test_a_halo_belongs_to_two_ranges() -> None:
    part = Slice(10, 30, -10)
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
        splits={0: Split(0, 10, {a: Slice(10), c: Slice(10, offset=10)})},
    )
    members = (
        Assignment(0, 0, 0, 0.0, 4.0, 0, 0, 4),
        Assignment(0, 1, 0, 1.2, 4.2, 0, 4, 6),
        Assignment(1, 0, 0, 4.8, 14.8),
    )
    moves = (
        Move(a, 40, 100, -1, HOST, 1, 1, 0.0, 0.6),
        Move(c, 50, 110, -1, HOST, 1, 1, 0.6, 1.2),
        Move(c, 50, 110, 0, 1, HOST, 1, 4.2, 4.8),
    )
    plan = Plan(members, "by hand", ("cpu0", "gpu1"), 14.8, moves=moves)
    check(plan, p)
    assert replay(p, plan).makespan == pytest.approx(plan.makespan)
    needs = [(n.low, n.high, n.writer) for n in Contents(plan, p).needs(2) if n.buffer == c]
    assert needs == [(0, 10, -1), (10, 50, 0), (50, 110, 0), (110, 120, -1)]
