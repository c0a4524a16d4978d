"""``adaptive``: kernels divided among all devices, by the times of earlier executions (``plan/adapt/granularity.py``).
P. Huchant, M.-C. Counilh and D. Barthou, *Automatic OpenCL Task Adaptation for Heterogeneous Architectures*, Euro-Par
2016, Section 5, for several devices and whole graphs: kernels that pass parts of buffers to each other are cut at the
same places (``plan/adapt/families.py``). No profile or training: the first execution is divided by the estimates."""

from __future__ import annotations

import math
import statistics
from collections import ChainMap
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from manycl.graph.graph import Graph, Launch
from manycl.machine import HOST, DeviceIndex
from manycl.model.occupancy import share_of, work_groups
from manycl.plan.adapt.data_flow import DataFlows, Parts, Waits
from manycl.plan.adapt.division_history import DivisionHistory
from manycl.plan.adapt.families import Family, families
from manycl.plan.adapt.granularity import Beforehand, Wanted, adapted, cuts, start
from manycl.plan.options import Option, Options, one_of, real, whole
from manycl.plan.plan import Plan
from manycl.plan.policies.papers.mkmd_coarse import Table, as_plan, in_priority, look_up, place
from manycl.plan.policy import Timed, register
from manycl.plan.problem import Problem
from manycl.plan.split import AnalysedSplits
from manycl.plan.timeline.timeline import Timeline
from manycl.plan.tuning import ADAPT
from manycl.utilities.kept import FEW

_FIRST, _LEAST = one_of("first", "estimates", "uniform"), whole("least", 1, 1)
_BAND = Option("band", ADAPT.dead_band, real(below=1.0), "a number from 0 to below 1")

Ranges = Sequence[tuple[DeviceIndex, int, int]]
"""A device (index), its first work-group and its number of work-groups."""


@register("adaptive")
class Adaptive:
    """The adaptive policy. It keeps what it learns as long as it lives, by kernel and call site, so one object is used
    for all repetitions: ``plan`` before an execution, ``observe`` after it. Options: ``first`` (``estimates`` or
    ``uniform``), ``least`` (work-groups of a kernel's leader that a device gets at least), ``band`` (part of the time
    that a change must gain)."""

    options = Options("adaptive", _FIRST, _LEAST, _BAND)

    def __init__(self) -> None:
        self._courses: dict[Hashable, DivisionHistory] = {}
        self._of: dict[int, _Planned] = {}
        # by the call sites of a graph: the cuts of its last execution, and how many there were
        self._ran: dict[tuple[Hashable, ...], tuple[tuple[tuple[int, ...], ...], int]] = {}

    def plan(self, problem: Problem) -> Plan:
        """Return the plan of the next execution. Raises PolicyError for unknown options and nodes of no device."""
        given = self.options.read(problem.options)
        wanted = Wanted(given[_LEAST], given[_FIRST] == "uniform", given[_BAND])
        table = look_up(problem)
        names = _names(problem.graph)
        where = tuple(d.name for d in problem.machine.devices)
        several = families(problem)
        flows = DataFlows(problem, several)
        keys = [(where, wanted, *(names[m.node] for m in f.members)) for f in several]
        begun = False
        for i, (key, family) in enumerate(zip(keys, several, strict=True)):
            course = self._courses.get(key)
            if course is None or course.granularity.groups != family.leader.groups:
                self._courses[key] = _begin(problem, table, family, wanted, flows, i)
                begun = True
            else:
                self._courses[key] = replace(course, family=family)  # with this graph's node numbers
        if begun and not wanted.uniform:
            self._judge(dict.fromkeys(keys, ()), flows, keys)
        ranges: dict[int, Ranges] = {}
        planned: dict[Hashable, tuple[int, ...]] = {}
        for key in keys:
            course = self._courses[key]
            at = planned[key] = course.cuts()
            for m in course.family.members:
                ranges[m.node] = [
                    (d, a, b - a) for d, (a, b) in zip(course.devices, pairwise(m.cuts(at)), strict=False)
                ]
        self._of.pop(id(problem.graph), None)
        self._of[id(problem.graph)] = _Planned(problem.graph, planned, flows)
        _forget(self._of)
        shares = [[b - a for a, b in pairwise(at)] for at in planned.values()]
        return divided(problem, ranges, "adaptive", table, shares=shares)

    def observe(self, graph: Graph, durations: Iterable[Timed], waits: Iterable[Timed] | None = None) -> None:
        """Learn from an execution of a graph planned here: the seconds of its nodes by device (several times of a node
        on a device add up), and how long devices waited for data (None: unknown). Nothing is learned of families that
        were not measured on all devices that they used."""
        known = self._of.get(id(graph))
        if known is None:
            return
        taken: dict[tuple[int, int], float] = {}
        for node, device, seconds in durations:
            taken[node, device] = taken.get((node, device), 0.0) + seconds
        news = set[Hashable]()
        for key, planned in known.cuts.items():
            course = self._courses[key]
            if course.cuts() == planned:  # a graph with the same call site may have changed it
                self._courses[key], new = _after(course, taken)
                news |= {key} if new else set()
        if waits is not None:
            news |= self._waited(known, waits)
        if news:
            self._judge(known.cuts, known.flows, news)

    def _waited(self, known: _Planned, waits: Iterable[Timed]) -> set[Hashable]:
        """Learn how long devices wait; return the families of which that is news."""
        news, flows = set[Hashable](), known.flows
        if not any(flows.linked):
            return news
        sites, now = tuple(known.cuts), tuple(known.cuts.values())
        last, count = self._ran.pop(sites, ((), 0))
        self._ran[sites] = now, count + 1
        _forget(self._ran)
        if count >= ADAPT.watched and count % ADAPT.watched:
            return news
        seconds: dict[tuple[int, int], float] = {}
        for node, device, waited in waits:
            seconds[node, device] = seconds.get((node, device), 0.0) + waited
        courses = [self._courses[key] for key in known.cuts]
        parts = {i: flows.parts(c.devices, at) for i, (c, at) in enumerate(zip(courses, now, strict=True))}
        for i, (key, at) in enumerate(known.cuts.items()):
            course = courses[i]
            if not (flows.linked[i] and course.devices):
                continue
            groups = course.granularity.groups
            within = flows.within(i, parts[i])
            links = zip(flows.waits(i, groups, course.devices, parts, at), pairwise(at), strict=True)
            foreseen = [once + each * (b - a) + within if b > a else 0.0 for (once, each), (a, b) in links]
            found = [sum(seconds.get((m.node, d), 0.0) for m in course.family.members) for d in course.devices]
            after = course.waited(foreseen, found, again=now == last, first=count == 0)
            if after.believed != course.believed:
                self._courses[key] = after
                before = course.believed or (1.0,) * len(after.believed)
                change = max(f * abs(a - b) for f, a, b in zip(foreseen, after.believed, before, strict=True))
                news |= {key} if change > course.granularity.dead_band * max(course.granularity.foreseen()) else set()
        return news

    def _judge(self, known: Mapping[Hashable, Sequence[int]], flows: DataFlows, news: Iterable[Hashable]) -> None:
        """Decide for families with news whether they are divided or whole, whichever is better for all; then for those
        with flows to families whose cuts have changed by that, and so on."""
        keys, told = list(known), list(known.values())
        courses = [self._courses[key] for key in keys]
        before = [course.whole for course in courses]
        parts = {i: flows.parts(c.devices, c.cuts()) for i, c in enumerate(courses) if c.devices}
        todo = {i for i, key in enumerate(keys) if key in news}
        for _ in range(ADAPT.sweeps):
            again = set[int]()
            for i in sorted(todo):
                course = replace(courses[i], whole=before[i])
                if flows.linked[i] and course.devices:
                    course = course.waiting(_waits(i, course, flows, parts))
                    course = course.judged(_elsewhere(i, course, courses, flows, parts))
                elif course.devices:
                    course = course.judged()
                if course.cuts() != told[i]:
                    again |= flows.near[i]
                courses[i], told[i] = course, course.cuts()
                parts[i] = flows.parts(course.devices, told[i])
            todo = again
        for together in flows.components:
            _gathered(together, courses, flows, parts)
        self._courses.update(zip(keys, courses, strict=True))

    def settled(self, graph: Graph) -> bool:
        """Return whether the last plan of this graph is still the one that would be planned."""
        known = self._of.get(id(graph))
        return known is not None and all(self._courses[key].cuts() == at for key, at in known.cuts.items())

    def shares(self, graph: Graph) -> dict[int, dict[int, int]]:
        """Return the work-groups of every node that may be divided, in the last plan of a graph: groups by device."""
        out: dict[int, dict[int, int]] = {}
        for key, at in self._of[id(graph)].cuts.items():
            course = self._courses[key]
            for member in course.family.members:
                bounds = pairwise(member.cuts(at))
                out[member.node] = {d: b - a for d, (a, b) in zip(course.devices, bounds, strict=True) if b > a}
        return out


class _Planned(NamedTuple):
    """A graph, the cuts of its families as they were planned, and the data flows between these."""

    graph: Graph
    cuts: dict[Hashable, tuple[int, ...]]
    flows: DataFlows


def _forget(of: dict[Any, Any]) -> None:
    """Keep the last entries."""
    while len(of) > FEW:
        del of[next(iter(of))]


def _after(course: DivisionHistory, taken: dict[tuple[int, int], float]) -> tuple[DivisionHistory, bool]:
    """Return the family after an execution, and whether that is news; the family itself where it was not measured on
    all devices that it used."""
    at = course.cuts()
    total = [0.0] * len(course.devices)
    for member in course.family.members:
        for i, (a, b) in enumerate(pairwise(member.cuts(at))):
            if b > a and course.devices:
                seconds = taken.get((member.node, course.devices[i]), 0.0)
                if seconds <= 0.0:
                    return course, False
                total[i] += seconds
    if not course.devices:
        return course, False
    for i, ((a, b), (once, each)) in enumerate(zip(pairwise(at), course.waits, strict=True)):
        total[i] += once + each * (b - a) if b > a else 0.0
    before = course.granularity.workload
    g = adapted(course.granularity, total, at)
    whole = course.whole
    compared = course.compared if whole is None else course.compared | {whole}
    # both ways have been measured now, which is news
    alone = whole is not None and g.divided > 0 and g.alone(whole) != course.granularity.alone(whole)
    return replace(course, granularity=g, compared=compared), g.workload is not before or course.trial or alone


def _waits(index: int, course: DivisionHistory, flows: DataFlows, parts: Mapping[int, Parts]) -> Waits:
    """Return how long a family's devices wait before its kernels, as far as is known."""
    g = course.granularity
    return course.believing(flows.waits(index, g.groups, course.devices, parts, cuts(g)))


def _within(index: int, course: DivisionHistory, flows: DataFlows, own: Parts) -> float:
    """Return how long they wait between its kernels, if these are divided like this."""
    return flows.within(index, own) * max(course.believed, default=1.0)


def _elsewhere(
    index: int, course: DivisionHistory, courses: Sequence[DivisionHistory], flows: DataFlows, parts: dict[int, Parts]
) -> list[float]:
    """Return the seconds that each of a family's choices costs in its data flows: to other families, and within it."""
    out, readers = [], [(r, courses[r]) for r in flows.readers[index] if courses[r].devices]
    for at in course.choices():
        own = flows.parts(course.devices, at)
        there = ChainMap({index: own}, parts)
        seconds = _within(index, course, flows, own)
        seconds += sum(c.adapted(_waits(r, c, flows, there)) for r, c in readers)
        out.append(seconds)
    return out


def _gathered(
    linked: Sequence[int], courses: list[DivisionHistory], flows: DataFlows, parts: Mapping[int, Parts]
) -> None:
    """Put families with data flows between them all on one device, if that is predicted to be shorter by far: no step
    of one of them alone need lead there. Not while one of them is divided on trial."""
    if any(courses[i].trial or not courses[i].devices for i in linked):
        return
    now = sum(
        courses[i].slowest(_waits(i, courses[i], flows, parts))
        + (courses[i].overhead + _within(i, courses[i], flows, parts[i]) if courses[i].whole is None else 0.0)
        for i in linked
    )
    best: list[DivisionHistory] = []
    for d in set.intersection(*(set(courses[i].devices) for i in linked)):
        there = {i: replace(courses[i], whole=courses[i].devices.index(d)) for i in linked}
        all_there = {i: flows.parts(c.devices, c.cuts()) for i, c in there.items()}
        waits = {i: _waits(i, c, flows, all_there) for i, c in there.items()}
        then = sum(c.slowest(waits[i]) for i, c in there.items())
        if then < (1.0 - ADAPT.worth) * now:
            now, best = then / (1.0 - ADAPT.worth), [c.waiting(waits[i]) for i, c in there.items()]
    for i, course in zip(linked, best, strict=False):
        courses[i] = course


def _begin(
    problem: Problem, table: Table, family: Family, wanted: Wanted, flows: DataFlows, index: int
) -> DivisionHistory:
    """Return the first division: by the estimates, which may be far off; so only brief kernels stay whole untried."""
    places = [dict(table.places[m.node]) for m in family.members]
    devices = tuple(d for d in sorted(places[0]) if all(p.get(d) == 0 for p in places))
    if (most := min(problem.together(m.node) for m in family.members)) < len(devices):
        fastest = sorted(devices, key=lambda d: sum(table.rows[m.node][d] for m in family.members))
        devices = tuple(sorted(fastest[:most]))
    apart = len(devices) > 1 and any(
        len(problem.partners(m.node, [(d, 0) for d in devices])) < len(devices) for m in family.members
    )
    if not devices or apart:  # it, or the copies that merging its parts needs, do not fit into some memory
        return DivisionHistory(family, (), start(family.leader.groups, [0.0], [1.0]), ((0.0, 0.0),), whole=0)
    once, each = [], []
    groups = family.leader.groups
    for d in devices:
        first = sum(problem.range_seconds(m.node, d, 1) for m in family.members)
        whole = sum(table.rows[m.node][d] for m in family.members)
        overhead = min(problem.machine.devices[d].launch_overhead * len(family.members), 0.5 * first)
        once.append(overhead)
        each.append((whole - overhead) / groups)
    waits = flows.waits(index, groups, devices, {})  # for data that do not come from other families
    density, doubt = _density(problem, table, family, devices)
    narrow, rounds = zip(*(_filled(problem, family, d) for d in devices), strict=True)
    g = start(
        groups,
        [o + w for o, (w, _) in zip(once, waits, strict=True)],
        [e + w for e, (_, w) in zip(each, waits, strict=True)],
        replace(wanted, least=max(wanted.least, -(-groups // ADAPT.most_chunks))),
        Beforehand(
            density=density,
            doubt=doubt,
            rate_doubt=ADAPT.unknown if wanted.uniform else _rate_doubt(problem, family, devices),
            narrow=narrow,
            rounds=rounds,
            waits=[w for w, _ in waits],
        ),
    )
    overhead = problem.handover * len(family.members) + _merging(problem, family, devices)
    guessed = bool(density) and doubt == ADAPT.uncounted
    return DivisionHistory(family, devices, g, waits, overhead, _moving(problem, family, devices), guessed=guessed)


def _density(
    problem: Problem, table: Table, family: Family, devices: Sequence[DeviceIndex]
) -> tuple[tuple[float, ...], float]:
    """Return how the counted work of a family lies along the groups of its leader, and how far off that may be."""
    cells = min(ADAPT.cells, family.leader.groups)
    splits = problem.splits
    out, doubt = [0.0] * cells, ADAPT.counted
    for m in family.members:
        seconds = statistics.fmean(table.rows[m.node][d] for d in devices)
        along = splits.work(m.node, cells) if isinstance(splits, AnalysedSplits) else None
        if along is None:
            return (), ADAPT.uncounted
        mean = statistics.fmean(along.work)
        if mean <= 0.0 or seconds == math.inf:
            return (), ADAPT.uncounted
        out = [o + seconds * w / mean for o, w in zip(out, along.work, strict=True)]
        doubt = max(doubt, ADAPT.counted if along.exact else ADAPT.assumed if along.loops else ADAPT.uncounted)
    return tuple(out), doubt


def _filled(problem: Problem, family: Family, device: DeviceIndex) -> tuple[bool, float]:
    """Return whether a device other than a CPU has room for more work-items than all of a family's, and how many groups
    of its leader a CPU, on each core one work-group, runs at once (1: unknown)."""
    where = problem.machine.devices[device]
    launches = [n for n in (problem.graph.nodes[m.node] for m in family.members) if isinstance(n, Launch)]
    if where.kind != "cpu":
        return all(share_of(launch.work_items, work_groups(launch), where) < 1.0 for launch in launches), 1.0
    most = max(work_groups(launch) for launch in launches)
    return False, where.compute_units * family.leader.groups / most if most else 1.0


def _rate_doubt(problem: Problem, family: Family, devices: Sequence[DeviceIndex]) -> float:
    """Return how far off the ratios between the devices' times may be, as a logarithm."""
    doubt = max(problem.estimates.doubt(m.node, devices) for m in family.members)
    return min(max(math.log1p(doubt), ADAPT.counted), ADAPT.unknown)


def _merging(problem: Problem, family: Family, devices: Sequence[DeviceIndex]) -> float:
    """Return the seconds to move partial results together, and to merge them."""
    seconds = 0.0
    for m in family.members:
        if problem.splits[m.node].merge != "none" and len(devices) > 1:
            seconds += min(problem.merge_seconds(m.node, d, len(devices) - 1) for d in devices)
            memories = {problem.machine.devices[d].memory for d in devices} - {HOST}
            for key in problem.graph.nodes[m.node].writes:
                nbytes = problem.graph.buffers[key].nbytes
                seconds += sum(problem.estimates.transfer(nbytes, memory, HOST) for memory in memories)
    return seconds


def _moving(problem: Problem, family: Family, devices: Sequence[DeviceIndex]) -> tuple[float, ...]:
    """Return the seconds to move all that a family's members touch in linear regions to each device."""
    keys = {key for m in family.members for key in problem.splits[m.node].regions}
    sizes = [problem.graph.buffers[key].nbytes for key in keys]
    memories = (problem.machine.devices[d].memory for d in devices)
    return tuple(sum(problem.estimates.transfer(size, HOST, memory) for size in sizes) for memory in memories)


def divided(
    problem: Problem, ranges: Mapping[int, Ranges], policy: str, table: Table | None = None, **details: object
) -> Plan:
    """Return the plan with given ranges (of work-groups, by node): nodes in the order of MKMD's Eq. 4, every range as
    early as it can be; nodes without ranges where they end first."""
    table = table or look_up(problem)
    timeline = Timeline(problem, table.rows)
    fixed = {a.node for a in problem.fixed}
    for node in in_priority(problem, table):
        used = [r for r in ranges.get(node, ()) if r[2]]
        if node in fixed:
            continue
        if not used:
            place(timeline, table, node)
        elif len(used) == 1:  # as a whole
            timeline.complete(node, [timeline.take(timeline.fit(node, used[0][0]))])
        else:
            # partial results, if there are any, are merged on the device with most groups
            used.sort(key=lambda r: -r[2])
            timeline.complete(node, [timeline.take(timeline.fit(node, *r)) for r in used])
    return as_plan(problem, timeline, policy, **details)


def _names(graph: Graph) -> list[Hashable]:
    """Return a name for the call site of every node: kernel, sizes, and how many nodes like it come before it."""
    count: dict[Hashable, int] = {}
    out: list[Hashable] = []
    for task in graph.nodes:
        name: Hashable = task.name
        if isinstance(task, Launch):
            name = (task.program.source, task.kernel.name, task.global_size, task.local_size)
        count[name] = count.get(name, -1) + 1
        out.append((name, count[name]))
    return out
