"""What a session's models say of single commands."""

from __future__ import annotations

from math import inf

import pytest

import manycl as mc
from manycl.graph.graph import Launch
from manycl.model.history.history import Shape, identity, kernel_key
from manycl.model.work import work_of
from manycl.run.session.models import Models

TRIAD = """
kernel void triad(global const float *a, global float *c) { c[get_global_id(0)] = 2.0f * a[get_global_id(0)]; }
kernel void other(global float *c) { c[get_global_id(0)] = 1.0f; }
"""


def test_a_command_takes_what_the_same_kernel_took_with_more_work_or_in_proportion() -> None:
    models, program = Models(remember=False), mc.Program(TRIAD)
    with mc.Queue("cpu/2") as queue:
        device = queue.session.machine.devices[0]
        a, c = queue.empty(1 << 12), queue.empty(1 << 12)

        def launch(name: str, n: int) -> Launch:
            with queue.prepare() as prepared:
                getattr(program, name)(queue, (n,), (64,), *((a, c) if name == "triad" else (c,)))
            (task,) = prepared.graph.nodes
            assert isinstance(task, Launch)
            return task

        def took(name: str, n: int) -> float:
            return models.took(launch(name, n), device)

        assert took("triad", 1024) == inf
        task = launch("triad", 1024)
        shape = Shape(task.global_size, work_of(task, task).f)
        models.history.observe(kernel_key(task), shape, identity(device), 1e-4, 1e-4, 1e-4)
        assert took("triad", 1024) == pytest.approx(1e-4)
        assert took("triad", 512) == pytest.approx(1e-4)  # not more, and it may not be less
        assert took("triad", 4096) == pytest.approx(4e-4)
        assert took("other", 1024) == inf
