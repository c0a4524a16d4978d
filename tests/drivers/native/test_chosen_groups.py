"""Sizes of work-groups where the launch leaves them to the native device."""

from __future__ import annotations

import numpy as np
import pytest

import manycl as mc
from manycl.trace import KernelEvent

SOURCE = """
__kernel void apart(__global int *sizes) { sizes[get_global_id(0)] = get_local_size(0); }
__kernel void together(__global int *sizes) {
  barrier(CLK_GLOBAL_MEM_FENCE);
  sizes[get_global_id(0)] = get_local_size(0);
}
__kernel void reversed(__global int *x) {
  int i = get_global_id(0), n = get_global_size(0), found = x[n - 1 - i];
  barrier(CLK_GLOBAL_MEM_FENCE);
  x[i] = found;
}
__kernel void crossed(__global int *x, __global const int *y) {
  int i = get_global_id(0), n = get_global_size(0), found = y[n - 1 - i];
  barrier(CLK_GLOBAL_MEM_FENCE);
  x[i] = found;
}
__kernel void counted(__global int *x, int n, __global const int *y) {
  int found = n + y[get_global_id(0)];
  for (int i = 0; i < n; i++) found = found * 3 + (int)get_global_id(0);
  barrier(CLK_GLOBAL_MEM_FENCE);
  x[get_global_id(0)] = found;
}
"""


@pytest.mark.parametrize("count", [1, 129, 4096])
def test_items_that_wait_for_one_another_are_one_group_where_they_fit(count: int) -> None:
    queue = mc.Queue("native")
    program = mc.Program(SOURCE)
    x = queue.array(np.arange(count, dtype=np.int32))
    program.reversed(queue, (count,), None, x)
    assert (x.get() == np.arange(count)[::-1]).all()


@pytest.mark.parametrize("count", [4097, 3 * 4096, 6007])
def test_groups_are_no_larger_than_a_device_takes(count: int) -> None:
    queue = mc.Queue("native")
    program = mc.Program(SOURCE)
    x = queue.zeros(count, np.int32)
    program.together(queue, (count,), None, x)
    size = max(n for n in range(1, 4097) if count % n == 0)
    assert (x.get() == size).all()


def test_items_that_do_not_wait_are_in_small_groups() -> None:
    queue = mc.Queue("native")
    x = queue.zeros(1 << 12, np.int32)
    mc.Program(SOURCE).apart(queue, (1 << 12,), None, x)
    assert (x.get() == 64).all()


def test_items_that_wait_for_nothing_are_in_groups_of_any_size() -> None:
    """Also again and again, where the buffers of a kernel are sometimes one: then it is one group."""
    queue = mc.Queue("native")
    program, count = mc.Program(SOURCE), 1 << 12
    x, y, expected = queue.zeros(count, np.int32), queue.array(np.arange(count, dtype=np.int32)), np.arange(count)
    for _ in range(4):
        program.crossed(queue, (count,), None, x, y)
        expected = expected[::-1]
        assert (x.get() == expected).all()
        program.crossed(queue, (count,), None, y, y)
        assert (y.get() == expected).all()
    run = queue.result
    assert run.graph.nodes[0].local_size is None
    program.crossed(queue, (count,), None, x, y)
    queue.finish()
    assert queue.result.graph.nodes[0].local_size == (256,)


def test_launches_whose_barriers_order_nothing_are_divided() -> None:
    count, turns = 1 << 14, 200
    y = np.arange(count, dtype=np.int32)
    found = turns + y
    for _ in range(turns):
        found = found * np.int32(3) + y
    with mc.Queue("native/2", policy="balance") as queue:
        x = queue.zeros(count, np.int32)
        mc.Program(SOURCE).counted(queue, (count,), None, x, np.int32(turns), queue.array(y))
        assert (x.get() == found).all()
        assert len({event.device for event in queue.trace.events if isinstance(event, KernelEvent)}) == 2
