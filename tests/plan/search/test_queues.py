"""PySchedCL's ``setup_cq`` on the paper's own example (Figures 6 and 9), and on random components."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Graph, HostTask
from manycl.plan.search.queues import setup_cq
from tests.plan.plan_cases import graphs, launch

# Figure 6: outside kernels make the paper's b0 (-> b2) and b1 (-> b3); T = {k0 .. k4}; outside kernels take
# b13 and b14
P0, P1, K0, K1, K2, K3, K4, S0, S1 = range(9)
T = (K0, K1, K2, K3, K4)


def test_setup_cq_builds_figure_9() -> None:
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
    graph = builder.build()
    assert setup_cq(graph, T, 3) == ((K0, 0), (K1, 1), (K2, 2), (K3, 0), (K4, 1))
    assert {queue for _, queue in setup_cq(graph, T, 1, first_queue=5)} == {5}


@settings(max_examples=150, deadline=None)
@given(graphs(), st.integers(1, 4), st.data())
def test_setup_cq_on_random_components(graph: Graph, r: int, data: Any) -> None:
    members = data.draw(st.sets(st.integers(0, len(graph) - 1), min_size=1).map(sorted))
    found = setup_cq(graph, members, r, first_queue=2)
    assert sorted(n for n, _ in found) == members
    position = {n: i for i, (n, _) in enumerate(found)}
    assert all(position[p] < position[n] for n in members for p in graph.predecessors[n] if p in position)
    kernels = [q for n, q in found if not isinstance(graph.nodes[n], HostTask)]
    assert kernels == [2 + i % r for i in range(len(kernels))]


def test_no_queue_is_refused() -> None:
    builder = GraphBuilder()
    builder.add(launch("a", (), (builder.buffer(4),)))
    with pytest.raises(PolicyError, match="at least one queue"):
        setup_cq(builder.build(), (0,), 0)
