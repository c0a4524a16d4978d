"""The policy that learns: families of kernels are cut at the same places, and its plans are right while it adapts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, HostTask, Launch
from manycl.graph.reduction import Reduction
from manycl.machine import HOST, Device, Machine
from manycl.model.estimates import Ends
from manycl.plan.adapt.families import families
from manycl.plan.plan import Plan
from manycl.plan.policies.adaptive import Adaptive, divided
from manycl.plan.policy import find
from manycl.plan.problem import Problem
from manycl.plan.split import LinearRegion, Split
from manycl.plan.verification.verify import verify
from manycl.run.simulation.simulate import plan_with
from manycl_bench.libsplit.repeat import Repetition, repetitions
from tests.plan.plan_cases import FACTS, PROGRAM, problem
from tests.plan.split_cases import GROUPS, Affine, split_problems

ROWS, ROW = 240, 64
"""Of a grid: rows, and bytes of a row."""
SPEEDS = (1.0, 3.0, 2.0)  # of the devices


def machine() -> Machine:
    gpus = tuple(Device(f"gpu{m}", "gpu", memory=m) for m in (1, 2))
    return Machine((Device("cpu0", "cpu"), *gpus))


def jacobi(copy_groups: int = ROWS, width: int = ROW) -> Problem:
    """A stencil from a to b, and a copy from b back to a in ``copy_groups`` work-groups; rows of ``width`` bytes."""
    builder = GraphBuilder()
    a, b = builder.buffer(ROWS * width, "a"), builder.buffer(ROWS * width, "b")
    for name, groups, source, target in (("stencil", ROWS, a, b), ("copy", copy_groups, b, a)):
        args = (BufferArg(source), BufferArg(target))
        builder.add(Launch(name, PROGRAM, FACTS, (16 * groups,), (16,), args, (source,), (target,)))
    seconds = [1.0 / s for s in SPEEDS]
    p = problem(builder.build(), seconds, machine(), valid={a: frozenset({HOST})}, handover=1e-4)
    row = LinearRegion(width)
    wide = LinearRegion(width * ROWS // copy_groups)
    splits = {
        0: Split(0, ROWS, {a: LinearRegion(width, 3 * width, -width), b: row}),
        1: Split(0, copy_groups, {b: wide, a: wide}),
    }
    return replace(p, estimates=Affine([seconds, seconds], 0.0, 1e-9), splits=splits)


def truth(turn: int, node: int, device: int, first: int, count: int) -> float:
    groups = (ROWS, ROWS)[node]
    # the copy is bound by memory: another ratio of the devices than the stencil's
    speed = (SPEEDS, (1.0, 1.5, 1.2))[node][device]
    return 1e-3 + count / groups / speed * (1.0, 0.4)[node]


def ranges(plan: Plan, node: int) -> list[tuple[int, int, int]]:
    return sorted((a.device, a.first, a.groups) for a in plan.assignments if a.node == node)


class OneLink(Affine):
    """All transfers share one link."""

    contended = True

    def slowdowns(self, ends: Sequence[Ends], most: Sequence[float]) -> list[float]:
        return [float(len(ends))] * len(ends)


def test_what_is_true_of_kernels_leaves_links_as_they_are() -> None:
    """Only the kernels' times are others than the planner knows: links are shared in repetitions as in its plans."""
    p = jacobi(width=1 << 12)  # what is small moves beside all links
    rows = [[1.0 / s for s in SPEEDS]] * 2

    class Thirds:
        def plan(self, problem: Problem) -> Plan:
            third = ROWS // 3
            return divided(problem, {n: [(d, d * third, third) for d in range(3)] for n in (0, 1)}, "thirds")

    def until_all_is_there(estimates: Affine) -> float:
        known = replace(p, estimates=estimates)
        (first,) = islice(repetitions(known, Thirds(), truth), 1)
        starts = {e.device: e.start for e in sorted(first.trace.kernels(), key=lambda e: -e.first) if e.node == 0}
        return max(e.end for e in first.trace.transfers() if e.target != "host" and e.end <= max(starts.values()))

    apart, shared = (until_all_is_there(kind(rows, 0.0, 1e-6)) for kind in (Affine, OneLink))
    assert shared > 1.5 * apart  # both GPUs' rows come at once


def run(p: Problem, policy: Adaptive, times: int) -> list[Repetition]:
    found = list(islice(repetitions(p, policy, truth), times))
    for r in found:
        verify(r.plan, p.graph, p.machine, r.problem)
    return found


def test_a_stencil_and_its_copy_are_cut_at_the_same_places() -> None:
    p = jacobi()
    assert [[m.node for m in f.members] for f in families(p)] == [[0, 1]]
    found = run(p, Adaptive(), 12)
    for r in found:
        assert ranges(r.plan, 0) == ranges(r.plan, 1)
        assert len(ranges(r.plan, 0)) == 3
    # at rest nothing moves but the rows beside the cuts: one row each way, of which those to and from the host's
    # memory make one hop, those between the GPUs two
    assert found[-1].plan.assignments[0]._replace(start=0, end=0) == found[-2].plan.assignments[0]._replace(
        start=0, end=0
    )
    assert sum(e.nbytes for e in found[-1].trace.transfers()) == 2 * (1 + 2) * ROW


def test_all_devices_end_together() -> None:
    found = run(jacobi(), Adaptive(), 6)
    for node in (0, 1):
        assert found[3].plan.is_split, node
    taken = [0.0] * 3
    for device, first, count in ranges(found[4].plan, 0):
        taken[device] = sum(truth(4, n, device, first, count) for n in (0, 1))
    assert max(taken) <= 1.03 * sum(taken) / 3


def test_a_kernel_with_coarser_groups_leads() -> None:
    p = jacobi(ROWS // 4)
    (family,) = families(p)
    assert family.leader.node == 1
    other = family.members[1]
    assert (other.node, other.scale, other.shift) == (0, 0.25, 0.0)
    assert other.cuts((0, 10, 25, 60)) == [0, 40, 100, 240]


def test_kernels_that_share_no_slices_are_apart() -> None:
    p = jacobi()
    a, b = p.graph.buffers
    row, halo = LinearRegion(ROW), LinearRegion(ROW, 3 * ROW, -ROW)

    def grouped(stencil: dict[int, LinearRegion], copy: dict[int, LinearRegion], groups: int = ROWS) -> list[list[int]]:
        found = families(replace(p, splits={0: Split(0, ROWS, stencil), 1: Split(0, groups, copy)}))
        return [[m.node for m in f.members] for f in found]

    # the copy turns rows into columns: what its ranges read lies all over b, and the stencil's all over a
    assert grouped({b: row}, {a: row}) == [[0], [1]]
    # one of the two buffers is enough, in this repetition or from this one to the next
    assert grouped({b: row}, {a: row, b: row}) == [[0, 1]]
    assert grouped({a: halo, b: row}, {a: row}) == [[0, 1]]
    # the same linear regions, but only over half of the buffer
    assert grouped({b: row}, {a: row, b: row}, ROWS // 2) == [[0], [1]]


def test_what_was_learned_is_kept_for_the_same_call_site() -> None:
    policy = Adaptive()
    before = run(jacobi(), policy, 6)[-1]
    after = run(jacobi(), policy, 1)[0]  # another graph of the same kernels
    assert ranges(after.plan, 0) == ranges(before.plan, 0)
    assert policy.shares(after.problem.graph)[0] == {d: n for d, _, n in ranges(after.plan, 0)}


def test_settled_says_whether_to_plan_again() -> None:
    policy, p = Adaptive(), jacobi()
    assert not policy.settled(p.graph)
    policy.plan(p)
    assert policy.settled(p.graph)
    first = policy.shares(p.graph)[0]
    slow = [(n, d, truth(0, n, d, 0, c) * (5.0 if d == 1 else 1.0)) for n in (0, 1) for d, c in first.items()]
    policy.observe(p.graph, slow[:2])  # not all of it was measured
    assert policy.settled(p.graph)
    policy.observe(p.graph, slow)
    assert not policy.settled(p.graph)
    policy.plan(p)
    assert policy.settled(p.graph)
    assert policy.shares(p.graph)[0][1] < first[1]
    policy.observe(jacobi().graph, slow)  # it has not planned that one
    assert policy.settled(p.graph)


def test_a_brief_kernel_stays_whole_and_a_useless_division_is_given_up() -> None:
    p = jacobi()
    brief = replace(p, estimates=Affine([[1e-5, 1e-5, 1e-5]] * 2, 0.0, 1e-9))
    assert not plan_with("adaptive", brief).is_split
    # the estimates promised much, but two devices take long whatever they have to do
    policy = Adaptive()
    found = list(islice(repetitions(p, policy, lambda turn, n, d, first, count: (1e-3 * count, 2.0, 2.0)[d]), 14))
    assert found[0].plan.is_split
    assert ranges(found[-1].plan, 0) == [(0, 0, 0)]  # as a whole


def test_options() -> None:
    p = jacobi()
    uniform = plan_with("adaptive", replace(p, options={"first": "uniform"}))
    assert ranges(uniform, 0) == [(0, 0, 80), (1, 80, 80), (2, 160, 80)]
    for wrong, words in (
        ({"speed": "1"}, "no option speed"),
        ({"first": "last"}, "expected estimates or uniform"),
        ({"least": "0"}, "whole number from 1 to"),
        ({"band": "wide"}, "from 0 to below 1"),
    ):
        with pytest.raises(PolicyError, match=words):
            plan_with("adaptive", replace(p, options=wrong))


@settings(max_examples=80, deadline=None)
@given(p=split_problems(), data=st.data())
def test_plans_are_valid_whatever_is_measured(p: Problem, data: st.DataObject) -> None:
    policy = find("adaptive")
    assert isinstance(policy, Adaptive)
    factor = data.draw(st.lists(st.floats(0.2, 5.0), min_size=4, max_size=4))

    def real(turn: int, node: int, device: int, first: int, count: int) -> float:
        return 0.01 + factor[(node + device) % 4] * count / GROUPS

    for r in islice(repetitions(replace(p, not_before=0.0), policy, real), 4):
        verify(r.plan, p.graph, p.machine, r.problem)
        for node, task in enumerate(p.graph.nodes):
            if isinstance(task, Launch) and len(ranges(r.plan, node)) > 1 and node in p.splits:
                ends = sorted((f, f + n) for _, f, n in ranges(r.plan, node) if n)
                assert ends[0][0] == 0
                assert ends[-1][1] == GROUPS
                assert all(a[1] == b[0] for a, b in pairwise(ends))


def test_what_moves_in_every_repetition_counts() -> None:
    """A host function reads the result each time: the GPU, three times as fast, is worth less than that."""
    builder = GraphBuilder()
    a, b = builder.buffer(ROWS * ROW, "a"), builder.buffer(ROWS * ROW, "b")
    args = (BufferArg(a), BufferArg(b))
    builder.add(Launch("map", PROGRAM, FACTS, (16 * ROWS,), (16,), args, (a,), (b,)))
    builder.add(HostTask("look", print, (), (b,), ()))
    where = Machine((Device("cpu0", "cpu"), Device("gpu1", "gpu", memory=1)))
    p = problem(builder.build(), (0.3, 0.1), where, valid={a: frozenset({HOST})}, handover=1e-4)
    row = LinearRegion(ROW)
    splits = {0: Split(0, ROWS, {a: row, b: row})}
    per_byte = 0.2 / (ROWS * ROW)  # all of b takes 0.2 s
    p = replace(p, estimates=Affine([(0.3, 0.1), (0.0, 0.0)], 0.0, per_byte), splits=splits)

    def real(turn: int, node: int, device: int, first: int, count: int) -> float:
        return (0.3, 0.1)[device] * count / ROWS

    found = list(islice(repetitions(p, Adaptive(), real), 6))
    best = min(list(islice(repetitions(p, Given(n), real), 3))[-1].trace.makespan for n in range(10, ROWS, 10))
    assert found[-1].trace.makespan <= 1.03 * best
    cpu = next(n for d, _, n in ranges(found[-1].plan, 0) if d == 0)
    assert cpu == pytest.approx(ROWS / 2, abs=8)  # 0.3 x = (0.1 + 0.2) (1 - x)


class Given:
    """So many groups on the first device, the others on the second."""

    def __init__(self, groups: int) -> None:
        self.groups = groups

    def plan(self, problem: Problem) -> Plan:
        return divided(problem, {0: [(0, 0, self.groups), (1, self.groups, ROWS - self.groups)]}, "given")


def test_merging_counts_when_a_division_is_judged() -> None:
    p = jacobi()
    a, b = p.graph.buffers
    merged = Split(0, ROWS, {a: LinearRegion(ROW)}, Reduction.SCATTER, (0.02,) * 3)
    assert plan_with("adaptive", replace(p, splits={0: merged})).is_split  # 1/6 s together, 0.04 s for merging
    merged = Split(0, ROWS, {a: LinearRegion(ROW)}, Reduction.SCATTER, (0.2,) * 3)
    assert not plan_with("adaptive", replace(p, splits={0: merged})).is_split
    assert b in p.graph.nodes[0].writes
