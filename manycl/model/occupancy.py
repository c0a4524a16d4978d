"""Occupancy: how much of a device a kernel can use alone, and in what time its work-groups run, wave by wave.

A kernel with few work-items leaves part of a device idle. Its *share* is the fraction of the device's throughput that
it can use alone, in (0, 1]. Kernels in different queues of a device run at full speed together as long as their shares
add up to at most 1; beyond that all slow down alike. Planner and simulator both use this.

The time of a range of a launch grows with its work-groups as a staircase. A compute unit runs a few work-groups at once
(*resident* ones), all units together a *wave* of them. A few on a unit take as long as one alone, as each of them waits
for its own instructions; more take longer in proportion. A core of a CPU runs one at a time. Which ranges of a launch
cost more than others of as many groups is learned from some that were measured, by iterative proportional fitting
(Deming and Stephan, 1940).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from manycl.graph.graph import Launch
from manycl.machine import Device

ITEMS_PER_UNIT = {"cpu": 1, "gpu": 2048, "accelerator": 2048, "node": 1}
"""Work-items that fill one compute unit. GPUs: the threads that may be resident on one (2048 on most of NVIDIA's
data-centre parts; fewer are needed where each has much to do, so small kernels may share a GPU less than this says).
Nodes: as their processors; a node fills its GPUs itself."""


def share(launch: Launch, device: Device) -> float:
    """Return the fraction of ``device`` that ``launch`` can use alone: on average over the waves of its work-groups, of
    which the last one may leave a part of a GPU idle."""
    groups, filled = work_groups(launch), share_of(launch.work_items, work_groups(launch), device)
    if not groups or device.kind == "cpu" or filled < 1.0:
        return filled
    resident = max(1, ITEMS_PER_UNIT[device.kind] * groups // launch.work_items)
    waves = groups / (resident * max(1, device.compute_units))
    return waves / math.ceil(waves) if waves > 1.0 else 1.0


def work_groups(launch: Launch) -> int:
    """Return the number of work-groups of a launch, about (0: the driver chooses)."""
    if launch.local_size is None:
        return 0
    group = 1
    for size in launch.local_size:
        group *= max(1, size)
    return -(-launch.work_items // group)


def share_of(work_items: float, work_groups: float, device: Device) -> float:
    """Return the fraction of ``device`` that so many work-items in so many work-groups (0: the driver chooses) can use.
    A core runs whole work-groups: with fewer groups than cores, the rest is idle. Elsewhere, and where the driver
    chooses the work-group size, the work-items alone decide."""
    units = max(1, device.compute_units)
    if work_groups and device.kind == "cpu":
        filled = work_groups / units
    else:
        filled = work_items / (units * ITEMS_PER_UNIT.get(device.kind, 1))
    return min(1.0, max(filled, 1e-6))


# waves: times of ranges

_BUSY = 512
"""Work-items that keep a unit of a GPU busy: 16 warps, as four schedulers have instructions of four clocks (CUDA C++
Programming Guide, Multiprocessor Level, compute capability 7 and later)."""
_RESIDENT = (32, 16, 12, 8, 6, 4, 3, 2, 1)
"""Groups that may be resident; 32 is the most (CUDA C++ Programming Guide, likewise)."""
_BETTER = 0.05  # the mean relative error of a range by which other waves must explain it better; our own choice
UNLIKE = 1.25
"""The factor from which ranges of a launch cost different times, and do not only disturb each other; our own choice."""
RANGES = 16  # measured ranges of a kernel on a device that are kept
_CELLS = 64  # parts of a launch whose costs are told apart; our own choice
_SWEEPS = 8  # sweeps over the measured ranges; our own choice


class LaunchRange(NamedTuple):
    """A range of a launch: work-groups ``first`` … ``first + groups - 1`` of ``of`` along a dimension."""

    first: int
    groups: int
    of: int


@dataclass(frozen=True, slots=True)
class Waves:
    """The waves of a kernel on a device. ``resident``: groups that a unit runs at once; ``floor``: up to how many of
    them take as long as one alone (1: each further one takes longer)."""

    units: int
    resident: int = 1
    floor: float = 1.0

    def length(self, groups: float) -> float:
        """Return the time of so many work-groups, in that by which each further resident one makes a wave longer."""
        waves, rest = divmod(math.ceil(groups / self.units), self.resident)
        return waves * max(self.resident, self.floor) + (max(rest, self.floor) if rest else 0.0)


@dataclass(frozen=True, slots=True)
class RangeCosts:
    """The times of ranges of a launch of ``groups``, as parts of its own: ``once`` does not depend on the groups.
    ``density``: how many times as long equal ranges along it take as on average (empty: they are alike)."""

    waves: Waves
    groups: int
    once: float
    density: tuple[float, ...] = ()

    def part(self, groups: int, of: int) -> float:
        """Return the time of a range of ``groups`` of ``of`` along a dimension, on average over where it lies."""
        length = self.waves.length(groups * self.groups / of)
        return self.once + (1.0 - self.once) * length / self.waves.length(self.groups)

    def of(self, where: LaunchRange) -> float:
        """Return the time of a range."""
        return self.part(where.groups, where.of) * self.relative(where)

    def relative(self, where: LaunchRange) -> float:
        """Return how many times as long a range takes as ranges of as many groups do on average."""
        cells = _cells(where, len(self.density))
        return sum(n * self.density[i] for i, n in cells) / sum(n for _, n in cells) if cells else 1.0


@lru_cache(maxsize=1024)
def learned(costs: RangeCosts, took: tuple[tuple[LaunchRange, float], ...]) -> RangeCosts:
    """Return the times of ranges by what some took, as parts of the launch's: first how these grow with the groups."""

    def misfit(waves: Waves) -> float:
        at = replace(costs, waves=waves)
        error = sum(abs(math.log(seconds / at.of(part))) for part, seconds in took) / len(took)
        return error + (_BETTER if waves != costs.waves else 0.0)

    units, sizes = costs.waves.units, _RESIDENT if costs.waves.resident > 1 and misfit(costs.waves) > _BETTER else ()
    tried = [Waves(units, n, max(1.0, n * i / 4)) for n in sizes for i in range(5)]
    found = replace(costs, waves=min([costs.waves, *tried], key=misfit))
    beside = [1.0, *(seconds / found.of(part) for part, seconds in took)]
    if max(beside) < UNLIKE * min(beside):
        return found
    density = [*(found.density or (1.0,) * cells_of(took[0][0].of))]
    known = [
        (seconds / found.part(part.groups, part.of), cells, sum(n for _, n in cells))
        for part, seconds in ((LaunchRange(0, 1, 1), 1.0), *took)
        for cells in (_cells(part, len(density)),)
    ]
    for _ in range(_SWEEPS):
        for seconds, cells, total in known:
            factor = seconds * total / sum([n * density[i] for i, n in cells])
            for i, n in cells:
                density[i] *= 1.0 + n * (factor - 1.0)
    mean = sum(density) / len(density)  # more than 1: the device was busy with other things
    return replace(found, density=tuple([d / mean for d in density]))


def cells_of(groups: int) -> int:
    """Return the number of parts of a launch of so many work-groups whose costs are told apart."""
    return min(_CELLS, groups)


def _cells(part: LaunchRange, cells: int) -> list[tuple[int, float]]:
    """Return the cells in which a range lies, and what part of each (0 to 1)."""
    low, high = part.first * cells / part.of, (part.first + part.groups) * cells / part.of
    return [(i, min(high, i + 1) - max(low, i)) for i in range(int(low), min(cells, math.ceil(high)))]


def waves_of(device: Device, items: int, local_bytes: int) -> Waves:
    """Return the waves of work-groups of so many work-items and bytes of local memory, as far as OpenCL tells: it does
    not tell the registers of a kernel, nor the local memory of a unit, which is no less than a group may have."""
    most, units = ITEMS_PER_UNIT.get(device.kind, 1), max(1, device.compute_units)
    resident = max(1, min(_RESIDENT[0], most // items, device.local_memory // max(1, local_bytes))) if most > 1 else 1
    return Waves(units, resident, min(float(resident), max(1.0, _BUSY / items)))
