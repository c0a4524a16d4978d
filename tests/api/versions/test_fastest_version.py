"""Of several versions, a device runs the one that measurements say is the fastest there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import manycl as mc
from manycl.graph.graph import Graph, Launch, Version
from manycl.model.history.history import Shape, identity, kernel_key
from manycl.run.session.session import Session

SOURCE = """
__kernel void scale(__global float *x, float factor) { x[get_global_id(0)] *= factor; }
__kernel void fours(__global float4 *x, float factor) { x[get_global_id(0)] *= factor; }
"""
N = 4096


@pytest.fixture
def session() -> Iterator[Session]:
    with Session("cpu/2#0", remember=False) as session:
        yield session


@pytest.fixture
def graph(session: Session) -> Iterator[Graph]:
    """One launch of two versions: ``scale`` on every element, ``fours`` on four at once."""
    queue = mc.Queue(session=session)
    program = mc.Program(SOURCE)
    x = queue.array(np.ones(N, np.float32))
    with queue.prepare() as prepared:
        program.scale(queue, (N,), (64,), x, 2.0)
    graph = prepared.graph
    launch = graph.nodes[0]
    assert isinstance(launch, Launch)
    own = Version(launch.program, launch.kernel, (N,), (64,))
    launch.versions = (own, Version(launch.program, launch.program.kernels["fours"], (N // 4,), (16,)))
    yield graph
    assert x.get()[0] > 1


def ran(session: Session, graph: Graph) -> str:
    result = session.run(graph)
    (version,) = result.record.versions.values()  # type: ignore[attr-defined]
    return str(version.kernel.name)


def measured(session: Session, graph: Graph, version: int, seconds: float) -> None:
    launch = graph.nodes[0]
    assert isinstance(launch, Launch)
    chosen = launch.versions[version]
    session.problem(graph)  # learns from what has run
    for _ in range(3):
        key, shape = kernel_key(chosen), Shape(chosen.global_size, 1.0)
        session.models.history.observe(key, shape, identity(session.machine.devices[0]), seconds)


@pytest.mark.parametrize(("first", "second", "expected"), [(1.0, 2.0, "scale"), (2.0, 1.0, "fours")])
def test_the_faster_one_runs(session: Session, graph: Graph, first: float, second: float, expected: str) -> None:
    assert ran(session, graph) == "scale"  # nothing is known: the first that the device prefers
    measured(session, graph, 0, first)
    measured(session, graph, 1, second)
    problem = session.problem(graph)
    assert problem.version(0, 0) == (expected == "fours")
    assert ran(session, graph) == expected


def test_a_version_that_cannot_run_is_not_planned_with(session: Session, graph: Graph) -> None:
    launch = graph.nodes[0]
    assert isinstance(launch, Launch)
    huge = Version(launch.program, launch.kernel, (1 << 20,), (1 << 20,))  # no device has such work-groups
    launch.versions = (huge, launch.versions[1])
    assert session.problem(graph).version(0, 0) == 1
    assert ran(session, graph) == "fours"
    problem = session.problem(graph)  # learns from the run
    assert problem.version(0, 0) == 1
    assert problem.estimates.estimate(0, 0).source == "measured once"  # type: ignore[attr-defined]
