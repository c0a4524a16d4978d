"""Loops that start differently in each work-item and step alike: as one work-item after the other would run them."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest

from manycl.analysis.reading.frontend import load
from manycl.analysis.reading.options import read_options
from manycl.analysis.work_group.function import work_group_function
from manycl.drivers.driver import Source
from tests.analysis.work_group import natively

ITEMS, N, TOP = 150, 133, 2**31 - 1
Turns = Callable[[int], list[int]]
LOOPS: dict[str, tuple[str, str, Turns]] = {
    "up": ("int v = get_global_id(0)", "v < n; v++", lambda i: list(range(i, N))),
    "sum": ("int v = (int)get_global_id(0) * 3 - 7", "v <= n; v += 2", lambda i: list(range(3 * i - 7, N + 1, 2))),
    "down": ("int v = n - (int)get_global_id(0)", "v > 4; --v", lambda i: list(range(N - i, 4, -1))),
    "argument": ("int v = get_global_id(0)", "v < n; v = step + v", lambda i: list(range(i, N, 5))),
    "less": ("long v = get_global_id(0) + 9", "v >= 0; v -= step", lambda i: list(range(i + 9, -1, -5))),
    "same": ("int v = 0", "v < (int)get_global_id(0); v++", lambda i: list(range(i))),
    "last": ("int v = INT_MAX - (int)get_global_id(0)", "v < INT_MAX; v++", lambda i: list(range(TOP - i, TOP))),
    "unsigned": ("uint v = 4294967100u + get_global_id(0)", "v - 7u > 20u; v++", lambda i: modular(4294967100 + i)),
    "two": ("int v = get_global_id(0)", "v < n && data[v] < 90; v++", lambda i: until(i)),
}  # fmt: skip
DATA = (np.arange(512, dtype=np.int32) * 37) % 101


def modular(v: int) -> list[int]:
    found, v = [], v % 2**32
    while (v - 7) % 2**32 > 20:
        found.append(v)
        v = (v + 1) % 2**32
    return found


def until(v: int) -> list[int]:
    found = []
    while v < N and DATA[v] < 90:
        found.append(v)
        v += 1
    return found


def text(init: str, rest: str, before: str = "", behind: str = "") -> str:
    return f"""kernel void f(global const int *data, global ulong *out, int n, int step) {{
        int i = get_global_id(0);
        ulong found = 17;
        {before}
        for ({init}; {rest}) {{
            ulong sum = v;
            for (int k = 0; k < n; k++)
                sum = sum * 31 + data[k + 3] * data[(v & 255) + k];
            {behind}
            found = found * 7 + sum;
        }}
        out[i] = found;
    }}"""


def item(turns: list[int], leave: Callable[[int], bool], skip: Callable[[int], bool]) -> int:
    """What a work-item leaves: integers, modulo 2 ** 64."""
    found = 17
    for v in turns:
        if leave(v):
            break
        if skip(v):
            continue
        found = (found * 7 + turn(v)) % 2**64
    return found


@functools.cache
def turn(v: int) -> int:
    """What one turn of the loop sums up."""
    total = v
    for k in range(N):
        total = (total * 31 + int(DATA[k + 3]) * int(DATA[(v & 255) + k])) % 2**64
    return total


def run(source: str, group: int | None) -> np.ndarray:
    driver = natively.device()
    kernel, queue = driver.kernel(driver.build(Source(source)), "f"), driver.queue(False)
    data, out = driver.allocate(DATA.nbytes), driver.allocate(8 * ITEMS)
    natively.view(data)[: DATA.nbytes] = DATA.view(np.uint8)
    for index, value in enumerate((data, out, np.int32(N).tobytes(), np.int32(5).tobytes())):
        kernel.set(index, value)
    driver.wait(driver.launch(queue, kernel, (ITEMS,), None if group is None else (group,), None, None))
    return natively.view(out)[: 8 * ITEMS].view(np.uint64).copy()


def never(_: int) -> bool:
    return False


@pytest.mark.parametrize("group", [None, 30])
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop(name: str, group: int | None) -> None:
    init, rest, turns = LOOPS[name]
    sized = "" if group is None else "barrier(CLK_LOCAL_MEM_FENCE);"
    found = run(text(init, rest, sized), group)
    assert found.tolist() == [item(turns(i), never, never) for i in range(ITEMS)]


def test_a_variable_from_outside() -> None:
    found = run(text("v = i", "v < n; v++", "int v;"), None)
    assert found.tolist() == [item(list(range(i, N)), never, never) for i in range(ITEMS)]


def test_a_loop_that_is_left_and_turns_that_are_skipped() -> None:
    source = text("int v = i", "v < n; v++", "", "if (v % 40 == 39) break; if (v % 3 == 1) continue;")
    want = [item(list(range(i, N)), lambda v: v % 40 == 39, lambda v: v % 3 == 1) for i in range(ITEMS)]
    assert run(source, None).tolist() == want


def counted(source: str) -> bool:
    """Whether the group counts what the work-items add to the variable."""
    unit = load(source, "<source>", None, read_options(()), everything=True)
    return "v_manycl_offset" in work_group_function(unit, "f", (64, 1, 1)).source


def test_the_group_counts_where_turns_are_skipped_behind_a_barrier() -> None:
    assert counted(text("int v = i", "v < n; v++", "", "barrier(CLK_LOCAL_MEM_FENCE); if (v % 3 == 1) continue;"))


@pytest.mark.parametrize("name", [name for name in LOOPS if name != "unsigned"])
def test_the_group_counts(name: str) -> None:
    assert counted(text(*LOOPS[name][:2]))


@pytest.mark.parametrize(
    "source",
    [
        text("v = i", "v < n; v++", "int v;").replace("out[i] = found", "out[i] = found + v"),
        text("int v = i", "v < n; v++", "", "if (sum & 1) v++;"),
        text("int v = i", "v < n; v += i"),
        text("int v = i", "v < n; v += n++ & 1 ? 1 : 2"),
        text("uint v = i", "v < n; v++"),
    ],
    ids=["read behind", "moved inside", "steps differ", "steps change", "unsigned"],
)
def test_the_group_does_not_count(source: str) -> None:
    assert not counted(source)
