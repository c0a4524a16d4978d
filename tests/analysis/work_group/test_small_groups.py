"""Small work-groups that are run beside one another leave what one work-item after the other leaves."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis.reading.frontend import load
from manycl.analysis.reading.options import read_options
from manycl.analysis.work_group.function import beside, work_group_function
from manycl.drivers.driver import Source
from tests.analysis.work_group import natively

Size = tuple[int, int, int]
LOOP = "for (int k = 0; k < n; k++) sum = sum * 3 + k;"
KERNELS = {
    "plain": "uint sum = x + 7 * y + 11 * z; {LOOP} out[at] = sum;",
    "returns": "uint sum = x + 7 * y + 11 * z; if (sum % 5 == 2) return; {LOOP} out[at] = sum;",
    "guarded": "uint sum = x + 7 * y + 11 * z; if (sum % 5 != 2) { {LOOP} out[at] = sum; }",
    "own": "uint sum = x + 7 * y + 11 * z; for (int k = 0; k < sum % 9; k++) sum = sum * 3 + k; {LOOP} out[at] = sum;",
}
"""What a work-item does; ``at`` is its place in memory, x, y and z its global ids."""
ASKING = {
    "numbers": "uint sum = get_group_id(0) + 3 * get_group_id(1) + 5 * get_group_id(2) + 7 * get_local_id(0)"
    " + 11 * get_local_id(1) + 13 * get_local_id(2) + 100 * get_local_linear_id(); {LOOP} out[at] = sum;",
    "sizes": "uint sum = 0; for (uint d = 0; d < 5; d++) sum = sum * 31 + get_num_groups(d) * 5 + get_local_size(d)"
    " + get_enqueued_local_size(2 - 0) + get_local_id(d) * 3 + get_group_id(d); {LOOP} out[at] = sum;",
    "functions": "uint sum = place(0) + 7 * place(1) + 11 * place(2); {LOOP} out[at] = sum;",
    "leave": "if (get_group_id(0) % 3 == 1) return; uint sum = get_local_id(0); {LOOP} out[at] = sum;",
}
"""Those that ask for their groups."""
KERNELS |= ASKING
FUNCTION = (
    "uint place(uint d) { return get_group_id(d) * get_local_size(d) + get_local_id(d) + get_global_offset(d); }\n"
)
SOURCE = FUNCTION + "".join(
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


def along(dimension: int, values: np.ndarray) -> np.ndarray:
    """Numbers of a dimension, where dimension 2 is the first axis."""
    return values.astype(np.uint64).reshape(tuple(-1 if axis == 2 - dimension else 1 for axis in range(3)))


def first_sum(name: str, whole: Size, local: Size, offset: Size) -> np.ndarray:
    """What is summed up before the loop."""
    places = [np.arange(w) for w in whole]
    group, own = ([along(d, f(places[d], local[d])) for d in range(3)] for f in (np.floor_divide, np.mod))
    if name == "numbers":
        linear = (own[2] * local[1] + own[1]) * local[0] + own[0]
        of_groups = group[0] + 3 * group[1] + 5 * group[2]
        return of_groups + 7 * own[0] + 11 * own[1] + 13 * own[2] + 100 * linear
    if name == "sizes":
        total = along(0, np.zeros(1))
        for d in range(5):
            groups, size = (whole[d] // local[d], local[d]) if d < 3 else (1, 1)
            total = total * 31 + groups * 5 + size + local[2]
            total = total + (own[d] * 3 + group[d] if d < 3 else 0)
        return total
    if name == "leave":
        return own[0]
    x, y, z = (along(d, places[d] + offset[d]) for d in range(3))
    return x + 7 * y + 11 * z


def expected(name: str, whole: Size, local: Size, offset: Size, turns: int) -> np.ndarray:
    first = np.broadcast_to(first_sum(name, whole, local, offset), whole[::-1]) & 0xFFFFFFFF
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
    if name == "leave":
        total[:, :, np.arange(whole[0]) // local[0] % 3 == 1] = NOTHING
    return total.astype(np.uint32)


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=12)
@given(
    local=st.sampled_from([(1, 1, 1), (3, 1, 2), (4, 2, 1), (1, 5, 3), (16, 1, 1)]),
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
    assert np.array_equal(found.reshape(whole[::-1]), expected(name, whole, local, offset, turns))


COMPARED = {
    "alone": "uint i = get_group_id(0) * get_local_size(0) + get_local_id(0);for (int k = 0; k < n; k++) sum += i * k;",
    "rows": "uint i = get_group_id(0), l = get_local_id(0);for (int k = l; k < n; k += 4) sum += a[i * n + k];",
    "columns": "uint i = get_group_id(0), l = get_local_id(0);for (int k = 0; k < n; k++) sum += a[i * n + k * 4 + l];",
    "lengths": "for (int k = 0; k < get_group_id(0); k++) sum += a[k];",
    "sharing": "local uint kept[4]; kept[get_local_id(0)] = n; for (int k = 0; k < n; k++) sum += k * kept[0];",
    "waiting": "for (int k = 0; k < n; k++) { sum += k * a[0]; barrier(1); } sum += get_local_id(0);",
    "deaf": "for (int k = 0; k < n; k++) sum += k * get_global_id(0);",
}


@pytest.mark.parametrize(
    ("local", "told"),
    [((1, 1, 1), "alone rows columns lengths"), ((2, 2, 1), "alone"), ((16, 1, 1), ""), ((1, 64, 1), "")],
)
def test_which_kernels_are_told_of_their_groups_by_global_ids(local: Size, told: str) -> None:
    text = "".join(
        f"kernel void {name}(global uint *a, int n) {{ uint sum = 0; {body} a[get_global_id(0)] = sum; }}\n"
        for name, body in COMPARED.items()
    )
    unit = load(text, "<source>", None, read_options(()), everything=True)
    found = [name for name in COMPARED if beside(unit, name, local, 16) is not unit]
    assert found == told.split()
    for name in COMPARED:
        assert work_group_function(unit, name, local, 16).sized == (name != "deaf")
