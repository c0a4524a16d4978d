"""Which floating-point arguments the analysis is told of, and that launches that differ in them are different."""

from __future__ import annotations

import numpy as np
import pytest

import manycl as mc
from manycl.analysis import parse_program
from manycl.graph.known import known_launch

HEAD = "float half_of(float v) { return v / 2; } int whole(float v) { return (int)v; }"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("d[i] = f + g;", ""),
        ("d[(int)(i * f)] = g;", "f"),
        ("float t = f; t = t + g; d[(int)t] = 1;", ""),  # of a variable that is made of itself nothing is known
        ("float t = f, u = t * g; d[(int)u] = 1;", "fg"),
        ("if (d[i] > f) d[i] = g;", ""),
        ("if (i > f) d[i] = g;", "f"),
        ("d[whole(half_of(f))] = g;", "f"),
        ("d[whole(d[i] * f)] = g;", ""),
        ("d[convert_int(floor(f)) + (int)sqrt(g)] = 1;", "f"),
        ("if (f) d[i] = g;", "f"),
        ("for (float t = f; t < g; t += 1.0f) d[i] += t;", "fg"),
        ("f = d[i]; d[(int)f] = g;", ""),
    ],
)
def test_floats_that_become_subscripts_or_conditions_without_data(body: str, expected: str) -> None:
    source = f"{HEAD} kernel void k(global float *d, float f, float g) {{ int i = get_global_id(0); {body} }}"
    arguments = parse_program(source).kernels["k"].arguments
    assert "".join(a.name for a in arguments if a.steers) == expected
    assert [a.name for a in arguments if a.decides] == [*expected]


def test_each_launch_is_told_its_own_number() -> None:
    program = mc.Program("kernel void k(global int *d, float f, float g) { d[(int)(get_global_id(0) * f)] = (int)g; }")
    queue = mc.Queue("cpu/2")
    for scale in (1.0, 2.0):
        d = queue.zeros(64, np.int32)
        with queue.prepare() as graph:
            program.k(queue, (32,), (4,), d, np.float32(scale), np.float32(0.5))
        launch = graph.graph.nodes[0]
        known = known_launch(launch, {key: b.nbytes for key, b in graph.graph.buffers.items()})
        assert known.scalars == {1: np.float32(scale).tobytes(), 2: np.float32(0.5).tobytes()}
