"""Contents that nobody needs: if they were anything else, everything else would be the same."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Graph, HostTask
from manycl.machine import HOST, Device, Machine
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.data.coherence import Directory
from manycl.run.data.lifetimes import Lifetimes
from manycl.run.lowering.lower import lower
from tests.run.chaos.chaos_values import left_by, seen_by
from tests.run.chaos.test_divided_chaos import NBYTES, graphs, launch, plans
from tests.run.chaos.test_state import Unit, machines


def any_order(graph: Graph, seed: int) -> list[int]:
    """The steps in an order in which each comes after what it depends on."""
    chance = random.Random(seed)
    missing = [len(p) for p in graph.predecessors]
    ready = [n for n, m in enumerate(missing) if not m]
    order = []
    while ready:
        order.append(ready.pop(chance.randrange(len(ready))))
        for s in graph.successors[order[-1]]:
            missing[s] -= 1
            if not missing[s]:
                ready.append(s)
    return order


def run(graph: Graph, steps: Sequence[int], values: dict[int, Any]) -> None:
    """What steps leave, one after another."""
    for step in steps:
        inputs = seen_by(graph, step, values)
        for key in graph.nodes[step].writes:
            values[key] = left_by(graph, step, key, inputs, values.get(key))


@pytest.fixture(scope="module", autouse=True)
def small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("manycl.run.lowering.partition.PAGE", 4)
        yield


@settings(max_examples=75)
@given(st.data(), graphs(), machines(), st.integers(0, 2**32))
def test_what_nobody_needs_may_be_anything(data: Any, graph: Graph, where: Machine, seed: int) -> None:
    directory = Directory()
    for key in graph.buffers:
        directory.define(key, HOST)
    plan = data.draw(plans(graph, where))
    lowered = lower(Problem(graph, where, Unit(), tuple(2 for _ in where.devices)), plan, directory)
    order = any_order(lowered.graph, seed)
    now = data.draw(st.integers(0, len(order)))
    issued = set(order[:now])
    lifetimes = Lifetimes(lowered.graph, issued.__contains__, lowered.own)
    values: dict[int, Any] = {key: f"initial {key}" for key in lowered.graph.buffers}
    run(lowered.graph, order[:now], values)
    spoiled = {k: v if lifetimes.lives(k) else f"spoiled {k}" for k, v in values.items()}
    event(f"{'some' if spoiled != values else 'no'} contents are nobody's")
    run(lowered.graph, order[now:], values)
    run(lowered.graph, order[now:], spoiled)
    own = frozenset(lowered.own)
    for key in lowered.graph.buffers:
        assert key in own or values[key] == spoiled[key], key


def pingpong(last: int | None = None) -> tuple[Graph, Problem, Plan]:
    """Copies from a to b and back in halves, and in the end a host function that reads buffer ``last``."""
    builder = GraphBuilder()
    buffers = [builder.buffer(NBYTES, "a"), builder.buffer(NBYTES, "b")]
    for turn in range(4):
        builder.add(launch("map", [buffers[turn % 2], buffers[1 - turn % 2]]))
    out = [Assignment(n, 0, 0, 0.0, 0.0, 0, half, 4) for n in range(4) for half in (0, 4)]
    if last is not None:
        builder.add(HostTask("look", print, (), (buffers[last],), ()))
        out.append(Assignment(4, ON_HOST, 0, 0.0, 0.0))
    graph = builder.build()
    where = Machine((Device("d", "gpu", memory=1),))
    return graph, Problem(graph, where, Unit(), (1,)), Plan(tuple(out), "halves", ("d",), 0.0)


def living(last: int | None = None) -> list[set[str]]:
    """The buffers with a piece whose contents somebody needs, after each step in program order."""
    graph, problem, plan = pingpong(last)
    directory = Directory()
    for key in graph.buffers:
        directory.define(key, HOST)
    lowered = lower(problem, plan, directory)
    issued: set[int] = set()
    lifetimes = Lifetimes(lowered.graph, issued.__contains__, lowered.own)
    found = []
    for step in range(8):
        issued.add(step)
        found.append({b.name for k, b in lowered.graph.buffers.items() if lifetimes.lives(k)})
    return found


def test_contents_die_when_all_have_read_them_that_come_before_they_are_overwritten() -> None:
    both = {"a", "b"}
    # after one half each is needed in one half; after both the source is of no use
    assert living() == [both, {"b"}, both, {"a"}, both, {"b"}, both, both]


def test_a_host_function_reads() -> None:
    assert living(last=0)[5] == {"b"}
    assert living(last=1)[5] == {"b"}
    assert living(last=1)[7] == {"a", "b"}


@given(st.integers(0, 3), st.integers(0, 3))
def test_who_runs_beside_what_overwrites_still_reads_what_was_there(beside: int, behind: int) -> None:
    builder = GraphBuilder()
    a, b = builder.buffer(NBYTES), builder.buffer(NBYTES)
    builder.add(replace(launch("map", [b, a]), overwrites=(a,)))
    for _ in range(beside + behind):
        builder.add(launch("map", [a, b]))
    graph = replace(builder.build(), predecessors=((), *[()] * beside, *[(0,)] * behind))
    assert Lifetimes(graph, lambda step: False, {a, b}).lives(a) == (beside > 0)
