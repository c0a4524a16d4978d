"""Repetitions on the simulated machine: what they take, what the policy is told, and where data are left."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import pytest

from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Graph
from manycl.machine import HOST, Device, Machine
from manycl.plan.plan import Plan
from manycl.plan.policies.adaptive import divided
from manycl.plan.problem import Problem
from manycl.plan.splitting import Splits
from manycl_bench.libsplit.repeat import Repetition, repetitions
from tests.run.chaos.test_divided_chaos import GROUP, ITEMS, NBYTES
from tests.run.chaos.test_divided_chaos import launch as kernel
from tests.run.chaos.test_state import Unit

GROUPS = ITEMS // GROUP


class Thirds:
    """The first third of a map on one device, the rest on the other; a change of the result on the first. It learns."""

    def __init__(self) -> None:
        self.seen: list[list[tuple[int, int, float]]] = []

    def plan(self, problem: Problem) -> Plan:
        cut = GROUPS // 3
        return divided(problem, {0: [(0, 0, cut), (1, cut, GROUPS - cut)], 1: [(0, 0, GROUPS)]}, "thirds")

    def observe(self, graph: Graph, measured: Iterable[Any], waits: Any = None) -> None:
        self.seen.append(sorted(measured))

    def settled(self, graph: Graph) -> bool:
        return False


def problem() -> Problem:
    builder = GraphBuilder()
    a, b = builder.buffer(NBYTES, "a"), builder.buffer(NBYTES, "b")
    builder.add(kernel("map", [a, b]))
    builder.add(kernel("change", [b]))
    graph = builder.build()
    where = Machine((Device("a", "gpu", memory=1), Device("b", "gpu", memory=2)))
    valid = {key: frozenset({HOST}) for key in (a, b)}
    return Problem(graph, where, Unit(), (1, 1), valid, splits=Splits(graph))


def truth(turn: int, node: int, device: int, first: int, count: int) -> float:
    return 100.0 * (turn + 1) + 10.0 * node + 3.0 * device + first + 0.25 * count


def taken(repetition: Repetition) -> list[tuple[int, int, float]]:
    devices = {name: i for i, name in enumerate(repetition.trace.devices)}
    return sorted((e.node, devices[e.device], e.end - e.start) for e in repetition.trace.kernels())


def test_ranges_take_what_is_true_and_the_policy_is_told_so() -> None:
    policy = Thirds()
    found = list(islice(repetitions(problem(), policy, truth), 4))
    cut = GROUPS // 3
    for turn, repetition in enumerate(found):
        expected = [
            (0, 0, truth(turn, 0, 0, 0, cut)),
            (0, 1, truth(turn, 0, 1, cut, GROUPS - cut)),
            (1, 0, truth(turn, 1, 0, 0, GROUPS)),
        ]
        assert taken(repetition) == [(n, d, pytest.approx(s)) for n, d, s in expected]
    assert policy.seen == [taken(r) for r in found[:3]], "of those that are over"


def test_data_stay_where_a_repetition_leaves_them() -> None:
    first, second, third = islice(repetitions(problem(), Thirds(), truth), 3)
    a, b = first.problem.graph.buffers
    assert first.problem.valid == {a: {HOST}, b: {HOST}}
    # the change of all of it leaves the result on the first device; each device has its part of the input, too
    for later in (second, third):
        assert later.problem.valid[b] == {1}
        assert {HOST} <= later.problem.valid[a]
        places = [(p.memories, p.low, p.high) for p in later.problem.valid_intervals[a]]
        assert places == [({HOST, 1}, 0, 4 * GROUP * (GROUPS // 3)), ({HOST, 2}, 4 * GROUP * (GROUPS // 3), NBYTES)]
    assert sum(t.nbytes for t in first.trace.transfers()) > sum(t.nbytes for t in third.trace.transfers())
