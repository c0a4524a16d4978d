"""Loops given as the text of their bodies: NumPy's results, whatever the space, the types and the devices."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import manycl as mc
from manycl.api.loops import access_patterns, parallel_run, parallel_text
from manycl.api.loops import parallel_for as module
from manycl.errors import ArgumentError, LaunchError, SourceError


@pytest.fixture(scope="module")
def queue() -> Iterator[mc.Queue]:
    with mc.Queue("cpu/2") as queue:
        yield queue


@pytest.fixture(scope="module")
def alone() -> Iterator[mc.Queue]:
    with mc.Queue("cpu/2#0") as queue:
        yield queue


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small arrays have several blocks, and several blocks of those."""
    for reader in (access_patterns, parallel_run, parallel_text):
        monkeypatch.setattr(reader, "GROUP", 4)
    monkeypatch.setattr(parallel_text, "EACH", 3)
    module._compiled.cache_clear()
    yield
    module._compiled.cache_clear()


ranges = st.builds(
    lambda start, count, step: range(start, start + count * step, step),
    st.integers(-20, 20),
    st.integers(0, 12),
    st.sampled_from([-3, -1, 1, 2]),
)


@settings(max_examples=30)
@given(space=st.lists(st.one_of(st.integers(0, 9), ranges), min_size=1, max_size=3))
def test_every_point_is_run_once_with_its_indices(queue: mc.Queue, space: list[int | range]) -> None:
    axes = [r if isinstance(r, range) else range(r) for r in space]
    # a cell of this for each point, which is found from the indices alone
    low = [min(r, default=0) for r in axes]
    extent = [max(r, default=0) - a + 1 for r, a in zip(axes, low, strict=True)]
    place = "0"
    for d, name in enumerate("ijk"[: len(axes)]):
        place = f"({place} * n{d} + ({name} - low{d}))"
    numbers = {f"n{d}": n for d, n in enumerate(extent)} | {f"low{d}": a for d, a in enumerate(low)}
    seen = np.zeros(extent, np.int32)
    mc.parallel_for(space, f"seen[{place}] += 1;", seen=seen, queue=queue, **numbers)
    expected = np.zeros(extent, np.int32)
    expected[np.ix_(*[[v - a for v in r] for r, a in zip(axes, low, strict=True)])] = 1
    assert (seen == expected).all()


@settings(max_examples=30)
@given(
    st.sampled_from(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]).flatmap(
        lambda t: hnp.arrays(t, st.integers(1, 90), elements=hnp.from_dtype(np.dtype(t), allow_nan=False))
    ),
    st.integers(-(2**63), 2**63 - 1),
)
def test_arrays_and_scalars_have_their_types(queue: mc.Queue, a: np.ndarray, number: int) -> None:
    out, wide = np.zeros_like(a), np.zeros(len(a), np.int64)
    body = "out[i] = a[i]; wide[i] = number;"
    mc.parallel_for(len(a), body, a=a, out=out, wide=wide, number=number, queue=queue)
    assert out.tobytes() == a.tobytes()
    assert (wide == number).all()


OPERATORS = {
    "+": np.add.reduce,
    "*": np.multiply.reduce,
    "min": np.minimum.reduce,
    "max": np.maximum.reduce,
    "&": np.bitwise_and.reduce,
    "|": np.bitwise_or.reduce,
    "^": np.bitwise_xor.reduce,
}


@pytest.mark.usefixtures("small_blocks")
@settings(max_examples=25)
@given(
    data=st.sampled_from(["i4", "u8"]).flatmap(
        lambda t: hnp.arrays(t, hnp.array_shapes(min_dims=1, max_dims=3, max_side=9) | st.tuples(st.integers(1, 300)))
    ),
    operator=st.sampled_from(list(OPERATORS)),
    begin=st.none() | st.integers(0, 100),
)
def test_reductions_of_integers_are_numpys(queue: mc.Queue, data: np.ndarray, operator: str, begin: int | None) -> None:
    place = {1: "i", 2: "i * n1 + j", 3: "(i * n1 + j) * n2 + k"}[data.ndim]
    element = f"({'long' if data.dtype.kind == 'i' else 'ulong'})a[{place}]"
    put = f"s = {operator}(s, {element});" if operator in ("min", "max") else f"s {operator}= {element};"
    sizes: dict[str, Any] = {f"n{d}": data.shape[d] for d in range(1, data.ndim)}
    wide = np.int64 if data.dtype.kind == "i" else np.uint64
    expected = OPERATORS[operator](data.astype(wide).reshape(-1))
    if begin is not None:
        sizes["s"] = wide(begin)
        expected = OPERATORS[operator](np.array([expected, begin], wide))
    result = mc.parallel_for(data.shape, put, a=data, reduction={"s": operator}, queue=queue, **sizes)
    assert result == expected
    assert result.dtype == wide


@pytest.mark.usefixtures("small_blocks")
@settings(max_examples=30)
@given(hnp.arrays(np.float32, st.integers(1, 400), elements=st.floats(-100, 100, width=32)))
def test_sums_are_near_and_the_same_bits_on_any_number_of_devices(
    queue: mc.Queue, alone: mc.Queue, data: np.ndarray
) -> None:
    body = "s += x[i] * x[i]; low = fmin(low, x[i]); high = max(high, x[i]);"
    reduction = {"s": "+", "low": "min", "high": "max"}
    one = mc.parallel_for(len(data), body, x=data, reduction=reduction, queue=queue)
    other = mc.parallel_for(len(data), body, x=data, reduction=reduction, queue=alone)
    exact = float((data.astype(np.float64) ** 2).sum())
    assert abs(float(one["s"]) - exact) <= 1e-6 * 400 * exact + 1e-30
    assert (one["low"], one["high"]) == (data.min(), data.max())
    assert {k: v.tobytes() for k, v in one.items()} == {k: v.tobytes() for k, v in other.items()}


def test_reductions_along_ranges() -> None:
    a = np.random.default_rng(0).integers(-99, 99, (40, 50)).astype(np.int32)
    space = range(35, 2, -3), range(1, 50, 7)
    part = a[np.ix_(list(space[0]), list(space[1]))].astype(np.int64)
    body = "s += a[i * 50 + j]; low = min(low, a[i * 50 + j]);"
    found = mc.parallel_for(space, body, a=a, s=0, low=np.int32(1000), reduction={"s": "+", "low": "min"})
    assert (found["s"], found["low"]) == (part.sum(), part.min())


def test_a_reduction_of_no_points_is_what_it_begins_with() -> None:
    a = np.ones(4, np.float32)
    assert mc.parallel_for(0, "s += a[i];", a=a, reduction={"s": "+"}) == 0
    assert mc.parallel_for(0, "s += a[i];", a=a, s=2.5, reduction={"s": "+"}) == np.float32(2.5)
    assert mc.parallel_for(0, "s = min(s, a[i]);", a=a, reduction={"s": "min"}) == np.inf


def test_nan_is_the_least_and_the_greatest() -> None:
    data = np.array([1, np.nan, 3] * 3000)
    body = "low = low < x[i] ? low : x[i];"
    with pytest.raises(LaunchError, match="low is reduced"):
        mc.parallel_for(len(data), body, x=data, reduction={"low": "min"})
    data[:-1] = 5.0
    data[-1] = np.nan
    found = mc.parallel_for(len(data), "s += x[i];", x=data, reduction={"s": "+"})
    assert np.isnan(found)


def test_arrays_of_a_queue_are_enqueued_and_their_results_stay_there(queue: mc.Queue) -> None:
    n = 5000
    x, y = queue.array(np.arange(n, dtype=np.float32)), queue.zeros(n, np.float32)
    for factor in (1.0, 2.0, np.float32(3), 4):
        event = mc.parallel_for(n, "y[i] += factor * x[i];", x=x, y=y, factor=factor)
        assert isinstance(event, mc.Event)
    assert (y.get() == 10 * np.arange(n)).all()
    total = mc.parallel_for(n, "s += y[i];", y=y, s=np.float64(1), reduction={"s": "+"})
    assert isinstance(total, mc.Array)
    assert total.shape == ()
    assert float(total) == 10 * n * (n - 1) / 2 + 1


def test_calls_after_the_first_have_their_own_arrays_and_numbers(queue: mc.Queue) -> None:
    """What is remembered of a call is not what it was called with."""
    arrays = [queue.array(np.full(64, v, np.int64)) for v in range(3)]
    outs = [queue.zeros(64, np.int64) for _ in arrays]
    numbers = [3, -5, 2**62]
    for a, out, number in zip(arrays, outs, numbers, strict=True):
        mc.parallel_for(64, "out[i] = a[i] + b;", a=a, out=out, b=number)
    for v, (out, number) in enumerate(zip(outs, numbers, strict=True)):
        assert (out.get() == v + number).all()
    mc.parallel_for(32, "out[i] = a[i] + b;", a=arrays[0], out=outs[0], b=True)  # another type, fewer points
    assert (outs[0].get() == [1] * 32 + [3] * 32).all()
    mc.parallel_for(64, "out[i] = b >> 60;", out=outs[0], b=2**63)  # unsigned
    assert (outs[0].get() == 8).all()


def test_numpys_arrays_keep_what_the_body_does_not_write() -> None:
    grid = np.arange(60, dtype=np.float32).reshape(6, 10)
    before = grid.copy()
    odd = grid[::2]  # with gaps
    mc.parallel_for(odd.shape, "a[i * m + j] = -a[i * m + j];", a=odd, m=10)
    assert (grid[::2] == -before[::2]).all()
    assert (grid[1::2] == before[1::2]).all()
    mc.parallel_for(3, "a[i] = 1;", a=grid)
    assert (grid.reshape(-1)[:3] == 1).all()
    assert (grid.reshape(-1)[3:10] == -before.reshape(-1)[3:10]).all()


def test_one_array_by_two_names_is_one() -> None:
    x = np.arange(10, dtype=np.int32)
    mc.parallel_for(10, "a[i] += b[i];", a=x, b=x)
    assert (x == 2 * np.arange(10)).all()


def test_arrays_that_share_memory_are_refused_where_one_is_written() -> None:
    x = np.arange(10, dtype=np.int32)
    out = np.zeros(9, np.int32)
    mc.parallel_for(9, "out[i] = a[i] + b[i];", a=x[1:], b=x[:-1], out=out)
    assert (out == x[1:] + x[:-1]).all()
    with pytest.raises(LaunchError, match="share memory"):
        mc.parallel_for(9, "a[i] = b[i];", a=x[1:], b=x[:-1])
    mc.parallel_for(5, "a[i] = b[i];", a=x[::2], b=x[1::2])  # between one another
    assert (x[::2] == x[1::2]).all()
    x.flags.writeable = False
    with pytest.raises(LaunchError, match="read-only"):
        mc.parallel_for(10, "a[i] = 0;", a=x)


def test_functions_and_constants_and_complex_numbers() -> None:
    z = np.array([1 + 2j, 3 - 1j, 0.5j], np.complex64)
    out = np.zeros_like(z)
    functions = "float2 times(float2 a, float2 b) { return (float2)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }"
    constants = {"N": 3, "HALF": np.float32(0.5), "KIND": "float2", "ON": True, "EXACT": 0.1}
    body = "if (ON && i < N && EXACT == 0.1) {\n  KIND square = times(z[i], z[i]);\n  out[i] = square * HALF;\n}"
    mc.parallel_for(5, body, functions=functions, constants=constants, z=z, out=out)
    assert np.allclose(out, z * z / 2)


def test_break_continue_and_return_end_a_point() -> None:
    n = 100
    for word in ("continue", "break", "return"):
        out = np.zeros(n, np.int32)
        mc.parallel_for(n, f"if (i % 3 == 0) {word};\nout[i] = 1;", out=out)
        assert (out == (np.arange(n) % 3 != 0)).all()
    for word in ("continue", "break"):
        body = f"if (i % 3 == 0) {word};\ns += i;"
        assert mc.parallel_for(n, body, s=0, reduction={"s": "+"}) == sum(i for i in range(n) if i % 3)
    with pytest.raises(LaunchError, match="<body>:2: return would leave"):
        mc.parallel_for(n, "s += i;\nreturn;", s=0, reduction={"s": "+"})


@pytest.mark.parametrize(
    ("body", "line", "column", "what"),
    [
        ("c[i] = zz;", 1, 8, "zz"),
        ("int x = 0;\nc[i] = x\n", 2, 9, "';'"),
        ("\n\n  c[j] = 1;", 3, 5, "'j'"),
    ],
)
def test_errors_show_the_users_own_line(body: str, line: int, column: int, what: str) -> None:
    c = np.zeros(4, np.float32)
    with pytest.raises(SourceError) as raised:
        mc.parallel_for(4, body, c=c, functions="int f(int x) { return x; }\n", constants={"N": 1})
    first = raised.value.diagnostics[0]
    assert (first.path, first.line, first.column) == ("<body>", line, column)
    assert what in first.text
    assert first.source == body.split("\n")[line - 1]


def test_errors_of_functions_and_of_bounds_have_their_lines() -> None:
    c = np.zeros(4, np.float32)
    with pytest.raises(SourceError, match="<functions>:2:"):
        mc.parallel_for(4, "c[i] = f();", c=c, functions="\nfloat f() { return zz; }")
    with pytest.raises(LaunchError, match=r"in <body>, line 2: c\[4\]"):
        mc.parallel_for(4, "\nc[i + 1] = 0;", c=c)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("c[i] = 0;", {"c": [1.0]}), "c is list"),
        (("c[i] = 0;", {"c": np.zeros(3, "U4")}), "c is an array of <U4"),
        (("c[i] = 0; }", {"c": np.zeros(3)}), "without its {"),
        (("if (i) { c[i] = 0;", {"c": np.zeros(3)}), "without its }"),
        (("c[i] = get_global_id(0);", {"c": np.zeros(3)}), "get_global_id belongs to work-groups"),
        (("\nbarrier(CLK_LOCAL_MEM_FENCE);", {}), "<body>:2: barrier"),
        (("local int x;", {}), "local belongs to work-groups"),
        (("c[i] = get_local_id(0);", {"c": np.zeros(3), "local": (2,)}), "do not divide the space (3,)"),
        (("c[i].x = 0;", {"c": np.zeros(3, [("x", "i1"), ("y", "f4")])}), "C lays out differently"),
        (("c[i] = 0;", {"c": np.zeros(3), "i": 4}), "i stands for two things"),
        (("c[i] = x;", {"c": np.zeros(3), "x": 1e300}), None),
        (("c[i] = x;", {"c": np.zeros(3, np.float32), "x": 1e300}), "too large for float"),
        (("c[i] = x;", {"c": np.zeros(3), "x": 2**64}), "no integer of C holds"),
        (("c[i] = 0;", {"c": np.zeros(0)}), "c has no elements"),
    ],
)
def test_what_cannot_be_right_is_refused(arguments: tuple[str, dict[str, Any]], message: str | None) -> None:
    body, given = arguments
    if message is None:
        mc.parallel_for(3, body, **given)
        assert (given["c"] == 1e300).all()
        return
    with pytest.raises(LaunchError) as raised:
        mc.parallel_for(3, body, **given)
    assert message in str(raised.value)


def test_names_that_are_options_are_given_apart() -> None:
    x, out = np.arange(3.0), np.zeros(3)
    mc.parallel_for(3, "out[i] = device[i] + name;", out=out, arguments={"device": x, "name": 1})
    assert (out == x + 1).all()
    for wrong in ({"device": x}, {"name": x}, {"arguments": x}):
        with pytest.raises(ArgumentError, match=r"arguments=\{'\w+': …\}"):
            mc.parallel_for(3, "out[i] = 0;", out=out, **wrong)  # type: ignore[arg-type]


def test_words_in_comments_and_strings_are_no_code() -> None:
    out = np.zeros(3, np.int32)
    mc.parallel_for(3, "/* barrier( } */ out[i] = 1; // local {", out=out)
    assert (out == 1).all()


@pytest.mark.parametrize("space", [-1, (2, -3), (1, 2, 3, 4), (), 1.5, "n", [2**62, 4]])
def test_what_is_no_space_is_refused(space: Any) -> None:
    with pytest.raises((LaunchError, ArgumentError)):
        mc.parallel_for(space, "x[i] = 0;", x=np.zeros(3))


def test_loops_run_on_the_queue_that_is_given() -> None:
    out = np.zeros(100, np.int32)
    with mc.Queue("cpu/2#0") as one, mc.Queue(session=one.session) as other:
        mc.parallel_for(100, "out[i] = 1;", out=out, queue=one)
        assert (out == 1).all()
        assert [task.name for task in one.result.graph.nodes] == ["parallel_for"]
        array = one.zeros(100, np.int32)
        for number in (1, 2):  # the second call is like the first
            with other.prepare() as graph:
                mc.parallel_for(100, "a[i] += number;", a=array, number=number, queue=other)
            assert len(graph.graph) == 1
            graph.run()
        assert (array.get() == 3).all()
        total = mc.parallel_for(10, "s += i;", s=0, reduction={"s": "+"}, queue=one)
        assert isinstance(total, mc.Array)
        assert int(total) == mc.parallel_for(10, "s += i;", s=0, reduction={"s": "+"}) == 45


def test_local_sizes_are_along_the_indices(queue: mc.Queue) -> None:
    out = queue.zeros((10, 20), np.int32)
    mc.parallel_for((10, 20), "out[i * 20 + j] = i - j;", out=out, local=(2, 8))
    assert (out.get() == np.arange(10)[:, None] - np.arange(20)).all()
    node = queue.result.graph.nodes[-1]
    assert (node.global_size, node.local_size) == ((24, 10), (8, 2))
    with pytest.raises(LaunchError, match="local"):
        mc.parallel_for((10, 20), "out[i * 20 + j] = 0;", out=out, local=(2,))


expressions = st.recursive(
    st.sampled_from(["a", "b", "3", "(a - b)", "f(a, b)"]),
    lambda inner: (
        st.builds("{} {} {}".format, inner, st.sampled_from(["+", "-", "*", "&", "|", "^"]), inner)
        | inner.map("({})".format)
    ),
    max_leaves=4,
)


@given(st.sampled_from(["+", "*", "&", "|", "^"]), expressions, st.sampled_from(["s = s {} {}", "s {}= {}"]))
def test_what_is_taken_for_a_reduction_is_one(operator: str, value: str, form: str) -> None:
    """Python has the same order of these operators as C: what is accepted does to any s what the operator does."""
    statement = form.format(operator, value)
    if parallel_text.operator_of("s", statement) is None:
        assert form.startswith("s = s")  # only that can be read otherwise
        return
    scope = {"a": 5, "b": 12, "f": lambda a, b: 7 * a - b}
    alone = eval(value, dict(scope))
    for s in (0, 1, -3, 1000, 77):
        names = {**scope, "s": s}
        exec(statement, names)
        assert names["s"] == eval(f"s {operator} v", {"s": s, "v": alone})


@pytest.mark.parametrize(
    ("statement", "operator"),
    [
        ("s++", "+"),
        ("s -= a", "+"),
        ("s = max(s, f(a, b))", "max"),
        ("s = fmin(s, a)", "min"),
        ("s = max(s, a) + max(b, a)", None),
        ("s = max(s, a) * (b)", None),
        ("s = s + s", None),
        ("s += s", None),
        ("s == 3", None),
        ("s <<= 2", None),
        ("s = a + s", None),
        ("s = s && a", None),
        ("s + 1", None),
    ],
)
def test_forms_of_reductions(statement: str, operator: str | None) -> None:
    assert parallel_text.operator_of("s", statement) == operator


def test_the_default_queue_is_opened_again_when_it_was_closed() -> None:
    out = np.zeros(3, np.int32)
    mc.parallel_for(3, "out[i] = 1;", out=out)
    parallel_run.default_queue().close()
    mc.parallel_for(3, "out[i] = 2;", out=out)
    assert (out == 2).all()
    parallel_run.default_queue().close()


@pytest.mark.parametrize(
    ("kind", "devices", "names"),
    [
        *((kind, "cpu/2", ("min", "max")) for kind in ("i1", "u1", "i2", "u4", "i8", "u8", "f4", "f8")),
        *(("i1", "opencl", ("min",)), ("u8", "opencl", ("max",)), ("f4", "opencl", ())),  # which compiles slowly
    ],
)
def test_least_and_greatest_of_operands_of_several_types(kind: str, devices: str, names: tuple[str, ...]) -> None:
    x = (np.random.default_rng(1).random(300) * 100).astype(kind)
    y = np.zeros_like(x)
    with mc.Queue(devices) as queue:
        for name in names:
            body = f"s = {name}(s, x[i]);"
            assert mc.parallel_for(300, body, x=x, reduction={"s": name}, queue=queue) == getattr(x, name)()
        body = "y[i] = max(x[max(i - 1, 0)], min(3, x[clamp(i + 1, 0, n - 1)]));"
        mc.parallel_for(300, body, x=x, y=y, n=300, queue=queue)
    at = np.arange(300)
    expected = np.maximum(x[np.maximum(at - 1, 0)], np.minimum(x.dtype.type(3), x[np.minimum(at + 1, 299)]))
    assert (y == expected).all()


@pytest.mark.parametrize("devices", ["cpu", "cpu/2"])
def test_accesses_outside_are_told_with_the_line_of_the_body(devices: str) -> None:
    with mc.Queue(devices) as queue, pytest.raises(LaunchError, match="in <body>, line 3: a"):
        mc.parallel_for(10, "float t = 1;\n\na[max(i, 0) + 5] = t;", a=np.zeros(10, np.float32), queue=queue)


@pytest.mark.parametrize("devices", ["cpu/2", "opencl/2"])
def test_points_of_a_work_group_share_local_memory_and_barriers(devices: str) -> None:
    x = np.random.default_rng(3).random((8, 128), np.float32)
    out = np.zeros_like(x)
    body = """
    local float tile[4][32];
    int row = get_local_id(1), at = get_local_id(0);
    tile[row][at] = x[i * 128 + j];
    barrier(CLK_LOCAL_MEM_FENCE);
    out[i * 128 + j] = tile[3 - row][31 - at] + (get_batch_iteration() + 10 * (get_iteration() / get_batch_size()));
    """
    with mc.Queue(devices) as queue:
        mc.parallel_for((8, 128), body, x=x, out=out, local=(4, 32), batch=4, queue=queue)
    turned = x.reshape(2, 4, 4, 32)[:, ::-1, :, ::-1].reshape(8, 128)
    assert (out == turned + np.repeat([np.float32(0), np.float32(11)], 4)[:, None]).all()
    found = mc.ParallelFor(body, batch=4).derive((8, 128), x=x, out=out, local=(4, 32))
    assert found.arrays["x"].reads == found.arrays["out"].writes == mc.successive_subsections(4 * 128)


@pytest.mark.parametrize("devices", ["cpu/2", "opencl/2"])
def test_structures_are_those_of_numpys_arrays(devices: str) -> None:
    inner = [("a", "i4"), ("b", "u1")]
    kind = np.dtype([("x", "f4"), ("k", "i2"), ("p", "f8", (3,)), ("q", inner), ("c", "c8")], align=True)
    a = np.zeros(300, kind)
    a["x"], a["q"]["b"], b = np.arange(300), 7, np.zeros_like(a)
    body = "a_t t = a[299 - i]; t.k = i; t.p[1] = t.x / 3.0; t.q.a = t.q.b; t.c.y = 2; b[i] = t;"
    with mc.Queue(devices) as queue:
        mc.parallel_for(300, body, a=a, b=b, queue=queue)
        total = mc.parallel_for(300, "s += b[i].p[1];", b=b, s=0.0, reduction={"s": "+"}, queue=queue)
    expected = a[::-1].copy()
    expected["k"], expected["q"]["a"], expected["c"] = np.arange(300), 7, 2j
    expected["p"][:, 1] = np.arange(300.0)[::-1] / 3
    assert all((b[name] == expected[name]).all() for name in kind.names or ())
    assert total == pytest.approx(expected["p"][:, 1].sum())


@pytest.mark.parametrize(
    ("body", "meet"),
    [
        ("a[0] += i;", "a: line 1 writes"),
        ("a[i] = a[i + 1];", "line 1 reads elements"),
        ("a[i % 2 + 2] = i;", "a: line 1 writes"),
        ("a[2 * i % 9] = i;", ""),
        ("b[0] = 1;", ""),  # one value
        ("a[b[i]] = i;", ""),  # which may be so
        ("atomic_add(&b[0], 1);", ""),
    ],
)
def test_points_that_certainly_meet_are_told(body: str, meet: str) -> None:
    given: dict[str, Any] = {"a": np.zeros(10, np.float32), "b": np.zeros(9, np.int32)}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            mc.parallel_for(9, body, **{name: a for name, a in given.items() if f"{name}[" in body})
    assert [meet in str(w.message) and w.filename == __file__ for w in told] == [True] * bool(meet)
