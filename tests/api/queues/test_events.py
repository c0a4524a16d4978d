"""Events: how far commands are, when they ran, waiting for one of them, callbacks; and what runs in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.api import waits
from manycl.errors import LaunchError, ManyclError, ResultError, RunError
from tests.drivers.failing import failing

N = 64
SIZES = (N,), (16,)
PROGRAM = mc.Program("""
kernel void inc(global int *x) { x[get_global_id(0)] += 1; }
kernel void add(global const int *x, global int *y) { y[get_global_id(0)] += x[get_global_id(0)]; }
""")
STATUS = mc.CommandStatus
PATIENCE = 60  # seconds, after which something hangs


@pytest.fixture(params=["cpu/2#0", "cpu/2"])
def queue(request: pytest.FixtureRequest) -> Iterator[mc.Queue]:
    """One device, which is given commands as they are enqueued; and two, which share what is planned."""
    with mc.Queue(request.param, profile=True) as queue:
        yield queue


@pytest.fixture
def single() -> Iterator[mc.Queue]:
    with mc.Queue("cpu/2#0", profile=True) as queue:
        yield queue


@pytest.fixture
def two() -> Iterator[mc.Queue]:
    with mc.Queue("cpu/2") as queue:
        yield queue


class Gate:
    """A host function that stands still until it is let go."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun, self.go, self.error = threading.Event(), threading.Event(), error

    def __call__(self, *args: object) -> None:
        self.begun.set()
        assert self.go.wait(PATIENCE)
        if self.error is not None:
            raise self.error


# status, and waiting for one command


def test_every_kind_of_command_tells_that_it_is_complete_and_when_it_ran(queue: mc.Queue) -> None:
    a, b, out = queue.zeros(N, np.int32), queue.zeros(N, np.int32), np.empty(N, np.int32)
    queue.finish()
    before = time.perf_counter_ns()
    events = [
        queue.write(a, np.arange(N)),
        PROGRAM.inc(queue, *SIZES, a),
        queue.copy(b, a),
        queue.fill(a, 5),
        PROGRAM.add(queue, *SIZES, a, b),
        queue.call(lambda x: time.sleep(0.002), b, writes=[]),
        queue.read(b, out),
    ]
    queue.finish()
    after = time.perf_counter_ns()
    assert out.tolist() == [i + 6 for i in range(N)]
    assert all(e.status is STATUS.COMPLETE and e.command_execution_status == 0 for e in events)
    slack = 10**8  # a device's clock is read to some microseconds; another clock would be off by far more
    for event in events:
        assert isinstance(event.start, int)
        assert before - slack <= event.start <= event.end <= after + slack
        assert (event.profile.start, event.profile.end) == (event.start, event.end)
    for first, second in [(0, 1), (1, 2), (2, 4), (3, 4), (4, 5), (4, 6)]:
        assert events[first].end <= events[second].start + 10**6, (first, second)
    assert events[5].end - events[5].start >= 2 * 10**6


def test_what_was_only_collected_is_queued(two: mc.Queue) -> None:
    a = two.zeros(N, np.int32)
    event, other = PROGRAM.inc(two, *SIZES, a), two.read(a)
    assert event.status is other.status is STATUS.QUEUED
    with pytest.raises(ResultError, match=r"has not ended[\s\S]*wait"):
        assert event.start
    event.wait()
    assert event.status is other.status is STATUS.COMPLETE
    assert (other.out == 1).all()
    event.wait()
    assert len(two) == 0


def test_times_that_nobody_took_are_refused_with_what_to_do() -> None:
    with mc.Queue("cpu/2#0", profile=False) as queue:
        event = PROGRAM.inc(queue, *SIZES, queue.zeros(N, np.int32))
        event.wait()
        with pytest.raises(ResultError, match=r"not timed[\s\S]*profile=True"):
            assert event.end


def test_a_command_that_the_device_has_is_all_that_is_waited_for(single: mc.Queue) -> None:
    a, b = single.zeros(N, np.int32), single.zeros(N, np.int32)
    first = PROGRAM.inc(single, *SIZES, a)
    second = PROGRAM.add(single, *SIZES, a, b)
    first.wait()
    assert first.status is STATUS.COMPLETE
    assert 0 < first.end - first.start < 10**9
    assert len(single) == 2, "nothing has been ended"
    assert single.session.devices.stream is not None
    second.wait()
    assert len(single) == 0, "it was the last"
    assert second.start >= first.end
    assert (b.get() == 1).all()


def test_the_last_event_is_of_all_that_was_enqueued(queue: mc.Queue) -> None:
    """Also of what runs in the background; there is none where nothing is left."""
    gate, a, b = Gate(), queue.zeros(4, np.int32), queue.zeros(4, np.int32)
    assert queue.last is None
    queue.fill(a, 1)
    filled = queue.last
    assert filled is not None
    assert queue.uses(a)
    assert not queue.uses(b)
    queue.call(gate, b)
    queue.flush()
    assert gate.begun.wait(PATIENCE)
    behind = queue.last
    assert behind is not None
    assert queue.uses(b)
    assert behind.status != STATUS.COMPLETE
    gate.go.set()
    behind.wait()
    assert filled.status == behind.status == STATUS.COMPLETE
    queue.finish()
    assert queue.last is None
    assert not queue.uses(b)


def test_times_can_be_wanted_later() -> None:
    with mc.Queue("cpu/2#0", profile="learning") as queue:
        queue.session.devices.time_all()
        a = queue.zeros(4, np.int32)
        for _ in range(5):
            event = queue.fill(a, 1)
            queue.finish()
        assert event.start <= event.end


def test_a_stream_does_not_go_on_for_ever(single: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "HORIZON", 8)
    a, longest = single.zeros(N, np.int32), 0
    event = PROGRAM.inc(single, *SIZES, a)
    for _ in range(40):
        following = PROGRAM.inc(single, *SIZES, a)
        event.wait()
        event, longest = following, max(longest, len(single))
    assert 8 <= longest <= 12
    assert (a.get() == 41).all()


def test_commands_of_one_device_wait_for_those_before(single: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    a = single.zeros(N, np.int32)
    events = [PROGRAM.inc(single, *SIZES, a) for _ in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(single.session.backend.lanes[0].driver, "done", lambda event: False)
        assert [e.status for e in events] == [STATUS.RUNNING, STATUS.SUBMITTED, STATUS.SUBMITTED]
    single.finish()
    assert [e.status for e in events] == [STATUS.COMPLETE] * 3


def test_a_command_that_fails_is_what_its_event_tells(single: mc.Queue) -> None:
    a = single.zeros(N, np.int32)
    events = [PROGRAM.inc(single, *SIZES, a) for _ in range(3)]
    behind = single.call(lambda x: None, a)
    assert single.enqueued.stream is not None
    driver, bad = single.session.backend.lanes[0].driver, single.enqueued.stream.given[1][2]
    with failing(driver, bad), pytest.raises(RunError, match=r"kernel inc .*failed on .*out of order"):
        events[2].wait()
    assert events[0].status is STATUS.COMPLETE
    for event in (events[1], events[2], behind):
        assert isinstance(event.status, RunError)
        assert event.command_execution_status < 0
        for _ in range(2):
            with pytest.raises(RunError, match="out of order"):
                event.wait()


def test_what_was_planned_together_fails_together(two: mc.Queue) -> None:
    a = two.zeros(N, np.int32)
    before = PROGRAM.inc(two, *SIZES, a)
    two.finish()

    def broken(x: object) -> None:
        raise ValueError("no such luck")

    events = [two.call(broken, a), PROGRAM.inc(two, *SIZES, a)]
    with pytest.raises(RunError, match="no such luck"):
        two.finish()
    assert before.status is STATUS.COMPLETE
    for event in events:
        assert "no such luck" in str(event.status)
        with pytest.raises(RunError, match="no such luck"):
            event.wait()
        with pytest.raises(RunError, match="no such luck"):
            assert event.start


def test_events_of_a_prepared_graph_are_those_of_its_last_run(two: mc.Queue) -> None:
    a, called = two.zeros(N, np.int32), list[mc.Event]()
    with two.prepare() as graph:
        event = PROGRAM.inc(two, *SIZES, a)
        event.add_callback(called.append)
    assert event.status is STATUS.QUEUED
    event.wait()  # there is nothing to wait for
    ends = []
    for _ in range(3):
        graph.run()
        assert event.status is STATUS.COMPLETE
        ends.append(event.end)
    assert ends == sorted(set(ends))
    two.close()
    assert called == [event]


def test_events_of_a_queue_that_is_closed(two: mc.Queue) -> None:
    other, called = mc.Queue(session=two.session), list[mc.Event]()
    event = PROGRAM.inc(other, *SIZES, other.zeros(N, np.int32))
    event.add_callback(called.append)
    other.close()
    assert called == [event]
    assert "closed" in str(event.status)
    with pytest.raises(RunError, match="closed"):
        event.wait()
    event.add_callback(called.append)
    assert called == [event, event]


# callbacks


def test_callbacks_are_called_once_each_when_the_command_has_ended(queue: mc.Queue) -> None:
    a, seen, over = queue.zeros(N, np.int32), list[tuple[mc.Event, object, int]](), threading.Event()

    def note(event: mc.Event) -> None:
        seen.append((event, event.status, threading.get_ident()))
        if len(seen) == 4:
            over.set()

    first, second = PROGRAM.inc(queue, *SIZES, a), PROGRAM.inc(queue, *SIZES, a)
    for event in (first, second, second):
        event.add_callback(note)
    queue.finish()
    first.add_callback(note)  # it has ended long ago
    assert over.wait(PATIENCE)
    queue.close()
    assert [(e, s) for e, s, _ in seen] == [(e, STATUS.COMPLETE) for e in (first, second, second, first)]
    assert threading.get_ident() not in {thread for _, _, thread in seen}


def test_callbacks_need_nobody_who_asks(queue: mc.Queue) -> None:
    """They may ask for results themselves."""
    a, found, over = queue.zeros(N, np.int32), list[int](), threading.Event()

    def look(event: mc.Event) -> None:
        found.append(int(a.get()[0]))
        over.set()

    PROGRAM.inc(queue, *SIZES, a).add_callback(look)
    queue.flush()
    assert over.wait(PATIENCE)
    assert found == [1]


def test_a_callback_that_raises_is_reported_and_breaks_nothing(
    queue: mc.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, told, called = queue.zeros(N, np.int32), list[BaseException | None](), list[mc.Event]()
    monkeypatch.setattr(threading, "excepthook", lambda of: told.append(of.exc_value))

    def broken(event: mc.Event) -> None:
        raise KeyError("mine")

    event = PROGRAM.inc(queue, *SIZES, a)
    event.add_callback(broken)
    event.add_callback(lambda event: exit(3))
    event.add_callback(called.append)
    assert (a.get() == 1).all()
    queue.close()
    assert [type(error) for error in told] == [KeyError, SystemExit]
    assert called == [event]


def test_what_cannot_be_called_is_refused_at_once(queue: mc.Queue) -> None:
    event = PROGRAM.inc(queue, *SIZES, queue.zeros(N, np.int32))
    for nothing in (None, 3, "print"):
        with pytest.raises(ManyclError, match="function is a function, not"):
            event.add_callback(nothing)  # type: ignore[arg-type]
    event.wait()


def test_callbacks_hear_of_failures(two: mc.Queue) -> None:
    seen: list[object] = []
    a = two.zeros(N, np.int32)
    gate = Gate(ValueError("no such luck"))
    gate.go.set()
    for event in (two.call(gate, a), PROGRAM.inc(two, *SIZES, a)):
        event.add_callback(lambda event: seen.append(event.status))
    with pytest.raises(RunError, match="no such luck"):
        two.finish()
    two.close()
    assert len(seen) == 2
    assert all("no such luck" in str(error) for error in seen)


def test_a_callback_may_close_the_queue() -> None:
    queue, over = mc.Queue("cpu/2#0"), threading.Event()

    def close(event: mc.Event) -> None:
        queue.close()
        over.set()

    PROGRAM.inc(queue, *SIZES, queue.zeros(N, np.int32)).add_callback(close)
    assert over.wait(PATIENCE)
    assert queue.session.closed


# flush


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
