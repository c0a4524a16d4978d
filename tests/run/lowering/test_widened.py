"""What a range of groups touches is found out from a smaller one and from groups that touch what others do, moved;
against what each work-item touches, counted in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis import parse_program
from manycl.graph.division import Division
from manycl.graph.graph import BufferArg, BufferKey, Launch
from manycl.region import Region
from manycl.units import PAGE

WIDTH, LOCAL, UNIT = 64, 4, 4
A, B = BufferKey(0), BufferKey(1)
Touches = Callable[[int, int, int, int], list[tuple[int, int]]]
"""The rows and columns that the work-item of a row and column reads, of so many rows; ``n`` is a scalar."""
KERNELS: dict[str, tuple[str, Touches]] = {
    "five points": (
        "if (x > 0 && y > 0 && x < 63 && y < h - 1) b[i] = a[i-1] + a[i+1] + a[i-64] + a[i+64]; else b[i] = a[i];",
        lambda x, y, h, n: (
            [(y, x - 1), (y, x + 1), (y - 1, x), (y + 1, x)] if 0 < x < 63 and 0 < y < h - 1 else [(y, x)]
        ),
    ),
    "clamped": (
        "b[i] = a[64 * max(y - n, 0) + x] + a[64 * min(y + 1, h - 1) + x];",
        lambda x, y, h, n: [(max(y - n, 0), x), (min(y + 1, h - 1), x)],
    ),
    "from the other end": ("b[i] = a[64 * (h - 1 - y) + x];", lambda x, y, h, n: [(h - 1 - y, x)]),
    "every second row": (
        "b[i] = y % 2 ? a[i] : a[64 * (y / 8) + x];",
        lambda x, y, h, n: [(y, x) if y % 2 else (y // 8, x)],
    ),
    "one half only": ("b[i] = y < 40 ? a[i] : 0;", lambda x, y, h, n: [(y, x)] if y < 40 else []),
    "one row of all": ("b[i] = a[64 * n + x];", lambda x, y, h, n: [(n, x)]),
}


def division(name: str, rows: int, scalar: int) -> Division:
    """A new launch, of which nothing is known."""
    head = f"kernel void k(global const int *a, global int *b, int h, int n) {{ // {rows} {scalar}\n"
    place = "int x = get_global_id(0), y = get_global_id(1), i = 64 * y + x;"
    program = parse_program(head + place + KERNELS[name][0] + "}")
    scalars = rows.to_bytes(4, "little"), scalar.to_bytes(4, "little")
    args = (BufferArg(A), BufferArg(B), *scalars)
    task = Launch("k", program, program.kernels["k"], (WIDTH, rows), (WIDTH, LOCAL), args, (A,), (B,))
    return Division(task, 1, dict.fromkeys((A, B), rows * WIDTH * UNIT))


def touched(name: str, rows: int, scalar: int, first: int, end: int) -> np.ndarray[Any, Any]:
    found = np.zeros((rows, WIDTH), bool)
    for y in range(first * LOCAL, end * LOCAL):
        for x in range(WIDTH):
            for place in KERNELS[name][1](x, y, rows, scalar):
                found[place] = True
    return found.ravel()


def mask(region: Region, count: int) -> np.ndarray[Any, Any]:
    found = np.zeros(count * UNIT, bool)
    for low, high in zip(region.low, region.high, strict=True):
        found[low:high] = True
    return np.asarray(found.reshape(count, UNIT).all(axis=1))


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_a_widened_range_touches_what_its_work_items_do(name: str, data: st.DataObject) -> None:
    groups = data.draw(st.integers(3, 24))
    rows = groups * LOCAL
    scalar = data.draw(st.integers(0, min(rows - 1, 9)))
    made = division(name, rows, scalar)
    ends = sorted(data.draw(st.lists(st.integers(0, groups), min_size=4, max_size=4)))
    inner = made.range(ends[1], max(ends[2] - ends[1], 1)) if ends[1] < groups else made.range(groups - 1, 1)
    outer = made.range(min(ends[0], inner.first), max(ends[3], inner.end) - min(ends[0], inner.first))
    found = made.widened(inner, outer)
    assert made.widened(inner, outer) is found
    expected = touched(name, rows, scalar, outer.first, outer.end)
    reads = mask(found[A].reads, rows * WIDTH)
    assert (reads | ~expected).all()
    assert (reads & ~expected).sum() * UNIT < PAGE
    written = np.zeros(rows * WIDTH, bool)
    written[outer.first * LOCAL * WIDTH : outer.end * LOCAL * WIDTH] = True
    assert (mask(found[B].writes, rows * WIDTH) == written).all()
    assert found[B].overwrites
    for group in range(outer.first, outer.end):  # and so do single groups, as they are known by now
        access = made.access(made.range(group, 1))
        assert (mask(access[A].reads, rows * WIDTH) == touched(name, rows, scalar, group, group + 1)).all()


def test_groups_that_do_what_others_do_are_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    made = division("five points", 800, 0)
    asked: list[str] = []
    remote = made.facts.remote
    assert remote is not None

    def asking(what: str, arguments: tuple[object, ...]) -> object:
        asked.append(what)
        return remote(what, arguments)

    monkeypatch.setattr(made.facts, "remote", asking)
    made.widened(made.range(50, 20), made.range(45, 25))
    assert {"alike"} < {*asked}
    asked.clear()
    made.widened(made.range(50, 20), made.range(40, 40))
    assert not asked
