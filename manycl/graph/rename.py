"""Renaming: a graph, or a node of one, on other buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from manycl.graph.graph import Argument, BufferArg, BufferKey, Graph, Node, same_node

N = TypeVar("N", bound=Node)


def renamed(graph: Graph, keys: Mapping[BufferKey, BufferKey]) -> Graph:
    """The graph with other buffers for some of its own: ``keys[b]`` instead of b. They are of the same sizes, among the
    graph's own, and no two become one, so its dependences stay what they are."""
    if sorted(keys.values()) != sorted(keys) or not keys.keys() <= graph.buffers.keys():
        raise ValueError(f"buffers {sorted(keys)} of the graph cannot be exchanged for {sorted(keys.values())}")
    if any(graph.buffers[a].nbytes != graph.buffers[b].nbytes for a, b in keys.items()):
        raise ValueError("buffers that are exchanged have the same size")
    parts = frozenset(keys.get(key, key) for key in graph.parts)
    return replace(graph, nodes=tuple(renamed_node(node, keys) for node in graph.nodes), parts=parts)


def keys_of(graph: Graph, other: Graph) -> dict[BufferKey, BufferKey] | None:
    """Return by which buffers of another graph a graph's own may be replaced, so that both are the same; None: by
    none, in the order of their first use."""
    if [b.nbytes for b in graph.buffers.values()] != [b.nbytes for b in other.buffers.values()]:
        return None
    if (len(graph), graph.predecessors, graph.components) != (len(other), other.predecessors, other.components):
        return None
    keys = dict(zip(graph.buffers, other.buffers, strict=True))
    same = {keys[key] for key in graph.parts} == other.parts and all(
        same_node(renamed_node(a, keys), b) for a, b in zip(graph.nodes, other.nodes, strict=True)
    )
    return keys if same else None


def renamed_node(node: N, keys: Mapping[BufferKey, BufferKey]) -> N:
    """The node with buffers ``keys[b]`` instead of b, where there is such."""
    args: tuple[Any, ...] = renamed_arguments(node.args, keys)
    if args == node.args and keys.keys().isdisjoint((*node.reads, *node.writes)):
        return node
    return replace(
        node,
        args=args,
        reads=tuple(keys.get(k, k) for k in node.reads),
        writes=tuple(keys.get(k, k) for k in node.writes),
        overwrites=tuple(keys.get(k, k) for k in node.overwrites),
    )


def renamed_arguments(args: tuple[Argument, ...], keys: Mapping[BufferKey, BufferKey]) -> tuple[Argument, ...]:
    """Arguments with such buffers."""
    return tuple([a.of(keys.get(a.key, a.key)) if isinstance(a, BufferArg) else a for a in args])
