"""Runs that do not fit into the devices' memories, under chaos: real kernels and their regions, random graphs, plans,
machines and limits, any legal order of events. The back end counts what is allocated, and knows what is evicted."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from manycl.errors import PolicyError, ResultError, RunError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Graph, HostTask
from manycl.machine import HOST, HOST_BIT, Device, Machine
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.policy import Choice, find
from manycl.plan.problem import Problem
from manycl.plan.splitting import Splits
from manycl.region import Region
from manycl.run.data.coherence import Directory, ValidRegion
from manycl.run.engine.engine import RunFailure, execute
from manycl.run.engine.setup import Setup
from manycl.run.lowering.lower import lower
from manycl.run.lowering.steps import Lowered
from manycl.run.recovery.history import CommandHistory
from manycl.run.tiling.limits import limited, stores
from tests.run.between_runs import small_windows
from tests.run.chaos.chaos import ChaosBackend
from tests.run.chaos.chaos_values import left_by, seen_by
from tests.run.chaos.test_divided_chaos import GROUP, ITEMS, NBYTES, PROGRAM, Values, check_valid, graphs, launch, plans
from tests.run.chaos.test_state import Anyhow, Unit, machines, unit
from tests.run.chaos.transitions import validated

__all__ = ["validated"]  # a fixture of the module

WHOLE = Region.span(0, NBYTES)


patched = small_windows({"lowering.lower.CHUNK": 16, "lowering.partition.PAGE": 4, "tiling.tiling.LARGE": 4})


def with_room(where: Machine, room: int) -> Machine:
    devices = tuple(replace(d, global_memory=room, max_allocation=room) for d in where.devices)
    return replace(where, devices=devices)


def on_pairs(kernel: str, pairs: Sequence[tuple[int, int]]) -> tuple[Graph, Plan]:
    """A kernel on pairs of buffers, one launch after another on one device."""
    builder = GraphBuilder()
    buffers = [builder.buffer(NBYTES, f"b{i}") for i in range(1 + max(max(pair) for pair in pairs))]
    for pair in pairs:
        builder.add(launch(kernel, [buffers[i] for i in pair]))
    ranges = tuple(Assignment(n, 0, 0, 0.0, 0.0) for n in range(len(pairs)))
    return builder.build(), Plan(ranges, "one", ("d",), 0.0)


def back_and_forth(kernel: str, turns: int) -> tuple[Graph, Plan]:
    """A kernel that reads one of two buffers and writes the other, in turn; on one device."""
    return on_pairs(kernel, [(turn % 2, 1 - turn % 2) for turn in range(turns)])


def on_the_host(graph: Graph, where: Machine) -> tuple[Values, Directory]:
    """All buffers have contents there, and nowhere else."""
    values, directory = Values(graph, where.memories), Directory()
    for key in graph.buffers:
        directory.define(key, HOST)
        for m in (-1, HOST):
            values.put(m, key, WHOLE, f"initial {key}")
    return values, directory


def parts(lowered: Lowered, graph: Graph) -> Iterator[tuple[int, int, Any]]:
    """(piece, buffer, its bytes) of all buffers of a graph."""
    for key in graph.buffers:
        for piece, region in lowered.cut.get(key, {key: WHOLE}).items():
            yield piece, key, region


def make_room(graph: Graph, where: Machine, directory: Directory, values: Values) -> None:
    """Between runs, everything goes to the host (the session evicts what a run does not use)."""
    for key in graph.buffers:
        for region, mask in directory.valid_regions.get(key, (ValidRegion(WHOLE, directory.valid.get(key, 0)),)):
            if mask and not mask & HOST_BIT:
                source = (mask & -mask).bit_length() - 1
                for a, b in region.intervals:
                    values.held[HOST, key][a:b] = values.held[source, key][a:b]
        if key in directory.valid_regions:
            directory.gathered(key)
        elif key in directory.valid:
            directory.copied(key, HOST)
        for device in where.devices:
            if device.memory != HOST:
                directory.evict(key, device.memory)


def one_run(
    graph: Graph,
    where: Machine,
    plan: Any,
    directory: Directory,
    values: Values,
    seed: int,
    fail: Any = None,
    **more: Any,
) -> Lowered:
    """Run under chaos and one step after another, and note what every byte holds afterwards: of a run that fails, what
    the steps leave that ran."""
    made: list[Lowered] = []
    problem = Problem(graph, where, unit(seed), tuple(2 for _ in where.devices), splits=Splits(graph), **more)
    limits = limited(problem, plan if isinstance(plan, Plan) else None)
    backend = ChaosBackend(where, seed, room=limits)

    def lowering(problem: Problem, plan: Plan | None, directory: Directory) -> Lowered:
        lowered = lower(problem, plan, directory, limits)
        made.append(lowered)
        backend._room = lowered.room.limits if lowered.room is not None else {}
        if fail is not None:
            backend._fail = {fail(lowered)}
        directory.open(lowered.cut, lowered.lies)
        for m in range(where.memories):
            of = {p: values.piece(m, k, rows) for p, k, rows in parts(lowered, graph)}
            backend.values[m] = {p: v for p, v in of.items() if m == HOST or directory.valid.get(p, 0) >> m & 1}
        directory.close(lowered.cut, lowered.joined, lowered.own)
        return lowered

    try:
        execute(problem, plan, backend, directory, setup=Setup(lowering))
    finally:
        directory.validate(where.memories)
        if made and hasattr(backend, "record"):  # it has begun
            note(graph, where, made[0], backend, values)
    return made[0]


def note(graph: Graph, where: Machine, lowered: Lowered, backend: ChaosBackend, values: Values) -> None:
    alone = {p: values.piece(-1, k, rows) for p, k, rows in parts(lowered, graph)}
    for step in sorted(token for token, _ in backend.record.ran):
        task = lowered.graph.nodes[step]
        inputs = seen_by(lowered.graph, step, alone)
        for key in task.writes:
            alone[key] = left_by(lowered.graph, step, key, inputs, alone.get(key))
    for p, k, rows in parts(lowered, graph):
        values.put(-1, k, rows, alone[p])
        for m in range(where.memories):
            values.put(m, k, rows, backend.values[m].get(p))


def begin(data: Any, graph: Graph, where: Machine, values: Values) -> Directory:
    directory = Directory()
    left = Counter({d.memory: d.global_memory // NBYTES for d in where.devices})
    for key in graph.buffers:
        if data.draw(st.integers(0, 3)):
            home = data.draw(st.integers(0, where.memories - 1))
            home = home if left[home] else HOST
            left[home] -= home != HOST
            directory.define(key, home)
            for m in range(-1, where.memories):
                value = f"initial {key}" if m in (-1, home) else f"stale {m} {key}"
                values.put(m, key, WHOLE, value)
    return directory


@settings(max_examples=50)
@given(st.data(), graphs(), machines(), st.integers(0, 2**32))
def test_with_little_memory_the_result_is_the_sequential_one(
    data: Any, graph: Graph, where: Machine, seed: int
) -> None:
    """Two runs with memory limits from a quarter of a buffer to nearly all; the host may have written in between."""
    where = with_room(where, data.draw(st.integers(NBYTES // 4, NBYTES * len(graph.buffers))))
    values = Values(graph, where.memories)
    directory = begin(data, graph, where, values)
    for turn in range(2):
        plan = data.draw(plans(graph, where))
        try:
            lowered = one_run(graph, where, plan, directory, values, seed + turn)
        except RunError as error:
            if isinstance(error, RunFailure):
                raise
            event("a launch does not fit")
            return
        check_valid(graph, where, directory, values)
        if lowered.room is not None:
            event("windows" if lowered.room.windows else "limited")
        assert not any(key < 0 for key in (*directory.valid, *directory.valid_regions)), "pieces are left"
        make_room(graph, where, directory, values)
        for key in graph.buffers:
            if data.draw(st.integers(0, 4)) == 0:
                directory.define(key)
                for m in (-1, 0):
                    values.put(m, key, WHOLE, f"host {turn} {key}")


@settings(max_examples=60)
@given(st.data(), graphs(), machines(), st.integers(0, 2**32), st.lists(st.integers(0, 100), max_size=20))
def test_policies_that_decide_while_it_runs_evict_whole_buffers(
    data: Any, graph: Graph, where: Machine, seed: int, numbers: list[int]
) -> None:
    where = with_room(where, data.draw(st.integers(3, 4)) * NBYTES)  # a kernel has three buffers at most
    values = Values(graph, where.memories)
    directory = begin(data, graph, where, values)
    make_room(graph, where, directory, values)
    one_run(graph, where, Anyhow(numbers), directory, values, seed)
    check_valid(graph, where, directory, values)


class Able(Anyhow):
    """Decides by a list of numbers as well, but only for devices that can run the kernel."""

    def select(self, frontier: Any, devices: Any, now: float) -> Choice | None:
        chosen = super().select(frontier, devices, now)
        if chosen is None:
            return None
        seconds = next(c.seconds for c in frontier if c.index == chosen.component)
        able = [d.index for d in devices if d.free and isfinite(seconds[d.index])]
        return Choice(chosen.component, chosen.device if chosen.device in able else able[0]) if able else None


@settings(max_examples=60)
@given(st.data(), graphs(), machines(), st.integers(0, 2**32), st.lists(st.integers(0, 100), max_size=20))
def test_policies_that_decide_while_it_runs_never_wait_for_room_that_cannot_come(
    data: Any, graph: Graph, where: Machine, seed: int, numbers: list[int]
) -> None:
    """Every device has room for one to three buffers; launches have up to three, some of which may be there already.
    Where each fits somewhere, all is right; else the run says so, and what counts as valid still is."""
    least = [NBYTES if device.memory != HOST else 4 * NBYTES for device in where.devices]  # the host has room for all
    rooms = [data.draw(st.integers(low, max(low, 3 * NBYTES))) for low in least]
    spills = data.draw(st.booleans())
    devices = (replace(d, global_memory=r, max_allocation=r) for d, r in zip(where.devices, rooms, strict=True))
    where = replace(where, devices=tuple(devices))
    values = Values(graph, where.memories)
    directory = begin(data, graph, where, values)
    make_room(graph, where, directory, values)
    policy = data.draw(st.sampled_from([Able(numbers), find("eager"), find("heft")]))
    needed = max((len(stores(task)) * NBYTES for task in graph.nodes if not isinstance(task, HostTask)), default=0)
    said = ""
    try:
        one_run(graph, where, policy, directory, values, seed, spills=spills)
    except (PolicyError, RunError) as error:
        said = error.message
    assert (needed > max(rooms)) == ("too little memory" in said or "bytes of buffers" in said), said
    event("a launch fits nowhere" if said else "all is right")
    check_valid(graph, where, directory, values)


@settings(max_examples=60)
@given(st.data(), machines(), st.integers(0, 2**32))
def test_what_makes_way_in_the_middle_of_a_component_is_heard_of(data: Any, where: Machine, seed: int) -> None:
    """Of many kernels that are decided on at once, some wait for room that others have to leave first."""
    where = with_room(where, data.draw(st.integers(3, 4)) * NBYTES)
    builder = GraphBuilder()
    buffers = [builder.buffer(NBYTES, f"b{i}") for i in range(6)]
    for _ in range(data.draw(st.integers(2, 8))):
        builder.add(launch("map", data.draw(st.permutations(buffers))))
    graph = builder.build()
    cuts = sorted({0, len(graph), *data.draw(st.sets(st.integers(0, len(graph)), max_size=1))})
    graph = replace(graph, components=tuple(tuple(range(a, b)) for a, b in itertools.pairwise(cuts)))
    values = Values(graph, where.memories)
    directory = begin(data, graph, where, values)
    make_room(graph, where, directory, values)
    options = {"queues": data.draw(st.sampled_from("123")), "resident": data.draw(st.sampled_from("12"))}
    one_run(graph, where, find("clustering"), directory, values, seed, options=options)
    check_valid(graph, where, directory, values)


@settings(max_examples=60)
@given(st.data(), graphs(), machines(), st.integers(0, 2**32))
def test_what_a_failed_step_leaves_is_unknown(data: Any, graph: Graph, where: Machine, seed: int) -> None:
    where = with_room(where, data.draw(st.integers(NBYTES, NBYTES * 3)))
    values = Values(graph, where.memories)
    directory = begin(data, graph, where, values)
    before = set(directory.valid)
    try:
        one_run(
            graph,
            where,
            data.draw(plans(graph, where)),
            directory,
            values,
            seed,
            fail=lambda lowered: data.draw(st.integers(0, len(lowered.graph) - 1)),
        )
    except RunError as error:
        if not isinstance(error, RunFailure):
            return
    else:
        pytest.fail("it did not fail")
    assert not any(key < 0 for key in (*directory.valid, *directory.valid_regions)), "pieces are left"
    for key in before:
        if not (directory.valid.get(key) or directory.valid_regions.get(key)):
            with pytest.raises(ResultError):
                directory.check(key)
    check_valid(graph, where, directory, values)


@st.composite
def chains(draw: Any, queues: int = 2) -> tuple[Graph, Plan]:
    """Launches that hand data on to one another, nearly all of them on one device, and host functions between."""
    builder = GraphBuilder()
    buffers = [builder.buffer(NBYTES, f"b{i}") for i in range(draw(st.integers(2, 4)))]
    for i in range(draw(st.integers(2, 8))):
        keys = draw(st.permutations(buffers))
        if draw(st.integers(0, 11)) == 0:
            builder.add(HostTask(f"h{i}", print, (), (keys[0],), (keys[1],)))
        else:
            builder.add(launch(draw(st.sampled_from(["map", "change", "stencil", "stencil", "maybe"])), keys))
    graph = builder.build()
    count = draw(st.integers(1, queues))
    places = []
    for task in graph.nodes:
        device = ON_HOST if isinstance(task, HostTask) else int(draw(st.integers(0, 11)) == 0)
        places.append((device, draw(st.integers(0, count - 1)) if device != ON_HOST else 0))
    return graph, Plan(tuple(Assignment(n, *place, 0.0, 0.0) for n, place in enumerate(places)), "c", ("d", "e"), 0.0)


TWO = Machine((Device("d", "gpu", memory=1), Device("e", "gpu", memory=2)))


@settings(max_examples=75)
@given(st.data(), chains(), st.integers(0, 2**32))
def test_launches_in_columns_leave_what_they_leave_one_after_another(
    data: Any, chain: tuple[Graph, Plan], seed: int
) -> None:
    """Whatever comes first, and if a step fails: then what is said to be valid is so."""
    graph, plan = chain
    where = with_room(TWO, data.draw(st.integers(NBYTES // 2, NBYTES * (len(graph.buffers) - 1))))
    values, directory = on_the_host(graph, where)
    fails = data.draw(st.integers(0, 2)) == 0
    try:
        lowered = one_run(
            graph,
            where,
            plan,
            directory,
            values,
            seed,
            fail=(lambda lowered: data.draw(st.integers(0, len(lowered.graph) - 1))) if fails else None,
        )
        of = [lowered.step(n).node for n in range(len(lowered.graph))]
        event("columns" if of != sorted(of) else "no columns")
    except RunFailure:
        event("failed")
    except RunError:
        event("a launch does not fit")
        return
    assert not any(key < 0 for key in (*directory.valid, *directory.valid_regions)), "pieces are left"
    check_valid(graph, where, directory, values)


def test_what_was_not_sent_to_the_host_is_lost_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails, what was about to be overwritten is unknown, and all else is what it was."""
    gone: list[bool] = []
    found = CommandHistory.contents

    def watched(history: CommandHistory) -> Any:
        now = {key: history._present(key)[:2] for key in history.is_defined}
        gone.append(any(all(v[:2] != now[key] for v in history.held[key].values()) for key in now))
        return found(history)

    monkeypatch.setattr(CommandHistory, "contents", watched)
    where = with_room(Machine((Device("d", "gpu", memory=1),)), 3 * NBYTES // 8)
    chain = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 1), (1, 0)]  # buffer 1 is read, of no use for a while, and overwritten
    for victim in range(48):
        graph, plan = on_pairs("map", chain)
        values, directory = on_the_host(graph, where)
        with pytest.raises(RunFailure):
            one_run(graph, where, plan, directory, values, victim, fail=lambda _, victim=victim: victim)
        check_valid(graph, where, directory, values)
        lost = [key for key in graph.buffers if not (directory.valid.get(key) or directory.valid_regions.get(key))]
        for key in lost:
            with pytest.raises(ResultError):
                directory.check(key)
        assert lost or not gone[-1]
    assert sum(gone) > 2


def test_a_stencil_on_four_times_the_memory() -> None:
    """Ten sweeps back and forth between two buffers of which a quarter fits: in ranges, and in no more room."""
    graph, plan = back_and_forth("stencil", 10)
    where = with_room(Machine((Device("d", "gpu", memory=1),)), 2 * NBYTES // 4)
    values, directory = on_the_host(graph, where)
    lowered = one_run(graph, where, plan, directory, values, 0)
    check_valid(graph, where, directory, values)
    assert lowered.room is not None
    assert lowered.room.windows
    assert len(lowered.graph) > 10 * 3
    assert all(mask == HOST_BIT for mask in directory.valid.values())


def test_what_does_not_fit_is_said() -> None:
    builder = GraphBuilder()
    builder.add(launch("scatter", [builder.buffer(NBYTES, "to"), builder.buffer(NBYTES, "b")]))
    graph = builder.build()
    where = with_room(Machine((Device("d", "gpu", memory=1),)), NBYTES)
    plan = Plan((Assignment(0, 0, 0, 0.0, 0.0),), "one", ("d",), 0.0)
    problem = Problem(graph, where, Unit(), (1,))
    with pytest.raises(RunError, match=r"256 bytes of buffers on d at once.*scatter \(node 0\)"):
        lower(problem, plan, Directory(), limited(problem, plan))
    assert PROGRAM.kernels
    assert ITEMS % GROUP == 0
