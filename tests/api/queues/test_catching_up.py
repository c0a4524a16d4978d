"""``Queue.catch_up``: all is waited for, and the device's stream goes on as one run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.api import prepared
from manycl.errors import ManyclError
from manycl.run.streams.eager_rule import LIGHT, MOST_ARRAYS, SEVERAL
from manycl.trace import KernelEvent

SOURCE = """
__kernel void add(__global int *x, __global const int *y, int by) { x[get_global_id(0)] += y[get_global_id(0)] + by; }
"""
N = 16
_STEP = st.tuples(st.sampled_from(["add", "copy", "read", "write", "finish", "new"]), *[st.integers(0, 2)] * 2)


def contents(queue: mc.Queue, array: mc.Array) -> np.ndarray:
    """As programs for PyOpenCL read it, where devices compute in the host's memory."""
    queue.catch_up()
    return np.frombuffer(bytes(queue.session.buffers.host(array.buffer.key)), np.int32)


@pytest.mark.parametrize("devices", ["native", "native/2", "opencl"])
@settings(max_examples=25, deadline=None)
@given(steps=st.lists(_STEP, min_size=1, max_size=60))
def test_programs_see_what_numpy_sees(devices: str, steps: list[tuple[str, int, int]]) -> None:
    program = mc.Program(SOURCE)
    with mc.Queue(devices) as queue:
        expected = [np.arange(N, dtype=np.int32) * (i + 1) for i in range(3)]
        arrays = [queue.array(e) for e in expected]
        for number, (what, one, two) in enumerate(steps):
            if what == "add" and one != two:
                program.add(queue, (N,), None, arrays[one], arrays[two], np.int32(number))
                expected[one] = expected[one] + expected[two] + np.int32(number)
            elif what == "copy" and one != two:
                queue.copy(arrays[one], arrays[two])
                expected[one] = expected[two].copy()
            elif what == "read":
                assert (contents(queue, arrays[one]) == expected[one]).all()
            elif what == "write":
                queue.catch_up()
                if not queue.uses(arrays[one]) or queue.is_caught_up:
                    data = queue.session.buffers.overwrite(arrays[one].buffer.key)
                    np.frombuffer(data, np.int32)[:] = number
                    expected[one] = np.full(N, number, np.int32)
            elif what == "new":
                arrays[one] = queue.array(np.full(N, number, np.int32))
                expected[one] = np.full(N, number, np.int32)
            elif what == "finish":
                queue.finish()
        for array, wanted in zip(arrays, expected, strict=True):
            assert (array.get() == wanted).all()


def test_a_stream_goes_on_and_ends_some_time() -> None:
    program = mc.Program(SOURCE)
    with mc.Queue("native") as queue:
        x, y = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
        went_on = 0
        for number in range(3 * SEVERAL):
            program.add(queue, (N,), None, x, y, np.int32(1))
            went_on += queue.catch_up()
            stream = queue.enqueued.stream
            assert stream is None or len(stream.given) <= SEVERAL + 1
            assert contents(queue, x)[0] == number + 1
        assert went_on > 2 * SEVERAL


@pytest.mark.parametrize(("count", "each"), [(4 * MOST_ARRAYS, 64), (3, LIGHT // 2 + 4)])
def test_arrays_that_are_dropped_are_not_kept_for_long(count: int, each: int) -> None:
    program = mc.Program(SOURCE)
    with mc.Queue("native") as queue:
        y = queue.zeros(N, np.int32)
        for _ in range(count):
            program.add(queue, (N,), None, queue.zeros(each // 4, np.int32), y, np.int32(1))
            queue.catch_up()
            stream = queue.enqueued.stream
            kept = list(stream.arrays.values()) if stream is not None else []
            assert len(kept) <= MOST_ARRAYS
            assert sum(array.buffer.nbytes for array in kept) <= LIGHT


def test_a_run_is_not_cut_for_room_that_earlier_runs_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else parts of a loop's body would be graphs of their own, each time others."""
    monkeypatch.setattr(prepared, "ROOM", 10 << 20)
    program = mc.Program(SOURCE)
    with mc.Queue("native") as queue:
        queue.session.backend.memory.roomy = 0
        for _ in range(6):
            y = queue.zeros(1 << 18, np.int32)
            for _ in range(7):
                program.add(queue, (1 << 18,), None, queue.zeros(1 << 18, np.int32), y, np.int32(1))
            y.get()
            assert len([e for e in queue.trace.events if isinstance(e, KernelEvent) and e.kernel != "fill"]) == 7


def test_what_goes_wrong_is_told() -> None:
    with mc.Queue("native") as queue:
        x = queue.array(np.arange(N, dtype=np.int32))

        def fails(v: np.ndarray) -> None:
            raise ValueError("no")

        queue.call(fails, x)
        with pytest.raises((ManyclError, ValueError)):
            queue.catch_up()


def test_nothing_is_waited_for_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing was enqueued since, the stream is not asked, and goes on."""
    with mc.Queue("native") as queue:
        x = queue.array(np.arange(N, dtype=np.int32))
        add = mc.Program(SOURCE).add
        for _ in range(3):
            add(queue, (N,), None, x, queue.zeros(N, np.int32), np.int32(1))
            queue.finish()
        stream = queue.enqueued.stream
        assert stream is not None
        with monkeypatch.context() as patch:
            patch.setattr(type(stream), "look", None)
            queue.finish()
            queue.catch_up()
        assert queue.enqueued.stream is stream
        add(queue, (N,), None, x, x, np.int32(1))
        assert (x.get() == 2 * (np.arange(N) + 3) + 1).all()
