"""Small work-groups that are run beside one another leave what one work-item after the other leaves."""

from __future__ import annotations

import functools
import math
from typing import Any

import natively
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.drivers.driver import Source

Size = tuple[int, int, int]
LOOP = "for (int k = 0; k < n; k++) sum = sum * 3 + k;"
KERNELS = {
    "plain": "uint sum = x + 7 * y + 11 * z; {LOOP} out[at] = sum;",
    "returns": "uint sum = x + 7 * y + 11 * z; if (sum % 5 == 2) return; {LOOP} out[at] = sum;",
    "guarded": "uint sum = x + 7 * y + 11 * z; if (sum % 5 != 2) { {LOOP} out[at] = sum; }",
    "own": "uint sum = x + 7 * y + 11 * z; for (int k = 0; k < sum % 9; k++) sum = sum * 3 + k; {LOOP} out[at] = sum;",
}
"""What a work-item does; ``at`` is its place in memory, x, y and z its global ids."""
SOURCE = "".join(
    f"""kernel void {name}(global uint *out, int n) {{
    uint x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
    uint at = x - get_global_offset(0) + get_global_size(0) * (y - get_global_offset(1)
      + get_global_size(1) * (z - get_global_offset(2)));
    {body.replace("{LOOP}", LOOP)}
}}
"""
    for name, body in KERNELS.items()
)
NOTHING = 12345


@functools.cache
def kernel(name: str) -> Any:
    driver = natively.device()
    return driver.kernel(driver.build(Source(SOURCE)), name)


def expected(name: str, whole: Size, offset: Size, turns: int) -> np.ndarray:
    x, y, z = (
        np.arange(o, o + w, dtype=np.uint64).reshape(tuple(-1 if i == 2 - d else 1 for i in range(3)))
        for d, (w, o) in enumerate(zip(whole, offset, strict=True))
    )
    first = (x + 7 * y + 11 * z) & 0xFFFFFFFF
    total = first.copy()
    if name == "own":
        going = np.ones(total.shape, bool)
        for k in range(8):  # the bound moves with what is summed up
            going = going & (total % 9 > k)
            total[going] = (total[going] * 3 + k) & 0xFFFFFFFF
    for k in range(turns):
        total = (total * 3 + k) & 0xFFFFFFFF
    if name in ("returns", "guarded"):
        total[first % 5 == 2] = NOTHING
    return total.astype(np.uint32)


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=15)
@given(
    local=st.tuples(st.sampled_from([1, 2, 3, 4, 16]), st.sampled_from([1, 2, 5]), st.sampled_from([1, 3])),
    groups=st.tuples(st.integers(1, 70), st.integers(1, 7), st.integers(1, 3)),
    offset=st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    turns=st.sampled_from([0, 1, 20]),
)
def test_small_groups(name: str, local: Size, groups: Size, offset: Size, turns: int) -> None:
    whole = (local[0] * groups[0], local[1] * groups[1], local[2] * groups[2])
    driver, items = natively.device(), math.prod(whole)
    memory, launched = driver.allocate(4 * items), kernel(name)
    found = natively.view(memory)[: 4 * items].view(np.uint32)
    found[:] = NOTHING
    launched.set(0, memory)
    launched.set(1, np.int32(turns).tobytes())
    driver.wait(driver.launch(driver.queue(False), launched, whole, local, offset, None))
    assert np.array_equal(found.reshape(whole[::-1]), expected(name, whole, offset, turns))
