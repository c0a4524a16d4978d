"""Graphs on other buffers: only those that keep the graph's dependences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Graph, HostTask
from manycl.graph.rename import renamed

SIZES = [4, 4, 4, 8]
some = st.frozensets(st.integers(0, len(SIZES) - 1), max_size=3).map(tuple)
nodes = st.lists(st.tuples(some, some), max_size=4)


def built(touched: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> Graph:
    builder = GraphBuilder()
    for nbytes in SIZES:
        builder.buffer(nbytes)
    for reads, writes in touched:
        builder.add(HostTask("h", print, (), reads, writes))
    return builder.build()


numbers = st.integers(0, 4)
exchanges = st.lists(numbers, unique=True).flatmap(
    lambda chosen: st.permutations(chosen).map(lambda places: dict(zip(chosen, places, strict=True)))
)


@given(nodes, exchanges | st.dictionaries(numbers, numbers))
def test_buffers_of_a_graph_change_places(
    touched: list[tuple[tuple[int, ...], tuple[int, ...]]], keys: dict[int, int]
) -> None:
    graph = built(touched)
    exchanged = {*keys} == {*keys.values()} and max(keys, default=0) < len(SIZES)
    if not exchanged or any(SIZES[a] != SIZES[b] for a, b in keys.items()):
        with pytest.raises(ValueError, match="exchanged"):
            renamed(graph, keys)
        return
    found = renamed(graph, keys)
    assert found.predecessors == graph.predecessors
    on = [tuple(tuple(keys.get(k, k) for k in given) for given in pair) for pair in touched]
    assert [(n.reads, n.writes) for n in found.nodes] == on
