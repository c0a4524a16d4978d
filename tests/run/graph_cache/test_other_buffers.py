"""A loop whose arrays are other buffers in each run is lowered once: its steps are used on the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.run.lowering.lower import lower
from manycl.run.lowering.steps import Lowered

WIDTH, ROWS, STEPS = 256, 512, 6
PROGRAM = mc.Program("""
kernel void smooth(global const float *a, global float *b, int h) {
    int x = get_global_id(0), y = get_global_id(1), i = 256 * y + x;
    float sum = 0;
    for (int k = 0; k < 40; k++) sum += a[256 * max(y - 1, 0) + x] + k * a[256 * min(y + 1, h - 1) + x];
    b[i] = sum / 1000 + a[i];
}
""")


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[mc.Queue]:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    with mc.Queue("opencl/2", policy="balance") as queue:
        yield queue


def expected(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    for _ in range(STEPS):
        above, below = np.vstack([data[:1], data[:-1]]), np.vstack([data[1:], data[-1:]])
        data = (40 * above + 780 * below) / 1000 + data
    return data


def test_steps_are_used_on_other_buffers(queue: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered, keys = list[tuple[int, ...]](), set[tuple[int, ...]]()

    def lowers(problem: Any, plan: Any, *how: Any) -> Lowered:
        made = lower(problem, plan, *how)
        lowered.extend([tuple(key for key in problem.graph.buffers if key >= 0)] * bool(made.cut))
        return made

    monkeypatch.setattr("manycl.run.graph_cache.lowering_cache.lower", lowers)
    kept = list[mc.Array]()
    rng = np.random.default_rng(1)
    for turn in range(14):
        data = rng.random((ROWS, WIDTH), np.float32)
        x, y = queue.array(data), queue.empty((ROWS, WIDTH), np.float32)
        keys.add((x.buffer.key, y.buffer.key))
        for _ in range(STEPS):
            PROGRAM.smooth(queue, (WIDTH, ROWS), (64, 4), x, y, ROWS)
            x, y = y, x
        np.testing.assert_allclose(x.get(), expected(data.astype(float)), rtol=1e-4)
        kept = [*kept[-(turn % 4) :], y if turn % 3 else x]  # so the next ones are other buffers
        del x, y
    assert len(keys) > 5
    assert 0 < len(lowered) < len(keys)  # some runs try another plan
