"""What the engine tells of a run: to whoever debugs it, to models that learn, and when it fails."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import replace
from typing import Any

import pytest

from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import HostTask
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.data.coherence import Directory
from manycl.run.engine.engine import RunFailure, again, execute
from manycl.run.engine.observers import Counting, debugging
from manycl.run.engine.result import TYPICAL, Measured, Result
from manycl.run.lowering.steps import RANGE, Lowered, Room, Step
from manycl.run.simulation.disturbance import Disturbance
from manycl.run.simulation.simulator import SimBackend
from manycl.trace import DecisionEvent, FailureEvent
from tests.run.chaos.chaos import ChaosBackend
from tests.run.chaos.chaos_parts import ChaosRecord
from tests.run.chaos.test_state import Anyhow, Unit, launch, machine

WHERE = machine([1, 2])


def handed_on() -> Problem:
    """A launch, another one elsewhere that reads what it made, and a host function that looks at the end."""
    builder = GraphBuilder()
    a, b = builder.buffer(4), builder.buffer(4)
    builder.add(launch("makes", (), (a,)))
    builder.add(launch("reads", (a,), (b,)))
    builder.add(HostTask("looks", print, (), (b,), ()))
    return Problem(builder.build(), WHERE, Unit(), (1, 1))


PLAN = Plan(tuple(Assignment(n, d, 0, 0.0, 0.0) for n, d in enumerate((0, 1, ON_HOST))), "given", ("d0", "d1"), 0.0)


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines for people, without the times, which grow."""
    lines = capsys.readouterr().err.splitlines()
    found = [re.fullmatch(r"manycl +(\d+\.\d{3}) ms: (.*)", line) for line in lines]
    times = [float(m[1]) for m in found if m]
    assert len(times) == len(lines)
    assert times == sorted(times)
    return [m[2] for m in found if m]


@pytest.mark.parametrize("level", range(5))
def test_each_level_of_debugging_says_more(level: int, capsys: pytest.CaptureFixture[str]) -> None:
    execute(handed_on(), PLAN, SimBackend(WHERE, Unit()), Directory(), name="a name", observers=debugging(level))
    lines = said(capsys)
    if not level:
        assert not lines
        return
    assert (lines[0], lines[-1]) == ("run of 3 steps by a name, queues (1, 1)", "complete: 3 steps")
    between = lines[1:-1]
    if level == 1:
        assert not between
    elif level == 2:
        assert between == ["makes (node 0) on d0 queue 0", "reads (node 1) on d1 queue 0"]
    else:
        kinds = [line.partition("(")[0] for line in between]
        assert [k for k in kinds if k != "Done"] == ["Run", "Copy", "Copy", "Run", "Copy", "HostCall"]
        assert (kinds.count("Done") >= 3) == (level == 4)


def test_a_failure_is_said_and_a_repetition_too(capsys: pytest.CaptureFixture[str]) -> None:
    directory = Directory()
    command_graph = execute(
        handed_on(), PLAN, SimBackend(WHERE, Unit()), directory, observers=debugging(1)
    ).command_graph
    assert command_graph is not None
    assert said(capsys)[0] == "run of 3 steps by a plan, queues (1, 1)"
    assert again(command_graph, SimBackend(WHERE, Unit()), Directory(), observers=debugging(1)) is not None
    assert said(capsys) == ["run of 3 steps by given, queues (1, 1)", "complete: 3 steps"]
    broken = SimBackend(WHERE, Unit(), disturbance=Disturbance(failing={1: "worn out"}))
    with pytest.raises(RunFailure):
        execute(handed_on(), PLAN, broken, Directory(), observers=debugging(1))
    assert said(capsys)[-1] == "failed: 1 steps"
    execute(handed_on(), PLAN, SimBackend(WHERE, Unit()), Directory())
    assert not said(capsys)


def test_progress_is_told_in_nodes() -> None:
    told: list[int] = []
    execute(handed_on(), PLAN, SimBackend(WHERE, Unit()), Directory(), observers=(Counting(told.append),))
    assert told == sorted(told)
    assert (told[0], told[-1]) == (1, 3)


def test_what_all_commands_were_is_known_where_all_could_be_given_at_once() -> None:
    problem = handed_on()
    whole = replace(PLAN, assignments=tuple(a._replace(device=0) for a in PLAN.assignments[:2]) + PLAN.assignments[2:])
    held = execute(problem, PLAN, SimBackend(WHERE, Unit()), Directory()).command_graph
    assert held is not None
    assert held.waits
    builder = GraphBuilder()
    builder.add(launch("alone", (), (builder.buffer(4),)))
    alone = Problem(builder.build(), WHERE, Unit(), (1, 1))
    result = execute(alone, replace(PLAN, assignments=whole.assignments[:1]), SimBackend(WHERE, Unit()), Directory())
    assert result.command_graph is not None
    assert not result.command_graph.waits
    assert [c.token for c in result.command_graph.commands] == [0]  # type: ignore[union-attr]


def test_what_a_dynamic_policy_has_decided_is_a_plan() -> None:
    problem = handed_on()
    result = execute(problem, Anyhow([1]), SimBackend(WHERE, Unit()), Directory(), name="anyhow")
    assert result.plan is not None
    assert (result.plan.policy, result.plan.devices, result.plan.makespan) == ("anyhow", ("d0", "d1"), 0.0)
    assert [a.node for a in result.plan.assignments] == [0, 1, 2]
    assert result.plan.assignments[2] == Assignment(2, ON_HOST, 0, 0.0, 0.0)
    assert not any(a.start or a.end for a in result.plan.assignments), "nobody has planned when they end"
    assert [d for d in result.trace.events if isinstance(d, DecisionEvent)] == list(result.decisions)
    assert [d.nodes for d in result.decisions] == [(0,), (1,)]
    then = execute(problem, result.plan, SimBackend(WHERE, Unit()), Directory())
    assert list(then.trace.kernels()) == list(result.trace.kernels())


def test_a_failure_tells_its_story() -> None:
    problem = handed_on()
    broken = SimBackend(WHERE, Unit(), disturbance=Disturbance(failing={1: "worn out"}))
    directory = Directory()
    with pytest.raises(RunFailure) as caught:
        execute(problem, PLAN, broken, directory)
    assert caught.value.message == (
        "kernel k (reads, node 1) failed on d1 with NDRange (1,), work-groups chosen by the driver: worn out\n"
        "  done before: 1 of 3 nodes (1 kernels ended on the devices)"
    )
    failure = caught.value.trace.events[-1]
    assert isinstance(failure, FailureEvent)
    assert (failure.node, failure.device, failure.message) == (1, "d1", "worn out")
    with pytest.raises(RunFailure, match=r"host function looks \(node 2\) failed on host: no more\n"):
        execute(problem, PLAN, SimBackend(WHERE, Unit(), disturbance=Disturbance(failing={2: "no more"})), Directory())


class Ran(ChaosRecord):
    """A record of given seconds: (token, device, seconds)."""

    def __init__(self, ran: list[tuple[int, int, float]]) -> None:
        super().__init__()
        self._ran = ran

    def durations(self, nodes: Set[int] | None = None) -> Any:
        return (each for each in self._ran if nodes is None or each[0] in nodes)


def of_ranges(sizes: list[int], room: bool) -> tuple[Result, list[int]]:
    """A launch in ranges of these many groups, and another one as a whole, with something beside them."""
    builder = GraphBuilder()
    a = builder.buffer(4)
    steps = [Step(0, RANGE, 0, 10 * i, size) for i, size in enumerate(sizes)]
    steps += [Step(0, "merge"), Step(1)]
    for i in range(len(steps)):
        builder.add(launch(f"step{i}", (), (a,)))
    low = builder.build()
    graph = replace(low, nodes=low.nodes[:2], predecessors=((), (0,)))
    limits = Room({}, {}, (), {}) if room else None
    lowered = Lowered(low, steps=tuple(steps), room=limits)
    ran = [(i, i % 2, 1.0 + i) for i in range(len(steps))]
    return Result(graph, WHERE, "p", 1.0, Ran(ran), lowered=lowered), [n for n, _, _ in ran]


def test_models_learn_from_launches_and_ranges_and_of_many_from_a_few_that_are_alike() -> None:
    sizes = [8, 8, 8, 8, 3, 8, 8, 8, 8, 5, 8, 8, 8]
    result, _ = of_ranges(sizes, room=False)
    graph, samples = result.samples()
    tokens = [t for t, _, _ in samples]
    assert tokens == [*range(len(sizes)), len(sizes) + 1], "all but what puts them together"
    assert len(graph) == len(sizes) + 2
    result, _ = of_ranges(sizes, room=True)
    found = list(result.samples()[1])
    for device in range(2):
        mine = [t for t, d, _ in found if d == device and t < len(sizes)]
        assert mine == [t for t in range(len(sizes)) if t % 2 == device and sizes[t] == 8][:TYPICAL]
    assert found[-1] == (len(sizes) + 1, (len(sizes) + 1) % 2, 2.0 + len(sizes))
    ranges = result.ranges(0)
    assert [m.step.first for m in ranges] == [10 * i for i in range(len(sizes))]
    assert ranges[1] == Measured(Step(0, RANGE, 0, 10, 8), 1, 2.0)
    assert not result.ranges(1)


def test_of_nodes_that_ran_as_they_are_everything_is_learned() -> None:
    problem = handed_on()
    backend = SimBackend(WHERE, Unit())
    result = execute(problem, PLAN, backend, Directory())
    graph, samples = result.samples()
    assert graph is problem.graph
    assert list(samples) == [(0, 0, 1.0), (1, 1, 1.0)]
    assert list(result.measured()) == [Measured(Step(0), 0, 1.0), Measured(Step(1), 1, 1.0)]


def test_a_copy_that_nobody_waited_for_fails_the_run() -> None:
    """What failed first is told, and what was written after it is not trusted."""
    problem = handed_on()
    backend = ChaosBackend(WHERE, 0, fail=[0])
    directory = Directory()
    with pytest.raises(RunFailure, match="makes, node 0"):
        execute(problem, PLAN, backend, directory)
    assert not directory.valid


def test_without_times_nothing_is_foreseen_and_with_them_it_is_told() -> None:
    assert "planned" not in execute(handed_on(), PLAN, SimBackend(WHERE, Unit()), Directory()).trace.details
    times = tuple(a._replace(start=float(n), end=n + 1.5) for n, a in enumerate(PLAN.assignments))
    plan = replace(PLAN, assignments=times, makespan=7.0)
    told = execute(handed_on(), plan, SimBackend(WHERE, Unit()), Directory()).trace.details["planned"]
    assert told == {"makespan": 7.0, "seconds": [[0, 1.5], [1, 1.5]], "computing": 2.5}
