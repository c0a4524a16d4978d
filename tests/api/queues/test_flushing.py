"""Flushing: what was flushed runs in the background, in its order, while more is enqueued."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.errors import LaunchError, ResultError, RunError
from tests.api.queues.event_cases import PATIENCE, PROGRAM, SIZES, STATUS, Gate, N


def test_what_was_flushed_runs_while_more_is_enqueued(queue: mc.Queue) -> None:
    a, gate = queue.zeros(N, np.int32), Gate()
    first = PROGRAM.inc(queue, *SIZES, a)
    held = queue.call(gate, a)
    queue.flush()
    assert gate.begun.wait(PATIENCE), "nobody has asked for anything"
    assert held.status is STATUS.SUBMITTED
    later = PROGRAM.inc(queue, *SIZES, a)
    assert later.status is STATUS.QUEUED
    queue.flush()
    queue.flush()
    assert len(queue) == 3
    gate.go.set()
    assert (a.get() == 2).all()
    assert [e.status for e in (first, held, later)] == [STATUS.COMPLETE] * 3
    assert first.end <= held.start <= held.end <= later.start + 10**6
    assert len(queue) == 0


@pytest.mark.usefixtures("collected")
def test_an_event_of_what_was_flushed_is_waited_for_and_no_more(two: mc.Queue) -> None:
    a, b = two.zeros(N, np.int32), two.zeros(N, np.int32)
    event = PROGRAM.inc(two, *SIZES, a)
    two.flush()
    later = PROGRAM.inc(two, *SIZES, b)
    event.wait()
    assert event.status is STATUS.COMPLETE
    assert later.status is STATUS.QUEUED
    assert len(two) == 1


def test_streams_are_sent(single: mc.Queue) -> None:
    a = single.zeros(N, np.int32)
    event = PROGRAM.inc(single, *SIZES, a)
    single.flush()
    until = time.monotonic() + PATIENCE
    while event.status is not STATUS.COMPLETE:
        assert time.monotonic() < until
    assert len(single) == 1
    assert single.session.devices.stream is not None
    PROGRAM.inc(single, *SIZES, a)
    assert (a.get() == 2).all()


def test_another_queue_waits_for_what_was_flushed(two: mc.Queue) -> None:
    a, gate = two.zeros(N, np.int32), Gate()
    two.call(gate, a)
    PROGRAM.inc(two, *SIZES, a)
    two.flush()
    assert gate.begun.wait(PATIENCE)
    threading.Timer(0.05, gate.go.set).start()
    with mc.Queue(session=two.session) as other:
        PROGRAM.inc(other, *SIZES, a)
        assert (a.get() == 2).all()


def test_what_fails_in_the_background_is_told_to_who_asks_next(queue: mc.Queue) -> None:
    a, b, gate = queue.zeros(N, np.int32), queue.zeros(N, np.int32), Gate(ValueError("no such luck"))
    called: list[int] = []
    failing = queue.call(gate, a)
    queue.flush()
    assert gate.begun.wait(PATIENCE)
    flushed = queue.call(lambda x: called.append(1), b)
    queue.flush()
    enqueued = queue.call(lambda x: called.append(2), b)
    gate.go.set()
    with pytest.raises(RunError, match="no such luck"):
        b.get()
    assert not called
    for event in (failing, flushed, enqueued):
        assert "no such luck" in str(event.status)
    for array in (a, b):
        with pytest.raises(ResultError, match="unknown"):
            array.get()
    a.set(np.zeros(N, np.int32))
    PROGRAM.inc(queue, *SIZES, a)
    assert (a.get() == 1).all()
    queue.finish()


def test_where_nothing_can_be_flushed(two: mc.Queue) -> None:
    told: list[str] = []
    with two.prepare(), pytest.raises(LaunchError, match="prepared"):
        two.flush()

    def inside(x: object) -> None:
        try:
            two.flush()
        except RunError as error:
            told.append(str(error))

    two.call(inside, two.zeros(N, np.int32))
    two.finish()
    assert "host function" in told[0]
    two.flush()  # nothing is enqueued


def test_loops_that_are_flushed_each_time(queue: mc.Queue) -> None:
    a, b, reads = queue.zeros(N, np.int32), queue.zeros(N, np.int32), []
    for turn in range(12):
        PROGRAM.inc(queue, *SIZES, a)
        PROGRAM.add(queue, *SIZES, a, b)
        reads.append(queue.read(b))
        queue.flush()
        if turn % 5 == 4:
            reads[-2].wait()
    queue.finish()
    assert [int(read.out[0]) for read in reads] == list(np.cumsum(range(1, 13)))
    assert all((read.out == read.out[0]).all() for read in reads)


def test_nothing_overtakes_what_was_flushed(single: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the thread that is to run it has not begun."""
    a, jobs = single.zeros(N, np.int32), []
    monkeypatch.setattr(single.background, "submit", jobs.append)
    PROGRAM.inc(single, *SIZES, a)
    read = single.read(a)
    single.flush()
    PROGRAM.inc(single, *SIZES, a)
    assert single.enqueued.stream is None
    assert (a.get() == 2).all()
    assert (read.out == 1).all()
    for job in jobs:
        job()
    PROGRAM.inc(single, *SIZES, a)
    assert single.enqueued.stream is not None


STEPS = ["inc", "inc", "add", "add", "fill", "read", "call", "flush", "wait", "other queue"]


@pytest.mark.parametrize("devices", ["cpu/2#0", "cpu/2"])
@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 8)), max_size=30))
def test_whatever_is_flushed_and_waited_for_results_are_numpys(devices: str, steps: list[tuple[str, int]]) -> None:
    with mc.Queue(devices) as queue, mc.Queue(session=queue.session) as other:
        arrays = [queue.array(np.full(N, i, np.int32)) for i in range(3)]
        model = [np.full(N, i, np.int32) for i in range(3)]
        events, reads, called = list[mc.Event](), list[tuple[Any, Any]](), list[int]()
        for kind, r in steps:
            i, j = r % 3, (r + 1) % 3
            if kind in ("inc", "other queue"):
                events.append(PROGRAM.inc(queue if kind == "inc" else other, *SIZES, arrays[i]))
                model[i] += 1
            elif kind == "add":
                events.append(PROGRAM.add(queue, *SIZES, arrays[i], arrays[j]))
                model[j] += model[i]
            elif kind == "fill":
                events.append(queue.fill(arrays[i], r))
                model[i][:] = r
            elif kind == "read":
                events.append(read := queue.read(arrays[i]))
                reads.append((read, model[i].copy()))
            elif kind == "call":
                events.append(queue.call(lambda x: x.__iadd__(2), arrays[i]))
                model[i] += 2
            elif kind == "flush":
                queue.flush()
            elif events:
                event = events[-1 - r % len(events)]
                event.wait()
                assert event.status is STATUS.COMPLETE
        for number, event in enumerate(events):
            event.add_callback(lambda event, number=number: called.append(number))
        for array, want in zip(arrays, model, strict=True):
            assert (array.get() == want).all()
        for read, want in reads:
            read.wait()
            assert (read.out == want).all()
        queue.finish()
        other.finish()
        assert all(event.status is STATUS.COMPLETE for event in events)
    assert sorted(called) == [*range(len(events))]
