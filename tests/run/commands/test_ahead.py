"""What is brought before its turn, what becomes one transfer, and what is read of transfers afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Beside, BufferKey, Graph, HostTask, Piece, ResultTask
from manycl.machine import HOST, Machine
from manycl.model.transfer import LARGE, SMALL, TINY
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.region import Rectangle, Region
from manycl.run.commands.backend import (
    Command,
    Copy,
    Done,
    HostCall,
    Report,
    Run,
    TransferQueue,
    continues,
)
from manycl.run.commands.compiler import compiled
from manycl.run.commands.transfers import Subject
from manycl.run.data.coherence import Directory
from manycl.run.engine.playback import Playback
from manycl.run.executor.record import RunRecord, Transferred
from manycl.run.lowering.steps import Lowered
from manycl.run.simulation.simulator import SimBackend
from tests.run.chaos.chaos_parts import download, is_download, is_upload, upload
from tests.run.chaos.test_state import Unit, launch, machine
from tests.run.commands.verify_commands import verify_commands

WHERE = machine([1, 2])


class Compiled:
    """A run, compiled when it starts: the directory may be changed before."""

    def __init__(self, problem: Problem, plan: Plan, directory: Directory) -> None:
        self._given = problem, plan
        self.directory = directory

    def start(self, now: float) -> list[Command]:
        problem, plan = self._given
        lowered = Lowered(problem.graph)
        command_graph = compiled(Subject(problem, lowered, self.directory.valid), plan)
        verify_commands(command_graph)
        self._playback = Playback(command_graph, self.directory)
        return self._playback.start(now)

    def handle(self, *reports: Report) -> list[Command]:
        return self._playback.handle(*reports)


def state_of(graph: Graph, devices: list[int], where: Machine = WHERE, queues: list[int] | None = None) -> Compiled:
    """A run whose buffers are all valid on the host."""
    directory = Directory()
    for key in graph.buffers:
        directory.define(key)
    names = tuple(d.name for d in where.devices)
    used = queues or [0] * len(devices)
    places = enumerate(zip(devices, used, strict=True))
    plan = Plan(tuple(Assignment(n, d, q, 0.0, 0.0) for n, (d, q) in places), "given", names, 0.0)
    return Compiled(Problem(graph, where, Unit(), (1 + max(used),) * len(names)), plan, directory)


def started(graph: Graph, devices: list[int]) -> list[Command]:
    """All that can be enqueued before anything is reported."""
    state = state_of(graph, devices)
    return state.start(0.0) + state.handle()


def uploads(commands: list[Command], queue: int) -> list[tuple[int, int]]:
    return [(c.buffer, c.device) for c in commands if is_upload(c) and c.queue == queue]


def test_a_queue_that_waits_brings_what_the_next_ones_read() -> None:
    builder = GraphBuilder()
    a, b, c, d, e = (builder.buffer(nbytes) for nbytes in (4, 4, SMALL, 4, 4))
    builder.add(launch("first", (), (a,)))
    builder.add(HostTask("writes", print, (), (a,), (d,)))
    builder.add(launch("waits", (a, b), ()))
    builder.add(launch("behind", (c,), ()))
    builder.add(launch("last", (d,), ()))  # the host is still to write it
    builder.add(launch("small", (e,), ()))
    commands = started(builder.build(), [0, ON_HOST, 1, 1, 1, 1])
    assert uploads(commands, 0) == [(a, 0), (b, 1), (e, 1)]  # of what runs or waits itself, or takes no time
    assert uploads(commands, TransferQueue.PREFETCH) == [(c, 1)]
    assert [c.token for c in commands if isinstance(c, Run)] == [0]


@pytest.mark.parametrize("reads", [False, True])
def test_what_is_overwritten_is_brought_only_for_who_reads_it_first(reads: bool) -> None:
    builder = GraphBuilder()
    a, b, c, written = (builder.buffer(SMALL) for _ in range(4))
    builder.add(HostTask("slow", print, (), (), (a,)))
    builder.add(launch("waits", (a,), ()))
    behind = launch("overwrites", (b, written) if reads else (b,), (written,))
    builder.add(replace(behind, overwrites=(written,)))
    builder.add(launch("last", (c,), ()))
    commands = started(builder.build(), [ON_HOST, 0, 0, 0])
    brought = {c.buffer for c in commands if is_upload(c)}
    assert brought == ({b, c, written} if reads else {b, c})


def test_what_several_queues_read_waits_for_no_kernel() -> None:
    builder = GraphBuilder()
    a, b = builder.buffer(4), builder.buffer(4)
    builder.add(launch("takes long", (a,), ()))
    builder.add(launch("behind it", (b,), ()))
    builder.add(launch("beside it", (b,), ()))
    graph = builder.build()
    state = state_of(graph, [0, 0, 0], queues=[0, 0, 1])
    commands = state.start(0.0) + state.handle()
    assert uploads(commands, TransferQueue.UPLOAD) == [(a, 0), (b, 0)]
    assert uploads(started(graph, [0, 0, 0]), 0) == [(a, 0), (b, 0)]


def test_large_buffers_come_before_anything_is_enqueued() -> None:
    builder = GraphBuilder()
    small, large = builder.buffer(4), builder.buffer(LARGE)
    builder.add(launch("first", (small,), ()))
    builder.add(launch("second", (large,), ()))
    state = state_of(builder.build(), [0, 0])
    first = state.start(0.0)
    assert uploads(first, TransferQueue.PREFETCH) == [(large, 0)]
    assert len(first) == 1
    assert [type(c) for c in state.handle()] == [Copy, Run, Run]


def test_what_is_due_before_a_large_buffer_comes_before_it() -> None:
    """Links carry first what was enqueued first."""
    builder = GraphBuilder()
    first, large, last = builder.buffer(SMALL), builder.buffer(LARGE), builder.buffer(SMALL)
    for key in (first, large, last):
        builder.add(launch("reads", (key,), ()))
    state = state_of(builder.build(), [0, 0, 0])
    assert uploads(state.start(0.0), TransferQueue.PREFETCH) == [(first, 0), (large, 0)]
    assert uploads(state.handle(), TransferQueue.UPLOAD) == [(last, 0)]


def test_what_a_host_function_reads_leaves_when_it_is_made() -> None:
    builder = GraphBuilder()
    a, b = builder.buffer(4), builder.buffer(4)
    builder.add(launch("one", (), (a,)))
    builder.add(launch("other", (), (b,)))
    builder.add(HostTask("reads", print, (), (a, b), ()))
    commands = started(builder.build(), [0, 1, ON_HOST])
    assert {(c.buffer, c.device, tuple(c.after)) for c in commands if is_download(c)} == {
        (a, 0, (0,)),
        (b, 1, (1,)),
    }
    assert not any(isinstance(c, HostCall) for c in commands)


def test_what_another_device_reads_leaves_when_it_is_made() -> None:
    """And goes on when it has come, although what will read it waits for something else, too."""
    builder = GraphBuilder()
    a, b = builder.buffer(SMALL), builder.buffer(4)
    builder.add(HostTask("slow", print, (), (), (b,)))
    builder.add(launch("makes", (), (a,)))
    builder.add(launch("waits", (b,), ()))
    builder.add(launch("reads", (a,), ()))
    builder.add(launch("reads too", (a,), ()))
    state = state_of(builder.build(), [ON_HOST, 0, 1, 1, 1])
    (leaves,) = [c for c in state.start(0.0) + state.handle() if is_download(c)]
    assert (leaves.buffer, leaves.device, leaves.after, leaves.queue) == (a, 0, (1,), TransferQueue.EARLY)
    commands = state.handle(Done(1, 1.0), Done(leaves.token, 1.0))
    assert uploads(commands, TransferQueue.PREFETCH) == [(a, 1)]
    after = state.handle(Done(0, 2.0))
    assert [(c.buffer, c.device) for c in after if is_upload(c)] == [(b, 1)]
    assert [c.token for c in after if isinstance(c, Run)] == [2, 3, 4]


def test_what_several_devices_make_together_leaves_when_all_of_them_have() -> None:
    """Two devices with one memory write elements of their own, a third reads them all."""
    builder = GraphBuilder()
    a = builder.buffer(4)
    for name in ("one", "other"):
        builder.add(launch(name, (), (a,)))
    builder.add(launch("reads", (a,), ()))
    beside = {n: Beside(0, frozenset({a})) for n in range(2)}
    graph = replace(builder.build(), predecessors=((), (), (0, 1)), beside=beside)
    state = state_of(graph, [0, 1, 2], machine([1, 1, 2]))
    state.directory.forget(a)
    commands = state.start(0.0) + state.handle()
    assert [c.token for c in commands if isinstance(c, Run)] == [0, 1]
    commands += state.handle(Done(1, 1.0))
    assert not [c for c in commands if is_download(c)]
    assert [c.buffer for c in state.handle(Done(0, 2.0)) if is_download(c)] == [a]


@pytest.mark.parametrize(
    ("nbytes", "leaves_by", "comes_by"), [(4, 0, 0), (SMALL, TransferQueue.EARLY, TransferQueue.UPLOAD)]
)
def test_who_waits_only_for_what_another_device_makes_gets_it_in_its_turn(
    nbytes: int, leaves_by: int, comes_by: int
) -> None:
    builder = GraphBuilder()
    a = builder.buffer(nbytes)
    builder.add(launch("makes", (), (a,)))
    builder.add(launch("reads", (a,), ()))
    state = state_of(builder.build(), [0, 1])
    (leaves,) = [c for c in state.start(0.0) + state.handle() if is_download(c)]
    assert (leaves.queue, leaves.after) == (leaves_by, (0,))
    commands = state.handle(Done(0, 1.0), Done(leaves.token, 1.0))
    assert uploads(commands, comes_by) == [(a, 1)]
    assert [c.token for c in commands if isinstance(c, Run)] == [1]


def test_what_a_run_finds_on_another_device_leaves_while_what_it_waits_for_runs() -> None:
    """Once, however often others are looked at meanwhile; and goes on when it has come."""
    builder = GraphBuilder()
    made, found, other, undefined = (builder.buffer(SMALL) for _ in range(4))
    builder.add(launch("makes", (), (made,)))
    builder.add(launch("elsewhere", (), (other,)))
    builder.add(launch("reads", (made, found, undefined), ()))
    state = state_of(builder.build(), [0, 2, 1], machine([1, 2, 3]))
    state.directory.forget(undefined)
    state.directory.valid[found] = 1 << 1
    commands = state.start(0.0) + state.handle()
    assert not any(c.buffer == undefined for c in commands if isinstance(c, Copy))
    leaving = {c.buffer: c for c in commands if is_download(c)}
    assert leaving.keys() == {made, found}
    assert not leaving[found].after
    assert not state.handle(Done(1, 1.0))
    commands = state.handle(Done(leaving[found].token, 2.0))
    assert [(c.buffer, c.device) for c in commands if is_upload(c)] == [(found, 1)]
    commands = state.handle(Done(0, 3.0), Done(leaving[made].token, 3.0))
    assert [(c.buffer, c.device) for c in commands if is_upload(c)] == [(made, 1)]
    assert [c.token for c in commands if isinstance(c, Run)] == [2]


def test_what_leaves_does_not_wait_for_later_kernels() -> None:
    builder = GraphBuilder()
    a, b, c = (builder.buffer(4) for _ in range(3))
    builder.add(launch("makes", (), (a,)))
    builder.add(launch("takes long", (b,), ()))
    builder.add(launch("elsewhere", (), (c,)))
    builder.add(HostTask("waits", print, (), (c,), ()))
    builder.add(HostTask("looks", print, (), (a,), ()))
    state = state_of(builder.build(), [0, 0, 1, ON_HOST, ON_HOST])
    leaves = next(c for c in state.start(0.0) + state.handle() if is_download(c) and c.buffer == a)
    assert (leaves.device, leaves.after) == (0, (0,))
    assert leaves.queue == 0  # before the kernel that takes long


def test_contents_that_are_written_again_before_they_are_read_do_not_leave() -> None:
    builder = GraphBuilder()
    a, b = builder.buffer(4), builder.buffer(4)
    builder.add(launch("makes", (), (a,)))
    builder.add(HostTask("slow", print, (), (), (b,)))
    builder.add(launch("changes", (a, b), (a,)))
    builder.add(launch("reads", (a,), ()))
    state = state_of(builder.build(), [0, ON_HOST, 0, 1])
    assert not [c for c in state.start(0.0) + state.handle() if is_download(c)]
    commands = state.handle(Done(1, 1.0))
    assert [(c.buffer, c.after) for c in commands if is_download(c)] == [(a, (2,))]


@pytest.mark.parametrize("by_host", [False, True])
def test_what_is_made_in_the_host_s_memory_goes_on_when_it_is_there(by_host: bool) -> None:
    builder = GraphBuilder()
    a, b = builder.buffer(SMALL), builder.buffer(4)
    builder.add(HostTask("makes", print, (), (), (a,)) if by_host else launch("makes", (), (a,)))
    builder.add(HostTask("slow", print, (), (), (b,)))
    builder.add(launch("waits", (b,), ()))
    builder.add(launch("reads", (a,), ()))
    state = state_of(builder.build(), [ON_HOST if by_host else 0, ON_HOST, 1, 1], machine([0, 1]))
    assert not [c for c in state.start(0.0) + state.handle() if is_upload(c)]
    assert uploads(state.handle(Done(0, 1.0)), TransferQueue.PREFETCH) == [(a, 1)]


@pytest.mark.parametrize(
    ("transfer", "ahead", "due"),
    [(upload, TransferQueue.PREFETCH, TransferQueue.UPLOAD), (download, TransferQueue.EARLY, TransferQueue.DOWNLOAD)],
)
def test_a_simulated_link_performs_one_transfer_at_a_time_what_was_enqueued_first(
    transfer: Callable[..., Copy], ahead: int, due: int
) -> None:
    """As NVIDIA's driver does, whatever queues they are in; what waits for a kernel lets others pass."""
    builder = GraphBuilder()
    keys = [builder.buffer(4) for _ in range(5)]
    builder.add(launch("slow", (), (keys[4],)))
    backend = SimBackend(WHERE, Unit())
    backend.begin(builder.build(), (1, 1))
    backend.perform([Run(0, 0, 0, (), False)])
    queues = (due, ahead, ahead, due)
    backend.perform(
        [
            transfer(i, key, 0, (0,) if i == 1 else (), True, queue=queue)
            for i, key, queue in zip((1, 2, 3, 4), keys, queues, strict=False)
        ]
    )
    # the first waits until 1.0 s; what is behind it in its own queue waits as well
    assert [(r.token, r.time) for _ in queues for r in backend.wait()] == [(2, 1.0), (1, 2.0), (3, 3.0), (4, 4.0)]


def pieces(*rectangles: Rectangle) -> dict[int, Any]:
    return {-i: Piece(-i, b.nbytes, "x", 7, Region.of_rectangles([b])) for i, b in enumerate(rectangles, 1)}


@pytest.mark.parametrize(
    ("second", "joined"),
    [
        (upload(2, -2, 0, (), False), True),
        (upload(2, -3, 0, (), False), False),  # not the bytes behind
        (upload(2, -4, 0, (), False), False),  # several rows
        (upload(2, -2, 1, (), False), False),
        (upload(2, -2, 0, (), True), False),
        (upload(2, -2, 0, (), False, queue=TransferQueue.PREFETCH), False),
        (Run(2, 0, 0, (), False), False),
    ],
)
def test_uploads_of_neighbours_become_one(second: Command, joined: bool) -> None:
    n = TINY
    rectangles = (Rectangle(0, 2 * n), Rectangle(2 * n, 2 * n), Rectangle(6 * n, 2 * n), Rectangle(2 * n, n, 2 * n, 2))
    graph = Graph((), pieces(*rectangles), ())
    assert continues(graph, upload(1, -1, 0, (), False), second) == joined


@pytest.mark.parametrize(
    ("second", "joined"),
    [
        (upload(2, -2, 0, (), False), True),  # wherever it is
        (upload(2, -3, 0, (), False), True),  # several rows
        (upload(2, -4, 0, (), False), False),  # worth a transfer
        (upload(2, -2, 1, (), False), False),
        (upload(2, -2, 0, (5,), False), False),  # it waits for something
        (download(2, -2, 0, (), False), False),
        (upload(2, -5, 0, (), False), False),  # of another buffer
    ],
)
def test_what_is_little_goes_with_what_else_is_brought_of_its_buffer(second: Command, joined: bool) -> None:
    rectangles = (Rectangle(0, 16), Rectangle(48, TINY), Rectangle(16, 4, 16, 2), Rectangle(2 * TINY, TINY + 1))
    graph = Graph((), {**pieces(*rectangles), -5: Piece(-5, 16, "y", 8, Region.span(0, 16))}, ())
    assert continues(graph, upload(1, -1, 0, (), False), second) == joined


@pytest.mark.parametrize(
    ("second", "joined"),
    [
        (download(2, -2, 0, [5], True, -9), True),
        (download(2, -3, 0, [5], True, -9), True),  # wherever it is in the window
        (download(2, -2, 0, [6], True, -9), False),  # it waits for something else
        (download(2, -2, 0, [5], True, -8), False),  # another window
        (download(2, -2, 0, [5], True), False),
        (download(2, -4, 0, [5], True, -9), False),  # both are large
        (upload(2, -2, 0, [5], True, -9), False),
    ],
)
def test_what_leaves_a_window_leaves_at_once(second: Command, joined: bool) -> None:
    rectangles = (Rectangle(0, 16, 32, LARGE), Rectangle(16, 16), Rectangle(80, 16), Rectangle(96, LARGE))
    graph = Graph((), pieces(*rectangles), ())
    assert continues(graph, download(1, -1, 0, [5], True, -9), second) == joined
    assert continues(graph, upload(1, -1, 0, (), False, -9), upload(2, -3, 0, (), False, -9))


def test_large_results_that_nobody_else_reads_are_one_transfer() -> None:
    """Others stay apart: a device gets one piece while the next one leaves another device."""
    buffers = pieces(Rectangle(0, LARGE), Rectangle(LARGE, LARGE))
    keys = tuple(map(BufferKey, buffers))

    def node(name: str, reads: tuple[BufferKey, ...], writes: tuple[BufferKey, ...] = ()) -> HostTask:
        return HostTask(name, print, (), reads, writes)

    def joined(*nodes: HostTask) -> bool:
        graph = Graph(nodes, buffers, tuple([()] * len(nodes)))
        return continues(graph, download(1, -1, 0, [0], True), download(2, -2, 0, [0], True))

    results = ResultTask("results", print, (), keys, ())
    written, read = node("write", (), keys), node("read", keys[:1])
    assert joined(written, results)
    assert joined(read, written, results), "it was read before"
    assert not joined(written, read, results)
    assert not joined(written, read), "nobody asks for it"


def test_handovers_are_read_from_transfers() -> None:
    builder = GraphBuilder()
    a, b = builder.buffer(100), builder.buffer(10)
    told: Any = SimpleNamespace(times=lambda event: event)  # events are when they began and ended
    record = RunRecord(builder.build(), WHERE, [told, told], 10.0)
    record.offsets = [0.0, 0.0]
    record.transfers = [
        Transferred((a,), 1, HOST, 2, [(12.5, 13.0)], 0),  # it had come from the other device at 12
        Transferred((a,), 0, 1, HOST, [(11.0, 12.0)], 0),
        Transferred((b,), 1, HOST, 2, [(11.5, 11.6)], 0, 4),  # it was on the host before
        Transferred((b,), 1, 2, 2, [(11.6, 11.7)], 0),  # within the device
    ]
    assert list(record.handovers()) == [pytest.approx(0.5)]
    assert sorted(record.moved()) == [
        (0, False, 100, pytest.approx(1.0)),
        (1, True, 4, pytest.approx(0.1)),
        (1, True, 100, pytest.approx(0.5)),
    ]
