"""Values instead of bytes, for the chaos back end: what a step leaves in a buffer depends on the step and on all that
it found, so that one stale or early read changes the end of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from manycl.graph.graph import Beside, Graph

Value = object


class Interrupted(NamedTuple):
    """What step ``node``, which may run twice, has left of ``base`` when it was interrupted."""

    node: int
    base: Value


class Left(int):
    """What step ``node`` has left where ``base`` was."""

    node: int
    base: Value


class Together(NamedTuple):
    """What several ranges of launch ``node`` have left in a piece: ``base`` was there before."""

    node: int
    base: Value
    done: frozenset[tuple[int, int]]  # steps, and what each of them found


def touched(graph: Graph, node: int) -> list[int]:
    """The buffers a node's result depends on: all it reads, and what it may leave partly as it was."""
    task = graph.nodes[node]
    return sorted({*task.reads, *(k for k in task.writes if k not in task.overwrites)})


def together(graph: Graph, node: int) -> Beside:
    """The pieces that other ranges of the node's launch write at the same time, and which launch that is."""
    return graph.beside.get(node, Beside(-1, frozenset()))


def seen_by(graph: Graph, node: int, held: Mapping[int, Value]) -> dict[int, Value]:
    """What a node's result depends on, of what its memory holds: of a piece that other ranges write at the same time,
    what it was before all of them."""
    launch, shared = together(graph, node)
    seen = {k: held.get(k) for k in touched(graph, node)}
    for key, value in seen.items():
        if isinstance(value, Interrupted) and value.node == node:
            seen[key] = value.base
    for key in shared & seen.keys():
        value = seen[key]
        if isinstance(value, Together) and value.node == launch:
            seen[key] = value.base
    return seen


def left_by(graph: Graph, node: int, key: int, inputs: Mapping[int, Value], before: Value) -> Value:
    """The value that a node leaves in a buffer, or in a piece that held ``before``."""
    launch, shared = together(graph, node)
    if key not in shared:
        left = Left(hash((node, key, tuple(sorted(inputs.items())))))
        left.node, left.base = node, before
        return left
    base, done = inputs.get(key), frozenset({(node, hash(tuple(sorted(inputs.items()))))})
    if isinstance(before, Together) and before.node == launch:
        done |= before.done
    return Together(launch, base, done)
