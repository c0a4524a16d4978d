"""No defect of analysis, models or planners stops a run that one device could do, or makes it wrong: each of their
entries fails at random, and in turns all of them do."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.analysis import launched, service
from manycl.analysis.costs import cost
from manycl.analysis.interpreter import interpret, loops
from manycl.analysis.regions import counted, regions
from manycl.errors import PolicyError
from manycl.graph import division
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import HostTask
from manycl.model import counts, estimate, occupancy, predictor, transfer, trips
from manycl.model.history import learning
from manycl.plan import splitting
from manycl.plan.plan import Plan
from manycl.plan.policies import adaptive, auto, balance
from manycl.plan.policies.classical import eager, heft, in_order
from manycl.plan.policies.classical.in_order import InOrder
from manycl.plan.policies.papers import clustering, mkmd, mkmd_coarse
from manycl.plan.policy import KernelByKernel, find
from manycl.plan.problem import Problem
from manycl.run.data.coherence import Directory
from manycl.run.engine import assign
from manycl.run.engine.asking_policies import decided, plain
from manycl.run.lowering.lower import lower
from manycl.run.lowering.steps import Lowered
from manycl.run.session import models
from manycl.utilities.unforeseen import UnforeseenWarning
from tests.run.chaos.test_state import Unit
from tests.run.chaos.test_state import launch as state_launch
from tests.run.chaos.test_state import machine as state_machine
from tests.run.recovery.test_replanning import Simulated

SOURCE = """
kernel void scale(global float *y, global const float *x, float a) { y[get_global_id(0)] = a * x[get_global_id(0)]; }
kernel void scatter(global float *y, global const float *x, int n) {
    int i = get_global_id(0);
    for (int k = 0; k < 4; k++) y[(i * 7 + k * 64) % n] = x[(i * 7 + k * 64) % n] + 1.0f;
}
kernel void count(global int *h, global const float *x) { atomic_add(h + (int)x[get_global_id(0)] % 16, 1); }
"""
N = 1 << 14
ANALYSIS: list[tuple[Any, str]] = [
    (interpret._AbstractRun, "run"),
    (loops.Loops, "close"),
    *((regions.Regions, name) for name in ("rectangular", "__init__")),
    *((launched.LaunchFacts, name) for name in ("_answered", "_refined", "_counted")),
    *((cost.LaunchCost, name) for name in ("totals", "settled")),
    (counted.Walk, "reach"),
    *((service, name) for name in ("launched", "sub_kernel", "_answer", "_unit")),
]
MODELS: list[tuple[Any, str]] = [
    *((predictor.Predictor, name) for name in ("__init__", "row", "guess")),
    (predictor, "prior"),
    *((estimate, name) for name in ("launch_kind", "buffer_bytes", "waves_of", "local_bytes")),
    *((occupancy.Waves, "length"), (occupancy.RangeCosts, "part"), (occupancy.RangeCosts, "relative")),
    *((counts.Counts, name) for name in ("work", "__init__")),
    *((transfer.TransferModel, name) for name in ("__init__", "seconds", "contended")),
    *((trips, name) for name in ("_find", "_value")),
    *((models, name) for name in ("learn", "note_ranges", "note_shares", "on_machine")),
    *((learning.ObservedLinks, name) for name in ("enqueued", "observe", "handed_over", "added_to")),
    (learning, "launch_kind"),
]
PLANNERS: list[tuple[Any, str]] = [
    *((policy, "plan") for policy in (auto.Auto, balance.Balance, mkmd.Mkmd, mkmd_coarse.MkmdCoarse, in_order.InOrder)),
    *((adaptive.Adaptive, name) for name in ("plan", "observe", "settled")),
    *((policy, "select") for policy in (heft.Heft, eager.Eager, clustering.Clustering)),
    *((clustering.Clustering, name) for name in ("start", "components", "queues", "resident")),
    *((auto, name) for name in ("list_schedule", "on_one_device", "_splits", "_at_best")),
    *((splitting, name) for name in ("_best", "_linear_region", "known_launch", "with_work_groups")),
    (assign, "bottom_levels"),
]
ENTRIES = [*ANALYSIS, *MODELS, *PLANNERS]
POLICIES = ("auto", "mkmd_coarse", "balance", "mkmd", "adaptive", "heft", "eager", "clustering", "in_order")


class Broken(Exception):
    """What no code expects."""


class Breaker:
    """Makes functions and methods fail at random; ``failures`` counts how often they did."""

    def __init__(self, patch: pytest.MonkeyPatch, chance: float, draws: random.Random) -> None:
        self.patch = patch
        self.chance = chance
        self.draws = draws
        self.failures = 0

    def breaks(self, owner: Any, name: str) -> None:
        original = vars(owner)[name]
        function = getattr(original, "func", original)  # of a cached property

        def fails(*args: Any, **kwargs: Any) -> Any:
            if self.draws.random() < self.chance:
                self.failures += 1
                raise Broken("at random")
            return function(*args, **kwargs)

        self.patch.setattr(owner, name, fails if function is original else property(fails))


@pytest.fixture(scope="module")
def queue() -> Iterator[mc.Queue]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "0")  # transfers are predicted, and ranges put together
        with mc.Queue("cpu/2") as queue:
            mc.Program(
                SOURCE
            )  # what a program is read as is not forgotten: it is the user who hears of a failure there
            yield queue


def forgotten(queue: mc.Queue) -> None:
    """Everything that the analysis, models and planners have kept."""
    for kept in (service._units, service._interpreted, service._texts, service._launches):
        kept.clear()
    for answers in (splitting._known, trips._known, trips._answers._read, division._known, division._shared):
        answers.clear()
    queue.session.models.forget()
    queue.session.data.steps._kept.clear()


def right(queue: mc.Queue, policy: Any) -> None:
    """Three launches and what they make, run, and run again and again."""
    program = mc.Program(SOURCE)
    x = np.arange(N, dtype=np.float32)
    queue.policy = policy
    given, scaled, moved, found = queue.array(x), queue.zeros(N), queue.zeros(N), queue.zeros(16, np.int32)

    with queue.prepare() as prepared:
        program.scale(queue, (N,), (64,), scaled, given, 2.0)
        program.scatter(queue, (N // 4,), (64,), moved, scaled, N)
        program.count(queue, (N,), (64,), found, moved)
    for turn in range(3):
        prepared.run()
        reached = np.unique((np.arange(N // 4)[:, None] * 7 + np.arange(4) * 64) % N)
        expected = np.zeros(N, np.float32)
        expected[reached] = 2.0 * x[reached] + 1.0
        assert np.array_equal(scaled.get(), 2.0 * x)
        assert np.array_equal(moved.get(), expected)
        assert np.array_equal(found.get(), (turn + 1) * np.bincount(expected.astype(int) % 16, minlength=16))


@pytest.mark.parametrize(("owner", "name"), ENTRIES, ids=[f"{o.__name__}.{n}" for o, n in ENTRIES])
def test_an_entry_that_fails_stops_nothing(
    queue: mc.Queue, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = random.Random(f"{owner.__name__}.{name}")
    home = owner.__module__ if isinstance(owner, type) else owner.__name__
    asks = next((p for p in POLICIES if home.endswith(f".{p}")), "heft" if owner is assign else "balance")
    for chance in (1.0, 0.3):
        forgotten(queue)
        with monkeypatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore", UnforeseenWarning)
            breaker = Breaker(patch, chance, draws)
            breaker.breaks(owner, name)
            right(queue, asks)
        assert breaker.failures or chance < 1.0


@pytest.mark.parametrize("seed", range(8))
def test_many_entries_that_fail_stop_nothing(queue: mc.Queue, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = random.Random(seed)
    forgotten(queue)
    breaker = Breaker(monkeypatch, 0.2, draws)
    for owner, name in draws.sample(ENTRIES, 12):
        breaker.breaks(owner, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnforeseenWarning)
        right(queue, draws.choice(POLICIES))


def test_an_error_of_a_users_policy_is_told(queue: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(KernelByKernel):
        def select(self, frontier: Any, devices: Any, now: float) -> Any:
            return 1 // 0

    class Planned:
        def plan(self, problem: Any) -> Any:
            return problem.nodes

    monkeypatch.setattr(queue, "policy", Mine())
    with pytest.raises(PolicyError, match=r"policy Mine failed: ZeroDivisionError: .*test_unforeseen.py, line \d+"):
        right(queue, Mine())
    with pytest.raises(PolicyError, match="policy Planned failed: AttributeError"):
        right(queue, Planned())


def test_what_a_run_went_on_without_is_in_its_trace(queue: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten(queue)
    Breaker(monkeypatch, 1.0, random.Random(0)).breaks(mkmd.Mkmd, "plan")
    with pytest.warns(UnforeseenWarning, match="planning with policy mkmd failed"):
        right(queue, "mkmd")
    assert "planning with policy mkmd failed (Broken: at random)" in queue.trace.details["unforeseen"][0]
    assert "went on without: planning with policy mkmd failed" in queue.trace.summary()


def test_a_plan_of_ranges_that_cannot_be_followed_gives_way_to_one_of_whole_kernels() -> None:
    def fails(problem: Problem, plan: Plan | None, directory: Directory) -> Lowered:
        if plan is not None and plan.is_split:
            raise Broken("at a loss")
        return lower(problem, plan, directory)

    one = Simulated((0.04, 0.04), 1)
    with pytest.warns(UnforeseenWarning, match="following a plan of policy balance failed"):
        plan, lowered = decided(one.problem(one.graph), find("balance"), Directory(), fails)
    assert plan is lowered.plan
    assert plan is not None
    assert [a.groups for a in plan.assignments] == [0]
    assert plan.details["unforeseen"] == ["the plan of policy balance cannot be followed: at a loss"]


def test_where_planning_in_order_fails_kernels_run_where_most_of_them_may(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Any, problem: Any) -> Any:
        raise ValueError("at a loss")

    monkeypatch.setattr(InOrder, "plan", fails)
    builder = GraphBuilder()
    for i, device in enumerate(("", "d1", "d1", "d2")):
        builder.add(replace(state_launch(f"n{i}", (builder.buffer(4),), ()), device=device))
    builder.add(HostTask("h", print, (), (), ()))
    with pytest.warns(UnforeseenWarning, match="at a loss"):
        plan = plain(Problem(builder.build(), state_machine([0, 0, 0]), Unit(), (1, 1, 1)), "why")
    assert [(a.node, a.device) for a in plan.assignments] == [(0, 1), (1, 1), (2, 1), (3, 2), (4, -1)]
    assert plan.devices == ("d0", "d1", "d2")
    (said,) = plan.details["unforeseen"]
    assert said.startswith("why; ")
