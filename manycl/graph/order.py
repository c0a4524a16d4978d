"""Topological orders."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any


def least_first(
    predecessors: Sequence[Collection[int]], successors: Sequence[Iterable[int]], keys: Sequence[Any] | None = None
) -> list[int]:
    """Return a topological order: of the ready nodes, the one with the least key first. Ties go by node index. Nodes of
    a cycle, and those behind it, are left out."""
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
