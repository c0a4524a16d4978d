"""``repara``: the best plan of a tree of all plans, with kernels in sixteenths.

"Static partitioning and scheduling of kernels from profiles" (REPARA), Sections 2.1 and 2.2, Algorithms 1 to 5. The
search counts time as the paper does: a partition's transfers and its run follow one another on its device. Its plan is
then laid out on the machine's timeline like those of ``mkmd`` and ``balance``: in the order found, each partition on
its device, only missing bytes moved, transfers beside kernels. The search begins with these policies' plans; one of
them is the answer where it ends first on the timeline, which the paper's model does not know.
"""

from __future__ import annotations

import math
from dataclasses import replace

from manycl.plan.options import Options, one_of, whole
from manycl.plan.plan import Plan
from manycl.plan.policies.balance import Balance
from manycl.plan.policies.papers.mkmd import Mkmd
from manycl.plan.policies.papers.mkmd_coarse import as_plan, look_up
from manycl.plan.policy import register
from manycl.plan.problem import Problem
from manycl.plan.search.objective import OPTIONS, TIME, cheapest, objective, with_fewer_devices
from manycl.plan.search.partition_costs import PartitionCosts
from manycl.plan.search.tree_search import SearchResult, search
from manycl.plan.timeline.timeline import Timeline
from manycl.plan.tuning import PLANNING

_EFFORT = whole("effort", PLANNING.tree, 1)
_RATES = whole("rates", PLANNING.rates, 1, 1000)
_BESIDE = one_of("beside", "yes", "no")


@register("repara")
class Repara:
    """REPARA's search, pruned. Options ``effort`` (nodes of the tree to enter), ``rates`` (equal parts of a kernel's
    data), ``beside`` (whether plans of other policies count beside the tree's; ``no``: as in the paper), ``objective``
    and ``deadline`` (what the best plan is)."""

    options = Options("repara", _EFFORT, _RATES, _BESIDE, *OPTIONS)

    def plan(self, problem: Problem) -> Plan:
        given = self.options.read(problem.options)
        wanted = objective(problem, given)
        table = look_up(problem)
        timeline = Timeline(problem, table.rows)
        costs = PartitionCosts(problem, timeline.intervals)
        used = _enter(costs, given[_RATES])
        beside = (Mkmd(), Balance()) if given[_BESIDE] == "yes" else ()
        plain = replace(problem, options={})
        parts = [plain] if wanted == TIME else list(with_fewer_devices(plain))
        others = [policy.plan(part) for policy in beside for part in parts]
        found = search(costs, given[_EFFORT], others, wanted)
        lay_out(timeline, costs, found)
        plan = cheapest(problem, wanted, [as_plan(problem, timeline, "tree"), *others])
        told = {
            "complete": found.complete,
            "rates": used,
            "model_seconds": found.cost,
            "bound": found.bound,
            "visited": found.visited,
            "chosen": plan.policy,
        }
        return replace(plan, policy="repara", details=told)


def _enter(costs: PartitionCosts, rates: int) -> int:
    """Add the choices of all nodes that are not fixed, with ``rates`` equal parts or, where that is too much for a
    graph of this size, half of them, and so on (1: kernels are divided only where they must be). Return how many."""
    problem = costs.problem
    nodes = [n for n in range(len(costs.choices)) if n not in costs.end]
    places = [len(problem.places(n)) for n in nodes if n in problem.splits]
    while rates > 1 and sum(math.comb(rates + count - 1, rates) for count in places) > PLANNING.choices:
        rates //= 2
    for node in nodes:
        costs.add(node, divided=False)
        if node in problem.splits and (rates > 1 or not costs.choices[node]):
            costs.add(node, divided=True, rates=rates)
    return rates


def lay_out(timeline: Timeline, costs: PartitionCosts, found: SearchResult) -> None:
    """Place the partitions in the order found."""
    ops: dict[int, list[int]] = {}
    for node, c, part in found.path:
        way = costs.choices[node][c].way
        device, first, groups = way[part]
        mine = ops.setdefault(node, [])
        mine.append(timeline.take(timeline.fit(node, device, first, groups)))
        if len(mine) == len(way):
            timeline.complete(node, mine)
