"""Compiled kernels that end early, also in the middle of what a thread runs at once of them: what they leave is run by
another launch, and all of it comes out as of a whole one."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import numpy as np
import pytest

from manycl.drivers.driver import Source
from manycl.drivers.native import devices
from manycl.drivers.native.devices import NativeHandle
from manycl.drivers.native.driver import NativeDriver
from manycl.group_range import RangeParts

WIDTH, HEIGHT, DEPTH = 256, 240, 64
TEXT = """
kernel void product(global const float *a, global const float *b, global float *c, int steps) {
  int x = get_global_id(0), y = get_global_id(1), w = get_global_size(0);
  float sum = 0.0f;
  for (int k = 0; k < steps; k++) sum += a[y * steps + k] * b[k * w + x];
  c[y * w + x] += sum;
}
kernel void loop(global const float *a, global const float *b, global float *c, int steps) {
  int x = get_global_id(0), y = get_global_id(1), w = get_global_size(0);
  float v = a[y] + b[x];
  for (int k = 0; k < steps; k++) v = v * 0.5f + 1.0f;
  c[y * w + x] += v;
}
kernel void summed(global const float *a, global const float *b, global float *c, int steps) {
  local float part[64];
  int x = get_global_id(0), y = get_global_id(1), w = get_global_size(0), l = get_local_id(0) + 16 * get_local_id(1);
  part[l] = a[y] * b[x] + steps;
  barrier(CLK_LOCAL_MEM_FENCE);
  c[y * w + x] += part[63 - l];
}
"""


@pytest.fixture(scope="module", params=[1, 3])
def driver(request: pytest.FixtureRequest) -> Iterator[NativeDriver]:
    (found,) = devices.look([])
    handle = found.handle
    assert isinstance(handle, NativeHandle)
    handle._cores = (-1,) * request.param
    driver = handle.open(found.device)
    assert isinstance(driver, NativeDriver)
    yield driver
    driver.finish()
    driver.release()


@pytest.mark.parametrize("name", ["product", "loop", "summed"])
def test_each_element_is_computed_once(driver: NativeDriver, name: str) -> None:
    """In place, so that nothing is missing, or is run twice."""
    choose, chance = random.Random(1), np.random.default_rng(1)
    a, b, c = (chance.random(n, np.float32) for n in (HEIGHT * DEPTH, WIDTH * DEPTH, WIDTH * HEIGHT))
    program, queue = driver.build(Source(TEXT)), driver.queue(timed=False)
    found, wanted = driver.allocate(c.nbytes), driver.allocate(c.nbytes)
    kernel = driver.kernel(program, name)
    for index, array in enumerate((a, b)):
        memory = driver.allocate(array.nbytes)
        driver.wait(driver.write(queue, memory, array.view(np.uint8), 0))
        kernel.set(index, memory)
    kernel.set(3, DEPTH.to_bytes(4, "little"))
    local, short = (16, 4), 0
    for turn in range(60):
        for memory in (found, wanted):
            driver.wait(driver.write(queue, memory, c.view(np.uint8), 0))
        kernel.set(2, wanted)
        driver.wait(driver.launch(queue, kernel, (WIDTH, HEIGHT), local, None, None))
        kernel.set(2, found)
        ends = sorted({*(4 * choose.randrange(1, HEIGHT // 4) for _ in range(12)), HEIGHT})
        driver.hold(turn % 3 == 0)  # then it has hardly begun
        event = driver.launch_in_parts(
            queue, kernel, (WIDTH, HEIGHT), local, None, None, RangeParts(1, tuple(ends)), is_beside=False
        )
        until = time.perf_counter() + 1e-6 * choose.randrange(300) * (turn % 3)
        while time.perf_counter() < until:
            pass
        shortened = driver.shorten(event)
        driver.hold(False)
        end = HEIGHT if shortened is None else ends[shortened[0] - 1]
        if end < HEIGHT:
            short += 1
            driver.wait(driver.launch(queue, kernel, (WIDTH, HEIGHT - end), local, (0, end), None))
        driver.wait(event)
        outs = [np.empty(c.nbytes, np.uint8) for _ in range(2)]
        for out, memory in zip(outs, (found, wanted), strict=True):
            driver.read(queue, out, memory, 0)
        assert (outs[0] == outs[1]).all()
    assert short
