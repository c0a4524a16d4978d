"""Launches of a graph that are the same: in all but their rank, and in which objects say so."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from manycl.analysis import parse_program
from manycl.graph.graph import Buffer, BufferArg, Graph, HostTask, Launch, LocalArg, Version

UP = parse_program("kernel void up(global int *x, int by) { x[get_global_id(0)] += by; }")
DOWN = parse_program("kernel void up(global int *x, int by) { x[get_global_id(0)] -= by; }")

launches = st.builds(
    lambda program, size, local, key, by, writes, device, rank, versions, partition: Launch(
        "up",
        program,
        program.kernels["up"],
        (size,),
        local,
        (BufferArg(key), by),
        (key,),
        (key,) if writes else (),
        device=device,
        rank=rank,
        versions=tuple(Version(program, program.kernels["up"], (n,), None) for n in versions),
        partition=partition,
    ),
    st.sampled_from([UP, DOWN]),
    st.integers(1, 2),
    st.sampled_from([None, (1,)]),
    st.integers(0, 1),
    st.sampled_from([bytes(4), b"\1\0\0\0", LocalArg(4), LocalArg(1), BufferArg(1)]),
    st.booleans(),
    st.sampled_from(["", "cpu"]),
    st.sampled_from([None, 1.0]),
    st.sampled_from([(), (1,), (1, 2)]),
    st.sampled_from([None, 5]),
)


def says(launch: Launch) -> list[Any]:
    return [getattr(launch, f.name) for f in fields(launch) if f.name not in ("name", "rank")]


@given(st.lists(launches | st.builds(HostTask, st.just("f"), st.just(print), st.just(()), st.just(()), st.just(()))))
def test_the_first_that_is_the_same(nodes: list[Launch | HostTask]) -> None:
    nodes = [*nodes, *(replace(n, rank=3.0) for n in nodes)]
    graph = Graph(tuple(nodes), {0: Buffer(0, 4), 1: Buffer(1, 4)}, ((),) * len(nodes))
    for index, task in enumerate(nodes):
        alike = [
            i
            for i, other in enumerate(nodes[:index])
            if isinstance(task, Launch) and isinstance(other, Launch) and says(other) == says(task)
        ]
        assert graph.same[index] == (alike[0] if alike else index)
