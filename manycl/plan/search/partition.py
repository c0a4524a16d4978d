"""Partition of one kernel among time slots of several devices: the slots, the shares, and their timeline."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace
from typing import NamedTuple

from manycl.machine import DeviceIndex
from manycl.model.occupancy import LaunchRange
from manycl.plan.timeline.reach import Reach
from manycl.plan.timeline.timeline import Timeline

ITERATIONS = 40  # steps of Newton's method, at most; our own choice


class Slot(NamedTuple):
    """A time from ``low`` to ``high`` (seconds) in which a device is free; ``reach``: its part of the kernel then."""

    low: float
    high: float
    reach: Reach


def last_slot(timeline: Timeline, node: int, device: DeviceIndex, most: int) -> Slot:
    """Return the time after a device's last kernel; ``most``: groups of the node that fit there at once (0: all)."""
    reach = timeline.reach(node, device, most)
    low, high = timeline.kernels[device].idle(reach.ready, float("inf"))[-1]
    return Slot(low, high, reach)


def water_fill(slots: Sequence[Slot], groups: int) -> list[int]:
    """Return the numbers of groups, by slot, with which all slots end as early as possible (all 0: the groups do not
    fit). The groups that can have ended by a time t grow with t in every slot, piecewise linearly. The least t at which
    they add up to all groups is found by Newton's method, kept between bounds. Then the fractions are given, group by
    group, to the slots where they end first."""
    low, high, fits = float("inf"), 0.0, 0.0
    for slot_low, slot_high, reach in slots:
        fits += reach.groups(slot_high, slot_low)
        low = min(low, max(slot_low, reach.ready))
        high = max(high, min(slot_high, reach.end(min(groups, reach.most), slot_low)))
    if fits < groups:
        return [0] * len(slots)
    at = high
    for _ in range(ITERATIONS):
        total = slope = 0.0
        for slot_low, slot_high, reach in slots:
            if at < slot_high:
                n = reach.groups(at, slot_low)
                if 0.0 < n < reach.most:
                    slope += reach.slope(n)
            else:
                n = reach.groups(slot_high, slot_low)
            total += n
        if abs(total - groups) < 1e-3:
            break
        if total < groups:
            low = at
        else:
            high = at
        step = (groups - total) / slope if slope > 0.0 else 0.0
        at = at + step if low < at + step < high else 0.5 * (low + high)
    shares = [int(s.reach.groups(min(at, s.high), s.low)) for s in slots]
    extra = sum(shares) - groups
    while extra > 0:  # a fraction too many, taken from the slot that ends last
        most = max((i for i, n in enumerate(shares) if n), key=lambda i: slots[i].reach.end(shares[i], slots[i].low))
        shares[most] -= 1
        extra -= 1
    return _all_of(slots, shares, groups)


def _all_of(slots: Sequence[Slot], shares: list[int], groups: int) -> list[int]:
    """Return rounded shares that add up to ``groups``."""

    def after(i: int) -> tuple[float, int]:
        """Return when a slot ends that takes one group more, and the slot."""
        _, high, reach = slots[i]
        end = reach.end(shares[i] + 1, slots[i].low)
        return (end if shares[i] < reach.most and end <= high else float("inf")), i

    ends = [after(i) for i in range(len(slots))]
    heapify(ends)
    for _ in range(groups - sum(shares)):
        least, best = ends[0]
        if least == float("inf"):
            return [0] * len(slots)
        shares[best] += 1
        heapreplace(ends, after(best))
    return shares


def of_equal_cost(timeline: Timeline, node: int, slots: Sequence[Slot], shares: list[int]) -> list[int]:
    """Return the numbers of groups that cost what so many do on average, where groups' costs differ by their place."""
    groups, begin, done, found = sum(shares), 0, 0, [*shares]
    for i in sorted(range(len(slots)), key=lambda i: (slots[i].reach.device, slots[i].low)):
        device = slots[i].reach.device

        def cost(end: int, device: DeviceIndex = device) -> float:
            return end * timeline.problem.estimates.relative(node, device, LaunchRange(0, end, groups))

        done += shares[i]
        end = done
        if abs(cost(done) - done) > 0.5:  # of a group: else they are alike, and nothing has to be sought
            end = bisect_left(range(groups + 1), done - 0.5, begin, groups, key=cost)
        found[i], begin = end - begin, end
    fit = all(n <= s.reach.most for n, s in zip(found, slots, strict=True))
    return found if fit and min(found, default=0) >= 0 else shares


def where_data_are(timeline: Timeline, node: int, slots: Sequence[Slot]) -> list[int]:
    """Return the numbers of groups, by slot, with which every device takes the groups whose data it has, of the largest
    buffer that lies in parts on devices (empty: there is none, or it lies in another order)."""
    problem = timeline.problem
    split, buffers = problem.splits[node], problem.graph.buffers
    devices = {timeline.memory[s.reach.device]: s.reach.device for s in slots}
    for key in sorted(split.regions, key=lambda k: -buffers[k].nbytes):
        part = split.regions[key]
        # of the bytes that belong to one group alone
        start = part.offset + (max(part.width, part.stride) - part.stride) // 2
        counts: dict[int, int] = {}
        done = 0
        for _, high, _, places in timeline.intervals.touched(key, start, start + split.groups * part.stride):
            here = [devices[m] for m in places if m in devices]
            until = min(split.groups, max(done, -(-(high - start) // part.stride)))
            if until > done:
                if len(here) != 1 or (counts and here[0] < max(counts)):
                    break
                counts[here[0]] = counts.get(here[0], 0) + until - done
                done = until
        if done == split.groups and len(counts) > 1:
            return _into(slots, counts)
    return []


def _into(slots: Sequence[Slot], counts: Mapping[int, int]) -> list[int]:
    """Return numbers of groups by device as numbers by slot: each in the slot of its device where it ends first."""
    shares, of = [0] * len(slots), dict[DeviceIndex, list[int]]()
    for i, slot in enumerate(slots):
        of.setdefault(slot.reach.device, []).append(i)
    for device, count in counts.items():
        fits = [
            (end, i)
            for i, (low, high, reach) in ((i, slots[i]) for i in of[DeviceIndex(device)])
            if count <= reach.most and (end := reach.end(count, low)) <= high
        ]
        if not fits:
            return []
        shares[min(fits)[1]] = count
    return shares


def place_ranges(
    timeline: Timeline, node: int, slots: Sequence[Slot], shares: Sequence[int], home: DeviceIndex
) -> float:
    """Place a kernel in ranges, neighbours on one device side by side; return when it ends, and its results are on the
    host, in seconds. ``home``: the device where partial results are merged, if they have to be."""
    used = sorted(
        ((s.reach.device, s.low, n) for s, n in zip(slots, shares, strict=True) if n), key=lambda u: (u[0], u[1])
    )
    first = 0
    placed: list[tuple[DeviceIndex, int, int]] = []
    for device, low, groups in used:
        fit = timeline.fit(node, device, first, groups, low)
        placed.append((device, timeline.take(fit), groups))
        first += groups
    placed.sort(key=lambda p: p[0] != home)
    end = timeline.complete(node, [op for _, op, _ in placed])
    problem = timeline.problem
    if node not in problem.results:
        return end
    if problem.splits[node].merge != "none":
        return end + problem.home_seconds(node, home)
    return max(timeline.end[op] + problem.home_seconds(node, device, n) for device, op, n in placed)
