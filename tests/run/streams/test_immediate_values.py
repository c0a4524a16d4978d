"""Numbers, arrays and local memory of launches that are given to a device as they are enqueued: checked and converted
each time that may matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.errors import LaunchError
from manycl.graph import bounds
from tests.run.streams.test_immediate import PROGRAM, SIZES, N, given_at_once


def test_numbers_are_told_apart_by_their_bytes(queue: mc.Queue) -> None:
    x = queue.zeros(N, np.float32)
    for value in (0.0, -0.0, 0, 1, 1.0, True, np.float64(2.5), np.int32(7), -0.0, 0.0):
        PROGRAM.set(queue, *SIZES, x, value)
        PROGRAM.set(queue, *SIZES, x, value)
        assert x.get().tobytes() == np.full(N, value, np.float32).tobytes()
    for value in (0.0, -0.0):
        PROGRAM.set(queue, *SIZES, x, 1.0)
        PROGRAM.set(queue, *SIZES, x, value)
        assert x.get().tobytes() == np.full(N, value, np.float32).tobytes()


def test_values_that_change_in_place_are_converted_each_time(queue: mc.Queue) -> None:
    program = mc.Program("""
    typedef struct { int a; float b; } pair;
    kernel void vec(global float *x, float4 v) { x[get_global_id(0)] = v.x + 10 * v.w; }
    kernel void both(global float *x, pair p) { x[get_global_id(0)] = p.a + p.b; }
    """)
    x, vector, listed = queue.zeros(N, np.float32), np.zeros(4, np.float32), [0.0] * 4
    zero, raw, pair = np.zeros((), np.float32), bytearray(4), np.zeros((), [("a", np.int32), ("b", np.float32)])
    for k in range(1, 4):
        vector[0], vector[3], listed[3], pair["a"], pair["b"] = k, k, k, k, k
        zero += 1
        raw[:] = np.float32(k).tobytes()
        for times in range(1, 3):
            for kernel, value, want in (
                (program.vec, vector, 11 * k),
                (program.vec, listed, 10 * k),
                (PROGRAM.set, zero, k),
                (PROGRAM.set, raw, k),
                (program.both, pair, 2 * k),
                (program.both, pair[()], 2 * k),
            ):
                kernel(queue, *SIZES, x, value)
                if times == 2:
                    kernel(queue, *SIZES, x, value)
                assert (x.get() == want).all(), (kernel.name, k)
    for k in range(3):  # within one stream
        vector[0] = k
        program.vec(queue, *SIZES, x, vector)
        y = x if k == 2 else None
    assert y is x
    assert (x.get() == 2 + 10 * vector[3]).all()


def test_a_numpy_array_in_place_of_an_array_is_refused_each_time(queue: mc.Queue) -> None:
    a = queue.zeros(N, np.int32)
    for _ in range(3):
        PROGRAM.inc(queue, *SIZES, a)
        with pytest.raises(LaunchError, match="needs an array"):
            PROGRAM.inc(queue, *SIZES, np.zeros(N, np.int32))
        assert given_at_once(queue)
    assert (a.get() == 3).all()


def test_a_launch_like_the_last_one_is_refused_for_what_is_not(queue: mc.Queue) -> None:
    a, b = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    for _ in range(2):
        PROGRAM.add(queue, *SIZES, a, b)
        PROGRAM.inc(queue, *SIZES, a)
    with pytest.raises(LaunchError, match="2 arguments"):
        PROGRAM.add(queue, *SIZES, a)
    with pytest.raises(LaunchError, match="int"):
        PROGRAM.inc(queue, *SIZES, queue.zeros(N, np.float32))
    with pytest.raises(LaunchError, match="outside of a buffer"):
        PROGRAM.inc(queue, *SIZES, queue.zeros(N // 2, np.int32))
    with mc.Queue("cpu/2#1") as other, pytest.raises(LaunchError, match="another queue's devices"):
        PROGRAM.inc(queue, *SIZES, other.zeros(N, np.int32))
    PROGRAM.inc(queue, *SIZES, queue.zeros(2 * N, np.int32))
    PROGRAM.add(queue, *SIZES, a, a)  # the same array twice
    assert (a.get() == 4).all()
    assert (b.get() == 1).all()
    with a.map(), pytest.raises(LaunchError, match="mapped"):
        PROGRAM.inc(queue, *SIZES, a)
    assert (a.get() == 4).all()


def test_a_number_that_leads_out_of_a_buffer_is_noticed(queue: mc.Queue) -> None:
    a = queue.zeros(N, np.int32)
    for at in range(9):
        PROGRAM.put(queue, *SIZES, a, at, at)
    with pytest.raises(LaunchError, match="outside of a buffer"):
        PROGRAM.put(queue, *SIZES, a, N, 1)
    PROGRAM.put(queue, *SIZES, a, 0, 9)
    assert (a.get() == [9, *range(1, 9), *[0] * (N - 9)]).all()


def test_numbers_are_checked_once(queue: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that lead out of a buffer each time."""
    a, asked, check = queue.zeros(N, np.int32), list[Any](), bounds.check_launch

    def count(launch: Any, buffers: Any) -> None:
        asked.append(launch.args[1:])
        check(launch, buffers)

    for turn in range(4):
        for at in (1, 2, 3, N - 1):
            PROGRAM.put(queue, *SIZES, a, at, turn)
        with pytest.raises(LaunchError, match="outside of a buffer"):
            PROGRAM.put(queue, *SIZES, a, N + 1, turn)
        queue.finish()
    monkeypatch.setattr(bounds, "check_launch", count)
    for turn in range(4):
        for at in (1, 2, 3, N - 1):
            PROGRAM.put(queue, *SIZES, a, at, turn)
    PROGRAM.put(queue, *SIZES, a, 4, 0)  # between these
    assert not asked
    with pytest.raises(LaunchError, match="outside of a buffer"):
        PROGRAM.put(queue, *SIZES, a, N + 2, 0)
    assert set(asked) == {(np.int32(N + 2).tobytes(), np.int32(0).tobytes())}
    assert (a.get()[[1, 2, 3, 4, N - 1]] == [3, 3, 3, 0, 3]).all()


def test_local_memory_may_change_its_size(queue: mc.Queue) -> None:
    a = queue.zeros(N, np.int32)
    want = np.arange(N).reshape(-1, 16)[:, ::-1].reshape(-1)
    for nbytes in (64, 64, 128, 64):
        PROGRAM.rows(queue, *SIZES, a, mc.LocalMemory(nbytes))
        assert (a.get() == want).all()
        a.fill(0)


def test_exchanged_arrays_are_each_others(queue: mc.Queue) -> None:
    a, b = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    for count in range(1, 4):
        PROGRAM.inc(queue, *SIZES, a)
        PROGRAM.inc(queue, *SIZES, a)
        a.exchange(b)
        assert (b.get() - a.get() == (2 if count % 2 else 0)).all()


def test_promises_hold_from_then_on(queue: mc.Queue) -> None:
    program = mc.Program(PROGRAM.facts.source)
    a = queue.zeros(N, np.int32)
    program.inc(queue, *SIZES, a)
    program.inc(queue, *SIZES, a)
    program.inc.annotate("x", distinct=True)
    program.inc(queue, *SIZES, a)
    queue.finish()
    assert [len(node.annotations) for node in queue.result.graph.nodes] == [0, 0, 1]  # type: ignore[union-attr]
