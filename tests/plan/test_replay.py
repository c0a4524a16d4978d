"""What a replay of a plan shows: its kernels and moves, with the times that estimates and disturbances give them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from plan_cases import chains, launch, machine, problem

from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import HostTask
from manycl.machine import HOST
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.disturbance import Disturbance
from manycl.run.replay import replay
from manycl.run.simulate import plan_with


def plan_of(places: list[tuple[int, int, int]], names: tuple[str, ...]) -> Plan:
    return Plan(tuple(Assignment(n, d, q, 0.0, 1.0) for n, d, q in places), "given", names, 0.0)


def names(p: Problem) -> tuple[str, ...]:
    return tuple(d.name for d in p.machine.devices)


def test_noise_is_a_node_s_wherever_it_stands_in_the_plan() -> None:
    p = problem(chains(6, 1), [1.0, 2.0], machine((HOST, HOST)))
    order = random.Random(1).sample(range(6), 6)
    by = Disturbance(noise=0.2, seed=7)
    trace = replay(p, plan_of([(n, n % 2, 0) for n in order], names(p)), disturbance=by)
    taken = {e.node: e.end - e.start for e in trace.kernels()}
    assert taken == pytest.approx({n: by.noisy(n, n % 2, 1.0 + n % 2) for n in range(6)})
    plain = replay(p, plan_of([(n, n % 2, 0) for n in order], names(p)))
    assert {e.node: e.end - e.start for e in plain.kernels()} == pytest.approx({n: 1.0 + n % 2 for n in range(6)})
    assert [e.component for e in plain.kernels()] == [-1] * 6, "none was declared"


def test_moves_are_shown_as_they_were_planned() -> None:
    valid = {key: frozenset({HOST}) for key in range(3)}
    p = problem(chains(3, 2), [[1.0, 1.5]] * 6, machine((1, 2)), latency=0.25, valid=valid)
    plan = plan_with("cpop", p)
    trace = replay(p, plan)
    own = {HOST: "host", **{d.memory: d.name for d in p.machine.devices}}
    shown = sorted((e.buffer, e.source, e.target, e.nbytes, e.start, e.end) for e in trace.transfers())
    wanted = sorted((m.buffer, own[m.source], own[m.target], m.nbytes, m.start, m.end) for m in plan.moves)
    assert wanted
    assert shown == wanted
    assert trace.makespan == pytest.approx(plan.makespan)
    assert (trace.kind, trace.policy, trace.devices) == ("simulation", plan.policy, names(p))
    assert trace.edges == p.graph.edges


def test_host_functions_take_what_they_are_said_to() -> None:
    builder = GraphBuilder()
    a = builder.buffer(4)
    builder.add(HostTask("first", print, (), (), (a,)))
    builder.add(launch("then", (a,), ()))
    p = problem(builder.build(), [[0.0], [1.0]], machine((HOST,)))
    trace = replay(p, plan_of([(0, ON_HOST, 0), (1, 0, 0)], names(p)), host_seconds={0: 2.5})
    assert [(e.node, e.start, e.end) for e in trace.kernels()] == [(1, 2.5, 3.5)]
    assert trace.makespan == 3.5


def test_a_plan_that_waits_for_itself_is_refused() -> None:
    p = problem(chains(1, 2), [1.0], machine((HOST,)))
    with pytest.raises(PolicyError, match="the plan of given waits for itself: 2 commands never start"):
        replay(p, plan_of([(1, 0, 0), (0, 0, 0)], names(p)))
    with pytest.raises(PolicyError, match="replayed without faults"):
        replay(p, plan_of([(0, 0, 0), (1, 0, 0)], names(p)), disturbance=Disturbance(lost={0: 1.0}))


def test_beside_what_has_begun_on_a_device_nothing_new_starts() -> None:
    """It ends when it is said to, whatever the models, and noise, say; what is over is not done again."""
    p = problem(chains(4, 1), [1.0, 1.0], machine((HOST, HOST)), queues=(2, 2), not_before=2.0)
    over, runs = Assignment(0, 0, 0, 0.0, 1.5), Assignment(1, 0, 1, 1.0, 5.0)
    p = replace(p, fixed=(over, runs))
    plan = Plan((over, runs, Assignment(2, 0, 0, 5.0, 6.0), Assignment(3, 1, 0, 2.0, 3.0)), "given", names(p), 6.0)
    for by in (Disturbance(), Disturbance(noise=0.3)):
        trace = replay(p, plan, disturbance=by)
        spans = {e.node: (e.start, e.end) for e in trace.kernels()}
        assert spans[1] == (1.0, 5.0)
        assert 0 not in spans
        assert spans[2] == (5.0, pytest.approx(5.0 + by.noisy(2, 0, 1.0)))
        assert spans[3] == (2.0, pytest.approx(2.0 + by.noisy(3, 1, 1.0)))
    nothing = replace(p, graph=chains(1, 1), fixed=(Assignment(0, 0, 0, 0.0, 1.5),))
    assert replay(nothing, Plan(nothing.fixed, "given", names(p), 1.5)).makespan == 1.5
