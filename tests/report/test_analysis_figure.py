"""Pictures of regions: every cell has the colour of its elements, rows are as long as they should be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from manycl.analysis import service
from manycl.analysis.known_launch import KnownLaunch
from manycl.group_range import GroupRange
from manycl.region import Rectangle
from manycl.report.analysis.figure import COLOURS, _colours, figure, picture
from manycl.report.analysis.grid import BOTH, MOST_CELLS, NOTHING, OUTSIDE, READ, WRITTEN, grid
from manycl.report.analysis.launch_report import LaunchView, rectangle_words

PLANE = """kernel void k(global float *c, global const float *a, int w) {
  c[get_global_id(1) * w + get_global_id(0)] = a[get_global_id(0) * w + get_global_id(1)]; }"""
SPACE = """kernel void k(global float *c, int w, int h) {
  c[(get_global_id(2) * h + get_global_id(1)) * w + get_global_id(0)] += 1; }"""
LINE = """kernel void k(global float *c, global const float *a) {
  int i = get_global_id(0); c[i] = a[2 * i] + a[2 * i + 3]; }"""


def view(
    source: str, global_size: tuple[int, ...], local: tuple[int, ...], sizes: dict[int, int], *scalars: int, **more: int
) -> LaunchView:
    program = service.parse_program(source)
    indices = [a.index for a in program.kernels["k"].arguments if a.kind == "scalar"]
    data = {i: value.to_bytes(4, "little", signed=True) for i, value in zip(indices, scalars, strict=True)}
    found = service.launched(program, "k", KnownLaunch(global_size, local, (), data, sizes))
    sub, symbolic = service.sub_kernel(program, "k"), service.symbolic(program, "k")
    ready = LaunchView(found, GroupRange(0, 0, 1), dict.fromkeys(sizes, "given"), {}, sub, symbolic)
    return replace(ready, **more)  # type: ignore[arg-type]


def test_a_plane_has_rows_of_its_pitch() -> None:
    found = view(PLANE, (8, 8), (2, 2), {0: 72 * 4, 1: 70 * 4}, 8, groups=GroupRange(0, 1, 2))
    written, read = grid(found, 0), grid(found, 1)
    assert (written.columns, written.rows, written.slice_rows) == (8, 9, 0)
    expected = np.full((9, 8), NOTHING)
    expected[:8, 2:6] = WRITTEN
    assert (written.cells == expected).all()
    assert written.exact
    assert (read.columns, read.rows) == (8, 9)  # an interval: rows of the scalar that subscripts multiply by
    expected = np.full((9, 8), NOTHING)
    expected[2:6] = READ
    expected[8, 6:] = OUTSIDE  # behind the last of 70 elements
    assert (read.cells == expected).all()


def test_slices_of_a_space() -> None:
    found = view(SPACE, (8, 4, 4), (2, 2, 2), {0: 128 * 4}, 8, 4, groups=GroupRange(2, 1, 1))
    whole = grid(found, 0)
    assert (whole.columns, whole.rows, whole.slice_rows) == (8, 16, 4)
    assert (whole.cells[:8] == NOTHING).all()
    assert (whole.cells[8:] == BOTH).all()


def test_lines_are_folded_about_square() -> None:
    short = view(LINE, (16,), (4,), {0: 64, 1: 256}, groups=GroupRange(0, 0, 2))
    assert (grid(short, 0).columns, grid(short, 0).rows) == (16, 1)
    assert grid(short, 0).cells.tolist() == [[WRITTEN] * 8 + [NOTHING] * 8]
    long = view(LINE, (1 << 16,), (64,), {0: 4 << 16, 1: 8 << 16}, groups=GroupRange(0, 0, 512))
    assert (grid(long, 0).columns, grid(long, 0).rows) == (256, 256)


def test_large_arrays_become_blocks_with_their_share() -> None:
    n = 1 << 12
    found = view(PLANE, (n, n), (16, 16), {0: 4 * n * n, 1: 4 * n * n}, n, groups=GroupRange(0, 0, n // 32))
    drawn = grid(found, 0)
    assert max(drawn.cells.shape) <= MOST_CELLS
    assert (drawn.columns, drawn.rows) == (n, n)
    middle = drawn.cells.shape[1] // 2
    assert (drawn.cells[:, : middle - 1] == WRITTEN).all()
    assert (drawn.cells[:, middle + 1 :] == NOTHING).all()
    assert 0.49 < (drawn.share > 0).mean() < 0.51
    odd = view("kernel void k(global int *c) { c[4 * get_global_id(0)] = 1; }", (1 << 18,), (64,), {0: 4 << 20})
    share = grid(replace(odd, groups=GroupRange(0, 0, 1 << 12)), 0).share
    assert share.mean() == pytest.approx(0.25, abs=0.02)  # every fourth element


def test_faint_cells_are_paler() -> None:
    found = grid(view(LINE, (16,), (4,), {0: 64, 1: 256}, groups=GroupRange(0, 0, 2)), 0)
    full = _colours(found)
    faint = _colours(replace(found, share=found.share / 10))
    assert (faint[found.share > 0].sum(-1) > full[found.share > 0].sum(-1)).all()
    assert (faint[found.share == 0] == full[found.share == 0]).all()


def test_panels_and_titles() -> None:
    found = view(PLANE, (8, 8), (2, 2), {0: 256, 1: 256}, 8, groups=GroupRange(0, 0, 2))
    drawn = figure(found)
    titles = [axes.get_title(loc="left") for axes in drawn.axes]
    assert titles == [
        "c: float, 8 x 8\nwrites [0, 4) x 8 rows every 8",
        "a: float, 8 x 8\nreads [0, 32)",
    ]
    assert drawn.get_suptitle() == "k: work-groups 0 to 1 of 4 along dimension 0"
    assert len(COLOURS) == 5


def test_the_same_view_gives_the_same_bytes() -> None:
    found = view(SPACE, (8, 4, 4), (2, 2, 2), {0: 512}, 8, 4)
    for kind in ("png", "svg"):
        assert picture(found, kind) == picture(found, kind)


@pytest.mark.parametrize(
    ("rectangle", "words"),
    [
        (Rectangle(0, 64), "[0, 16)"),
        (Rectangle(2, 64), "bytes [2, 66)"),
        (Rectangle(4, 8, 16, 3), "[1, 3) x 3 rows every 4"),
        (Rectangle(4, 8, 16, 3, 64, 2), "[1, 3) x 3 rows every 4 x 2 slices every 16"),
    ],
)
def test_rectangles_in_elements(rectangle: Rectangle, words: str) -> None:
    assert rectangle_words(rectangle, 4) == words
