"""What looks complete after a failure, and is not; and what a lost process had begun."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import manycl as mc
from manycl.graph.copies import copy_task, fill_task
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Buffer, HostTask
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.commands.backend import Copy, Done, Run
from manycl.run.commands.compiler import compiled
from manycl.run.commands.transfers import Subject
from manycl.run.data.coherence import Directory
from manycl.run.engine.playback import Playback, where
from manycl.run.executor.run_state import RunState
from manycl.run.lowering.steps import Lowered
from manycl.run.recovery.history import Stopped
from tests.run.chaos.chaos_parts import download, is_download, upload
from tests.run.chaos.test_state import Unit, launch, machine


def test_a_download_is_complete_when_it_is_reported_itself() -> None:
    """A direct download may overtake a staged one of the same device."""
    builder = GraphBuilder()
    a, b = builder.buffer(4), builder.buffer(4)
    for reads, writes in (((), (a,)), ((), (b,)), ((a,), ()), ((b,), ())):
        builder.add(launch("k", reads, writes))
    graph = builder.build()
    where = machine([1, 2])
    places = [(0, 0), (0, 0), (1, 0), (1, 1)]
    plan = Plan(tuple(Assignment(n, *p, 0.0, 0.0) for n, p in enumerate(places)), "", ("d0", "d1"), 0.0)
    directory = Directory()
    problem, lowered = Problem(graph, where, Unit(), (1, 2)), Lowered(graph)
    state = Playback(compiled(Subject(problem, lowered, directory.valid), plan), directory)
    started = state.start(0.0)
    assert [c.token for c in started if isinstance(c, Run)] == [0, 1]
    downloads = [c for c in started if is_download(c)]  # behind what they wait for on their device
    assert {(c.buffer, *c.after) for c in downloads} == {(a, 0), (b, 1)}
    token = {c.buffer: c.token for c in downloads}
    assert state.handle(Done(1, 1.0)) == []
    second = state.handle(Done(token[b], 2.0))
    assert [type(c) for c in second] == [Copy, Run]
    assert second[-1].token == 3
    first = state.handle(Done(token[a], 3.0))
    assert [type(c) for c in first] == [Copy, Run]
    assert first[-1].token == 2


def test_messages_say_what_a_command_is() -> None:
    builder, buffers = GraphBuilder(), [Buffer(key, 16, name) for key, name in enumerate("ab")]
    for buffer in buffers:
        builder.adopt(buffer)
    for task in (
        copy_task(*buffers),
        copy_task(*buffers, name="shifted"),
        fill_task(buffers[0], b"x"),
        HostTask("looks", print, (), (0,), ()),
        launch("k", (0,), (1,)),
        launch("other", (0,), (1,)),
    ):
        builder.add(task)
    graph = builder.build()
    assert [where(graph, 0, n, 7 + n)[2] for n in range(len(graph) + 1)] == [
        "copy (node 7)",
        "copy shifted (node 8)",
        "fill (node 9)",
        "host function looks (node 10)",
        "kernel k (node 11)",
        "kernel k (other, node 12)",
        "a transfer",
    ]


TRANSFERS: list[tuple[list[Any], set[int]]] = [  # and the tokens of those that may have begun, if that of token 9 has
    ([upload(7, 0, 0, (), False), upload(8, 1, 0, (), False), upload(9, 2, 0, (), False)], {7, 8, 9}),
    ([upload(9, 0, 0, (), False), upload(8, 1, 0, (), False)], {9}),
    ([upload(8, 0, 1, (), False), upload(9, 1, 0, (), False)], {9}),
    ([upload(7, 0, 0, (), False), download(8, 1, 0, (), False), upload(9, 2, 0, (), False)], {9}),
    ([upload(8, 0, 0, (), False), Run(0, 0, 0, (), False), upload(9, 1, 0, (), False)], {9}),
    ([download(8, 0, 0, (), False), download(9, 1, 0, (), False), Run(0, 0, 0, (), False)], {8, 9}),
]


@pytest.mark.parametrize(("given", "begun"), TRANSFERS)
def test_transfers_right_before_one_that_has_begun_may_be_a_part_of_it(given: list[Any], begun: set[int]) -> None:
    """Drivers make one of those of a kind that follow one another."""
    stopped = Stopped(ended=set(), begun={9})
    judged = list(stopped.judged([(command, False) for command in given]))
    assert {command.token for command, _ in judged} == begun
    assert not any(is_complete for _, is_complete in judged)


@pytest.mark.parametrize(
    ("is_lost", "tells", "begun", "complete", "undone"),
    [
        (True, True, {0}, set(), [0]),
        (True, True, {0, 1}, {0}, [1]),
        (True, True, {0, 1}, set(), []),  # either may have changed what the other's copy holds
        (True, True, {0}, {0}, []),
        (True, True, set(), set(), []),
        (False, True, {0}, set(), []),
        (True, False, {0}, set(), []),  # whatever it says
    ],
)
def test_what_a_lost_process_had_begun_alone_is_undone(
    is_lost: bool, tells: bool, begun: set[int], complete: set[int], undone: list[int]
) -> None:
    """Of two commands in one queue, of which both have copies of what they may change."""
    driver = SimpleNamespace(tells_when_lost=tells, succeeded=lambda events: complete.issuperset(events))
    lanes: Any = SimpleNamespace(is_lost=is_lost, driver=driver)
    copies: list[Any] = [object(), object()]
    run = RunState(1, GraphBuilder().build(), machine([1]), [lanes], False)
    for token, copy in enumerate(copies):
        run.record.kernels.append((token, 0, 0, token))
        run.undo(token, copy)
    assert list(run.undone(begun)) == [(token, copies[token]) for token in undone]


def test_a_device_is_lost_as_long_as_it_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with mc.Queue("native") as queue:
        backend = queue.session.backend
        (lanes,) = backend.lanes
        for said in ("gone", ""):
            monkeypatch.setattr(lanes, "probe", lambda said=said: said)
            assert backend.lost(0) == said
            assert lanes.is_lost == bool(said)
