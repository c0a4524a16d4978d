"""Copies and fills as nodes: what does not fit is refused, by whoever is asked first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.errors import GraphError, LaunchError
from manycl.graph.copies import Place, copy_task, fill_task, result_task
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Buffer, CopyTask, FillTask, same_graph
from manycl.graph.rename import renamed
from tests.graph.graph_judge import verify

A, B = Buffer(0, 16, "a"), Buffer(1, 12, "b")
numbers = st.integers(-2, 18)


def fits(*ends: tuple[Buffer, int], nbytes: int) -> bool:
    return nbytes > 0 and all(at >= 0 and at + nbytes <= buffer.nbytes for buffer, at in ends)


@given(st.sampled_from([A, B]), st.sampled_from([A, B]), numbers, numbers, numbers)
def test_copies_stay_within_their_buffers(target: Buffer, source: Buffer, to: int, of: int, nbytes: int) -> None:
    apart = target != source or not {*range(to, to + nbytes)} & {*range(of, of + nbytes)}
    if fits((target, to), (source, of), nbytes=nbytes) and apart:
        task = copy_task(target, source, nbytes, target_offset=to, source_offset=of)
        assert (task.reads, task.writes) == ((source.key,), (target.key,))
        assert task.overwrites == ((target.key,) if nbytes == target.nbytes else ())
        return
    with pytest.raises(LaunchError, match="copy: "):
        copy_task(target, source, nbytes, target_offset=to, source_offset=of)


@given(numbers, st.none() | numbers, st.integers(0, 8))
def test_fills_are_whole_patterns(to: int, nbytes: int | None, length: int) -> None:
    size = A.nbytes - to if nbytes is None else nbytes
    if fits((A, to), nbytes=size) and length in (1, 2, 4, 8) and to % length == size % length == 0:
        task = fill_task(A, bytes(length), nbytes, target_offset=to)
        assert (task.reads, task.writes, task.nbytes) == ((), (0,), size)
        assert task.overwrites == ((0,) if size == 16 else ())
        return
    with pytest.raises(LaunchError, match="fill: "):
        fill_task(A, bytes(length), nbytes, target_offset=to)


@given(st.integers(0, 8), st.integers(1, 8), numbers, numbers, st.integers(1, 8))
def test_what_views_are_given_stays_within_them(low: int, size: int, to: int, of: int, nbytes: int) -> None:
    """Whatever their buffers have before and behind them."""
    view = Place(A, low, size)
    tasks = (
        lambda: fill_task(view, b"x", nbytes, target_offset=to),
        lambda: copy_task(view, B, nbytes, target_offset=to),
        lambda: copy_task(B, view, nbytes, source_offset=of),
    )
    for make, offset in zip(tasks, (to, to, of), strict=True):
        if offset >= 0 and offset + nbytes <= size:
            task = make()
            assert (task.source_offset if task.reads == (A.key,) else task.target_offset) == low + offset
            continue
        with pytest.raises(LaunchError, match=f"bytes {offset} to {offset + nbytes} of the (source|target), which has"):
            make()


def test_without_a_size_both_must_have_equally_much() -> None:
    assert copy_task(B, A, source_offset=4).nbytes == 12
    with pytest.raises(LaunchError, match="the source has 16 bytes from byte 0 on, the target 12 from byte 0 on"):
        copy_task(B, A)


def builder() -> GraphBuilder:
    made = GraphBuilder()
    made.adopt(A)
    made.adopt(B)
    return made


RIGHT = copy_task(B, A, 8), fill_task(A, b"abcd", 8)
WRONG: list[Any] = [
    replace(RIGHT[0], nbytes=13),
    replace(RIGHT[0], source_offset=9),
    replace(RIGHT[0], target_offset=-1),
    replace(RIGHT[1], nbytes=20),
    replace(RIGHT[1], target_offset=12),
]


@pytest.mark.parametrize("task", WRONG)
def test_what_was_made_by_hand_is_looked_at(task: CopyTask | FillTask) -> None:
    made = builder()
    with pytest.raises(LaunchError, match="bytes "):
        made.add(task)
    assert not len(made)
    for right in RIGHT:
        made.add(right)
    graph = made.build()
    verify(graph)
    where = 0 if isinstance(task, CopyTask) else 1
    nodes = tuple(task if i == where else node for i, node in enumerate(graph.nodes))
    with pytest.raises(GraphError, match=r"touches bytes that buffer \d does not have"):
        verify(replace(graph, nodes=nodes))


def test_they_are_ordered_as_other_nodes_are() -> None:
    made = builder()
    for task in (fill_task(A, b"x"), copy_task(B, A, 8), fill_task(A, b"y", 4), copy_task(A, B, 2)):
        made.add(task)
    graph = made.build()
    verify(graph)
    assert graph.predecessors == ((), (0,), (1,), (1, 2))


def test_the_same_and_on_other_buffers() -> None:
    def built(pattern: bytes) -> Any:
        made = GraphBuilder()
        for buffer in (A, replace(A, key=2)):
            made.adopt(buffer)
        for task in (fill_task(A, pattern), copy_task(replace(A, key=2), A), fill_task(A, b"x", name="again")):
            made.add(task)
        return made.build()

    graph = built(b"x")
    assert graph.same == [0, 1, 0]
    assert same_graph(graph, built(b"x"))
    assert not same_graph(graph, built(b"y"))
    results = [replace(graph, nodes=(*graph.nodes, result_task(keys))) for keys in ([0], [0], [2])]
    assert same_graph(results[0], results[1])
    assert not same_graph(results[0], results[2])
    other = renamed(graph, {0: 2, 2: 0})
    assert [(n.reads, n.writes, n.overwrites) for n in other.nodes] == [
        ((), (2,), (2,)),
        ((2,), (0,), (0,)),
        ((), (2,), (2,)),
    ]
    assert [a.key for a in other.nodes[1].args] == [0, 2]
    verify(other)
