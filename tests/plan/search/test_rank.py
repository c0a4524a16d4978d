"""Bottom-level ranks against a brute-force longest path; the order they give."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import HostTask
from manycl.plan.problem import Problem
from manycl.plan.search.rank import bottom_levels, priority_order
from tests.plan.plan_cases import chains, launch, machine, problem, problems


def longest(p: Problem, node: int) -> float:
    """The longest of all ways from a node to the end, tried one by one."""
    devices = p.machine.devices
    task = p.graph.nodes[node]
    own = [p.estimates.launch(node, d) for d in p.allowed(node)]
    best = 0.0
    for after in range(len(p.graph)):
        if node not in p.graph.predecessors[after]:
            continue
        later = p.graph.nodes[after]
        needed = {*later.reads, *later.writes} - ({*getattr(later, "overwrites", ())} - {*later.reads})
        nbytes = sum(p.graph.buffers[k].nbytes for k in {*task.writes} & needed)
        pairs = [p.estimates.transfer(nbytes, a.memory, b.memory) if nbytes else 0.0 for a in devices for b in devices]
        best = max(best, sum(pairs) / len(pairs) + longest(p, after))
    return (sum(own) / len(own) if own else 0.0) + best


@settings(max_examples=150, deadline=None)
@given(problems())
def test_rank_is_the_longest_way_to_the_end(p: Problem) -> None:
    levels = bottom_levels(p)
    assert levels == pytest.approx([longest(p, n) for n in range(len(p.graph))])


def test_rank_of_a_chain_is_the_sum_of_what_follows() -> None:
    assert bottom_levels(problem(chains(1, 3), [[1.0, 3.0], [2.0, 2.0], [5.0, 7.0]])) == [10.0, 8.0, 6.0]


def test_rank_averages_over_the_devices_a_kernel_allows() -> None:
    builder = GraphBuilder()
    b = builder.buffer(4)
    builder.add(launch("a", (), (b,), device="gpu"))
    builder.add(HostTask("h", print, (), (b,), ()))
    p = problem(builder.build(), [1.0, 9.0], machine((0, 1)), latency=4.0)
    # 9 s on the GPU only; the edge costs 4 s for two of the four pairs of devices; the host task takes no
    # time
    assert bottom_levels(p) == [9.0 + 2.0, 0.0]


@settings(max_examples=150, deadline=None)
@given(problems())
def test_priority_order_is_topological_and_greedy(p: Problem) -> None:
    levels = bottom_levels(p)
    order = priority_order(p.graph, levels)
    nodes = p.graph.nodes

    def key(n: int) -> tuple[bool, float, int]:
        own = nodes[n].rank
        return (own is None, -(levels[n] if own is None else own), n)

    done: set[int] = set()
    for n in order:
        ready = [m for m in range(len(p.graph)) if m not in done and done.issuperset(p.graph.predecessors[m])]
        assert n == min(ready, key=key)
        done.add(n)
    assert len(order) == len(p.graph)


def test_a_users_rank_comes_before_every_computed_one() -> None:
    builder = GraphBuilder()
    for i, rank in enumerate([None, 1.0, 2.0, None]):
        builder.add(launch(f"n{i}", (), (builder.buffer(4),), rank=rank))
    p = problem(builder.build(), [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [100.0, 100.0]])
    assert priority_order(p.graph, bottom_levels(p)) == [2, 1, 3, 0]
