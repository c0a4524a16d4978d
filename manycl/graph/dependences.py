"""Dependences from the order of enqueueing: read after write, write after read, write after write."""

from __future__ import annotations

from collections.abc import Sequence

from manycl.errors import GraphError
from manycl.graph.access import COPIES, is_partial, touched
from manycl.graph.copies import check_extent
from manycl.graph.graph import Buffer, Graph, Node
from manycl.graph.last_accesses import END, LastAccesses
from manycl.region import NOTHING


class GraphBuilder:
    """Collects buffers and nodes in enqueueing order and infers the edges between them.

    Two nodes that touch the same bytes of a buffer are ordered unless both only read them. Transitive edges are left
    out where a chain through the same bytes already implies them, so a graph of n nodes over b buffers keeps O(n b)
    edges. Buffers of which no node touches only a part, nearly all, are looked at as a whole.
    """

    def __init__(self) -> None:
        self._buffers: dict[int, Buffer] = {}
        self._nodes: list[Node] = []
        self._predecessors: list[tuple[int, ...]] = []
        self._writer: dict[int, int] = {}
        self._readers: dict[int, list[int]] = {}
        self._cut: dict[int, LastAccesses] = {}  # of buffers that are touched in parts
        self._adding = False  # or interrupted in it

    def __len__(self) -> int:
        return len(self._nodes)

    def buffer(self, nbytes: int, name: str = "") -> int:
        """A new buffer's key."""
        key = len(self._buffers)
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
        if self._adding:
            self._mend()
        self._adding = True
        index = len(self._nodes)
        before = set(after)
        if self._cut or is_partial(node):
            self._note_parts(index, node, before)
        else:
            self._note(index, node, before)
        before.discard(index)
        if after and before and (max(before) >= index or min(before) < 0):
            raise GraphError(
                f"node {index} ({node.name}) cannot come after nodes {sorted(before)}: not added before it"
            )
        self._nodes.append(node)
        self._predecessors.append(tuple(sorted(before)) if len(before) > 1 else tuple(before))
        self._adding = False
        return index

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
        """The same, where the node or one before it touches parts of buffers."""
        reads, writes = touched(node, _Endless())
        for key in dict.fromkeys((*node.reads, *node.writes)):
            if key not in self._cut:
                self._cut[key] = LastAccesses(self._writer.pop(key, None), self._readers.pop(key, []))
            self._cut[key].touch(index, reads.get(key, NOTHING), writes.get(key, NOTHING), before)

    def _mend(self) -> None:
        """The last node was not added (Ctrl-C in the midst of it, or a GraphError): nobody depends on it."""
        del self._nodes[len(self._predecessors) :]
        self._adding = False
        self._writer, self._readers, self._cut = {}, {}, {}
        for index, node in enumerate(self._nodes):
            note = self._note_parts if self._cut or is_partial(node) else self._note
            note(index, node, set())

    def build(
        self,
        components: tuple[tuple[int, ...], ...] = (),
        name: str = "",
        warnings: tuple[str, ...] = (),
    ) -> Graph:
        if self._adding:
            self._mend()
        return Graph(
            nodes=tuple(self._nodes),
            buffers=dict(self._buffers),
            predecessors=tuple(self._predecessors),
            components=components,
            name=name,
            warnings=warnings,
            parts=frozenset(key for key, cut in self._cut.items() if cut.is_partial(self._buffers[key].nbytes)),
        )


class _Endless(dict[int, int]):
    """As sizes of buffers: until buffers are all known, whole ones end nowhere."""

    def __missing__(self, key: int) -> int:
        return END
