"""Makespans beside those of anrg-saga's 23 schedulers: recorded ones always, and fresh ones where it is installed."""

from __future__ import annotations

import importlib
import json
import statistics
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import ROOT

BENCHMARKS = ROOT / "benchmarks"
RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("saga_makespans.json").read_text())


@pytest.fixture(scope="module")
def saga() -> Any:
    """The benchmark as a module; its neighbour ``common`` is importable meanwhile."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("stages_figures.planning_saga")
    finally:
        sys.path.remove(str(BENCHMARKS))


def test_within_a_percent_on_average_and_ten_always(saga: ModuleType) -> None:
    instances = saga.recorded()
    assert len(instances) == len(RECORDED) > 70
    ratios, exact = [], []
    for number, (of, known) in enumerate(zip(instances, RECORDED, strict=True)):
        assert saga.fingerprint(of) == pytest.approx(known["fingerprint"], rel=1e-12), "record them again"
        if number % 2 and known["tasks"] > saga.MOST_FOR_EXACT:
            continue  # half of the larger ones: this is a test
        makespan, _ = saga.our_makespan(of, "portfolio")
        ratios.append(makespan / known["makespan"])
        if known["tasks"] <= saga.MOST_FOR_EXACT:
            exact.append(ratios[-1])
    assert statistics.mean(ratios) <= 1.01
    assert max(ratios) <= 1.10
    # where everything was tried, nothing is shorter
    assert len(exact) == 21
    assert min(exact) >= 1 - 1e-9


def test_recorded_makespans_are_what_the_library_gives(saga: ModuleType) -> None:
    pytest.importorskip("saga")
    known = {entry["fingerprint"]: entry["makespan"] for entry in RECORDED}
    found = [of for of in saga.recorded() if len(of.costs) <= saga.MOST_FOR_EXACT][::4]
    for of in found:
        theirs = saga.their_makespans(of)
        assert len(theirs) == 23
        valid = [m for m in theirs.values() if isinstance(m, float)]
        assert len(valid) >= 21
        assert min(valid) == pytest.approx(known[saga.fingerprint(of)])


def test_a_schedule_of_theirs_that_is_wrong_is_found(saga: ModuleType) -> None:
    """The conversion puts theirs before the same judge: one whose tasks start too early does not count."""
    pytest.importorskip("saga")
    from saga.schedulers import HeftScheduler

    from manycl.errors import PolicyError
    from manycl.plan.verification.verify import verify

    of = saga.recorded()[0]
    network, graph = saga.as_saga(of)
    schedule = HeftScheduler().schedule(network, graph)
    problem = saga.as_problem(of)
    verify(saga.as_plan(schedule, of, "heft"), problem.graph, problem.machine, problem)
    last = max((task for tasks in schedule.mapping.values() for task in tasks), key=lambda task: task.end)
    last.start, last.end = last.start - 0.01, last.end - 0.01
    with pytest.raises(PolicyError):
        verify(saga.as_plan(schedule, of, "heft"), problem.graph, problem.machine, problem)
