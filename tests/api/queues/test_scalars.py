"""Launches that differ in a scalar only, each divided into halves where it may be: the bits are those of NumPy."""

from __future__ import annotations

import random

import numpy as np
import pytest

import manycl as mc
from manycl.plan import splitting
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.splitting import LATER
from manycl.plan.tuning import PLANNING

N, GROUP = 1024, 16
SOURCE = """
kernel void slice(global float *x, int s) { int i = get_global_id(0); if (i > 0) x[s * 32 + i % 32] += i; }
kernel void tile(global float *x, int s) { int i = get_global_id(0) + s; if (i < 1024) x[i] = x[i] * 2 + s; }
kernel void row(global float *x, int s) { int i = get_global_id(0); if (i > s) x[i] += s; }
kernel void butterfly(global float *x, int s) {
    int i = get_global_id(0), at = i / s * 2 * s + i % s;
    float u = x[at], v = x[at + s];
    x[at] = u + v;
    x[at + s] = u - v;
}
kernel void exchange(global float *x, int s) {
    int i = get_global_id(0), o = i ^ s;
    if (o > i) { float u = x[i]; x[i] = x[o]; x[o] = u; }
}
"""
VALUES = {
    "slice": range(32),
    "tile": range(0, N, 24),
    "row": range(-2, N, 7),
    "butterfly": [1 << e for e in range(9)],
    "exchange": range(N),
}
SIZES = {"slice": 32, "tile": 64, "butterfly": N // 2}


def expected(name: str, x: np.ndarray, s: int) -> None:
    """Change an array as a launch does."""
    i = np.arange(SIZES.get(name, N))
    if name == "slice":
        x[s * 32 + i[1:]] += i[1:]
    elif name == "tile":
        x[s : s + 64] = x[s : s + 64] * 2 + np.float32(s)
    elif name == "row":
        x[max(s + 1, 0) :] += np.float32(s)
    elif name == "butterfly":
        at = i // s * 2 * s + i % s
        x[at], x[at + s] = x[at] + x[at + s], x[at] - x[at + s]
    else:
        x[:] = x[i ^ s]


class Even:
    """A policy that divides each launch evenly; ``postponed``: how many launches of a plan it could not yet."""

    def __init__(self) -> None:
        self.postponed: list[int] = []
        self.divided = 0

    def plan(self, problem: Problem) -> Plan:
        found, postponed = [], 0
        for node in range(len(problem.graph)):
            split = problem.splits.get(node)
            if split is None or split.merge != "none":
                postponed += problem.splits.why(node) == LATER  # type: ignore[attr-defined]
                found.append(Assignment(node, node % 2, 0, 0.0, 0.0))
                continue
            self.divided += 1
            half = split.groups // 2
            ranges = (0, half), (half, split.groups - half)
            found += [Assignment(node, d, 0, 0.0, 0.0, split.dimension, *r) for d, r in enumerate(ranges) if r[1]]
        self.postponed.append(postponed)
        return Plan(tuple(found), "even", tuple(d.name for d in problem.machine.devices), 0.0)


@pytest.mark.parametrize("zero_copy", ["0", "1"])
def test_launches_of_any_values_are_divided_right(zero_copy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", zero_copy)
    r = random.Random(int(zero_copy))
    program = mc.Program(SOURCE)
    even = Even()
    with mc.Queue("cpu0/2", policy=even) as queue:
        x = np.arange(N, dtype=np.float32) % 7
        on_devices = queue.array(x)
        for _ in range(3):
            for name in r.choices(list(VALUES), k=40):
                s = r.choice(VALUES[name])
                getattr(program, name)(queue, (SIZES.get(name, N),), (GROUP,), on_devices, np.int32(s))
                expected(name, x, s)
            x %= 1 << 20
            result = on_devices.get()
            result %= 1 << 20
            np.testing.assert_array_equal(result, x)
            on_devices = queue.array(x)
    assert even.divided > 40


def test_plans_wait_for_few_values_of_which_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a policy's graphs are not recognised, so nothing is analysed beside their runs."""
    program = mc.Program(SOURCE)
    monkeypatch.setattr(splitting, "PLANNING", PLANNING._replace(first_values=4))
    even = Even()
    with mc.Queue("cpu0/2", policy=even) as queue:
        on_devices = queue.array(np.arange(N, dtype=np.float32))
        for _ in range(2):
            for s in range(1, 12):
                program.exchange(queue, (N,), (2 * GROUP,), on_devices, np.int32(s))
                program.tile(queue, (64,), (2 * GROUP,), on_devices, np.int32(8 * s))
            queue.finish()
    assert even.postponed == [7, 7]
