"""Counts of points against enumeration, ranges against the whole, and costs of large launches."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis.costs.cost import Work
from manycl.analysis.launched import LaunchFacts
from manycl.analysis.symbolic import counting
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.counting import Axis, Known, count
from manycl.analysis.symbolic.expr import Expr
from manycl.group_range import GroupRange
from tests.analysis.corpus_case import Case, f32, i32, launch, out
from tests.analysis.kernel_corpus import BY_NAME, CASES
from tests.analysis.regions.test_regions import facts_of

NAMES = ("a", "b", "c")


def value(e: Expr, at: dict[str, int]) -> int:
    """An expression at a point, with Python's integers."""
    if e.op == "const":
        return e.value
    if e.op == "var":
        return at[e.key]
    args = [value(a, at) for a in e.args]
    match e.op:
        case "sum":
            return e.value + sum(a * f for a, f in zip(args, e.terms, strict=True))
        case "mul":
            return math.prod(args)
        case "fdiv":
            return args[0] // args[1]
        case "fmod":
            return args[0] % args[1]
        case "tdiv":
            return abs(args[0]) // abs(args[1]) * (1 if (args[0] < 0) == (args[1] < 0) else -1)
        case "min" | "max":
            return min(args) if e.op == "min" else max(args)
        case "select":
            return args[1] if args[0] else args[2]
        case "lt":
            return int(args[0] < args[1])
        case "eq":
            return int(args[0] == args[1])
        case "and":
            return int(all(args))
        case "or":
            return int(any(args))
        case "not":
            return int(not args[0])
        case "wrap":
            bits, low = abs(e.value), -(1 << (abs(e.value) - 1)) if e.value < 0 else 0
            return (args[0] - low) % (1 << bits) + low
    raise AssertionError(e.op)


def brute(condition: Expr, axes: dict[str, Axis]) -> int:
    points = itertools.product(*(range(a.low, a.high + 1) for a in axes.values()))
    return sum(value(condition, dict(zip(axes, point, strict=True))) != 0 for point in points)


@st.composite
def linear(draw: st.DrawFn, variables: list[Expr]) -> Expr:
    terms = [x.scale(v, draw(st.integers(-3, 3))) for v in variables]
    whole = x.add(x.const(draw(st.integers(-8, 8))), *terms)
    shape = draw(st.sampled_from(["", "", "", "div", "mod", "mul", "min"]))
    if shape == "div":
        return x.divide(whole, x.const(draw(st.integers(1, 5))), floor=True) or whole
    if shape == "mod":
        return x.remainder(whole, x.const(draw(st.integers(1, 5))), floor=True) or whole
    if shape == "mul":
        return x.mul(whole, draw(st.sampled_from(variables)))
    return x.minimum(whole, draw(st.sampled_from(variables))) if shape == "min" else whole


@st.composite
def conditions(draw: st.DrawFn, variables: list[Expr], depth: int = 2) -> Expr:
    kind = draw(st.sampled_from(["lt", "lt", "lt", "eq", "and", "or", "not", "select"] if depth else ["lt", "eq"]))
    if kind in ("lt", "eq"):
        left, right = draw(linear(variables)), draw(linear(variables))
        return x.less(left, right) if kind == "lt" else x.equal(left, right)
    parts = [draw(conditions(variables, depth - 1)) for _ in range(3)]
    if kind == "not":
        return x.negate(parts[0])
    return {"and": x.both, "or": x.either, "select": x.select}[kind](*parts)


@st.composite
def boxes(draw: st.DrawFn) -> tuple[Expr, dict[str, Axis]]:
    ends = [(low, low + draw(st.integers(0, 7))) for low in draw(st.lists(st.integers(-3, 3), min_size=3, max_size=3))]
    axes = {name: Axis(*end) for name, end in zip(NAMES, ends, strict=True)}
    variables = [v for name in NAMES if (v := x.var(name, axes[name].low, axes[name].high)).op == "var"]
    return draw(conditions(variables or [x.var("a", 0, 1)], 2)) if variables else x.ONE, axes


@settings(max_examples=150, deadline=None)
@given(boxes(), st.booleans())
def test_points_are_counted_as_by_enumeration(box: tuple[Expr, dict[str, Axis]], short: bool) -> None:
    """Also where what is done for ``long`` axes is done for all: inclusion and exclusion, taking apart by periods."""
    condition, axes = box
    before = counting._PLAIN, counting._LONG
    counting._PLAIN, counting._LONG = before if short else (0, 1)
    try:
        found = count(condition, axes, Known())
    finally:
        counting._PLAIN, counting._LONG = before
    assert found.error == 0
    assert found.number == brute(condition, axes)


def test_long_axes_are_not_enumerated() -> None:
    million = 10**9
    i, j, k = (x.var(n, 0, million - 1) for n in ("i", "j", "k"))
    axes = {n: Axis(0, million - 1) for n in ("i", "j", "k")}
    assert count(x.less(i, x.const(5)), axes, Known()).number == 5 * million**2
    assert (
        count(x.both(x.less(i, j), x.less(j, x.const(1000))), {n: axes[n] for n in ("i", "j")}, Known()).number
        == 499500
    )
    assert count(x.equal(x.scale(k, 3), x.const(12)), {"k": axes["k"]}, Known()).number == 1


def test_what_is_too_large_is_sampled() -> None:
    """Points in a quarter of a disc; its area is the oracle."""
    radius = 4000
    i, j = (x.var(n, 0, radius - 1) for n in ("i", "j"))
    inside = x.less(x.add(x.mul(i, i), x.mul(j, j)), x.const(radius * radius))
    found = count(inside, {n: Axis(0, radius - 1) for n in ("i", "j")}, Known())
    assert 0 < found.error < 0.01
    assert found.number == pytest.approx(math.pi / 4 * radius**2, rel=0.002)


def test_sampling_keeps_other_conditions() -> None:
    radius = 4000
    i, j, k = (x.var(n, 0, radius - 1) for n in ("i", "j", "k"))
    inside = x.less(x.add(x.mul(i, i), x.mul(j, j)), x.const(radius * radius))
    below = x.less(k, x.const(10))
    found = count(x.both(inside, below), {n: Axis(0, radius - 1) for n in ("i", "j", "k")}, Known())
    assert found.number == pytest.approx(10 * math.pi / 4 * radius**2, rel=0.002)


# -- ranges of launches

SMALL = [case for case in CASES if case.file in ("linear", "loops", "control", "groups", "arithmetic", "tangles")]


def test_ranges_add_up() -> None:
    checked = 0
    for case in SMALL:
        for ndrange in case.launches:
            facts = facts_of(case, ndrange)
            whole = facts.work()
            for d, groups in enumerate(ndrange.groups):
                cuts = sorted({0, groups // 3, groups // 2, groups})
                parts = [facts.work(GroupRange(d, a, b - a)) for a, b in itertools.pairwise(cuts)]
                assert sum(p.work_items for p in parts) == whole.work_items
                assert sum(p.work_groups for p in parts) == whole.work_groups
                for kind, n in whole.operations.items():
                    assert sum(p.operations[kind] for p in parts) == pytest.approx(n, rel=1e-12), (case.name, kind)
                assert sum(p.global_bytes for p in parts) == pytest.approx(whole.global_bytes)
                checked += whole.exact
    assert checked > 200


def test_short_last_groups() -> None:
    body = "int i = get_global_id(0); for (int k = 0; k < n; k++) d[i] = k;"
    text = f"kernel void short_last(global int *d, int n) {{ {body} }}"
    facts = facts_of(Case("short_last", "", (), (True,), text=text), launch(10, 4, out(10, "i4"), 3))
    assert [facts.work(GroupRange(0, g, 1)).work_items for g in range(3)] == [4, 4, 2]
    assert [facts.work(GroupRange(0, g, 1)).operations["store.global"] for g in range(3)] == [12, 12, 6]


def test_empty_and_impossible_ranges() -> None:
    facts = facts_of(BY_NAME["matrix_multiply"], BY_NAME["matrix_multiply"].launches[0])
    nothing = facts.work(GroupRange(0, 1, 0))
    assert (nothing.work_items, sum(nothing.operations.values()), nothing.f) == (0, 0, 1.0)
    for wrong in ((0, 0, 3), (0, -1, 1), (2, 0, 1), (1, 2, -1)):
        with pytest.raises(ValueError, match="work-groups"):
            facts.work(GroupRange(*wrong))


# -- f

LOOPS = {
    "none": ("d[i] = 1;", lambda n, m: 16),
    "one": ("for (int k = 0; k < n; k++) d[i] += k;", lambda n, m: 16 * n),
    "nested": ("for (int k = 0; k < n; k++) for (int j = 0; j < m; j++) d[i] += j;", lambda n, m: 16 * n * m),
    "one_by_one": (
        "for (int k = 0; k < n; k++) d[i] += k; for (int j = 0; j < m; j++) d[i] += j;",
        lambda n, m: 16 * (n + m),
    ),
    "triangle": ("for (int k = 0; k < i; k++) d[i] += k;", lambda n, m: 120),
    "grid_stride": ("for (int k = i; k < 5 * n; k += get_global_size(0)) d[k & 15] = k;", lambda n, m: 5 * n),
    "halving": ("for (int k = 64; k > 0; k >>= 1) d[i] += k;", lambda n, m: 16 * 7),
    "guarded": ("if (i < n) for (int k = 0; k < m; k++) d[i] += k;", lambda n, m: n * m),
    "never": ("for (int k = n; k < 0; k++) d[i] += k;", lambda n, m: 16),
}


@pytest.mark.parametrize("name", LOOPS)
def test_cost_is_iterations(name: str) -> None:
    body, expected = LOOPS[name]
    text = f"kernel void loops(global int *d, int n, int m) {{ int i = get_global_id(0); {body} }}"
    work = facts_of(Case("loops", "", (), (True,), text=text), launch(16, 4, out(16, "i4"), 6, 5)).work()
    assert work.exact, work.reason
    assert work.cost == expected(6, 5)


# -- data

DATA = """kernel void data(global int *d, global const int *s, int n) {
    int i = get_global_id(0);
    if (s[i] > 0) d[i] = 1;
    if (s[i] > 7) d[i] = 2; else d[i] = 3;
    for (int k = 0; k < s[i]; k++) d[i] += k;
    for (int k = 0; k < n && s[k] != i; k++) d[i] -= k;
}"""


def test_what_data_decide_is_guessed_and_said() -> None:
    work = facts_of(Case("data", "", (), (True,), text=DATA), launch(8, 4, out(8, "i4"), i32(8), 6)).work()
    assert not work.exact
    assert "line 3" in work.reason
    stores = 8 * 0.5 + 8 + 8 * 1 + 8 * (1 - 0.5**6)  # the last loop goes on half of the time
    assert work.operations["store.global"] == stores


ROWS = """kernel void rows(global float *y, global const int *first, global const float *v, int n) {
    int r = get_global_id(0);
    if (r >= n) return;
    for (int k = first[r]; k < first[r + 1]; k++) y[r] += v[k];
}"""


def rows(n: int) -> LaunchFacts:
    """One work-item per row of a sparse matrix, in work-groups of 64."""
    arguments = (f32(n), i32(n + 1), f32(1), n)
    return facts_of(Case("rows", "", (), (True,), text=ROWS), launch(-(-n // 64) * 64, 64, *arguments))


@pytest.mark.parametrize("n", [100, 1 << 20])
def test_data_that_are_told_decide(n: int) -> None:
    first = np.random.default_rng(1).integers(0, 20, n + 1).cumsum().astype(np.int32)
    cost = rows(n).cost_with({1: first})
    assert cost.work().exact
    assert cost.work().operations["float.add"] == first[-1] - first[0]
    assert cost.work(GroupRange(0, 1, 1)).operations["float.add"] == first[min(128, n)] - first[64]
    assert cost.work().cost == first[-1] - first[0]


def test_one_element_decides_for_all() -> None:
    """Also where its place only seems to depend on ids and iterations."""
    body = "int i = get_global_id(0); if (s[0] > i) d[i] = 1; for (int k = 0; k < n; k++) if (s[k % 4 / 4] > 1) d[i]++;"
    text = f"kernel void f(global int *d, global const int *s, int n) {{ {body} }}"
    facts = facts_of(Case("f", "", (), (True,), text=text), launch(16, 4, out(16, "i4"), i32(4), 100))
    for first, stores in ((5, 5 + 1600), (1, 1), (-3, 0)):
        work = facts.cost_with({1: np.array([first, 7, 7, 7], np.int32)}).work()
        assert work.exact
        assert work.operations["store.global"] == stores
        part = facts.cost_with({1: np.array([first, 7, 7, 7], np.int32)}).work(GroupRange(0, 1, 1))
        assert part.operations["store.global"] == max(0, min(first - 4, 4)) + 400 * (first > 1)


def test_data_that_cannot_be_told() -> None:
    facts = rows(100)
    with pytest.raises(ValueError, match="may write y"):
        facts.cost_with({0: np.zeros(100, np.float32)})
    with pytest.raises(KeyError):
        facts.cost_with({3: np.zeros(1, np.int32)})
    short = facts.cost_with({1: np.zeros(50, np.int32)}).work()
    assert not short.exact
    assert short.operations == facts.work().operations


# -- large launches

SIDE = 4096
MULTIPLY = """kernel void multiply(global float *c, global const float *a, global const float *b, int n) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x >= n || y >= n) return;
    float sum = 0;
    for (int k = 0; k < n; k++) sum += a[y * n + k] * b[k * n + x];
    c[y * n + x] = sum;
}"""
STENCIL = """kernel void stencil(global float *d, global const float *s, int w, int h) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x == 0 || y == 0 || x == w - 1 || y == h - 1) { if (x < w && y < h) d[y * w + x] = 0; return; }
    if (x < w && y < h) d[y * w + x] = s[y * w + x - 1] + s[y * w + x + 1] + s[(y - 1) * w + x] + s[(y + 1) * w + x];
}"""
TRIANGLE = """kernel void triangle(global float *d, global const float *s, int n) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x > y || y >= n) return;
    float sum = 0;
    for (int k = x; k <= y; k++) for (int j = 0; j < k; j++) sum += s[k * n + j];
    d[y * n + x] = sum;
}"""


def large(name: str, text: str, *sizes: int) -> Work:
    arguments = [f32(1) for _ in range(text.split("{")[0].count("*"))]
    return facts_of(
        Case(name, "", (), (True, True), text=text), launch((SIDE, SIDE), (16, 16), *arguments, *sizes)
    ).work()


def test_large_matrix_product() -> None:
    n = 4000
    work = large("multiply", MULTIPLY, n)
    assert work.exact
    assert work.operations["load.global"] == 2 * n**3
    assert work.operations["store.global"] == n**2
    assert work.operations["compare.int"] == SIDE**2 + n * SIDE + n * n * (n + 1)
    assert work.global_bytes == 4 * (2 * n**3 + n**2)
    assert work.cost == n**3


def test_large_stencil() -> None:
    w, h = 4001, 3999
    work = large("stencil", STENCIL, w, h)
    assert work.exact
    assert work.operations["load.global"] == 4 * (w - 2) * (h - 2)
    assert work.operations["store.global"] == w * h


def test_large_flat_stencil() -> None:
    """Rows and columns of a flat id."""
    w, rows = 4093, 4090
    text = """kernel void flat(global float *d, global const float *s, int w, int n) {
        int i = get_global_id(0), x = i % w, y = i / w;
        if (i >= n) return;
        if (x > 0 && x < w - 1 && y > 0 && y < n / w - 1) d[i] = s[i - 1] + s[i + 1] + s[i - w] + s[i + w];
        if (i % 3 == 1) for (int k = i & 7; k < 100; k++) d[i] += k;
    }"""
    facts = facts_of(Case("flat", "", (), (True,), text=text), launch(1 << 24, 256, f32(1), f32(1), w, w * rows))
    work = facts.work()
    assert work.exact
    assert work.operations["load.global"] - 4 * (w - 2) * (rows - 2) == sum(100 - i % 8 for i in range(1, w * rows, 3))


def test_large_triangles() -> None:
    n = 4000
    work = large("triangle", TRIANGLE, n)
    k = np.arange(n, dtype=object)
    exact = int((k * (k + 1) * (n - k)).sum())
    assert "sampled" in work.reason
    assert work.operations["load.global"] == pytest.approx(exact, rel=0.01)
    assert work.operations["store.global"] == n * (n + 1) // 2


@settings(deadline=None, max_examples=25)
@given(
    steps=st.tuples(*[st.integers(0, 3)] * 2),
    rows=st.integers(0, 40),
    local=st.sampled_from([(4, 2), (8, 1), (1, 4)]),
    trips=st.integers(1, 4),
)
def test_scattered_accesses_are_those_that_neighbours_do_not_make_side_by_side(
    steps: tuple[int, int], rows: int, local: tuple[int, int], trips: int
) -> None:
    """Against the addresses of two work-items that are neighbours in a group, or of neighbouring groups of one."""
    text = f"""kernel void scattered(global float *o, global const float *a) {{
        int x = get_global_id(0), y = get_global_id(1);
        float sum = 0;
        for (int k = 0; k < {trips}; ++k) sum += a[x * {steps[0]} + y * {rows} + k];
        if (x < 8) o[(x * {steps[1]} + y * {rows}) + (y & 1) * 64] = sum;
    }}"""
    facts = facts_of(
        Case("scattered", "", (), (True, True), text=text), launch((16, 4), local, out(4096, "f4"), out(4096, "f4"))
    )
    read = steps[0] not in (0, 1)
    written = steps[1] not in (0, 1)
    assert facts.work().scattered == 16 * 4 * trips * read + 8 * 4 * written
    shared = steps[0] == 0 or (local[1] > 1 and rows == 0 and read == 0)
    assert facts.work().shared == 16 * 4 * trips * shared + 8 * 4 * (steps[1] == 0)
    half = facts.work(GroupRange(1, 0, 4 // local[1] // 2)) if local[1] < 4 else facts.work()
    assert half.scattered == facts.work().scattered / (2 if local[1] < 4 else 1)


def test_accesses_at_places_that_data_tell_are_scattered() -> None:
    text = (
        "kernel void gathered(global float *o, global const int *i) { o[get_global_id(0)] = i[i[get_global_id(0)]]; }"
    )
    facts = facts_of(Case("gathered", "", (), (True, True), text=text), launch(64, 8, out(64, "f4"), i32(64)))
    assert facts.work().scattered == 64
