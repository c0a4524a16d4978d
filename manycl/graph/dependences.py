"""Dependences from the order of enqueueing (read after write, write after read or write), and orders that keep them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Any

from manycl.errors import GraphError
from manycl.graph.access import COPIES, is_partial, touched
from manycl.graph.copies import check_extent, result_task
from manycl.graph.graph import Buffer, BufferKey, Graph, Node
from manycl.region import NOTHING, Region

END = 1 << 62
"""Beyond the end of any buffer."""


class LastAccesses:
    """A buffer in intervals, each with the node that wrote it last (None: nobody), and the nodes that have read it
    since. Begins as one, of which these are known."""

    def __init__(self, writer: int | None, readers: Sequence[int]) -> None:
        self._low = [0, END]  # where intervals begin, and where the last one ends
        self._writers = [writer]
        self._readers = [list(readers)]
        self._spans: set[tuple[int, int]] = set()

    def touch(self, node: int, reads: Region, writes: Region, before: set[int]) -> None:
        """A node reads some bytes and writes some; what it comes after goes to ``before``."""
        for region in (reads, writes):
            self._spans.update(region.intervals)
        for at in self._intervals(reads):
            if (writer := self._writers[at]) is not None:
                before.add(writer)
        for at in self._intervals(writes):
            before.update(self._readers[at])
            if (writer := self._writers[at]) is not None and not self._readers[at]:
                before.add(writer)
        for at in self._intervals(reads):
            self._readers[at].append(node)
        for low, high in writes.intervals:  # what is written together is one interval again
            first, last = self._at(low), self._at(high)
            self._low[first:last] = [low]
            self._writers[first:last] = [node]
            self._readers[first:last] = [[]]

    def is_partial(self, nbytes: int) -> bool:
        """Return whether any node touched less than all of the buffer, which has so many bytes."""
        return any(low or high < nbytes for low, high in self._spans)

    def _intervals(self, region: Region) -> Iterator[int]:
        """The intervals that some bytes are made of; they are cut at their ends."""
        for low, high in region.intervals:
            first = self._at(low)
            yield from range(first, self._at(high))

    def _at(self, place: int) -> int:
        """The interval that begins with a byte; there is one from now on."""
        at = bisect_left(self._low, place)
        if self._low[at] != place:
            self._low.insert(at, place)
            self._writers.insert(at, self._writers[at - 1])
            self._readers.insert(at, list(self._readers[at - 1]))
        return at


@dataclass(frozen=True)
class Batch:
    """The nodes that were enqueued, in order. ``after``: those that nodes come after beyond what the buffers imply,
    where they do."""

    nodes: tuple[Node, ...]
    buffers: Mapping[BufferKey, Buffer]
    after: Mapping[int, tuple[int, ...]]
    components: tuple[tuple[int, ...], ...] = ()

    def graph(self, name: str = "", warnings: tuple[str, ...] = ()) -> Graph:
        """Return the graph, with the edges that follow from the order."""
        found = _Edges()
        for index, node in enumerate(self.nodes):
            found.add(index, node, self.after.get(index, ()))
        parts = frozenset(key for key, cut in found.cut.items() if cut.is_partial(self.buffers[key].nbytes))
        edges = tuple(found.predecessors)
        return Graph(self.nodes, self.buffers, edges, self.components, name, warnings, parts=parts)

    def with_results(self, keys: Iterable[BufferKey]) -> Batch:
        """Return the batch with a node behind all others that the host's copies of these buffers are for, as far as
        nodes write them: what the host will read is planned, moved and timed as a part of the graph. It is a component
        of its own."""
        wanted = tuple(keys)
        written = {key for node in self.nodes for key in node.writes} if wanted else ()
        results = [key for key in dict.fromkeys(wanted) if key in written]
        if not results:
            return self
        alone = ((len(self.nodes),),) if self.components else ()
        return replace(self, nodes=(*self.nodes, result_task(results)), components=(*self.components, *alone))

    def as_in(self, graph: Graph, keys: Mapping[BufferKey, BufferKey]) -> Graph:
        """Return the graph with the edges of one of the same signature that has buffer b where this has ``keys[b]``."""
        parts = frozenset(map(keys.__getitem__, graph.parts))
        return Graph(self.nodes, self.buffers, graph.predecessors, self.components, parts=parts)


def with_results(graph: Graph, keys: Iterable[BufferKey]) -> Graph:
    """Return a graph with :meth:`Batch.with_results`."""
    batch = Batch(graph.nodes, graph.buffers, dict(enumerate(graph.predecessors)), graph.components)
    found = batch.with_results(keys)
    return graph if found is batch else found.graph(graph.name, graph.warnings)


class GraphBuilder:
    """Collects buffers and nodes in the order of enqueueing. Two nodes that touch the same bytes of a buffer are
    ordered unless both only read them. Transitive edges are left out where a chain through the same bytes already
    implies them, so a graph of n nodes over b buffers keeps O(n b) edges. Buffers of which no node touches only a part,
    nearly all, are looked at as a whole."""

    def __init__(self) -> None:
        self._buffers: dict[BufferKey, Buffer] = {}
        self.nodes: list[Node] = []
        self._after: dict[int, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self.nodes)

    def buffer(self, nbytes: int, name: str = "") -> BufferKey:
        """A new buffer's key."""
        key = BufferKey(len(self._buffers))
        self.adopt(Buffer(key, nbytes, name))
        return key

    def adopt(self, buffer: Buffer) -> None:
        """Make a buffer that has a key already known to this graph."""
        if buffer.nbytes <= 0:
            raise GraphError(f"buffer {buffer.name or buffer.key} has {buffer.nbytes} bytes; it needs at least one")
        self._buffers[buffer.key] = buffer

    def add(self, node: Node, after: Sequence[int] = ()) -> int:
        """Append a node; ``after`` adds edges beyond those that the buffers imply. Returns the node's index.
        Raises GraphError for what is yet to come, LaunchError for a copy or fill beyond the buffers' ends."""
        if type(node) in COPIES:
            touches = (*node.reads, *node.writes)
            check_extent(node, {k: self._buffers[k].nbytes for k in touches if k in self._buffers})
        index = len(self.nodes)
        if after:
            if max(after) >= index or min(after) < 0:
                raise GraphError(
                    f"node {index} ({node.name}) cannot come after nodes {sorted(set(after))}: not added before it"
                )
            self._after[index] = tuple(sorted(set(after)))
        elif self._after:
            self._after.pop(index, None)  # of one that Ctrl-C kept from being added
        self.nodes.append(node)
        return index

    def batch(self, components: tuple[tuple[int, ...], ...] = ()) -> Batch:
        """Return all that was added."""
        return Batch(tuple(self.nodes), dict(self._buffers), dict(self._after), components)

    def build(
        self, components: tuple[tuple[int, ...], ...] = (), name: str = "", warnings: tuple[str, ...] = ()
    ) -> Graph:
        """The graph of all that was added."""
        return self.batch(components).graph(name, warnings)


class _Edges:
    """The edges of a batch, node by node: ``predecessors``; ``cut``: buffers that are touched in parts."""

    def __init__(self) -> None:
        self.predecessors: list[tuple[int, ...]] = []
        self.cut: dict[BufferKey, LastAccesses] = {}
        self._writer: dict[BufferKey, int] = {}
        self._readers: dict[BufferKey, list[int]] = {}

    def add(self, index: int, node: Node, after: Sequence[int]) -> None:
        before = set(after)
        if self.cut or is_partial(node):
            self._note_parts(index, node, before)
        else:
            self._note(index, node, before)
        before.discard(index)
        self.predecessors.append(tuple(sorted(before)) if len(before) > 1 else tuple(before))

    def _note(self, index: int, node: Node, before: set[int]) -> None:
        """Find what a node comes after, and remember it; of whole buffers."""
        writer, readers = self._writer, self._readers
        for key in node.reads:
            w = writer.get(key)
            if w is not None:
                before.add(w)
        for key in node.writes:
            pending = readers.get(key)
            if pending:
                before.update(pending)
            w = writer.get(key)
            if w is not None and not pending:
                before.add(w)
        for key in node.reads:
            if key in readers:
                readers[key].append(index)
            else:
                readers[key] = [index]
        for key in node.writes:
            writer[key] = index
            readers[key] = []

    def _note_parts(self, index: int, node: Node, before: set[int]) -> None:
        """Find what a node comes after, and remember it, where it or one before it touches parts of buffers."""
        reads, writes = touched(node, _Endless())
        for key in dict.fromkeys((*node.reads, *node.writes)):
            if key not in self.cut:
                self.cut[key] = LastAccesses(self._writer.pop(key, None), self._readers.pop(key, []))
            self.cut[key].touch(index, reads.get(key, NOTHING), writes.get(key, NOTHING), before)


class _Endless(dict[BufferKey, int]):
    """Sizes of buffers while these are not all known: whole ones end nowhere."""

    def __missing__(self, key: BufferKey) -> int:
        return END


def least_first(
    predecessors: Sequence[Collection[int]], successors: Sequence[Iterable[int]], keys: Sequence[Any] | None = None
) -> list[int]:
    """Return a topological order: of ready nodes the least key first, then the least index; without cycles."""
    known = keys if keys is not None else (0,) * len(predecessors)
    missing = [len(before) for before in predecessors]
    ready = [(known[i], i) for i, count in enumerate(missing) if count == 0]
    heapify(ready)
    order: list[int] = []
    while ready:
        node = heappop(ready)[1]
        order.append(node)
        for s in successors[node]:
            missing[s] -= 1
            if missing[s] == 0:
                heappush(ready, (known[s], s))
    return order
