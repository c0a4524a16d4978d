"""Chunks of launches whose shares may move while they run; a chunk is a range like any other."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from manycl import flags
from manycl.graph.access import interfere
from manycl.graph.graph import BufferKey, Launch, Node
from manycl.graph.reduction import Reduction
from manycl.machine import Device
from manycl.model.occupancy import work_groups
from manycl.plan.plan import Assignment, Plan
from manycl.plan.preemptible import endings, least_groups, longest_packet, may_differ
from manycl.plan.problem import Problem
from manycl.run.lowering.declared_access import divided
from manycl.run.lowering.merging import RangeTask
from manycl.run.lowering.ranges import launches_of
from manycl.run.lowering.steps import RANGE, ChunkDeque, Chunks
from manycl.run.stealing.packet_size import settled_packets
from manycl.run.stealing.work_stealing import PART

MOST = 48
"""The most chunks of a launch for each of its shares: cutting its buffers along them takes some 50 us a chunk."""
CHUNKS_PER_PACKET = 2.0
"""Chunks for each of the packets that a share is to run in, where other processes may demand its device; our own
choice."""
FINEST = 300
"""The smallest part of a launch that a chunk is (1 / FINEST), while all of the launch counts: less decides nothing; our
own choice."""
FINEST_DEMANDED = 1024
"""The smallest part of a launch that a chunk is (1 / FINEST_DEMANDED) where other processes may demand its device:
chunks are as short as packets are to be there; our own choice."""

TOGETHER = (64, 12, 12)
"""Work-items in each dimension that a processor's threads run beside each other in vectors and in registers, at most
(``analysis/work_group``). A chunk has so many, or a multiple, as a remainder takes longer; our own choice."""
LEAST = 30
"""Such groups of work-items that a launch must have for its chunks to be multiples of them; our own choice."""


def in_chunks(plan: Plan, problem: Problem) -> Plan:
    """Return the plan with the ranges of launches whose shares may move (``Plan.movable``) cut into chunks."""
    movable, still, graph = frozenset(plan.movable), frozenset(plan.still), problem.graph
    shares: dict[int, list[int]] = {}
    settled = settled_packets(plan)
    packets: dict[int, float] = {}  # the most packets in which a device is to run its share, by launch
    for a in plan.assignments:
        if a.node in movable and a.is_range:
            shares.setdefault(a.node, []).append(a.groups)
            size = settled.get((a.node, a.device))
            count = a.groups / size if size else _packets(problem, a)
            packets[a.node] = max(packets.get(a.node, 0.0), count)
    most = {node: max(MOST, min(math.ceil(CHUNKS_PER_PACKET * packets[node]), FINEST_DEMANDED)) for node in shares}
    least = {node: -(-sum(groups) // max(FINEST, most[node])) for node, groups in shares.items()}
    counts = {node: iter(_counts(groups, least[node], most[node])) for node, groups in shares.items()}
    out, others = [], may_differ(problem, flags.strict())
    for a in plan.assignments:
        if a.node not in movable or not a.is_range:
            out.append(a)
            continue
        assert isinstance(a.dimension, int), "it is a range"
        device = problem.machine.devices[a.device]
        together = run_together(graph.nodes[a.node], a.dimension, sum(shares[a.node]), device)
        if a.node in still:
            count = endings(problem, a, others)
            if a.node not in plan.in_turn:
                count *= problem.machine.least_chunks(a.device)
            sizes = evenly(a.groups, count, together)
        else:
            sizes = cut(a.groups, next(counts[a.node]), least[a.node], together)
        each = (a.end - a.start) / a.groups
        for low, high in pairwise((0, *accumulate(sizes))):
            start, end = a.start + each * low, a.start + each * high
            out.append(a._replace(first=a.first + low, groups=high - low, start=start, end=end))
    return replace(plan, assignments=tuple(out), events=())


def _packets(problem: Problem, share: Assignment) -> float:
    """Return the number of packets in which a share is to run at most."""
    seconds, split = longest_packet(problem, share.device), problem.splits.get(share.node)
    if seconds == math.inf or split is None:
        return 0.0
    least = least_groups(problem, share.node, share.device, split.groups)
    return min((share.end - share.start) / seconds, share.groups / least)


def evenly(groups: int, most: int, together: int = 1) -> list[int]:
    """Return the sizes of at most ``most`` chunks of ``groups`` work-groups, which are alike; each but the last is a
    multiple of ``together``."""
    size = -(-groups // (together * max(1, most))) * together
    whole, rest = divmod(groups, size)
    return [size] * whole + [rest] * (rest > 0)


def _counts(shares: Sequence[int], least: int, most: int) -> list[int]:
    """Return how many chunks each share of a launch (``shares``: in work-groups) may have. All get as many, but chunks
    have ``least`` work-groups or more, and the chunks that small shares cannot use go to the others. ``most``: chunks
    for each share."""
    left, counts = most * len(shares), [1] * len(shares)
    ascending = sorted(range(len(shares)), key=shares.__getitem__)
    for place, share in enumerate(ascending):
        counts[share] = max(1, min(shares[share] // least, left // (len(shares) - place)))
        left -= counts[share]
    return counts


def run_together(node: Node, dimension: int, groups: int, device: Device) -> int:
    """Return the number of work-groups along a dimension of which a device's chunk has a multiple; the launch has
    ``groups``. All units of a GPU have as many then."""
    if not isinstance(node, Launch) or node.local_size is None:
        return 1
    items, each = TOGETHER[dimension], node.local_size[dimension]
    if device.kind != "cpu":
        items, each = device.compute_units, work_groups(node) // groups
    found = items // math.gcd(items, each)
    while found * LEAST > groups and found > 1:
        found = found // 2 if found % 2 == 0 else 1
    return found


def cut(groups: int, most: int, least: int, together: int = 1) -> list[int]:
    """Return the sizes of at most ``most`` chunks of ``groups`` work-groups. Each has about ``least`` or more, they
    become ever smaller, and each but the last is a multiple of ``together``."""
    if together > 1:
        whole, over = divmod(groups, together)
        if not whole:
            return [over]
        *before, last = (together * size for size in cut(whole, most, -(-least // together)))
        return [*before, last + over]
    sizes: list[int] = []
    rest = groups
    while rest > 0:
        size = max(least, math.ceil(rest * PART))
        if len(sizes) == most - 1 or rest - size < least:
            size = rest
        sizes.append(size)
        rest -= size
    # chunks that are left over divide the largest ones, in their positions
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
    return [size for chunks in halves for size in chunks]


def chunks_of(
    problem: Problem, node: int, drafts: Sequence[RangeTask], tokens: Sequence[int], sizes: Mapping[BufferKey, int]
) -> Chunks | None:
    """Return the chunks of a node whose steps these are, as range tasks and by token. None where its shares may not
    move: a device has several, or partial results of devices would have to be merged."""
    launch, ordered = problem.graph.nodes[node], sorted(zip(drafts, tokens, strict=True), key=lambda c: c[0].step.first)
    steps = [d.step for d, _ in ordered]
    if not isinstance(launch, Launch) or any(s.role != RANGE or s.method != Reduction.NONE.words() for s in steps):
        return None
    if any(d.windows for d, _ in ordered):
        return None
    if problem.machine.memories > 1:  # each chunk may run in any memory
        for key in launch.writes:
            touched = [d.access[key] for d, _ in ordered]
            if interfere([(access.reads, access.writes) for access in touched]):
                return None
    deques: list[ChunkDeque] = []
    for number, (d, _) in enumerate(ordered):
        if deques and deques[-1][:2] == (d.device, d.queue):
            deques[-1] = deques[-1]._replace(last=number + 1)
        else:
            deques.append(ChunkDeque(d.device, d.queue, number, number + 1))
    if len({s.device for s in deques}) < len(deques):
        return None
    dimension = steps[0].dimension
    assert dimension is not None
    launches = launches_of(divided(problem, node, launch, dimension, sizes))
    groups = tuple(s.groups for s in steps)
    before = (0, *accumulate(groups))
    items = launch.global_size[dimension] // before[-1]
    return Chunks(tuple(t for _, t in ordered), groups, tuple(deques), launches.packets(before), dimension, items)
