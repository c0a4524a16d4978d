"""CPOP, PEFT and the portfolio: the examples of their papers, valid plans on random problems, gaps that are filled."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.machine import HOST, Link
from manycl.plan.plan import Assignment
from manycl.plan.policies.classical import portfolio
from manycl.plan.policies.classical.cpop import critical_path, path_device
from manycl.plan.policies.classical.peft import optimistic_costs
from manycl.plan.problem import Problem
from manycl.plan.search.insertion import setting
from manycl.plan.timeline.delays import delays, downward_ranks, lower_bound, upward_ranks
from manycl.plan.timeline.operations import BusyIntervals
from manycl.plan.timeline.timeline import Timeline
from manycl.plan.tuning import PlanningTuning
from manycl.plan.verification.verify import verify
from manycl.run.simulation.simulate import simulate
from tests.plan.plan_cases import brief, chains, estimated, launch, machine, problem, problems
from tests.plan.search.classic_graphs import ARABNEJAD, ARABNEJAD_EDGES, TOPCUOGLU, TOPCUOGLU_EDGES, classic

NO = {"contention": "no"}
NAMES = ("cpop", "peft", "portfolio")


def test_ranks_of_the_papers_example() -> None:
    view = delays(classic(TOPCUOGLU, TOPCUOGLU_EDGES))
    up = [108, 77, 80, 80, 69, 63.333, 42.667, 35.667, 44.333, 14.667]
    down = [0, 31, 25, 22, 24, 27, 62.333, 66.667, 63.667, 93.333]
    assert upward_ranks(view) == pytest.approx(up, abs=1e-3)
    assert downward_ranks(view) == pytest.approx(down, abs=1e-3)


def test_heft_and_cpop_of_the_papers_example() -> None:
    p = classic(TOPCUOGLU, TOPCUOGLU_EDGES, NO)
    known = setting(p, "heft", "no")
    assert portfolio.heft(known, upward_ranks(known.view)).makespan == 80
    assert estimated("cpop", p).makespan == 86


def test_the_critical_path_of_the_papers_example() -> None:
    view = delays(classic(TOPCUOGLU, TOPCUOGLU_EDGES))
    path = critical_path(view, [u + d for u, d in zip(upward_ranks(view), downward_ranks(view), strict=True)])
    assert path == [0, 1, 8, 9]
    assert path_device(view, path) == 1


def test_peft_of_its_papers_example() -> None:
    p = classic(ARABNEJAD, ARABNEJAD_EDGES, NO)
    table = optimistic_costs(delays(p))
    assert table[0][:3] == [64, 68, 86]
    assert table[9] == [0, 0, 0, 0]
    known = setting(p, "heft", "no")
    assert portfolio.heft(known, upward_ranks(known.view)).makespan == 133
    assert estimated("peft", p).makespan == 122


@pytest.mark.parametrize(
    ("seconds", "edges", "least"), [(TOPCUOGLU, TOPCUOGLU_EDGES, 73), (ARABNEJAD, ARABNEJAD_EDGES, 113)]
)
def test_the_portfolio_does_better_than_both_papers(
    seconds: Sequence[Sequence[float]], edges: dict[tuple[int, int], int], least: float
) -> None:
    whole = {"effort": str(PlanningTuning().effort)}
    assert estimated("portfolio", classic(seconds, edges, NO | whole)).makespan <= least


@pytest.mark.parametrize("contention", ["yes", "no"])
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(p=problems())
def test_plans_are_valid(name: str, contention: str, p: Problem) -> None:
    options = {"contention": contention, **({"effort": "300"} if name == "portfolio" else {})}
    p = Problem(p.graph, p.machine, p.estimates, p.queues, p.valid, options, 0.25, p.handover)
    plan = estimated(name, p)
    verify(plan, p.graph, p.machine, p)
    assert plan == estimated(name, p)
    floor = lower_bound(delays(p), range(len(p.machine.devices)))
    assert plan.makespan >= floor * (1 - 1e-9)


@settings(max_examples=100, deadline=None)
@given(p=problems(), data=st.data())
def test_times_alone_are_those_of_the_timeline(p: Problem, data: st.DataObject) -> None:
    own = range(1, p.machine.memories)
    links = [Link(a, b, 1e9, 1e-3) for a in own for b in own if a != b and data.draw(st.booleans())]
    costs = st.sampled_from([0.0, 0.1, 1.0, 7.3])  # of the host's thread
    devices = [replace(d, enqueuing=data.draw(costs), enqueuing_copy=data.draw(costs)) for d in p.machine.devices]
    where = replace(p.machine, devices=tuple(devices), links=tuple(links))
    given = setting(replace(p, machine=where, not_before=0.25), "portfolio")
    board, times_only = Timeline(given.problem, given.table.seconds), given.board(is_times_only=True)
    assert type(board) is not type(times_only)
    for node, places in enumerate(given.view.places):
        device = data.draw(st.sampled_from([*places, None]))
        for each in (board, times_only):
            each.put(node, places if device is None else (device,))
    assert times_only.by_node() == board.by_node()
    assert times_only.schedule() == board.schedule()
    again = board.finish()
    assert [a[:3] for a in board.schedule().assignments] == [a[:3] for a in again]
    if all(d.enqueuing == d.enqueuing_copy == 0.0 for d in devices):
        assert [a[3:5] for a in board.schedule().assignments] == [pytest.approx(a[3:5]) for a in again]
    else:  # what fills a gap is enqueued before what was placed before it
        assert all(b.start <= a.start + 1e-9 for a, b in zip(board.schedule().assignments, again, strict=True))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(p=problems(own_memory=False))
def test_prediction_is_what_the_engine_does(name: str, p: Problem) -> None:
    options = {"effort": "300"} if name == "portfolio" else {}
    p = brief(replace(p, options=options))
    plan = estimated(name, p)
    assert simulate(p, plan).makespan == pytest.approx(plan.makespan)


@settings(max_examples=40, deadline=None)
@given(p=problems())
def test_the_portfolio_is_never_longer_than_its_members(p: Problem) -> None:
    for contention in ("yes", "no"):
        options = {"contention": contention, "effort": "200"}
        mine = Problem(p.graph, p.machine, p.estimates, p.queues, p.valid, options, 0.0, p.handover)
        found = estimated("portfolio", mine).makespan
        for name in ("cpop", "peft"):
            alone = Problem(
                p.graph, p.machine, p.estimates, p.queues, p.valid, {"contention": contention}, 0.0, p.handover
            )
            assert found <= estimated(name, alone).makespan * (1 + 1e-12)


def test_a_gap_is_filled() -> None:
    """The second device waits for a transfer; an independent kernel of lower rank runs before it."""
    builder = GraphBuilder()
    x, y = builder.buffer(100), builder.buffer(4)
    builder.add(launch("first", (), (x,), device="cpu0"))
    builder.add(launch("second", (x,), (x,), device="cpu1"))
    builder.add(launch("small", (), (y,), device="cpu1"))
    p = problem(builder.build(), [[4.0, 4.0], [4.0, 4.0], [3.0, 3.0]])
    for name in NAMES:
        plan = {a.node: (a.start, a.end) for a in estimated(name, p).assignments}
        assert plan == {0: (0, 4), 1: (4, 8), 2: (0, 3)}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=12))
def test_gaps_give_the_earliest_room(wanted: list[tuple[int, int]]) -> None:
    """Against a search over every whole second."""
    gaps = BusyIntervals()
    taken: list[tuple[int, int]] = []
    for ready, seconds in wanted:
        start = gaps.first(float(ready), float(seconds))
        free = (
            s
            for s in itertools.count(ready)
            if all(s + seconds <= a or s >= b for a, b in taken) and not any(a < s < b for a, b in taken)
        )
        assert start == next(free)
        gaps.take(start, start + seconds)
        taken.append((int(start), int(start) + seconds))
        assert gaps.starts == sorted(gaps.starts)
        assert gaps.ends == sorted(gaps.ends)


def test_the_literatures_transfers_never_meet() -> None:
    """Two uploads: one after another for the engine, at once for the literature."""
    graph = chains(2, 1)
    valid = {key: frozenset({HOST}) for key in graph.buffers}
    where = machine((1, 2))
    both = {
        value: problem(graph, [1.0, 9.0], where, latency=3.0, valid=valid, options={"contention": value})
        for value in ("yes", "no")
    }
    assert estimated("peft", both["no"]).makespan == 5.0  # 3, then 1 and 1
    assert estimated("peft", both["yes"]).makespan == 7.0  # 3, 1, and the second's data at 6


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cpop", {"contention": "maybe"}, "option contention=maybe: expected yes or no"),
        ("peft", {"effort": "1"}, "policy peft has no option effort"),
        ("portfolio", {"effort": "-1"}, "option effort=-1"),
        ("portfolio", {"seed": "x"}, "option seed=x"),
    ],
)
def test_bad_options_are_errors(name: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        estimated(name, problem(chains(1, 1), [1.0, 1.0], options=options))


def test_another_seed_is_another_search() -> None:
    found = {
        estimated(
            "portfolio", classic(ARABNEJAD, ARABNEJAD_EDGES, {**NO, "effort": "600", "seed": str(seed)})
        ).assignments
        for seed in range(8)
    }
    assert len(found) > 1


@pytest.mark.parametrize("contention", ["yes", "no"])
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, deadline=None)
@given(p=problems(), count=st.integers(1, 5))
def test_what_is_fixed_stays(name: str, contention: str, p: Problem, count: int) -> None:
    options = {"contention": contention, **({"effort": "100"} if name == "portfolio" else {})}
    p = replace(p, valid={}, options=options)
    done = estimated(name, p).assignments[:count]
    later = replace(p, fixed=done, not_before=max(a.start for a in done))
    plan = estimated(name, later)
    verify(plan, p.graph, p.machine, later)
    assert set(done) <= set(plan.assignments)


def test_the_literature_knows_no_parts() -> None:
    p = replace(problem(chains(1, 1), [1.0, 1.0]), fixed=(Assignment(0, 0, 0, 0.0, 1.0, 0, 0, 4),))
    with pytest.raises(PolicyError, match="contention=no knows no ranges"):
        estimated("peft", replace(p, options=NO))
