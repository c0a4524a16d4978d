"""f of launches, against what the loops of kernels really run; kernels that nothing is known of."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.analysis import parse_program
from manycl.analysis.facts import ProgramFacts
from manycl.graph.graph import Argument, BufferArg, Launch
from manycl.model.estimate import launch_kind
from manycl.model.trips import ONCE, trip_count

SOURCE = """
__kernel void product(__global float *c, __global const float *a, int n, float scale) {
  float sum = 0;
  for (int k = 0; k < n; k++) sum += a[k] * scale;
  c[get_global_id(0)] = sum;
}
__kernel void strided(__global float *c, int n) {
  for (int k = get_global_id(0); k < n; k += get_global_size(0)) c[k] = 1;
}
__kernel void tiles(__global float *c, __global const float *a, long n, __local float *t) {
  float sum = 0;
  for (int i = 0; i < n / get_local_size(0); i++) {
    t[get_local_id(0)] = a[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int j = 0; j < get_local_size(0); j++) sum += t[j];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  c[get_global_id(0)] = sum;
}
__kernel void triangle(__global float *c, __global const float *a) {
  float sum = 0;
  for (int k = 0; k <= get_global_id(0); k++) sum += a[k];
  c[get_global_id(0)] = sum;
}
__kernel void data(__global float *c, __global const int *a, uchar n) {
  for (int k = 0; k < n; k++)
    for (int j = 0; j < a[get_global_id(0)]; j++) c[get_global_id(0)] += 1;
}
__kernel void plain(__global float *c) { c[get_global_id(0)] = 1; }
__kernel void rows(__global float *c, __global const float *a, int n) {
  int x = get_global_id(0), y = get_global_id(1);
  if (x >= n || y >= n) return;
  for (int k = y; k < n; k++) c[y * n + x] += a[k];
}
__kernel void slices(__global float *c, __global const float *a, int n, int at) {
  int i = get_global_id(0);
  if (at > 0 && at < n - 1 && i < n) c[at * n + i] = a[at * n - n + i];
}
__kernel void border(__global float *c, __global const float *a, int n) {
  int i = get_global_id(0);
  if (i > 0 && i < n - 1) c[i] = a[i - 1] + a[i + 1];
}
"""
PROGRAM = parse_program(SOURCE)
BUFFER = BufferArg(0)


def launch(kernel: str, size: tuple[int, ...], local: tuple[int, ...] | None, *args: Argument) -> Launch:
    return Launch(kernel, PROGRAM, PROGRAM.kernels[kernel], size, local, (BUFFER, *args), (), ())


def f(node: Launch) -> float:
    return trip_count(node.program, node.kernel).of(node, node)


@given(st.integers(1, 1 << 20), st.floats(0, 1, width=32))
def test_a_scalar_that_loops_go_by(n: int, scale: float) -> None:
    args = BUFFER, struct.pack("=i", n), struct.pack("=f", scale)
    assert f(launch("product", (64,), None, *args)) == n


@given(st.integers(1, 64), st.integers(1, 1000))
def test_a_fixed_number_of_work_items_for_any_input(items: int, n: int) -> None:
    trips = [len(range(i, n, items)) for i in range(items)]
    found = f(launch("strided", (items,), None, struct.pack("=i", n)))
    assert abs(found - max(1, sum(trips) / items)) <= 1


@given(st.integers(1, 16), st.integers(1, 40))
def test_local_sizes(local: int, tiles: int) -> None:
    node = launch("tiles", (local * 4,), (local,), BUFFER, struct.pack("=q", local * tiles), BUFFER)
    assert f(node) == local * tiles


@given(st.integers(1, 1000), st.integers(0, 100))
def test_loops_that_differ_between_work_items_count_their_mean(items: int, offset: int) -> None:
    node = launch("triangle", (items,), None, BUFFER)
    node.global_offset = (offset,)
    assert f(node) == pytest.approx(sum(i + 1 for i in range(offset, offset + items)) / items)


def test_what_data_decide_counts_once_and_what_has_no_loops_is_one() -> None:
    assert f(launch("data", (4,), None, BUFFER, b"\x07")) == 7
    assert f(launch("plain", (4,), None)) == 1
    by_hand = ProgramFacts("no source", (), {"plain": PROGRAM.kernels["plain"]})
    assert trip_count(by_hand, PROGRAM.kernels["plain"]) is ONCE


ENDS = {
    "for (int k = 0; k < n; k++) c[i] += 1;": True,
    "for (int k = 0; k < 7; k++) { if (a[k]) break; c[i] += 1; }": True,  # at most
    "for (int k = n; k > 0; k /= 2) for (int j = 0; j < k; j++) c[i] += j;": None,  # whatever is found
    "while (a[i]) ;": False,
    "while (1) ;": False,
    "for (int k = 0; k < a[i]; k++) c[i] += 1;": False,
    "int k = 0; do { k += a[k]; } while (k < n);": False,
    "while (atomic_xchg((volatile global int *)c, 1)) ;": False,
    "float x = c[i]; while (x > 1e-3f) x *= 0.5f;": False,
    "for (int k = 0; k < n; k++) { if (a[k]) k -= a[k]; }": False,
    "again: c[i] += 1; if (a[0]) goto again;": False,
    "if (a[i]) c[i] = 2;": True,
}


@pytest.mark.parametrize("body", ENDS)
def test_whether_data_decide_how_long_a_kernel_runs(body: str) -> None:
    source = f"kernel void k(global int *c, volatile global const int *a, int n) {{ int i = get_global_id(0); {body} }}"
    program = parse_program(source)
    found = trip_count(program, program.kernels["k"]).bounded
    assert ENDS[body] is None or found == ENDS[body]


def test_only_the_scalars_that_matter_tell_launches_apart() -> None:
    def kind(n: int, scale: float) -> object:
        return launch_kind(launch("product", (64,), None, BUFFER, struct.pack("=i", n), struct.pack("=f", scale)))

    assert kind(3, 1.0) == kind(3, 2.0) != kind(4, 1.0)


@pytest.mark.parametrize("n", [0, -5, -(2**31)])
def test_loops_that_do_not_run_leave_one(n: int) -> None:
    args = BUFFER, struct.pack("=i", n), struct.pack("=f", 1.0)
    assert f(launch("product", (64,), None, *args)) == 1.0


# costs of parts of a launch


def along(node: Launch, dimension: int, parts: int) -> tuple[float, ...]:
    assert node.local_size is not None
    return trip_count(node.program, node.kernel).along(node, node, node.local_size, dimension, parts)


@given(st.integers(8, 500), st.sampled_from([1, 16, 64]), st.integers(0, 5000))
def test_parts_of_a_triangle_cost_what_their_loops_run(groups: int, local: int, offset: int) -> None:
    node = launch("triangle", (groups * local,), (local,), BUFFER)
    node.global_offset = (offset,)
    parts = min(groups, 8)
    ends = [groups * local * i / parts for i in range(parts + 1)]
    middles = [offset + (low + high) / 2 for low, high in pairwise(ends)]
    mean = sum(middles) / parts
    found = along(node, 0, parts)
    for cost, middle in zip(found or [1.0] * parts, middles, strict=True):
        # in whole groups, each as long as its longest work-item; what a work-item does once costs a few rounds
        assert cost == pytest.approx(middle / mean, rel=0.26, abs=(2 * local + 20) / mean)


@pytest.mark.parametrize("dimension", [0, 1])
def test_a_guard_and_a_triangle_of_two_dimensions(dimension: int) -> None:
    """500 of 1,000 columns and rows are used; row y runs 500 - y times."""
    node = launch("rows", (1000, 1000), (10, 10), BUFFER, struct.pack("=i", 500))
    found = along(node, dimension, 10)
    assert sum(found) / 10 == pytest.approx(1.0)
    used = found[:5]
    assert all(cost < min(used) for cost in found[5:])
    if dimension == 0:
        assert max(used) == pytest.approx(min(used))
    else:
        assert list(used) == sorted(used, reverse=True)
        assert used[0] == pytest.approx(9 * used[4], rel=0.2)


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300))
def test_launches_with_the_same_deciding_values_cost_the_same_in_parts(n: int, one: int, other: int) -> None:
    """A slice's number decides only whether it is one of the inner ones."""
    launches = [
        launch("slices", (320,), (8,), BUFFER, struct.pack("=i", n), struct.pack("=i", at)) for at in (one, other)
    ]
    item = trip_count(PROGRAM, PROGRAM.kernels["slices"]).item
    assert item is not None
    same = len({item.deciding(node.args) for node in launches}) == 1
    assert same == ((0 < one < n - 1, one > 0) == (0 < other < n - 1, other > 0))
    assert not same or along(launches[0], 0, 40) == along(launches[1], 0, 40)


def test_parts_that_are_alike_are_not_told_apart() -> None:
    n = struct.pack("=i", 1 << 20)
    assert along(launch("border", (1 << 20,), (64,), BUFFER, n), 0, 64) == ()
    assert along(launch("product", (1 << 20,), (64,), BUFFER, n, struct.pack("=f", 1.0)), 0, 64) == ()
    assert along(launch("data", (1 << 20,), (64,), BUFFER, b"\x07"), 0, 64) == ()
    assert along(launch("plain", (1 << 20,), (64,)), 0, 64) == ()
