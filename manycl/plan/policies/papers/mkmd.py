"""``mkmd``: MKMD's two phases; after the coarse one, kernels are split into the time slots that it left. J. Lee, M.
Samadi and S. Mahlke, "Orchestrating Multiple Data-Parallel Kernels on Multiple Devices", PACT 2015, Sections 5.3 and
5.4, Algorithms 1 and 2. Line 14 of Algorithm 2 is read as the text has it: the candidate that ends earliest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from manycl.machine import DeviceIndex
from manycl.plan.foreseen import best_of
from manycl.plan.options import Options
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.policies.papers.mkmd_coarse import (
    Table,
    as_plan,
    coarse,
    in_priority,
    in_ranges,
    look_up,
    off_the_host,
)
from manycl.plan.policy import register
from manycl.plan.problem import Problem
from manycl.plan.search.partition import Slot, place_ranges, water_fill
from manycl.plan.timeline.reach import Reach
from manycl.plan.timeline.timeline import Fit, Timeline
from manycl.plan.tuning import PLANNING

INFINITE = float("inf")


class Turn(NamedTuple):
    """A kernel as the coarse phase placed it: its device, start and end (seconds)."""

    node: int
    home: DeviceIndex
    start: float
    end: float


def partition(problem: Problem, table: Table, first: Timeline) -> Timeline:
    """Return the timeline of Algorithm 1 after the coarse timeline ``first``."""
    timeline = Timeline(problem, table.rows)
    for turn, rivals in turns(problem, table, first):
        reschedule(timeline, table, turn, rivals)
        timeline.intervals.settle()
    return timeline


def turns(problem: Problem, table: Table, first: Timeline) -> Iterator[tuple[Turn, list[Turn]]]:
    """Yield the kernels in the order in which a timeline starts them (line 1), each with its *rivals*: kernels whose
    turn comes later, but which the timeline starts before that kernel ends. So none of them waits for it. A kernel that
    the timeline has on a device that is not in the table is its fastest device's."""
    fixed = {a.node for a in problem.fixed}
    parts: dict[int, list[Assignment]] = {}
    for what in first.what:
        if isinstance(what, Assignment) and what.node not in fixed:
            parts.setdefault(what.node, []).append(what)
    found = list[Turn]()
    for node, of in parts.items():
        home, places = of[0].device, [d for d, _ in table.places[node]]
        if places and home not in places:
            home = min(places, key=table.rows[node].__getitem__)
        found.append(Turn(node, home, of[0].start, max(a.end for a in of)))
    # operations were placed in a topological order, in which sorting is stable
    found.sort(key=lambda turn: turn.start)
    for i, turn in enumerate(found):
        later = islice(found, i + 1, i + 1 + PLANNING.candidates)
        yield turn, [other for other in later if other.start < turn.end]


def reschedule(timeline: Timeline, table: Table, turn: Turn, rivals: Sequence[Turn]) -> None:
    """Place the kernel on its device as early as it can be, then in ranges if that is earlier (lines 4 to 15). A slot
    is available where none of the rivals would run. These are where the adjusted schedule has them: on their devices,
    as early as this kernel and those before it allow. (Their places in the coarse timeline are out of date as soon as
    anything before them has ended earlier.)"""
    node, home = turn.node, turn.home
    whole = _whole(timeline, table, turn)
    if whole is None:
        return
    found = timeline.problem.partners(node, table.places[node])
    end = whole.end + timeline.problem.home_seconds(node, home)
    most = max(len(found) // (1 + 2 * len(rivals)), 4)
    if any(device == home for device, _ in found) and (reaches := nearest(timeline, found, whole, end, most)):
        mark = timeline.mark()
        with holding(timeline, table, whole, rivals, {reach.device for reach in reaches}):
            slots = available(timeline, reaches, whole, end)
            shares = climb(timeline.problem, node, slots)
            if most < len(found) and len(few := worth_it(slots, shares)) < sum(n > 0 for n in shares):
                slots, shares = few, climb(timeline.problem, node, few)
            sooner = sum(n > 0 for n in shares) > 1 and place_ranges(timeline, node, slots, shares, home) < end
        if sooner:
            return
        timeline.back(mark)
    timeline.complete(node, [timeline.take(whole)])


def _whole(timeline: Timeline, table: Table, turn: Turn) -> Fit | None:
    """Return where a kernel would run on its device; None: it fits there in ranges only, and these have been placed."""
    most = dict(table.places[turn.node]).get(turn.home, 0)
    if most:
        in_ranges(timeline, turn.node, turn.home, most)
        return None
    return timeline.fit(turn.node, turn.home)


@contextmanager
def holding(
    timeline: Timeline, table: Table, whole: Fit, rivals: Sequence[Turn], devices: Set[DeviceIndex]
) -> Iterator[list[Assignment]]:
    """Let the rivals hold the time in which they would run on some devices, inside the ``with`` block."""
    wanted, counted = set[int](), list[Turn]()
    for rival in reversed(rivals):  # and those that they wait for
        if rival.home in devices or rival.node in wanted:
            wanted.update(timeline.problem.graph.predecessors[rival.node])
            counted.append(rival)
    held = _adjusted(timeline, table, whole, counted[::-1])
    for what in held:
        timeline.kernels[what.device].take(what.start, what.end)
    try:
        yield held
    finally:
        for what in held:
            timeline.kernels[what.device].free(what.start, what.end)


def _adjusted(timeline: Timeline, table: Table, whole: Fit, rivals: Sequence[Turn]) -> list[Assignment]:
    """Return when the rivals would run if the kernel ran whole."""
    if not rivals:
        return []
    mark = timeline.mark()
    timeline.complete(whole.node, [timeline.take(whole)])
    count = len(timeline.what)
    for rival in rivals:
        fit = _whole(timeline, table, rival)
        if fit is not None:
            timeline.complete(rival.node, [timeline.take(fit)])
    held = [a for a in timeline.what[count:] if isinstance(a, Assignment) and a.end > a.start]
    timeline.back(mark)
    return held


def nearest(
    timeline: Timeline, places: Sequence[tuple[DeviceIndex, int]], whole: Fit, end: float, count: int
) -> list[Reach]:
    """Return what other places (device, and most groups at once) can do of a kernel, the ``count`` - 1 in which an
    equal share would end first, then what its own device can (nothing: no step would end elsewhere before ``end``).

    Every device that a kernel is divided among needs bytes of all that those before it were divided among, so transfers
    grow with the square of the count. Where other kernels could run meanwhile, more devices gain less than these cost.
    """
    node, home, groups = whole.node, whole.device, timeline.problem.splits[whole.node].groups
    share, step = 1.0 / min(count, groups), 1.0 / min(PLANNING.steps, groups)
    ready = timeline.ready(node, ON_HOST)
    found: list[tuple[float, DeviceIndex, int]] = []  # the ends if all data were there
    for device, most in places:
        if device != home:
            seconds, first = timeline.rows[node][device], timeline.kernels[device].first
            if first(ready, seconds * step) + seconds * step < end:
                found.append((first(ready, seconds * share) + seconds * share, device, most))
    chosen = [*sorted(found)[: count - 1], (0.0, home, 0)] if found else []
    return [timeline.reach(node, device, most) for _, device, most in chosen]


def available(timeline: Timeline, reaches: Sequence[Reach], whole: Fit, end: float) -> list[Slot]:
    """Return the time slots between the end of the last predecessor and ``end``, that of the kernel if it ran whole
    (and its results were on the host), on these devices (lines 5 to 9). Its own, which is last, begins where its device
    is free: fewer groups need wait for fewer bytes."""
    slots: list[Slot] = []
    home, start = whole.device, whole.start
    low_own = start
    for reach in sorted(reaches):
        for low, high in timeline.kernels[reach.device].idle(reach.ready, end):
            if reach.device != home or high <= start:
                slots.append(Slot(low, high, reach))
            else:
                low_own = min(low_own, low)
    slots.append(Slot(low_own, INFINITE, reaches[-1]))
    return slots


def climb(problem: Problem, node: int, slots: list[Slot]) -> list[int]:
    """Return the numbers of groups by slot, from all in the last one on by hill climbing (Algorithm 2). A slot with one
    step more ends later than it did, so the kernel then ends with that slot or with the last of the others; the best
    candidate is the one whose own slot ends first."""
    groups = problem.splits[node].groups
    step = max(1, groups // PLANNING.steps)
    shares = [0] * len(slots)
    merge = problem.merge_seconds(node, slots[-1].reach.device, 1)
    if not merge:  # up to about where all end together, the last slot ends last, and each step makes the kernel shorter
        shares[:-1] = [max(0, n - 1) // step * step for n in water_fill(slots, groups)[:-1]]
    shares[-1] = groups - sum(shares)
    ends = [_end(slot, n) for slot, n in zip(slots, shares, strict=True)]
    now = max(ends)
    ahead = [_end(slot, n + step) for slot, n in zip(slots, shares, strict=True)]  # with one step more
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


def worth_it(slots: Sequence[Slot], shares: Sequence[int]) -> list[Slot]:
    """Return the slots that have a quarter of an equal share or more, and the last one: each needs transfers of its
    own, and so does whoever reads what it writes."""
    used, groups = sum(n > 0 for n in shares), sum(shares)
    return [slot for slot, n in zip(slots, shares, strict=True) if 4 * n * used >= groups or slot is slots[-1]]


def _end(slot: Slot, groups: int) -> float:
    """Return when ``groups`` end in a slot; infinite where they do not fit into it or into the device's memory."""
    if groups == 0:
        return 0.0
    if groups > slot.reach.most:
        return INFINITE
    end = slot.reach.end(groups, slot.low)
    return end if end <= slot.high else INFINITE


def _merged(
    slots: list[Slot], shares: list[int], source: int, left: int, ahead: list[float], last: float, merge: float
) -> tuple[int, float]:
    """Return the best candidate and when the kernel ends with it, where every device but one costs a merge."""
    used = {s.reach.device for i, s in enumerate(slots) if (left if i == source else shares[i])}
    lengths = [max(end, last) + merge * (len(used | {s.reach.device}) - 1) for s, end in zip(slots, ahead, strict=True)]
    pick = lengths.index(min(lengths))
    return pick, lengths[pick]


@register("mkmd")
class Mkmd:
    """MKMD's coarse-grain scheduling and fine-grain partitioning; the coarse plan where that is shorter: each kernel is
    partitioned so that it ends earlier itself, and kernels that wait for it may then end later.

    Ours: where the coarse plan draws nearly all of the host's memory bandwidth, no kernel could end earlier for a
    partition, and the second phase does without the devices in that memory. (In the paper, kernels that only read their
    matrices are much faster on GPUs, and go there anyhow: Section 6.1.)"""

    options = Options("mkmd")

    def plan(self, problem: Problem) -> Plan:
        table = look_up(problem)
        order = in_priority(problem, table)
        first = coarse(problem, table, order)
        found = [("coarse", first)]
        if first.busy > PLANNING.nearly_all and (apart := off_the_host(problem, table)) is not None:
            table = apart
        found.insert(0, ("fine", partition(problem, table, first)))
        least = PLANNING.nearly * min(timeline.makespan for _, timeline in found)
        plans = [as_plan(problem, t, "mkmd", phase=name) for name, t in found if t.makespan <= least]
        return best_of(problem, plans)
