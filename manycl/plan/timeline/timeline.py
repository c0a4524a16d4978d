"""A timeline: a partial schedule of kernels, ranges of kernels and transfers, with the locations of every byte.

Static policies build their plans on it, of whole kernels and of ranges alike. There is one kernel at a time on a device
and one transfer at a time on each device's upload and download queue, everything in the first gap that is long enough.
Data travel by the machine's routes; the end of an operation on another device (or the host) is known ``handover``
seconds later. Several ranges can be tried and taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from manycl.graph.graph import BufferKey
from manycl.machine import HOST, DeviceIndex
from manycl.plan.plan import MERGE, ON_HOST, WHOLE, Assignment, Plan
from manycl.plan.problem import BufferRange, Problem, Way
from manycl.plan.timeline.lacking import NetworkNeeds
from manycl.plan.timeline.operations import BusyIntervals, Ended, Made, Operations, times
from manycl.plan.timeline.reach import Reach
from manycl.plan.timeline.writer_intervals import INITIAL, Move, WriterInterval, WriterIntervals, new
from manycl.utilities.kept import FEW


class Schedule(NamedTuple):
    """Assignments in dispatch order, and the time in seconds when the last one ends."""

    assignments: list[Assignment]
    makespan: float

    def plan(self, problem: Problem, policy: str, **details: object) -> Plan:
        devices = tuple(d.name for d in problem.machine.devices)
        return Plan(tuple(self.assignments), policy, devices, self.makespan, details=dict(details))


Missing = tuple[float, BufferKey, int, int, int, int, Made]
"""Missing bytes: when at their source, buffer, from, to, writer, source memory, and when it is known that they are."""


class PendingMove(NamedTuple):
    """A transfer to be made: all of a :class:`Move` up to its end; the operation it waits for; of the hops before it,
    the one that brings its bytes, or None; its queue; when the host's thread has enqueued it."""

    buffer: BufferKey
    low: int
    high: int
    writer: int
    source: int
    target: int
    device: DeviceIndex
    start: float
    end: float
    origin: int
    by: int | None
    slots: BusyIntervals
    given: float


class Fit(NamedTuple):
    """A place and time for a range, the transfers it needs first, and the operations its data come from."""

    node: int
    device: DeviceIndex
    first: int
    groups: int
    start: float
    end: float
    hops: list[PendingMove]
    after: list[int]


class Timeline(Operations):
    """A partial schedule that grows node by node, predecessors first."""

    __slots__ = (
        "_affine", "_known_of", "_needs_of", "_predecessors", "_routes", "_version", "_ways", "_whole_needs",
        "_whole_writes", "intervals", "memory",
    )  # fmt: skip

    def __init__(self, problem: Problem, rows: Sequence[Sequence[float]]) -> None:
        super().__init__(problem, rows)
        machine, graph = problem.machine, problem.graph
        self._predecessors, self._version = graph.predecessors, problem.estimates.version
        self._whole_needs, self._whole_writes = problem.whole_needs, problem.whole_writes
        self.memory = [*(d.memory for d in machine.devices), HOST]  # the last: the host's memory
        self._routes, self._ways = problem.routes, problem.ways
        self._needs_of: tuple[int, int, NetworkNeeds | None] = -1, -1, None  # of which node, after how many changes
        self._known_of: dict[int, tuple[tuple[int, ...], Ended]] = {}
        self._affine: dict[tuple[int, int], tuple[float, float]] = {}
        self._fix()

    # reading

    def needs(self, node: int, first: int = 0, groups: int = 0) -> Sequence[BufferRange]:
        """Return what ``problem.needs`` returns for a range, or for the whole node."""
        if not groups:
            return self._whole_needs[node]
        split = self.problem.splits[node]
        if split.merge != "none":
            return self.problem.needs(node, first, groups)
        regions, sizes = split.regions, self.problem.graph.buffers
        out: list[BufferRange] = []
        for region in self._whole_needs[node]:
            part = regions.get(region[0])
            bounds = None if part is None else part.bounds(first, groups, sizes[region[0]].nbytes)
            out.append(region if bounds is None else (region[0], *bounds))
        return out

    def affine(self, node: int, device: DeviceIndex) -> tuple[float, float]:
        """Return the seconds of a range as a line through its least and most groups: of none, and of each."""
        known = self._affine.get((node, device))
        if known is None:
            groups = self.problem.splits[node].groups
            least, each = self.problem.range_seconds(node, device, 1), 0.0
            if groups > 1:
                each = (self.problem.range_seconds(node, device, groups) - least) / (groups - 1)
            known = self._affine[node, device] = (least - each, each)
        return known

    def ready(self, node: int, device: DeviceIndex) -> float:
        """Return when all predecessors are known on a device to have ended."""
        ready, ends, heard, devices = self.floor, self.end, self.heard, self.device
        for p in self._predecessors[node]:
            if len(self.of[p]) > FEW:
                ready = max(ready, self._ended(p).known(device))
                continue
            for op in self.of[p]:
                known = ends[op] if devices[op] == device != ON_HOST else heard[op]
                if known > ready:
                    ready = known
        return ready

    def _ended(self, node: int) -> Ended:
        """Return when the parts of a node have ended."""
        ops, found = self.of[node], self._known_of.get(node)
        if found is None or found[0] is not ops:
            found = self._known_of[node] = ops, Ended.of(ops, self.device, self.end, self.heard)
        return found[1]

    def arrival(
        self, regions: Sequence[BufferRange], device: DeviceIndex, hops: list[PendingMove], after: list[int]
    ) -> float:
        """Return when bytes of buffers can be in a device's memory. The transfers that are needed are added to
        ``hops``, which has none yet, the operations that bring bytes that are there, or on their way, to ``after``."""
        arrive = self.floor
        if not self._several:
            return arrive
        memory, of, ends, devices = self.memory[device], self.intervals.of, self.end, self.device
        missing: list[Missing] = []
        for key, low, high in regions:
            intervals: Sequence[WriterInterval] | None = of.get(key)
            if not intervals:
                continue
            if low > intervals[0][0] or high < intervals[-1][1]:
                intervals = self.intervals.touched(key, low, high)
            for a, b, writer, places in intervals:
                if a >= high or b <= low or not places:
                    continue
                op = places.get(memory)
                if op is None:
                    source = next(iter(places)) if len(places) == 1 else self._routes.nearest(places, memory)
                    made = self.made(places[source])
                    found = (made[0], key, a if a > low else low, b if b < high else high, writer, source, made)
                    if missing and _goes_on(missing[-1], found):
                        missing[-1] = (*missing[-1][:3], *found[3:])
                    else:
                        missing.append(found)
                elif op != INITIAL:
                    after.append(op)
                    known = ends[op] if devices[op] == device != ON_HOST else self.heard[op]
                    if known > arrive:
                        arrive = known
        if missing:
            brought = self._bring(missing, device, hops)
            if brought > arrive:
                return brought
        return arrive

    def enqueued(self, device: DeviceIndex, hops: Sequence[PendingMove] = ()) -> float:
        """Return when the host's thread, which enqueues in order of placement, can have enqueued a device's kernel."""
        return (hops[-1][12] if hops else self._given[-1]) + self._enqueues[device][0]

    def _bring(self, missing: list[Missing], device: DeviceIndex, hops: list[PendingMove]) -> float:
        """Add the first transfers, in each queue in the order in which the data are ready; return when they arrive."""
        arrive, handover, host = self.floor, self._handover, self._host
        several = len(missing) > 1  # a single transfer shares no queue
        if several:
            missing.sort(key=_by_time)
        queues, ways, given, enqueues = self._queues, self._ways, self._given[-1], self._enqueues
        busy: dict[BusyIntervals, float] = {}
        for _, key, low, high, writer, source, (ready, heard, before, op) in missing:
            by: int | None = None
            of = high - low, source, device
            for a, b, lane, queue, seconds in ways.get(of) or self._way(*of):
                if lane != before:
                    ready = heard if by is None else ready + handover
                given += enqueues[lane][1]
                if given > ready:
                    ready = given
                slots = queues[queue]
                if several and (until := busy.get(slots, ready)) > ready:
                    ready = until
                if host is None:
                    taken = slots.ends
                    start = slots.first(ready, seconds) if taken and taken[-1] > ready else ready
                    ready = start + seconds
                else:
                    start, ready = self.sent(slots, ready, high - low, (a, b))
                if several:
                    busy[slots] = ready
                hops.append(new(PendingMove, (key, low, high, writer, a, b, lane, start, ready, op, by, slots, given)))
                by, before = len(hops) - 1, lane
            if before != device:
                ready += handover
            if ready > arrive:
                arrive = ready
        return arrive

    def _way(self, nbytes: int, source: int, device: DeviceIndex) -> Way:
        """Return the transfers that bring so many bytes from a memory to a device's, each with its seconds alone."""
        hops = self._routes.hops(source, device)
        found = tuple([(a, b, lane, queue, self._transfer(nbytes, a, b)) for a, b, lane, queue in hops])
        return self._ways.setdefault((nbytes, source, device), found)

    def fit(self, node: int, device: DeviceIndex, first: int = 0, groups: int = 0, not_before: float = 0.0) -> Fit:
        """Return the earliest place for a range of a node (``groups`` 0: all) on a device (``ON_HOST``: the host)."""
        hops: list[PendingMove] = []
        after: list[int] = []
        if groups:
            seconds = self.problem.range_seconds(node, device, groups, first)
        else:
            seconds = self.rows[node][device] if device != ON_HOST else 0.0
        arrive = self.arrival(self.needs(node, first, groups), device, hops, after)
        ready = max(self.ready(node, device), not_before, arrive, self.enqueued(device, hops))
        if self._host is None:
            start = self.kernels[device].first(ready, seconds)
            return new(Fit, (node, device, first, groups, start, start + seconds, hops, after))
        dimension = self.problem.splits[node].dimension if groups else WHOLE
        what = Assignment(node, device, 0, 0.0, 0.0, dimension, first, groups)
        start, end = self.room(self.kernels[device], ready, what, seconds)
        return Fit(node, device, first, groups, start, end, hops, after)

    def earliest(self, node: int, devices: Sequence[DeviceIndex], more: Sequence[float] = ()) -> Fit:
        """Return the fit of a whole node on the device where it ends first, and its results are on the host, the first
        of equals; ``more``: seconds by device that are added to the end instead."""
        if not more:
            more = self.problem.homes.get(node, ())
        bounds: list[tuple[float, int]] = []  # the ends if all data were there
        for place, device in enumerate(devices):
            seconds = self.rows[node][device]
            start = self.kernels[device].first(self.ready(node, device), seconds)
            bounds.append((start + seconds + (more[device] if more else 0.0), place))
        bounds.sort()
        best, least = None, (inf, len(devices))
        for end, place in bounds:
            if (end, place) > least:
                break
            device = devices[place]
            found = self.fit(node, device)
            end = found.end + (more[device] if more else 0.0)
            if (end, place) < least:
                best, least = found, (end, place)
        assert best is not None
        return best

    def reach(self, node: int, device: DeviceIndex, most: int = 0) -> Reach:
        """Return how a node's end on a device, results on the host, depends on its groups; ``most``: that fit."""
        split = self.problem.splits[node]
        # (a launch may touch a small part of what is in linear regions)
        needs = self.needs(node, 0, split.groups if split.merge == "none" else 0)
        regions = split.regions
        of_all: list[PendingMove] = []
        hops: list[PendingMove] = []
        after: list[int] = []
        whole = [r for r in needs if r[0] not in regions]
        ready = max(self.ready(node, device), self.arrival(whole, device, of_all, []), self.enqueued(device))
        memory, lacks = self.memory[device], None
        if (shared := self._on_network(node, memory, linear := [r for r in needs if r[0] in regions])) is not None:
            lacks = shared.of(memory)
            ready = max(ready, lacks.ready)
        else:
            self.arrival(linear, device, hops, after)
            ready = max([ready, *[self.end[op] for op in after]])
        once, each = self.affine(node, device)
        if node in self.problem.results:
            home = self.problem.home_seconds(node, device)
            least = self.problem.home_seconds(node, device, 1) if split.merge == "none" else home
            slope = (home - least) / max(1, split.groups - 1)
            once, each = once + least - slope, each + slope
        if not hops and not (lacks and lacks.nbytes):
            return Reach(device, ready, self.floor, 0.0, float(split.groups), once, each, most or split.groups)
        base = max([hop.end for hop in of_all if hop.target == memory], default=self.floor)
        lacking, seconds, known, links = 0, 0.0, self.floor, list[BusyIntervals]()
        for hop in hops:
            nbytes = hop.high - hop.low
            seconds += self._transfer(nbytes, hop.source, hop.target)
            if hop.target == memory:
                lacking += nbytes
                links.append(hop.slots)
            if hop.by is None and hop.origin != INITIAL and self.heard[hop.origin] > known:
                known = self.heard[hop.origin]
        if lacks is not None and shared is not None:
            lacking, seconds, known, defined = lacks.nbytes, lacks.seconds, lacks.known, shared.nbytes
            links.append(self._queues[self._routes.queue(memory, device)])
        else:
            defined = sum([self.intervals.nbytes(*r) for r in linear])
        here = split.groups * (1.0 - lacking / defined)
        base = links[0].first(max(base, known), seconds / 2)
        return Reach(device, ready, base, seconds / (split.groups - here), here, once, each, most or split.groups)

    def _on_network(self, node: int, memory: int, linear: Sequence[BufferRange]) -> NetworkNeeds | None:
        """Return what the memories of the network lack of what a node needs now; None where that does not tell."""
        if memory not in self._routes.joined or len(self._routes.joined) < 3:
            return None
        if self._needs_of[:2] != (node, self.changes):
            parts = [(*r, self.intervals.touched(*r)) for r in linear]
            found = NetworkNeeds(parts, self._routes.joined, self._transfer, (self.end, self.heard, self.floor))
            self._needs_of = node, self.changes, found if found.usable else None
        return self._needs_of[2]

    # placing

    def mark(self) -> tuple[int, int]:
        """Return a mark to go back to."""
        return len(self.what), self.intervals.mark()

    def back(self, mark: tuple[int, int]) -> None:
        """Take back everything placed since ``mark``."""
        count, changes = mark
        self._take_back(count)
        self.intervals.back(changes)

    def take(self, fit: Fit, queue: int | None = None) -> int:
        """Place a range and its transfers; return its operation. ``complete`` follows when the whole node is placed.
        ``queue``: of several, where the caller knows what runs beside the range; None: nothing does."""
        node, device, first, groups, start, end, hops, after = fit
        if hops:
            after = self._transferred(hops, after, self.memory[device])
        dimension = self.problem.splits[node].dimension if groups else WHOLE
        version = self._version(node, device) if device != ON_HOST else 0
        slots = self.kernels[device] if queue is None else None
        what = new(Assignment, (node, device, queue or 0, start, end, dimension, first, groups, version))
        return self._add(what, after, slots)

    def _transferred(
        self, hops: Sequence[PendingMove], after: Sequence[int], memory: int, partial: DeviceIndex | None = None
    ) -> list[int]:
        """Place transfers; return the operations ``after`` and those that bring bytes to a memory. ``partial``: as of a
        :class:`Move`."""
        waits, made, arrived, add, together = [*after], list[int](), self.intervals.arrived, self._add, self._together
        for key, low, high, writer, a, b, lane, start, end, origin, by, slots, _ in hops:
            move = new(Move, (key, low, high, writer, a, b, lane, start, end, partial))
            if by is not None:
                op = add(move, (made[by],), slots)
            else:
                op = add(move, together.get(origin, (origin,)) if origin != INITIAL else (), slots)
            made.append(op)
            if partial is None:
                arrived(move, op)
            if b == memory:
                waits.append(op)
        return waits

    def bring(self, regions: Sequence[BufferRange], device: DeviceIndex) -> float:
        """Place the transfers that bring bytes of buffers to a device's memory; return when they are there."""
        hops: list[PendingMove] = []
        arrive = self.arrival(regions, device, hops, [])
        self._transferred(hops, (), self.memory[device])
        return arrive

    def place(self, fit: Fit, queue: int | None = None) -> None:
        """Place a whole node."""
        self._complete_whole(fit[0], self.take(fit, queue), self.memory[fit[1]])

    def put(self, node: int, devices: Sequence[DeviceIndex], more: Sequence[float] = ()) -> None:
        """Place a whole node on the device where it ends first, as :meth:`earliest` has it."""
        self.place(self.earliest(node, devices, more) if len(devices) > 1 else self.fit(node, devices[0]))

    def by_node(self) -> tuple[list[DeviceIndex], list[float], list[float]]:
        """Return for every node where (the first part of) it runs, when it starts and when it ends."""
        what, ends = self.what, self.end
        where = [self.device[ops[0]] for ops in self.of]
        start = [what[ops[0]].start if len(ops) == 1 else min(what[op].start for op in ops) for ops in self.of]
        end = [ends[ops[0]] if len(ops) == 1 else max(ends[op] for op in ops) for ops in self.of]
        return where, start, end

    def schedule(self) -> Schedule:
        """Return the assignments, as early as possible: as placed, if nothing was taken back or is slowed down."""
        plain = not (self.intervals.marked or self.problem.fixed or self.is_slowed)
        assignments = sorted(self.assignments(), key=times) if plain else self.finish()
        return Schedule(assignments, max((a.end for a in assignments), default=self.floor))

    def complete(self, node: int, ops: Sequence[int]) -> float:
        """Complete a node that these operations have placed: what it writes is where it ran. Return its end."""
        what = self.what[ops[0]]
        if len(ops) == 1 and isinstance(what, Assignment) and what.dimension is WHOLE:  # most are
            return self._complete_whole(node, ops[0], self.memory[what.device])
        split = self.problem.splits.get(node)
        ranges = [a for op in ops if isinstance(a := self.what[op], Assignment)]
        if split is not None and split.merge != "none" and len({self.memory[a.device] for a in ranges}) > 1:
            return self._merge(node, ops, ranges)
        self.of[node] = tuple(ops)
        if not self._several:
            return max([self.end[op] for op in ops])
        buffers = self.problem.graph.buffers
        for key in self.problem.graph.nodes[node].writes:
            size = buffers[key].nbytes
            part = split.regions.get(key) if split is not None else None
            if part is None or ranges[0].dimension is WHOLE:
                # ranges of a node that is merged, all in one memory: the last one completes the contents
                last = max(ops, key=self.end.__getitem__)
                if len(ops) > 1:
                    self._together[last] = tuple(ops)
                for low, high in self.problem.written(node, key):
                    self.intervals.write(key, WriterInterval(low, high, node, {self.memory[ranges[0].device]: last}))
            else:
                for op, a in zip(ops, ranges, strict=True):
                    low, high = part.bounds(a.first, a.groups, size)
                    self.intervals.write(key, WriterInterval(low, high, node, {self.memory[a.device]: op}))
        return max(self.end[op] for op in ops)

    def _complete_whole(self, node: int, op: int, memory: int) -> float:
        self.of[node] = (op,)
        if self._several:
            parts = self.problem.graph.parts
            for key, low, high in self._whole_writes[node]:
                made = new(WriterInterval, (low, high, node, {memory: op}))
                if key in parts:
                    self.intervals.write(key, made)
                else:
                    self.intervals.set(key, [made])
        return self.end[op]

    def _merge(self, node: int, ops: Sequence[int], ranges: list[Assignment]) -> float:
        """Move all partial results to where the first range ran, and merge them there."""
        home = ranges[0].device
        others: dict[int, list[int]] = {}
        for op, a in zip(ops, ranges, strict=True):
            others.setdefault(self.memory[a.device], []).append(op)
        waits = others.pop(self.memory[home])
        ready = max((self.end[op] if self.device[op] == home else self.heard[op] for op in ops), default=self.floor)
        buffers, keys = self.problem.graph.buffers, self.problem.graph.nodes[node].writes
        for memory, members in sorted(others.items()):
            last = max(members, key=self.end.__getitem__)
            self._together[last] = tuple(members)
            for key in keys:
                hops: list[PendingMove] = []
                made = self.made(last)
                ready = max(ready, self._bring([(0.0, key, 0, buffers[key].nbytes, node, memory, made)], home, hops))
                waits += self._transferred(hops, (), self.memory[home], min(self.device[op] for op in members))
        self._merged[node] = len(others)
        seconds = self.problem.merge_seconds(node, home, len(others))
        merge = Assignment(node, home, 0, 0.0, 0.0, MERGE)
        start, end = self.room(self.kernels[home], max(ready, self.enqueued(home)), merge, seconds)
        op = self._add(merge._replace(start=start, end=end), [*waits, *ops], self.kernels[home])
        self.of[node] = (op,)
        for key in keys:
            for low, high in self.problem.written(node, key):
                self.intervals.write(key, WriterInterval(low, high, node, {self.memory[home]: op}))
        return end

    def _fix(self) -> None:
        """Place the data that are there, and the fixed assignments as they are, with their data where they put them."""
        self.intervals, self._queues = WriterIntervals(self.problem), self._idle_queues()
        of: dict[int, list[int]] = {}
        for a in self.problem.fixed:
            of.setdefault(a.node, []).append(self._add(a, (), None))
        self._occupy()
        self.problem.check_fixed()
        for node in sorted(of):
            ops = of[node]
            merges = [op for op in ops if self.what[op].dimension is MERGE]  # type: ignore[union-attr]
            if not merges:
                self.complete(node, ops)
                continue
            self.of[node] = (merges[0],)
            for key in self.problem.graph.nodes[node].writes:
                home = self.memory[self.device[merges[0]]]
                for low, high in self.problem.written(node, key):
                    self.intervals.write(key, WriterInterval(low, high, node, {home: merges[0]}))


def _goes_on(before: Missing, missing: Missing) -> bool:
    """Return whether bytes lie behind others of the same operation, so that one transfer serves both."""
    return before[3] == missing[2] and before[:2] == missing[:2] and before[4:] == missing[4:]


def _by_time(item: Missing) -> float:
    return item[0]
