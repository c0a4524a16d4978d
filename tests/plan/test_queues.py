"""PySchedCL's definitions 1-5 and ``setup_cq`` on the paper's own example (Figures 6 and 9), and on random
components."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import graphs, launch

from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Graph, HostTask
from manycl.plan.search.queues import (
    QueueCommand,
    QueuePosition,
    end,
    front,
    inner,
    inter_edges,
    intra_edges,
    isolated_reads,
    setup_cq,
)

# Figure 6: outside kernels make the paper's b0 (-> b2) and b1 (-> b3); T = {k0 .. k4}; outside kernels take
# b13 and b14
P0, P1, K0, K1, K2, K3, K4, S0, S1 = range(9)
T = (K0, K1, K2, K3, K4)


@pytest.fixture
def figure() -> tuple[Graph, dict[str, int]]:
    builder = GraphBuilder()
    b = {name: builder.buffer(4, name) for name in ("b0", "b1", "b4", "b5", "b8", "b9", "b10", "b13", "b14")}
    for name, reads, writes in [
        ("p0", (), ("b0",)), ("p1", (), ("b1",)),
        ("k0", ("b0", "b1"), ("b4",)),
        ("k1", ("b5", "b4"), ("b9",)), ("k2", ("b4", "b8"), ("b10",)),
        ("k3", ("b9",), ("b13",)), ("k4", ("b10",), ("b14",)),
        ("s0", ("b13",), ()), ("s1", ("b14",), ()),
    ]:  # fmt: skip
        builder.add(launch(name, tuple(b[r] for r in reads), tuple(b[w] for w in writes)))
    return builder.build(), b


def test_definitions_1_to_3_on_figure_6(figure: tuple[Graph, dict[str, int]]) -> None:
    graph, _ = figure
    assert front(graph, T) == (K0,)
    assert end(graph, T) == (K3, K4)
    assert inner(graph, T) == (K1, K2)


def test_edges_and_copies_on_figure_6(figure: tuple[Graph, dict[str, int]]) -> None:
    graph, _ = figure
    assert [(e.before, e.after) for e in intra_edges(graph, T)] == [(K0, K1), (K0, K2), (K1, K3), (K2, K4)]
    assert [(e.before, e.after) for e in inter_edges(graph, T)] == [(P0, K0), (P1, K0), (K3, S0), (K4, S1)]
    assert isolated_reads(graph, T) == ()


def test_setup_cq_builds_figure_9(figure: tuple[Graph, dict[str, int]]) -> None:
    graph, b = figure
    found = setup_cq(graph, T, 3)
    assert found.order == ((K0, 0), (K1, 1), (K2, 2), (K3, 0), (K4, 1))

    def write(k: int, name: str) -> QueueCommand:
        return QueueCommand("write", k, b[name])

    def run(k: int) -> QueueCommand:
        return QueueCommand("ndrange", k)

    assert found.queues == (
        (write(K0, "b0"), write(K0, "b1"), run(K0), run(K3), QueueCommand("read", K3, b["b13"])),
        (write(K1, "b5"), run(K1), run(K4), QueueCommand("read", K4, b["b14"])),
        (write(K2, "b8"), run(K2)),
    )
    # <e1, e2>, <e1, e3>, <e2, e4>, <e3, e5> of the paper
    assert set(found.constraints) == {
        (QueuePosition(0, 2), QueuePosition(1, 1)),
        (QueuePosition(0, 2), QueuePosition(2, 1)),
        (QueuePosition(1, 1), QueuePosition(0, 3)),
        (QueuePosition(2, 1), QueuePosition(1, 2)),
    }


def test_one_queue_needs_no_constraints(figure: tuple[Graph, dict[str, int]]) -> None:
    graph, _ = figure
    found = setup_cq(graph, T, 1, first_queue=5)
    assert found.constraints == ()
    assert {queue for _, queue in found.order} == {5}


def test_a_shared_input_is_written_once_and_waited_for() -> None:
    builder = GraphBuilder()
    x, y, z = builder.buffer(4), builder.buffer(4), builder.buffer(4)
    builder.add(launch("a", (x,), (y,)))
    builder.add(launch("b", (x,), (z,)))
    found = setup_cq(builder.build(), (0, 1), 2)
    assert [c for q in found.queues for c in q if c.kind == "write"] == [QueueCommand("write", 0, x)]
    assert found.constraints == ((QueuePosition(0, 0), QueuePosition(1, 0)),)


def test_a_result_needed_inside_and_outside_is_read() -> None:
    builder = GraphBuilder()
    x, y, z = builder.buffer(4), builder.buffer(4), builder.buffer(4)
    builder.add(launch("a", (), (x,)))
    builder.add(launch("inside", (x,), (y,)))
    builder.add(launch("outside", (x,), (z,)))
    commands = setup_cq(builder.build(), (0, 1), 1).queues[0]
    assert commands.index(QueueCommand("read", 0, x)) > commands.index(QueueCommand("ndrange", 0))


@settings(max_examples=150, deadline=None)
@given(graphs(), st.integers(1, 4), st.data())
def test_setup_cq_on_random_components(graph: Graph, r: int, data: Any) -> None:
    members = data.draw(st.sets(st.integers(0, len(graph) - 1), min_size=1).map(sorted))
    found = setup_cq(graph, members, r, first_queue=2)
    assert sorted(n for n, _ in found.order) == members
    position = {n: i for i, (n, _) in enumerate(found.order)}
    assert all(position[p] < position[n] for n in members for p in graph.predecessors[n] if p in position)
    kernels = [q for n, q in found.order if not isinstance(graph.nodes[n], HostTask)]
    assert kernels == [2 + i % r for i in range(len(kernels))]
    runs = [c.node for q in found.queues for c in q if c.kind == "ndrange"]
    assert sorted(runs) == [n for n in members if not isinstance(graph.nodes[n], HostTask)]
    # the in-order queues and E_Q together keep every dependence inside the component
    place = {c: QueuePosition(2 + i, j) for i, q in enumerate(found.queues) for j, c in enumerate(q)}
    for n in runs:
        for p in graph.predecessors[n]:
            if p in runs:
                a, b = place[QueueCommand("ndrange", p)], place[QueueCommand("ndrange", n)]
                assert (a.position < b.position) if a.queue == b.queue else (a, b) in found.constraints


def test_no_queue_is_refused() -> None:
    builder = GraphBuilder()
    builder.add(launch("a", (), (builder.buffer(4),)))
    with pytest.raises(PolicyError, match="at least one queue"):
        setup_cq(builder.build(), (0,), 0)
