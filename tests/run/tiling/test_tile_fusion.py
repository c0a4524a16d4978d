"""Which launches make a chain, and in how many tiles it runs: against all paths, and against all numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.graph.dependences import GraphBuilder
from manycl.graph.division import divide
from manycl.graph.graph import Graph, HostTask, Launch
from manycl.machine import HOST, Device, Link, Machine
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.splitting import Splits
from manycl.run.simulation.foresee import foresee
from manycl.run.tiling import tile_fusion
from manycl.run.tiling.time_skewing import Outline, TileMember, movable, needed, shape_of, tiles_of
from manycl.trace import Trace
from tests.run.chaos.test_state import launch as by_hand
from tests.run.tiling import test_windows
from tests.run.tiling.test_time_skewing import COUNT, Link16, apply, everything, sweeps

queue = test_windows.queue

# what is between launches


@st.composite
def graphs(draw: Any) -> Graph:
    """Launches and host functions on a few buffers, with some edges that no buffer implies."""
    builder = GraphBuilder()
    keys = [builder.buffer(4) for _ in range(4)]
    some = st.lists(st.sampled_from(keys), max_size=1)
    for i in range(draw(st.integers(2, 8))):
        reads, writes = tuple(draw(some)), tuple(draw(some))
        task = (
            HostTask(f"h{i}", print, (), reads, writes)
            if draw(st.integers(0, 3)) == 0
            else by_hand(f"k{i}", reads, writes)
        )
        builder.add(task, sorted(draw(st.sets(st.integers(0, i - 1), max_size=2))) if i else ())
    return builder.build()


@settings(max_examples=200)
@given(graphs(), st.data())
def test_nothing_runs_between_the_launches_of_a_chain(graph: Graph, data: Any) -> None:
    launches = [n for n, task in enumerate(graph.nodes) if not isinstance(task, HostTask)]
    assume(len(launches) > 1)
    may = set(data.draw(st.lists(st.sampled_from(launches), unique=True)))
    links, members = tile_fusion._Links(graph, may), []
    for node in sorted(data.draw(st.lists(st.sampled_from(sorted(may)), unique=True))) if may else ():
        # every path from a member to the launch: over nothing that can be no part of it
        ways = [[m, s] for m in members for s in graph.successors[m]]
        between, direct = False, set()
        while ways:
            way = ways.pop()
            if way[-1] == node:
                direct |= {way[0]} if len(way) == 2 else set()
                between |= way[1] not in may and len(way) > 2
            else:
                ways += [[*way, s] for s in graph.successors[way[-1]]]
        mine = {*graph.nodes[node].reads, *graph.nodes[node].writes}
        unlike = any(mine.isdisjoint({*graph.nodes[m].reads, *graph.nodes[m].writes}) for m in direct)
        assert links.admits(node) == (not between and not unlike)
        links.add(node)
        members.append(node)


def test_a_chain_ends_where_something_else_runs_between(monkeypatch: pytest.MonkeyPatch) -> None:
    class Members:
        def __init__(self, sizes: dict[int, int]) -> None:
            self.members: list[int] = []

        def add(self, node: int) -> bool:
            self.members.append(node)
            return True

    monkeypatch.setattr(tile_fusion, "_Chain", Members)
    monkeypatch.setattr(tile_fusion, "_member", lambda problem, a, dimension, sizes: (a.node,))
    for between in (True, False):
        builder = GraphBuilder()
        first, second = builder.buffer(4), builder.buffer(4)
        builder.add(by_hand("k0", (), (first,)))
        builder.add(HostTask("h", print, (), (first,) if between else (), (second,)))
        builder.add(by_hand("k1", (first, second) if between else (first,), ()))
        plan = Plan(tuple(Assignment(node, 0, 0, 0.0, 0.0) for node in (0, 2)), "test", ("d",), 0.0)
        problem: Any = SimpleNamespace(graph=builder.build())
        found: Any = tile_fusion._chains(problem, plan, 0, {0: 0, 1: 0})
        assert [c.members for c in found] == ([[0], [2]] if between else [[0, 2]])


# how many


def chooser(
    graph: Graph, limit: int, dimension: int, seconds: float = 1e-6, costs: Sequence[float] = (0.0, 0.0)
) -> tile_fusion._Chooser | None:
    """None where the launches are no chain."""
    sizes = {key: b.nbytes for key, b in graph.buffers.items()}
    chain = tile_fusion._Chain(sizes)
    for node, task in enumerate(graph.nodes):
        assert isinstance(task, Launch)
        division = divide(task, dimension, sizes)
        shape = shape_of(division)
        assert shape is not None
        if not chain.add(TileMember(node, division, seconds), shape):
            return None
    return tile_fusion._Chooser(problem_of(graph, limit, seconds, costs), 0, limit, chain)


class Times(Link16):
    """Every launch takes so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def launch(self, node: int, device: int) -> float:
        return self._seconds


def problem_of(graph: Graph, limit: int, seconds: float, costs: Sequence[float] = (0.0, 0.0)) -> Problem:
    """``costs``: of enqueueing a kernel, and a transfer."""
    kernel, copy = costs
    device = Device(
        "d", "gpu", memory=1, global_memory=limit, max_allocation=limit, enqueuing=kernel, enqueuing_copy=copy
    )
    where = Machine((device,), (Link(HOST, 1, 16e9, 1e-6), Link(1, HOST, 16e9, 1e-6)))
    valid = {key: frozenset({HOST}) for key in graph.buffers}
    return Problem(graph, where, Times(seconds), (1,), valid, splits=Splits(graph), spills=True)


@settings(max_examples=25)
@given(data=st.data(), share=st.floats(0.1, 1.2), at_once=st.sampled_from([2, 3]))
def test_about_as_many_tiles_as_have_room(queue: mc.Queue, data: Any, share: float, at_once: int) -> None:
    """Against cutting launches into every number of tiles, and what these need."""
    names = data.draw(st.sampled_from([("around", "ahead", "behind", "both", "maybe"), ("plane", "tile", "both")]))
    count = data.draw(st.integers(2, 3))
    step = st.tuples(st.sampled_from(names), st.permutations(range(count)), st.integers(1, 2))
    arrays = [queue.array(np.zeros(COUNT, np.int32)) for _ in range(count)]
    with queue.prepare() as prepared:
        for name, order, halo in data.draw(st.lists(step, min_size=2, max_size=4)):
            apply(queue, name, [arrays[i] for i in order], halo)
    graph = prepared.graph
    dimensions = {len(t.global_size) for t in graph.nodes if isinstance(t, Launch)}
    assume(len(dimensions) == 1)
    total = sum(b.nbytes for b in graph.buffers.values())
    found = chooser(graph, int(share * total), dimensions.pop() - 1)
    assume(found is not None)
    assert found is not None
    sizes = {key: b.nbytes for key, b in graph.buffers.items()}
    fixed = data.draw(st.none() | st.sampled_from(sorted(sizes)), "kept whole")
    with pytest.MonkeyPatch.context() as patch:
        for m in found._members:
            patch.setitem(m.division.__dict__, "movable", m.division.movable - {fixed})
        judge(found, sizes, at_once)


def judge(found: tile_fusion._Chooser, sizes: dict[int, int], at_once: int) -> None:
    fitting = 0
    for number in range(2, min(found._shapes[0].groups, 40) + 1):
        made = tiles_of(found._members, found._shapes, number)
        assume(made is not None)
        assert made is not None
        whole, windows, _ = needed(made, sizes)
        if all(c.windows.keys() == movable(found._members) & c.access.keys() for c in made):
            assert found._needed(0, len(found._members))[0] == whole
        if whole + at_once * windows <= found._limit:
            fitting = number
            break
    number = found._tiles(0, len(found._members), at_once)
    if number and fitting:
        assert 0.6 * fitting - 1 <= number <= 1.6 * fitting + 2
    elif fitting:  # not worth it: little of a tile would be its own
        assert fitting > 2 or found._limit >= sum(sizes.values())  # where all fits, nobody asks
    for way in found.time_tiles():
        whole, windows, largest = needed(way.tiles, sizes)
        assert whole + 2 * windows <= found._limit
        assert largest <= found._limit


def simulated(graph: Graph, limit: int, launches: int, at_once: int, seconds: float) -> Trace:
    """A run with time tiles of so many launches."""

    def predicted(self: object, n: int, k: int) -> tile_fusion._Choice:
        return tile_fusion._Choice(1.0 if (n, k) == (launches, at_once) else inf, n, k)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tile_fusion._Chooser, "_predicted", predicted)
        return foresee(problem_of(graph, limit, seconds), Plan(everything(graph), "one", ("d",), 0.0))


@pytest.mark.parametrize("seconds", [1e-6, 4e-4])
def test_what_is_predicted_is_about_what_a_simulated_run_takes(seconds: float) -> None:
    """Eight sweeps on a quarter of the memory, for every number of launches that a time tile may have: where the link
    takes longest, and where the kernels do."""
    graph = sweeps(8)
    limit = sum(b.nbytes for b in graph.buffers.values()) // 4
    found = chooser(graph, limit, 1, seconds)
    assert found is not None
    for launches in (2, 4, 8):
        for at_once in tile_fusion.AT_ONCE:
            predicted = found._predicted(launches, at_once)
            assert predicted[1:] == (launches, at_once)
            took = simulated(graph, limit, launches, at_once, seconds).makespan
            assert 0.65 < predicted.seconds / took < 1.0


@pytest.mark.parametrize("costs", [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0)])
def test_where_enqueueing_takes_longest_as_many_commands_are_predicted_as_there_are(costs: tuple[float, float]) -> None:
    graph = sweeps(8)
    limit = sum(b.nbytes for b in graph.buffers.values()) // 4
    found = chooser(graph, limit, 1, costs=costs)
    assert found is not None
    for launches in (2, 4, 8):
        for at_once in tile_fusion.AT_ONCE:
            trace = simulated(graph, limit, launches, at_once, 1e-6)
            kernels = sum(1 for of in (trace.kernels(), trace.copies()) for _ in of)
            given = costs[0] * kernels + costs[1] * sum(1 for _ in trace.transfers())
            assert 0.65 < found._predicted(launches, at_once).seconds / given < 1.4


def test_the_choice_that_is_predicted_to_be_done_soonest_is_made() -> None:
    """All launches are in some time tile, as many in each as was chosen."""
    graph = sweeps(8)
    found = chooser(graph, sum(b.nbytes for b in graph.buffers.values()) // 4, 1)
    assert found is not None
    for best in (2, 3, 4, 8):
        found._predicted = lambda n, k, best=best: tile_fusion._Choice(1.0 if (n, k) == (best, 2) else 2.0, n, k)  # type: ignore
        time_tiles = list(found.time_tiles())
        nodes = [list(p.nodes) for p in time_tiles]
        assert [n for of in nodes for n in of] == list(range(8))
        assert max(map(len, nodes)) == best
        assert all(len(a) >= len(b) - 1 for a, b in pairwise(nodes))
    found._predicted = lambda n, k: tile_fusion._Choice(inf, n, k)  # type: ignore[method-assign]
    assert not list(found.time_tiles())


@given(
    st.integers(2, 8), st.integers(0, 20), st.integers(-1, 6), st.integers(0, 12), st.integers(1, 60), st.integers(2, 3)
)
def test_the_fewest_tiles_of_which_so_many_have_room(
    groups: int, whole: int, each: int, band: int, limit: int, at_once: int
) -> None:
    """Of a launch of at least four groups, and where a tile can be half as large again as what it shares."""
    made = tile_fusion._Chooser.__new__(tile_fusion._Chooser)
    made._limit, made._known = limit, {(0, 2): (whole, float(each), float(band))}
    made._shapes = [Outline(groups, {}, {})]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tile_fusion, "STEPS", math.inf)  # sizes are not rounded
        found = made._tiles(0, 2, at_once)
    fitting = [n for n in range(2, 400) if whole + at_once * (band + Fraction(each * groups, n)) <= limit]
    certain = [n for n in range(2, 400) if whole + at_once * (band + Fraction(each * groups, n)) < limit]
    room = Fraction(limit - whole, at_once)
    if groups < 4 or each < 1 or band + each > room or Fraction(3, 2) * band > room:
        assert not found
    else:
        assert fitting[0] <= found <= certain[0]  # where it is just as large, by rounding either
