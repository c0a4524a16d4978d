"""Eager streams that go on when somebody has waited for all of them: each batch is a run, and nothing is taken to be
where it was."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.errors import LaunchError, ResultError, RunError
from manycl.run.streams import eager_rule, eager_stream, stream_state
from tests.drivers.failing import failing

N = 64
SIZES = (N,), (16,)
HALF = (N // 2,), (16,)
PROGRAM = mc.Program("""
kernel void inc(global int *x) { x[get_global_id(0)] += 1; }
kernel void add(global const int *x, global int *y) { y[get_global_id(0)] += x[get_global_id(0)]; }
kernel void scale(global int *x, int by) { x[get_global_id(0)] *= by; }
kernel void many(global const int *n, global int *x) { for (int i = 0; i < n[0]; i++) x[get_global_id(0)] += 1; }
""")


@pytest.fixture(params=["shared", "own"])
def queue(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[mc.Queue]:
    """One device, of which all is taken to end soon."""
    if request.param == "own":
        monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setattr(stream_state, "LONGEST", 1e9)
    monkeypatch.setattr(eager_rule, "WORTH", 1e9)
    with mc.Queue("cpu/2#0", profile=True) as made:
        yield made


def settle(queue: mc.Queue, *arrays: mc.Array) -> eager_stream.EagerStream:
    """Let it see commands of the kinds that follow until a stream goes on; that."""
    for _ in range(20):
        for array in arrays:
            PROGRAM.inc(queue, *SIZES, array)
        queue.finish()
        found = queue.enqueued.stream
        if found is not None and not found.has_batch:
            return found
    raise AssertionError("no stream goes on")


def test_each_batch_is_a_run_with_its_own_trace(queue: mc.Queue) -> None:
    a, b = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    for _ in range(4):
        PROGRAM.inc(queue, *SIZES, a)
        PROGRAM.add(queue, *SIZES, a, b)
        queue.finish()
    seen = set[int]()
    want_a, want_b = a.get(), b.get()
    for turn in range(1, 30):
        for _ in range(turn % 3 + 1):
            PROGRAM.inc(queue, *SIZES, a)
            want_a = want_a + 1
        PROGRAM.add(queue, *SIZES, a, b)
        want_b = want_b + want_a
        assert (b.get() == want_b).all()
        seen.add(id(queue.session.devices.stream))
        if turn % 2:
            trace = queue.trace
            assert [k.name for k in trace.kernels()] == ["inc"] * (turn % 3 + 1) + ["add"]
            assert 0 < trace.makespan <= queue.result.seconds
            assert all(0 <= k.start < k.end for k in trace.kernels())
            assert (turn % 3, turn % 3 + 1) in trace.edges
            assert "add" in queue.result.story(turn % 3 + 1)
    assert (a.get() == want_a).all()
    assert len(seen) <= 3, "streams went on"


def test_what_is_waited_for_and_then_read_is_one_run(queue: mc.Queue) -> None:
    a = queue.zeros(N, np.int32)
    settle(queue, a)
    before = int(a.get()[0])
    for _ in range(3):
        event = PROGRAM.inc(queue, *SIZES, a)
        event.wait()
        assert event.status is mc.CommandStatus.COMPLETE
    assert (a.get() == before + 3).all()
    assert [k.name for k in queue.trace.kernels()] == ["inc"] * 3
    old = event.end
    later = PROGRAM.inc(queue, *SIZES, a)
    assert (a.get() == before + 4).all()
    assert later.start >= old
    assert event.end == old
    assert len(queue) == 0
    assert queue.last is None


def test_the_host_may_change_arrays_between_batches(queue: mc.Queue) -> None:
    a, b = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    settle(queue, a, b)
    for turn in range(12):
        mine = np.full(N, turn, np.int32)
        if turn % 4 == 0:
            a.set(mine)
        elif turn % 4 == 1:
            with a.map() as host:
                host[:] = turn
        elif turn % 4 == 2:
            a.set(mine, copy=False)
        else:
            b.set(mine - 5)
            a.exchange(b)
            mine = mine - 5
        PROGRAM.inc(queue, *SIZES, a)
        assert (a.get() == mine + 1).all(), turn
    with a.map(), pytest.raises(LaunchError, match="mapped"):
        PROGRAM.inc(queue, *SIZES, a)


def test_a_program_whose_sizes_change_each_time_keeps_its_stream(queue: mc.Queue) -> None:
    """Though all of its commands are new; results are right, and each batch is a run of its own."""
    streams = []
    for turn in range(1, 24):
        n = 16 * turn
        a = queue.array(np.arange(n, dtype=np.int32))
        PROGRAM.scale(queue, (n,), (16,), a, turn)
        PROGRAM.inc(queue, (n,), (16,), a)
        assert (a.get() == np.arange(n) * turn + 1).all()
        assert [k.name for k in queue.trace.kernels()] == ["scale", "inc"]
        streams.append(queue.enqueued.stream)
    assert streams[0] is not None
    assert all(eager_stream is streams[0] for eager_stream in streams)


def test_a_new_command_that_fails_ends_the_stream(queue: mc.Queue) -> None:
    """Also of a program whose sizes change each time: what was waited for is there, and others follow."""
    a = queue.zeros(N, np.int32)
    for turn in range(1, 13):
        PROGRAM.inc(queue, (4 * turn,), (4,), a)
        queue.finish()
    want = a.get()
    with pytest.raises(LaunchError, match="outside of a buffer"):
        PROGRAM.inc(queue, (2 * N,), (8,), a)
    assert (a.get() == want).all()
    PROGRAM.inc(queue, (N,), (8,), a)
    assert (a.get() == want + 1).all()


def test_what_fails_in_a_later_batch_is_told_of_that(queue: mc.Queue) -> None:
    a, b = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    for _ in range(5):
        PROGRAM.inc(queue, *SIZES, a)
        PROGRAM.add(queue, *SIZES, a, b)
        early = PROGRAM.inc(queue, *SIZES, a)
        queue.finish()
    first = PROGRAM.inc(queue, *SIZES, a)
    second = PROGRAM.add(queue, *SIZES, a, b)
    current = queue.enqueued.stream
    assert current is not None
    assert current.batch.first > 0, "it has gone on"
    driver, bad = queue.session.backend.lanes[0].driver, current.given[-1][2]
    with failing(driver, bad):
        with pytest.raises(RunError, match=r"kernel add .*failed on .*out of order"):
            b.get()
        assert first.status is mc.CommandStatus.COMPLETE
        assert early.status is mc.CommandStatus.COMPLETE
        assert isinstance(second.status, RunError)
    assert [k.name for k in queue.trace.kernels()][:1] == ["inc"]
    with pytest.raises(ResultError, match="unknown"):
        b.get()
    assert (a.get() == 11).all()
    b.set(np.zeros(N, np.int32))
    PROGRAM.add(queue, *SIZES, a, b)
    assert (b.get() == 11).all()


def test_ctrl_c_ends_the_waiting_for_a_batch(queue: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    a = queue.zeros(N, np.int32)
    going = settle(queue, a)
    PROGRAM.inc(queue, *SIZES, a)
    assert queue.enqueued.stream is going

    def interrupted(of: eager_stream.EagerStream, event: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(eager_stream.EagerStream, "_wait_soon", interrupted)
        with pytest.raises(KeyboardInterrupt):
            a.get()
    assert queue.session.devices.stream is None
    with pytest.raises(ResultError, match=r"unknown.*KeyboardInterrupt"):
        a.get()
    a.set(np.zeros(N, np.int32))
    PROGRAM.inc(queue, *SIZES, a)
    assert (a.get() == 1).all()


def test_arrays_that_the_program_drops_go_while_a_stream_goes_on(queue: mc.Queue) -> None:
    a = queue.zeros(N, np.int32)
    going = settle(queue, a)
    gc.collect()
    gc.disable()
    try:
        b = queue.zeros(N, np.int32)
        PROGRAM.add(queue, *SIZES, b, a)
        gone = weakref.ref(b)
        del b
        assert gone() is not None, "the device may still read it"
        PROGRAM.inc(queue, *SIZES, a)
        queue.finish()
        if queue.enqueued.stream is going:
            assert gone() is None
    finally:
        gc.enable()


def test_a_queue_that_nobody_has_any_more_goes_at_once() -> None:
    gc.collect()
    gc.disable()
    try:
        with mc.Queue("cpu/2#0") as owner:
            one = mc.Queue(session=owner.session)
            a = one.zeros(N, np.int32)
            for _ in range(6):
                PROGRAM.inc(one, *SIZES, a)
                a.get()
            gone = weakref.ref(one)
            del a, one
            assert gone() is None
    finally:
        gc.enable()


def test_queues_of_one_session_take_turns(queue: mc.Queue) -> None:
    """What one has waited for is in no other's way, and arrays go from one to the other."""
    with mc.Queue(session=queue.session) as other:
        a, b = queue.zeros(N, np.int32), other.zeros(N, np.int32)
        for turn in range(1, 20):
            PROGRAM.inc(queue, *SIZES, a)
            assert (a.get() == 2 * turn - 1).all()
            PROGRAM.add(other, *SIZES, a, b)
            assert other.enqueued.stream is not None, "nothing was in its way"
            PROGRAM.inc(other, *SIZES, a)
            assert (b.get() == turn * turn).all()
    for _ in range(3):
        PROGRAM.inc(queue, *SIZES, a)
    assert queue.enqueued.stream is not None
    assert (a.get() == 41).all()


def test_prepared_graphs_and_streams_take_turns(queue: mc.Queue) -> None:
    a, b = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    with queue.prepare() as graph:
        PROGRAM.add(queue, *SIZES, a, b)
    for turn in range(1, 12):
        PROGRAM.inc(queue, *SIZES, a)
        assert queue.enqueued.stream is not None
        queue.finish()
        graph.run()
        assert (b.get() == turn * (turn + 1) // 2).all()
        assert (a.get() == turn).all()


def test_threads_look_at_arrays_of_their_own(queue: mc.Queue) -> None:
    arrays = [queue.zeros(N, np.int32) for _ in range(3)]
    settle(queue, *arrays)
    starts, errors = [int(array.get()[0]) for array in arrays], list[BaseException]()

    def work(array: mc.Array, start: int) -> None:
        try:
            for turn in range(1, 60):
                PROGRAM.inc(queue, *SIZES, array)
                assert (array.get() == start + turn).all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=both) for both in zip(arrays, starts, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_copies_and_fills_come_again_without_being_looked_at(queue: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they do, and their traces, are the same; what cannot be is told as the first time."""
    a, b = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    looked, give = list[str](), eager_stream.EagerStream.give
    monkeypatch.setattr(
        eager_stream.EagerStream, "give", lambda of, node, *rest: looked.append(node.name) or give(of, node, *rest)
    )
    for turn in range(8):
        queue.fill(a, 6)
        PROGRAM.inc(queue, *SIZES, a)
        event = queue.copy(b, a)
        queue.copy(b, a[:4], dst_offset=128, byte_count=8)
        assert (b.get() == 7).all()
        assert [k.name for k in queue.trace.kernels()] == ["fill", "inc", "copy", "copy"]
        assert set(queue.trace.edges) >= {(0, 1), (1, 2), (2, 3)}
        assert event.end >= event.start
        a.set(np.full(N, turn, np.int32))
    assert looked == ["fill", "inc", "copy", "copy"]
    with a.map(), pytest.raises(LaunchError, match="mapped"):
        queue.copy(b, a)
    with mc.Queue(session=queue.session) as other:
        queue.fill(a, 3)
        PROGRAM.inc(other, *SIZES, a)
        assert (a.get() == 4).all()
        queue.fill(a, 3)
        assert (a.get() == 3).all()


RUNS = "inc", "add", "half", "scale", "many", "get", "part", "wait", "finish"
CHANGES = "set", "set_part", "map", "fill", "copy", "copy_part", "fill_part", "write", "exchange", "new", "read"
STEPS = st.lists(
    st.tuples(st.sampled_from((*RUNS, *RUNS, *CHANGES)), st.integers(0, 2), st.integers(0, 2), st.integers(1, 3)),
    min_size=20,
    max_size=60,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.sampled_from(["cpu/2#0", "cpu/2"]), st.booleans())
def test_results_are_those_of_numpy_whatever_is_done_between(
    monkeypatch: pytest.MonkeyPatch, steps: list[tuple[str, int, int, int]], devices: str, is_shared: bool
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(stream_state, "LONGEST", 1e9)
        patch.setattr(eager_rule, "WORTH", 1e9)
        if not is_shared:
            patch.setenv("MANYCL_ZERO_COPY", "0")
        with mc.Queue(devices) as queue:
            arrays = [queue.array(np.full(N, n, np.int32)) for n in range(3)]
            count = queue.array(np.full(1, 2, np.int32))
            want = [np.full(N, n, np.int32) for n in range(3)]
            for _ in range(4):  # kernels are known then
                for array in arrays:
                    PROGRAM.inc(queue, *SIZES, array)
                PROGRAM.scale(queue, *SIZES, arrays[0], 1)
                queue.finish()
            want = [w + 4 for w in want]
            for what, i, j, n in steps:
                step(queue, arrays, want, (what, i, j, n), count)
            for array, values in zip(arrays, want, strict=True):
                assert (array.get() == values).all()


def step(
    queue: mc.Queue, arrays: list[mc.Array], want: list[Any], what: tuple[str, int, int, int], count: mc.Array
) -> None:
    """One step, of the arrays and of NumPy's."""
    name, i, j, n = what
    a, b = arrays[i], arrays[j]
    values = np.arange(n, n + N, dtype=np.int32)
    if name == "inc":
        PROGRAM.inc(queue, *SIZES, a)
        want[i] = want[i] + 1
    elif name == "add" and i != j:
        PROGRAM.add(queue, *SIZES, a, b)
        want[j] = want[j] + want[i]
    elif name == "half":
        PROGRAM.inc(queue, *HALF, a[N // 2 :])
        want[i] = want[i] + (np.arange(N) >= N // 2)
    elif name == "scale":
        PROGRAM.scale(queue, *SIZES, a, n)
        want[i] = (want[i] * n).astype(np.int32)
    elif name == "many":
        PROGRAM.many(queue, *SIZES, count, a)
        want[i] = want[i] + 2
    elif name == "get":
        assert (a.get() == want[i]).all()
    elif name == "part":
        assert (a[n : n + 9].get() == want[i][n : n + 9]).all()
    elif name == "wait":
        PROGRAM.inc(queue, *SIZES, a).wait()
        want[i] = want[i] + 1
    elif name == "finish":
        queue.finish()
    elif name == "set":
        a.set(values)
        want[i] = values
    elif name == "set_part":
        a[5:9].set(values[:4])
        want[i] = np.concatenate([want[i][:5], values[:4], want[i][9:]])
    elif name == "map":
        with a.map() as host:
            assert (host == want[i]).all()
            host[n] = 77
        want[i] = np.where(np.arange(N) == n, 77, want[i])
    elif name == "fill":
        a.fill(n)
        want[i] = np.full(N, n, np.int32)
    elif name == "copy" and i != j:
        queue.copy(b, a)
        want[j] = want[i]
    elif name == "copy_part" and i != j:
        queue.copy(b, a, byte_count=4 * n, src_offset=8, dst_offset=4 * n)
        want[j] = np.concatenate([want[j][:n], want[i][2 : 2 + n], want[j][2 * n :]])
    elif name == "fill_part":
        queue.fill(a[n:9], -n, offset=4)
        want[i] = np.concatenate([want[i][: n + 1], np.full(8 - n, -n, np.int32), want[i][9:]])
    elif name == "write":
        queue.write(a, values)
        want[i] = values
    elif name == "exchange":
        a.exchange(b)
        want[i], want[j] = want[j], want[i]
    elif name == "new":
        arrays[i] = queue.array(values)
        want[i] = values
    elif name == "read":
        event = queue.read(a)
        event.wait()
        assert (event.out == want[i]).all()


def test_launches_that_come_again_keep_nothing_that_they_were_given(queue: mc.Queue) -> None:
    """Programs whose sizes change have as many kinds of launches as sizes."""
    sizes = [16 * k for k in range(1, 9)]
    for turn in range(3):
        for size in sizes:
            own = queue.zeros(size, np.int32)
            for _ in range(3):
                PROGRAM.inc(queue, (size,), (16,), own)
            assert (own.get() == 3).all()
            gone = weakref.ref(own)
            del own
            if turn == 2 and size == sizes[-1]:  # (all of the tests' garbage is looked through)
                gc.collect()
                assert gone() is None
