"""PySchedCL's command-queue structure, definitions 1-5 and ``setup_cq`` of Algorithm 1, as pure functions.

The paper gives every kernel buffers of its own and joins an output to an input by an edge; here both are one buffer,
and an edge (b_i, b_j) of the paper is a pair of nodes of which the later one needs what the earlier one wrote. A
component T is a tuple of node indices.

Two of the paper's rules would copy too little and are widened: a kernel whose output is needed both inside and outside
of T is read back although it is not in END(T), and one whose inputs come from both sides gets its outside inputs
although it is not in FRONT(T). One rule would copy too much and is narrowed: a buffer that several kernels of T use is
written to the device once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from manycl.errors import PolicyError
from manycl.graph.graph import BufferKey, Graph, HostTask

Component = Sequence[int]


def front(graph: Graph, component: Component) -> tuple[int, ...]:
    """Return FRONT(T), Definition 1: kernels all of whose predecessors are outside of T."""
    inside = frozenset(component)
    return tuple(n for n in sorted(component) if inside.isdisjoint(graph.predecessors[n]))


def end(graph: Graph, component: Component) -> tuple[int, ...]:
    """Return END(T), Definition 2: kernels all of whose successors are outside of T."""
    inside = frozenset(component)
    return tuple(n for n in sorted(component) if inside.isdisjoint(graph.successors[n]))


def inner(graph: Graph, component: Component) -> tuple[int, ...]:
    """Return IN(T), Definition 3: kernels of T in neither FRONT(T) nor END(T)."""
    outer = {*front(graph, component), *end(graph, component)}
    return tuple(n for n in sorted(component) if n not in outer)


class BufferEdge(NamedTuple):
    """An edge: node ``after`` needs buffer ``buffer`` as node ``before`` leaves it (the paper's E)."""

    before: int
    buffer: BufferKey
    after: int


def buffer_edges(graph: Graph, component: Component) -> Iterator[BufferEdge]:
    """Yield the edges of E that begin or end in T, each once, sorted by the later node."""
    inside = frozenset(component)
    later = sorted(inside.union(*(graph.successors[n] for n in component)))
    for node in later:
        reads = graph.nodes[node].reads
        for p in graph.predecessors[node]:
            if node in inside or p in inside:
                for key in graph.nodes[p].writes:
                    if key in reads:
                        yield BufferEdge(p, key, node)


def intra_edges(graph: Graph, component: Component) -> tuple[BufferEdge, ...]:
    """Return the edges between two kernels of T: nothing is copied for them."""
    inside = frozenset(component)
    return tuple(e for e in buffer_edges(graph, component) if e.before in inside and e.after in inside)


def inter_edges(graph: Graph, component: Component) -> tuple[BufferEdge, ...]:
    """Return the edges between a kernel of T and one outside of it."""
    inside = frozenset(component)
    return tuple(e for e in buffer_edges(graph, component) if (e.before in inside) != (e.after in inside))


class KernelBuffer(NamedTuple):
    """A kernel-buffer dependency that may need a copy: (b, k) in E_I or (k, b) in E_O of the paper."""

    node: int
    buffer: BufferKey


def isolated_reads(graph: Graph, component: Component) -> tuple[KernelBuffer, ...]:
    """Return outputs that no kernel of the graph needs: results for the host."""
    consumed = {(e.before, e.buffer) for e in buffer_edges(graph, component)}
    return tuple(KernelBuffer(n, b) for n in sorted(component) for b in graph.nodes[n].writes if (n, b) not in consumed)


class QueueCommand(NamedTuple):
    """An element q[j] of a command queue. ``kind`` is ``write``, ``ndrange`` or ``read``; an ndrange has no
    ``buffer``."""

    kind: str
    node: int
    buffer: BufferKey | None = None


class QueuePosition(NamedTuple):
    """The command at ``position`` of queue number ``queue``."""

    queue: int
    position: int


class CommandQueues:
    """The structure <Q, E_Q> of Definition 4 for one component.

    ``order``: the kernels (and host tasks) in the order of dispatch, each with its queue number. ``queues`` and
    ``constraints`` are derived from it when they are needed. The copies of a real run are decided by the engine's
    coherence directory, since only it knows where contents are valid.
    """

    def __init__(self, graph: Graph, order: tuple[tuple[int, int], ...], first: int, count: int) -> None:
        self.order = order
        self.first = first
        self.count = count
        self._graph = graph

    @cached_property
    def queues(self) -> tuple[tuple[QueueCommand, ...], ...]:
        """Q: for each queue, from ``first`` on, its commands in order, by the rules of ``enq`` (Section
        3)."""
        lists: list[list[QueueCommand]] = [[] for _ in range(self.count)]
        for node, queue in self.order:
            lists[queue - self.first].extend(self._enq(node))
        return tuple(tuple(q) for q in lists)

    def _enq(self, node: int) -> Iterator[QueueCommand]:
        if isinstance(self._graph.nodes[node], HostTask):
            return
        for key, writer in self._written.items():
            if writer == node:
                yield QueueCommand("write", node, key)
        yield QueueCommand("ndrange", node)
        for copy in sorted(self._read):
            if copy.node == node:
                yield QueueCommand("read", node, copy.buffer)

    @cached_property
    def _members(self) -> tuple[int, ...]:
        return tuple(n for n, _ in self.order)

    @cached_property
    def _written(self) -> dict[BufferKey, int]:
        """The buffers that must be written to the device, each with the kernel before which it is written: the first
        that uses it."""
        inside = frozenset(self._members)
        from_inside = {(e.after, e.buffer) for e in intra_edges(self._graph, self._members)}
        written: dict[BufferKey, int] = {}
        for node in self._members:
            for key in self._graph.nodes[node].reads:
                if (node, key) not in from_inside and key not in written:
                    written[key] = node
        assert inside.issuperset(written.values())
        return written

    @cached_property
    def _read(self) -> frozenset[KernelBuffer]:
        """The outputs that must be read back: needed outside of T, or by no kernel (results)."""
        outside = {KernelBuffer(e.before, e.buffer) for e in inter_edges(self._graph, self._members)}
        members = frozenset(self._members)
        leaving = {c for c in outside if c.node in members}
        return frozenset(leaving | {*isolated_reads(self._graph, self._members)})

    @cached_property
    def constraints(self) -> tuple[tuple[QueuePosition, QueuePosition], ...]:
        """E_Q, Definition 4: pairs of commands in different queues of which the first must end before the second."""
        where = {
            command: QueuePosition(q + self.first, i)
            for q, commands in enumerate(self.queues)
            for i, command in enumerate(commands)
        }
        pairs: set[tuple[QueuePosition, QueuePosition]] = set()
        for node in self._members:
            run = where.get(QueueCommand("ndrange", node))
            if run is None:
                continue
            # (i) writes before the ndrange that uses them
            for key in self._graph.nodes[node].reads:
                writer = self._written.get(key)
                write = where.get(QueueCommand("write", writer, key)) if writer is not None else None
                if write is not None:
                    pairs.add((write, run))
            # (ii) the ndrange before reads of what it wrote: always the same queue, which keeps their order
            # (iii) kernels of T before those of T that depend on them
            for p in self._graph.predecessors[node]:
                before = where.get(QueueCommand("ndrange", p))
                if before is not None:
                    pairs.add((before, run))
        return tuple(sorted((a, b) for a, b in pairs if a.queue != b.queue))


def setup_cq(graph: Graph, component: Component, r: int, first_queue: int = 0) -> CommandQueues:
    """Return the queues of a component: its kernels are given to ``r`` queues, round-robin, beginning with FRONT(T)
    (Algorithm 1, ``setup_cq``).

    A kernel joins ``unprocessed`` once all its predecessors in T are processed, so the order is topological (the paper
    adds successors at once, which is only right for trees). Host tasks keep their place in the order and take no turn.
    """
    if r < 1:
        raise PolicyError(f"a task component needs at least one queue, not {r}")
    if len(component) == 1:
        return CommandQueues(graph, ((component[0], first_queue),), first_queue, r)
    inside = frozenset(component)
    missing = {n: sum(p in inside for p in graph.predecessors[n]) for n in component}
    unprocessed = deque(n for n in sorted(component) if missing[n] == 0)
    order: list[tuple[int, int]] = []
    turn = 0
    while unprocessed:
        node = unprocessed.popleft()
        order.append((node, first_queue + turn))
        if not isinstance(graph.nodes[node], HostTask):
            turn = (turn + 1) % r
        for s in graph.successors[node]:
            if s in inside:
                missing[s] -= 1
                if missing[s] == 0:
                    unprocessed.append(s)
    return CommandQueues(graph, tuple(order), first_queue, r)
