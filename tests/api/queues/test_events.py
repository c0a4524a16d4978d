"""Events: how far commands are, when they ran, waiting for one of them, callbacks; and what runs in the background."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import manycl as mc
from manycl.api import running
from manycl.errors import ManyclError, ResultError, RunError
from tests.api.queues.event_cases import PATIENCE, PROGRAM, SIZES, STATUS, Gate, N
from tests.drivers.failing import failing


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


@pytest.mark.usefixtures("collected")
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
    monkeypatch.setattr(running, "HORIZON", 8)
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


@pytest.mark.usefixtures("collected")
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
