"""Atomic operations that need not be atomic: which arguments are counted in, and that counts are NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis.reading.frontend import load
from manycl.analysis.reading.options import read_options
from manycl.analysis.work_group.function import WorkGroupFunction, work_group_function
from manycl.drivers.driver import Source
from manycl.graph.graph import LocalArg
from tests.analysis.work_group import natively

TYPES = {"int": np.int32, "uint": np.uint32, "long": np.int64, "ulong": np.uint64}
WAYS: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "inc": np.add,
    "dec": np.subtract,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def function(text: str) -> WorkGroupFunction:
    unit = load(text, "<source>", None, read_options(("-cl-std=CL2.0",)), everything=True)
    kernel = next(f.name for f in unit.functions.values() if f.is_kernel)
    found = work_group_function(unit, kernel, (8, 1, 1))
    assert not found.reason
    return found


@pytest.mark.parametrize(
    ("body", "counted"),
    [
        ("atomic_inc(&c[x[i]]);", (1,)),
        ("atomic_inc(c + x[i]); atomic_sub(c, 2); atom_add(&c[1], i);", (1,)),
        ("if (i) atomic_max(c, x[i]); else for (int k = 0; k < 3; k++) atomic_max(&c[k], k);", (1,)),
        ("atomic_or(c, 1); atomic_or(x, 2);", (0, 1)),
        ("int old = atomic_inc(c); x[i] = old;", ()),  # the result is used
        ("x[atomic_inc(c)] = i;", ()),
        ("if (atomic_inc(c) == 3) x[i] = 1;", ()),
        ("atomic_inc(c); x[i] = c[0];", ()),  # and what is counted
        ("atomic_inc(&c[c[1]]);", ()),
        ("atomic_inc(c); c++;", ()),
        ("atomic_inc(c); atomic_and(c, 3);", ()),  # which is first matters
        ("atomic_xchg(c, 3);", ()),
        ("atomic_cmpxchg(c, 3, 4);", ()),
        ("atomic_inc(c + 1 + i);", ()),
        ("atomic_inc((global int *)c);", ()),
        ("atomic_inc(c); help(c);", ()),
        ("global int *d = c; atomic_inc(c); x[i] = d[0];", ()),
        ("atomic_inc(c); global int *d = (global int *)(ulong)i; x[i] = d[0];", ()),  # any memory
        ("atomic_inc(c); x[i] = ((global struct box *)x)->at[0];", ()),
    ],
)
def test_what_is_counted_in(body: str, counted: tuple[int, ...]) -> None:
    text = f"""struct box {{ global int *at; }};
    void help(global int *p) {{ p[0] = 1; }}
    kernel void f(global int *x, volatile global int *c) {{ int i = get_global_id(0); {body} }}"""
    assert function(text).counted == counted


def test_functions_by_the_names_of_atomic_ones() -> None:
    own = "__attribute__((overloadable)) void {}(global float *p, float x) {{ p[0] += x; }}"
    text = own + " kernel void f(global int *c, global float *y) {{ atomic_inc(c); {}(y, 1); }}"
    assert function(text.format(*["atomic_add"] * 2)).counted == ()  # which puts copies together
    assert function(text.format(*["atomic_sub"] * 2)).counted == (0,)


@pytest.mark.parametrize("space", ["global", "local"])
@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_counts_are_numpys(space: str, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(TYPES)), "type")
    way = data.draw(st.sampled_from(sorted(WAYS)), "operation")
    length = data.draw(st.sampled_from([1, 7, 256, 300, 2000, 1 << 14, (1 << 14) + 1]), "elements")
    groups = data.draw(st.sampled_from([1, 3, 64, 1500]), "groups")
    group = data.draw(st.sampled_from([1, 5, 64]), "items of a group")
    kind, items = np.dtype(TYPES[name]), groups * group
    if space == "local":
        length = min(length, 300)
    value = "" if way in ("inc", "dec") else f", ({name})v[i]"
    plain = f"kernel void f(global const uint *at, global const {name} *v, global {name} *c, local {name} *l)"
    if space == "global":
        text = f"{plain} {{ size_t i = get_global_id(0); atomic_{way}(&c[at[i]]{value}); }}"
    else:  # each group counts apart, and leaves its counts
        text = f"""void count(local {name} *p, {name} x) {{ atomic_{way}(p{value.replace("v[i]", "x")}); }}
        {plain} {{
            const int n = {length}, li = get_local_id(0);
            for (int k = li; k < n; k += get_local_size(0)) l[k] = c[get_group_id(0) * n + k];
            barrier(CLK_LOCAL_MEM_FENCE);
            count(&l[at[get_global_id(0)]], v[get_global_id(0)]);
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int k = li; k < n; k += get_local_size(0)) c[get_group_id(0) * n + k] = l[k];
        }}"""
    text = "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable\n" + text.replace(
        "atomic_", "atom_" if kind.itemsize == 8 else "atomic_"
    )
    random = np.random.default_rng(data.draw(st.integers(0, 1000), "seed"))
    at = random.integers(0, length, items, np.uint32)
    limits = np.iinfo(kind)
    v = random.integers(limits.min, limits.max, items, kind, endpoint=True)
    parts = groups if space == "local" else 1
    start = random.integers(limits.min, limits.max, parts * length, kind, endpoint=True)
    want = start.copy()
    where = at + (np.arange(items) // group * length if parts > 1 else 0)
    WAYS[way].at(want, where, np.ones_like(v) if way in ("inc", "dec") else v)
    assert (launched(text, (items,), (group,), (at, v, start), kind.itemsize * length) == want).all()


def launched(text: str, items: tuple[int, ...], group: tuple[int, ...], given: Any, local: int) -> np.ndarray:
    """The last of the buffers after a launch."""
    driver = natively.device()
    kernel = driver.kernel(driver.build(Source(text)), "f")
    memories = [driver.allocate(array.nbytes) for array in given]
    for index, (array, memory) in enumerate(zip(given, memories, strict=True)):
        natively.view(memory)[: array.nbytes] = array.view(np.uint8)
        kernel.set(index, memory)
    kernel.set(len(memories), LocalArg(local))
    driver.wait(driver.launch(driver.queue(False), kernel, items, group, None, None))
    return natively.view(memories[-1])[: given[-1].nbytes].view(given[-1].dtype).copy()


@pytest.mark.parametrize("offset", [None, 0, 512, 1024])
def test_what_overlaps_is_counted_at_once(offset: int | None) -> None:
    """A work-item that counts in memory that it reads by another name sees what it has counted."""
    text = """kernel void f(global int *c, global const int *same, global int *seen) {
        int i = get_global_id(0);
        atomic_inc(&c[i]);
        seen[i] = same[i];
    }"""
    driver, count = natively.device(), 256
    kernel = driver.kernel(driver.build(Source(text)), "f")
    whole, seen = driver.allocate(3 * 4 * count), driver.allocate(4 * count)
    natively.view(whole)[:] = 0
    same = whole if offset is None else driver.part(whole, offset, 4 * count)
    c = whole if offset is None else driver.part(whole, 0, 4 * count)
    for index, memory in enumerate((c, same, seen)):
        kernel.set(index, memory)
    queue = driver.queue(False)
    driver.wait(driver.launch(queue, kernel, (count,), (64,), None, None))
    numbers = natively.view(seen)[: 4 * count].view(np.int32)
    if not offset:
        assert (numbers == 1).all()
    counted = natively.view(whole)[: 4 * count].view(np.int32)
    assert (counted == 1).all()
    elsewhere = driver.allocate(4 * count)  # arguments that are set anew are looked at anew
    natively.view(elsewhere)[:] = 0
    kernel.set(1, elsewhere)
    driver.wait(driver.launch(queue, kernel, (count,), (64,), None, None))
    assert (counted == 2).all()
    assert not numbers.any()
    kernel.set(1, c)
    driver.wait(driver.launch(queue, kernel, (count,), (64,), None, None))
    assert (numbers == 3).all()


def test_two_queues_count_in_the_same_memory() -> None:
    text = "kernel void f(global uint *c) { atomic_inc(&c[get_global_id(0) & 255]); }"
    driver, count, times = natively.device(), 1 << 16, 20
    kernel = driver.kernel(driver.build(Source(text)), "f")
    memory, queues = driver.allocate(1024), [driver.queue(False), driver.queue(False)]
    natively.view(memory)[:] = 0
    kernel.set(0, memory)
    for _ in range(times):
        for queue in queues:
            driver.launch(queue, kernel, (count,), (64,), None, None)
    driver.finish()
    assert (natively.view(memory)[:1024].view(np.uint32) == 2 * times * count // 256).all()
