"""Launches that make room for others: devices that leave, or that other processes demand, are soon free. Pure.

Native devices can end a launch early. A long launch there is one command as if nobody would come, and is cut where it
is when its device leaves. On other devices a command cannot be taken back. There it runs in packets, one after another,
the next one always enqueued, so that such a device is free when its present packets have ended. A packet costs some
time. As long as no other process has demanded the device, packets are as many as cost hardly anything; then their
length follows from how soon the device is to be free (*bounded in-flight commands*: W. Shen et al., "XSched", OSDI
2025).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import ceil, inf, prod

from manycl.graph.graph import Launch
from manycl.machine import HOST, Device, DeviceIndex, are_of_a_kind
from manycl.plan.movable import ENDINGS, ENQUEUING, PACKETS, SHORTEST, is_in_order, may_move
from manycl.plan.plan import ON_HOST, ROUNDING, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.split import AnalysedSplits, as_ranges
from manycl.plan.tuning import PLANNING

FREE = {"cpu": 4e-3}
"""Seconds after which a demanded device is to be free, by its kind: the most work that it has at a time; our own
choice."""
FREE_OTHERS = 0.75e-3
"""Seconds after which a demanded device of another kind is to be free; our own choice."""
PACKETS_IN_FLIGHT = 2
"""Packets that a processor has at a time, one behind another; our own choice."""
BESIDE = 3
"""Packets that other devices have at a time, beside each other, as packets of few work-groups leave room; our own
choice."""
COST = 0.01
"""The part by which packets of a launch may take longer than all of it, where they are only for devices that leave,
come or become slower; our own choice."""
FILLED = 1024
"""Work-items for each compute unit, at least, in all packets that a device has at a time; our own choice: GPUs run up
to 2,048 there, and fewer take as long."""


def within(device: Device) -> float:
    """Return the seconds within which a device is to be free."""
    return FREE.get(device.kind, FREE_OTHERS)


def is_long(device: Device, seconds: float) -> bool:
    """Return whether other processes would wait long for a launch that takes a device ``seconds``."""
    return seconds > PACKETS_IN_FLIGHT * within(device)


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
    """Return the least work-groups of a packet on a device, the launch having ``groups``: fewer leave units idle."""
    found, launch = problem.machine.devices[device], problem.graph.nodes[node]
    if found.kind == "cpu" or not isinstance(launch, Launch):
        return 1.0
    each = prod(launch.global_size) / groups
    return max(1.0, FILLED * found.compute_units / (each * at_a_time(found)))


def with_preemption(problem: Problem, plan: Plan, strict: bool = True, demanded: bool = True) -> Plan:
    """Return the plan in which long launches are shares that may move (``Plan.movable``), so that their devices are
    soon free. Launches that may not be divided stay whole, and so do those not analysed yet: the analysis takes longer
    than most runs.

    On devices that other processes demand (unless ``demanded`` is False), they run in packets. On others, shares stay
    where the plan has them until a device leaves, comes or becomes slower (``Plan.still``), and take no longer; not in
    a run with many other launches, as all of them are given to devices one by one then. Where devices are not alike,
    packets of launches that a graph which runs once divides may take somewhat longer (``PLANNING.gain``), as others
    help a device that lags behind; not where runs are ``strict``. (A device that lags behind others of its kind is
    found by its last kernels, ``run/recovery/stragglers.py``.)"""
    devices, packets = problem.machine.devices, problem.demanded if demanded else frozenset()
    others = may_differ(problem, strict)
    least = SHORTEST / (2 * ENDINGS) if others else SHORTEST
    asked, still = set[int](), set[int]()
    for a in plan.assignments:
        if a.device in packets and is_long(devices[a.device], a.end - a.start):
            asked.add(a.node)
        elif a.end - a.start >= least and a.device != ON_HOST:
            still.add(a.node)
    looked = problem.splits if isinstance(problem.splits, AnalysedSplits) else None
    may = {n for n in asked | still if (looked is None or looked.is_known(n)) and may_move(problem, n)}
    asked &= may
    still &= may - {*asked, *plan.movable} if len(devices) > 1 else set()
    if sum([a.end - a.start for a in plan.assignments if a.node in still]) < least * len(problem.graph):
        still.clear()
    ranges = as_ranges(plan.assignments, problem.splits, still)
    several = Counter((a.node, a.device) for a in ranges)
    still -= {a.node for a in ranges if several[a.node, a.device] > 1}
    still = {a.node for a in ranges if a.node in still and endings(problem, a, others and plan.is_split) > 1}
    if not (asked or still):
        return plan
    ranges = as_ranges(plan.assignments, problem.splits, asked | still)
    movable, stays = {*plan.movable, *asked, *still}, {*plan.still, *still}
    return replace(plan, assignments=ranges, movable=tuple(sorted(movable)), still=tuple(sorted(stays)))


def may_differ(problem: Problem, strict: bool) -> bool:
    """Return whether devices are not alike, and results may be those of any of them, as time decides."""
    return not (strict or problem.repeated or are_of_a_kind(problem.machine.devices))


def endings(problem: Problem, share: Assignment, others: bool) -> int:
    """Return in how many places a share may end when its device leaves (1: only as a whole): in so many that the device
    is soon free, where it can end launches early; else in so many packets that these take longer by a part COST at
    most: the end of each leaves units idle that more work-groups would have filled. ``others``: else in ENDINGS, if
    these cost no more than what is gained where devices help one another."""
    device, task = problem.machine.devices[share.device], problem.graph.nodes[share.node]
    seconds, split = share.end - share.start, problem.splits[share.node]
    assert isinstance(task, Launch)
    if device.shortens and device.memory == HOST and is_in_order(task, split.dimension):
        return max(PACKETS_IN_FLIGHT, ceil(seconds * PACKETS_IN_FLIGHT / within(device)))
    alone = problem.range_seconds(share.node, share.device, 1)
    packet = max(alone - seconds / share.groups, device.launch_overhead, ROUNDING)
    if device.kind == "cpu":  # a core decides and enqueues
        packet += ENQUEUING / sum(max(1, d.compute_units) for d in problem.machine.devices if d.kind == "cpu")
    elif problem.repeated:  # (beside an H200, 65 packets take a run of 110 ms 7 ms: else, it would be played as before)
        packet += problem.handover
    most = int(share.groups // least_groups(problem, share.node, share.device, split.groups))
    soon = PACKETS if problem.machine.memories > 1 else ceil(seconds * at_a_time(device) / within(device))
    count = min(soon, most, 1 + int((COST * seconds - problem.handover) / packet))
    if count >= ENDINGS:
        return count  # (fewer would all be given to the device at once)
    is_cheap = most >= ENDINGS and (ENDINGS - 1) * packet <= PLANNING.gain * seconds
    return ENDINGS if others and is_cheap and problem.estimates.is_measured(share.node, share.device) else 1
