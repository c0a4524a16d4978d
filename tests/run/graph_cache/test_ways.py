"""Which way graphs that come again go: planned, or given to a device as they are enqueued."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.graph.signature import Signature
from manycl.machine import DeviceIndex
from manycl.model.history.store import Store
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policy import StaticPolicy
from manycl.plan.problem import Problem
from manycl.run.engine import asking_policies
from manycl.run.graph_cache import recurring_graph
from manycl.run.graph_cache.background_analysis import BackgroundAnalysis
from manycl.run.graph_cache.recurring_graph import RecurringGraph, VariedGraph
from manycl.run.session.models import Models
from manycl.run.session.session import Session
from manycl.run.streams import eager_rule
from manycl.run.streams.eager_rule import RETRIED, SUBMITTED, TRIALS, Facts, decide
from manycl.utilities.kept import ENOUGH
from tests.run.graph_cache.loops import COUNT, GROUP, PROGRAM, loop

Waiting = list[Callable[[], None]]
GUESS = Session.guessed_first


@pytest.fixture(autouse=True)
def nothing_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels here take next to nothing, and stand for others: nothing is known of these before they run."""
    monkeypatch.setattr(Session, "guessed_first", lambda session, launch: inf)


def ways(
    queue: mc.Queue,
    monkeypatch: pytest.MonkeyPatch,
    planned: float,
    eager: float,
    runs: int,
    plans: Waiting | None = None,
) -> str:
    """How a loop runs whose runs take so long, planned and given at once: a letter for each run. ``plans``: collects
    what is to be planned in the background (None: it is planned at once)."""
    taken = {"p": planned, "f": eager}
    out = ""
    took, ran_eagerly = RecurringGraph.took, RecurringGraph.ran_eagerly

    def took_so(known: RecurringGraph, seconds: float) -> None:
        known.ran, known._device = known.ran and taken["p"], DeviceIndex(0)
        took(known, taken["p"])
        may_be_tried(known)

    def ran_so(known: RecurringGraph, run: Any, seconds: float) -> None:
        ran_eagerly(known, run, taken["f"])
        may_be_tried(known)

    def may_be_tried(known: RecurringGraph) -> None:
        known.is_looked_at, known.budget.total, known.budget.spent = True, 100.0 * max(planned, eager), 0.0

    monkeypatch.setattr(recurring_graph, "_only_device", lambda plan: None)
    monkeypatch.setattr(RecurringGraph, "took", took_so)

    def plan(
        _: object, problem: Problem, policy: StaticPolicy, __: object, then: Callable[[Plan | None], None], ___: float
    ) -> None:
        def work() -> None:
            then(asking_policies.planned(problem, policy))

        work() if plans is None else plans.append(work)

    monkeypatch.setattr(BackgroundAnalysis, "begin", lambda *args: None)
    monkeypatch.setattr(BackgroundAnalysis, "plan", plan)
    monkeypatch.setattr(RecurringGraph, "ran_eagerly", ran_so)
    for n in range(runs):
        x, y = queue.array(np.full(COUNT, n, np.int32)), queue.zeros(COUNT, np.int32)
        PROGRAM.stencil(queue, (COUNT,), (GROUP,), x, y)
        PROGRAM.add(queue, (COUNT,), (GROUP,), y, 1)
        out += "p" if queue.enqueued.stream is None else "f"
        assert (y.get()[:-1] == 4 * n + 1).all()
    return out


def test_the_quicker_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setattr(Models, "took", lambda *command: inf)  # else the second run would go to a device
    for planned, eager, then in ((0.002, 0.004, "p"), (0.004, 0.002, "f")):
        with mc.Queue("cpu/2") as queue, monkeypatch.context() as patch:
            found = ways(queue, patch, planned, eager, 70)
            assert found[:4] == "ppff", "nothing is known of it, nor that it comes again; then a device is given all"
            rest = found[found.index(then, 4) :]
            turns = rest.split("f" if then == "p" else "p")[:-1]
            assert [len(turn) for turn in turns] == [RETRIED * 2**n for n in range(len(turns))], "ever more rarely"


def test_what_takes_long_is_planned_where_devices_may_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a plan nothing is kept that a loss would take; what takes little is given at once all the same."""
    for seconds, there in ((0.02, False), (0.004, True)):
        with mc.Queue("cpu/2@process") as queue, monkeypatch.context() as patch:
            assert ("f" in ways(queue, patch, seconds, seconds / 2, 12)) == there


def test_new_graphs_that_take_little_are_not_planned_each_time(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eager_rule, "WORTH", 1e9)
    monkeypatch.setattr(Models, "took", lambda *command: inf)  # nothing is known of their kernels
    with mc.Queue("cpu/2") as queue:
        for n in range(1, 20):
            x = queue.zeros(COUNT * n, np.int32)
            for _ in range(2):
                PROGRAM.add(queue, (COUNT * n,), (GROUP,), x, n)
            assert (x.get() == 2 * n).all()
        assert len(asked) == ENOUGH
        monkeypatch.setattr(eager_rule, "WORTH", 0.0)
        monkeypatch.setattr(eager_rule, "LONG", 0.0)
        for n in range(20, 30):
            x = queue.zeros(COUNT * n, np.int32)
            PROGRAM.add(queue, (COUNT * n,), (GROUP,), x, n)
            assert (x.get() == n).all()
        assert len(asked) == ENOUGH + 9, "where they take longer; the first goes to the stream that there is"
    monkeypatch.setattr(eager_rule, "LONG", 1e9)
    with mc.Queue("cpu/2") as queue:
        for n in range(1, 12):
            x = queue.zeros(COUNT * n, np.int32)
            PROGRAM.add(queue, (COUNT * n,), (GROUP,), x, n)
            assert (x.get() == n).all()
        assert len(asked) == 2 * ENOUGH + 9, "a single command may take longer"


def test_the_first_run_of_what_takes_next_to_nothing_is_not_planned(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with mc.Queue("cpu/2") as queue, monkeypatch.context() as patch:
        for guess in (eager_rule.WORTH / 2, eager_rule.WORTH):
            patch.setattr(Session, "guessed_first", lambda session, launch, guess=guess: guess)
            kernel = mc.Program(f"kernel void add(global int *x) {{ x[get_global_id(0)] += {int(1e6 * guess)}; }}")
            x = queue.zeros(COUNT, np.int32)
            kernel.add(queue, (COUNT,), (GROUP,), x)
            assert (x.get() == int(1e6 * guess)).all()
            assert len(asked) == int(guess == eager_rule.WORTH)


def test_launches_are_guessed_on_the_buffers_that_they_have() -> None:
    with mc.Queue("cpu/2") as queue:
        x = queue.zeros(1 << 20, np.int32)
        with queue.prepare() as prepared:
            PROGRAM.add(queue, (COUNT,), (GROUP,), x, 1)
            PROGRAM.add(queue, (1 << 20,), (GROUP,), x, 1)
        small, large = (GUESS(queue.session, node) for node in prepared.graph.nodes)
        assert 0 < small < large < inf


def test_a_kernel_that_takes_little_is_not_planned_anew_for_each_size(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eager_rule, "WORTH", 1e9)
    with mc.Queue("cpu/2", profile=True) as queue:
        for n in range(1, 12):
            x = queue.zeros(COUNT * n, np.int32)
            PROGRAM.add(queue, (COUNT * n,), (GROUP,), x, n)
            assert (x.get() == n).all()
        assert len(asked) == 1 < ENOUGH


def test_what_begins_as_the_last_short_graph_did_is_expected_to_be_it(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eager_rule, "WORTH", 1e9)
    with mc.Queue("cpu/2") as queue:
        assert [loop(queue, n)[0] for n in range(4)] == [4 * (4 * (4 * n + 1) + 1) + 1 for n in range(4)]
        assert asked == [6], "the second run is given to a device at once"
        x = queue.zeros(2 * COUNT, np.int32)
        PROGRAM.add(queue, x.shape, (GROUP,), x, 1)
        assert (x.get() == 1).all(), "other commands are right as well"


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "dropped"])
def test_what_an_earlier_session_measured_decides_the_first_run(
    is_closed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Programs are read from disk when they are built, not when they run."""
    monkeypatch.setenv("MANYCL_DATA", str(tmp_path))
    monkeypatch.setattr(eager_rule, "WORTH", 1e9)
    reads, do = list[object](), Store._do
    monkeypatch.setattr(Store, "_do", lambda *given: reads.append(given) or do(*given))

    def first_run() -> str:
        with mc.Queue("cpu/2", session=Session("cpu/2", remember=True)) as queue:
            program = mc.Program(f"{PROGRAM.facts.source}\n/* {tmp_path.name} */").build()
            x = queue.zeros(COUNT, np.int32)
            reads.clear()
            program.add(queue, (COUNT,), (GROUP,), x, 1)
            assert (x.get() == 1).all()
            found, (why,) = len(reads), queue.result.details[SUBMITTED]
            if is_closed:
                queue.session.close()
        return f"{why}, {found} reads"

    assert first_run().startswith("planned: nothing is known of it")
    assert first_run() == "eager: its first command is short, 0 reads"
    monkeypatch.setattr(eager_rule, "WORTH", 0.0)
    assert first_run().startswith("planned: nothing is known of it")


def test_a_second_run_goes_by_what_the_first_one_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """That itself took longer, as its code was cold."""
    for limit in ("WORTH", "LONG"):
        monkeypatch.setattr(eager_rule, limit, 60.0)
    monkeypatch.setattr(RecurringGraph, "begins_with", lambda graph, first: False)
    with mc.Queue("cpu/2", session=Session("cpu/2")) as queue:
        x, found = queue.zeros(COUNT, np.int32), list[str]()
        for run in range(2):
            PROGRAM.add(queue, (COUNT,), (GROUP,), x, 1)
            assert (x.get() == run + 1).all()
            found += queue.result.details[SUBMITTED]
        queue.session.close()
    assert found == ["planned: nothing is known of it", "eager: its first command is short"]


def test_graphs_that_differ_by_scalars_are_known_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop's counter is new each time: each has its own result, whichever way it goes. One that comes again is known
    by itself."""
    source = """
    kernel void shift(global int *x, int k) { int i = get_global_id(0); if (i > k) x[i] = x[i] + x[k]; }
    kernel void put(global int *x, int k) { if (get_global_id(0) == 0) x[k] = k; }"""
    program = mc.Program(source)
    monkeypatch.setattr(eager_rule, "WORTH", 0.0)
    monkeypatch.setattr(BackgroundAnalysis, "begin", lambda *args: None)
    for planned, eager, then in ((2.0, 3.0, "p"), (3.0, 2.0, "f")):
        with mc.Queue("cpu/2") as queue, monkeypatch.context() as patch:
            took, ran_eagerly = VariedGraph.took, VariedGraph.ran_eagerly

            def took_so(known: RecurringGraph, _: float, seconds: float = planned, to: Any = took) -> None:
                known.ran = known.ran and seconds
                to(known, seconds)

            patch.setattr(VariedGraph, "took", took_so)
            patch.setattr(
                VariedGraph, "ran_eagerly", lambda known, run, _, by=eager, to=ran_eagerly: to(known, run, by)
            )
            x, expected, ways = queue.zeros(COUNT, np.int32), np.zeros(COUNT, np.int32), ""
            for k in [*range(40), 30, 30]:
                program.put(queue, (COUNT,), (GROUP,), x, k)
                program.shift(queue, (COUNT,), (GROUP,), x, k)
                ways += "p" if queue.enqueued.stream is None else "f"
                queue.finish()
                expected[k] = k
                expected[k + 1 :] += expected[k]
                assert (x.get() == expected).all()
            assert ways[:ENOUGH] == ENOUGH * "p", "each may come again"
            assert ways[30:40].count(then) >= 8, "the other way is tried now and then"
            assert len(queue._recurring._known) == ENOUGH + 1


@pytest.mark.parametrize("zero_copy", ["0", "1"])
def test_one_device_is_given_all_at_once(monkeypatch: pytest.MonkeyPatch, zero_copy: str) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", zero_copy)
    with mc.Queue("cpu/1") as queue:
        assert ways(queue, monkeypatch, 1.0, 2.0, 70) == "f" * 70
        assert not queue._recurring._known


def test_what_was_not_expected_is_right_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two loops in turn, and in any order; one of them begins as the other one does."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setattr(eager_rule, "WORTH", 1.0)
    with mc.Queue("cpu/2") as queue:
        for n, times in enumerate([3, 3, 3, 3, 3, 3, 5, 3, 5, 3, 5, 3, 5, 3, 5, 5, 5, 3, 3, 1, 3, 1]):
            want = n
            for _ in range(times):
                want = 4 * want + 1
            assert loop(queue, n, times)[0] == want


def test_with_gpus_what_nobody_knows_goes_to_one_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    for planned, eager, found in (
        (1.0, 2.0, "ff" + "p" * (2 + RETRIED)),
        (0.0025, 0.002, "ff" + "pp" + "f" * RETRIED),
        (0.1, 0.002, "ff" + "pp" + "f" * RETRIED),  # plans do not help; one run would not show that
        (0.1, 1e-4, "f" * 12),
    ):
        with mc.Queue("cpu/2") as queue, monkeypatch.context() as patch:
            for lanes in queue.session.backend.lanes:
                patch.setattr(lanes, "watched", True)
            assert ways(queue, patch, planned, eager, len(found)) == found


def test_a_loop_goes_on_while_it_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its planning takes long beside a run: no run waits for it, and the plan is tried once it is there."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    with mc.Queue("cpu/2") as queue, monkeypatch.context() as patch:
        for lanes in queue.session.backend.lanes:
            patch.setattr(lanes, "watched", True)
        plans: Waiting = []
        assert ways(queue, patch, 0.002, 0.004, 12, plans) == 12 * "f"
        assert len(plans) == 1
        plans.pop()()
        found = ways(queue, patch, 0.002, 0.004, 6, plans)
        assert found[1:] == 5 * "p", "how the next run goes may have been decided before"


def test_what_is_tried_again_without_a_plan_does_not_rest() -> None:
    """Nothing is known of it then: what it took before has been forgotten."""
    with Session("cpu/2") as session:
        known = RecurringGraph(session, 1, Signature((), (), ()), "auto")
    known.then = weakref.ref(known)
    for _ in range(RETRIED):
        known.ran_eagerly(SimpleNamespace(device=DeviceIndex(0), given=[]), 2.8e-3)
    for _ in range(TRIALS):
        known.ran = 2e-3
        known.took(2e-3)
    ways = []
    for _ in range(2 * RETRIED):
        ways.append(decide(Facts(devices=2, graph=known.measured)))
        known.obey(ways[-1])
    assert [way.device for way in ways].index(0) == RETRIED
    assert not any(way.is_settled for way in ways)


def test_runs_on_one_device_are_compared_device_by_device() -> None:
    """A plan with all on a slower device is no measurement of the faster one, which is given the commands again."""
    with Session("cpu/2") as session:
        known = RecurringGraph(session, 1, Signature((), (), ()), "auto")
    known.ran_eagerly(SimpleNamespace(device=DeviceIndex(0), given=[]), 30e-3)
    known._answer = Plan((Assignment(0, DeviceIndex(1), 0, 0.0, 1.0),), "auto", ("cpu0.0", "cpu0.1"), 1.0)
    for _ in range(TRIALS):
        known.took(50e-3)
    measured = known.measured
    assert (measured.device, measured.eager) == (0, 30e-3)
    assert (measured.planned, measured.planned_runs) == (50e-3, TRIALS)


def test_the_first_runs_with_contents_sent_straight_make_earlier_ones_forgotten() -> None:
    with Session("cpu/2") as session:
        known = RecurringGraph(session, 1, Signature((), (), ()), "auto")
    run = SimpleNamespace(device=DeviceIndex(0), given=[])
    for seconds, known.copying in ((0.2, 0.05), (0.1, 0.05), (0.03, 0.0), (0.04, 0.0)):
        known.ran_eagerly(run, seconds)
    assert known.measured.eager == 0.03


def test_a_gpu_beside_a_processor_is_judged_once_contents_go_straight_to_it() -> None:
    """Without a device in the host's memory, none has to do without that; and it is not waited for without end."""
    with Session("cpu/2") as session:
        known = RecurringGraph(session, 1, Signature((), (), ()), "auto")
    far, near = SimpleNamespace(memory=1), SimpleNamespace(memory=0)
    run: Any = SimpleNamespace(device=DeviceIndex(0), given=[])
    cold = []
    for devices, copying in (([far, near], 0.05), ([far, far], 0.05), ([far, near], 0.0), ([near, far], 0.05)):
        known.copying = copying
        known.ran_eagerly(run, 0.1)
        known.session = SimpleNamespace(machine=SimpleNamespace(devices=devices))  # type: ignore[assignment]
        cold.append(known._is_cold)
    assert cold == [True, False, False, False]
    known.session = SimpleNamespace(machine=SimpleNamespace(devices=[far, near]))  # type: ignore[assignment]
    for _ in range(ENOUGH):
        assert known._is_cold is (known._alone <= ENOUGH + 1)
        known.ran_eagerly(run, 0.1)
    assert not known._is_cold
