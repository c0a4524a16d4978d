"""Threads that ask for short time slices: where the system tells of them (Linux 6.12)."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest

import manycl as mc
from manycl.utilities import prompt


def slice_of_thread() -> int | None:
    """ns that the system lets the calling thread run at once; None where it does not tell, or the thread is none of
    the ordinary ones."""
    found = prompt._attributes()
    return found[5] or None if found is not None else None


def in_thread(work: Callable[[], object]) -> list[int | None]:
    """The slices of a new thread, before and after."""
    found: list[int | None] = []

    def look() -> None:
        found.append(slice_of_thread())
        work()
        found.append(slice_of_thread())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    if found[0] is None:
        pytest.skip("this system does not tell how long slices are")
    assert found[0] > prompt.SLICE
    return found


def test_a_thread_is_prompt_and_what_it_starts_is_not() -> None:
    inner: list[int | None] = []

    def ask() -> None:
        policy, nice = os.sched_getscheduler(0), os.nice(0)
        for _ in range(2):
            prompt.be_prompt()
        assert (os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK, os.nice(0)) == (policy, nice)
        inner.extend(in_thread(lambda: None))

    before, after = in_thread(ask)
    assert after == prompt.SLICE
    assert inner == [before, before]


@pytest.mark.skipif(sys.platform != "linux", reason="the system's own")
@pytest.mark.parametrize("may", [False, True])
def test_waits_of_a_thread_that_is_punctual_end_in_time(may: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_PROMPT", "1" if may else "0")
    slack: list[int] = []
    get_slack = partial(ctypes.CDLL(None).prctl, 30, 0, 0, 0, 0)  # PR_GET_TIMERSLACK

    def look() -> None:
        slack.append(get_slack())
        prompt.be_punctual()
        slack.append(get_slack())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert slack[0] > prompt.PUNCTUAL
    assert slack[1] == (prompt.PUNCTUAL if may else slack[0])


def test_it_may_be_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_PROMPT", "0")
    before, after = in_thread(prompt.be_prompt)
    assert before == after


def test_another_policy_stays() -> None:
    def ask() -> None:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        prompt.be_prompt()
        assert os.sched_getscheduler(0) == os.SCHED_BATCH

    assert in_thread(ask)[1] is None


def test_who_runs_something_is_prompt() -> None:
    def work() -> None:
        with mc.Queue("native/2#0") as queue:
            (queue.array(np.arange(9, dtype=np.float32)) + 1).get()

    assert in_thread(work)[1] == prompt.SLICE


@pytest.fixture
def interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


def test_turns_are_short_for_a_while(interval: None) -> None:
    sys.setswitchinterval(0.004)
    turns = prompt.ShortTurns(prompt.TURN)
    for _ in range(2):
        turns.enter(1)
        assert sys.getswitchinterval() == pytest.approx(prompt.TURN)
    turns.leave(1)
    assert sys.getswitchinterval() == pytest.approx(0.004)
    sys.setswitchinterval(0.003)
    turns.leave(1)  # of what has not begun again
    assert sys.getswitchinterval() == pytest.approx(0.003)


def test_of_turns_that_several_ask_for_the_shortest_counts(interval: None) -> None:
    sys.setswitchinterval(0.004)
    turns, shorter = prompt.ShortTurns(1e-4), prompt.ShortTurns(prompt.TURN)
    turns.enter(1)
    shorter.enter(2)
    turns.enter(3)
    assert sys.getswitchinterval() == pytest.approx(prompt.TURN)
    turns.leave(1)
    shorter.leave(2)
    assert sys.getswitchinterval() == pytest.approx(1e-4)
    turns.leave(3)
    assert sys.getswitchinterval() == pytest.approx(0.004)


def test_who_says_how_long_turns_are_is_heeded(interval: None) -> None:
    turns = prompt.ShortTurns(prompt.TURN)
    turns.enter(1)
    sys.setswitchinterval(0.02)
    turns.leave(1)
    assert sys.getswitchinterval() == pytest.approx(0.02)
    sys.setswitchinterval(prompt.TURN / 4)
    turns.enter(1)
    assert sys.getswitchinterval() == pytest.approx(prompt.TURN / 4), "they are shorter"
    turns.leave(1)
    assert sys.getswitchinterval() == pytest.approx(prompt.TURN / 4)


def test_who_looks_gives_way_to_others() -> None:
    """A thread that asks for Python's lock has it long before the turn of who has it would end."""
    asked, has_run = threading.Event(), list[bool]()

    def other() -> None:
        asked.wait()
        has_run.append(True)

    thread = threading.Thread(target=other)
    thread.start()
    before = sys.getswitchinterval()
    sys.setswitchinterval(100.0)
    try:
        asked.set()
        for _ in range(1_000_000):
            prompt.give_way()
            if has_run:
                break
    finally:
        sys.setswitchinterval(before)
    assert has_run
    thread.join()
