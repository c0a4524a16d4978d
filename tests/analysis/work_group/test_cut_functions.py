"""Functions and barriers that are seen through: loops in functions run by all work-items together, barriers that order
nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from manycl.analysis.reading.frontend import load
from manycl.analysis.reading.options import read_options
from manycl.analysis.work_group.function import WorkGroupFunction, work_group_function
from manycl.analysis.work_group.passes.inline import inlined
from manycl.drivers.driver import Source
from tests.analysis.work_group import natively

PI = """
ulong inside(ulong rounds, uint z, uint w, size_t work) {
    uint a = z + work, b = w + work;
    ulong total = 0;
    for (ulong i = 0; i < rounds; i++) {
        a = 36969 * (a & 65535) + (a >> 16); b = 18000 * (b & 65535) + (b >> 16);
        uint x = ((a << 16) + b) >> 17;
        a = 36969 * (a & 65535) + (a >> 16); b = 18000 * (b & 65535) + (b >> 16);
        uint y = ((a << 16) + b) >> 17;
        if (x * x + y * y <= 1073741824u) { total += 1; }
    }
    return (total);
}
kernel void f(global ulong *s, uint rounds) {
    ulong total = inside(rounds, 110, 202, get_global_id(0));
    barrier(CLK_GLOBAL_MEM_FENCE);
    s[get_global_id(0)] = total;
}
"""


def unit_of(text: str) -> Any:
    return load(text, "<source>", None, read_options(("-cl-std=CL2.0",)), everything=True)


def function(text: str) -> WorkGroupFunction:
    found = work_group_function(unit_of(text), "f", (8, 1, 1))
    assert not found.reason
    return found


@pytest.mark.parametrize(
    ("body", "sized"),
    [
        ("barrier(1); x[i] = n;", False),
        ("x[i] = n; barrier(1);", False),
        ("int k = n * i; barrier(1); work_group_barrier(2); x[i] = k;", False),
        ("int k = max(n, i); barrier(1); x[i] = square(k);", False),
        ("int k = square(n); barrier(1); { x[i] = k; }", False),
        ("if (n) return; barrier(1); x[i] = n;", False),
        ("x[i] = n; barrier(1); x[n - i] = n;", True),
        ("int k = x[i]; barrier(1); x[n - i] = k;", True),
        ("int k = *x; barrier(1); x[i] = k;", True),
        ("int k = first(x); barrier(1); x[i] = k;", True),
        ("int2 k = vload2(i, x); barrier(1); x[i] = k.x;", True),
        ("atomic_inc(x); barrier(1); x[1] = 1;", True),
        ("int k = ((global struct box *)x)->a; barrier(1); x[i] = k;", True),
        ("x[i] = n; barrier(1); int k = n; barrier(1); x[n - i] = k;", True),
        ("for (int k = 0; k < n; k++) { barrier(1); x[i] = k; }", True),
        ("mem_fence(1); barrier(1); x[i] = n;", True),  # nothing is said of other fences
    ],
)
def test_barriers_that_order_nothing(body: str, sized: bool) -> None:
    text = f"""struct box {{ int a; }};
    int square(int k) {{ return k * k; }} int first(global int *p) {{ return p[0]; }}
    kernel void f(global int *x, int n) {{ int i = get_global_id(0); {body} }}"""
    assert function(text).sized == sized


def test_a_function_of_the_program_by_a_barriers_name() -> None:
    text = """__attribute__((overloadable)) void barrier(global int *p) { p[0] = 2; }
    kernel void f(global int *x) { barrier(x); }"""
    assert "p[0] = 2" in function(text).source


def written_there(text: str) -> bool:
    unit = unit_of(text)
    return inlined(unit, "f") is not unit


@pytest.mark.parametrize(
    ("helper", "call", "written"),
    [
        ("int g(int n) { int s = 0; for (int i = 0; i < n; i++) s += i; return s; }", "x[0] = g(n);", True),
        ("int g(int n) { int s = 0; while (s < n) s += 3; return s; }", "int k = g(n); x[0] = k;", True),
        ("void g(global int *p) { do p[0]++; while (p[0] < 7); }", "g(x);", True),
        (
            "int h(int n) { while (n > 9) n -= 5; return n; } int g(int n) { int k = h(n); return k; }",
            "x[0] = g(n);",
            True,
        ),
        ("int g(int n) { return n + 1; }", "x[0] = g(n);", False),
        ("int g(int n) { while (n > 9) n -= 5; return n; }", "x[0] = 1 + g(n);", False),  # within an expression
        ("int g(int n) { while (n > 9) if (n-- == 12) return 1; return n; }", "x[0] = g(n);", False),  # returns early
        ("int g(int *p) { while (*p > 9) --*p; return *p; }", "x[0] = g(&n);", False),  # of a work-item's own
        ("int g(int n) { int a[4]; for (int i = 0; i < 4; i++) a[i] = n; return a[1]; }", "x[0] = g(n);", False),
        ("int g(int n) { while (n > 9) switch (n--) { case 1: n--; } return n; }", "x[0] = g(n);", False),
        ("int g(int x[], int n) { while (n > 9) n -= 5; return n; }", "int a[2]; x[0] = g(a, n);", False),
        (
            "constant int m = 4; int g(int n) { while (n > m) n -= 5; return n; }",
            "int m = 3; x[0] = g(n) ;",
            True,
        ),  # named apart
    ],
)
def test_which_functions_are_written_where_they_are_called(helper: str, call: str, written: bool) -> None:
    text = f"{helper} kernel void f(global int *x, int n) {{ {call} }}"
    assert written_there(text) == written
    assert function(text).source


def wanted(rounds: int, items: int) -> np.ndarray:
    i = np.arange(items, dtype=np.uint32)
    a, b, found = 110 + i, 202 + i, np.zeros(items, np.uint64)
    for _ in range(rounds):
        drawn = []
        for _ in range(2):
            a = 36969 * (a & 65535) + (a >> 16)
            b = 18000 * (b & 65535) + (b >> 16)
            drawn.append(((a << 16) + b) >> 17)
        found += drawn[0] * drawn[0] + drawn[1] * drawn[1] <= 1 << 30
    return found


@pytest.mark.parametrize("local_size", [None, (1,), (3,), (96,)])
@pytest.mark.parametrize("rounds", [0, 1, 50])
def test_random_numbers_of_a_function_are_numpys(local_size: tuple[int, ...] | None, rounds: int) -> None:
    driver, items = natively.device(), 3 * 96
    kernel = driver.kernel(driver.build(Source(PI)), "f")
    memory = driver.allocate(8 * items)
    kernel.set(0, memory)
    kernel.set(1, np.uint32(rounds).tobytes())
    driver.wait(driver.launch(driver.queue(False), kernel, (items,), local_size, None, None))
    assert (natively.view(memory)[: 8 * items].view(np.uint64) == wanted(rounds, items)).all()
    assert kernel.kernel.choose_local((4096,)) == (64,)
