"""How batches of loops access arrays: derived as byte by byte, and compared with what is said."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.api.loops import access_patterns, parallel_for
from manycl.api.loops.access_patterns import AccessPattern
from manycl.errors import LaunchError


def spans(pattern: AccessPattern, batches: int) -> list[tuple[int, int]]:
    """Of each batch, what a pattern says: written anew from its definition."""
    if pattern.kind == "successive_subsections":
        return [(b * pattern.count, (b + 1) * pattern.count) for b in range(batches)]
    start, end = pattern.start, pattern.end
    return [(eval(str(start), {"batch": b}), eval(str(end), {"batch": b})) for b in range(batches)]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5), st.integers(0, 4), st.integers(1, 4), st.integers(1, 6), st.integers(1, 60), st.integers(0, 3)
)
def test_patterns_of_affine_accesses(stride: int, begin: int, width: int, batch: int, n: int, first: int) -> None:
    """A point p reads elements stride * p + begin, … (width of them); every batch's elements are known."""
    a = np.zeros(stride * (n + first) + begin + width, np.float32)
    loop = mc.ParallelFor(
        "float s = 0; for (int k = 0; k < width; k++) s += a[stride * i + begin + k]; c[i] = s;", batch=batch
    )
    space = range(first, first + n)
    found = loop.derive(space, a=a, c=np.zeros(n + first), stride=stride, begin=begin, width=width)
    batches = -(-n // batch)
    touched = [
        {stride * p + begin + k for p in space[b * batch : (b + 1) * batch] for k in range(width)}
        for b in range(batches)
    ]
    together = all(max(t) - min(t) + 1 == len(t) for t in touched)
    pattern = found.arrays["a"].reads
    assert found.arrays["a"].writes.kind == "unused"
    if not together:
        assert pattern.kind == "all_or_any"
        return
    if pattern.kind == "continuous_subsections" and not (pattern.start and pattern.end):
        return  # no line: nothing is said
    assert pattern.kind in ("successive_subsections", "continuous_subsections")
    said = spans(pattern, batches)
    assert all(
        (min(t), max(t) + 1) == s for t, s in zip(touched[:-1], said[:-1], strict=True)
    )  # the last has fewer points
    assert said[-1][0] == min(touched[-1])
    assert said[-1][1] > max(touched[-1])
    assert found.is_idempotent
    assert not found.apart["i"]


def test_matrix_times_vector_is_the_papers_example() -> None:
    """Figure 7: the input vector is all_or_any, a batch of the matrix so many rows, of the output so many elements."""
    rows, columns = 40, 24
    body = "float r = 0;\nfor (int col = 0; col < n; ++col)\n  r += v[col] * m[i * n + col];\nout[i] = r;"
    loop = mc.ParallelFor(body, batch=4)
    arrays = {
        "v": np.ones(columns, np.float32),
        "m": np.ones((rows, columns), np.float32),
        "out": np.zeros(rows, np.float32),
    }
    found = loop.derive(rows, **arrays, n=columns)
    assert found.arrays["v"].reads == mc.all_or_any
    assert found.arrays["m"].reads == mc.successive_subsections(4 * columns)
    assert found.arrays["out"].writes == mc.successive_subsections(4)
    access = {
        "v": mc.all_or_any,
        "m": mc.successive_subsections(4 * columns),
        "out": mc.continuous_subsections("batch * 4", lambda b: b * 4 + 4),
    }
    mc.parallel_for(rows, body, **arrays, n=columns, access=access, batch=4)
    assert (arrays["out"] == columns).all()


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        (mc.successive_subsections(2), "batch 0 reads a[2]"),
        (mc.continuous_subsections("3 * batch", "3 * batch + w - 1"), "batch 0 reads a[2]"),
        (mc.continuous_subsections("3 * batch + 1", "100"), "batch 0 reads a[0]"),
        (mc.continuous_subsections(lambda b: 3 * b, lambda b: 3 * b + 2), "batch 0 reads a[2]"),
    ],
)
def test_what_is_said_wrongly_is_refused(pattern: AccessPattern, problem: str) -> None:
    a, c = np.zeros(30, np.float32), np.zeros(10, np.float32)
    body = "c[i] = a[i * w] + a[i * w + 1] + a[i * w + 2];"
    with pytest.raises(LaunchError) as raised:
        mc.parallel_for(10, body, a=a, c=c, w=3, access={"a": pattern})
    assert problem in str(raised.value)
    mc.parallel_for(10, body, a=a, c=c, w=3, access={"a": mc.continuous_subsections("w * batch", "w * batch + w")})
    with pytest.raises(LaunchError, match="no array of the body"):
        mc.parallel_for(10, body, a=a, c=c, w=3, access={"b": pattern})
    with pytest.raises(LaunchError, match="unknown symbol"):
        mc.parallel_for(10, body, a=a, c=c, w=3, access={"a": mc.continuous_subsections("q", "batch")})


def test_what_the_analysis_cannot_see_is_taken_for_a_promise() -> None:
    """Each point writes within its own two elements, at a place that depends on data: with what is said, points run
    apart."""
    n = 512
    body = "out[2 * i + (flags[i] != 0)] = 1.0f;"
    flags = np.random.default_rng(1).integers(0, 2, n).astype(np.int32)
    expected = np.zeros(2 * n, np.float32)
    expected[2 * np.arange(n) + flags] = 1
    with mc.Queue("cpu/2", policy="balance") as queue:
        for access in ({}, {"out": mc.successive_subsections(2)}):
            out, on_queue = queue.zeros(2 * n, np.float32), queue.array(flags)
            mc.parallel_for(n, body, out=out, flags=on_queue, access=access)
            assert (out.get() == expected).all()
    kernel = mc.ParallelFor(body, access={"out": mc.successive_subsections(2)})
    call = kernel._call(n, {"out": np.zeros(2 * n, np.float32), "flags": flags})
    assert kernel.access
    assert call.counts == (n,)


def test_row_pointers_are_read_by_rows_though_how_often_is_decided_by_data() -> None:
    """What a row reads of the values depends on these; of the pointers, a batch reads no more than its own."""
    body = "float s = 0; for (int k = st[i]; k < st[i + 1]; k++) s += v[k]; o[i] = s;"
    st, v, o = np.arange(101, dtype=np.int32), np.ones(100, np.float32), np.zeros(100, np.float32)
    found = mc.ParallelFor(body, batch=4).derive(100, st=st, v=v, o=o)
    reads = {name: found.arrays[name].reads for name in ("st", "v")}
    assert str(reads["st"]) == "continuous_subsections(batch * 4, batch * 4 + 5)"
    assert reads["v"] == mc.all_or_any
    assert found.arrays["o"].writes == mc.successive_subsections(4)


def test_loops_that_may_not_run_twice() -> None:
    x = np.zeros(10, np.float32)
    assert not mc.ParallelFor("x[i] *= 2;").derive(10, x=x).is_idempotent
    assert mc.ParallelFor("x[i] = 2;").derive(10, x=x).is_idempotent
    found = mc.ParallelFor("x[i / 2] = i;").derive(10, x=x)
    assert found.apart["i"]
    assert "apart" in str(found)


def test_of_reductions_batches_are_whole_blocks() -> None:
    found = mc.ParallelFor("s += x[i];", reduction={"s": "+"}, batch=100).derive(10000, x=np.zeros(10000, np.float32))
    assert found.batch == 4096
    assert found.arrays["x"].reads == mc.successive_subsections(4096)
    assert list(found.arrays) == ["x"]


def test_points_that_meet_are_told_with_the_line_of_the_body_and_the_index() -> None:
    y, m = np.zeros(10, np.float32), np.zeros(100, np.float32)
    found = mc.ParallelFor("float t = m[i * 10 + j];\ny[i] += t;").derive((10, 10), y=y, m=m)
    assert found.apart["i"] == ()
    assert found.apart["j"] == ("y: line 2 writes elements that other groups write too",)
    found = mc.ParallelFor("\ny[i] = y[max(i - 1, 0)];").derive(10, y=y)
    assert found.apart["i"] == ("y: line 2 reads elements that line 2 writes of other groups",)


def test_functions_of_batches_say_what_moves() -> None:
    """Rows of different lengths: what a batch reads lies between row pointers, which functions look up."""
    lengths = np.random.default_rng(4).integers(0, 9, 256)
    begin = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    values, out = np.random.default_rng(5).random(begin[-1]).astype(np.float32), np.zeros(256, np.float32)
    body = "float s = 0;\nfor (int e = begin[i]; e < begin[i + 1]; e++) s += values[e];\nout[i] = s;"
    rows = mc.continuous_subsections(lambda b: begin[4 * b], lambda b: begin[4 * b + 4])
    mc.parallel_for(256, body, begin=begin, values=values, out=out, access={"values": rows}, batch=4)
    expected = [values[a:b].sum() for a, b in itertools.pairwise(begin)]
    assert np.allclose(out, expected, rtol=1e-5)
    ((name, lines),) = access_patterns.bounds_of({"values": rows}, 64)
    low, high = np.array([access_patterns._span(lines, b, {}) for b in range(64)]).T
    assert name == "values"
    assert (low <= begin[:-4:4]).all()
    assert (high >= begin[4::4]).all()
    assert (high - low).max() < len(values) / 4
    loop = mc.ParallelFor(body, access={"values": rows}, batch=4)
    call = loop._call(256, {"begin": begin, "values": values, "out": out})
    kernel = loop._promised(call, parallel_for._compiled(call.form), None)
    assert [str(a.reads) for a in kernel.annotations if a.name == "values"] != ["None"]
