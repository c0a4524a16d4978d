"""Launches on devices that other processes ask for are in packets where that can be, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, inf

import pytest

from manycl.graph.graph import Launch
from manycl.graph.reduction import Reduction
from manycl.machine import DeviceIndex
from manycl.plan.movable import SHORTEST
from manycl.plan.plan import ON_HOST, WHOLE, Assignment, Plan
from manycl.plan.preemptible import (
    FILLED,
    FREE,
    PACKETS_IN_FLIGHT,
    at_a_time,
    in_flight,
    least_groups,
    longest_packet,
    with_preemption,
)
from manycl.plan.problem import Problem
from manycl.run.lowering.chunks import CHUNKS_PER_PACKET, FINEST_DEMANDED, MOST, in_chunks
from tests.plan.test_movable import GROUPS, plan, problem

D0, D1 = DeviceIndex(0), DeviceIndex(1)
SOON = FREE["cpu"]


def asked(*devices: DeviceIndex, merge: Reduction = Reduction.NONE, memories: tuple[int, int] = (0, 0)) -> Problem:
    return replace(problem(0.0, 2, memories, merge), demanded=frozenset(devices))


def whole(*seconds: float, device: DeviceIndex = D0) -> Plan:
    out = tuple(Assignment(n, device, 0, 0.0, s) for n, s in enumerate(seconds))
    return Plan(out, "p", ("d0", "d1"), max(seconds))


def test_only_long_launches_on_devices_that_are_asked_for_are_in_packets() -> None:
    found = with_preemption(asked(D0), whole(0.9 * PACKETS_IN_FLIGHT * SOON, 1.1 * PACKETS_IN_FLIGHT * SOON))
    assert found.movable == (1,)
    assert [(a.dimension, a.first, a.groups) for a in found.assignments] == [(WHOLE, 0, 0), (0, 0, GROUPS)]
    for other in (asked(D1), asked()):  # the device is not: they may only leave it
        found = with_preemption(other, whole(1.0, 1.0))
        assert found.movable == found.still


def test_shares_that_are_on_such_a_device_may_move() -> None:
    assert with_preemption(asked(D1), plan(1.0, 2)).movable == (0, 1)
    assert with_preemption(asked(D1), plan(1.0, 2)).assignments == plan(1.0, 2).assignments
    assert with_preemption(asked(D1), replace(plan(1.0, 2), movable=(0,))).movable == (0, 1)


@pytest.mark.parametrize("memories", [(0, 0), (0, 1)])
def test_what_may_not_be_divided_stays_whole(memories: tuple[int, int]) -> None:
    alone = replace(asked(D0, memories=memories), splits={})
    assert with_preemption(alone, whole(1.0, 1.0)) == whole(1.0, 1.0)
    merged = asked(D0, merge=Reduction.DIFFERENCE, memories=memories)
    assert with_preemption(merged, whole(1.0, 1.0)).movable == ((0, 1) if memories == (0, 0) else ())


def test_pieces_are_as_short_as_they_have_to_be() -> None:
    one = asked(D0)
    assert in_flight(one) == SOON
    assert in_flight(asked()) == longest_packet(one, D1) == inf
    longest = longest_packet(one, D0)
    assert 0.0 < 2 * longest <= SOON
    groups = 10**6
    for seconds in (0.02, 0.2, 2.0):
        there = Assignment(0, D0, 0, 0.0, seconds, 0, 0, groups)
        cells = in_chunks(Plan((there,), "p", ("d0", "d1"), seconds, movable=(0,)), one).assignments
        assert sum(a.groups for a in cells) == groups
        assert len(cells) <= max(MOST, FINEST_DEMANDED)
        longest_cell = max(a.groups for a in cells) * seconds / groups
        assert longest_cell <= longest or longest_cell <= 2 * seconds / FINEST_DEMANDED
        assert len(cells) >= min(ceil(seconds / longest), FINEST_DEMANDED / 2)


def test_packets_on_gpus_are_no_shorter_than_what_fills_them() -> None:
    """Of a launch of 200 ms with few work-groups, each of which takes long."""
    one = asked(D0)
    devices = tuple(replace(d, kind="gpu", compute_units=132) for d in one.machine.devices)
    one = replace(one, machine=replace(one.machine, devices=devices))
    launch = one.graph.nodes[0]
    assert isinstance(launch, Launch)
    for groups in (GROUPS, 10 * GROUPS):
        least = least_groups(one, 0, D0, groups)
        each, count = launch.global_size[0] / groups, at_a_time(devices[0])
        assert least * each * count == pytest.approx(max(132 * FILLED, count * each))
    assert least_groups(asked(D0), 0, D0, GROUPS) == 1.0
    there = Assignment(0, D0, 0, 0.0, 0.2, 0, 0, GROUPS)
    cells = in_chunks(Plan((there,), "p", ("d0", "d1"), 0.2, movable=(0,)), one).assignments
    assert len(cells) <= max(MOST, ceil(CHUNKS_PER_PACKET * GROUPS / least_groups(one, 0, D0, GROUPS)))


def ending(*shortens: bool, memories: tuple[int, int] = (0, 0), merge: Reduction = Reduction.NONE) -> Problem:
    """Of devices of which some can end launches early."""
    found = problem(0.0, 2, memories, merge)
    devices = tuple(replace(d, shortens=s) for d, s in zip(found.machine.devices, shortens, strict=True))
    return replace(found, machine=replace(found.machine, devices=devices))


def costly(overhead: float, *shortens: bool, memories: tuple[int, int] = (0, 0)) -> Problem:
    """The same, where a packet costs so many seconds."""
    found = ending(*shortens, memories=memories)
    devices = tuple(replace(d, launch_overhead=overhead) for d in found.machine.devices)
    return replace(found, machine=replace(found.machine, devices=devices))


@pytest.mark.parametrize("overhead", [1e-6, 1e-4, 1e-3, 5e-3, 0.02])
def test_packets_of_devices_that_cannot_end_launches_early_cost_a_percent_at_most(overhead: float) -> None:
    where = costly(overhead, False, False, memories=(0, 1))
    found = with_preemption(where, whole(1.0, 1.0))
    packets = [a for a in in_chunks(found, where).assignments if a.node == 0]
    assert (len(packets) - 1) * overhead <= 0.01
    assert len(packets) > 2 or overhead > 0.004
    assert sum(a.groups for a in packets) == (GROUPS if found.still else 0)


def test_long_launches_may_leave_devices_that_can_end_them_early() -> None:
    found = with_preemption(ending(True, False), whole(0.9 * SHORTEST, 2 * SHORTEST))
    assert (found.movable, found.still) == ((1,), (1,))
    assert [(a.dimension, a.first, a.groups) for a in found.assignments] == [(WHOLE, 0, 0), (0, 0, GROUPS)]
    divided = with_preemption(ending(True, True), plan(1.0, 2))
    assert (divided.movable, divided.still, divided.assignments) == ((0, 1), (0, 1), plan(1.0, 2).assignments)
    moving = replace(plan(1.0, 2), movable=(0,))
    assert with_preemption(ending(True, True), moving).still == (1,)
    beside = whole(0.9 * SHORTEST, 1.9 * SHORTEST)  # to decide about both costs a part of one
    assert with_preemption(ending(True, True), beside) == beside
    for where in (costly(0.02, False, True), replace(ending(True, False), splits={})):
        assert with_preemption(where, whole(1.0, 1.0)) == whole(1.0, 1.0)
    host = whole(1.0, 1.0, device=ON_HOST)
    assert with_preemption(ending(True, True), host) == host
    apart = ending(True, True, memories=(0, 1), merge=Reduction.DIFFERENCE)
    assert with_preemption(apart, plan(1.0, 2)) == plan(1.0, 2)
    assert Plan.from_json(found.to_json()) == found


def test_where_devices_are_not_alike_long_shares_run_in_packets() -> None:
    unlike = costly(0.02, False, False, memories=(0, 1))
    shares = plan(1.0, 2)
    assert with_preemption(unlike, shares, strict=False).still == (0, 1)
    assert with_preemption(unlike, shares) == shares
    assert with_preemption(replace(unlike, repeated=1), shares, strict=False) == shares
    assert with_preemption(unlike, whole(1.0, 1.0), strict=False) == whole(1.0, 1.0), "nothing is divided"


@pytest.mark.parametrize("seconds", [SHORTEST, 0.3, 3.0])
def test_such_launches_end_in_many_places(seconds: float) -> None:
    """A device that leaves has less than what it may take to be free, and chunks are all of the launch."""
    where, groups = ending(True, True), 1 << 18
    there = Assignment(0, D0, 0, 0.0, seconds, 0, 0, groups)
    cells = in_chunks(Plan((there,), "p", ("d0", "d1"), seconds, movable=(0,), still=(0,)), where).assignments
    assert [a.first for a in cells] == [sum(b.groups for b in cells[:n]) for n in range(len(cells))]
    assert sum(a.groups for a in cells) == groups
    assert max(a.groups for a in cells) * seconds / groups <= SOON
    assert len(cells) <= 2 * ceil(seconds / SOON) + 1
