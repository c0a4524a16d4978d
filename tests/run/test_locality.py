"""The order of ranges where memory is limited: every step once, after what it needs, and with less to move."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from between_runs import small_windows
from hypothesis import given, settings
from hypothesis import strategies as st
from test_divided_chaos import NBYTES, graphs, plans
from test_state import Unit, machines
from test_windows_chaos import back_and_forth, with_room

from manycl.errors import RunError
from manycl.graph.graph import Graph
from manycl.machine import HOST, Device, Machine
from manycl.plan.problem import Problem
from manycl.plan.splitting import Splits
from manycl.run.coherence import Directory
from manycl.run.foresee import foresee
from manycl.run.locality import _Run
from manycl.run.lower import lower
from manycl.run.windows import limited

patched = small_windows({"windows.WORTH": 4})


@settings(max_examples=80)
@given(st.data(), graphs(), machines())
def test_every_step_comes_once_after_what_it_needs(data: Any, graph: Graph, where: Machine) -> None:
    where = with_room(where, data.draw(st.integers(NBYTES // 2, 3 * NBYTES)))
    plan = data.draw(plans(graph, where))
    problem = Problem(graph, where, Unit(), tuple(2 for _ in where.devices))
    try:
        lowered = lower(problem, plan, Directory(), limited(problem, plan))
    except RunError:
        return
    assert lowered.plan is not None
    order = [a.node for a in lowered.plan.assignments]
    assert sorted(order) == list(range(len(lowered.graph)))
    place = {node: i for i, node in enumerate(order)}
    for node, before in enumerate(lowered.graph.predecessors):
        assert all(place[p] < place[node] for p in before)


def test_sweeps_of_a_stencil_share_what_is_brought() -> None:
    """Eight sweeps on four times the memory: in program order all data cross the link in every one of them."""
    graph, plan = back_and_forth("map", 8)
    where = with_room(Machine((Device("d", "gpu", memory=1),)), 2 * NBYTES // 4)
    problem = Problem(graph, where, Unit(), (1,))
    directory = Directory()
    for key in graph.buffers:
        directory.define(key, HOST)
    lowered = lower(problem, plan, directory, limited(problem, plan))
    assert lowered.room is not None
    assert lowered.plan is not None
    (spill,) = lowered.room.spills
    assert spill.needed == 2 * NBYTES
    in_order = replace(lowered.plan, assignments=tuple(sorted(lowered.plan.assignments, key=lambda a: a.node)))
    first_to_last = _Run(lowered.graph, in_order, lowered.room)
    for step in in_order.assignments:
        first_to_last.done[step.node] = 1
        first_to_last._perform(0, step.node)
    state = first_to_last.devices[0]
    assert spill.up + spill.down < (state.up - state.first + state.down + first_to_last.left(state)) / 2
    assert spill.seconds > 0


def test_what_spilling_takes_is_foreseen() -> None:
    """On the simulated machine: the engine's own commands, with the limit and without."""
    graph, plan = back_and_forth("stencil", 4)
    valid = {key: frozenset({HOST}) for key in graph.buffers}
    traces = []
    for room in (NBYTES * 2, NBYTES // 2):
        where = with_room(Machine((Device("d", "gpu", memory=1),)), room)
        traces.append(foresee(Problem(graph, where, Unit(), (1,), valid, splits=Splits(graph), spills=True), plan))
    whole, ranges = traces
    assert sum(1 for _ in whole.transfers()) == 2
    assert sum(t.nbytes for t in ranges.transfers()) > sum(t.nbytes for t in whole.transfers())
    assert sum(1 for _ in ranges.kernels()) > 4 * 4
    assert ranges.makespan > whole.makespan
    assert ranges.details["memory"][0]["limit"] == NBYTES // 2
