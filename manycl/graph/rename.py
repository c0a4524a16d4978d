"""The same graph on other buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from manycl.graph.graph import Argument, BufferArg, BufferKey, Graph, Node


def renamed(graph: Graph, keys: Mapping[BufferKey, BufferKey]) -> Graph:
    """The graph with other buffers for some of its own: ``keys[b]`` instead of b. They are of the same sizes, among the
    graph's own, and no two become one, so its dependences stay what they are."""
    if sorted(keys.values()) != sorted(keys) or not keys.keys() <= graph.buffers.keys():
        raise ValueError(f"buffers {sorted(keys)} of the graph cannot be exchanged for {sorted(keys.values())}")
    if any(graph.buffers[a].nbytes != graph.buffers[b].nbytes for a, b in keys.items()):
        raise ValueError("buffers that are exchanged have the same size")
    parts = frozenset(keys.get(key, key) for key in graph.parts)
    return replace(graph, nodes=tuple(_on(node, keys) for node in graph.nodes), parts=parts)


def _on(node: Node, keys: Mapping[BufferKey, BufferKey]) -> Node:
    if keys.keys().isdisjoint((*node.reads, *node.writes)):
        return node
    args: tuple[Any, ...] = tuple(_argument(a, keys) for a in node.args)
    return replace(
        node,
        args=args,
        reads=tuple(keys.get(k, k) for k in node.reads),
        writes=tuple(keys.get(k, k) for k in node.writes),
        overwrites=tuple(keys.get(k, k) for k in node.overwrites),
    )


def _argument(argument: Argument, keys: Mapping[BufferKey, BufferKey]) -> Argument:
    return argument.of(keys.get(argument.key, argument.key)) if isinstance(argument, BufferArg) else argument
