"""The judge of plans: it passes what is right and names each fault that a plan can have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from manycl.analysis.facts import ArgumentFacts
from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import HostTask, Launch, LocalArg, Placement
from manycl.machine import HOST
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.verification.verify import verify
from tests.plan.plan_cases import launch, machine, problem


@pytest.fixture
def case() -> tuple[Plan, Problem]:
    """a on the CPU; b (prefers the GPU) and the host task c need its result."""
    builder = GraphBuilder()
    x = builder.buffer(4)
    builder.add(launch("a", (), (x,)))
    builder.add(launch("b", (x,), (), device="gpu"))
    builder.add(HostTask("c", print, (), (x,), ()))
    where = machine((HOST, 1))
    p = problem(builder.build(), [2.0, 3.0], where, latency=1.0, not_before=1.0)
    plan = Plan(
        (Assignment(0, 0, 0, 1.0, 3.0), Assignment(1, 1, 0, 4.0, 7.0), Assignment(2, ON_HOST, 0, 3.0, 3.5)),
        "by hand",
        ("cpu0", "gpu1"),
        7.0,
    )
    return plan, p


def check(plan: Plan, p: Problem) -> None:
    verify(plan, p.graph, p.machine, p)


def test_a_right_plan_passes(case: tuple[Plan, Problem]) -> None:
    check(*case)
    plan, p = case
    verify(plan, p.graph, p.machine)


Change = Callable[[list[Assignment]], object]


def put(index: int, **fields: object) -> Change:
    def change(a: list[Assignment]) -> None:
        a[index] = a[index]._replace(**fields)  # type: ignore[arg-type]

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a.pop(), r"node 2 \(c\) is assigned 0 times"),
        (lambda a: a.append(a[0]), r"node 0 \(a\) is assigned 2 times"),
        (lambda a: a.append(Assignment(9, 0, 0, 0, 0)), "node 9 does not exist"),
        (put(2, device=0), r"node 2 \(c\) is a host task but is assigned to device 0"),
        (put(0, device=2), r"node 0 \(a\) is assigned to device 2; there are 2"),
        (put(0, device=ON_HOST), r"node 0 \(a\) is assigned to device -1"),
        (put(0, queue=-1), r"node 0 \(a\) is assigned to queue -1"),
        (put(0, end=0.5), r"node 0 \(a\) starts at 1.0 and ends at 0.5"),
        (put(0, end=float("nan")), "ends at nan"),
        (put(0, queue=1), "node 0 is in queue 1 of cpu0, which has 1"),
        (lambda a: a.insert(0, a.pop()), "node 2 is dispatched before node 0"),
        (put(1, device=0, start=2.5, end=7.0), "on queue 0 of cpu0 node 1 starts before node 0 ends"),
        (put(2, start=2.0), "node 2 starts before node 0 ends"),
        (put(1, end=9.0), "the makespan is given as 7.0, but the last node ends at 9.0"),
        (put(0, start=0.0), "node 0 starts at 0.0, before 1.0"),
        (put(0, start=1.5), "node 0 takes 1.5 s, but is estimated at 2.0 s"),
        (put(1, start=3.5), "node 1 starts before buffer 0 of node 0 can have arrived"),
        (put(1, device=0), "node 1 prefers gpu, but is assigned to cpu0"),
    ],
)
def test_every_fault_is_named(case: tuple[Plan, Problem], change: Change, words: str) -> None:
    plan, p = case
    assignments = list(plan.assignments)
    change(assignments)
    with pytest.raises(PolicyError, match=words):
        check(replace(plan, assignments=tuple(assignments)), p)


ONLY_CPU, NEVER_ALL = Placement(only="cpu"), Placement(never=["cpu", "gpu1"])


@pytest.mark.parametrize(
    ("limits", "lacks", "words"),
    [
        (ONLY_CPU, {}, "node 1 is on gpu1, which is excluded by only cpu"),
        (NEVER_ALL, {}, "node 1 is on gpu1, which is excluded by never cpu, gpu1"),
        (Placement(at_most=1), {}, ""),
        ("", {"double": False}, "node 1 needs double precision, which gpu1 lacks"),
        ("", {"lacks": "images"}, "node 1 needs images, which gpu1 lacks"),
        ("", {"lacks": "cl_khr_fp16"}, "node 1 needs extensions, which gpu1 lacks"),
        ("", {"max_work_group": 63}, "node 1 needs work-groups so large, which gpu1 lacks"),
        ("", {"local_memory": 23}, "node 1 needs so much local memory, which gpu1 lacks"),
        ("", {"max_work_group": 64, "local_memory": 24}, ""),
    ],
)
def test_what_a_device_cannot_or_may_not_run(
    case: tuple[Plan, Problem], limits: str | Placement, lacks: dict[str, Any], words: str
) -> None:
    plan, p = case
    cpu, gpu = p.machine.devices
    image = ArgumentFacts(0, "i", "image", "", "", 1, 0, "global")
    task = p.graph.nodes[1]
    assert isinstance(task, Launch)
    kernel = replace(task.kernel, uses_double=True, extensions=("cl_khr_fp16",), local_bytes=8, arguments=(image,))
    able = replace(task, kernel=kernel, local_size=(8, 8), global_size=(8, 8), args=(LocalArg(16),), device=limits)
    graph = replace(p.graph, nodes=(p.graph.nodes[0], able, p.graph.nodes[2]))
    problem = replace(p, graph=graph, machine=replace(p.machine, devices=(cpu, replace(gpu, **lacks))))
    if not words:
        check(plan, problem)
        problem.check_given(plan)
        return
    with pytest.raises(PolicyError, match=words):
        check(plan, problem)
    with pytest.raises(PolicyError, match=r"the plan has b on gpu1, which (is excluded|cannot have)"):
        problem.check_given(plan)


def test_all_faults_are_listed(case: tuple[Plan, Problem]) -> None:
    plan, p = case
    bad = replace(plan, assignments=(plan.assignments[0],), devices=("cpu0",))
    with pytest.raises(PolicyError) as caught:
        check(bad, p)
    assert str(caught.value).count("\n  - ") == 3


def test_preferences_can_be_left_out(case: tuple[Plan, Problem]) -> None:
    plan, p = case
    a, b, c = plan.assignments
    eager = replace(plan, assignments=(a, b._replace(device=0), c))
    verify(eager, p.graph, p.machine, p, preferences=False)


def test_initial_contents_must_arrive() -> None:
    builder = GraphBuilder()
    x = builder.buffer(4)
    builder.add(launch("a", (x,), ()))
    p = problem(builder.build(), [1.0], machine((1,)), latency=1.0, valid={x: frozenset({HOST})})
    plan = Plan((Assignment(0, 0, 0, 1.0, 2.0),), "by hand", ("gpu0",), 2.0)
    check(plan, p)
    with pytest.raises(PolicyError, match="node 0 starts before buffer 0 can have arrived"):
        check(replace(plan, assignments=(Assignment(0, 0, 0, 0.5, 2.0),)), p)


def test_a_plan_survives_json(case: tuple[Plan, Problem]) -> None:
    plan, _ = case
    assert Plan.from_json(plan.to_json()) == plan
    for text in ("", "[]", "{}", '{"format": 2}', '{"format": 2, "assignments": [1]}'):
        with pytest.raises(PolicyError, match="not a plan"):
            Plan.from_json(text)
