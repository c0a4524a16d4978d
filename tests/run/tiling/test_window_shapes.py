"""Which intervals become one window, which ranges interfere, how much a window takes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from manycl.graph.access import interfere
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Graph, HostTask, same_graph
from manycl.machine import HOST, Device, Machine
from manycl.plan.plan import Assignment, Plan, same_plan
from manycl.plan.problem import Problem
from manycl.region import Region, union
from manycl.run.tiling.limits import limited
from manycl.run.tiling.windows import Windows, size_of
from manycl.units import PAGE
from tests.run.chaos.test_state import Unit, launch

INTERVALS = st.tuples(st.integers(0, 60), st.integers(1, 30)).map(lambda x: (x[0] * 4096, (x[0] + x[1]) * 4096))


def given_bytes(numbers: set[int]) -> Region:
    return union(Region.span(n, n + 1) for n in numbers)


BYTES = st.sets(st.integers(0, 12), max_size=5)


@given(st.lists(st.tuples(BYTES, BYTES), min_size=1, max_size=4))
def test_ranges_interfere_where_one_writes_what_another_touches(ranges: list[tuple[set[int], set[int]]]) -> None:
    expected = any(
        written & (other_read | other_written)
        for i, (_, written) in enumerate(ranges)
        for j, (other_read, other_written) in enumerate(ranges)
        if i != j
    )
    assert interfere([(given_bytes(r), given_bytes(w)) for r, w in ranges]) == expected


@given(st.lists(INTERVALS, min_size=1, max_size=12, unique=True), st.booleans())
def test_every_interval_lies_in_its_window(wanted: list[tuple[int, int]], shared: bool) -> None:
    keys = iter(range(-1, -100, -1))
    windows = Windows([(0, 7, low, high) for low, high in wanted], lambda: next(keys), shared)
    found = {interval: windows.of(0, 7, *interval) for interval in wanted}
    for (low, high), window in found.items():
        assert window.low <= low < high <= window.low + window.nbytes
        assert window.whole == 7
    if shared:
        assert len({w.nbytes for w in found.values()}) == 1, "windows of a buffer have one size"
    for a, one in found.items():
        for b, other in found.items():
            if one.key == other.key and a != b:
                common = min(a[1], b[1]) - max(a[0], b[0])
                assert common >= 0.5 * max(a[1] - a[0], b[1] - b[0]), "little is common to them"


def test_what_a_stencil_reads_and_writes_of_a_part_is_one_window() -> None:
    keys = iter(range(-1, -100, -1))
    row = 4096
    reads = [(max(0, 10 * i - 1) * row, (10 * i + 11) * row) for i in range(5)]
    writes = [(10 * i * row, (10 * i + 10) * row) for i in range(5)]
    windows = Windows([(0, 1, *x) for x in reads + writes], lambda: next(keys))
    for i in range(5):
        assert windows.of(0, 1, *reads[i]) == windows.of(0, 1, *writes[i])
    assert len({windows.of(0, 1, *x).key for x in reads}) == 5


@given(st.integers(0, 1 << 40), st.integers(1, 1 << 40))
def test_windows_take_little_more_than_they_must(low: int, nbytes: int) -> None:
    least = low + nbytes - low // PAGE * PAGE
    assert least <= size_of(low, low + nbytes) <= max(1.07 * least + PAGE, PAGE)


def some_graph(reads: tuple[int, ...], names: list[str], components: bool, nbytes: int, after: bool) -> Graph:
    builder = GraphBuilder()
    for _ in range(3):
        builder.buffer(nbytes)
    for name in names:
        builder.add(launch(name, reads, (2,)))
    builder.add(launch("apart", (), ()), [0] if after else [])
    return builder.build(tuple((n,) for n in range(len(names) + 1)) if components else ())


DESCRIBED = st.tuples(
    st.sampled_from([(0,), (1,), (0, 1)]),
    st.lists(st.sampled_from("ab"), min_size=1, max_size=2),
    st.booleans(),
    st.sampled_from([4, 8]),
    st.booleans(),
)


@given(DESCRIBED, DESCRIBED)
def test_graphs_are_the_same_if_all_is_that_they_are_made_of(one: Any, other: Any) -> None:
    graph = some_graph(*one)
    assert same_graph(graph, graph)
    assert same_graph(graph, some_graph(*one))
    for at in range(len(one)):  # one thing is different
        changed = (*one[:at], other[at], *one[at + 1 :])
        assert same_graph(graph, some_graph(*changed)) == (changed == one)


RANGES = st.builds(
    Assignment,
    *(st.integers(0, 1), st.integers(0, 1), st.integers(0, 1), *[st.floats(0, 1)] * 2),
    *[st.integers(0, 1)] * 3,
)


@given(st.lists(RANGES, max_size=3), st.lists(RANGES, max_size=3), st.booleans())
def test_plans_are_the_same_but_for_their_times(one: list[Assignment], other: list[Assignment], again: bool) -> None:
    if again:
        other = [a._replace(start=9.0 + a.start, end=9.0 + a.end) for a in one]
    plans = [Plan(tuple(a), "p", ("d0", "d1"), 1.0) for a in (one, other)]
    bare = [[a._replace(start=0.0, end=0.0) for a in assignments] for assignments in (one, other)]
    assert same_plan(*plans) == (bare[0] == bare[1])
    assert same_plan(None, None)
    assert not same_plan(plans[0], None)
    assert not same_plan(None, plans[0])


@given(
    st.lists(st.integers(1, 20), min_size=2, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(-1, 2)), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60), st.integers(1, 25)), min_size=3, max_size=3),
    st.booleans(),
)
def test_the_devices_that_do_not_hold_all_that_runs_there(
    sizes: list[int],
    launches: list[tuple[int, int, int]],
    devices: list[tuple[int, int, int]],
    planned: bool,
) -> None:
    """Together, or one buffer. What host functions use is on the host, and so is what its own devices use."""
    builder = GraphBuilder()
    keys = [builder.buffer(size) for size in sizes]
    used: dict[int, set[int]] = {d: set() for d in range(3)}
    assigned = []
    for node, (one, other, device) in enumerate(launches):
        of = {keys[one % len(keys)], keys[other % len(keys)]}
        if device < 0:
            builder.add(HostTask("h", print, (), tuple(of), ()))
        else:
            builder.add(launch("k", tuple(of), ()))
            for d in [device] if planned else used:
                used[d] |= of
        assigned.append(Assignment(node, device, 0, 0.0, 0.0))
    where = Machine(
        tuple(
            Device(f"d{i}", "gpu", memory=m, global_memory=g, max_allocation=a) for i, (m, g, a) in enumerate(devices)
        )
    )
    problem = Problem(builder.build(), where, Unit(), (1, 1, 1), spills=True)
    expected = {}
    for d, (memory, room, largest) in enumerate(devices):
        needed = [sizes[keys.index(k)] for k in used[d]]
        if memory != HOST and (sum(needed) > room or any(n > largest for n in needed)):
            expected[d] = room
    plan = Plan(tuple(assigned), "p", ("d0", "d1", "d2"), 0.0) if planned else None
    assert limited(problem, plan) == expected
