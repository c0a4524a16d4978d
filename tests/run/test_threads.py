"""What several threads share, each with a queue of its own: what one of them does must not be seen half done."""

from __future__ import annotations

import threading
import time
import traceback
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

import manycl as mc
from manycl.analysis import parse_program, service
from manycl.analysis.costs import cost
from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.launched import LaunchFacts
from manycl.drivers.opencl.quiet import quiet
from manycl.graph import division as division_module
from manycl.graph.division import Division, divide
from manycl.graph.graph import BufferArg, Launch
from manycl.group_range import GroupRange
from manycl.plan import splitting
from manycl.utilities.kept import Kept

SOURCE = "kernel void {name}(global const int *a, global int *b) {{ b[get_global_id(0)] = a[get_global_id(0)]; }}"
SIZES = {0: 4096, 1: 4096}


def side_by_side(*works: Callable[[], Any]) -> list[Any]:
    """What each returns, all run at once in threads of their own. Fails with the traceback of one that raises."""
    found: list[Any] = [None] * len(works)
    failed: list[str] = []
    together = threading.Barrier(len(works))

    def run(index: int) -> None:
        try:
            together.wait(60)
            found[index] = works[index]()
        except BaseException:
            failed.append(traceback.format_exc())

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads)
    assert not failed, "\n".join(failed)
    return found


def meeting(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function in which two threads wait for each other."""
    both = threading.Barrier(2)

    def met(*args: Any) -> Any:
        both.wait(60)
        return function(*args)

    return met


def launch(name: str, groups: int = 64) -> Launch:
    program = parse_program(SOURCE.format(name=name))
    args = BufferArg(0), BufferArg(1)
    return Launch(name, program, program.kernels[name], (16 * groups,), (16,), args, (0,), (1,))


def test_kernels_are_made_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyOpenCL generates code for a kernel; between the choice of its name and the use of it, another thread may choose
    the same: pytools then warns, which is an error here."""
    from pytools import py_codegen

    choose = py_codegen._linecache_unique_name

    def slowly(*args: Any) -> str:
        name = choose(*args)
        time.sleep(0.1)
        return name

    monkeypatch.setattr(py_codegen, "_linecache_unique_name", slowly)
    program = mc.Program(SOURCE.format(name="copied"))

    def run() -> None:
        queue = mc.Queue("cpu/2#0", policy="in_order")
        try:
            a, b = queue.array(np.arange(64, dtype=np.int32)), queue.empty(64, np.int32)
            program.copied(queue, (64,), (16,), a, b)
            assert (b.get() == np.arange(64)).all()
        finally:
            queue.session.close()

    side_by_side(run, run)


def test_remarks_stay_quiet_until_the_last_thread_has_built() -> None:
    inside, left = threading.Event(), threading.Event()

    def first() -> None:
        with quiet:
            assert inside.wait(60)
        left.set()

    def last() -> None:
        with quiet:
            inside.set()
            assert left.wait(60)
            warnings.warn("a remark", cl.CompilerWarning, stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        side_by_side(first, last)
        assert list(warnings.filters) == before
        with pytest.raises(cl.CompilerWarning):
            warnings.warn("a remark", cl.CompilerWarning, stacklevel=1)


def test_the_same_launch_is_analysed_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from manycl.analysis import launched

    program = parse_program(SOURCE.format(name="analysed"))
    given = KnownLaunch((1024,), (16,), sizes=SIZES)
    monkeypatch.setattr(launched, "interpret", meeting(launched.interpret))
    one, other = side_by_side(*[lambda: service.launched(program, "analysed", given)] * 2)
    assert one is other


def test_the_first_verdict_stays() -> None:
    """The second thread's question runs out of time: it gets the first one's answer."""
    known = service.launched(parse_program(SOURCE.format(name="judged")), "judged", KnownLaunch((1024,), (16,)))
    verdict = object()  # unlike what is found out without that answer
    answered = threading.Event()
    asked = threading.Barrier(2)
    first = threading.Lock()

    def remote(what: str, arguments: tuple[object, ...]) -> object:
        asked.wait(60)
        if first.acquire(blocking=False):
            return verdict
        assert answered.wait(60)
        return None

    facts = LaunchFacts(service._unit(parse_program(SOURCE.format(name="judged"))), known.facts, known.launch, remote)

    def ask() -> Any:
        found = facts.split(0)
        answered.set()
        return found

    assert side_by_side(ask, ask) == [verdict, verdict]


def test_the_same_launch_is_divided_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    given = launch("halved")
    divide(launch("other"), 0, SIZES)  # the analysis process runs
    monkeypatch.setattr(division_module.service, "sub_kernel", meeting(service.sub_kernel))
    one, other = side_by_side(*[lambda: divide(given, 0, SIZES)] * 2)
    assert one is other


def test_what_ranges_touch_is_known_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one thread finds out what a range touches, another asks."""
    division = divide(launch("windowed"), 0, SIZES)
    begun, go_on = threading.Event(), threading.Event()
    around = Division._around

    def waiting(self: Division, index: int, kind: str, groups: Any) -> Any:
        if self.argument(index).key == 1 and not begun.is_set():
            begun.set()
            assert go_on.wait(60)
        return around(self, index, kind, groups)

    monkeypatch.setattr(Division, "_around", waiting)

    def ask() -> Any:
        return {key: (a.reads | a.writes).intervals for key, a in division.access(division.range(0, 16)).items()}

    def other() -> Any:
        assert begun.wait(60)
        try:
            return ask()
        finally:
            go_on.set()

    assert side_by_side(ask, other) == [{0: [(0, 1024)], 1: [(0, 1024)]}] * 2


class Watched(OrderedDict[Any, Any]):
    """Its first lookup gives another thread time to forget what was found."""

    def __init__(self, items: Any) -> None:
        super().__init__(items)
        self.looking, self.forgotten = threading.Event(), threading.Event()

    def _pause(self) -> None:
        if not self.looking.is_set():
            self.looking.set()
            self.forgotten.wait(0.3)  # where the other must wait, this goes on

    def get(self, key: Any, default: Any = None) -> Any:
        found = super().get(key, default)
        self._pause()
        return found

    def __contains__(self, key: Any) -> bool:
        found = super().__contains__(key)
        self._pause()
        return found


def test_what_is_forgotten_meanwhile_is_found_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    known, other = launch("remembered"), launch("remembered_instead")
    facts = divide(known, 0, SIZES).facts
    splits = Kept[Any, Any](1)
    monkeypatch.setattr(splitting, "_known", splits)
    divided = Kept[Any, Any](1)
    monkeypatch.setattr(division_module, "_known", divided)
    asked = [
        (divided, "_values", lambda given: divide(given, 0, SIZES).groups, 64),
        (splits, "_values", lambda given: getattr(splitting.split_of(given, SIZES), "groups", None), 64),
        (
            facts.cost,
            "_works",
            lambda given: facts.work(GroupRange(0, 0, 1 + (given is other))).work_groups,
            None,
        ),
    ]
    monkeypatch.setattr(cost, "_KEPT", 0)
    for owner, name, ask, expected in asked:
        expected = expected or ask(known)
        watched = Watched({})
        monkeypatch.setattr(owner, name, watched)
        watched.looking.set()  # not yet
        ask(known)
        assert len(watched) == 1
        watched.looking.clear()

        def forget(ask: Any = ask, watched: Watched = watched) -> None:
            assert watched.looking.wait(60)
            ask(other)
            watched.forgotten.set()

        assert side_by_side(lambda ask=ask: ask(known), forget)[0] == expected
