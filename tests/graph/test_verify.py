"""Graphs: the builder against its judge, and the judge against graphs that are wrong in one place."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.analysis import parse_program
from manycl.errors import GraphError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Buffer, BufferArg, Graph, HostTask, Launch
from tests.graph.graph_judge import verify

PROGRAM = parse_program("kernel void k(global int *a, global int *b, global int *c) { a[0] = b[0] + c[0]; }")
KEYS = range(3)
ADDING = GraphBuilder.add.__code__
some = st.frozensets(st.sampled_from(KEYS), max_size=2).map(sorted).map(tuple)
steps = st.lists(st.tuples(some, some, st.booleans()), min_size=1, max_size=8)


def launch(reads: tuple[int, ...], writes: tuple[int, ...], size: tuple[int, ...] = (1,)) -> Launch:
    args = tuple(BufferArg(k) for k in KEYS)
    return Launch("k", PROGRAM, PROGRAM.kernels["k"], size, None, args, reads, writes)


def builder() -> GraphBuilder:
    made = GraphBuilder()
    for key in KEYS:
        made.adopt(Buffer(key, 4))
    return made


@given(steps, st.data())
def test_what_was_refused_or_interrupted_leaves_no_trace(
    given_steps: list[tuple[tuple[int, ...], tuple[int, ...], bool]], data: Any
) -> None:
    """Later nodes depend on those that were added, as if nothing else had been tried."""
    made, plain = builder(), builder()
    for reads, writes, refused in given_steps:
        if refused:
            with pytest.raises(GraphError, match="not added before it"):
                made.add(launch(reads, writes), [data.draw(st.sampled_from([-1, len(made) + 1]))])
            continue
        after = data.draw(st.sets(st.integers(0, max(len(plain) - 1, 0)), max_size=2)) if len(plain) else ()
        for each in (made, plain):
            assert each.add(launch(reads, writes), sorted(after)) == len(each) - 1
    found, right = made.build(), plain.build()
    assert found.predecessors == right.predecessors
    assert len(found.nodes) == len(right.nodes)
    verify(found)


def interrupted(made: GraphBuilder, node: Launch, after: list[int], line: int) -> None:
    """Add a node; Ctrl-C comes in the midst of it, when so many lines have been run."""
    left = line

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code is not ADDING:
            return None
        left -= event == "line"
        if left < 0:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        made.add(node, after)
    finally:
        sys.settrace(before)


@given(st.lists(st.tuples(some, some, st.integers(0, 16), st.booleans()), min_size=1, max_size=6))
def test_what_was_interrupted_at_any_line_was_added_or_not(
    given_steps: list[tuple[tuple[int, ...], tuple[int, ...], int, bool]],
) -> None:
    made, plain = builder(), builder()
    for reads, writes, line, in_part in given_steps:
        node = launch(reads, writes)
        if in_part:
            node.args = (*node.args[:-1], BufferArg(node.args[-1].key, 1, 2))
        with suppress(KeyboardInterrupt):
            interrupted(made, node, [0] if len(plain) else [], line)
        if len(made.build()) > len(plain):
            plain.add(node, [0] if len(plain) else [])
        found, right = made.build(), plain.build()
        assert (found.predecessors, len(found.nodes)) == (right.predecessors, len(right.nodes))
        verify(found)


def chain() -> Graph:
    made = builder()
    made.add(launch((), (0,)))
    made.add(launch((0,), (1,)))
    made.add(HostTask("looks", print, (), (1,), ()))
    return made.build()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda g: replace(g, predecessors=((), (), (1,))), "nodes 0 and 1 both use buffer 0"),
        (lambda g: replace(g, predecessors=((), (0,), ())), "nodes 1 and 2 both use buffer 1"),
        (lambda g: replace(g, predecessors=((1,), (0,), (1,))), "node 0 depends on node 1"),
        (lambda g: replace(g, predecessors=((), (0,), (2,))), "node 2 depends on node 2"),
        (lambda g: replace(g, predecessors=((), (0,))), "3 nodes but 2 lists"),
        (lambda g: replace(g, buffers={0: g.buffers[0]}), "touches buffer 1"),
        (lambda g: replace(g, components=((0, 1), (1, 2))), "no partition"),
        (lambda g: replace(g, nodes=(replace(g.nodes[0], args=()), *g.nodes[1:])), "declares buffer 0"),
    ],
)
def test_what_is_wrong_is_found(wrong: Any, said: str) -> None:
    graph = chain()
    verify(graph)
    verify(replace(graph, components=((0, 1), (2,))))
    with pytest.raises(GraphError, match=said):
        verify(wrong(graph))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple))
def test_work_items_of_a_launch(size: tuple[int, ...]) -> None:
    assert launch((), (), size).work_items == prod(size)
