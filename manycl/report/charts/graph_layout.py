"""Where the nodes of an acyclic graph are drawn: in layers, as K. Sugiyama, S. Tagawa and M. Toda do it ("Methods for
Visual Understanding of Hierarchical System Structures", IEEE Trans. Systems, Man, and Cybernetics 11(2), 1981).

A node is one layer below the lowest of those that it waits for; an edge passes each layer between at a place of its
own; the places of a layer are ordered by the mean place of their neighbours above, then below, a few times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

SWEEPS = 6
Point = tuple[float, float]


class Layout(NamedTuple):
    """``at[node]`` and the ``ways`` of edges, each from its source to its target: x grows to the right from 0, y by one
    a layer downwards. ``width`` and ``height``: of all of it."""

    at: Mapping[int, Point]
    ways: Sequence[Sequence[Point]]
    width: float
    height: float


def laid_out(nodes: Sequence[int], edges: Sequence[tuple[int, int]]) -> Layout:
    """``nodes`` in a topological order."""
    layer = _layers(nodes, edges)
    rows: list[list[int]] = [[] for _ in range(1 + max(layer.values(), default=-1))]
    for node in nodes:
        rows[layer[node]].append(node)
    chains: list[list[int]] = []
    free = max(nodes, default=0) + 1
    for source, target in edges:
        passed = range(free, free + layer[target] - layer[source] - 1)
        free += len(passed)
        for place, row in zip(passed, range(layer[source] + 1, layer[target]), strict=True):
            rows[row].append(place)
        chains.append([source, *passed, target])
    _order(rows, chains)
    width = max(map(len, rows), default=0)
    at = {node: ((i + 0.5) * width / len(row), float(y)) for y, row in enumerate(rows) for i, node in enumerate(row)}
    ways = [[at[place] for place in chain] for chain in chains]
    return Layout({node: at[node] for node in nodes}, ways, float(width), float(len(rows)))


def _layers(nodes: Sequence[int], edges: Sequence[tuple[int, int]]) -> dict[int, int]:
    before: dict[int, list[int]] = {node: [] for node in nodes}
    for source, target in edges:
        before[target].append(source)
    found: dict[int, int] = {}
    for node in nodes:
        found[node] = 1 + max((found[p] for p in before[node]), default=-1)
    return found


def _order(rows: list[list[int]], chains: Sequence[Sequence[int]]) -> None:
    """Sort every row by the mean place of the neighbours in the row before (every other time: behind)."""
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for chain in chains:
        for a, b in pairwise(chain):
            above.setdefault(b, []).append(a)
            below.setdefault(a, []).append(b)
    for sweep in range(SWEEPS):
        near = below if sweep % 2 else above
        sequence = reversed(rows) if sweep % 2 else rows
        place: dict[int, float] = {}
        for row in sequence:
            means = {
                node: sum(place[n] for n in of) / len(of) if (of := near.get(node)) else (i + 0.5) / len(row)
                for i, node in enumerate(row)
            }
            row.sort(key=means.__getitem__)
            place |= {node: (i + 0.5) / len(row) for i, node in enumerate(row)}
