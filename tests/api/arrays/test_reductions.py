"""Reductions of arrays: what NumPy makes of the same elements; sums of floating-point numbers within the bound of their
depth, and the same bits however they are divided."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import manycl as mc
from manycl.api.arrays import elementwise, launches
from manycl.machine import DeviceIndex
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of sums that overflow
DEPTH = 400
"""Additions that an element takes part in, at most: in blocks, and of blocks."""


@pytest.fixture(scope="module")
def alone() -> Iterator[mc.Queue]:
    with mc.Queue("cpu/2#0") as queue:
        yield queue


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    """Small arrays have several blocks, and several blocks of those."""
    sizes = {"GROUP": 4, "EACH": 3}
    with pytest.MonkeyPatch.context() as patch:
        for module in (elementwise, launches):
            for name, size in sizes.items():
                patch.setattr(module, name, size)
        elementwise.kernel.cache_clear()
        yield
    elementwise.kernel.cache_clear()


@st.composite
def cases(draw: st.DrawFn, types: str) -> tuple[np.ndarray, Any, bool]:
    """Contents, an axis, whether dimensions are kept."""
    dtype = np.dtype(draw(st.sampled_from(types.split())))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, max_side=6))
    if shape and draw(st.booleans()):
        shape = (*shape[:-1], draw(st.integers(17, 300)))
        shape = tuple(draw(st.permutations(shape)))
    elements = hnp.from_dtype(dtype, allow_infinity=False, allow_nan=False)
    data = draw(hnp.arrays(dtype, shape, elements=elements, fill=elements))
    axis = draw(st.one_of(st.none(), st.integers(-len(shape), len(shape) - 1))) if shape else None
    return data, axis, draw(st.booleans())


@settings(max_examples=80)
@given(cases("? i2 u8 f2 f4"))
def test_sums_are_numpys(alone: mc.Queue, case: tuple[np.ndarray, Any, bool]) -> None:
    data, axis, keepdims = case
    want = data.sum(axis=axis, keepdims=keepdims)
    got = alone.array(data).sum(axis=axis, keepdims=keepdims)
    assert (got.shape, got.dtype) == (np.shape(want), want.dtype)
    if data.dtype.kind != "f":
        assert (got.get() == want).all()
        return
    check_sum(np.asarray(got.get()), data, axis)


def check_sum(found: np.ndarray, data: np.ndarray, axis: Any) -> None:
    """Each sum is the exact one but for the rounding of as many additions as there are; what overflows may be
    infinite."""
    lines = np.moveaxis(data, axis, -1).reshape(found.size, -1) if axis is not None else data.reshape(1, -1)
    computed = np.float32 if data.dtype == np.float16 else data.dtype
    for one, line in zip(found.ravel(), lines, strict=True):
        try:
            size, exact = math.fsum(map(abs, map(float, line))), math.fsum(map(float, line))
        except OverflowError:
            continue
        if size >= float(np.finfo(data.dtype).max):
            continue
        rounding = DEPTH * float(np.finfo(computed).eps) * size
        last = float(np.spacing(data.dtype.type(abs(exact) + rounding)))
        assert abs(float(one) - exact) <= rounding + last, (one, exact)


@settings(max_examples=60)
@given(cases("? f2 f8"), st.sampled_from(["min", "max"]), st.data())
def test_least_and_greatest_are_numpys(
    alone: mc.Queue, case: tuple[np.ndarray, Any, bool], name: str, data: st.DataObject
) -> None:
    values, axis, keepdims = case
    if values.dtype.kind == "f" and values.shape:
        for at in data.draw(st.lists(st.integers(0, values.size - 1), max_size=2)):
            values.flat[at] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    want = getattr(values, name)(axis=axis, keepdims=keepdims)
    got = getattr(alone.array(values), name)(axis=axis, keepdims=keepdims)
    assert (got.shape, got.dtype) == (np.shape(want), want.dtype)
    np.testing.assert_array_equal(got.get(), want)


@settings(max_examples=40)
@given(cases("i2 f2"))
def test_means_are_numpys(alone: mc.Queue, case: tuple[np.ndarray, Any, bool]) -> None:
    data, axis, keepdims = case
    if data.dtype.kind == "f":  # within what sums of them can hold
        data = np.where(np.abs(data) < 1e3, data, data.dtype.type(0.5))
    want = data.mean(axis=axis, keepdims=keepdims)
    got = alone.array(data).mean(axis=axis, keepdims=keepdims)
    assert (got.shape, got.dtype) == (np.shape(want), want.dtype)
    most = float(np.abs(data.astype(np.float64)).max())
    eps = float(np.finfo(np.float32 if data.dtype == np.float16 else want.dtype).eps)
    close = 2 * DEPTH * eps * most + float(np.finfo(want.dtype).eps) * most
    np.testing.assert_allclose(got.get().astype(np.float64), np.asarray(want, np.float64), rtol=0, atol=close)


@settings(max_examples=30)
@given(
    st.sampled_from(["?", "i4", "f4"]),
    st.sampled_from(["i4", "f2"]),
    st.integers(1, 300),
    st.randoms(use_true_random=False),
)
def test_inner_products_are_numpys(alone: mc.Queue, one: str, other: str, n: int, random: Any) -> None:
    both = [np.array([random.randint(0, 3) for _ in range(n)]).astype(t) for t in (one, other)]
    want: Any = np.dot(*both)
    x, y = map(alone.array, both)
    for got in (mc.dot(x, y), x.dot(y)):
        assert (got.shape, got.dtype) == ((), want.dtype)
        assert got.get() == want  # small integers: exact in every type
    assert float(mc.dot(x, x[:])) == float(np.dot(both[0], both[0]))


class Halves:
    """Each launch that may be is halved between two devices."""

    def plan(self, problem: Problem) -> Plan:
        out: list[Assignment] = []
        for n in range(len(problem.graph)):
            split = problem.splits.get(n)
            half = split.groups // 2 if split is not None else 0
            if split is None or not half:
                out.append(Assignment(n, DeviceIndex(0), 0, 0.0, 0.0))
                continue
            shares = ((0, 0, half), (1, half, split.groups - half))
            out += [Assignment(n, DeviceIndex(d), 0, 0.0, 0.0, split.dimension, low, count) for d, low, count in shares]
        return Plan(tuple(out), "halves", tuple(d.name for d in problem.machine.devices), 0.0)


def test_blocks_that_are_divided_give_the_same_bits() -> None:
    x = np.random.default_rng(1).standard_normal((40, 3000)).astype(np.float32)
    found = list[list[bytes]]()
    ways: tuple[tuple[str, str | Halves], ...] = (
        ("opencl/2#0", "auto"),
        ("opencl/2", Halves()),
        ("opencl/2", "tenths"),
        ("opencl/2", "auto"),
    )
    for devices, policy in ways:
        with mc.Queue(devices, policy=policy) as queue:
            a, flat = queue.array(x), queue.array(x.reshape(-1))
            for _ in range(3):
                results = [a.sum(), a.sum(0), a.sum(1), a.mean(), mc.dot(flat, flat), a.max(1)]
                found.append([r.get().tobytes() for r in results])
                if isinstance(policy, Halves):
                    flat.sum().get()
                    assert {k.device for k in queue.trace.kernels() if k.groups} == set(queue.devices)
    assert all(one == found[0] for one in found)


def test_numpys_functions_use_them(alone: mc.Queue) -> None:
    x = np.arange(12, dtype=np.int16).reshape(3, 4)
    a = alone.array(x)
    for function in (np.sum, np.min, np.max, np.mean):
        for axis in (None, 0, 1):
            got = function(a, axis=axis)
            assert isinstance(got, mc.Array)
            assert (got.get() == function(x, axis=axis)).all()
    assert a.sum(dtype=np.float32).get() == 66.0
    assert a.sum(dtype=np.float32).dtype == np.float32
    assert a[1:].sum().item() == int(x[1:].sum())
    out = alone.empty(4, np.int64)
    assert a.sum(0, out=out) is out
    assert (out.get() == x.sum(0)).all()
    total = a.sum()
    a += 1
    assert int(total) == int(x.sum()), "what it was then"


def test_what_a_result_is_written_over_was_read_first(alone: mc.Queue) -> None:
    x = np.arange(600, dtype=np.float64)
    a = alone.array(x)
    a.sum(out=a[3])
    want = x.copy()
    want[3] = x.sum()
    assert (a.get() == want).all()


def test_what_is_wrong_is_refused_as_by_numpy(alone: mc.Queue) -> None:
    a = alone.zeros((3, 4), np.float32)
    for axis, error in ((2, np.exceptions.AxisError), (-3, ValueError), ((0, 0), ValueError), (1.0, TypeError)):
        with pytest.raises(error):
            a.sum(axis)
    with pytest.raises(ValueError, match="out"):
        a.sum(0, out=alone.empty(3, np.float32))
    with pytest.raises(ValueError, match="out"):
        a.max(0, out=alone.empty(4, np.float64))
    with pytest.raises(TypeError):
        a.sum(0, out=np.empty(4, np.float32))
    with pytest.raises(TypeError):
        a.mean(dtype=np.int32)
    with pytest.raises(ValueError, match="vectors"):
        mc.dot(a, a)
    with pytest.raises(ValueError, match="no identity"):
        a[:0].max()
    with pytest.raises(ValueError, match="vectors"):
        mc.dot(a[0], a[0][:2])
    with pytest.raises(TypeError):
        mc.dot(a[0], np.zeros(4))
    with pytest.raises(TypeError):
        alone.array(np.zeros(4, np.complex64).view("f4")).sum(dtype=np.complex64)
