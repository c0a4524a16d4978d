"""What runs keep in case a device is lost: how much of it, and that command graphs with it are right."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from manycl.graph.copies import fill_task
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Buffer, Graph
from manycl.machine import HOST, Device, DeviceIndex, Link, Machine
from manycl.model.estimates import Estimates
from manycl.model.transfer import COPYING
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import ENQUEUING, Problem
from manycl.run.commands.backend import ASIDE, Copy, Run
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.commands.compiler import compiled
from manycl.run.commands.transfers import Subject
from manycl.run.lowering.steps import Lowered
from manycl.run.recovery.checkpoints import KEEPING, Checkpoints, keeping
from tests.run.chaos.chaos_parts import is_download, is_upload
from tests.run.chaos.test_divided_chaos import launch
from tests.run.commands.verify_commands import verify_commands

BANDWIDTH = 1e9
NBYTES = 1 << 20
MOVING = 1e-3
FIRST = DeviceIndex(0)


class MovingPlayer(Estimates):
    def launch(self, node: int, device: int) -> float:
        return 0.0

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return MOVING if source != target else 0.0


def graph_of(names: list[str]) -> Graph:
    """Kernels on two buffers: ``change`` on one of them in place, ``map`` from one to the other; ``fill`` of one."""
    builder = GraphBuilder()
    keys = [builder.buffer(NBYTES, name) for name in "ab"]
    fill = fill_task(Buffer(keys[0], NBYTES), b"x", NBYTES, target_offset=0)
    for name in names:
        builder.add(fill if name == "fill" else launch(name, keys))
    return builder.build()


def command_graph_of(
    names: list[str], seconds: list[float], memory: int, others: int = 0, found: int = 0
) -> tuple[CommandGraph, Lowered]:
    """All of it on the first of two devices, which may be lost; but ``others`` of its launches on the second.
    ``found``: a mask of memories that have all contents when it begins (0: the first device's has)."""
    links = tuple(Link(a, b, BANDWIDTH, 0.0) for a, b in ((0, 1), (1, 0))) if memory else ()
    where = Machine((Device("d0", "cpu", memory=memory, bandwidth=BANDWIDTH), Device("d1", "cpu", memory=0)), links)
    graph = graph_of(names)
    where_to = [DeviceIndex(int(n % 3 == 2 and n // 3 < others)) for n in range(len(names))]
    steps = tuple(Assignment(n, d, 0, 0.0, s) for n, (s, d) in enumerate(zip(seconds, where_to, strict=True)))
    plan = Plan(steps, "", ("d0", "d1"), 0.0)
    problem = Problem(graph, where, MovingPlayer(), (1, 1))
    lowered = Lowered(graph, plan)
    kept = keeping(problem, lowered, plan, {FIRST})
    valid = dict.fromkeys(graph.buffers, found or 1 << memory)
    return compiled(Subject(problem, lowered, valid, keeping=kept), plan), lowered


def undone(command_graph: CommandGraph) -> list[int]:
    return [c.token for c in command_graph.commands if isinstance(c, Run) and c.undo]


def test_steps_that_change_in_place_are_undone_where_that_costs_little() -> None:
    copying = ENQUEUING + 2 * NBYTES / BANDWIDTH
    names = ["change", "map", "change", "change"]
    long, short = 1.1 * copying / KEEPING, copying
    command_graph, _ = command_graph_of(names, [short, short, long, long], memory=0)
    verify_commands(command_graph)
    assert undone(command_graph) == [2, 3], "map changes nothing in place, and two copies are all that is paid for"
    assert not undone(command_graph_of(names, [short] * 4, memory=0)[0])


@given(st.lists(st.tuples(st.sampled_from(["change", "map"]), st.floats(0.0, 1.0)), min_size=1, max_size=12))
def test_undo_copies_take_their_part_of_the_work_at_most(of: Any) -> None:
    names, seconds = [n for n, _ in of], [s for _, s in of]
    command_graph, _ = command_graph_of(names, seconds, memory=0)
    found = undone(command_graph)
    copying = ENQUEUING + 2 * NBYTES / BANDWIDTH
    assert len(found) * copying <= KEEPING * sum(seconds) * (1 + 1e-9)
    left = [s for n, s in enumerate(seconds) if names[n] == "change" and n not in found]
    assert all(seconds[n] >= max(left, default=0.0) for n in found), "what takes longest is undone first"
    fits = (len(found) + 1) * copying <= KEEPING * sum(seconds) * (1 - 1e-9)
    assert not (fits and any(left)), "there was room for more"


@given(
    st.lists(st.tuples(st.sampled_from(["change", "map"]), st.floats(0.0, 1.0)), min_size=1, max_size=12),
    st.integers(0, 4),
)
def test_command_graphs_with_checkpoints_are_right(of: Any, others: int) -> None:
    command_graph, _ = command_graph_of([n for n, _ in of], [s for _, s in of], memory=1, others=others)
    verify_commands(command_graph)
    if not others:
        copies = [c for c in command_graph.commands if is_download(c)]
        assert len(copies) * (MOVING + ENQUEUING) <= 2 * KEEPING * sum(s for _, s in of) * (1 + 1e-9)


def test_what_a_device_alone_has_is_on_the_host_when_a_long_run_ends() -> None:
    command_graph, lowered = command_graph_of(["change"] * 4, [1.0] * 4, memory=1, found=0b11)
    assert [c.target for c in command_graph.commands if is_download(c)] == [*ASIDE, *ASIDE, HOST]
    assert all(command_graph.leaves[key] == 0b11 for key in lowered.graph.nodes[0].writes)
    short, _ = command_graph_of(["change"] * 4, [1e-4] * 4, memory=1)
    assert not [c for c in short.commands if is_download(c)]


def test_a_device_with_little_to_do_keeps_what_the_time_of_the_others_pays_for() -> None:
    short, long = 1e-6, 4 * (ENQUEUING + MOVING + 2 * NBYTES / BANDWIDTH) / KEEPING
    names = ["change"] * 4  # the third of them on the other device
    for seconds, kept in (([short] * 4, False), ([short, short, long, short], True)):
        command_graph, _ = command_graph_of(names, seconds, memory=0, others=1)
        assert undone(command_graph) == ([0, 1, 3] if kept else [])
        command_graph, _ = command_graph_of(names, seconds, memory=1, others=1, found=0b11)
        verify_commands(command_graph)
        moved = [type(c).__name__ for c in command_graph.commands if isinstance(c, (Copy, Run)) and not is_upload(c)]
        needed = ["Run", "Run", "Copy", "Run", "Run"]
        assert moved == needed + ["Copy"] * 2 * kept, "a checkpoint, and what the host gets"


def test_what_a_device_alone_has_when_a_run_begins_is_copied_before_it_is_changed() -> None:
    """Where the whole run pays for that, and not where the host has it already."""
    cost = ENQUEUING + MOVING
    for part, found, kept in ((1.1, 0, True), (0.9, 0, False), (1.1, 0b11, False)):
        command_graph, _ = command_graph_of(["change"] * 2, [part * cost / KEEPING / 2] * 2, memory=1, found=found)
        verify_commands(command_graph)
        copies = [c for c in command_graph.commands if is_download(c) and not c.after]
        assert [c.buffer for c in copies] == [0] * kept
        first, second = (c for c in command_graph.commands if isinstance(c, Run))
        assert first.after == tuple(c.token for c in copies), "it changes what is copied"
        assert not second.after


def test_what_is_overwritten_before_it_is_read_is_not_copied() -> None:
    long = 10 * (ENQUEUING + MOVING) / KEEPING
    for names, kept in ((["fill", "change"], []), (["change", "fill"], [0])):
        command_graph, _ = command_graph_of(names, [long] * 2, memory=1)
        verify_commands(command_graph)
        assert [c.buffer for c in command_graph.commands if is_download(c) and not c.after] == kept


def test_contents_that_no_step_changes_are_copied_once() -> None:
    long = 10 * (ENQUEUING + MOVING) / KEEPING
    command_graph, _ = command_graph_of(["map"] * 2, [long] * 2, memory=1)
    assert command_graph.leaves[FIRST] == 0b11
    again, _ = command_graph_of(["map"] * 2, [long] * 2, memory=1, found=command_graph.leaves[FIRST])
    assert not [c for c in again.commands if is_download(c) and not c.after]


def test_what_the_host_had_is_kept_before_a_device_hands_on_what_is_newer() -> None:
    """Once, and where the run pays for it; not what is in a checkpoint when the run ends."""
    cost = ENQUEUING + NBYTES / COPYING
    for part, kept in ((1.1, [True]), (0.9, [False])):
        seconds = part * cost / KEEPING
        command_graph, _ = command_graph_of(["change"] * 3, [seconds, 0.0, seconds], memory=1, others=1, found=0b11)
        verify_commands(command_graph)
        assert [c.saves for c in command_graph.commands if is_download(c) and c.target == HOST] == kept
    long, _ = command_graph_of(["change"] * 3, [1.0] * 3, memory=1, found=0b11)
    assert not [c for c in long.commands if is_download(c) and c.saves]


def test_a_checkpoint_has_ended_before_the_next_one_but_one_begins() -> None:
    """Also on other devices: what is written next is the place of the one before it."""
    command_graph, _ = command_graph_of(["change", "map"] * 6, [1.0] * 12, memory=1, others=4)
    verify_commands(command_graph)
    copies = [c for c in command_graph.commands if is_download(c) and c.target < HOST]
    assert {c.target for c in copies} == {*ASIDE}
    before: dict[int, set[int]] = {}
    for c in copies:
        before[c.token] = {*c.after}.union(*(before.get(t, ()) for t in c.after))
    first = [next(c.token for c in copies if c.target == turn) for turn in ASIDE]
    assert first[0] in before[first[1]]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.floats(1e-6, 1.0), st.floats(0.0, 1.0)), max_size=30)
)
def test_checkpoints_have_all_that_has_changed_and_are_paid_for(of: list[tuple[int, int, float, float]]) -> None:
    total = sum(seconds for *_, seconds in of)
    checkpoints, now, version = Checkpoints(total), 0.0, dict[int, int]()
    places: tuple[dict[int, int], ...] = ({}, {})
    paid, last, turns = {0: 0.0, 1: 0.0}, 0.0, list[int]()
    costs: dict[int, float] = {}
    for key, device, cost, seconds in of:
        version[key], costs[key] = version.get(key, 0) + 1, cost
        checkpoints.wrote(key, DeviceIndex(device), cost)
        now += seconds
        if not checkpoints.is_due(now):
            continue
        turn, found = checkpoints.make()
        turns.append(turn)
        for k, d in found.items():
            assert places[turn].get(k) != version[k], "what is there is not copied"
            places[turn][k] = version[k]
            paid[d] += costs[k]
        assert places[turn] == version
        assert all(seconds <= KEEPING * now * (1 + 1e-9) + 1e-12 for seconds in paid.values())
        assert now - last >= KEEPING * total
        last = now
    assert all(a != b for a, b in pairwise(turns))
