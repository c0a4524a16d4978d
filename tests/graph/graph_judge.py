"""An independent judge of graphs: every fault is found by one small check; shares no code with the builder."""

from __future__ import annotations

from collections.abc import Iterator

from manycl.errors import GraphError
from manycl.graph.graph import BufferArg, BufferKey, CopyTask, FillTask, Graph, HostTask, Launch, Node


def verify(graph: Graph) -> None:
    """Raise :class:`GraphError` that lists every fault of the graph, or return."""
    faults = [*check_shape(graph), *check_buffers(graph), *check_components(graph)]
    if not faults:
        faults = [*check_conflicts(graph)]
    if faults:
        raise GraphError("the graph is not valid:\n" + "\n".join(f"  - {f}" for f in faults))


def check_shape(graph: Graph) -> Iterator[str]:
    """Edges go from lower to higher indices (so there is no cycle) and stay inside the graph."""
    if len(graph.predecessors) != len(graph.nodes):
        yield f"{len(graph.nodes)} nodes but {len(graph.predecessors)} lists of predecessors"
    for node, before in enumerate(graph.predecessors):
        for p in before:
            if not 0 <= p < node:
                yield f"node {node} depends on node {p}, which does not come before it"


def check_buffers(graph: Graph) -> Iterator[str]:
    """Every buffer that is touched is known, and what runs on a device declares exactly the buffers it is
    given; what copies and fills stays within them."""
    for index, node in enumerate(graph.nodes):
        for key in {*node.reads, *node.writes}:
            if key not in graph.buffers:
                yield f"node {index} ({node.name}) touches buffer {key}, which the graph does not have"
        if not isinstance(node, HostTask):
            given = {a.key for a in node.args if isinstance(a, BufferArg)}
            for key in {*node.reads, *node.writes} - given:
                yield f"node {index} ({node.name}) declares buffer {key}, which is not among its arguments"
        if isinstance(node, CopyTask | FillTask):
            offsets = (node.target_offset, node.source_offset) if isinstance(node, CopyTask) else (node.target_offset,)
            for a, offset in zip(node.args, offsets, strict=True):
                if a.key in graph.buffers and not 0 <= offset < offset + node.nbytes <= graph.buffers[a.key].nbytes:
                    yield f"node {index} ({node.name}) touches bytes that buffer {a.key} does not have"


def check_components(graph: Graph) -> Iterator[str]:
    """Task components, where declared, contain every node exactly once."""
    if graph.components and sorted(n for c in graph.components for n in c) != list(range(len(graph.nodes))):
        yield "the task components are no partition of the nodes"


def check_conflicts(graph: Graph) -> Iterator[str]:
    """Any two nodes of which one writes what the other touches are connected by a path."""
    reach: list[int] = []
    for before in graph.predecessors:
        mask = 0
        for p in before:
            mask |= reach[p] | 1 << p
        reach.append(mask)
    for later, node in enumerate(graph.nodes):
        for earlier in range(later):
            other = graph.nodes[earlier]
            clash = {*other.writes} & {*node.reads, *node.writes} | {*other.reads} & {*node.writes}
            clash = {key for key in clash if _meet(graph, key, other, node)}
            if clash and not reach[later] >> earlier & 1:
                yield f"nodes {earlier} and {later} both use buffer {min(clash)} and neither waits for the other"


def _meet(graph: Graph, key: BufferKey, one: Node, other: Node) -> bool:
    """Whether two nodes, of which one writes a buffer, have bytes of it in common, at least one of them a writer's."""
    for low, high, writes in _spans(graph, key, one):
        for begin, end, too in _spans(graph, key, other):
            if (writes or too) and low < end and begin < high:
                return True
    return False


def _spans(graph: Graph, key: BufferKey, node: Node) -> Iterator[tuple[int, int, bool]]:
    """From which byte up to which a node may touch a buffer, and whether it may write these."""
    size = graph.buffers[key].nbytes
    if isinstance(node, CopyTask) and node.args[1].key == key:
        yield node.source_offset, node.source_offset + node.nbytes, False
    if isinstance(node, CopyTask | FillTask):
        if node.args[0].key == key:
            yield node.target_offset, node.target_offset + node.nbytes, True
        return
    given = [(i, a) for i, a in enumerate(node.args) if isinstance(a, BufferArg) and a.key == key]
    if all(a.nbytes is None for _, a in given):
        yield 0, size, key in node.writes
        return
    for index, a in given:
        writes = key in node.writes
        if isinstance(node, Launch):
            writes &= node.kernel.arguments[index].writes
        yield a.offset, a.offset + (size if a.nbytes is None else a.nbytes), writes
