"""Range tasks: the steps of a plan before buffers are cut. Each has its launch, and the bytes of whole buffers that it
touches. Divided launches become ranges and steps that merge what these write, as
:class:`~manycl.graph.reduction.Reduction` says (:mod:`manycl.run.lowering.ranges` has the launches).
:mod:`manycl.run.lowering.lower` cuts the buffers along the bytes of range tasks."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from manycl.errors import PolicyError
from manycl.graph.access import Access, access_of, clash, forget_unread, interfere
from manycl.graph.division import Division, apart, identity
from manycl.graph.graph import Buffer, BufferKey, HostTask, Launch, Node, Window
from manycl.graph.reduction import Promised, Reduction
from manycl.graph.versions.versions import preferred, run_as
from manycl.group_range import GroupRange
from manycl.machine import HOST, DeviceIndex
from manycl.plan.plan import MERGE, ON_HOST, WHOLE, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.region import NOTHING, Region, union
from manycl.run.data.coherence import Directory
from manycl.run.data.contents import HostContents, LookedAt
from manycl.run.lowering.declared_access import divided
from manycl.run.lowering.depth import IN_DEPTH, DeepCopy, InDepth, Place
from manycl.run.lowering.index_arrays import narrow
from manycl.run.lowering.merging import DividedNode, MergeSteps, RangeTask
from manycl.run.lowering.ranges import launches_of
from manycl.run.lowering.steps import COMBINE, COPY, RANGE, Step
from manycl.run.tiling.tile_access import TileAccess
from manycl.run.tiling.time_skewing import TimeTile
from manycl.run.tiling.windows import Windows, intervals


@dataclass(frozen=True)
class Drafted:
    """The range tasks of a run. ``of_node``: those of each node, in the order of their rounds; the same object for
    nodes that run alike (its steps name the first of these nodes). ``temporaries``: buffers that only this run needs.
    ``sizes``: bytes of all buffers by key, temporaries included.
    ``promised``, ``looked_at``: the promises and contents that it relies on."""

    of_node: Sequence[Sequence[RangeTask]]
    temporaries: Sequence[Buffer]
    sizes: Mapping[BufferKey, int]
    promised: Sequence[Promised] = ()
    looked_at: Sequence[LookedAt] = ()

    @property
    def windows(self) -> dict[BufferKey, Window]:
        """The windows that steps work on, by key."""
        different = {id(drafts): drafts for drafts in self.of_node}.values()
        return {w.key: w for drafts in different for d in drafts for w in d.windows.values()}


class LoweringInput(NamedTuple):
    """The input of lowering, of which range tasks are made. ``plan``: None where devices are chosen during the run;
    ``directory``: its present state counts. ``contents``: those of buffers as the run begins, which may decide what
    is read (None: the steps are only foreseen); then launches that are divided by a promise which has not been
    checked are compared with their ranges, too. ``limits``: the bytes of buffers that devices may hold at a time
    whose ranges work on windows; ``shared``: as for :class:`windows.Windows`. ``time_tiles``: the plan's, whose
    ranges run tile after tile. ``deep``: the launches that run in depth."""

    problem: Problem
    plan: Plan | None
    directory: Directory
    contents: HostContents | None
    limits: Mapping[DeviceIndex, int]
    time_tiles: Sequence[TimeTile] = ()
    shared: bool = True
    deep: InDepth | None = None


class Drafting(MergeSteps):
    """Makes the range tasks of all nodes (``result``). ``of``: the plan's assignments by node. ``as_wholes``: divided
    nodes of which each range counts as touching all that the node does."""

    def __init__(self, source: LoweringInput, of: Sequence[Sequence[Assignment]], as_wholes: Container[int]) -> None:
        self.problem, _, self.directory, self.contents, self.limits, time_tiles, shared, self.deep = source
        directory, self.graph = source.directory, source.problem.graph
        self.of, self._as_wholes = of, as_wholes
        self._own: dict[tuple[object, ...], BufferKey] = {}  # what devices in depth have of their own
        self.sizes = {key: b.nbytes for key, b in self.graph.buffers.items()}
        self.temporaries: list[Buffer] = [self.graph.buffers[key] for key in sorted(self.graph.own)]
        self.promised: list[Promised] = []
        self.looked_at: list[LookedAt] = []
        self.defined = {key: self._defined(key) for key in self.sizes}
        self.complete = {key for key in self.sizes if key in directory.valid}
        self.tiles = TileAccess(self.graph, time_tiles)
        # intervals that may be windows, by range
        self._may: dict[tuple[Division, GroupRange], dict[BufferKey, tuple[int, int]]] = {}
        self.windows = Windows(self._intervals(), directory.new_key, shared)
        self._alike: dict[object, list[RangeTask]] = {}  # range tasks of nodes seen before

    def _defined(self, key: BufferKey) -> Region:
        """Return the bytes of a buffer that have contents."""
        parts = self.directory.valid_regions.get(key)
        if parts is not None:
            return union(p.region for p in parts if p.mask)
        return Region.span(0, self.sizes[key] if key in self.directory.valid else 0)

    def _intervals(self) -> Iterator[tuple[DeviceIndex, BufferKey, int, int]]:
        """Yield (device, buffer, low, high) of the intervals that may be windows."""
        for node, task in enumerate(self.graph.nodes):
            ranges = [a for a in self.of[node] if a.device in self.limits and a.is_range]
            if node in self.tiles:
                yield from ((ranges[0].device, *interval) for interval in self.tiles.intervals(node))
            elif ranges and isinstance(task, Launch):
                for a in ranges:
                    division = divided(self.problem, node, run_as(task, a.version), a.range.dimension, self.sizes)
                    for key, found in self._may_be_windows(division, a.range).items():
                        yield a.device, key, *found

    def _may_be_windows(self, division: Division, groups: GroupRange) -> dict[BufferKey, tuple[int, int]]:
        known = division, groups
        if known not in self._may:
            self._may[known] = intervals(*known)
        return self._may[known]

    def result(self) -> Drafted:
        """Return them. Raises PolicyError for a plan that does not run every work-group once, or divides a launch that
        cannot be divided."""
        of_node: list[list[RangeTask]] = []
        defining: set[int] = set()  # ids of range tasks whose writes have been added to `defined`
        for node, task in enumerate(self.graph.nodes):
            assignments = self.of[node]
            if node in self.tiles:
                drafts = self._in_tiles(node, task, assignments)
            elif self.deep is not None and node in self.deep.own:
                drafts = self._in_depth(node, task, assignments, self.deep)
            elif any(a.dimension is not WHOLE for a in assignments):
                drafts = self._divided(node, task, assignments)
            else:
                a = assignments[0] if assignments else Assignment(node, ON_HOST, 0, 0.0, 0.0)
                drafts = [RangeTask(Step(node), task, a.device, a.queue, access_of(task, self.sizes))]
            written: dict[BufferKey, list[Region]] = {}
            for draft in drafts if id(drafts) not in defining else ():
                for key, access in draft.access.items():
                    if key not in self.complete:
                        written.setdefault(key, []).append(access.writes)
            for key, regions in written.items():
                self.defined[key] = union((self.defined.get(key, NOTHING), *regions))
            of_node.append(drafts)
            defining.add(id(drafts))
        return Drafted(of_node, self.temporaries, self.sizes, self.promised, self.looked_at)

    def _in_tiles(self, node: int, task: Node, assignments: Sequence[Assignment]) -> list[RangeTask]:
        """Return the ranges of a launch in a time tile. Each one is taken to touch all that its tile touches of its
        buffers, so buffers are cut into few pieces: a tile's inputs are transferred when it begins, its results when
        it has ended."""
        division = self._check(node, task, list(assignments))[0]
        drafts = []
        for turn, a in enumerate(sorted(assignments, key=lambda a: a.first)):
            access, windows = self.tiles.touched(a, tuple(sorted(division.sizes)), self.windows)
            launch = launches_of(division).range(a.range, {}, windows)
            step = Step(node, RANGE, *a.range, Reduction.NONE.words())
            drafts.append(RangeTask(step, launch, a.device, a.queue, access, turn, windows))
        return drafts

    def _in_depth(self, node: int, task: Node, assignments: Sequence[Assignment], deep: InDepth) -> list[RangeTask]:
        """Return the range tasks of a launch in depth: what its devices exchange before it, its ranges on their own
        copies, and what is copied out after it. Launches that do the same share them."""
        assert isinstance(task, Launch)
        before, after, own = deep.before.get(node, ()), deep.after.get(node, ()), deep.own[node]
        known = identity(task, self.sizes), tuple(a._replace(node=0, start=0.0, end=0.0) for a in assignments)
        if (drafts := self._alike.get((known, before, after, own))) is not None:
            return drafts
        queues, drafts = {a.device: a.queue for a in assignments}, []
        for move in before:
            drafts += self._moved(node, move, queues, 0)
        for a in assignments:
            division = divided(self.problem, node, run_as(task, a.version), a.range.dimension, self.sizes)
            access = division.access(a.range)
            mine = {key: self._of(a.device, key) for key in own.intersection(access)}
            launch, step = launches_of(division).range(a.range, mine), Step(node, RANGE, *a.range, IN_DEPTH, a.version)
            touched = {mine.get(key, key): x for key, x in access.items()}
            drafts.append(RangeTask(step, launch, a.device, a.queue, touched, 2))
        for move in after:
            drafts += self._moved(node, move, queues, 3)
        return self._alike.setdefault((known, before, after, own), sorted(drafts, key=lambda d: d.round))

    def _of(self, place: Place, key: BufferKey) -> BufferKey:
        """Return a device's own copy of a buffer, or the buffer itself."""
        if place is not None and (place, key) not in self._own:
            self._own[place, key] = self._temporary(key)
        return key if place is None else self._own[place, key]

    def _moved(self, node: int, move: DeepCopy, queues: Mapping[DeviceIndex, int], turn: int) -> Iterator[RangeTask]:
        """Yield the copies that a move is, from round ``turn`` on: between devices by way of a buffer of its size,
        which the source fills and the target empties."""
        key, low, high, source, target = move
        if source is None or target is None:
            device = target if source is None else source
            assert device is not None
            step = Step(node, COPY if source is None else COMBINE, method=IN_DEPTH)
            ends = (self._of(target, key), low), (self._of(source, key), low)
            yield self._copy(step, device, queues[device], *ends, high - low, turn)
            return
        if move not in self._own:
            self._own[move] = self._temporary(key, high - low)
        staging, step = (self._own[move], 0), Step(node, COPY, method=IN_DEPTH)
        yield self._copy(step, source, queues[source], staging, (self._of(source, key), low), high - low, turn)
        yield self._copy(step, target, queues[target], (self._of(target, key), low), staging, high - low, turn + 1)

    def _divided(self, node: int, task: Node, assignments: Sequence[Assignment]) -> list[RangeTask]:
        """Return the range tasks of a divided launch. Equal launches that are divided alike, and need no temporary
        buffers, share them."""
        known = None
        if isinstance(task, Launch):
            known = identity(task, self.sizes), tuple((a.device, a.queue, *a[5:]) for a in assignments)
            if known in self._alike:
                return self._alike[known]
        before = len(self.temporaries)
        drafts = sorted(self._drafted(node, task, assignments), key=lambda d: d.round)
        if known is not None and len(self.temporaries) == before:
            self._alike[known] = drafts
        return drafts

    def _drafted(self, node: int, task: Node, assignments: Sequence[Assignment]) -> list[RangeTask]:
        ranges = [a for a in assignments if a.dimension is not MERGE]
        divisions = self._check(node, task, ranges)
        division = divisions[0]
        # the assignment that merges partial results
        home = next((a for a in assignments if a.dimension is MERGE), ranges[0])
        memories = [self._memory(a) for a in ranges]
        found: list[dict[BufferKey, Access]]
        if node in self._as_wholes:
            access = {key: replace(x, overwrites=False) for key, x in access_of(task, self.sizes).items()}
            found = [access] * len(ranges)
        else:
            if isinstance(division, Division):
                division.expect([a.range for a in ranges])
            found = [of.access(a.range) for of, a in zip(divisions, ranges, strict=True)]
            if self.contents is not None and all(of is division for of in divisions):
                asked = division, [a.range for a in ranges], found, memories
                self.looked_at += narrow(self.contents, self.problem, self.directory, *asked)
        cut = DividedNode(node, division, divisions, ranges, found, memories, home, self._memory(home))
        if any(of is not division for of in divisions):
            different = list({id(of): of for of in divisions}.values())
            if reason := apart(different, [a.range for a in ranges]):
                raise PolicyError(f"{task.name} cannot be divided between versions of its kernel: {reason}")
            return self._ranges(cut, Reduction.NONE.words(), {})
        if division.proof is not None:
            promised = Promised.of(division.proof, division.launch)
            self.promised.append(promised)
            if self.contents is not None and not promised.is_kept and isinstance(task, Launch):
                return self._compared(cut, task)
        forget_unread(found, division.operations)
        shared = {key for key in task.writes if clash(key, found, memories)}
        reduction = division.reduction(shared) if len(set(memories)) > 1 else Reduction.NONE
        if reduction is Reduction.NONE:
            return self._ranges(cut, reduction.words(), {})
        if reduction is Reduction.SCATTER:
            return self._by_kernel(cut)
        return self._by_difference(cut, shared | set(division.operations))

    def _check(self, node: int, task: Node, ranges: list[Assignment]) -> list[Division]:
        """Return the division of the launch for each range, in its version. Raises PolicyError unless the plan runs
        each group once."""
        if not isinstance(task, Launch):
            what = "a host function" if isinstance(task, HostTask) else f"a {task.function}"
            raise PolicyError(f"the plan divides node {node} ({task.name}), {what}")
        dimensions = {a.dimension for a in ranges}
        devices = self.problem.machine.indices
        if len(dimensions) != 1 or WHOLE in dimensions or not all(a.device in devices for a in ranges):
            words = ", ".join(sorted(map(str, dimensions)))
            raise PolicyError(f"the plan divides node {node} ({task.name}) along dimensions {words}")
        self._check_versions(node, task, ranges)
        versions = {a.version: run_as(task, a.version) for a in ranges}
        of_version = {
            v: divided(self.problem, node, own, ranges[0].range.dimension, self.sizes) for v, own in versions.items()
        }
        divisions = [of_version[a.version] for a in ranges]
        if len({of.groups for of in divisions}) > 1:
            raise PolicyError(
                f"the plan divides node {node} ({task.name}) between versions with different numbers of work-groups"
            )
        division = divisions[0]
        following = 0
        for a in sorted(ranges, key=lambda a: a.first):
            if a.groups < 1 or a.first != following:
                raise PolicyError(f"the plan does not run every work-group of node {node} ({task.name}) once: {a}")
            following += a.groups
        if following != division.groups:
            raise PolicyError(
                f"the plan runs {following} of {division.groups} work-groups of node {node} ({task.name})"
            )
        return divisions

    def _check_versions(self, node: int, task: Launch, ranges: Sequence[Assignment]) -> None:
        """Raise PolicyError for a range whose version does not exist or is not for its device."""
        for a in ranges if task.program.source else ():
            kind = self.problem.machine.devices[a.device].kind
            if a.version not in (preferred(task.versions, kind) if task.versions else (0,)):
                raise PolicyError(
                    f"the plan divides node {node} ({task.name}) with version {a.version}, which is not one for"
                    f" {self.problem.machine.devices[a.device].name}"
                )

    def _memory(self, a: Assignment) -> int:
        return HOST if a.device == ON_HOST else self.problem.machine.devices[a.device].memory

    def _ranges(
        self, cut: DividedNode, method: str, partial: Mapping[int, Mapping[BufferKey, BufferKey]]
    ) -> list[RangeTask]:
        """Return the ranges as tasks, each with the buffers (``partial``) in its memory instead of the launch's."""
        drafts = []
        merged = {k for other in partial.values() for k in other}  # whole buffers only, to be merged
        for division, a, access, memory in zip(cut.divisions, cut.ranges, cut.found, cut.memories, strict=True):
            other, groups = partial.get(memory, {}), a.range
            windows: dict[BufferKey, Window] = {}
            if a.device in self.limits:
                may = self._may_be_windows(division, groups)
                windows = {k: self.windows.of(a.device, k, *x) for k, x in may.items() if k not in merged}
            launch = launches_of(division).range(groups, other, windows)
            mine = {other.get(k, k): x for k, x in access.items()} if other else access
            step = Step(cut.node, RANGE, *groups, method, a.version)
            drafts.append(RangeTask(step, launch, a.device, a.queue, mine, windows=windows))
        turns = self._turns(cut.ranges, drafts)
        for draft, turn in zip(drafts, turns, strict=True):
            draft.round = turn
        return drafts

    def _turns(self, ranges: Sequence[Assignment], drafts: Sequence[RangeTask]) -> list[int]:
        """Return the rounds of ranges. Ranges of one device that work on windows run one after another, as they would
        in a queue, if one of them may write what another one touches."""
        of_device: dict[DeviceIndex, list[int]] = {}
        turns = [0] * len(ranges)
        for index, a in enumerate(ranges):
            if a.device in self.limits:
                of_device.setdefault(a.device, []).append(index)
        for mine in of_device.values():
            drawn = [drafts[i] for i in mine]
            keys = {key for d in drawn for key in d.windows}
            if any(interfere([(d.access[key].reads, d.access[key].writes) for d in drawn]) for key in keys):
                for turn, index in enumerate(mine):
                    turns[index] = turn
        return turns
