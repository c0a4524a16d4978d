"""Launches that make room for others: devices that leave, or that other processes demand, are soon free. Pure.

Native devices can end a launch early. A long launch there is one command as if nobody would come, and is cut where it
is when its device leaves. On other devices, once another process has demanded them, it runs in packets, one after
another, so that such a device is free when its present packets have ended.

A command that a device has cannot be taken back, unless its launches can end early. A packet costs some time, so
launches are whole as long as no other process has demanded the device. The length of packets follows from how soon a
device is to be free (*bounded in-flight commands*: W. Shen et al., "XSched", OSDI 2025).
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod

from manycl.graph.graph import Launch
from manycl.machine import HOST, Device, DeviceIndex
from manycl.plan.movable import ENDINGS, SHORTEST, are_of_a_kind, is_in_order, may_move
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.split import AnalysedSplits, as_ranges
from manycl.plan.tuning import PLANNING

FREE, FREE_OTHERS = {"cpu": 4e-3}, 0.75e-3
"""Seconds after which a demanded device is to be free, by its kind, and for other kinds: its most work at a time."""
LONG = 2.0
"""Launches that take longer than this many times that are run in packets."""
PACKETS_AHEAD, BESIDE = 2, 3
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
    return PACKETS_AHEAD if device.kind == "cpu" else BESIDE


def ahead(problem: Problem) -> float:
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


def _is_known(problem: Problem, node: int) -> bool:
    return not isinstance(problem.splits, AnalysedSplits) or problem.splits.is_known(node)


def that_may_leave(problem: Problem, plan: Plan, strict: bool = True) -> Plan:
    """Return the plan in which long launches on devices that can end them early are shares that may move, as soon as a
    device leaves, comes or becomes slower (``Plan.still``); until then they stay where the plan has them, and take no
    longer. Not those that may not be divided, or are not analysed yet; and none of a run with many other launches,
    as all of them are given to devices one by one then.

    Where devices are not alike, this holds for long launches on other devices, too, in a plan that divides launches of
    a graph that runs once, if all their times were measured: there they run in packets. (A device that lags behind
    others of its kind is found by its last kernels, ``run/recovery/stragglers.py``.) ``strict``: not there."""
    devices, graph = problem.machine.devices, problem.graph
    others = not (strict or problem.repeated or are_of_a_kind(devices)) and plan.is_split
    long = {
        a.node
        for a in plan.assignments
        if a.device != ON_HOST
        and a.end - a.start >= SHORTEST
        and ((devices[a.device].shortens and devices[a.device].memory == HOST) or others)
    }.difference(plan.movable)
    still = {
        n
        for n in (long if len(devices) > 1 else ())
        if _is_known(problem, n) and may_move(problem, n) and isinstance(graph.nodes[n], Launch)
    }
    if not still or sum([a.end - a.start for a in plan.assignments if a.node in still]) < SHORTEST * len(graph):
        return plan
    ranges = as_ranges(plan.assignments, problem.splits, still)
    several = [(a.node, a.device) for a in ranges if a.node in still]
    still.difference_update([node for node, device in several if several.count((node, device)) > 1])
    still.difference_update([a.node for a in ranges if a.node in still and not _may_leave(problem, a, others)])
    movable = tuple(sorted({*plan.movable, *still}))
    return replace(plan, assignments=ranges, movable=movable, still=tuple(sorted({*plan.still, *still})))


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


def in_packets(problem: Problem, plan: Plan) -> Plan:
    """Return the plan in which long launches on demanded devices are shares that may move (``Plan.movable``): these run
    in packets. Launches that may not be divided stay whole, and so do those not analysed yet: the analysis takes longer
    than most runs."""
    if not problem.demanded:
        return plan
    nodes = {
        a.node
        for a in plan.assignments
        if a.device in problem.demanded
        and is_long(problem.machine.devices[a.device], a.end - a.start)
        and _is_known(problem, a.node)
        and may_move(problem, a.node)
    }
    if not nodes:
        return plan
    ranges = as_ranges(plan.assignments, problem.splits, nodes)
    return replace(plan, assignments=ranges, movable=tuple(sorted({*plan.movable, *nodes})))
