"""Programs that write some bytes of an array, launch, and read some, again and again: on devices with memory of their
own only these bytes move, and what is given to a device as it is enqueued goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.errors import ResultError, RunError
from manycl.run.streams import eager_rule, eager_stream, stream_state
from tests.drivers.failing import failing

N = 64
SIZES = (N,), (16,)
PROGRAM = mc.Program("""
kernel void inc(global int *x) { x[get_global_id(0)] += 1; }
kernel void add(global const int *x, global int *y) { y[get_global_id(0)] += x[get_global_id(0)]; }
""")


@pytest.fixture(params=["native/2#0", "opencl/2#0"])
def queue(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[mc.Queue]:
    """One device with memory of its own, of which all is taken to end soon."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setattr(stream_state, "LONGEST", 1e9)
    monkeypatch.setattr(eager_rule, "WORTH", 1e9)
    with mc.Queue(request.param, profile=True) as made:
        yield made


def test_only_the_bytes_that_are_written_and_read_move(queue: mc.Queue) -> None:
    a, streams = queue.zeros(N, np.int32), set[int]()
    want = np.zeros(N, np.int32)
    for turn in range(20):
        a[3:5].set(np.array([turn, -turn], np.int32))
        want[3:5] = turn, -turn
        PROGRAM.inc(queue, *SIZES, a)
        want += 1
        assert (a[4:8].get() == want[4:8]).all()
        streams.add(id(queue.enqueued.stream))
        if turn >= 10:
            assert {e.nbytes for e in queue.trace.events if e.event == "transfer"} == {8, 16}
    assert (a.get() == want).all()
    assert len(streams) <= 3, "streams went on"


def test_bytes_of_the_host_that_came_for_nothing_are_not_lost(queue: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    for _ in range(8):
        PROGRAM.inc(queue, *SIZES, a)
        PROGRAM.add(queue, *SIZES, a, b)
        queue.finish()
    a[:2].set(np.array([-5, -6], np.int32))
    PROGRAM.add(queue, *SIZES, a, b)

    def interrupted(of: eager_stream.EagerStream, event: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(eager_stream.EagerStream, "_wait_soon", interrupted)
        with pytest.raises(KeyboardInterrupt):
            b.get()
    with pytest.raises(ResultError, match="unknown"):
        b.get()
    assert (a[:3].get() == [-5, -6, 8]).all()
    assert (a.get() == [-5, -6] + [8] * (N - 2)).all()
    b.set(np.zeros(N, np.int32))
    PROGRAM.add(queue, *SIZES, a, b)
    assert (b.get() == [-5, -6] + [8] * (N - 2)).all()


def test_after_a_failure_parts_are_where_they_were(queue: mc.Queue) -> None:
    a, b, c = (queue.zeros(N, np.int32) for _ in range(3))
    for _ in range(8):
        PROGRAM.inc(queue, *SIZES, a)
        PROGRAM.inc(queue, *SIZES, c)
        PROGRAM.add(queue, *SIZES, a, b)
        queue.finish()
    a[1:3].set(np.array([7, 9], np.int32))
    c[5:6].set(np.array([1], np.int32))
    PROGRAM.inc(queue, *SIZES, c)
    PROGRAM.add(queue, *SIZES, a, b)
    current = queue.enqueued.stream
    assert current is not None
    driver, bad = queue.session.backend.lanes[0].driver, current.given[-1][2]
    with failing(driver, bad), pytest.raises(RunError, match=r"kernel add .*failed on .*out of order"):
        b[:4].get()
    assert (a.get() == [8, 7, 9] + [8] * (N - 3)).all()
    assert (c.get() == [9] * 5 + [2] + [9] * (N - 6)).all()


STEP = st.tuples(
    st.sampled_from(["set", "set", "get", "get", "inc", "inc", "add", "whole", "fill", "other"]),
    st.integers(0, 1),
    st.integers(0, N - 1),
    st.integers(1, N),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, min_size=10, max_size=60))
def test_parts_are_those_of_numpy_whatever_was_done(queue: mc.Queue, steps: list[tuple[str, int, int, int]]) -> None:
    arrays = [queue.array(np.arange(N, dtype=np.int32) * (n + 1)) for n in range(2)]
    want = [np.arange(N, dtype=np.int32) * (n + 1) for n in range(2)]
    for number, (what, i, low, count) in enumerate(steps):
        a, mine, part = arrays[i], want[i], slice(low, min(low + count, N))
        if what == "set":
            values = np.arange(number, number + len(mine[part]), dtype=np.int32)
            a[part].set(values)
            mine[part] = values
        elif what == "get":
            assert (a[part].get() == mine[part]).all()
        elif what == "inc":
            PROGRAM.inc(queue, *SIZES, a)
            mine += 1
        elif what == "add":
            PROGRAM.add(queue, *SIZES, arrays[1 - i], a)
            mine += want[1 - i]
        elif what == "fill":
            a[part].fill(number)
            mine[part] = number
        elif what == "other":
            with mc.Queue(session=queue.session) as other:
                PROGRAM.inc(other, *SIZES, a)
                mine += 1
                assert (a[part].get() == mine[part]).all()
                a.use(queue)
        else:
            assert (a.get() == mine).all()
    for array, values in zip(arrays, want, strict=True):
        assert (array.get() == values).all()
