"""Caches stay within their bounds, whatever a program asks for, and threads get one answer."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import manycl as mc
from manycl.analysis import parse_program
from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.regions.regions import Regions
from manycl.analysis.service import launched
from manycl.graph import division
from manycl.graph.graph import Buffer, BufferArg, Graph, Launch, Version
from manycl.group_range import GroupRange
from manycl.model import trips
from manycl.plan import splitting
from manycl.plan.analysis_budget import AnalysisBudget
from manycl.run.executor import programs
from manycl.run.graph_cache import learners
from manycl.run.lowering import ranges
from manycl.utilities.kept import MANY as MOST
from manycl.utilities.kept import Kept

MANY = 10_000
UP = parse_program("kernel void up(global int *x) { x[get_global_id(0)] += 1; }")


def up(items: int, name: str = "up") -> Launch:
    kernel = replace(UP.kernels["up"], name=name)
    return Launch(name, UP, kernel, (items,), (1,), (BufferArg(0),), (0,), (0,))


@given(st.integers(1, 5), st.lists(st.tuples(st.booleans(), st.integers(0, 9))))
def test_what_is_kept_is_what_the_clock_algorithm_keeps(most: int, asked: list[tuple[bool, int]]) -> None:
    kept, hand, again = Kept[int, str](most), deque[tuple[int, str]](), set[int]()
    for turn, (keeps, key) in enumerate(asked):
        known = dict(hand).get(key)
        if known is not None:
            again.add(key)
        elif keeps:
            while len(hand) == most:
                first = hand.popleft()
                if first[0] in again:
                    again.remove(first[0])
                    hand.append(first)
            hand.append((key, known := f"answer {turn}"))
        assert (kept.keep(key, f"answer {turn}") if keeps else kept.get(key)) == known
        assert kept.values() == [answer for _, answer in hand]
        assert len(kept) == len(hand) <= most


def test_what_is_asked_for_all_the_time_stays() -> None:
    kept = Kept[int, str](4)
    kept.keep(0, "always")
    for n in range(1, 100):
        kept.keep(n, "once")
        assert kept.get(0) == "always"


def test_threads_get_the_same_answer() -> None:
    kept, gate = Kept[int, object](8), threading.Barrier(4)
    found: list[list[object]] = [[] for _ in range(4)]

    def ask(mine: list[object]) -> None:
        gate.wait(timeout=60)
        mine.extend(kept.keep(key, object()) for key in range(8))

    threads = [threading.Thread(target=ask, args=(mine,)) for mine in found]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(mine == found[0] for mine in found)
    kept.clear()
    assert not len(kept)


def test_many_ndranges_and_scalars_of_a_kernel() -> None:
    program = mc.Program("kernel void add(global int *x, int by) { x[0] += by; }")
    with mc.Queue("cpu/2") as queue:
        x = queue.zeros(4, "i4")
        with queue.prepare():
            for n in range(1, MANY):
                program.add(queue, (n,), None, x, n)
    assert 0 < len(program.add._ndranges) <= MOST
    assert 0 < len(program.add._scalars) <= MOST


def test_many_ranges_of_a_launch() -> None:
    facts = launched(UP, "up", KnownLaunch((MANY,), (1,), sizes={0: 4 * MANY}))
    for first in range(MANY):
        assert facts.region(0, "read", GroupRange(0, first, 1)).nbytes == 4
    assert len(facts._found) <= MOST
    here = Regions(facts.facts, facts.summary, facts.launch)
    here.rectangular = lambda *_: None  # type: ignore[method-assign]  # what isl is asked
    here._region = lambda *key: facts.region(*key)  # type: ignore[method-assign]
    for first in range(MANY):
        assert here.region(0, "write", GroupRange(0, first, 1)).rectangles[0].offset == 4 * first
    assert len(here._regions) == MOST


def test_many_kernels_and_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trips, "_known", Kept[Any, trips.TripCount](MOST))
    monkeypatch.setattr(splitting, "_known", Kept[Any, Any](MOST))
    monkeypatch.setattr(splitting, "_best", lambda *_: "not looked at")
    monkeypatch.setattr(
        "manycl.analysis.service.launched", lambda *_: SimpleNamespace(unanswered=0, is_evaluated=False)
    )
    budget = AnalysisBudget()
    by_hand = replace(UP, tree=b"")
    for n in range(1, MANY):
        launch = up(n, f"up{n}")
        assert trips.trip_count(by_hand, launch.kernel) is trips.ONCE
        graph = Graph((launch,), {0: Buffer(0, 4 * n, "x")}, ())
        assert splitting.Splits(graph).why(0) == "not looked at"
        assert budget.afford([launch], 0.0, 1e9, 0.0)
    assert len(trips._known) == len(splitting._known) == MOST
    assert 0 < len(budget.kinds) <= MOST
    assert 0 < len(budget.kernels) <= MOST


def test_many_policies_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    class Idle:
        def plan(self, problem: object) -> None:
            raise NotImplementedError

    monkeypatch.setattr(learners, "_plain", Kept[str, Any](256))
    monkeypatch.setattr(learners, "find", lambda name: Idle())
    for n in range(MANY):
        assert learners.Learners().find(f"mine.py:policy{n}") == f"mine.py:policy{n}"
    assert len(learners._plain) == 256


def test_many_ranges_of_a_divided_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (division, ranges):
        monkeypatch.setattr(module, "MANY", 256)
    divided = division.Division(up(MANY), 0, {0: 4 * MANY})
    launches = ranges.RangeLaunches(divided)
    for first in range(MANY):
        groups = divided.range(first, 1)
        assert launches.range(groups, {}).global_size == (1,)
        if first % 10 == 0:
            assert divided.access(groups)[0].writes.intervals == [(4 * first, 4 * first + 4)]
            assert divided.hull(groups) is not None
    kept = launches._ranges, divided._access, divided._hulls
    assert [len(k) for k in kept] == [256] * 3


class Built:
    """A driver that builds nothing."""

    def __init__(self, number: int) -> None:
        self._number = number

    def build(self, source: Any) -> Any:
        return source.text, self._number

    def kernel(self, program: Any, name: str) -> Any:
        return SimpleNamespace(built=program, most_items=1, set=None)


def test_many_programs_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Built, and their kernels, and which of several versions runs; in place of the driver's there is nothing."""
    monkeypatch.setattr(programs, "PROGRAMS_KEPT", 16)
    monkeypatch.setattr(programs, "MANY", 64)
    with mc.Queue("cpu/2") as queue:
        session = queue.session
        made = programs.Programs(session.machine, [Built(0), Built(1)])  # type: ignore[list-item]

    for n in range(MANY):
        program = replace(UP, source=f"{UP.source} // {n}")
        kernel = made.kernel(program, "up", n % 2)
        assert kernel.kernel.built == (program.source, n % 2)
        assert made.kernel(program, "up", n % 2) is kernel
        version = Version(program, program.kernels["up"], (1,), (1,))
        assert made.version(replace(up(1), versions=(version,)), n % 2) is version
    for device in range(2):
        kept = made._built[device], made._kernels[device], made._chosen[device]
        assert [len(k) for k in kept] == [16, 64, 64]
