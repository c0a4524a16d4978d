"""Tiling: launches that do not fit into a device's memory are cut into ranges that do. Launches with data in common are
cut so that ranges of successive launches run on the same windows (:mod:`manycl.run.tiling.time_skewing`). Any other
launch is cut into as many ranges as let three fit at a time: one is computed, the next arrives, the one before leaves.
More and smaller ones where several launches use the same data."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from manycl.errors import PolicyError
from manycl.graph.division import Division, divide, identity
from manycl.graph.graph import BufferKey, HostTask, Launch
from manycl.graph.versions.versions import run_as
from manycl.group_range import GroupRange
from manycl.machine import HOST, Device, DeviceIndex
from manycl.model.estimates import for_each_byte
from manycl.model.transfer import LARGE
from manycl.plan.plan import MERGE, ON_HOST, WHOLE, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.tiling.limits import stores, too_large
from manycl.run.tiling.tile_fusion import find_time_tiles
from manycl.run.tiling.time_skewing import TimeTile
from manycl.run.tiling.windows import intervals, kept_whole, size_of

AT_ONCE = 3
"""The usual number of ranges that a device's memory is to hold: one is computed, the next arrives, the one before
leaves; our own choice."""
MOST_AT_ONCE = 16
"""The most ranges that it is to hold, where several launches use the same data; our own choice."""
TRANSFERS = 7  # commands of a range beside its kernel, in and out; our own choice


class Fitted(NamedTuple):
    """A plan with launches in ranges, and its ``time_tiles``, whose launches run in tiles."""

    plan: Plan
    time_tiles: tuple[TimeTile, ...]


def fitted(problem: Problem, plan: Plan, limits: Mapping[DeviceIndex, int], together: bool = True) -> Fitted:
    """Return the plan in which launches run in ranges on the devices that do not hold all that they need there.
    ``together``: in time tiles where that is predicted to pay. Raises RunError where that is not enough."""
    cutter = _Fitter(problem, plan, limits)
    wanted = {
        i: cutter.look(a) for i, a in enumerate(plan.assignments) if a.device in limits and a.dimension is not MERGE
    }
    cut = {i: (dimension, number) for i, (dimension, number) in wanted.items() if dimension is not None and number}
    time_tiles: tuple[TimeTile, ...] = ()
    if together and cut:
        # a launch that fits may be between others that do not
        along = {i: cut[i][0] if i in cut else cutter.along(plan.assignments[i]) for i in wanted}
        dimensions = {i: dimension for i, dimension in along.items() if dimension is not None}
        time_tiles = find_time_tiles(problem, plan, limits, dimensions, cut)
    of = {node: found for found in time_tiles for node in found.nodes}
    # one number of ranges for the other launches of a device: those with data in common are cut at the same groups
    most: dict[int, int] = {}
    for i, (_, number) in wanted.items():
        a = plan.assignments[i]
        if a.node not in of:
            most[a.device] = max(most.get(a.device, 1), number)
    assignments = {a.node: a for a in plan.assignments if a.node in of}
    out: list[Assignment] = []
    begun: set[int] = set()
    for i, a in enumerate(plan.assignments):
        if a.node in of:
            if id(of[a.node]) not in begun:
                begun.add(id(of[a.node]))
                out += _in_tiles(of[a.node], assignments)
        elif i not in cut:
            out.append(a)
        else:
            out += cutter.cut(a, cut[i][0], most[a.device])
    if out == list(plan.assignments):
        return Fitted(plan, ())
    return Fitted(Plan(tuple(out), plan.policy, plan.devices, plan.makespan, details=plan.details), time_tiles)


def _in_tiles(found: TimeTile, assignments: Mapping[int, Assignment]) -> Iterable[Assignment]:
    for tile in found.tiles:
        for node, groups in tile.ranges:
            yield assignments[node].of_range(groups)


def _at_once(problem: Problem, plan: Plan, device: DeviceIndex, limit: int) -> int:
    """Return how many ranges a device's memory is to hold. Where it holds n, ranges of n - 2 launches that use the same
    data may run one after another while these are there (:mod:`manycl.run.tiling.reuse_order`), so the data cross the
    link once for all of them. But there are n times as many ranges as would fill the memory, each of which costs the
    engine time. The best number is the one for which the slower of link and engine is done first."""
    count: dict[BufferKey, int] = {}  # launches by buffer
    for node in {a.node for a in plan.assignments if a.device == device}:
        task = problem.graph.nodes[node]
        for key in () if isinstance(task, HostTask) else stores(task):
            count[key] = count.get(key, 0) + 1
    used = [(launches, problem.graph.buffers[key].nbytes) for key, launches in count.items()]
    fillings = sum(launches * nbytes for launches, nbytes in used) / limit
    seconds = for_each_byte(problem.estimates, HOST, problem.machine.devices[device].memory)
    step = problem.given(device, 1, TRANSFERS)

    def slower(number: int) -> float:
        crossing = sum(-(-launches // (number - 2)) * nbytes for launches, nbytes in used)
        return max(crossing * seconds, number * fillings * step)

    most = max(min(max(count.values(), default=1) + 2, MOST_AT_ONCE, limit // LARGE), AT_ONCE)
    return min(range(AT_ONCE, most + 1), key=slower) if seconds > 0 else most


class _Fitter:
    def __init__(self, problem: Problem, plan: Plan, limits: Mapping[DeviceIndex, int]) -> None:
        self._problem = problem
        self._limits = limits
        self._sizes = {key: b.nbytes for key, b in problem.graph.buffers.items()}
        self._known: dict[Hashable, tuple[int | None, int]] = {}
        self._identities: dict[int, Hashable] = {}  # by the identity of launches
        self._at_once = {d: _at_once(problem, plan, d, limit) for d, limit in limits.items()}

    def look(self, a: Assignment) -> tuple[int | None, int]:
        """Return the dimension along which an assignment is to be cut, and into how many; (None, 0): it stays."""
        task = self._problem.graph.nodes[a.node]
        if a.device == ON_HOST or not isinstance(task, Launch):
            return None, 0
        if task.versions and a.is_range:
            return self._look(a, run_as(task, a.version))
        if id(task) not in self._identities:
            self._identities[id(task)] = identity(task, self._sizes)
        key = self._identities[id(task)], a.device, a.dimension, a.first, a.groups
        if key not in self._known:
            self._known[key] = self._look(a, task)
        return self._known[key]

    def _look(self, a: Assignment, task: Launch) -> tuple[int | None, int]:
        device, limit = self._problem.machine.devices[a.device], self._limits[a.device]
        sizes = [self._sizes[key] for key in stores(task)]
        whole, at_once = sum(sizes), self._at_once[a.device]
        fits = whole <= limit and max(sizes, default=0) <= device.max_allocation
        if fits and whole <= limit // at_once and a.dimension is WHOLE:
            return None, 0
        found: list[tuple[_Ranges, int]] = []
        reason = ""
        for dimension in range(len(task.global_size)) if a.dimension is WHOLE else (a.range.dimension,):
            try:
                division = divide(task, dimension, self._sizes)
            except PolicyError as error:
                reason = reason or error.message
                continue
            groups = division.whole if a.dimension is WHOLE else a.range
            ranges = _ranges(division, groups, limit, at_once, device)
            if ranges.at_once:
                found.append((ranges, dimension))
            else:
                reason = (
                    f"{task.name} in ranges along dimension {dimension} needs {_said(division, groups, ranges, device)}"
                )
        best = min(found, key=lambda f: (-f[0].at_once, f[0].number), default=None)
        if fits and a.dimension is WHOLE and (best is None or best[0].nbytes > 0.5 * whole):
            return None, 0
        if best is None:
            raise too_large(task, a.node, whole, device, reason)
        return best[1], best[0].number

    def along(self, a: Assignment) -> int | None:
        """Return the dimension along which the ranges of an assignment that stays whole would touch least, or None."""
        task = self._problem.graph.nodes[a.node]
        if a.device == ON_HOST or a.dimension is not WHOLE or not isinstance(task, Launch):
            return None
        device, found = self._problem.machine.devices[a.device], {}
        for dimension in range(len(task.global_size)):
            with suppress(PolicyError):
                division = divide(task, dimension, self._sizes)
                found[dimension] = sum(_needed(division, division.range(0, -(-division.groups // 4)), device))
        return min(found, key=lambda d: found[d], default=None)

    def cut(self, a: Assignment, dimension: int, number: int) -> list[Assignment]:
        task = self._problem.graph.nodes[a.node]
        assert isinstance(task, Launch)
        task = run_as(task, a.version) if a.is_range else task
        _, first, count = divide(task, dimension, self._sizes).whole if a.dimension is WHOLE else a.range
        number = min(number, count)
        ends = [first + count * i // number for i in range(number + 1)]
        span = (a.end - a.start) / count
        return [
            a._replace(
                dimension=dimension,
                first=low,
                groups=high - low,
                start=a.start + (low - first) * span,
                end=a.start + (high - first) * span,
            )
            for low, high in pairwise(ends)
        ]


class _Ranges(NamedTuple):
    """A launch cut into ``number`` ranges: the most bytes that one of them needs, and the number of ranges whose
    windows fit into the memory at once, beside the buffers that all of them need whole (0: not even one)."""

    number: int
    nbytes: int
    at_once: int


def _ranges(division: Division, groups: GroupRange, limit: int, at_once: int, device: Device) -> _Ranges:
    """Return as few ranges of groups as let ``at_once`` of them fit at a time, or fewer if that many never fit."""
    for together in dict.fromkeys((at_once, AT_ONCE, 2, 1)):
        number = 1
        whole, windows = _needed(division, groups, device)
        while number < groups.count and whole + together * windows > limit:
            share = max((limit - whole) // together, 1)
            wanted = -(-number * windows // share) if windows else 2 * number
            number = min(groups.count, max(number + 1, min(2 * number, wanted)))
            # the whole buffers that every range needs are not divided
            whole, windows = max((_needed(division, r, device) for r in _samples(groups, number)), key=sum)
        if whole + together * windows <= limit:
            return _Ranges(number, whole + windows, together)
    return _Ranges(number, whole + windows, 0)


def _samples(groups: GroupRange, number: int) -> Iterable[GroupRange]:
    """Return the first, the middle and the last of ``number`` ranges, each of the largest size."""
    dimension, first, count = groups
    most = -(-count // number)
    at = {min(count * i // number, count - most) for i in (0, number // 2, number - 1)}
    return [GroupRange(dimension, first + i, most) for i in sorted(at)]


def _sizes(division: Division, groups: GroupRange) -> tuple[list[int], list[int]]:
    """Return the bytes of the whole buffers, and of the windows, that a range needs."""
    windows = intervals(division, groups)
    parts = [size_of(*interval) for interval in windows.values()]
    return [n for key, n in division.sizes.items() if key not in windows], parts


def _said(division: Division, groups: GroupRange, ranges: _Ranges, device: Device) -> str:
    """Return in words how many bytes a range needs at least, and the reason."""
    found = [[*rest, *parts] for rest, parts in (_sizes(division, s) for s in _samples(groups, ranges.number))]
    most = max(found, key=sum)
    one = f", {max(most):,} of them for one buffer" if max(most, default=0) > device.max_allocation else ""
    why = division.windowed.reason or kept_whole(division) or "its ranges do not touch less"
    return f"{sum(most):,} bytes{one}: {why}"


def _needed(division: Division, groups: GroupRange, device: Device) -> tuple[int, int]:
    """Return the bytes that a range needs on a device, of buffers and windows; more than it has if one is too large."""
    rest, parts = _sizes(division, groups)
    beyond = device.global_memory if max((*parts, *rest), default=0) > device.max_allocation else 0
    return sum(rest) + beyond, sum(parts)
