"""Loops whose launches are looked at beside their runs, and divided then."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import replace
from math import inf
from typing import Any
from unittest import mock

import numpy as np
import pytest

import manycl as mc
from manycl.graph.graph import Launch
from manycl.machine import DeviceIndex
from manycl.plan import splitting
from manycl.plan.analysis_budget import AnalysisBudget
from manycl.plan.plan import Plan
from manycl.plan.problem import Problem
from manycl.run.executor.lanes import Worker
from manycl.run.executor.programs import Programs
from manycl.run.graph_cache import background_analysis, lowering_cache, recurring_graph
from manycl.run.graph_cache.autotuner import TrialBudget
from manycl.run.graph_cache.background_analysis import BackgroundAnalysis, Interest
from manycl.run.graph_cache.cached_graph import CachedGraph
from manycl.run.graph_cache.recurring_graph import RecurringGraph
from manycl.run.session.session import Session

PATIENCE = 60  # seconds, after which something hangs
PROGRAM = mc.Program("""
kernel void add(global int *x, int n) { x[get_global_id(0)] += n; }
kernel void sum(global const int *x, global int *y) {
    if (get_global_id(0) == 0) for (int i = 0; i < 8; i++) y[0] += x[i];
}
kernel void spin(global int *x, int n) {
    int v = x[get_global_id(0)];
    for (int i = 0; i < n; i++) v = v * 3 + i;
    x[get_global_id(0)] = v;
}
""")


def until(condition: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(1e-3)


def batch(*numbers: int) -> Any:
    with mc.Queue("cpu/1") as queue:
        x, y = queue.zeros(256, np.int32), queue.zeros(1, np.int32)
        with queue.prepare() as prepared:
            for number in numbers:
                PROGRAM.add(queue, (256,), (16,), x, number)
            PROGRAM.sum(queue, (256,), (16,), x, y)
        return prepared.graph


@pytest.mark.parametrize("numbers", [(3, 3), (3, 4, 3, 5)])
def test_each_kind_of_launch_is_analysed_once(numbers: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """And what ranges of those touch that touch the same, whatever their scalars, is found out once."""
    graph, budget, kinds = batch(*numbers), AnalysisBudget(), len(set(numbers))
    asked: list[str] = []
    built: list[Launch] = []
    split_of = splitting.split_of

    def noted(launch: Launch, sizes: Any) -> Any:
        asked.append(launch.name)
        return split_of(launch, sizes)

    monkeypatch.setattr(background_analysis, "split_of", noted)
    work, interest = BackgroundAnalysis(budget), Interest()
    work.begin(interest, lambda: None, built.append)
    assert not interest.is_asked, "there is no graph yet"
    for _ in range(2):
        work.begin(interest, lambda: graph, built.append)
    until(lambda: interest.is_done)
    assert asked == [*["add"] * kinds, "sum"]
    assert [launch.name for launch in built] == ["add [0:8]", "sum [0:8]"]
    assert len(budget.kinds) == 2
    assert budget.afford([n for n in graph.nodes if isinstance(n, Launch)], 1e-3, None, 0.0)
    work.close()


@pytest.mark.parametrize(("items", "is_analysed"), [(64, False), (1 << 16, True)])
def test_only_graphs_that_may_gain_are_analysed(items: int, is_analysed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    monkeypatch.setattr(Session, "guessed_first", lambda session, launch: inf)  # it is planned in any case
    monkeypatch.setattr(BackgroundAnalysis, "begin", lambda work, interest, graph, build: begun.append(graph()))
    with mc.Queue("cpu/2") as queue:
        x = queue.zeros(items, np.int32)
        monkeypatch.setattr(RecurringGraph, "took", lambda known, seconds: None)
        PROGRAM.spin(queue, x.shape, (64,), x, 1000 if is_analysed else 1)
        queue.finish()
    assert bool(begun) is is_analysed


def test_a_loop_is_divided_once_it_has_been_analysed() -> None:
    """Whatever is found when, results are right; and what was found is planned with."""
    count, steps, split = 1 << 16, 2000, list[bool]()
    expected = np.arange(count, dtype=np.int32)
    for i in range(steps):
        expected = expected * np.int32(3) + np.int32(i)
    with mc.Queue("cpu/2") as queue:
        for turn in range(4):
            x = queue.array(np.arange(count, dtype=np.int32))
            PROGRAM.spin(queue, x.shape, (64,), x, steps)
            assert (x.get() == expected).all()
            split.append(queue.result.plan is not None and queue.result.plan.is_split)
            if not turn:
                (known,) = queue._recurring._known.values()
                until(lambda known=known: known.interest.is_done)
    assert split[:2] == [False, True]


def test_the_second_run_waits_for_an_analysis_that_takes_less_than_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(launch: Launch, sizes: Any) -> Any:
        time.sleep(0.3)
        return splitting.split_of(launch, sizes)

    monkeypatch.setattr(background_analysis, "split_of", slowly)
    monkeypatch.setattr(TrialBudget, "spare", inf)
    split: list[bool] = []
    with mc.Queue("cpu/2") as queue:
        for _ in range(2):
            x = queue.zeros(1 << 17, np.int32)
            PROGRAM.spin(queue, x.shape, (64,), x, 2000)
            queue.finish()
            split.append(queue.result.plan is not None and queue.result.plan.is_split)
    assert split[1]


ENDS_EARLY = """
import enum, threading, time
import manycl as mc
made, begun = enum.EnumType.__call__, threading.Event()

def slowly(cls, *given, **named):
    if "qualname" in named and not begun.is_set():  # islpy, whose C++ makes classes of its enumerations
        begun.set()
        for _ in range(200):
            time.sleep(1e-3)
    return made(cls, *given, **named)

enum.EnumType.__call__ = slowly
queue = mc.Queue("cpu/2")
assert begun.wait(60)
"""


def test_a_program_that_ends_during_the_imports_beside_it_ends_as_ever() -> None:
    ended = subprocess.run([sys.executable, "-c", ENDS_EARLY], capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


ENDS_ASKING = """
import atexit, threading, time
import manycl as mc
from manycl.analysis import service
queue = mc.Queue("cpu/2")
begun, ending, close = threading.Event(), threading.Event(), service._worker().close

def look():
    begun.set()
    try:
        ending.wait(60)
        time.sleep(0.2)  # in which the other process would be ended
    finally:
        print("over")

queue.session.models.background._submit(look)
assert begun.wait(60)
service._current.close = lambda: print("closed", close() or "")
atexit.register(ending.set)
"""


def test_the_process_of_the_analysis_outlives_what_asks_it() -> None:
    ended = subprocess.run([sys.executable, "-c", ENDS_ASKING], capture_output=True, text=True, timeout=100, check=True)
    assert ended.stdout.split() == ["over", "closed"]


def test_devices_may_change_while_ranges_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    with mc.Queue("cpu/2") as queue:
        devices = queue.session.devices
        machine, is_changed = devices.backend.machine, True

        def prepare(*_: object) -> None:
            devices.backend.machine = replace(machine) if is_changed else machine
            raise IndexError

        with monkeypatch.context() as patch:
            patch.setattr(devices.backend.programs, "prepare", prepare)
            devices.build(mock.Mock())
            is_changed = False
            devices.backend.machine = machine
            with pytest.raises(IndexError):
                devices.build(mock.Mock())


def test_a_thread_ends_in_whatever_job_it_is() -> None:
    worker, begun, ended = Worker("endless"), threading.Event(), list[str]()

    def endless() -> None:
        begun.set()
        try:
            while True:
                time.sleep(1e-4)
        finally:
            ended.append("it cleans up")

    worker.submit(endless)
    worker.submit(lambda: ended.append("what is behind it is not done"))
    assert begun.wait(PATIENCE)
    worker.stop()
    assert ended == ["it cleans up"]


def test_steps_and_kernels_of_a_plan_are_made_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the host has time: the first run that is divided makes none, and gives the same."""
    lowered, built = list[tuple[str, bool]](), list[tuple[str, str]]()
    lower, build = lowering_cache.lower, Programs.build

    def noted_lower(problem: Problem, plan: Plan | None, *args: Any, **more: Any) -> Any:
        lowered.append((threading.current_thread().name, plan is not None and plan.is_split))
        return lower(problem, plan, *args, **more)

    def noted_build(self: Programs, version: Any, device: DeviceIndex) -> Any:
        built.append((threading.current_thread().name, str(device)))
        return build(self, version, device)

    monkeypatch.setattr(lowering_cache, "lower", noted_lower)
    monkeypatch.setattr(Programs, "build", noted_build)
    monkeypatch.setattr(CachedGraph, "_is_beside", True)
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    expected = np.arange(1 << 18, dtype=np.int32)
    with np.errstate(over="ignore"):
        for i in range(200):
            expected = expected * np.int32(3) + np.int32(i)
    with mc.Queue("cpu0/2", policy="balance") as queue:
        x = queue.array(np.arange(1 << 18, dtype=np.int32))
        with queue.prepare() as prepared:
            PROGRAM.spin(queue, x.shape, (64,), x, 200)
        known = prepared._prepared
        known._plan_ahead(known.graph, queue.session.directory.copy)
        until(lambda: known._tuner.ahead is not None)
        assert ("manycl-look", True) in lowered
        lowered.clear()
        built.clear()
        prepared.run()
        assert not [one for one in lowered if one[1]], "the steps are there"
        assert not built, "and the kernels"
        assert (x.get() == expected).all()


def test_a_graph_is_built_for_its_plan_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not by each run while the plan is being made. What takes no time on devices gets none."""
    monkeypatch.setattr(recurring_graph, "is_worth_planning", lambda measured: True)
    monkeypatch.setattr(CachedGraph, "_takes_long", True)
    with mc.Queue("cpu/2") as queue:
        x = queue.zeros(64, np.int32)
        PROGRAM.add(queue, x.shape, (64,), x, 3)
        queue.finish()
        (known,) = queue._recurring._known.values()
        known._begin()
        run, then = mock.Mock(), threading.Event()
        graph = type(run).graph = mock.PropertyMock(return_value=queue.result.graph)
        run.before = queue.session.directory.copy
        monkeypatch.setattr(type(known._tuner), "ahead", property(lambda _: None, lambda *_: then.set()), raising=False)
        monkeypatch.setattr(background_analysis, "completed", lambda *_: pytest.fail("it was planned"))
        for _ in range(3):
            known.plan_ahead(run)
        assert then.wait(PATIENCE)
        assert graph.call_count == 1


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "dropped"])
@pytest.mark.parametrize("asks", ["estimates", "foresee"])
def test_planning_ends_with_its_session(asks: str, is_closed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the middle of a plan, while the graph that it is for would use it."""
    begun, ended = threading.Event(), threading.Event()

    def endless(problem: Problem, _: object) -> None:
        plan = problem.all_on(DeviceIndex(0), "one")
        begun.set()
        try:
            while True:
                if asks == "foresee":
                    problem.foresee(plan)  # type: ignore[misc]
                else:
                    problem.estimates.launch(0, DeviceIndex(0))
        finally:
            ended.set()

    monkeypatch.setattr(background_analysis, "completed", endless)
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    queue = mc.Queue("cpu/2")
    x = queue.zeros(256, np.int32)
    PROGRAM.add(queue, x.shape, (16,), x, 3)
    queue.finish()
    (known,) = queue._recurring._known.values()
    known.is_looked_at = True
    known.runs = 2  # then plans are foreseen
    known._plan_ahead(queue.result.graph, queue.session.directory.copy)
    assert begun.wait(PATIENCE)
    if is_closed:
        queue.close()
    else:
        del queue, x, known
    assert ended.wait(PATIENCE)
