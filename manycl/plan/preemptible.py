"""Launches that make room for others: devices that leave, or that other processes demand, are soon free. Pure.

Native devices can end a launch early. A long launch there is one command as if nobody would come, and is cut where it
is when its device leaves. On other devices, once another process has demanded them, it runs in packets, one after
another, so that such a device is free when its present packets have ended.

A command that a device has cannot be taken back, unless its launches can end early. A packet costs some time, so
launches are whole as long as no other process has demanded the device. The length of packets follows from how soon a
device is to be free (*bounded in-flight commands*: W. Shen et al., "XSched", OSDI 2025).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf, prod

from manycl.graph.graph import Launch
from manycl.machine import HOST, Device, DeviceIndex, are_of_a_kind
from manycl.plan.movable import ENDINGS, SHORTEST, is_in_order, may_move
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.split import AnalysedSplits, as_ranges
from manycl.plan.tuning import PLANNING

FREE, FREE_OTHERS = {"cpu": 4e-3}, 0.75e-3
"""Seconds after which a demanded device is to be free, by its kind, and for other kinds: the most work that it has at a
time."""
LONG = 2.0
"""Launches that take longer than this many times that are run in packets."""
PACKETS_IN_FLIGHT, BESIDE = 2, 3
"""Packets that a device has at a time: for a processor, one behind another; for other devices, beside each other, as
packets of few work-groups leave room."""
FILLED = 1024
"""Work-items for each compute unit, at least, in all packets that a device has at a time: GPUs run up to 2,048 there,
and fewer take as long."""


def within(device: Device) -> float:
    """Return the seconds within which a device is to be free."""
    return FREE.get(device.kind, FREE_OTHERS)


def is_long(device: Device, seconds: float) -> bool:
    """Return whether other processes would wait for a launch that takes a device ``seconds``."""
    return seconds > LONG * within(device)


def at_a_time(device: Device) -> int:
    """Return the number of packets that a device has at a time."""
    return PACKETS_IN_FLIGHT if device.kind == "cpu" else BESIDE


def in_flight(problem: Problem) -> float:
    """Return the most seconds of work that devices are to have at a time, if some are demanded."""
    return min([within(problem.machine.devices[d]) for d in problem.demanded], default=inf)


def longest_packet(problem: Problem, device: DeviceIndex) -> float:
    """Return the most seconds of a packet on a device."""
    if device not in problem.demanded:
        return inf
    found = problem.machine.devices[device]
    return within(found) / at_a_time(found)


def least_groups(problem: Problem, node: int, device: DeviceIndex, groups: int) -> float:
    """Return the least work-groups of a packet on a device, where the launch has ``groups``: fewer would leave compute
    units idle."""
    found, launch = problem.machine.devices[device], problem.graph.nodes[node]
    if found.kind == "cpu" or not isinstance(launch, Launch):
        return 1.0
    each = prod(launch.global_size) / groups
    return max(1.0, FILLED * found.compute_units / (each * at_a_time(found)))


def with_preemption(problem: Problem, plan: Plan, strict: bool = True, demanded: bool = True) -> Plan:
    """Return the plan in which long launches are shares that may move (``Plan.movable``), so that their devices are
    soon free. Launches that may not be divided stay whole, and so do those not analysed yet: the analysis takes longer
    than most runs.

    On devices that other processes demand (unless ``demanded`` is False), they run in packets. On devices that can end
    them early, shares stay where the plan has them until a device leaves, comes or becomes slower (``Plan.still``), and
    take no longer; not in a run with many other launches, as all of them are given to devices one by one then. Where
    devices are not alike, they do so on other devices, too, in a plan that divides launches of a graph that runs once,
    if all their times were measured: there they run in packets; not where runs are ``strict``. (A device that lags
    behind others of its kind is found by its last kernels, ``run/recovery/stragglers.py``.)"""
    devices, packets = problem.machine.devices, problem.demanded if demanded else frozenset()
    others = not (strict or problem.repeated or are_of_a_kind(devices)) and plan.is_split
    asked, still = set[int](), set[int]()
    for a in plan.assignments:
        device, seconds = devices[a.device], a.end - a.start
        if a.device in packets and is_long(device, seconds):
            asked.add(a.node)
        elif seconds >= SHORTEST and ((device.shortens and device.memory == HOST) or others) and a.device != ON_HOST:
            still.add(a.node)
    looked = problem.splits if isinstance(problem.splits, AnalysedSplits) else None
    may = {n for n in asked | still if (looked is None or looked.is_known(n)) and may_move(problem, n)}
    asked &= may
    still &= may - {*asked, *plan.movable} if len(devices) > 1 else set()
    if sum([a.end - a.start for a in plan.assignments if a.node in still]) < SHORTEST * len(problem.graph):
        still.clear()
    if not (asked or still):
        return plan
    ranges = as_ranges(plan.assignments, problem.splits, asked | still)
    several = Counter((a.node, a.device) for a in ranges)
    still -= {a.node for a in ranges if several[a.node, a.device] > 1}
    still -= {a.node for a in ranges if a.node in still and not _may_leave(problem, a, others)}
    movable, stays = {*plan.movable, *asked, *still}, {*plan.still, *still}
    return replace(plan, assignments=ranges, movable=tuple(sorted(movable)), still=tuple(sorted(stays)))


def _may_leave(problem: Problem, share: Assignment, others: bool) -> bool:
    """Return whether a device can end a share early, or run it in packets that fill it (``others``)."""
    node, device, launch = share.node, share.device, problem.graph.nodes[share.node]
    assert isinstance(launch, Launch)
    found, split = problem.machine.devices[device], problem.splits[node]
    if found.shortens:
        return is_in_order(launch, split.dimension)
    if not others or not problem.estimates.is_measured(node, device):
        return False
    if share.groups < ENDINGS * least_groups(problem, node, device, split.groups):
        return False
    alone, whole = (problem.range_seconds(node, device, count) for count in (1, share.groups))
    beside = alone * share.groups / whole  # groups that run at a time: a packet's last ones take as long as so many
    return ENDINGS * (beside - 1.0) <= PLANNING.gain * share.groups
