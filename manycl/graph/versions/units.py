"""Graphs in which some launches are replaced by the kernels of a version of them, as nodes of their own.

"Static partitioning and scheduling of kernels from profiles" (REPARA), Section 2.1: a step is one large execution unit,
or several smaller ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from manycl.graph.dependences import Batch
from manycl.graph.graph import Buffer, BufferKey, Graph, Launch, Node, Placement
from manycl.graph.rename import renamed_node
from manycl.graph.versions.sequence import SequenceProgram, temporary_key

Units = tuple[tuple[int, int], ...]
"""Launches that run in smaller units: node, and the version (index) of which each kernel becomes a node."""


def version_in_units(graph: Graph, node: int) -> int:
    """Return the version of a node (index) whose kernels may become nodes in its place; 0: it has none."""
    task = graph.nodes[node]
    if not isinstance(task, Launch) or task.partition is not None:
        return 0
    only = isinstance(task.device, Placement) and task.device.only  # devices and kinds have no common names
    found = enumerate(task.versions)
    return next((v for v, of in found if isinstance(of.program, SequenceProgram) and not (only and of.kinds)), 0)


def in_units(graph: Graph, units: Units) -> Graph:
    """Return the graph with the kernels of a version in place of each of some launches, with temporary buffers of their
    own, each on the kinds of device that the version is for."""
    versions, buffers = dict(units), dict(graph.buffers)
    nodes: list[Node] = []
    origins: list[int] = []
    of_node: list[range] = []
    after: dict[int, tuple[int, ...]] = {}
    for node, task in enumerate(graph.nodes):
        made = _units(task, versions[node], buffers) if node in versions else [task]
        of_node.append(range(len(nodes), len(nodes) + len(made)))
        before = tuple([p for earlier in graph.explicit(node) for p in of_node[earlier]])
        after.update(dict.fromkeys(of_node[node], before) if before else {})
        nodes += made
        origins += [node] * len(made)
    components = tuple([tuple([unit for node in c for unit in of_node[node]]) for c in graph.components])
    found = Batch(tuple(nodes), buffers, after, components).graph(graph.name, graph.warnings)
    return replace(found, origins=tuple(origins), own=frozenset(buffers.keys() - graph.buffers.keys()))


def _units(task: Node, version: int, buffers: dict[BufferKey, Buffer]) -> Sequence[Node]:
    """Return the kernels of a version of a launch; their temporary buffers are added to ``buffers``."""
    assert isinstance(task, Launch)
    chosen = task.versions[version]
    assert isinstance(chosen.program, SequenceProgram)
    keys = {old: temporary_key(len(buffers) + i) for i, old in enumerate(chosen.program.sizes())}
    for old, nbytes in chosen.program.sizes().items():
        buffers[keys[old]] = Buffer(keys[old], nbytes, f"temporary of {task.name}")
    wanted = task.device if isinstance(task.device, Placement) else Placement(prefer=task.device)
    device = replace(wanted, only=chosen.kinds) if chosen.kinds else task.device
    return [
        replace(renamed_node(step, keys), name=f"{task.name}.{step.kernel.name}", device=device, rank=task.rank)
        for step in chosen.program.launches(task)
    ]


def rekeyed(graph: Graph, new_key: Callable[[], BufferKey]) -> Graph:
    """Return the graph with new keys for the buffers of its own."""
    keys = {key: new_key() for key in sorted(graph.own)}
    buffers = {keys.get(key, key): replace(b, key=keys.get(key, key)) for key, b in graph.buffers.items()}
    nodes = tuple([renamed_node(node, keys) for node in graph.nodes])
    parts, own = (frozenset(keys.get(key, key) for key in of) for of in (graph.parts, graph.own))
    return replace(graph, nodes=nodes, buffers=buffers, parts=parts, own=own)
