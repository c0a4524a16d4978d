"""Kernels of vectors on native devices, where vectors become scalars, give Oclgrind's bits."""

from __future__ import annotations

import re

import numpy as np
import pytest

from manycl.analysis.reading.frontend import load
from manycl.analysis.reading.options import read_options
from manycl.analysis.work_group.function import work_group_function
from tests.analysis import truth
from tests.analysis.corpus_case import Launch
from tests.analysis.work_group import natively
from tests.analysis.work_group.vector_kernels import generate


def same(launch: Launch, want: truth.Contents, found: truth.Contents) -> bool:
    """Bit for bit; one NaN is as good as another."""
    for index, buffer in launch.buffers.items():
        a, b = want[index].view(buffer.dtype), found[index].view(buffer.dtype)
        if not ((a == b) | ((a != a) & (b != b))).all():
            return False
    return True


@pytest.mark.parametrize("seed", range(32))
def test_random_kernels_of_vectors(seed: int) -> None:
    case = generate(seed)
    launch = case.launches[0]
    start = truth.contents(launch, 1)
    found = natively.run(case, launch, start)
    want = truth.run_range(case, launch, 0, 0, None, start, truth.OCLGRIND)
    assert same(launch, want, found), case.text


def text(source: str) -> str:
    unit = load(source, "<source>", None, read_options(()), everything=True)
    return work_group_function(unit, "f", (64, 1, 1)).source


def kernel(body: str) -> str:
    return text(f"""typedef struct {{ float4 at; }} place;
    float4 by(float4 *v) {{ return *v; }}
    kernel void f(global const float4 *x, global float4 *y, global place *z, local float4 *w, int n) {{
        int i = get_global_id(0);
        {body}
    }}""")


SPLIT = {
    "a loop": "float4 v = x[i]; for (int j = 0; j < n; j++) { v += x[j] * v.x; } y[i] = v;",
    "parts": "float4 v = x[i]; v.xy = v.zw; v.s3 *= 2.0f; v.x++; y[i] = v.yxwz;",
    "a call": "float4 v = x[i]; v = normalize(v); y[i] = v;",
    "local memory": "w[get_local_id(0)] = x[i]; barrier(CLK_LOCAL_MEM_FENCE); float4 v = w[0]; y[i] = v;",
    "bits": "uint2 v = as_uint2(x[i].xy); v ^= as_uint2(as_ulong(v)) + as_uint(x[i].w); y[i].xy = as_float2(v);",
    "a member": "float4 v = z[i].at; y[i] = v + 1.0f;",
}
WHOLE = {
    "its address": "float4 v = x[i]; y[i] = by(&v);",
    "a component by number": "float4 v = x[i]; v[n & 3] = 1.0f; y[i] = v;",
    "a loop of a work-item's own": "float4 v = x[i]; for (int j = i; j < 99; j += (int)v.y) v.x += v.y; y[i] = v;",
    "a write within an expression": "float4 v = x[i]; y[i] = (v = v * 2.0f) + v;",
    "volatile": "volatile float4 v = x[i]; y[i] = v;",
}


@pytest.mark.parametrize("name", SPLIT)
def test_what_becomes_scalars(name: str) -> None:
    made = kernel(SPLIT[name])
    assert re.search(r"(float|uint) v_manycl_c0( =|, v_manycl_c1)", made)
    assert bool(re.search(r"\(float \*\)&\([xw]\[", made)) == (name != "a member"), "a component is read where it lies"


@pytest.mark.parametrize("name", WHOLE)
def test_what_stays_a_vector(name: str) -> None:
    assert "v_manycl_c0" not in kernel(WHOLE[name])


def test_functions_of_the_program_are_called_once() -> None:
    """They may change something: the address is a number."""
    made = text("""float once(ulong at) { return atomic_inc((global int *)at); }
    kernel void f(global const float4 *x, global float4 *y, ulong at) {
        int i = get_global_id(0);
        float4 v = x[i] * once(at);
        y[i] = v;
    }""")
    assert "v_manycl_c0" in made
    assert made.count("once(at)") == 1


def test_sums_of_products_and_functions_of_the_program() -> None:
    """Integers that floats hold, so that no order of sums makes a difference."""
    source = """
    float4 turned(float4 v) { return v.wzyx; }
    kernel void f(global const float4 *x, global float4 *y, int n) {
        int i = get_global_id(0);
        float4 v = x[i], sum = 0.0f;
        for (int j = 0; j < n; j++) {
            float4 other = x[j];
            sum += turned(other) * dot(v.xyz, other.yzw) + cross(v, other);
            sum.w -= length((float2)(3.0f * v.x, 4.0f * v.x));
        }
        y[i] = sum;
    }"""
    driver, items, turns = natively.device(), 300, 50
    x = np.random.default_rng(1).integers(0, 20, (items, 4)).astype(np.float32)
    program, queue = driver.kernel(driver.build(natively.Source(source)), "f"), driver.queue(False)
    memory, out = driver.allocate(x.nbytes), driver.allocate(x.nbytes)
    natively.view(memory)[: x.nbytes] = x.view(np.uint8).reshape(-1)
    for index, value in enumerate((memory, out, np.int32(turns).tobytes())):
        program.set(index, value)
    driver.wait(driver.launch(queue, program, (items,), None, None, None))
    want = np.zeros_like(x)
    for other in x[:turns]:
        want += (x[:, :3] @ other[1:])[:, None] * other[::-1]
        want[:, :3] += np.cross(x[:, :3], other[:3])
        want[:, 3] -= 5 * x[:, 0]
    assert (natively.view(out)[: x.nbytes].view(np.float32).reshape(-1, 4) == want).all()


def test_bits_as_a_vector_of_more_components() -> None:
    """Also in words of the compiler's own, which programs may have."""
    source = """kernel void f(global const ulong *x, global uint2 *y, global int4 *z, global const float4 *w) {
        int i = get_global_id(0);
        uint2 v = __builtin_astype(x[i], uint2);
        int4 u = w[i] < w[i].wzyx;
        y[i] = v + 1u;
        z[i] = u;
    }"""
    driver, items = natively.device(), 64
    random = np.random.default_rng(1)
    x, w = random.integers(0, 1 << 63, items, np.uint64), random.random((items, 4), np.float32)
    kernel, queue = driver.kernel(driver.build(natively.Source(source)), "f"), driver.queue(False)
    memories = [driver.allocate(size * items) for size in (8, 8, 16, 16)]
    for index, memory in enumerate(memories):
        kernel.set(index, memory)
    for memory, data in ((memories[0], x), (memories[3], w)):
        natively.view(memory)[: data.nbytes] = data.view(np.uint8).reshape(-1)
    driver.wait(driver.launch(queue, kernel, (items,), None, None, None))
    y, z = (natively.view(memory).view(np.uint32) for memory in memories[1:3])
    assert (y[: 2 * items] == x.view(np.uint32) + np.uint32(1)).all()
    assert (z[: 4 * items].view(np.int32).reshape(-1, 4) == -(w < w[:, ::-1]).astype(np.int32)).all()
