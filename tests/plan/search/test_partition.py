"""Dividing one kernel: water-filling and hill climbing against brute force, slots against a list of booleans."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.graph.dependences import GraphBuilder
from manycl.machine import HOST, Device, DeviceIndex, Machine
from manycl.model.occupancy import LaunchRange
from manycl.plan.plan import ON_HOST, Plan
from manycl.plan.policies.papers.mkmd import climb, partition
from manycl.plan.policies.papers.mkmd_coarse import coarse, in_priority, look_up
from manycl.plan.policy import StaticPolicy, find
from manycl.plan.problem import Problem, ValidInterval
from manycl.plan.search.partition import Slot, water_fill, where_data_are
from manycl.plan.split import LinearRegion, Split
from manycl.plan.timeline.operations import BusyIntervals
from manycl.plan.timeline.reach import Reach
from manycl.plan.timeline.timeline import Timeline
from manycl.plan.verification.verify import verify
from tests.plan.plan_cases import problem
from tests.plan.split_cases import GROUPS, ROW, Affine, rows, split_problems

FEW = 9
times = st.floats(0.0, 5.0).map(lambda seconds: round(seconds, 9))  # to the nanosecond: sums of them differ
each = st.one_of(st.floats(0.1, 3.0), st.just(0.0))  # seconds a group: all groups at once, too


@st.composite
def slots(draw: st.DrawFn, last_is_open: bool = True) -> list[Slot]:
    found = []
    for device in range(draw(st.integers(1, 3))):
        low = draw(times)
        high = draw(st.one_of(st.just(float("inf")), st.floats(low + 0.1, low + 9.0)))
        here = float(draw(st.integers(0, FEW)))
        reach = Reach(device, draw(times), draw(times), draw(times), here, draw(times), draw(each), FEW)
        found.append(Slot(low, high, reach))
    if last_is_open:
        found[-1] = found[-1]._replace(high=float("inf"))
    return found


def length(of: list[Slot], shares: tuple[int, ...] | list[int]) -> float:
    """When a kernel so divided ends; infinite where a share does not fit."""
    ends = [0.0]
    for slot, n in zip(of, shares, strict=True):
        if n:
            end = slot.reach.end(n, slot.low)
            ends.append(end if end <= slot.high and n <= slot.reach.most else float("inf"))
    return max(ends)


def every_split(count: int) -> list[tuple[int, ...]]:
    return [s for s in itertools.product(range(FEW + 1), repeat=count) if sum(s) == FEW]


class Steep(Affine):
    """Groups cost the more the further on they are."""

    def relative(self, node: int, device: int, where: LaunchRange) -> float:
        return (2 * where.first + where.groups) / where.of


def test_groups_that_cost_more_are_divided_by_what_they_cost() -> None:
    builder = GraphBuilder()
    key = builder.buffer(GROUPS * ROW)
    builder.add(rows("triangle", (), (key,)))
    where = Machine((Device("a", "cpu"), Device("b", "cpu")))
    found = problem(builder.build(), [[12.0, 12.0]], where)
    found = replace(found, estimates=Steep([[12.0, 12.0]]), splits={0: Split(0, GROUPS, {key: LinearRegion(ROW)})})
    policy = find("balance")
    assert isinstance(policy, StaticPolicy)
    plan = policy.plan(found)
    assert [a.groups for a in sorted(plan.assignments, key=lambda a: a.first or 0)] == [
        9,
        3,
    ]  # 81 of 144, 63 of 144: 8 would be 64 of 144


@settings(max_examples=200, deadline=None)
@given(slots())
def test_water_filling_is_the_best_split(of: list[Slot]) -> None:
    shares = water_fill(of, FEW)
    assert sum(shares) == FEW
    best = min(length(of, s) for s in every_split(len(of)))
    assert length(of, shares) == pytest.approx(best, rel=1e-6)


@settings(max_examples=200, deadline=None)
@given(slots(last_is_open=False))
def test_water_filling_says_when_nothing_fits(of: list[Slot]) -> None:
    shares = water_fill(of, FEW)
    best = min(length(of, s) for s in every_split(len(of)))
    if best == float("inf"):
        assert shares == [0] * len(of)
    elif any(shares):
        assert length(of, shares) == pytest.approx(best, rel=1e-6)
    else:
        # it may round a split that only just fits away
        assert sum(s.reach.groups(s.high, s.low) for s in of) < FEW + len(of)


@settings(max_examples=200, deadline=None)
@given(slots())
def test_reach_and_its_inverse(of: list[Slot]) -> None:
    for slot in of:
        for n in range(1, FEW + 1):
            end = slot.reach.end(n, slot.low)
            assert slot.reach.groups(end + 1e-9, slot.low) >= n - 1e-6
            assert slot.reach.groups(end - 1e-6, slot.low) < n


def one_kernel(seconds: tuple[float, ...], memories: tuple[int, ...], once: float = 0.0) -> Problem:
    builder = GraphBuilder()
    a, b = builder.buffer(GROUPS * ROW), builder.buffer(GROUPS * ROW)
    builder.add(rows("k", (a,), (b,)))
    devices = tuple(Device(f"d{i}", "gpu" if m else "cpu", memory=m) for i, m in enumerate(memories))
    p = problem(builder.build(), seconds, Machine(devices), valid={a: frozenset({HOST})})
    estimates = Affine([seconds], 0.0, 0.001)
    estimates.once = once
    return replace(p, estimates=estimates, splits={0: Split(0, GROUPS, {a: LinearRegion(ROW), b: LinearRegion(ROW)})})


@pytest.mark.parametrize(("row", "is_read"), [(ROW, True), (ROW // 2, False)])
def test_parts_that_a_launch_does_not_touch_count_for_nothing(row: int, is_read: bool) -> None:
    """The second half of a buffer is in another device's memory: six of its groups read that, or none."""
    p = one_kernel((1.0, 1.0), (1, 2))
    a, b = p.graph.buffers
    half = GROUPS * ROW // 2
    parts = {a: (ValidInterval(0, half, frozenset({1})), ValidInterval(half, 2 * half, frozenset({2})))}
    p = replace(
        p, valid={}, valid_intervals=parts, splits={0: Split(0, GROUPS, {a: LinearRegion(row), b: LinearRegion(row)})}
    )
    timeline = Timeline(p, p.estimates.seconds)  # type: ignore[attr-defined]
    here, there = timeline.reach(0, DeviceIndex(0)), timeline.reach(0, DeviceIndex(1))
    assert [here.here, there.here] == ([6.0, 6.0] if is_read else [12.0, 0.0])
    assert (here.per > 0.0) is is_read
    shares = where_data_are(timeline, 0, [Slot(0.0, float("inf"), reach) for reach in (here, there)])
    assert shares == ([6, 6] if is_read else [])


@settings(max_examples=200, deadline=None)
@given(slots())
def test_climbing_ends_where_no_step_helps(of: list[Slot]) -> None:
    p = one_kernel((1.0,), (HOST,))
    p = replace(p, splits={0: replace(p.splits[0], groups=FEW)})
    shares = climb(p, 0, of)
    assert sum(shares) == FEW
    now = length(of, shares)
    assert now <= length(of, [0] * (len(of) - 1) + [FEW])
    source = max((i for i, n in enumerate(shares) if n), key=lambda i: of[i].reach.end(shares[i], of[i].low))
    for i in range(len(of)):
        if i != source:
            step = list(shares)
            step[source] -= 1
            step[i] += 1
            assert length(of, step) >= now or step[source] < 0


@settings(max_examples=200, deadline=None)
@given(slots())
def test_climbing_ends_where_algorithm_2_ends(of: list[Slot]) -> None:
    """Beside Algorithm 2 as it is printed, a group a step: the same shares where each group takes its time, else none
    that end later (it stops where a step gains nothing)."""
    p = one_kernel((1.0,), (HOST,))
    expected = [0] * (len(of) - 1) + [FEW]
    while True:
        ends = [length([slot], [n]) for slot, n in zip(of, expected, strict=True)]
        source = ends.index(max(ends))
        others = [(length([slot], [expected[i] + 1]), i) for i, slot in enumerate(of) if i != source]
        step = [n - (i == source) + (others != [] and i == min(others)[1]) for i, n in enumerate(expected)]
        if not others or length(of, step) >= length(of, expected):
            break
        expected = step
    shares = climb(replace(p, splits={0: replace(p.splits[0], groups=FEW)}), 0, of)
    if all(slot.reach.each > 0.0 for slot in of):
        assert shares == expected
    assert length(of, shares) <= length(of, expected) * (1.0 + 1e-9)


def planned(name: str, p: Problem) -> Plan:
    policy = find(name)
    assert isinstance(policy, StaticPolicy)
    plan = policy.plan(p)
    verify(plan, p.graph, p.machine, p)
    return plan


@settings(max_examples=150, deadline=None)
@given(cpu=st.floats(0.1, 10.0), gpu=st.floats(0.1, 10.0), once=st.sampled_from([0.0, 0.05]))
def test_one_kernel_on_two_devices_is_split_at_the_best_place(cpu: float, gpu: float, once: float) -> None:
    """Against all splits, with the time of each written down: the GPU's rows are uploaded first."""
    p = one_kernel((cpu, gpu), (HOST, 1), once)

    def took(n: int) -> float:
        ends = [0.0]
        if n:
            ends.append(0.001 * ROW * n + once + (gpu - once) * n / GROUPS)
        if n < GROUPS:
            ends.append(once + (cpu - once) * (GROUPS - n) / GROUPS)
        return max(ends)

    best = min(took(n) for n in range(GROUPS + 1))
    assert planned("balance", p).makespan == pytest.approx(best)
    assert planned("mkmd", p).makespan >= best * (1 - 1e-9)
    assert planned("mkmd_coarse", p).makespan == pytest.approx(min(took(0), took(GROUPS)))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3)), max_size=8), st.integers(0, 10), st.integers(1, 4))
def test_slots_against_a_row_of_booleans(wanted: list[tuple[int, int]], ready: int, seconds: int) -> None:
    found, busy = BusyIntervals(), [False] * 60
    taken = []
    for begin, long in wanted:
        start = found.first(begin, long)
        at = next(t for t in range(begin, 60) if not any(busy[t : t + long]))
        assert start == at
        found.take(start, start + long)
        taken.append((start, start + long))
        busy[at : at + long] = [True] * long
    idle = [t for a, b in found.idle(ready, 40) for t in range(int(a), int(b))]
    assert idle == [t for t in range(ready, 40) if not busy[t]]
    for start, end in taken:
        found.free(start, end)
        busy[start:end] = [False] * (end - start)
        assert found.first(ready, seconds) == next(t for t in range(ready, 60) if not any(busy[t : t + seconds]))
    assert found.starts == found.ends == []


@settings(max_examples=40, deadline=None)
@given(p=split_problems())
def test_times_one_by_one_are_those_of_all_events(p: Problem) -> None:
    table = look_up(p)
    timeline = partition(p, table, coarse(p, table, in_priority(p, table)))
    found = timeline.finish()
    timeline._contended = True  # as if commands could slow each other down
    wanted = timeline.finish()
    assert [(a.node, a.device, a.first) for a in found] == [(a.node, a.device, a.first) for a in wanted]
    assert [(a.start, a.end) for a in found] == [pytest.approx((a.start, a.end)) for a in wanted]


@settings(max_examples=60, deadline=None)
@given(p=split_problems(whole=True))
def test_balance_finds_the_optimum_of_tiny_graphs(p: Problem) -> None:
    """Whole launches in one memory, no handovers: against all orders and all devices."""
    count = min(4, len(p.graph))
    builder = GraphBuilder()
    for buffer in p.graph.buffers.values():
        builder.adopt(buffer)
    for node in p.graph.nodes[:count]:
        builder.add(node)
    devices = tuple(replace(d, memory=HOST) for d in p.machine.devices[:2])
    p = replace(p, graph=builder.build(), machine=Machine(devices), queues=(1,) * len(devices), handover=0.0, valid={})
    before = p.graph.predecessors
    best = float("inf")
    for order in itertools.permutations(range(count)):
        if any(order.index(b) > order.index(n) for n in range(count) for b in before[n]):
            continue
        for where in itertools.product(*(p.allowed(n) or (ON_HOST,) for n in range(count))):
            end = [p.not_before] * count
            free = dict.fromkeys((ON_HOST, *range(len(devices))), p.not_before)
            for n in order:
                seconds = p.estimates.launch(n, where[n]) if where[n] >= 0 else 0.0
                end[n] = free[where[n]] = max([free[where[n]], *(end[b] for b in before[n])]) + seconds
            best = min(best, max(end))
    assert planned("balance", p).makespan == pytest.approx(best)
    for name in ("mkmd", "mkmd_coarse"):
        assert planned(name, p).makespan >= best * (1 - 1e-9)
