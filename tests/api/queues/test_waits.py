"""Waiting for one command after another, and for what the host looks at: no more is waited for than has to be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.api.dispatch import launch_cache
from manycl.drivers.driver import DriverError
from manycl.errors import RunError
from manycl.run.streams import eager_rule, stream_state

N = 64
SIZES = (N,), (16,)
STATUS = mc.CommandStatus
PROGRAM = mc.Program("""
kernel void inc(global int *x) { x[get_global_id(0)] += 1; }
kernel void add(global const int *x, global int *y) { y[get_global_id(0)] += x[get_global_id(0)]; }
""")


@pytest.fixture
def single(monkeypatch: pytest.MonkeyPatch) -> Iterator[mc.Queue]:
    """One device, of which all is taken to end soon."""
    monkeypatch.setattr(stream_state, "LONGEST", 1e9)
    monkeypatch.setattr(eager_rule, "WORTH", 1e9)
    with mc.Queue("cpu/2#0", profile=True) as queue:
        yield queue


def test_waiting_for_one_after_another_is_one_run(single: mc.Queue) -> None:
    """Commands that are known are waited for without the stream's end; what is asked then is of all of them."""
    a = single.zeros(N, np.int32)
    for _ in range(4):
        PROGRAM.inc(single, *SIZES, a).wait()
    assert single.trace.kernels()
    count = 4
    for n in range(1, 3 * eager_rule.SEVERAL):
        event = PROGRAM.inc(single, *SIZES, a)
        event.wait()
        count += 1
        assert event.status == STATUS.COMPLETE
        assert len(single) == 0
        assert event.end >= event.start
        if n % 50 == 7:
            assert len(list(single.trace.kernels())) <= eager_rule.SEVERAL + 1
            assert (a.get() == count).all()
        elif n % 50 == 20:
            assert len(list(single.trace.kernels())) >= 12
    assert (a.get() == count).all()
    assert len(single) == 0


def test_what_fails_before_what_is_waited_for_is_told(single: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = single.zeros(N, np.int32), single.zeros(N, np.int32)
    for _ in range(4):
        PROGRAM.inc(single, *SIZES, a).wait()
        PROGRAM.inc(single, *SIZES, b).wait()
    driver = single.session.backend.drivers[0]
    before = single.enqueued.stream
    assert before is not None
    first = PROGRAM.inc(single, *SIZES, a)
    second = PROGRAM.inc(single, *SIZES, b)
    event = before.given[-2][2]
    succeeded, done = driver.succeeded, driver.done

    def refuse(of: Any) -> bool:
        if of == event:
            raise DriverError("out of luck")
        return done(of)

    monkeypatch.setattr(driver, "succeeded", lambda events: event not in events and succeeded(events))
    monkeypatch.setattr(driver, "done", refuse)
    with pytest.raises(RunError, match="out of luck"):
        second.wait()
    assert isinstance(first.status, RunError)
    assert isinstance(second.status, RunError)


def test_what_is_asked_for_comes_behind_what_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small result of a device with memory of its own is waited for once, with the launches."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    with mc.Queue("cpu/2#0", profile=True) as queue:
        a, b, c = (queue.array(np.full(N, n, np.int32)) for n in (1, 2, 3))
        fetched: list[int] = []
        move = queue.session.backend.move

        def noted(key: Any, *rest: Any, **more: Any) -> None:
            fetched.append(key)
            move(key, *rest, **more)

        monkeypatch.setattr(queue.session.backend, "move", noted)
        for n in range(3):
            PROGRAM.add(queue, *SIZES, a, b)
            PROGRAM.inc(queue, *SIZES, a)
            assert (b.get() == 2 + sum(range(1, n + 2))).all()
            assert not fetched
            assert [t.target for t in queue.trace.transfers()].count("host") == 1
            assert (a.get() == n + 2).all()
            assert fetched == [a.buffer.key], "it was not asked for then"
            fetched.clear()
        assert (c.get() == 3).all()
        d = queue.array(np.full(N, 5, np.int32))
        PROGRAM.inc(queue, *SIZES, d)
        queue.finish()
        PROGRAM.inc(queue, *SIZES, b)
        assert (d.get() == 6).all(), "it is no part of what was given"
        assert fetched == [d.buffer.key]
        fetched.clear()
        PROGRAM.inc(queue, *SIZES, b)
        view = c[3:9]
        assert (view.get() == 3).all()
        assert (b[5:7].get() == 10).all()
        PROGRAM.inc(queue, *SIZES, c)
        with monkeypatch.context() as patch:
            patch.setattr(stream_state, "LARGE", 1)
            assert (c.get() == 4).all()
        assert fetched == [b.buffer.key, c.buffer.key]


def test_a_copy_that_is_refused_behind_what_was_given_is_made_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    with mc.Queue("cpu/2#0") as queue:
        a, refused = queue.array(np.ones(N, np.int32)), list[Any]()
        driver = queue.session.backend.drivers[0]
        copy = driver.copy

        def refuse(of: Any, target: Any, source: Any, *rest: Any) -> Any:
            if isinstance(target.memory, np.ndarray) and not refused:
                refused.append(of)
                raise DriverError("not now")
            return copy(of, target, source, *rest)

        PROGRAM.inc(queue, *SIZES, a)
        monkeypatch.setattr(driver, "copy", refuse)
        assert (a.get() == 2).all()
        assert refused == [queue.session.backend.lanes[0].queues[0]]


def test_what_is_ahead_is_foreseen_with_other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long kernel whose number says how long it takes: so many times as long, so many times as soon is waited."""
    program = mc.Program("""
    kernel void turns(global int *x, int n) {
        int v = x[get_global_id(0)];
        for (int i = 0; i < n; i++) v = v * 3 + i;
        x[get_global_id(0)] = v;
    }""")
    with mc.Queue("cpu/2#0") as queue:
        x = queue.zeros(N, np.int32)
        monkeypatch.setattr(launch_cache, "UNKNOWN", 0.0)
        for _ in range(3):
            program.turns(queue, *SIZES, x, 1000)
            queue.finish()
        (entry,) = queue.launches.values()
        assert entry.rules._measured is not None
        seconds = entry.rules._measured[1]
        program.turns(queue, *SIZES, x, 5000)
        assert entry.seconds == pytest.approx(5 * seconds)
        program.turns(queue, *SIZES, x, 1000)
        assert entry.seconds == pytest.approx(seconds)
        assert queue.enqueued.stream is not None
        assert queue.enqueued.stream.given.ahead == pytest.approx(6 * seconds)
        program.turns(queue, *SIZES, x, 1000)
        queue.finish()
        monkeypatch.setattr(launch_cache, "UNKNOWN", 1e9)
        entry.rules.ended(seconds)  # of which now nothing follows for other numbers
        program.turns(queue, *SIZES, x, 70)
        assert queue.enqueued.stream.given.ahead >= stream_state.UNKNOWN
