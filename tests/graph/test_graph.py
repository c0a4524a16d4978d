"""What a graph tells of itself: against looking at all nodes."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.errors import GraphError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Graph, HostTask, Launch

FACTS = [KernelFacts(name, 1, ()) for name in "ab"]
PROGRAM = ProgramFacts("", (), {f.name: f for f in FACTS})


@st.composite
def builders(draw: Any) -> tuple[GraphBuilder, list[tuple[set[int], set[int], set[int]]]]:
    """A graph, and of each node what it reads and writes, and after which it was said to come."""
    builder = GraphBuilder()
    keys = [builder.buffer(4) for _ in range(3)]
    said = []
    for i in range(draw(st.integers(0, 8))):
        reads, writes = (draw(st.lists(st.sampled_from(keys), max_size=2, unique=True)) for _ in range(2))
        after = draw(st.sets(st.integers(0, i + 1), max_size=2))
        size = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
        args = tuple(map(BufferArg, dict.fromkeys((*reads, *writes))))
        facts = draw(st.sampled_from(FACTS))
        task: Any = Launch(facts.name, PROGRAM, facts, size, None, args, tuple(reads), tuple(writes))
        if draw(st.integers(0, 4)) == 0:
            task = HostTask("h", print, (), tuple(reads), tuple(writes))
        try:
            assert builder.add(task, sorted(after)) == len(said)
        except GraphError:
            assert max(after) >= len(said)  # and nobody depends on it
            assert len(builder) == len(said)
        else:
            said.append((set(reads), set(writes), after))
    return builder, said


@given(builders())
def test_nodes_wait_for_those_that_they_must_and_for_no_others(
    made: tuple[GraphBuilder, list[tuple[set[int], set[int], set[int]]]],
) -> None:
    builder, said = made
    graph = builder.build()
    assert len(graph) == len(graph.nodes) == len(said)
    before: list[set[int]] = []
    for node, (reads, writes, after) in enumerate(said):
        direct = set(graph.predecessors[node])
        assert list(graph.predecessors[node]) == sorted(direct)
        before.append(direct.union(*(before[p] for p in direct)))
        meeting = {p for p, (r, w, _) in enumerate(said[:node]) if w & (reads | writes) or r & writes}
        assert meeting | (after - {node}) <= before[node]
        assert direct <= meeting | after
    edges = [(p, n) for n in range(len(graph)) for p in graph.predecessors[n]]
    assert list(graph.edges) == edges
    assert graph.successors == tuple(tuple(n for p, n in edges if p == node) for node in range(len(graph)))


@given(builders())
def test_launches_that_are_the_same(made: tuple[GraphBuilder, Any]) -> None:
    graph = made[0].build()
    for node, task in enumerate(graph.nodes):
        alike = [
            n
            for n, other in enumerate(graph.nodes[: node + 1])
            if isinstance(task, Launch)
            and isinstance(other, Launch)
            and (task.kernel, task.global_size, task.args) == (other.kernel, other.global_size, other.args)
            and (task.reads, task.writes) == (other.reads, other.writes)
        ]
        assert graph.same[node] == (alike[0] if alike else node)
        if isinstance(task, Launch):
            assert task.work_items == math.prod(task.global_size) == len(list(product(*map(range, task.global_size))))


def test_what_makes_launches_different() -> None:
    one = Launch("a", PROGRAM, FACTS[0], (4,), (2,), (BufferArg(0),), (0,), (0,))
    changes: list[dict[str, Any]] = [
        {"program": replace(PROGRAM, source=" ")},
        {"kernel": FACTS[1]},
        {"global_size": (8,)},
        {"local_size": (4,)},
        {"global_offset": (1,)},
        {"args": (BufferArg(1),)},
        {"reads": ()},
        {"writes": ()},
        {"device": "gpu"},
        {"overwrites": (0,)},
        {"partition": 1},
    ]
    for change in changes:
        assert Graph((one, replace(one, **change)), {}, ((), ())).same == [0, 1], change
    assert Graph((one, replace(one, rank=1.0)), {}, ((), ())).same == [0, 0]
