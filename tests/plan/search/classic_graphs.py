"""Task graphs from the literature as problems: every edge is a buffer, every device has a memory of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from manycl.graph.dependences import GraphBuilder
from manycl.plan.problem import Problem
from tests.plan.plan_cases import launch, machine, problem

Edges = Mapping[tuple[int, int], int]

TOPCUOGLU = [
    [14, 16, 9], [13, 19, 18], [11, 13, 19], [13, 8, 17], [12, 13, 10],
    [13, 16, 9], [7, 15, 11], [5, 11, 14], [18, 12, 20], [21, 7, 16],
]  # fmt: skip
"""Topcuoglu, Hariri and Wu 2002, Figure 2 and Table 1: seconds of ten tasks on three processors."""

TOPCUOGLU_EDGES = {
    (0, 1): 18, (0, 2): 12, (0, 3): 9, (0, 4): 11, (0, 5): 14, (1, 7): 19, (1, 8): 16, (2, 6): 23,
    (3, 7): 27, (3, 8): 23, (4, 8): 13, (5, 7): 15, (6, 9): 17, (7, 9): 11, (8, 9): 13,
}  # fmt: skip

ARABNEJAD = [
    [22, 21, 36], [22, 18, 18], [32, 27, 43], [7, 10, 4], [29, 27, 35],
    [26, 17, 24], [14, 25, 30], [29, 23, 36], [15, 21, 8], [13, 16, 33],
]  # fmt: skip
"""Arabnejad and Barbosa 2014, Figure 2: likewise."""

ARABNEJAD_EDGES = {
    (0, 1): 17, (0, 2): 31, (0, 3): 29, (0, 4): 13, (0, 5): 7, (1, 7): 3, (1, 8): 30, (2, 6): 16,
    (3, 7): 11, (3, 8): 7, (4, 8): 57, (5, 7): 5, (6, 9): 9, (7, 9): 42, (8, 9): 7,
}  # fmt: skip


def classic(seconds: Sequence[Sequence[float]], edges: Edges, options: Mapping[str, str] | None = None) -> Problem:
    """A byte takes a second between any two memories; nothing else costs anything."""
    builder = GraphBuilder()
    keys = {edge: builder.buffer(size) for edge, size in edges.items()}
    for node in range(len(seconds)):
        reads = tuple(key for (_, to), key in keys.items() if to == node)
        writes = tuple(key for (from_, _), key in keys.items() if from_ == node)
        builder.add(launch(f"n{node + 1}", reads, writes))
    where = machine(range(1, len(seconds[0]) + 1))
    return problem(builder.build(), seconds, where, per_byte=1.0, options=options)
