"""Moving shares: for each divided launch of a plan, whether its shares may move from device to device while they run,
and why. Pure.

Shares that were planned from wrong times end at different times: a launch takes longer by about 1.5 times the part by
which times are off (simulated: 15 % longer where one device's are 10 % off, 44 % where they are 30 %). Moving shares
avoids nearly all of that. The cost is known: packets that are decided and enqueued one by one, and a launch that is cut
into chunks before it runs. Models are not wrong about devices that are alike, so between them shares stay, unless the
last runs differed from the plan: another program slows one of them down.

Where shares move, time decides which device runs what. Devices of one model and driver give the same bits, whichever of
them runs a work-group; where they are not alike, moving has to be allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from manycl.graph.graph import Launch
from manycl.graph.reduction import Reduction
from manycl.graph.work_groups import with_work_groups
from manycl.machine import HOST, DeviceIndex, are_of_a_kind
from manycl.plan.plan import WHOLE, Assignment, Plan
from manycl.plan.problem import Problem

SHORTEST = 20e-3
"""Seconds of the longest share, or of the rest of a run, from which moving shares, or planning anew, is considered. For
shorter launches it matters how soon the host learns of each packet's end (simulated: 1 % longer for 20 ms, 10 to 20 %
for 1 ms)."""
LOST = 1.5
"""The part by which a launch takes longer, for each part by which its times are off (simulated)."""
AT_MOST = 0.6
"""The most by which a launch is taken to be longer, as a part of it (simulated: times assumed to be half)."""
PACKETS = 16
"""Packets of a device in a launch, one after another; our own choice."""
ENDINGS = 3
"""Packets of a device whose launches can end early: it takes all of its share at once, and others steal a few
(simulated and measured: 2 packets in all for two devices that end together, up to 7 where times are off)."""
ENQUEUING = 0.25e-3
"""Seconds of a processor's core that a packet costs devices that are processors themselves: the thread that decides and
enqueues it is woken for it (measured with two native devices, on two cores)."""
CUTTING = 8e-3
"""Seconds of cutting a launch into chunks (``run/lowering/chunks.py``), once for all launches that are the same; our
own choice."""
MOVING = "moving"
"""The key of the verdicts in a plan's details."""


@dataclass(frozen=True, slots=True)
class MovingVerdict:
    """The verdict on ``launches`` launches of a kernel: whether their shares move, and why. ``gain`` and ``cost`` of
    moving them are seconds of all of them together. ``alike``: results have the same bits on all its devices."""

    kernel: str
    launches: int
    moves: bool
    reason: str
    gain: float
    cost: float
    alike: bool


def with_moving_shares(problem: Problem, plan: Plan, deterministic: bool = False) -> Plan:
    """Return the plan with ``movable``, and with the verdicts in its details; the plan itself where its policy has set
    ``movable``. ``deterministic``: shares stay where the plan has them on devices that are not alike, which may differ
    in the last bits of results."""
    if plan.movable:
        return plan
    ranges: dict[int, list[Assignment]] = {}
    for a in plan.assignments:
        if a.dimension is not WHOLE:
            ranges.setdefault(a.node, []).append(a)
    same: dict[tuple[object, ...], list[int]] = {}  # nodes that run alike, and are cut once
    for node, mine in ranges.items():
        task = problem.graph.nodes[node]
        if isinstance(task, Launch):
            alike = task.kernel.name, task.global_size, tuple((a.device, a.first, a.groups) for a in mine)
            same.setdefault(alike, []).append(node)
    movable: list[int] = []
    verdicts: list[MovingVerdict] = []
    for nodes in same.values():
        verdict = _verdict(problem, nodes, ranges[nodes[0]], deterministic)
        if verdict is not None:
            verdicts.append(verdict)
            movable += nodes if verdict.moves else ()
    if not verdicts:
        return plan
    details = {**plan.details, MOVING: [asdict(v) for v in verdicts]}
    return replace(plan, movable=tuple(sorted(movable)), details=details)


def _verdict(
    problem: Problem, nodes: Sequence[int], ranges: Sequence[Assignment], deterministic: bool
) -> MovingVerdict | None:
    """Return the verdict on nodes that run alike; None where there is nothing to decide."""
    task, devices = problem.graph.nodes[nodes[0]], [a.device for a in ranges]
    assert isinstance(task, Launch)
    longest, places = max(a.end - a.start for a in ranges), sorted(set(devices))
    if longest < SHORTEST or len(places) < 2:
        return None
    doubt, off = problem.estimates.doubt(nodes[0], places), problem.estimates.off(nodes[0], places)
    if max(doubt, off) <= 0.0:
        return None
    gain = min(LOST * max(doubt, off), AT_MOST) * longest * len(nodes)
    alike = _are_alike(problem, task, places)
    reason = next(_obstacles(problem, nodes[0], ranges, deterministic and not alike), "")
    cost = _cost(problem, task, ranges) * len(nodes) + CUTTING
    moves = not reason and gain > cost
    was_off = f"one device took {100 * off:.0f} % longer than another in the last runs, by what was planned"
    reason = reason or (was_off if off > doubt else f"times may be {100 * doubt:.0f} % off")
    return MovingVerdict(task.kernel.name, len(nodes), moves, reason, gain, cost, alike)


def _cost(problem: Problem, task: Launch, ranges: Sequence[Assignment]) -> float:
    """Return the seconds by which a launch takes longer when its shares may move."""
    devices = [problem.machine.devices[d] for d in sorted({a.device for a in ranges})]
    in_order = is_in_order(task, ranges[0].range.dimension)
    packets = [ENDINGS if in_order and d.shortens and d.memory == HOST else PACKETS for d in devices]
    cost = max(n * (problem.handover + d.launch_overhead) for n, d in zip(packets, devices, strict=True))
    if all(d.kind == "cpu" for d in devices):
        cost += sum(packets) * ENQUEUING / max(1, sum(d.compute_units for d in devices))
    return cost


def is_in_order(launch: Launch, dimension: int) -> bool:
    """Return whether ranges along a dimension run one after another in a launch of them all, so that it can end early:
    work-groups begin with dimension 0 fastest."""
    local = with_work_groups(launch).local_size
    return local is not None and launch.global_size[dimension + 1 :] == local[dimension + 1 :]


def _are_alike(problem: Problem, task: Launch, places: Sequence[DeviceIndex]) -> bool:
    """Return whether devices give the same bits: they are of one kind, and run the same version."""
    return not task.versions and are_of_a_kind([problem.machine.devices[d] for d in places])


def _obstacles(problem: Problem, node: int, ranges: Sequence[Assignment], deterministic: bool) -> Iterator[str]:
    if deterministic:
        yield "devices may differ in last bits, and results are to be the same in every run (MANYCL_DETERMINISTIC=0)"
    if problem.is_limited(node):
        yield "its user has limited the number of its devices"
    if len({a.device for a in ranges}) < len(ranges):
        yield "a device has several shares"
    if _is_put_together(problem, node):
        yield "what devices write has to be put together"


def may_move(problem: Problem, node: int) -> bool:
    """Return whether a node may be divided, and any device may run any of its work-groups."""
    task, split = problem.graph.nodes[node], problem.splits.get(node)
    if not isinstance(task, Launch) or task.versions or split is None or split.groups < 2 or problem.is_limited(node):
        return False
    return not _is_put_together(problem, node)


def _is_put_together(problem: Problem, node: int) -> bool:
    """Return whether results of a launch's ranges have to be combined where these run in different memories, as far as
    it is known before the launch is cut into chunks, which is exact (``run/lowering/chunks.py``)."""
    split = problem.splits.get(node)
    return problem.machine.memories > 1 and (split is None or split.merge is not Reduction.NONE)
