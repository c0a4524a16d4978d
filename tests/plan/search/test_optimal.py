"""CP-SAT's plans: as short as trying everything, never beaten by what the engine does, honest about what is proven."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.machine import HOST
from manycl.plan.plan import Assignment
from manycl.plan.problem import Problem
from manycl.plan.search.insertion import setting
from manycl.plan.verification.verify import verify
from manycl.run.commands import emit
from manycl.run.simulation.simulate import simulate
from tests.plan.plan_cases import begun, chains, estimated, launch, machine, problem, problems
from tests.plan.search.classic_graphs import ARABNEJAD, ARABNEJAD_EDGES, TOPCUOGLU, TOPCUOGLU_EDGES, classic
from tests.plan.split_cases import split_problems

pytest.importorskip("ortools")


def test_the_papers_examples() -> None:
    heft = estimated("optimal", classic(TOPCUOGLU, TOPCUOGLU_EDGES, {"contention": "no"}))
    peft = estimated("optimal", classic(ARABNEJAD, ARABNEJAD_EDGES, {"contention": "no"}))
    assert (heft.details["proven"], peft.details["proven"]) == (True, True)
    assert (heft.makespan, peft.makespan) == (73, 113)  # the papers: 80 and 122
    assert 73 * (1 - 1e-5) < heft.details["bound"] <= 73


def orders(before: list[tuple[int, ...]], done: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Every topological order."""
    if len(done) == len(before):
        yield done
    for node, needed in enumerate(before):
        if node not in done and set(needed) <= set(done):
            yield from orders(before, (*done, node))


def shortest(seconds: list[list[int]], edges: dict[tuple[int, int], int]) -> int:
    """The makespan of the best schedule with transfers that never meet: everything is tried."""
    before = [tuple(a for a, b in edges if b == n) for n in range(len(seconds))]
    best = sum(map(max, seconds)) + sum(edges.values())
    for where in product(range(len(seconds[0])), repeat=len(seconds)):
        for order in orders(before):
            free = [0] * len(seconds[0])
            end: dict[int, int] = {}
            for n in order:
                arrive = [end[p] + (edges[p, n] if where[p] != where[n] else 0) for p in before[n]]
                end[n] = free[where[n]] = max([free[where[n]], *arrive]) + seconds[n][where[n]]
            best = min(best, max(end.values()))
    return best


@st.composite
def small(draw: Any) -> tuple[list[list[int]], dict[tuple[int, int], int]]:
    count = draw(st.integers(2, 5))
    seconds = [[draw(st.integers(1, 9)) for _ in range(2)] for _ in range(count)]
    edges = {(a, b): draw(st.integers(1, 9)) for b in range(count) for a in range(b) if draw(st.booleans())}
    return seconds, edges


@settings(max_examples=30, deadline=None)
@given(case=small())
def test_as_short_as_trying_everything(case: tuple[list[list[int]], dict[tuple[int, int], int]]) -> None:
    p = classic(*case, {"contention": "no"})
    plan = estimated("optimal", p)
    verify(plan, p.graph, p.machine, p)
    assert plan.details["proven"]
    assert plan.makespan == pytest.approx(shortest(*case), rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(case=small().filter(lambda case: len(case[0]) < 4))
def test_local_search_of_few_kernels_ends_soon_and_is_as_short(
    case: tuple[list[list[int]], dict[tuple[int, int], int]],
) -> None:
    """Two devices, three kernels: at most 48 schedules, where 1,000 tries without gain would place 6,000 nodes."""
    plan = estimated("portfolio", classic(*case, {"contention": "no"}))
    assert plan.makespan == pytest.approx(shortest(*case), rel=1e-6)
    assert plan.details["placed"] < 3000


@settings(max_examples=25, deadline=None, derandomize=True)  # its searches have little effort
@given(p=st.one_of(problems(), split_problems(whole=True)))
def test_nothing_that_the_engine_does_is_shorter(p: Problem) -> None:
    """Judged by the simulated engine, which knows nothing of the model, by itself and along other plans."""
    p = replace(p, queues=(1,) * len(p.queues), options={"effort": "0.2"})
    plan = estimated("optimal", p)
    verify(plan, p.graph, p.machine, p)
    assert plan.details["gap"] >= 0
    assert plan.details["gap"] < 1e-4 or not plan.details["proven"]
    assert plan.details["proven"] or plan.details["status"] in ("feasible", "unknown")  # the model leaves nothing out
    least = plan.details["bound"] * (1 - 1e-9)
    free = replace(p, options={})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(emit, "SMALL", 0)  # all transfers by links, as in the model
        for name in ("in_order", "auto", "peft", "cpop", "mkmd_coarse"):
            other = estimated(name, free)
            if not shared_memories(p):  # where the engine does not yet know whose transfer a memory waits for
                assert simulate(free, other).makespan >= least
        if not shared_memories(p):
            assert simulate(free, "heft").makespan >= least
    assert plan.makespan <= estimated("portfolio", free).makespan * (1 + 1e-12)


def shared_memories(p: Problem) -> bool:
    own = [d.memory for d in p.machine.devices if d.memory != HOST]
    return len(own) > len(set(own))


def shortest_with_transfers(p: Problem) -> float:
    """The makespan of the best schedule of a graph for two devices, the second one with a memory of its own, where
    every node reads what one other wrote or the host holds: all devices, orders and orders of transfers are tried."""
    seconds = [[p.estimates.launch(n, d) for d in (0, 1)] for n in range(len(p.graph))]
    moved = p.estimates.transfer(1, 0, 1)
    best = float("inf")
    for where in product((0, 1), repeat=len(seconds)):
        jobs = list(range(len(seconds)))
        waits: dict[Any, list[Any]] = {n: list(p.graph.predecessors[n]) for n in jobs}
        lane: dict[Any, str] = {n: f"device {where[n]}" for n in jobs}
        length: dict[Any, float] = {n: seconds[n][where[n]] for n in jobs}
        made: dict[int, int] = {}
        for n, task in enumerate(p.graph.nodes):
            for key in dict.fromkeys((*task.reads, *task.writes)):
                source = made.get(key, -1)
                if source < 0 and not p.valid.get(key):
                    continue
                here = where[source] if source >= 0 else 0
                if here != where[n]:
                    way = "up" if where[n] else "down"
                    copy = (way, key, source)
                    lane[copy], length[copy] = way, moved
                    waits[copy] = [source] if source >= 0 else []
                    waits[n].append(copy)
            for key in task.writes:
                made[key] = n
        for order in jobs_in_every_order(waits):
            end: dict[Any, float] = {}
            free: dict[str, float] = {}
            for job in order:
                known = [end[w] if lane_device(lane[w]) == lane_device(lane[job]) else end[w] + p.handover
                         for w in waits[job]]  # fmt: skip
                end[job] = free[lane[job]] = max([free.get(lane[job], 0.0), *known]) + length[job]
            best = min(best, max(end.values()))
    return best


def lane_device(lane: str) -> int:
    return 0 if lane == "device 0" else 1


def jobs_in_every_order(waits: dict[Any, list[Any]], done: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if len(done) == len(waits):
        yield done
    for job, before in waits.items():
        if job not in done and set(before) <= set(done):
            yield from jobs_in_every_order(waits, (*done, job))


@st.composite
def tiny(draw: Any) -> Problem:
    builder = GraphBuilder()
    buffers = [builder.buffer(1) for _ in range(3)]
    count = draw(st.integers(1, 4))
    for i in range(count):
        reads = (draw(st.sampled_from(buffers)),)
        builder.add(launch(f"n{i}", reads, (draw(st.sampled_from(buffers)),)))
    seconds = [[draw(st.integers(1, 6)) for _ in range(2)] for _ in range(count)]
    valid = {key: frozenset({HOST}) for key in buffers if draw(st.booleans())}
    handover = draw(st.sampled_from([0.0, 0.5]))
    where = machine((HOST, 1))
    return problem(builder.build(), seconds, where, latency=draw(st.integers(0, 4)), handover=handover, valid=valid)


@settings(max_examples=40, deadline=None)
@given(p=tiny())
def test_with_transfers_as_short_as_trying_everything(p: Problem) -> None:
    plan = estimated("optimal", p)
    assert plan.details["proven"]
    assert plan.makespan == pytest.approx(shortest_with_transfers(p), rel=1e-6)


@settings(max_examples=20, deadline=None)
@given(p=problems(), when=st.floats(0.0, 1.0))
def test_the_bound_of_what_is_left_is_one_too(p: Problem, when: float) -> None:
    p = replace(p, queues=(1,) * len(p.queues))
    first = estimated("mkmd_coarse", p)
    rest = begun(p, first, when * first.makespan)
    plan = estimated("optimal", replace(rest, options={"effort": "0.2"}))
    for name in ("auto", "cpop", "mkmd_coarse", "balance"):
        assert estimated(name, rest).makespan >= plan.details["bound"] * (1 - 1e-9)
    assert plan.makespan <= estimated("portfolio", rest).makespan * (1 + 1e-12)


def test_what_is_fixed_counts_as_it_was() -> None:
    """The first kernel took 1 s, not 5."""
    p = problem(chains(1, 2), [5.0, 7.0])
    later = replace(p, fixed=(Assignment(0, 0, 0, 0.0, 1.0),), not_before=1.0)
    assert setting(later, "optimal").bound() == 6.0
    assert estimated("optimal", replace(later)).makespan == pytest.approx(6.0)


def test_transfers_of_a_device_wait_for_each_other() -> None:
    """Two kernels whose data come from the host, 3 s each: on one device 3 + 3 + 1; a second one has its own link."""
    graph = chains(2, 1)
    valid = {key: frozenset({HOST}) for key in graph.buffers}
    one = problem(graph, [1.0], machine((1,)), latency=3.0, valid=valid)
    two = problem(graph, [1.0, 1.0], machine((1, 2)), latency=3.0, valid=valid)
    assert estimated("optimal", one).makespan == pytest.approx(7.0, rel=1e-6)
    assert estimated("optimal", two).makespan == pytest.approx(4.0, rel=1e-6)


def test_results_that_stay_where_they_are_cost_nothing() -> None:
    builder = GraphBuilder()
    x = builder.buffer(100)
    for name in ("a", "b", "c"):
        builder.add(launch(name, (x,), (x,)))
    p = problem(builder.build(), [[9.0, 1.0], [1.0, 2.0], [9.0, 1.0]], machine((1, 2)), latency=0.4)
    plan = estimated("optimal", p)
    assert [a.device for a in sorted(plan.assignments)] == [1, 1, 1]  # 4 s; b elsewhere: 3 and four transfers
    assert plan.makespan == pytest.approx(4.0)
    sooner = replace(p, estimates=replace_latency(p, 0.2))
    quick = estimated("optimal", sooner)
    assert [a.device for a in sorted(quick.assignments)] == [1, 0, 1]
    assert quick.makespan == pytest.approx(3.8, rel=1e-6)
    trace = simulate(sooner, quick)
    assert (len(list(trace.kernels())), len(list(trace.transfers()))) == (3, 4)
    assert trace.makespan == pytest.approx(3.8, rel=1e-6)


def replace_latency(p: Problem, latency: float) -> Any:
    return type(p.estimates)(p.estimates.seconds, latency)  # type: ignore[attr-defined, call-arg]


def test_a_partial_schedule_is_kept() -> None:
    p = problem(chains(3, 2), [2.0, 3.0])
    done = tuple(a for a in estimated("in_order", replace(p, options={})).assignments[:2])
    later = replace(p, fixed=done, not_before=3.0)
    plan = estimated("optimal", later)
    verify(plan, p.graph, p.machine, later)
    assert set(done) <= set(plan.assignments)
    assert plan.makespan == pytest.approx(9.0, rel=1e-6)  # 1 s left of the second, then 4 x 2 or 3 s on two devices


def test_stopped_by_its_effort_it_tells_the_bound_and_plans_the_same_again() -> None:
    """No thread is ahead of another one, and no clock ends the search."""
    graph = chains(6, 8)
    seconds = [[1.0 + (7 * n + 3 * d) % 11 for d in range(3)] for n in range(len(graph))]
    p = problem(graph, seconds, machine((1, 2, 3)), latency=0.7, options={"effort": "0.1"})
    plan = estimated("optimal", p)
    verify(plan, p.graph, p.machine, p)
    assert plan.details["bound"] <= plan.makespan
    assert plan.details["gap"] == pytest.approx((plan.makespan - plan.details["bound"]) / plan.makespan)
    assert plan.details["proven"] == (plan.details["gap"] < 1e-4)
    again = estimated("optimal", p)
    assert (again.assignments, again.details) == (plan.assignments, plan.details)


def test_without_or_tools_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(PolicyError, match=r"pip install -e '\.\[optimal\]'"):
        estimated("optimal", classic(TOPCUOGLU, TOPCUOGLU_EDGES))


@pytest.mark.parametrize("option", ["effort=0", "effort=x", "effort=inf", "workers=-1", "time_limit=3"])
def test_bad_options_are_errors(option: str) -> None:
    name, _, value = option.partition("=")
    with pytest.raises(PolicyError, match=f"option {name}"):
        estimated("optimal", problem(chains(1, 1), [1.0, 1.0], options={name: value}))
