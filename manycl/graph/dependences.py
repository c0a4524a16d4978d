"""Dependences from the order of enqueueing: read after write, write after read, write after write."""

from __future__ import annotations

from collections.abc import Sequence

from manycl.errors import GraphError
from manycl.graph.copies import check_extent
from manycl.graph.graph import Buffer, CopyTask, FillTask, Graph, Node


class GraphBuilder:
    """Collects buffers and nodes in enqueueing order and infers the edges between them.

    Two nodes that touch the same buffer are ordered unless both only read it. Transitive edges are left out where a
    chain through the same buffer already implies them, so a graph of n nodes over b buffers keeps O(n b) edges.
    """

    def __init__(self) -> None:
        self._buffers: dict[int, Buffer] = {}
        self._nodes: list[Node] = []
        self._predecessors: list[tuple[int, ...]] = []
        self._writer: dict[int, int] = {}
        self._readers: dict[int, list[int]] = {}
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
        if isinstance(node, CopyTask | FillTask):
            check_extent(node, {a.key: self._buffers[a.key].nbytes for a in node.args if a.key in self._buffers})
        if self._adding:
            self._mend()
        self._adding = True
        index = len(self._nodes)
        writer, readers = self._writer, self._readers
        before = set(after)
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
        before.discard(index)
        if after and before and (max(before) >= index or min(before) < 0):
            raise GraphError(
                f"node {index} ({node.name}) cannot come after nodes {sorted(before)}: not added before it"
            )
        self._nodes.append(node)
        self._predecessors.append(tuple(sorted(before)) if len(before) > 1 else tuple(before))
        self._adding = False
        return index

    def _mend(self) -> None:
        """The last node was not added (Ctrl-C in the midst of it, or a GraphError): nobody depends on it."""
        del self._nodes[len(self._predecessors) :]
        self._adding = False
        self._writer, self._readers = {}, {}
        for index, node in enumerate(self._nodes):
            for key in node.reads:
                self._readers.setdefault(key, []).append(index)
            for key in node.writes:
                self._writer[key] = index
                self._readers[key] = []

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
        )
