"""``adaptive``: kernels divided among all devices, each time by what the last times took (``plan/granularity.py``).

P. Huchant, M.-C. Counilh and D. Barthou, *Automatic OpenCL Task Adaptation for Heterogeneous Architectures*, Euro-Par
2016, Section 5, for several devices and whole graphs: kernels that hand parts of buffers to each other are cut at the
same places (``plan/families.py``). No profile or training: the first execution is divided by the estimates.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from manycl.graph.graph import Graph, HostTask, Launch
from manycl.machine import HOST
from manycl.model.occupancy import share, work_groups
from manycl.plan.families import Family, families
from manycl.plan.granularity import DEAD_BAND, METHODS, Granularity, adapted, cuts, start
from manycl.plan.options import Option, Options, Values, one_of, real, whole
from manycl.plan.placement import Placement
from manycl.plan.plan import Plan
from manycl.plan.policies.mkmd_coarse import Table, as_plan, look_up, place, priorities, weights
from manycl.plan.policy import register
from manycl.plan.problem import Problem
from manycl.plan.rank import priority_order
from manycl.plan.split import Along
from manycl.plan.workload import ALIKE, ASSUMED, CELLS, COUNTED, UNCOUNTED, UNKNOWN

WORTH = 0.05
"""A kernel is divided if that is foreseen to gain this part of its time on the best device."""
SEEN = 0.01
"""The same where it ran both ways."""
LITTLE = 0.02
"""The same where nothing more is learned from dividing it, and where it may be that a division gains nothing."""
CLOSE = 0.15
"""Which of two times is shorter is not said by one execution if they differ by less than this part: first executions
take longer, and so does any that was disturbed."""
MOVING = 40.0
"""A family is not run whole to see what that takes if its data take longer than so many executions to get there."""
TRIED = 10.0
"""A kernel whose estimate is longer than this many handovers is divided once whatever the estimates say of its gain; so
is one whose loops run as often as data decide."""
MOST_CHUNKS = 2048
"""With more work-groups than this a device gets several at least: what one more or less gains is nothing."""
REMEMBERED = 16
"""Graphs whose measurements can be told to the policy: the last ones it has planned."""
_METHOD, _FIRST = one_of("method", *METHODS), one_of("first", "estimates", "uniform")
_LEAST, _BAND = whole("least", 1, 1), Option("band", DEAD_BAND, real(below=1.0), "a number from 0 to below 1")

Ranges = Sequence[tuple[int, int, int]]
"""Device (index), first work-group and number of work-groups."""


@dataclass(frozen=True, slots=True)
class _Course:
    """What is known of a family: its members, the devices that may run it (indices; none: it fits into no memory), how
    its groups are dealt out to them, the seconds that a group of the leader costs each beside its kernels (what moves
    every time), what dividing costs once, and the seconds that it takes to bring all slices to each (``moving``).
    ``whole``: the one of ``devices`` that has all groups, since dividing them does not pay (-1: it does); ``compared``:
    those that were measured so; ``guessed``: data decide how often its loops run; ``trial``: it is divided to see what
    that takes."""

    family: Family
    devices: tuple[int, ...]
    granularity: Granularity
    beside: tuple[float, ...]
    overhead: float = 0.0
    moving: tuple[float, ...] = ()
    whole: int = -1
    compared: frozenset[int] = frozenset()
    guessed: bool = False
    trial: bool = False

    def cuts(self) -> tuple[int, ...]:
        """Of the leader's groups, by device."""
        if self.whole < 0:
            return cuts(self.granularity)
        return self.granularity.whole(self.whole)

    def judged(self) -> _Course:
        """Divided or whole, whatever is foreseen to be shorter; both as they were measured, where they were."""
        g = self.granularity
        used = [i for i, n in enumerate(g.shares) if n]
        single = [g.alone(i) for i in range(len(self.devices))]
        best = self.whole if self.whole >= 0 else self._best(single)
        both = g.divided > 0 and best in self.compared
        together = (g.together() if both else max(*g.foreseen(), g.seen)) + self.overhead
        worth = self._worth(best, together)
        divided = len(used) > 1 and together < (1.0 - worth) * single[best]
        trial = divided and worth == -math.inf
        return replace(self, whole=-1 if divided else used[0] if len(used) == 1 else best, trial=trial)

    def _worth(self, best: int, together: float) -> float:
        """Part of its time on the best device that dividing must be foreseen to gain."""
        g, single = self.granularity, self.granularity.alone(best)
        if g.divided and best in self.compared:
            again = g.divided == 1 and together < (1.0 + CLOSE) * single
            return -math.inf if again else SEEN if self.whole >= 0 else 0.0
        far = self.moving[best] * (1.0 - g.shares[best] / g.groups) > MOVING * together
        if g.narrow and g.divided == 1 and not far and together > (1.0 - LITTLE) * g.alone_at_least():
            return math.inf  # it may have gained nothing: it is run whole to see
        if g.narrow and best in self.compared and g.evenly() + self.overhead < (1.0 - 2.0 * WORTH) * single:
            return -math.inf  # it may gain much
        if best in self.compared or (single < TRIED * self.overhead and not self.guessed):
            return WORTH if self.whole < 0 else 2.0 * WORTH  # what was given up must promise more
        return LITTLE if g.settled and g.divided and not g.narrow else -math.inf  # a long one is divided to see

    def _best(self, single: Sequence[float]) -> int:
        """The device that would have all groups: one that has had them, if no other is much faster."""
        best = single.index(min(single))
        had = [i for i in self.compared if single[i] < (1.0 + CLOSE) * single[best]]
        return min(had, key=lambda i: single[i], default=best)


@register("adaptive")
class Adaptive:
    """Keeps what it learns as long as it lives, by kernel and call site, so one object is used for all repetitions:
    ``plan`` before an execution, ``observe`` after it.

    Options: ``method`` (``profile``, ``fixed_point``, ``broyden``), ``first`` (``estimates`` or ``uniform``), ``least``
    (work-groups of a kernel's leader that a device gets at least), ``band`` (part of the time that a change must gain).
    """

    options = Options("adaptive", _METHOD, _FIRST, _LEAST, _BAND)

    def __init__(self) -> None:
        self._courses: dict[Hashable, _Course] = {}
        self._of: dict[int, tuple[Graph, dict[Hashable, tuple[int, ...]]]] = {}

    def plan(self, problem: Problem) -> Plan:
        """Raises PolicyError for options that there are not, and for nodes that no device can run."""
        options = _Options.of(self.options.read(problem.options))
        table = look_up(problem)
        names = _names(problem.graph)
        where = tuple(d.name for d in problem.machine.devices)
        ranges: dict[int, Ranges] = {}
        planned: dict[Hashable, tuple[int, ...]] = {}
        for family in families(problem):
            key = (where, options, *(names[m.node] for m in family.members))
            course = self._courses.get(key)
            if course is None or course.granularity.groups != family.leader.groups:
                course = _begin(problem, table, family, options)
            else:
                course = replace(course, family=family)  # the nodes' numbers are this graph's
            self._courses[key] = course
            at = planned[key] = course.cuts()
            for m in family.members:
                ranges[m.node] = [
                    (d, a, b - a) for d, (a, b) in zip(course.devices, pairwise(m.cuts(at)), strict=False)
                ]
        self._of.pop(id(problem.graph), None)
        self._of[id(problem.graph)] = problem.graph, planned
        while len(self._of) > REMEMBERED:
            del self._of[next(iter(self._of))]
        shares = [[b - a for a, b in pairwise(at)] for at in planned.values()]
        return divided(problem, ranges, "adaptive", table, shares=shares)

    def observe(self, graph: Graph, durations: Iterable[tuple[int, int, float]]) -> None:
        """What an execution of a graph planned here took: (node, device, seconds), several of a node on a device add
        up. Nothing is learned of families that were not measured on all devices that they used."""
        known = self._of.get(id(graph))
        if known is None:
            return
        taken: dict[tuple[int, int], float] = {}
        for node, device, seconds in durations:
            taken[node, device] = taken.get((node, device), 0.0) + seconds
        for key, planned in known[1].items():
            course = self._courses[key]
            if course.cuts() == planned:  # else it was changed by another graph with this call site
                self._courses[key] = _after(course, taken)

    def settled(self, graph: Graph) -> bool:
        """Whether the last plan of this graph is still what would be planned."""
        known = self._of.get(id(graph))
        return known is not None and all(self._courses[key].cuts() == at for key, at in known[1].items())

    def shares(self, graph: Graph) -> dict[int, dict[int, int]]:
        """How the work-groups of every node that may be divided are dealt out by the last plan of a graph: groups by
        device (index)."""
        out: dict[int, dict[int, int]] = {}
        for key, at in self._of[id(graph)][1].items():
            course = self._courses[key]
            for member in course.family.members:
                bounds = pairwise(member.cuts(at))
                out[member.node] = {d: b - a for d, (a, b) in zip(course.devices, bounds, strict=True) if b > a}
        return out


def _after(course: _Course, taken: dict[tuple[int, int], float]) -> _Course:
    """The family after an execution; as it was where that was not measured on all devices that it used."""
    at = course.cuts()
    total = [0.0] * len(course.devices)
    for member in course.family.members:
        for i, (a, b) in enumerate(pairwise(member.cuts(at))):
            if b > a and course.devices:
                seconds = taken.get((member.node, course.devices[i]), 0.0)
                if seconds <= 0.0:
                    return course
                total[i] += seconds
    if not course.devices:
        return course
    for i, n in enumerate(b - a for a, b in pairwise(at)):
        total[i] += course.beside[i] * n
    before = course.granularity.workload
    g = adapted(course.granularity, total, at)
    compared = course.compared | {course.whole} if course.whole >= 0 else course.compared
    course = replace(course, granularity=g, compared=compared)
    return course if g.workload is before and not course.trial else course.judged()


def _begin(problem: Problem, table: Table, family: Family, options: _Options) -> _Course:
    """The first division: by the estimates, which may be far from true; so only brief kernels stay whole untried."""
    places = [dict(table.places[m.node]) for m in family.members]
    devices = tuple(d for d in sorted(places[0]) if all(p.get(d) == 0 for p in places))
    if not devices:  # it fits into no device's memory as a whole: in ranges, one after another
        return _Course(family, (), start(family.leader.groups, [0.0], [1.0]), (0.0,), whole=0)
    once, each = [], []
    groups = family.leader.groups
    for d in devices:
        first = sum(problem.range_seconds(m.node, d, 1) for m in family.members)
        whole = sum(table.rows[m.node][d] for m in family.members)
        overhead = min(problem.machine.devices[d].launch_overhead * len(family.members), 0.5 * first)
        once.append(overhead)
        each.append((whole - overhead) / groups)
    beside = _beside(problem, family, devices)
    total = [e + b for e, b in zip(each, beside, strict=True)]
    density, doubt = _density(problem, table, family, devices)
    narrow, rounds = zip(*(_filled(problem, family, d) for d in devices), strict=True)
    g = start(
        groups,
        once,
        total,
        method=options.method,
        least=max(options.least, -(-groups // MOST_CHUNKS)),
        uniform=options.uniform,
        dead_band=options.band,
        density=density,
        doubt=doubt,
        rate_doubt=UNKNOWN if options.uniform else _rate_doubt(problem, family, devices),
        narrow=narrow,
        rounds=rounds,
    )
    overhead = problem.handover * len(family.members) + _merging(problem, family, devices)
    guessed = bool(density) and doubt == UNCOUNTED
    course = _Course(family, devices, g, beside, overhead, _moving(problem, family, devices), guessed=guessed)
    return course if options.uniform else course.judged()


def _density(problem: Problem, table: Table, family: Family, devices: Sequence[int]) -> tuple[tuple[float, ...], float]:
    """How the counted work of a family lies along the groups of its leader, and how far off that may be."""
    cells = min(CELLS, family.leader.groups)
    count = getattr(problem.splits, "work", None)
    out, doubt = [0.0] * cells, COUNTED
    for m in family.members:
        seconds = statistics.fmean(table.rows[m.node][d] for d in devices)
        along: Along | None = None if count is None else count(m.node, cells)
        if along is None:
            return (), UNCOUNTED
        mean = statistics.fmean(along.work)
        if mean <= 0.0 or seconds == math.inf:
            return (), UNCOUNTED
        out = [o + seconds * w / mean for o, w in zip(out, along.work, strict=True)]
        doubt = max(doubt, COUNTED if along.exact else ASSUMED if along.loops else UNCOUNTED)
    return tuple(out), doubt


def _filled(problem: Problem, family: Family, device: int) -> tuple[bool, float]:
    """Whether a device other than a CPU has room for more work-items than all of a family's, and how many groups of its
    leader a CPU, on each core one work-group, runs at once (1: unknown)."""
    where = problem.machine.devices[device]
    launches = [n for n in (problem.graph.nodes[m.node] for m in family.members) if isinstance(n, Launch)]
    if where.kind != "cpu":
        return max(share(launch, where) for launch in launches) < 1.0, 1.0
    most = max(work_groups(launch) for launch in launches)
    return False, where.compute_units * family.leader.groups / most if most else 1.0


def _rate_doubt(problem: Problem, family: Family, devices: Sequence[int]) -> float:
    """How far off the ratios between the devices' times may be, as a logarithm."""
    doubt = max(problem.doubt(m.node, devices) for m in family.members)
    return min(max(math.log1p(doubt), ALIKE), UNKNOWN)


def _merging(problem: Problem, family: Family, devices: Sequence[int]) -> float:
    """Seconds that it takes to bring partial results together, and to make one of them."""
    seconds = 0.0
    for m in family.members:
        if problem.splits[m.node].merge != "none" and len(devices) > 1:
            seconds += min(problem.merge_seconds(m.node, d, len(devices) - 1) for d in devices)
            memories = {problem.machine.devices[d].memory for d in devices} - {HOST}
            for key in problem.graph.nodes[m.node].writes:
                nbytes = problem.graph.buffers[key].nbytes
                seconds += sum(problem.estimates.transfer(nbytes, memory, HOST) for memory in memories)
    return seconds


def _moving(problem: Problem, family: Family, devices: Sequence[int]) -> tuple[float, ...]:
    """Seconds that it takes to bring all of what a family's members touch in slices to each device."""
    keys = {key for m in family.members for key in problem.splits[m.node].slices}
    sizes = [problem.graph.buffers[key].nbytes for key in keys]
    memories = (problem.machine.devices[d].memory for d in devices)
    return tuple(sum(problem.estimates.transfer(size, HOST, memory) for size in sizes) for memory in memories)


def _beside(problem: Problem, family: Family, devices: Sequence[int]) -> tuple[float, ...]:
    """Seconds that a group of the leader costs each device in transfers of every repetition: slices that host functions
    or kernels outside of the family write or read, and slices that members read as a whole."""
    inside = {m.node for m in family.members}
    moved = dict.fromkeys(devices, 0.0)
    nodes = problem.graph.nodes
    for m in family.members:
        for key, part in problem.splits[m.node].slices.items():
            nbytes = part.stride / m.scale
            down = key in nodes[m.node].writes and any(
                key in task.reads and (n not in inside or key not in problem.splits[n].slices)
                for n, task in enumerate(nodes)
            )
            up = key in nodes[m.node].reads and any(
                key in task.writes and (isinstance(task, HostTask) or n not in inside) for n, task in enumerate(nodes)
            )
            for d in devices:
                memory = problem.machine.devices[d].memory
                if memory != HOST:
                    large = 1 << 24  # the latency is not what a group costs
                    rate = problem.estimates.transfer(large, HOST, memory) / large
                    moved[d] += (down + up) * nbytes * rate
    return tuple(moved[d] for d in devices)


def divided(
    problem: Problem, ranges: Mapping[int, Ranges], policy: str, table: Table | None = None, **details: object
) -> Plan:
    """The plan with given ranges (of work-groups, by node): nodes in the order of MKMD's Eq. 4, every range as early as
    it can; nodes without any where they end first."""
    table = table or look_up(problem)
    placement = Placement(problem, table.rows)
    fixed = {a.node for a in problem.fixed}
    for node in priority_order(problem.graph, priorities(problem, weights(table))):
        used = [r for r in ranges.get(node, ()) if r[2]]
        if node in fixed:
            continue
        if not used:
            place(placement, table, node)
        elif len(used) == 1:  # as a whole
            placement.complete(node, [placement.take(placement.fit(node, used[0][0]))])
        else:
            used.sort(key=lambda r: -r[2])  # partial results, if there are any, are merged where most is
            placement.complete(node, [placement.take(placement.fit(node, *r)) for r in used])
    return as_plan(problem, placement, policy, **details)


def _names(graph: Graph) -> list[Hashable]:
    """A name for the call site of every node: kernel, sizes, and how many like it come before it."""
    count: dict[Hashable, int] = {}
    out: list[Hashable] = []
    for task in graph.nodes:
        name: Hashable = task.name
        if isinstance(task, Launch):
            name = (task.program.source, task.kernel.name, task.global_size, task.local_size)
        count[name] = count.get(name, -1) + 1
        out.append((name, count[name]))
    return out


@dataclass(frozen=True, slots=True)
class _Options:
    method: str
    uniform: bool
    least: int
    band: float

    @classmethod
    def of(cls, values: Values) -> _Options:
        return cls(values[_METHOD], values[_FIRST] == "uniform", values[_LEAST], values[_BAND])
