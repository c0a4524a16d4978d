"""Sizes of work-groups where the launch leaves them to the native device."""

from __future__ import annotations

import numpy as np
import pytest

import manycl as mc

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
