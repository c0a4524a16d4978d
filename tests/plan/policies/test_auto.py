"""``auto``: whom it asks, what it takes, and when it divides a kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.machine import HOST, Device, Machine
from manycl.plan.analysis_budget import AnalysisBudget
from manycl.plan.plan import Plan
from manycl.plan.policies import auto
from manycl.plan.policy import find
from manycl.plan.problem import Problem
from manycl.plan.split import LinearRegion, Split
from manycl.plan.tuning import PLANNING
from tests.plan.plan_cases import chains, estimated, problem, problems
from tests.plan.split_cases import GROUPS, ROW, Affine, rows, split_problems

SIMPLE = {"heft", "one device", "in_order"}


def planned(p: Problem, **options: Any) -> Plan:
    return estimated("auto", replace(p, options={k: str(v) for k, v in options.items()}))


@given(problems())
@settings(max_examples=40)
def test_the_best_of_those_that_were_asked_is_taken(p: Problem) -> None:
    plan = planned(p, budget=1000)
    asked: dict[str, float] = plan.details["asked"]
    assert plan.makespan == asked[plan.details["chosen"]] <= min(asked.values()) + p.handover
    if len(p.machine.devices) > 1 and not {"mkmd_coarse", "portfolio"} < asked.keys():
        assert plan.makespan <= estimated("portfolio", replace(p, options={})).makespan + p.handover, "it was not best"
    assert plan.makespan <= planned(p, budget=0).makespan
    assert planned(p, budget=1000) == plan


@given(split_problems())
@settings(max_examples=30)
def test_kernels_are_divided_where_estimates_are_exact_and_that_is_shorter(p: Problem) -> None:
    plan = planned(p, budget=1000)
    asked: dict[str, float] = plan.details["asked"]
    assert plan.makespan <= min(asked.values()) + p.handover
    if len(p.machine.devices) > 1 and any(min(p.estimates.seconds[n]) > 2 * p.handover for n in p.splits):  # type: ignore[attr-defined]
        assert {"mkmd", "balance"} < asked.keys()


@pytest.mark.parametrize(
    ("seconds", "names"), [(1e-5, set()), (0.002, {"mkmd_coarse"}), (10.0, {"mkmd_coarse", "portfolio"})]
)
def test_planning_is_a_small_part_of_what_is_planned(seconds: float, names: set[str]) -> None:
    graph = chains(5, 9)  # no plan ends as soon as both devices could have done all of it
    plan = planned(problem(graph, [seconds] * 2))
    asked = set(plan.details["asked"])
    assert asked & SIMPLE
    assert asked - SIMPLE == names


@pytest.mark.parametrize(("second", "repeated", "is_asked"), [("cpu", 2, False), ("gpu", 2, True), ("cpu", 0, True)])
def test_a_loop_on_devices_that_are_alike_gets_equal_shares_at_once(second: str, repeated: int, is_asked: bool) -> None:
    builder = GraphBuilder()
    keys = [builder.buffer(GROUPS * ROW) for _ in range(2)]
    for n in range(4):
        builder.add(rows("k", (keys[n % 2],), (keys[1 - n % 2],)))
    where = Machine((Device("a", "cpu"), Device("b", second)))
    found = Split(0, GROUPS, {key: LinearRegion(ROW) for key in keys})
    p = replace(problem(builder.build(), [1.0, 1.0], where, handover=2e-3), splits=dict.fromkeys(range(4), found))
    plan = planned(replace(p, repeated=repeated, estimates=Affine([[1.0, 1.0]] * 4)), budget=1000)
    assert ("mkmd" in plan.details["asked"]) is is_asked
    assert plan.makespan == pytest.approx(4 / 2, abs=0.1)


@pytest.mark.parametrize(("memory", "moving"), [(HOST, 0.0), (1, 2 * 0.25)])
def test_two_devices_gain_half_of_kernels_and_transfers_there_and_back_at_most(memory: int, moving: float) -> None:
    where = Machine((Device("a", "cpu", memory=memory), Device("b", "cpu", memory=memory)))
    p = problem(chains(1, 3), [0.5, 1.0], where, latency=0.25)
    seconds = 3 * 0.5 + moving * len(p.graph.buffers)
    assert p.may_gain(seconds / 2)
    assert not p.may_gain(seconds / 2 + 0.01)


def test_nobody_is_asked_whose_planning_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[float] = []
    candidates = auto._candidates

    def watched(*args: Any) -> Any:
        for c in candidates(*args):
            yield c._replace(plan=lambda c=c: spent.append(c.seconds) or c.plan())

    monkeypatch.setattr(auto, "_candidates", watched)
    for budget in (0.0, 1e-4, 1e-3, 1e-2, 0.1, 1.0):
        spent.clear()
        planned(problem(chains(4, 5), [1.0, 2.0]), budget=budget)
        assert sum(spent) <= budget
    assert spent


def one(doubt: float, seconds: tuple[float, ...]) -> Problem:
    """One kernel that may be divided, on devices that share their memory."""

    class Doubted(Affine):
        def doubt(self, node: int, devices: list[int]) -> float:
            assert devices == [0, 1]
            return doubt

    builder = GraphBuilder()
    key = builder.buffer(GROUPS * ROW)
    builder.add(rows("k", (), (key,)))
    p = problem(builder.build(), [list(seconds)], Machine(tuple(Device(f"cpu{i}", "cpu") for i in range(len(seconds)))))
    return replace(
        p, estimates=Doubted([list(seconds)]), splits={0: Split(0, GROUPS, {key: LinearRegion(ROW)})}, options={}
    )


@given(st.floats(0, 2), st.floats(1, 20))
@settings(max_examples=60)
def test_a_gain_below_the_models_error_is_none(doubt: float, slower: float) -> None:
    p = one(doubt, (1.0, slower))
    plan = planned(p, budget=10)
    # 12 groups: the second device takes the number that makes both end together, about
    best = min(max((GROUPS - n) / GROUPS, n * slower / GROUPS) for n in range(GROUPS + 1))
    gain = 1.0 - best
    if abs(gain - doubt) > 0.1:
        assert plan.is_split == (gain > doubt)
    if not plan.is_split:
        assert plan.makespan == 1.0


def test_how_kernels_may_be_split_is_found_out_when_that_is_worth_it() -> None:
    looks: list[int] = []

    class Splits(dict[int, Split]):
        def get(self, node: int, default: Any = None) -> Any:
            looks.append(node)
            return super().get(node, default)

    p = one(0.0, (0.1, 0.1))
    p = replace(p, splits=Splits(p.splits), analysis=AnalysisBudget())
    turns = 0
    while not looks:  # what it costs must be a quarter of what such graphs were predicted to take together
        plan = planned(p)
        assert not plan.is_split
        assert plan.details["postponed"]
        turns += 1
        assert turns < 50
        once = PLANNING.first_look + PLANNING.kernel_look + PLANNING.launch_look + PLANNING.again_look
        if PLANNING.looking * 0.1 * (turns + 1) > once:
            break
    assert turns > 5
    assert planned(p).is_split
    assert set(looks) == {0}
    assert planned(p).is_split  # and again: it is known now
    assert "postponed" not in planned(p).details
    alone = replace(p, analysis=None)  # whatever else the process has planned
    assert all(planned(alone).details["postponed"] for _ in range(20))
    long = replace(one(0.0, (0.5, 0.5)), analysis=AnalysisBudget())  # a run may save more than the analysis takes
    assert 0.25 > once > PLANNING.looking * 0.5
    assert planned(long).is_split
    unsure = replace(one(0.4, (0.5, 0.5)), analysis=AnalysisBudget())
    assert planned(unsure).details["postponed"]
    tiny = replace(p, handover=0.2)  # a kernel of less than two handovers is not looked at
    looks.clear()
    assert not planned(tiny).is_split
    assert not looks


def test_how_small_kernels_may_be_split_is_never_asked() -> None:
    class Dear(dict[int, Split]):
        def get(self, node: int, default: Any = None) -> Any:
            raise AssertionError("this takes the analysis")

        __getitem__ = __iter__ = __len__ = items = get  # type: ignore[assignment]

    p = problem(chains(3, 3), [1e-5, 1e-5], handover=1e-4)
    plan = find("auto").plan(replace(p, splits=Dear()))  # type: ignore[union-attr]
    assert len(plan.assignments) == 9


def test_what_one_device_has_to_move_decides_whether_ranges_are_thought_of() -> None:
    """Ranges can hide its transfers behind its kernels, and gain nothing else."""
    asked: list[int] = []

    class Counted(dict[int, Split]):
        def get(self, node: int, default: Any = None) -> Any:
            asked.append(node)
            return super().get(node, default)

    p = one(0.0, (1.0,))
    p = replace(p, machine=Machine((Device("gpu0", "gpu", memory=1),)))
    (key,) = p.graph.buffers
    for seconds, where, thinks in ((0.001, HOST, False), (0.5, HOST, True), (0.5, 1, False)):
        asked.clear()
        estimates = Affine([[1.0]], seconds)
        this = replace(
            p,
            estimates=estimates,
            valid={key: frozenset({where})},
            splits=Counted(p.splits),
            foresee=lambda plan: plan,
            repeated=2,
        )
        planned(this, budget=10)
        assert bool(asked) == thinks, (seconds, where)


def test_a_kernel_that_fits_nowhere_as_a_whole_is_divided_whatever_is_known() -> None:
    p = one(5.0, (1.0, 1.0))
    small = tuple(
        replace(d, global_memory=GROUPS * ROW // 2, max_allocation=GROUPS * ROW // 2) for d in p.machine.devices
    )
    p = replace(p, machine=replace(p.machine, devices=small))
    assert planned(p, budget=0).is_split
    with pytest.raises(PolicyError, match="no device can run node 0"):
        planned(replace(p, splits={}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": "soon"}, "budget=soon"),
        ({"budget": "-1"}, "budget=-1"),
        ({"budget": "nan"}, "nan"),
        ({"x": "1"}, "no option x"),
    ],
)
def test_bad_options(options: dict[str, str], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        planned(problem(chains(1, 2), [1.0]), **options)


def test_one_device_has_nothing_to_choose() -> None:
    plan = planned(problem(chains(3, 3), [1.0], Machine((Device("cpu0", "cpu"),))), budget=1000)
    assert set(plan.details["asked"]) <= SIMPLE
    assert plan.makespan == 9.0


def test_data_in_another_memory_count() -> None:
    p = one(0.0, (1.0, 1.0))
    far = Machine((Device("cpu0", "cpu"), Device("gpu0", "gpu", memory=1)))
    key = next(iter(p.graph.buffers))
    estimates = Affine([[1.0, 1.0]], 10.0)  # a transfer takes ten times as long as the kernel
    p = replace(p, machine=far, estimates=estimates, valid={key: frozenset({HOST})})
    assert not planned(p, budget=10).is_split


def test_a_rival_is_the_other_way() -> None:
    """As long as it is not expected to take much longer: runs of rivals are trials."""
    for seconds, is_near in ((2.5, True), (1.2, False)):
        p = replace(one(0.6, (1.0, seconds)), repeated=1)
        assert planned(p, budget=10).is_split
        assert planned(replace(p, rival=True), budget=10).is_split is not is_near


@pytest.mark.parametrize(("beside", "is_worth_it"), [(0.05, False), (0.2, True)])
def test_whole_kernels_of_a_graph_that_runs_again_are_spread_for_a_tenth(beside: float, is_worth_it: bool) -> None:
    """A chain of one second's kernels beside one of short ones, which a second device takes off the first: 1/21 or 1/6
    of the time. That is taken of a graph that runs once, whose plans nobody measures, and tried as a rival."""
    graph = chains(2, 3)
    rows = [[1.0, 9.0] if n % 2 == 0 else [beside, 2 * beside] for n in range(len(graph))]
    once = problem(graph, rows)
    again = replace(once, repeated=1)
    used = [len({a.device for a in planned(p, budget=10).assignments}) for p in (once, again)]
    assert used == [2, 2 if is_worth_it else 1]
    assert planned(replace(again, rival=True), budget=10).makespan == pytest.approx(3.0)
