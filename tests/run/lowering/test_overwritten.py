"""What a launch overwrites is found out before time starts, within a budget; what nobody knows is brought."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import manycl as mc
from manycl.analysis import service
from manycl.analysis.launched import LaunchFacts
from manycl.graph.copies import copy_task, fill_task, write_task
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Beside, Buffer, BufferArg, BufferKey, Graph, HostTask, Launch, Piece, Version
from manycl.machine import HOST_BIT, DeviceIndex
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.region import Region
from manycl.run.commands.compiler import compiled
from manycl.run.commands.transfers import Subject
from manycl.run.engine import engine
from manycl.run.lowering import overwritten
from manycl.run.lowering.overwritten import brought_to_be_overwritten
from manycl.run.lowering.steps import RANGE, Lowered, Step
from tests.run.chaos.test_state import Unit, launch, machine
from tests.run.commands.verify_commands import verify_commands

COUNT = 1 << 14  # ints: as few as are worth looking
PROGRAM = mc.Program("""
kernel void plain(global const int *a, global int *b) { b[get_global_id(0)] = a[get_global_id(0)] + 1; }
kernel void mixed(global const int *a, global int *b, int by, int n) {
    int i = get_global_id(0);
    b[(i * by) % n] = a[i] + 1;
}
""")


class Asked:
    """Which launches isl was asked about before time started, and whether anything was asked after that."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.about: list[str] = []
        self.late: list[str] = []
        self._started = False
        launched, region, execute = service.launched, LaunchFacts.region, engine._Play.result

        def looked(program: Any, kernel: str, known: Any) -> Any:
            self.late += [kernel] if self._started else []
            return launched(program, kernel, known)

        def asked(facts: LaunchFacts, *given: Any) -> Any:
            (self.late if self._started else self.about).append(facts.facts.name)
            return region(facts, *given)

        def started(*given: Any) -> Any:
            self._started = True
            try:
                return execute(*given)
            finally:
                self._started = False

        patch.setattr(service, "launched", looked)
        patch.setattr(LaunchFacts, "region", asked)
        patch.setattr(engine._Play, "result", started)


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[mc.Queue]:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    with mc.Queue("cpu/2", policy="in_order") as found:
        yield found


def test_nothing_is_asked_while_devices_wait(queue: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = np.arange(COUNT, dtype=np.int32)
    a, b, c = (queue.array(contents * k) for k in range(3))
    asked = Asked(monkeypatch)
    with queue.prepare() as prepared:
        PROGRAM.plain(queue, (COUNT,), (64,), a, b)
        PROGRAM.mixed(queue, (COUNT,), (64,), b, c, 7, COUNT)
    graph = prepared.graph
    result = queue.session.run(
        graph, Plan(tuple(Assignment(n, n, 0, 0.0, 0.0) for n in range(2)), "", queue.devices, 0.0)
    )
    assert not asked.late
    assert not asked.about, "isl takes longer than bringing what is there"
    brought = [t.buffer for t in result.trace.transfers() if t.source == "host"]
    assert b.buffer.key not in brought[:1]
    assert c.buffer.key in brought, "nobody knows that all of it is overwritten"
    assert (np.sort(c.get()) == np.sort(a.get() + 2)).all()


def test_of_graphs_that_run_again_isl_is_asked_a_few_questions(
    queue: mc.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = [queue.array(np.zeros(COUNT, np.int32)) for _ in range(2 * overwritten.QUESTIONS + 1)]
    with queue.prepare() as graph:
        for k, (one, other) in enumerate(itertools.pairwise(arrays)):
            PROGRAM.mixed(queue, (COUNT,), (64,), one, other, 2 * k + 3, COUNT)
    asked = Asked(monkeypatch)
    graph.run()
    assert not asked.late
    per_run = overwritten.QUESTIONS  # in planning, and before the run itself
    assert 0 < len(asked.about) <= 2 * per_run
    graph.run()
    assert not asked.late
    assert (arrays[-1].get() == len(arrays) - 1).all()


def test_as_many_launches_are_looked_at_as_there_is_time_for(queue: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overwritten, "LOOKED_AT", 2)
    arrays = [queue.array(np.zeros(COUNT, np.int32)) for _ in range(5)]
    with queue.prepare() as prepared:
        for k, (one, other) in enumerate(itertools.pairwise(arrays)):
            PROGRAM.plain(queue, (COUNT - 64 * k,), (64,), one, other)
    looked: list[str] = []
    launched = service.launched
    monkeypatch.setattr(
        service, "launched", lambda p, kernel, known: looked.append(kernel) or launched(p, kernel, known)
    )
    plan = Plan(tuple(Assignment(n, 0, 0, 0.0, 0.0) for n in range(4)), "", queue.devices, 0.0)
    queue.session.run(prepared.graph, plan)
    assert len(looked) == 2
    assert [int(array.get()[0]) for array in arrays] == list(range(5))


@pytest.mark.parametrize(("before", "repeated", "asked"), [(0, True, 1), (0, False, 0), (1, True, 0), (2, True, 0)])
def test_of_a_run_that_is_repeated_only_what_it_finds_may_be_elsewhere(before: int, repeated: bool, asked: int) -> None:
    """``before``: launches of the same device that use a buffer before one that writes it."""
    builder = GraphBuilder()
    a = builder.buffer(4)
    for _ in range(before):
        builder.add(launch("reads", (a,), ()))
    builder.add(launch("writes", (), (a,)))
    graph = builder.build()
    plan = Plan(tuple(Assignment(n, 0, 0, 0.0, 0.0) for n in range(len(graph))), "", ("d0",), 0.0)
    found = brought_to_be_overwritten(Lowered(graph, plan), machine([1]), {a: 1 << 1}, repeated)
    assert list(found) == [(before, a)] * asked


WRITERS = mc.Program("""
kernel void every(global int *b) { b[get_global_id(0)] = 1; }
kernel void later(global int *b) { b[get_global_id(0) + 1] = 1; }
kernel void some(global int *b, global const int *a) { if (a[get_global_id(0)]) b[get_global_id(0)] = 1; }
kernel void second(global int *a, global int *b) { b[get_global_id(0)] = a[0]; }
kernel void group(global int *b) { b[get_group_id(0) * get_local_size(0) + get_local_id(0)] = 1; }
""").facts


def writes(name: str, items: int, keys: list[int], local: int | None = 16, **more: Any) -> Launch:
    kernel = WRITERS.kernels[name]
    args = tuple(map(BufferArg, keys))
    return Launch(name, WRITERS, kernel, (items,), local and (local,), args, (), (keys[-1],), **more)


@pytest.mark.parametrize(
    ("task", "is_overwritten"),
    [
        (writes("every", COUNT, [0]), True),
        (writes("every", COUNT, [0], None), True),  # any work-groups will do
        (writes("group", COUNT, [0]), True),
        (writes("group", COUNT, [0], None), False),  # its work-groups are not known
        (writes("every", COUNT - 16, [0]), False),
        (writes("later", COUNT - 16, [0]), False),
        (writes("some", COUNT, [0, 1]), False),
        (writes("second", COUNT, [1, 0]), True),
        (writes("second", COUNT, [0, 0]), True),  # the one argument reads what the other overwrites
        (replace(writes("every", COUNT, [0]), program=replace(WRITERS, tree=b"")), False),  # made by hand
        (
            writes("every", COUNT, [0], versions=(Version(WRITERS, WRITERS.kernels["every"], (COUNT,), (16,)),)),
            False,  # which of them runs is not known
        ),
        (HostTask("h", print, (), (), (0,)), False),
    ],
)
@pytest.mark.parametrize("repeated", [False, True])
def test_what_is_proved_to_write_all_of_a_buffer(task: Launch | HostTask, is_overwritten: bool, repeated: bool) -> None:
    buffers = {key: Buffer(key, 4 * COUNT) for key in range(2)}
    graph = Graph((task,), buffers, ((),))
    known = overwritten.Overwritten(Lowered(graph), graph, repeated)
    assert not known(0, 0), "nobody has asked"
    known.ask([(0, 0)])
    assert known(0, 0) == is_overwritten
    assert not known(0, 1)
    # a piece is if its last byte is, as these write; what ranges overwrite is told by their launches
    piece = Graph((task,), {7: Piece(7, 4, "", 0, Region.span(4 * COUNT - 4, 4 * COUNT))}, ((),))
    for role in ("", RANGE):
        known = overwritten.Overwritten(Lowered(piece, steps=(Step(0, role),)), graph, repeated)
        known.ask([(0, 7)])
        assert known(0, 7) == (is_overwritten and not role)


def test_what_is_proved_of_pieces() -> None:
    """Of views and of parts of what is written: just the bytes that certainly are."""
    args = BufferArg(0, 64, 4 * COUNT - 64)
    task = replace(writes("every", COUNT - 32, [0]), args=(args,))  # bytes 64 to 4 COUNT - 64
    spans = [(0, 64), (60, 68), (64, 68), (64, 4 * COUNT - 64), (68, 72), (4 * COUNT - 68, 4 * COUNT - 60)]
    pieces = {7 + i: Piece(7 + i, high - low, "", 0, Region.span(low, high)) for i, (low, high) in enumerate(spans)}
    graph = Graph((task,), {0: Buffer(0, 4 * COUNT)}, ((),), parts=frozenset({0}))
    known = overwritten.Overwritten(Lowered(Graph((task,), pieces, ((),)), steps=(Step(0),)), graph, True)
    known.ask([(0, key) for key in pieces])
    assert [known(0, key) for key in pieces] == [False, False, True, True, True, False]


@pytest.mark.parametrize(("elements", "asked"), [(COUNT - 16, False), (COUNT, True)])
def test_what_is_small_is_worth_looking_only_for_a_graph_that_runs_again(elements: int, asked: bool) -> None:
    graph = Graph((writes("every", elements, [0]),), {0: Buffer(0, 4 * elements)}, ((),))
    for repeated in (False, True):
        known = overwritten.Overwritten(Lowered(graph), graph, repeated)
        known.ask([(0, 0)])
        assert known(0, 0) == (asked or repeated)


BYTES = 8
spans = st.tuples(st.integers(0, BYTES - 1), st.integers(1, BYTES)).map(lambda s: (s[0], min(s[0] + s[1], BYTES)))
steps = st.one_of(
    st.tuples(st.just("fill"), st.integers(0, 2), spans),
    st.tuples(st.just("copy"), st.integers(0, 2), st.integers(0, 2), spans, st.integers(0, BYTES - 1)),
    st.tuples(st.just("write"), st.integers(0, 2), spans),
    st.tuples(st.just("call"), st.integers(0, 2), spans),
)


@given(st.lists(steps, max_size=8), st.sets(st.integers(0, 2)))
def test_what_a_graph_finds_and_what_it_writes(chosen: list[tuple[Any, ...]], keys: set[int]) -> None:
    """Against a graph that is run byte by byte: which bytes are looked at, or kept, that were there before it."""
    builder = GraphBuilder()
    buffers = [builder.buffer(BYTES) for _ in range(3)]
    found, written = [[set() for _ in range(3)] for _ in range(2)]  # type: ignore[var-annotated]
    for kind, key, *rest in chosen:
        if kind == "copy":
            source, (low, high), begin = rest
            begin = min(begin, BYTES - (high - low))
            if source == key and abs(begin - low) < high - low:
                continue
            sizes = Buffer(buffers[key], BYTES), Buffer(buffers[source], BYTES)
            builder.add(copy_task(*sizes, high - low, target_offset=low, source_offset=begin))
            found[source] |= set(range(begin, begin + high - low)) - written[source]
        elif kind == "fill":
            (low, high) = rest[0]
            builder.add(fill_task(Buffer(buffers[key], BYTES), b"x", high - low, target_offset=low))
        else:
            (low, high) = rest[0]
            part = BufferArg(buffers[key], low, high - low)
            task = write_task(part, np.zeros(high - low, np.uint8))
            builder.add(task if kind == "write" else replace(task, reads=(part.key,), overwrites=()))
            if kind == "call":
                found[key] |= set(range(low, high)) - written[key]
                continue
        written[key] |= set(range(low, high))
    told = overwritten.contents(builder.build(), keys)
    assert told.keys() == keys
    for key, regions in told.items():
        bytes_of = [{b for low, high in region.intervals for b in range(low, high)} for region in regions]
        assert bytes_of == [found[key], written[key]]


def test_what_another_range_needs_does_not_come_on_top_of_what_overwrites_it() -> None:
    """Two ranges write the same piece at the same time, in two queues: only the first needs its old contents."""
    key = BufferKey(0)
    beside = dict.fromkeys(range(2), Beside(0, frozenset({key})))
    ranges = launch("some", (), (key,)), launch("all", (), (key,))
    graph = Graph(ranges, {key: Buffer(key, 4)}, ((), ()), beside=beside)
    plan = Plan(tuple(Assignment(n, DeviceIndex(0), n, 0.0, 0.0) for n in range(2)), "", ("d0",), 0.0)
    problem = Problem(graph, machine([1]), Unit(), (2,))
    subject = Subject(problem, Lowered(graph), {key: HOST_BIT}, lambda step, _: step == 1)
    verify_commands(compiled(subject, plan))
