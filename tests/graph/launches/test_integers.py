"""Launches that differ in integers: those that are not looked at keep to their buffers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis import parse_program, service
from manycl.analysis.facts import ProgramFacts
from manycl.errors import LaunchError
from manycl.graph import bounds
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Argument, Buffer, BufferArg, Launch
from manycl.graph.integers import Integers
from manycl.graph.launch import make_launch
from tests.graph.launches.test_bounds import CASES, SOURCE, launched, refused


@pytest.fixture(scope="module")
def program() -> ProgramFacts:
    return parse_program(SOURCE)


def first(program: ProgramFacts, kernel: str, size: Any, local: Any, sizes: list[int], *scalars: int) -> Launch:
    """A launch that was looked at."""
    graph = launched(program, kernel, size, local, sizes, *scalars)
    refused(graph)
    (node,) = graph.nodes
    assert isinstance(node, Launch)
    return node


def of(launch: Launch, sizes: list[int]) -> Integers:
    nbytes = [4 * n for n in sizes]
    return Integers(launch, [*nbytes, *[None] * (len(launch.args) - len(sizes))], bounds.keep_between)


def with_scalars(launch: Launch, *scalars: int) -> list[Argument]:
    count = len(launch.args) - len(scalars)
    return [*launch.args[:count], *(scalar.to_bytes(4, "little", signed=True) for scalar in scalars)]


@pytest.mark.parametrize("kernel", CASES)
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_no_launch_that_leaves_is_covered(program: ProgramFacts, kernel: str, data: st.DataObject) -> None:
    n, m = 8 * data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    size, local = ((n, m), (8, 1)) if kernel == "rows" else ((n,), (8,))
    facts = program.kernels[kernel].arguments
    sizes = [data.draw(st.integers(1, 120)), 64][: sum(a.kind == "buffer" for a in facts)]
    values = st.tuples(*[st.integers(-2, 40) for a in facts if a.kind == "scalar"])
    begin, *others = data.draw(st.lists(values, min_size=3, max_size=20))
    launch = first(program, kernel, size, local, sizes, *begin)
    integers = of(launch, sizes)
    for scalars in others:
        if integers.cover(with_scalars(launch, *scalars)):
            assert all(0 <= place < sizes[0] for place in CASES[kernel](n, m, *scalars))


@pytest.mark.parametrize(("kernel", "most"), [("grouped", 984), ("paired", 512)])
def test_few_of_a_loop_are_looked_at(program: ProgramFacts, kernel: str, most: int) -> None:
    sizes, size = ([1000], (16,)) if kernel == "grouped" else ([512], (512,))
    launch = first(program, kernel, size, (8,), sizes, 0)
    integers = of(launch, sizes)
    looked = [n for n in range(1, most) if not integers.cover(with_scalars(launch, n))]
    assert len(looked) < 40
    assert not any(integers.cover(with_scalars(launch, most + n)) for n in (1, 7, 1 << 20))
    assert not integers.cover(with_scalars(launch, -1))
    assert integers.cover(with_scalars(launch, 3))


def test_what_contents_decide_is_not_covered(program: ProgramFacts) -> None:
    launch = first(program, "unknown", (64,), (8,), [64, 64], 0)
    integers = of(launch, [64, 64])
    assert not any(integers.cover(with_scalars(launch, 0)) for _ in range(20))


def test_what_shares_memory_is_not_covered(program: ProgramFacts) -> None:
    launch = first(program, "called", (8,), (8,), [64, 64], 0)
    integers = of(launch, [64, 64])
    assert [integers.cover(with_scalars(launch, n)) for n in (1, 2, 3)] == [False, True, True]
    a, _, n = with_scalars(launch, 3)
    assert not integers.cover([a, a, n])


def test_what_else_may_decide_has_to_be_the_same() -> None:
    program = parse_program("kernel void f(global int *a, int add, int2 by) { a[get_global_id(0) + add] = by.x; }")
    launch = first(program, "f", (8,), (8,), [64], 0, b"\0" * 8)  # type: ignore[arg-type]
    integers = of(launch, [64])
    a, _, by = launch.args
    assert [integers.cover([a, n.to_bytes(4, "little"), by]) for n in (1, 2)] == [False, True]
    assert not integers.cover([a, b"\1\0\0\0", b"\1" * 8])
    assert integers.cover([a, b"\1\0\0\0", by])


def test_the_next_process_reads_what_keeps_and_not_what_is_accessed(
    program: ProgramFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def covered() -> list[int]:
        monkeypatch.setattr(bounds, "_checked", bounds._Checked())  # as a process has it that begins
        launch = first(program, "grouped", (16,), (8,), [1000], 0)
        integers = of(launch, [1000])
        return [n for n in range(1, 60) if integers.cover(with_scalars(launch, n))]

    found, asked = covered(), list[str]()
    monkeypatch.setattr(service, "enclosed", lambda program, kernel: asked.append(kernel))
    assert len(found) > 40
    assert covered() == found
    assert not asked


def test_few_launches_of_a_graph_that_differ_by_a_counter_are_looked_at(
    program: ProgramFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, look = list[Launch](), bounds.check_launch
    monkeypatch.setattr(bounds, "check_launch", lambda launch, buffers: looked.append(launch) or look(launch, buffers))

    def checked(*counters: int) -> int:
        builder = GraphBuilder()
        keys = [builder.buffer(4000, f"buffer{n}") for n in range(2)]
        buffers = {key: Buffer(key, 4000) for key in keys}
        for n in counters:
            args = BufferArg(keys[n % 2]), n
            builder.add(make_launch(program, "grouped", (16,), (8,), args, buffers=buffers))
        looked.clear()
        bounds.check(builder.build())
        return len(looked)

    assert checked(*range(500)) < 40
    assert checked(*range(0, 900, 300)) == 3
    with pytest.raises(LaunchError, match="outside"):
        checked(*range(500, 1000))
