"""From a plan to steps: what the engine really runs. Pure.

A plan may divide launches into ranges of work-groups, and buffers may be valid in parts. The engine knows neither: it
is given a graph whose nodes are *steps* (whole launches, ranges, and what puts ranges together, each a launch like any
other) and whose buffers are the *pieces* that all regions cut the buffers into. So moving only what is missing, halo
exchange, and running beside each other whatever touches different bytes are nothing special: dependences, validity and
transfers of pieces are those of buffers. Where nothing is divided and every buffer is valid as a whole, the steps are
the nodes and the pieces the buffers.

:mod:`manycl.run.drafts` says what the steps are; here the buffers are cut, and the steps put in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from manycl.errors import PolicyError, RunError
from manycl.graph.graph import Graph, Launch, Node
from manycl.machine import HOST
from manycl.plan.plan import MERGE, WHOLE, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.coherence import Directory
from manycl.run.cut import Cut, Order
from manycl.run.drafts import draft_steps
from manycl.run.overlap import in_turns, overlapped
from manycl.run.room import with_room
from manycl.run.steps import CLEAR, COMBINE, COPY, RANGE, Lowered, Step, state_of
from manycl.run.windows import Room, fitted

CHUNK = 8 << 20
"""Bytes of a piece, where data may go from one device's memory to another's: a part of it is on its way up while the
next comes down."""


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
    elif split and plan is not None and not limits:
        parts = overlapped(problem, plan)
        lowered = in_turns(_Assembly(problem, parts.plan, directory, {}).result(), parts.turns)
    else:
        lowered = _Assembly(problem, plan, directory, limits or {}).result()
    if limits is None:
        return lowered
    try:
        return with_room(problem, lowered, limits)
    except RunError:
        if lowered.room is None or not lowered.room.windows:
            raise
    # as small as they can be, windows may fit
    return with_room(problem, _Assembly(problem, plan, directory, limits, shared=False).result(), limits)


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


class _Assembly:
    """A plan's drafts put together: their bytes cut into pieces, their order."""

    def __init__(
        self,
        problem: Problem,
        plan: Plan | None,
        directory: Directory,
        limits: Mapping[int, int],
        shared: bool = True,
    ) -> None:
        self.limits = limits
        self.problem = problem
        self.graph = problem.graph
        self.plan = plan
        self.directory = directory
        self.of = _by_node(self.graph, plan)
        drafted = draft_steps(problem, self.of, directory, limits, shared)
        self.drafts, self.temporaries = drafted.of_node, drafted.temporaries
        self.sizes, self.windows = drafted.sizes, drafted.windows

    def result(self) -> Lowered:
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
        notes = {**self.graph.notes, "together": self._together(cut, of_node)}
        if self.windows:
            notes["windows"] = self.windows  # for back ends
        graph = Graph(
            nodes=tuple(nodes),
            buffers=cut.buffers,
            predecessors=tuple(order.predecessors),
            components=tuple(tuple(s for n in c for s in of_node[n]) for c in self.graph.components),
            name=self.graph.name,
            notes=notes,
        )
        return Lowered(
            graph=graph,
            plan=self._planned(of_node),
            steps=tuple(steps),
            cut={k: c for k, c in cut.cut.items() if k not in temporary},
            opens=cut.opens,
            temporaries=tuple(self.temporaries),
            own=tuple(p for k in temporary for p in (k, *cut.cut.get(k, ()))),
            state=state_of(self.graph, self.directory),
            room=self._room(using),
        )

    def _room(self, using: list[dict[int, int]]) -> Room | None:
        if not self.limits:
            return None
        sizes = {**self.sizes, **{key: window.nbytes for key, window in self.windows.items()}}
        return Room(self.limits, self.windows, tuple(using), sizes)

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

    def _planned(self, of_node: Sequence[Sequence[int]]) -> Plan | None:
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
            ranges = sum(1 for b in self.of[a.node] if b.dimension != MERGE)
            for draft, token in zip(drafts, tokens, strict=True):
                role, step = draft.step.role, draft.step
                first = turn == 1 and role in (COPY, CLEAR)
                own = role == RANGE and a.dimension != MERGE and step.first == a.first
                last = role == COMBINE and a.dimension != MERGE and turn == ranges
                if first or own or last:
                    assignments.append(Assignment(token, draft.device, draft.queue, a.start, a.end))
        return replace(self.plan, assignments=tuple(assignments), moves=(), events=())


def _by_node(graph: Graph, plan: Plan | None) -> list[list[Assignment]]:
    """A plan's assignments of each node."""
    of: list[list[Assignment]] = [[] for _ in graph.nodes]
    for a in plan.assignments if plan is not None else ():
        if not 0 <= a.node < len(of):
            raise PolicyError(f"the plan is not valid: {a}")
        of[a.node].append(a)
    return of


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
