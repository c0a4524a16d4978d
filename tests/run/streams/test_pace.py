"""How far ahead of a device commands are enqueued."""

from __future__ import annotations

from dataclasses import replace
from random import SystemRandom
from types import SimpleNamespace
from typing import Any

import pytest

from manycl.graph.dependences import GraphBuilder
from manycl.machine import HOST, DeviceIndex
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.commands.backend import Done, Run
from manycl.run.commands.compiler import compiled
from manycl.run.commands.flow_control import AHEAD, EXPECTANT, PARTS
from manycl.run.commands.transfers import Subject
from manycl.run.data.coherence import Directory
from manycl.run.engine.playback import Playback
from manycl.run.lowering.steps import Lowered
from manycl.run.streams import stream_state
from manycl.run.streams.stream_state import InFlight
from tests.run.chaos.test_state import Unit, launch, machine


def state(seconds: list[float], queues: int = 1, own: bool = False, away: bool = False) -> Playback:
    """Launches that take so long, in turn in some queues of one device."""
    builder = GraphBuilder()
    for n in range(len(seconds)):
        builder.add(launch(f"n{n}", (), (builder.buffer(4),)))
    ranges = tuple(Assignment(n, 0, n % queues, 0.0, s) for n, s in enumerate(seconds))
    problem = Problem(builder.build(), machine([1 if own else HOST]), Unit(), (queues,))
    if away:
        problem = replace(problem, away=frozenset({0}))
    plan, lowered = Plan(ranges, "one", ("d0",), sum(seconds)), Lowered(problem.graph)
    return Playback(compiled(Subject(problem, lowered, Directory().valid), plan), Directory())


def enqueued(seconds: list[float], queues: int = 1, own: bool = False, away: bool = False) -> list[float]:
    """Follow a run of which nothing is reported before all that was enqueued has ended: the most seconds that a queue
    had, when it was given another launch, each time."""
    run, most, batch = state(seconds, queues, own, away), list[float](), list[Run]()
    commands = [c for c in run.start(0.0) if isinstance(c, Run)]
    while not run.finished:
        batch = commands
        for queue in range(queues):
            given = [seconds[c.token] for c in batch if c.queue == queue]
            most.append(sum(given[:-1]))
        reports = [Done(c.token, 0.0) for c in batch if c.notify]
        assert reports, "nothing is under way that would be reported"
        commands = [c for c in run.handle(*reports) if isinstance(c, Run)]
        run.validate()
    return most


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("queues", [1, 3])
def test_a_queue_is_given_a_second_of_work_at_most(queues: int, own: bool) -> None:
    r = SystemRandom()
    for longest in (0.01, 0.3, 2.0):
        seconds = [r.random() * longest for _ in range(200)]
        assert max(enqueued(seconds, queues, own)) <= AHEAD, seconds


def test_a_queue_is_given_less_where_a_device_may_come() -> None:
    seconds = [SystemRandom().random() * EXPECTANT for _ in range(200)]
    assert 0.0 < max(enqueued(seconds, away=True)) <= EXPECTANT * (1 + 1 / PARTS), seconds


@pytest.mark.parametrize("away", [False, True])
def test_a_queue_has_a_launch_behind_the_one_that_runs(away: bool) -> None:
    """Or it would be idle until the end of the one that runs is heard of; also of launches that take longer than what
    queues are given ahead, and of unlike ones."""
    r = SystemRandom()
    for longest in (0.02, 0.2, AHEAD * (1 - 1 / PARTS)):
        seconds = [r.choice([0.1, 1.0]) * r.random() * longest for _ in range(200)]
        run = state(seconds, away=away)
        given = [c for c in run.start(0.0) if isinstance(c, Run)]
        for ending in range(len(seconds)):
            assert len(given) >= min(ending + 2, len(seconds)), (ending, seconds)
            if given[ending].notify:
                given += [c for c in run.handle(Done(given[ending].token, 0.0)) if isinstance(c, Run)]
        assert run.finished


def test_of_long_launches_a_queue_has_one_behind_the_one_that_runs_and_no_more() -> None:
    for seconds in (EXPECTANT, 0.3, AHEAD):
        assert len(state([seconds] * 9, away=True).start(0.0)) == 2
    assert len(state([1.5 * AHEAD] * 9, away=True).start(0.0)) == 1


def test_short_launches_are_enqueued_at_once_and_one_is_reported() -> None:
    run = state([1e-5] * 1000)
    commands = run.start(0.0)
    assert len(commands) == 1000
    assert [c.token for c in commands if isinstance(c, Run) and c.notify] == [999]


def test_as_much_is_enqueued_as_makes_a_second() -> None:
    assert len(state([5.0, 5.0, 5.0]).start(0.0)) == 1
    assert len(state([0.6, 0.6, 0.6]).start(0.0)) == 2


def test_a_queue_whose_work_is_as_long_as_it_may_be_is_not_full() -> None:
    assert len(state([AHEAD / 2] * 4).start(0.0)) == 3


@pytest.mark.parametrize("longest", [0.001, 0.1, 0.7])
def test_an_eager_stream_is_ahead_of_its_device_by_a_second_at_most(
    longest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the command given last; and it waits only for what leaves the device something to do."""
    r, given, ended = SystemRandom(), [0.0], [0]

    def waited(run: Any, device: int, event: int) -> None:
        assert event > ended[0]
        ended[0] = event
        assert given[-1] - given[event] > AHEAD * (1 - 1 / PARTS) - longest

    monkeypatch.setattr(stream_state, "wait_for", waited)
    driver = SimpleNamespace(done=lambda event: event <= ended[0])
    lanes: Any = SimpleNamespace(queues=[None], driver=driver, flush=lambda queue: None)
    stream = InFlight(DeviceIndex(0), lanes, SimpleNamespace(record=None))  # type: ignore[arg-type]
    for number in range(1, 1000):
        assert given[-1] - given[ended[0]] <= AHEAD * (1 + 1e-9)
        seconds = r.random() * longest
        given.append(given[-1] + seconds)
        stream.given.append((None, None, number))  # type: ignore[arg-type]
        stream.count(seconds)
    assert ended[0] or given[-1] <= AHEAD
