"""Operators on arrays: what NumPy makes of the same operands, to the bit but for powers of floating-point numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import manycl as mc
from manycl.graph.graph import HostTask
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.splitting import Splits

NUMPY_2 = np.lib.NumpyVersion(np.__version__) >= "2.0.0"
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of overflows and divisions by zero

BINARY = [
    *(np.add, np.subtract, np.multiply, np.divide, np.floor_divide, np.remainder, np.power),
    *(np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.left_shift, np.right_shift),
    *(np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal),
]
TYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "0")
        queue = mc.Queue("cpu/2")
    yield queue.session
    queue.session.close()


@pytest.fixture
def queue(session: Any) -> mc.Queue:
    return mc.Queue(session=session)


@pytest.fixture(scope="module")
def alone() -> Iterator[mc.Queue]:
    """One device, which needs no plans: kernels need not be built for others."""
    with mc.Queue("cpu/2#0") as queue:
        yield queue


def bits(array: np.ndarray) -> tuple[Any, ...]:
    """All that there is to compare: NaNs are one number."""
    is_nan = array != array
    return array.shape, array.dtype, is_nan.tobytes(), np.where(is_nan, np.zeros_like(array), array).tobytes()


def same(got: Any, want: np.ndarray, ufunc: np.ufunc | None = None) -> None:
    assert isinstance(got, mc.Array)
    found = got.get()
    if ufunc is np.power and want.dtype.kind == "f":  # OpenCL C, 7.4: 16 units in the last place
        assert (found.shape, found.dtype) == (want.shape, want.dtype)
        assert np.allclose(
            found, want, rtol=32 * np.finfo(want.dtype).eps, atol=np.finfo(want.dtype).tiny, equal_nan=True
        )
    else:
        assert bits(found) == bits(want), (got, found, want)


def outcome(call: Callable[[], Any]) -> Any:
    """What comes, or the kind of error."""
    try:
        return call()
    except (TypeError, ValueError, OverflowError) as error:
        return next(kind for kind in (TypeError, OverflowError, ValueError) if isinstance(error, kind))


def special(dtype: str, power: bool = False) -> np.ndarray:
    """Numbers at which operations differ, each with each other when it is set against itself turned."""
    t = np.dtype(dtype)
    if t.kind == "b":
        return np.array([False, True])
    if t.kind == "f":
        tiny, large = np.finfo(t).smallest_subnormal, np.finfo(t).max
        return np.array(
            [0.0, -0.0, 1, -1, 0.5, 3, -3, 7.25, -7.25, 0.1, tiny, large, -large, np.inf, -np.inf, np.nan], t
        )
    limits = np.iinfo(t)
    low = [] if t.kind == "u" or power else [-1, -2, -7, limits.min, limits.min + 1]
    return np.array([0, 1, 2, 3, 7, 31, 64, limits.max, limits.max - 1, *low], t)


CALLED = [np.floor_divide, np.remainder, np.power]
SHIFTS = [np.left_shift, np.right_shift]


@pytest.mark.parametrize(
    ("dtype", "ufuncs"),
    [
        ("?", [np.add, np.multiply, np.subtract, np.bitwise_xor, np.invert, np.negative]),
        ("i1", [np.multiply, *CALLED, *SHIFTS, np.negative, np.absolute]),
        ("i4", [np.add, np.subtract, np.divide, *CALLED, *SHIFTS, np.bitwise_and, np.invert]),
        ("u8", [np.subtract, *CALLED, *SHIFTS, np.less]),
        (
            "f4",
            [
                np.add,
                np.subtract,
                np.multiply,
                np.divide,
                *CALLED,
                np.less_equal,
                np.not_equal,
                np.bitwise_or,
                np.absolute,
            ],
        ),
        ("f2", [np.add, np.divide, np.floor_divide, np.greater]),
        ("f8", [np.divide, np.floor_divide, np.remainder]),
    ],
)
def test_operations_at_their_limits(alone: mc.Queue, dtype: str, ufuncs: list[np.ufunc]) -> None:
    for ufunc in ufuncs:
        first, second = special(dtype), special(dtype, power=ufunc is np.power)
        given = [np.repeat(first, len(second)), np.tile(second, len(first))][: ufunc.nin]
        want, got = outcome(partial(ufunc, *given)), outcome(partial(ufunc, *map(alone.array, given)))
        if isinstance(want, type):
            assert got is want
        else:
            same(got, want, ufunc)


def elements(dtype: str) -> Any:
    if dtype[0] == "f":  # quiet NaNs only
        return {"elements": st.floats(width=8 * int(dtype[1]), allow_nan=True).map(lambda v: np.dtype(dtype).type(v))}
    return {}


@st.composite
def operands(draw: Any) -> tuple[np.ndarray, np.ndarray]:
    """Of any two types, and shapes that can be broadcast to one."""
    least = 0 if NUMPY_2 else 1  # dimensions: NumPy 1 looked at the values of what has none
    shapes = draw(hnp.mutually_broadcastable_shapes(num_shapes=2, min_dims=least, max_dims=3, max_side=5))
    types = [draw(st.sampled_from(TYPES)) for _ in range(2)]
    x, y = (draw(hnp.arrays(t, s, **elements(t))) for t, s in zip(types, shapes.input_shapes, strict=True))
    return x, y


@settings(max_examples=20, deadline=None)
@given(operands(), st.sampled_from(BINARY), st.booleans())
def test_types_and_shapes(alone: mc.Queue, xy: tuple[np.ndarray, np.ndarray], ufunc: np.ufunc, numpys: bool) -> None:
    x, y = xy
    if ufunc is np.power and np.result_type(x, y).kind == "i":
        y = np.where(y < 0, 3, y).astype(y.dtype)
    want = outcome(lambda: ufunc(x, y))
    got = outcome(lambda: ufunc(alone.array(x), y if numpys and y.shape else alone.array(y)))
    if isinstance(want, type):
        assert got is want
    else:
        same(got, np.asarray(want), ufunc)


@settings(max_examples=12, deadline=None)
@given(st.data(), st.sampled_from(TYPES), st.sampled_from([np.add, np.less, np.floor_divide]), st.booleans())
def test_numbers(alone: mc.Queue, data: Any, dtype: str, ufunc: np.ufunc, reflected: bool) -> None:
    """Those of Python's are as weak as NumPy 2 has them; those of NumPy's have types."""
    x = data.draw(hnp.arrays(dtype, (7,), **elements(dtype)))
    small = st.integers(0, 100) | st.sampled_from([0.5, -2.5, 1e3, True])
    typed = st.sampled_from([np.int8(3), np.uint64(9), np.float32(0.3), np.float64(0.1), np.array(5, np.int16)])
    number = data.draw(small | typed if NUMPY_2 else typed)
    a = alone.array(x)
    plain = number if NUMPY_2 else np.asarray([number])  # whose type counts before NumPy 2, too
    want = outcome(lambda: ufunc(plain, x) if reflected else ufunc(x, plain))
    got = outcome(lambda: ufunc(number, a) if reflected else ufunc(a, number))
    if isinstance(want, type):
        assert got is want
    else:
        same(got, want)


OPERATORS = [
    (operator.add, operator.iadd),
    (operator.sub, operator.isub),
    (operator.mul, operator.imul),
    (operator.truediv, operator.itruediv),
    (operator.floordiv, operator.ifloordiv),
    (operator.mod, operator.imod),
    (operator.pow, operator.ipow),
    (operator.and_, operator.iand),
    (operator.or_, operator.ior),
    (operator.xor, operator.ixor),
    (operator.lshift, operator.ilshift),
    (operator.rshift, operator.irshift),
]


@pytest.mark.parametrize(("plain", "inplace"), OPERATORS, ids=lambda f: f.__name__)
def test_each_operator_is_the_right_one(alone: mc.Queue, plain: Any, inplace: Any) -> None:
    x, y = np.array([1, 6, 7, 100], np.int32), np.array([3, 2, 1, 5], np.int32)
    a, b = alone.array(x), alone.array(y)
    same(plain(9, b), plain(9, y))
    if plain is operator.truediv:
        with pytest.raises(TypeError, match="same_kind"):
            inplace(a, b)
        return
    before = a
    a = inplace(a, b)
    assert a is before
    same(plain(x, b), plain(x, y))
    same(a, inplace(x, y))


def test_comparisons_and_what_is_no_number(alone: mc.Queue) -> None:
    x = np.array([1, 2, 3], np.uint8)
    a = alone.array(x)
    for got, want in ((a == 2, x == 2), (a != 2, x != 2), (a < 2, x < 2), (a > 2, x > 2), (a >= x, x >= x), (~a, ~x)):
        same(got, want)
    for beyond in (300, -1, 10**30, -(10**30)):
        for compare in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
            expected = np.array([compare(int(v), beyond) for v in x])
            same(compare(a, beyond), expected)
            same(compare(beyond, a), np.array([compare(beyond, int(v)) for v in x]))
    assert a != None  # noqa: E711
    assert a != "text"
    assert {a: 1}[a] == 1
    for wrong in (
        lambda: a + None,
        lambda: a + "1",
        lambda: a + 1j,
        lambda: a << 0.5,
        lambda: alone.zeros(3, "c8") + 1,
    ):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(OverflowError, match="300 is no uint8"):
        a + 300
    with pytest.raises(ValueError, match="negative integer powers"):
        alone.zeros(3, np.int32) ** -1
    with pytest.raises(ValueError, match="broadcast"):
        a + alone.zeros(4, np.uint8)
    with pytest.raises(ValueError, match="cannot take a result of shape"):
        alone.zeros(1, np.int32)[:] += alone.zeros(3, np.int32)


def test_negative_powers_of_integers_are_rounded_to_zero(alone: mc.Queue) -> None:
    x, y = np.array([0, 1, -1, -1, 2, -3], np.int32), np.array([-1, -5, -2, -3, -1, -2], np.int32)
    assert (alone.array(x) ** alone.array(y)).get().tolist() == [0, 1, 1, -1, 0, 0]


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_results_in_place_see_what_was_there_before(session: Any, data: Any) -> None:
    """Also where operands overlap what they are written to, in other places, types and shapes."""
    x = np.arange(1, 25, dtype=np.int32)
    a = mc.Queue(session=session).array(x)
    n = data.draw(st.integers(1, 12))
    i, j = (data.draw(st.integers(0, 24 - n)) for _ in range(2))
    ufunc = data.draw(st.sampled_from([np.add, np.subtract, np.multiply]))
    match data.draw(st.sampled_from(["part", "first", "second", "other type", "row"])):
        case "part":
            a[i : i + n] += a[j : j + n]
            x[i : i + n] += x[j : j + n].copy()
        case "first":
            ufunc(a[j : j + n], 3, out=a[i : i + n])
            x[i : i + n] = ufunc(x[j : j + n].copy(), 3)
        case "second":
            ufunc(2, a[j : j + n], out=a[i : i + n])
            x[i : i + n] = ufunc(2, x[j : j + n].copy())
        case "other type":
            a[i : i + n] -= a.view(np.int16)[j : j + n]
            x[i : i + n] -= x.view(np.int16)[j : j + n].copy()
        case _:
            a.reshape(4, 6)[...] += a.reshape(4, 6)[1]
            x.reshape(4, 6)[...] += x.reshape(4, 6)[1].copy()
    assert a.get().tolist() == x.tolist()


def test_kernels_are_named_divisible_and_kept(queue: mc.Queue) -> None:
    a, b, h = queue.zeros((512, 300)), queue.zeros(300), queue.zeros((512, 300), np.float16)
    with queue.prepare() as graph:
        first = [a + a, a * b, a > 1, 1 - a, h / h, a // h, -a, a.astype(np.int32), a.transpose().copy()]
        a += b
        a -= 1
    names = [
        "add_float32",
        "multiply_float32_strided",
        "greater_float32_scalar",
        "subtract_scalar_float32",
        "divide_float16",
        "floor_divide_float32_float16",
        "negative_float32",
        "convert_float32_to_int32",
        "copy_float32_strided",
        "add_float32_inplace_strided",
        "subtract_float32_scalar_inplace",
    ]
    assert [node.name for node in graph.graph.nodes] == names
    splits = Splits(graph.graph)
    assert [splits.why(n) for n in range(len(names))] == [""] * len(names)
    graph.run()
    assert {k.name.partition(" ")[0] for k in queue.trace.kernels()} - {"copy"} == set(names)  # (a plan may copy)
    with queue.prepare() as again:
        first += [a + a]
    kernels = [next(n for n in g.graph.nodes if n.name == "add_float32").kernel for g in (graph, again)]  # type: ignore[union-attr]
    assert kernels[0] is kernels[1]


class Halves:
    """Each launch that may be divided, half on each of two devices."""

    def plan(self, problem: Problem) -> Plan:
        found: list[Assignment] = []
        for node, task in enumerate(problem.graph.nodes):
            split = problem.splits.get(node)
            half = split.groups // 2 if split is not None else 0
            if split is None or not half:
                found.append(Assignment(node, ON_HOST if isinstance(task, HostTask) else 0, 0, 0.0, 0.0))
                continue
            for device, (first, count) in enumerate(((0, half), (half, split.groups - half))):
                found.append(Assignment(node, device, 0, 0.0, 0.0, split.dimension, first, count))
        return Plan(tuple(found), "halves", tuple(d.name for d in problem.machine.devices), 0.0)


def test_divided_results_are_the_same(queue: mc.Queue) -> None:
    x = np.random.default_rng(3).random((4096, 65), np.float32)
    divided = mc.Queue(session=queue.session, policy=Halves())
    results = []
    for on in (queue, divided):
        with on.prepare() as graph:
            a, row = on.array(x), on.array(x[0])
            b = a * row / 3 + (a // row) % 0.5
        for _ in range(3):
            graph.run()
        results.append(b.get().tobytes())
    want = x * x[0] / np.float32(3) + (x // x[0]) % np.float32(0.5)
    assert results == [want.tobytes()] * 2
    assert any(k.role == "range" for k in divided.trace.kernels())


def test_shapes_of_more_dimensions_than_an_ndrange(queue: mc.Queue) -> None:
    x, y = np.ones((2, 1, 3, 1, 2), np.int32), np.arange(4, dtype=np.int32).reshape(1, 2, 1, 2, 1)
    same(queue.array(x) + queue.array(y), x + y)
    deep = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    same(queue.array(deep) + queue.array(deep[0, 0]), deep + deep[0, 0])
    same(queue.array(deep) + queue.array(deep[:, :1]), deep + deep[:, :1])


def test_intermediate_results_need_nobody(queue: mc.Queue) -> None:
    x = np.arange(1000, dtype=np.float32)
    a = queue.array(x)
    for _ in range(20):
        a = (a + 1) * 0.5 - a / 4
        x = (x + 1) * np.float32(0.5) - x / 4
    same(a, x)
