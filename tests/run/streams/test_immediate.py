"""Launches that are given to the one device as they are enqueued."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.drivers.driver import DriverError
from manycl.errors import DeviceError, ResultError, RunError
from manycl.run.commands.flow_control import AHEAD
from manycl.run.executor.programs import Programs
from manycl.run.streams import eager_stream
from manycl.run.streams.eager_stream import EagerStream
from manycl.run.streams.stream_state import UNKNOWN

N = 64
PROGRAM = mc.Program("""
kernel void inc(global int *x) { x[get_global_id(0)] += 1; }
kernel void add(global const int *x, global int *y) { y[get_global_id(0)] += x[get_global_id(0)]; }
kernel void set(global float *x, float value) { x[get_global_id(0)] = value; }
kernel void put(global int *x, int at, int value) { if (get_global_id(0) == 0) x[at] = value; }
kernel void rows(global int *x, local int *t) {
    t[get_local_id(0)] = get_global_id(0); barrier(CLK_LOCAL_MEM_FENCE);
    x[get_global_id(0)] = t[get_local_size(0) - 1 - get_local_id(0)];
}
kernel void spin(global int *x, int n) {
    for (int i = 0; i < n; i++) x[get_global_id(0)] = x[get_global_id(0)] * 3 + 1;
}
""")
SIZES = (N,), (16,)


def given_at_once(queue: mc.Queue) -> int:
    eager_stream = queue.enqueued.stream
    return len(eager_stream.given) if eager_stream is not None else 0


def test_building_is_no_part_of_what_ran(queue: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    build, a = Programs.build, queue.zeros(N, np.int32)

    def slowly(*args: Any) -> Any:
        time.sleep(0.2)
        return build(*args)

    with monkeypatch.context() as patch:
        patch.setattr(Programs, "build", slowly)
        mc.Program("kernel void fresh(global int *x) { x[get_global_id(0)] += 7; }").fresh(queue, *SIZES, a)
        assert (a.get() == 7).all()
    assert queue.result.seconds >= 0.2
    assert queue.trace.makespan <= queue.result.seconds - 0.2
    assert queue.trace.details["compiled"] >= 0.2


def test_launches_run_before_anybody_asks(queue: mc.Queue) -> None:
    a = queue.zeros(N, np.int32)
    for count in range(1, 4):
        PROGRAM.inc(queue, *SIZES, a)
        assert given_at_once(queue) == len(queue) == count
    stream = queue.session.devices.stream
    assert stream is not None
    assert stream.has_batch
    assert (a.get() == 3).all()
    assert not stream.has_batch
    assert len(queue) == 0


def test_their_trace_is_that_of_a_run(queue: mc.Queue) -> None:
    a, b = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    PROGRAM.inc(queue, *SIZES, a)
    PROGRAM.add(queue, *SIZES, a, b)
    PROGRAM.add(queue, *SIZES, a, b)
    queue.fill(a, 3)
    queue.finish()
    result, trace = queue.result, queue.trace
    assert [e.name for e in trace.kernels()] == ["inc", "add", "add", "fill"]
    assert set(trace.edges) == set(result.graph.edges) == {(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)}
    assert result.plan is not None
    assert "add" in result.story(1)
    assert {m.step.node for m in result.measured()} == {0, 1, 2, 3}
    assert 0 < sum(m.seconds for m in result.measured()) <= result.seconds


def test_what_has_to_be_planned_comes_behind(queue: mc.Queue) -> None:
    """A host function is a node of a graph; what comes after it waits for it."""
    a, seen = queue.zeros(N, np.int32), list[int]()
    PROGRAM.inc(queue, *SIZES, a)
    queue.call(lambda x: seen.append(int(x[0])), a)
    PROGRAM.inc(queue, *SIZES, a)
    assert given_at_once(queue) == 1
    assert len(queue) == 3
    assert not seen
    assert (a.get() == 2).all()
    assert seen == [1]
    trace = queue.trace
    assert [(e.node, e.name) for e in trace.kernels()] == [(0, "inc"), (2, "inc")]
    first, second = trace.kernels()
    assert first.end <= second.start <= second.end <= trace.makespan
    PROGRAM.inc(queue, *SIZES, a)
    assert given_at_once(queue) == 1


def test_components_and_preferences_are_planned(queue: mc.Queue) -> None:
    a = queue.zeros(N, np.int32)
    with queue.component():
        PROGRAM.inc(queue, *SIZES, a)
    assert given_at_once(queue) == 0
    PROGRAM.inc(queue, *SIZES, a)
    queue.finish()
    assert next(queue.trace.kernels()).component == 0
    PROGRAM.inc(queue, *SIZES, a, device="cpu")
    assert given_at_once(queue) == 0
    assert (a.get() == 3).all()


def test_a_prepared_graph_takes_nothing_off(queue: mc.Queue) -> None:
    a = queue.zeros(N, np.int32)
    PROGRAM.inc(queue, *SIZES, a)
    with queue.prepare() as graph:
        PROGRAM.inc(queue, *SIZES, a)
        PROGRAM.inc(queue, *SIZES, a)
    assert given_at_once(queue) == 1
    assert (a.get() == 1).all()
    graph.run()
    PROGRAM.inc(queue, *SIZES, a)
    graph.run()
    assert (a.get() == 6).all()


def test_arrays_without_contents_come_one_after_the_other(queue: mc.Queue) -> None:
    for turn in range(1, 4):
        a = queue.empty(N, np.float32)
        PROGRAM.set(queue, *SIZES, a, 2.0)
        assert given_at_once(queue) == turn
        assert (a.get() == 2).all()


@pytest.mark.parametrize(("profile", "count"), [(True, 1), ("learning", 6)])
def test_where_something_is_new_each_time_streams_go_on_all_the_same(
    profile: Literal[True, "learning"], count: int
) -> None:
    """Unless only new commands are timed, which is done stream by stream."""
    streams = []
    with mc.Queue("native", profile=profile) as queue:
        for k in range(1, 7):
            a = queue.zeros(16 * k, np.int32)
            PROGRAM.inc(queue, (16 * k,), (16,), a)
            streams.append(queue.enqueued.stream)
            assert (a.get() == 1).all()
    assert len(set(streams)) == count


def test_another_queue_of_the_session_lets_it_end(queue: mc.Queue) -> None:
    a, b = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    with mc.Queue(session=queue.session) as other:
        for _ in range(3):
            PROGRAM.inc(queue, *SIZES, a)
            PROGRAM.inc(other, *SIZES, b)
            assert given_at_once(other) == 0
            assert (b.get() >= 1).all()
            PROGRAM.inc(queue, *SIZES, a)  # its stream is over, but nobody has asked
            assert (a.get() % 2 == 0).all()
        PROGRAM.inc(queue, *SIZES, a)
        PROGRAM.inc(other, *SIZES, a)
        assert (a.get() == 8).all()


def test_a_stream_that_was_ended_as_it_got_its_log_takes_nothing(
    queue: mc.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may end it between both: what it is given then, nobody would wait for."""
    log_in = EagerStream.log_in
    monkeypatch.setattr(EagerStream, "log_in", lambda self, log: (self.close(), log_in(self, log)))
    a = queue.zeros(N, np.int32)
    PROGRAM.inc(queue, *SIZES, a)
    stream = queue.enqueued.stream
    assert stream is None or not stream.given
    assert (a.get() == 1).all()


def test_threads_with_queues_of_one_session(queue: mc.Queue) -> None:
    """Each waits for what the other one has given the device, at any time."""
    faults: list[BaseException] = []

    def work(own: mc.Queue) -> None:
        try:
            for turn in range(60):
                a, b = own.array(np.full(N, turn, np.int32)), own.zeros(N, np.int32)
                for _ in range(turn % 5):
                    PROGRAM.inc(own, *SIZES, a)
                    PROGRAM.add(own, *SIZES, a, b)
                count = turn % 5
                assert (b.get() == count * turn + count * (count + 1) // 2).all()
                assert (a.get() == turn + count).all()
        except BaseException as error:
            faults.append(error)
            raise

    queues = [queue, *(mc.Queue(session=queue.session) for _ in range(2))]
    threads = [threading.Thread(target=work, args=(own,)) for own in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_threads_with_one_queue(queue: mc.Queue) -> None:
    """Launches on arrays of their own, given to the device in any order."""
    arrays = [queue.zeros(N, np.int32) for _ in range(3)]
    counts = [0, 0, 0]

    def work(mine: int) -> None:
        for turn in range(100):
            PROGRAM.inc(queue, *SIZES, arrays[mine])
            counts[mine] += 1
            if turn % 7 == mine:
                assert (arrays[mine].get() == counts[mine]).all()

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [array.get().tolist() for array in arrays] == [[100] * N] * 3


def test_arrays_live_as_long_as_a_device_needs_them(queue: mc.Queue) -> None:
    a, b = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    PROGRAM.inc(queue, *SIZES, a)
    PROGRAM.inc(queue, *SIZES, a)
    PROGRAM.add(queue, *SIZES, a, b)
    gone = weakref.ref(a)
    del a
    assert gone() is not None
    assert (b.get() == 2).all()
    assert gone() is None


def test_what_a_device_refuses_is_told_at_once(queue: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it takes that by what it says of itself."""
    monkeypatch.setattr("manycl.api.program.beyond", lambda launch, device: "")
    a = queue.zeros(1 << 16, np.int32)
    PROGRAM.inc(queue, (N,), (16,), a)
    with pytest.raises(RunError, match=r"kernel inc failed on cpu.* with NDRange \(65536,\), work-groups \(65536,\)"):
        PROGRAM.inc(queue, (1 << 16,), (1 << 16,), a)
    PROGRAM.inc(queue, (N,), (16,), a)
    assert (a.get()[:N] == 2).all()


def test_a_closed_session_is_told(queue: mc.Queue) -> None:
    a = queue.zeros(N, np.int32)
    for _ in range(2):
        PROGRAM.inc(queue, *SIZES, a)
        queue.finish()
    queue.close()
    with pytest.raises(DeviceError, match="closed"):
        PROGRAM.inc(queue, *SIZES, a)


@pytest.mark.parametrize("watcher", ["owner", "other queue"])
def test_a_command_that_fails_is_told_to_who_asks(
    queue: mc.Queue, monkeypatch: pytest.MonkeyPatch, watcher: str
) -> None:
    """What it and those after it write is unknown; other arrays are what they were."""
    a, b, c = (queue.zeros(N, np.int32) for _ in range(3))
    driver = queue.session.backend.lanes[0].driver
    PROGRAM.inc(queue, *SIZES, c)
    queue.finish()
    PROGRAM.inc(queue, *SIZES, a)
    PROGRAM.add(queue, *SIZES, a, b)
    assert queue.enqueued.stream is not None
    bad, done = queue.enqueued.stream.given[-1][2], driver.done

    def fails(event: Any) -> bool:
        if event == bad:
            raise DriverError("out of order")
        return done(event)

    monkeypatch.setattr(driver, "done", fails)
    monkeypatch.setattr(driver, "succeeded", lambda events: all(e != bad for e in events))
    if watcher == "other queue":
        with mc.Queue(session=queue.session) as other:
            x = other.zeros(N, np.int32)
            PROGRAM.inc(other, *SIZES, x)
            assert (x.get() == 1).all()
    with pytest.raises(RunError, match=r"kernel add .*failed on .*out of order"):
        queue.finish()
    with pytest.raises(ResultError, match="unknown"):
        b.get()
    assert (a.get() == 1).all()
    assert (c.get() == 1).all()
    assert any(e.event == "failure" for e in queue.trace.events)
    b.set(np.zeros(N, np.int32))
    PROGRAM.add(queue, *SIZES, a, b)
    assert (b.get() == 1).all()


def test_what_comes_behind_a_failure_does_not_run(queue: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, called = queue.zeros(N, np.int32), queue.zeros(N, np.int32), list[int]()
    PROGRAM.inc(queue, *SIZES, a)
    queue.call(lambda x, y: called.append(1), a, b, writes=[b])
    driver = queue.session.backend.lanes[0].driver
    with monkeypatch.context() as patch:

        def fails(event: Any) -> bool:
            raise DriverError("broken")

        patch.setattr(driver, "done", fails)
        patch.setattr(driver, "succeeded", lambda events: False)
        with pytest.raises(RunError, match="broken"):
            queue.finish()
    assert not called
    for array in (a, b):
        with pytest.raises(ResultError):
            array.get()


def test_no_more_is_ahead_than_ctrl_c_may_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = mc.Queue("cpu/2#0")
    a, waits = queue.zeros(N, np.int32), list[int]()
    original = eager_stream.EagerStream.pace

    def pace(of: eager_stream.EagerStream) -> None:
        ahead = of.given.ahead
        assert ahead <= AHEAD + UNKNOWN  # the command given last is beyond
        original(of)
        assert of.given.ahead <= AHEAD
        if of.given.ahead < ahead:
            waits.append(len(of.given))

    monkeypatch.setattr(eager_stream.EagerStream, "pace", pace)
    for _ in range(200):
        PROGRAM.spin(queue, *SIZES, a, 10)
    few = list(waits)
    assert 4 <= len(few) <= 8
    assert max(np.diff([0, *few, 200])) <= AHEAD / UNKNOWN + 1
    want = a.get()
    waits.clear()
    for _ in range(3):  # its times are known now, and that no data decide them
        a.fill(0)
        for _ in range(200):
            PROGRAM.spin(queue, *SIZES, a, 10)
        assert (a.get() == want).all()
    assert len(waits) <= 10
    waits.clear()
    for _ in range(200):
        PROGRAM.spin(queue, *SIZES, a, 10)
        PROGRAM.spin(queue, *SIZES, a, 11)  # takes another time
    queue.finish()
    assert len(waits) >= 8
    queue.close()


@pytest.mark.parametrize("own", [False, True])
@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["inc", "add", "put", "fill", "copy", "view"]), st.integers(0, 5)), max_size=25)
)
def test_any_mixture_is_what_numpy_makes_of_it(own: bool, steps: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", str(int(not own)))
        queue = mc.Queue("cpu/2#0")
    with queue:
        arrays = [queue.array(np.full(N, i, np.int32)) for i in range(3)]
        model = [np.full(N, i, np.int32) for i in range(3)]
        for kind, r in steps:
            i, j = r % 3, (r + 1) % 3
            if kind == "inc":
                PROGRAM.inc(queue, *SIZES, arrays[i])
                model[i] += 1
            elif kind == "add":
                PROGRAM.add(queue, *SIZES, arrays[i], arrays[j])
                model[j] += model[i]
            elif kind == "put":
                PROGRAM.put(queue, *SIZES, arrays[i], r, r)
                model[i][r] = r
            elif kind == "fill":
                arrays[i].fill(r)
                model[i][:] = r
            elif kind == "copy":
                queue.copy(arrays[i], arrays[j])
                model[i][:] = model[j]
            else:
                PROGRAM.inc(queue, (16,), (16,), arrays[i][r : r + 16])
                model[i][r : r + 16] += 1
        for array, want in zip(arrays, model, strict=True):
            assert (array.get() == want).all()
