"""Kernels whose tiles are run strip by strip leave what one work-item after the other leaves, bit for bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis.reading.frontend import load
from manycl.analysis.reading.options import read_options
from manycl.analysis.work_group.function import work_group_function
from manycl.drivers.driver import Source
from manycl.drivers.native.blocks import Tiles
from tests.analysis.work_group import natively

Matrix = np.ndarray

PLAIN = "c[i * w + j] = sum;"
HEAD = "int j = get_global_id(0), i = get_global_id(1); "
KERNELS = {
    "product": HEAD + "{T} sum = 0; for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * w + j];" + PLAIN,
    "transposed": HEAD + "{T} sum = 0; for (int k = 0; k < n; k++) sum += a[k * h + i] * b[k * w + j];" + PLAIN,
    "both_rows": HEAD + "{T} sum = 0; for (int k = 0; k < n; k++) sum += a[i * n + k] * b[j * n + k];" + PLAIN,
    "downwards": HEAD + "{T} sum = 0; int k = n; for (; k > 0; k -= 1) sum += a[i * n + k - 1] * b[(k - 1) * w + j];"
    "c[i * w + j] = sum + k;",
    "two_loops": HEAD + "{T} sum = 0, other = 1; int steps = 0;"
    "for (int k = 0; k < n; k++) { sum += a[i * n + k] * b[k * w + j]; steps++; }"
    "for (int k = n - 1; k >= 0; k--) other = other * 0.5f + a[i * n + k] * b[k * w + j];"
    "c[i * w + j] = sum + other + steps;",
    "guarded": HEAD + "if (i < h - 1 && j < w - 1) { {T} sum = 0;"
    "for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * w + j];" + PLAIN + "}",
    "returns": HEAD + "if (i == 3 || j == 70) return; {T} sum = 0;"
    "for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * w + j];" + PLAIN,
    "in_place": HEAD + "c[i * w + j] = 0; for (int k = 0; k < n; k++) c[i * w + j] += a[i * n + k] * b[k * w + j];",
    "nested": HEAD + "{T} sum = 0; for (int m = 0; m < n; m += 7) { for (int k = m; k < n && k < m + 7; k++)"
    "sum += a[i * n + k] * b[k * w + j]; }" + PLAIN,
    "pointers": HEAD + "{G} const {T} *p = a + i * n, *q = b + j; {T} sum = 0;"
    "for (int k = 0; k < n; k++) { sum += *p * q[0]; p++, q += w; }" + PLAIN,
    "columns": "int i = get_global_id(0), j = get_global_id(1); {T} sum = 0;"
    "for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * w + j];" + PLAIN,
    "pairs": HEAD + "{T}2 sum = 0; for (int k = 0; k < n; k++) sum += a[i * n + k] * ({T}2)(b[k * w + j], 1);"
    "c[i * w + j] = sum.x + sum.y;",
}


def text(name: str, kind: str) -> str:
    body = KERNELS[name].replace("{T}", kind).replace("{G}", "global")
    matrices = f"global const {kind} *a, global const {kind} *b, global {kind} *c"
    return f"kernel void {name}({matrices}, int n, int w, int h) {{{body}}}"


def expected(name: str, a: Matrix, b: Matrix, c: Matrix, low: int) -> Matrix:
    """One turn after the other, for all elements; each operation rounded as the language has it."""
    n = b.shape[0]
    kind = c.dtype.type
    left = a.T if name == "transposed" else a
    order = range(n - 1, -1, -1) if name == "downwards" else range(n)
    total, other, ones = np.zeros_like(c), np.full_like(c, 1), np.zeros_like(c)
    for k in order:
        total += left[:, k, None] * b[None, k]
        ones += left[:, k, None] * kind(1)
    if name == "two_loops":
        for k in range(n - 1, -1, -1):
            other = other * kind(0.5) + left[:, k, None] * b[None, k]
        total = (total + other) + kind(n)
    if name == "pairs":
        total = total + ones
    found = c.copy()
    inside = np.ones(c.shape, bool)
    if name == "guarded":
        inside[-1], inside[:, -1] = False, False
    if name == "returns":
        inside[3:4], inside[:, 70:71] = False, False
    inside[:low] = False
    found[inside] = total[inside]
    return found


def computed(name: str, kind: str, a: Matrix, b: Matrix, c: Matrix, low: int) -> Matrix:
    """By a native device, from row ``low`` on."""
    driver = natively.device()
    kernel = driver.kernel(driver.build(Source(text(name, kind))), name)
    queue, memory = driver.queue(False), [driver.allocate(each.nbytes) for each in (a, b, c)]
    given_b = b.T if name == "both_rows" else b
    for index, (part, data) in enumerate(zip(memory, (a, given_b, c), strict=True)):
        natively.view(part)[: data.nbytes] = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        kernel.set(index, part)
    for index, number in enumerate((b.shape[0], c.shape[1], c.shape[0])):
        kernel.set(3 + index, np.int32(number).tobytes())
    rows, columns = c.shape
    size, offset = (columns, rows - low), (0, low)
    if name == "columns":  # a work-item's number in dimension 0 is that of its row
        size, offset = size[::-1], offset[::-1]
    driver.wait(driver.launch(queue, kernel, size, (1, 1), offset, None))
    found: Matrix = natively.view(memory[2])[: c.nbytes].view(c.dtype).reshape(c.shape).copy()
    return found


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=8)
@given(
    rows=st.sampled_from([1, 5, 6, 12, 13, 100, 193]),
    columns=st.sampled_from([1, 15, 16, 64, 71, 130, 300]),
    turns=st.sampled_from([0, 1, 255, 256, 257, 512, 700]),
    seed=st.integers(0, 1000),
)
def test_strips_leave_the_same_bits(name: str, kind: str, rows: int, columns: int, turns: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    a, b, c = (
        random.random(shape).astype(kind_of(kind)) for shape in ((rows, turns), (turns, columns), (rows, columns))
    )
    if name == "transposed":
        a = np.ascontiguousarray(a.T)
    low = int(random.integers(0, rows))
    want = expected(name, a, b, c, low)
    assert np.array_equal(computed(name, kind, a, b, c, low), want)


def kind_of(kind: str) -> type:
    return {"float": np.float32, "double": np.float64}[kind]


@pytest.mark.parametrize("name", KERNELS)
def test_which_loops_are_cut_into_strips(name: str) -> None:
    unit = load(text(name, "float"), "<source>", None, read_options(()), everything=True)
    found = work_group_function(unit, name, (64, 2, 1)).source
    assert ("struct manycl_tile {" in found) == (name not in ("in_place", "both_rows"))
    assert ("manycl_resume1:" in found) == (name != "in_place")
    assert ("[manycl_z][manycl_x][manycl_y]" in found) == (name == "columns")
    assert "struct manycl_tile {" not in work_group_function(unit, name, (64, 1, 1)).source, "of groups of one row"


@pytest.mark.parametrize(
    ("outside", "head", "cut"),
    [
        ("const int m = n * 2;", "k = 0", True),  # what is outside is declared anew
        ("", "const int m = n * 2", False),
        ("", "int __const m = n * 2", False),
        ("typedef const int fixed;", "fixed m = n * 2", False),
        ("typedef const int fixed; fixed m = n * 2;", "k = 0", False),
        ("int m = n * 2;", "global const float *p = a", True),
        ("int m = n * 2;", "global const float *const p = a", False),
    ],
)
def test_what_is_put_away_can_be_assigned_to(outside: str, head: str, cut: bool) -> None:
    body = f"{{T}} sum = 0; int k = 0; n += 1; {outside} for ({head}; k < m; k++) sum += a[i * n + k] * b[k * w + j];"
    source = text("product", "float").replace(KERNELS["product"].replace("{T}", "float"), HEAD + body + PLAIN)
    unit = load(source.replace("{T}", "float"), "<source>", None, read_options(()), everything=True)
    assert ("manycl_resume1:" in work_group_function(unit, "product", (64, 2, 1)).source) == cut


@pytest.mark.parametrize(
    ("ids", "turn", "apart"),
    [
        ("int i = get_global_id(0);", "a[i * n + k]", False),
        ("int i = get_global_id(0), j = get_global_id(1);", "a[i * n + k] + j", True),
        ("int i = get_global_id(0);", "max(a[i * n + k], n)", True),
        ("int i = get_global_id(0);", "a[k * n + i]", True),
        # neighbours read what does not change from turn to turn once: it lies in registers
        ("int i = get_global_id(0);", "a[k] * a[i * n]", True),
        ("int i = get_global_id(0);", "a[i * n + k] * a[i]", False),
    ],
)
def test_rows_of_work_items_in_one_dimension_are_summed_one_after_the_other(ids: str, turn: str, apart: bool) -> None:
    """Where little is done with them: a vector of work-items would need a cache line for each."""
    loop = f"for (int k = 0; k < n; k++) sum += {turn};"
    source = f"kernel void f(global const int *a, global int *c, int n) {{ {ids} int sum = 0; {loop} c[i] = sum; }}"
    unit = load(source, "<source>", None, read_options(()), everything=True)
    found = work_group_function(unit, "f", (64, 1, 1)).source
    assert ("for (; k < n; k++)" in found) == apart
    assert ("for (int k = 0; k < n; k++)" in found) != apart


@pytest.mark.parametrize(
    ("loop", "apart"),
    [
        ("for (int m = 0; m < 3; m++) { INNER }", True),
        ("for (int m = 0; m < 3; m++) { if (m == h) break; INNER }", True),
        ("for (int m = 0;; m++) { INNER if (m == h) break; }", True),
        ("for (int m = 0; m < 3; m++) { if (m == i) break; INNER }", False),
    ],
)
def test_loops_that_pay_are_reached_where_all_leave_those_around_them_together(loop: str, apart: bool) -> None:
    inner = "for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * w + j];"
    body = f"float sum = 0; {loop.replace('INNER', inner)} {PLAIN}"
    source = text("product", "float").replace(KERNELS["product"].replace("{T}", "float"), HEAD + body)
    unit = load(source, "<source>", None, read_options(()), everything=True)
    rounds = work_group_function(unit, "product", (64, 2, 1)).source.count("manycl_ITEMS ")
    assert (rounds > 1) == apart, "work-items take turns by turns"


@pytest.mark.parametrize("own", ["float t[2] = {0, 0};", "float t[2] = {j, i};"])
def test_tiles_with_arrays_of_work_items_own_are_not_put_away(own: str) -> None:
    body = f"{own} for (int k = 0; k < n; k++) t[k & 1] += a[i * n + k] * b[k * w + j]; c[i * w + j] = t[0] - t[1];"
    source = text("product", "float").replace(KERNELS["product"].replace("{T}", "float"), HEAD + body)
    unit = load(source, "<source>", None, read_options(()), everything=True)
    assert "manycl_resume1:" not in work_group_function(unit, "product", (64, 2, 1)).source


@given(
    tile=st.sampled_from([(64, 6), (16, 6), (16, 1), (32, 3)]),
    dimension=st.integers(0, 1),
    threads=st.sampled_from([1, 2, 64]),
    whole=st.tuples(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 3)),
)
def test_blocks_are_made_of_tiles_and_there_are_enough(
    tile: tuple[int, int], dimension: int, threads: int, whole: tuple[int, int, int]
) -> None:
    items = (tile[1], tile[0]) if dimension else tile
    tiles = Tiles(items, 100, dimension, 16, threads)
    block = tiles.block(whole, (1, 1, 1))
    assert block[0] % items[0] == block[1] % items[1] == 0
    assert block[2] == 1
    assert count(whole, block) >= 8 * threads or block == (*items, 1)
    assert tiles.frame(block) == block[0] // items[0] * (block[1] // items[1]) * 100


@given(
    tile=st.sampled_from([(128, 1), (64, 1), (16, 1), (32, 3)]),
    dimension=st.integers(0, 1),
    threads=st.sampled_from([1, 2, 64]),
    local=st.tuples(*(st.sampled_from([1, 4, 7, 16, 256]) for _ in range(3))),
    groups=st.tuples(st.integers(1, 5000), st.integers(1, 100), st.integers(1, 3)),
)
def test_small_groups_are_run_beside_one_another_as_far_as_all_threads_have_some(
    tile: tuple[int, int],
    dimension: int,
    threads: int,
    local: tuple[int, int, int],
    groups: tuple[int, int, int],
) -> None:
    items = (tile[1], tile[0]) if dimension else tile
    tiles = Tiles(items, 0, dimension, 16, threads)
    whole = (groups[0] * local[0], groups[1] * local[1], groups[2] * local[2])
    block = tiles.block(whole, local)
    full = tuple(min(i, w) for i, w in zip((*items, 1), whole, strict=True))
    along = block[dimension]
    assert along % items[dimension] == 0 or along == whole[dimension] or count(whole, block) <= 2 * threads
    assert along >= full[dimension] or (along >= min(16, whole[dimension]) and count(whole, block) <= 2 * threads)
    assert math.prod(block) <= max(2048, math.prod(items), math.prod(local))
    assert count(whole, block) >= 8 * threads or all(b <= f for b, f in zip(block, full, strict=True))
    assert count(whole, block) >= threads or block[dimension] <= 16
    assert tiles.frame(block) == 0


def count(whole: tuple[int, ...], block: tuple[int, ...]) -> int:
    return math.prod(-(-w // b) for w, b in zip(whole, block, strict=True))


@pytest.mark.parametrize("local", [(16, 16), (5, 3), (1, 8), (64, 2)])
def test_groups_whose_rows_lie_along_dimension_1(local: tuple[int, int]) -> None:
    source = """kernel void walk(global const int *a, global int *c, int w) {
        local int kept[64][64];
        int i = get_global_id(0), j = get_global_id(1), x = get_local_id(0), y = get_local_id(1), sum = 0;
        for (int k = 0; k < 20; k++) sum += a[i * w + j] * k;
        kept[x][y] = sum + 1000 * (int)get_local_linear_id();
        barrier(CLK_LOCAL_MEM_FENCE);
        c[i * w + j] = kept[get_local_size(0) - 1 - x][y] + a[i * w + j];
    }"""
    unit = load(source, "<source>", None, read_options(()), everything=True)
    assert "[manycl_z][manycl_x][manycl_y]" in work_group_function(unit, "walk", (16, 16, 1)).source
    driver, rows, columns = natively.device(), 4 * local[0], 3 * local[1]
    kernel = driver.kernel(driver.build(Source(source)), "walk")
    a = np.random.default_rng(1).integers(0, 100, (rows, columns)).astype(np.int32)
    memory = [driver.allocate(a.nbytes) for _ in range(2)]
    natively.view(memory[0])[: a.nbytes] = a.view(np.uint8).reshape(-1)
    for index, part in enumerate(memory):
        kernel.set(index, part)
    kernel.set(2, np.int32(columns).tobytes())
    driver.wait(driver.launch(driver.queue(False), kernel, (rows, columns), local, None, None))
    found = natively.view(memory[1])[: a.nbytes].view(np.int32).reshape(a.shape)
    number = np.arange(local[0])[:, None] + local[0] * np.arange(local[1])
    kept = (a * 190).reshape(4, local[0], 3, local[1]) + 1000 * number[None, :, None, :]
    assert np.array_equal(found, kept[:, ::-1].reshape(a.shape) + a)
