"""``balance``: every kernel divided so that all its parts end together, computed instead of searched for.

This policy is ours. A kernel's time on a device is affine in its work-groups, so the numbers of groups with which it
ends earliest in the free time of all devices are found by water-filling (``plan/search/partition.py``) where MKMD
climbs in steps of 1 %. A kernel is split when it ends earlier so than on the best device alone (where some kernels are
brief, plans are also made in which it must end earlier by more than a handover, and in which short kernels come first).
Then the kernels are ranked again by the time that they took in the best plan so far (a split kernel is short), and
planned again. The best plan of all rounds is taken, that of ``mkmd_coarse`` among them, so it is never predicted to be
slower. Where plans draw most of the host's memory bandwidth, one without the devices in that memory is tried, too. For
a repeated graph the best plans are foreseen by the engine, and the fastest of these is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from manycl.plan.adapt.loops import in_repetitions
from manycl.plan.foreseen import best_of, how_many
from manycl.plan.options import Options, whole
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policies.classical import portfolio
from manycl.plan.policies.papers.mkmd_coarse import (
    Table,
    as_plan,
    coarse,
    look_up,
    off_the_host,
    place,
    priorities,
    weights,
)
from manycl.plan.policy import register
from manycl.plan.problem import Problem
from manycl.plan.search.insertion import setting
from manycl.plan.search.partition import Slot, of_equal_cost, place_ranges, water_fill, where_data_are
from manycl.plan.search.rank import priority_order
from manycl.plan.timeline.reach import Reach
from manycl.plan.timeline.timeline import Timeline
from manycl.plan.tuning import PLANNING

_ROUNDS = whole("rounds", 3, 1)


def split_all(problem: Problem, table: Table, order: Sequence[int], gain: float = 0.0) -> Timeline:
    """Place all nodes that are not fixed, in this order, each split if that gains more than ``gain`` seconds."""

    def put(timeline: Timeline, table: Table, node: int) -> None:
        _place(timeline, table, node, gain)

    return coarse(problem, table, order, put)


def short_first(problem: Problem, weight: Sequence[float], order: Sequence[int]) -> list[int]:
    """Return the order with short kernels first that wait for no long one: their results are transferred while long
    ones run, where a device would otherwise be busy with a long one when they can begin."""
    short: set[int] = set()
    most = PLANNING.short * max(weight, default=0.0)
    for node, before in enumerate(problem.graph.predecessors):
        if weight[node] < most and short.issuperset(before):
            short.add(node)
    return sorted(order, key=lambda node: node not in short)


def _place(timeline: Timeline, table: Table, node: int, gain: float) -> None:
    split, found = timeline.problem.splits.get(node), timeline.problem.partners(node, table.places[node])
    if split is None or not found:
        place(timeline, table, node)
        return
    slots: list[Slot] = []
    alone, home = float("inf"), found[0][0]  # about when the best device alone would end it
    for device, most in found:
        reach = timeline.reach(node, device, most)
        free = _free(timeline, reach)
        slots += free
        if most == 0:
            end = next(e for s in free if (e := reach.end(split.groups, s.low)) <= s.high)
            if end < alone:
                alone, home = end, device
    mark = timeline.mark()

    def placed(shares: Sequence[int]) -> float:
        timeline.back(mark)
        used = {s.reach.device for s, n in zip(slots, shares, strict=True) if n}
        if len(used) < 2:
            return float("inf")
        return place_ranges(timeline, node, slots, shares, home if home in used else min(used))

    still = where_data_are(timeline, node, slots)
    end_still = placed(still) if still else float("inf")
    filled = of_equal_cost(timeline, node, slots, water_fill(slots, split.groups))
    end = end_still if filled == still else placed(filled)
    # data move only if that gains more than predictions are exact to
    if still and end_still <= end + timeline.problem.handover:
        end = end_still if filled == still else placed(still)
    if end + gain >= alone:
        timeline.back(mark)
        place(timeline, table, node)


def _free(timeline: Timeline, reach: Reach) -> list[Slot]:
    """Return the times when a device is free: the time after its last operation, and the first few gaps before it that
    are long enough to be worth it."""
    gaps = timeline.kernels[reach.device].idle(reach.ready, float("inf"))
    worth = [Slot(low, high, reach) for low, high in gaps[:-1] if high - low > 4 * reach.once]
    return [*worth[: PLANNING.gaps], Slot(gaps[-1][0], gaps[-1][1], reach)]


def taken(timeline: Timeline, nodes: int) -> list[float]:
    """Return the seconds from the first start to the last end of every node."""
    start = [float("inf")] * nodes
    end = [0.0] * nodes
    for what in timeline.what:
        if isinstance(what, Assignment):
            start[what.node] = min(start[what.node], what.start)
            end[what.node] = max(end[what.node], what.end)
    return [max(0.0, b - a) for a, b in zip(start, end, strict=True)]


@register("balance")
class Balance:
    """The policy of the best split over time slots, with re-ranking while it helps. Option ``rounds``: how often."""

    options = Options("balance", _ROUNDS)

    def plan(self, problem: Problem) -> Plan:
        if (repeated := in_repetitions(problem, self.plan)) is not None:
            return repeated
        rounds = self.options.read(problem.options)[_ROUNDS]
        table = look_up(problem)
        weight = weights(table)
        order = priority_order(problem.graph, priorities(problem, weight))
        found = [("coarse", coarse(problem, table, order))]
        if not problem.splits:
            found.append(("portfolio", _like_portfolio(problem, table)))
        first: list[tuple[Timeline, float]] = []
        placed = set[tuple[tuple[int, ...], float]]()  # orders and gains: equal ones give the same timeline
        more = how_many(problem, found[0][1].makespan) > 1
        for name, start, gain in _starts(problem, weight, order, more):
            if (way := (tuple(start), gain)) in placed:
                continue
            placed.add(way)
            timeline = split_all(problem, table, start, gain)
            first.append((timeline, gain))
            found.append((name, timeline))
        best = min((p for _, p in found), key=lambda p: p.makespan)
        if best.busy > PLANNING.congested and (apart := off_the_host(problem, table)) is not None:
            found.append(("off the host", split_all(problem, apart, order)))
        last, gain = min(first, key=lambda f: f[0].makespan)
        for turn in range(2, rounds + 1):
            weight = taken(last, len(weight))
            order = priority_order(problem.graph, priorities(problem, weight))
            if (tuple(order), gain) in placed:
                break
            last = split_all(problem, table, order, gain)
            if last.makespan >= min(p.makespan for _, p in found):
                break  # ranking again has not helped
            found.append((f"round {turn}", last))
        if not more and problem.contention.limited:  # their true ends are known when they are timed
            found = [found[0], *(f for f in found[1:] if f[1].makespan <= PLANNING.nearly * best.makespan)]
        elif not more:
            found = [min(found, key=lambda f: f[1].makespan)]
        return best_of(problem, [as_plan(problem, p, "balance", chosen=name) for name, p in found])


def _starts(
    problem: Problem, weight: Sequence[float], order: Sequence[int], more: bool
) -> Iterator[tuple[str, Sequence[int], float]]:
    """Yield the plans to begin with: name, order of nodes, and the seconds that dividing a node must gain. ``more``:
    plans will be foreseen by the engine, so their times are known better."""
    yield "round 1", order, 0.0
    brief = any(0.0 < seconds < 2 * PLANNING.worth * problem.handover for seconds in weight)
    if brief:
        short = short_first(problem, weight, order)
        yield "careful", order, problem.handover
        yield "short first", short, problem.handover
        if more:
            yield "short first, all divided", short, 0.0
    if more:
        yield "program order", range(len(weight)), problem.handover if brief else 0.0


def _like_portfolio(problem: Problem, table: Table) -> Timeline:
    """Return the timeline with the order and the devices that ``portfolio`` finds."""
    found, _ = portfolio.schedule(setting(replace(problem, options={}), "balance"), PLANNING.effort // 10)
    timeline = Timeline(problem, table.rows)
    fixed = {a.node for a in problem.fixed}
    for a in found.assignments:
        if a.node in fixed:
            continue
        timeline.complete(a.node, [timeline.take(timeline.fit(a.node, a.device))])
    return timeline
