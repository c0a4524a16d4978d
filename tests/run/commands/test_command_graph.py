"""Command graphs of plans, played once and again: under chaos, whatever ends first, and on devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from manycl.errors import RunError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Graph, HostTask
from manycl.machine import Device, Machine
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.splitting import Splits
from manycl.region import Region
from manycl.run.commands.backend import Done, HostCall, Run
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.data.coherence import Directory
from manycl.run.engine.engine import RunFailure, again, execute
from manycl.run.engine.playback import Playback
from manycl.run.engine.setup import Setup
from manycl.run.graph_cache import autotuner
from manycl.run.graph_cache.autotuner import PLANNED_RUNS
from manycl.run.lowering.lower import lower
from manycl.run.lowering.steps import Lowered
from manycl.run.tiling.limits import limited
from tests.run.chaos.chaos import ChaosBackend
from tests.run.chaos.chaos_parts import is_download
from tests.run.chaos.chaos_values import left_by, seen_by
from tests.run.chaos.test_divided_chaos import NBYTES, Values, check_valid, graphs, plans, small_chunks
from tests.run.chaos.test_divided_chaos import launch as kernel
from tests.run.chaos.test_state import Unit, launch, machine, machines
from tests.run.chaos.test_windows_chaos import TWO, begin, chains, note, patched, with_room
from tests.run.chaos.transitions import validated

__all__ = ["patched", "small_chunks", "validated"]  # fixtures of the module


def parts(graph: Graph, lowered: Lowered) -> Any:
    """(piece, buffer, its bytes) of all buffers of the graph."""
    for key in graph.buffers:
        for piece, rows in lowered.cut.get(key, {key: Region.span(0, NBYTES)}).items():
            yield piece, key, rows


class Turn:
    """One run of a graph under chaos, from given contents of all memories; then the same one after another."""

    def __init__(self, graph: Graph, where: Machine, seed: int, directory: Directory, values: Values) -> None:
        self.graph, self.where = graph, where
        self.directory, self.values = directory.copy(), values.copy()
        self.backend = ChaosBackend(where, seed)

    def fill(self, lowered: Lowered) -> None:
        self.lowered = lowered
        for m in range(self.where.memories):
            self.backend.values[m] = {p: self.values.piece(m, k, rows) for p, k, rows in parts(self.graph, lowered)}

    def lowering(self, *given: Any) -> Lowered:
        self.fill(lower(*given))
        return self.lowered

    def check(self) -> None:
        """What counts as valid is there what the sequential run has."""
        self.directory.validate(self.where.memories)
        alone = {p: self.values.piece(-1, k, rows) for p, k, rows in parts(self.graph, self.lowered)}
        for step, task in enumerate(self.lowered.graph.nodes):
            inputs = seen_by(self.lowered.graph, step, alone)
            for key in task.writes:
                alone[key] = left_by(self.lowered.graph, step, key, inputs, alone.get(key))
        for p, k, rows in parts(self.graph, self.lowered):
            self.values.put(-1, k, rows, alone[p])
            for m in range(self.where.memories):
                self.values.put(m, k, rows, self.backend.values[m].get(p))
        check_valid(self.graph, self.where, self.directory, self.values)


@settings(max_examples=60)
@given(st.data(), graphs(), machines(), st.integers(0, 2**32))
def test_a_command_graph_gives_the_sequential_result_whatever_ends_first(
    data: Any, graph: Graph, where: Machine, seed: int
) -> None:
    directory, values = Directory(), Values(graph, where.memories)
    for key in graph.buffers:
        if data.draw(st.integers(0, 3)):
            homes = data.draw(st.sets(st.integers(0, where.memories - 1), min_size=1))
            directory.define(key, min(homes))
            for m in range(-1, where.memories):
                value = f"initial {key}" if m == -1 or m in homes else f"stale {m} {key}"
                values.put(m, key, Region.span(0, NBYTES), value)
            for m in homes:
                directory.copied(key, m)
    pays = data.draw(st.booleans(), "cut wherever it is possible")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("manycl.run.lowering.pipelining._Cutter._pays", lambda *given: pays)
        patch.setattr("manycl.run.lowering.pipelining.share_of", lambda *given: 1.0)
        plan = data.draw(plans(graph, where, 1 if pays else 2))
        problem = Problem(graph, where, Unit(), tuple(2 for _ in where.devices), splits=Splits(graph))
        first = Turn(graph, where, seed, directory, values)
        made = execute(problem, plan, first.backend, first.directory, setup=Setup(first.lowering))
    first.check()
    assert made.command_graph is not None
    for turn in range(1, 5):
        then = Turn(graph, where, seed + turn, directory, values)
        then.fill(made.command_graph.lowered)
        result = again(made.command_graph, then.backend, then.directory)
        assert result is not None
        then.check()
        assert then.directory.valid == first.directory.valid
        assert then.directory.valid_regions == first.directory.valid_regions
        assert sorted(then.backend.record.ran) == sorted(first.backend.record.ran)


@settings(max_examples=50)
@given(st.data(), graphs(), machines(), st.integers(0, 2**32))
def test_with_little_memory_too(data: Any, graph: Graph, where: Machine, seed: int) -> None:
    where = with_room(where, data.draw(st.integers(NBYTES // 4, NBYTES * len(graph.buffers))))
    values = Values(graph, where.memories)
    directory = begin(data, graph, where, values)
    again_in_little_memory(graph, where, data.draw(plans(graph, where)), directory, values, seed)


@settings(max_examples=50)
@given(st.data(), chains(), st.integers(0, 2**32))
def test_launches_that_hand_on_data_in_little_memory_too(data: Any, chain: tuple[Graph, Plan], seed: int) -> None:
    where = with_room(TWO, data.draw(st.integers(NBYTES // 4, 2 * NBYTES)))
    values = Values(chain[0], where.memories)
    directory = begin(data, chain[0], where, values)
    again_in_little_memory(chain[0], where, chain[1], directory, values, seed)


def again_in_little_memory(
    graph: Graph, where: Machine, plan: Plan, directory: Directory, values: Values, seed: int
) -> None:
    """The back end counts what is allocated, and knows what is evicted."""
    problem = Problem(graph, where, Unit(), tuple(2 for _ in where.devices))
    limits = limited(problem, plan)

    def backend(lowered: Lowered, turn: int, directory: Directory) -> ChaosBackend:
        made = ChaosBackend(where, seed + turn, room=lowered.room.limits if lowered.room is not None else {})
        directory.open(lowered.cut, lowered.lies)
        for m in range(where.memories):
            of = {p: values.piece(m, k, rows) for p, k, rows in parts(graph, lowered)}
            made.values[m] = {p: v for p, v in of.items() if m == 0 or directory.valid.get(p, 0) >> m & 1}
        directory.close(lowered.cut, lowered.joined, lowered.own)
        return made

    first = directory.copy()
    try:
        lowered = lower(problem, plan, first, limits)
    except RunError:
        event("a launch does not fit")
        return
    given = backend(lowered, 0, first)
    command_graph = execute(problem, plan, given, first, setup=Setup(lambda *_: lowered)).command_graph
    if command_graph is None:
        assert lowered.graph.beside
        return
    event("windows" if lowered.room is not None and lowered.room.windows else "limited" if lowered.room else "room")
    for turn in range(1, 4):
        then, held = directory.copy(), values.copy()
        chaos = backend(lowered, turn, then)
        result = again(command_graph, chaos, then)
        assert result is not None
        then.validate(where.memories)
        assert (then.valid, then.valid_regions) == (first.valid, first.valid_regions)
        note(graph, where, lowered, chaos, held)
        check_valid(graph, where, then, held)
    then, held = directory.copy(), values.copy()
    chaos = backend(lowered, 4, then)
    chaos._fail = {seed % len(lowered.graph)}  # any step
    with pytest.raises(RunFailure, match="made to fail"):
        again(command_graph, chaos, then)
    then.validate(where.memories)
    note(graph, where, lowered, chaos, held)
    check_valid(graph, where, then, held)


def test_what_made_way_in_a_repetition_that_fails_is_not_counted_on() -> None:
    """Contents that only a device had have come to the host before their copy went."""
    builder = GraphBuilder()
    a, b, c, d = (builder.buffer(NBYTES) for _ in range(4))
    builder.add(kernel("map", [a, b]))
    builder.add(kernel("map", [c, d]))
    graph = builder.build()
    where = with_room(Machine((Device("d", "gpu", memory=1),)), 2 * NBYTES)
    plan = Plan(tuple(Assignment(n, 0, 0, 0.0, 0.0) for n in range(2)), "given", ("d",), 0.0)
    problem = Problem(graph, where, Unit(), (1,))
    directory = defined(graph)
    directory.define(a, 1)
    lowered = lower(problem, plan, directory, limited(problem, plan))
    first = directory.copy()
    given = ChaosBackend(where, 0, room={0: 2 * NBYTES})
    command_graph = execute(problem, plan, given, first, setup=Setup(lambda *_: lowered)).command_graph
    assert command_graph is not None
    with pytest.raises(RunFailure, match="made to fail"):
        again(command_graph, ChaosBackend(where, 0, fail=[1], room={0: 2 * NBYTES}), directory)
    directory.validate(2)
    assert directory.valid[a] == 1 << 0
    assert directory.memories(c) == {0}


WHERE = machine([1, 2])


def command_graph_of(graph: Graph, devices: list[int], directory: Directory, where: Machine = WHERE) -> CommandGraph:
    names = tuple(d.name for d in where.devices)
    plan = Plan(tuple(Assignment(n, d, 0, 0.0, 0.0) for n, d in enumerate(devices)), "given", names, 0.0)
    problem = Problem(graph, where, Unit(), (1,) * len(names))
    found = execute(problem, plan, ChaosBackend(where, 0), directory).command_graph
    assert found is not None
    return found


def defined(graph: Graph) -> Directory:
    directory = Directory()
    for key in graph.buffers:
        directory.define(key)
    return directory


def handed_on() -> tuple[Graph, int]:
    """A launch whose result another device reads, and then the host; and the result's key."""
    builder = GraphBuilder()
    a, b, c = (builder.buffer(4) for _ in range(3))
    builder.add(launch("makes", (a,), (b,)))
    builder.add(launch("reads", (b,), (c,)))
    builder.add(HostTask("looks", print, (), (c,), ()))
    return builder.build(), b


def test_only_what_is_waited_for_is_heard_of() -> None:
    graph, made = handed_on()
    command_graph = command_graph_of(graph, [0, 1, ON_HOST], defined(graph))
    runs = [c for c in command_graph.commands if isinstance(c, Run)]
    assert [r.notify for r in runs] == [False, True]  # a download tells of the one, a function waits for the other
    download = next(c for c in command_graph.commands if is_download(c) and c.buffer == made)
    assert download.after == (0,)
    state = Playback(command_graph, defined(graph))
    commands = state.start(0.0) + state.handle()
    assert 1 not in [c.token for c in commands]
    commands = state.handle(Done(download.token, 0.0))
    assert [type(c).__name__ for c in commands][:2] == ["Copy", "Run"]


def test_functions_of_the_host_are_called_in_their_order() -> None:
    builder = GraphBuilder()
    a, b = builder.buffer(4), builder.buffer(4)
    builder.add(launch("makes", (a,), (b,)))
    builder.add(HostTask("first", print, (), (b,), ()))
    builder.add(HostTask("second", print, (), (), ()))  # waits for nothing else
    graph = builder.build()
    command_graph = command_graph_of(graph, [0, ON_HOST, ON_HOST], defined(graph))
    state = Playback(command_graph, defined(graph))
    commands = state.start(0.0) + state.handle()
    assert not any(isinstance(c, HostCall) for c in commands)
    (download,) = [c for c in commands if is_download(c)]
    assert state.handle(Done(0, 0.0), Done(download.token, 0.0)) == [HostCall(1), HostCall(2)]


def test_a_command_graph_fits_only_where_buffers_are_as_they_were() -> None:
    graph, made = handed_on()
    command_graph = command_graph_of(graph, [0, 1, ON_HOST], defined(graph))
    first = next(iter(graph.buffers))
    assert command_graph.fits(defined(graph))
    elsewhere = defined(graph)
    elsewhere.define(first, 1)
    assert not command_graph.fits(elsewhere)
    undefined = defined(graph)
    undefined.forget(first)
    assert not command_graph.fits(undefined)
    written = defined(graph)
    written.define(made, 2)  # a launch may leave parts of what it writes as they were, so that counts, too
    assert command_graph.needs == dict.fromkeys(graph.buffers, 1)
    assert not command_graph.fits(written)
    assert again(command_graph, ChaosBackend(WHERE, 1), elsewhere) is None
    assert elsewhere.valid[first] == 1 << 1


def test_a_command_graph_that_found_nothing_does_not_fit_where_something_is() -> None:
    """It would not bring what it has never seen: contents that came since, or a further copy of what it reads."""
    graph, _ = handed_on()
    first, *others = graph.buffers
    nothing = Directory()
    nothing.define(first)
    command_graph = command_graph_of(graph, [0, 1, ON_HOST], nothing.copy())
    assert [command_graph.needs[key] for key in graph.buffers] == [1] + [0] * len(others)
    assert command_graph.fits(nothing)
    for key in others:
        for memory in range(WHERE.memories):
            now = nothing.copy()
            now.define(key, memory)
            assert not command_graph.fits(now)
    now = nothing.copy()
    now.copied(first, 1)
    assert not command_graph.fits(now)
    halves = {-1: Region.span(0, 2), -2: Region.span(2, 4)}
    for key in others:
        now = nothing.copy()
        now.define(-1, 1)  # a run of ranges has left one half of it
        now.close({key: halves}, {})
        assert key in now.valid_regions
        assert not command_graph.fits(now)


def test_a_failure_leaves_what_was_to_be_written_unknown() -> None:
    graph, made = handed_on()
    command_graph = command_graph_of(graph, [0, 1, ON_HOST], defined(graph))
    directory = defined(graph)
    with pytest.raises(RunFailure, match=r"makes.*made to fail"):
        again(command_graph, ChaosBackend(WHERE, 1, fail=[0]), directory)
    assert made not in directory.valid
    assert directory.valid[next(iter(graph.buffers))] & 1


def test_a_prepared_graph_decides_nothing_once_its_plan_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    import manycl as mc

    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    program = mc.Program(
        "kernel void twice(global const int *a, global int *b) { b[get_global_id(0)] = 2 * a[get_global_id(0)]; }"
    )
    monkeypatch.setattr(autotuner, "FIRST_WAIT", 1 << 20)  # it is not asked again
    with mc.Queue("cpu/2#0-1", policy="balance") as queue:
        data = np.arange(1 << 12, dtype=np.int32)
        a, b = queue.array(data), queue.empty(data.shape, np.int32)
        c = queue.empty(data.shape, np.int32)
        seen: list[int] = []
        with queue.prepare() as prepared:
            program.twice(queue, data.shape, (64,), a, b)
            program.twice(queue, data.shape, (64,), b, c)
            queue.call(lambda v: seen.append(int(v.sum())), c, writes=[])
        for turn in range(PLANNED_RUNS + 20):
            if turn == PLANNED_RUNS + 2:  # from here on nothing is decided
                monkeypatch.setattr("manycl.run.engine.setup.compiled", None)
            a.set(data + turn)
            result = prepared.run()
            assert (c.get() == 4 * (data + turn)).all()
            assert seen[-1] == 4 * int((data + turn).sum())
        assert result.plan is not None
        assert list(result.trace.transfers())
