"""MKMD's worked example: A^2 B B^T C B (Figure 1), its coarse schedule (Figure 6), how kernel 3 is partitioned (Figures
7 and 8 a) and the schedule that comes of it (Figure 8 b), on the paper's machine, simulated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from manycl.graph.graph import BufferKey
from manycl.machine import Machine
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policies.papers.mkmd import Mkmd, available, climb, holding, nearest, reschedule, turns
from manycl.plan.policies.papers.mkmd_coarse import MkmdCoarse, coarse, look_up, priorities, weights
from manycl.plan.problem import Problem
from manycl.plan.search.partition import Slot
from manycl.plan.search.rank import priority_order
from manycl.plan.split import Slice, Split
from manycl.plan.timeline.timeline import Fit, Timeline
from manycl_bench.mkmd.equations import FLOAT, TILE, Equation, asked

SMALL, LARGE = 1024, 8192
"""A and C are SMALL x SMALL, B is SMALL x LARGE."""
PARTITIONED = 2
"""Kernel 3 of the paper, which counts from 1."""


@dataclass
class Example(Equation):
    """Its matrices are not all square; buffers by key: rows and columns."""

    shapes: dict[BufferKey, tuple[int, int]] = field(default_factory=dict)

    def given(self, name: str, rows: int, columns: int) -> BufferKey:
        key = self.builder.buffer(rows * columns * FLOAT, name)
        self.inputs.add(key)
        self.shapes[key] = rows, columns
        return key

    def _made(self, name: str, rows: int, columns: int) -> BufferKey:
        key = self._new(rows * columns * FLOAT, name)
        self.shapes[key] = rows, columns
        return key

    def times(self, a: BufferKey, b: BufferKey, name: str) -> BufferKey:
        """A times B, as :meth:`Equation.product`."""
        (rows, inner), (_, columns) = self.shapes[a], self.shapes[b]
        c = self._made(name, rows, columns)
        slices = {a: Slice(TILE * inner * FLOAT), c: Slice(TILE * columns * FLOAT)}
        if a == b:
            del slices[a]
        traffic = FLOAT * (2.0 * rows * columns * (inner // TILE) + rows * columns)
        work = 2.0 * rows * columns * inner, traffic
        return self._add("matmul", ((columns, rows), (TILE, TILE)), (a, b), c, work, Split(1, rows // TILE, slices))

    def turned(self, a: BufferKey, name: str) -> BufferKey:
        """A's transpose, as :meth:`Equation.transposed`."""
        rows, columns = self.shapes[a]
        c = self._made(name, columns, rows)
        split = Split(0, columns // TILE, {c: Slice(TILE * rows * FLOAT)})
        return self._add(
            "transpose", ((columns, rows), (TILE, TILE)), (a,), c, (0.0, 2.0 * rows * columns * FLOAT), split
        )


def example(machine: Machine) -> Problem:
    """Figure 1: six kernels in the paper's order, and the sink."""
    of = Example()
    a, b, c = of.given("A", SMALL, SMALL), of.given("B", SMALL, LARGE), of.given("C", SMALL, SMALL)
    aa = of.times(a, a, "AA")
    bt = of.turned(b, "Bt")
    left = of.times(aa, of.times(b, bt, "BBt"), "AABBt")
    result = of.times(left, of.times(c, b, "CB"), "result")
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
