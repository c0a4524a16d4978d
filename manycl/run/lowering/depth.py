"""Exchange in depth: devices exchange the bytes of several launches at once, and compute those between twice.

Where the launches of a loop are divided between memories, each waits for what the one before has written elsewhere: an
exchange in each step, which takes a latency however few bytes it moves. In depth, launches are taken in blocks. At the
beginning of a block each device gets all that its ranges of the block read. Backwards from the last launch of the
block, ranges are widened by the work-groups that write what later ones read (a deep halo, or ghost cell expansion: Ding
and He, "A ghost cell expansion method for reducing communications in solving PDE problems", SC 2001).

The devices work on copies of their own of all buffers that the launches write. They copy in what they find before the
first launch, and out what the launches have written after the last one. What goes from device to device lies in small
buffers, which one fills and the other one empties. So no two devices write the same bytes of a buffer, and all of these
steps are like any others: for the order of steps, for transfers, and for what is done again when a device is lost.

Where launches compute for longer than an exchange takes, border ranges run first instead: the work-groups that write
what other devices read in the next launch. The other groups of a device run while that travels.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np

from manycl.graph.access import Access, clash, forget_unread
from manycl.graph.division import Division, HostDivision, identity
from manycl.graph.graph import BufferKey, Launch
from manycl.graph.versions.versions import run_as
from manycl.group_range import GroupRange
from manycl.machine import DeviceIndex
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.tuning import PLANNING
from manycl.region import NOTHING, Array, Region, union
from manycl.run.lowering.declared_access import divided

IN_DEPTH = "in depth"
"""The method (``Step.method``) of ranges that work on copies of their device's own."""
Place = DeviceIndex | None
"""The device whose own copy of a buffer is meant; None: the buffer itself."""
Contents = dict[tuple[DeviceIndex, BufferKey], Region]
"""The bytes of each device's own copies that are as the last launch that writes them leaves them."""


class DeepCopy(NamedTuple):
    """A copy of a buffer's bytes from ``low`` up to ``high``."""

    key: BufferKey
    low: int
    high: int
    source: Place
    target: Place


@dataclass(frozen=True)
class InDepth:
    """A plan with widened ranges. By node that runs in depth: ``own``, the buffers of which devices have copies of
    their own, and what is copied ``before`` and ``after`` its ranges. ``is_cut``: some have border ranges first."""

    plan: Plan
    own: dict[int, frozenset[BufferKey]] = field(default_factory=dict)
    before: dict[int, tuple[DeepCopy, ...]] = field(default_factory=dict)
    after: dict[int, tuple[DeepCopy, ...]] = field(default_factory=dict)
    is_cut: bool = False


def in_depth(problem: Problem, plan: Plan) -> InDepth:
    """Return the plan in which launches run in depth where that is predicted to pay, as deep as pays most, or with
    border ranges first where that pays more."""
    found, assignments = InDepth(plan), [[a] for a in plan.assignments]
    for sequence in _sequences(problem, plan):
        deep = sequence.best()
        if deep is None:
            continue
        if deep.before:
            found.own.update(dict.fromkeys(sequence.nodes, frozenset(sequence.written)))
            found.before.update(deep.before)
            found.after[sequence.nodes[-1]] = deep.after
        else:
            found = replace(found, is_cut=True)
        for at in range(sequence.begin, sequence.begin + len(sequence.nodes) * len(sequence.devices)):
            (a,) = assignments[at]
            assignments[at] = [a.of_range(groups) for groups in deep.ranges[a.node][a.device]]
    if not found.own and not found.is_cut:
        return found
    return replace(found, plan=replace(plan, assignments=tuple(chain.from_iterable(assignments)), events=()))


@dataclass(frozen=True, eq=False)
class _LaunchKind:
    """A launch, one for all that do the same: the ``ranges`` of devices in queues (``lanes``), and the bytes that it
    writes in all of them together. ``node``: the first one."""

    node: int
    division: Division
    ranges: Mapping[DeviceIndex, GroupRange]
    lanes: tuple[tuple[DeviceIndex, int], ...]
    written: Mapping[BufferKey, Region]

    @cached_property
    def _ordered(self) -> tuple[list[int], list[tuple[int, GroupRange]]]:
        """The first groups of the ranges, and the ranges, with their places among those of all devices."""
        found = sorted(enumerate(self.ranges.values()), key=lambda place: place[1].first)
        return [groups.first for _, groups in found], found

    def within(self, groups: GroupRange) -> GroupRange:
        """Return the first device's range that is a part of a wider one."""
        firsts, found = self._ordered
        some = found[bisect_left(firsts, groups.first) : bisect_left(firsts, groups.end)]
        return min(mine for mine in some if mine[1].end <= groups.end)[1]


def _sequences(problem: Problem, plan: Plan) -> Iterator[_LaunchSequence]:
    """Yield launches that may run in depth together: one after another in the graph and in the plan, each in one range
    in each of the same queues."""
    known: dict[object, _LaunchKind | None] = {}
    sizes = {key: b.nbytes for key, b in problem.graph.buffers.items()}
    of: dict[int, list[Assignment]] = {}
    for a in plan.assignments:
        of.setdefault(a.node, []).append(a)
    kinds: dict[int, _LaunchKind] = {}
    for node, task in enumerate(problem.graph.nodes):
        ranges = of.get(node, ())
        if problem.machine.memories > 1 < len(ranges) and isinstance(task, Launch) and _is_valid(problem, ranges):
            of_kind = identity(task, sizes), *[(a.device, a.queue, *a[5:]) for a in ranges]
            if of_kind not in known:
                known[of_kind] = _kind(problem, node, task, ranges, sizes)
            if (kind := known[of_kind]) is not None:
                kinds[node] = kind
    run: list[int] = []
    begin = at = 0
    while at < len(plan.assignments):
        node = plan.assignments[at].node
        members = plan.assignments[at : at + len(of[node])]
        kind = kinds.get(node) if all(a.node == node for a in members) else None
        if run and (kind is None or node != run[-1] + 1 or kind.lanes != kinds[run[-1]].lanes):
            yield _LaunchSequence(problem, run, [kinds[n] for n in run], begin)
            run = []
        if kind is not None:
            begin = begin if run else at
            run.append(node)
        at += 1 if kind is None else len(members)
    if run:
        yield _LaunchSequence(problem, run, [kinds[n] for n in run], begin)


def _is_valid(problem: Problem, ranges: Sequence[Assignment]) -> bool:
    """Return whether each of a launch's ranges, along one dimension, begins where another one ends."""
    ordered = sorted(ranges, key=lambda a: a.first)
    begins = [0, *accumulate(a.groups for a in ordered)]
    is_there = all(a.is_range and a.groups > 0 and a.device in problem.machine.indices for a in ranges)
    return is_there and len({a.dimension for a in ranges}) == 1 and [a.first for a in ordered] == begins[:-1]


def _kind(
    problem: Problem, node: int, task: Launch, ranges: Sequence[Assignment], sizes: Mapping[BufferKey, int]
) -> _LaunchKind | None:
    """Return the kind of a launch; None where it cannot run in depth: its devices may give different bits, or what its
    work-groups do is more than to write bytes that are known."""
    devices = [problem.machine.devices[a.device] for a in ranges]
    if len({d.memory for d in devices}) < len(devices) or len({(d.kind, d.model, d.driver) for d in devices}) > 1:
        return None
    ran = run_as(task, ranges[0].version)
    has_effects = ran.kernel.prints or ran.program.shared
    if has_effects or len({a.version for a in ranges}) > 1 or problem.splits.get(node) is None:
        return None
    division = divided(problem, node, ran, ranges[0].range.dimension, sizes)
    if isinstance(division, HostDivision) or division.operations or sum(a.groups for a in ranges) != division.groups:
        return None
    division.expect([a.range for a in ranges])
    found = [division.access(a.range) for a in ranges]
    forget_unread(found, ())
    for key in task.writes:
        if clash(key, found, [d.memory for d in devices]) or not all(access[key].overwrites for access in found):
            return None
    written = {key: union(access[key].writes for access in found) for key in task.writes}
    lanes = tuple(sorted((a.device, a.queue) for a in ranges))
    return _LaunchKind(node, division, {a.device: a.range for a in ranges}, lanes, written)


@dataclass(frozen=True, eq=False)
class _Block:
    """Launches between two exchanges, which take ``seconds`` by prediction. ``ranges``: of each of them, by device;
    what copies must have before (``needs``), have new afterwards (``left``), and what is ``touched`` of them, as
    intervals; ``written``: the bytes that the launches write in all."""

    ranges: Sequence[Mapping[DeviceIndex, GroupRange]]
    needs: Contents
    left: Contents
    touched: Contents
    written: Mapping[BufferKey, Region]
    seconds: float


class _Deep(NamedTuple):
    """A sequence in some depth, which takes ``seconds`` by prediction: ``ranges`` by node and device, in their order;
    what is copied before nodes (nothing where no buffers are copied), and ``after`` the last one."""

    seconds: float
    ranges: Mapping[int, Mapping[DeviceIndex, Sequence[GroupRange]]]
    before: Mapping[int, tuple[DeepCopy, ...]]
    after: tuple[DeepCopy, ...]


class _LaunchSequence:
    """Launches (``nodes``) one after another that may run in depth: the assignments from ``begin`` on of a plan."""

    def __init__(self, problem: Problem, nodes: Sequence[int], kinds: Sequence[_LaunchKind], begin: int) -> None:
        self._problem, self.nodes, self._kinds, self.begin = problem, nodes, kinds, begin
        self.devices = [device for device, _ in kinds[0].lanes]
        self.written: dict[BufferKey, Region] = {}
        for kind in dict.fromkeys(kinds):
            for key, region in kind.written.items():
                self.written[key] = self.written.get(key, NOTHING) | region
        self._writes = {kind: {key: self._around(key, r) for key, r in kind.written.items()} for kind in set(kinds)}
        self._access, self._block, self._seconds = cache(self._accessed), cache(self._made), cache(self._predicted)
        self._cut = cache(self._borders)

    def best(self) -> _Deep | None:
        """Return the depth, a power of two, that is predicted to take least, or next to it, or border ranges first
        where that takes a part less that matters; None where nothing gains enough on a depth of 1."""
        if not self._may_gain():
            return None
        today, best, depth = self._at(1), None, 2
        while today is not None and depth <= len(self.nodes):
            found = self._at(depth)
            if found is None or (best is not None and found.seconds >= best.seconds):
                break
            # (half as many exchanges save half as much as was saved last)
            is_enough = best is not None and best.seconds - found.seconds < 2 * PLANNING.hidden * found.seconds
            best, depth = found, 2 * depth
            if is_enough:
                break
        if today is None:
            return None
        cut, least = self._borders_first(today), min(today.seconds, best.seconds if best is not None else math.inf)
        if cut.seconds < (1.0 - PLANNING.gain) * least:
            best = cut
        return best if best is not None and self._pays(today.seconds - best.seconds) else None

    def _borders_first(self, today: _Deep) -> _Deep:
        """Return the sequence with the border ranges of its launches first, where exchanges beside the other ranges
        save more than further launches take. ``today``: in a depth of 1."""
        seconds, ranges, devices = today.seconds, dict(today.ranges), self._problem.machine.devices
        for node, kind, after in zip(self.nodes, self._kinds, self._kinds[1:], strict=False):
            if (cut := self._cut(kind, after)) is None:
                continue
            moves = [m for m in today.before.get(node + 1, ()) if m.source is not None and m.target is not None]
            inner = min(self._seconds(kind, d, of[-1]) for d, of in cut.items())
            more = max(
                sum(self._seconds(kind, d, groups) + devices[d].enqueuing for groups in of)
                - self._seconds(kind, d, kind.ranges[d])
                for d, of in cut.items()
            )
            if (gain := min(self._copying(moves, is_deep=False), inner) - more) > 0.0:
                seconds, ranges[node] = seconds - gain, cut
        return _Deep(seconds, ranges, {}, ())

    def _borders(self, kind: _LaunchKind, after: _LaunchKind) -> Mapping[DeviceIndex, Sequence[GroupRange]] | None:
        """Return the ranges of a launch with those first that write what others read in the next one; None where a
        device has nothing else to run."""
        if (block := self._block((kind, after))) is None:
            return None
        found: dict[DeviceIndex, Sequence[GroupRange]] = {}
        ordered = sorted(kind.ranges, key=lambda d: kind.ranges[d].first)
        read = [block.ranges[0][d] for d in ordered]
        below = [0, *accumulate((groups.end for groups in read), max)]  # what devices with groups before it read
        above = [*accumulate((groups.first for groups in reversed(read)), min), kind.division.groups]
        above = [*above[-2::-1], above[-1]]
        at = {device: place for place, device in enumerate(ordered)}
        for device, own in kind.ranges.items():
            low, high = max(own.first, below[at[device]]), min(own.end, above[at[device] + 1])
            if low >= high:
                return None
            ends = (own.first, low), (high, own.end), (low, high)
            found[device] = [own._replace(first=a, count=b - a) for a, b in ends if a < b]
        return found

    def _pays(self, gain: float) -> bool:
        return gain > PLANNING.worth * self._problem.handover

    def _may_gain(self) -> bool:
        """Return whether exchanges of a byte take a part of the time that matters, and devices have room for copies."""
        buffers, machine = self._problem.graph.buffers, self._problem.machine
        sizes = [b.nbytes for b in buffers.values()] + [buffers[key].nbytes for key in self.written]
        if not all(machine.devices[d].holds(sizes) for d in self.devices):
            return False
        first, second = self.devices[:2]
        exchange = self._copying((DeepCopy(BufferKey(0), 0, 1, first, second),), is_deep=False)
        computing = sum(max(self._seconds(k, d, k.ranges[d]) for d in self.devices) for k in self._kinds)
        return exchange * len(self.nodes) > PLANNING.gain * computing

    # what blocks need and leave

    def _filled(self, key: BufferKey, region: Region) -> Region:
        """Return the interval around bytes of a buffer where no launch writes those between, as at the edges of an
        array: all copies have them from the beginning."""
        return region.filled if not (region.filled - region) & self.written[key] else region

    def _around(self, key: BufferKey, region: Region) -> Region:
        """Return bytes that a launch writes with those between and around them that none writes."""
        filled, every = self._filled(key, region), self.written[key]
        if len(filled.low) != 1:
            return filled
        low, high = filled.hull
        first, last = int(np.searchsorted(every.low, low, "right")) - 1, int(np.searchsorted(every.high, high))
        if every.low[first] == low:
            low = int(every.high[first - 1]) if first else 0
        if every.high[last] == high:
            nbytes = self._problem.graph.buffers[key].nbytes
            high = int(every.low[last + 1]) if last + 1 < len(every.low) else nbytes
        return Region.span(low, high)

    def _accessed(self, kind: _LaunchKind, groups: GroupRange) -> dict[BufferKey, Access] | None:
        """Return what a range does to the buffers that launches write; None where it may leave some as it was."""
        inner = kind.within(groups)
        found = {key: x for key, x in kind.division.widened(inner, groups).items() if key in self.written}
        if not all(x.overwrites or not x.writes for x in found.values()):
            return None
        return {k: Access(self._filled(k, x.reads), self._around(k, x.writes), True) for k, x in found.items()}

    def _widened(self, kind: _LaunchKind, groups: GroupRange, need: Mapping[BufferKey, Region]) -> GroupRange | None:
        """Return a range widened until it writes what is needed of all that its launch writes; None where that would
        take all work-groups."""
        for key, region in self._writes[kind].items():
            wanted = need.get(key, NOTHING) & region
            while wanted:
                access = self._access(kind, groups)
                if access is None:
                    return None
                mine = access[key].writes
                if not (missing := wanted - mine):
                    break
                (low, high), (begin, end) = missing.hull, mine.hull
                each = max(1, (end - begin) // groups.count)
                fewer, more = -(-max(0, begin - low) // each), -(-max(0, high - end) // each)
                first, last = max(0, groups.first - fewer), min(kind.division.groups, groups.end + more)
                if (not fewer and not more) or last - first in (groups.count, kind.division.groups):
                    return None
                groups = groups._replace(first=first, count=last - first)
        return groups

    def _made(self, kinds: tuple[_LaunchKind, ...]) -> _Block | None:
        """Return launches as a block; None where a device would have to run all of one."""
        ranges: list[dict[DeviceIndex, GroupRange]] = [{} for _ in kinds]
        needs, left, touched = Contents(), Contents(), Contents()
        written = dict[BufferKey, Region]()
        for kind in kinds:
            for key, region in self._writes[kind].items():
                written[key] = written.get(key, NOTHING) | region
        seconds = dict.fromkeys(self.devices, 0.0)
        for device in self.devices:
            need = dict[BufferKey, Region]()
            for kind, of in zip(reversed(kinds), reversed(ranges), strict=True):
                groups = self._widened(kind, kind.ranges[device], need)
                access = None if groups is None else self._access(kind, groups)
                if groups is None or access is None:
                    return None
                of[device] = groups
                seconds[device] += self._seconds(kind, device, groups)
                for key, x in access.items():
                    need[key] = (need.get(key, NOTHING) - x.writes) | x.reads
                    touched[device, key] = union((touched.get((device, key), NOTHING), x.reads, x.writes)).filled
            for kind, of in zip(kinds, ranges, strict=True):
                access = self._access(kind, of[device])
                assert access is not None
                for key, region in self._writes[kind].items():
                    left[device, key] = (left.get((device, key), NOTHING) - region) | access[key].writes
            needs.update({(device, key): region for key, region in need.items() if region})
        return _Block(ranges, needs, left, touched, written, max(seconds.values()))

    def _at(self, depth: int) -> _Deep | None:
        """Return the sequence in blocks of so many launches; None where that is not possible."""
        firsts = range(0, len(self.nodes), depth)
        blocks = [self._block(tuple(self._kinds[first : first + depth])) for first in firsts]
        contents: Contents = {}  # what is found in the buffers, of all that a device touches
        touched: Contents = {}
        written: dict[BufferKey, Region] = {}
        for block in dict.fromkeys(blocks):
            if block is None:
                return None
            for place, region in block.touched.items():
                touched[place] = (touched.get(place, NOTHING) | region).filled
            for (device, key), need in block.needs.items():
                contents[device, key] = contents.get((device, key), NOTHING) | (need - written.get(key, NOTHING))
            for key, region in block.written.items():
                written[key] = written.get(key, NOTHING) | region
        for (device, key), region in touched.items():
            if found := contents.pop((device, key), NOTHING) | (region - self.written[key]):
                contents[device, key] = found.filled
        moves = [DeepCopy(key, *region.hull, None, device) for (device, key), region in contents.items()]
        seconds, before = self._copying(moves, depth > 1), dict[int, tuple[DeepCopy, ...]]()
        known: dict[object, tuple[tuple[DeepCopy, ...], Contents] | None] = {}
        for first, block in zip(firsts, blocks, strict=True):
            assert block is not None
            asked = id(block), *contents.items()
            if asked not in known:
                known[asked] = self._begun(block, contents)
            if (begun := known[asked]) is None:
                return None
            exchanged, contents = begun
            before[self.nodes[first]] = exchanged if first else (*moves, *exchanged)
            seconds += self._copying(exchanged, depth > 1) + block.seconds
        ended = self._ended(written, contents)
        if ended is None:
            return None
        ranges = [
            {d: (groups,) for d, groups in of.items()} for block in blocks if block is not None for of in block.ranges
        ]
        seconds += self._copying(ended, depth > 1)
        return _Deep(seconds, dict(zip(self.nodes, ranges, strict=True)), before, ended)

    def _begun(self, block: _Block, contents: Contents) -> tuple[tuple[DeepCopy, ...], Contents] | None:
        """Return what is exchanged before a block, and what copies have after it."""
        moves, has, held = list[DeepCopy](), dict(contents), self._held(contents)
        for place, need in block.needs.items():
            device, key = place
            moved = _moves(key, need - contents.get(place, NOTHING), device, held)
            if moved is None:
                return None
            moves += moved
            has[place] = union((has.get(place, NOTHING), *(Region.span(m.low, m.high) for m in moved)))
        has = {place: region - block.written.get(place[1], NOTHING) for place, region in has.items()}
        for place, left in block.left.items():
            has[place] = has.get(place, NOTHING) | left
        return tuple(moves), has

    def _ended(self, written: Mapping[BufferKey, Region], contents: Contents) -> tuple[DeepCopy, ...] | None:
        """Return what is copied out at the end: all bytes that were written, each by one device."""
        out, held = list[DeepCopy](), self._held(contents)
        for key, region in written.items():
            moved = _moves(key, region, None, held)
            spans = [Region.span(m.low, m.high) for m in moved or ()]
            if moved is None or union(spans).nbytes < sum(span.nbytes for span in spans):
                return None
            out += moved
        return tuple(out)

    def _held(self, contents: Contents) -> Mapping[BufferKey, _Held]:
        """Return which devices have bytes of each buffer, and around which of them lies what they have."""
        found: dict[BufferKey, list[tuple[DeviceIndex, Region]]] = {}
        for device in self.devices:
            for key in self.written:
                if region := contents.get((device, key)):
                    found.setdefault(key, []).append((device, region))
        return {key: _Held(of, np.array([region.hull for _, region in of])) for key, of in found.items()}

    # predictions

    def _predicted(self, kind: _LaunchKind, device: DeviceIndex, groups: GroupRange) -> float:
        return self._problem.range_seconds(kind.node, device, groups.count, groups.first)

    def _copying(self, moves: Sequence[DeepCopy], is_deep: bool) -> float:
        """Return the seconds of copies and exchanges. ``is_deep``: devices have copies of their own; if not, what goes
        from device to device is moved between their memories."""
        devices, busy, enqueuing = self._problem.machine.devices, dict.fromkeys(self.devices, 0.0), 0.0
        for move in moves:
            ends, nbytes = [d for d in (move.source, move.target) if d is not None], move.high - move.low
            if len(ends) == 2:
                memories = [devices[d].memory for d in ends]
                busy[ends[1]] += self._problem.estimates.transfer(nbytes, *memories)
                enqueuing += sum(devices[d].enqueuing_copy for d in ends)
            for d in ends if is_deep else ():
                busy[d] += devices[d].launch_overhead + 2.0 * nbytes / devices[d].bandwidth
                enqueuing += devices[d].enqueuing
        is_exchange = any(m.source is not None and m.target is not None for m in moves)
        return max(busy.values()) + enqueuing + (self._problem.handover if is_exchange else 0.0)


class _Held(NamedTuple):
    """The devices that have bytes of a buffer, with these, and the intervals around them."""

    places: Sequence[tuple[DeviceIndex, Region]]
    hulls: Array

    def near(self, wanted: Region) -> Iterator[tuple[DeviceIndex, Region]]:
        """Yield those, in their order, around whose bytes lie some of those wanted."""
        low, high = wanted.hull
        return (self.places[i] for i in np.flatnonzero((self.hulls[:, 0] < high) & (self.hulls[:, 1] > low)).tolist())


def _moves(key: BufferKey, wanted: Region, target: Place, held: Mapping[BufferKey, _Held]) -> list[DeepCopy] | None:
    """Return the moves of bytes of a buffer, one from each of some other places as far as that is needed: of the
    interval, of those which it has, with most of them. None where that is not all."""
    moves: list[DeepCopy] = []
    for source, has in held[key].near(wanted) if wanted and key in held else ():
        if source != target and (found := wanted & has):
            lies = np.searchsorted(has.low, found.low, "right") - 1  # the interval in which each of its intervals lies
            most = int(np.bincount(lies, found.high - found.low).argmax())
            found = found & Region.span(int(has.low[most]), int(has.high[most]))
            moves.append(DeepCopy(key, *found.hull, source, target))
            wanted = wanted - found
    return None if wanted else moves
