"""NumPy's functions of arrays: what NumPy makes of the same contents, on devices; and operations that wait."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import manycl as mc
from benchmarks.arrays_figures.operations import operations
from manycl.api.functions import functions

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of what is no number
TYPES = ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8"]
HOST = 15
"""Operations of the list that no device computes."""


@pytest.fixture(scope="module")
def queue() -> Iterator[mc.Queue]:
    with mc.Queue("cpu/2#0") as queue:
        yield queue


class OnHost:
    """NumPy in a queue's place."""

    ones = staticmethod(lambda n: np.ones(n, np.float32))
    zeros = staticmethod(lambda n: np.zeros(n, np.float32))
    eye = staticmethod(lambda n: np.eye(n, dtype=np.float32))
    full, arange, linspace = staticmethod(np.full), staticmethod(np.arange), staticmethod(np.linspace)


def check(got: Any, want: Any, rtol: float = 3e-5) -> None:
    if isinstance(want, tuple | list):
        for one, other in zip(got, want, strict=True):
            check(one, other, rtol)
        return
    found, wanted = got.get() if isinstance(got, mc.Array) else np.asarray(got), np.asarray(want)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol)


def test_the_common_operations_are_numpys(queue: mc.Queue) -> None:
    """All on devices but a few, of each of which a warning tells, once."""
    rng = np.random.default_rng(1)
    values: dict[str, Any] = {"a": rng.random((7, 30), np.float32), "v": rng.random(30, np.float32)}
    values |= {"i": rng.integers(0, 99, 30), "s": rng.random((20, 20), np.float32), "m": values["v"] > 0.4}
    ours = {name: queue.array(value) for name, value in values.items()} | {"np": np, "q": queue}
    functions._told.clear()
    told = 0
    for operation in operations():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = eval(operation, dict(ours))
            want = eval(operation, values | {"np": np, "q": OnHost()})
        check(got, want)
        mine = [w for w in caught if issubclass(w.category, functions.HostWarning)]
        told += len(mine)
        parts = got if isinstance(got, tuple | list) else [got]
        assert bool(mine) != all(isinstance(p, mc.Array | bool) for p in parts), operation
    assert told == HOST


def elements(dtype: str) -> Any:
    kind = np.dtype(dtype)
    return hnp.from_dtype(kind, allow_nan=True, allow_infinity=True).map(
        lambda v: kind.type(np.nan) if v != v else kind.type(v)
    )


def arrays(types: list[str] = TYPES, least: int = 0, most: int = 3) -> Any:
    shapes = hnp.array_shapes(min_dims=least, max_dims=most, min_side=0, max_side=6)
    return st.sampled_from(types).flatmap(lambda t: hnp.arrays(t, shapes, elements=elements(t)))


def exactly(got: Any, want: Any) -> None:
    found = got.get()
    assert (found.shape, found.dtype) == (want.shape, want.dtype)
    np.testing.assert_array_equal(found, want)


@settings(max_examples=8, deadline=None)
@given(arrays(["?", "i2", "u8", "f4"], least=1, most=2), st.data())
def test_order(queue: mc.Queue, x: np.ndarray, data: Any) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    a = queue.array(x)
    exactly(np.sort(a, axis), np.sort(x, axis))
    exactly(a.argsort(axis), np.argsort(x, axis, stable=True))


@settings(max_examples=12, deadline=None)
@given(arrays(["?", "i1", "u8"]), st.data())
def test_integers_are_reduced_as_by_numpy(queue: mc.Queue, x: np.ndarray, data: Any) -> None:
    axes = st.none() | st.integers(0, x.ndim - 1) | st.permutations(range(x.ndim)).map(tuple)
    axis, keepdims = data.draw(axes) if x.ndim else None, data.draw(st.booleans())
    name = data.draw(st.sampled_from(["sum", "prod", "any", "all", "min", "max"]))
    try:
        want = getattr(x, name)(axis=axis, keepdims=keepdims)
    except ValueError:
        with pytest.raises(ValueError, match="no identity"):
            getattr(queue.array(x), name)(axis=axis, keepdims=keepdims)
        return
    exactly(getattr(queue.array(x), name)(axis=axis, keepdims=keepdims), np.asarray(want))


@settings(max_examples=8, deadline=None)
@given(arrays(["i2", "f4"], least=1), st.sampled_from(["argmin", "argmax"]), st.data())
def test_first_least_and_greatest(queue: mc.Queue, x: np.ndarray, name: str, data: Any) -> None:
    axis = data.draw(st.none() | st.integers(0, x.ndim - 1))
    if not x.size:
        return
    exactly(getattr(queue.array(x), name)(axis), np.asarray(getattr(x, name)(axis)))


@settings(max_examples=15, deadline=None)
@given(hnp.array_shapes(min_dims=1, max_dims=3, max_side=6), st.data())
def test_indices_and_masks(queue: mc.Queue, shape: tuple[int, ...], data: Any) -> None:
    """Read and written: of several writes to one place the last one stays, as by NumPy."""
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    if data.draw(st.booleans()):
        key: Any = (data.draw(hnp.arrays(bool, shape[: data.draw(st.integers(1, len(shape)))])),)
    else:
        count = data.draw(st.integers(1, len(shape)))
        where = sorted(data.draw(st.permutations(range(len(shape))))[:count])
        size = data.draw(hnp.array_shapes(min_dims=0, max_dims=2, max_side=4))
        key = tuple(
            data.draw(hnp.arrays(np.int64, size, elements=st.integers(-e, e - 1))) if d in where else slice(None)
            for d, e in enumerate(shape)
        )
    on_device = data.draw(st.booleans())
    mine = tuple(queue.array(k) if on_device and isinstance(k, np.ndarray) else k for k in key)
    a = queue.array(x)
    exactly(a[mine], x[key])
    values = -1 - np.arange(x[key].size, dtype=np.int32).reshape(x[key].shape)
    a[mine] = values
    x[key] = values
    exactly(a, x)
    a[mine] = 7
    x[key] = 7
    exactly(a, x)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_deferred_operations_see_what_was_there(queue: mc.Queue, data: Any) -> None:
    """Random programs of operations, writes into parts, views and kernels, against NumPy step by step: whatever is
    deferred is what it would be if it had been computed at once."""
    program = mc.Program("kernel void twice(global int *x) { x[get_global_id(0)] *= 2; }")
    names = {k: np.arange(k, k + 12, dtype=np.int32) for k in range(3)}
    ours = {k: queue.array(v) for k, v in names.items()}
    low = st.integers(0, 6)
    for _ in range(data.draw(st.integers(1, 8))):
        i, j, k = (data.draw(st.sampled_from(sorted(names))) for _ in range(3))
        match data.draw(
            st.sampled_from(["new", "new", "in place", "part", "turned", "kernel", "sum", "fill", "look", "drop"])
        ):
            case "new":
                new = max(names) + 1
                names[new], ours[new] = names[i] * 2 - names[j] + 1, ours[i] * 2 - ours[j] + 1
            case "in place":
                names[k] += names[i] * names[j]
                ours[k] += ours[i] * ours[j]
            case "part":
                b, c = data.draw(low), data.draw(low)
                names[k][b : b + 5] = names[i][c : c + 5] + names[j][:5] * 3
                ours[k][b : b + 5] = ours[i][c : c + 5] + ours[j][:5] * 3
            case "turned":
                names[k][::2] = (names[i][::-1] + 1)[::2]
                ours[k][::2] = (ours[i][::-1] + 1)[::2]
            case "kernel":
                names[k] *= 2
                program.twice(queue, (12,), None, ours[k])
            case "sum":
                names[k][3] = (names[i] * names[j]).sum() % 1000
                ours[k][3:4] = ((ours[i] * ours[j]).sum() % 1000).astype(np.int32)
            case "fill":
                names[k][...] = 5
                ours[k].fill(5)
            case "look":
                assert ours[k].get().tolist() == names[k].tolist()
            case "drop":
                if len(names) > 3:
                    del names[max(names)], ours[max(ours)]
    for k in data.draw(st.permutations(sorted(names))):
        assert ours[k].get().tolist() == names[k].tolist(), k


def test_chains_are_one_kernel(queue: mc.Queue) -> None:
    x = np.random.default_rng(0).random(1000, np.float32)
    a, b = queue.array(x), queue.array(x[::-1].copy())
    queue.finish()
    found = np.sqrt(a * a + b * b).sum()
    assert float(found) == pytest.approx(float(np.sqrt(x * x + x[::-1] ** 2).sum()), rel=1e-5)
    assert [k.name for k in queue.trace.kernels()] == ["multiply_multiply_add_sqrt_sum_float32"]
    a += 0.5 * b
    check(a, x + np.float32(0.5) * x[::-1])
    assert [k.name for k in queue.trace.kernels()] == ["multiply_add_scalar_float32_inplace"]


def test_products_of_matrices(queue: mc.Queue) -> None:
    rng = np.random.default_rng(3)
    for dtype in ("f4", "i4"):
        for left, right in (((17, 33), (33, 18)), ((3, 4, 5), (5, 6)), ((2, 1, 4, 5), (3, 5, 2)), ((7,), (7, 9))):
            x, y = rng.integers(0, 3, left).astype(dtype), rng.integers(0, 3, right).astype(dtype)
            exactly(queue.array(x) @ queue.array(y), x @ y)
    with pytest.raises(ValueError, match="do not match"):
        queue.zeros((2, 3)) @ queue.zeros((2, 3))


def test_random_numbers_are_those_of_numpys_philox(queue: mc.Queue) -> None:
    numpys, ours = np.random.Generator(np.random.Philox(42)), queue.default_rng(42)
    assert (ours.bits(9).get() == np.random.Philox(42).random_raw(9)).all()
    ours = queue.default_rng(42)
    assert (ours.random((3, 5)).get() == numpys.random((3, 5))).all()
    assert (ours.random(1001).get() == numpys.random(1001)).all()
    normal, whole = ours.normal(3, 2, 100_000).get(), ours.integers(-2, 5, 70_000).get()
    assert abs(normal.mean() - 3) < 0.05
    assert abs(normal.std() - 2) < 0.05
    assert set(whole.tolist()) == set(range(-2, 5))
    assert sorted(ours.permutation(100).tolist()) == list(range(100))


def test_python_and_other_libraries(queue: mc.Queue) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    a = queue.array(x)
    assert str(a) == str(x)
    assert f"{a[0, 1]:.2f}" == "1.00"
    assert a.tolist() == x.tolist()
    for other in (pickle.loads(pickle.dumps(a)), deepcopy(a)):
        assert isinstance(other, mc.Array)
        assert (other.get() == x).all()
    assert [1, 2, 3][queue.array(np.int64(1))] == 2  # type: ignore[call-overload]
    figure = pytest.importorskip("matplotlib.figure").Figure()
    (line,) = figure.subplots().plot(a[0], a[:, 1:].T[0].copy().reshape(-1)[:1] + a[1])
    assert line.get_xdata().tolist() == x[0].tolist()


def test_running_sums_of_several_blocks(queue: mc.Queue) -> None:
    x = np.random.default_rng(5).integers(-9, 9, (2, 40_000))
    exactly(np.cumsum(queue.array(x), 1), np.cumsum(x, 1))
    exactly(np.cumsum(queue.array(x)), np.cumsum(x))
    exactly(np.sort(queue.array(x.reshape(-1))), np.sort(x, None))
    assert np.cumsum(queue.zeros((0, 3)), 0).shape == (0, 3)


def test_what_is_not_there_is_refused(queue: mc.Queue) -> None:
    a = queue.array(np.arange(5, dtype=np.int32))
    for index in ([5], [-6], queue.array(np.array([0, 5]))):
        with pytest.raises(IndexError, match="out of bounds for axis 0 with size 5"):
            a[index]
        with pytest.raises(IndexError, match="out of bounds"):
            a[index] = 1
    assert a[queue.array(np.zeros(5, bool))].get().shape == (0,)
    assert (a[:0] + 1).get().shape == (0,)
    assert float(a[:0].sum()) == 0
    other = mc.Queue("cpu/2#0")
    b = other.zeros(3) + 1
    other.close()
    with pytest.raises(mc.ManyclError):
        b.get()
