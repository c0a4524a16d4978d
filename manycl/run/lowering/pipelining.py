"""Pipelining: ranges are cut into parts, so that devices compute while links transfer.

A range of work-groups starts when all that it reads has arrived, and what it writes is transferred when it has ended.
Ranges are cut where a device with a memory of its own would wait for the data of its first ranges, or a host function
for the results of its last ranges. A first part starts when its own bytes are there, while those of the other parts
arrive. Of the last ranges the first parts run one after another, then the second parts, so that most of the results are
on the host when the last part ends. Parts are ranges like any other: each is launched, and has transfers of its own, of
which each takes the link's latency. So there are as many as end first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

from manycl.graph.dependences import least_first
from manycl.graph.graph import BufferKey, HostTask, Launch
from manycl.machine import HOST, DeviceIndex
from manycl.model.occupancy import share_of, work_groups
from manycl.plan.plan import ON_HOST, WHOLE, Assignment, Plan
from manycl.plan.problem import BufferRange, Problem
from manycl.plan.split import LinearRegion, Split
from manycl.plan.timeline.timeline import Fit, Timeline
from manycl.plan.timeline.writer_intervals import INITIAL
from manycl.plan.tuning import PLANNING
from manycl.run.lowering.steps import RANGE, Lowered

PARTS = 4
"""The most parts of a range; our own choice."""
SMALLEST = 1 / 8
"""The smallest part of a range that a part is; our own choice."""


class Pipelined(NamedTuple):
    """A plan with ranges in parts. ``turns``: the turn (1, 2, …) of each part that is to run in the order of turns,
    whatever the order of nodes; by node and first group."""

    plan: Plan
    turns: Mapping[tuple[int, int], int]


class _RangePart(NamedTuple):
    """The groups of an assignment (index) from ``low`` to ``high``, counted from its first one."""

    assignment: int
    low: int
    high: int


def overlapped(problem: Problem, plan: Plan) -> Pipelined:
    """Return the plan with ranges cut where that is predicted to pay."""
    devices = problem.machine.devices
    cutter = _Cutter(problem, plan)
    users = Counter(d.memory for d in devices)
    for index, device in problem.machine.numbered():
        if device.memory != HOST and users[device.memory] == 1:
            cutter.look(index)
    return cutter.result()


def in_turns(lowered: Lowered, turns: Mapping[tuple[int, int], int]) -> Lowered:
    """Return the steps of each queue in the order of turns, and within a turn in the plan's order, as far as
    dependences allow."""
    plan, graph = lowered.plan, lowered.graph
    if plan is None or not turns:
        return lowered
    keys = [(0, 0)] * len(graph)
    for position, a in enumerate(plan.assignments):
        step = lowered.step(a.node)
        keys[a.node] = (turns.get((step.node, step.first), 0) if step.role == RANGE else 0, position)
    of = {a.node: a for a in plan.assignments}
    order = least_first(graph.predecessors, graph.successors, keys)
    return replace(lowered, plan=replace(plan, assignments=tuple(of[n] for n in order)))


class _Cutter:
    def __init__(self, problem: Problem, plan: Plan) -> None:
        self._problem = problem
        self._plan = plan
        self._cuts: dict[int, set[int]] = {}  # by assignment (index): groups before which it is cut
        # the same for assignments that run in turns: groups before which a turn begins
        self._turns: dict[int, list[int]] = {}
        self._lines: dict[DeviceIndex, list[int]] = {}  # by device, its assignments
        for i, a in enumerate(plan.assignments):
            self._lines.setdefault(a.device, []).append(i)
        # of the first ranges of a device, which find all that they read on the host: before they were placed on the
        # timeline, and how long they waited for inputs that they alone read
        self._marks: dict[int, tuple[int, int]] = {}
        self._waits: dict[int, float] = {}
        self._first_writer: dict[int, int] = {}
        for node, task in enumerate(problem.graph.nodes):
            for key in task.writes:
                self._first_writer.setdefault(key, node)

    def look(self, device: DeviceIndex) -> None:
        """Cut the first and the last ranges of a device."""
        assignments, line = self._plan.assignments, self._lines.get(device, [])
        if len({assignments[i].queue for i in line}) == 1:
            problem, memory = self._uploads, self._problem.machine.devices[device].memory
            timeline = self._timeline
            timeline.back(self._empty)
            if any(problem.valid_intervals.values()) or any(memory not in places for places in problem.valid.values()):
                self._begin(timeline, device, line)
            self._end(timeline, device, line)

    def result(self) -> Pipelined:
        if not self._cuts:
            return Pipelined(self._plan, {})
        out: list[Assignment] = []
        turns: dict[tuple[int, int], int] = {}
        for i, a in enumerate(self._plan.assignments):
            if i not in self._cuts:
                out.append(a)
                continue
            bounds = sorted({0, a.groups, *self._cuts[i]})
            each = (a.end - a.start) / a.groups
            for low, high in pairwise(bounds):
                start, end = a.start + each * low, a.start + each * high
                out.append(a._replace(first=a.first + low, groups=high - low, start=start, end=end))
                if turn := _turn(low, self._turns.get(i, ())):
                    turns[a.node, a.first + low] = turn
        return Pipelined(replace(self._plan, assignments=tuple(out), events=()), turns)

    def _split(self, index: int) -> Split | None:
        """Return the split of an assignment's node, if the assignment is a range that can be cut, and nothing of its
        node is merged."""
        a = self._plan.assignments[index]
        if not a.is_range or a.device == ON_HOST:
            return None
        split = self._problem.splits.get(a.node)
        return split if split is not None and split.merge == "none" and split.dimension == a.dimension else None

    def _seconds(self, index: int) -> float:
        """Return the seconds of an assignment."""
        a = self._plan.assignments[index]
        return self._problem.range_seconds(a.node, a.device, 0 if a.dimension is WHOLE else a.groups, a.first)

    @cached_property
    def _rows(self) -> list[list[float]]:
        """The seconds of the nodes that run as wholes, by node and device."""
        launch, devices = self._problem.estimates.launch, self._problem.machine.indices
        whole = {a.node for a in self._plan.assignments if a.dimension is WHOLE and a.device != ON_HOST}
        return [[launch(n, d) for d in devices] if n in whole else [] for n in range(len(self._problem.graph))]

    def _place(self, timeline: Timeline, part: _RangePart) -> Fit:
        """Place a part behind all that its device has; it waits for its inputs only if these are on the host."""
        index, low, high = part
        a = self._plan.assignments[index]
        free = timeline.kernels[a.device].ends[-1:]
        count = 0 if a.dimension is WHOLE else high - low
        fit = timeline.fit(a.node, a.device, a.first + low, count, not_before=max(free, default=timeline.floor))
        if index not in self._marks:
            start = max([timeline.enqueued(a.device), *free])
            fit = fit._replace(start=start, end=start + fit.end - fit.start, hops=[], after=[])
        timeline.complete(a.node, [timeline.take(fit)])
        return fit

    def _end_of(
        self, timeline: Timeline, parts: Sequence[_RangePart], last: int = -1, results: Collection[BufferKey] = ()
    ) -> float:
        """Return when parts of ranges, one after another on one device, have ended, and the ``results`` of assignment
        ``last`` are on the host, each part's as soon as it has ended."""
        mark, end = timeline.mark(), timeline.floor
        for part in parts:
            end = max(end, self._place(timeline, part).end)
            if part.assignment == last:
                end = max(end, timeline.bring(self._written(*part, results), ON_HOST))
        timeline.back(mark)
        return end

    def _written(self, index: int, low: int, high: int, wanted: Collection[BufferKey]) -> list[BufferRange]:
        """Return the bytes of each ``wanted`` buffer that some groups of an assignment write."""
        a, buffers = self._plan.assignments[index], self._problem.graph.buffers
        regions = self._problem.splits[a.node].regions if wanted else {}
        return [(key, *regions[key].bounds(a.first + low, high - low, buffers[key].nbytes)) for key in wanted]

    # inputs

    @cached_property
    def _uploads(self) -> Problem:
        """The problem in which all contents but the host's are where they are needed: of contents in parts that are no
        intervals, problems know the memory of the largest part only, and ranges need little of the others."""
        valid = {key: places for key, places in self._problem.valid.items() if HOST in places}
        parts = self._problem.valid_intervals
        hosts = {key: tuple([p for p in found if HOST in p.memories]) for key, found in parts.items()}
        return replace(self._problem, valid=valid, valid_intervals=hosts)

    @cached_property
    def _timeline(self) -> Timeline:
        """The timeline on which the ranges of one device after another are placed."""
        return Timeline(self._uploads, self._rows)

    @cached_property
    def _empty(self) -> tuple[int, int]:
        """The mark of its beginning."""
        return self._timeline.mark()

    def _begin(self, timeline: Timeline, device: DeviceIndex, line: Sequence[int]) -> None:
        """Place the device's ranges on a timeline and cut those that wait for their data; end at the first range that
        needs data made elsewhere."""
        for i in line:
            a, split = self._plan.assignments[i], self._split(i)
            count = 0 if a.dimension is WHOLE else a.groups
            needs = timeline.needs(a.node, a.first, count) if split is not None or not count else ()
            if (count and split is None) or any(self._is_made_elsewhere(timeline, a.node, *part) for part in needs):
                return
            self._marks[i] = timeline.mark()
            if split is not None:
                self._cut_inputs(timeline, i, split, needs)
            for part in _in_order({i: a.groups}, self._cuts, {}) or [_RangePart(i, 0, 0)]:
                self._place(timeline, part)

    def _cut_inputs(self, timeline: Timeline, index: int, split: Split, needs: Sequence[BufferRange]) -> None:
        """Cut a range so that it ends first, if that pays."""
        a, mark = self._plan.assignments[index], timeline.mark()
        free = max(timeline.kernels[a.device].ends[-1:], default=timeline.floor)
        arrived = timeline.arrival([part for part in needs if part[0] not in split.regions], a.device, [], [])
        fit = self._place(timeline, _RangePart(index, 0, a.groups))
        timeline.back(mark)
        wait = self._waits[index] = fit.start - max(free, arrived)
        if not self._pays(min(wait, fit.end - fit.start)):
            return  # a wait too short as a whole is too short in part
        link = sum([hop.end - hop.start for hop in fit.hops if hop.buffer in split.regions])
        cuts = [_ends(sizes, a.groups) for sizes in self._sizes(index, fit.end - fit.start, link)]
        took = [self._end_of(timeline, _in_order({index: a.groups}, {index: ends}, {})) for ends in cuts]
        if took and self._pays(fit.end - min(took)):
            self._cuts[index] = {*cuts[took.index(min(took))]}

    def _is_made_elsewhere(self, timeline: Timeline, node: int, key: BufferKey, low: int, high: int) -> bool:
        """Return whether nodes before a node write bytes of a buffer, and not all of these are placed."""
        if self._first_writer.get(key, node) >= node:
            return False
        written = [s for s in timeline.intervals.touched(key, low, high) if s.writer != INITIAL]
        return sum([min(high, s.high) - max(low, s.low) for s in written]) < high - low

    # results

    def _end(self, timeline: Timeline, device: DeviceIndex, line: Sequence[int]) -> None:
        """Cut the last range, whose results a host function needs, and those before it that write its inputs."""
        last = line[-1]
        split = self._split(last)
        if split is None:
            return
        a = self._plan.assignments[last]
        graph = self._problem.graph
        readers = [task for n in graph.successors[a.node] if isinstance(task := graph.nodes[n], HostTask)]
        wanted = {k for k in graph.nodes[a.node].writes if any(k in task.reads for task in readers)}
        nbytes = sum(high - low for _, low, high in self._written(last, 0, a.groups, wanted))
        if not nbytes:
            return
        leaves = self._problem.estimates.transfer(nbytes, self._problem.machine.devices[device].memory, HOST)
        chain = self._chain(line, _ends((1.0 - SMALLEST, SMALLEST), a.groups), leaves)
        computes = sum(self._seconds(i) for i in chain)
        # inputs arrive turn by turn as well
        arrives = sum(self._waits.get(i, 0.0) for i in chain)
        if not self._pays(sum(sorted((arrives, computes, leaves))[:2])):
            return  # the most that can be hidden
        most, best = -math.inf, None
        sizes = self._sizes(last, max(arrives, computes), leaves)
        tried = [self._chain(line, _ends(of[::-1], a.groups), leaves) for of in sizes]
        for turns in sorted(tried, key=min, reverse=True):  # as the timeline can only go back
            groups = {i: self._plan.assignments[i].groups for i in sorted(turns)}
            if (begin := self._marks.get(min(groups))) is not None:
                timeline.back(begin)
            before = self._end_of(timeline, _in_order(groups, self._cuts, {}), last, wanted)
            both = {i: {*ends, *self._cuts.get(i, ())} for i, ends in turns.items()}
            for cuts in (turns, both) if self._cuts.keys() & turns.keys() else (turns,):
                gain = before - self._end_of(timeline, _in_order(groups, cuts, turns), last, wanted)
                if gain > most:
                    most, best = gain, (cuts, turns)
        if best is not None and self._pays(most):
            self._cuts.update((i, {*ends}) for i, ends in best[0].items())
            self._turns.update(best[1])

    def _chain(self, line: Sequence[int], ends: list[int], leaves: float) -> dict[int, list[int]]:
        """Return where the last ranges are cut, by assignment. The last one is cut as given. Those before it are cut so
        that what a turn reads is written in it or earlier. There are as many as it takes to compute in the last turn
        while all results before it are transferred."""
        found = {line[-1]: ends}
        seconds = self._seconds(line[-1])
        for i in line[-2::-1]:
            split = self._split(i)
            if split is None or seconds * SMALLEST >= leaves * (1.0 - SMALLEST):
                break
            ends = self._covering(i, split, found)
            if not ends:
                break
            found[i] = ends
            seconds += self._seconds(i)
        return found

    def _covering(self, index: int, split: Split, found: Mapping[int, Sequence[int]]) -> list[int]:
        """Return the groups before which a range is cut so that each turn has what the later ranges read (empty: they
        read nothing of it)."""
        a, graph = self._plan.assignments[index], self._problem.graph
        made = graph.nodes[a.node].writes
        ends = [0] * len(next(iter(found.values())))
        for later, cuts in found.items():
            b = self._plan.assignments[later]
            if not {*made} & {*graph.nodes[b.node].reads}:
                continue
            for turn, count in enumerate((*cuts, b.groups)):
                for key, low, high in self._problem.needs(b.node, b.first, count):
                    if key not in made:
                        continue
                    mine = split.regions[key].bounds(a.first, a.groups, graph.buffers[key].nbytes)
                    if low < mine[0] or high > mine[1]:
                        return []  # another device writes it at the same time: no device is to wait for its turns
                    if turn < len(ends):
                        needed = _groups_until(split.regions[key], high) - a.first
                        ends[turn] = max(ends[turn], needed)
        return ends if all(x < y for x, y in pairwise((0, *ends, a.groups))) else []

    # sizes of parts

    def _sizes(self, index: int, seconds: float, link: float) -> Iterator[list[float]]:
        """Yield sizes of the parts of a range, the smallest first: each is computed while the next is transferred. No
        part is so small that compute units are idle."""
        a = self._plan.assignments[index]
        task = self._problem.graph.nodes[a.node]
        assert isinstance(task, Launch)
        split = self._problem.splits[a.node]
        device = self._problem.machine.devices[a.device]
        ratio = max(1.0, seconds / link) if link > 0.0 else math.inf
        groups = work_groups(task)
        for number in range(PARTS, 1, -1):
            sizes = [ratio**i for i in range(number)] if ratio < 1.0 / SMALLEST else [1.0, 1.0 / SMALLEST - 1.0]
            sizes = [size / sum(sizes) for size in sizes]
            least = sizes[0] * a.groups / split.groups
            fills = share_of(task.work_items * least, groups * least, device) >= 1.0
            if (sizes[0] >= SMALLEST * 0.99 or number == 2) and fills and sizes[0] * a.groups >= 1.0:
                yield sizes

    def _pays(self, gain: float) -> bool:
        return gain > PLANNING.worth * self._problem.handover


def _in_order(
    groups: Mapping[int, int], cuts: Mapping[int, Collection[int]], turns: Mapping[int, Sequence[int]]
) -> list[_RangePart]:
    """Return the parts of assignments of so many ``groups`` in the order in which they run: turn by turn."""
    parts = [_RangePart(i, *ends) for i, n in groups.items() for ends in pairwise(sorted({0, n, *cuts.get(i, ())}))]
    return sorted(parts, key=lambda part: (_turn(part.low, turns.get(part.assignment, ())), part))


def _turn(low: int, begins: Sequence[int]) -> int:
    return sum(low >= at for at in begins)


def _ends(sizes: Sequence[float], groups: int) -> list[int]:
    """Return the numbers of groups after which all parts but the last end."""
    return [max(1, round(groups * end)) for end in list(accumulate(sizes))[:-1]]


def _groups_until(part: LinearRegion, high: int) -> int:
    """Return how many groups, from the first of the launch, touch all bytes below ``high``."""
    return -(-(high - part.offset - (part.width or part.stride)) // part.stride) + 1
