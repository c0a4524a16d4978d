"""Which shares may move while they run: only where times are doubted by more than moving costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Launch
from manycl.graph.reduction import Reduction
from manycl.machine import Device, DeviceIndex, Machine
from manycl.model.estimates import Estimates
from manycl.plan.movable import CUTTING, MOVING, with_moving_shares
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.split import Split
from manycl.report.decisions import moving_lines, moving_shares
from manycl.trace import Trace

FACTS = KernelFacts("k", 1, ())
GROUPS = 64


class Doubted(Estimates):
    def __init__(self, doubt: float, off: float = 0.0) -> None:
        self._doubt, self._off = doubt, off

    def launch(self, node: int, device: DeviceIndex) -> float:
        return 1.0

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return 0.0

    def doubt(self, node: int, devices: Any) -> float:
        return self._doubt if len(devices) > 1 else 0.0

    def off(self, node: int, devices: Any) -> float:
        return self._off


def problem(
    doubt: float, launches: int = 1, memories: tuple[int, int] = (0, 0), merge: Any = Reduction.NONE
) -> Problem:
    builder = GraphBuilder()
    key = builder.buffer(4096)
    for i in range(launches):
        program = ProgramFacts("", (), {"k": FACTS})
        builder.add(Launch(f"k{i}", program, FACTS, (GROUPS,), (1,), (), (), (key,)))
    where = Machine(tuple(Device(f"d{i}", "cpu", memory=m) for i, m in enumerate(memories)))
    splits = {n: Split(0, GROUPS, merge=merge) for n in range(launches)}
    return Problem(builder.build(), where, Doubted(doubt), (1, 1), splits=splits)


def plan(seconds: float, launches: int = 1, twice: bool = False) -> Plan:
    half = GROUPS // 2
    ranges = [(0, 0, half), (1, half, half)] if not twice else [(0, 0, half), (1, half, 1), (0, half + 1, half - 1)]
    out = [
        Assignment(n, DeviceIndex(d), 0, n * seconds, (n + 1) * seconds, 0, first, count)
        for n in range(launches)
        for d, first, count in ranges
    ]
    return Plan(tuple(out), "p", ("d0", "d1"), launches * seconds)


def verdict(found: Plan) -> dict[str, Any]:
    (entry,) = found.details[MOVING]
    assert isinstance(entry, dict)
    return entry


@pytest.mark.parametrize(("doubt", "seconds", "moves"), [(0.5, 0.1, True), (0.2, 0.025, False), (0.02, 0.1, False)])
def test_shares_move_where_more_is_at_stake_than_it_costs(doubt: float, seconds: float, moves: bool) -> None:
    found = with_moving_shares(problem(doubt), plan(seconds))
    assert found.movable == ((0,) if moves else ())
    assert verdict(found)["moves"] is moves
    assert (verdict(found)["gain"] > verdict(found)["cost"]) is moves
    assert replace(found, movable=(), details={}) == plan(seconds)


def test_nothing_is_said_of_what_is_certain_or_short() -> None:
    for doubt, seconds in ((0.0, 1.0), (1.0, 15e-3)):
        assert with_moving_shares(problem(doubt), plan(seconds)) == plan(seconds)


def test_launches_that_are_alike_are_cut_once() -> None:
    one = verdict(with_moving_shares(problem(0.1), plan(0.05)))
    many = with_moving_shares(problem(0.1, 10), plan(0.05, 10))
    assert one["moves"] is False
    assert many.movable == tuple(range(10))
    assert verdict(many)["gain"] == pytest.approx(10 * one["gain"])
    assert verdict(many)["cost"] == pytest.approx(10 * (one["cost"] - CUTTING) + CUTTING)


@pytest.mark.parametrize(
    ("asked", "followed", "deterministic", "reason"),
    [
        (problem(0.5), plan(0.1), True, "the same in every run"),
        (problem(0.5), plan(0.1, twice=True), False, "several shares"),
        (problem(0.5, memories=(0, 1), merge=Reduction.DIFFERENCE), plan(0.1), False, "put together"),
    ],
)
def test_shares_that_cannot_move_stay(asked: Problem, followed: Plan, deterministic: bool, reason: str) -> None:
    found = with_moving_shares(asked, followed, deterministic)
    assert found.movable == ()
    assert reason in verdict(found)["reason"]


MODEL = {"model": "m", "platform": "native", "driver": "1"}


def on(asked: Problem, *devices: dict[str, Any]) -> Problem:
    """The same on devices that are like this."""
    changed = tuple(replace(d, **fields) for d, fields in zip(asked.machine.devices, devices, strict=True))
    return replace(asked, machine=replace(asked.machine, devices=changed))


@pytest.mark.parametrize("other", [{"driver": "2"}, {"model": "n"}, {"platform": "PoCL"}, {"kind": "gpu"}])
def test_only_devices_that_are_alike_give_the_same_bits(other: dict[str, str]) -> None:
    asked = problem(0.5)
    alike = with_moving_shares(on(asked, MODEL, {**MODEL, "slowdown": 3.0}), plan(0.1), deterministic=True)
    assert alike.movable == (0,)
    assert verdict(alike)["alike"] is True
    unlike = with_moving_shares(on(asked, MODEL, {**MODEL, **other}), plan(0.1), deterministic=True)
    assert unlike.movable == ()
    assert verdict(unlike)["alike"] is False


@pytest.mark.parametrize(("off", "moves"), [(0.5, True), (0.05, False)])
def test_shares_move_where_the_last_runs_were_off(off: float, moves: bool) -> None:
    asked = on(replace(problem(0.0), estimates=Doubted(0.0, off)), MODEL, MODEL)
    found = with_moving_shares(asked, plan(0.1), deterministic=True)
    assert found.movable == ((0,) if moves else ())
    assert "in the last runs" in verdict(found)["reason"]


def test_processors_pay_for_the_thread_that_decides() -> None:
    cost = {
        units: verdict(with_moving_shares(on(problem(0.5), *[{**MODEL, "compute_units": units}] * 2), plan(0.1)))[
            "cost"
        ]
        for units in (1, 8)
    }
    assert cost[1] > cost[8] > CUTTING


EARLY = {**MODEL, "shortens": True}


def test_devices_that_can_end_a_launch_early_pay_for_few_packets() -> None:
    """They take all of their shares at once, as if these stayed."""
    cost = {
        count: verdict(with_moving_shares(on(problem(0.5), *[EARLY] * count, *[MODEL] * (2 - count)), plan(0.1)))[
            "cost"
        ]
        for count in range(3)
    }
    packet = problem(0.5).handover + 10e-6  # deciding it, and starting a kernel
    assert cost[0] - CUTTING == pytest.approx(16 * (packet + 0.25e-3))
    assert cost[1] - CUTTING == pytest.approx(16 * packet + (16 + 3) / 2 * 0.25e-3)  # those of the other one
    assert cost[2] - CUTTING == pytest.approx(3 * (packet + 0.25e-3))
    # so shares move for less
    doubted = problem(0.065)
    assert with_moving_shares(on(doubted, EARLY, EARLY), plan(0.1)).movable == (0,)
    assert with_moving_shares(on(doubted, MODEL, MODEL), plan(0.1)).movable == ()


@pytest.mark.parametrize("memories", [(0, 0), (0, 1)])
def test_what_computes_elsewhere_or_runs_out_of_order_does_not_end_early(memories: tuple[int, int]) -> None:
    asked = on(problem(0.5, memories=memories), EARLY, EARLY)
    first = verdict(with_moving_shares(asked, plan(0.1)))["cost"]
    assert (first - CUTTING < 2e-3) == (memories == (0, 0))
    (task,) = asked.graph.nodes
    assert isinstance(task, Launch)
    for shape, local, early in (((GROUPS, 1), (1, 1), True), ((GROUPS, 2), (1, 1), False), ((GROUPS,), None, True)):
        other = replace(asked, graph=replace(asked.graph, nodes=(replace(task, global_size=shape, local_size=local),)))
        cost = verdict(with_moving_shares(other, plan(0.1)))["cost"]
        assert (cost - CUTTING < 2e-3) == (early and memories == (0, 0))


def test_the_report_says_it() -> None:
    found = with_moving_shares(problem(0.5), plan(0.1))
    trace = Trace((), ("d0", "d1"), "p", 1.0, details={**found.details, "stolen": {"k": 0.25}})
    first, *rest = moving_lines(moving_shares(trace), 5)
    assert first.startswith("shares move: k: times may be 50 % off")
    assert "25.0 % of the work-groups" in first
    assert "MANYCL_DETERMINISTIC" in rest[0]
    alike = with_moving_shares(on(problem(0.5), MODEL, MODEL), plan(0.1))
    assert len(list(moving_lines(moving_shares(Trace((), (), "p", 1.0, details=alike.details)), 5))) == 1
    stay = with_moving_shares(problem(0.5), plan(0.1), deterministic=True)
    (line,) = moving_lines(moving_shares(Trace((), (), "p", 1.0, details=stay.details)), 5)
    assert line.startswith("shares stay: k: devices may differ in last bits")
    assert moving_shares(Trace((), (), "p", 1.0, details={"moving": [{"kernel": 3}, None, "x"], "stolen": 3})) == ()
