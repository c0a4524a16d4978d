"""Lowering: from a plan to the steps that the engine runs.

A plan may divide launches into ranges of work-groups, and buffers may be valid in parts. The engine knows neither: it
gets a graph whose nodes are *steps* (whole launches, ranges, and merges of what ranges wrote, each a launch like any
other) and whose buffers are the *pieces* that all regions cut the buffers into. So three things need no code of their
own: moving only what is missing, halo exchange, and running beside each other what touches different bytes. The
dependences, validity and transfers of pieces are those of buffers. Where nothing is divided and every buffer is valid
as a whole, the steps are the nodes and the pieces the buffers.

:mod:`manycl.run.lowering.range_tasks` makes the steps; here the buffers are cut, and the steps put in order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from typing import NamedTuple

from manycl.errors import PolicyError, RunError
from manycl.graph.graph import Beside, Buffer, BufferKey, Graph, HostTask, Node
from manycl.graph.versions.units import rekeyed
from manycl.machine import HOST, HOST_BIT, DeviceIndex, Machine
from manycl.model.transfer import CHUNK, chunk_of
from manycl.plan.plan import MERGE, ON_HOST, WHOLE, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.region import Region, common, union
from manycl.run.data.coherence import Directory, places
from manycl.run.data.contents import HostContents
from manycl.run.lowering.chunks import chunks_of, in_chunks
from manycl.run.lowering.depth import InDepth, in_depth
from manycl.run.lowering.merging import RangeTask
from manycl.run.lowering.partition import Cut, Order, Touches
from manycl.run.lowering.pipelining import Pipelined, in_turns, overlapped
from manycl.run.lowering.range_tasks import Drafting, LoweringInput
from manycl.run.lowering.steps import CHECK, CLEAR, COMBINE, COPY, RANGE, Chunks, Lowered, Room, Step, state_of
from manycl.run.tiling.limits import stores, too_large
from manycl.run.tiling.reuse_order import ordered
from manycl.run.tiling.tiling import fitted
from manycl.run.tiling.time_skewing import TimeTile, contracted


def lower(
    problem: Problem,
    plan: Plan | None,
    directory: Directory,
    limits: Mapping[DeviceIndex, int] | None = None,
    contents: HostContents | None = None,
) -> Lowered:
    """Return the steps of a plan, or of a graph that is run without one, for the directory's present state. ``limits``:
    the bytes of buffers that devices may hold at a time, for devices that do not hold all of the run
    (:func:`windows.limited`; None: memory is not considered). ``contents``: as for
    :class:`~manycl.run.lowering.range_tasks.LoweringInput`.

    Raises PolicyError for a plan that does not run every work-group once, or divides a launch that cannot be divided;
    RunError for a launch that does not fit into such a device's memory, not even in ranges.
    """
    split = plan is not None and _is_split(problem, plan)
    given = plan
    if problem.graph.own:  # each run's own, as plans of the same graph are kept beside each other
        problem = replace(problem, graph=rekeyed(problem.graph, directory.new_key))
    time_tiles: Sequence[TimeTile] = ()
    if limits and plan is not None:
        plan, time_tiles = fitted(problem, plan, limits)
        split = split or plan.is_split
    in_parts = problem.graph.parts or (
        directory.valid_regions and not directory.valid_regions.keys().isdisjoint(problem.graph.buffers)
    )
    source = LoweringInput(problem, plan, directory, contents, limits or {}, time_tiles)
    if not split and not in_parts:
        own = tuple([problem.graph.buffers[key] for key in sorted(problem.graph.own)])
        lowered = Lowered(problem.graph, plan, temporaries=own, own=tuple([b.key for b in own]))
    elif split and plan is not None and plan.movable and not limits:
        lowered = _Assembly(source._replace(plan=in_chunks(plan, problem))).result()
    elif split and plan is not None and not limits:
        parts = Pipelined(plan, {}) if problem.as_planned else overlapped(problem, plan)
        deep = InDepth(plan) if problem.as_planned else in_depth(problem, parts.plan)
        lowered = in_turns(_Assembly(source._replace(plan=deep.plan, deep=deep)).result(), parts.turns)
        lowered = replace(lowered, is_cut=True) if deep.is_cut else lowered
    else:
        lowered = _Assembly(source).result()
    if limits is None:
        return lowered
    try:
        return with_room(problem, lowered, limits)
    except RunError:
        if lowered.room is None or not lowered.room.windows:
            raise
    # windows of the smallest size may fit
    plan = fitted(problem, given, limits, together=False).plan if given is not None else None
    return with_room(problem, _Assembly(source._replace(plan=plan, time_tiles=(), shared=False)).result(), limits)


def _is_split(problem: Problem, plan: Plan) -> bool:
    """Return whether a plan divides launches. Raises PolicyError for a version that the device would not run."""
    split = False
    for a in plan.assignments:
        if a.dimension is not WHOLE:
            split = True
        elif a.version and a.version != problem.version(a.node, a.device):
            name = problem.graph.nodes[a.node].name
            raise PolicyError(
                f"the engine cannot run node {a.node} ({name}) as the plan of {plan.policy} asks: it chooses one of its"
                " versions, but devices take the first that they can run"
            )
    return split


class _Assembly:
    """A plan's range tasks, assembled to a graph: buffers are cut into pieces, and steps put in order."""

    def __init__(self, source: LoweringInput) -> None:
        self.problem, self.plan, self.directory, _, self.limits, self.time_tiles, *_ = source
        self.graph = self.problem.graph
        self.of = _by_node(self.graph, self.plan)
        drafted = Drafting(source, self.of, self._as_wholes()).result()
        self.drafts, self.temporaries = drafted.of_node, drafted.temporaries
        self.sizes, self.windows = drafted.sizes, drafted.windows
        self.promised, self.looked_at = tuple(drafted.promised), tuple(drafted.looked_at)

    def _as_wholes(self) -> Set[int]:
        """Return the launches that are cut only so that they can move, and stay in one memory: what each chunk touches
        need not be known."""
        if self.plan is None or self.problem.machine.memories > 1:
            return frozenset()
        return {n for n in self.plan.still if len({a.device for a in self.of[n]}) == 1}

    def _exchanged(self, drafts: Iterable[RangeTask], chunk: int) -> set[BufferKey]:
        """Return the buffers of which devices read several chunks that another device has at first, or writes."""
        devices, no_regions = self.problem.machine.devices, partial(defaultdict[int, list[Region]], list)
        read, had = (defaultdict[BufferKey, dict[int, list[Region]]](no_regions) for _ in range(2))  # by memory
        for key, nbytes in self.sizes.items() if chunk else ():
            for region, mask in self.directory.regions_of(key, nbytes):
                for memory in places(mask) if not mask & HOST_BIT else ():
                    had[key][memory].append(region)
        for draft in drafts if chunk else ():
            memory = HOST if draft.device == ON_HOST else devices[draft.device].memory
            for key, access in draft.access.items() if memory != HOST else ():
                read[key][memory].append(access.reads)
                had[key][memory].append(access.writes)
        found = set[BufferKey]()
        for key, regions in read.items():
            having = {memory: union(of) for memory, of in had[key].items()}
            several, every = common(having.values()), union(having.values())
            for memory, of in regions.items():
                mine = union(of)  # less what this memory alone has
                if ((mine & every) - (having[memory] - several)).nbytes >= 2 * chunk:
                    found.add(key)
                    break
        return found

    def result(self) -> Lowered:
        own = {d.memory for d in self.problem.machine.devices} - {HOST}
        using: list[dict[BufferKey, BufferKey]] = []
        # in chunks, a part of what goes between devices is uploaded while the next part is downloaded
        chunk = (chunk_of(self.problem.machine) or CHUNK) if len(own) > 1 and not self.problem.as_planned else 0
        different = {id(drafts): drafts for drafts in self.drafts}
        cut = Cut(self.sizes, self.directory, chunk, self._exchanged(chain(*different.values()), chunk))
        every = {id(d.access): d.access for drafts in different.values() for d in drafts}
        for touched in every.values():  # ranges of many launches share accesses
            cut.add(touched)
        temporary = {b.key for b in self.temporaries}
        cut.make({**self.graph.buffers, **{b.key: b for b in self.temporaries}})
        windows: dict[int, dict[BufferKey, BufferKey]] = {}
        touches = {name: cut.of(touched) for name, touched in every.items()}
        alike = {name: _on_pieces(drafts, touches, windows) for name, drafts in different.items()}
        nodes: list[Node] = []
        steps: list[Step] = []
        of_node: list[list[int]] = [[] for _ in self.drafts]
        beside: dict[int, Beside] = {}
        order = Order()
        for node, same_round in self._rounds(alike):
            before = {step for p in self.graph.explicit(node) for step in of_node[p]}
            order.begin()
            for made in same_round:
                order.add(len(nodes), made.task.reads, made.task.writes, before)
                if made.beside:
                    beside[len(nodes)] = Beside(node, made.beside)
                of_node[node].append(len(nodes))
                nodes.append(made.task)
                steps.append(made.step._replace(node=node))
                using.append(made.using)
            order.end()
        graph = Graph(
            nodes=tuple(nodes),
            buffers=cut.buffers,
            predecessors=tuple(order.predecessors),
            components=tuple(tuple(s for n in c for s in of_node[n]) for c in self.graph.components),
            name=self.graph.name,
            warnings=self.graph.warnings,
            beside=beside,
            windows=self.windows,
        )
        chunks = self._chunks(of_node)
        return Lowered(
            graph=graph,
            plan=self._planned(of_node),
            steps=tuple(steps),
            cut={k: c for k, c in cut.cut.items() if k not in temporary},
            temporaries=tuple(self.temporaries),
            own=tuple(p for k in temporary for p in (k, *cut.cut.get(k, ()))),
            state=state_of(self.graph, self.directory, cut.along, anywhere=bool(chunks) and not temporary),
            room=self._room(using),
            chunks=chunks,
            promised=self.promised,
            looked_at=self.looked_at,
        )

    def _chunks(self, of_node: Sequence[Sequence[int]]) -> dict[int, Chunks]:
        """Return the chunks of the launches whose shares may move."""
        found: dict[int, Chunks] = {}
        sizes = {key: b.nbytes for key, b in self.graph.buffers.items()}
        for node in self.plan.movable if self.plan is not None and not self.limits else ():
            chunks = chunks_of(self.problem, node, self.drafts[node], of_node[node], sizes)
            if chunks is not None:
                found[node] = chunks
        return found

    def _rounds(self, alike: Mapping[int, Sequence[_OnPieces]]) -> Iterator[tuple[int, Sequence[_OnPieces]]]:
        """Yield all steps in an order in which they might run, with their node; those that run beside each other come
        together. The order is node by node, and tile by tile in a time tile."""
        if self.time_tiles:
            units = contracted(self.graph, self.time_tiles)
            assert units is not None, "it was checked that time tiles do not wait for one another"
        else:
            units = list(range(len(self.drafts)))
        for unit in units:
            if isinstance(unit, int):
                for _, same_round in groupby(alike[id(self.drafts[unit])], lambda made: made.round):
                    yield unit, list(same_round)
                continue
            made = {node: iter(alike[id(self.drafts[node])]) for node in unit.nodes}
            for tile in unit.tiles:
                for node, _ in tile.ranges:
                    yield node, [next(made[node])]

    def _room(self, using: list[dict[BufferKey, BufferKey]]) -> Room | None:
        if not self.limits:
            return None
        sizes = {**self.sizes, **{key: window.nbytes for key, window in self.windows.items()}}
        return Room(self.limits, self.windows, tuple(using), sizes)

    def _planned(self, of_node: Sequence[Sequence[int]]) -> Plan | None:
        """Return the plan of the steps, in the order in which the plan has their nodes."""
        if self.plan is None:
            return None
        assignments: list[Assignment] = []
        # the range task of a range, by its first group and device
        ranges: dict[int, dict[tuple[int, DeviceIndex], int]] = {}
        for drafts in self.drafts:
            if id(drafts) not in ranges:
                ranges[id(drafts)] = {(d.step.first, d.device): i for i, d in enumerate(drafts) if d.step.role == RANGE}
        left = [sum(1 for a in of if a.dimension is not MERGE) for of in self.of]  # ranges that are still to come
        begun: set[int] = set()
        for a in self.plan.assignments:
            drafts, tokens = self.drafts[a.node], of_node[a.node]
            if drafts[0].step.role == "":
                assignments.append(a._replace(node=tokens[0], version=0))
                continue
            wanted: list[int] = []
            if a.node not in begun:
                begun.add(a.node)
                wanted += (i for i, d in enumerate(drafts) if d.step.role in (COPY, CLEAR))
            if a.dimension is not MERGE:
                if (a.first, a.device) in ranges[id(drafts)]:  # (not where a promise is checked)
                    wanted.append(ranges[id(drafts)][a.first, a.device])
                left[a.node] -= 1
                if not left[a.node]:
                    wanted += (i for i, d in enumerate(drafts) if d.step.role in (COMBINE, CHECK))
            assignments += [Assignment(tokens[i], drafts[i].device, drafts[i].queue, a.start, a.end) for i in wanted]
        return replace(self.plan, assignments=tuple(assignments), events=())


def _by_node(graph: Graph, plan: Plan | None) -> list[list[Assignment]]:
    """Return a plan's assignments of each node."""
    of: list[list[Assignment]] = [[] for _ in graph.nodes]
    for a in plan.assignments if plan is not None else ():
        if not 0 <= a.node < len(of):
            raise PolicyError(f"the plan is not valid: {a}")
        of[a.node].append(a)
    return of


class _OnPieces(NamedTuple):
    """A range task whose buffers are cut: ``task`` reads and writes pieces. ``beside``: the pieces that other ranges of
    its launch write at the same time. ``using``: windows by buffer."""

    round: int
    step: Step
    task: Node
    beside: frozenset[BufferKey]
    using: dict[BufferKey, BufferKey]


def _on_pieces(
    drafts: Sequence[RangeTask], touches: Mapping[int, Touches], windows: dict[int, dict[BufferKey, BufferKey]]
) -> list[_OnPieces]:
    """Return range tasks on pieces. ``touches``, by the identity of the tasks' accesses, and ``windows`` by buffer, by
    the identity of the tasks' windows: what steps have in common is computed once."""
    count = Counter((piece, d.round) for d in drafts if d.step.role == RANGE for piece in touches[id(d.access)].writes)
    out = []
    for draft in drafts:
        mine = touches[id(draft.access)]
        shared = (p for p in mine.writes if count[p, draft.round] > 1) if draft.step.role == RANGE else ()
        using = windows.setdefault(id(draft.windows), {key: window.key for key, window in draft.windows.items()})
        task = draft.task
        if mine != (task.reads, task.writes, task.overwrites):
            task = replace(task, reads=mine.reads, writes=mine.writes, overwrites=mine.overwrites)
        out.append(_OnPieces(draft.round, draft.step, task, frozenset(shared), using))
    return out


# Plans for devices that do not hold all of a run.


def with_room(problem: Problem, lowered: Lowered, limits: Mapping[DeviceIndex, int]) -> Lowered:
    """Return the steps of a plan with the limits that they have to keep: those given, and those of devices that do not
    hold all buffers that the plan's merging needs. Raises RunError for a step that does not fit alone."""
    if lowered.temporaries:
        limits = {**limits, **_too_many(problem, lowered)}
    if not limits:
        return lowered
    room = lowered.room or Room({}, {}, (), {b.key: b.nbytes for b in _buffers(problem, lowered)})
    room = replace(room, limits=limits)
    if lowered.plan is None:
        return replace(lowered, room=room)
    _check(lowered, room, problem.machine)
    plan, room = ordered(problem, lowered, room)
    return replace(lowered, plan=plan, room=room)


def _buffers(problem: Problem, lowered: Lowered) -> Iterator[Buffer]:
    yield from problem.graph.buffers.values()
    yield from lowered.temporaries


def _too_many(problem: Problem, lowered: Lowered) -> dict[DeviceIndex, int]:
    """Return the devices that do not hold all buffers of the run's own beside the other buffers."""
    assert lowered.plan is not None, "only plans have buffers of their own"
    sizes = {b.key: b.nbytes for b in _buffers(problem, lowered)}
    nodes = lowered.graph.nodes
    found: dict[DeviceIndex, int] = {}
    for index, device in problem.machine.numbered():
        tasks = (nodes[a.node] for a in lowered.plan.assignments if a.device == index)
        used = {key for t in tasks if not isinstance(t, HostTask) for key in stores(t) if key in sizes}
        if device.memory != HOST and sum(sizes[key] for key in used) > device.global_memory:
            found[index] = device.global_memory
    return found


def _check(lowered: Lowered, room: Room, machine: Machine) -> None:
    """Raise RunError for a step that does not fit alone. If each one does, all fit one after another."""
    assert lowered.plan is not None
    for a in lowered.plan.assignments:
        task = lowered.graph.nodes[a.node]
        if a.device in room.limits and not isinstance(task, HostTask):
            sizes = [room.sizes[key] for key in stores(task)]
            device = machine.devices[a.device]
            if sum(sizes) > room.limits[a.device] or max(sizes, default=0) > device.max_allocation:
                raise too_large(task, lowered.step(a.node).node, sum(sizes), device)
