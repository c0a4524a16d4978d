"""MKMD's worked example: A^2 B B^T C B (Figure 1), its coarse schedule (Figure 6), how kernel 3 is partitioned (Figures
7 and 8 a) and the schedule that comes of it (Figure 8 b), on the paper's machine, simulated."""

from __future__ import annotations

from typing import Any, NamedTuple

from manycl.machine import Machine
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policies.papers.mkmd import Mkmd, available, climb, holding, nearest, reschedule, turns
from manycl.plan.policies.papers.mkmd_coarse import MkmdCoarse, coarse, look_up, priorities, weights
from manycl.plan.problem import Problem
from manycl.plan.search.partition import Slot
from manycl.plan.search.rank import priority_order
from manycl.plan.timeline.timeline import Fit, Timeline
from manycl_bench.mkmd.equations import Equation, asked

SMALL, LARGE = 1024, 8192
"""A and C are SMALL x SMALL, B is SMALL x LARGE."""
PARTITIONED = 2
"""Kernel 3 of the paper, which counts from 1."""


def example(machine: Machine) -> Problem:
    """Figure 1: six kernels in the paper's order, and the sink."""
    of = Equation()
    a, b, c = of.matrix("A", SMALL, SMALL), of.matrix("B", SMALL, LARGE), of.matrix("C", SMALL, SMALL)
    aa = of.product(a, a, "AA")
    bt = of.transposed(b, "Bt")
    left = of.product(aa, of.product(b, bt, "BBt"), "AABBt")
    result = of.product(left, of.product(c, b, "CB"), "result")
    return asked(of, of.graph("A^2 B B^T C B", result), machine)


class Partitioning(NamedTuple):
    """A kernel at its turn. ``before``: what had been placed; ``held``: where its rivals would run. ``whole``: where it
    would run as a whole. ``slots``: the time that is available between the end of its last predecessor and
    ``whole.end``, its own last; ``shares``: the work-groups that each gets, ``groups`` in all. ``after``: its ranges,
    as they were placed."""

    before: tuple[Assignment, ...]
    held: tuple[Assignment, ...]
    whole: Fit
    slots: tuple[Slot, ...]
    shares: tuple[int, ...]
    groups: int
    after: tuple[Assignment, ...]


class Worked(NamedTuple):
    problem: Problem
    coarse: Plan
    partitioning: Partitioning
    fine: Plan


def worked(machine: Machine) -> Worked:
    given = example(machine)
    table = look_up(given)
    first = coarse(given, table, priority_order(given.graph, priorities(given, weights(table))))
    return Worked(given, MkmdCoarse().plan(given), _partitioning(given, first), Mkmd().plan(given))


def _partitioning(given: Problem, first: Timeline) -> Partitioning:
    """Algorithm 1 up to the kernel."""
    table = look_up(given)
    timeline = Timeline(given, table.rows)
    for turn, rivals in turns(given, table, first):
        if turn.node != PARTITIONED:
            reschedule(timeline, table, turn, rivals)
            continue
        before = _kernels(timeline)
        whole = timeline.fit(turn.node, turn.home)
        partners = given.partners(turn.node, table.places[turn.node])
        end = whole.end + given.home_seconds(turn.node, turn.home)
        reaches = nearest(timeline, partners, whole, end, len(partners))
        with holding(timeline, table, whole, rivals, {reach.device for reach in reaches}) as held:
            slots = available(timeline, reaches, whole, end)
            shares = climb(given, turn.node, slots)
        reschedule(timeline, table, turn, rivals)
        after = tuple(a for a in _kernels(timeline) if a.node == turn.node)
        return Partitioning(
            before, tuple(held), whole, tuple(slots), tuple(shares), given.splits[turn.node].groups, after
        )
    raise AssertionError("every kernel has a turn")


def _kernels(timeline: Timeline) -> tuple[Assignment, ...]:
    return tuple(what for what in timeline.what if isinstance(what, Assignment))


def figures(found: Worked) -> dict[str, Any]:
    """In milliseconds, and kernels as the paper counts them."""
    devices = [d.model for d in found.problem.machine.devices]
    part = found.partitioning
    return {
        "coarse_ms": found.coarse.makespan * 1e3,
        "mkmd_ms": found.fine.makespan * 1e3,
        "kernels": [
            {
                "kernel": node + 1,
                "name": found.problem.graph.nodes[node].name,
                "coarse": _runs(found.coarse, node, devices),
                "mkmd": _runs(found.fine, node, devices),
            }
            for node in range(len(found.problem.graph) - 1)
        ],
        "partitioned": PARTITIONED + 1,
        "whole_ms": [part.whole.start * 1e3, part.whole.end * 1e3],
        "ends_ms": max(a.end for a in part.after) * 1e3,
        "slots": [
            {
                "device": devices[slot.reach.device],
                "from_ms": slot.low * 1e3,
                "to_ms": min(slot.high, part.whole.end) * 1e3,
                "share": share / part.groups,
            }
            for slot, share in zip(part.slots, part.shares, strict=True)
        ],
    }


def _runs(plan: Plan, node: int, devices: list[str]) -> list[dict[str, Any]]:
    groups = sum(a.groups for a in plan.assignments if a.node == node)
    return [
        {
            "device": devices[a.device],
            "from_ms": a.start * 1e3,
            "to_ms": a.end * 1e3,
            "share": a.groups / groups if groups else 1.0,
        }
        for a in plan.assignments
        if a.node == node
    ]
