"""``mkmd``: MKMD's two phases; after the coarse one, kernels are split into the time slots that it left.

J. Lee, M. Samadi and S. Mahlke, "Orchestrating Multiple Data-Parallel Kernels on Multiple Devices", PACT 2015, Sections
5.3 and 5.4, Algorithms 1 and 2. Line 14 of Algorithm 2 is read as the text has it: the candidate that ends earliest.
"""

from __future__ import annotations

from manycl.plan.options import Options
from manycl.plan.partition import Slot, place_ranges
from manycl.plan.placement import Placement
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.policies.mkmd_coarse import (
    Table,
    as_plan,
    coarse,
    in_ranges,
    look_up,
    priorities,
    weights,
)
from manycl.plan.policy import register
from manycl.plan.problem import Problem
from manycl.plan.rank import priority_order

INFINITE = float("inf")
STEPS = 100
"""A step offloads 1 % of the work-groups (Section 5.4)."""


def partition(problem: Problem, table: Table, first: Placement) -> Placement:
    """Algorithm 1. What the coarse placement ``first`` gave to kernels that have not had their turn stays theirs."""
    placement = Placement(problem, table.rows)
    fixed = {a.node for a in problem.fixed}
    kept: dict[int, list[Assignment]] = {}
    for what in first.what:
        if isinstance(what, Assignment) and what.node not in fixed:
            kept.setdefault(what.node, []).append(what)
            if what.end > what.start:
                placement.kernels[what.device].take(what.start, what.end)
    # operations were placed in a topological order, in which sorting is stable
    for node in sorted(kept, key=lambda n: kept[n][0].start):
        for what in kept[node]:
            if what.end > what.start:
                placement.kernels[what.device].free(what.start, what.end)
        _reschedule(placement, table, node, kept[node][0].device)
    return placement


def _reschedule(placement: Placement, table: Table, node: int, home: int) -> None:
    """Lines 4 to 15: the kernel on its device as early as it can, then in ranges if that is earlier."""
    most = dict(table.places[node]).get(home, 0)
    if most:
        in_ranges(placement, node, home, most)
        return
    whole = placement.fit(node, home)
    if node in placement.problem.splits and home != ON_HOST and len(table.places[node]) > 1:
        slots = _slots(placement, table, node, home, whole.start, whole.end)
        shares = climb(placement.problem, node, slots)
        if sum(n > 0 for n in shares) > 1:
            mark = placement.mark()
            if place_ranges(placement, node, slots, shares, home) < whole.end:
                return
            placement.back(mark)
            whole = placement.fit(node, home)
    placement.complete(node, [placement.take(whole)])


def _slots(placement: Placement, table: Table, node: int, home: int, start: float, end: float) -> list[Slot]:
    """Lines 5 to 9: the time slots between the end of the last predecessor and that of the kernel; its own is last."""
    slots: list[Slot] = []
    own = placement.reach(node, home)
    for device, most in table.places[node]:
        reach = own if device == home else placement.reach(node, device, most)
        for low, high in placement.kernels[device].idle(reach.ready, end):
            if device != home or high <= start:
                slots.append(Slot(low, high, reach))
    slots.append(Slot(start, INFINITE, own))
    return slots


def climb(problem: Problem, node: int, slots: list[Slot]) -> list[int]:
    """Algorithm 2: the numbers of groups by slot, from all in the last one on by hill climbing.

    A slot with one step more ends later than it did, so the kernel then ends with that slot or with the last of the
    others; the best candidate is the one whose own slot ends first.
    """
    groups = problem.splits[node].groups
    step = max(1, groups // STEPS)
    shares = [0] * len(slots)
    shares[-1] = groups
    ends = [0.0] * len(slots)
    ends[-1] = now = _end(slots[-1], groups)
    ahead = [_end(slot, n + step) for slot, n in zip(slots, shares, strict=True)]  # with one step more
    merge = problem.merge_seconds(node, slots[-1].reach.device, 1)
    while True:
        source = ends.index(max(ends))
        moved = min(step, shares[source])
        left = shares[source] - moved
        ends[source] = _end(slots[source], left)
        last = max(ends)
        if moved < step:
            ahead = [_end(slot, n + moved) for slot, n in zip(slots, shares, strict=True)]
        ahead[source] = INFINITE
        if merge:
            pick, length = _merged(slots, shares, source, left, ahead, last, merge)
        else:
            pick = ahead.index(min(ahead))
            length = max(ahead[pick], last)
        if length >= now:
            return shares
        now = length
        shares[source] = left
        shares[pick] += moved
        ends[pick] = _end(slots[pick], shares[pick])
        if moved < step:
            ahead = [_end(slot, n + step) for slot, n in zip(slots, shares, strict=True)]
        else:
            ahead[source] = _end(slots[source], left + step)
            ahead[pick] = _end(slots[pick], shares[pick] + step)


def _end(slot: Slot, groups: int) -> float:
    """When so many groups end in a slot; infinite where they do not fit into it or into the device's memory."""
    if groups == 0:
        return 0.0
    if groups > slot.reach.most:
        return INFINITE
    end = slot.reach.end(groups, slot.low)
    return end if end <= slot.high else INFINITE


def _merged(
    slots: list[Slot], shares: list[int], source: int, left: int, ahead: list[float], last: float, merge: float
) -> tuple[int, float]:
    """The best candidate and when the kernel ends with it, where every device but one costs a merge."""
    used = {s.reach.device for i, s in enumerate(slots) if (left if i == source else shares[i])}
    lengths = [max(end, last) + merge * (len(used | {s.reach.device}) - 1) for s, end in zip(slots, ahead, strict=True)]
    pick = lengths.index(min(lengths))
    return pick, lengths[pick]


@register("mkmd")
class Mkmd:
    """MKMD's coarse-grain scheduling and fine-grain partitioning."""

    options = Options("mkmd")

    def plan(self, problem: Problem) -> Plan:
        table = look_up(problem)
        order = priority_order(problem.graph, priorities(problem, weights(table)))
        first = coarse(problem, table, order)
        return as_plan(problem, partition(problem, table, first), "mkmd")
