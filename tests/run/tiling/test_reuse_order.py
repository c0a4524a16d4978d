"""The order of ranges where memory is limited: every step once, after what it needs, and with less to move."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.errors import RunError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Graph
from manycl.machine import HOST, Device, Machine
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.splitting import Splits
from manycl.run.commands.backend import Run, TransferQueue
from manycl.run.commands.compiler import compiled
from manycl.run.commands.transfers import Subject
from manycl.run.data.coherence import Directory
from manycl.run.engine.playback import Playback
from manycl.run.lowering.lower import lower
from manycl.run.lowering.steps import Lowered
from manycl.run.simulation.foresee import foresee
from manycl.run.tiling.limits import limited
from manycl.run.tiling.replacement import TightEmitter
from manycl.run.tiling.reuse_order import _Run
from manycl.run.tiling.tiling import _at_once
from tests.run.between_runs import small_windows
from tests.run.chaos.chaos import ChaosBackend
from tests.run.chaos.chaos_parts import is_download
from tests.run.chaos.test_divided_chaos import NBYTES, graphs, launch, plans
from tests.run.chaos.test_state import Unit, machines
from tests.run.chaos.test_windows_chaos import back_and_forth, on_pairs, on_the_host, one_run, with_room

patched = small_windows({"tiling.tiling.LARGE": 4})


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
    up, down, first = predicted(lowered, in_order)
    assert spill.up + spill.down < (up - first + down) / 2
    assert spill.seconds > 0


def predicted(lowered: Lowered, plan: Plan) -> tuple[int, int, int]:
    """Bytes to the device and from it, and how many of the former go there for the first time."""
    assert lowered.room is not None
    run = _Run(lowered.graph, plan, lowered.room)
    for step in plan.assignments:
        run.done[step.node] = 1
        run._perform(0, step.node)
    state = run.devices[0]
    return state.up, state.down + run.left(state), state.first


@pytest.mark.parametrize("room", [64, 128, 192])
@pytest.mark.parametrize("kernel", ["stencil", "map"])
def test_about_as_much_moves_as_was_predicted(room: int, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes first: the engine knows when something has left, the prediction only the order of steps."""
    backends: list[ChaosBackend] = []
    begin = ChaosBackend.begin
    monkeypatch.setattr(ChaosBackend, "begin", lambda self, *given: backends.append(self) or begin(self, *given))
    graph, plan = back_and_forth(kernel, 8)
    where = with_room(Machine((Device("d", "gpu", memory=1),)), room)
    for seed in range(5):
        values, directory = on_the_host(graph, where)
        lowered = one_run(graph, where, plan, directory, values, seed)
        assert lowered.plan is not None
        assert lowered.room is not None
        up, down, first = predicted(lowered, lowered.plan)
        (spill,) = lowered.room.spills
        assert (spill.up, spill.down) == (up - first, down)
        moved = [0, 0]
        for key, source, _ in backends[-1].record.moved:
            moved[source != HOST] += lowered.graph.buffers[key].nbytes
        assert 0.7 * up <= moved[0] <= 1.1 * up
        assert 0.9 * down <= moved[1] <= 1.2 * down


@pytest.mark.parametrize(
    ("seconds", "number"),
    [
        (1e-12, 3),  # the link takes nothing: as few ranges as can be
        (1e-9, 10),  # it takes nearly all of the time: all sweeps together
        (3.4e-11, 6),
    ],
)
def test_a_memory_is_to_hold_so_many_ranges_that_engine_and_link_are_done_soonest(seconds: float, number: int) -> None:
    """Eight sweeps over half a gigabyte, of which a quarter fits."""

    class Link(Unit):
        def transfer(self, nbytes: int, source: int, target: int) -> float:
            return nbytes * seconds

    builder = GraphBuilder()
    a, b = builder.buffer(1 << 28, "a"), builder.buffer(1 << 28, "b")
    for turn in range(8):
        builder.add(launch("map", [a, b] if turn % 2 == 0 else [b, a]))
    plan = Plan(tuple(Assignment(n, 0, 0, 0.0, 0.0) for n in range(8)), "one", ("d",), 0.0)
    device = Device("d", "gpu", memory=1, enqueuing=17e-6, enqueuing_copy=17e-6)
    problem = Problem(builder.build(), Machine((device,)), Link(), (1,))
    assert _at_once(problem, plan, 0, 1 << 27) == number


@pytest.mark.parametrize("results", [False, True])
def test_what_leaves_for_the_next_steps_leaves_before_their_turn(
    results: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ranges have room; while they run, room is made for two more. Results leave in any case."""
    if not results:
        monkeypatch.setattr(TightEmitter, "_send_results", lambda *_: None)
    graph, plan = on_pairs("map", [(0, 1)])
    where = with_room(Machine((Device("d", "gpu", memory=1),)), 2 * NBYTES // 4)
    directory = Directory()
    for key in graph.buffers:
        directory.define(key, HOST)
    problem = Problem(graph, where, Unit(), (1,))
    lowered = lower(problem, plan, directory, limited(problem, plan))
    assert lowered.plan is not None
    assert lowered.room is not None
    directory.open(lowered.cut, lowered.lies)
    state = Playback(compiled(Subject(problem, lowered, directory.valid), plan), directory)
    commands = state.start(0.0) + state.handle()
    ran = {lowered.room.using[c.token][1] for c in commands if isinstance(c, Run)}
    leaving = {c.source_store: c for c in commands if is_download(c)}
    # one for the third range, and one for the fourth
    assert len(ran) >= 2
    assert len(leaving) == 2
    assert leaving.keys() <= ran
    assert all(c.queue == (TransferQueue.EARLY if results else TransferQueue.DOWNLOAD) for c in leaving.values())


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
