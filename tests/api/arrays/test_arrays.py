"""Arrays: what goes in comes out, in any shape and type; what cannot be right is refused."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import manycl as mc
from manycl.errors import DeviceError, LaunchError, ResultError

N = 64
PROGRAM = mc.Program("__kernel void inc(__global int *x, int by) { x[get_global_id(0)] += by; }")


@pytest.fixture(scope="module", params=["shared", "own"])
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "1" if request.param == "shared" else "0")
        queue = mc.Queue("cpu/2")
    yield queue.session
    queue.session.close()


@pytest.fixture
def queue(session: Any) -> mc.Queue:
    return mc.Queue(session=session, policy="eager")


def inc(queue: mc.Queue, x: mc.Array, by: int = 1) -> mc.Event:
    return PROGRAM.inc(queue, (x.size,), None, x, by)


TYPES = st.sampled_from(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "?", "S3"])
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=7)


@given(st.data(), TYPES, SHAPES, st.booleans(), st.booleans())
def test_contents_come_back(session: Any, data: Any, dtype: str, shape: Any, copy: bool, transpose: bool) -> None:
    contents = data.draw(hnp.arrays(dtype, shape))
    contents = contents.T if transpose else contents
    array = mc.Queue(session=session).array(contents, copy=copy)
    assert array.shape == contents.shape
    assert array.dtype == contents.dtype
    assert array.nbytes == contents.nbytes
    assert array.size == contents.size
    assert array.get().tobytes() == contents.tobytes()
    assert np.asarray(array).tobytes() == contents.tobytes()
    with array.map() as host:
        assert host.shape == contents.shape
        assert host.tobytes() == contents.tobytes()


def test_the_queue_has_a_copy_of_its_own(queue: mc.Queue) -> None:
    contents = np.arange(N, dtype=np.int32)
    x = queue.array(contents)
    contents[:] = -1
    inc(queue, x)
    first = x.get()
    first[:] = -1
    assert (x.get() == np.arange(N) + 1).all()


def test_large_arrays(queue: mc.Queue) -> None:
    """Beyond what one thread copies, and not a whole number of pages."""
    contents = np.random.default_rng(2).integers(0, 1 << 20, (3, (5 << 20) // 12 + 1), dtype=np.int32)
    x = queue.array(contents)
    inc(queue, x)
    assert (x.get() == contents + 1).all()


def test_get_into_an_array(queue: mc.Queue) -> None:
    x = queue.array(np.arange(6, dtype=np.int32).reshape(2, 3))
    out = np.zeros((2, 3), np.int32)
    assert x.get(out) is out
    assert (out == [[0, 1, 2], [3, 4, 5]]).all()
    wrong: list[Any] = [
        np.zeros((3, 2), np.int32),
        np.zeros(6, np.int32),
        np.zeros((2, 3), np.float32),
        np.zeros((2, 3), np.int64),
        np.zeros((3, 2), np.int32).T,
    ]
    for bad in wrong:
        with pytest.raises(ResultError, match="out "):
            x.get(bad)


def test_set_converts_what_fits_and_nothing_else(queue: mc.Queue) -> None:
    small, whole, real = queue.zeros(3, np.uint8), queue.zeros(3, np.int32), queue.zeros(3, np.float32)
    small.set([1, 2, 255])
    assert small.get().tolist() == [1, 2, 255]
    whole.set(np.array([-(2**31), 0, 2**31 - 1]))
    assert whole.get().tolist() == [-(2**31), 0, 2**31 - 1]
    real.set([1, 2, 3])
    assert real.get().tolist() == [1.0, 2.0, 3.0]
    real.set(np.array([0.1, 0.2, 0.3]))
    assert (real.get() == np.array([0.1, 0.2, 0.3], np.float32)).all()
    before = whole.get()
    wrong: list[tuple[mc.Array, Any]] = [
        (small, [0, 0, 256]),
        (small, [-1, 0, 0]),
        (whole, np.array([2**31, 0, 0])),
        (whole, np.array([2**32 + 5, 0, 0], np.uint64)),
        (whole, [0.0, 1.0, 2.0]),
        (real, [1j, 0, 0]),
        (whole, ["a", "b", "c"]),
    ]
    for array, contents in wrong:
        with pytest.raises(ResultError, match="do not fit"):
            array.set(contents)
    for shape in ((), (1,), (2,), (1, 3), (3, 1)):
        with pytest.raises(ResultError, match="shape"):
            whole.set(np.zeros(shape, np.int32))
    assert (whole.get() == before).all()


def test_borrowing_needs_the_very_type_and_order(queue: mc.Queue) -> None:
    x = queue.zeros((4, 4), np.int32)
    for contents in (np.zeros((4, 4), np.int16), np.zeros((4, 8), np.int32)[:, ::2]):
        with pytest.raises(ResultError, match="copy=False"):
            x.set(contents, copy=False)
    assert (x.get() == 0).all()


def test_borrowed_memory_gives_way_to_new_contents(queue: mc.Queue) -> None:
    first, second = np.full(N, 1, np.int32), np.full(N, 2, np.int32)
    for contents in (first, second):
        contents.flags.writeable = False
    x = queue.array(first, copy=False)
    inc(queue, x)
    assert (x.get() == 2).all()
    x.set(second, copy=False)
    assert (x.get() == 2).all()
    inc(queue, x)
    x.set(first, copy=False)  # the launch above has run by now, on what it was given
    inc(queue, x, 10)
    assert (x.get() == 11).all()
    x.set(np.full(N, 3, np.int32))
    inc(queue, x)
    assert (x.get() == 4).all()


def test_mapped_contents_are_read_and_written_in_place(queue: mc.Queue) -> None:
    x = queue.zeros(N, np.int32)
    inc(queue, x, 5)
    with x.map() as host:
        assert (host == 5).all()
        host[3] = 100
    inc(queue, x)
    expected = np.full(N, 6)
    expected[3] = 101
    assert (x.get() == expected).all()


def test_a_mapped_array_stays_out_of_runs(queue: mc.Queue) -> None:
    x, y = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    other = mc.Queue(session=queue.session)
    with queue.prepare() as prepared:
        inc(queue, x)
    with x.map() as host:
        for user in (queue, other):
            with pytest.raises(LaunchError, match=r"argument 0 \(x\).*mapped"):
                inc(user, x)
            with pytest.raises(LaunchError, match=r"reset.*mapped"):
                user.call(print, x, name="reset")
        with pytest.raises(LaunchError, match="mapped"):
            prepared.run()
        with pytest.raises(LaunchError, match="mapped"), x.map():
            pass
        inc(queue, y)  # other arrays go on
        assert (y.get() == 1).all()
        host[:] = 40
    prepared.run()
    inc(other, x)
    assert (x.get() == 42).all()


def test_an_exception_in_a_map_block_ends_the_mapping(queue: mc.Queue) -> None:
    x = queue.zeros(N, np.int32)
    with pytest.raises(ValueError, match="mine"), x.map() as host:  # noqa: PT012
        host[:] = 7
        raise ValueError("mine")
    inc(queue, x)
    assert (x.get() == 8).all()


def test_arrays_that_cannot_be(queue: mc.Queue) -> None:
    for shape in (-1, (-2, -3)):
        with pytest.raises(LaunchError, match="no array has the shape"):
            queue.empty(shape)
    assert queue.empty((3, 0)).get().shape == (3, 0)
    assert queue.zeros(()).get() == 0
    assert queue.array([]).get().tolist() == []
    for contents in ([object()], np.array([None, 1])):
        with pytest.raises(LaunchError, match="Python objects"):
            queue.array(contents)
    with pytest.raises(LaunchError, match="Python objects"):
        queue.empty(3, object)
    for copy in (True, False):
        with pytest.raises(LaunchError, match="another order"):
            queue.array(np.arange(3, dtype=np.dtype("i4").newbyteorder("S")), copy=copy)
    with pytest.raises(TypeError):
        queue.zeros((2.5,))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="copy"):
        queue.zeros(3).__array__(copy=False)


def test_memory_is_freed_with_the_last_reference(queue: mc.Queue) -> None:
    session = queue.session
    x = queue.array(np.zeros(N, np.int32))
    key = x.buffer.key
    inc(queue, x)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is not None, "a launch that has not run still needs the array"
    queue.finish()
    gc.collect()
    assert gone() is None
    y = queue.zeros(N, np.int32)
    inc(queue, y)
    queue.finish()
    assert y.buffer.key == key, "the next array of its size has all that it had"
    del y
    session.trim()
    assert key not in session.directory.valid
    with pytest.raises(KeyError):
        session.backend.memory.nbytes(key)


def test_an_array_follows_the_queue_that_uses_it(queue: mc.Queue) -> None:
    """Two queues of one session: work happens in the order of the calls also for an array that both use."""
    other = mc.Queue(session=queue.session, policy="in_order")
    x = queue.array(np.full(N, 1, np.int32))
    triple = mc.Program("__kernel void triple(__global int *x) { x[get_global_id(0)] *= 3; }").triple
    triple(other, (N,), None, x)
    inc(queue, x)
    triple(other, (N,), None, x)
    other.call(lambda data: np.add(data, 5, out=data), x)
    inc(queue, x)
    assert (x.get() == (1 * 3 + 1) * 3 + 5 + 1).all()
    with queue.prepare() as prepared:
        inc(queue, x)
    triple(other, (N,), None, x)
    prepared.run()
    assert (x.get() == 18 * 3 + 1).all()


def test_a_closed_session_says_so() -> None:
    queue = mc.Queue("cpu")
    x = queue.zeros(4, np.int32)
    queue.session.close()
    data = np.zeros(4, np.int32)
    for use in (x.get, lambda: x.set(data), lambda: x.set(data, copy=False), lambda: queue.array(data, copy=False)):
        with pytest.raises(DeviceError, match="closed"):
            use()
    with pytest.raises(DeviceError, match="closed"), x.map():
        pass
    with pytest.raises(DeviceError, match="closed"):
        inc(queue, x)
    queue.finish()  # there is nothing to do
    queue.session.close()  # twice is harmless


def test_what_a_device_wrote_is_mapped_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of memory that has moved often enough to be page-locked, as well."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    program = mc.Program("kernel void add(global int *x, int by) { x[get_global_id(0)] += by; }")
    with mc.Queue("cpu/2") as queue:
        for count in (512, 2048, 1 << 18):
            x, expected = queue.array(np.arange(count, dtype=np.int32)), np.arange(count, dtype=np.int32)
            for by in range(1, 12):
                program.add(queue, (count,), (64,), x, by)
                expected += by
                with x.map() as host:
                    assert (host == expected).all(), (count, by)
                    host[:7] = expected[:7] = by
