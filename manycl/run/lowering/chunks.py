"""Shares of launches that may move while they run, cut into cells: ranges like any other."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from manycl.graph.access import clash
from manycl.graph.division import Division, divide
from manycl.graph.graph import BufferKey, Launch, Node
from manycl.graph.reduction import Reduction
from manycl.plan.plan import Assignment, Plan
from manycl.plan.preemptible import least_groups, longest_packet
from manycl.plan.problem import Problem
from manycl.run.lowering.declared_access import Declared
from manycl.run.lowering.range_tasks import RangeTask
from manycl.run.lowering.ranges import launches_of
from manycl.run.lowering.steps import RANGE, Chunks, Stock
from manycl.run.stealing.packet_size import settled_packets

MOST = 48
"""Cells of a launch for each of its shares: cutting its buffers along them takes some 50 us a cell."""
CELLS = 2.0
"""Cells for each of the packets that a share is to run in, where others ask for its device."""
PART = 3
"""A cell is at most this part of what is behind it in its share: what is left last, and what is stolen, is at the
end, …"""
FINEST = 300
"""… but no less than this part of the launch, as long as all of it counts: a part of a percent decides nothing. Where
others ask for its device, …"""
FINEST_DEMANDED = 1024
"""… it is as short as packets are to be there, down to this part."""

TOGETHER = (64, 12, 12)
"""Work-items in each dimension that a processor's threads run beside each other, or a multiple of that, in vectors and
in registers (``analysis/work_group``): so many, or a multiple, are a cell, as what is left over takes longer, …"""
LEAST = 30
"""… as long as a launch has so many of them."""


def in_cells(plan: Plan, problem: Problem) -> Plan:
    """The ranges of launches whose shares may move (``Plan.movable``), cut."""
    movable, graph = frozenset(plan.movable), problem.graph
    shares: dict[int, list[int]] = {}
    settled = settled_packets(plan)
    packets: dict[int, float] = {}  # that devices are to be given of a launch one after another
    for a in plan.assignments:
        if a.node in movable and a.is_range:
            shares.setdefault(a.node, []).append(a.groups)
            size = settled.get((a.node, a.device))
            count = a.groups / size if size else _packets(problem, a)
            packets[a.node] = max(packets.get(a.node, 0.0), count)
    most = {node: max(MOST, min(math.ceil(CELLS * packets[node]), FINEST_DEMANDED)) for node in shares}
    least = {node: -(-sum(groups) // max(FINEST, most[node])) for node, groups in shares.items()}
    counts = {node: iter(_counts(groups, least[node], most[node])) for node, groups in shares.items()}
    together: dict[int, int] = {}
    out = []
    for a in plan.assignments:
        if a.node not in movable or not a.is_range:
            out.append(a)
            continue
        if a.node not in together:
            assert isinstance(a.dimension, int), "it is a range"
            together[a.node] = run_together(graph.nodes[a.node], a.dimension, sum(shares[a.node]))
        sizes = cut(a.groups, next(counts[a.node]), least[a.node], together[a.node])
        each = (a.end - a.start) / a.groups
        for low, high in pairwise((0, *accumulate(sizes))):
            start, end = a.start + each * low, a.start + each * high
            out.append(a._replace(first=a.first + low, groups=high - low, start=start, end=end))
    return replace(plan, assignments=tuple(out), events=())


def _packets(problem: Problem, share: Assignment) -> float:
    """In how many packets a share is to run at most."""
    seconds, split = longest_packet(problem, share.device), problem.splits.get(share.node)
    if seconds == math.inf or split is None:
        return 0.0
    least = least_groups(problem, share.node, share.device, split.groups)
    return min((share.end - share.start) / seconds, share.groups / least)


def _counts(shares: Sequence[int], least: int, most: int) -> list[int]:
    """How many cells each share of a launch may have, in work-groups, which are ``least`` or more: all as many, and
    what small ones have no use for is the others'; ``most``: for each share."""
    left, counts = most * len(shares), [1] * len(shares)
    ascending = sorted(range(len(shares)), key=shares.__getitem__)
    for place, share in enumerate(ascending):
        counts[share] = max(1, min(shares[share] // least, left // (len(shares) - place)))
        left -= counts[share]
    return counts


def run_together(node: Node, dimension: int, groups: int) -> int:
    """How many of so many work-groups along a dimension a cell has, or a multiple."""
    if not isinstance(node, Launch) or node.local_size is None:
        return 1
    items, each = TOGETHER[dimension], node.local_size[dimension]
    found = items // math.gcd(items, each)
    while found * LEAST > groups and found > 1:
        found = found // 2 if found % 2 == 0 else 1
    return found


def cut(groups: int, most: int, least: int, together: int = 1) -> list[int]:
    """So many work-groups in at most ``most`` cells of about ``least`` or more, which become ever smaller: each a
    multiple of ``together``, but the last one."""
    if together > 1:
        whole, over = divmod(groups, together)
        if not whole:
            return [over]
        *before, last = (together * size for size in cut(whole, most, -(-least // together)))
        return [*before, last + over]
    sizes: list[int] = []
    rest = groups
    while rest > 0:
        size = max(least, -(-rest // PART))
        if len(sizes) == most - 1 or rest - size < least:
            size = rest
        sizes.append(size)
        rest -= size
    # the cells that are left make the largest ones smaller, in their places
    halves = [[size] for size in sizes]
    largest = [(-size, place) for place, size in enumerate(sizes)]
    heapq.heapify(largest)
    for _ in range(most - len(sizes)):
        size, place = -largest[0][0], largest[0][1]
        if size < 2 * least:
            break
        at = max(range(len(halves[place])), key=halves[place].__getitem__)
        halves[place][at : at + 1] = [size - size // 2, size // 2]
        heapq.heapreplace(largest, (-max(halves[place]), place))
    return [size for cells in halves for size in cells]


def cells_of(
    problem: Problem, node: int, drafts: Sequence[RangeTask], tokens: Sequence[int], sizes: Mapping[BufferKey, int]
) -> Chunks | None:
    """The cells of a node of which these are the steps, in drafts and by token; None where its shares may not move: a
    device has several, or what devices write would have to be put together."""
    launch, ordered = problem.graph.nodes[node], sorted(zip(drafts, tokens, strict=True), key=lambda c: c[0].step.first)
    steps = [d.step for d, _ in ordered]
    if not isinstance(launch, Launch) or any(s.role != RANGE or s.method != Reduction.NONE.words() for s in steps):
        return None
    if any(d.windows for d, _ in ordered):
        return None
    if problem.machine.memories > 1:  # each cell may run in any memory
        found, apart = [d.access for d, _ in ordered], range(len(ordered))
        if any(clash(key, found, apart) for key in launch.writes):
            return None
    stocks: list[Stock] = []
    for number, (d, _) in enumerate(ordered):
        if stocks and stocks[-1][:2] == (d.device, d.queue):
            stocks[-1] = stocks[-1]._replace(last=number + 1)
        else:
            stocks.append(Stock(d.device, d.queue, number, number + 1))
    if len({s.device for s in stocks}) < len(stocks):
        return None
    dimension = steps[0].dimension
    assert dimension is not None
    launches = launches_of(_division(problem, node, launch, dimension, sizes))
    groups = tuple(s.groups for s in steps)
    before = (0, *accumulate(groups))
    items = launch.global_size[dimension] // before[-1]
    return Chunks(tuple(t for _, t in ordered), groups, tuple(stocks), launches.packets(before), dimension, items)


def _division(problem: Problem, node: int, launch: Launch, dimension: int, sizes: Mapping[BufferKey, int]) -> Division:
    if not launch.program.source and (split := problem.splits.get(node)) is not None:
        return Declared(launch, split, sizes)
    return divide(launch, dimension, sizes)
