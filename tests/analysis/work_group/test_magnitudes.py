"""Sines of angles that are certainly not huge: which those are, and that they are the same as of any angle."""

from __future__ import annotations

import numpy as np
import pytest

from manycl.analysis.reading.frontend import load
from manycl.analysis.reading.options import read_options
from manycl.analysis.work_group.function import work_group_function
from manycl.drivers.driver import Source
from tests.analysis.work_group import natively

NEAR = (
    "6.28318f * (float)i / (float)n",
    "-3.5e2f * i / 1024",
    "(float)(u >> 8) / 16777216.0f",
    "v * 2.0f - 1.0f",
    "0x1.8p3f * (i - 3 * n)",
    "(float)u * 1000.0f / n",
)
FAR = (
    "x[i]",
    "a",
    "as_float(u)",
    "(float)as_float(u)",
    "(float)get_global_id(0) * 1e30f",
    "i * 1e9f",
    "(float)l",
    "i / 1e-30f",
    "i / x[i]",
    "w * 0.5f",
    "(float)(l >> 3)",
    "(float)(u >> 40) * 1e6f",
    "i / as_float(n)",
)


def kernel(angle: str) -> str:
    return f"""kernel void f(global const float *x, global float *y, float a, int n, ulong l) {{
        int i = get_global_id(0);
        uint u = as_uint(x[i]) * 0x7feb352du;
        float v = (float)(u & 0xffffffu) / 16777216.0f, w = v;
        w *= 1e30f;
        y[2 * i] = sin({angle});
        y[2 * i + 1] = cos({angle});
    }}"""


@pytest.mark.parametrize("angle", [*NEAR, *FAR])
def test_which_are_near(angle: str) -> None:
    unit = load(kernel(angle), "<source>", None, read_options(()), everything=True)
    text = work_group_function(unit, "f", (64, 1, 1)).source
    assert ("manycl_near_sin" in text) == ("manycl_near_cos" in text) == (angle in NEAR)


def test_a_function_of_the_program() -> None:
    text = "float sin(int x); " + kernel("i").replace("cos(i)", "0") + " float sin(int x) { return x; }"
    unit = load(text, "<source>", None, read_options(()), everything=True)
    assert "near" not in work_group_function(unit, "f", (64, 1, 1)).source


def run(source: str, x: np.ndarray) -> np.ndarray:
    driver = natively.device()
    program, queue = driver.kernel(driver.build(Source(source)), "f"), driver.queue(False)
    memory, out = driver.allocate(x.nbytes), driver.allocate(2 * x.nbytes)
    natively.view(memory)[: x.nbytes] = x.view(np.uint8)
    values = np.float32(1), np.int32(1021), np.uint64(7)
    for index, value in enumerate((memory, out, *(value.tobytes() for value in values))):
        program.set(index, value)
    driver.wait(driver.launch(queue, program, (len(x),), None, None, None))
    return natively.view(out)[: 2 * x.nbytes].view(np.uint32).copy()


@pytest.mark.parametrize("factor", ["3.7f", "65536.0f", "1e-9f"])
def test_the_bits_are_those_of_any_angle(factor: str) -> None:
    """A float is read for a number that nothing is known of."""
    bits = np.random.default_rng(1).integers(-(2**31), 2**31, 3000, np.int32)
    known, unknown = (kernel(f"({of}) * {factor}") for of in ("(float)as_int(x[i])", "a * as_int(x[i])"))
    assert np.array_equal(run(known, bits.view(np.float32)), run(unknown, bits.view(np.float32)))
