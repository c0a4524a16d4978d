"""From a plan to steps: what the engine really runs. Pure.

A plan may divide launches into ranges of work-groups, and buffers may be valid in parts. The engine knows neither: it
is given a graph whose nodes are *steps* (whole launches, ranges, and what puts ranges together, each a launch like any
other) and whose buffers are the *pieces* that all regions cut the buffers into. So moving only what is missing, halo
exchange, and running beside each other whatever touches different bytes are nothing special: dependences, validity and
transfers of pieces are those of buffers. Where nothing is divided and every buffer is valid as a whole, the steps are
the nodes and the pieces the buffers.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from manycl.errors import PolicyError, RunError
from manycl.graph import pieces
from manycl.graph.graph import Buffer, Graph, HostTask, Launch, Node
from manycl.graph.pieces import Bytes
from manycl.machine import HOST
from manycl.plan.plan import MERGE, ON_HOST, WHOLE, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.coherence import Directory
from manycl.run.cut import Cut, Order
from manycl.run.divide import DIFFERENCE, IN_PLACE, MERGE_KERNEL, Access, Divided, divide
from manycl.run.room import with_room
from manycl.run.steps import CLEAR, COMBINE, COPY, RANGE, Lowered, Step, state_of
from manycl.run.windows import Room, Window, Windows, fitted, interfere, intervals

CHUNK = 8 << 20
"""Bytes of a piece, where data may go from one device's memory to another's: a part of it is on its way up while the
next comes down."""
_MOST_GAPS = 64  # runs of undefined bytes that are cleared one by one


def lower(
    problem: Problem, plan: Plan | None, directory: Directory, limits: Mapping[int, int] | None = None
) -> Lowered:
    """The steps of a plan, or of a graph that is run without one, in the directory's present state. ``limits``: the
    bytes of buffers that devices may hold at a time which do not hold all of the run (:func:`windows.limited`; None:
    memory is not looked at).

    Raises PolicyError for a plan that does not run every work-group once, or divides a launch that cannot be; RunError
    for a launch that does not fit into such a device's memory, not even in ranges.
    """
    split = plan is not None and _is_split(problem, plan)
    if limits and plan is not None:
        plan = fitted(problem, plan, limits)
        split = split or plan.is_split
    if not split and (not directory.parts or directory.parts.keys().isdisjoint(problem.graph.buffers)):
        lowered = Lowered(problem.graph, plan)
    else:
        lowered = _Lowering(problem, plan, directory, limits or {}).result()
    if limits is None:
        return lowered
    try:
        return with_room(problem, lowered, limits)
    except RunError:
        if lowered.room is None or not lowered.room.windows:
            raise
    # as small as they can be, windows may fit
    return with_room(problem, _Lowering(problem, plan, directory, limits, shared=False).result(), limits)


def _is_split(problem: Problem, plan: Plan) -> bool:
    """Whether a plan divides launches; raises where it wants a version of one that the device would not take."""
    split = False
    for a in plan.assignments:
        if a.dimension != WHOLE:
            split = True
        elif a.version and a.version != problem.version(a.node, a.device):
            name = problem.graph.nodes[a.node].name
            raise PolicyError(
                f"the engine cannot run node {a.node} ({name}) as the plan of {plan.policy} asks: it chooses one of its"
                " versions, but devices take the first that they can run"
            )
    return split


@dataclass(slots=True)
class _Draft:
    """A step before its buffers are cut. ``reads``, ``writes``: bytes by buffer; ``overwrites``: buffers of which every
    byte of ``writes`` is written. ``round``: steps of the same round of a node run beside each other."""

    step: Step
    task: Node
    device: int
    queue: int
    reads: dict[int, Bytes]
    writes: dict[int, Bytes]
    overwrites: set[int] = field(default_factory=set)
    round: int = 0
    windows: dict[int, Window] = field(default_factory=dict)  # by buffer


class _Lowering:
    def __init__(
        self,
        problem: Problem,
        plan: Plan | None,
        directory: Directory,
        limits: Mapping[int, int],
        shared: bool = True,
    ) -> None:
        self.shared = shared
        self.limits = limits
        self.problem = problem
        self.graph = problem.graph
        self.plan = plan
        self.directory = directory
        self.sizes = {key: b.nbytes for key, b in self.graph.buffers.items()}
        self.temporaries: list[Buffer] = []
        self._launches: dict[object, tuple[Divided, Launch]] = {}  # of ranges on windows
        self.drafts: list[list[_Draft]] = []  # by node
        self.defined = {key: self._defined(key) for key in self.sizes}
        self.complete = {key for key in self.sizes if key in directory.valid}

    def _defined(self, key: int) -> Bytes:
        """The bytes of a buffer that have contents."""
        parts = self.directory.parts.get(key)
        if parts is not None:
            return pieces.union(pieces.of_rows(p.rows) for p in parts if p.mask)
        return pieces.span(0, self.sizes[key] if key in self.directory.valid else 0)

    def whole(self, key: int) -> Bytes:
        return pieces.span(0, self.sizes[key])

    # drafts

    def result(self) -> Lowered:
        of: list[list[Assignment]] = [[] for _ in self.graph.nodes]
        for a in self.plan.assignments if self.plan is not None else ():
            if not 0 <= a.node < len(of):
                raise PolicyError(f"the plan is not valid: {a}")
            of[a.node].append(a)
        self.windows = Windows(self._intervals(of), self.directory.new_key, self.shared)
        for node, task in enumerate(self.graph.nodes):
            if any(a.dimension != WHOLE for a in of[node]):
                drafts = sorted(self._divided(node, task, of[node]), key=lambda draft: draft.round)
            else:
                a = of[node][0] if of[node] else Assignment(node, ON_HOST, 0, 0.0, 0.0)
                drafts = [self._undivided(node, task, a)]
            for draft in drafts:
                for key, written in draft.writes.items():
                    if key not in self.complete:
                        self.defined[key] = pieces.union([self.defined.get(key, pieces.NOTHING), written])
            self.drafts.append(drafts)
        return self._assembled(of)

    def _intervals(self, of: Sequence[Sequence[Assignment]]) -> Iterator[tuple[int, int, int, int]]:
        """(device, buffer, low, high) of what may be windows."""
        for node, task in enumerate(self.graph.nodes):
            ranges = [a for a in of[node] if a.device in self.limits and a.dimension >= 0]
            if ranges and isinstance(task, Launch):
                divided = divide(task, ranges[0].dimension, self.sizes)
                for a in ranges:
                    for key, found in intervals(divided, a.first, a.groups).items():
                        yield a.device, key, *found

    def _undivided(self, node: int, task: Node, a: Assignment) -> _Draft:
        reads = {key: self.whole(key) for key in task.reads}
        writes = {key: self.whole(key) for key in task.writes}
        return _Draft(Step(node), task, a.device, a.queue, reads, writes)

    def _divided(self, node: int, task: Node, assignments: list[Assignment]) -> list[_Draft]:
        ranges = [a for a in assignments if a.dimension != MERGE]
        divided = self._check(node, task, ranges)
        # where partial results are put together
        home = next((a for a in assignments if a.dimension == MERGE), ranges[0])
        memories = [self._memory(a) for a in ranges]
        found = [divided.access(a.first, a.groups) for a in ranges]
        _forget_unread(found, divided.operations)
        shared = {key for key in task.writes if _clash(key, found, memories)}
        if len(set(memories)) == 1 or not (shared or divided.operations):
            return self._in_place(node, divided, ranges, found)
        if divided.operations:
            by_difference = shared | set(divided.operations)
        elif divided.merge_kernel.reason or not shared <= divided.merge_written:
            by_difference = shared
        else:
            return self._by_kernel(node, divided, ranges, found, memories, home)
        return self._by_difference(node, divided, ranges, found, memories, home, by_difference)

    def _check(self, node: int, task: Node, ranges: list[Assignment]) -> Divided:
        """The launch divided as the plan says: each of its groups once."""
        if isinstance(task, HostTask):
            raise PolicyError(f"the plan divides node {node} ({task.name}), a host function")
        dimensions = {a.dimension for a in ranges}
        devices = len(self.problem.machine.devices)
        if len(dimensions) != 1 or WHOLE in dimensions or not all(0 <= a.device < devices for a in ranges):
            raise PolicyError(f"the plan divides node {node} ({task.name}) along dimensions {sorted(dimensions)}")
        if any(a.version for a in ranges):
            raise PolicyError(f"the plan divides node {node} ({task.name}) with another version of its kernel")
        divided = divide(task, dimensions.pop(), self.sizes)
        following = 0
        for a in sorted(ranges, key=lambda a: a.first):
            if a.groups < 1 or a.first != following:
                raise PolicyError(f"the plan does not run every work-group of node {node} ({task.name}) once: {a}")
            following += a.groups
        if following != divided.groups:
            raise PolicyError(f"the plan runs {following} of {divided.groups} work-groups of node {node} ({task.name})")
        return divided

    def _memory(self, a: Assignment) -> int:
        return HOST if a.device == ON_HOST else self.problem.machine.devices[a.device].memory

    def _ranges(
        self,
        node: int,
        divided: Divided,
        ranges: Sequence[Assignment],
        found: Sequence[Mapping[int, Access]],
        method: str,
        instead: Sequence[Mapping[int, int]],
    ) -> list[_Draft]:
        """The ranges, each with the buffers ``instead`` that it works on."""
        drafts = []
        writes = divided.launch.writes
        merged = {k for other in instead for k in other}  # must be whole to be put together
        for a, access, other in zip(ranges, found, instead, strict=True):
            windows: dict[int, Window] = {}
            if a.device in self.limits:
                may = intervals(divided, a.first, a.groups)
                windows = {k: self.windows.of(a.device, k, *x) for k, x in may.items() if k not in merged}
            if windows:
                launch = self._on_windows(divided, a, other, windows)
            else:
                launch = divided.range(a.first, a.groups, other)
            drafts.append(
                _Draft(
                    Step(node, RANGE, a.dimension, a.first, a.groups, method),
                    launch,
                    a.device,
                    a.queue,
                    {other.get(k, k): x.reads for k, x in access.items() if len(x.reads[0])},
                    {other.get(k, k): access[k].writes for k in writes if k in access and len(access[k].writes[0])},
                    {other.get(k, k) for k in writes if k in access and access[k].exact},
                    windows=windows,
                )
            )
        turns = self._turns(ranges, drafts)
        for draft, turn in zip(drafts, turns, strict=True):
            draft.round = turn
        return drafts

    def _on_windows(
        self, divided: Divided, a: Assignment, other: Mapping[int, int], windows: Mapping[int, Window]
    ) -> Launch:
        begins = {k: (w.key, w.low) for k, w in windows.items()}
        known = id(divided), a.first, a.groups, tuple(begins.items()), tuple(other.items())
        if known not in self._launches:
            self._launches[known] = divided, divided.windows(a.first, a.groups, other, begins)
        return self._launches[known][1]

    def _turns(self, ranges: Sequence[Assignment], drafts: Sequence[_Draft]) -> list[int]:
        """The rounds of ranges: those of a device that work on windows, and of which one may write what another one
        touches, run one after another, as they would in a queue."""
        of_device: dict[int, list[int]] = {}
        turns = [0] * len(ranges)
        for index, a in enumerate(ranges):
            if a.device in self.limits:
                of_device.setdefault(a.device, []).append(index)
        for mine in of_device.values():
            if _interfere([drafts[i] for i in mine]):
                for turn, index in enumerate(mine):
                    turns[index] = turn
        return turns

    def _in_place(
        self, node: int, divided: Divided, ranges: Sequence[Assignment], found: Sequence[Mapping[int, Access]]
    ) -> list[_Draft]:
        return self._ranges(node, divided, ranges, found, IN_PLACE, [{} for _ in ranges])

    def _by_kernel(
        self,
        node: int,
        divided: Divided,
        ranges: Sequence[Assignment],
        found: Sequence[Mapping[int, Access]],
        memories: Sequence[int],
        home: Assignment,
    ) -> list[_Draft]:
        launch = divided.launch
        at = self._memory(home)
        partial = {
            m: {k: self._temporary(k) for k in divided.merge_written} for m in dict.fromkeys(memories) if m != at
        }
        before: list[_Draft] = []
        for m, keys in partial.items():
            a = ranges[memories.index(m)]
            before += [self._copied(node, divided, a, k, t, MERGE_KERNEL) for k, t in keys.items() if k in launch.reads]
        drafts = self._ranges(node, divided, ranges, found, MERGE_KERNEL, [partial.get(m, {}) for m in memories])
        after = []
        for a, access, m in zip(ranges, found, memories, strict=True):
            if m == at:
                continue
            reads = {k: access[k].reads for k in divided.merge_reads if len(access[k].reads[0])}
            reads |= {t: access[k].writes for k, t in partial[m].items() if len(access[k].writes[0])}
            step = Step(node, COMBINE, a.dimension, a.first, a.groups, MERGE_KERNEL)
            writes = {k: access[k].writes for k in partial[m] if len(access[k].writes[0])}
            merge = divided.merge(a.first, a.groups, partial[m])
            all_of_it = {k for k in writes if access[k].exact}
            after.append(_Draft(step, merge, home.device, home.queue, reads, writes, all_of_it))
        return _rounds(before, drafts, after)

    def _by_difference(
        self,
        node: int,
        divided: Divided,
        ranges: Sequence[Assignment],
        found: Sequence[Mapping[int, Access]],
        memories: Sequence[int],
        home: Assignment,
        keys: set[int],
    ) -> list[_Draft]:
        at = self._memory(home)
        before: list[_Draft] = []
        old: dict[int, int] = {}
        partial: dict[int, dict[int, int]] = {m: {} for m in dict.fromkeys(memories) if m != at}
        methods = {k: " ".join([DIFFERENCE, *divided.operations.get(k, ())[:1]]) for k in keys}
        for k in sorted(keys):
            before += self._cleared(node, divided, home, k, methods[k])
            old[k] = self._temporary(k)
            before.append(self._copied(node, divided, home, k, old[k], methods[k]))
            for m, mine in partial.items():
                mine[k] = self._temporary(k)
                before.append(self._copied(node, divided, ranges[memories.index(m)], k, mine[k], methods[k]))
        method = ", ".join(dict.fromkeys(methods[k] for k in sorted(keys)))
        drafts = self._ranges(node, divided, ranges, found, method, [partial.get(m, {}) for m in memories])
        after = []
        for k in sorted(keys):
            for mine in partial.values():
                everything = self.whole(k)
                reads = {mine[k]: everything, old[k]: everything}
                step = Step(node, COMBINE, method=methods[k])
                merge = divided.difference(k, mine[k], old[k])
                after.append(_Draft(step, merge, home.device, home.queue, reads, {k: everything}))
        return _rounds(before, drafts, after)

    def _temporary(self, key: int) -> int:
        """A buffer for this run, like another one."""
        new = self.directory.new_key()
        self.sizes[new] = self.sizes[key]
        self.temporaries.append(Buffer(new, self.sizes[key], self.graph.buffers[key].name))
        return new

    def _copied(self, node: int, divided: Divided, a: Assignment, source: int, target: int, method: str) -> _Draft:
        step = Step(node, COPY, method=method)
        all_of_it = self.whole(source)
        copy = divided.copy(source, target)
        return _Draft(step, copy, a.device, a.queue, {source: all_of_it}, {target: all_of_it}, {target})

    def _cleared(self, node: int, divided: Divided, a: Assignment, key: int, method: str) -> list[_Draft]:
        """Two copies of undefined contents differ: what is compared gets contents."""
        low, high = pieces.without(self.whole(key), self.defined[key])
        if len(low) > _MOST_GAPS:
            raise PolicyError(
                f"{divided.launch.name} cannot be split: {len(low)} parts of what it writes are undefined"
            )
        drafts = []
        for start, end in zip(low.tolist(), high.tolist(), strict=True):
            step = Step(node, CLEAR, method=method)
            clear = divided.clear(key, start, end - start)
            drafts.append(_Draft(step, clear, a.device, a.queue, {}, {key: pieces.span(start, end)}, {key}))
        return drafts

    # assembling

    def _assembled(self, of: Sequence[Sequence[Assignment]]) -> Lowered:
        own = {d.memory for d in self.problem.machine.devices} - {HOST}
        using: list[dict[int, int]] = []
        cut = Cut(self.sizes, self.directory, CHUNK if len(own) > 1 else 0)
        for drafts in self.drafts:
            for draft in drafts:
                for key, touched in (*draft.reads.items(), *draft.writes.items()):
                    cut.add(key, touched)
        temporary = {b.key for b in self.temporaries}
        cut.make({**self.graph.buffers, **{b.key: b for b in self.temporaries}}, temporary)
        nodes: list[Node] = []
        steps: list[Step] = []
        of_node: list[list[int]] = []
        order = Order()
        for node, drafts in enumerate(self.drafts):
            before = _explicit(self.graph, node, of_node)
            mine: list[int] = []
            for number in range(1 + max(d.round for d in drafts)):
                order.begin()
                for draft in (d for d in drafts if d.round == number):
                    reads = cut.of(draft.reads)
                    writes = cut.of(draft.writes)
                    gone = cut.of({k: b for k, b in draft.writes.items() if k in draft.overwrites})
                    mine.append(len(nodes))
                    order.add(len(nodes), reads, writes, before)
                    nodes.append(_with(draft.task, reads, writes, gone))
                    steps.append(draft.step)
                    using.append({key: window.key for key, window in draft.windows.items()})
                order.end()
            of_node.append(mine)
        graph = Graph(
            nodes=tuple(nodes),
            buffers=cut.buffers,
            predecessors=tuple(order.predecessors),
            components=tuple(tuple(s for n in c for s in of_node[n]) for c in self.graph.components),
            name=self.graph.name,
            notes={**self.graph.notes, "together": self._together(cut, of_node), **self._window_notes()},
        )
        return Lowered(
            graph=graph,
            plan=self._planned(of, of_node),
            steps=tuple(steps),
            cut={k: c for k, c in cut.cut.items() if k not in temporary},
            opens=cut.opens,
            temporaries=tuple(self.temporaries),
            own=tuple(p for k in temporary for p in (k, *cut.cut.get(k, ()))),
            state=state_of(self.graph, self.directory),
            room=self._room(using),
        )

    def _window_notes(self) -> dict[str, dict[int, Window]]:
        """For back ends: the windows by key."""
        found = {w.key: w for drafts in self.drafts for d in drafts for w in d.windows.values()}
        return {"windows": found} if found else {}

    def _room(self, using: list[dict[int, int]]) -> Room | None:
        if not self.limits:
            return None
        windows = {w.key: w for drafts in self.drafts for d in drafts for w in d.windows.values()}
        return Room(self.limits, windows, tuple(using), {**self.sizes, **{k: w.nbytes for k, w in windows.items()}})

    def _together(self, cut: Cut, of_node: Sequence[Sequence[int]]) -> dict[int, tuple[int, frozenset[int]]]:
        """By step: its node, and the pieces that other ranges of it write at the same time, each elements of its own
        (or by atomic operations): no race."""
        out: dict[int, tuple[int, frozenset[int]]] = {}
        for node, (drafts, tokens) in enumerate(zip(self.drafts, of_node, strict=True)):
            count: dict[tuple[int, int], int] = {}
            ranges = [(t, d, cut.of(d.writes)) for t, d in zip(tokens, drafts, strict=True) if d.step.role == RANGE]
            for _, draft, written in ranges:
                for piece in written:
                    count[piece, draft.round] = count.get((piece, draft.round), 0) + 1
            for token, draft, written in ranges:
                if several := frozenset(p for p in written if count[p, draft.round] > 1):
                    out[token] = (node, several)
        return out

    def _planned(self, of: Sequence[Sequence[Assignment]], of_node: Sequence[Sequence[int]]) -> Plan | None:
        """The steps in the order in which the plan has their nodes."""
        if self.plan is None:
            return None
        assignments: list[Assignment] = []
        seen: dict[int, int] = {}
        for a in self.plan.assignments:
            drafts, tokens = self.drafts[a.node], of_node[a.node]
            if drafts[0].step.role == "":
                assignments.append(a._replace(node=tokens[0], version=0))
                continue
            turn = seen[a.node] = seen.get(a.node, 0) + 1
            ranges = sum(1 for b in of[a.node] if b.dimension != MERGE)
            for draft, token in zip(drafts, tokens, strict=True):
                role, step = draft.step.role, draft.step
                first = turn == 1 and role in (COPY, CLEAR)
                own = role == RANGE and a.dimension != MERGE and step.first == a.first
                last = role == COMBINE and a.dimension != MERGE and turn == ranges
                if first or own or last:
                    assignments.append(Assignment(token, draft.device, draft.queue, a.start, a.end))
        return replace(self.plan, assignments=tuple(assignments), moves=(), events=())


def _rounds(before: list[_Draft], ranges: list[_Draft], after: list[_Draft]) -> list[_Draft]:
    """Preparations one after another, then all ranges beside each other, then what puts them together, in turn."""
    for number, draft in enumerate(before):
        draft.round = number
    for draft in ranges:
        draft.round += len(before)
    behind = 1 + max(draft.round for draft in ranges)
    for number, draft in enumerate(after):
        draft.round = behind + number
    return [*before, *ranges, *after]


def _forget_unread(found: list[dict[int, Access]], shared: Container[int]) -> None:
    """No range reads what another one writes, but of buffers that groups share by atomic operations: that was proved of
    all groups, so what is said to be read at most is less by what the others certainly write."""
    for index, access in enumerate(found):
        changed = {}
        for key, mine in access.items():
            reads = mine.reads
            for other, theirs in enumerate(found if key not in shared else ()):
                if other != index and len(reads[0]) and theirs[key].exact:
                    reads = pieces.without(reads, theirs[key].writes)
            changed[key] = replace(mine, reads=reads) if reads is not mine.reads else mine
        found[index] = changed


def _clash(key: int, found: Sequence[Mapping[int, Access]], memories: Sequence[int]) -> bool:
    """Whether ranges in different memories touch the same bytes of a buffer that one of them writes."""
    by_memory: dict[int, list[Access]] = {}
    for access, memory in zip(found, memories, strict=True):
        by_memory.setdefault(memory, []).append(access[key])
    written = {m: pieces.union(a.writes for a in members) for m, members in by_memory.items()}
    read = {m: pieces.union(a.reads for a in members) for m, members in by_memory.items()}
    return any(
        pieces.meet(written[a], written[b]) or pieces.meet(written[a], read[b])
        for a in written
        for b in written
        if a != b
    )


def _interfere(drafts: Sequence[_Draft]) -> bool:
    """Whether one of some ranges may write what another one touches of a buffer that they have windows of."""
    nothing = pieces.NOTHING
    return any(
        interfere([(d.reads.get(key, nothing), d.writes.get(key, nothing)) for d in drafts])
        for key in {key for d in drafts for key in d.windows}
    )


def _with(task: Node, reads: tuple[int, ...], writes: tuple[int, ...], overwrites: tuple[int, ...]) -> Node:
    if isinstance(task, Launch):
        if (reads, writes, overwrites) == (task.reads, task.writes, task.overwrites):
            return task
        return replace(task, reads=reads, writes=writes, overwrites=overwrites)
    return replace(task, reads=reads, writes=writes)


def _explicit(graph: Graph, node: int, of_node: Sequence[Sequence[int]]) -> set[int]:
    """The steps of predecessors that come first although no buffer says so."""
    task = graph.nodes[node]
    before: set[int] = set()
    for p in graph.predecessors[node]:
        other = graph.nodes[p]
        if not {*other.writes} & {*task.reads, *task.writes} and not {*other.reads} & {*task.writes}:
            before.update(of_node[p])
    return before
