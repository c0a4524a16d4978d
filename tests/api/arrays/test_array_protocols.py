"""Arrays as people know them from NumPy: parts that are assigned, other types and shapes, what others see of them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import manycl as mc
from manycl.errors import LaunchError, ResultError

X = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.fixture(scope="module")
def queue() -> Iterator[mc.Queue]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "0")
        queue = mc.Queue("cpu/2")
    yield queue
    queue.close()


def test_what_it_is(queue: mc.Queue) -> None:
    for x in (X, X[0], X[0, 0], X.astype("i8"), X.reshape(2, 2, 6)):
        a = queue.array(x)
        x = np.ascontiguousarray(x).reshape(x.shape)
        for name in ("shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides"):
            assert getattr(a, name) == getattr(x, name), name
        if x.shape:
            assert len(a) == len(x)
            assert a[1:].strides == x[1:].strides
            assert len(a[1:]) == len(x) - 1
    for refused in (len, iter):
        with pytest.raises(TypeError):
            refused(queue.array(5))


def test_going_through_it(queue: mc.Queue) -> None:
    a = queue.array(X)
    rows = list(a)
    assert [type(row) for row in rows] == [type(a[0])] * 4
    rows[2][...] = 0  # they are views
    assert a.get()[2].tolist() == [0] * 6
    assert list(a[1]) == X[1].tolist()
    assert all(isinstance(v, np.float32) for v in a[1])
    assert 7 in a
    assert 70 not in a
    assert (a[0, 3].item(), float(a[0, 3]), int(a[0, 3]), bool(a[0, 0]), bool(a[:1, :1] + 2)) == (
        3.0,
        3.0,
        3,
        False,
        True,
    )
    with pytest.raises(ValueError, match="of several elements"):
        bool(a)
    with pytest.raises(ValueError, match="size 1"):
        float(a)


def test_other_types_and_orders(queue: mc.Queue) -> None:
    a = queue.array(X)
    for dtype in ("i4", "u1", "f8", "S2", [("a", "u2"), ("b", "i2")]):
        for part, same in ((a, X), (a[1:3], X[1:3]), (a[0], X[0])):
            view = part.view(dtype)
            assert (view.shape, view.dtype, view.get().tobytes()) == (
                (w := same.view(dtype)).shape,
                w.dtype,
                w.tobytes(),
            )
    a.view(np.int32)[0, :2] = 0
    assert a.get()[0].tolist() == [0, 0, *X[0, 2:].tolist()]
    a = queue.array(X)
    for wrong in ("V3", "c16", object, ">f4"):
        with pytest.raises(LaunchError):
            a[0, :3].view(wrong)
    for dtype in ("f8", "f2", "i4", "u2", "?"):
        assert (got := a.astype(dtype)).dtype == np.dtype(dtype)
        assert got.get().tobytes() == X.astype(dtype).tobytes()
    assert a.astype("f4", copy=False) is a
    copies = [a.astype("f4"), a.copy(), a[1].copy()]
    a[...] = 0
    assert [c.get().tolist() for c in copies] == [X.tolist(), X.tolist(), X[1].tolist()]
    with pytest.raises(TypeError, match="no kernel that converts float32 to complex64"):
        a.astype("c8")
    y = np.arange(2 * 3 * 4, dtype=np.int16).reshape(2, 3, 4)
    b = queue.array(y)
    for axes in ((), (2, 0, 1), ((1, 0, 2),), (0, -1, 1)):
        assert b.transpose(*axes).get().tolist() == y.transpose(*axes).tolist()
    with pytest.raises(ValueError, match="repeated axis"):
        b.transpose(0, 0, 1)
    assert queue.array(X[0]).T.get().tolist() == X[0].tolist()
    assert queue.array(X[:, :1]).T.shape == (1, 4)
    assert b.T.get().tolist() == y.T.tolist()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_assigning_is_numpys(queue: mc.Queue, data: Any) -> None:
    x = X.copy()
    a = queue.array(x)
    for _ in range(3):
        key = data.draw(hnp.basic_indices(x.shape).filter(lambda k: x[k].size))
        part = x[key]
        if data.draw(st.booleans()):
            value: Any = data.draw(st.floats(-9, 9, width=32))
        else:
            dtype = data.draw(st.sampled_from(["f4", "i2", "f8"]))
            shape = data.draw(hnp.broadcastable_shapes(part.shape, max_dims=part.ndim))
            shape = shape if np.broadcast_shapes(shape, part.shape) == part.shape else part.shape
            value = data.draw(hnp.arrays(dtype, shape, elements=st.integers(-9, 9)))
        other = queue.array(value) if isinstance(value, np.ndarray) and data.draw(st.booleans()) else value
        x[key] = value
        a[key] = other
    i, j = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    n = data.draw(st.integers(1, 4 - max(i, j)))
    x[i : i + n] = x[j : j + n].copy()
    a[i : i + n] = a[j : j + n]  # which may overlap
    assert a.get().tobytes() == x.tobytes()


def test_what_cannot_be_assigned(queue: mc.Queue) -> None:
    a = queue.array(X.astype(np.int16))
    for wrong, words in (
        (lambda: a.__setitem__(0, 0.5), "no value of an array of int16"),
        (lambda: a.__setitem__(0, 1 << 20), "no value of an array of int16"),
        (lambda: a.__setitem__(0, np.full(6, 1 << 20)), "do not fit an array of int16"),
        (lambda: a.__setitem__(0, queue.array(X[0])), "float32 do not fit an array of int16"),
        (lambda: a.__setitem__(0, np.zeros(5, np.int16)), "do not fit a part of shape"),
        (lambda: a.__setitem__(0, queue.zeros(5, np.int16)), "does not fit a part of shape"),
        (lambda: a.__setitem__(0, queue.zeros((2, 6), np.int16)), "does not fit a part of shape"),
        (lambda: a.__setitem__((slice(None), 0), 0.5), "do not fit an array of int16"),
    ):
        with pytest.raises((LaunchError, ResultError), match=words):
            wrong()
    assert a.get().tolist() == X.tolist()
    three = queue.zeros(4, [("a", "u1"), ("b", "u2")])  # no pattern of OpenCL's
    three[1:3] = np.array((1, 2), three.dtype)
    assert three.get()["a"].tolist() == [0, 1, 1, 0]


def test_assigning_is_enqueued(queue: mc.Queue) -> None:
    a = queue.zeros(6)
    with queue.prepare() as graph:
        a[:2] += 1
        a[2:] = a[:1]
    assert a.get().tolist() == [0] * 6
    graph.run()
    graph.run()
    assert a.get().tolist() == [2] * 6
    assert [node.name for node in graph.graph.nodes] == ["add_float32_scalar_inplace", "copy_float32_strided"]


# NumPy


def test_numpy_sees_the_contents(queue: mc.Queue) -> None:
    a = queue.array(X)
    host = np.asarray(a)
    assert host.tolist() == X.tolist()
    with pytest.raises(ValueError, match="read-only"):
        host[0] = 1  # which would not change the array
    assert np.array(a).flags.writeable
    assert np.array(a, dtype=np.int64).tolist() == X.astype(int).tolist()
    assert np.concatenate([a, X]).shape == (8, 6)
    assert np.array([a[0], a[1]]).tolist() == X[:2].tolist()
    assert (np.sum(a), np.max(a), np.add.reduce(a, axis=None), np.dot(a[0], X[1])) == (276, 23, 276, X[0] @ X[1])
    told = a[1].__array_interface__
    assert (told["shape"], told["typestr"], told["version"]) == ((6,), "<f4", 3)
    struct = np.zeros(3, [("a", "i4"), ("b", "f4")])
    assert np.asarray(queue.array(struct)).dtype == struct.dtype
    a += 1
    assert host.tolist() == X.tolist()  # a copy
    del a
    gc.collect()
    queue.session.trim()
    assert host.tolist() == X.tolist()


def test_ufuncs(queue: mc.Queue) -> None:
    a = queue.array(X)
    for result in (np.add(X, a), X + a, np.float32(1) * a, np.negative(a), np.less(X, a), np.array(2) - a):
        assert isinstance(result, mc.Array)
    for result in (np.sqrt(a), np.add.outer(a[0], X[0]), np.hypot(a, X), np.divmod(a, 2)[0]):
        assert isinstance(result, mc.Array)
    np.testing.assert_allclose(np.hypot(a, X).get(), np.hypot(X, X), rtol=1e-6)
    out = queue.zeros(X.shape)
    assert np.multiply(a, X, out=out) is out
    assert out.get().tolist() == (X * X).tolist()
    host = np.zeros_like(X)
    with pytest.warns(UserWarning, match=r"numpy\.add runs on the host"):
        host += a
    with pytest.warns(UserWarning, match=r"numpy\.subtract runs on the host"):
        assert np.subtract(X, a, out=host) is host
    assert not host.any()
    np.add(X, 1, out=host, where=a > 3)
    assert host.tolist() == np.where(X > 3, X + 1, 0).tolist()
    assert np.sqrt(a, out=out) is out
    np.testing.assert_allclose(out.get(), np.sqrt(X), rtol=1e-6)
    with pytest.warns(UserWarning, match=r"numpy\.multiply runs on the host"):
        assert np.multiply(a, X, out=out, where=X > 3) is out
    np.testing.assert_allclose(out.get(), np.where(X > 3, X * X, np.sqrt(X)), rtol=1e-6)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "write",
    [
        lambda a: np.add.at(a, [0, 0, 2], 5),
        lambda a: np.copyto(a, 7, where=np.arange(len(a)) % 2 == 0),
        lambda a: np.put(a, [0, 3], 9),
        lambda a: np.place(a, np.arange(len(a)) > 2, [1, 2]),
        lambda a: np.putmask(a, np.arange(len(a)) > 1, 3),
        lambda a: np.fill_diagonal(a[:4].reshape(2, 2), 3),
        lambda a: np.put_along_axis(a, np.array([1]), 8, 0),
        lambda a: np.nan_to_num(a, copy=False),
        lambda a: np.clip(a, 1, 2, out=a),
        lambda a: np.median(a, axis=0, keepdims=True, out=a[:1]),
    ],
)
def test_functions_that_write_their_arguments(queue: mc.Queue, write: Any) -> None:
    host = np.arange(8, dtype=np.float32)
    a = queue.array(host)
    write(a)
    write(host)
    assert a.get().tolist() == host.tolist()


# DLPack


class Producer:
    """What exports DLPack and nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class Elsewhere(Producer):
    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("it is on a GPU")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def test_dlpack_gives_a_copy_that_lives_on(queue: mc.Queue) -> None:
    a = queue.array(X)
    assert a.__dlpack_device__() == (1, 0)
    host = np.from_dlpack(a)
    assert host.tolist() == X.tolist()
    a += 1
    gone = weakref.ref(a)
    del a
    gc.collect()
    queue.finish()
    assert gone() is None
    queue.session.trim()
    assert host.tolist() == X.tolist()
    view = queue.array(X)[1:3]
    assert np.from_dlpack(view).tolist() == X[1:3].tolist()
    for options in ({"copy": False}, {"dl_device": (2, 0)}, {"stream": 1}):
        with pytest.raises(BufferError):
            view.__dlpack__(**options)


def test_dlpack_is_taken(queue: mc.Queue) -> None:
    for make in (queue.array, queue.from_dlpack):
        a = make(Producer(X[:, 1:]), name="given")
        assert (a.shape, a.name, a.get().tolist()) == ((4, 5), "given", X[:, 1:].tolist())
        assert make(queue.array(X)).get().tolist() == X.tolist()
    x = X.copy()
    inplace = queue.from_dlpack(Producer(x), copy=False)
    x[...] = 5
    assert (inplace + 0).get().tolist() == x.tolist()
    with pytest.raises(ResultError, match="gives no contents by DLPack: it is on a GPU"):
        queue.from_dlpack(Elsewhere(X))
    with pytest.raises(ResultError, match="list gives no contents"):
        queue.from_dlpack([1, 2])
