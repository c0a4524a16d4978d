"""Every built-in policy on a back end that does everything in the worst legal order: results stay right."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import HostTask, Launch
from manycl.machine import HOST
from manycl.plan.policy import find
from manycl.plan.problem import Problem
from manycl.run.data.coherence import Directory
from manycl.run.engine.engine import execute
from tests.plan.plan_cases import Table, launch, machine, problems
from tests.run.chaos.chaos import ChaosBackend
from tests.run.chaos.chaos_values import left_by, touched


def run(p: Problem, name: str, seed: int) -> None:
    directory = Directory()
    backend = ChaosBackend(p.machine, seed)
    expected: dict[int, Any] = {}
    for key in p.graph.buffers:
        directory.define(key)
        expected[key] = backend.values[HOST][key] = f"initial {key}"
    execute(p, find(name), backend, directory)
    for n, node in enumerate(p.graph.nodes):
        inputs = {k: expected.get(k) for k in touched(p.graph, n)}
        for key in node.writes:
            expected[key] = left_by(p.graph, n, key, inputs, None)
    assert sorted(n for n, _ in backend.record.ran) == list(range(len(p.graph)))
    for key, mask in directory.valid.items():
        for memory in range(p.machine.memories):
            if mask >> memory & 1:
                assert backend.values[memory][key] == expected[key]


@pytest.mark.parametrize("name", ["auto", "clustering", "eager", "fcfs", "heft", "in_order"])
@settings(max_examples=40, deadline=None)
@given(p=problems(), seed=st.integers(0, 2**32))
def test_results_are_right(name: str, p: Problem, seed: int) -> None:
    run(p, name, seed)


@settings(max_examples=40, deadline=None)
@given(p=problems(), seed=st.integers(0, 2**32), data=st.data())
def test_declared_components_on_several_queues(p: Problem, seed: int, data: Any) -> None:
    """Components are runs of neighbours in the graph's order, so none waits for itself."""
    for node in p.graph.nodes:
        if isinstance(node, Launch):
            node.device = ""
    count = len(p.graph)
    cuts = sorted({0, count, *data.draw(st.sets(st.integers(0, count)))})
    components = tuple(tuple(range(a, b)) for a, b in pairwise(cuts))
    resident = data.draw(st.sampled_from(["1", "2", "3"]))
    graph = replace(p.graph, components=components)
    run(replace(p, graph=graph, options={"resident": resident, "queues": "3"}), "clustering", seed)


def test_what_a_kernel_made_on_the_hosts_memory_need_not_be_reported_to_a_function() -> None:
    """It comes after another kernel, which does: the first is in a queue whose last kernel waits for the function."""
    builder = GraphBuilder()
    buffer = builder.buffer(1)
    builder.add(launch("makes", (), (buffer,)))
    builder.add(launch("reads", (buffer,), ()))
    builder.add(HostTask("writes", print, (), (), (buffer,)))
    builder.add(launch("reads it again", (buffer,), ()))
    builder.add(launch("alone", (), ()))
    graph = replace(builder.build(), components=((0, 1, 2, 3, 4),))
    for queues in "123":
        p = Problem(graph, machine([HOST]), Table([[1e-3]] * 5), (1,), options={"resident": "1", "queues": queues})
        run(p, "clustering", int(queues))
